# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kernel's arguments: which are tensors, and which are constants.

Tensors may be nested in tuples, lists, dicts, named tuples, dataclasses and objects of ``NKIObject``. Everything else
is a compile-time constant.
"""

import copy
import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from nki_mlir.diagnostics import KernelError
from nki_mlir.frontend.locations import user_location
from nki_mlir.frontend.wrapping import name_of
from nki_mlir.language.objects import NKIObject
from nki_mlir.scalar.dtypes import FLOAT32, DType, dtype_of


class BadArgument(KernelError, TypeError):
    code = "NKI-ARGUMENT"
    message = "{what}"
    fix = "call the kernel with the arguments its signature asks for"


class Described:
    """A tensor by shape and dtype alone, which may be passed for one: zeros."""

    annotated_shape: tuple[Any, ...]
    annotated_dtype: Any = None

    def zeros(self) -> np.ndarray:
        dtype = FLOAT32 if self.annotated_dtype is None else dtype_of(self.annotated_dtype)
        return np.zeros([int(n) for n in self.annotated_shape], dtype.numpy)


def with_arrays(arguments: tuple, keywords: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a call with arrays for tensors that are only described."""
    if not any([isinstance(value, Described) for value in (*arguments, *keywords.values())]):
        return arguments, keywords

    def made(value: Any) -> Any:
        return value.zeros() if isinstance(value, Described) else value
    return tuple(made(a) for a in arguments), {name: made(value) for name, value in keywords.items()}


@dataclass(frozen=True)
class TensorSpec:
    """A tensor argument: its path in the arguments, shape, dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: DType


@dataclass
class Bound:
    """Arguments bound to a signature. ``tensors`` are the leaves in signature order, ``specs`` describe them."""

    names: list[str]
    values: dict[str, Any]
    specs: list[TensorSpec] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)

    def with_tensors(self, replacements: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """(positional, keyword) arguments with the tensor leaves replaced, in order. The kernel changes copies only."""
        left, apart = iter(replacements), dict[int, Any]()
        values = {name: map_leaves(value, self.is_tensor, lambda _: next(left), apart)
                  for name, value in self.values.items()}
        return self.call(values)

    is_tensor: Callable[[Any], bool] = lambda value: False
    call: Callable[[dict[str, Any]], tuple[list[Any], dict[str, Any]]] = lambda values: ([], values)

    @property
    def tensor_key(self) -> tuple:
        """What a capture depends on of the tensors: where they are, their shapes and dtypes."""
        return tuple([(s.name, s.shape, s.dtype.name) for s in self.specs])

    @property
    def constants(self) -> list[Any]:
        """The arguments without their tensors, in order."""
        return [map_leaves(value, self.is_tensor, lambda _: None) for value in self.values.values()]


def map_leaves(value: Any, is_leaf: Callable[[Any], bool], change: Callable[[Any], Any],
               apart: dict[int, Any] | None = None) -> Any:
    """``value`` with its leaves changed, in new containers and objects; objects without leaves stay the same ones.

    With ``apart``, where the copies are kept, they are copied, too, so that nothing of ``value`` can be changed.
    """
    if is_leaf(value):
        return change(value)
    inside = lambda part: map_leaves(part, is_leaf, change, apart)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(inside, value))
    if isinstance(value, (tuple, list)):
        return type(value)(map(inside, value))
    if isinstance(value, dict):
        items = {k: inside(v) for k, v in value.items()}
        if type(value) is dict:
            return items
        made = copy.copy(value)
        made.update(items)
        return made
    names = attribute_names(value)
    if not names:
        return value
    if not leaves_of(value, is_leaf):
        if apart is None or is_frozen(value):
            return value
        if id(value) not in apart:
            apart[id(value)] = copy.copy(value)
            set_attributes(apart[id(value)], {n: inside(getattr(value, n)) for n in names})
        return apart[id(value)]
    made = copy.copy(value)
    set_attributes(made, {n: inside(getattr(value, n)) for n in names})
    return made


def leaves_of(value: Any, is_leaf: Callable[[Any], bool], path: str = "", around: tuple[Any, ...] = ()
              ) -> list[tuple[str, Any]]:
    """(path, leaf) pairs in order. An object that holds itself is looked into once."""
    if is_leaf(value):
        return [(path, value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [x for n, v in zip(value._fields, value) for x in leaves_of(v, is_leaf, f"{path}.{n}", around)]
    if isinstance(value, (tuple, list)):
        return [x for k, v in enumerate(value) for x in leaves_of(v, is_leaf, f"{path}_{k}", around)]
    if isinstance(value, dict):
        return [x for k, v in value.items() for x in leaves_of(v, is_leaf, f"{path}_{k}", around)]
    names = attribute_names(value)
    if not names or any([value is v for v in around]):
        return []
    return [x for n in names for x in leaves_of(getattr(value, n), is_leaf, f"{path}.{n}", (*around, value))]


def attribute_names(value: Any) -> list[str]:
    """The fields of a dataclass, the attributes of an ``NKIObject``; nothing of what is neither."""
    if isinstance(value, type):
        return []
    if dataclasses.is_dataclass(value):
        names = [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]
        return [*names, *(n for n in getattr(value, "__dict__", ()) if n not in names)]
    return list(vars(value)) if isinstance(value, NKIObject) else []


def is_frozen(value: Any) -> bool:
    parameters = getattr(type(value), "__dataclass_params__", None)
    return parameters is not None and parameters.frozen


def set_attributes(value: Any, attributes: dict[str, Any]) -> None:
    """Frozen dataclasses included."""
    for name, attribute in attributes.items():
        object.__setattr__(value, name, attribute)


@cache
def signature_of(function: Any) -> inspect.Signature:
    return inspect.signature(function)


def bind(function: Any, arguments: tuple, keywords: dict[str, Any], is_tensor: Callable[[Any], bool],
         describe: Callable[[Any], tuple[tuple[int, ...], DType]]) -> Bound:
    """Bind to the signature with defaults; raises ``BadArgument`` with the signature's own complaint."""
    signature = signature_of(function)
    try:
        bound = signature.bind(*arguments, **keywords)
    except TypeError as error:
        raise BadArgument(what=f"{name_of(function)}{signature}: {error}").located(user_location()) from None
    bound.apply_defaults()
    values = dict(bound.arguments)
    made = Bound(list(values), values)
    made.is_tensor = is_tensor                                  # type: ignore[method-assign, assignment]

    def call(changed: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        again = inspect.BoundArguments(signature, changed)      # type: ignore[arg-type]
        return list(again.args), again.kwargs
    made.call = call                                            # type: ignore[method-assign, assignment]
    for name, value in values.items():
        for path, leaf in leaves_of(value, is_tensor, name):
            shape, dtype = describe(leaf)
            made.specs.append(TensorSpec(path, shape, dtype))
            made.tensors.append(leaf)
    return made

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kernel's arguments: which are tensors, and which are constants.

Tensors may be nested in tuples, lists, dicts, named tuples and dataclasses. Everything else is a compile-time constant.
"""

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from nki_mlir.diagnostics import KernelError
from nki_mlir.frontend.locations import user_location
from nki_mlir.frontend.wrapping import name_of
from nki_mlir.scalar.dtypes import DType


class BadArgument(KernelError, TypeError):
    code = "NKI-ARGUMENT"
    message = "{what}"
    fix = "call the kernel with the arguments its signature asks for"


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
        """(positional, keyword) arguments with the tensor leaves replaced, in order."""
        left = iter(replacements)
        values = {name: map_leaves(value, self.is_tensor, lambda _: next(left)) for name, value in self.values.items()}
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


def map_leaves(value: Any, is_leaf: Callable[[Any], bool], change: Callable[[Any], Any]) -> Any:
    """``value`` with its leaves changed; containers without leaves stay the same objects."""
    if is_leaf(value):
        return change(value)
    if not _holds_leaf(value, is_leaf):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_leaves(v, is_leaf, change) for v in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_leaves(v, is_leaf, change) for v in value)
    if isinstance(value, dict):
        return {k: map_leaves(v, is_leaf, change) for k, v in value.items()}
    return dataclasses.replace(value, **{f.name: map_leaves(getattr(value, f.name), is_leaf, change)
                                         for f in dataclasses.fields(value) if f.init})


def leaves_of(value: Any, is_leaf: Callable[[Any], bool], path: str = "") -> list[tuple[str, Any]]:
    """(path, leaf) pairs in order."""
    if is_leaf(value):
        return [(path, value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [x for n, v in zip(value._fields, value) for x in leaves_of(v, is_leaf, f"{path}.{n}")]
    if isinstance(value, (tuple, list)):
        return [x for k, v in enumerate(value) for x in leaves_of(v, is_leaf, f"{path}_{k}")]
    if isinstance(value, dict):
        return [x for k, v in value.items() for x in leaves_of(v, is_leaf, f"{path}_{k}")]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [x for f in dataclasses.fields(value)
                for x in leaves_of(getattr(value, f.name), is_leaf, f"{path}.{f.name}")]
    return []


def _holds_leaf(value: Any, is_leaf: Callable[[Any], bool]) -> bool:
    return isinstance(value, (tuple, list, dict)) or (dataclasses.is_dataclass(value) and not isinstance(
        value, type) and bool(leaves_of(value, is_leaf)))


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

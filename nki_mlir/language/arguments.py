# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kernel's arguments: which are tensors, which are constants, and the key of what they specialise it to.

Tensors may be nested in tuples, lists, dicts, named tuples and dataclasses. Everything else is a compile-time constant.
"""

import dataclasses
import enum
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from nki_mlir.diagnostics import KernelError
from nki_mlir.frontend.locations import is_library, user_location
from nki_mlir.frontend.state import is_bound
from nki_mlir.frontend.wrapping import name_of, underlying
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
    def key(self) -> tuple:
        """What a capture depends on: shapes and dtypes of tensors, values of constants."""
        marked = {name: map_leaves(v, self.is_tensor, lambda _: _TENSOR) for name, v in self.values.items()}
        constants = tuple((name, constant_key(value)) for name, value in marked.items())
        return tuple((s.name, s.shape, s.dtype.name) for s in self.specs), constants


class _Marker:
    """Stands for a tensor in a key."""


_TENSOR = _Marker()


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


def constant_key(value: Any) -> Any:
    """A hashable key: by value where a value has one, by identity else (the object is then kept in the key)."""
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes() | type() | enum.Enum():
            return type(value).__name__, repr(value)
        case np.dtype() | np.generic() | DType():
            return type(value).__name__, str(value)
        case np.ndarray():
            return "array", value.shape, str(value.dtype), value.tobytes()
        case tuple() | list():
            return type(value).__name__, tuple(constant_key(v) for v in value)
        case dict():
            return "dict", tuple((constant_key(k), constant_key(v)) for k, v in value.items())
    if dataclasses.is_dataclass(value):
        return type(value).__qualname__, tuple(
            (f.name, constant_key(getattr(value, f.name))) for f in dataclasses.fields(value))
    return type(value).__qualname__, Identity(value)


class Identity:
    """Equal to the same object only, which it keeps alive."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def surroundings(function: Any) -> tuple:
    """What a function's code and its helpers see besides their arguments, by value where it has one."""
    found, cells = seen_by(function)
    return *[_plain_key(value) for _, value in cells], *[_plain_key(value) for _, _, value in found]


def seen_by(function: Any) -> tuple[list[tuple[dict[str, Any], str, Any]], list[tuple[Any, Any]]]:
    """What a kernel is captured with besides its arguments: globals (scope, name, value), closure cells (cell, value).

    These are what its own Python reads, and what the helpers that it sees read, in other modules of the user's too.
    """
    found: list[tuple[dict[str, Any], str, Any]] = []
    cells: list[tuple[Any, Any]] = []
    pending, visited = [function], set()
    while pending:
        inner = underlying(pending.pop())
        if inner is None or id(inner) in visited:
            continue
        visited.add(id(inner))
        names, scope = global_names(inner.__code__), inner.__globals__
        near = [(cell, cell.cell_contents) for cell in inner.__closure__ or () if is_bound(cell)]
        new = [(scope, name, scope[name]) for name in names if name in scope]
        for _, _, module in new[:]:
            if type(module) is ModuleType and _is_users(getattr(module, "__file__", None)):
                new += [(vars(module), name, vars(module)[name]) for name in names if name in vars(module)]
        found += new
        cells += near
        for value in (*(value for _, value in near), *(value for _, _, value in new)):
            helper = _function_in(value)
            if helper is not None and _is_users(helper.__code__.co_filename):
                pending.append(helper)
    return found, cells


def _function_in(value: Any) -> FunctionType | None:
    """The Python function of a helper: itself, a method's, a partial's, or the one that a kernel was made of."""
    match value:
        case FunctionType():
            return value
        case MethodType() | partial():
            return underlying(value)
    made_of = getattr(value, "func", None) if hasattr(type(value), "__dataclass_fields__") else None
    return made_of if isinstance(made_of, FunctionType) else None


@cache
def _is_users(file: str | None) -> bool:
    return file is not None and not is_library(file)


def _plain_key(value: Any) -> Any:
    """Cheaper than ``constant_key``: containers that may change count by identity."""
    match value:
        case None | bool() | int() | str() | bytes():
            return type(value), value
        case float() | complex():
            return type(value), repr(value)
        case tuple():
            return tuple(_plain_key(v) for v in value)
    return Identity(value)


@cache
def global_names(code: CodeType) -> tuple[str, ...]:
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return tuple(sorted({*code.co_names, *(name for c in inner for name in global_names(c))}))


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

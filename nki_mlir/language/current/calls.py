# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is around every function of the language: arguments of the right kinds, errors at the kernel's line.

The kinds are the annotations ``bool``, ``int``, ``float``, ``str``, ``Sequence[int]``, ``Callable``, ``NkiTensor`` and
``Scalar``, each with or without ``| None``; parameters with another annotation check themselves.
"""

import inspect
import types
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin

import numpy as np

from nki_mlir.diagnostics import KernelError, NkiMlirError
from nki_mlir.dialects.nisa.indirect import IndirectOutOfBounds
from nki_mlir.frontend.locations import user_location
from nki_mlir.language.current.errors import NkiTypeError, invalid, of_core, whole
from nki_mlir.language.current.register import VirtualRegister
from nki_mlir.scalar.dtypes import DType, dtype_of

Function = TypeVar("Function", bound=Callable[..., Any])
Scalar = Annotated[Any, "a number, or a tile of one element for each partition"]


class Parameter(NamedTuple):
    """A parameter whose values are looked at."""

    place: int
    name: str
    kind: Any
    optional: bool
    default: Any


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number, np.bool_)) or (
        isinstance(value, np.generic) and hasattr(value, "__float__") and not isinstance(value, (np.str_, np.bytes_)))


def is_tensor(value: Any) -> bool:
    from nki_mlir.language.current.tensor import NkiTensor
    return isinstance(value, NkiTensor)


def is_scalar(value: Any) -> bool:
    """A number, or what has a place in memory: tiles and registers have rules of their own."""
    return is_number(value) or is_tensor(value) or isinstance(value, VirtualRegister)


def is_shape(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(hasattr(n, "__index__") for n in value)


def is_flag(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1))


KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("'bool'", is_flag),
    float: ("'number'", is_number),
    str: ("'string'", lambda value: isinstance(value, str)),
    Sequence[int]: ("'sequence' of integers", is_shape),
    Callable: ("'function'", callable),
    Scalar: ("'number' or 'tensor'", is_scalar),
    "NkiTensor": ("'tensor'", is_tensor),
}


def kind_of(annotation: Any) -> tuple[Any, bool]:
    """An annotation without its ``None``, and whether it had one."""
    if getattr(annotation, "__name__", "") == "NkiTensor":
        return "NkiTensor", False
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    kinds = [a for a in get_args(annotation) if a is not type(None)]
    return (kinds[0] if len(kinds) == 1 else None), len(kinds) < len(get_args(annotation))


def looked_at(function: Callable) -> list[Parameter]:
    """The parameters of a function that have one of the kinds."""
    made = []
    for k, (name, p) in enumerate(inspect.signature(function).parameters.items()):
        kind, optional = kind_of(p.annotation)
        if kind is int or kind in KINDS:
            made.append(Parameter(k, name, kind, optional, p.default))
    return made


def hold(called: str, parameters: list[Parameter], arguments: tuple, keywords: dict[str, Any]) -> None:
    """Refuse an argument that is not of its parameter's kind."""
    for place, name, kind, optional, default in parameters:
        value = arguments[place] if place < len(arguments) else keywords.get(name, default)
        if value is default or (value is None and optional):
            continue
        if kind is int:
            whole(value, f"{called} {name}")
            continue
        label, takes = KINDS[kind]
        if not takes(value):
            try:
                shown = repr(value)
            except NkiMlirError:
                shown = type(value).__name__
            found = shown if len(shown) < 40 else f"'{type(value).__name__}'"
            if kind == "NkiTensor":
                invalid(f"{called} {name}: expecting {label}, got '{type(value).__name__}'")
            raise NkiTypeError(f"{called} {name}: expecting {label}, got {found}").located(user_location())


def dtype_argument(dtype: Any) -> DType:
    """A dtype of the language, of NumPy or of a framework."""
    if type(dtype).__module__ == "torch":
        dtype = str(dtype).removeprefix("torch.")
    try:
        return dtype_of(dtype)
    except TypeError:
        raise NkiTypeError(f"unsupported dtype '{dtype}'").located(user_location()) from None


def reported(function: Function) -> Function:
    """The function with arguments of the right kinds, and errors of the core as ``NkiValidationError``.

    An index that is out of bounds at run time stays the ``IndexError`` it is.
    """
    parameters = looked_at(function)

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            hold(function.__name__, parameters, arguments, keywords)
            return function(*arguments, **keywords)
        except IndirectOutOfBounds:
            raise
        except KernelError as error:
            raise of_core(error) from error
        except TypeError as error:
            at_the_call = error.__traceback__ is not None and error.__traceback__.tb_next is None
            if not at_the_call or isinstance(error, NkiMlirError):
                raise
            raise NkiTypeError(str(error), fix=f"call it as {function.__name__}{form_of(function)}").located(
                user_location()) from None
    return call                                                 # type: ignore[return-value]


def form_of(function: Callable) -> inspect.Signature:
    """The parameters as one writes them in a call."""
    signature = inspect.signature(function)
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)

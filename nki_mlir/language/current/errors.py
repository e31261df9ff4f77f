# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors and warnings of the current generation: one class for what an instruction does not allow, with its place."""

import inspect
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, TypeVar

from nki_mlir.diagnostics import KernelError, NkiMlirError
from nki_mlir.dialects.nisa.indirect import IndirectOutOfBounds
from nki_mlir.frontend.locations import user_location

Function = TypeVar("Function", bound=Callable[..., Any])


class NkiValidationError(NkiMlirError, AssertionError):
    """An operand or parameter that the hardware or the language does not allow."""

    code = "NKI-VALIDATION"


class NkiIndexError(NkiValidationError, IndexError):
    """A subscript or view that leaves its tensor."""

    code = "NKI-INDEX"


class NkiTypeError(NkiMlirError, TypeError):
    """A value of a kind that the language does not take there."""

    code = "NKI-TYPE"


class NkiWarning(UserWarning):
    """Something that works here but not everywhere, or not in the same way."""


def invalid(text: str) -> NoReturn:
    raise NkiValidationError(text).located(user_location())


def require(holds: Any, text: str) -> None:
    if not holds:
        invalid(text)


_shown: dict[Any, Any] = {}


def warn(text: str) -> None:
    """A warning at the kernel's line; the same one is shown once a line."""
    at = user_location()
    warnings.warn_explicit(text, NkiWarning, at.file, at.line, registry=_shown)


def reported(function: Function, old_names: dict[str, str] | None = None) -> Function:
    """The function with errors of the core as ``NkiValidationError``, and keywords of older releases renamed.

    An index that is out of bounds at run time stays the ``IndexError`` it is.
    """
    renamed = old_names or {}

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        for old in [k for k in keywords if k in renamed]:
            warn(f"{function.__name__}({old}=) is now {function.__name__}({renamed[old]}=)")
            keywords[renamed[old]] = keywords.pop(old)
        try:
            return function(*arguments, **keywords)
        except IndirectOutOfBounds:
            raise
        except KernelError as error:
            kind = NkiIndexError if isinstance(error, IndexError) else NkiValidationError
            raise kind(error.headline).located(error.at or user_location()) from error
    return call                                                 # type: ignore[return-value]


def parameters(function: Callable) -> list[str]:
    return list(inspect.signature(function).parameters)

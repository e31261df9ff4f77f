# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors of kernels under ``torch.compile``: Dynamo passes them on to the caller of the compiled function.

Dynamo evaluates some functions of the toolchain as constants while it traces a call. It wraps what they raise in its
``InternalTorchDynamoError``, unless it is of its class ``ShortenTraceback``. What passes through Dynamo is therefore of
both classes, the error's and Dynamo's. At the end Dynamo asks it to remove Dynamo's frames, and then raises what it
answers: the error itself.
"""

import functools
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn, ParamSpec, TypeVar

from nki_mlir.capture.locations import is_passed, user_location
from nki_mlir.capture.source_text import statement_at
from nki_mlir.capture.tracebacks import FULL, TRACEBACK
from nki_mlir.diagnostics import Location, NkiMlirError

P = ParamSpec("P")
R = TypeVar("R")


def traced_as_constant(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that Dynamo evaluates it while it traces, and passes on what it raises."""
    wrapped = passed_on(function)
    wrapped._dynamo_marked_constant = True          # type: ignore[attr-defined]
    return wrapped


def passed_on(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function that PyTorch calls while it compiles, so that Dynamo passes on what the function raises."""
    @functools.wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*arguments, **keywords)
        except Exception as error:
            if (passing := passing_error(error)) is error:
                raise
            raise passing from None
    return call


def passing_error(error: Exception) -> Exception:
    """Return an exception that Dynamo passes on, if it is tracing, else the error itself. An error of a call gets the
    line that Dynamo traces; the line that runs calls the compiled function."""
    exceptions: Any = sys.modules.get("torch._dynamo.exc")
    context = None if exceptions is None else sys.modules["torch"]._guards.TracingContext
    if context is None or context.try_get() is None:
        return error
    if isinstance(error, NkiMlirError) and error.at in (None, user_location()):
        error.at = traced_line(context) or error.at
    base = getattr(exceptions, "ShortenTraceback", None)                # PyTorch 2.6 has none
    if base is None or isinstance(error, base):
        return error
    kind = passing_class(type(error), base)                     # type: ignore[arg-type]
    passing: Any = kind.__new__(kind, *error.args)
    passing.__dict__.update(error.__dict__)
    passing.error = error
    return passing                                  # type: ignore[no-any-return]


def traced_line(context: Any) -> Location | None:
    """Return the location of the user's statement that Dynamo traces."""
    frame = next((frame for frame in reversed(context.extract_stack()) if not is_passed[frame.filename]), None)
    if frame is None:
        return None
    return Location(frame.filename, frame.lineno, *statement_at(frame.filename, frame.lineno))


@cache
def passing_class(kind: type[Exception], base: type[Exception]) -> type[Exception]:
    """Return a class with the name of an exception's, which derives from Dynamo's and, for our errors, also from the
    exception's."""
    def error_itself(self: Any) -> Exception:
        """Return the error. Its frames are those of the toolchain and the kernel, whose line the text has."""
        error: Exception = self.error
        keeps_frames = TRACEBACK.text() == FULL or not isinstance(error, NkiMlirError)
        return error if keeps_frames else error.with_traceback(None)
    members = {"remove_dynamo_frames": error_itself, "__module__": kind.__module__,
               "__str__": lambda self: str(self.error), "__repr__": lambda self: f"{kind.__name__}: {self.error}"}
    return type(kind.__name__, (kind, base) if issubclass(kind, NkiMlirError) else (base,), members)


@traced_as_constant
def refuse(kind: type[NkiMlirError], **values: object) -> NoReturn:
    """Raise an error at the kernel's line. Use it in functions that torch.compile traces: Dynamo cannot create our
    errors, so it calls this function while it traces."""
    raise kind(**values).here()

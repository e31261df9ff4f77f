# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Removes the toolchain's frames from the tracebacks of exceptions that kernels raise, as JAX removes its own.

``NKI_MLIR_TRACEBACK=full`` keeps them. They also stay if the exception is a defect of the toolchain: one that its
code, or a library that it calls, raises and that is not an error for users.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from itertools import dropwhile
from types import TracebackType
from typing import ParamSpec, TypeVar

from nki_mlir.capture import locations
from nki_mlir.capture.replaced_builtins import AnyException, ReplacedPython, explained, replaced_builtins
from nki_mlir.diagnostics import InternalError, NkiMlirError
from nki_mlir.environment import EnvironmentVariable

P = ParamSpec("P")
R = TypeVar("R")

TRACEBACK = EnvironmentVariable("NKI_MLIR_TRACEBACK")
FULL = "full"
RAISE_RESTORES_FRAMES = sys.version_info < (3, 11)      # a bare ``raise`` takes the traceback that was caught
FRAMEWORKS = "jax", "jaxlib", "torch"
MISUSE = "jax.errors", "jax._src.errors"        # modules whose exceptions stem from the program that uses the framework


def leave_out_internal_frames(error: BaseException) -> None:
    """Remove the toolchain's frames from the traceback of an exception, of its causes and of its contexts.

    A bare ``raise`` after it adds no frame. Before Python 3.11 the frame of the function with the ``raise`` stays.
    Ctrl-C may come while the toolchain handles an exception: that exception is not shown. If the program has replaced
    built-in functions that the toolchain needs, a defect becomes an error that names them.
    """
    if replaced := replaced_builtins():
        shown = explained(error, replaced, lambda defect: without_frames(defect) and is_defect(defect))
        if shown is not error:
            raise shown from None
    else:
        without_frames(error)


def without_frames(error: BaseException) -> bool:
    """Remove the toolchain's frames, and return whether they should be removed."""
    if TRACEBACK.text() == FULL:
        return False
    for linked in chain(error):
        if isinstance(linked, KeyboardInterrupt) and is_internal(linked.__context__, linked):
            linked.__suppress_context__ = True
        if not is_defect(linked):
            shown = [frame for part in runs(linked.__traceback__) for frame in part]
            for frame, following in zip(shown, [*shown[1:], None]):
                frame.tb_next = following
            first = shown[0] if shown else None
            if linked.__traceback__ is not first:
                if RAISE_RESTORES_FRAMES and linked.__traceback__ is not None:
                    linked.__traceback__.tb_next = first
                linked.__traceback__ = first
    return True


def without_internal_frames(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function that users call, so that its exceptions have no frames of the toolchain."""
    @functools.wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*arguments, **keywords)
        except AnyException as error:
            try:
                leave_out_internal_frames(error)
            except ReplacedPython as replaced:
                replaced.__traceback__ = None
                raise
            raise
    return call


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its causes and its contexts."""
    visited, pending = set(), [error]
    while pending:
        current = pending.pop()
        if id(current) not in visited:
            visited.add(id(current))
            yield current
            pending += [other for other in (current.__cause__, current.__context__) if other is not None]


def entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def is_toolchain(frame: TracebackType) -> bool:
    return locations.is_toolchain(frame.tb_frame.f_code.co_filename)


def is_users(frame: TracebackType) -> bool:
    """Return whether a frame belongs to a user's code, or to a library that only the user may have called."""
    name = str(frame.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    return name not in FRAMEWORKS and not locations.is_passed[frame.tb_frame.f_code.co_filename]


def is_defect(error: BaseException) -> bool:
    """Return whether an exception stems from a mistake in the toolchain, not in its input."""
    if isinstance(error, InternalError):
        return True
    if isinstance(error, (NkiMlirError, MemoryError)) or not isinstance(error, Exception) or (
            type(error).__module__ in MISUSE):
        return False
    parts = list(runs(error.__traceback__, with_toolchain=True))
    return bool(parts) and any(map(is_toolchain, parts[-1]))


def is_internal(handled: BaseException | None, error: BaseException) -> bool:
    """Return whether an exception was being handled, at ``error``, by the toolchain or a library that it called."""
    if handled is None or handled.__traceback__ is None:
        return False
    handler = handled.__traceback__
    inside = dropwhile(lambda frame: not is_toolchain(frame), entries(error.__traceback__))
    return not is_users(handler) and any(frame.tb_frame is handler.tb_frame for frame in inside)


def runs(traceback: TracebackType | None, with_toolchain: bool = False) -> Iterator[list[TracebackType]]:
    """Yield the entries of a traceback in runs, cut where user code calls other code or is called. Runs with frames of
    the toolchain are left out unless ``with_toolchain``."""
    part: list[TracebackType] = []
    for frame in entries(traceback):
        if part and is_users(frame) != is_users(part[0]):
            if with_toolchain or not any(map(is_toolchain, part)):
                yield part
            part = []
        part.append(frame)
    if part and (with_toolchain or not any(map(is_toolchain, part))):
        yield part

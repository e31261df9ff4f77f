# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tracebacks of what a kernel raises: frames of the toolchain are left out, as JAX leaves out its own.

``NKI_MLIR_TRACEBACK=full`` keeps them. So does an exception that is a defect of the toolchain: one that its own code,
or a library that it calls, raises and that is no error for users.
"""

import functools
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import ParamSpec, TypeVar

from nki_mlir.capture import locations
from nki_mlir.diagnostics import InternalError, NkiMlirError
from nki_mlir.environment import EnvironmentVariable

P = ParamSpec("P")
R = TypeVar("R")

TRACEBACK = EnvironmentVariable("NKI_MLIR_TRACEBACK")
FULL = "full"
FRAMEWORKS = "jax", "jaxlib", "torch"


def leave_out_own_frames(error: BaseException) -> None:
    """Leave the toolchain's frames out of an exception's traceback, and of those that it came from.

    A bare ``raise`` behind it adds no frame (before Python 3.11 the frame of the function with the ``raise`` stays).
    """
    if TRACEBACK.text() == FULL:
        return
    for one in chain(error):
        if not is_defect(one):
            shown = [frame for part in runs(one.__traceback__) for frame in part]
            for frame, following in zip(shown, [*shown[1:], None]):
                frame.tb_next = following
            one.__traceback__ = shown[0] if shown else None


def without_own_frames(function: Callable[P, R]) -> Callable[P, R]:
    """A function that users call, whose exceptions have no frames of the toolchain."""
    @functools.wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*arguments, **keywords)
        except BaseException as error:
            leave_out_own_frames(error)
            raise
    return call


def chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, and those that it came from."""
    seen, left = set(), [error]
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            left += [other for other in (one.__cause__, one.__context__) if other is not None]


def entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def is_own(frame: TracebackType) -> bool:
    return locations.is_own(frame.tb_frame.f_code.co_filename)


def is_users(frame: TracebackType) -> bool:
    """Whether a frame is of a user's code, or of a library that only the user may have called."""
    name = str(frame.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    return name not in FRAMEWORKS and not locations.is_passed[frame.tb_frame.f_code.co_filename]


def is_defect(error: BaseException) -> bool:
    """Whether an exception tells of a mistake in the toolchain, not in what it was given."""
    if isinstance(error, InternalError):
        return True
    if isinstance(error, (NkiMlirError, MemoryError)) or not isinstance(error, Exception):
        return False
    parts = list(runs(error.__traceback__, every=True))
    return bool(parts) and any(map(is_own, parts[-1]))


def runs(traceback: TracebackType | None, every: bool = False) -> Iterator[list[TracebackType]]:
    """The entries of a traceback, cut where user code calls others or is called; those with the toolchain's frames are
    left out but for ``every``."""
    part: list[TracebackType] = []
    for frame in entries(traceback):
        if part and is_users(frame) != is_users(part[0]):
            if every or not any(map(is_own, part)):
                yield part
            part = []
        part.append(frame)
    if part and (every or not any(map(is_own, part))):
        yield part

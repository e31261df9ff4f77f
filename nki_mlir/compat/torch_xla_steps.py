# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The steps of a program on the stand-in of ``torch_xla``: operations are complete, but closures wait for the end."""

import contextlib
import functools
from collections.abc import Callable, Iterator

_closures: list[Callable[[], object]] = []      # what the end of the step calls


def mark_step(*arguments: object, **keywords: object) -> None:
    """End a step: write its recorded program, and call the step's closures. No operation is pending."""
    from nki_mlir.frameworks.debug_output import recorders  # start-up: loads MLIR
    for recorder in recorders:
        recorder.step()
    closures, _closures[:] = list(_closures), []
    for closure in closures:
        closure()


def add_step_closure(closure: Callable[..., object], args: tuple[object, ...] = (), run_async: bool = False) -> None:
    """Call a function at the end of the step."""
    _closures.append(functools.partial(closure, *args))


@contextlib.contextmanager
def step() -> Iterator[None]:
    """Run the body, or the function that this decorates, as one step."""
    mark_step()
    try:
        yield
    finally:
        mark_step()

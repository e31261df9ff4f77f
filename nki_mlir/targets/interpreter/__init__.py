# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Executes tile operations and modules with NumPy."""

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Protocol

import numpy as np

from nki_mlir.alone import alone
from nki_mlir.targets import CapturedKernel

if TYPE_CHECKING:
    from nki_mlir.targets.interpreter.module import Freedom, StepObserver


Run = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]


class FreeRun(Protocol):
    """Runs a kernel with choices that a device is free to make."""

    def __call__(self, inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray], freedom: "Freedom" = ...) -> None:
        ...


def load(captured: CapturedKernel, grid: tuple[int, ...]) -> Run:
    """Return a captured kernel as ``run(inputs, shared)``, all programs of the grid one after the other."""
    run = load_freely(captured, grid)
    return lambda inputs, shared: run(inputs, shared)


@alone
def load_freely(captured: CapturedKernel, grid: tuple[int, ...], observer: "StepObserver | None" = None) -> FreeRun:
    """Return a kernel as ``run(inputs, shared, freedom)``, with the choices that a device is free to make.

    The observer sees the steps.
    """
    from nki_mlir.dialects.kernel_function import the_kernel  # start-up: imported on first use
    from nki_mlir.targets.interpreter.module import USUAL, compile_function, has_meetings, run_grid
    programs = {v.module: compile_function(the_kernel(v.module), observer) for v in captured.variants.values()}

    def run(inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray], freedom: "Freedom" = USUAL) -> None:
        ordered = freedom.backwards and prod(grid) > 1 and any(map(has_meetings, programs))
        run_grid(lambda point: programs[captured.variant_for(tuple(point)).module], grid, inputs, shared, freedom,
                 ordered)
    return run

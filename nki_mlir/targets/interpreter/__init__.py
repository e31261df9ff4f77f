# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Executes tile operations and whole modules with NumPy."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.alone import alone
from nki_mlir.targets import CapturedKernel

if TYPE_CHECKING:
    from nki_mlir.targets.interpreter.module import Freedom


Run = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]


def load(captured: CapturedKernel, grid: tuple[int, ...]) -> Run:
    """A captured kernel as ``run(inputs, shared)``, all programs of the grid one after the other."""
    return load_with(captured, grid)


@alone
def load_with(captured: CapturedKernel, grid: tuple[int, ...], freedom: "Freedom | None" = None) -> Run:
    """As above, with the choices that a device is free to make."""
    from nki_mlir.dialects.kernel_function import the_kernel  # start-up: imported on first use
    from nki_mlir.targets.interpreter.module import MEETINGS, USUAL, compile_function, run_grid
    chosen = USUAL if freedom is None else freedom
    programs = {v.module: compile_function(the_kernel(v.module), chosen) for v in captured.variants.values()}
    backwards = chosen.backwards and not any(name in str(v.module) for v in captured.variants.values()
                                             for name in MEETINGS)

    def run(inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray]) -> None:
        run_grid(lambda point: programs[captured.variant_for(tuple(point)).module], grid, inputs, shared,
                 backwards)
    return run

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Executes tile operations and whole modules with NumPy."""

from collections.abc import Callable, Sequence

import numpy as np

from nki_mlir.alone import alone
from nki_mlir.targets import CapturedKernel


@alone
def load(captured: CapturedKernel, grid: tuple[int, ...]
         ) -> Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]:
    """A captured kernel as ``run(inputs, shared)``, all programs of the grid one after the other."""
    from nki_mlir.dialects.kernel_function import the_kernel  # start-up: needed where it is asked for
    from nki_mlir.targets.interpreter.module import compile_function, run_grid
    programs = {id(v.module): compile_function(the_kernel(v.module)) for v in captured.variants.values()}

    def run(inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray]) -> None:
        run_grid(lambda point: programs[id(captured.variant_for(tuple(point)).module)], grid, inputs, shared)
    return run

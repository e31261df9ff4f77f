# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs kernels as native code: tiles as vector code for the host, compiled by the ExecutionEngine.

A kernel is a program (``assemble.py``) of a small machine (``runtime/machine.mlir``) whose instructions are routines
(``routines.py``), one for each distinct computation on tiles. Routines are compiled once in a process, even if many
kernels use them.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.alone import alone
from nki_mlir.diagnostics import Unsupported
from nki_mlir.targets import CapturedKernel

if TYPE_CHECKING:
    from nki_mlir.bindings import Module
    from nki_mlir.passes.pass_manager import PassObserver


@alone
def load(captured: CapturedKernel, grid: tuple[int, ...]
         ) -> Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]:
    """Compile a captured kernel and return ``run(inputs, shared)``: a ``NativeKernel``, which has a native entry too.

    If programs exchange data, Python runs each of them on a thread. The interpreter runs a kernel that cannot be
    compiled, with a warning that says why.
    """
    from nki_mlir.targets.cpu.kernel import NativeKernel  # start-up: imported on first use
    try:
        kernel = NativeKernel(captured, grid)
        return kernel.on_threads if kernel.exchanges_data else kernel
    except Unsupported as error:
        from nki_mlir.targets import interpreter  # start-up: imported on first use
        program = interpreter.load(captured, grid)
        warnings.warn(f"the kernel runs in the interpreter: {error.headline}", RuntimeWarning, stacklevel=3)
        return program


@alone
def lower_to(level: str, module: "Module", observer: "PassObserver | None", passes: str | None) -> str:
    """Return the program that the JIT compiles a module to, in comments, and its routines as vector code (``vector``)
    or in the LLVM dialect (``llvm``). ``passes`` on records replace the passes of ``pipeline.py``."""
    from nki_mlir.targets.cpu.lowering import listing  # start-up: imported on first use
    return listing(module, level == "vector", observer, passes)

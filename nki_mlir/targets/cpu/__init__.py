# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs kernels as native code: tiles as vector code for the host, compiled by the ExecutionEngine.

A kernel is a program (``program.py``) of a small machine (``machine.mlir``) whose instructions are routines, one for each
distinct computation on tiles (``nests.py``). Routines are compiled once in a process, whatever kernels use them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nki_mlir.targets.cpu.kernel import CompiledKernel


def load(captured: Any, grid: tuple[int, ...]) -> "CompiledKernel":
    """A captured kernel as ``run(inputs, shared)``; see ``CompiledKernel`` for its native entry."""
    from nki_mlir.targets.cpu.kernel import CompiledKernel
    return CompiledKernel(captured, grid)


def lower_to_llvm(module: Any) -> str:
    """What the JIT compiles for a module, as text: its program in comments, its routines in the LLVM dialect."""
    from nki_mlir.targets.cpu.listing import listing
    return listing(module)

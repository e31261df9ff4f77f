# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules of any level as compiled kernels."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_mlir.targets.cpu.assembler import CommonParts
from nki_mlir.targets.cpu.kernel import NativeKernel
from nki_mlir.targets.cpu.lowering import assemble_modules
from nki_mlir.targets.cpu.program import Assembly

EMPTY = np.zeros(1, np.int64)           # a program that ends at once


@dataclass
class Variant:
    module: Any


class Captured:
    """What ``load`` takes, for one module that serves the whole grid."""

    def __init__(self, module: Any) -> None:
        self.variants = {(): Variant(module)}

    def variant_for(self, point: tuple[int, ...]) -> Variant:
        return self.variants[()]


def assemblies(modules: list[Any], grid: tuple[int, ...]) -> list[Assembly]:
    """The programs of a kernel's modules, before they have addresses."""
    return [assembler.code for assembler in assemble_modules(modules, len(grid), CommonParts())]


class CompiledModule(NativeKernel):
    """A kernel of one module, and its program as it is assembled."""

    def __init__(self, module: Any, grid: tuple[int, ...]) -> None:
        super().__init__(Captured(module), grid)
        self.assembly, = assemblies([module], grid)


def compiled(module: Any, grid: tuple[int, ...] = ()) -> CompiledModule:
    return CompiledModule(module, grid)


def only(kernel: NativeKernel, point: int) -> NativeKernel:
    """The kernel with empty programs at all other points of the grid."""
    codes = np.full(int(kernel.record[0]), EMPTY.ctypes.data, np.int64)
    codes[point] = kernel.words[0].ctypes.data
    kernel.codes, kernel.record[6] = codes, codes.ctypes.data
    return kernel

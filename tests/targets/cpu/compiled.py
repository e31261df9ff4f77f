# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compile modules of any level to kernels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.targets.cpu.assemble import NativeProgram
from nki_mlir.targets.cpu.kernel import NativeKernel
from nki_mlir.targets.cpu.lowering import at_waist, optimized, read_functions
from nki_mlir.targets.cpu.native_reader import CommonParts
from nki_mlir.targets.cpu.pipeline import PIPELINE

EMPTY = np.zeros(1, np.int64)           # a program that ends at once


@dataclass
class Variant:
    module: Any


class Captured:
    """The module that ``load`` takes, which serves the complete grid."""

    def __init__(self, module: Any) -> None:
        self.variants = {(): Variant(module)}

    def variant_for(self, point: tuple[int, ...]) -> Variant:
        return self.variants[()]


def assemblies(modules: list[Any], grid: tuple[int, ...]) -> list[NativeProgram]:
    """Return the programs of a kernel's modules, before they have addresses."""
    copies = [at_waist(module) for module in modules]
    return [optimized(function) for function in read_functions(map(the_kernel, copies), len(grid), CommonParts())]


def set_options(monkeypatch: pytest.MonkeyPatch, name: str, **options: int) -> None:
    """Set options of one pass for kernels that are compiled from now on; its other options stay."""
    text = " ".join(f"{option.replace('_', '-')}={value}" for option, value in options.items())
    monkeypatch.setitem(PIPELINE, name, f"{PIPELINE[name]} {text}")


class CompiledModule(NativeKernel):
    """A kernel of one module, and its assembled program."""

    def __init__(self, module: Any, grid: tuple[int, ...]) -> None:
        super().__init__(Captured(module), grid)
        self.assembly, = assemblies([module], grid)


def compiled(module: Any, grid: tuple[int, ...] = ()) -> CompiledModule:
    return CompiledModule(module, grid)


def only(kernel: NativeKernel, point: int) -> NativeKernel:
    """Return the kernel with empty programs at all other points of the grid."""
    codes = np.full(int(kernel.record[0]), EMPTY.ctypes.data, np.int64)
    codes[point] = kernel.words[0].ctypes.data
    kernel.codes, kernel.record[6] = codes, codes.ctypes.data
    return kernel

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules of any level as compiled kernels."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_mlir.targets.cpu.kernel import NativeKernel

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


def compiled(module: Any, grid: tuple[int, ...] = ()) -> NativeKernel:
    return NativeKernel(Captured(module), grid)


def only(kernel: NativeKernel, point: int) -> NativeKernel:
    """The kernel with empty programs at all other points of the grid."""
    codes = np.full(int(kernel.record[0]), EMPTY.ctypes.data, np.int64)
    codes[point] = kernel.programs[0].words.ctypes.data
    kernel.codes, kernel.record[6] = codes, codes.ctypes.data
    return kernel

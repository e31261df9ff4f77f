# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules as compiled kernels, and results that may differ by rounding."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_mlir.scalar.dtypes import DType
from nki_mlir.targets.cpu.kernel import CompiledKernel


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


def compiled(module: Any, grid: tuple[int, ...] = ()) -> CompiledKernel:
    return CompiledKernel(Captured(module), grid)


def only(kernel: CompiledKernel, point: int) -> CompiledKernel:
    """The kernel with empty programs at all other points of the grid."""
    codes = np.full(int(kernel.record[0]), EMPTY.ctypes.data, np.int64)
    codes[point] = kernel.programs[0].words.ctypes.data
    kernel.codes, kernel.record[6] = codes, codes.ctypes.data
    return kernel


def close(got: np.ndarray, expected: np.ndarray, dtype: DType, bound: float) -> np.ndarray:
    """Where two arrays agree: within ``bound`` relative to the value, and one rounding to the dtype on top of it."""
    with np.errstate(all="ignore"):
        a, b = got.astype(np.float64), expected.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if not bound:
            return same
        unit = 2.0 ** -dtype.mantissa if dtype.is_float else 0.0
        least = float(np.finfo(np.float32).tiny) if dtype.itemsize > 1 else 2.0**-9
        return same | (np.abs(a - b) <= (bound + unit) * np.abs(b) + (bound + least if dtype.is_float else 1.0))

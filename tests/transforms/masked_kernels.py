# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels with masks, their inputs and the results that NumPy computes, and functions that run their modules."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.targets.interpreter.module import compile_function, run_grid


@dataclass
class Captured:
    """A kernel captured for its inputs: the text of its module and how to run a module of the same signature."""

    text: str
    inputs: list[np.ndarray]
    shared: list[Any]
    grid: tuple[int, ...]

    def module(self) -> Any:
        with shared_context():
            return ir.Module.parse(self.text)

    def run(self, module: Any) -> list[np.ndarray]:
        """The shared outputs; memory that nobody writes reads as 77."""
        outputs = [np.full(s.shape, 77, s.dtype.numpy) for s in self.shared]
        program = compile_function(the_kernel(module))
        run_grid(lambda point: program, self.grid, [a.copy() for a in self.inputs], outputs)
        return outputs


def capture(kernel: Any, *inputs: np.ndarray, **constants: Any) -> Captured:
    spec = kernel.specialize(kernel.bind(inputs, constants, is_array, describe_array))
    assert len(spec.modules) == 1
    return Captured(str(spec.modules[0]), list(inputs), spec.shared, spec.grid)


@dataclass
class Case:
    """``masks`` are the operations that still have a mask after splitting, ``loops`` the loops."""

    kernel: Any
    inputs: Callable[[np.random.Generator], tuple]
    expected: Callable[..., np.ndarray]
    masks: int = 0
    loops: int = 0
    tolerance: float = 0
    constants: dict[str, Any] = field(default_factory=dict)
    id: str = ""

    def captured(self) -> Captured:
        return capture(self.kernel, *self.inputs(np.random.default_rng(0)), **self.constants)

    def check(self, result: np.ndarray) -> None:
        expected = self.expected(*self.inputs(np.random.default_rng(0)), **self.constants)
        if self.tolerance:
            np.testing.assert_allclose(result, expected, rtol=self.tolerance, atol=self.tolerance)
        else:
            np.testing.assert_array_equal(result, expected)


CASES: list[Case] = []


def case(expected: Callable[..., np.ndarray], *shapes: tuple[int, ...], grid: Any = None, masks: int = 0,
         loops: int = 0, tolerance: float = 0, suffix: str = "", **constants: Any) -> Callable[[Any], Any]:
    """Register a kernel with float32 inputs of the given shapes."""
    def register(function: Any) -> Any:
        kernel = function if hasattr(function, "specialize") else nki.jit(function)
        CASES.append(Case(kernel[grid] if grid is not None else kernel,
                          lambda rng: tuple(rng.standard_normal(s).astype(np.float32) for s in shapes), expected, masks,
                          loops, tolerance, constants, kernel.__name__ + suffix))
        return kernel
    return register


P, F = 128, 512


@case(lambda x: x * 2, (200, 64))
@case(lambda x: x * 2, (1, 64), suffix="-one-row")
@case(lambda x: x * 2, (256, 64), loops=1, suffix="-dividing")
@case(lambda x: x * 2, (1000, 64), loops=1, suffix="-long")
def rows(x):
    n, m = x.shape
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:P, 0:m]
    for i in nl.affine_range((n + P - 1) // P):
        tile = nl.load(x[i * P + p, f], mask=i * P + p < n)
        nl.store(out[i * P + p, f], nl.multiply(tile, 2.0, mask=i * P + p < n), mask=i * P + p < n)
    return out


@case(lambda a, b: a + b, (200, 700), (200, 700))
@case(lambda a, b: a + b, (500, 1300), (500, 1300), loops=3, suffix="-two-full-tiles")
@case(lambda a, b: a + b, (300, 64), (300, 64), loops=1, suffix="-narrow")
def tiles(a, b):
    n, m = a.shape
    out = nl.ndarray((n, m), dtype=a.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(P)[:, None], nl.arange(F)[None, :]
    for i in nl.affine_range((n + P - 1) // P):
        for j in nl.affine_range((m + F - 1) // F):
            inside = (i * P + p < n) & (j * F + f < m)
            x = nl.load(a[i * P + p, j * F + f], mask=inside)
            y = nl.load(b[i * P + p, j * F + f], mask=inside)
            nl.store(out[i * P + p, j * F + f], nl.add(x, y, mask=inside), mask=inside)
    return out


@case(lambda x: x.sum(1, keepdims=True), (100, 1100), loops=1, tolerance=1e-4)
def row_sums(x):
    """A mask on the axis that is reduced."""
    n, m = x.shape
    out = nl.ndarray((n, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:n, 0:F]
    total = nl.zeros((n, 1), dtype=nl.float32, buffer=nl.sbuf)
    for j in nl.sequential_range((m + F - 1) // F):
        tile = nl.load(x[p, j * F + f], mask=j * F + f < m)
        total[...] = nl.add(total, nl.sum(tile, axis=[1], mask=j * F + f < m))
    nl.store(out, total)
    return out


@case(lambda a, b: a.T @ b, (300, 100), (300, 200), loops=1, tolerance=1e-4)
def ragged_matmul(a, b):
    """A mask on the axis that is contracted."""
    k, m = a.shape
    n = b.shape[1]
    out = nl.ndarray((m, n), dtype=a.dtype, buffer=nl.shared_hbm)
    p, fm, fn = nl.arange(P)[:, None], nl.arange(m)[None, :], nl.arange(n)[None, :]
    result = nl.zeros((m, n), dtype=nl.float32, buffer=nl.psum)
    for i in nl.affine_range((k + P - 1) // P):
        inside = i * P + p < k
        x = nl.load(a[i * P + p, fm], mask=inside)
        y = nl.load(b[i * P + p, fn], mask=inside)
        result += nisa.nc_matmul(x[p, fm], y[p, fn])
    nl.store(out, nl.copy(result, dtype=a.dtype))
    return out


def lower_triangle(x):
    return np.where(np.arange(x.shape[0])[:, None] >= np.arange(x.shape[1])[None, :], x, np.float32(-1))


@case(lower_triangle, (128, 128), masks=1)
def triangle(x):
    n, m = x.shape
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:n, 0:m]
    tile = nl.full((n, m), -1.0, dtype=x.dtype, buffer=nl.sbuf)
    loaded = nl.load(x)
    tile[p, f] = nl.multiply(loaded, 1.0, mask=p >= f)
    nl.store(out, tile)
    return out


@case(lower_triangle, (384, 384), masks=3, loops=2, suffix="-3")
@case(lower_triangle, (128, 128), masks=1, suffix="-1")
def tiled_triangle(x):
    n = x.shape[0]
    out = nl.ndarray((n, n), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:P, 0:P]
    for i in nl.affine_range(n // P):
        for j in nl.affine_range(n // P):
            tile = nl.full((P, P), -1.0, dtype=x.dtype, buffer=nl.sbuf)
            loaded = nl.load(x[i * P + p, j * P + f])
            tile[p, f] = nl.multiply(loaded, 1.0, mask=i * P + p >= j * P + f)
            nl.store(out[i * P + p, j * P + f], tile)
    return out


@case(lambda x: x + 1, (300, 60), grid=3)
@case(lambda x: x + 1, (1000, 60), grid=8, suffix="-8")
def programs(x):
    n, m = x.shape
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:P, 0:m]
    row = nl.program_id(0) * P + p
    tile = nl.load(x[row, f], mask=row < n)
    tile = nl.add(tile, 1.0, mask=row < n)
    nl.store(out[row, f], tile, mask=row < n)
    return out


@case(lambda x: x * 3, (700, 90), grid=(2, 2), loops=4)
def program_grid(x):
    """Two program ids and a loop, each with an edge."""
    n, m = x.shape
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:P, 0:64]
    for i in nl.affine_range(3):
        row, column = nl.program_id(0) * 3 * P + i * P + p, nl.program_id(1) * 64 + f
        inside = (row < n) & (column < m)
        tile = nl.load(x[row, column], mask=inside)
        nl.store(out[row, column], nl.multiply(tile, 3.0, mask=inside), mask=inside)
    return out


def shifted(x):
    result = np.zeros_like(x)
    result[:, 5:] = x[:, :-5]
    return result


@case(shifted, (40, 300))
def shift_right(x):
    """A mask that cuts the front."""
    n, m = x.shape
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:n, 0:100]
    for i in nl.affine_range(m // 100):
        tile = nl.zeros((n, 100), dtype=x.dtype, buffer=nl.sbuf)
        source = i * 100 + f - 5
        tile[p, f] = nl.load(x[p, source], mask=source >= 0)
        nl.store(out[p, i * 100 + f], tile)
    return out


CASES[-1].loops = 1


@case(lambda x: x.T.copy(), (200, 100))
def transposed(x):
    n, m = x.shape
    out = nl.ndarray((m, n), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:P, 0:m]
    q, g = nl.mgrid[0:m, 0:P]
    for i in nl.affine_range((n + P - 1) // P):
        tile = nl.load(x[i * P + p, f], mask=i * P + p < n)
        nl.store(out[q, i * P + g], nl.transpose(tile), mask=i * P + g < n)
    return out


def numbered(x):
    return (x + np.arange(x.shape[1])[None, :]).astype(np.float32)


@case(numbered, (64, 250))
def columns_numbered(x):
    """An iota under a mask: its expression moves with the box."""
    n, m = x.shape
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:n, 0:100]
    for i in nl.affine_range(3):
        inside = i * 100 + f < m
        number = nisa.iota(i * 100 + f + 0 * p, dtype=nl.float32, mask=inside)
        tile = nl.load(x[p, i * 100 + f], mask=inside)
        nl.store(out[p, i * 100 + f], nl.add(tile, number, mask=inside), mask=inside)
    return out


CASES[-1].loops = 1


@case(lambda x: np.where(np.arange(x.shape[0])[:, None] < 70, x, 0).astype(np.float32), (128, 20))
def derived(x):
    """Masks of a quotient and a remainder of the loop variable."""
    n, m = x.shape
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:16, 0:10]
    for i in nl.affine_range(16):
        row, column = (i // 2) * 16 + p, (i % 2) * 10 + f
        tile = nl.zeros((16, 10), dtype=x.dtype, buffer=nl.sbuf)
        tile[p, f] = nl.load(x[row, column], mask=row < 70)
        nl.store(out[row, column], tile)
    return out


CASES[-1].loops = 2

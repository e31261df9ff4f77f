# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of bfloat16 in tile registers (AMX). A host without them runs the instructions by ``tile_registers.c``."""

import ctypes
import platform
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32
from nki_mlir.targets.cpu import host_measurements
from nki_mlir.targets.cpu.kernel import NativeKernel
from nki_mlir.targets.cpu.lowering import listing
from nki_mlir.targets.cpu.packed_products import PackingOptions
from nki_mlir.targets.runtime import host

from .compiled import set_options
from .test_packed_products import product_of_tiles

RNG = np.random.default_rng(0)
WHOLE_A, WHOLE_B = (RNG.integers(-4, 5, shape).astype(ml_dtypes.bfloat16) for shape in ((128, 192), (128, 512)))
pytestmark = pytest.mark.skipif(platform.system() != "Linux" or platform.machine() != "x86_64",
                                reason="tile registers are those of x86, and their permission is one of Linux")


@pytest.fixture(scope="session")
def library(tmp_path_factory) -> ctypes.CDLL | None:
    """Return the library that executes the instructions, or None if the processor does."""
    if host.multiplies_tiles():
        return None
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler, and no tile registers")
    source, target = Path(__file__).with_name("tile_registers.c"), tmp_path_factory.mktemp("tiles") / "tiles.so"
    subprocess.run([compiler, "-O3", *["-mavx2", "-mfma"] * (host.lanes() >= 8), "-shared", "-fPIC", "-o", target, source, "-lm"], check=True)
    return ctypes.CDLL(str(target))


@pytest.fixture(autouse=True)
def tile_registers(library, monkeypatch):
    """Let small products use tile registers."""
    set_options(monkeypatch, "form-products", worth=1 << 10, amx=1, columns=128, rows=64)
    monkeypatch.setattr(host, "multiplies_tiles", lambda: True)
    monkeypatch.setattr(host_measurements, "words_of_unit", lambda unit: 1e11)
    if library is None:
        return
    run = NativeKernel.__call__

    def run_here(self, *arguments, **options):
        library.install()           # behind compilation, in which LLVM takes the signal for itself
        try:
            return run(self, *arguments, **options)
        finally:
            library.uninstall()
    monkeypatch.setattr(NativeKernel, "__call__", run_here)


def kernel_of(dtype, rows=64, depth=64):
    """Return a new kernel, which shares no code with other tests: a product in tiles with a result of some dtype."""
    @nki.jit
    def product(a_t, b):
        (_, m), (_, n) = a_t.shape, b.shape
        out = nl.ndarray((m, n), dtype=dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(m // rows):
            for j in nl.affine_range(n // 512):
                total = product_of_tiles(a_t, b, i, j, rows=rows, depth=depth)
                nl.store(out[nl.ds(i * rows, rows), nl.ds(j * 512, 512)], nl.copy(total, dtype=dtype))
        return out
    return product


def is_in_registers(kernel, *arguments):
    return "_bfloat16_tiles" in listing(kernel.lower(*arguments).module("nisa")).split("module {")[0]


def documented(a, b):
    """Return products of ``a`` and ``b`` summed as one register does: even positions, odd ones, and both to the old
    sum."""
    (k, m), (_, n) = a.shape, b.shape
    sums = np.zeros((m, n), np.float32)
    a, b = a.astype(np.float64), b.astype(np.float64)
    for block in range(0, k, 32):
        parts = np.zeros((2, m, n), np.float32)
        for position in range(block, block + 32):
            product = a[position, :, None] * b[position]            # exact, and the sum is rounded once in float64
            parts[position % 2] = (parts[position % 2] + product).astype(np.float32)
        sums = sums + (parts[0] + parts[1])
    return sums


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("options", [{}, {"depth": 32}, {"depth": 32, "rows": 128, "columns": 512},
                                     {"packed": 4 * 64 * 64}])
def test_values(monkeypatch, dtype, options):
    set_options(monkeypatch, "form-products", **options)
    kernel = kernel_of(dtype)
    assert is_in_registers(kernel, WHOLE_A, WHOLE_B)
    expected = (WHOLE_A.astype(np.float64).T @ WHOLE_B.astype(np.float64)).astype(dtype)
    np.testing.assert_array_equal(kernel.on("jit")(WHOLE_A, WHOLE_B), expected)


@pytest.mark.parametrize("rows, depth", [(96, 96), (32, 32)])
def test_small_tiles(rows, depth):
    kernel, a, b = kernel_of(np.float32, rows, depth), WHOLE_A[:96, :192], WHOLE_B[:96, :512]
    assert is_in_registers(kernel, a, b)
    np.testing.assert_array_equal(kernel.on("jit")(a, b), a.astype(np.float32).T @ b.astype(np.float32))


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2])
def test_numbers_that_bfloat16_holds(dtype):
    kernel, a, b = kernel_of(np.float32), WHOLE_A.astype(dtype), WHOLE_B.astype(dtype)
    assert is_in_registers(kernel, a, b)
    np.testing.assert_array_equal(kernel.on("jit")(a, b), a.astype(np.float32).T @ b.astype(np.float32))


def test_sums__are_rounded_as_documented():
    a, b = (RNG.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((64, 64), (64, 512)))
    kernel = kernel_of(np.float32, 32, 32)
    assert is_in_registers(kernel, a, b)
    np.testing.assert_array_equal(kernel.on("jit")(a, b), documented(a, b))


def test_numbers_below_the_normal_ones__are_0():
    a, b = np.zeros((64, 64), ml_dtypes.bfloat16), np.full((64, 512), 2.0, ml_dtypes.bfloat16)
    a[0] = ml_dtypes.finfo(ml_dtypes.bfloat16).smallest_subnormal
    a[1, 32:] = 1
    expected = np.where(np.arange(64) < 32, 0, 2)[:, None] * np.ones((1, 512))
    kernel = kernel_of(np.float32, 32, 32)
    assert is_in_registers(kernel, a, b)
    np.testing.assert_array_equal(kernel.on("jit")(a, b), expected)


def test_not_a_number_and_infinity():
    a, b = np.ones((64, 64), ml_dtypes.bfloat16), np.ones((64, 512), ml_dtypes.bfloat16)
    a[3, 5], a[4, 6], a[5, 6] = np.nan, np.inf, -np.inf
    b[7, 8] = np.inf
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float32).T @ b.astype(np.float32)
    kernel = kernel_of(np.float32, 32, 32)
    assert is_in_registers(kernel, a, b)
    np.testing.assert_array_equal(kernel.on("jit")(a, b), expected)


def test_threads__change_no_bit(monkeypatch):
    a, b = (RNG.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((128, 192), (128, 512)))
    results = []
    for threads in "12":
        monkeypatch.setenv("NKI_MLIR_NUM_THREADS", threads)
        results.append(kernel_of(np.float32).on("jit")(a, b))
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("extents, unit", [
    ((256, 512, 256), "amx"), ((240, 512, 256), "pairs"), ((256, 512, 48), "pairs"), ((256, 512, 33), "pairs")])
def test_what_does_not_fill_registers__is_multiplied_otherwise(monkeypatch, extents, unit):
    monkeypatch.setattr(host, "multiplies_pairs", lambda: True)
    options = PackingOptions(pairs=1, amx=1)
    assert options.unit([BFLOAT16, BFLOAT16], extents) == unit
    assert options.unit([BFLOAT16, FLOAT32], extents) == "float32"


@pytest.mark.parametrize("fastest", ["float32", "pairs", "amx"])
def test_the_fastest_unit__is_the_one_that_was_measured(monkeypatch, fastest):
    monkeypatch.setattr(host, "multiplies_pairs", lambda: True)
    monkeypatch.setattr(host_measurements, "rate_of_unit", lambda unit: 2.0 if unit == fastest else 1.0)
    assert PackingOptions().unit([BFLOAT16, BFLOAT16], (256, 512, 256)) == fastest


@pytest.mark.parametrize("features, answer, expected", [
    ({"amx_tile", "amx_bf16"}, 0, True), ({"amx_tile", "amx_bf16"}, -1, False), ({"amx_tile"}, 0, False)])
def test_tiles__need_the_permission_of_linux(monkeypatch, features, answer, expected):
    monkeypatch.undo()
    requests = []
    library = SimpleNamespace(syscall=lambda *words: requests.append(words) or answer)
    monkeypatch.setattr(host, "features", lambda: frozenset(features))
    monkeypatch.setattr(host.ctypes, "CDLL", lambda name: library)
    assert host.multiplies_tiles.__wrapped__() is expected
    assert requests == [(158, 0x1023, 18)] * ("amx_bf16" in features)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels, compiled and interpreted: loops, grids, masks, accumulation, several kernels that share routines."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.dialects.nki.movement import print_sink
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.targets.cpu import routines
from nki_mlir.targets.cpu.assemble import NativeProgram
from nki_mlir.targets.cpu.kernel import OVERLAP_FAILED, NativeKernel
from nki_mlir.targets.cpu.pipeline import PIPELINE
from nki_mlir.targets.runtime.machine import INTERRUPTED, machine

from ...scalar.samples import ulp_error
from ...tolerances import assert_within, product_bound
from .compiled import assemblies

RNG = np.random.default_rng(0)


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def program_of(kernel: Any, *arguments: Any) -> NativeKernel:
    """Return the compiled program behind a kernel that has run on these arguments."""
    (spec,) = kernel.specializations.values()
    program = spec.program("jit")
    assert isinstance(program, NativeKernel)
    return program


def assembly_of(kernel: Any) -> NativeProgram:
    """Return the program of a kernel that has run on some arguments."""
    (spec,) = kernel.specializations.values()
    assembly, = assemblies(spec.modules, spec.grid)
    return assembly


def check(kernel: Any, *arguments: Any, rtol: float = 0.0, atol: float = 0.0, within: Any = None) -> NativeKernel:
    """Check that both executors agree, bit for bit without a tolerance or bounds, and return the compiled program."""
    expected = kernel.on("interpreter")(*(np.copy(a) for a in arguments))
    got = kernel.on("jit")(*(np.copy(a) for a in arguments))
    is_tuple = isinstance(expected, tuple)
    for g, e in zip(got if is_tuple else (got,), expected if is_tuple else (expected,)):
        assert g.dtype == e.dtype and g.shape == e.shape
        if within is not None:
            assert_within(g, e, within)
        elif rtol or atol:
            np.testing.assert_allclose(g.astype(np.float64), e.astype(np.float64), rtol, atol)
        else:
            np.testing.assert_array_equal(g, e)
    return program_of(kernel, *arguments)


def test_loops__with_tails() -> None:
    @nki.jit
    def add(a, b):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
        for i in nl.affine_range((a.shape[0] + 127) // 128):
            for j in nl.affine_range((a.shape[1] + 511) // 512):
                inside = (i * 128 + p < a.shape[0]) & (j * 512 + f < a.shape[1])
                x = nl.load(a[i * 128 + p, j * 512 + f], mask=inside)
                y = nl.load(b[i * 128 + p, j * 512 + f], mask=inside)
                nl.store(out[i * 128 + p, j * 512 + f], nl.add(x, y, mask=inside), mask=inside)
        return out
    check(add, numbers(300, 700), numbers(300, 700))


@nki.jit
def mapped(x, function, width):
    """Compute a function of all columns but the last, ``width`` at a time."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns - 1), dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, columns - 1, width):
        part = nl.ds(start, min(width, columns - 1 - start))
        nl.store(out[:, part], function(nl.load(x[:, part])))
    return out


@pytest.mark.share(3)
@pytest.mark.parametrize("function", [nl.exp, nl.gelu, nl.gelu_dx, nl.tanh, nl.sigmoid, nl.erf, nl.sin, nl.rsqrt])
@pytest.mark.parametrize("columns", [32, 33, 47, 48, 64, 79, 100])
def test_functions__are_the_same_however_many_elements_are_computed_together(function: Any, columns: int) -> None:
    x = np.random.default_rng(0).normal(0, 20, (8, columns + 1)).astype(np.float32)
    x.flat[::5] = np.resize(np.float32([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40, 88.5, -104]), x.flat[::5].size)
    together, apart = (mapped.on("jit")(x, function, width) for width in (columns, 16))
    np.testing.assert_array_equal(together.view(np.int32), apart.view(np.int32))


def test_softmax__rows() -> None:
    @nki.jit
    def softmax(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(x.shape[0] // 128):
            tile = nl.load(x[i * 128:(i + 1) * 128, :])
            e = nl.exp(tile - nl.max(tile, axis=1, keepdims=True))
            nl.store(out[i * 128:(i + 1) * 128, :], e / nl.sum(e, axis=1, keepdims=True))
        return out
    check(softmax, numbers(512, 300), rtol=1e-5, atol=1e-8)


def test_matmul__accumulates_in_psum() -> None:
    @nki.jit
    def matmul(a, b):
        out = nl.ndarray((a.shape[1], b.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
        for m in nl.affine_range(a.shape[1] // 128):
            total = nl.zeros((128, b.shape[1]), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(a.shape[0] // 128):
                x = nl.load(a[k * 128:(k + 1) * 128, m * 128:(m + 1) * 128])
                y = nl.load(b[k * 128:(k + 1) * 128, :])
                total += nisa.nc_matmul(x, y)
            nl.store(out[m * 128:(m + 1) * 128, :], nl.copy(total, dtype=out.dtype))
        return out
    for dtype in (np.float32, ml_dtypes.bfloat16):
        a, b = numbers(256, 256, dtype=dtype), numbers(256, 200, dtype=dtype)
        check(nki.jit(matmul.func), a, b, within=2 * product_bound(a, b, dtype))        # each has its own errors


def test_transpose__and_reduction_over_partitions() -> None:
    @nki.jit
    def turn(x):
        out = nl.ndarray((x.shape[1], x.shape[0]), dtype=x.dtype, buffer=nl.shared_hbm)
        rows = nl.ndarray((1, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.store(out, nl.transpose(tile))
        nl.store(rows, nisa.tensor_partition_reduce(np.add, tile))
        return out, rows
    check(turn, numbers(100, 70), rtol=1e-5, atol=1e-5)


def test_program_ids__pick_rows_and_columns() -> None:
    @nki.jit
    def scale(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        i, j = nl.program_id(0), nl.program_id(1)
        tile = nl.load(x[i * 64:(i + 1) * 64, j * 32:(j + 1) * 32])
        nl.store(out[i * 64:(i + 1) * 64, j * 32:(j + 1) * 32], tile * 3)
        return out
    check(scale[2, 3], numbers(128, 96))


def test_program_ids__that_become_python_numbers_give_several_programs() -> None:
    @nki.jit
    def shifted(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        factor = [1.0, 5.0, -2.0][nl.program_id(0)]
        rows = slice(nl.program_id(0) * 16, nl.program_id(0) * 16 + 16)
        nl.store(out[rows, :], nl.load(x[rows, :]) * factor)
        return out
    assert len(check(shifted[3], numbers(48, 40)).image.programs) == 3


def test_masks__triangular() -> None:
    @nki.jit
    def lower(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        p, f = nl.arange(64)[:, None], nl.arange(80)[None, :]
        tile = nl.zeros((64, 80), dtype=x.dtype, buffer=nl.sbuf)
        tile[p, f] = nl.load(x[p, f], mask=(p >= f))
        nl.store(out, tile)
        return out
    check(lower, numbers(64, 80))


def test_where__comparisons_and_integers() -> None:
    @nki.jit
    def choose(x, n):
        out = nl.ndarray(x.shape, dtype=nl.int32, buffer=nl.shared_hbm)
        small, large = nl.load(x), nl.load(n)
        kept = nl.where(nl.greater(small, 0.25), nl.bitwise_and(large, 0xFF), nl.left_shift(large, 3))
        nl.store(out, nl.copy(kept, dtype=nl.int32))
        return out
    check(choose, numbers(33, 65), np.arange(33 * 65, dtype=np.int32).reshape(33, 65))


def test_in_place__an_output_parameter_and_an_updated_input() -> None:
    @nki.trace
    def update(x, out):
        for i in nl.sequential_range(4):
            tile = nl.load(x[i * 32:(i + 1) * 32, :])
            nl.store(out[i * 32:(i + 1) * 32, :], tile + i)
    check(update, numbers(128, 40), np.zeros((128, 40), np.float32))


def test_loop_carried__sum_in_one_buffer_is_not_taken_apart() -> None:
    @nki.jit
    def total(x):
        out = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
        acc = nl.zeros((128, x.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
        for i in nl.affine_range(x.shape[0] // 128):
            acc += nl.load(x[i * 128:(i + 1) * 128, :])
        nl.store(out, acc)
        return out
    check(total, numbers(128 * 16, 512), rtol=1e-5, atol=1e-5)
    assert "nki_parallel" not in {i.function for i in assembly_of(total).instructions}


def test_parallel_loop__runs_on_the_pool_and_gives_the_same() -> None:
    @nki.jit
    def heavy(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(x.shape[0] // 128):
            for j in nl.affine_range(x.shape[1] // 512):
                tile = nl.load(x[i * 128:(i + 1) * 128, j * 512:(j + 1) * 512])
                nl.store(out[i * 128:(i + 1) * 128, j * 512:(j + 1) * 512], nl.tanh(tile) * nl.exp(tile))
        return out
    x = numbers(128 * 16, 1024)
    check(heavy, x, rtol=1e-5, atol=1e-6)
    assert "nki_parallel" in {i.function for i in assembly_of(heavy).instructions}
    first = heavy.on("jit")(x)
    assert all(np.array_equal(first, heavy.on("jit")(x)) for _ in range(20))


def test_constants__of_a_kernel() -> None:
    table = np.arange(40, dtype=np.float32).reshape(1, 40)

    @nki.jit
    def add_table(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) + nl.load(nl.shared_constant(table)).broadcast_to(x.shape))
        return out
    check(add_table, numbers(16, 40))


# -- operations that the interpreter runs ------------------------------------------------------------------------------
def printing(raises: bool = False) -> Callable:
    @nki.jit
    def show(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(2):
            tile = nl.load(x[i * 8:(i + 1) * 8, :])
            nl.device_print("tile", tile[:, 0:3])
            nl.store(out[i * 8:(i + 1) * 8, :], tile)
        return out
    return show


def test_device_print__hands_over_each_tile() -> None:
    x, observed = numbers(16, 20), []
    token = print_sink.set(lambda prefix, value: observed.append((prefix, value)))
    try:
        np.testing.assert_array_equal(printing().on("jit")(x), x)
    finally:
        print_sink.reset(token)
    assert [prefix for prefix, _ in observed] == ["tile", "tile"]
    for k, (_, value) in enumerate(observed):
        np.testing.assert_array_equal(value, x[8 * k:8 * k + 8, :3])


def test_device_print__an_exception_comes_out_of_the_call() -> None:
    def fail(prefix: str, value: np.ndarray) -> None:
        raise LookupError("no printer")
    token = print_sink.set(fail)
    try:
        kernel = printing()
        with pytest.raises(LookupError, match="no printer"):
            kernel.on("jit")(numbers(16, 20))
    finally:
        print_sink.reset(token)
    np.testing.assert_array_equal(kernel.on("jit")(np.ones((16, 20), np.float32)), 1)


# -- routines ----------------------------------------------------------------------------------------------------------
def test_routines__are_shared_by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    @nki.jit
    def first(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for _ in nl.static_range(5):
            tile = tile * 2
        nl.store(out, tile + 1)
        return out

    @nki.jit
    def second(y):
        out = nl.ndarray(y.shape, dtype=y.dtype, buffer=nl.shared_hbm)
        nl.store(out, (nl.load(y) + 1) * 2)
        return out
    x = numbers(19, 77)
    check(first, x)
    assert len(assembly_of(first).routines) == 3      # copy, multiply, add

    def refuse(*arguments: Any) -> dict:
        raise AssertionError("compiled again")
    monkeypatch.setattr(routines, "compile_functions", refuse)
    check(second, x)


def test_routines__are_compiled_in_batches_so_that_ctrl_c_need_not_wait_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    @nki.jit
    def widths(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        for i in nl.static_range(20):
            t[:, 0:3 + i] = nl.exp(t[:, 0:3 + i]) * 0.125
        nl.store(out, t)
        return out
    batches: list[int] = []
    compile_functions = routines.compile_functions

    def interrupted(make: Any, names: Any, description: str) -> Any:
        batches.append(len(names))
        if len(batches) == 3:
            raise KeyboardInterrupt
        return compile_functions(make, names, description)
    x = numbers(19, 29)
    expected = widths.on("interpreter")(x)
    monkeypatch.setattr(routines, "compile_functions", interrupted)
    monkeypatch.setattr(routines, "MOST_IN_BATCH", 4)
    monkeypatch.setattr(routines, "_compiled", {})
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        widths(x)
    assert batches == [4, 4, 4]
    np.testing.assert_allclose(widths(x), expected, rtol=1e-6)
    assert max(batches) == 4 and sum(batches) - 4 == len(routines._compiled) >= 20     # none is compiled twice


# -- bounds that are checked at run time -------------------------------------------------------------------------------
def test_mask__that_is_too_weak_is_an_error_with_its_place() -> None:
    @nki.jit
    def weak(x):
        out = nl.ndarray((32, 40), dtype=x.dtype, buffer=nl.shared_hbm)
        p, f = nl.arange(32)[:, None], nl.arange(40)[None, :]
        tile = nl.zeros((32, 40), dtype=x.dtype, buffer=nl.sbuf)
        tile[p, f] = nl.load(x[p, f], mask=(p + f < 70))
        nl.store(out, tile)
        return out
    for on in ("interpreter", "jit"):
        with pytest.raises(OutOfBounds, match="an index is 4 elements outside dimension 1 of `x`") as caught:
            weak.on(on)(numbers(32, 36))
        assert "test_kernels.py" in str(caught.value)


# -- large operations --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("joins, jobs", [(False, ["nki_spread"] * 6), (True, ["nki_parallel"])])
def test_large_operations__are_spread_over_the_threads(monkeypatch: pytest.MonkeyPatch, joins: bool, jobs: list[str]
                                                       ) -> None:
    monkeypatch.delitem(PIPELINE, "chunk-rows")         # else, threads share chunks of all operations
    if not joins:
        monkeypatch.delitem(PIPELINE, "join-parts")

    @nki.jit
    def pooled(x):
        out = nl.ndarray((x.shape[0], x.shape[1] // 4, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        i, j, k = nl.mgrid[0:x.shape[0], 0:x.shape[1] // 4, 0:4]
        tile = nl.exp(nl.load(x))
        quarters = tile[i, j + x.shape[1] // 4 * k]                     # another walk than that of the sum
        nl.store(out, nl.sum(tile[i, 4 * j + k], axis=2, keepdims=True) + nl.max(quarters, axis=2, keepdims=True))
        return out
    check(pooled, numbers(128, 16384), rtol=1e-5, atol=1e-5)
    functions = [i.function for i in assembly_of(pooled).instructions]
    assert [function for function in functions if function in ("nki_spread", "nki_parallel")] == jobs


@pytest.mark.parametrize("count", [40, 3])
def test_spread_updates_of_chosen_columns__all_run(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Whether parts of an update in a loop touch each other's bytes is unknown where the loop chooses their columns."""
    monkeypatch.setitem(PIPELINE, "spread-nests", "worth=1")

    @nki.jit
    def updated(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for i in nl.sequential_range(count):
            tile[:, nl.ds(256 + i, 256)] = tile[:, 0:256] * 0.5
        nl.store(out, tile)
        return out
    check(updated, numbers(128, 1024))
    assert "nki_spread" in [instruction.function for instruction in assembly_of(updated).instructions]


def test_constants__zeros_of_both_signs_and_nan_are_different_routines() -> None:
    @nki.jit
    def filled(x):
        out = nl.ndarray((3, 4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        for k, value in enumerate((0.0, -0.0, float("nan"))):
            nl.store(out[k], nl.full((4, 8), value, dtype=nl.float32, buffer=nl.sbuf))
        return out
    got = filled.on("jit")(numbers(4, 8))
    assert np.signbit(got[:2]).tolist() == [[[False] * 8] * 4, [[True] * 8] * 4] and np.isnan(got[2]).all()


def test_exponentials__down_to_the_smallest_numbers() -> None:
    """One host scales by powers of two in one instruction, another one does not."""
    @nki.jit
    def functions(x):
        out = nl.ndarray((3, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for number, function in enumerate((nl.exp, nl.gelu, nl.silu)):
            nl.store(out[number], function(tile))
        return out
    x = np.linspace(-104, 88, 128 * 300, dtype=np.float32).reshape(128, 300)       # rows end within a vector
    wide = x.astype(np.float64)
    tail = np.frompyfunc(lambda value: math.erfc(-value / math.sqrt(2)) / 2, 1, 1)(wide).astype(np.float64)
    for got, exact, ulp in zip(functions.on("jit")(x), (np.exp(wide), wide * tail, wide / (1 + np.exp(-wide))),
                               (1.5, 7.5, 3.5), strict=True):
        assert ulp_error(got, exact) <= ulp


def test_kept_failure__is_of_its_own_status_alone():
    kept = ValueError("kept")
    native: Any = SimpleNamespace(failures=[kept])
    machine().interruption = signaled = TimeoutError("a handler's")
    assert NativeKernel.error(native, INTERRUPTED) is signaled
    assert isinstance(NativeKernel.error(native, INTERRUPTED), KeyboardInterrupt)
    assert native.failures == [kept]
    assert NativeKernel.error(native, OVERLAP_FAILED) is kept
    assert native.failures == []

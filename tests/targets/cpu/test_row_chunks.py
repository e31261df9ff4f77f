# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops over chunks of rows: which operations run in them, and that they keep the values of all rows at once."""

import re
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.dialects.access import Linear
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu import chunk_loop
from nki_mlir.targets.cpu.lowering import listing
from nki_mlir.targets.cpu.passes.chunk_rows import CHUNK, Run, bytes_of
from nki_mlir.targets.cpu.pipeline import PIPELINE
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand, Step
from nki_mlir.waist.overlap import ByteRegion, Iterations

from .compiled import compiled, set_options

X = np.random.default_rng(0).integers(-4, 5, (128, 96)).astype(np.float32)


@pytest.fixture(autouse=True)
def small_cache(monkeypatch):
    set_options(monkeypatch, "chunk-rows", large=1 << 12, shared=1)
    set_options(monkeypatch, "chunk-rows", chunk=1 << 14)
    set_options(monkeypatch, "chunk-rows", least=1 << 8)


@nki.jit
def centered(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    mean = nl.mean(tile, axis=1, keepdims=True)
    nl.store(out, nl.abs(tile - mean) * 2.0)
    return out


@nki.jit
def transposed_between(x):
    out = nl.ndarray(x.shape[::-1], dtype=x.dtype, buffer=nl.shared_hbm)
    transposed = nl.transpose(nl.load(x) + 1.0)
    nl.store(out, nl.copy(transposed) * 2.0)
    return out


@nki.jit
def rows_below(x):
    rows, columns = x.shape
    out = nl.ndarray((rows - 1, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    stored = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
    nl.store(stored, nl.load(x) + 1.0)
    nl.store(out, nl.load(stored[1:rows, :]) * 2.0)
    return out


@nki.jit
def pooled(x):
    rows, columns = x.shape
    out = nl.ndarray((rows, columns // 4), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    p, j, d = nl.mgrid[0:rows, 0:columns // 4, 0:4]
    nl.store(out, nl.sum(tile[p, 4 * j + d], axis=[2]) / 4.0)
    return out


@nki.jit
def partly_written(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.zeros(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.psum)
    tile[:, 8:columns] = nl.load(x)[:, 8:columns] * 3.0
    total[...] += tile
    nl.store(out, total + tile)
    return out


@nki.jit
def in_place(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 32):
        tile = nl.load(x[nl.ds(i * 32, 32), :])
        tile[...] = nl.exp(tile)
        tile[...] = nl.add(tile, nl.sum(tile, axis=1, keepdims=True))
        nl.store(out[nl.ds(i * 32, 32), :], nisa.tensor_scalar(tile, np.multiply, 0.5))
    return out


@nki.jit
def parts_of_a_tile(x, count):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for width in range(1, count + 1):       # each of another width, so that no loop of the program contains them all
        part = nl.ds(width * (width - 1) // 2, width)
        tile[:, part] = nl.multiply(nl.add(tile[:, part], 1.0), 2.0)
    nl.store(out, tile)
    return out


def aligned(shape):
    """Return an array that begins where vectors can be stored."""
    memory = np.zeros(4 * (np.prod(shape) + 16), np.uint8)
    return memory[-memory.ctypes.data % 64:][:4 * np.prod(shape)].view(np.float32).reshape(shape)


def prefetched_bytes(text):
    """Return the distances in bytes at which routines prefetch, by the first function of each routine."""
    address = r"getelementptr %\w+\[(\d+)\] : \(!llvm.ptr\) -> !llvm.ptr, i8"
    routines = text.split("llvm.func internal @")[1:]
    return {r.split("_")[0]: {int(n) for n in re.findall(address, r)} for r in routines if "intr.prefetch" in r}


def loops(kernel, *arguments):
    """Count the loops over chunks in the program; loops of the kernel are not among them."""
    return listing(kernel.lower(*arguments).module("nisa")).split("module {")[0].count("nki_next")


@pytest.mark.parametrize("kernel, expected", [
    (centered, abs(X - X.mean(1, keepdims=True)) * 2), (pooled, X.reshape(128, 24, 4).mean(2)),
    (partly_written, np.where(np.arange(96) < 8, 0, X * 6)),
])
def test_operations_on_rows__run_in_one_loop_over_chunks(kernel, expected):
    assert loops(kernel, X) == 1
    np.testing.assert_allclose(kernel.on("jit")(X), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kernel, expected", [(transposed_between, (X.T + 1) * 2), (rows_below, (X[1:] + 1) * 2)])
def test_rows_that_read_other_rows__keep_values(kernel, expected):
    np.testing.assert_array_equal(kernel.on("jit")(X), expected)


@nki.jit
def used_twice(x):
    """Read the result of the first loop over chunks, behind a transpose, in the second loop."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    doubled = nl.multiply(nl.abs(tile), 2.0)
    mean = nl.mean(doubled, axis=1, keepdims=True)
    transposed = nl.copy(nl.transpose(nl.copy(nl.transpose(doubled))))
    nl.store(out, nl.add(nl.subtract(transposed, mean), doubled))
    return out


def moving(kernel, *arguments):
    """Return the names of arrays whose address moves from chunk to chunk; a buffer of the program is ``memory``."""
    loop = listing(kernel.lower(*arguments).module("nisa")).split("module {")[0].split("nki_set", 1)[1]
    return set(re.findall(r"[(,] ?(\w+) \+ [^,)]*\* %", loop.split("nki_next")[0]))


def test_chunks__share_their_buffers():
    assert moving(pooled, X) == moving(centered, X) == {"x", "out"}


def test_buffers_that_are_read_behind_the_loop__have_all_rows():
    doubled = abs(X) * 2
    np.testing.assert_allclose(used_twice.on("jit")(X), doubled - doubled.mean(1, keepdims=True) + doubled, rtol=1e-6,
                               atol=1e-6)


def test_a_shift_by_a_row__prevents_chunks():
    assert loops(rows_below, X) == 0


def test_chunks_inside_of_a_loop():
    x = X / 8
    powers = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(in_place.on("jit")(x), (powers + powers.sum(1, keepdims=True)) / 2, rtol=1e-5)
    assert loops(in_place, x) >= 1


@nki.jit
def powers(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    total = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    lowest = nisa.tensor_reduce(np.max, tile, axis=1, negate=True, keepdims=True)
    exponentials = nisa.activation_reduce(np.exp, tile, bias=lowest, reduce_op=np.add, reduce_res=total)
    nl.store(out, nisa.tensor_scalar(exponentials, np.multiply, nisa.reciprocal(total)))
    return out


@pytest.mark.parametrize("shape", [(128, 96), (96, 131), (128, 64)])
def test_next_chunk__is_prefetched_where_most_is_computed(monkeypatch, shape):
    set_options(monkeypatch, "forward-copies", least=64)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    x[5, 7], x[9, :] = np.nan, -np.inf
    text = listing(powers.lower(x).module("nisa"), vectors=True)
    rows, = {int(n) for n in re.findall(r"maximum_(\d+)x", text)}
    assert prefetched_bytes(text) == {"add": {rows * shape[1] * 4}}
    np.testing.assert_array_equal(*(powers.on(where)(x)[5] for where in ("jit", "interpreter")))
    np.testing.assert_allclose(*(powers.on(where)(x) for where in ("jit", "interpreter")), rtol=1e-5)


@nki.jit
def powers_and_lowest(x):
    """Store a chunk and read its minima, which the next chunk overwrites before it computes its powers."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    total = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    lowest = nisa.tensor_reduce(np.max, tile, axis=1, negate=True, keepdims=True)
    exponentials = nisa.activation_reduce(np.exp, tile, bias=lowest, reduce_op=np.add, reduce_res=total)
    nl.store(out, nisa.tensor_scalar(exponentials, np.multiply, lowest))
    return out


@nki.jit
def powers_above_the_mean(x):
    """Fold with a sum first, whose order counts."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    total = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    below = nisa.tensor_reduce(np.add, tile, axis=1, negate=True, keepdims=True)
    exponentials = nisa.activation_reduce(np.exp, tile, bias=below, reduce_op=np.add, reduce_res=total)
    nl.store(out, nisa.tensor_scalar(exponentials, np.multiply, nisa.reciprocal(total)))
    return out


@pytest.mark.parametrize("kernel, shape, stages", [
    (powers, (128, 96), 3), (powers, (96, 128), 3), (powers, (128, 131), 1), (powers_above_the_mean, (128, 96), 2),
    (powers_and_lowest, (128, 96), 1)])
def test_pipeline__stores_the_previous_chunk_and_folds_the_next_one(monkeypatch, kernel, shape, stages):
    """The pipeline keeps all bits. Rows of 131 elements do not fill their last vector, and get no delayed stores."""
    set_options(monkeypatch, "forward-copies", least=64)
    monkeypatch.setattr(host, "cache_bytes", lambda: 256)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    x[5, 7], x[9, :] = np.nan, -np.inf
    module, results = kernel.lower(x).module("nisa"), []
    for expected in (stages, 1):
        program = listing(module).split("module {")[0]
        assert 1 + ("nki_unless" in program) + ("nki_minsi" in program) == expected
        results.append(aligned(shape))
        compiled(module)([x], results[-1:])
        monkeypatch.setattr(chunk_loop.ChunkLoop, "heavy_call", lambda self: None)
    np.testing.assert_array_equal(*(r.view(np.uint32) for r in results))
    np.testing.assert_allclose(results[0], kernel.on("interpreter")(x), rtol=1e-5)


@nki.jit
def normal_powers(x):
    """Compute blocks of 64 rows on the pool; the moments of a block are computed before its chunks."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 64):
        tile = nl.load(x[nl.ds(i * 64, 64), :])
        moments = nl.ndarray((64, 12), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(2):
            moments[:, nl.ds(6 * k, 6)] = nisa.bn_stats(tile[:, nl.ds(k * 48, 48)])
        mean = nisa.bn_aggr(moments)[:, 0]
        nl.store(out[nl.ds(i * 64, 64), :], nl.exp(nisa.tensor_scalar(tile, np.subtract, mean)))
    return out


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_that_moments_have_read__are_prefetched_for_the_next_iteration_of_the_thread(monkeypatch, threads):
    set_options(monkeypatch, "forward-copies", least=64)
    monkeypatch.setattr(host, "WORTH_WAKING", 0)
    set_options(monkeypatch, "parallelize", worth=0)
    set_options(monkeypatch, "chunk-rows", least=1 << 4)
    monkeypatch.setenv("NKI_MLIR_NUM_THREADS", str(threads))
    x = np.random.default_rng(1).standard_normal((256, 96)).astype(np.float32)
    code = listing(normal_powers.lower(x).module("nisa"), vectors=True)
    assert {name: min(distances) for name, distances in prefetched_bytes(code).items()} == {
        "add": 32 * 96 * 4, "exp": threads * 64 * 96 * 4}
    np.testing.assert_allclose(normal_powers.on("jit")(x), np.exp(x - x.mean(1, keepdims=True)), rtol=1e-5)


@nki.jit
def scanned(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.multiply(nl.abs(nl.load(x)), 0.5)
    states = nisa.tensor_tensor_scan(tile, nl.load(y), initial=0.0, op0=np.multiply, op1=np.add)
    nl.store(out, nl.add(states, tile))
    return out


@pytest.mark.parametrize("rows, chunks", [(128, 8), (96, 6), (40, 2), (16, 0)])
def test_chunks_of_scans__fill_the_lanes_of_a_vector(monkeypatch, rows, chunks):
    """A scan goes along the rows, all of a chunk at a time."""
    set_options(monkeypatch, "chunk-rows", chunk=1 << 12)
    x, y = np.random.default_rng(1).integers(-2, 3, (2, rows, 512)).astype(np.float32)
    with monkeypatch.context() as wide:
        wide.setattr(host, "lanes", lambda: 16)
        text = listing(scanned.lower(x, y).module("nisa")).split("module {")[0]
    assert [int(n) for n in re.findall(r"nki_next\(\S+ 1, (\d+)", text)] == [chunks] * bool(chunks)
    states, previous = np.empty_like(x), np.zeros(rows, np.float32)
    for column in range(512):
        states[:, column] = previous = np.abs(x[:, column]) * 0.5 * previous + y[:, column]
    np.testing.assert_allclose(scanned.on("jit")(x, y), states + np.abs(x) * 0.5, rtol=1e-5, atol=1e-5)


@nki.jit
def weighted(x, weights):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    total = nl.zeros(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    for n in nl.affine_range(weights.shape[0]):
        fading = nl.exp(nl.multiply(nl.abs(tile), -0.25))
        weight = nl.load(weights[nl.ds(n, 1), :])
        added = nl.multiply(tile, weight.broadcast_to(x.shape))
        total += nisa.tensor_tensor_scan(fading, added, initial=0.0, op0=np.multiply, op1=np.add)
    nl.store(out, total)
    return out


@nki.jit
def times_the_first_row(x, weights):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    more = nl.add(nl.load(x), 1.0)
    first = nl.copy(more[0:1, :])
    nl.store(out, nl.multiply(nl.abs(more), first.broadcast_to(x.shape)))
    return out


@nki.jit
def weights_in_one_tile(x, weights):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, weight = nl.add(nl.load(x), 1.0), nl.ndarray((1, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    weight[...] = nl.load(weights[0:1, :])
    once = nl.multiply(tile, weight.broadcast_to(x.shape))
    weight[...] = nl.load(weights[1:2, :])
    nl.store(out, nl.add(once, nl.multiply(tile, weight.broadcast_to(x.shape))))
    return out


@nki.jit
def a_part_of_a_row(x, weights):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, weight = nl.abs(nl.load(x)), nl.load(weights[0:1, :])
    half = x.shape[1] // 2
    left = nl.multiply(tile[:, 0:half], weight[:, 0:half].broadcast_to((x.shape[0], half)))
    nl.store(out[:, 0:half], nl.exp(left))
    nl.store(out[:, half:2 * half], nl.multiply(nl.copy(weight)[:, half:2 * half].broadcast_to((x.shape[0], half)), 2.0))
    return out


@pytest.mark.parametrize("kernel, loaded", [(weighted, True), (times_the_first_row, False), (weights_in_one_tile, False),
                                            (a_part_of_a_row, False)], ids=lambda k: getattr(k, "__name__", ""))
@pytest.mark.parametrize("rows", [128, 96, 31])
def test_a_row_that_all_chunks_read__keeps_values(monkeypatch, kernel, loaded, rows):
    """Kernels keep their values whether or not the load of the row moves before the loop over chunks."""
    set_options(monkeypatch, "forward-copies", least=1 << 20)
    x, weights = np.random.default_rng(1).standard_normal((rows, 96)).astype(np.float32), X[:3] * 0.5
    x.flat[::7] = np.resize(np.float32([np.nan, np.inf, -np.inf, -0.0, 1e-40]), x.flat[::7].size)
    weights.flat[::11] = -0.0
    text = listing(kernel.lower(x, weights).module("nisa")).split("module {")[0]
    results = [kernel.on(where)(x, weights) for where in ("jit", "interpreter")]
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(*(np.signbit(result) & ~np.isnan(result) for result in results))
    if loaded and rows > 31:            # the loop over weights has one load of a row, and one loop over chunks
        inside = re.search(r"copy_96_\S+\(weights.*?nki_set\(.*?nki_next\(.*?nki_next\(", text, re.DOTALL)
        assert inside and "exp_" in inside[0] and text.count("copy_96_") == 1


@nki.jit
def divided_by_all_sums(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.abs(nl.load(x))
    inverse = nl.reciprocal(nl.sum(tile, axis=1, keepdims=True))
    row = nl.copy(nl.transpose(inverse))
    nl.store(out, nl.multiply(nl.add(tile, 1.0), row.broadcast_to(x.shape)))
    return out


def test_a_row_that_chunks_compute__is_complete_before_a_chunk_reads_it(monkeypatch):
    set_options(monkeypatch, "forward-copies", least=1 << 20)
    x = np.random.default_rng(1).integers(1, 5, (96, 96)).astype(np.float32)
    expected = (x + 1) / x.sum(1)[None, :]
    np.testing.assert_allclose(divided_by_all_sums.on("jit")(x), expected, rtol=1e-6)


def test_each_cache_line_of_the_next_chunk__is_prefetched(monkeypatch):
    """A vector of every fourth element touches the cache lines of four vectors."""
    set_options(monkeypatch, "forward-copies", least=64)
    vectors = 4 * min(16, host.lanes()) * 4
    text = listing(pooled.lower(np.zeros((128, 256), np.float32)).module("nisa"), vectors=True)
    sums, = {int(n) for n in re.findall(r"add_(\d+)x", text)}
    assert prefetched_bytes(text) == {"add": {sums * 4 * 4 + line for line in range(0, vectors, 64)}}


def test_small_tiles__are_not_split_into_chunks(monkeypatch):
    set_options(monkeypatch, "chunk-rows", large=1 << 30)
    assert loops(centered, X) == 0


def test_a_loop__has_at_most_so_many_nests_as_its_option_states(monkeypatch):
    set_options(monkeypatch, "chunk-rows", least=1)
    assert loops(parts_of_a_tile, X, 12) == 1
    set_options(monkeypatch, "chunk-rows", nests=8)
    assert loops(parts_of_a_tile, X, 12) == 4
    np.testing.assert_array_equal(parts_of_a_tile.on("jit")(X, 12)[:, :78], (X[:, :78] + 1) * 2)


def test_small_operations__are_not_split_into_chunks(monkeypatch):
    set_options(monkeypatch, "chunk-rows", least=1 << 12)
    assert loops(parts_of_a_tile, X, 12) == 0


def test_a_small_part_of_a_large_tile__is_small():
    rows, total = Operand(FLOAT32, (96, 1)), Operand(FLOAT32, (1, 0))
    nest = Nest((128, 4), frozenset({1}), (rows,), 0, (total,), (Step("alu", FLOAT32, (0, 1), "add"),), (2,))
    assert [bytes_of(nest, k) for k in range(2)] == [4 * 128 * 4, 4 * 128]


def chunk_access(root, start, step, low, high, writes):
    return ByteRegion(root, start, 0, Linear(low).plus(Linear(0, ((CHUNK, 1),)), step), run=high + 1 - low, writes=writes)


def apart(a, b, count):
    return Iterations(CHUNK, range(count)).apart(a, b)


def touched(access, count):
    first, step = access.address.const, dict(access.address.symbols).get(CHUNK, 0)
    return [set(range(first + access.reach[0] + c * step, first + access.reach[1] + 1 + c * step)) for c in range(count)]


ACCESSES = st.builds(chunk_access, st.just("tile"), st.integers(-20, 20).map(Linear), st.integers(-9, 9),
                     st.integers(-5, 0), st.integers(0, 5), st.booleans())


@given(ACCESSES, ACCESSES, st.integers(2, 5))
def test_accesses_that_lie_apart__share_no_byte_between_chunks(a, b, count):
    if apart(a, b, count) and (a.writes or b.writes):
        for (k, one), (n, other) in product(enumerate(touched(a, count)), enumerate(touched(b, count))):
            assert k == n or not one & other


@pytest.mark.parametrize("a, b, expected", [
    (chunk_access("t", Linear(0), 64, 0, 63, True), chunk_access("t", Linear(0), 64, 0, 63, False), True),
    (chunk_access("t", Linear(0), 64, 0, 63, True), chunk_access("t", Linear(32), 64, 0, 31, False), True),
    (chunk_access("t", Linear(0), 64, 0, 63, True), chunk_access("t", Linear(32), 64, 0, 63, False), False),
    (chunk_access("t", Linear(0), 64, 0, 63, True), chunk_access("t", Linear(256), 0, 0, 63, False), True),
    (chunk_access("t", Linear(0), 0, 0, 63, True), chunk_access("t", Linear(0), 0, 0, 63, False), False),
    (chunk_access("t", Linear(0), 64, 0, 63, False), chunk_access("t", Linear(7), 3, 0, 63, False), True),
    (chunk_access("t", Linear(0), 64, 0, 63, True), chunk_access("u", Linear(7), 3, 0, 63, True), True),
    (chunk_access("t", Linear(0, ((1, 4),)), 64, 0, 63, True), chunk_access("t", Linear(), 64, 0, 63, True), False),
])
def test_which_accesses_lie_apart(a, b, expected):
    assert apart(a, b, 4) is expected


@nki.jit
def summed_tiles(x):
    """Sum tiles of rows, to each of which an iteration adds, and center the rows of each tile."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    totals = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.sequential_range(x.shape[0] // 128):
        tile = nl.load(x[nl.ds(i * 128, 128), :])
        total[...] = total + tile
        nl.store(out[nl.ds(i * 128, 128), :], nl.exp(tile - nl.mean(tile, axis=1, keepdims=True)) * total)
    nl.store(totals, total)
    return out, totals


@pytest.mark.parametrize("threads", (1, 2, 3))
def test_threads__share_the_rows_of_iterations_that_follow_each_other(monkeypatch, threads):
    set_options(monkeypatch, "chunk-rows", worth=1)
    monkeypatch.setenv("NKI_MLIR_NUM_THREADS", str(threads))
    x = np.random.default_rng(2).standard_normal((512, 96)).astype(np.float32)
    calls = listing(summed_tiles.lower(x).module("nisa")).split("module {")[0]
    assert ("nki_parallel(" in calls) == (threads > 1)
    expected = summed_tiles.on("interpreter")(x)
    kernel = nki.jit(summed_tiles.func)
    for result, wanted in zip(kernel.on("jit")(x), expected):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
    with patch.dict(PIPELINE):
        del PIPELINE["chunk-rows"], PIPELINE["spread-nests"]
        alone = nki.jit(summed_tiles.func).on("jit")(x)
    assert all(np.array_equal(a, b) for a, b in zip(kernel.on("jit")(x), alone))


@nki.jit
def three_norms(x):
    """Center and normalize the rows of three tiles, and sum the tiles, which all iterations read."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    totals = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.static_range(3):
        tile = nl.load(x[i])
        total[...] = total + tile
        centered_tile = tile - nl.mean(tile, axis=1, keepdims=True)
        nl.store(out[i], centered_tile * nl.rsqrt(nl.mean(nl.square(centered_tile), axis=1, keepdims=True)))
    nl.store(totals, total)
    return out, totals


@pytest.mark.parametrize("nests", range(10, 24, 2))
def test_loops_of_at_most_so_many_nests__end_where_few_tiles_are_live(monkeypatch, nests):
    set_options(monkeypatch, "chunk-rows", nests=nests)
    x = np.random.default_rng(3).standard_normal((3, 128, 96)).astype(np.float32)
    first_line = listing(three_norms.lower(x).module("nisa")).partition("\n")[0]
    assert int(re.search(r": (\d+) bytes of memory", first_line)[1]) < 1.3 * x[0].nbytes        # the total's
    rows = x - x.mean(2, keepdims=True)
    normed, total = nki.jit(three_norms.func).on("jit")(x)
    np.testing.assert_allclose(normed, rows / np.sqrt((rows ** 2).mean(2, keepdims=True)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(total, x.sum(0), rtol=1e-5, atol=1e-6)


def test_iterations__prefetch_the_rows_of_the_next_one_in_turn(monkeypatch):
    """Each iteration prefetches the rows of the next one, the last one those of the first iteration's next chunk."""
    set_options(monkeypatch, "forward-copies", least=64)
    monkeypatch.setenv("NKI_MLIR_NUM_THREADS", "1")
    shape = 3, 128, 96
    code = listing(three_norms.lower(np.zeros(shape, np.float32)).module("nisa"), vectors=True)
    rows, = {int(n) for n in re.findall(r"subtract_(\d+)x96_", code.split("module {")[0])}
    distances = [min(map(int, re.findall(r"getelementptr %\w+\[(-?\d+)\] : \(!llvm.ptr\) -> !llvm.ptr, i8", routine)))
                 for routine in code.split("llvm.func internal @")[1:] if "intr.prefetch" in routine]
    assert {*distances} == {128 * 96 * 4, (rows - 2 * 128) * 96 * 4}


@nki.jit
def unrolled(x, numbers):
    """Run iterations that differ in a number and in their columns; those with the number 2 add to one tile."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    totals = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, 512), nl.float32)
    for i, number in enumerate(numbers):
        rows, columns = slice(i * 128, (i + 1) * 128), slice(0, 512 - 16 * number)
        tile = nl.load(x[rows, columns])
        powers = nl.exp(tile) * (number + 0.5) + tile
        if number == 2:
            total[:, columns] += powers
        nl.store(out[rows, columns], powers)
    nl.store(totals, total)
    return out, totals


def lowered_unrolled(count, numbers=(0, 1, 3, 4)):
    numbers = tuple(numbers[i * i % 7 % len(numbers)] for i in range(count))
    return unrolled.lower(np.zeros((128 * count, 512), np.float32), numbers).module("nki")


@pytest.mark.parametrize("numbers", [(0, 1, 3, 4), (0, 1, 2, 3)])
def test_groups_up_to_the_last_node_that_touches_their_memory__are_those_of_all_nodes(numbers):
    module = lowered_unrolled(9, numbers)
    nearest = listing(module, vectors=True)
    with patch.object(Run, "nearest_group", lambda run, begin: run.group(begin, len(run.nodes))):
        assert listing(module, vectors=True) == nearest


def test_iterations_that_share_no_memory__are_compared_once():
    """The calls of one iteration are compared with each other, so three times as many take three times as long."""
    counts = []
    for iterations in (8, 24):
        apart = Iterations.apart
        with patch.object(Iterations, "apart", autospec=True, side_effect=apart) as compared:
            listing(lowered_unrolled(iterations), vectors=True)
        counts.append(compared.call_count)
    assert 0 < counts[1] <= 3.5 * counts[0]

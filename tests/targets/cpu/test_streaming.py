# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stores past the caches: the same values wherever arrays lie, for outputs that the kernel does not read."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.dialects.access import Linear
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu.addressed_nest import AddressedNest, can_stream, does_stream
from nki_mlir.targets.cpu.chunk_loop import ChunkLoop
from nki_mlir.targets.cpu.loops import MemoryUse
from nki_mlir.targets.cpu.lowering import listing
from nki_mlir.targets.cpu.native_nodes import CodeAddress, Spread, compute
from nki_mlir.targets.cpu.schedule import parts_of
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand
from nki_mlir.waist.overlap import ByteRegion

from .compiled import compiled

SMALL = 256                 # bytes


@pytest.fixture(autouse=True)
def small_cache(monkeypatch):
    monkeypatch.setattr(host, "cache_bytes", lambda: SMALL)


@nki.jit
def scaled(x, factor=3.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * factor)
    return out


@nki.jit
def part_of(x):
    out = nl.ndarray((96, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x[0:96, :]) * 2.0)
    return out


@nki.jit
def transposed(x):
    out = nl.ndarray(x.shape[::-1], dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.transpose(nl.load(x)))
    return out


@nki.jit
def transposed_part(x):
    out = nl.ndarray((100, x.shape[0]), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.transpose(nl.load(x[:, 3:103])))
    return out


@nki.jit
def read_again(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) + 1.0)
    total = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(total, nl.sum(nl.load(out), axis=1, keepdims=True))
    return out, total


@nki.jit
def blocks(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        nl.store(out[nl.ds(i * 128, 128), :], nl.exp(nl.load(x[nl.ds(i * 128, 128), :])))
    return out


def native(kernel, *arrays):
    specialization = kernel.specialize(kernel.bind(arrays, {}, is_array, describe_array))
    return compiled(specialization.captured.variants[()].module)


def streamed(kernel):
    """Return the extents of the outputs of routines that stream."""
    functions = [i.function for i in kernel.assembly.instructions]
    functions += [a.routine for i in kernel.assembly.instructions for a in i.arguments
                  if isinstance(a, CodeAddress)]
    return [f.nest.extents for f in functions if isinstance(f, AddressedNest) and f.use.streams]


def at_offset(shape, dtype, offset):
    """Return an array that begins this many bytes behind a multiple of 64, and its memory."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.full(size + 256, 0xA5, np.uint8)
    first = -memory.ctypes.data % 64 + 64 + offset
    return memory[first:first + size].view(dtype).reshape(shape), memory, first


@pytest.mark.parametrize("columns", [16, 40, 64, 100, 257])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8])
@pytest.mark.parametrize("offset", [0, 4, 16, 32])
def test_values__wherever_the_output_lies(dtype, columns, offset):
    x = np.random.default_rng(0).integers(-30, 31, (96, columns)).astype(dtype)
    kernel = native(scaled, x)
    out, memory, first = at_offset(x.shape, dtype, offset)
    before = memory.copy()
    kernel([x], [out])
    np.testing.assert_array_equal(out, x * np.array(3).astype(dtype))
    outside = np.ones(len(memory), bool)
    outside[first:first + out.nbytes] = False
    np.testing.assert_array_equal(memory[outside], before[outside])


def test_an_output_of_vectors__is_streamed():
    assert streamed(native(scaled, np.zeros((96, 64), np.float32))) == [(96 * 64,)]


def test_an_output_that_fits_the_cache__is_not_streamed(monkeypatch):
    monkeypatch.setattr(host, "cache_bytes", lambda: 2 * 96 * 64 * 4)
    assert streamed(native(scaled, np.zeros((96, 64), np.float32))) == []


@pytest.mark.parametrize("columns, extents", [(32, []), (48, [(96 * 48,)])])
def test_an_output_of_more_than_an_eighth_of_the_cache__is_streamed_beside_a_large_input(monkeypatch, columns, extents):
    """An output that fits into an eighth of the cache stays there."""
    monkeypatch.setattr(host, "cache_bytes", lambda: 8 * 96 * 32 * 4)
    assert streamed(native(part_of, np.zeros((1024, columns), np.float32))) == extents


def test_an_output_that_is_read__is_not_streamed(monkeypatch):
    monkeypatch.setattr(host, "cache_bytes", lambda: 16 * SMALL)
    x = np.random.default_rng(0).integers(-9, 10, (64, 64)).astype(np.float32)
    kernel = native(read_again, x)
    assert streamed(kernel) == []
    out, total = np.zeros_like(x), np.zeros((64, 1), np.float32)
    kernel([x], [out, total])
    np.testing.assert_array_equal(out, x + 1)
    np.testing.assert_array_equal(total, (x + 1).sum(1, keepdims=True))


@pytest.mark.parametrize("offset", [0, 4])
def test_blocks_transposed_in_registers(offset):
    x = np.random.default_rng(0).standard_normal((128, 96)).astype(np.float32)
    kernel = native(transposed, x)
    out, _, _ = at_offset((96, 128), np.float32, offset)
    kernel([x], [out])
    np.testing.assert_array_equal(out, x.T)
    assert streamed(kernel) == [(96, 128)]


@pytest.mark.parametrize("columns, prefetches", [(1000, False), (1024, True), (1041, True)])
def test_transposed_blocks__are_prefetched_where_each_row_is_on_another_page(columns, prefetches):
    x = np.random.default_rng(0).standard_normal((69, columns)).astype(np.float32)
    x.flat[::7] = np.resize(np.float32([np.nan, np.inf, -np.inf, -0.0, 1e-40]), x.flat[::7].size)
    assert ("prefetch" in listing(transposed_part.lower(x).module("nisa"), vectors=True)) is prefetches
    out = np.empty((100, 69), np.float32)
    native(transposed_part, x)([x], [out])
    np.testing.assert_array_equal(out.view(np.uint32), x[:, 3:103].T.view(np.uint32))


def test_threads__see_all_that_others_wrote():
    x = np.random.default_rng(0).standard_normal((128 * 24, 512)).astype(np.float32)
    small = blocks.on("interpreter")(x[:128])
    for _ in range(5):
        got = blocks.on("jit")(x)
        np.testing.assert_allclose(got[:128], small, rtol=1e-6)
        np.testing.assert_allclose(got, np.exp(x.astype(np.float64)), rtol=1e-6)


@pytest.mark.parametrize("output, expected", [
    (Operand(nl.float32, (64, 1)), True),
    (Operand(nl.float32, (65, 1)), False),              # rows begin anywhere
    (Operand(nl.float32, (128, 2)), False),
    (Operand(nl.int8, (64, 1)), True),
])
def test_nests_that_can_stream(output, expected):
    nest = Nest((32, 64), frozenset(), (Operand(output.dtype, (64, 1)),), 0, (output,), (), (0,))
    assert can_stream(nest) is expected


# -- a call that streams, beside another one ---------------------------------------------------------------------------
ROWS_OF_64 = Nest((8, 64), frozenset(), (Operand(FLOAT32, (64, 1)),), 0, (Operand(FLOAT32, (64, 1)),), (), (0,))
LAST_OF_ROWS = Nest((8, 64), frozenset({1}), (Operand(FLOAT32, (64, 1)),), 0, (Operand(FLOAT32, (1, 0)),), (), (0,))


@pytest.mark.parametrize(("heavy", "expected"), [
    (ROWS_OF_64, True),
    (replace(ROWS_OF_64, inputs=(Operand(FLOAT32, (1, 8)),)), True),
    (replace(ROWS_OF_64, extents=(4, 64)), False),
    (LAST_OF_ROWS, False)],                         # its vectors are columns, which are not beside each other in rows
    ids=["rows", "columns", "other extents", "last elements"])
def test_call_that_streams__is_joined_where_it_still_does(heavy, expected):
    regions = [ByteRegion(root, Linear(), 1 << 20, Linear()) for root in ("a", "b")]
    streamed = AddressedNest(ROWS_OF_64, MemoryUse(streams=(0,)))
    assert can_stream(ROWS_OF_64)
    calls = [compute(heavy, regions), compute(ROWS_OF_64, regions, (), True)]
    loop = ChunkLoop(None, 4, calls, (), (heavy, streamed), set())
    assert loop.can_be_joined([0, -1]) == expected


@pytest.mark.parametrize("count, expected", [(2, True), (32, False)])
def test_parts_of_a_call_that_streams__stream_where_they_still_write_vectors(count: int, expected: bool) -> None:
    column = Nest((64,), frozenset(), (Operand(FLOAT32, (64,)),), 0, (Operand(FLOAT32, (1,)),), (), (0,))
    call = compute(column, [ByteRegion(root, Linear(), 1 << 20, Linear()) for root in ("a", "b")], (), True)
    parts = parts_of(column, count, count)
    assert call.streams and parts is not None
    assert does_stream(Spread.over(call, parts).part) == expected

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Searches in rows, compiled: order of special numbers, equal values, values that are absent, any dtype and length."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT16, INT32, UINT8, UINT32, convert
from nki_mlir.targets.cpu.searches import IndicesOfEight, LargestEight, RowElements, part_of_search
from tests.targets.cpu.compiled import assemblies
from tests.targets.cpu.nest_reference import Memory, bits, reference

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, 1.5, -2.0, 1e-40, 3e38]


@nki.jit
def searched(x, values):
    """Return the eight largest, the indices of values, x with these replaced, and their indices as 16-bit integers."""
    shape = x.shape
    top, indices, short, result = [nl.ndarray(s, d, buffer=nl.shared_hbm) for s, d in (
        ((shape[0], 8), values.dtype), ((shape[0], 8), nl.uint32), ((shape[0], 8), nl.uint16), (shape, x.dtype))]
    t, v = nl.ndarray(shape, x.dtype, buffer=nl.sbuf), nl.ndarray((shape[0], 8), values.dtype, buffer=nl.sbuf)
    best, i, s = [nl.ndarray((shape[0], 8), d, buffer=nl.sbuf) for d in (values.dtype, nl.uint32, nl.uint16)]
    nisa.dma_copy(t, x)
    nisa.dma_copy(v, values)
    nisa.max8(best, t)
    nisa.nc_find_index8(i, t, v)
    nisa.nc_match_replace8(t, t, v, -7.0, dst_idx=s)
    for out, tile in ((top, best), (indices, i), (short, s), (result, t)):
        nisa.dma_copy(out, tile)
    return top, indices, short, result


def order(number):
    """Return the key by which numbers sort: NaN first, -0 before 0."""
    return (0, 0, 0) if np.isnan(number) else (1, number, not np.signbit(number))


def expected_indices(row, values):
    """Return the index of each value; equal values get later occurrences."""
    free, indices = list(row), []
    for value in values:
        index = next((k for k, number in enumerate(free) if number == value), -1)
        indices.append(index)
        if index >= 0:
            free[index] = np.nan
    return indices


@pytest.mark.parametrize("dtype, other", [("float32", "float32"), ("float32", "bfloat16"), ("bfloat16", "bfloat16"),
                                          ("bfloat16", "float32"), ("float16", "float32"), ("int16", "float32")])
@pytest.mark.parametrize("length", [8, 33, 300])
def test_searches(dtype, other, length):
    rng = np.random.default_rng(length)
    kind, values_kind = (getattr(ml_dtypes, name, None) or np.dtype(name).type for name in (dtype, other))
    x = np.round(rng.standard_normal((3, length)) * 4)
    if dtype != "int16":
        x[:2] = rng.choice(SPECIAL + [1.0, 2.0, 3.0], (2, length))
    with np.errstate(over="ignore"):
        x = x.astype(kind)
    wide = x.astype(np.float32)
    values = np.concatenate([wide[:, :4], wide[:, 2:4], [[1.5, 0.3]] * 3], 1).astype(values_kind)
    top, indices, short, result = searched.on("jit")(x, values)
    largest = [sorted(row, key=order)[:-9:-1] for row in wide]
    with np.errstate(over="ignore"):
        largest = np.array(largest, np.float32).astype(values_kind).astype(np.float32)
    top = np.asarray(top).astype(np.float32)
    np.testing.assert_array_equal(top, largest)
    np.testing.assert_array_equal(np.signbit(top)[~np.isnan(top)], np.signbit(largest)[~np.isnan(largest)])
    where = np.array([expected_indices(row, v) for row, v in zip(wide, values.astype(np.float32))])
    np.testing.assert_array_equal(indices, where.astype(np.uint32))
    # nc_match_replace8 looks for the last value first.
    where = np.array([expected_indices(row, v[::-1])[::-1] for row, v in zip(wide, values.astype(np.float32))])
    np.testing.assert_array_equal(short, where.astype(np.uint16))
    replaced = wide.copy()
    for row, positions in zip(replaced, where):
        row[positions[positions >= 0]] = -7
    np.testing.assert_array_equal(np.asarray(result).astype(np.float32), replaced)


@nki.jit
def largest_of_columns(x):
    """Return the eight largest of every third element of two axes, and of all elements."""
    out = nl.ndarray((8, 16), x.dtype, buffer=nl.shared_hbm)
    t, v = nl.ndarray((8, 6, 24), x.dtype, buffer=nl.sbuf), nl.ndarray((8, 16), x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(t, x)
    nisa.max8(v[:, 0:8], t[:, 1:5, 2:24:3])
    nisa.max8(v[:, 8:16], t)
    nisa.dma_copy(out, v)
    return out


def test_rows_of_two_axes():
    x = np.random.default_rng(0).permutation(8 * 144).reshape(8, 6, 24).astype(np.float32)
    parts = [-np.sort(-part.reshape(8, -1), 1)[:, :8] for part in (x[:, 1:5, 2:24:3], x)]
    np.testing.assert_array_equal(largest_of_columns.on("jit")(x), np.concatenate(parts, 1))


DTYPES = FLOAT32, BFLOAT16, FLOAT16, INT32, UINT32, INT16, UINT8


@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("target", DTYPES, ids=str)
def test_copy_of_a_row__converts_through_float32(source, target):
    """The result has the row's elements, rounded to float32 and then to its dtype, whatever the steps in the row are."""
    rng = np.random.default_rng(5)
    for dims, in_place in ((((9, 3), (1, 4)), False), (((2, 5),), False), (((1, 12),), source is target)):
        data = RowElements(source, 64, dims)
        copy = IndicesOfEight(1, data, data, None, RowElements(target, 64, ((1, data.count),)), in_place=in_place).copy
        if copy is None:                                        # the row is its result
            assert in_place and (source.is_float or source.itemsize < 4)
            continue
        assert (copy.inputs[0].strides, copy.outputs[0].strides[-1:]) == (tuple(step for step, _ in dims), (1,))
        read, written = Memory(copy, copy.inputs[0], rng, 0, 200), Memory(copy, copy.outputs[0], rng)
        if source.itemsize == 4 and source.is_integer:          # float32 rounds them
            read.array[:] = rng.integers(1 << 24, 1 << 25, read.size)
        result, = reference(copy, [read, written])
        expected = convert(convert(read.view(), FLOAT32), target, FLOAT32)
        np.testing.assert_array_equal(bits(written.view(result)), bits(expected))


# -- on several threads ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_large_searches__spread_their_rows_over_the_threads(dtype, monkeypatch):
    kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((128, 4100), np.float32).astype(kind)
    values = x[:, [0, 5, 700, 700, 4099, 4, 3, 2]].copy()
    values[:, 3] = 2e4
    results = []
    for threads in (1, 2, 3):
        monkeypatch.setattr("nki_mlir.targets.runtime.host.threads", lambda count=threads: count)
        kernel = nki.jit(searched.func)
        results.append([np.asarray(result) for result in kernel.on("jit")(x, values)])
        (spec,) = kernel.specializations.values()
        assembly, = assemblies(spec.modules, spec.grid)
        functions = [call.function for call in assembly.instructions]
        # Three threads run four equal parts of 32 rows.
        assert sum(function == "nki_spread" for function in functions) >= (3 if threads > 1 else 0)
        assert any("largest" in str(getattr(function, "title", "")) for function in functions) == (threads == 1)
    for other in results[1:]:
        for expected, got in zip(results[0], other):
            np.testing.assert_array_equal(bits(expected), bits(got))
    expected = np.array([expected_indices(row, v) for row, v in zip(x.astype(np.float32), values.astype(np.float32))])
    np.testing.assert_array_equal(results[0][1], expected.astype(np.uint32))


@pytest.mark.parametrize("row_step, count, parts, can", [
    (64, 8, 2, True), (64, 8, 3, False), (8, 8, 2, True), (4, 8, 2, False), (0, 8, 2, False), (-64, 8, 2, True)])
def test_parts__need_rows_that_are_apart_and_as_many_in_each(row_step, count, parts, can):
    search = LargestEight(count, RowElements(FLOAT32, 64, ((1, 64),)), RowElements(FLOAT32, row_step, ((1, 8),)))
    part = part_of_search(search, parts)
    assert (part is not None) == can
    assert part is None or (part.count, part.src) == (count // parts, search.src)

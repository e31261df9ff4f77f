# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that are gathered where they are stored: which are, and that values are those of the interpreter."""

import re

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.targets.cpu.lowering import listing
from nki_mlir.targets.cpu.routines import RowCopies
from nki_mlir.targets.runtime import host

from .compiled import compiled, set_options

RNG = np.random.default_rng(0)
EDGES = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40, -1e-40], np.float32)


@nki.jit
def gather(table, indices, rows, first=0, wide=0):
    """Gather rows from one column on, between columns that are set to -1."""
    width = table.shape[1] - first
    out = nl.ndarray((indices.shape[0], wide or width), dtype=table.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(rows)[:, None], nl.arange(width)[None, :]
    if wide:
        nl.store(out, -1.0)
    for i in nl.affine_range(indices.shape[0] // rows):
        index = nl.load(indices[nl.ds(i * rows, rows), :])
        start = (wide - width) // 2 if wide else 0
        nl.store(out[nl.ds(i * rows, rows), nl.ds(start, width)], nl.load(table[index[p, 0], first + f]))
    return out


def table_of(rows, width, dtype=np.float32):
    table = RNG.standard_normal((rows, width)).astype(np.float32)
    table.flat[::5] = np.resize(EDGES, table.flat[::5].size)
    return table.astype(dtype)


def chosen(count, below):
    return RNG.integers(0, below, (count, 1)).astype(np.int32)


def copies(kernel, *arguments, **keywords):
    """Return the copies of tiles in the program, except those of numbers."""
    text = listing(kernel.lower(*arguments, **keywords).module("nisa")).split("module {")[0]
    return [name for name in re.findall(r"\bcopy_\w+", text) if "int32" not in name]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("rows, width", [(1, 1), (31, 17), (128, 64), (127, 513), (8, 4096)])
def test_rows_are_written_where_they_are_stored(rows, width, dtype):
    table, numbers = table_of(50, width, dtype), chosen(3 * rows, 50)
    assert np.array_equal(gather(table, numbers, rows).view(np.uint16), table[numbers[:, 0]].view(np.uint16))
    assert rows == 1 or copies(gather, table, numbers, rows) == []


def test_rows_longer_than_a_prefetch__keep_bits():
    table, numbers = table_of(5, 20_000), chosen(32, 5)
    assert np.array_equal(gather(table, numbers, 16).view(np.uint32), table[numbers[:, 0]].view(np.uint32))


def test_rows_between_other_columns():
    table, numbers = table_of(40, 70), chosen(64, 40)
    out = gather(table, numbers, 32, first=6, wide=80)
    assert np.array_equal(out[:, 8:72].view(np.uint32), table[numbers[:, 0], 6:].view(np.uint32))
    assert (out[:, :8] == -1).all() and (out[:, 72:] == -1).all()
    assert [name[:10] for name in copies(gather, table, numbers, 32, first=6, wide=80)] == ["copy_64x80"]      # of -1


@pytest.mark.parametrize("width", [16, 24, 64, 100])
@pytest.mark.parametrize("offset", [0, 4, 32])
def test_past_the_caches__wherever_the_output_lies(monkeypatch, width, offset):
    monkeypatch.setattr(host, "cache_bytes", lambda: 256)
    table, numbers = table_of(300, width), chosen(96, 300)
    specialization = gather.specialize(gather.bind((table, numbers, 32), {}, is_array, describe_array))
    kernel = compiled(specialization.captured.variants[()].module)
    assert [i.function.streams for i in kernel.assembly.instructions if isinstance(i.function, RowCopies)] == [
        width % host.lanes() == 0]
    memory = np.full(96 * width * 4 + 256, 0xA5, np.uint8)
    first = -memory.ctypes.data % 64 + 64 + offset
    before, size = memory.copy(), 96 * width * 4
    kernel([table, numbers], [memory[first:first + size].view(np.float32).reshape(96, width)])
    assert np.array_equal(memory[first:first + size].view(np.uint32).reshape(96, width),
                          table[numbers[:, 0]].view(np.uint32))
    assert np.array_equal(memory[:first], before[:first]) and np.array_equal(memory[first + size:], before[first + size:])


@pytest.mark.parametrize("bad", [20, -1, 2**31 - 1])
def test_a_number_that_is_no_row__is_an_error(bad):
    table, numbers = table_of(20, 48), chosen(64, 20)
    numbers[45] = bad
    messages = []
    for executor in ("interpreter", "jit"):
        with pytest.raises(IndexError, match="out of bounds for axis 0") as error:
            gather.on(executor)(table, numbers, 32)
        messages.append(str(error.value.__cause__))
    assert messages[0] == messages[1] and f"a run-time index is {bad}, and must be at least 0 and below 20" in messages[0]


@nki.jit
def gathers_between_others(table, indices, count):
    out = nl.ndarray((count * 32, table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
    doubled = nl.ndarray((count * 32, table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
    for i in range(count):              # each of other columns: no loop of the program does them all
        width = table.shape[1] - 1 - i
        p, f = nl.arange(32)[:, None], nl.arange(width)[None, :]
        index = nl.load(indices[i * 32:(i + 1) * 32, :])
        nl.store(out[i * 32:(i + 1) * 32, 0:width], nl.load(table[index[p, 0], f]))
        nl.store(out[i * 32:(i + 1) * 32, width:table.shape[1]], 0.0)
        nl.store(doubled[i * 32:(i + 1) * 32, :], nl.multiply(nl.load(table[0:32, :]), 2.0 + i))
    return out, doubled


def test_several_gathers_between_other_operations(monkeypatch):
    set_options(monkeypatch, "forward-copies", least=1)
    set_options(monkeypatch, "chunk-rows", large=1 << 8, chunk=1 << 7, least=1, shared=1)
    table, numbers = table_of(40, 96), chosen(12 * 32, 40)
    results, expected = (gathers_between_others.on(where)(table, numbers, 12) for where in ("jit", "interpreter"))
    np.testing.assert_array_equal(results, expected)
    text = listing(gathers_between_others.lower(table, numbers, 12).module("nisa")).split("module {")[0]
    assert len(re.findall(r"gather_\w+\(", text)) == 12


@nki.jit
def used_twice(table, indices):
    out = nl.ndarray((32, table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
    doubled = nl.ndarray((32, table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
    rows = nl.load(table[nl.load(indices)[nl.arange(32)[:, None], 0], nl.arange(table.shape[1])[None, :]])
    nl.store(out, rows)
    nl.store(doubled, rows * 2.0)
    return out, doubled


@nki.jit
def stored_in_part(table, indices):
    out = nl.ndarray((16, table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
    rows = nl.load(table[nl.load(indices)[nl.arange(32)[:, None], 0], nl.arange(table.shape[1])[None, :]])
    nl.store(out, rows[8:24, :])
    return out


@nki.jit
def read_again(table, indices):
    out = nl.ndarray((32, table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
    rows = nl.load(table[nl.load(indices)[nl.arange(32)[:, None], 0], nl.arange(table.shape[1])[None, :]])
    nl.store(out, rows)
    nl.store(out[0:16, :], nl.load(out[16:32, :]))
    return out


@nki.jit
def known_rows(table, indices):
    out = nl.ndarray((32, table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
    rows = nl.ndarray((32, table.shape[1]), dtype=table.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=table[nl.load(indices)[nl.arange(32)[:, None], 0], nl.arange(table.shape[1])[None, :]],
                  oob_mode=nisa.oob_mode.skip)
    nl.store(out, rows)
    return out


@pytest.mark.parametrize("kernel, below", [(used_twice, 20), (stored_in_part, 20), (read_again, 20), (known_rows, 30)],
                         ids=["used twice", "stored in part", "read again", "rows left out"])
def test_rows_whose_tile_has_other_uses__are_copied(kernel, below):
    table, numbers = table_of(20, 64), chosen(32, below)
    results, expected = (kernel.on(where)(table, numbers) for where in ("jit", "interpreter"))
    np.testing.assert_array_equal(results, expected)
    assert copies(kernel, table, numbers)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions whose results are small enough to be written down."""

import warnings

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from .running import check, numbers, on_tiles


def row(*values, dtype=np.float32):
    return np.array([values], dtype)


def test_cumulative(on):
    x = row(1, 2, 3)
    check(on, lambda d, t: nisa.tensor_scalar_cumulative(d, t, nl.add, nl.add, 1.0), row(2, 5, 9), x)
    check(on, lambda d, t: nisa.tensor_scalar_cumulative(d, t, nl.add, nl.subtract, 1.0), row(2, 1, 3), x)
    check(on, lambda d, t: nisa.tensor_scalar_cumulative(d, t, nl.add, nl.add, 0.0, 10.0, nisa.reduce_cmd.load_reduce),
          row(11, 13, 16), x)


def test_cumulative_goes_on_from_the_registers(on):
    def body(d, t):
        nisa.tensor_scalar_cumulative(d[:, 0:3], t[:, 0:3], nl.add, nl.add, 0.0)
        nisa.tensor_scalar_cumulative(d[:, 3:6], t[:, 3:6], nl.add, nl.add, 0.0, reduce_cmd=nisa.reduce_cmd.reduce)
    check(on, body, row(1, 3, 6, 10, 15, 21), row(1, 2, 3, 4, 5, 6))


def test_scan(on):
    a, b = row(2, 2, 2), row(1, 1, 1)
    check(on, lambda d, x, y: nisa.tensor_tensor_scan(d, x, y, 0.0, nl.multiply, nl.add), row(1, 3, 7), a, b)
    check(on, lambda d, x, y: nisa.tensor_tensor_scan(d, x, y, 0.0, nl.multiply, nl.subtract, reverse1=True),
          row(1, -1, 3), a, b)


def test_statistics(on):
    check(on, lambda d, t: nisa.bn_stats(d, t), row(3, 3, 8, 2, 3, 2), row(1, 2, 3, 4, 5))
    check(on, lambda d, t: nisa.bn_aggr(d, t), row(3, 2), row(3, 3, 8, 2, 3, 2))


def test_search(on):
    data, best = row(5, 1, 5, 2, 0, 7, 3, 3, 4), row(7, 5, 5, 4, 3, 3, 2, 1)
    check(on, lambda d, t: nisa.max8(d, t), best, data)
    check(on, lambda d, t, v: nisa.nc_find_index8(d, t, v), row(5, 0, 2, 8, 6, 7, 3, 1, dtype=np.uint32), data, best)
    check(on, lambda d, t, v: nisa.nc_find_index8(d, t, v), row(0xFFFF, 0, 2, 8, 6, 7, 3, 1, dtype=np.uint16), data,
          row(99, 5, 5, 4, 3, 3, 2, 1))


def test_shuffle(on):
    x = numbers(128, 5)
    mask = [(i - 1) % 32 for i in range(32)]
    expected = x.reshape(4, 32, 5)[:, mask].reshape(128, 5)
    check(on, lambda d, t: nisa.nc_stream_shuffle(d, t, mask), expected, x)

    def in_place(d, t):
        nisa.tensor_copy(d, t)
        nisa.nc_stream_shuffle(d, d, [255] * 16 + list(range(16)))
    expected = x.copy().reshape(4, 32, 5)
    expected[:, 16:] = expected[:, :16].copy()
    check(on, in_place, expected.reshape(128, 5), x)
    check(on, lambda d, t: nisa.nc_stream_shuffle(d, t, [0] * 32), np.repeat(x[:1], 32, 0), x[:1])


@pytest.mark.parametrize("rows, mask, zeroed", [
    (128, [(k + 5) % 32 for k in range(32)], False), (128, [*range(31), 255], True), (16, [*range(16), *[255] * 16], False)])
def test_a_shuffle_that_writes_all_partitions_needs_no_zeros(rows, mask, zeroed):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        source = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(source, x)
        shuffled = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.nc_stream_shuffle(shuffled, source, mask)
        nisa.dma_copy(out, shuffled)
        return out

    assert ("memset" in kernel.lower(np.zeros((rows, 8), np.float32)).as_text("nki")) is zeroed


def test_iota(on):
    expected = np.array([[10, 11, 12, 14, 15, 16], [110, 111, 112, 114, 115, 116]], np.int32)
    check(on, lambda d: nisa.iota(d, [[4, 2], [1, 3]], offset=10, channel_multiplier=100), expected)
    check(on, lambda d: nisa.iota(d, [[4, 2], [1, 3]], offset=10, channel_multiplier=100),
          expected.reshape(2, 3, 2).astype(np.float32))
    check(on, lambda d: nisa.iota(d, [[-1, 4]], 7), np.array([[7, 6, 5, 4]] * 3, np.int32))


@pytest.mark.parametrize("compare, keep", [
    (nl.greater_equal, np.greater_equal), (nl.greater, np.greater), (nl.equal, np.equal), (nl.not_equal, np.not_equal),
    (nl.less, np.less), (nl.less_equal, np.less_equal)])
def test_affine_select(on, compare, keep):
    x = numbers(3, 4)
    values = np.arange(3)[:, None] - np.arange(4)
    check(on, lambda d, t: nisa.affine_select(d, [[-1, 4]], 1, t, -9.0, compare), np.where(keep(values, 0), x, -9), x)
    check(on, lambda d, t: nisa.affine_select(d, [[-1, 4]], 2, 1, t, -9.0, compare),
          np.where(keep(values + 2, 0), x, -9), x)


def test_sequence_bounds(on):
    ids = row(0, 1, 1, 2, 2, 2, 0, 1)
    expected = np.array([[[8, 1, 1, 3, 3, 3, 8, 7], [-1, 3, 3, 6, 6, 6, -1, 8]]], np.float32)
    check(on, lambda d, t: nisa.sequence_bounds(d, t), expected, ids)


def test_nonzero_with_count(on):
    x = np.tile(row(0, 1, 1, 0, 0, 1, 0, 0), (32, 1))
    expected = np.full((32, 9), 4, np.int32)
    expected[[0, 16]] = [17, 18, 21, -1, -1, -1, -1, -1, 3]
    check(on, lambda d, t: nisa.nonzero_with_count(d, t, index_offset=16, padding_val=-1), expected, x, before=4)


def test_local_gather(on):
    x, index = numbers(16, 20), (15 - np.arange(16, dtype=np.uint16)).reshape(16, 1)
    check(on, lambda d, t, i: nisa.local_gather(d, t, i), x[:, 15::-1], x, index)
    check(on, lambda d, t, i: nisa.local_gather(d, t, i, 2, 5),
          np.stack([x[:, o + e] for o in (15, 14, 13, 12, 11) for e in (0, 1)], 1), x, index)


@pytest.mark.parametrize("elements, valid", [(2, 5), (4, None), (1, 7), (8, 3)])
def test_local_gather_to_a_part(on, elements, valid):
    """What is gathered is the documented number of elements, also where dst has more, which keep their values."""
    x, index = numbers(32, 20), (np.arange(32, dtype=np.uint16)[::-1] % 9).reshape(32, 1)
    expected = np.full((32, 70), 5, np.float32)
    for p in range(32):
        offsets = index[p // 16 * 16:p // 16 * 16 + 16, 0][:valid]
        values = np.concatenate([x[p, o:o + elements] for o in offsets])
        expected[p, :len(values)] = values
    check(on, lambda d, t, i: nisa.local_gather(d, t, i, elements, valid), expected, x, index, before=5)


def test_local_gather_to_a_part_is_reported():
    x, index, dst = numbers(16, 20), np.zeros((16, 1), np.uint16), np.zeros((16, 12), np.float32)
    for elements, valid, count in ((2, 5, 1), (2, 6, 0), (1, 5, 0)):
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            on_tiles("eager", lambda d, t, i, e=elements, v=valid: nisa.local_gather(d, t, i, e, v), [((16, 12), dst.dtype, 0)],
                     x, index)
        texts = [str(w.message) for w in shown]
        assert texts == count * ["local_gather writes 5 x 2 of the 12 elements of each partition of dst; devices of release "
                                 "0.6 treat num_elem_per_idx as 1 there; pass only the part of dst that is written"]


def test_n_gather(on):
    x, index = numbers(8, 3, 5), np.random.default_rng(0).integers(0, 15, (8, 7)).astype(np.uint32)
    check(on, lambda d, t, i: nisa.nc_n_gather(d, t, i), np.take_along_axis(x.reshape(8, 15), index.astype(int), 1), x,
          index)


def test_range_select(on):
    x, low, high = row(10, 20, 30, 40), row(3), row(5)

    def body(d, r, t, a, b):
        nisa.range_select(d, t, nl.greater_equal, nl.less, a, b, reduce_res=r, range_start=2.0)     # release 2.28 has floats
    selected, best = on_tiles(on, body, [((1, 4), nl.float32), ((1, 1), nl.float32)], x, low, high)
    lowest = np.float32(-3.4028235e38)
    assert selected.tolist() == [[lowest, 20, 30, lowest]] and best.tolist() == [[30]]


def test_double_row(on):
    kinds = np.dtype(ml_dtypes.float8_e5m2)
    left, right = np.array([[[2], [3]]], kinds), np.array([[[5], [7]]], kinds)

    def body(d, a, b):
        nisa.nc_matmul(d, a, b, perf_mode=nisa.matmul_perf_mode.double_row)
    check(on, body, row(31), left, right, memory=nl.psum)


def test_topk(on):
    src = np.zeros((16, 4), ml_dtypes.bfloat16)
    values = np.random.default_rng(0).permutation(60).astype(np.float32)
    for i, v in enumerate(values):
        src[i % 16, i // 16] = v

    def body(best, places, t):
        nisa.topk(best, places, t, 60)
    best, places = on_tiles(on, body, [((16, 20), nl.bfloat16, 0), ((16, 20), nl.uint32, 0)], src)
    order = np.argsort(values)[-20:]
    got = [(float(best[r % 16, r // 16]), int(places[r % 16, r // 16])) for r in range(20)]
    assert got == [(values[k], k) for k in order]


def test_abs_max_keeps_signs(on):
    x, y = row(-5, 1, 2), row(3, -1, -7)
    check(on, lambda d, a, b: nisa.tensor_tensor(d, a, b, nl.abs_max), row(-5, -1, -7), x, y)
    check(on, lambda d, a, b: nisa.tensor_tensor(d, a, b, nl.abs_min), row(3, -1, 2), x, y)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small programs whose results the documents give."""

import numpy as np
import pytest

from nki_mlir.language.beta import compiler as ncc
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from ..tolerances import product_bound
from .running import check, floats, run


def output(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def test_average_pool(on):
    @nki.jit
    def kernel(x):
        out, tile = output((2, 3, 3)), nl.load(x)
        c, i, di, j, dj = nl.mgrid[0:2, 0:3, 0:2, 0:3, 0:2]
        nl.store(out, nl.sum(tile[c, 2 * i + di, 2 * j + dj], axis=[2, 4]) / 4)
        return out
    first = np.array([[3.5, 5.5, 7.5], [15.5, 17.5, 19.5], [27.5, 29.5, 31.5]], np.float32)
    check(on, kernel, np.stack([first, first + 36]), np.arange(72, dtype=np.float32).reshape(2, 6, 6))


@pytest.mark.parametrize("buffer, dtype, expected", [
    (ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2,)), nl.bfloat16, [(0, 0), (0, 1024), (0, 0), (0, 1024)]),
    (ncc.psum.mod_alloc(base_bank=0, num_bank_tiles=(2,)), nl.float32, [(0, 0, 0), (1, 0, 0), (0, 0, 0), (1, 0, 0)]),
    (ncc.sbuf.mod_alloc(base_addr=64, num_free_tiles=(2,)), nl.float32, [(0, 64), (0, 2112), (0, 64), (0, 2112)])])
def test_addresses_in_turn(on, buffer, dtype, expected):
    observed = []
    address = buffer.address

    def noted(**block):
        observed.append(address(**block))
        return observed[-1]

    @nki.jit
    def kernel(x):
        alloc = ncc.psum.alloc if buffer.space == "psum" else ncc.sbuf.alloc
        out, tiles = output((4, 128, 512)), nl.ndarray((4, nl.par_dim(128), 512), dtype, buffer=alloc(noted))
        for i in nl.affine_range(4):
            tiles[i] = nl.load(x[i])
            nl.store(out[i], tiles[i])
        return out
    x = floats(4, 128, 512).round()
    check(on, kernel, x, x)
    assert observed[:4] == expected


def test_an_allocation_function_gets_each_block(on):
    observed = []

    def address(idx, pdim_size, fdim_size):
        observed.append((idx, pdim_size, fdim_size))
        return 0, sum(idx) * fdim_size

    @nki.jit
    def kernel(x):
        out, tiles = output((128, 512)), nl.ndarray((4, nl.par_dim(128), 512), nl.bfloat16, buffer=ncc.sbuf.alloc(address))
        single = nl.ndarray((128, 8), nl.float32, buffer=ncc.sbuf.alloc(lambda idx, **sizes: (len(idx), 8192)))
        single[...] = 0.0
        tiles[3] = nl.load(x)
        nl.store(out, tiles[3])
        return out
    x = floats(128, 512).round()
    check(on, kernel, x, x)
    assert observed[:4] == [((k,), 128, 1024) for k in range(4)]


def test_iota(on):
    @nki.jit
    def kernel(x):
        down, across = output((128, 1), nl.int32), output((1, 512), nl.int32)
        nl.store(down, nisa.iota(5 + 2 * nl.arange(128)[:, None], dtype=nl.int32))
        nl.store(across, nisa.iota(nl.arange(512)[None, :] * -1, dtype=nl.int32))
        return down, across
    down, across = run(on, kernel, floats(1, 1))
    assert down[:, 0].tolist() == list(range(5, 260, 2)) and across[0].tolist() == [-k for k in range(512)]


def test_affine_select(on):
    @nki.jit
    def kernel(x):
        out, (ix, iy) = output((128, 128)), nl.mgrid[0:128, 0:128]
        nl.store(out, nisa.affine_select(pred=(iy < ix), on_true_tile=nl.load(x), on_false_value=nl.fp32.min))
        return out
    x = floats(128, 128)
    check(on, kernel, np.where(np.tri(128, k=-1, dtype=bool), x, np.float32(nl.fp32.min)), x)


def test_masked_square(on):
    @nki.jit
    def kernel(x):
        out, (p, f) = output((64, 256)), nl.mgrid[0:128, 0:512]
        inside = (p < 64) & (f < 256)
        nl.store(out[p, f], nl.square(nl.load(x[p, f]), mask=inside), mask=inside)
        return out
    x = floats(128, 512)
    check(on, kernel, x[:64, :256] ** 2, x)


def test_tiles_of_the_tensor_engine(on):
    """Sixteen products on quarters of the array are sixteen products."""
    @nki.jit
    def kernel(a, b):
        out = output((4, 4, 64, 512))
        for i in nl.affine_range(4):
            for j in nl.affine_range(4):
                product = nisa.nc_matmul(nl.load(a[i, j]), nl.load(b[i, j]),
                                         tile_position=((i % 2) * 64, (j % 2) * 64), tile_size=(64, 64))
                nl.store(out[i, j], product)
        return out
    a, b = floats(4, 4, 64, 64), floats(4, 4, 64, 512, seed=1)
    expected = np.einsum("xykm,xykn->xymn", a.astype(np.float64), b, optimize=True).astype(np.float32)
    bounds = np.stack([[product_bound(a[i, j], b[i, j]) for j in range(4)] for i in range(4)])
    check(on, kernel, expected, a, b, within=bounds)


def test_sum_of_a_product_in_two_steps(on):
    @nki.jit
    def kernel(a, b):
        out, total = output((128, 512)), nl.zeros((128, 512), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            rows = nl.ds(k * 128, 128)
            total += nisa.nc_matmul(nl.load(a[rows, :]), nl.load(b[rows, :]))
        nl.store(out, total)
        return out
    a, b = floats(256, 128), floats(256, 512, seed=1)
    check(on, kernel, (a.astype(np.float64).T @ b).astype(np.float32), a, b, within=product_bound(a, b))


def test_scan_of_two_halves(on):
    """Two scans of 512, the second from the first one's column 511 on, are one of 1024."""
    @nki.jit
    def kernel(a, b):
        full, halves, x, y = output((128, 1024)), output((128, 1024)), nl.load(a), nl.load(b)
        nl.store(full, nisa.tensor_tensor_scan(x, y, initial=0, op0=np.multiply, op1=np.add))
        first = nisa.tensor_tensor_scan(x[:, 0:512], y[:, 0:512], initial=0, op0=np.multiply, op1=np.add)
        second = nisa.tensor_tensor_scan(x[:, 512:1024], y[:, 512:1024], initial=first[:, 511], op0=np.multiply,
                                         op1=np.add)
        nl.store(halves[:, 0:512], first)
        nl.store(halves[:, 512:1024], second)
        return full, halves
    a, b = np.random.default_rng(0).random((2, 128, 1024)).astype(np.float32)
    full, halves = run(on, kernel, a, b)
    np.testing.assert_array_equal(full, halves)
    carry, expected = np.zeros(128), np.empty((128, 1024))
    for k in range(1024):
        expected[:, k] = carry = a[:, k] * carry + b[:, k]
    np.testing.assert_allclose(full, expected, rtol=1e-5)


def test_rows_added_to_ones(on):
    @nki.jit
    def kernel(rows, index):
        out = output((128, 40))
        nl.store(out, 1.0)
        f = nl.arange(40)[None, :]
        nisa.dma_copy(dst=out[nl.load(index), f], src=nl.load(rows), dst_rmw_op=np.add)
        return out
    rows, expected = floats(64, 40), np.ones((128, 40), np.float32)
    expected[::2] += rows
    check(on, kernel, expected, rows, 2 * np.arange(64, dtype=np.int32)[:, None])


def test_a_running_maximum_of_ranges(on):
    """Reset with the first piece, continued, and read with the last."""
    @nki.jit
    def kernel(x, low, high):
        out, top, tile, bounds = output((128, 96)), output((128, 1)), nl.load(x), (nl.load(low), nl.load(high))
        best = nl.ndarray((128, 1), nl.float32)
        for k in nl.static_range(3):
            piece = nisa.range_select(
                on_true_tile=tile[:, 32 * k:32 * k + 32], comp_op0=np.greater_equal, comp_op1=np.less,
                bound0=bounds[0], bound1=bounds[1], reduce_op=np.max, range_start=32 * k,
                reduce_cmd=nisa.reduce_cmd.reduce if k else nisa.reduce_cmd.reset_reduce,
                reduce_res=best if k == 2 else None, on_false_value=nl.fp32.min)
            nl.store(out[:, 32 * k:32 * k + 32], piece)
        nl.store(top, best)
        return out, top
    x, low = floats(128, 96), np.arange(128, dtype=np.float32)[:, None] % 30
    high = low + 1 + np.arange(128, dtype=np.float32)[:, None] // 2
    column = np.arange(96)
    expected = np.where((column >= low) & (column < high), x, np.float32(nl.fp32.min))
    check(on, kernel, (expected, expected.max(1, keepdims=True)), x, low, high)


def test_sequence_bounds(on):
    @nki.jit
    def kernel(ids):
        out = output((1, 2, 5), nl.int32)
        nl.store(out, nisa.sequence_bounds(segment_ids=nl.load(ids)))
        return out
    check(on, kernel, np.array([[[5, 1, 1, 3, 5], [-1, 3, 3, 4, -1]]], np.int32), np.array([[0, 1, 1, 2, 0]], np.int32))


F8, F8_WIDE = nl.float8_e4m3, nl.float8_e5m2
PROMOTIONS = [
    (nl.float16, nl.int32, nl.float16), (nl.int8, nl.bfloat16, nl.bfloat16), (nl.float32, nl.tfloat32, nl.float32),
    (nl.float32, nl.bfloat16, nl.float32), (nl.float16, nl.float32, nl.float32), (nl.float16, nl.bfloat16, nl.float32),
    (F8, nl.float16, nl.float16), (F8, nl.bfloat16, nl.bfloat16), (F8, F8_WIDE, nl.bfloat16),
    (nl.int16, nl.int32, nl.int32), (nl.uint8, nl.uint16, nl.uint16), (nl.uint16, nl.int32, nl.int32),
    (nl.int8, nl.uint8, nl.int16), (nl.int8, nl.uint16, nl.int32), (nl.int32, nl.uint32, nl.float32),
    (nl.uint8, nl.int16, nl.int16), (nl.uint16, nl.int16, nl.int32), (nl.uint32, nl.int8, nl.float32),
    (nl.uint32, nl.int16, nl.float32), (nl.bool_, nl.uint8, nl.uint8), (nl.tfloat32, nl.bfloat16, nl.float32),
    (nl.tfloat32, nl.float16, nl.float32)]
NUMBERS = [
    (nl.int8, 2, nl.int32), (nl.int8, True, nl.int16), (nl.uint8, True, nl.uint8), (nl.int16, True, nl.int16),
    (nl.float16, 1.2, nl.float32), (nl.bfloat16, 1.0, nl.float32), (nl.float16, np.float16(2), nl.float16),
    (nl.bfloat16, 2, nl.bfloat16), (nl.int32, 1.5, nl.float32), (nl.int8, np.int16(2), nl.int16)]


@pytest.mark.parametrize("left, right, expected", PROMOTIONS + [(b, a, e) for a, b, e in PROMOTIONS] + NUMBERS)
def test_promotion(on, left, right, expected):
    """The type and the sum of two tiles, or of a tile and a number."""
    tiles = not isinstance(right, (int, float, np.generic))

    @nki.jit
    def kernel(x):
        out, tile = output((16, 8), expected), nl.copy(nl.load(x), dtype=left)
        total = nl.add(tile, nl.copy(nl.load(x), dtype=right) if tiles else right)
        assert total.dtype == expected
        nl.store(out, total)
        return out
    x = (np.arange(128) % 2).astype(np.float32).reshape(16, 8)
    got = run(on, kernel, x)
    np.testing.assert_array_equal(got.astype(np.float64), (x + (x if tiles else float(right))).astype(expected))


def test_simulation_returns_arrays_or_fills_them():
    def returned(x):
        out = output(x.shape)
        nl.store(out, nl.load(x) * 2)
        return out

    def filled(x, out):
        nl.store(out, nl.load(x) * 3)
    x, out = floats(16, 8), np.zeros((16, 8), np.float32)
    np.testing.assert_array_equal(nki.simulate_kernel(nki.jit(returned), x), x * 2)
    nki.simulate_kernel(nki.trace(filled), x, out)
    np.testing.assert_array_equal(out, x * 3)

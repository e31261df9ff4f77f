# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions that lay out their operands themselves read and write views that are not rows in memory."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current.errors import NkiValidationError

from .running import check, floats, numbers, on_tiles, run

P = 32
X = np.abs(numbers(P, 40)).astype(np.float32)
BEST = -np.sort(-X, 1)[:, :8]


def spread(tile, n):
    """n elements of each partition: four of every eight."""
    return tile[:, 0:2 * n].reshape_dim(1, (n // 4, 8))[:, :, 0:4]


def places(n):
    return (np.arange(n // 4)[:, None] * 8 + np.arange(4)).reshape(-1)


def statistics(v):
    return np.concatenate([[[h.shape[1]] * len(h), h.mean(1), h.var(1) * h.shape[1]] for h in (v[:, 0::2], v[:, 1::2])]).T


def first_places(v):
    indices, left = np.zeros((P, 8), np.uint32), v.copy()
    for j in range(8):
        indices[:, j] = left.argmax(1)
        left[np.arange(P), indices[:, j]] = -1
    return indices


COLUMN = np.random.default_rng(0).integers(0, 40, (P, 1)).astype(np.uint16)
SHARED = np.stack([X[p, COLUMN[16 * (p // 16):16 * (p // 16) + 16, 0]] for p in range(P)])
TURNED = [31 - k for k in range(32)]
REPLACED = np.where(np.arange(16) == X[:, :16].argmax(1)[:, None], -1, X[:, :16]).astype(np.float32)
COUNTED = np.where(np.arange(P)[:, None] % 16 == 0, np.arange(8), 0).astype(np.int32)
COUNTED[::16, 7] = 7
WRITTEN = {
    "max8": (8, lambda d, t: nisa.max8(d, t), BEST, X),
    "nc_find_index8": (8, lambda d, t, v: nisa.nc_find_index8(d, t, v), first_places(X), X, BEST),
    "nc_match_replace8": (16, lambda d, t, v: nisa.nc_match_replace8(d, t, v, -1.0), REPLACED, X[:, :16],
                          np.concatenate([np.full((P, 7), 777), X[:, :16].max(1, keepdims=True)], 1).astype(np.float32)),
    "nc_stream_shuffle": (16, lambda d, t: nisa.nc_stream_shuffle(d, t, TURNED), X[::-1, :16], X[:, :16]),
    "local_gather": (16, lambda d, t, i: nisa.local_gather(d, t, i), SHARED, X, COLUMN),
    "local_gather of 8": (8, lambda d, t, i: nisa.local_gather(d, t, i, num_valid_indices=8), SHARED[:, :8], X, COLUMN),
    "nonzero_with_count": (8, lambda d, t: nisa.nonzero_with_count(d, t), COUNTED, np.ones((P, 7), np.float32)),
    "tensor_reduce": (16, lambda d, t: nisa.tensor_reduce(d, nl.add, t, 2), X[:, :32].reshape(P, 16, 2).sum(2),
                      X[:, :32].reshape(P, 16, 2)),
    "nc_transpose": (16, lambda d, t: nisa.nc_transpose(d, t), X[:16, :32].T, X[:16, :32]),
    "iota": (16, lambda d: nisa.iota(d, [[1, 16]]), np.tile(np.arange(16, dtype=np.int32), (P, 1))),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_destinations(on, name):
    n, call, value, *arrays = WRITTEN[name]
    expected = np.zeros((P, 3 * n), value.dtype)
    expected[:, places(n)] = value

    def body(d, *tiles):
        nisa.memset(d, 0)
        call(spread(d, n), *tiles)
    check(on, body, expected, *(np.ascontiguousarray(a) for a in arrays))


def test_destinations_in_psum(on):
    x = np.ascontiguousarray(X[:16, :32])
    expected = np.zeros((P, 48), np.float32)
    expected[:, places(16)] = x.T

    def body(d, t):
        nisa.memset(d, 0.0)
        nisa.nc_matmul(spread(d, 16), t, nl.shared_identity_matrix(16, nl.float32), is_transpose=True)
    check(on, body, expected, x, memory=nl.psum)


def test_scales_of_a_quantization_leave_the_rest(on):
    x = np.full((32, 64), 448, ml_dtypes.bfloat16)
    expected = np.full((4, 48), 9, np.uint8)
    expected[:, places(16)] = 128

    def body(scales, t):
        nisa.memset(scales, 9)
        nisa.quantize_mx(nl.ndarray((32, 16), nl.float8_e4m3fn_x4), t, spread(scales, 16))
    check(on, body, expected, x)


READ = {
    "max8": (16, lambda d, t: nisa.max8(d, t), lambda v: -np.sort(-v, 1)[:, :8]),
    "bn_stats": (16, lambda d, t: nisa.bn_stats(d, t), statistics),
    "nc_match_replace8": (16, lambda d, t: nisa.nc_match_replace8(d, t, nl.full((P, 8), 777.0, nl.float32), 0.0),
                          lambda v: v),
    "nc_stream_shuffle": (16, lambda d, t: nisa.nc_stream_shuffle(d, t, TURNED), lambda v: v[::-1]),
    "tensor_reduce": (16, lambda d, t: nisa.tensor_reduce(d, nl.maximum, t, (1, 2)), lambda v: v.max(1, keepdims=True)),
    "nc_transpose": (16, lambda d, t: nisa.nc_transpose(d, t), lambda v: v.T),
}


@pytest.mark.parametrize("name", READ)
def test_sources(on, name):
    n, call, formula = READ[name]
    x = floats(P, 3 * n)
    check(on, lambda d, t: call(d, spread(t, n)), formula(x[:, places(n)].astype(np.float64)).astype(np.float32), x,
          rtol=1e-5, atol=1e-6)


def overlapping(tile):
    return tile.ap([[40, P], [4, 4], [1, 8]])


TWICE = {
    "tensor_copy": lambda d, t: nisa.tensor_copy(overlapping(d), t[:, 0:32].reshape((P, 4, 8))),
    "tensor_tensor": lambda d, t: nisa.tensor_tensor(overlapping(d), overlapping(d), overlapping(t), nl.add),
    "memset": lambda d, t: nisa.memset(overlapping(d), 1.0),
    "dma_copy": lambda d, t: nisa.dma_copy(overlapping(d), overlapping(t)),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_destination_that_overlaps_itself(on, name):
    def kernel(x):
        tile, result = nl.load(x), nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.memset(result, 0.0)
        TWICE[name](result, tile)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, result)
        return out
    with pytest.raises(NkiValidationError) as caught:
        run(on, kernel, X)
    assert f"in sbuf of '{name}' names the same element more than once" in str(caught.value)


SCRATCHES = {
    "activation_reduce": lambda d, r, t: nisa.activation_reduce(d, nl.square, t, nl.add, r),
    "activation": lambda d, r, t: nisa.activation(d, nl.square, t, reduce_op=nl.add, reduce_res=r,
                                                  reduce_cmd=nisa.reduce_cmd.reset_reduce),
    "tensor_scalar_reduce": lambda d, r, t: nisa.tensor_scalar_reduce(d, t, nl.multiply, 3.0, nl.add, r),
}


@pytest.mark.parametrize("name", SCRATCHES)
@pytest.mark.parametrize("shape", [(40,), (5, 8)])
def test_what_is_thrown_away_may_go_to_one_element(on, name, shape):
    """The element keeps the last of the values."""
    x = numbers(P, *shape)
    each = x * x if name != "tensor_scalar_reduce" else 3 * x

    def body(d, r, t):
        pattern = [[3, P], *([0, n] for n in shape)]
        SCRATCHES[name](d.ap(pattern, offset=1), r, t)
    one, rows = on_tiles(on, body, [((P, 3), nl.float32, 7.0), ((P, 1), nl.float32)], x)
    last = each.reshape(P, -1)
    np.testing.assert_array_equal(one, np.stack([np.full(P, 7), last[:, -1], np.full(P, 7)], 1))
    np.testing.assert_array_equal(rows, last.sum(1, keepdims=True))


def test_a_part_of_what_is_thrown_away_may_be_kept(on):
    x = numbers(P, 5, 8)

    def body(d, r, t):
        nisa.activation_reduce(d.ap([[5, P], [1, 5], [0, 8]]), nl.square, t, nl.add, r)
    squares, rows = on_tiles(on, body, [((P, 5), nl.float32), ((P, 1), nl.float32)], x)
    np.testing.assert_array_equal(squares, x[:, :, -1] ** 2)
    np.testing.assert_array_equal(rows[:, 0], (x * x).sum((1, 2)))

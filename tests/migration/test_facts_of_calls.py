# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What calls show about the parameters and the results of the functions that they call."""

import numpy as np

from .test_helpers import new_text, same_values

SQUARE = np.random.default_rng(5).random((2, 32, 32), np.float32)


def test_a_number_that_only_a_later_call_passes():
    """The first call leaves the default, None; the body alone would show a tile."""
    new = same_values("""def loaded(x, i, scale=None):
    tile = nl.load(x[i], dtype=nl.float32)
    if scale is not None:
        tile = nl.multiply(tile, scale)
    return tile


@nki.jit
def kernel(x, softmax_scale=None):
    out = nl.ndarray((32, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    scale = softmax_scale or 1.0 / 32
    nl.store(out, nl.add(loaded(x, 0), loaded(x, 1, scale)))
    return out
""", arguments=(SQUARE,))
    assert "        tile = nl.multiply(tile, scale)\n" in new


NORMALIZED = """@nki.jit
def kernel(x):
    n, _, _ = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

    def product(left, right):
        return nisa.nc_matmul(left, right)

    for i in nl.affine_range(n):
        y = nl.copy(product(nl.load(LOADED), nl.load(x[i])))
        y *= nl.rsqrt(nl.sum(y * y, axis=1, keepdims=True))
        nl.store(out[i], y)
    return out
"""


def test_calls_show_the_shapes_that_an_inner_function_returns():
    new = same_values(NORMALIZED.replace("LOADED", "x[i, :, 0:32]"), arguments=(SQUARE,))
    assert "data2=nl.rsqrt(nl.sum(nl.multiply(y, y), axis=1, keepdims=True)).broadcast(1, x.shape[2])" in new


def test_a_column_updates_a_tile_whose_shape_the_text_does_not_show():
    """It is repeated to the shape of the tile, which the new text reads."""
    new = same_values(NORMALIZED.replace("nl.load(LOADED)", "unknown(x, i)").replace("@nki.jit\n", """def unknown(x, i):
    return nl.load(x[i]) if i < 2 else nl.load(x[0, :, 0:8])


@nki.jit
"""), arguments=(SQUARE,))
    assert "keepdims=True)).broadcast(1, y.shape[1])" in new


def test_an_inner_function_that_gets_a_tile_or_a_number():
    """No call shows a shape, so the operands stay as they are."""
    new = same_values("""@nki.jit
def kernel(x):
    out = nl.ndarray((32, 32), dtype=x.dtype, buffer=nl.shared_hbm)

    def scaled(tile, by):
        return nl.multiply(tile, by)

    rows = nl.load(x[0])
    nl.store(out, scaled(scaled(rows, rows), 2.0))
    return out
""", arguments=(SQUARE,))
    assert "return nl.multiply(tile, by)" in new


STRIDED = """@nki.jit
def kernel(x, k=3, stride=2):
    c, h, w = x.shape
    out_h, out_w = -(-(h - k) // stride) + 1, (w - k) // stride + 1
    out = nl.ndarray((c, out_h, out_w), dtype=x.dtype, buffer=nl.shared_hbm)
    i_c, i_y, i_x, i_dy, i_dx = nl.mgrid[0:c, 0:out_h, 0:out_w, 0:k, 0:k]
    tile = nl.load(x)
    best = nl.max(tile[i_c, i_y * stride + i_dy, i_x * stride + i_dx], axis=[3, 4],
                  mask=(i_y * stride + i_dy < h) & (i_x * stride + i_dx < w))
    nl.store(out, best)
    return out
"""


def test_windows_at_steps_are_of_a_padded_tile():
    """Windows may leave the tile along one axis, and leave out the last elements of another one."""
    new = same_values(STRIDED, arguments=(np.random.default_rng(7).random((8, 12, 12), np.float32),))
    assert """    padded_rows = max(h, (out_h - 1) * stride + k)
    padded_columns = max(w, (out_w - 1) * stride + k)
    padded = nl.full((c, padded_rows, padded_columns), -math.inf, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=padded[:, 0:h, 0:w], src=tile)
""" in new


def test_windows_at_steps_that_are_numbers():
    new = new_text(STRIDED.replace("* stride", "* 2"))
    assert "padded_rows = max(h, 2 * out_h + k - 2)" in new or "padded_rows = max(h, out_h * 2 + k - 2)" in new

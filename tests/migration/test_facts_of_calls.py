# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What calls show about the parameters and the results of the functions that they call."""

import numpy as np

from nki_mlir.migration.files import migrated
from nki_mlir.migration.kernels import Kernels
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport

from .test_helpers import HEAD, new_text, same_values

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
    new = same_values(NORMALIZED.replace("nl.load(LOADED), nl.load(x[i])", "nl.load(x[i]), unknown(x, i)").replace(
        "@nki.jit\n", """def unknown(x, i):
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


SIZES = """P = 128
N_TILE = 16


def zero_tile(n):
    return nl.zeros((P, n), dtype=nl.float32, buffer=nl.sbuf)


def load_block(x, i, n=N_TILE, rows=64):
    return nl.load(x[nl.ds(i * rows, rows), 0:n])


@nki.jit
def kernel(x, width=N_TILE // 2):
    out = nl.ndarray((N_TILE, N_TILE), dtype=x.dtype, buffer=nl.shared_hbm)

    def half(tile, n):
        return nl.copy(tile[:, 0:n // 2])

    block = load_block(x, 0, rows=P)
    product = nisa.nc_matmul(zero_tile(N_TILE), block)
    turned = nisa.nc_transpose(half(block, N_TILE))
    part = nisa.nc_transpose(load_block(x, 0, width, P))
    double = nisa.nc_transpose(zero_tile(2 * width))
    nl.store(out, nl.add(product, nisa.nc_matmul(block, load_block(x, 0, rows=P))))
    return out
"""


def test_sizes_of_results_have_the_names_that_the_caller_knows():
    """Constants of the file, also as defaults, and numbers that the call passes; also those in a product."""
    new = same_values(SIZES)
    for line in ("product = nl.ndarray((N_TILE, N_TILE), dtype=nl.float32, buffer=nl.psum)",
                 "turned = nl.ndarray((N_TILE // 2, P), dtype=x.dtype, buffer=nl.psum)",
                 "part = nl.ndarray((width, P), dtype=x.dtype, buffer=nl.psum)",
                 "double = nl.ndarray((2 * width, P), dtype=nl.float32, buffer=nl.psum)"):
        assert line in new


def test_a_name_that_the_caller_binds_is_no_constant_of_the_file():
    new = new_text("""P = 128


def zero_tile(n):
    return nl.zeros((P, n), dtype=nl.float32, buffer=nl.sbuf)


@nki.jit
def kernel(x, P):
    rows = x.shape[0]
    rows = rows // 2
    tile = zero_tile(rows)
    turned = nisa.nc_transpose(tile)
    return x
""")
    assert "turned = nl.ndarray((tile.shape[1], tile.shape[0]), dtype=nl.float32, buffer=nl.psum)" in new


def test_sizes_of_results_of_another_file(tmp_path):
    """The name of a constant stays in its file: its number says the size."""
    (tmp_path / "helper.py").write_text(HEAD + "P = 128\n\n\ndef zero_tile(n):\n    return nl.zeros((P, n), dtype=nl.float32, "
                                        "buffer=nl.sbuf)\n")
    (tmp_path / "kernel.py").write_text(HEAD + """from helper import zero_tile


@nki.jit
def kernel(x, width):
    turned = nisa.nc_transpose(zero_tile(width))
    return x
""")
    new = next(m.new for m in migrated(tmp_path, "2.32") if m.path.name == "kernel.py")
    assert "turned = nl.ndarray((width, 128), dtype=nl.float32, buffer=nl.psum)" in new


def test_shapes_that_a_kernel_asserts():
    new = new_text("""@nki.jit
def kernel(q, k, v, w):
    heads, d, s = q.shape
    assert tuple(k.shape) == (heads, d, s), f"not {k.shape}"
    assert v.shape == k.shape and w.shape == (d, 16) and heads > 0
    for h in nl.affine_range(heads):
        scores = nisa.nc_matmul(nl.load(q[h]), nl.load(k[h]))
        product = nisa.nc_matmul(nl.load(w), nl.load(v[h]))
    return q
""")
    assert "scores = nl.ndarray((s, s), dtype=nl.float32, buffer=nl.psum)" in new
    assert "product = nl.ndarray((16, s), dtype=nl.float32, buffer=nl.psum)" in new


def test_an_alternative_shows_no_shape():
    new = new_text("""@nki.jit
def kernel(q, k):
    d, s = q.shape
    assert k.shape == (d, s) or k.shape == (s, d)
    scores = nisa.nc_matmul(nl.load(q), nl.load(k))
    return q
""")
    assert "scores = nl.ndarray((s, loaded.shape[1]), dtype=nl.float32, buffer=nl.psum)" in new


def test_names_of_tiles_in_psum_and_of_lists():
    """A second transpose is named after its copy, a list after the parameter that gets it."""
    new = same_values("""@nki.jit
def kernel(x, shift=1):
    out = nl.ndarray((16, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0:128])
    shuffled = nl.ndarray((128, 16), dtype=x.dtype, buffer=nl.sbuf)
    nisa.nc_stream_shuffle(src=tile, dst=shuffled, shuffle_mask=[(i - shift) % 32 for i in range(32)])
    first = nl.copy(nisa.nc_transpose(tile))
    second = nl.copy(nisa.nc_transpose(shuffled))
    nl.store(out, first + second)
    return out
""")
    assert "    shuffle_mask = []\n" in new and "shuffle_mask=shuffle_mask)" in new
    assert "    nisa.nc_transpose(dst=second_psum, data=shuffled)\n    second = nl.copy(second_psum)\n" in new


def test_notes_of_an_attempt_that_cuts_too_much_go(monkeypatch):
    """The next attempt, in which a tile keeps all elements, notes anew what holds."""
    report, attempted = MigrationReport("kernel.py"), Kernels.function

    def function(self, *arguments):
        result = attempted(self, *arguments)
        if not self.masked.uncut:
            self.report.add_manual(9, "of the first attempt")
            self.masked.exceeded = {"tile": {0}}
        return result

    monkeypatch.setattr(Kernels, "function", function)
    rewritten(HEAD + "@nki.jit\ndef kernel(x):\n    tile = nl.load(x) + 1\n    return x\n", report)
    texts = [entry.text for entry in report.entries]
    assert "the operator on tiles becomes nl.add" in texts and "of the first attempt" not in texts

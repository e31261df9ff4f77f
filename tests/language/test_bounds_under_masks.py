# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bounds of accesses are those of each dimension, over all loops, where masks and conditions let them through."""

import importlib.util

import numpy as np
import pytest

from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .masking import F, P
from .running import check, numbers, run


def test_bounds__of_a_flat_offset_are_those_of_each_dimension(on):
    """All addresses are inside the tensor, but a column is not."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x[P, F + 1]))
        return out
    with pytest.raises(OutOfBounds) as caught:
        run(on, kernel, numbers(32, 8))
    error = caught.value
    assert error.headline == ("Out-of-bound access for tensor `x` on dimension 1: index range [1, 8] "
                              "exceed dimension size of 8")
    assert error.name == "err_tensor_access_out_of_bound" and isinstance(error, SyntaxError)
    assert error.at.file == __file__


@pytest.mark.parametrize("shape, row_by_row", [((16, 7, 8), False), ((16, 7, 8), True), ((128, 40, 40), False)])
def test_windows_that_begin_in_front_of_a_tile(on, shape, row_by_row):
    """The mask of a pooling window takes out what would lie before the tile's first element, or behind its last."""
    @nki.jit
    def kernel(x):
        channels, rows, columns = x.shape
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        if row_by_row:
            p, c, i, j = nl.mgrid[0:channels, 0:columns, 0:3, 0:3]
            for row in nl.affine_range(rows):
                r = row + i - 1
                nl.store(out[:, row, :], nl.max(tile[p, r, c + j - 1], axis=[2, 3], mask=(
                    r >= 0) & (r < rows) & (c + j >= 1) & (c + j < columns + 1)))
        else:
            p, r, c, i, j = nl.mgrid[0:channels, 0:rows, 0:columns, 0:3, 0:3]
            nl.store(out, nl.max(tile[p, r + i - 1, c + j - 1], axis=[3, 4], mask=(
                r + i >= 1) & (r + i < rows + 1) & (c + j >= 1) & (c + j < columns + 1)))
        return out
    x = numbers(*shape)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=-1000)
    _, rows, columns = shape
    check(on, kernel, np.max([padded[:, i:i + rows, j:j + columns] for i in range(3) for j in range(3)], axis=0), x)


def test_shifted_rows_under_a_triangle(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile, shifted = nl.load(x), nl.zeros(x.shape, x.dtype, buffer=nl.sbuf)
        p, f = nl.mgrid[0:40, 0:50]
        shifted[p, f] = nl.copy(tile[p, f - 3], mask=(f >= 3) & (f <= p + 5))
        nl.store(out, shifted)
        return out
    x = numbers(40, 50)
    p, f = np.ogrid[:40, :50]
    check(on, kernel, np.where((f >= 3) & (f <= p + 5), np.roll(x, 3, axis=1), 0).astype(np.float32), x)


def test_bounds__over_all_loops(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((4, 4, 8), nl.float32, buffer=nl.shared_hbm)
        for i in nl.affine_range(4):
            for j in nl.sequential_range(3):
                nl.store(out[i], nl.load(x[nl.ds(i * 4 + j, 4), 0:8]))
        return out
    with pytest.raises(OutOfBounds, match=r"`x` on dimension 0: index range \[(0|14), 17\] exceed .* of 17"):
        run(on, kernel, numbers(17, 8))
    run(on, kernel, numbers(18, 8))


def test_bounds__negative(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x[P - 1, F]))
        return out
    with pytest.raises(OutOfBounds, match=r"dimension 0: index range \[-1, 14\]"):
        run(on, kernel, numbers(16, 8))


def test_bounds__if_protects(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((5, 4), nl.float32, buffer=nl.shared_hbm)
        for i in nl.affine_range(5):
            nl.store(out[i:i + 1, :], nl.load(x[i:i + 1, :]))
            if (i > 0) & (i < 4):
                nl.store(out[i:i + 1, :], nl.load(x[i + 1:i + 2, :]) + nl.load(x[i - 1:i, :]))
        return out
    x = numbers(5, 4)
    expected = x.copy()
    expected[1:4] = x[2:5] + x[0:3]
    check(on, kernel, expected, x)


def test_bounds__mask_is_over_the_axes_of_the_operation(on):
    """A product's operand may be longer than the mask lets it be read."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out[P, F], 0.0)
        tile = nl.load(x[P + 8, F], mask=P + 8 < 20)
        nl.store(out[P, F], tile, mask=P < 12)
        return out
    x = numbers(20, 8)
    expected = np.zeros((16, 8), np.float32)
    expected[:12] = x[8:]
    check(on, kernel, expected, x)


@pytest.mark.parametrize("last", [57, 58])
def test_an_index_that_a_mask_lets_pass__by_one_element_or_several(last):
    """One element too many is what <= in place of < selects, and the fix says so."""
    @nki.jit
    def kernel(x):
        o = nl.ndarray((128, 64), x.dtype, buffer=nl.shared_hbm)
        p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
        nl.store(o[p, f + 8], nl.load(x)[p, f], mask=(f < last))
        return o
    for on in ("eager", "jit"):
        with pytest.raises(OutOfBounds, match=r"\d elements? outside dimension 1 of `o`") as caught:
            kernel.on(on)(np.zeros((128, 64), np.float32))
        elements = "1 element" if last == 57 else "2 elements"
        assert caught.value.headline.startswith(f"an index is {elements} outside dimension 1 of `o`")
        assert ("<= in place of <" in caught.value.advice[1]) == (last == 57)


EDITED = """from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki


@nki.jit
def kernel(x):
    {name} = nl.ndarray((128, 64), x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
    nl.store({name}[p, f + 8], nl.load(x)[p, f], mask=(f < 58))
    return {name}
"""


def test_an_index_that_a_mask_lets_pass__in_a_module_that_was_edited(tmp_path):
    """The error names the tensor that the call has now, not the one that it had before."""
    file = tmp_path / "edited.py"
    for name in ("o", "wide"):
        file.write_text(EDITED.format(name=name))
        spec = importlib.util.spec_from_file_location("edited", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for on in ("eager", "jit"):
            with pytest.raises(OutOfBounds) as caught:
                module.kernel.on(on)(np.zeros((128, 64), np.float32))
            assert caught.value.headline.startswith(f"an index is 2 elements outside dimension 1 of `{name}`")

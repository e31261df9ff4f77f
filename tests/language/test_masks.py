# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks on every kind of operation: boxes, triangles, masks of loop variables, masks attached to tiles."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.nki.movement import print_sink
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.frontend.errors import ArangeInCondition, UnsupportedMask
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .conftest import EXECUTORS
from .running import check, floats, numbers, run

COUNTED = settings(max_examples=80, deadline=None)
ROWS, COLUMNS, TURNS = 12, 10, 3


@st.composite
def comparisons(draw):
    """``a * p + b * f + c * i (cmp) d``."""
    return (*(draw(st.integers(-2, 2)) for _ in range(3)), draw(st.integers(-12, 14)),
            draw(st.sampled_from(["<", "<=", ">", ">=", "=="])))


def holds(terms, p, f, i, all_of):
    result = all_of
    for a, b, c, d, op in terms:
        value = a * p + b * f + c * i
        term = {"<": value < d, "<=": value <= d, ">": value > d, ">=": value >= d, "==": value == d}[op]
        result = result & term
    return result


def grid_of(terms):
    """Where the mask holds, per turn of the loop, in NumPy."""
    p, f = np.ogrid[:ROWS, :COLUMNS]
    return [np.broadcast_to(holds(terms, p, f, i, True), (ROWS, COLUMNS)) for i in range(TURNS)]


@COUNTED
@given(st.lists(comparisons(), min_size=1, max_size=3))
def test_mask_on_store(terms):
    x = numbers(ROWS, COLUMNS) + 200

    @nki.jit
    def kernel(x):
        out = nl.ndarray((TURNS, ROWS, COLUMNS), nl.float32, buffer=nl.shared_hbm)
        p, f = nl.arange(ROWS)[:, None], nl.arange(COLUMNS)[None, :]
        tile = nl.load(x)
        for i in nl.affine_range(TURNS):
            nl.store(out[i, p, f], tile * 0)
            nl.store(out[i, p, f], tile, mask=holds(terms, p, f, i, True))
        return out
    expected = np.stack([np.where(g, x, 0) for g in grid_of(terms)])
    for on in EXECUTORS:
        np.testing.assert_array_equal(run(on, kernel, x), expected)


@COUNTED
@given(st.lists(comparisons(), min_size=1, max_size=2),
       st.sampled_from(["load", "add", "exp", "memset", "copy", "activation", "iota", "select", "tensor_scalar"]))
def test_mask_on_what_is_assigned(terms, operation):
    """Where the mask does not hold, the tile that is assigned to keeps what it had."""
    x = floats(ROWS, COLUMNS)

    def compute(tile, x, p, f, mask):
        match operation:
            case "load":
                return nl.load(x[p, f], mask=mask)
            case "add":
                return nl.add(tile, tile, mask=mask)
            case "exp":
                return nl.exp(tile, mask=mask)
            case "memset":
                return nisa.memset((ROWS, COLUMNS), 5.0, nl.float32, mask=mask)
            case "copy":
                return nl.copy(tile, mask=mask)
            case "activation":
                return nisa.activation(np.exp, tile, mask=mask)
            case "iota":
                return nisa.iota(p * 3 + f, nl.float32, mask=mask)
            case "select":
                return nl.where(tile > 0, tile, 1.0, mask=mask)
            case "tensor_scalar":
                return nisa.tensor_scalar(tile, np.multiply, 2.0, mask=mask)

    @nki.jit
    def kernel(x):
        out = nl.ndarray((TURNS, ROWS, COLUMNS), nl.float32, buffer=nl.shared_hbm)
        p, f = nl.arange(ROWS)[:, None], nl.arange(COLUMNS)[None, :]
        tile = nl.load(x)
        for i in nl.affine_range(TURNS):
            result = nl.full((ROWS, COLUMNS), 77, nl.float32)
            result[...] = compute(tile, x, p, f, holds(terms, p, f, i, True))
            nl.store(out[i], result)
        return out
    rows, columns = np.mgrid[:ROWS, :COLUMNS]
    values = {"load": x, "add": x + x, "exp": np.exp(x), "memset": np.full_like(x, 5), "copy": x, "activation": np.exp(x),
              "iota": (rows * 3 + columns).astype(np.float32), "select": np.where(x > 0, x, 1), "tensor_scalar": x * 2}
    expected = np.stack([np.where(g, values[operation], 77) for g in grid_of(terms)])
    for on in EXECUTORS:
        np.testing.assert_allclose(run(on, kernel, x), expected, rtol=2e-7)


@COUNTED
@given(st.lists(comparisons(), min_size=1, max_size=2), st.sampled_from(["sum", "max", "min", "prod"]))
def test_mask_on_reduction(terms, name):
    """Masked-out elements do not contribute; a row without any keeps what it had."""
    x = np.where(numbers(ROWS, COLUMNS) % 2 == 0, 2, 1).astype(np.float32)

    @nki.jit
    def kernel(x):
        out = nl.ndarray((TURNS, ROWS, 1), nl.float32, buffer=nl.shared_hbm)
        p, f = nl.arange(ROWS)[:, None], nl.arange(COLUMNS)[None, :]
        tile = nl.load(x)
        for i in nl.affine_range(TURNS):
            rows = nl.full((ROWS, 1), 77, nl.float32)
            rows[...] = getattr(nl, name)(tile, axis=1, mask=holds(terms, p, f, i, True))
            nl.store(out[i], rows)
        return out
    start = {"sum": 0, "max": -np.inf, "min": np.inf, "prod": 1}[name]
    expected = []
    for g in grid_of(terms):
        reduced = getattr(np, name)(np.where(g, x, start), axis=1, keepdims=True)
        expected.append(np.where(g.any(axis=1, keepdims=True), reduced, 77))
    for on in EXECUTORS:
        np.testing.assert_array_equal(run(on, kernel, x), np.stack(expected).astype(np.float32))


@COUNTED
@given(st.integers(1, 30), st.integers(1, 9), st.integers(1, 30), st.integers(1, 9))
def test_mask_of_edge_tiles(rows, tile_rows, columns, tile_columns):
    """The usual tiling of a tensor whose sides are no multiples: only the mask keeps the last tiles in bounds."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
        p, f = nl.arange(tile_rows)[:, None], nl.arange(tile_columns)[None, :]
        for i in nl.affine_range(-(-rows // tile_rows)):
            for j in nl.affine_range(-(-columns // tile_columns)):
                mask = (i * tile_rows + p < rows) & (j * tile_columns + f < columns)
                tile = nl.load(x[i * tile_rows + p, j * tile_columns + f], mask=mask)
                nl.store(out[i * tile_rows + p, j * tile_columns + f], tile * 2, mask=mask)
        return out
    x = numbers(rows, columns)
    for on in EXECUTORS:
        np.testing.assert_array_equal(run(on, kernel, x), x * 2)


P, F = nl.arange(16)[:, None], nl.arange(8)[None, :]


def masked_load(mask, x):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        tile = nl.zeros((16, 8), nl.float32)
        tile[...] = nl.load(x[P, F], mask=mask)
        nl.store(out, tile)
        return out
    return kernel


CONSTANT_MASKS = {
    "None": (None, True), "True": (True, True), "False": (False, False), "numpy_true": (np.True_, True),
    "numpy_false": (np.bool_(False), False), "always": (P >= 0, True), "never": (P < 0, False),
    "and_true": ((P < 5) & True, None), "and_numpy": (np.True_ & (P < 5), None),
}


@pytest.mark.parametrize("name", CONSTANT_MASKS)
def test_constant_mask(on, name):
    mask, whole = CONSTANT_MASKS[name]
    x = numbers(16, 8)
    rows = np.arange(16)[:, None]
    expected = np.where((rows < 5) if whole is None else whole, x, 0).astype(np.float32)
    check(on, masked_load(mask, x), expected, x)


SPECIAL_MASKS = {
    "not_equal": (P != 3, lambda p, f: p != 3),
    "negation_of_a_conjunction": (~((P < 5) & (F < 3)), lambda p, f: ~((p < 5) & (f < 3))),
    "negation_of_an_equality": (~(P == F), lambda p, f: p != f),
    "disjunction": ((P < 3) | (F > 5), lambda p, f: (p < 3) | (f > 5)),
    "reversed": (5 > P, lambda p, f: p < 5),
    "numpy_number": (P < np.int64(5), lambda p, f: p < 5),
    "float_bound": (P < 4.5, lambda p, f: p < 4.5),
    "float_equal": (P == 4.0, lambda p, f: p == 4),
}


@pytest.mark.parametrize("name", SPECIAL_MASKS)
def test_special_mask(on, name):
    mask, condition = SPECIAL_MASKS[name]
    x = numbers(16, 8)
    p, f = np.ogrid[:16, :8]
    check(on, masked_load(mask, x), np.where(condition(p, f), x, 0).astype(np.float32), x)


def test_mask_of_a_lower_rank_places_its_partitions_first(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((8, 8, 4), nl.float32, buffer=nl.shared_hbm)
        tile = nl.zeros((8, 8, 4), nl.float32)
        tile[...] = nl.multiply(nl.load(x), 2.0, mask=nl.arange(8)[:, None] < 3)
        nl.store(out, tile)
        return out
    x = numbers(8, 8, 4)
    expected = x * 2
    expected[3:] = 0
    check(on, kernel, expected, x)


# -- masks attached to tiles -------------------------------------------------------------------------------------------
def test_mask_as_subscript__of_a_destination(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        tile[P < 5] = 9.0
        tile[F > 5] = nl.copy(tile) * 2
        tile[P == 7] += 1000
        nl.store(out, tile)
        return out
    x = numbers(16, 8)
    expected = x.copy()
    expected[:5] = 9
    expected[:, 6:] *= 2
    expected[7] += 1000
    check(on, kernel, expected, x)


def test_mask_as_subscript__of_a_store(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out[P, F], 0.0)
        nl.store(out[P, F][P > F], nl.load(x))
        return out
    x = numbers(16, 8)
    p, f = np.ogrid[:16, :8]
    check(on, kernel, np.where(p > f, x, 0).astype(np.float32), x)


@pytest.mark.parametrize("which", ["stationary", "moving", "both"])
def test_mask_as_subscript__of_matmul_operands(on, which):
    """The free axis of an operand is an axis of the product, its partitions are the summed ones."""
    i_l, i_r = nl.arange(12)[None, :], nl.arange(20)[None, :]
    k = nl.arange(16)[:, None]

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((12, 20), nl.float32, buffer=nl.shared_hbm)
        left, right = nl.load(a), nl.load(b)
        product = nl.full((12, 20), 77, nl.float32, buffer=nl.psum)
        left = left[(i_l < 7) & (k < 9)] if which != "moving" else left
        right = right[i_r < 11] if which != "stationary" else right
        product[...] = nisa.nc_matmul(left, right)
        nl.store(out, nl.copy(product))
        return out
    a, b = (np.floor(numbers(16, n) / 10) for n in (12, 20))
    rows, columns = (7 if which != "moving" else 12), (11 if which != "stationary" else 20)
    summed = 9 if which != "moving" else 16
    expected = np.full((12, 20), 77, np.float32)
    expected[:rows, :columns] = a[:summed, :rows].T @ b[:summed, :columns]
    check(on, kernel, expected, a, b)


def test_mask_on_matmul__partition_predicate_limits_the_sum(on):
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((12, 20), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nisa.nc_matmul(nl.load(a), nl.load(b), mask=nl.arange(16)[:, None] < 9))
        return out
    a, b = (np.floor(numbers(16, n) / 10) for n in (12, 20))
    check(on, kernel, a[:9].T @ b[:9], a, b)


def test_mask_on_matmul__loop_predicate(on):
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((12, 20), nl.float32, buffer=nl.shared_hbm)
        acc = nl.zeros((12, 20), nl.float32, buffer=nl.psum)
        for i in nl.affine_range(5):
            acc += nisa.nc_matmul(nl.load(a), nl.load(b), mask=i < 3)
        nl.store(out, acc)
        return out
    a, b = (np.floor(numbers(16, n) / 10) for n in (12, 20))
    check(on, kernel, 3 * (a.T @ b), a, b)


def test_mask_as_subscript__of_an_indexed_tile_in_a_product(on):
    @nki.jit
    def kernel(ones, g):
        out = nl.ndarray((8, 12), nl.float32, buffer=nl.shared_hbm)
        i_p, i_f = nl.arange(1)[:, None], nl.arange(12)[None, :]
        for j in nl.affine_range(2):
            mask = j * 12 + i_f < 20
            row = nl.load(g[i_p, j * 12 + i_f], mask=mask)
            repeated = nisa.nc_matmul(nl.load(ones), row[i_p, i_f][mask])
            if j == 1:
                nl.store(out, 0.0)
                nl.store(out, repeated, mask=(i_f < 8) & (nl.arange(8)[:, None] < 8))
        return out
    g = numbers(1, 20)
    expected = np.zeros((8, 12), np.float32)
    expected[:, :8] = g[:, 12:20]
    check(on, kernel, expected, np.ones((1, 8), np.float32), g)


def test_mask_as_subscript__survives_views(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        tile = nl.zeros((16, 8), nl.float32)
        masked = nl.load(x)[P + F < 12]
        tile[4:16, 2:7] = masked[4:16, 2:7]
        nl.store(out, tile)
        return out
    x = numbers(16, 8)
    p, f = np.ogrid[:16, :8]
    expected = np.where((p + f < 12) & (p >= 4) & (f >= 2) & (f < 7), x, 0).astype(np.float32)
    check(on, kernel, expected, x)


def test_mask_on_broadcast_operands(on):
    """The mask is over the result's axes, whatever the operands repeat."""
    @nki.jit
    def kernel(x, w):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        tile = nl.zeros((16, 8), nl.float32)
        tile[...] = nl.multiply(nl.load(x), nl.load(w), mask=(P < 9) & (F < 5))
        nl.store(out, tile)
        return out
    x, w = numbers(16, 8), numbers(1, 8)
    expected = x * w
    expected[9:] = 0
    expected[:, 5:] = 0
    check(on, kernel, expected, x, w)


# -- bounds ------------------------------------------------------------------------------------------------------------
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
    with pytest.raises(OutOfBounds):
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


# -- what masks are not ------------------------------------------------------------------------------------------------
def refused(on, error, body, *arrays):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        body(x, out)
        return out
    with pytest.raises(KernelError) as caught:
        run(on, kernel, *(arrays or (numbers(16, 8),)))
    assert type(caught.value) is error, caught.value
    assert caught.value.at.file == __file__, caught.value
    return caught.value


def test_mask_must_be_affine(on):
    refused(on, UnsupportedMask, lambda x, out: nl.store(out, nl.load(x[P, F], mask=(F % 4) < 2)))
    refused(on, UnsupportedMask, lambda x, out: nl.store(out, nl.load(x[P, F], mask=F // 3 == 1)))


def test_mask_must_be_known_before_run_time(on):
    refused(on, UnsupportedMask, lambda x, out: nl.store(out, nl.load(x), mask=nl.load(x) > 0))
    refused(on, UnsupportedMask, lambda x, out: nl.store(out, nl.load(x), mask=1))


def test_mask_must_have_the_operations_extents(on):
    refused(on, UnsupportedMask, lambda x, out: nl.store(out, nl.load(x), mask=nl.arange(12)[:, None] < 5))


def test_mask_is_joined_by_ampersand(on):
    error = refused(on, ArangeInCondition, lambda x, out: nl.store(out, nl.load(x), mask=(P < 5) and (F < 3)))
    assert error.name == "err_control_flow_condition_depending_on_arange"


# -- masks that are no box, on what folds ------------------------------------------------------------------------------
def test_mask_on_reduction__of_wide_integers_keeps_their_bits(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((ROWS, 1), nl.int32, buffer=nl.shared_hbm)
        p, f = nl.arange(ROWS)[:, None], nl.arange(COLUMNS)[None, :]
        nl.store(out, nisa.tensor_reduce(np.bitwise_or, nl.load(x), axis=[1], keepdims=True, mask=p >= f))
        return out
    x = np.arange(ROWS * COLUMNS, dtype=np.int32).reshape(ROWS, COLUMNS) + (1 << 28)
    rows, columns = np.ogrid[:ROWS, :COLUMNS]
    check(on, kernel, np.bitwise_or.reduce(np.where(rows >= columns, x, 0), axis=1, keepdims=True), x)


@COUNTED
@given(st.lists(comparisons(), min_size=1, max_size=2), st.sampled_from(["mean", "subtract", "rows"]))
def test_mask_on_what_has_no_identity_or_two_results(terms, name):
    x = np.where(numbers(ROWS, COLUMNS) % 2 == 0, 2, 1).astype(np.float32)

    @nki.jit
    def kernel(x):
        out = nl.ndarray((TURNS, ROWS, 1), nl.float32, buffer=nl.shared_hbm)
        p, f = nl.arange(ROWS)[:, None], nl.arange(COLUMNS)[None, :]
        tile = nl.load(x)
        for i in nl.affine_range(TURNS):
            rows, mask = nl.full((ROWS, 1), 77, nl.float32), holds(terms, p, f, i, True)
            if name == "rows":
                nisa.tensor_scalar_reduce(data=tile, op0=np.add, operand0=1.0, reduce_op=np.add, reduce_res=rows, mask=mask)
            else:
                rows[...] = nisa.tensor_reduce(getattr(np, name), tile, axis=[1], keepdims=True, mask=mask)
            nl.store(out[i], rows)
        return out
    expected = np.full((TURNS, ROWS, 1), 77, np.float32)
    for i, g in enumerate(grid_of(terms)):
        for p in range(ROWS):
            if g[p].any():
                active = x[p, g[p]]
                expected[i, p] = {"mean": active.mean(), "subtract": 2 * active[0] - active.sum(),
                                  "rows": (active + 1).sum()}[name]
    for on in EXECUTORS:
        np.testing.assert_allclose(run(on, kernel, x), expected, rtol=2e-7)


@COUNTED
@given(st.lists(comparisons(), min_size=1, max_size=2), st.lists(comparisons(), max_size=1), st.booleans())
def test_mask_on_product(left, right, accumulates):
    """Over the axes of the operands: what is masked out is not summed, even if it is infinite."""
    K, M, N = 9, ROWS, COLUMNS
    a, b = (numbers(K, n) % 5 for n in (M, N))
    a[4, 3] = np.inf

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((TURNS, M, N), nl.float32, buffer=nl.shared_hbm)
        k = nl.arange(K)[:, None]
        x, y = nl.load(a), nl.load(b)
        for i in nl.affine_range(TURNS):
            result = nl.full((M, N), 77, nl.float32, buffer=nl.psum)
            u = x[holds(left, k, nl.arange(M)[None, :], i, True)]
            v = y[holds(right, k, nl.arange(N)[None, :], i, True)] if right else y
            if accumulates:
                result += nisa.nc_matmul(u, v)
            else:
                result[...] = nisa.nc_matmul(u, v)
            nl.store(out[i], nl.copy(result))
        return out
    k, m, n = np.ogrid[:K, :M, :N]
    expected = np.full((TURNS, M, N), 77, np.float32)
    for i in range(TURNS):
        active = np.broadcast_to(holds(left, k, m, i, True) & (holds(right, k, n, i, True) if right else True), (K, M, N))
        with np.errstate(invalid="ignore"):
            total = np.where(active, a[:, :, None] * b[:, None, :], 0).sum(0)
        expected[i] = np.where(active.any(0), total + 77 * accumulates, 77)
    for on in EXECUTORS:
        np.testing.assert_array_equal(run(on, kernel, a, b), expected)


def test_mask_on_device_print__shows_the_tile_with_zeros(on):
    printed = []

    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for i in nl.sequential_range(3):
            nl.device_print("shown", tile, mask=(P > F) & (i > 0))
            nl.device_print("twice", tile, mask=i > 0)
        nl.store(out, tile)
        return out
    x = numbers(16, 8)
    token = print_sink.set(lambda prefix, value: printed.append((prefix, value.copy())))
    run(on, kernel, x)
    print_sink.reset(token)
    p, f = np.ogrid[:16, :8]
    assert [name for name, _ in printed] == ["shown", "twice", "shown", "twice"]
    np.testing.assert_array_equal(printed[0][1], np.where(p > f, x, 0))
    np.testing.assert_array_equal(printed[1][1], x)

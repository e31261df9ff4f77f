# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks on every kind of operation: boxes, triangles, masks of loop variables, and what masks are not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.capture.errors import ArangeInCondition, UnsupportedMask
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.nki.movement import print_sink
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from ..property_counts import tries
from .conftest import EXECUTORS
from .masking import COLUMNS, ROWS, TURNS, F, P, comparisons, grid_of, holds
from .running import check, floats, numbers, run

COUNTED = tries(30)


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
    """The usual tiling of a tensor whose sides are not multiples: only the mask keeps the last tiles in bounds."""
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
    mask, truth = CONSTANT_MASKS[name]
    x = numbers(16, 8)
    rows = np.arange(16)[:, None]
    expected = np.where((rows < 5) if truth is None else truth, x, 0).astype(np.float32)
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


# -- masks that are not boxes, on what folds ------------------------------------------------------------------------------
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

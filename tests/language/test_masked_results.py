# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``t[...] = operation(..., mask=...)``: what the mask leaves out of a tensor stays, whatever the operation writes."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.capture.errors import UnsupportedMask
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .running import check, floats, numbers

BF16 = ml_dtypes.bfloat16
X, C = numbers(16, 8), numbers(16, 1, seed=1)
PARTITION, FREE = np.ogrid[:16, :8]
INSIDE = (PARTITION < 10) & (FREE >= 2)
ROWS = PARTITION < 10
LOW, HIGH = np.full((16, 1), 1, np.float32), np.full((16, 1), 5, np.float32)


def rounded(values):
    return np.asarray(values, np.float32).astype(BF16).astype(np.float32)


def rows(combine):
    return combine(X[:, 2:].astype(np.float64), axis=1, keepdims=True)


def row():
    return nl.ndarray((16, 1), nl.float32)


# name -> (operation of a tile, its mask and an [P, 1] tile; what it gives where the mask holds). Results of one
# column keep the rows that the mask leaves out.
OPERATIONS = {
    "asked dtype": (lambda t, m, c: nl.multiply(t, 0.3, dtype=nl.bfloat16, mask=m), rounded(X * np.float32(0.3))),
    "sum": (lambda t, m, c: nl.sum(t, 1, mask=m), rows(np.sum)),
    "sum of a dtype": (lambda t, m, c: nl.sum(t, 1, mask=m, dtype=nl.bfloat16), rounded(rows(np.sum))),
    "max with keepdims": (lambda t, m, c: nl.max(t, 1, mask=m, dtype=nl.bfloat16, keepdims=True), rounded(rows(np.max))),
    "mean": (lambda t, m, c: nl.mean(t, 1, mask=m), rows(np.mean)),
    "var": (lambda t, m, c: nl.var(t, 1, mask=m), rows(np.var)),
    "tensor_scalar_reduce": (lambda t, m, c: nisa.tensor_scalar_reduce(
        data=t, op0=np.add, operand0=1.0, reduce_op=np.add, reduce_res=row(), mask=m), X + 1),
    "activation_reduce": (lambda t, m, c: nisa.activation_reduce(
        np.square, t, reduce_op=np.add, reduce_res=row(), mask=m), X * X),
    "activation": (lambda t, m, c: nisa.activation(
        np.square, t, reduce_op=np.add, reduce_res=row(), reduce_cmd=nisa.reduce_cmd.reset_reduce, mask=m), X * X),
    "dropout": (lambda t, m, c: nl.dropout(t, 0.0, mask=m), X),
    "nisa.dropout": (lambda t, m, c: nisa.dropout(t, 1.0, mask=m), X * 0),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_masked_out_stays(on, name):
    operation, inside = OPERATIONS[name]

    @nki.jit
    def kernel(x, c):
        p, f = nl.mgrid[0:16, 0:8]
        tile, target = nl.load(x), nl.full((16, inside.shape[1]), 7, nl.float32)
        target[nl.mgrid[0:16, 0:inside.shape[1]]] = operation(tile[p, f], (p < 10) & (f >= 2), nl.load(c))
        out = nl.ndarray(target.shape, target.dtype, buffer=nl.shared_hbm)
        nl.store(out, target)
        return out
    active = INSIDE if inside.shape[1] > 1 else ROWS
    check(on, kernel, np.where(active, inside, 7).astype(np.float32), X, C, rtol=1e-5)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_mask_that_leaves_nothing(on, name):
    """Also where that is known without running: the operation before it is another one, of another shape."""
    operation, inside = OPERATIONS[name]

    @nki.jit
    def kernel(x, c):
        p, f = nl.mgrid[0:16, 0:8]
        target = nl.full(inside.shape, 7, nl.float32)
        out = nl.ndarray(inside.shape, nl.float32, buffer=nl.shared_hbm)
        tile, column = nl.load(x), nl.load(c)
        target[...] = operation(tile, (p < 0) & (f >= 2), column)
        nl.store(out, target)
        return out
    check(on, kernel, np.full(inside.shape, 7, np.float32), X, C)


def filled(body, shape, dtype=np.float32):
    """A kernel whose result is 7 where ``body(result, *tensors)`` does not write it."""
    @nki.jit
    def kernel(*tensors):
        target = nl.full(shape, 7, dtype)
        body(target, *tensors)
        out = nl.ndarray(shape, dtype, buffer=nl.shared_hbm)
        nl.store(out, target)
        return out
    return kernel


def test_a_mask_that_leaves_nothing__after_an_instruction_with_two_results(on):
    def body(target, x):
        tile = nl.load(x)
        rows = nl.zeros((16, 1), nl.float32)
        nisa.tensor_scalar_reduce(data=tile, op0=np.add, operand0=1.0, reduce_op=np.add, reduce_res=rows)
        target[...] = nl.maximum(target, tile, mask=nl.arange(8)[None, :] < 0)
    check(on, filled(body, (16, 8)), np.full((16, 8), 7, np.float32), X)


def test_dropout_of_as_many_elements_as_a_generator_has(on):
    """A mask over [1, 2] elements is none over the generator's state, which is [1, 2], too."""
    def body(target, x):
        target[...] = nl.dropout(nl.load(x), 1.0, mask=nl.arange(2)[None, :] == 1)
    check(on, filled(body, (1, 2)), np.float32([[7, 0]]), X[:1, :2].copy())


def test_range_select(on):
    def body(target, x, low, high):
        p, f = nl.mgrid[0:16, 0:8]
        target[p, f] = nisa.range_select(on_true_tile=nl.load(x)[p, f], comp_op0=np.greater, comp_op1=np.less,
                                         bound0=nl.load(low), bound1=nl.load(high), mask=(p < 10) & (f < 6))
    chosen = np.where((FREE > 1) & (FREE < 5), X, np.float32(nl.fp32.min))
    check(on, filled(body, (16, 8)), np.where(ROWS & (FREE < 6), chosen, np.float32(7)), X, LOW, HIGH)


@pytest.mark.parametrize("dtype", [None, nl.bfloat16])
def test_transposes(on, dtype):
    def body(target, x):
        p, f = nl.mgrid[0:16, 0:8]
        target[...] = nisa.nc_transpose(nl.load(x)[p, f], mask=(p < 10) & (f >= 2), dtype=dtype)
    check(on, filled(body, (8, 16), dtype or np.float32), np.where(INSIDE, X, 7).T.astype(dtype or np.float32), X)


@pytest.mark.parametrize("skips", [False, True])
def test_rows_that_are_gathered(on, skips):
    index = np.random.default_rng(0).integers(0, 50, (16, 1)).astype(np.int32)
    if skips:
        index[[3, 5, 6]] = [[77], [-1], [50]]

    def body(target, table, places):
        p, f, rows = nl.arange(16)[:, None], nl.arange(8)[None, :], nl.load(places)
        source = table[rows[p, 0], f]
        if skips:
            target[p, f] = nl.load(source, mode=nisa.oob_mode.skip)
        else:
            target[p, f] = nl.load(source, mask=(p < 10) & (f >= 2))
    table = floats(50, 8)
    active = ((index >= 0) & (index < 50)) if skips else INSIDE
    check(on, filled(body, (16, 8)), np.where(active, table[np.clip(index[:, 0], 0, 49)], np.float32(7)), table, index)


def test_gather_flattened(on):
    data, index = floats(16, 4, 5), np.random.default_rng(1).integers(0, 20, (16, 6)).astype(np.uint32)

    def body(target, x, places):
        p, f = nl.mgrid[0:16, 0:6]
        target[p, f] = nl.gather_flattened(nl.load(x), nl.load(places)[p, f], mask=(p < 10) & (f < 4))
    gathered = np.take_along_axis(data.reshape(16, 20), index.astype(int), 1)
    check(on, filled(body, (16, 6)), np.where(ROWS & (np.arange(6) < 4), gathered, np.float32(7)), data, index)


def test_local_gather(on):
    data, index = floats(32, 64), np.random.default_rng(2).integers(0, 64, (32, 3)).astype(np.uint16)

    def body(target, x, places):
        p, f = nl.mgrid[0:32, 0:64]
        target[...] = nisa.local_gather(nl.load(x)[p, f], nl.load(places), mask=(p < 16))
    gathered = np.full((32, 3, 16, 1), 7, np.float32)
    gathered[:16] = data[:16][:, index[:16].flatten(order="F")].reshape(16, 3, 16, 1)
    check(on, filled(body, (32, 3, 16, 1)), gathered, data, index)


def test_match_replace8__with_places(on):
    x = np.stack([np.random.default_rng(k).permutation(40) for k in range(16)]).astype(np.float32)
    top = -np.sort(-x, 1)[:, :8]
    places = np.argsort(-x, 1)[:, :8]

    @nki.jit
    def kernel(x, top):
        left, at = nl.full((16, 40), 7, nl.float32), nl.full((16, 8), 7, nl.uint32)
        p, f = nl.mgrid[0:16, 0:40]
        left[p, f] = nisa.nc_match_replace8(data=nl.load(x)[p, f], vals=nl.load(top), imm=-1.0, dst_idx=at, mask=(p < 10))
        out = nl.ndarray((16, 40), nl.float32, buffer=nl.shared_hbm), nl.ndarray((16, 8), nl.uint32, buffer=nl.shared_hbm)
        nl.store(out[0], left)
        nl.store(out[1], at)
        return out
    replaced = x.copy()
    np.put_along_axis(replaced, places, -1, 1)
    check(on, kernel, (np.where(ROWS, replaced, 7).astype(np.float32), np.where(ROWS, places, 7).astype(np.uint32)), x, top)


def test_copy_from_an_offset_known_at_run_time(on):
    def body(target, x, offset):
        p, f, at = nl.arange(16)[:, None], nl.arange(8)[None, :], nl.load(offset)
        target[p, f] = nisa.tensor_copy_dynamic_src(nl.load(x)[p, at[0, 0] + f], mask=(p < 10) & (f >= 2))
    x = floats(16, 40)
    check(on, filled(body, (16, 8)), np.where(INSIDE, x[:, 5:13], np.float32(7)), x, np.array([[5]], np.int32))


@pytest.mark.parametrize("name, inside", {
    "no column": (lambda p, f: (f >= 5) & (f < 3)),
    "a column that there is not": (lambda p, f: (f < 8) & (f == p - 3)),
    "triangle": (lambda p, f: (p >= f) & (f >= 4)),
    "scaled": (lambda p, f: (p + f * 2 <= 20) & (f >= 6)),
    "even columns of none": (lambda p, f: f * 2 == 5),
}.items())
@pytest.mark.parametrize("operation", [nl.max, nl.mean])
def test_rows_that_nothing_goes_into(on, operation, name, inside):
    """They stay: what the mask says about the columns that are reduced decides for each row, too."""
    @nki.jit
    def kernel(x):
        target = nl.full((16, 1), 7, nl.float32)
        target[...] = operation(nl.load(x), axis=1, keepdims=True, dtype=nl.bfloat16,
                                mask=inside(nl.arange(16)[:, None], nl.arange(8)[None, :]))
        out = nl.ndarray(target.shape, target.dtype, buffer=nl.shared_hbm)
        nl.store(out, target)
        return out
    active = np.broadcast_to(inside(PARTITION, FREE), X.shape)
    masked = np.ma.array(X.astype(np.float64), mask=~active)
    reduced = masked.max(1, keepdims=True) if operation is nl.max else masked.mean(1, keepdims=True)
    check(on, kernel, np.where(active.any(1, keepdims=True), rounded(reduced.filled(0)), np.float32(7)), X)


def test_rows_that_nothing_goes_into__no_conjunction():
    def body(target, x):
        p, f = nl.mgrid[0:16, 0:8]
        target[...] = nl.max(nl.load(x), axis=1, keepdims=True, dtype=nl.bfloat16, mask=(f * 2 >= p) & (f * 2 <= p + 1))
    with pytest.raises(UnsupportedMask, match="the mask bounds a multiple of a reduced axis on both sides"):
        filled(body, (16, 1)).on("eager")(X)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random chains of views against the same chains in NumPy, and random affine subscripts of loop variables."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from ..property_counts import tries
from .conftest import EXECUTORS
from .generated import kernel_from_text
from .running import numbers, run

COUNTED = tries(50)


@st.composite
def spans(draw, extent, step=True):
    """A slice of an axis that picks at least one element."""
    start = draw(st.integers(0, extent - 1))
    stop = draw(st.integers(start + 1, extent))
    by = draw(st.integers(1, 3)) if step else 1
    return draw(st.sampled_from([
        slice(start, stop, by), slice(start - extent, stop, by), slice(start, None, by),
        slice(None, stop, by), slice(None), ("ds", start, stop - start)]))


@st.composite
def subscripts(draw, shape, keep):
    """Slices and integers; axis ``keep`` gets a slice, so that something is left."""
    items = []
    for axis, extent in enumerate(shape):
        if axis == keep or draw(st.booleans()):
            items.append(draw(spans(extent, step=axis != keep or keep != 0)))
        else:
            items.append(draw(st.integers(-extent, extent - 1)))
    while items and items[-1] == slice(None) and draw(st.booleans()):
        items.pop()
    if draw(st.booleans()):
        items.append(Ellipsis)
    return tuple(items) or (Ellipsis,)


@st.composite
def reshapes(draw, shape, first):
    """Another factorization of the axes from ``first`` on."""
    total, factors = math.prod(shape[first:]), []
    while len(factors) < 2 and total > 1:
        factor = draw(st.sampled_from([n for n in range(1, total + 1) if total % n == 0]))
        factors.append(factor)
        total //= factor
    return (*shape[:first], *factors, total)


@st.composite
def chains(draw, shape, on_chip):
    """Steps of a chain: each with the shape that it leaves."""
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["subscript", "subscript", "reshape", "broadcast", "expand", "index"]))
        if kind == "subscript":
            keep = 0 if on_chip else draw(st.integers(0, len(shape) - 1))
            items = draw(subscripts(shape, keep))
            steps.append(("subscript", items))
            shape = np.empty(shape, np.int8)[plain(items)].shape
        elif kind == "reshape":
            shape = draw(reshapes(shape, 1 if on_chip else 0))
            steps.append(("reshape", shape))
        elif kind == "broadcast":
            shape = tuple(draw(st.integers(1, 3)) if n == 1 else n for n in shape)
            steps.append(("broadcast_to", shape))
        elif kind == "expand" and len(shape) < 5:
            axis = draw(st.integers(1 if on_chip else 0, len(shape)))
            steps.append(("expand_dims", axis))
            shape = (*shape[:axis], 1, *shape[axis:])
        elif kind == "index" and len(shape) == 2 and min(shape) > 1:
            counts = [draw(st.integers(1, n)) for n in shape]
            starts = [draw(st.integers(0, n - c)) for n, c in zip(shape, counts)]
            steps.append(("index", (starts, counts)))
            shape = tuple(counts)
        if on_chip and len(shape) < 2:
            shape += (1,)
    return steps, shape


def plain(items):
    return tuple(slice(i[1], i[1] + i[2]) if isinstance(i, tuple) else i for i in items)


def step_of(view, step, argument):
    """One step on a kernel's tensor."""
    match step:
        case "subscript":
            return view[tuple(nl.ds(i[1], i[2]) if isinstance(i, tuple) else i for i in argument)]
        case "index":
            (a, b), (n, m) = argument
            return view[a + nl.arange(n)[:, None], nl.arange(b, b + m)[None, :]]
    return getattr(view, step)(argument)


def expected_of(array, step, argument, on_chip):
    """The same step in NumPy; a tile has two dimensions at least."""
    match step:
        case "subscript":
            array = array[plain(argument)]
        case "index":
            (a, b), (n, m) = argument
            array = array[a:a + n, b:b + m]
        case "broadcast_to":
            array = np.broadcast_to(array, argument)
        case "expand_dims":
            array = np.expand_dims(array, argument)
        case "reshape":
            array = array.reshape(argument)
    return array[:, None] if on_chip and array.ndim == 1 else array


def reshapes_as_view(array, shape):
    """Whether NumPy reshapes without a copy, as a view must."""
    return np.may_share_memory(array.reshape(shape), array)


def is_expressible(x, steps, on_chip):
    """Views do not reshape strided or repeated elements."""
    for step, argument in steps:
        if step == "reshape":
            repeated = any(s == 0 and n > 1 for s, n in zip(x.strides, x.shape))
            if repeated or not reshapes_as_view(x[:1] if on_chip else x, (1, *argument[1:]) if on_chip else argument):
                return False
        x = expected_of(x, step, argument, on_chip)
    return 0 < x.shape[0] <= 128 if x.ndim else True


@COUNTED
@given(st.sampled_from([(12, 10), (4, 6, 5), (2, 3, 4, 5), (60,)]).flatmap(
    lambda shape: st.tuples(st.just(shape), chains(shape, on_chip=False))))
def test_chain_of_hbm_views(case):
    shape, (steps, _) = case
    x = numbers(*shape)
    if not is_expressible(x, steps, False):
        return
    expected = x
    for step, argument in steps:
        expected = expected_of(expected, step, argument, False)
    if expected.ndim < 2:
        expected = expected.reshape((*expected.shape, *(1,) * (2 - expected.ndim)))

    @nki.jit
    def kernel(x):
        view = x
        for step, argument in steps:
            view = step_of(view, step, argument)
        out = nl.ndarray(expected.shape, nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(view))
        return out
    for on in EXECUTORS:
        np.testing.assert_array_equal(run(on, kernel, x), expected)


@COUNTED
@given(st.sampled_from([(12, 10), (4, 6, 5), (2, 3, 4, 5)]).flatmap(
    lambda shape: st.tuples(st.just(shape), chains(shape, on_chip=True))), st.booleans())
def test_chain_of_tile_views(case, writes):
    """Read through the chain, or written through it where no element is named twice."""
    shape, (steps, _) = case
    x = numbers(*shape)
    if not is_expressible(x, steps, True):
        return
    expected = x.copy()
    view = expected
    for step, argument in steps:
        view = expected_of(view, step, argument, True)
    writes = writes and all(s != "broadcast_to" for s, _ in steps)
    picked = view.shape
    if writes:
        view[...] = 1000
    else:
        expected = view

    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        view = tile
        for step, argument in steps:
            view = step_of(view, step, argument)
        assert view.shape == picked
        if writes:
            view[...] = 1000
        else:
            tile = nl.copy(view)
        out = nl.ndarray(tile.shape, nl.float32, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out
    for on in EXECUTORS:
        np.testing.assert_array_equal(run(on, kernel, x), expected)


# -- loop variables ----------------------------------------------------------------------------------------------------
@st.composite
def expressions(draw, names, depth=2):
    """An integer expression over loop variables: text that means the same on numbers and on symbols."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from([*names, *map(str, range(-2, 5))]))
    left = draw(expressions(names, depth - 1))
    match draw(st.sampled_from(["+", "-", "*", "//", "%", "np", "neg"])):
        case "+" | "-" as op:
            return f"({left} {op} {draw(expressions(names, depth - 1))})"
        case "*":
            return f"({draw(st.integers(-3, 4))} * {left})"
        case "np":
            return f"(np.int32({draw(st.integers(0, 5))}) + {left})"
        case "neg":
            return f"(-{left} + {draw(st.integers(0, 5))})"
        case op:
            return f"({left} {op} {draw(st.integers(1, 4))})"


@COUNTED
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 2), expressions(["i", "j"]), expressions(["i", "j"]))
def test_affine_subscripts_of_loop_variables(n, m, by, row, column):
    """``x[row(i, j), column(i, j)]`` in a nest of loops, brought into bounds by constants."""
    cells = [(i, j) for i in range(0, n * by, by) for j in range(m)]
    values = [(eval(row, {"np": np, "i": i, "j": j}), eval(column, {"np": np, "i": i, "j": j})) for i, j in cells]
    lows = [min(v[k] for v in values) for k in (0, 1)]
    extents = [max(v[k] for v in values) - lows[k] + 4 for k in (0, 1)]
    x = numbers(*extents)
    namespace = {"nl": nl, "np": np, "lows": lows}
    text = f"""
def kernel(x):
    out = nl.ndarray(({n * by * m * 2}, 3), nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(0, {n * by}, {by}):
        for j in nl.affine_range({m}):
            a, b = {row} - lows[0], {column} - lows[1]
            at = (i * {m} + j) * 2
            nl.store(out[at:at + 2, :], nl.load(x[a:a + 2, nl.ds(b, 3)]))
    return out
"""
    kernel = kernel_from_text(text, namespace)
    expected = np.zeros((n * by * m * 2, 3), np.float32)
    for (i, j), (a, b) in zip(cells, values):
        a, b, at = a - lows[0], b - lows[1], (i * m + j) * 2
        expected[at:at + 2] = x[a:a + 2, b:b + 3]
    for on in EXECUTORS:
        np.testing.assert_array_equal(run(on, kernel, x), expected)

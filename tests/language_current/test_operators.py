# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Python's operators on tiles, updates by subscript, and methods and views that tensors had in older releases."""

import operator

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from .running import check, numbers

X, Y = (numbers(32, 8, seed=k) + 0.5 for k in (1, 2))
I, J = (numbers(32, 8, dtype=np.int32, seed=k) for k in (3, 4))
ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.mod]


def divided(a, b):
    return np.floor(np.float32(a) / np.float32(b)).astype(np.result_type(a, b) if np.ndim(a) + np.ndim(b) > 2 else
                                                          next(v.dtype for v in (a, b) if np.ndim(v)))


@pytest.mark.parametrize("function", ARITHMETIC, ids=lambda f: f.__name__)
def test_arithmetic(on, function):
    """With a tile or a number on either side."""
    check(on, lambda d, x, y: nisa.tensor_copy(d, function(x, y)), function(X, Y), X, Y)
    check(on, lambda d, x: nisa.tensor_copy(d, function(x, 2.5)), function(X, np.float32(2.5)), X)
    check(on, lambda d, x: nisa.tensor_copy(d, function(7, x)), function(np.float32(7), X), X)


def test_of_integers(on):
    for function in (operator.add, operator.sub, operator.mul, operator.and_, operator.or_, operator.xor):
        check(on, lambda d, x, y, f=function: nisa.tensor_copy(d, f(x, y)), function(I, J), I, J)
        check(on, lambda d, x, f=function: nisa.tensor_copy(d, f(5, x)), function(np.int32(5), I), I)
    check(on, lambda d, x: nisa.tensor_copy(d, x << 3), I << 3, I)
    for a, b in ((I, J + 200), (I, 7), (X, Y), (X, 3)):
        tiles = (a, b) if np.ndim(b) else (a,)
        check(on, lambda d, x, y=b: nisa.tensor_copy(d, x // y), divided(a, b), *tiles)


def test_of_one_operand(on):
    check(on, lambda d, x: nisa.tensor_copy(d, -x), -X, X)
    check(on, lambda d, x: nisa.tensor_copy(d, abs(x)), abs(X), X)
    check(on, lambda d, x: nisa.tensor_copy(d, ~x), ~I, I)


def test_expressions_and_dtypes(on):
    """A tile keeps its dtype beside a number; each operation rounds to the dtype of its result."""
    narrow = (numbers(32, 8) / 8).astype(ml_dtypes.bfloat16)

    def body(d, x, y):
        combined = (2 * x + 1) / y - x * 0.3
        assert combined.dtype == nl.float32 and (x * 0.3).dtype == nl.bfloat16 and (x + y).dtype == nl.float32
        nisa.tensor_copy(d, combined)
    first = (narrow.astype(np.float32) * 2).astype(ml_dtypes.bfloat16).astype(np.float32) + 1
    first = first.astype(ml_dtypes.bfloat16).astype(np.float32) / Y
    second = (narrow.astype(np.float32) * np.float32(0.3)).astype(ml_dtypes.bfloat16).astype(np.float32)
    check(on, body, first - second, narrow, Y)


def test_updates_in_place(on):
    def body(d, x, y):
        same_tile = x
        x += y
        x *= 2
        x[:, 0:4] -= 1
        x[0:16, 4:8] /= 2
        x[:, ::2] = y[:, ::2]
        assert same_tile is x
        nisa.tensor_copy(d, x)
    expected = (X + Y) * 2
    expected[:, 0:4] -= 1
    expected[0:16, 4:8] /= 2
    expected[:, ::2] = Y[:, ::2]
    check(on, body, expected, X, Y)


def test_an_update_is_rounded_once(on):
    narrow, wide = numbers(32, 8).astype(ml_dtypes.bfloat16), numbers(32, 8, seed=5) / np.float32(64)

    def body(d, x, y):
        x += y
        nisa.tensor_copy(d, x)
    check(on, body, (narrow.astype(np.float32) + wide).astype(ml_dtypes.bfloat16), narrow, wide)


def test_assignment_of_loads_and_numbers(on, recwarn):
    def kernel(x):
        tile, out = nl.ndarray((32, 8), nl.float32), nl.ndarray((32, 8), nl.float32, buffer=nl.shared_hbm)
        tile[...] = nl.load(x)
        tile[0:32, 4:8] = 3.0
        out[...] = tile
        return out
    expected = X.copy()
    expected[:, 4:] = 3
    np.testing.assert_array_equal(nki.jit(kernel).on(on)(X), expected)
    assert not recwarn.list


def test_what_has_no_operator(on, monkeypatch):
    """Comparisons and products never; the newest release has none at all."""
    text = r"binary operators on tensors not supported\. Use nki\.isa directly\."
    for use in (lambda a: a < a, lambda a: a == a.reshape((32, 2, 4)), lambda a: a @ a):
        with pytest.raises(TypeError, match=text):
            check(on, lambda d, x, use=use: use(x), X, X)
    with pytest.raises(TypeError, match="an operator has a tile and the str '1' for operands"):
        check(on, lambda d, x: x + "1", X, X)
    monkeypatch.setenv("NKI_MLIR_STRICT", "1")
    for use in (lambda a: a + a, lambda a: -a, lambda a: 2 * a, lambda a: operator.iadd(a, 1)):
        with pytest.raises(TypeError, match=text):
            check(on, lambda d, x, use=use: use(x), X, X)


# -- views of older releases -------------------------------------------------------------------------------------------
Z = numbers(32, 4, 6)
VIEWS = {
    "view with a shape": (lambda t: t.view(nl.int32, shape=(32, 2, 12)), lambda x: x.view(np.int32).reshape(32, 2, 12)),
    "reshape to a dtype": (lambda t: t.reshape((32, 6, 4), dtype=nl.int32), lambda x: x.view(np.int32).reshape(32, 6, 4)),
    "reshape to half the size": (lambda t: t.reshape((32, 48), dtype=nl.bfloat16),
                                 lambda x: x.view(ml_dtypes.bfloat16).reshape(32, 48)),
    "shape by name": (lambda t: t.reshape(shape=(32, 24)), lambda x: x.reshape(32, 24)),
    "fewer elements": (lambda t: t.reshape((32, 5)), lambda x: x.reshape(32, 24)[:, :5]),
    "fewer of three": (lambda t: t.reshape((32, 2, 3)), lambda x: x.reshape(32, 24)[:, :6].reshape(32, 2, 3)),
    "fewer of a part": (lambda t: t[:, 2:].reshape((32, 7)), lambda x: x[:, 2:].reshape(32, 12)[:, :7]),
    "broadcast_to": (lambda t: t[:, 1:2].broadcast_to((32, 3, 6)), lambda x: np.broadcast_to(x[:, 1:2], (32, 3, 6))),
    "expand_dims": (lambda t: t.expand_dims(1), lambda x: x[:, None]),
    "expand_dims of several": (lambda t: t.expand_dims((1, -1)), lambda x: x[:, None, ..., None]),
    "as_tile": (lambda t: t.as_tile(), lambda x: x),
    "transpose": (lambda t: t.transpose((0, 2, 1)), lambda x: x.transpose(0, 2, 1)),
    "transpose of axes": (lambda t: t.transpose(0, 2, 1), lambda x: x.transpose(0, 2, 1)),
    "astype": (lambda t: t.astype(nl.int32), lambda x: x.astype(np.int32)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_older_releases(on, name):
    make, expect = VIEWS[name]
    check(on, lambda d, t: nisa.tensor_copy(d, make(t)), np.ascontiguousarray(expect(Z)), Z)


def test_attributes_of_older_releases(on):
    def body(d, t):
        assert t[:, 1:].pattern == t[:, 1:].get_pattern() == [[24, 32], [6, 3], [1, 6]] and t[:, 1:].offset == 6
        nisa.tensor_copy(d, t)
    check(on, body, Z, Z)


def test_what_does_not_reshape(on):
    for make, text in ((lambda t: t.reshape((32, 25)), "too large for buffer"),
                       (lambda t: t.reshape((16, 24)), r"cannot reshape \[32, 4, 6\] with 768 elements to \[16, 24\]"),
                       (lambda t: t.broadcast_to((32, 4, 7)), "does not broadcast"),
                       (lambda t: nl.copy(nl.broadcast_to(t[:, 0:1], (32, -4, 6))),
                        r"shape \(32, 1, 6\) does not broadcast to \(32, -4, 6\)")):
        with pytest.raises(AssertionError, match=text):
            check(on, lambda d, t, make=make: make(t), Z, Z)

    def in_hbm(x):
        x.reshape((32, 5))
    with pytest.raises(AssertionError, match=r"cannot reshape \[32, 4, 6\] with 768 elements to \[32, 5\]"):
        nki.jit(in_hbm).on(on)(Z)

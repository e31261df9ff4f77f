# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Python that kernels are written in: statements and conditions. Results are those of plain Python."""

import contextlib
import functools
import types

import numpy as np

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta.typing import tensor

from .running import check
from .stacked import X, each, output


def test_conditions_are_compared_as_bools(on):
    @nki.jit
    def kernel(x, descending):
        out = output(x)
        for i in nl.affine_range(4):
            upward = (i // 2 == 0) != descending
            scale = 2 if upward else 3
            if (i > 1) == (i % 2 == 1):
                scale += 10
            nl.store(out[i], nl.load(x[i]) * scale + (100 if (i > 2) == None else 0))   # noqa: E711
        return out
    check(on, kernel, each([12, 2, 3, 13]), X, False)
    check(on, kernel, each([13, 3, 2, 12]), X, True)


def test_other_syntax(on):
    @nki.jit
    def kernel(x, *, scales=(1.0, 2.0)):
        out = output(x)

        def memoized(function):
            results = {}

            @functools.wraps(function)
            def call(key):
                if key not in results:
                    results[key] = function(key)
                return results[key]
            return call

        @memoized
        def row(i):
            return nl.load(x[i])
        first, *rest = scales
        for i in nl.static_range(4):
            if (n := i + 1) > 2:
                tile = row(i % 2)
            else:
                tile = row(i)
            keep = lambda t, by=n: t * by
            picked = {k: v for k, v in enumerate(rest) if v}
            tile, = [*map(keep, [tile])]
            nl.store(out[i], tile * picked[0] if n & 1 else tile * first)
            del tile
        try:
            pass
        finally:
            nl.store(out[3], nl.load(out[3]) + 1)
        return out
    expected = np.stack([X[0] * 2, X[1] * 2, X[0] * 6, X[1] * 4 + 1])
    check(on, kernel, expected, X)


def test_tuples_are_assigned_to_attributes_and_elements(on):
    @nki.jit
    def kernel(x):
        out, state, rows = output(x), types.SimpleNamespace(), {}
        for i in nl.affine_range(4):
            state.row, rows["twice"], factor = nl.load(x[i]), nl.load(x[i]) * 2, 3.0
            nl.store(out[i], state.row + rows["twice"] * factor)
        return out
    check(on, kernel, each([7, 7, 7, 7]), X)


def test_with_statements(on):
    @contextlib.contextmanager
    def scope(names):
        names.append("in")
        yield 2.0
        names.append("out")

    @nki.jit
    def kernel(x):
        out = output(x)
        names = []
        for i in nl.affine_range(4):
            with scope(names) as scale:
                nl.store(out[i], nl.load(x[i]) * scale + len(names))
        return out
    check(on, kernel, X * 2 + np.float32([1, 3, 5, 7])[:, None, None], X)


def test_match_statement(on):
    @nki.jit
    def kernel(x, how):
        out = output(x)
        for i in nl.affine_range(4):
            match how, i:
                case "double", 0:
                    scale = 20
                case "double", _:
                    scale = 2
                case str(other), n:
                    scale = len(other)
            nl.store(out[i], nl.load(x[i]) * scale)
        return out
    check(on, kernel, each([20, 2, 2, 2]), X, "double")
    check(on, kernel, X * 3, X, "abc")


def test_statements_that_do_nothing(on):
    @nki.jit
    def kernel(x):
        """A docstring."""
        ...
        out = output(x)
        a: tensor[4, 16, 8] = x
        b: int
        for i in nl.affine_range(4):
            ...
            tile: tensor[16, 8] = nl.load(a[i])
            c: float = 2.0
            size: int = tile.shape[0]
            pass
            nl.store(out[i], tile * c + (size - 16))
        del c
        return out
    check(on, kernel, X * 2, X)


def test_tensors_that_may_be_none(on):
    @nki.jit
    def kernel(x, bias=None):
        out = output(x)
        for i in nl.affine_range(4):
            tile = nl.load(x[i])
            if bias is not None:
                tile = tile + nl.load(bias[i])
            nl.store(out[i], tile)
        return out
    check(on, kernel, X, X)
    check(on, kernel, X * 2, X, X)

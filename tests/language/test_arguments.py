# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels take: tensors alone and nested, constants, closures, arrays of every layout and dtype."""

import dataclasses
import enum
import functools
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.arguments import BadArgument
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from . import outside
from .running import check, numbers, output_of, run

X, Y = numbers(16, 8), numbers(16, 8, seed=1)
FACTOR = 3


class Pair(NamedTuple):
    left: Any
    right: Any
    scale: float = 2.0


@dataclasses.dataclass(frozen=True)
class Config:
    tile: int
    scale: float
    dtype: Any = np.float32


@dataclasses.dataclass
class Holder:
    weights: Any
    config: Config


class Mode(enum.Enum):
    SUM, DIFFERENCE = 1, 2


@nki.jit
def combine(tensors, mode=Mode.SUM, *, scale=1.0):
    a, b = tensors
    x, y = nl.load(a), nl.load(b)
    return output_of((x + y if mode is Mode.SUM else x - y) * scale)


def test_tensors_in_tuples_and_lists(on):
    check(on, combine, X + Y, (X, Y))
    check(on, combine, (X - Y) * 2, [X, Y], Mode.DIFFERENCE, scale=2.0)
    check(on, combine, X - Y, (X, Y), mode=Mode.DIFFERENCE)


def test_tensors_in_named_tuples_dicts_and_dataclasses(on):
    @nki.jit
    def kernel(pair, table, holder):
        assert isinstance(pair, Pair) and holder.config.tile == 16
        total = nl.load(pair.left) * pair.scale + nl.load(pair.right)
        total += nl.load(table["inner"][0]) * holder.config.scale + nl.load(holder.weights)
        return output_of(total)
    expected = X * 2 + Y + Y * 0.5 + X
    check(on, kernel, expected, Pair(X, Y), {"inner": [Y], "n": 3}, Holder(X, Config(16, 0.5)))


def test_constants_of_all_kinds(on):
    def double(t):
        return t * 2

    @nki.jit
    def kernel(x, config, dtype, function, shape, nothing=None, flag=True, names=("a", "b"), table=None):
        assert nothing is None and flag is True and names == ("a", "b") and table == {"k": [1, 2]}
        assert shape == (16, 8)
        return output_of(nl.copy(function(nl.load(x)) * config.scale, dtype=dtype))
    check(on, kernel, (X * 6).astype(ml_dtypes.bfloat16), X, Config(1, 3.0), nl.bfloat16, double, X.shape,
          table={"k": [1, 2]})
    check(on, kernel, (X * 1).astype(np.float16), X, Config(1, 0.5), np.float16, double, X.shape, table={"k": [1, 2]})


def test_variadic_and_keyword_only(on):
    @nki.jit
    def kernel(*arrays, scale, **others):
        total = nl.load(arrays[0])
        for a in arrays[1:]:
            total += nl.load(a)
        for name in sorted(others):
            total += nl.load(others[name])
        return output_of(total * scale)
    check(on, kernel, (X + Y + X + Y) * 2, X, Y, scale=2, b=X, a=Y)


def test_defaults_closures_and_globals(on):
    def kernel_that_scales(scale):
        @nki.jit
        def kernel(x, offset=4):
            return output_of(nl.load(x) * scale * FACTOR + offset)
        return kernel
    check(on, kernel_that_scales(2), X * 6 + 4, X)
    check(on, kernel_that_scales(5), X * 15 + 1, X, offset=1)


def test_constants_are_read_at_each_call(on, monkeypatch):
    """A kernel that was captured for one value of a closure or global is captured again for another."""
    scale = 2

    @nki.jit
    def kernel(x):
        return output_of(nl.load(x) * scale + FACTOR)
    check(on, kernel, X * 2 + 3, X)
    scale = 7
    check(on, kernel, X * 7 + 3, X)
    monkeypatch.setattr("tests.language.test_arguments.FACTOR", 11)
    check(on, kernel, X * 7 + 11, X)


def test_constants_of_helpers_are_read_at_each_call(on, monkeypatch):
    """What a helper reads in its own module counts as the kernel's own: directly, in a closure, or by the module's name."""
    inner, traced = outside.weighted, nki.jit(outside.weighted)

    @nki.jit
    def directly(x):
        return output_of(outside.weighted(nl.load(x)))

    @nki.jit
    def in_closures(x):
        return output_of((lambda tile: inner(tile))(nl.load(x)))

    @nki.jit
    def of_a_module(x):
        return output_of(nl.load(x) * outside.WEIGHT)

    @nki.jit
    def of_a_kernel(x):
        return output_of(traced(nl.load(x)))

    def all_give(factor):
        for kernel in (directly, in_closures, of_a_module, of_a_kernel):
            check(on, kernel, X * factor, X)
    all_give(2)
    monkeypatch.setattr(outside, "WEIGHT", 5)
    all_give(5)


def test_methods_partials_and_callables(on):
    class Scaler:
        def __init__(self, scale):
            self.scale = scale

        def kernel(self, x):
            for i in nl.affine_range(2):
                tile = nl.load(x) * self.scale
            return output_of(tile * 1 if i is None else nl.load(x) * self.scale)

        def __call__(self, x):
            return output_of(nl.load(x) + self.scale)
    check(on, nki.jit(Scaler(3).kernel), X * 3, X)
    check(on, nki.jit(Scaler(3)), X + 3, X)

    def scaled(x, scale, offset):
        return output_of(nl.load(x) * scale + offset)
    check(on, nki.jit(functools.partial(scaled, scale=4, offset=1)), X * 4 + 1, X)


def test_numpy_scalars_are_constants(on):
    @nki.jit
    def kernel(x, n, s):
        assert isinstance(n, np.integer)
        return output_of(nl.load(x[0:n, :]) * s)
    check(on, kernel, X[:5] * 3, X, np.int64(5), np.float32(3))


def test_arrays_of_other_layouts(on):
    @nki.jit
    def kernel(x):
        return output_of(nl.load(x) + 1)
    check(on, kernel, X[::2, ::-1] + 1, X[::2, ::-1])
    check(on, kernel, X.T[:8].T + 1, np.asfortranarray(X))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int16, np.int32, np.uint32, np.float16,
                                   ml_dtypes.bfloat16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2],
                         ids=lambda d: np.dtype(d).name)
def test_arguments_of_each_dtype(on, dtype):
    x = (np.abs(X) % 2).astype(dtype)

    @nki.jit
    def kernel(x):
        assert x.dtype == dtype and x.shape == (16, 8)
        return output_of(nl.load(x))
    check(on, kernel, x, x)


def test_bad_arguments(on):
    @nki.jit
    def kernel(x, n):
        return output_of(nl.load(x) * n)
    for arguments, part in (((X,), "n"), ((X, 1, 2), "too many"), ((X.astype(np.float64), 2), "float64")):
        with pytest.raises(BadArgument, match=part) as caught:
            run(on, kernel, *arguments)
        assert isinstance(caught.value, TypeError)
    with pytest.raises(BadArgument, match="kernel"):
        kernel.on(on)(x=X, m=2)

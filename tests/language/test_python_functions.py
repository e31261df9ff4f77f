# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Python that kernels are written in: functions. Results are those of plain Python."""

import importlib
import sys

import numpy as np

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from . import outside
from .running import check, run
from .stacked import X, each, output
from .test_control_flow import loops_of


def test_recursion_of_a_function_of_a_module(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            nl.store(out[i], outside.doubled(nl.load(x[i]), i))
        return out
    check(on, kernel, each([1, 2, 4, 8]), X)


def test_helpers_closures_and_recursion(on):
    def scaled(tile, times):
        return tile if times == 0 else scaled(tile, times - 1) * 2

    @nki.jit
    def kernel(x):
        out = output(x)
        count = 0

        def store_row(i, *, offset=0):
            nonlocal count
            count += 1

            def inner(tile):
                return tile + offset
            nl.store(out[i], inner(scaled(nl.load(x[i]), 2)))
        for i in nl.static_range(3):
            store_row(i)
        store_row(3, offset=count)
        lift = lambda tile: tile + 100
        nl.store(out[0], lift(nl.load(out[0])))
        return out
    expected = X * 4
    expected[3] += 3
    expected[0] += 100
    check(on, kernel, expected, X)


def test_helpers_in_another_module(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        outside.double_all(out, x, 4)
        outside.Adder(5).add(out, 4)
        return out
    check(on, kernel, X * 2 + 5, X)


def test_nested_kernels(on):
    @nki.jit(mode="trace")
    def normalized(tile, scale=1.0):
        scratch = nl.ndarray(tile.shape, nl.float32)
        for i in range(2):
            scratch[nl.ds(0, 16), nl.ds(i * 4, 4)] = tile[:, nl.ds(i * 4, 4)] * scale
        return scratch

    @nki.trace
    def stored(target, tile):
        nl.store(target, normalized(tile, scale=3.0))

    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            stored(out[i], nl.load(x[i]))
        return out
    check(on, kernel, X * 3, X)


def test_generators(on):
    def tiles(x, count):
        for i in nl.affine_range(count):
            yield i, nl.load(x[i])

    @nki.jit
    def kernel(x):
        out = output(x)
        for i, tile in tiles(x, 4):
            nl.store(out[i], tile * 2)
        total = nl.zeros((16, 8), nl.float32)
        for tile in (nl.load(x[k]) for k in range(4)):
            total += tile
        nl.store(out[0], total)
        return out
    expected = X * 2
    expected[0] = X.sum(0)
    check(on, kernel, expected, X)


def test_functions_as_arguments(on):
    def apply(function, tile, *rest, **named):
        return function(tile, *rest, **named)

    @nki.jit
    def kernel(x, op, functions):
        out = output(x)
        for i in nl.affine_range(4):
            tile = apply(nl.multiply, nl.load(x[i]), 2.0)
            for function in functions:
                tile = function(tile)
            nl.store(out[i], nisa.tensor_scalar(tile, op, 3.0))
        return out
    check(on, kernel, np.maximum(X * 2, 0) - 3, X, np.subtract, (nl.relu,))
    check(on, kernel, X * 2 * 3, X, nl.multiply, ())


def test_kernel_without_source(on):
    """exec'd code has no text to read: its loops unroll."""
    namespace = {"nl": nl, "output": output}
    exec("""
def kernel(x):
    out = output(x)
    scale = 1
    for i in nl.affine_range(4):
        if i < 2:
            scale = 2
        nl.store(out[i], nl.load(x[i]) * scale + i)
    return out
""", namespace)
    kernel = nki.jit(namespace["kernel"])
    check(on, kernel, X * 2 + np.arange(4, dtype=np.float32)[:, None, None], X)


def test_lambda_kernel(on):
    kernel = nki.jit(lambda x, o: nl.store(o[0], nl.load(x[0]) * 2))
    out = np.zeros_like(X)
    kernel.on(on)(X, out)
    np.testing.assert_array_equal(out[0], X[0] * 2)


def test_decorated_twice_and_wrapped(on):
    import functools

    def traced(function):
        @functools.wraps(function)
        def call(*arguments, **keywords):
            return function(*arguments, **keywords)
        return call

    @nki.jit
    @traced
    def kernel(x, scale=2):
        out = output(x)
        for i in nl.affine_range(4):
            nl.store(out[i], nl.load(x[i]) * scale)
        return out
    check(on, kernel, X * 2, X)
    check(on, kernel, X * 5, X, scale=5)


def test_kernels_of_installed_packages(on, tmp_path, monkeypatch):
    """A package whose modules use NKI holds kernels and helpers like any file of the user's."""
    file = tmp_path / "site-packages" / "kernels_of_a_package.py"
    file.parent.mkdir()
    file.write_text(
        "from nki_mlir.language.beta import nki, language as nl\nSCALES = [2]\n"
        "def scale(out, x):\n    for i in nl.affine_range(4):\n        nl.store(out[i], nl.load(x[i]) * SCALES[0])\n"
        "@nki.jit\ndef kernel(x):\n    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)\n    scale(out, x)\n"
        "    return out\n")
    monkeypatch.syspath_prepend(file.parent)
    monkeypatch.delitem(sys.modules, file.stem, raising=False)
    package = importlib.import_module(file.stem)
    check(on, package.kernel, X * 2, X)
    package.SCALES[0] = 3
    check(on, package.kernel, X * 3, X)
    assert on == "eager" or loops_of(package.kernel, X) == 1


def test_globals_of_the_module_are_not_touched():
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            nl.store(out[i], nl.load(x[i]))
        return out
    before = dict(globals())
    run("interpreter", nki.jit(kernel), X)
    assert dict(globals()) == before

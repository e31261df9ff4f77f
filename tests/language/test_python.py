# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Python that kernels are written in: functions, objects, statements. Results are those of plain Python."""

import contextlib
import dataclasses
import functools
import importlib
import sys
from typing import NamedTuple

import numpy as np

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta.typing import tensor

from . import outside
from .running import check, numbers, run
from .test_control_flow import loops_of

X = numbers(4, 16, 8)


def output(x):
    return nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)


def each(scales):
    return X * np.float32(scales)[:, None, None]


# -- functions ---------------------------------------------------------------------------------------------------------
def test_recursion_of_a_function_of_a_module(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            nl.store(out[i], outside.doubled(nl.load(x[i]), i))
        return out
    check(on, kernel, each([1, 2, 4, 8]), X)


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
    def normalised(tile, scale=1.0):
        scratch = nl.ndarray(tile.shape, nl.float32)
        for i in range(2):
            scratch[nl.ds(0, 16), nl.ds(i * 4, 4)] = tile[:, nl.ds(i * 4, 4)] * scale
        return scratch

    @nki.trace
    def stored(target, tile):
        nl.store(target, normalised(tile, scale=3.0))

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


# -- objects -----------------------------------------------------------------------------------------------------------
class Shape(NamedTuple):
    rows: int
    columns: int


@dataclasses.dataclass
class Block:
    tile: object
    scale: float = 1.0

    def scaled(self):
        return self.tile * self.scale


class Stage:
    """Methods that make and keep tiles."""

    count = 0

    def __init__(self, x, rows):
        self.x, self.rows, self.tiles = x, rows, []

    def load_all(self):
        for i in nl.affine_range(self.rows):
            self.tiles.append(nl.load(self.x[i]))
        return self

    def __getitem__(self, i):
        return self.tiles[i]

    @property
    def total(self):
        result = nl.zeros((16, 8), nl.float32)
        for tile in self.tiles:
            result += tile
        return result

    @staticmethod
    def shape(x):
        return Shape(*x.shape[1:])

    @classmethod
    def of(cls, x):
        return cls(x, x.shape[0])


def test_objects(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        stage = Stage.of(x).load_all()
        rows, columns = Stage.shape(x)
        blocks = [Block(stage[i], scale=i + 1) for i in range(4)]
        for i, block in enumerate(blocks):
            assert block.tile.shape == (rows, columns)
            nl.store(out[i], block.scaled())
        nl.store(out[0], stage.total)
        return out
    expected = each([1, 2, 3, 4])
    expected[0] = X.sum(0)
    check(on, kernel, expected, X)


class Base:
    factor = 2

    def scaled(self, tile, by=1):
        return tile * (self.factor * by)


class Derived(Base):
    def scaled(self, tile, by=1):
        return super().scaled(tile, by) + super(Derived, self).scaled(tile) * 0      # noqa: UP008

    def __mul__(self, tile):
        return self.scaled(tile)

    @functools.cached_property
    def offset(self):
        return 3


def test_inheritance_and_classes_in_kernels(on):
    @nki.jit
    def kernel(x):
        out = output(x)

        class Local(Derived):
            factor = 5

            def twice(self, tile):
                for _ in nl.affine_range(2):
                    tile = tile + 0
                return self.scaled(tile, by=2)
        for i in nl.affine_range(4):
            tile = nl.load(x[i])
            nl.store(out[i], Local().twice(tile) + Derived() * tile + Derived().offset)
        return out
    check(on, kernel, X * 12 + 3, X)


def test_other_syntax(on):
    @nki.jit
    def kernel(x, *, scales=(1.0, 2.0)):
        out = output(x)

        def remembered(function):
            made = {}

            @functools.wraps(function)
            def call(key):
                if key not in made:
                    made[key] = function(key)
                return made[key]
            return call

        @remembered
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


def test_name_mangling(on):
    class Named:
        def offset(self):
            return 1

    class _Counter(Named):
        def __init__(self):
            self.__count = 2

        def offset(self):
            return super().offset() + self.__count

        def run(self, x):
            out = output(x)
            for i in nl.affine_range(4):
                nl.store(out[i], nl.load(x[i]) * self.__count + self.offset())
            return out
    kernel = nki.jit(_Counter().run)
    check(on, kernel, X * 2 + 3, X)
    assert on == "eager" or loops_of(kernel, X) == 1


def test_name_mangling__of_kernels_made_in_methods(on):
    class _Maker:
        __step = 3

        def kernel(self):
            @nki.jit
            def kernel(x):
                out = output(x)
                for i in nl.affine_range(4):
                    nl.store(out[i], nl.load(x[i]) * self.__step)
                return out
            return kernel
    kernel = _Maker().kernel()
    check(on, kernel, X * 3, X)
    assert on == "eager" or loops_of(kernel, X) == 1


def test_kernels_of_installed_packages(on, tmp_path, monkeypatch):
    """A package whose modules use NKI holds kernels and helpers like any file of the user's."""
    place = tmp_path / "site-packages" / "kernels_of_a_package.py"
    place.parent.mkdir()
    place.write_text(
        "from nki_mlir.language.beta import nki, language as nl\nSCALES = [2]\n"
        "def scale(out, x):\n    for i in nl.affine_range(4):\n        nl.store(out[i], nl.load(x[i]) * SCALES[0])\n"
        "@nki.jit\ndef kernel(x):\n    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)\n    scale(out, x)\n"
        "    return out\n")
    monkeypatch.syspath_prepend(place.parent)
    monkeypatch.delitem(sys.modules, place.stem, raising=False)
    package = importlib.import_module(place.stem)
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

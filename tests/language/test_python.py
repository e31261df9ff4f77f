# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Python that kernels are written in: control flow, containers, classes, calls. Results are those of plain Python."""

import contextlib
import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta.typing import tensor
from nki_mlir.language.kernel import describe_array, is_array

from . import outside
from .running import check, numbers, run

X = numbers(4, 16, 8)


def output(x):
    return nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)


def each(scales):
    return X * np.float32(scales)[:, None, None]


def loops_of(kernel, *arguments):
    """How many loops the captured kernel has."""
    spec = kernel.specialize(kernel.bind(arguments, {}, is_array, describe_array))
    return str(spec.modules[0]).count("scf.for")


# -- conditions --------------------------------------------------------------------------------------------------------
def test_symbolic_conditions(on):
    """Every spelling of a condition on a loop variable."""
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            tile = nl.load(x[i])
            flag = True
            if (i > 0) & (i < 3) & flag:
                tile += 1
            if (i == 0) | (i == 3):
                tile += 10
            if i != 2:
                tile += 100
            if ~(i == 1):
                tile += 1000
            if (i != 2) & (i < 3):
                tile += 10000
            if i > 0 and i < 3:
                tile += 0.5
            if not i == 2 or i == 1:
                tile += 0.25
            if 1 <= i < 3:
                tile += 0.125
            if i:
                tile += 2000
            if i % 2 == 0:
                tile += 4000
            if i > 1.5:
                tile += 0.0625
            if i in (1, 3):
                tile += 0.03125
            if (i > 2) ^ (i < 1):
                tile += 20000
            nl.store(out[i], tile)
        return out
    added = [sum(((0 < i < 3) * 1, (i in (0, 3)) * 10, (i != 2) * 100, (i != 1) * 1000, (i != 2 and i < 3) * 10000,
                  (0 < i < 3) * 0.5, (i != 2 or i == 1) * 0.25, (1 <= i < 3) * 0.125, (i > 0) * 2000,
                  (i % 2 == 0) * 4000, (i > 1.5) * 0.0625, (i in (1, 3)) * 0.03125, ((i > 2) ^ (i < 1)) * 20000))
             for i in range(4)]
    check(on, kernel, X + np.float32(added)[:, None, None], X)


def test_conditional_expression_and_python_selection(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            scale = 2.0 if i < 2 else 3.0
            offset = max(i, 2) - min(i, 1) + [5, 6, 7, 8][i] + {0: 1, 1: 2, 2: 3, 3: 4}[i]
            nl.store(out[i], nl.load(x[i]) * scale + offset)
        return out
    offsets = [max(i, 2) - min(i, 1) + 5 + i + 1 + i for i in range(4)]
    check(on, kernel, each([2, 2, 3, 3]) + np.float32(offsets)[:, None, None], X)


def test_asserts_on_loop_variables(on):
    @nki.jit
    def kernel(x, limit):
        out = output(x)
        for i in nl.affine_range(4):
            assert i < 4 and i >= 0
            assert i * 2 < limit, "the loop is too long"
            nl.store(out[i], nl.load(x[i]))
        return out
    check(on, kernel, X, X, 7)
    with pytest.raises(AssertionError, match="too long"):
        run(on, kernel, X, 5)


def test_both_branches_write_a_tensor_from_outside(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            tile = nl.ndarray((16, 8), nl.float32)
            if i < 2:
                part = nl.load(x[i])
                tile[...] = part * 2
            else:
                tile[...] = nl.load(x[i]) * 3
            nl.store(out[i], tile)
        return out
    check(on, kernel, each([2, 2, 3, 3]), X)
    if on != "eager":
        assert loops_of(kernel, X) == 1


# -- jumps -------------------------------------------------------------------------------------------------------------
def test_jumps(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            nl.store(out[i], nl.load(x[i]))
        for i in nl.affine_range(4):
            if i == 0:
                continue
            if i == 3:
                break
            nl.store(out[i], nl.load(x[i]) * 2)
        else:
            nl.store(out[0], 0.0)
        for i in nl.affine_range(1):
            pass
        else:
            nl.store(out[3], nl.load(x[3]) * 5)
        return out
    check(on, kernel, each([1, 2, 2, 5]), X)


def test_early_return(on):
    def fill(out, x, until):
        for i in nl.affine_range(4):
            nl.store(out[i], nl.load(x[i]) * 2)
            if i == until:
                return i
        return None

    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            nl.store(out[i], nl.load(x[i]))
        last = fill(out, x, 2)
        if last == 2:
            return out
        nl.store(out[0], 0.0)
        return out
    check(on, kernel, each([2, 2, 2, 1]), X)


def test_while_loops(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        n = 0
        while n < 4:
            for i in nl.affine_range(2):
                nl.store(out[n + i], nl.load(x[n + i]) * (n + 1))
            n += 2
            if n > 100:
                break
        else:
            n = 0
        for i in nl.affine_range(3):
            k = i
            while k < 2:
                k += 1
            nl.store(out[i], nl.load(out[i]) + k)
        return out
    check(on, kernel, each([1, 1, 3, 3]) + np.float32([2, 2, 2, 0])[:, None, None], X)


def test_exceptions(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        table = {0: 2.0, 2: 4.0}
        for i in nl.affine_range(4):
            try:
                scale = table[i]
            except KeyError:
                scale = 9.0
            finally:
                offset = 1
            nl.store(out[i], nl.load(x[i]) * scale + offset)
        return out
    check(on, kernel, each([2, 9, 4, 9]) + 1, X)


def test_exceptions__swallowed_outside_of_a_loop_or_branch(on):
    """What follows is not part of the loop that was left."""
    @nki.jit
    def kernel(x):
        out = output(x)
        table = {}
        try:
            for i in nl.affine_range(4):
                nl.store(out[i], nl.load(x[i]) * 2)
                table["missing"]
        except KeyError:
            nl.store(out[1], nl.load(x[1]) * 3)
        for i in nl.affine_range(2):
            try:
                if i == 1:
                    nl.store(out[2], nl.load(x[2]) * 4)
                    table["missing"]
                nl.store(out[3], nl.load(x[3]) * (i + 5))
            except KeyError:
                pass
        return out
    check(on, kernel, each([2, 3, 4, 5]), X)


def test_exceptions__of_a_branch_that_no_iteration_takes(on):
    def fail():
        raise ValueError("never")

    @nki.jit
    def kernel(x, last):
        out = output(x)
        for i in nl.affine_range(4):
            if i * i > 9:
                fail()
            if i > last:
                assert False, "too far"
            nl.store(out[i], nl.load(x[i]) * 2)
        return out
    check(on, kernel, X * 2, X, 3)
    with pytest.raises(AssertionError, match="too far"):
        run(on, kernel, X, 2)


def test_symbols_taken_for_numbers(on):
    """Python refuses some uses of a symbol that it allows of a number: then it gets numbers."""
    @nki.jit
    def kernel(x):
        out = output(x)
        assert type(nl.program_id(0)) is int or isinstance(nl.program_id(0), int)
        for i in nl.affine_range(4):
            scale = len("%d" % i) + len("x" * i) + int(np.maximum(i, 2)) + (type(i) is int) + i.__index__()
            nl.store(out[i], nl.load(x[i]) * scale)
        return out
    check(on, kernel, each([1 + i + max(i, 2) + 1 + i for i in range(4)]), X, grid=1)


def test_exceptions_of_the_kernel_pass(on):
    class Mine(Exception):
        pass

    @nki.jit
    def kernel(x):
        if x.shape[0] == 4:
            raise Mine("four rows")
        return x
    with pytest.raises(Mine, match="four rows"):
        run(on, kernel, X)


# -- loops -------------------------------------------------------------------------------------------------------------
def test_loop_forms(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.sequential_range(0, 4, 2, directives="anything"):
            nl.store(out[i], nl.load(x[i]) * 2)
        for i in nl.affine_range(1, 4, 2, precise_schedule=True):
            nl.store(out[i], nl.load(x[i]) * 3)
        for i in range(3, 4):
            nl.store(out[i], nl.load(x[i]) * 4)
        for i in range(1, -1, -1):
            nl.store(out[i], nl.load(out[i]) + (i + 1))
        for i in range(0, 3, 2):
            nl.store(out[i], nl.load(out[i]) + 10)
        for _ in range(0):
            nl.store(out[0], 0.0)
        for i in nl.static_range(2):
            nl.store(out[i], nl.load(out[i]) + [100, 200][i])
        return out
    expected = each([2, 3, 2, 4])
    expected += np.float32([1 + 10 + 100, 2 + 200, 10, 0])[:, None, None]
    check(on, kernel, expected, X)


def test_iteration_by_other_means(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        tiles = [nl.load(x[i]) for i in nl.affine_range(4)]
        sums = {i: tiles[i] + i for i in range(4)}
        pairs = list(zip(nl.affine_range(4), reversed(tiles)))
        total = sum(n for n in nl.affine_range(4))
        for n, (i, tile) in enumerate(pairs):
            nl.store(out[n], tile + sums[i] * 0 + total + len(list(nl.affine_range(3))))
        return out
    check(on, kernel, X[::-1] + 9, X)


def test_iterating_over_a_tensor(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        assert len(x) == 4
        for row, target in zip(x, out):
            nl.store(target, nl.load(row) * 2)
        first, *rest = x
        nl.store(out[0], nl.load(first) + nl.load(rest[2]))
        return out
    expected = X * 2
    expected[0] = X[0] + X[3]
    check(on, kernel, expected, X)


def test_loop_variable_of_nested_loops_and_after_them(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(2):
            for j in nl.affine_range(2):
                k = i * 2 + j
                nl.store(out[k], nl.load(x[k]))
        nl.store(out[k], nl.load(x[k]) + i * 10 + j)
        return out
    expected = X.copy()
    expected[3] += 11
    check(on, kernel, expected, X)


def test_state_carried_in_python(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        scale, seen, offset = 1.0, [], 0
        for i in nl.affine_range(4):
            nl.store(out[i], nl.load(x[i]) * scale + len(seen) + offset)
            scale *= 2
            seen.append(i)
            offset = i
        return out
    check(on, kernel, each([1, 2, 4, 8]) + np.float32([0, 1, 3, 5])[:, None, None], X)


def test_list_of_tiles_indexed_by_the_loop(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        tiles = []
        for i in nl.affine_range(4):
            tiles.append(nl.load(x[i]))
        for i in nl.affine_range(4):
            nl.store(out[i], tiles[3 - i])
        return out
    check(on, kernel, X[::-1].copy(), X)


def test_text_of_loop_variables(on, capsys):
    """Names and messages may use them; where the text decides something, the loop is unrolled."""
    @nki.jit
    def kernel(x):
        out = output(x)
        names = {"w0": 2.0, "w1": 3.0, "w2": 4.0, "w3": 5.0}
        for i in nl.affine_range(4):
            buffer = nl.ndarray((16, 8), nl.float32, name=f"tile_{i}")
            print(f"row {i:02d}", i)
            buffer[...] = nl.load(x[i])
            nl.store(out[i], buffer)
        for i in nl.affine_range(4):
            nl.store(out[i], nl.load(x[i]) * names[f"w{i}"])
        return out
    check(on, kernel, each([2, 3, 4, 5]), X)
    assert "row" in capsys.readouterr().out


def test_types_of_loop_variables(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            assert isinstance(i, int) and not isinstance(i, str) and isinstance(i, (str, int))
            row = i if isinstance(i, int) else 0
            nl.store(out[row], nl.load(x[row]) * math.ceil((i + 1) / 2) + round(i * 0.6) + divmod(i, 2)[1])
        return out
    scales = [math.ceil((i + 1) / 2) for i in range(4)]
    check(on, kernel, each(scales) + np.float32([round(i * 0.6) + i % 2 for i in range(4)])[:, None, None], X)


# -- functions ---------------------------------------------------------------------------------------------------------
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
        return super().scaled(tile, by) + super(Derived, self).scaled(tile) * 0

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
            tile = [*map(keep, [tile])][0]
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
    class Counter:
        def __init__(self):
            self.__count = 2

        def run(self, out, x):
            for i in nl.affine_range(4):
                nl.store(out[i], nl.load(x[i]) * self.__count)

    @nki.jit
    def kernel(x):
        out = output(x)
        Counter().run(out, x)
        return out
    check(on, kernel, X * 2, X)


def test_globals_of_the_module_are_not_touched():
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            nl.store(out[i], nl.load(x[i]))
        return out
    before = dict(globals())
    run("interpreter", nki.jit(kernel), X)
    assert dict(globals()) == before


# -- cost --------------------------------------------------------------------------------------------------------------
def test_long_loops_are_captured_once():
    @nki.jit
    def kernel(x, count):
        acc = nl.zeros((16, 8), nl.float32)
        for i in nl.sequential_range(count):
            for j in nl.affine_range(count):
                acc += nl.load(x[(i + j) % 4]) * 1.0
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, acc)
        return out

    def text(count):
        spec = kernel.specialize(kernel.bind((X, count), {}, is_array, describe_array))
        assert spec.captured.attempts == 1
        return str(spec.modules[0])
    assert text(1_000_000).count("\n") == text(7).count("\n")


def test_loops_without_operations_may_be_long(on):
    @nki.jit
    def kernel(x):
        total, seen = 0, []
        for i in range(200_000):
            total += i % 3
            if i % 50_000 == 0:
                seen.append(i)
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x[0]) + total + len(seen))
        return out
    check(on, kernel, X[0] + np.float32(sum(i % 3 for i in range(200_000)) + 4), X)


def test_capture_is_linear_in_operations():
    """Ten times the operations are ten times the text, and no operation is captured more than once."""
    @nki.jit
    def kernel(x, count):
        tile = nl.load(x[0])
        for _ in nl.static_range(count):
            tile = nl.add(tile, 1.0)
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    def operations(count):
        spec = kernel.specialize(kernel.bind((X, count), {}, is_array, describe_array))
        assert spec.captured.attempts == 1
        return str(spec.modules[0]).count("nki.binary_scalar")
    assert [operations(n) for n in (20, 200)] == [20, 200]

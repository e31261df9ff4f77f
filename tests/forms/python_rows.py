# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Constructs of Python in kernels: for each a function that creates the kernel with a generation's ``nl``, and the
expected result.

Kernels load the rows of X, a stack of four tiles, and store into an output like it.
"""

import dataclasses
import enum
import math
import os
from collections import namedtuple
from typing import NamedTuple

import numpy as np

X = (np.random.default_rng(0).permutation(4 * 16 * 8).reshape(4, 16, 8) % 101).astype(np.float32)
ROWS = {}


def scaled_by(*factors):
    return X * np.float32(factors)[:, None, None]


def row(expected, *arguments, **keywords):
    """Registers a maker of kernels with what the kernel gives for X and the arguments."""
    def register(make):
        ROWS[make.__name__] = make, expected, arguments, keywords
        return make
    return register


def output(nl, x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


def store(nl, out, x, i, factor):
    nl.store(out[i], nl.multiply(nl.load(x[i]), factor))


# -- loops -------------------------------------------------------------------------------------------------------------
@row(scaled_by(2, 3, 4, 5))
def ranges(nl):
    def kernel(x):
        out = output(nl, x)
        for i in nl.affine_range(1):
            store(nl, out, x, i, 2.0)
        for i in nl.sequential_range(1, 2):
            store(nl, out, x, i, 3.0)
        for i in nl.static_range(2, 3, 1):
            store(nl, out, x, i, 4.0)
        for i in range(3, 4):
            store(nl, out, x, i, 5.0)
        return out
    return kernel


@row(scaled_by(2, 0, 2, 0))
def ranges_with_steps(nl):
    def kernel(x):
        out = output(nl, x)
        for i in nl.affine_range(0, 4, 2):
            store(nl, out, x, i, 2.0)
        for i in nl.static_range(3, 0, -2):
            store(nl, out, x, i, 0.0)
        return out
    return kernel


@row(scaled_by(4, 3, 2, 1))
def iterables(nl):
    def plan(n):
        return tuple((k, float(n - k)) for k in range(n))

    def kernel(x):
        out = output(nl, x)
        for i, factor in plan(2):
            store(nl, out, x, i, factor + 2)
        for i, (k, factor) in enumerate(zip([2, 3], map(float, sorted([1, 2], reverse=True)))):
            store(nl, out, x, i + 2, factor)
            assert k == i + 2
        it = iter([1, 2])
        assert next(it) == 1 and list(filter(None, [0, *it])) == [2]
        return out
    return kernel


@row(scaled_by(2, 2, 4, 1))
def while_break_continue_else(nl):
    def kernel(x):
        out = output(nl, x)
        i = 0
        while i < 4:
            if i == 3:
                break
            store(nl, out, x, i, 2.0)
            i += 1
        for k in range(8):
            if k < 2:
                continue
            if k == 3:
                break
            store(nl, out, x, k, 4.0)
        for k in range(2):
            pass
        else:
            store(nl, out, x, 3, 1.0)
        return out
    return kernel


# -- values of loops ---------------------------------------------------------------------------------------------------
@row(scaled_by(1, 2, 2, 0))
def min_and_max_of_loop_values(nl):
    def kernel(x):
        out = output(nl, x)
        for i in nl.affine_range(4):
            store(nl, out, x, i, float(max(min(i + 1, 2), 0) if i != 3 else min([i - 3, i])))
        return out
    return kernel


@row(scaled_by(1, 1, 1, 1))
def slices_that_end_with_the_tensor(nl):
    def kernel(x):
        out = output(nl, x)
        for i in nl.affine_range(2):
            size = min(3, 4 - i * 3)
            for k in range(i * 3, i * 3 + size):
                rows = nl.ds(0, min(16, 20 - k))
                nl.store(out[k, rows, :], nl.load(x[k, rows, :]))
        return out
    return kernel


@row(scaled_by(2, 3, 3, 4), True)
def conditions_on_loop_values(nl):
    def kernel(x, flag):
        out = output(nl, x)
        for i in nl.affine_range(4):
            assert 0 <= i < 4, f"iteration {i}"
            if 0 < i < 3 and flag:
                store(nl, out, x, i, 3.0)
            elif not i > 0 or i == 7:
                store(nl, out, x, i, 2.0)
            else:
                store(nl, out, x, i, 4.0 if i == 3 or not flag else 100.0)
        return out
    return kernel


@row(scaled_by(8, 8, 8, 8))
def indices_in_messages_and_tables(nl):
    def kernel(x):
        out = output(nl, x)
        table = {0: 8.0, 1: 8.0, 2: 8.0, (3, "last"): 8.0}
        for i in nl.affine_range(4):
            print(f"row {i} of {x.shape[0]:>3}", end="")
            key = (int(i), "last") if i == 3 else int(i)
            store(nl, out, x, i, table[key] if key in table else 0.0)
        return out
    return kernel


# -- functions ---------------------------------------------------------------------------------------------------------
@row(scaled_by(3, 4, 5, 6))
def functions(nl):
    def pick(values, /, index, *rest, offset=0.0, **options):
        return values[index] + offset + sum(rest) + options.get("more", 0)

    def kernel(x, *, by=(1.0, 2.0, 3.0, 4.0), **others):
        out = output(nl, x)
        choose = lambda i, table=by: pick(table, i, *[1.0], offset=1.0, **others)

        def count_down(n):
            return 0 if n == 0 else count_down(n - 1)

        def put(i):
            nonlocal total
            total += 1
            store(nl, out, x, i, choose(i) + count_down(3))
        total = 0
        for i in range(4):
            put(i)
        assert total == 4
        return out
    return kernel


def with_list(x, nl, stride=[1, 1]):    # noqa: B006
    return [n * 2.0 for n in stride]


@row(scaled_by(2, 2, 2, 2))
def default_lists(nl):
    def kernel(x, strides=[1, 1]):      # noqa: B006
        out = output(nl, x)
        for i in nl.affine_range(4):
            store(nl, out, x, i, with_list(x, nl)[strides[0]])
        return out
    return kernel


@row(scaled_by(2, 4, 8, 16))
def recursion_over_host_values(nl):
    def kernel(x):
        out = output(nl, x)

        def split(first, last, factor):
            if last - first == 1:
                return [(first, factor)]
            middle = (first + last) // 2
            return split(first, middle, factor) + split(middle, last, factor * 4)

        for i, factor in split(0, 4, 1):
            store(nl, out, x, i, float(factor * 2 if i % 2 == 0 else factor))
        return out
    return kernel


@row(scaled_by(2, 2, 2, 2), ["multiply"])
def functions_as_values(nl):
    def apply(function, *rest):
        return function(*rest)

    def kernel(x, names):
        out = output(nl, x)
        chosen = {"act": lambda t: apply(getattr(nl, names[0]), t, 2.0), "same": lambda t: t}
        for function in [chosen["act"]]:
            for i in nl.affine_range(4):
                nl.store(out[i], chosen["same"](function(nl.load(x[i]))))
        return out
    return kernel


@row(scaled_by(0, 1, 2, 3))
def generators_and_comprehensions(nl):
    def rows(n):
        for k in range(n):
            yield k, float(k)

    def kernel(x):
        out = output(nl, x)
        tiles = [nl.load(x[i]) for i in range(4)]
        nested = [[nl.multiply(t, f) for t in [tile]] for tile, (_, f) in zip(tiles, rows(4))]
        by_name = {f"row{k}": nested[k][0] for k, _ in rows(4)}
        assert sum(k for k, _ in rows(4)) == 6 and {k % 2 for k in range(4)} == {0, 1}
        for k, name in enumerate(sorted(by_name)):
            nl.store(out[k], by_name[name])
        return out
    return kernel


# -- values and names --------------------------------------------------------------------------------------------------
@row(scaled_by(2, 3, 4, 5))
def unpacking_and_assignment(nl):
    def kernel(x):
        out = output(nl, x)
        count, *tile_shape = x.shape
        (rows, columns), last = tile_shape, count - 1
        a = b = nl.load(x[0])
        assert a is b and (rows, columns) == (16, 8)
        nl.store(out[0], nl.add(a, b))
        first: float = 3.0
        c: int
        if (n := count) == 4:
            store(nl, out, x, 1, first)
        c = n
        c += 1
        del n
        store(nl, out, x, 2, c - 1.0)
        store(nl, out, x, last, float(c))
        return out
    return kernel


@row(scaled_by(2, 2, 2, 2))
def lists_and_dicts_of_tiles(nl):
    def load_all(x, into):
        for i in range(4):
            into.append(nl.load(x[i]))
        return into

    def kernel(x):
        out = output(nl, x)
        tiles = load_all(x, [])
        groups = {("a", 0): [tiles[0], tiles[1]], "b": (tiles[2], tiles[3])}
        groups.update({"n": 2.0})
        factor = groups.pop("n")
        assert groups.get("z", None) is None and "b" in groups and "z" not in groups
        rest = [t for group in groups.values() for t in group]
        for (key, group), k in zip(groups.items(), (0, 2)):
            for j, tile in enumerate(group):
                nl.store(out[k + j], nl.multiply(tile, factor))
        assert len(rest) == 4 and rest[-1] is tiles[3]
        return out
    return kernel


@row(scaled_by(2, 2, 2, 2))
def exceptions(nl):
    def kernel(x):
        out = output(nl, x)
        try:
            factor = nl.no_such_function
        except AttributeError:
            factor = 2.0
        finally:
            marks = ["finally"]
        try:
            raise ValueError("host")
        except (TypeError, ValueError) as error:
            assert str(error) == "host" and marks
        for i in nl.affine_range(4):
            store(nl, out, x, i, factor)
        return out
    return kernel


@row(scaled_by(2, 20, 3, 6), "double")
def match_statements(nl):
    def kernel(x, how):
        out = output(nl, x)
        for i in range(4):
            match how, i:
                case "double", 1:
                    factor = 20.0
                case str(), n if n > 1:
                    factor = 3.0 * (n - 1)
                case _:
                    factor = 2.0
            store(nl, out, x, i, factor)
        return out
    return kernel


@row(scaled_by(2, 2, 2, 2))
def imports_and_environment(nl):
    def kernel(x):
        import math as m
        from os import environ
        out = output(nl, x)
        factor = 2.0 if environ.get("NO_SUCH_VARIABLE") is None and os.environ.get("NO_SUCH", "0") == "0" else 3.0
        assert m.ceil(1.5) == math.ceil(1.5) and math.gcd(4, 6) == 2
        for i in nl.affine_range(4):
            store(nl, out, x, i, factor)
        return out
    return kernel


COUNTER = 0


@row(scaled_by(2, 2, 2, 2))
def global_statements(nl):
    def kernel(x):
        global COUNTER
        COUNTER += 1
        out = output(nl, x)
        for i in nl.affine_range(4):
            store(nl, out, x, i, 2.0)
        return out
    return kernel


@row(scaled_by(2, 2, 2, 2))
def builtin_functions(nl):
    def kernel(x):
        out = output(nl, x)
        assert len(x) == 4 and x.ndim == 3 and x.shape == (4, 16, 8) and x.shape == [4, 16, 8]
        assert x.shape != [4, 16] and [4, 16, 8] == x.shape
        assert tuple(x.shape[1:]) == (16, 8) and x.shape[1:] + (1,) == (16, 8, 1)
        assert divmod(7, 2) == (3, 1) and abs(-2) == 2 and sum([1, 2]) == 3 and isinstance(4, int)
        assert float("-inf") < 0 and str(x.dtype).endswith("float32") and x.dtype == nl.float32
        assert x.dtype == np.float32 and x.dtype == "float32" and x.dtype in (nl.bfloat16, nl.float32)
        assert getattr(nl, "bf" + "loat16") is nl.bfloat16 and hasattr(nl, "load") and not hasattr(nl, "lod")
        assert np.prod(x.shape) == 512 and math.prod(x.shape) == 512 and x.shape == x.shape == out.shape
        a = slice(0, 8)
        for i in nl.affine_range(4):
            nl.store(out[i, a], nl.multiply(nl.load(x[i, a]), 2.0))
            nl.store(out[i, 8:16, :], nl.multiply(nl.load(x[i, slice(8, 16)]), 2.0))
        return out
    return kernel


@row(scaled_by(2, 2, 2, 2))
def tensors_and_none(nl):
    def kernel(x, bias=None, scale=None):
        out = output(nl, x)
        assert x is not None and x != None and not (x == None) and bias is None and bias == None    # noqa: E711
        assert x and bool(x) and not bias and (x or None) is x and (bias or x) is x and not (x and bias)
        tile = nl.load(bias) if bias else None
        loaded = nl.load(x[0]) if x else None
        assert tile is None and loaded is not None
        for i in nl.affine_range(4):
            store(nl, out, x, i, 2.0)
            if not bias and scale is None:
                continue
        return out
    return kernel


@row(scaled_by(2, 2, 2, 2))
def types_of_tensors(nl):
    def kernel(x):
        out = output(nl, x)
        assert not isinstance(x, (int, float, list, tuple, str)) and isinstance(x, nl.ndarray)
        assert not isinstance(4, nl.ndarray) and nl.ndarray | None and not isinstance(None, nl.ndarray)
        assert type(x) is type(out) and hasattr(x, "shape") and not hasattr(x, "no_such_name")
        for i in nl.affine_range(4):
            assert isinstance(i, int) and type(i) is int
            store(nl, out, x, i, 2.0)
        return out
    return kernel


@row(scaled_by(2, 2, 2, 2))
def buffers_of_tensors(nl):
    def is_on_chip(t):
        return t.buffer in (nl.sbuf, nl.psum)

    def kernel(x):
        out = output(nl, x)
        tile, banks = nl.load(x[0]), nl.ndarray((16, 8), dtype=nl.float32, buffer=nl.psum)
        assert x.buffer == nl.hbm and x.buffer is nl.private_hbm and out.buffer == nl.shared_hbm != nl.sbuf
        assert tile.buffer is nl.sbuf and tile.buffer != nl.psum and banks.buffer is nl.psum and is_on_chip(tile)
        assert not is_on_chip(x) and tile[0:2, 0:4].buffer is nl.sbuf and x[0].buffer == x.buffer
        for i in nl.affine_range(4):
            store(nl, out, x, i, 2.0 if nl.load(x[i]).buffer is nl.sbuf else 3.0)
        return out
    return kernel


# -- classes -----------------------------------------------------------------------------------------------------------
class Mode(enum.Enum):
    fast = 2
    slow = 4


class Sizes(NamedTuple):
    rows: int
    columns: int = 8


Pair = namedtuple("Pair", "a b")


@dataclasses.dataclass(frozen=True)
class Config:
    mode: Mode
    factors: list = dataclasses.field(default_factory=lambda: [1.0, 2.0])
    name: str = "config"

    def __post_init__(self):
        assert self.mode in Mode

    @property
    def factor(self):
        return self.factors[1]


@row(scaled_by(2, 2, 4, 4), Mode.fast, Sizes(16), [1.0, 2.0], Config(Mode.slow), np.float32, {"k": [2, 3]})
def arguments(nl):
    def kernel(x, mode, sizes, factors, config, dtype, table):
        out = output(nl, x)
        rows, columns = sizes
        assert mode is Mode.fast and mode == Mode.fast and mode.name == "fast" and {mode: 1}[Mode.fast] == 1
        assert (rows, columns) == (16, 8) == (sizes.rows, sizes[1]) and dtype == x.dtype
        for i in range(2):
            store(nl, out, x, i, factors[1] * (config.factor / 2))
        for i in table["k"]:
            store(nl, out, x, i, float(config.mode.value))
        return out
    return kernel


@row(scaled_by(2, 6, 2, 6))
def classes_made_in_kernels(nl):
    class Tiles:
        rank = 2

        def __init__(self, x):
            self.x, self.tiles = x, {}

        def __getitem__(self, i):
            return self.tiles[i]

        def __iter__(self):
            return iter(self.tiles.values())

        def __call__(self, i):
            self.tiles[i] = nl.load(self.x[i])
            return self

        @staticmethod
        def twice(tile):
            return nl.multiply(tile, 2.0)

        @classmethod
        def of(cls, x):
            return cls(x)

        @property
        def count(self):
            return len(self.tiles)

        def __repr__(self):
            return f"Tiles of {self.count}"

        def __eq__(self, other):
            return self is other

        def __hash__(self):
            return 1

    class Factors(Tiles):
        def thrice(self, tile):
            return super().twice(nl.multiply(tile, 3.0))

    def kernel(x):
        out = output(nl, x)
        tiles = Factors.of(x)
        for i in range(4):
            tiles(i)
        tiles.extra = nl.load(x[0])
        assert tiles.count == 4 and repr(tiles) == "Tiles of 4" and {tiles: 1}[tiles] == 1 and tiles == tiles
        for i, tile in enumerate(tiles):
            nl.store(out[i], tiles.twice(tile) if i % 2 == 0 else tiles.thrice(tiles[i]))
        return out
    return kernel


@row(scaled_by(1, 2, 3, 4))
def dataclasses_made_in_kernels(nl):
    @dataclasses.dataclass
    class Part:
        tile: object
        factor: float = 1.0
        notes: list = dataclasses.field(default_factory=list)

        def __post_init__(self):
            self.notes.append(self.factor)

    @dataclasses.dataclass
    class Named(Part):
        name: str = ""

    def kernel(x):
        out = output(nl, x)
        parts = [Named(nl.load(x[i]), factor=i + 1.0, name=f"part{i}") for i in range(4)]
        for i, part in enumerate(parts):
            assert part.notes == [i + 1.0] and part.name == f"part{i}"
            nl.store(out[i], nl.multiply(part.tile, part.factor))
        assert Part(1, 2.0) == Part(1, 2.0) != Part(1, 3.0)
        return out
    return kernel


@row(scaled_by(2, 2, 2, 2))
def class_statements_in_kernels(nl):
    def kernel(x):
        out = output(nl, x)

        class Local:
            factor = 2.0

        class Kind(enum.Enum):
            one = 1
        for i in nl.affine_range(4):
            store(nl, out, x, i, Local().factor * Kind.one.value)
        return out
    return kernel

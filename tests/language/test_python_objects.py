# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Python that kernels are written in: classes and their objects. Results are those of plain Python."""

import dataclasses
import functools
from typing import NamedTuple

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .running import check
from .stacked import X, each, output
from .test_control_flow import loops_of


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

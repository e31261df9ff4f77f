# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix product of the tile language, with accumulation in PSUM."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np

from nki_mlir.dialects.access import PSUM, Tile
from nki_mlir.dialects.op import In, InOut, Iteration, LoweringBuilder, NkiOp, Op
from nki_mlir.dialects.verifier import PSUM_BANK_BYTES, Check, PsumBank, WrongDtype
from nki_mlir.machine import Machine
from nki_mlir.scalar.dtypes import FLOAT8_E8M0FNU, FLOAT32, DType
from nki_mlir.scalar.sums import product

SAME_CONTRACTION = ("give both the same number of partitions, the K of [K, M] and [K, N]; transpose one that has K in "
                    "its free dimension")


def contraction(stationary: Sequence[int], moving: Sequence[int]) -> str:
    """Return the sentence of an error about operands of these shapes whose contracted extents differ."""
    return f"contracts axis 0 of both operands, got {list(stationary)} and {list(moving)}"


class MatrixProduct(Op):
    """Family: dst[m, n] = sum over k of stationary[k, m] * moving[k, n], added to dst with ``accumulate``.

    The result is in PSUM, in one bank; sums are float32.
    """

    dst: InOut
    stationary: In
    moving: In
    accumulate: bool
    destinations = (PSUM,)

    summed_axes: ClassVar[int] = 1      # leading axes of both operands, along which the products are summed

    def verify(self, check: Check) -> None:
        check.spaces("dst", "psum")
        check.all_in(("sbuf",), "stationary", "moving")
        stationary, moving, summed = self.stationary, self.moving, self.summed_axes
        check.rule(stationary.shape[0] == moving.shape[0], contraction(stationary.shape, moving.shape),
                   SAME_CONTRACTION)
        check.at_most("stationary", summed, prod(stationary.shape[summed:]), Machine.stationary_free_max)
        check.at_most("moving", summed, prod(moving.shape[summed:]), Machine.moving_free_max)
        check.shape("dst", (*stationary.shape[summed:], *moving.shape[summed:]))
        for label, tile in (("stationary", stationary), ("moving", moving)):
            if not tile.dtype.is_float or tile.dtype is FLOAT8_E8M0FNU:         # which only scales have
                raise WrongDtype(operand=label, op=self.name, found=tile.dtype, expected="a float type")
        size = self.dst.free_elements * self.dst.dtype.itemsize
        if size > PSUM_BANK_BYTES:
            raise PsumBank(bytes=size, limit=PSUM_BANK_BYTES, elements=PSUM_BANK_BYTES // 4)

    @property
    def compute(self) -> DType:
        return FLOAT32

    def iteration(self) -> Iteration:
        """Return axes (k..., m..., n...): operands share the summed axes, the result has the other axes of both."""
        stationary, moving = self.stationary.shape, self.moving.shape
        k = tuple(range(self.summed_axes))
        m = tuple(range(len(k), len(stationary)))
        n = tuple(range(len(stationary), len(stationary) + len(moving) - len(k)))
        return Iteration((*stationary, *moving[len(k):]), {"dst": (*m, *n), "stationary": (*k, *m), "moving": (*k, *n)},
                         frozenset(k))

    def sources(self) -> list[tuple[str, Tile]]:
        """Return the sources: dst only with ``accumulate``, since the first product of a group overwrites PSUM."""
        inputs = [("stationary", self.stationary), ("moving", self.moving)]
        return [("dst", self.dst), *inputs] if self.accumulate else inputs

    @np.errstate(all="ignore")
    def reference(self, *sources: np.ndarray) -> np.ndarray:
        *dst, stationary, moving = sources
        k = stationary.shape[0]
        total = product(stationary.reshape(k, -1), moving.reshape(k, -1))
        total = total.reshape(*stationary.shape[1:], *moving.shape[1:])
        return dst[0] + total if dst else total

    def lower(self, b: LoweringBuilder) -> None:
        b.contraction(self, accumulate=self.accumulate)


class MatmulOp(NkiOp, MatrixProduct, name="matmul"):
    """dst[m, n] = sum over k of stationary[k, m] * moving[k, n], added to dst with ``accumulate``."""

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions of the tile language over free axes."""

from abc import abstractmethod

import numpy as np

from nki_mlir.dialects.op import In, Integers, Iteration, LoweringBuilder, NkiOp, Op, Out
from nki_mlir.dialects.verifier import Check
from nki_mlir.scalar.alu import ALU, reduced
from nki_mlir.scalar.dtypes import FLOAT32, DType

REDUCTIONS = [name for name, op in ALU.items() if op.reduce is not None]


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return ``shape`` with the reduced axes kept as 1: reductions never change the rank of their destination."""
    return tuple(1 if k in axes else n for k, n in enumerate(shape))


def reduce_keeping(op: str, array: np.ndarray, axes: tuple[int, ...], of_integers: bool) -> np.ndarray:
    """Return the array reduced over ``axes``, which stay with extent 1."""
    return np.expand_dims(reduced(op, array, axes, of_integers), axes)


def sums_integers(op: Op) -> bool:
    """Return whether an operation reads only integers, so that its sums are exact."""
    written = {name for name, _ in op.targets()}
    return all(tile.dtype.is_integer for name, tile in op.sources() if name not in written)


class Reducing(Op):
    """Family: dst = src reduced by ``op`` over some axes, accumulated in float32; dst has extent 1 on these."""

    dst: Out
    src: In
    op: str

    @property
    @abstractmethod
    def over(self) -> tuple[int, ...]:
        """The axes of the reduction."""

    @property
    def compute(self) -> DType:
        return self.src.dtype if ALU[self.op].group == "bitwise" else FLOAT32

    def iteration(self) -> Iteration:
        all_axes = tuple(range(len(self.src.shape)))
        return Iteration(self.src.shape, {"dst": all_axes, "src": all_axes}, frozenset(self.over))

    def reference(self, src: np.ndarray) -> np.ndarray:
        return reduce_keeping(self.op, src, self.over, sums_integers(self))

    def lower(self, b: LoweringBuilder) -> None:
        b.reduction(self, self.op)


class ReducingFree(Reducing):
    """Family: dst = src reduced by ``op`` over the free ``axes``."""

    axes: Integers

    @property
    def over(self) -> tuple[int, ...]:
        return self.axes

    def verify(self, check: Check) -> None:
        check.one_of("op", REDUCTIONS)
        check.on_chip("dst", "src")
        check.rule(all(0 < a < len(self.src.shape) for a in self.axes),
                   f"reduces free axes, not {list(self.axes)} of {list(self.src.shape)}",
                   "name axes from 1 on; sum partitions with a matrix product")
        check.shape("dst", reduced_shape(self.src.shape, self.axes))
        check.bits(["op"], "src")


class ReduceOp(NkiOp, ReducingFree, name="reduce"):
    """dst = src reduced by ``op`` over free ``axes``, accumulated in float32; dst has extent 1 on those axes."""

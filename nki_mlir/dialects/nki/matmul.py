# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix product of the tile language, with accumulation in PSUM."""

from typing import Any

import numpy as np

from nki_mlir.dialects.access import PSUM, Tile
from nki_mlir.dialects.op import In, InOut, Iteration, NkiOp
from nki_mlir.dialects.verifier import PSUM_BANK_BYTES, PsumBank
from nki_mlir.scalar.dtypes import FLOAT32, DType


def matmul_iteration(stationary: tuple[int, ...], moving: tuple[int, ...]) -> Iteration:
    """Axes (k, m..., n...): operands share axis 0, the result has the free axes of both."""
    m = tuple(range(1, len(stationary)))
    n = tuple(range(len(stationary), len(stationary) + len(moving) - 1))
    extents = (stationary[0], *stationary[1:], *moving[1:])
    return Iteration(extents, {"dst": (*m, *n), "stationary": (0, *m), "moving": (0, *n)}, frozenset({0}))


class MatmulOp(NkiOp, name="matmul"):
    """dst[m, n] = sum over k of stationary[k, m] * moving[k, n], added to dst with ``accumulate``.

    The result is in PSUM, in one bank; sums are float32.
    """

    dst: InOut
    stationary: In
    moving: In
    accumulate: bool
    destinations = (PSUM,)

    def verify(self, check: Any) -> None:
        verify_matmul(self, check)

    @property
    def compute(self) -> DType:
        return FLOAT32

    def iteration(self) -> Iteration:
        return matmul_iteration(self.stationary.shape, self.moving.shape)

    def sources(self) -> list[tuple[str, Tile]]:
        return matmul_sources(self)

    def reference(self, *sources: np.ndarray) -> np.ndarray:
        return matmul_reference(*sources)

    def lower(self, b: Any) -> None:
        b.contraction(self, accumulate=self.accumulate)


def matmul_sources(op: Any) -> list[tuple[str, Tile]]:
    """The first product of a group overwrites: what is in PSUM before is not read."""
    inputs = [("stationary", op.stationary), ("moving", op.moving)]
    return [("dst", op.dst), *inputs] if op.accumulate else inputs


@np.errstate(all="ignore")
def matmul_reference(*sources: np.ndarray) -> np.ndarray:
    *dst, stationary, moving = sources
    k = stationary.shape[0]
    product = stationary.reshape(k, -1).T @ moving.reshape(k, -1)
    product = product.reshape(*stationary.shape[1:], *moving.shape[1:])
    return dst[0] + product if dst else product


def verify_matmul(op: Any, check: Any) -> None:
    """What every matrix product obeys, whatever level it is written at."""
    check.spaces("dst", "psum")
    check.spaces("stationary", "sbuf")
    check.spaces("moving", "sbuf")
    check.rule(op.stationary.shape[0] == op.moving.shape[0],
               f"contracts axis 0 of both operands, got {list(op.stationary.shape)} and {list(op.moving.shape)}")
    check.at_most("stationary", 1, op.stationary.free_elements, 128)
    check.at_most("moving", 1, op.moving.free_elements, 512)
    expected = (*op.stationary.shape[1:], *op.moving.shape[1:])
    check.shape("dst", expected)
    for label in ("stationary", "moving"):
        check.rule(getattr(op, label).dtype.is_float, f"multiplies floats, '{label}' is {getattr(op, label).dtype}")
    size = op.dst.free_elements * op.dst.dtype.itemsize
    if size > PSUM_BANK_BYTES:
        raise PsumBank(bytes=size, limit=PSUM_BANK_BYTES, elements=PSUM_BANK_BYTES // 4)

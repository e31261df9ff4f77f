# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensor-engine instructions: nc_matmul, nc_transpose, and products that move elements without computing with them."""

import numpy as np

from nki_mlir.dialects.access import PSUM, SBUF, Linear, Tile
from nki_mlir.dialects.access_factors import access_factor
from nki_mlir.dialects.nki.matmul import SAME_CONTRACTION, MatrixProduct, contraction
from nki_mlir.dialects.nki.movement import Transposing
from nki_mlir.dialects.op import In, Iteration, LoweringBuilder, NisaOp, Out
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Machine, Work
from nki_mlir.machine.engine import ENGINE_NAMED
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT32, TFLOAT32, convert

WIDE = (FLOAT32, TFLOAT32)
EIGHT_BITS = (FLOAT8_E4M3, FLOAT8_E4M3FN, FLOAT8_E5M2)


def work_of_product(law: str, stationary: Tile, moving: Tile) -> Work:
    """Return the work of a pass for each column of ``moving``. Weights load meanwhile; they take longer if they are
    apart in memory."""
    columns, factor = moving.free_elements, access_factor(stationary)
    weights = stationary.free_elements * factor / columns if factor > 1 else 0.0
    return Work(f"{law}.{moving.dtype}", columns, max(access_factor(moving), weights))


class NcMatmulOp(NisaOp, MatrixProduct, name="nc_matmul", engines=(Engine.TENSOR,), mnemonic="MATMUL", opcode=0x30):
    """dst[m, n] = sum over k of stationary[k, m] * moving[k, n] (PSUM, float32), added to dst with ``accumulate``."""

    accumulate: bool = False

    def verify_target(self, check: TargetCheck) -> None:
        kinds = (self.stationary.dtype, self.moving.dtype)
        check.rule(not self.dst.dtype.is_integer, f"writes float32 or bfloat16, got {self.dst.dtype}",
                   "let the result be float32 and copy it", binds_current=True)
        if self.dst.dtype is not FLOAT32:
            feature = f"a result of nc_matmul in {self.dst.dtype}"
            check.need(3, feature, "let the result be float32 and copy it")
            if check.machine.generation >= 3:
                check.need(4, feature, "let the result be float32 and copy it", binds_current=True)
            check.rule(self.dst.dtype is BFLOAT16, f"writes float32 or bfloat16, got {self.dst.dtype}",
                       "let the result be float32 and copy it", binds_current=True)
        if FLOAT8_E4M3FN in kinds:
            check.need(4, f"nc_matmul of {FLOAT8_E4M3FN}", "use float8_e4m3")
        check.rule(len({kind in WIDE for kind in kinds}) == 1,
                   f"multiplies float32 with float32 only, got {kinds[0]} and {kinds[1]}",
                   "convert one of them, for example with nl.copy(x, dtype=...)")
        check.rule(not {FLOAT8_E4M3, FLOAT8_E4M3FN} <= set(kinds),
                   f"cannot mix {FLOAT8_E4M3} and {FLOAT8_E4M3FN}", "convert one of them")
        check.bank(self.dst)

    def work(self) -> Work:
        """The engine takes time for each column of ``moving``, which depends on its dtype."""
        return work_of_product("product", self.stationary, self.moving)


class NcMatmulDoubleRowOp(NcMatmulOp, name="nc_matmul_double_row", engines=(Engine.TENSOR,),
                          mnemonic="MATMUL_DOUBLE_ROW", opcode=0x33, since=3):
    """dst[m, n] = sum over k and the 2 rows r of stationary[k, r, m] * moving[k, r, n] of 8-bit floats (PSUM, float32),
    added to dst with ``accumulate``."""

    summed_axes = 2

    def verify(self, check: Check) -> None:
        for label, tile in (("stationary", self.stationary), ("moving", self.moving)):
            check.rule(len(tile.shape) > 2 and tile.shape[1] == 2 and tile.dtype in EIGHT_BITS,
                       "multiplies [K, 2, M] by [K, 2, N] of 8-bit floats, "
                       f"got {label} {list(tile.shape)} {tile.dtype}",
                       "give both two rows a partition, or multiply the rows one after the other by nc_matmul")
        check.unmasked(": multiply the rows one after the other under a mask")
        check.rule(not self.limits, "the compiler must be able to prove that its operands stay inside their tensors",
                   "multiply the rows one after the other")
        super().verify(check)

    def row(self, number: int) -> NcMatmulOp:
        """Return the product of row 0 of each partition, or that of row 1, which is added to it."""
        def part(tile: Tile) -> Tile:
            return tile.patterned(free=tile.access.free.plus(Linear(number * tile.access.dims[1][0])),
                                  dims=(tile.access.dims[0], *tile.access.dims[2:]))
        return NcMatmulOp(dst=self.dst, stationary=part(self.stationary), moving=part(self.moving),
                          accumulate=self.accumulate or number > 0, engine=self.engine, symbols=self.symbols,
                          ranges=self.ranges, extra=self.extra)

    def reference(self, *sources: np.ndarray) -> np.ndarray:
        *dst, stationary, moving = sources
        total = super().reference(*dst, stationary[:, 0], moving[:, 0])
        return super().reference(total, stationary[:, 1], moving[:, 1])

    def lower(self, b: LoweringBuilder) -> None:
        for product in (self.row(0), self.row(1)):
            b.contraction(product, accumulate=product.accumulate)

    def work(self) -> Work:
        """The engine multiplies both rows in the time of one."""
        return self.row(0).work()


class NcTransposeOp(NisaOp, Transposing, name="nc_transpose", engines=(Engine.TENSOR, Engine.VECTOR),
                    mnemonic="TRANSPOSE", opcode=0x31):
    """dst[f, p] = src[p, f]. On the tensor engine SBUF to PSUM, up to 128 x 128; on the vector engine up to 32 x 32."""

    destinations = ()           # the compiler cannot choose a memory: which one is possible depends on the engine

    @property
    def largest(self) -> dict[int, int]:
        limit = Machine.transpose_vector_max if self.runs_on is Engine.VECTOR else Machine.partitions
        return {0: limit, 1: limit}

    def verify(self, check: Check) -> None:
        super().verify(check)
        if self.runs_on is Engine.TENSOR:
            check.spaces("src", "sbuf")
            check.spaces("dst", "psum")

    @property
    def runs_on(self) -> Engine:
        if self.engine != "unknown":
            return ENGINE_NAMED.get(self.engine) or Engine(self.engine)
        if max(self.src.shape) > Machine.transpose_vector_max or (self.src.space, self.dst.space) == (SBUF, PSUM):
            return Engine.TENSOR
        return Engine.VECTOR

    def work(self) -> Work:
        """The tensor engine takes time for each row of ``src``, which depends on its dtype, the vector engine for each
        column."""
        p, f = self.src.shape
        on_tensor = self.runs_on is Engine.TENSOR
        law = f"transpose.{self.src.dtype}" if on_tensor else "transpose"
        return Work(law, p if on_tensor else f, access_factor(self.src))


class MatmulTransposeOp(NisaOp, name="nc_matmul_transpose", engines=(Engine.TENSOR,), mnemonic="MATMUL_TRANSPOSE",
                        opcode=0x32):
    """dst[m, n] = stationary[k, m] for the k where moving[k, n] is 1: bits are moved, infinities and NaN too.

    ``moving`` is an identity or another matrix with one 1 in each column; for any other ``moving`` the result is the
    matrix product.
    """

    dst: Out
    stationary: In
    moving: In
    destinations = (PSUM,)
    is_loop_nest = False
    keeps_bits = True

    def verify(self, check: Check) -> None:
        check.spaces("dst", PSUM)
        check.all_in((SBUF,), "stationary", "moving")
        check.rule(self.stationary.shape[0] == self.moving.shape[0],
                   contraction(self.stationary.shape, self.moving.shape), SAME_CONTRACTION)
        check.at_most("stationary", 1, self.stationary.free_elements, Machine.stationary_free_max)
        check.shape("dst", (self.stationary.free_elements, self.moving.free_elements))

    def iteration(self) -> Iteration:
        k, m, n = self.stationary.shape[0], self.stationary.free_elements, self.moving.free_elements
        return Iteration((k, m, n), {"dst": (1, 2), "stationary": (0, 1), "moving": (0, 2)}, frozenset({0}))

    def reference(self, stationary: np.ndarray, moving: np.ndarray) -> np.ndarray:
        k = moving.shape[0]
        data, picks = stationary.reshape(k, -1), convert(moving, FLOAT32, self.moving.dtype).reshape(k, -1)
        chosen = picks != 0
        if (chosen.sum(0) == 1).all() and (picks[chosen] == 1).all():
            return data[chosen.argmax(0)].T
        return convert(data, FLOAT32, self.stationary.dtype).T @ picks

    def work(self) -> Work:
        """The engine takes time for each column of ``moving``, which depends on its dtype, like other transposes."""
        return work_of_product("transpose", self.stationary, self.moving)

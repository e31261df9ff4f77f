# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reducing engine instructions: tensor_reduce, tensor_partition_reduce, activation_reduce, tensor_scalar_reduce;
batch-norm statistics."""

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from nki_mlir.dialects.access import Linear, Tile
from nki_mlir.dialects.access_factors import access_factor
from nki_mlir.dialects.nisa.elementwise import ActivationOp, TensorScalarOp, of_dtype
from nki_mlir.dialects.nisa.opaque import PartitionWise
from nki_mlir.dialects.nki.reduction import REDUCTIONS, Reducing, ReducingFree, reduce_keeping, sums_integers
from nki_mlir.dialects.op import In, Iteration, LoweringBuilder, NisaOp, Out
from nki_mlir.dialects.scalar_body import Elementwise, ScalarFunctions, V
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Machine, Work
from nki_mlir.machine.engine import SINCE
from nki_mlir.scalar.alu import ALU

VECTOR, SCALAR, GPSIMD = Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD
PARTITION_REDUCTIONS = ("add", "maximum", "bitwise_or", "bitwise_and")
ROW_REDUCTIONS = ("add", "subtract", "multiply", "maximum", "minimum")
ARITHMETIC_REDUCTIONS = [name for name in REDUCTIONS if ALU[name].group != "bitwise"]


class TensorReduceOp(NisaOp, ReducingFree, name="tensor_reduce", engines=(VECTOR, GPSIMD), mnemonic="TENSOR_REDUCE",
                     opcode=0x20):
    """dst = src reduced by ``op`` over free ``axes`` (extent 1 in dst), times -1 with ``negate``."""

    negate: bool = False

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.rule(not (self.negate and ALU[self.op].group == "bitwise"),
                   f"negate is for arithmetic reductions, got {self.op}",
                   "leave negate out")

    def verify_target(self, check: TargetCheck) -> None:
        feature = f"'{self.name}' of {self.op}"
        instead = "reduce by maximum, by minimum with negate, and compare the two"
        check.need(SINCE.get(self.op, 0), feature, instead, binds_current=True)
        check.rule(self.op not in SINCE, f"{feature}: documents name this reduction for activate2 alone", instead,
                   uncertain=True)
        check.rule(self.op != "average", "documents name the reduction average for tensor_partition_reduce alone",
                   "reduce by add, and multiply the sum by 1 / count; or call nl.mean", uncertain=True)

    def reference(self, src: np.ndarray) -> np.ndarray:
        value = super().reference(src)
        return -value if self.negate else value

    def lower(self, b: LoweringBuilder) -> None:
        b.reduction(self, self.op, negate=self.negate)

    def work(self) -> Work:
        """The engine takes time for each element of ``src``; sums and maxima of 16-bit elements are faster."""
        fast = self.op in ("add", "maximum")
        law = f"tensor_reduce{of_dtype(self.dst, self.src) if fast else ''}"
        return Work(law, self.src.free_elements, access_factor(self.src))


class TensorPartitionReduceOp(NisaOp, Reducing, name="tensor_partition_reduce", engines=(GPSIMD,),
                              mnemonic="REDUCE_CROSS_LANE", opcode=0x21):
    """dst[0, f...] = src reduced over its partitions."""

    over = (0,)

    def verify(self, check: Check) -> None:
        check.one_of("op", PARTITION_REDUCTIONS)
        check.on_chip("dst", "src")
        check.shape("dst", (1, *self.src.shape[1:]))
        check.bits(["op"], "src")

    def work(self) -> Work:
        """The engine takes time for each element of a partition of ``src``: the law ``across_partitions``."""
        return Work("across_partitions", self.src.free_elements)


class WithRowReduction(NisaOp, Elementwise):
    """Family: an elementwise instruction that also reduces its result over all free axes into ``reduce_res`` [P, 1]."""

    dst: Out
    reduce_res: Out
    src: In
    if TYPE_CHECKING:           # subclasses declare it, in its position
        reduce_op: str

    def iteration(self) -> Iteration:
        return super().iteration()._replace(reduced=frozenset(range(1, len(self.dst.shape))))

    def reference(self, *sources: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value = np.asarray(super().reference(*sources))
        return value, reduce_keeping(self.reduce_op, value, tuple(range(1, value.ndim)), sums_integers(self))

    def lower(self, b: LoweringBuilder) -> None:
        b.elementwise_with_rows(self, self.reduce_op)

    def verify_rows(self, check: Check) -> None:
        check.one_of("reduce_op", ARITHMETIC_REDUCTIONS)
        check.on_chip("reduce_res")
        check.per_partition("reduce_res")
        shape = self.dst.shape
        check.shape("reduce_res", (shape[0], *(1 for _ in shape[1:])))


class RowReducing(Protocol):
    """An instruction whose result the Scalar engine's registers reduce."""

    reduce_op: str

    @property
    def name(self) -> str: ...


def verify_sum(op: RowReducing, check: TargetCheck, binds_current: bool = False) -> None:
    """Check that the Scalar engine's registers add; documents of ``activation_reduce`` restrict only generation 2 to
    that."""
    ActivationOp.verify_target(op, check)                           # type: ignore[arg-type]
    if op.reduce_op != "add":
        feature = f"'{op.name}' with reduce_op '{op.reduce_op}'"
        check.need(3, feature, "reduce with nisa.tensor_reduce")
        if check.machine.generation >= 3:
            check.rule(False, f"reduces by {op.reduce_op}; an activation is documented to reduce by nl.add only",
                       "reduce with nisa.tensor_reduce", uncertain=True, binds_current=binds_current)


class ActivationReduceOp(WithRowReduction, name="activation_reduce", engines=(SCALAR,), mnemonic="ACTIVATE_REDUCE",
                         opcode=0x22):
    """dst = fn(src * scale + bias) and reduce_res = dst's float32 values reduced over the free axes."""

    bias: In | None
    scale: In | None
    fn: str
    reduce_op: str = "add"
    imm: float = 1.0
    law = "activation_reduce"

    def verify(self, check: Check) -> None:
        ActivationOp.verify(self, check)                            # type: ignore[arg-type]
        self.verify_rows(check)

    verify_target = verify_sum
    body = ActivationOp.body            # type: ignore[assignment]


class TensorScalarReduceOp(WithRowReduction, name="tensor_scalar_reduce", engines=(VECTOR,),
                           mnemonic="TENSOR_SCALAR_REDUCE", opcode=0x23):
    """dst = src op0 operand0 and reduce_res = dst's float32 values reduced over the free axes."""

    operand0: In | None
    op0: str
    reduce_op: str
    imm0: float = 0.0
    reverse0: bool = False
    law = "tensor_scalar_reduce"

    def verify(self, check: Check) -> None:
        check.alu("op0", 1, 2)
        check.on_chip_of_one_shape("dst", "src", "operand0")
        check.rule(not check.bits(["op0"]), "op0 must be arithmetic", "use nisa.tensor_scalar for bit operations")
        self.verify_rows(check)

    def verify_target(self, check: TargetCheck) -> None:
        check.one_a_row(*self.row_operands)
        check.operators(self.op0)
        check.rule(not self.reverse0, "reverse0 is documented as not supported", "swap the operands", uncertain=True)
        check.rule(self.reduce_op in ROW_REDUCTIONS, f"reduces by {', '.join(ROW_REDUCTIONS)}, got {self.reduce_op}",
                   "reduce with nisa.tensor_reduce")

    row_operands = ("operand0",)
    operand1, op1, imm1, reverse1 = None, "bypass", 0.0, False      # what TensorScalarOp.body also reads
    body = TensorScalarOp.body          # type: ignore[assignment]


# -- batch-norm statistics ---------------------------------------------------------------------------------------------
def strided_parts(tile: Tile, n: int) -> list[Tile] | None:
    """Return the elements 0, n, 2n ... of each partition, then 1, n + 1 ... as tiles; None if no patterns describe
    them."""
    *outer, (step, count) = tile.access.dims
    if len(outer) > 1 and count % n:
        return None
    parts = []
    for k in range(n):
        access = tile.access.shifted(len(outer), Linear(k))
        parts.append(replace(tile, access=replace(access, dims=(*outer, (n * step, -(-(count - k) // n))))))
    return parts


def squared_distance(s: ScalarFunctions[V], x: V, mean: V) -> V:
    distance = s.alu("subtract", x, mean)
    return s.alu("multiply", distance, distance)


class BnStatsOp(PartitionWise, name="bn_stats", engines=(Engine.VECTOR,), mnemonic="BN_STATS", opcode=0x51):
    """dst[p] = (count, mean, variance * count) of the even elements of src[p], then of the odd ones."""

    dst: Out
    src: In
    rows_apart = True
    statistic = "dst"
    law, walked = "bn_stats", "src"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        check.at_most("src", 1, self.src.free_elements, Machine.bn_stats_max)
        check.shape("dst", (self.src.shape[0], 6))

    @np.errstate(all="ignore")
    def reference(self, src: np.ndarray) -> np.ndarray:
        p = src.shape[0]
        flat = src.reshape(p, -1)
        parts = []
        for values in (flat[:, ::2], flat[:, 1::2]):
            n = values.shape[1]
            mean = values.sum(1, dtype=np.float32) / np.float32(max(n, 1))
            spread = ((values - mean[:, None]) ** 2).sum(1, dtype=np.float32)
            parts += [np.full(p, n, np.float32), mean, spread]
        return np.stack(parts, 1)

    def lower(self, b: LoweringBuilder) -> None:
        rows, parts = b.rows(self), strided_parts(self.src, 2)
        if rows is None or parts is None:
            b.keep(self)
            return
        numbers = [part.free_elements for part in parts]        # operations on both parts are adjacent
        counts = [rows.constant(n) for n in numbers]
        totals = [rows.sum(lambda s, x: x, [part]) if n else count for part, n, count in zip(parts, numbers, counts)]
        means = [rows.each(lambda s, x, n=max(n, 1): s.alu("divide", x, s.constant(n)), total)
                 for n, total in zip(numbers, totals)]
        spreads = [rows.sum(squared_distance, [part], mean) if n else count
                   for part, n, count, mean in zip(parts, numbers, counts, means)]
        rows.write(self.dst, [column for columns in zip(counts, means, spreads) for column in columns])


class BnAggrOp(PartitionWise, name="bn_aggr", engines=(Engine.VECTOR,), mnemonic="BN_AGGR", opcode=0x52):
    """dst[p] = (mean, variance) of groups given as (count, mean, variance * count) triples in src[p]."""

    dst: Out
    src: In
    rows_apart = True
    statistic = "dst"
    law, walked = "bn_aggr", "src"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        check.rule(self.src.free_elements % 3 == 0, f"takes triples, got {self.src.free_elements} values a partition",
                   "give it results of nisa.bn_stats")
        check.shape("dst", (self.src.shape[0], 2))

    @np.errstate(all="ignore")
    def reference(self, src: np.ndarray) -> np.ndarray:
        counts, means, spreads = np.moveaxis(src.reshape(src.shape[0], -1, 3), 2, 0)
        total = np.maximum(counts.sum(1), np.float32(1e-30))
        mean = (counts * means).sum(1) / total
        variance = (spreads + counts * (means - mean[:, None]) ** 2).sum(1) / total
        return np.stack([mean, variance], 1)

    def lower(self, b: LoweringBuilder) -> None:
        rows, parts = b.rows(self), strided_parts(self.src, 3)
        if rows is None or parts is None:
            b.keep(self)
            return
        counts, means, _ = parts
        total = rows.each(lambda s, n: s.alu("maximum", n, s.constant(1e-30)), rows.sum(lambda s, n: n, [counts]))
        weighted = rows.sum(lambda s, n, mean: s.alu("multiply", n, mean), [counts, means])
        mean = rows.each(lambda s, x, n: s.alu("divide", x, n), weighted, total)

        def spread_of(s: ScalarFunctions[V], n: V, group_mean: V, group_variance: V, mean: V) -> V:
            return s.alu("add", group_variance, s.alu("multiply", n, squared_distance(s, group_mean, mean)))
        spread = rows.sum(spread_of, parts, mean)
        rows.write(self.dst, [mean, rows.each(lambda s, x, n: s.alu("divide", x, n), spread, total)])

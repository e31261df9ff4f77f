# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Selections with a running row maximum: select_reduce and range_select, and activations that accumulate.

The machine's accumulation registers are an operand, ``accumulator`` [P, 1]: each command says what becomes of them.
"""

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.dialects.nisa.elementwise import ActivationOp, not_all_in_psum
from nki_mlir.dialects.nisa.partitionwise import PartitionWise
from nki_mlir.dialects.nisa.reduction import ARITHMETIC_REDUCTIONS, verify_sum
from nki_mlir.dialects.nki.reduction import sums_integers
from nki_mlir.dialects.op import ArrayScalars, In, InOut, Out, Results
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BOOL, FLOAT32, INT8, INT16, INT32, TFLOAT32, UINT8, UINT16, UINT32
from nki_mlir.scalar.integer_sums import reduced

EXACT = 1 << 24                 # below it float32 holds all integers
LOWEST = float(np.finfo(np.float32).min)
COMMANDS = ("idle", "reset", "reduce", "reset_reduce")


def accumulated(command: str, op: str, before: np.ndarray, value: np.ndarray, of_integers: bool) -> np.ndarray:
    """The registers after a command, [P, 1...] float32; ``value`` is the instruction's elementwise result."""
    identity = np.float32(ALU[op].identity(FLOAT32) or 0.0)
    start = np.full_like(before, identity) if command in ("reset", "reset_reduce") else before
    if command not in ("reduce", "reset_reduce"):
        return start
    rows = reduced(op, value, tuple(range(1, value.ndim)), of_integers).reshape(before.shape)
    return ALU[op].numpy(start, rows)


class Accumulating(PartitionWise):
    """Family: ``dst``, the registers ``accumulator`` and, where it is asked for, ``reduce_res`` that reads them."""

    rows_apart = True
    dst: Out
    accumulator: InOut
    reduce_res: Out | None
    if TYPE_CHECKING:           # subclasses declare them, each in its place
        reduce_cmd: str
        reduce_op: str

    def results(self, value: np.ndarray, before: np.ndarray) -> tuple[np.ndarray, ...]:
        after = accumulated(self.reduce_cmd, self.reduce_op, before, value,
                            sums_integers(self))
        made = (value, after)
        return (*made, after) if self.reduce_res is not None else made

    def verify_accumulator(self, check: Check) -> None:
        check.one_of("reduce_cmd", COMMANDS)
        check.one_of("reduce_op", ARITHMETIC_REDUCTIONS)
        check.dtype("accumulator", FLOAT32)
        check.per_partition("dst", "accumulator", "reduce_res")


class ActivationAccumulateOp(Accumulating, name="activation_accumulate", engines=(Engine.SCALAR,),
                             mnemonic="ACTIVATE_ACCUMULATE", opcode=0x5A):
    """dst = fn(src * scale + bias); the accumulators follow ``reduce_cmd`` and are read into ``reduce_res``."""

    src: In
    bias: In | None
    scale: In | None
    fn: str
    reduce_op: str
    reduce_cmd: str
    imm: float = 1.0
    law = "activation_reduce"

    def verify(self, check: Check) -> None:
        ActivationOp.verify(self, check)                            # type: ignore[arg-type]
        self.verify_accumulator(check)

    def verify_target(self, check: TargetCheck) -> None:
        verify_sum(self, check)

    def reference(self, accumulator: np.ndarray, *sources: np.ndarray) -> Results:
        value = np.asarray(ActivationOp.body(self, ArrayScalars(FLOAT32), *sources))     # type: ignore[arg-type]
        return self.results(value, accumulator)


class SelectReduceOp(Accumulating, name="select_reduce", engines=(Engine.VECTOR,), mnemonic="SELECT_REDUCE",
                     opcode=0x5B):
    """dst = on_true where predicate (reversed: where not), else on_false ([P, 1] or ``imm``); accumulates a maximum."""

    predicate: In
    on_true: In
    on_false: In | None
    imm: float = 0.0
    reverse_pred: bool = False
    reduce_cmd: str = "idle"
    reduce_op: str = "maximum"
    law = "select"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "predicate", "on_true", "on_false")
        check.same_shape("dst", "predicate", "on_true")
        check.per_partition("dst", "on_false")
        check.one_of("reduce_op", ("maximum",))
        not_all_in_psum(self, check, "on_true", "predicate")
        self.verify_accumulator(check)

    def verify_target(self, check: TargetCheck) -> None:
        check.dtypes("predicate", INT8, UINT8, INT16, UINT16, BOOL)
        check.rule(self.on_true.dtype not in (TFLOAT32, INT32, UINT32), f"on_true cannot be {self.on_true.dtype}",
                   "convert it first")

    def reference(self, accumulator: np.ndarray, predicate: np.ndarray, on_true: np.ndarray,
                  *on_false: np.ndarray) -> Results:
        other = on_false[0].reshape(-1, *(1,) * (on_true.ndim - 1)) if on_false else np.float32(self.imm)
        chosen = (predicate != 0) != self.reverse_pred
        return self.results(np.where(chosen, on_true, other).astype(np.float32), accumulator)


class RangeSelectOp(Accumulating, name="range_select", engines=(Engine.VECTOR,), mnemonic="RANGE_SELECT", opcode=0x5C,
                    since=3):
    """dst = src where ``comp0(i, bound0) & comp1(i, bound1)`` for i = base + free index, else ``fill``; row maximum."""

    src: In
    bound0: In
    bound1: In
    comp0: str
    comp1: str
    base: float = 0.0
    fill: float = 0.0
    reduce_cmd: str = "idle"
    reduce_op: str = "maximum"
    rows_apart = False                  # it computes with the places of elements
    law = "range_select"

    def verify(self, check: Check) -> None:
        comparisons = ("equal", "less", "less_equal", "greater", "greater_equal")
        check.one_of("comp0", comparisons)
        check.one_of("comp1", comparisons)
        check.one_of("reduce_op", ("maximum",))
        check.on_chip("dst", "src", "bound0", "bound1")
        check.same_shape("dst", "src")
        check.dtype("bound0", FLOAT32)
        check.dtype("bound1", FLOAT32)
        check.per_partition("dst", "bound0", "bound1")
        self.verify_accumulator(check)

    def verify_target(self, check: TargetCheck) -> None:
        check.rule(self.src.dtype.is_float, f"selects floats, got {self.src.dtype}", "convert the tile first")
        last = abs(self.base) + self.src.free_elements
        check.rule(last < EXACT, f"counts elements up to {last:g}, which float32 does not tell apart",
                   "work on fewer elements at a time")
        check.rule(np.float32(self.fill) == np.float32(LOWEST),
                   f"puts {LOWEST:g} where the range ends, got {self.fill:g}", "leave on_false_value out",
                   contested=True)

    def reference(self, accumulator: np.ndarray, src: np.ndarray, bound0: np.ndarray, bound1: np.ndarray) -> Results:
        p = src.shape[0]
        place = (np.float32(self.base) + np.arange(src[0].size, dtype=np.float32)).reshape(1, -1)
        inside = (ALU[self.comp0].numpy(place, bound0.reshape(p, 1)) != 0) & (
            ALU[self.comp1].numpy(place, bound1.reshape(p, 1)) != 0)
        value = np.where(inside.reshape(src.shape), src, np.float32(self.fill))
        return self.results(value, accumulator)


class SequenceBoundsOp(PartitionWise, name="sequence_bounds", engines=(Engine.GPSIMD,), mnemonic="SEQUENCE_BOUNDS",
                       opcode=0x5D):
    """dst[0, 0, i] and dst[0, 1, i]: first and one past last place of the run of equal ids at i; (n, -1) for id 0."""

    dst: Out
    segment_ids: In
    law, walked = "sequence_bounds", "segment_ids"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "segment_ids")
        check.rule(self.segment_ids.shape[0] == 1, "segment_ids have one partition", "lay them out in one row")
        check.shape("dst", (1, 2, self.segment_ids.free_elements))

    def verify_target(self, check: TargetCheck) -> None:
        for label in ("dst", "segment_ids"):
            check.dtypes(label, FLOAT32, INT32)

    def reference(self, segment_ids: np.ndarray) -> np.ndarray:
        ids = segment_ids.reshape(-1)
        n = len(ids)
        start, end = np.full(n, n, np.float32), np.full(n, -1, np.float32)
        edges = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1], [True]]))
        for a, b in pairwise(edges):
            if ids[a] != 0:
                start[a:b], end[a:b] = a, b
        return np.stack([start, end])[None]

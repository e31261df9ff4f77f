# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions that use the accumulation registers: activations, selections with a running row maximum, exponential,
tensor_scalar that accumulates; and the scan, a recurrence along the free axis.

The machine's registers are an operand, ``accumulator`` [P, 1], which each command updates.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nki_mlir.diagnostics import InternalError
from nki_mlir.dialects.nisa.elementwise import ActivationOp, apply_alu, not_all_in_psum
from nki_mlir.dialects.nisa.opaque import PartitionWise
from nki_mlir.dialects.nisa.reduction import ARITHMETIC_REDUCTIONS, ROW_REDUCTIONS, verify_sum
from nki_mlir.dialects.nki.reduction import sums_integers
from nki_mlir.dialects.op import In, InOut, LoweringBuilder, Out, Results
from nki_mlir.dialects.scalar_body import ArrayScalars, ScalarFunctions, V
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Work
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU, reduced
from nki_mlir.scalar.dtypes import BOOL, FLOAT32, INT8, INT16, INT32, TFLOAT32, UINT8, UINT16, UINT32

EXACT = 1 << 24                 # below it float32 holds all integers
LOWEST = float(np.finfo(np.float32).min)
REGISTER_REDUCTIONS = ("add", "multiply", "maximum", "minimum")        # of the vector engine
COMMANDS = ("idle", "reset", "reduce", "reset_reduce")
PAIRS = (("multiply", "add"), ("multiply", "subtract"), ("multiply", "bypass"), ("add", "bypass"),
         ("subtract", "bypass"), ("bypass", "bypass"))


def per_row(value: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Reshape one value per partition, to compute with a tile."""
    return value.reshape(-1, *(1,) * (like.ndim - 1))


def accumulated(command: str, op: str, before: np.ndarray, value: np.ndarray, of_integers: bool) -> np.ndarray:
    """Return the registers after a command, [P, 1...] float32; ``value`` is the instruction's elementwise result."""
    identity = np.float32(ALU[op].identity(FLOAT32) or 0.0)
    start = np.full_like(before, identity) if command in ("reset", "reset_reduce") else before
    if command not in ("reduce", "reset_reduce"):
        return start
    rows = reduced(op, value, tuple(range(1, value.ndim)), of_integers).reshape(before.shape)
    return ALU[op].numpy(start, rows)


class Accumulating(PartitionWise):
    """Family: ``dst``, the registers ``accumulator`` and, if the kernel names it, ``reduce_res`` that reads them.

    ``body`` computes an element of ``dst`` from those of the sources and, if the class ``counts`` elements, its index.
    """

    rows_apart = True
    counts: ClassVar[bool] = False
    dst: Out
    accumulator: InOut
    reduce_res: Out | None
    if TYPE_CHECKING:           # subclasses declare them, each in its position
        reduce_cmd: str
        reduce_op: str

    def overwrites(self, name: str) -> bool:
        return name == "accumulator" and self.reduce_cmd in ("reset", "reset_reduce")

    def body(self, s: ScalarFunctions[V], *sources: V) -> V:
        raise InternalError(f"{self.full_name()} has no body")

    def elements(self, sources: Sequence[np.ndarray]) -> np.ndarray:
        """Compute the elements of ``dst`` before they are rounded."""
        like = sources[0]
        values = [value if value.shape == like.shape else per_row(value, like) for value in sources]
        if self.counts:
            values.append(np.arange(like[0].size, dtype=np.float32).reshape(1, *like.shape[1:]))
        return np.asarray(self.body(ArrayScalars(FLOAT32), *values), np.float32)

    def reference(self, accumulator: np.ndarray, *sources: np.ndarray) -> Results:
        return self.results(self.elements(sources), accumulator)

    def after(self, s: ScalarFunctions[V], registers: V) -> V:
        """Return the value of ``reduce_res``, computed from the registers."""
        return registers

    def lower(self, b: LoweringBuilder) -> None:
        b.accumulation(self)

    def results(self, value: np.ndarray, before: np.ndarray) -> tuple[np.ndarray, ...]:
        after = accumulated(self.reduce_cmd, self.reduce_op, before, value, sums_integers(self))
        if self.reduce_res is None:
            return value, after
        return value, after, np.asarray(self.after(ArrayScalars(FLOAT32), after)).reshape(self.reduce_res.shape)

    def verify_accumulator(self, check: Check) -> None:
        check.one_of("reduce_cmd", COMMANDS)
        check.one_of("reduce_op", ARITHMETIC_REDUCTIONS)
        check.dtype("accumulator", FLOAT32)
        check.on_chip("reduce_res")
        check.per_partition("accumulator", "reduce_res")


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
        verify_sum(self, check, binds_current=True)

    def body(self, s: ScalarFunctions[V], *sources: V) -> V:
        return ActivationOp.body(self, s, *sources)                 # type: ignore[arg-type]


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
    chooses = True
    law = "select"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "predicate", "on_true", "on_false")
        check.same_shape("dst", "predicate", "on_true")
        check.per_partition("on_false")
        check.one_of("reduce_op", ("maximum",))
        not_all_in_psum(self, check, "on_true", "predicate")
        self.verify_accumulator(check)
        if self.reduce_res is not None:
            check.rule(self.reduce_res.dtype.is_float,
                       f"reduce_res must have a float type, got {self.reduce_res.dtype}",
                       "create reduce_res with dtype=nl.float32")

    def verify_target(self, check: TargetCheck) -> None:
        check.dtypes("predicate", INT8, UINT8, INT16, UINT16, BOOL)
        check.rule(self.on_true.dtype not in (TFLOAT32, INT32, UINT32),
                   f"selects floats and integers of 8 and 16 bits, got {self.on_true.dtype} as on_true",
                   "convert on_true first")

    def body(self, s: ScalarFunctions[V], *sources: V) -> V:
        predicate, on_true, *on_false = sources
        other = on_false[0] if on_false else s.constant(self.imm)
        pair = (other, on_true) if self.reverse_pred else (on_true, other)
        return s.alu("select", predicate, *pair)


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
    rows_apart = False                  # it computes with the positions of elements
    counts = True
    chooses = True
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
        check.per_partition("bound0", "bound1")
        self.verify_accumulator(check)

    def verify_target(self, check: TargetCheck) -> None:
        check.rule(self.src.dtype.is_float, f"selects floats, got {self.src.dtype}", "convert the tile first")
        limit = abs(self.base) + self.src.free_elements
        check.rule(limit < EXACT, f"counts elements up to {limit:g}, beyond 2**24, which float32 cannot distinguish",
                   "compare parts of the range, each with a smaller range_start")
        check.rule(np.float32(self.fill) == np.float32(LOWEST),
                   f"writes {LOWEST:g} outside of the range, got {self.fill:g}", "leave on_false_value out",
                   uncertain=True)

    def body(self, s: ScalarFunctions[V], *sources: V) -> V:
        src, bound0, bound1, index = sources
        column = s.alu("add", s.constant(self.base), index)
        inside = s.alu("multiply", s.alu(self.comp0, column, bound0), s.alu(self.comp1, column, bound1))
        return s.alu("select", inside, src, s.constant(self.fill))


class Activate2Op(Accumulating, name="activate2", engines=(Engine.SCALAR,), mnemonic="ACTIVATE2", opcode=0x74,
                  since=4):
    """dst = fn((src op0 operand0) op1 operand1); ``fn`` may be prelu, whose slope is ``slope`` or the constant
    ``alpha``."""

    src: In
    operand0: In | None
    operand1: In | None
    slope: In | None
    fn: str
    op0: str
    op1: str
    imm0: float = 0.0
    imm1: float = 0.0
    alpha: float = 0.0
    reverse0: bool = False
    reverse1: bool = False
    reduce_cmd: str = "idle"
    reduce_op: str = "add"
    law = "activation"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src", "operand0", "operand1", "slope")
        check.same_shape("dst", "src")
        check.per_partition("operand0", "operand1", "slope")
        check.one_of("fn", ("prelu", *ACTIVATIONS))
        check.rule((self.op0, self.op1) in PAIRS, "takes multiply with add or subtract, or one operation and bypass, "
                                                  f"got {self.op0} and {self.op1}",
                   "leave op1 out, or compute with two instructions")
        self.verify_accumulator(check)
        check.one_of("reduce_op", ("add", "maximum", "minimum", "abs_max", "abs_min"))

    def body(self, s: ScalarFunctions[V], *sources: V) -> V:
        value, *tiles = sources
        operands = iter(tiles)
        for op, tile, number, reverse in ((self.op0, self.operand0, self.imm0, self.reverse0),
                                          (self.op1, self.operand1, self.imm1, self.reverse1)):
            operand = next(operands) if tile is not None else s.constant(number)
            value = apply_alu(s, op, value, operand, reverse)
        if self.fn != "prelu":
            return s.activation(self.fn, value)
        slope = next(operands) if self.slope is not None else s.constant(self.alpha)
        is_positive = s.alu("greater_equal", value, s.constant(0.0))
        return s.alu("select", is_positive, value, s.alu("multiply", slope, value))


class ExponentialOp(Accumulating, name="exponential", engines=(Engine.VECTOR,), mnemonic="EXPONENTIAL", opcode=0x75,
                    since=4):
    """dst = exp(src - max); max is ``highest`` [P, 1] or the constant ``imm``; the sum accumulates."""

    src: In
    highest: In | None
    imm: float = 0.0
    reduce_cmd: str = "idle"
    reduce_op: str = "add"
    law = "exponential"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src", "highest")
        check.same_shape("dst", "src")
        check.dtype("highest", FLOAT32)
        check.per_partition("highest")
        check.one_of("reduce_op", ("add",))
        self.verify_accumulator(check)

    def body(self, s: ScalarFunctions[V], *sources: V) -> V:
        src, *highest = sources
        return s.activation("exp", s.alu("subtract", src, highest[0] if highest else s.constant(self.imm)))


class _WithOperand(Accumulating):
    """Family: first src op0 operand0, a [P, 1] tile or the constant ``imm0``; then the class's own computation."""

    src: In
    operand0: In | None

    def verify(self, check: Check) -> None:
        check.alu("op0", 1, 2)
        check.on_chip("dst", "src", "operand0")
        check.same_shape("dst", "src")
        check.per_partition("operand0")
        check.rule(not check.bits(["op0"]), "op0 must be arithmetic", "use nisa.tensor_scalar for bit operations")
        self.verify_accumulator(check)

    def body(self, s: ScalarFunctions[V], *sources: V) -> V:
        src, *operand = sources
        right = operand[0] if operand else s.constant(self.imm0)                # type: ignore[attr-defined]
        return apply_alu(s, self.op0, src, right, getattr(self, "reverse0", False))     # type: ignore[attr-defined]


class TensorScalarAccumulateOp(_WithOperand, name="tensor_scalar_accumulate", engines=(Engine.VECTOR,),
                               mnemonic="TENSOR_SCALAR_ACCUMULATE", opcode=0x76):
    """dst = src op0 operand0; its reduction accumulates and is read into ``reduce_res``, times -1 with ``negate``."""

    op0: str
    reduce_op: str
    reduce_cmd: str
    imm0: float = 0.0
    reverse0: bool = False
    negate: bool = False
    law = "tensor_scalar_reduce"

    def verify_target(self, check: TargetCheck) -> None:
        check.operators(self.op0)
        check.rule(not self.reverse0, "reverse0 is documented as not supported", "swap the operands", uncertain=True)
        check.rule(self.reduce_op in REGISTER_REDUCTIONS,
                   f"reduces by {', '.join(REGISTER_REDUCTIONS)}, got {self.reduce_op}",
                   "reduce with nisa.tensor_reduce")

    def after(self, s: ScalarFunctions[V], registers: V) -> V:
        return s.alu("negative", registers) if self.negate else registers


class TensorScalarCumulativeOp(_WithOperand, name="tensor_scalar_cumulative", engines=(Engine.VECTOR,),
                               mnemonic="TENSOR_SCALAR_CUMULATIVE", opcode=0x77):
    """dst[i] = op1(op0(src[i], operand0), dst[i-1]) along the free axis; dst[-1] and the last one are the registers."""

    op0: str
    op1: str
    imm0: float = 0.0
    reduce_cmd: str = "reset_reduce"
    reduce_op: str = "add"

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.one_of("op1", ROW_REDUCTIONS)
        check.one_of("reduce_cmd", ("reduce", "reset_reduce"))

    def verify_target(self, check: TargetCheck) -> None:
        for label, tile in (("dst", self.dst), ("src", self.src)):
            check.rule(not tile.dtype.is_integer or tile.dtype.itemsize < 4, f"{label} cannot be {tile.dtype}",
                       "use a float, or an integer of 16 bits or fewer")

    @property
    def start(self) -> float:
        """The registers after a reset."""
        return 0.0 if self.op1 == "subtract" else float(ALU[self.op1].identity(FLOAT32) or 0.0)

    def next(self, s: ScalarFunctions[V], carry: V, *sources: V) -> V:
        """Return the element after ``carry``."""
        return s.alu(self.op1, self.body(s, *sources), carry)

    def lower(self, b: LoweringBuilder) -> None:
        b.accumulation(self, scans=True)

    def reference(self, accumulator: np.ndarray, *sources: np.ndarray) -> Results:
        src, p = sources[0], sources[0].shape[0]
        value = self.elements(sources).reshape(p, -1)
        carry = accumulator.reshape(p) if self.reduce_cmd == "reduce" else np.full(p, self.start, np.float32)
        step, scanned = ALU[self.op1].numpy, np.empty(value.shape, np.float32)
        for i in range(value.shape[1]):
            carry = step(value[:, i], carry)
            scanned[:, i] = carry
        after = carry.reshape(accumulator.shape)
        results = (scanned.reshape(src.shape), after)
        return results if self.reduce_res is None else (*results, after.reshape(self.reduce_res.shape))

    def work(self) -> Work:
        """We assume that the engine takes the time of nki.isa.tensor_tensor_scan, one step for each element of
        ``dst``."""
        return Work("scan", self.dst.free_elements)


class TensorTensorScanOp(PartitionWise, name="tensor_tensor_scan", engines=(Engine.VECTOR,),
                         mnemonic="TENSOR_TENSOR_SCAN", opcode=0x50):
    """dst[i] = op1(op0(data0[i], dst[i-1]), data1[i]) along the flattened free axis, from dst[-1] = initial.

    The carry is float32. ``initial`` is a [P, 1] tile or the constant ``imm``; reverse0 and reverse1 swap the operands
    of an operation.
    """

    dst: Out
    data0: In
    data1: In
    initial: In | None
    op0: str
    op1: str
    imm: float = 0.0
    reverse0: bool = False
    reverse1: bool = False
    rows_apart = True
    law = "scan"

    def verify(self, check: Check) -> None:
        check.alu("op0", 2)
        check.alu("op1", 2)
        check.rule(not (check.bits(["op0"]) or check.bits(["op1"])), "op0 and op1 must be arithmetic",
                   "scan with arithmetic operators")
        check.on_chip("dst", "data0", "data1", "initial")
        check.same_shape("dst", "data0", "data1")
        not_all_in_psum(self, check, "data0", "data1")
        check.per_partition("initial")

    def reference(self, data0: np.ndarray, data1: np.ndarray, *initial: np.ndarray) -> np.ndarray:
        p = data0.shape[0]
        first, second = data0.reshape(p, -1), data1.reshape(p, -1)
        carry = initial[0].reshape(p) if initial else np.full(p, self.imm, np.float32)
        scalars, scanned = ArrayScalars(FLOAT32), np.empty(first.shape, np.float32)
        for i in range(first.shape[1]):
            carry = scanned[:, i] = self.next(scalars, carry, first[:, i], second[:, i])
        return scanned.reshape(data0.shape)

    def next(self, s: ScalarFunctions[V], carry: V, first: V, second: V) -> V:
        """Return the value after ``carry``."""
        inner = s.alu(self.op0, *((carry, first) if self.reverse0 else (first, carry)))
        return s.alu(self.op1, *((second, inner) if self.reverse1 else (inner, second)))

    def lower(self, b: LoweringBuilder) -> None:
        b.recurrence(self)

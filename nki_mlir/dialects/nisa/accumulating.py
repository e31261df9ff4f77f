# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Newer instructions that run the accumulation registers: activate2, exponential, cumulative tensor_scalar."""


import numpy as np

from nki_mlir.dialects.nisa.elementwise import apply_alu
from nki_mlir.dialects.nisa.selection import Accumulating
from nki_mlir.dialects.op import ArrayScalars, In, Results
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Work
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32

PAIRS = (("multiply", "add"), ("multiply", "subtract"), ("multiply", "bypass"), ("add", "bypass"),
         ("subtract", "bypass"),
         ("bypass", "bypass"))


def per_row(value: np.ndarray, like: np.ndarray) -> np.ndarray:
    """One value a partition, to compute with a tile."""
    return value.reshape(-1, *(1,) * (like.ndim - 1))


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
        check.per_partition("dst", "operand0", "operand1", "slope")
        check.one_of("fn", ("prelu", *ACTIVATIONS))
        check.rule((self.op0, self.op1) in PAIRS, "takes multiply with add or subtract, or one operation and bypass, "
                                                  f"got {self.op0} and {self.op1}",
                   "leave op1 out, or compute with two instructions")
        self.verify_accumulator(check)
        check.one_of("reduce_op", ("add", "maximum", "minimum", "abs_max", "abs_min"))

    def reference(self, accumulator: np.ndarray, src: np.ndarray, *tiles: np.ndarray) -> Results:
        given = iter(tiles)
        s = ArrayScalars(FLOAT32)
        value = src
        for op, tile, number, reverse in ((self.op0, self.operand0, self.imm0, self.reverse0),
                                          (self.op1, self.operand1, self.imm1, self.reverse1)):
            operand = per_row(next(given), src) if tile is not None else np.float32(number)
            value = apply_alu(s, op, value, operand, reverse)
        if self.fn == "prelu":
            slope = per_row(next(given), src) if self.slope is not None else np.float32(self.alpha)
            value = np.where(value >= 0, value, slope * value)
        else:
            value = s.activation(self.fn, np.asarray(value))
        return self.results(value, accumulator)


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
        check.per_partition("dst", "highest")
        check.one_of("reduce_op", ("add",))
        self.verify_accumulator(check)

    def reference(self, accumulator: np.ndarray, src: np.ndarray, *highest: np.ndarray) -> Results:
        limit = per_row(highest[0], src) if highest else np.float32(self.imm)
        return self.results(ACTIVATIONS["exp"].numpy(src - limit), accumulator)


class _WithOperand(Accumulating):
    """Family: first src op0 operand0, a [P, 1] tile or the constant ``imm0``; then what the class adds."""

    src: In
    operand0: In | None

    def verify(self, check: Check) -> None:
        check.alu("op0", 1, 2)
        check.on_chip("dst", "src", "operand0")
        check.same_shape("dst", "src")
        check.per_partition("dst", "operand0")
        check.rule(not check.bits(["op0"]), "op0 must be arithmetic", "use nisa.tensor_scalar for bit operations")
        self.verify_accumulator(check)

    def with_operand(self, src: np.ndarray, operand: tuple[np.ndarray, ...], reverse: bool = False) -> np.ndarray:
        """src op0 operand0, or the other way round."""
        right = per_row(operand[0], src) if operand else np.float32(self.imm0)          # type: ignore[attr-defined]
        return np.asarray(apply_alu(ArrayScalars(FLOAT32), self.op0, src, right, reverse))  # type: ignore[attr-defined]


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
        check.rule(not self.reverse0, "reverse0 is documented as not supported", "swap the operands", contested=True)

    def reference(self, accumulator: np.ndarray, src: np.ndarray, *operand: np.ndarray) -> Results:
        value = self.with_operand(src, operand, self.reverse0)
        made = self.results(value, accumulator)
        return (*made[:2], -made[2]) if self.negate and len(made) == 3 else made


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
        check.one_of("op1", ("add", "subtract", "multiply", "maximum", "minimum"))
        check.one_of("reduce_cmd", ("reduce", "reset_reduce"))

    def reference(self, accumulator: np.ndarray, src: np.ndarray, *operand: np.ndarray) -> Results:
        p = src.shape[0]
        value = self.with_operand(src, operand).reshape(p, -1)
        start = 0.0 if self.op1 == "subtract" else float(ALU[self.op1].identity(FLOAT32) or 0.0)
        carry = accumulator.reshape(p) if self.reduce_cmd == "reduce" else np.full(p, start, np.float32)
        step, made = ALU[self.op1].numpy, np.empty(value.shape, np.float32)
        for i in range(value.shape[1]):
            carry = step(value[:, i], carry)
            made[:, i] = carry
        after = carry.reshape(accumulator.shape)
        results = (made.reshape(src.shape), after)
        return (*results, after) if self.reduce_res is not None else results

    def work(self) -> Work:
        # An assumption: as nki.isa.tensor_tensor_scan, which has one step an element, too.
        return Work("scan", self.dst.free_elements)

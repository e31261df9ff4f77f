# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reducing engine instructions: tensor_reduce, activation_reduce, tensor_scalar_reduce, tensor_partition_reduce."""


from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.dialects.nisa.elementwise import ActivationOp, TensorScalarOp
from nki_mlir.dialects.nki.reduction import REDUCTIONS, Reducing, reduce_keeping, sums_integers
from nki_mlir.dialects.op import Elementwise, In, Iteration, LoweringBuilder, NisaOp, Out
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.variants import of_dtype
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Work
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, DType

if TYPE_CHECKING:
    from nki_mlir.dialects.nisa.selection import Accumulating

VECTOR, SCALAR, GPSIMD = Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD
ROW_REDUCTIONS = ("add", "subtract", "multiply", "maximum", "minimum")
ARITHMETIC_REDUCTIONS = [name for name in REDUCTIONS if ALU[name].group != "bitwise"]


class TensorReduceOp(NisaOp, Reducing, name="tensor_reduce", engines=(VECTOR, GPSIMD), mnemonic="TENSOR_REDUCE",
                     opcode=0x20):
    """dst = src reduced by ``op`` over free ``axes`` (extent 1 in dst), times -1 with ``negate``."""

    negate: bool = False

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.rule(not (self.negate and ALU[self.op].group == "bitwise"), "negate is for arithmetic reductions",
                   "leave negate out")

    def reference(self, src: np.ndarray) -> np.ndarray:
        value = reduce_keeping(self.op, src, self.axes, sums_integers(self))
        return -value if self.negate else value

    def lower(self, b: LoweringBuilder) -> None:
        b.reduction(self, self.op, negate=self.negate)

    def work(self) -> Work:
        fast = self.op in ("add", "maximum")
        return Work(f"tensor_reduce{of_dtype(self.dst, self.src) if fast else ''}", self.src.free_elements)


class TensorPartitionReduceOp(NisaOp, name="tensor_partition_reduce", engines=(GPSIMD,),
                              mnemonic="REDUCE_CROSS_LANE", opcode=0x21):
    """dst[0, f...] = src reduced over its partitions."""

    dst: Out
    src: In
    op: str

    def verify(self, check: Check) -> None:
        check.one_of("op", ("add", "maximum", "bitwise_or", "bitwise_and"))
        check.on_chip("dst", "src")
        check.shape("dst", (1, *self.src.shape[1:]))
        check.bits(["op"], "src")

    @property
    def compute(self) -> DType:
        return self.src.dtype if ALU[self.op].group == "bitwise" else FLOAT32

    def iteration(self) -> Iteration:
        every = tuple(range(len(self.src.shape)))
        return Iteration(self.src.shape, {"dst": every, "src": every}, frozenset({0}))

    def reference(self, src: np.ndarray) -> np.ndarray:
        return reduce_keeping(self.op, src, (0,), sums_integers(self))

    def lower(self, b: LoweringBuilder) -> None:
        b.reduction(self, self.op)

    def work(self) -> Work:
        return Work("across_partitions", self.src.partitions * self.src.free_elements)


class WithRowReduction(NisaOp, Elementwise):
    """Family: an elementwise instruction that also reduces its result over all free axes into ``reduce_res`` [P, 1]."""

    dst: Out
    reduce_res: Out
    src: In
    if TYPE_CHECKING:           # subclasses declare it, in its place
        reduce_op: str

    def iteration(self) -> Iteration:
        return replace(super().iteration(), reduced=frozenset(range(1, len(self.dst.shape))))

    def reference(self, *sources: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value = np.asarray(super().reference(*sources))
        return value, reduce_keeping(self.reduce_op, value, tuple(range(1, value.ndim)), sums_integers(self))

    def lower(self, b: LoweringBuilder) -> None:
        b.elementwise_with_rows(self, self.reduce_op)

    def verify_rows(self, check: Check) -> None:
        check.one_of("reduce_op", ARITHMETIC_REDUCTIONS)
        check.on_chip("reduce_res")
        shape = self.dst.shape
        check.shape("reduce_res", (shape[0], *(1 for _ in shape[1:])))


def verify_sum(op: "WithRowReduction | Accumulating", check: TargetCheck) -> None:
    """The Scalar engine's registers add; the documents of ``activation_reduce`` restrict only generation 2 to that."""
    ActivationOp.verify_target(op, check)                           # type: ignore[arg-type]
    if op.reduce_op != "add":
        what = f"'{op.name}' with reduce_op '{op.reduce_op}'"
        check.need(3, what, "reduce with nisa.tensor_reduce")
        if check.machine.generation >= 3:
            check.rule(False, f"reduces by {op.reduce_op}; an activation is documented to reduce by nl.add only",
                       "reduce with nisa.tensor_reduce", contested=True)


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

    def verify_target(self, check: TargetCheck) -> None:
        verify_sum(self, check)

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
        check.alike("dst", "src", "operand0")
        check.rule(not check.bits(["op0"]), "op0 must be arithmetic", "use nisa.tensor_scalar for bit operations")
        self.verify_rows(check)

    def verify_target(self, check: TargetCheck) -> None:
        check.one_a_row("operand0")
        check.operators(self.op0)
        check.rule(not self.reverse0, "reverse0 is documented as not supported", "swap the operands", contested=True)
        check.rule(self.reduce_op in ROW_REDUCTIONS, f"reduces by {', '.join(ROW_REDUCTIONS)}, got {self.reduce_op}",
                   "reduce with nisa.tensor_reduce")

    operand1, op1, imm1, reverse1 = None, "bypass", 0.0, False      # what TensorScalarOp.body also reads
    body = TensorScalarOp.body          # type: ignore[assignment]

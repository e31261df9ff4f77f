# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The scan instruction: a recurrence along the free axis."""


import numpy as np

from nki_mlir.dialects.nisa.elementwise import not_all_in_psum
from nki_mlir.dialects.nisa.partitionwise import PartitionWise
from nki_mlir.dialects.op import ArrayScalars, In, LoweringBuilder, Out, ScalarFunctions, V
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine
from nki_mlir.scalar.dtypes import FLOAT32


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
        check.per_partition("dst", "initial")

    def reference(self, data0: np.ndarray, data1: np.ndarray, *initial: np.ndarray) -> np.ndarray:
        p = data0.shape[0]
        first, second = data0.reshape(p, -1), data1.reshape(p, -1)
        carry = initial[0].reshape(p) if initial else np.full(p, self.imm, np.float32)
        scalars, made = ArrayScalars(FLOAT32), np.empty(first.shape, np.float32)
        for i in range(first.shape[1]):
            carry = made[:, i] = self.next(scalars, carry, first[:, i], second[:, i])
        return made.reshape(data0.shape)

    def next(self, s: ScalarFunctions[V], carry: V, first: V, second: V) -> V:
        """The value after ``carry``."""
        inner = s.alu(self.op0, *((carry, first) if self.reverse0 else (first, carry)))
        return s.alu(self.op1, *((second, inner) if self.reverse1 else (inner, second)))

    def lower(self, b: LoweringBuilder) -> None:
        b.recurrence(self)

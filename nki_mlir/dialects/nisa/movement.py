# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Data movement instructions: tensor_copy, memset, iota, dma_copy, and sums that DMA engines compute on the way."""


from nki_mlir.dialects.access import HBM, SBUF
from nki_mlir.dialects.nki.movement import Copying, Counting, Filling
from nki_mlir.dialects.op import Elementwise, In, NisaOp, Out, ScalarFunctions, V
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.variants import of_tiles
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Work
from nki_mlir.scalar.dtypes import FLOAT32, TFLOAT32, DType

VECTOR, SCALAR, GPSIMD, SYNC = Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, Engine.SYNC


class TensorCopyOp(NisaOp, Copying, name="tensor_copy", engines=(VECTOR, SCALAR, GPSIMD), mnemonic="COPY",
                   opcode=0x40):
    """dst = src on chip, converted on write. The scalar engine goes through float32, the others keep equal bits."""

    def verify(self, check: Check) -> None:
        check.alike("dst", "src")
        if self.runs_on is GPSIMD:
            check.all_in(("sbuf",), "dst", "src")

    def verify_target(self, check: TargetCheck) -> None:
        if self.engine == SCALAR.value:         # newer documents take it from generation 2, older ones have it there
            check.need(3, "'tensor_copy' on the scalar engine", "use nisa.activation(op=nl.copy)", settled=True)

    @property
    def compute(self) -> DType | None:
        return FLOAT32 if self.runs_on is SCALAR else None

    def same_on(self, engine: Engine) -> bool:
        return super().same_on(engine) or (self.src.dtype.is_float and self.src.dtype is not TFLOAT32)

    def work(self) -> Work:
        return Work(f"tensor_copy{of_tiles(self.dst, self.src)}", self.dst.free_elements)


class MemsetOp(NisaOp, Filling, name="memset", engines=(VECTOR, GPSIMD), mnemonic="MEMSET", opcode=0x41):
    """dst = value, converted to dst's dtype."""

    def verify(self, check: Check) -> None:
        super().verify(check)
        if self.runs_on is GPSIMD:
            check.spaces("dst", "sbuf")

    def work(self) -> Work:
        fast = self.value == 0 or self.dst.dtype.bits == 16
        return Work("memset.fast" if fast else "memset", self.dst.free_elements)


class IotaOp(NisaOp, Counting, name="iota", engines=(GPSIMD,), mnemonic="IOTA", opcode=0x42):
    """dst[i] = expression(i), affine over dst's axes and the op's symbols, in int32."""

    law = "iota"


class DmaCopyOp(NisaOp, Copying, name="dma_copy", engines=(SYNC, SCALAR, GPSIMD), mnemonic="DMA", opcode=0x43):
    """dst = src between HBM and SBUF, either way or within one, converted on the way. No partition rules."""

    destinations = (SBUF,)

    def verify(self, check: Check) -> None:
        check.all_in(("hbm", "sbuf"), "dst", "src")
        check.same_shape("dst", "src")


class DmaComputeOp(NisaOp, Elementwise, name="dma_compute", engines=(Engine.SYNC, Engine.GPSIMD),
                   mnemonic="DMA_COMPUTE",
                   opcode=0x7D):
    """dst = lhs + rhs in float32, between HBM and SBUF either way."""

    dst: Out
    lhs: In
    rhs: In
    destinations = (SBUF,)

    def verify(self, check: Check) -> None:
        check.all_in((HBM, SBUF), "dst", "lhs", "rhs")
        check.same_shape("dst", "lhs", "rhs")

    def body(self, s: ScalarFunctions[V], lhs: V, rhs: V) -> V:
        return s.alu("add", lhs, rhs)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums computed by the DMA engines while they move data."""


from nki_mlir.dialects.access import HBM, SBUF
from nki_mlir.dialects.op import Elementwise, In, NisaOp, Out, ScalarFunctions, V
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine


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

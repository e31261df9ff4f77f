# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random bits as integers, from the same counted generator as random numbers."""


import numpy as np

from nki_mlir.dialects.nisa.partitionwise import PartitionWise
from nki_mlir.dialects.nisa.random import check_state
from nki_mlir.dialects.op import InOut, Out
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine
from nki_mlir.scalar.dtypes import BOOL


class RandomBitsOp(PartitionWise, name="rng", engines=(Engine.VECTOR, Engine.GPSIMD), mnemonic="RANDOM_BITS",
                   opcode=0x7C):
    """dst = 32 random bits an element, cut to the integer type's."""

    dst: Out
    state: InOut
    keeps_bits = True
    law = "random"

    def verify(self, check: Check) -> None:
        check.on_chip("dst")
        check.integers("dst")
        if self.runs_on is Engine.GPSIMD:
            check.spaces("dst", "sbuf")
        check_state(self, check)

    def verify_target(self, check: TargetCheck) -> None:
        if self.runs_on is Engine.GPSIMD:
            check.need(3, "'rng' on the gpsimd engine", "use the vector engine")

    def reference(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        seed, count = (int(v) for v in state.reshape(-1))
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, count], np.uint64)))
        bits = generator.integers(0, 1 << 32, self.dst.shape, np.uint64).astype(np.uint32)
        after = np.array([seed, (count + 1) & 0xFFFFFFFF], np.uint32).reshape(state.shape)
        size = self.dst.dtype.itemsize
        if self.dst.dtype is BOOL:
            return (bits & 1).astype(np.bool_), after
        return bits.astype(f"u{size}").view(self.dst.dtype.numpy), after

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random numbers: the generator's state is an operand, so that the same seed gives the same sequence on every path.

A state (seed, count) [1, 2] gives the Philox stream of that seed and count; each use increments the count.
"""


import numpy as np

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.nisa.opaque import PartitionWise
from nki_mlir.dialects.op import In, InOut, Out
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Work
from nki_mlir.scalar.dtypes import BOOL, FLOAT32, UINT32


def drawn(state: np.ndarray) -> "tuple[np.random.Generator, np.ndarray]":
    """Return (the generator of a state, the next state)."""
    seed, count = (int(v) for v in state.reshape(-1))
    generator = np.random.Generator(np.random.Philox(key=np.array([seed, count], np.uint64)))
    after = np.array([seed, (count + 1) & 0xFFFFFFFF], np.uint32).reshape(state.shape)
    return generator, after


class WithState(PartitionWise):
    """Base of operations that use a generator."""

    keeps_bits = True

    def verify(self, check: Check) -> None:
        check.dtype("state", UINT32)
        check.shape("state", (1, 2))


class Drawing(WithState):
    """Base of operations that draw numbers for each element of ``dst``."""

    dst: Out
    state: InOut
    law = "random"

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.on_chip("dst")


class RandomSeedOp(WithState, name="random_seed", engines=(Engine.VECTOR,), mnemonic="RNG_SEED", opcode=0x68):
    """state = (seed, 0)."""

    state: Out
    seed: In

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.rule(self.seed.free_elements == 1 and self.seed.partitions == 1,
                   f"the seed must be a single value, got {list(self.seed.shape)}",
                   "give it the shape [1, 1]")

    def reference(self, seed: np.ndarray) -> np.ndarray:
        value = int(seed.reshape(-1)[0]) & 0xFFFFFFFF
        return np.array([[value, 0]], np.uint32)

    def work(self) -> Work:
        """The engine takes the fixed part of the law ``random``, whatever the number of elements."""
        return Work("random", 0)


class RandOp(Drawing, name="rand", engines=(Engine.VECTOR,), mnemonic="RNG", opcode=0x69):
    """dst = uniform numbers in [0, 1)."""

    law = "random.numbers"

    def reference(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        generator, after = drawn(state)
        return generator.random(self.dst.shape, np.float32), after


class BadProbability(KernelError, ValueError):
    code = "NKI-PROBABILITY"
    message = "the probability of dropout must be from 0 to 1, got {found}"
    fix = "use a number from 0 to 1"


class DropoutOp(Drawing, name="dropout", engines=(Engine.VECTOR,), mnemonic="DROPOUT", opcode=0x6A):
    """dst = src, set to zero with probability ``prob`` ([P, 1], or the constant ``imm``); nothing is rescaled."""

    table = "state"
    src: In
    prob: In | None
    imm: float = 0.0

    @property
    def is_certain(self) -> bool:
        """Whether the operation drops no element or all elements, whatever the state is."""
        return self.prob is None and self.imm in (0, 1)

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.on_chip("src", "prob")
        if not 0 <= self.imm <= 1:
            raise BadProbability(found=self.imm)
        check.same_shape("dst", "src")
        check.per_partition("prob")

    def verify_target(self, check: TargetCheck) -> None:
        if self.src.dtype.is_integer:
            check.dtypes("prob", FLOAT32)
            check.dtypes("dst", self.src.dtype)

    def reference(self, state: np.ndarray, src: np.ndarray, *prob: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        generator, after = drawn(state)
        uniform = generator.random(src.shape, np.float32)
        limit = (prob[0].astype(np.float32).reshape(-1, *(1,) * (src.ndim - 1)) if prob else np.float32(self.imm))
        return np.where(uniform < limit, np.zeros((), src.dtype), src), after


class RandomBitsOp(Drawing, name="rng", engines=(Engine.VECTOR, Engine.GPSIMD), mnemonic="RANDOM_BITS",
                   opcode=0x7C):
    """dst = random bits: each element gets the low bits of a random 32-bit number."""

    law = "random.numbers"

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.integers("dst")
        if self.runs_on is Engine.GPSIMD:
            check.spaces("dst", "sbuf")

    def verify_target(self, check: TargetCheck) -> None:
        if self.runs_on is Engine.GPSIMD:
            check.need(3, "'rng' on the gpsimd engine", "use the vector engine")

    def reference(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        generator, after = drawn(state)
        bits = generator.integers(0, 1 << 32, self.dst.shape, np.uint64).astype(np.uint32)
        size = self.dst.dtype.itemsize
        if self.dst.dtype is BOOL:
            return (bits & 1).astype(np.bool_), after
        return bits.astype(f"u{size}").view(self.dst.dtype.numpy), after

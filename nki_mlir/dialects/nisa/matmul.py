# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensor-engine instructions: nc_matmul and nc_transpose."""

from typing import Any

import numpy as np

from nki_mlir.dialects.nki.matmul import Product
from nki_mlir.dialects.op import In, Iteration, NisaOp, Out
from nki_mlir.machine import Engine, Machine
from nki_mlir.scalar.dtypes import FLOAT32, DType


class NcMatmulOp(NisaOp, Product, name="nc_matmul", engines=(Engine.TENSOR,), mnemonic="MATMUL", opcode=0x30):
    """dst[m, n] = sum over k of stationary[k, m] * moving[k, n] (PSUM, float32), added to dst with ``accumulate``."""

    accumulate: bool = False

    def cycles(self, machine: Machine) -> float:
        passes = 4 if self.moving.dtype is FLOAT32 else 1
        return passes * max(min(64, self.stationary.free_elements), self.moving.free_elements)


class NcTransposeOp(NisaOp, name="nc_transpose", engines=(Engine.TENSOR, Engine.VECTOR), mnemonic="TRANSPOSE",
                    opcode=0x31):
    """dst[f, p] = src[p, f]. On the tensor engine SBUF to PSUM, up to 128 x 128; on the vector engine up to 32 x 32."""

    dst: Out
    src: In
    destinations = ()           # only where it was put: which memory depends on the engine

    def verify(self, check: Any) -> None:
        check.on_chip("dst", "src")
        check.rule(len(self.src.shape) == 2, f"transposes 2-D tiles, got {list(self.src.shape)}")
        limit = 32 if self.runs_on is Engine.VECTOR else 128
        check.at_most("src", 0, self.src.shape[0], limit)
        check.at_most("src", 1, self.src.shape[1], limit)
        check.shape("dst", self.src.shape[::-1])
        if self.runs_on is Engine.TENSOR:
            check.spaces("src", "sbuf")
            check.spaces("dst", "psum")

    @property
    def runs_on(self) -> Engine:
        if self.engine != "unknown":
            return Engine(self.engine)
        return Engine.VECTOR if max(self.src.shape) <= 32 else Engine.TENSOR

    @property
    def compute(self) -> DType | None:
        return None

    def iteration(self) -> Iteration:
        return Iteration(self.src.shape, {"dst": (1, 0), "src": (0, 1)})

    def reference(self, src: np.ndarray) -> np.ndarray:
        return src.T

    def lower(self, b: Any) -> None:
        b.elementwise(self)

    def body(self, s: Any, src: Any) -> Any:
        return src

    def cycles(self, machine: Machine) -> float:
        p, f = self.src.shape
        if self.runs_on is Engine.TENSOR:
            return max(p, min(64, f))
        return max(machine.minimum_interval_cycles, f)

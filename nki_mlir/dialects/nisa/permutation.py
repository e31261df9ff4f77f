# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tensor engine in transpose mode: it moves elements without computing with them."""


import numpy as np

from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.dialects.op import In, Iteration, NisaOp, Out
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Machine, Work
from nki_mlir.scalar.conversion import convert
from nki_mlir.scalar.dtypes import FLOAT32


class MatmulTransposeOp(NisaOp, name="nc_matmul_transpose", engines=(Engine.TENSOR,), mnemonic="MATMUL_TRANSPOSE",
                        opcode=0x32):
    """dst[m, n] = stationary[k, m] for the k where moving[k, n] is 1: bits are moved, infinities and NaN too.

    ``moving`` is an identity or another matrix with one 1 in each column; for any other it is the matrix product.
    """

    dst: Out
    stationary: In
    moving: In
    destinations = (PSUM,)
    is_loop_nest = False
    keeps_bits = True

    def verify(self, check: Check) -> None:
        check.spaces("dst", PSUM)
        check.all_in((SBUF,), "stationary", "moving")
        check.rule(self.stationary.shape[0] == self.moving.shape[0], "contracts axis 0 of both operands")
        check.at_most("stationary", 1, self.stationary.free_elements, Machine.stationary_free_max)
        check.shape("dst", (self.stationary.free_elements, self.moving.free_elements))

    def iteration(self) -> Iteration:
        k, m, n = self.stationary.shape[0], self.stationary.free_elements, self.moving.free_elements
        return Iteration((k, m, n), {"dst": (1, 2), "stationary": (0, 1), "moving": (0, 2)}, frozenset({0}))

    def reference(self, stationary: np.ndarray, moving: np.ndarray) -> np.ndarray:
        k = moving.shape[0]
        data, picks = stationary.reshape(k, -1), convert(moving, FLOAT32, self.moving.dtype).reshape(k, -1)
        chosen = picks != 0
        if (chosen.sum(0) == 1).all() and (picks[chosen] == 1).all():
            return data[chosen.argmax(0)].T
        return convert(data, FLOAT32, self.stationary.dtype).T @ picks

    def work(self) -> Work:
        return Work(f"product.{self.moving.dtype}", self.moving.free_elements)

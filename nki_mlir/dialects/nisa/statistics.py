# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batch-norm statistics: bn_stats of a piece, bn_aggr of pieces."""


import numpy as np

from nki_mlir.dialects.nisa.partitionwise import PartitionWise
from nki_mlir.dialects.op import In, Out
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Machine, Work


class BnStatsOp(PartitionWise, name="bn_stats", engines=(Engine.VECTOR,), mnemonic="BN_STATS", opcode=0x51):
    """dst[p] = (count, mean, variance * count) of the even elements of src[p], then of the odd ones."""

    dst: Out
    src: In
    rows_apart = True

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        check.at_most("src", 1, self.src.free_elements, Machine.bn_stats_max)
        check.shape("dst", (self.src.shape[0], 6))

    def reference(self, src: np.ndarray) -> np.ndarray:
        p = src.shape[0]
        flat = src.reshape(p, -1)
        parts = []
        for values in (flat[:, ::2], flat[:, 1::2]):
            n = values.shape[1]
            mean = values.sum(1, dtype=np.float32) / np.float32(max(n, 1))
            spread = ((values - mean[:, None]) ** 2).sum(1, dtype=np.float32)
            parts += [np.full(p, n, np.float32), mean, spread]
        return np.stack(parts, 1)

    def work(self) -> Work:
        return Work("bn_stats", self.src.free_elements)


class BnAggrOp(PartitionWise, name="bn_aggr", engines=(Engine.VECTOR,), mnemonic="BN_AGGR", opcode=0x52):
    """dst[p] = (mean, variance) of groups given as (count, mean, variance * count) triples in src[p]."""

    dst: Out
    src: In
    rows_apart = True

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        check.rule(self.src.free_elements % 3 == 0, f"takes triples, got {self.src.free_elements} values a partition")
        check.shape("dst", (self.src.shape[0], 2))

    def reference(self, src: np.ndarray) -> np.ndarray:
        triples = src.reshape(src.shape[0], -1, 3).astype(np.float64)
        counts, means, spreads = triples[..., 0], triples[..., 1], triples[..., 2]
        total = np.maximum(counts.sum(1), 1e-30)
        mean = (counts * means).sum(1) / total
        variance = (spreads.sum(1) + (counts * (means - mean[:, None]) ** 2).sum(1)) / total
        return np.stack([mean, variance], 1).astype(np.float32)

    def work(self) -> Work:
        return Work("bn_aggr", self.src.free_elements)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batch-norm statistics: bn_stats of a piece, bn_aggr of pieces."""

from dataclasses import replace

import numpy as np

from nki_mlir.dialects.access import Linear, Tile
from nki_mlir.dialects.nisa.partitionwise import PartitionWise
from nki_mlir.dialects.op import In, LoweringBuilder, Out, ScalarFunctions, V
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Machine


def every(tile: Tile, n: int) -> list[Tile] | None:
    """The elements 0, n, 2n ... of each partition, then 1, n + 1 ...; None where no patterns describe them."""
    *outer, (step, count) = tile.access.dims
    if len(outer) > 1 and count % n:
        return None
    parts = []
    for k in range(n):
        access = tile.access.moved(len(outer), Linear(k))
        parts.append(replace(tile, access=replace(access, dims=(*outer, (n * step, -(-(count - k) // n))))))
    return parts


def squared_distance(s: ScalarFunctions[V], x: V, mean: V) -> V:
    distance = s.alu("subtract", x, mean)
    return s.alu("multiply", distance, distance)


class BnStatsOp(PartitionWise, name="bn_stats", engines=(Engine.VECTOR,), mnemonic="BN_STATS", opcode=0x51):
    """dst[p] = (count, mean, variance * count) of the even elements of src[p], then of the odd ones."""

    dst: Out
    src: In
    rows_apart = True
    statistic = "dst"
    law, walked = "bn_stats", "src"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        check.at_most("src", 1, self.src.free_elements, Machine.bn_stats_max)
        check.shape("dst", (self.src.shape[0], 6))

    @np.errstate(all="ignore")
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

    def lower(self, b: LoweringBuilder) -> None:
        rows, parts = b.rows(self), every(self.src, 2)
        if rows is None or parts is None:
            b.keep(self)
            return
        numbers = [part.free_elements for part in parts]        # what is done of both parts stands together
        counts = [rows.constant(n) for n in numbers]
        totals = [rows.sum(lambda s, x: x, [part]) if n else count for part, n, count in zip(parts, numbers, counts)]
        means = [rows.each(lambda s, x, n=max(n, 1): s.alu("divide", x, s.constant(n)), total)
                 for n, total in zip(numbers, totals)]
        spreads = [rows.sum(squared_distance, [part], mean) if n else count
                   for part, n, count, mean in zip(parts, numbers, counts, means)]
        rows.write(self.dst, [column for columns in zip(counts, means, spreads) for column in columns])


class BnAggrOp(PartitionWise, name="bn_aggr", engines=(Engine.VECTOR,), mnemonic="BN_AGGR", opcode=0x52):
    """dst[p] = (mean, variance) of groups given as (count, mean, variance * count) triples in src[p]."""

    dst: Out
    src: In
    rows_apart = True
    statistic = "dst"
    law, walked = "bn_aggr", "src"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        check.rule(self.src.free_elements % 3 == 0, f"takes triples, got {self.src.free_elements} values a partition",
                   "give it results of nisa.bn_stats")
        check.shape("dst", (self.src.shape[0], 2))

    @np.errstate(all="ignore")
    def reference(self, src: np.ndarray) -> np.ndarray:
        counts, means, spreads = np.moveaxis(src.reshape(src.shape[0], -1, 3), 2, 0)
        total = np.maximum(counts.sum(1), np.float32(1e-30))
        mean = (counts * means).sum(1) / total
        variance = (spreads + counts * (means - mean[:, None]) ** 2).sum(1) / total
        return np.stack([mean, variance], 1)

    def lower(self, b: LoweringBuilder) -> None:
        rows, parts = b.rows(self), every(self.src, 3)
        if rows is None or parts is None:
            b.keep(self)
            return
        counts, means, _ = parts
        total = rows.each(lambda s, n: s.alu("maximum", n, s.constant(1e-30)), rows.sum(lambda s, n: n, [counts]))
        weighted = rows.sum(lambda s, n, mean: s.alu("multiply", n, mean), [counts, means])
        mean = rows.each(lambda s, x, n: s.alu("divide", x, n), weighted, total)

        def spread_of(s: ScalarFunctions[V], n: V, own_mean: V, own: V, mean: V) -> V:
            return s.alu("add", own, s.alu("multiply", n, squared_distance(s, own_mean, mean)))
        spread = rows.sum(spread_of, parts, mean)
        rows.write(self.dst, [mean, rows.each(lambda s, x, n: s.alu("divide", x, n), spread, total)])

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GpSimd instructions on lists: the largest K of a list, and the places of what is not zero."""


import numpy as np

from nki_mlir.dialects.access import SBUF
from nki_mlir.dialects.nisa.partitionwise import PartitionWise
from nki_mlir.dialects.op import In, InOut
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Machine, Work
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, INT32, UINT32

GROUP = Machine.gpsimd_group


class TopkOp(PartitionWise, name="topk", engines=(Engine.GPSIMD,), mnemonic="TOPK", opcode=0x7A, since=3):
    """The largest values of ``n``-element lists, ascending, and their indices.

    16 partitions hold one list: element i is in partition i % 16, column i // 16. The K-th results are laid out alike;
    K is what the result tiles hold in one partition. Other elements of the results stay.
    """

    values: InOut
    indices: InOut
    src: In
    n: int
    keeps_bits = True

    def verify(self, check: Check) -> None:
        check.all_in((SBUF,), "values", "indices", "src")
        check.dtype("values", BFLOAT16)
        check.dtype("src", BFLOAT16)
        check.dtype("indices", UINT32)
        k, capacity = self.values.free_elements, self.src.free_elements * GROUP
        check.rule(self.src.shape[0] % GROUP == 0, "takes a multiple of 16 partitions",
                   "fill up the last group of 16 partitions")
        check.rule(8 <= self.n <= Machine.topk_list_max and self.n <= capacity,
                   f"takes lists of 8 to {min(Machine.topk_list_max, capacity)}, got {self.n}",
                   "divide longer lists; fill shorter ones up, for maxima with the lowest number")
        check.rule(1 <= k <= self.n and k <= Machine.topk_results_max and k == self.indices.free_elements,
                   f"gives 1 to {self.n} results in both tiles, got {k} and {self.indices.free_elements}",
                   "give values and indices one shape, of no more elements than the list")

    def reference(self, values: np.ndarray, indices: np.ndarray, src: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p, k = src.shape[0], self.values.free_elements
        data, found, where = src.reshape(p, -1), values.reshape(p, -1).copy(), indices.reshape(p, -1).copy()
        for start in range(0, p, GROUP):
            items = data[start:start + GROUP].flatten(order="F")[:self.n].astype(np.float32)
            best = np.argsort(-items, kind="stable")[:k][::-1]
            rank = np.arange(k)
            found[start + rank % GROUP, rank // GROUP] = items[best].astype(found.dtype)
            where[start + rank % GROUP, rank // GROUP] = best
        return found.reshape(values.shape), where.reshape(indices.shape)

    def work(self) -> Work:
        # Of the sort of top-k on the GpSimd engine in the vendor's kernel library: 4 n + K cycles a partition.
        return Work("topk", 4 * self.n + self.values.free_elements)


class NonzeroWithCountOp(PartitionWise, name="nonzero_with_count", engines=(Engine.GPSIMD,),
                         mnemonic="NONZERO_WITH_COUNT", since=3,
                         opcode=0x7B):
    """In partitions 0, 16, 32, ...: the places of what is not zero plus ``base``, then ``padding``, the count at the
    end."""

    dst: InOut
    src: In
    base: int = 0
    padding: int = -1
    keeps_bits = True

    def verify(self, check: Check) -> None:
        check.all_in((SBUF,), "dst", "src")
        check.dtype("src", FLOAT32, INT32)
        check.dtype("dst", INT32)
        check.rule(self.dst.free_elements == self.src.free_elements + 1,
                   f"dst has one element more than src, got {self.dst.free_elements} and {self.src.free_elements}",
                   f"give dst {self.src.free_elements + 1} elements")

    def reference(self, dst: np.ndarray, src: np.ndarray) -> np.ndarray:
        p = src.shape[0]
        made, flat = dst.reshape(p, -1).copy(), src.reshape(p, -1)
        for row in range(0, p, GROUP):
            places = np.flatnonzero(flat[row])
            made[row, :-1] = self.padding
            made[row, :len(places)] = places + self.base
            made[row, -1] = len(places)
        return made.reshape(dst.shape)

    def work(self) -> Work:
        # An assumption: each element is read, and written where it is counted.
        return Work("nonzero", 2 * self.src.free_elements)

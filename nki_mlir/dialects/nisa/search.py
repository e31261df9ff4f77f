# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Searches: the eight largest values of a partition, their indices, and replacing them; runs of equal ids;
the largest K of lists, and the indices of nonzero elements."""

from itertools import pairwise

import numpy as np

from nki_mlir.dialects.access import SBUF
from nki_mlir.dialects.nisa.opaque import PartitionWise
from nki_mlir.dialects.op import In, InOut, Op, Out, Results
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Machine, Work
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, INT32, UINT16, UINT32

EIGHT, LONGEST = 8, Machine.search_max
LEAST_KEY = np.int32(-1 << 31)


def check_length(op: Op, check: Check, label: str) -> None:
    n = getattr(op, label).free_elements
    check.rule(EIGHT <= n <= LONGEST, f"takes {EIGHT} to {LONGEST} values a partition in {label}, got {n}",
               "split longer rows; pad shorter rows, for maxima with the lowest number")


class Max8Op(PartitionWise, name="max8", engines=(Engine.VECTOR,), mnemonic="MAX8", opcode=0x53):
    """dst[p] = the 8 largest values of src[p], largest first."""

    dst: Out
    src: In
    rows_apart = True
    law, walked = "search", "src"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        check_length(self, check, "src")
        check.shape("dst", (self.src.shape[0], EIGHT))

    def reference(self, src: np.ndarray) -> np.ndarray:
        return greatest(src.reshape(src.shape[0], -1), EIGHT)


def greatest(rows: np.ndarray, count: int) -> np.ndarray:
    """Return the largest values of each float32 row, largest first; NaN comes last, and -0 after 0.

    The function sorts keys, integers in the order of the floats. In long rows the largest are in the groups of elements
    with the largest maxima: only these are sorted.
    """
    keys = np.where(np.isnan(rows), LEAST_KEY, flipped(np.ascontiguousarray(rows).view(np.int32)))
    groups = keys.shape[1] // count
    if groups > 4 * count:
        members = keys[:, :groups * count].reshape(len(keys), count, groups)
        chosen = np.argpartition(members.max(axis=1), -count, axis=1)[:, None, -count:]
        candidates = np.take_along_axis(members, chosen, axis=2).reshape(len(keys), -1)
        keys = np.concatenate([candidates, keys[:, groups * count:]], axis=1)
    result: np.ndarray = np.sort(keys, axis=1)[:, :-count - 1:-1]
    return flipped(result).view(np.float32)


def flipped(bits: np.ndarray) -> np.ndarray:
    """Return the keys of float32 bits, or the bits of keys; the bits of ``LEAST_KEY`` are NaN."""
    return np.ascontiguousarray(bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF)))


def find_each(data: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the index of each value in the flattened rows; the k-th equal value gets the k-th occurrence, -1 without
    one."""
    p = data.shape[0]
    flat, needles = data.reshape(p, -1), values.reshape(p, -1)
    positions = np.full(needles.shape, -1, np.int64)
    rows = np.arange(p)
    for j in range(needles.shape[1]):
        hit = flat == needles[:, j:j + 1]
        if (needles[:, :j] == needles[:, j:j + 1]).any():
            row, earlier = np.nonzero(positions[:, :j] >= 0)
            hit[row, positions[row, earlier]] = False
        first_hit = hit.argmax(1)
        exists = hit[rows, first_hit]
        positions[exists, j] = first_hit[exists]
    return positions


class FindIndex8Op(PartitionWise, name="nc_find_index8", engines=(Engine.VECTOR,), mnemonic="FIND_INDEX8", opcode=0x54):
    """dst[p, j] = the index of vals[p, j] in the flattened data[p], both as float32; equal values get later
    occurrences."""

    dst: Out
    data: In
    vals: In
    rows_apart = True
    law, walked = "search", "data"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "data", "vals")
        check_length(self, check, "data")
        check.shape("vals", (self.data.shape[0], EIGHT))
        check.shape("dst", (self.data.shape[0], EIGHT))
        check.dtype("dst", UINT32, UINT16)

    def reference(self, data: np.ndarray, vals: np.ndarray) -> np.ndarray:
        return find_each(data, vals).astype(self.dst.dtype.numpy)


class MatchReplace8Op(PartitionWise, name="nc_match_replace8", engines=(Engine.VECTOR,), mnemonic="MATCH_REPLACE8",
                      opcode=0x55):
    """dst = data with the first occurrence of each of the 8 values replaced by ``imm``; dst_idx gets their indices."""

    dst: Out
    dst_idx: Out | None
    data: In
    vals: In
    imm: float
    rows_apart = True
    law, walked = "search", "data"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "dst_idx", "data", "vals")
        check_length(self, check, "data")
        check.shape("vals", (self.data.shape[0], EIGHT))
        check.same_shape("dst", "data")
        if self.dst_idx is not None:
            check.dtype("dst_idx", UINT32, UINT16)
            check.same_partitions("data", "dst_idx")
            check.rule(self.dst_idx.free_elements == EIGHT, f"dst_idx must have 8 elements in each partition, got "
                       f"{self.dst_idx.free_elements}", f"create it with shape ({self.data.shape[0]}, 8)")

    def reference(self, data: np.ndarray, vals: np.ndarray) -> Results:
        positions = find_each(data, vals)
        result = data.reshape(data.shape[0], -1).copy()
        row, j = np.nonzero(positions >= 0)
        result[row, positions[row, j]] = self.imm
        if self.dst_idx is None:
            return result.reshape(data.shape)
        return result.reshape(data.shape), positions.astype(self.dst_idx.dtype.numpy).reshape(
            -1, *self.dst_idx.shape[1:])


class SequenceBoundsOp(PartitionWise, name="sequence_bounds", engines=(Engine.GPSIMD,), mnemonic="SEQUENCE_BOUNDS",
                       opcode=0x5D):
    """dst[0, 0, i] and dst[0, 1, i]: the first index of the run of equal ids at i, and one past its last; (n, -1) for
    id 0."""

    dst: Out
    segment_ids: In
    law, walked = "sequence_bounds", "segment_ids"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "segment_ids")
        check.rule(self.segment_ids.shape[0] == 1,
                   f"segment_ids must have 1 partition, got {self.segment_ids.shape[0]}", "lay them out in one row")
        check.shape("dst", (1, 2, self.segment_ids.free_elements))

    def verify_target(self, check: TargetCheck) -> None:
        for label in ("dst", "segment_ids"):
            check.dtypes(label, FLOAT32, INT32)

    def reference(self, segment_ids: np.ndarray) -> np.ndarray:
        ids = segment_ids.reshape(-1)
        n = len(ids)
        start, end = np.full(n, n, np.float32), np.full(n, -1, np.float32)
        edges = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1], [True]]))
        for a, b in pairwise(edges):
            if ids[a] != 0:
                start[a:b], end[a:b] = a, b
        return np.stack([start, end])[None]


# -- lists of the GpSimd cores -----------------------------------------------------------------------------------------
GROUP = Machine.gpsimd_group


class TopkOp(PartitionWise, name="topk", engines=(Engine.GPSIMD,), mnemonic="TOPK", opcode=0x7A, since=3):
    """The largest values of ``n``-element lists, ascending, and their indices.

    16 partitions hold one list: element i is in partition i % 16, column i // 16. The K-th results are laid out alike;
    K is the number of elements of a result tile in one partition. Other elements of the results stay.
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
        check.same_partitions("values", "indices", "src")
        k, capacity = self.values.free_elements, self.src.free_elements * GROUP
        check.rule(self.src.shape[0] % GROUP == 0, f"takes a multiple of {GROUP} partitions, got {self.src.shape[0]}",
                   f"pad the last group to {GROUP} partitions")
        check.rule(8 <= self.n <= Machine.topk_list_max and self.n <= capacity,
                   f"takes lists of 8 to {min(Machine.topk_list_max, capacity)}, got {self.n}",
                   "split longer lists; pad shorter lists, for maxima with the lowest number")
        check.rule(1 <= k <= self.n and k <= Machine.topk_results_max and k == self.indices.free_elements,
                   f"gives 1 to {self.n} results in both tiles, got {k} and {self.indices.free_elements}",
                   "give values and indices one shape, with at most as many elements as the list")

    def reference(self, values: np.ndarray, indices: np.ndarray, src: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p, k = src.shape[0], self.values.free_elements
        data = src.reshape(p, -1)
        best_values, best_indices = values.reshape(p, -1).copy(), indices.reshape(p, -1).copy()
        for start in range(0, p, GROUP):
            items = data[start:start + GROUP].flatten(order="F")[:self.n].astype(np.float32)
            best = np.argsort(-items, kind="stable")[:k][::-1]
            rank = np.arange(k)
            best_values[start + rank % GROUP, rank // GROUP] = items[best].astype(best_values.dtype)
            best_indices[start + rank % GROUP, rank // GROUP] = best
        return best_values.reshape(values.shape), best_indices.reshape(indices.shape)

    def work(self) -> Work:
        """The engine takes 4 cycles for each element of the list and one for each result, like the
        vendor's top-k sort."""
        return Work("topk", 4 * self.n + self.values.free_elements)


class NonzeroWithCountOp(PartitionWise, name="nonzero_with_count", engines=(Engine.GPSIMD,),
                         mnemonic="NONZERO_WITH_COUNT", opcode=0x7B, since=3):
    """In partitions 0, 16, 32, ...: the indices of nonzero elements plus ``base``, then ``padding``, the count at the
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
                   "dst must have one element more than src, "
                   f"got {self.dst.free_elements} and {self.src.free_elements}",
                   f"give dst {self.src.free_elements + 1} elements")
        check.same_partitions("dst", "src")
        for name, number in (("base", self.base), ("padding", self.padding)):
            check.rule(-1 << 31 <= number < 1 << 31, f"{name} must be an integer of 32 bits, got {number}",
                       "give a number that dst can represent")

    def reference(self, dst: np.ndarray, src: np.ndarray) -> np.ndarray:
        p = src.shape[0]
        result, flat = dst.reshape(p, -1).copy(), src.reshape(p, -1)
        for row in range(0, p, GROUP):
            positions = np.flatnonzero(flat[row])
            result[row, :-1] = self.padding
            result[row, :len(positions)] = positions + self.base
            result[row, -1] = len(positions)
        return result.reshape(dst.shape)

    def work(self) -> Work:
        """We assume that the engine takes time to read and to write each element of ``src``."""
        return Work("nonzero", 2 * self.src.free_elements)

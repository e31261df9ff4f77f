# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions that look for values, gather by numbers, and move between partitions (sections 4.3, 4.4)."""

from typing import Any

import numpy as np

from .operands import Instruction, floats, put, require, rows


def max8(dst: Any, src: Any, name: str | None = None) -> Instruction:
    """Write the 8 largest values of each partition, the largest first (4.3)."""
    data = floats(src)
    require(8 <= data.shape[1] <= 16384, "max8 takes 8 to 16384 elements a partition")
    order = np.argsort(-data, axis=1, kind="stable")[:, :8]
    return put(dst, np.take_along_axis(data, order, 1))


def nc_find_index8(dst: Any, data: Any, vals: Any, name: str | None = None) -> Instruction:
    """Write the position of each of 8 values: of equal values the k-th has the k-th position, a value that is absent
    has all ones (4.3)."""
    table, wanted = floats(data), floats(vals)
    require(8 <= table.shape[1] <= 16384 and wanted.shape[1] == 8, "nc_find_index8 takes 8 values and at least 8 elements")
    places = np.full(wanted.shape, -1, np.int64)
    for p, row in enumerate(wanted):
        for j, value in enumerate(row):
            equal = np.flatnonzero(table[p] == value)
            earlier = int((row[:j] == value).sum())
            if earlier < len(equal):
                places[p, j] = equal[earlier]
    return put(dst, places, wrap=True)


def nc_match_replace8(dst: Any, data: Any, vals: Any, imm: float, dst_idx: Any = None,
                      name: str | None = None) -> Instruction:
    """Replace, from the last value to the first, the earliest element that equals it (4.3, open 22)."""
    table, wanted = floats(data), floats(vals)
    replaced, places = np.zeros(table.shape, bool), np.full(wanted.shape, -1, np.int64)
    for p, row in enumerate(wanted):
        for j in reversed(range(8)):
            equal = np.flatnonzero((table[p] == row[j]) & ~replaced[p])
            if len(equal):
                places[p, j] = equal[0]
                replaced[p, equal[0]] = True
    put(dst, np.where(replaced, np.float32(imm), table))
    if dst_idx is not None:
        put(dst_idx, places, wrap=True)
    return Instruction()


def nc_stream_shuffle(dst: Any, src: Any, shuffle_mask: list[int], name: str | None = None) -> Instruction:
    """Write partition mask[i] to partition i in each block of 32 partitions; 255 leaves the partition unchanged (4.3).
    """
    require(len(shuffle_mask) == 32 and src.dtype == dst.dtype, "nc_stream_shuffle takes 32 numbers, and one dtype")
    source, result = rows(src), rows(dst, unwritten=True)
    changed = np.zeros(result.shape[0], bool)
    for p in range(result.shape[0]):
        block, i = divmod(p, 32)
        at = shuffle_mask[i]
        if at == 255:
            continue
        require(0 <= at < 32, "a shuffle mask names 0 to 31, or 255")
        if block * 32 + at >= source.shape[0]:
            require(source.shape[0] <= block * 32, f"the shuffle reads partition {block * 32 + at}, which the source has not")
            continue
        result[p], changed[p] = source[block * 32 + at], True
    return put(dst, result, where=np.broadcast_to(changed[:, None], result.shape))


def nc_n_gather(dst: Any, data: Any, indices: Any, name: str | None = None) -> Instruction:
    """Write data[p, indices[p, j]] to dst[p, j], over the flattened free axes (4.4)."""
    table, at = rows(data), rows(indices).astype(np.int64)
    require(table.shape[0] == at.shape[0], "data and indices have as many partitions")
    require(0 <= at.min() and at.max() < table.shape[1], f"index {at.max()} is out of bounds for size {table.shape[1]}", IndexError)
    return put(dst, np.take_along_axis(table, at, 1))


def local_gather(dst: Any, src_buffer: Any, index: Any, num_elem_per_idx: int = 1, num_valid_indices: int | None = None,
                 name: str | None = None) -> Instruction:
    """Gather by indices that 16 partitions share, partition first; each index names several elements that follow each
    other (4.4)."""
    table, at = rows(src_buffer), rows(index).astype(np.int64)
    partitions, count = at.shape[0], num_elem_per_idx
    require(partitions % 16 == 0 and table.shape[0] == partitions, "local_gather takes groups of 16 partitions")
    require(count in (1, 2, 4, 8, 16, 32), "num_elem_per_idx is 1, 2, 4, 8, 16 or 32")
    valid = 16 * at.shape[1] if num_valid_indices is None else num_valid_indices
    gathered = np.empty((partitions, valid * count), table.dtype)
    for p in range(partitions):
        group = at[p // 16 * 16:p // 16 * 16 + 16].flatten(order="F")[:valid]
        places = (group[:, None] + np.arange(count)).reshape(-1)
        require(bool((places < table.shape[1]).all()), "an index is beyond the buffer", IndexError)
        gathered[p] = table[p, places]
    result = rows(dst, unwritten=True).copy()
    written = np.zeros(result.shape, bool)
    result[:, :valid * count], written[:, :valid * count] = gathered, True
    return put(dst, result, where=written)


def sequence_bounds(dst: Any, segment_ids: Any, name: str | None = None) -> Instruction:
    """Write the start and the end of the run of equal numbers around each element; elements of 0 have no run (4.4)."""
    ids = floats(segment_ids)[0]
    n = len(ids)
    starts, ends = np.full(n, n), np.full(n, -1)
    begin = 0
    for i in range(n + 1):
        if i == n or ids[i] != ids[begin]:
            if ids[begin] != 0:
                starts[begin:i], ends[begin:i] = begin, i
            begin = i
    return put(dst, np.concatenate([starts, ends])[None].astype(np.float32))


def nonzero_with_count(dst: Any, src: Any, index_offset: int = 0, padding_val: int = -1,
                       name: str | None = None) -> Instruction:
    """Write, in each 16th partition, the positions that are not 0, padding, and their number; the others keep their
    values (4.4)."""
    data, result = floats(src), rows(dst, unwritten=True)
    wide = data.shape[1]
    require(result.shape[1] == wide + 1, "the destination of nonzero_with_count has one element more")
    touched = np.zeros(result.shape, bool)
    for p in range(0, data.shape[0], 16):
        indices = np.flatnonzero(data[p])
        result[p] = padding_val
        result[p, :len(indices)] = indices + index_offset
        result[p, wide] = len(indices)
        touched[p] = True
    return put(dst, result, where=touched)


def topk(val_dst: Any, idx_dst: Any, src: Any, n: int, name: str | None = None) -> Instruction:
    """Write the largest elements of a list that 16 partitions contain, in ascending order, and their positions, in the
    list's layout (4.4, open 28)."""
    data = floats(src)
    (partitions, _), wanted = data.shape, rows(val_dst, unwritten=True).shape[1]
    require(partitions % 16 == 0 and 8 <= n < 65536 and 1 <= wanted <= n, "topk: 16 partitions a list, K <= n")
    values, places = np.zeros((partitions, wanted), np.float32), np.zeros((partitions, wanted), np.int64)
    touched = np.zeros((partitions, wanted), bool)
    for first in range(0, partitions, 16):
        listed = data[first:first + 16].flatten(order="F")[:n]
        best = np.argsort(-listed, kind="stable")[:wanted][::-1]
        for rank, index in enumerate(best):
            at = first + rank % 16, rank // 16
            values[at], places[at], touched[at] = listed[index], index, True
    put(val_dst, values, where=touched)
    return put(idx_dst, places, where=touched)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nisa``: statistics, searches, shuffles and gathers of rows, transfers (documents: 7.4, 7.5, 7.6).

A mask leaves a part of each row, which then counts as the row.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..arithmetic import Operand, widened
from ..dtypes import INT32, UINT32, dtype_of
from ..memory import View
from .memory_functions import combined_in_order, dropout, meeting, skips, without_outside
from .tensors import active_of, operands, result, stretch


def rows_of(tile: Any, mask: Any) -> tuple[Operand, np.ndarray]:
    """Return the values as [P, N], and which of them are active."""
    active, (a,), shape = operands((tile,), mask)
    flat = (shape[0], prod(shape[1:]))
    left = np.ones(flat, bool) if active is None else active.reshape(flat)
    return Operand(a.values.reshape(flat), a.dtype), left


def per_row(left: np.ndarray, width: int) -> np.ndarray:
    """Return which of ``width`` results a row are written: those of rows with an active element."""
    return np.broadcast_to(left.any(axis=1, keepdims=True), (left.shape[0], width))


def bn_stats(data: Any, *, mask: Any = None, dtype: Any = None, **_: Any) -> Any:
    """Return [P, 6]: count, mean and variance * count of the elements at even positions, then of those at odd ones."""
    a, left = rows_of(data, mask)
    statistics = np.zeros((left.shape[0], 6), np.float32)
    for p, (row, here) in enumerate(zip(widened(a.values).astype(np.float64), left)):
        for k in (0, 1):
            part = row[here][k::2]
            if part.size:
                statistics[p, 3 * k:3 * k + 3] = part.size, part.mean(), ((part - part.mean()) ** 2).sum()
    return result(statistics, data.dtype, per_row(left, 6), dtype)


def bn_aggr(data: Any, *, mask: Any = None, dtype: Any = None, **_: Any) -> Any:
    """Combine [P, 3k] of (count, mean, variance * count) to [P, 2], the mean and variance of all elements; both are 0
    without elements."""
    a, left = rows_of(data, mask)
    moments = np.zeros((left.shape[0], 2), np.float32)
    with np.errstate(all="ignore"):
        for p, (row, here) in enumerate(zip(widened(a.values).astype(np.float64), left)):
            count, mean, spread = row[here].reshape(-1, 3).T
            if n := count.sum():
                center = (count * mean).sum() / n
                moments[p] = center, (spread + count * (mean - center) ** 2).sum() / n
    return result(moments, data.dtype, per_row(left, 2), dtype)


def max8(*, src: Any, mask: Any = None, dtype: Any = None, **_: Any) -> Any:
    """Return the largest values of each row as [P, 8], the largest first."""
    a, left = rows_of(src, mask)
    largest = np.full((left.shape[0], 8), -np.inf, np.float32)
    for p, (row, here) in enumerate(zip(widened(a.values), left)):
        top = np.sort(row[here])[::-1][:8]
        largest[p, :top.size] = top
    return result(largest, src.dtype, per_row(left, 8), dtype)


MISSING = 0xFFFFFFFF


def nc_find_index8(*, data: Any, vals: Any, mask: Any = None, dtype: Any = None, **_: Any) -> Any:
    """Return the first position of each value as [P, 8]; of equal values the k-th has the k-th position."""
    a, left = rows_of(data, mask)
    sought = widened(vals.read()).reshape(left.shape[0], 8)
    indices = np.full((left.shape[0], 8), MISSING, np.int64)
    for p, (row, here) in enumerate(zip(widened(a.values), left)):
        for j, value in enumerate(sought[p]):
            places = np.flatnonzero(row[here] == value)
            earlier = int((sought[p][:j] == value).sum())
            if earlier < places.size:
                indices[p, j] = places[earlier]
    return result(indices, UINT32, per_row(left, 8), dtype)


def nc_match_replace8(*, data: Any, vals: Any, imm: Any, dst_idx: Any = None, mask: Any = None, dtype: Any = None,
                      **_: Any) -> Any:
    """Return a copy in which ``imm`` replaces, for each of the eight values in order, the first equal element that is
    not replaced yet."""
    active, (a,), shape = operands((data,), mask)
    rows, left = rows_of(data, mask)
    sought = widened(vals.read()).reshape(left.shape[0], 8)
    replaced, places = widened(rows.values).copy(), np.full((left.shape[0], 8), MISSING, np.int64)
    for p, here in enumerate(left):
        where = np.flatnonzero(here)
        fresh = np.ones(where.size, bool)
        for j in range(8):
            equal = np.flatnonzero((replaced[p, where] == sought[p, j]) & fresh)
            if equal.size:
                replaced[p, where[equal[0]]], places[p, j], fresh[equal[0]] = np.float32(imm), equal[0], False
    if dst_idx is not None:
        dst_idx.write(places.reshape(dst_idx.shape), per_row(left, 8).reshape(dst_idx.shape))
    return result(replaced.reshape(shape), a.dtype, active, dtype)


def nc_stream_shuffle(src: Any, dst: Any, shuffle_mask: Sequence[int], *, dtype: Any = None, mask: Any = None,
                      **_: Any) -> None:
    """Set ``dst[i] = src[shuffle_mask[i]]`` within each 32 partitions; where the mask is 255, dst keeps its value."""
    active = active_of(dst.shape, mask)
    P = dst.shape[0]
    old, rows = src.read(quietly=True), np.arange(P)
    order = np.asarray(shuffle_mask)[rows % 32]
    source = rows // 32 * 32 + order
    moved = (order != 255) & (source < src.shape[0])
    values = old[np.where(moved, source, 0)]
    chosen = np.broadcast_to(moved.reshape(P, *(1,) * (dst.ndim - 1)), dst.shape)
    dst.write(values, chosen if active is None else chosen & active)


def local_gather(src_buffer: Any, index: Any, num_elem_per_idx: int = 1, num_valid_indices: int | None = None, *,
                 mask: Any = None, **_: Any) -> Any:
    """Copy elements at each index of 16 partitions, whose list of indices runs down the partitions first."""
    P, n = src_buffer.shape[0], num_elem_per_idx
    flat = src_buffer.read(quietly=True).reshape(P, -1)
    indices = index.read().reshape(P, -1).astype(np.int64)
    valid = 16 * indices.shape[1] if num_valid_indices is None else num_valid_indices
    gathered = np.zeros((P, 16 * indices.shape[1], n), flat.dtype)
    for first in range(0, P, 16):
        for j, start in enumerate(indices[first:first + 16].flatten(order="F")[:valid]):
            gathered[first:first + 16, j] = flat[first:first + 16, start:start + n]
    shape = (P, *index.shape[1:], 16, n)
    written = np.broadcast_to((np.arange(gathered.shape[1]) < valid)[None, :, None], gathered.shape).reshape(shape)
    if mask is not None:
        rows = np.broadcast_to(np.asarray(mask).reshape(np.shape(mask) + (1,) * (4 - np.ndim(mask))), shape)
        written = written & rows
    return result(gathered.reshape(shape), src_buffer.dtype, written)


def sequence_bounds(*, segment_ids: Any, dtype: Any = None, **_: Any) -> Any:
    """Return as [1, 2, n] the first position of the run of each id and one past its last; (n, -1) for id 0."""
    ids = segment_ids.read().reshape(-1)
    n = ids.size
    bounds = np.zeros((1, 2, n), np.int64)
    for i, value in enumerate(ids):
        first, last = i, i
        while first > 0 and ids[first - 1] == value:
            first -= 1
        while last + 1 < n and ids[last + 1] == value:
            last += 1
        bounds[0, :, i] = (n, -1) if value == 0 else (first, last + 1)
    return result(bounds, segment_ids.dtype if dtype is None else INT32, None, dtype)


def dma_copy(*, dst: Any, src: Any, mask: Any = None, dst_rmw_op: Any = None, oob_mode: Any = None,
             dge_mode: Any = None, mode: Any = None, **_: Any) -> None:
    """Copy between HBM and SBUF, converted or combined; elements outside of a tensor are errors, or skipped."""
    if isinstance(src, View):
        if src.shape != dst.shape:
            dst, src = meeting(dst, src)
        src = stretch(src, dst.shape)
    active = active_of(dst.shape, mask, dst, src)
    if skips(oob_mode) or skips(mode):
        active = without_outside(dst, active)
        active = without_outside(src, active) if isinstance(src, View) else active
    if dst_rmw_op is not None:
        return combined_in_order(dst, src, dst_rmw_op, active)
    dst.write(src.read(active) if isinstance(src, View) else src, active)
    return None


def nisa_dropout(data: Any, prob: Any, *, mask: Any = None, dtype: Any = None, **_: Any) -> Any:
    """Replace elements by 0 with a probability, as ``nisa.dropout`` does."""
    return dropout(data, prob, mask=mask, dtype=dtype)


def itemsize(dtype: Any) -> int:
    """Return the size of a dtype in bytes (``neuronxcc.nki.language.constants.sizeinbytes``)."""
    return dtype_of(dtype).itemsize

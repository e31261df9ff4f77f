# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions that combine the elements of a partition, or of all partitions (section 4.3)."""

from typing import Any

import numpy as np

from .enums import reduce_cmd
from .operands import (
    Instruction,
    combine,
    floats,
    fold,
    is_bitwise,
    lanes,
    operand,
    operator,
    put,
    require,
    rows,
    started,
)


def tensor_reduce(dst: Any, op: Any, data: Any, axis: Any, negate: bool = False, keepdims: bool = False,
                  name: str | None = None) -> Instruction:
    """Reduce the last free axes with op (4.3)."""
    rank = len(data.shape)
    requested = list(axis if isinstance(axis, (tuple, list)) else [axis])
    axes = sorted(a % rank for a in requested)
    if max(requested) >= rank or axes[-1] - axes[0] + 1 != len(axes) or axes[-1] != rank - 1:   # 2.28: their number counts
        axes = list(range(rank - len(requested), rank))
        require(int(np.prod(dst.shape)) == int(np.prod(data.shape[:axes[0]])), "axes are the last free ones")
    require(axes == list(range(axes[0], rank)) and axes[0] > 0, "axes are the last free ones")
    values = rows(data) if is_bitwise(op) else floats(data)
    count = int(np.prod(data.shape[axes[0]:]))
    total = fold(op, values.reshape(values.shape[0], -1, count))
    if is_bitwise(op):
        return put(dst, total)
    return put(dst, -total if negate else total)


def tensor_partition_reduce(dst: Any, op: Any, data: Any, name: str | None = None) -> Instruction:
    """Reduce the partitions with op; dst has one partition (4.3)."""
    if is_bitwise(op):
        return put(dst, fold(op, rows(data).T)[None])
    values = floats(data).T
    if operator(op) == "average":
        return put(dst, fold("add", values)[None] / np.float32(values.shape[1]))
    return put(dst, fold(op, values)[None])


def tensor_scalar_cumulative(dst: Any, src: Any, op0: Any, op1: Any, imm0: Any, imm1: Any = None,
                             reduce_cmd: Any = reduce_cmd.reset_reduce, name: str | None = None) -> Instruction:
    """Compute R = op1(op0(src[i], imm0), R) and write each R; the new value is the left operand (4.3)."""
    values = combine(op0, floats(src), operand(imm0))
    total = started("vector", reduce_cmd, op1, len(values), None if imm1 is None else operand(imm1))
    totals = np.empty_like(values)
    for i in range(values.shape[1]):
        total = totals[:, i] = combine(op1, values[:, i], total)
    lanes("vector")[:len(values)] = total
    return put(dst, totals)


def tensor_tensor_scan(dst: Any, data0: Any, data1: Any, initial: Any, op0: Any, op1: Any, reverse0: bool = False,
                       reverse1: bool = False, name: str | None = None) -> Instruction:
    """Compute s = op1(op0(data0[i], s), data1[i]) and write each s, which stays float32 (4.3, open 19)."""
    first, second = floats(data0), floats(data1)
    state = np.broadcast_to(operand(initial), (first.shape[0], 1))[:, 0].astype(np.float32)
    states = np.empty_like(first)
    for i in range(first.shape[1]):
        state = combine(op0, first[:, i], state, reverse0)
        state = states[:, i] = combine(op1, state, second[:, i], reverse1)
    return put(dst, states)


def bn_stats(dst: Any, data: Any, name: str | None = None) -> Instruction:
    """Write count, mean and count * variance of the elements at even positions, then of those at odd ones (4.3)."""
    values = floats(data).astype(np.float64)
    require(values.shape[1] <= 512, "bn_stats takes at most 512 elements a partition")
    statistics = np.zeros((values.shape[0], 6))
    for k, part in enumerate((values[:, 0::2], values[:, 1::2])):
        if part.shape[1]:
            statistics[:, 3 * k] = part.shape[1]
            statistics[:, 3 * k + 1] = part.mean(1)
            statistics[:, 3 * k + 2] = part.var(1) * part.shape[1]
    return put(dst, statistics.astype(np.float32))


def bn_aggr(dst: Any, data: Any, name: str | None = None) -> Instruction:
    """Write the mean and variance that the tuples (count, mean, count * variance) describe (4.3)."""
    values = floats(data).astype(np.float64)
    require(values.shape[1] % 3 == 0, "bn_aggr takes tuples of three")
    count, mean, spread = (values[:, k::3] for k in range(3))
    n = count.sum(1, keepdims=True)
    m = (count * mean).sum(1, keepdims=True) / n
    variance = (spread + count * (mean - m) ** 2).sum(1, keepdims=True) / n
    return put(dst, np.concatenate([m, variance], 1).astype(np.float32))

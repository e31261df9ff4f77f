# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Tensor Engine: products, transposes; microscaled elements (sections 4.1, 4.3)."""

from typing import Any

import numpy as np

from .enums import engine, matmul_perf_mode
from .operands import Instruction, accumulate_into, floats, put, require, rows
from .packed import EXPONENT, packed, unpacked


def nc_matmul(dst: Any, stationary: Any, moving: Any, is_stationary_onezero: bool = False,
              is_moving_onezero: bool = False, is_transpose: bool = False, accumulate: bool | None = None,
              tile_position: tuple = (), tile_size: tuple = (), perf_mode: Any = matmul_perf_mode.none,
              name: str | None = None) -> Instruction:
    """Write stationary (K, M).T @ moving (K, N) in float32 to dst (M, N), or add it (4.1)."""
    require(bool(tile_position) == bool(tile_size), "tile_position and tile_size are given together")
    left, right = floats(stationary, group=32), floats(moving, group=32)
    require(left.shape[0] == right.shape[0] <= 128, "the operands have the same partitions, which are summed over")
    if perf_mode in (matmul_perf_mode.double_row, "double_row"):
        require(stationary.shape[1] == moving.shape[1] == 2, "double_row: the first free axis is 2")
        left = np.concatenate(np.split(left, 2, axis=1))
        right = np.concatenate(np.split(right, 2, axis=1))
    require(left.shape[1] <= 128, "the stationary operand has at most 128 columns")
    if is_transpose:
        return put(dst, permuted(rows(stationary), right))
    return accumulate_into(dst, left.T.astype(np.float64) @ right.astype(np.float64), accumulate)


def permuted(data: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the product with a permutation: the bits of ``data`` transposed, with its rows in another order."""
    require(bool((order.sum(0) == 1).all() and (order != 0).sum() == order.shape[1]), "is_transpose takes an identity")
    return data.T[:, order.argmax(0)]


def nc_matmul_mx(dst: Any, stationary: Any, moving: Any, stationary_scale: Any, moving_scale: Any,
                 tile_position: tuple | None = None, tile_size: tuple | None = None, accumulate: bool | None = None,
                 name: str | None = None) -> Instruction:
    """Multiply elements in groups of four; 8 partitions of groups share one power of two (4.1)."""
    left, right = (scaled(*pair) for pair in ((stationary, stationary_scale), (moving, moving_scale)))
    return accumulate_into(dst, np.einsum("kmq,knq->mn", left, right), accumulate)


def scaled(data: Any, scale: Any) -> np.ndarray:
    """Return the elements as float64 of shape [K4, F, 4], multiplied by their scales."""
    elements, bits = unpacked(rows(data), data.dtype), rows(scale).view(np.uint8)
    exponents = bits[scale_rows(elements.shape[0], bits.shape[0])].astype(np.int64) - 127
    return elements.astype(np.float64) * np.exp2(exponents.astype(np.float64))[:, :, None]


def scale_rows(partitions: int, scale_partitions: int) -> np.ndarray:
    """Return, for each partition of the data, the partition of the scales that has its group's: each 32 begin with four
    groups."""
    require(partitions % 32 == 0, "microscaled operands have 32, 64, 96 or 128 partitions")
    group = np.arange(partitions) // 8
    return group // 4 * 32 + group % 4


def quantize_mx(dst: Any, src: Any, dst_scale: Any, name: str | None = None) -> Instruction:
    """Quantize blocks of 8 partitions by 4 elements; the scale of a block is 2 ** (floor(log2(largest)) - (Emax - 1))
    (4.3, open 24)."""
    data = floats(src).astype(np.float64)
    partitions, columns = data.shape
    require(partitions in (32, 64, 96, 128) and columns % 4 == 0, "quantize_mx: 32, 64, 96 or 128 partitions, F % 4 == 0")
    blocks = data.reshape(partitions // 8, 8, columns // 4, 4)
    largest = np.abs(blocks).max(axis=(1, 3))
    emax = EXPONENT[dst.dtype.name]
    broken = np.isnan(largest)
    exponents = np.where(np.isinf(largest), 127, np.frexp(largest)[1] - 1 - (emax - 1))
    exponents = np.where(largest == 0, -127, np.clip(np.where(broken, 0, exponents), -127, 127))
    values = blocks / np.exp2(exponents)[:, None, :, None]
    values = np.where(broken[:, None, :, None], np.nan, values)
    put(dst, packed(values.reshape(partitions, columns // 4, 4), dst.dtype))
    scales = rows(dst_scale, unwritten=True).view(np.uint8).copy()
    written = np.zeros(scales.shape, bool)
    places = scale_rows(partitions, scales.shape[0])[::8]
    scales[places], written[places] = np.where(broken, 255, exponents + 127), True
    return put(dst_scale, scales, where=written)


def nc_transpose(dst: Any, data: Any, engine: Any = engine.unknown, name: str | None = None) -> Instruction:
    """Write data (P, F) transposed to dst (F, P), bit for bit (4.1)."""
    require(dst.dtype == data.dtype, "nc_transpose does not change the dtype")
    return put(dst, rows(data).T)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products and transposes (documents: 6.3, 7.2, 7.6)."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..arithmetic import widened
from ..dtypes import FLOAT32
from ..memory import PSUM, SBUF
from .tensors import active_of, result

__all__ = ["matmul", "transpose"]


def flat(tile: Any) -> Any:
    """Return the elements as [P, N]: all free axes as one."""
    return tile.reshape((tile.shape[0], prod(tile.shape[1:])))


def product(x: Any, y: Any, mask: Any) -> Any:
    """Return ``out[m, n] = sum over k of x[k, m] * y[k, n]`` of the elements that masks keep, in float32, as a tile in
    PSUM.

    A mask goes over [K, M, N], or over [K, 1]. A result that nothing goes into is not written.
    """
    left, right, shape = flat(x), flat(y), (x.shape[1], *y.shape[1:])
    K, M, N = left.shape[0], left.shape[1], right.shape[1]
    masks = [left.active[:, :, None]] if left.active is not None else []
    masks += [right.active[:, None, :]] if right.active is not None else []
    if mask is not None:
        mask = np.asarray(mask)
        masks.append(mask[:, :, None] if mask.ndim == 2 else mask)
    a, b = widened(left.read()).astype(np.float64), widened(right.read()).astype(np.float64)
    if not masks:
        return result((a.T @ b).astype(np.float32).reshape(shape), FLOAT32, None, None, PSUM)
    active = np.ones((K, M, N), bool)
    for one in masks:
        active = active & one
    total = np.zeros((M, N))
    with np.errstate(all="ignore"):
        for k in range(K):
            total += np.where(active[k], a[k][:, None] * b[k][None, :], 0)
    return result(total.astype(np.float32).reshape(shape), FLOAT32, active.any(axis=0).reshape(shape), None, PSUM)


def nc_matmul(stationary: Any, moving: Any, *, is_stationary_onezero: bool = False, is_moving_onezero: bool = False,
              is_transpose: bool = False, tile_position: Any = (), tile_size: Any = (), perf_mode: Any = None,
              mask: Any = None, **_: Any) -> Any:
    """Multiply as ``nisa.nc_matmul`` does. Double rows of fp8, [K, 2, M] and [K, 2, N], are summed over both rows.

    With ``is_transpose`` the moving tile is the identity, and bits are moved.
    """
    if is_transpose:
        return transposed(flat(stationary), mask, None, PSUM)
    if "double_row" in str(perf_mode):
        K, M, N = stationary.shape[0], stationary.shape[2], moving.shape[2]
        return product(stationary.reshape((K * 2, M)), moving.reshape((K * 2, N)), mask)
    return product(stationary, moving, mask)


def matmul(x: Any, y: Any, *, transpose_x: bool = False, mask: Any = None, **_: Any) -> Any:
    """Multiply as ``nl.matmul`` does: x is [K, M] with ``transpose_x``, else [M, K]."""
    return product(x if transpose_x else flat(x).transpose((1, 0)), y, mask)


def transposed(data: Any, mask: Any, dtype: Any, space: str, axes: Sequence[int] = (1, 0)) -> Any:
    active = active_of(data.shape, mask, data)
    values = data.read(active)
    return result(np.transpose(values, axes), data.dtype, None if active is None else np.transpose(active, axes), dtype,
                  space)


def transpose(x: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> Any:
    """Return [P, F] as [F, P], as ``nl.transpose`` does."""
    return transposed(x, mask, dtype, SBUF)


def nc_transpose(data: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None, **_: Any) -> Any:
    """Transpose as ``nisa.nc_transpose`` does, with all free axes as one. The vector engine writes SBUF and transposes
    large tiles block by block."""
    if mask is not None and np.ndim(mask) > 2:
        mask = np.broadcast_to(mask, data.shape).reshape(data.shape[0], -1)
    return transposed(flat(data), mask, dtype, SBUF if max(flat(data).shape) <= 32 or "vector" in str(engine) else PSUM)


def dma_transpose(src: Any, *, axes: Any = None, mask: Any = None, dtype: Any = None, dge_mode: Any = None,
                  **_: Any) -> Any:
    """Transpose from HBM or SBUF to SBUF, as ``nisa.dma_transpose`` does."""
    return transposed(src, mask, dtype, SBUF, axes or {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[src.ndim])

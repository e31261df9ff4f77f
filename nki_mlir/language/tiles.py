# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Limits of tiles, limits of dtypes, and conversions outside of kernels."""

from typing import Any

import ml_dtypes
import numpy as np

from nki_mlir.frontend.builder import current
from nki_mlir.language.creation import located_dtype
from nki_mlir.machine import Machine, machine_named
from nki_mlir.scalar.dtypes import convert, dtype_of


class TileSize:
    """``nl.tile_size``: what fits one instruction."""

    pmax = Machine.partitions
    psum_fmax: Any = Machine.psum_free_max
    gemm_stationary_fmax = Machine.stationary_free_max
    gemm_moving_fmax = Machine.moving_free_max
    bn_stats_fmax = Machine.bn_stats_max
    psum_min_align = Machine.address_alignment
    sbuf_min_align = 1

    @property
    def total_available_sbuf_size(self) -> int:
        """Bytes per partition that kernels may use, on the kernel's target."""
        builder = current.get()
        return machine_named(builder.target if builder is not None else "trn2").sbuf_bytes_per_partition


class finfo:
    """Least and greatest finite value of a float dtype."""

    def __init__(self, dtype: object) -> None:
        limits = ml_dtypes.finfo(located_dtype(dtype).numpy)
        self.min, self.max, self.eps = float(limits.min), float(limits.max), float(limits.eps)


class fp32:
    """Constants of float32."""

    min = float(np.finfo(np.float32).min)


class bfp16:
    """Constants of bfloat16."""

    min = float(ml_dtypes.finfo(ml_dtypes.bfloat16).min)


def static_cast(input_data: object, dtype: object) -> np.ndarray | np.generic:
    """A number or array in another dtype; may be called outside of kernels."""
    kind, given = dtype_of(dtype), np.asarray(input_data)
    made = convert(given.astype(np.float32) if given.dtype == np.float64 else given, kind)
    return made if isinstance(input_data, np.ndarray) else made[()]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nl``: loops, index expressions, queries and constants (documents: 2.2, 3.2 to 3.4, 4.1, 5.1, 6.4)."""

from collections.abc import Iterator, Sequence
from math import prod
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from ..dtypes import DTYPES, convert, dtype_of
from ..program import current, running
from ..subscripts import ds, number
from .tensors import par_dim

__all__ = ["affine_range", "arange", "bfp16", "ds", "finfo", "fp32", "mgrid", "nc", "num_programs", "par_dim",
           "program_id", "program_ndim", "sequential_range", "spmd_dim", "static_cast", "static_range", "tile_size"]


# -- 5.1: loops --------------------------------------------------------------------------------------------------------
def affine_range(*bounds: Any, **_: Any) -> Iterator[int]:
    """Return iterations in any order, as they do not depend on each other."""
    return current().loop(range(*map(number, bounds)), parallel=True)


def sequential_range(*bounds: Any, **_: Any) -> Iterator[int]:
    return current().loop(range(*map(number, bounds)), parallel=False)


def static_range(*bounds: Any, **_: Any) -> Iterator[int]:
    return current().loop(range(*map(number, bounds)), parallel=False)


# -- 4.1: index expressions --------------------------------------------------------------------------------------------
def arange(*bounds: Any) -> np.ndarray:
    return np.arange(*map(number, bounds), dtype=np.int64)


class Mesh(tuple[np.ndarray, ...]):
    """The indices of a grid of points, one for each dimension, by number or as p, x, y, z, w."""

    p, x, y, z, w = (property(lambda self, k=k: self[k]) for k in range(5))


class _Mgrid:
    def __getitem__(self, slices: Any) -> Mesh:
        slices = slices if isinstance(slices, tuple) else (slices,)
        ranges = [np.arange(number(s.start or 0), number(s.stop), 1 if s.step is None else s.step) for s in slices]
        return Mesh(np.ix_(*ranges))


mgrid = _Mgrid()


# -- 2.2: the grid -----------------------------------------------------------------------------------------------------
class nc(int):
    """The size of a grid's axis along which programs run on different cores, ``nl.nc(n)``."""


def spmd_dim(outer: int, inner: int) -> int:
    """Join two sizes to one axis of a grid, whose id is ``outer id * inner + inner id``."""
    return int(outer) * int(inner)


def program_id(axis: int) -> int:
    return current().ids[axis]


def num_programs(axes: Any = None) -> int:
    grid = current().run.grid
    return prod(grid if axes is None else [grid[a] for a in ([axes] if isinstance(axes, int) else axes)])


def program_ndim() -> int:
    return len(current().run.grid)


# -- 3.3, 3.4: constants -----------------------------------------------------------------------------------------------
tile_size = SimpleNamespace(pmax=128, psum_fmax=512, gemm_stationary_fmax=128, gemm_moving_fmax=512, bn_stats_fmax=512,
                            psum_min_align=4, sbuf_min_align=1, total_available_sbuf_size=180224)
fp32 = SimpleNamespace(min=float(np.finfo(np.float32).min))
bfp16 = SimpleNamespace(min=-np.inf)


def finfo(dtype: Any) -> Any:
    """Return the limits of a float dtype: its largest and its least number."""
    limits = ml_dtypes.finfo(dtype_of(dtype).numpy)
    return SimpleNamespace(min=float(limits.min), max=float(limits.max), eps=float(limits.eps), bits=limits.bits)


def static_cast(x: Any = None, dtype: Any = None, *, arr: Any = None, input_data: Any = None) -> Any:
    """Return a number or an array as elements of a dtype, also outside of kernels. Releases differ in the name of the
    first parameter."""
    x = next(v for v in (x, arr, input_data) if v is not None)
    if running() and hasattr(x, "storage"):
        return x.astype(dtype)
    converted = convert(np.asarray(x), dtype_of(dtype))
    return converted if converted.ndim else converted[()]


def shape_without_marks(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(n) for n in shape)


TYPES = {("bool_" if n == "bool" else n): DTYPES[n] for n in (
    "float32", "tfloat32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "int8", "int16", "int32", "uint8",
    "uint16", "uint32", "bool")}

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Helper functions in the style of large kernels, which kernels of the tests share: tiles, cores, a stack of SBUF."""

from dataclasses import dataclass

import numpy as np

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl

PARTITIONS = 128
SIZES = {str(nl.float32): 4, str(nl.bfloat16): 2, str(nl.float16): 2, str(nl.int32): 4}


def kernel_assert(condition, text):
    assert condition, f"[NCC_INKI016] Kernel validation exception: {text}"


@dataclass
class Tile(nl.NKIObject):
    index: int
    start: int
    size: int

    @property
    def end(self):
        return self.start + self.size

    @property
    def rows(self):
        return slice(self.start, self.end)


def tiles_of(extent, size):
    """The tiles of an extent; the last one may be shorter."""
    return [Tile(k, start, min(size, extent - start)) for k, start in enumerate(range(0, extent, size))]


def cores():
    """How many cores run the kernel, and which one this is."""
    return (nl.num_programs(0), nl.program_id(0)) if nl.program_ndim() != 0 else (1, 0)


def sbuf(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.sbuf)


def psum(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.psum)


def transposed(tile):
    """A tile of up to 128 columns transposed by the Tensor engine, in SBUF."""
    columns = psum((tile.shape[1], tile.shape[0]), tile.dtype)
    nisa.nc_transpose(columns, tile)
    return nl.copy(columns)


class SbufStack(nl.NKIObject):
    """Addresses in SBUF; a scope that is closed gives the memory of its tiles to the next ones."""

    def __init__(self, end, automatic=False):
        self.end, self.automatic = end, automatic
        self.top, self.count, self.scopes = 0, 0, []

    def open_scope(self):
        self.scopes.append(self.top)

    def close_scope(self):
        kernel_assert(len(self.scopes) > 0, "no scope is open")
        self.top = self.scopes.pop()

    def allocate(self, shape, dtype, name, align=32):
        self.count += 1
        name = f"{name}_{self.count}"
        if self.automatic:
            return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf, name=name)
        size = SIZES[str(dtype)]
        for extent in shape[1:]:
            size *= extent
        start = -(-self.top // align) * align
        kernel_assert(start + size <= self.end, f"Allocation failure: name={name}, shape={shape}, size={size} B")
        self.top = start + size
        return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf, name=name, address=(0, start))


def near(got, expected, bound):
    """Each result is within a bound, relative to the largest number of the expected one."""
    for one, other in zip(got, expected, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.shape == other.shape and one.dtype == other.dtype
        one, other = one.astype(np.float64), other.astype(np.float64)
        assert np.abs(one - other).max() <= bound * max(np.abs(other).max(), 1e-30)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Microscaling: quantizing to small floats with a shared power of two, and multiplying such matrices.

A scaling group is 8 partitions x 4 consecutive elements; the four are packed into one element, the lowest bits first.
The scale of group row g is in partition 32 * (g // 4) + g % 4 of the scale tile: four rows at the start of each
quadrant. A scale tile may begin at partition 4, 8 or 12 of a quadrant: four of them lie in one buffer.
"""


import ml_dtypes
import numpy as np

from nki_mlir.dialects.access import PSUM, SBUF, Tile
from nki_mlir.dialects.nisa.opaque import PartitionWise
from nki_mlir.dialects.op import In, InOut, Out
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Machine, Work
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT8_E8M0FNU, FLOAT16, FLOAT32, UINT8
from nki_mlir.scalar.sums import in_device_order, product

FORMATS = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2,
           "float4_e2m1fn": ml_dtypes.float4_e2m1fn}
LARGEST_EXPONENT = {"float8_e4m3fn": 8, "float8_e5m2": 15}
BIAS, GROUP, PACKED = 127, 8, 4
SCALE_OFFSETS = (0, 4, 8, 12)


def scale_row(group: int) -> int:
    """Return the partition of a group row's scales."""
    return Machine.quadrant * (group // 4) + group % 4


def unpacked(data: np.ndarray, element: str) -> np.ndarray:
    """Return packed elements [P, N] as [P, N, 4] float32."""
    p, n = data.shape
    if element == "float4_e2m1fn":
        shifts = np.arange(PACKED, dtype=np.uint16) * 4
        bits = ((data[..., None].astype(np.uint16) >> shifts) & 0xF).astype(np.uint8)
    else:
        bits = np.ascontiguousarray(data.astype(np.uint32)).view(np.uint8).reshape(p, n, PACKED)
    return bits.view(FORMATS[element]).astype(np.float32)


def packed(values: np.ndarray, element: str) -> np.ndarray:
    """Return [P, N, 4] values of an 8-bit float as [P, N] uint32."""
    p, n, _ = values.shape
    return np.ascontiguousarray(values.astype(FORMATS[element])).view(np.uint32).reshape(p, n)


def scaled(data: np.ndarray, scale: np.ndarray, element: str) -> np.ndarray:
    """Return the real values [P, N, 4] of packed elements with their scale tile."""
    values = unpacked(data, element)
    exponents = scale.reshape(scale.shape[0], -1).astype(np.uint8, copy=False).astype(np.int32)
    rows = [scale_row(k // GROUP) for k in range(data.shape[0])]
    factor = np.exp2((exponents[rows] - BIAS).astype(np.float32))
    factor[exponents[rows] == 255] = np.nan
    return values * factor[..., None]


def scale_bits(scale: np.ndarray) -> np.ndarray:
    return scale if scale.dtype == np.uint8 else scale.view(np.uint8)


class QuantizeMxOp(PartitionWise, name="quantize_mx", engines=(Engine.VECTOR,), mnemonic="QUANTIZE_MX", opcode=0x78,
                   since=4):
    """dst = src / scale as packed 8-bit floats; the scale of a group is 2 ** (exponent of its largest - (emax - 1))."""

    offsets = {"dst_scale": SCALE_OFFSETS}
    dst: Out
    dst_scale: InOut
    src: In
    element: str
    keeps_bits = True
    law, walked = "quantize", "src"

    def verify(self, check: Check) -> None:
        check.rule(self.element in LARGEST_EXPONENT, f"packs {' or '.join(LARGEST_EXPONENT)}, got {self.element}",
                   "create dst with dtype=nl.float8_e4m3fn_x4 or nl.float8_e5m2_x4")
        check.all_in((SBUF,), "dst", "dst_scale", "src")
        check.dtype("src", BFLOAT16, FLOAT16)
        check.dtype("dst_scale", UINT8, FLOAT8_E8M0FNU)
        p, f = self.src.shape[0], self.src.free_elements
        check.rule(p % Machine.quadrant == 0 and f % PACKED == 0,
                   f"takes 32, 64, 96 or 128 partitions of a multiple of {PACKED} values, got {p} x {f}",
                   f"pad the tile to multiples of {Machine.quadrant} partitions and {PACKED} values")
        check.shape("dst", (p, f // PACKED))
        check.rule(self.dst_scale.shape[0] > scale_row(p // GROUP - 1) and self.dst_scale.free_elements == f // PACKED,
                   "the tile of scales must have a row for each group and a column for each quad, "
                   f"got {list(self.dst_scale.shape)} for {p // GROUP} rows of {f // PACKED}",
                   f"give it {scale_row(p // GROUP - 1) + 1} partitions of {f // PACKED}")

    def reference(self, dst_scale: np.ndarray, src: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = src.shape[0]
        values = src.reshape(p, -1).astype(np.float32)
        n = values.shape[1] // PACKED
        groups = values.reshape(p // GROUP, GROUP, n, PACKED)
        largest = np.abs(groups).max(axis=(1, 3))
        with np.errstate(all="ignore"):
            exponent = np.frexp(largest)[1] - 1 - (LARGEST_EXPONENT[self.element] - 1) + BIAS
        byte = np.where(largest == 0, 0, np.clip(exponent, 0, 254)).astype(np.uint8)
        byte = np.where(np.isinf(largest), 254, np.where(np.isnan(largest), 255, byte)).astype(np.uint8)
        limit = np.float32(ml_dtypes.finfo(FORMATS[self.element]).max)
        factor = np.exp2(BIAS - byte.astype(np.float32))[:, None, :, None]
        with np.errstate(all="ignore"):
            small = np.clip(groups * factor, -limit, limit).reshape(p, n, PACKED)
        scales = dst_scale.copy().reshape(dst_scale.shape[0], -1)
        scale_bits(scales)[[scale_row(g) for g in range(p // GROUP)]] = byte
        return packed(small, self.element), scales.reshape(dst_scale.shape)


class NcMatmulMxOp(PartitionWise, name="nc_matmul_mx", engines=(Engine.TENSOR,), mnemonic="MATMUL_MX", opcode=0x79,
                   since=4):
    """dst[m, n] = sum of stationary[k, m, q] * moving[k, n, q] over k and the 4 packed q, each times its group's
    scale."""

    offsets = {"stationary_scale": SCALE_OFFSETS, "moving_scale": SCALE_OFFSETS}
    dst: InOut
    stationary: In
    moving: In
    stationary_scale: In
    moving_scale: In
    stationary_element: str
    moving_element: str
    accumulate: bool = False
    destinations = (PSUM,)
    keeps_bits = True
    summed_axes = 1                     # along the partitions; a packed element is one

    def verify(self, check: Check) -> None:
        check.spaces("dst", PSUM)
        check.dtype("dst", FLOAT32, BFLOAT16)
        for label in ("stationary", "moving"):
            check.one_of(f"{label}_element", tuple(FORMATS))
            check.all_in((SBUF,), label, f"{label}_scale")
            check.dtype(f"{label}_scale", UINT8, FLOAT8_E8M0FNU)
        k, m, n = self.stationary.shape[0], self.stationary.free_elements, self.moving.free_elements
        check.rule(k == self.moving.shape[0] and k % Machine.quadrant == 0,
                   f"contracts 32, 64, 96 or 128 partitions of both operands, got {k} and {self.moving.shape[0]}",
                   "give both operands one of these numbers of partitions")
        check.rule(m % 2 == 0 and m <= Machine.stationary_free_max,
                   f"takes an even number of up to 128 stationary columns, got {m}",
                   "split more columns into several products; pad an odd number")
        check.shape("dst", (m, n))
        for scale, columns in ((self.stationary_scale, m), (self.moving_scale, n)):
            rows = scale_row(max(k // GROUP - 1, 0)) + 1
            check.rule(scale.shape[0] >= rows and scale.free_elements == columns,
                       "the tile of scales must have a partition for each scale, "
                       f"got {list(scale.shape)} for {rows} partitions of {columns}",
                       "give the scales that nisa.quantize_mx writes for the data")

    def sources(self) -> list[tuple[str, Tile]]:
        return [(f.name, t) for f, t in self.operands() if f.reads and (self.accumulate or f.name != "dst")]

    def reference(self, *sources: np.ndarray) -> np.ndarray:
        *dst, stationary, moving, stationary_scale, moving_scale = sources
        k = stationary.shape[0]
        left = scaled(stationary.reshape(k, -1), scale_bits(stationary_scale), self.stationary_element)
        right = scaled(moving.reshape(k, -1), scale_bits(moving_scale), self.moving_element)
        if in_device_order():
            total = product(*(np.moveaxis(a, 2, 1).reshape(-1, a.shape[1]).astype(np.float32) for a in (left, right)))
        else:
            total = np.einsum("kmq,knq->mn", left, right, optimize=True).astype(np.float32)
        return dst[0].astype(np.float32) + total if dst else total

    def work(self) -> Work:
        """The engine takes time for one pass over the columns of ``moving``."""
        return Work("product.mx", self.moving.free_elements)

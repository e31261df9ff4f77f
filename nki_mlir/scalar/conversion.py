# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conversion of elements between any two dtypes, in NumPy and (``expand_convert``) as IR.

- float to float rounds to nearest even; overflow gives infinity where the type has one, else NaN; NaN stays NaN,
  denormals and the sign of zero are kept. tfloat32 is float32 rounded to 10 mantissa bits.
- float to integer rounds to nearest even and saturates; NaN gives 0.
- integer to float rounds to nearest even in float32 first, then to the type, as the engines do.
- integer to integer saturates.
- anything to bool is ``!= 0`` (NaN is true); bool to a number is 0 or 1.

The bits of a NaN are fixed for bfloat16 and the 8-bit floats (quiet, sign kept); elsewhere only that it is one.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from nki_mlir.scalar.conversion_expansion import expand_convert
from nki_mlir.scalar.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT16,
    FLOAT32,
    TFLOAT32,
    DType,
    dtype_of,
)

__all__ = ["convert", "expand_convert", "round_to_tfloat32", "storage_type"]

Step = Callable[[np.ndarray], np.ndarray]

_quiet = np.errstate(all="ignore")


def convert(array: np.ndarray, to: DType, frm: DType | None = None) -> np.ndarray:
    """``array`` with elements of dtype ``to``; the same array where nothing changes.

    ``frm`` tells tfloat32 from float32 where the array's own dtype does not.

    >>> convert(np.float32([2.5, -300.0, np.nan]), INT8)
    array([   2, -128,    0], dtype=int8)
    """
    frm = frm or dtype_of(array.dtype)
    return array if frm is to else np.asarray(_route(frm, to)(array))


@cache
def _route(frm: DType, to: DType) -> Step:
    """The function that converts, chosen once for each pair."""
    if frm is BOOL and to.is_integer:
        return lambda a: a.astype(to.numpy)
    if frm.is_integer:
        if to is BOOL:
            return lambda a: np.not_equal(a, 0)
        if to.is_integer:
            return _saturate(frm, to)
        return _after(lambda a: a.astype(np.float32), _from_float32(to))
    return _after(_to_float32(frm), _from_float32(to))


def _after(first: Step | None, second: Step | None) -> Step:
    if first is None or second is None:
        return first or second or (lambda a: a)
    return _quiet(lambda a: second(first(a)))


def _saturate(frm: DType, to: DType) -> Step:
    source, target = np.iinfo(frm.numpy), np.iinfo(to.numpy)
    low, high = max(source.min, target.min), min(source.max, target.max)
    if (low, high) == (source.min, source.max):
        return lambda a: a.astype(to.numpy)
    return lambda a: np.clip(a, low, high).astype(to.numpy)


def _to_float32(frm: DType) -> Step | None:
    """Widen a float; exact."""
    if frm is FLOAT32 or frm is TFLOAT32:
        return None
    if frm.itemsize == 1:
        table = np.arange(256, dtype=np.uint8).view(frm.numpy).astype(np.float32)
        return lambda a: table.take(a.view(np.uint8))       # five times faster than astype
    return lambda a: a.astype(np.float32)


def _from_float32(to: DType) -> Step | None:
    if to is FLOAT32:
        return None
    if to is TFLOAT32:
        return round_to_tfloat32
    if to is BOOL:
        return lambda a: np.not_equal(a, 0)
    if to.is_integer:
        return _to_integer(to)
    if to.itemsize == 1:
        return _to_float8(to)
    return _quiet(lambda a: a.astype(to.numpy))


def round_to_tfloat32(array: np.ndarray) -> np.ndarray:
    """float32 values rounded to the nearest ones (ties to even) that 10 mantissa bits hold."""
    bits = array.view(np.uint32)
    rounded = (bits >> 13) & 1
    rounded += bits + 0xFFF
    rounded &= 0xFFFFE000
    nan = np.isnan(array)
    if nan.any():
        rounded = np.where(nan, (bits | 0x400000) & 0xFFFFE000, rounded)
    return rounded.view(TFLOAT32.numpy)


def _to_integer(to: DType) -> Step:
    limits = np.iinfo(to.numpy)
    low, high = np.float32(limits.min), np.float32(limits.max)
    beyond = int(high) > limits.max
    if beyond:
        high = np.nextafter(high, np.float32(0))            # the largest float32 the type holds

    def round_and_saturate(array: np.ndarray) -> np.ndarray:
        rounded = np.rint(array)
        clipped = np.clip(rounded, low, high)
        result = clipped.astype(to.numpy)
        exact = rounded <= high if beyond else clipped == clipped
        if not exact.all():                                 # NaN, and what lies above `high`
            saturated = np.where(rounded > high, to.numpy.type(limits.max), result)
            return np.where(np.isnan(array), to.numpy.type(0), saturated)
        return result

    return _quiet(round_and_saturate)


def _to_float8(to: DType) -> Step:
    """By a table over the upper half of a float32 whose last bit is sticky: four times faster than ``astype``.

    Seven mantissa bits, the last one set when anything below it was, still say on which side of a tie the value lies.
    """
    values = (np.arange(65536, dtype=np.uint32) << 16).view(np.float32)
    table = _quiet(values.astype)(to.numpy)

    def encode(array: np.ndarray) -> np.ndarray:
        bits = array.view(np.uint32)
        key = bits & 0xFFFF
        key += 0xFFFF
        key |= bits
        key >>= 16
        return table.take(key)

    return encode


def storage_type(dtype: DType) -> str:
    """The MLIR element type in which compiled code keeps ``dtype`` in memory.

    Integers are signless (the sign is in the operation), bool is a byte that holds 0 or 1, the 8-bit floats are their
    bytes, tfloat32 is a float32.
    """
    if dtype.is_integer or dtype.itemsize == 1:
        return f"i{dtype.bits}"
    return {FLOAT16: "f16", BFLOAT16: "bf16"}.get(dtype, "f32")

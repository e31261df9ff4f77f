# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Expands the rules of ``conversion`` to IR, between the types of ``storage_type``, on scalars and vectors."""

from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.scalar import dtypes

if TYPE_CHECKING:
    from nki_mlir.bindings import Value
    from nki_mlir.scalar.emit import ScalarEmitter

# Exponent bias and the byte patterns of infinity (None where there is none) and NaN.
_FLOAT8: dict[dtypes.DType, tuple[int, int | None, int]] = {
    dtypes.FLOAT8_E4M3: (7, 0x78, 0x7C),
    dtypes.FLOAT8_E4M3FN: (7, None, 0x7F),
    dtypes.FLOAT8_E5M2: (15, 0x7C, 0x7E),
}


def expand_convert(e: "ScalarEmitter", value: "Value", frm: dtypes.DType, to: dtypes.DType, keeps_nans: bool = False
                   ) -> "Value":
    """Emit the conversion of ``value`` from the storage type of ``frm`` to the storage type of ``to``.

    ``keeps_nans``: the lower half of each NaN is 0, so that the rounding to bf16 keeps NaN.
    """
    if frm is to:
        return value
    if to is dtypes.BOOL:
        number = value if frm.is_integer else to_float32(e, value, frm)
        return e.extui(e.nonzero(number), "i8")
    if frm.is_integer and to.is_integer:
        return _saturate(e, value, frm, to)
    if frm.is_integer and to is dtypes.BFLOAT16:
        number = to_float32(e, value, frm)
        return e.narrow_to_bfloat16(number, lambda x: e.upper_halves(_above(e, x)), True)
    return from_float32(e, to_float32(e, value, frm), to, keeps_nans)


def to_float32(e: "ScalarEmitter", value: "Value", frm: dtypes.DType) -> "Value":
    """Emit ``value`` as f32: exact for floats, to nearest even for integers."""
    if frm.is_integer:
        return e.sitofp(value, "f32") if frm.kind is dtypes.Encoding.SIGNED else e.uitofp(value, "f32")
    if frm is dtypes.FLOAT16:
        return e.extf(value, "f32")
    if frm is dtypes.BFLOAT16:
        return e.bitcast(e.shl(e.extui(value, "i32"), 16), "f32")
    return _from_float8(e, value, frm) if frm.itemsize == 1 else value


def from_float32(e: "ScalarEmitter", value: "Value", to: dtypes.DType, keeps_nans: bool = False) -> "Value":
    """Emit the rounding of an f32 to the storage type of ``to``."""
    if to is dtypes.FLOAT32:
        return value
    if to is dtypes.TFLOAT32:
        return e.bitcast(_round_bits(e, value, 13), "f32")
    if to.is_integer:
        return _to_integer(e, value, to)
    if to is dtypes.FLOAT16:
        return e.truncf(value, "f16")
    if to is dtypes.BFLOAT16:
        return e.narrow_to_bfloat16(value, lambda value: e.upper_halves(rounded_above(e, value, keeps_nans)))
    return _to_float8(e, value, to)


def rounded_to(e: "ScalarEmitter", value: "Value", to: dtypes.DType, keeps_nans: bool = False) -> "Value":
    """Emit an f32 rounded to a float type ``to``, as f32: ``to_float32`` of ``from_float32`` in fewer steps.

    ``keeps_nans``: the lower half of each NaN is 0, so that the rounding to bf16 keeps NaN.
    """
    if to is dtypes.BFLOAT16:
        def in_steps(value: "Value") -> "Value":
            rounded = e.round_words(value, lambda value: e.bitcast(e.and_(_above(e, value), 0xFFFF0000), "f32"))
            return rounded if keeps_nans else e.unless_nan(value, rounded)
        return e.round_to_bfloat16(value, in_steps)
    if to in _FLOAT8:
        return _rounded_to_float8(e, value, to)
    return to_float32(e, from_float32(e, value, to), to)


def rounded_above(e: "ScalarEmitter", value: "Value", keeps_nans: bool) -> "Value":
    """Emit an i32 whose upper half is an f32 rounded to bf16; ``keeps_nans`` as for ``expand_convert``.

    arith.truncf is an instruction on x86 that flushes denormals.
    """
    rounded = _above(e, value)
    return rounded if keeps_nans else e.quiet_nans(value, rounded)


def shortened_nan(e: "ScalarEmitter", value: "Value") -> "Value":
    """Emit an f32; NaN becomes a quiet one whose lower half is 0."""
    bits = e.bitcast(value, "i32")
    return e.select(e.is_nan(value), e.bitcast(e.or_(e.and_(bits, 0xFFFF0000), 0x400000), "f32"), value)


def _above(e: "ScalarEmitter", value: "Value") -> "Value":
    """Emit an i32 whose upper half is the upper half of an f32, no NaN, rounded to nearest even.

    It subtracts -0x7FFF - (the upper half's lowest bit), which logic computes: some hosts have one instruction for it.
    """
    bits = e.bitcast(value, "i32")
    return e.sub(bits, e.xor(e.and_(e.shrui(bits, 16), 1), 0xFFFF8001))


def _round_bits(e: "ScalarEmitter", value: "Value", dropped: int) -> "Value":
    """Emit the bits of an f32 rounded to nearest even above the ``dropped`` low ones, which become zero; NaN stays."""
    bits = e.bitcast(value, "i32")
    mask = -1 << dropped
    odd = e.and_(e.shrui(bits, dropped), 1)
    rounded = e.add(bits, e.add(odd, (1 << (dropped - 1)) - 1))
    return e.and_(e.select(e.is_nan(value), e.or_(bits, 0x400000), rounded), mask)


def _from_scale(e: "ScalarEmitter", value: "Value") -> "Value":
    """Emit the power of two whose exponent is a byte: the exponent of float32. The lowest of these powers is a
    denormal."""
    byte = e.extui(value, "i32")
    bits = e.select(e.cmp("eq", byte, 0), e.const(byte, 0x400000), e.shl(byte, 23))
    return e.bitcast(e.select(e.cmp("eq", byte, 0xFF), e.const(byte, 0x7FC00000), bits), "f32")


def _to_scale(e: "ScalarEmitter", value: "Value") -> "Value":
    """Emit the nearest power of two, ties to the larger. Zero, negative numbers, infinities and NaN become NaN."""
    bits = e.bitcast(value, "i32")
    code = e.minui(e.shrui(e.add(bits, 0x400000), 23), 0xFF)
    code = e.select(e.cmp("eq", bits, 0x400000), e.const(bits, 0), code)
    return e.trunci(e.select(e.cmp("sle", bits, 0), e.const(bits, 0xFF), code), "i8")


def _from_float8(e: "ScalarEmitter", value: "Value", frm: dtypes.DType) -> "Value":
    if frm is dtypes.FLOAT8_E8M0FNU:
        return _from_scale(e, value)
    if frm is dtypes.FLOAT8_E5M2:                  # the upper half of a float16
        return e.extf(e.bitcast(e.shl(e.extui(value, "i16"), 8), "f16"), "f32")
    bias, infinity, nan = _FLOAT8[frm]
    # Bits of a float16 with the sign in its place and the exponent below its highest bit: this value is too small by a
    # power of two.
    half = e.shl(e.extsi(value, "i16"), 10 - frm.mantissa)
    highest = 1 << (frm.bits - 1 + 10 - frm.mantissa)
    # The highest bit turns all patterns from the first special one on into infinity and NaN: a sum carries into it.
    first_special = nan if infinity is None else infinity
    carried = e.add(e.and_(half, highest - 1), highest - (first_special << (10 - frm.mantissa)))
    bits = e.or_(e.and_(half, ~highest), e.and_(carried, highest))
    return e.mul(e.extf(e.bitcast(bits, "f16"), "f32"), 2.0 ** (15 - bias))


def _to_float8(e: "ScalarEmitter", value: "Value", to: dtypes.DType) -> "Value":
    if to is dtypes.FLOAT8_E8M0FNU:
        return _to_scale(e, value)
    bias, infinity, nan = _FLOAT8[to]
    dropped = 23 - to.mantissa
    bits = e.bitcast(value, "i32")
    magnitude = e.and_(bits, 0x7FFFFFFF)
    power, _, shifted = _shifted(e, magnitude, to)
    # The sum ends with the rounded mantissa and its leading one; the powers in it leave no trace in the lowest byte.
    code = e.add(e.add(e.bitcast(shifted, "i32"), e.shrui(power, dropped)), -((128 - bias) << to.mantissa))
    if infinity is not None:
        code = e.select(e.cmp("ugt", magnitude, 0x7F800000), nan, code)
    return e.trunci(e.or_(code, e.and_(e.shrui(bits, 24), 0x80)), "i8")


def _rounded_to_float8(e: "ScalarEmitter", value: "Value", to: dtypes.DType) -> "Value":
    bits = e.bitcast(value, "i32")
    magnitude = e.and_(bits, 0x7FFFFFFF)
    _, large, shifted = _shifted(e, magnitude, to)
    rounded = e.bitcast(e.sub(shifted, large), "i32")
    infinity = _FLOAT8[to][1]
    special = 0x7FC00000 if infinity is None else 0x7F800000
    rounded = e.select(e.cmp("uge", rounded, _least_beyond(to)), e.const(rounded, special), rounded)
    if infinity is not None:
        rounded = e.select(e.cmp("ugt", magnitude, 0x7F800000), e.const(rounded, 0x7FC00000), rounded)
    return e.bitcast(e.or_(rounded, e.and_(bits, 0x80000000)), "f32")


def _shifted(e: "ScalarEmitter", magnitude: "Value", to: dtypes.DType) -> tuple["Value", "Value", "Value"]:
    """Return the power of two of a number, a power that is larger by the dropped bits, and the sum of the larger power
    and the number: this sum rounds to the last bit that ``to`` has at that exponent. Numbers that are too large
    saturate first."""
    bias, dropped = _FLOAT8[to][0], 23 - to.mantissa
    within = e.minui(magnitude, _least_beyond(to))
    # for denormals, the power of the least normal number
    power = e.maxui(e.and_(within, 0x7F800000), (128 - bias) << 23)
    large = e.bitcast(e.add(power, dropped << 23), "f32")
    return power, large, e.add(e.bitcast(within, "f32"), large)


def _least_beyond(to: dtypes.DType) -> int:
    """Return the bits of the least float32 that is too large: the number whose pattern is infinity's or NaN's."""
    bias, infinity, nan = _FLOAT8[to]
    return ((nan if infinity is None else infinity) << (23 - to.mantissa)) + ((127 - bias) << 23)


def _to_integer(e: "ScalarEmitter", value: "Value", to: dtypes.DType) -> "Value":
    limits = np.iinfo(to.numpy)
    low, high = float(limits.min), np.float32(limits.max)
    beyond = int(high) > limits.max             # `high` was rounded up to a power of two
    if beyond:
        high = np.nextafter(high, np.float32(0))
    rounded = e.round_even(value)
    inside = e.select(e.is_nan(value), 0.0, e.clamp(rounded, low, float(high)))
    name = f"i{to.bits}"
    # Types narrower than 32 bits go through i32, which has vector instructions for the conversion.
    wide = f"i{max(32, to.bits)}"
    convert = e.fptoui if to.kind is dtypes.Encoding.UNSIGNED and to.bits >= 32 else e.fptosi
    result = convert(inside, wide)
    if beyond:
        return e.select(e.cmp("ogt", rounded, float(high)), e.const(result, limits.max), result)
    return e.trunci(result, name) if name != wide else result


def _saturate(e: "ScalarEmitter", value: "Value", frm: dtypes.DType, to: dtypes.DType) -> "Value":
    """Emit the saturating conversion of an integer, or a bool, to an integer type."""
    source = (0, 1) if frm is dtypes.BOOL else (int(np.iinfo(frm.numpy).min), int(np.iinfo(frm.numpy).max))
    target = np.iinfo(to.numpy)
    signed = frm.kind is dtypes.Encoding.SIGNED
    if target.min > source[0]:
        value = e.maxsi(value, int(target.min))
    if target.max < source[1]:
        value = (e.minsi if signed else e.minui)(value, int(target.max))
    if to.bits > frm.bits:
        return (e.extsi if signed else e.extui)(value, f"i{to.bits}")
    return e.trunci(value, f"i{to.bits}") if to.bits < frm.bits else value

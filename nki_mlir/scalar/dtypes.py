# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element types of tensors: one ``DType`` each, with its NumPy storage, its MLIR spelling and its assembly name.

It also has the conversions between element types, and the rules for the dtype of an operation's result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from typing import Any

import ml_dtypes
import numpy as np

from nki_mlir.similar_names import nearest


class Encoding(Enum):
    """The interpretation of an element's bits."""

    FLOAT = "float"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    BOOL = "bool"


@dataclass(frozen=True, eq=False)
class DType:
    """One element type. ``name`` is the language's name, ``mlir`` the text of the MLIR type, ``asm`` the profiler's
    name."""

    name: str
    numpy: np.dtype
    mlir: str
    asm: str
    kind: Encoding
    mantissa: int = 0           # explicit mantissa bits of a float

    @cached_property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return self.numpy.itemsize

    @property
    def bits(self) -> int:
        return self.itemsize * 8

    @property
    def is_float(self) -> bool:
        return self.kind is Encoding.FLOAT

    @property
    def is_integer(self) -> bool:
        """Return whether the type is signed, unsigned or bool (which is stored as a byte)."""
        return self.kind is not Encoding.FLOAT

    @property
    def dtype(self) -> np.dtype:
        """The NumPy dtype, which NumPy reads where it expects one."""
        return self.numpy

    def __eq__(self, other: object) -> bool:
        """Compare with a ``DType``, or with a NumPy dtype, scalar type or name of the same element type."""
        if isinstance(other, DType):
            return self is other
        try:
            return dtype_of(other) is self
        except (TypeError, ValueError):         # ValueError: NumPy reads the value as a list of fields
            return False

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.numpy)

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__

    def __reduce__(self) -> str | tuple[object, ...]:
        """Make copies and pickles of an element type the type itself."""
        return dtype_of, (self.name,)


del DType.__dataclass_fields__          # so that ``dataclasses.asdict`` treats it as a value


def _tfloat32() -> np.dtype:
    # float32 storage; the metadata distinguishes it from float32 when a kernel passes it back.
    return np.dtype(np.float32, metadata={"nki": "tfloat32"})


FLOAT32 = DType("float32", np.dtype(np.float32), "f32", "fp32", Encoding.FLOAT, 23)
TFLOAT32 = DType("tfloat32", _tfloat32(), "tf32", "fp32r", Encoding.FLOAT, 10)
FLOAT16 = DType("float16", np.dtype(np.float16), "f16", "fp16", Encoding.FLOAT, 10)
BFLOAT16 = DType("bfloat16", np.dtype(ml_dtypes.bfloat16), "bf16", "bfloat16", Encoding.FLOAT, 7)
FLOAT8_E4M3 = DType("float8_e4m3", np.dtype(ml_dtypes.float8_e4m3), "f8E4M3", "fp8_e4", Encoding.FLOAT, 3)
FLOAT8_E4M3FN = DType("float8_e4m3fn", np.dtype(ml_dtypes.float8_e4m3fn), "f8E4M3FN", "fp8_e4fn", Encoding.FLOAT, 3)
FLOAT8_E5M2 = DType("float8_e5m2", np.dtype(ml_dtypes.float8_e5m2), "f8E5M2", "fp8_e5", Encoding.FLOAT, 2)
INT8 = DType("int8", np.dtype(np.int8), "i8", "int8", Encoding.SIGNED)
INT16 = DType("int16", np.dtype(np.int16), "i16", "int16", Encoding.SIGNED)
INT32 = DType("int32", np.dtype(np.int32), "i32", "int32", Encoding.SIGNED)
INT64 = DType("int64", np.dtype(np.int64), "i64", "int64", Encoding.SIGNED)
UINT8 = DType("uint8", np.dtype(np.uint8), "ui8", "uint8", Encoding.UNSIGNED)
UINT16 = DType("uint16", np.dtype(np.uint16), "ui16", "uint16", Encoding.UNSIGNED)
UINT32 = DType("uint32", np.dtype(np.uint32), "ui32", "uint32", Encoding.UNSIGNED)
UINT64 = DType("uint64", np.dtype(np.uint64), "ui64", "uint64", Encoding.UNSIGNED)
# A bool is a byte that holds 0 or 1. ``i1`` is only its spelling in memref types.
BOOL = DType("bool", np.dtype(np.bool_), "i1", "bool", Encoding.BOOL)

ALL = (FLOAT32, TFLOAT32, FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E4M3FN, FLOAT8_E5M2,
       INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, BOOL)
# Microscaling: a scale that is a power of two, and four small floats packed into one element. A packed element is its
# bits: copies move it, ``quantize_mx`` writes it, and ``nc_matmul_mx`` reads the four floats.
FLOAT8_E8M0FNU = DType("float8_e8m0fnu", np.dtype(ml_dtypes.float8_e8m0fnu), "f8E8M0FNU", "fp8_e8", Encoding.FLOAT)
FLOAT8_E5M2_X4 = DType("float8_e5m2_x4", np.dtype(np.uint32), "ui32", "fp8_e5_x4", Encoding.UNSIGNED)
FLOAT8_E4M3FN_X4 = DType("float8_e4m3fn_x4", np.dtype(np.uint32), "ui32", "fp8_e4fn_x4", Encoding.UNSIGNED)
FLOAT4_E2M1FN_X4 = DType("float4_e2m1fn_x4", np.dtype(np.uint16), "ui16", "fp4_e2_x4", Encoding.UNSIGNED)
MICROSCALING = (FLOAT8_E8M0FNU, FLOAT8_E5M2_X4, FLOAT8_E4M3FN_X4, FLOAT4_E2M1FN_X4)

BY_NAME = {d.name: d for d in (*ALL, *MICROSCALING)} | {"bool_": BOOL}
BY_MLIR = {d.mlir: d for d in (FLOAT8_E8M0FNU, *ALL)}
BY_ASM = {d.asm: d for d in (*ALL, *MICROSCALING)}
_BY_NUMPY = {d.numpy: d for d in (*ALL, FLOAT8_E8M0FNU) if d is not TFLOAT32}

# The classes of numbers, those of the floats that NumPy does not have included.
NUMBER_CLASSES: tuple[type, ...] = (
    int, float, np.number, np.bool_, *(d.numpy.type for d in _BY_NUMPY.values() if not d.is_integer))


@cache
def finite_range(dtype: DType) -> tuple[float, float]:
    """Return the least and the greatest finite value of an element type; -inf and inf for a bool, to which any number
    converts."""
    if dtype is BOOL:
        return -np.inf, np.inf
    limits = ml_dtypes.finfo(dtype.numpy) if dtype.is_float else np.iinfo(dtype.numpy)
    return float(limits.min), float(limits.max)


_NO_NUMBERS = {"O": "its elements are Python objects, and have to be numbers",
               "V": "its elements are records, and have to be numbers",
               **dict.fromkeys("SU", "its elements are text, and have to be numbers"),
               **dict.fromkeys("Mm", "its elements are times, and have to be numbers"),
               "c": "the device has no complex numbers: pass the real and the imaginary part as two arrays of float32"}


def dtype_of(value: Any) -> DType:
    """Return the ``DType`` that ``value`` names: a DType, a NumPy dtype or scalar type, or a string.

    Raise ``TypeError`` for anything else, float64 included: the device has no 64-bit floats.
    """
    if type(value) is DType:
        return value
    if isinstance(value, str) and value in BY_NAME:
        return BY_NAME[value]
    try:
        # Before NumPy 2.3 a tile would be the dtype that its attribute ``dtype`` names.
        if not isinstance(value, type) and not isinstance(getattr(value, "dtype", None), np.dtype | None):
            raise TypeError
        dtype = np.dtype(value)
    except (TypeError, ValueError):                 # ValueError: the attribute ``dtype`` of a class is no NumPy dtype
        if hasattr(value, "dtype"):                 # the text of a tile would be all of its elements
            raise TypeError(f"a value of type {type(value).__name__} is not an element type") from None
        advice = _nearest(value if isinstance(value, str) else "")
        raise TypeError(f"{value!r} is not an element type; {advice}") from None
    if dtype.metadata and dtype.metadata.get("nki") == "tfloat32":
        return TFLOAT32
    if dtype not in _BY_NUMPY:
        is_number = dtype.kind == "V" and dtype.names is None and dtype.type is not np.void    # of ml_dtypes
        reason = (not is_number and _NO_NUMBERS.get(dtype.kind)) or _nearest(dtype.newbyteorder('=').name)
        raise TypeError(f"{dtype} is not an element type; {reason}")
    return _BY_NUMPY[dtype]


def _nearest(name: str) -> str:
    """Return advice for an element type that the language does not have."""
    if name in ("float64", "longdouble", "float128"):
        return "the nearest is float32: the device has no 64-bit floats"
    if name in ("int2", "int4", "uint2", "uint4"):
        return f"the nearest is {name[:-1]}8"
    if name in BY_NAME:
        return f"{name} in the byte order of this machine is one"
    similar = nearest(name, BY_NAME, 0.6)
    return f"the nearest is {similar}" if similar else (
        "the language has floats of 8, 16 and 32 bits and integers of 8 to 64")


# -- conversions -------------------------------------------------------------------------------------------------------
# In NumPy; ``conversion_expansion`` has the same as IR.
# - float to float rounds to nearest even; overflow gives infinity where the type has one, else NaN; NaN stays NaN,
# denormals and the sign of zero are kept. tfloat32 is float32 rounded to 10 mantissa bits.
# - float to integer rounds to nearest even and saturates; NaN gives 0.
# - integer to float rounds to nearest even in float32 first, then to the type, as the engines do.
# - integer to integer saturates.
# - anything to bool is ``!= 0`` (NaN is true); bool to a number is 0 or 1.
# The bits of a NaN are fixed for bfloat16 and the 8-bit floats (quiet, sign kept); elsewhere only that it is one.

Step = Callable[[np.ndarray], np.ndarray]

_quiet = np.errstate(all="ignore")


def convert(array: np.ndarray, to: DType, frm: DType | None = None) -> np.ndarray:
    """Return ``array`` with elements of dtype ``to``; the same array if nothing changes.

    ``frm`` distinguishes tfloat32 from float32 where the array's own dtype does not.

    >>> convert(np.float32([2.5, -300.0, np.nan]), INT8)
    array([   2, -128,    0], dtype=int8)
    """
    frm = frm or dtype_of(array.dtype)
    return array if frm is to else np.asarray(_route(frm, to)(array))


@cache
def _route(frm: DType, to: DType) -> Step:
    """Return the function that converts a pair of dtypes, memoized."""
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
    """Return the function that widens a float to float32, exactly; None if nothing changes."""
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
    """Round float32 values to the nearest ones (ties to even) with 10 mantissa bits."""
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
    """Return an encoder with a table over the upper half of a float32 whose last bit is sticky: four times faster than
    ``astype``.

    Seven mantissa bits, the last one set if anything below it was, still tell on which side of a tie the value lies.
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
    """Return the MLIR element type in which compiled code keeps ``dtype`` in memory.

    Integers are signless (the sign is in the operation), bool is a byte that is 0 or 1, tfloat32 is a float32. bfloat16
    and the 8-bit floats are their bits: on hosts without an instruction for them, LLVM moves vectors of bf16 through
    float32 and calls a function that is not linked.
    """
    if dtype.is_integer or dtype.itemsize == 1 or dtype is BFLOAT16:
        return f"i{dtype.bits}"
    return "f16" if dtype is FLOAT16 else "f32"


# -- dtypes of results -------------------------------------------------------------------------------------------------
# The dtype of the result of a binary operation that names none.

_SIGNED = (INT8, INT16, INT32, INT64)


def operand_dtype(operand: object) -> DType:
    """Return the dtype of an operand. A Python number has the widest dtype of its kind.

    >>> operand_dtype(INT8), operand_dtype(2), operand_dtype(np.float16(2))
    (int8, int32, float16)
    """
    if type(operand) is float:
        return FLOAT32
    match operand:
        case DType():
            return operand
        case np.generic():
            return FLOAT32 if operand.dtype == np.float64 else dtype_of(operand.dtype)
        case bool():
            return UINT8
        case int() if -2**31 <= operand < 2**31:
            return INT32
        case int() if 0 <= operand < 2**32:
            return UINT32
        case int() | float():
            return FLOAT32
    raise TypeError(f"{operand!r} is neither a dtype nor a number")


def promote(a: object, b: object) -> DType:
    """Return the dtype of the result for operands of dtypes, or numbers, ``a`` and ``b``, in any order.

    >>> promote(INT8, 2), promote(BFLOAT16, 2), promote(BFLOAT16, 1.0)
    (int32, bfloat16, float32)
    """
    if a is b and type(a) is DType and a is not BOOL:       # the usual case, quickly
        return a
    first, second = [UINT8 if d is BOOL else d for d in (operand_dtype(a), operand_dtype(b))]
    if first is second:
        return first
    if first.is_float and second.is_float:
        return _promote_floats(first, second)
    if first.is_float or second.is_float:
        return first if first.is_float else second
    return _promote_integers(first, second)


def _promote_floats(a: DType, b: DType) -> DType:
    if a.itemsize == b.itemsize:
        # Neither represents the other: the next wider one represents both.
        return BFLOAT16 if a.itemsize == 1 else FLOAT32
    wider = a if a.itemsize > b.itemsize else b
    return FLOAT32 if wider is TFLOAT32 else wider


def _promote_integers(a: DType, b: DType) -> DType:
    if a.kind is b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind is Encoding.SIGNED else (b, a)
    if UINT64 in (a, b) or (UINT32 in (a, b) and signed is not INT64):
        return FLOAT32                      # the device has no integer for both
    return next(d for d in _SIGNED if d.bits >= signed.bits and d.bits > unsigned.bits)

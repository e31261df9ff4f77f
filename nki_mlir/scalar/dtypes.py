# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element types of tensors: one ``DType`` each, with its NumPy storage, its MLIR spelling and its assembly name."""

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np


class Encoding(Enum):
    """How the bits of an element are read."""

    FLOAT = "float"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    BOOL = "bool"


@dataclass(frozen=True, eq=False)
class DType:
    """One element type. ``name`` is the language's, ``mlir`` the type's text, ``asm`` the profiler's vocabulary."""

    name: str
    numpy: np.dtype
    mlir: str
    asm: str
    kind: Encoding
    mantissa: int = 0           # explicit mantissa bits of a float

    @property
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
        """Signed, unsigned or bool (which is stored as a byte)."""
        return self.kind is not Encoding.FLOAT

    @property
    def dtype(self) -> np.dtype:
        """What NumPy takes it for wherever it wants a dtype."""
        return self.numpy

    def __eq__(self, other: object) -> bool:
        """Equal to the NumPy dtype, scalar type or name of the same element type, as kernels compare them."""
        if isinstance(other, DType):
            return self is other
        try:
            return dtype_of(other) is self
        except (TypeError, ValueError):         # ValueError: of what NumPy takes for a list of fields
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
        """Copies and pickles of an element type are the type itself."""
        return dtype_of, (self.name,)


del DType.__dataclass_fields__          # to ``dataclasses.asdict`` it is a value, not a record


def _tfloat32() -> np.dtype:
    # float32 storage; the metadata tells it from float32 when it comes back from a kernel author.
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
# bits: it is moved, quantized to and multiplied from, by instructions that know what is inside.
FLOAT8_E8M0FNU = DType("float8_e8m0fnu", np.dtype(ml_dtypes.float8_e8m0fnu), "f8E8M0FNU", "fp8_e8", Encoding.FLOAT)
FLOAT8_E5M2_X4 = DType("float8_e5m2_x4", np.dtype(np.uint32), "ui32", "fp8_e5_x4", Encoding.UNSIGNED)
FLOAT8_E4M3FN_X4 = DType("float8_e4m3fn_x4", np.dtype(np.uint32), "ui32", "fp8_e4fn_x4", Encoding.UNSIGNED)
FLOAT4_E2M1FN_X4 = DType("float4_e2m1fn_x4", np.dtype(np.uint16), "ui16", "fp4_e2_x4", Encoding.UNSIGNED)
MICROSCALING = (FLOAT8_E8M0FNU, FLOAT8_E5M2_X4, FLOAT8_E4M3FN_X4, FLOAT4_E2M1FN_X4)

BY_NAME = {d.name: d for d in (*ALL, *MICROSCALING)} | {"bool_": BOOL}
BY_MLIR = {d.mlir: d for d in (FLOAT8_E8M0FNU, *ALL)}
BY_ASM = {d.asm: d for d in (*ALL, *MICROSCALING)}
_BY_NUMPY = {d.numpy: d for d in (*ALL, FLOAT8_E8M0FNU) if d is not TFLOAT32}


def dtype_of(value: Any) -> DType:
    """The ``DType`` that ``value`` names: a DType, a NumPy dtype or scalar type, or a string.

    Raises ``TypeError`` for anything else, float64 included: the device has no 64-bit floats.
    """
    if type(value) is DType:
        return value
    if isinstance(value, str) and value in BY_NAME:
        return BY_NAME[value]
    try:
        dtype = np.dtype(value)
    except TypeError:
        raise TypeError(f"{value!r} is not an element type; the language has {', '.join(BY_NAME)}") from None
    if dtype.metadata and dtype.metadata.get("nki") == "tfloat32":
        return TFLOAT32
    if dtype not in _BY_NUMPY:
        raise TypeError(f"{dtype} is not an element type; the language has {', '.join(BY_NAME)}")
    return _BY_NUMPY[dtype]

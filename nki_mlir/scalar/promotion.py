# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The dtype of the result of a binary operation that names none."""


import numpy as np

from nki_mlir.scalar.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    TFLOAT32,
    UINT8,
    UINT32,
    UINT64,
    DType,
    Encoding,
    dtype_of,
)

_SIGNED = (INT8, INT16, INT32, INT64)


def operand_dtype(operand: object) -> DType:
    """The dtype that an operand brings: its own, or for a Python number the widest of its kind.

    >>> operand_dtype(INT8), operand_dtype(2), operand_dtype(np.float16(2))
    (int8, int32, float16)
    """
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
    """The dtype of the result for operands of dtypes, or numbers, ``a`` and ``b``; it does not depend on their order.

    >>> promote(INT8, 2), promote(BFLOAT16, 2), promote(BFLOAT16, 1.0)
    (int32, bfloat16, float32)
    """
    if a is b and type(a) is DType and a is not BOOL:       # the usual case, quickly
        return a
    first, second = (UINT8 if d is BOOL else d for d in (operand_dtype(a), operand_dtype(b)))
    if first is second:
        return first
    if first.is_float and second.is_float:
        return _promote_floats(first, second)
    if first.is_float or second.is_float:
        return first if first.is_float else second
    return _promote_integers(first, second)


def _promote_floats(a: DType, b: DType) -> DType:
    if a.itemsize == b.itemsize:
        # Neither holds the other: the next wider one does.
        return BFLOAT16 if a.itemsize == 1 else FLOAT32
    wider = a if a.itemsize > b.itemsize else b
    return FLOAT32 if wider is TFLOAT32 else wider


def _promote_integers(a: DType, b: DType) -> DType:
    if a.kind is b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind is Encoding.SIGNED else (b, a)
    if UINT64 in (a, b) or (UINT32 in (a, b) and signed is not INT64):
        return FLOAT32                      # the device has no integer that holds both
    return next(d for d in _SIGNED if d.bits >= signed.bits and d.bits > unsigned.bits)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers of operations that no rule, no instruction and no fusion depends on.

A kernel that was unrolled may have thousands of operations that differ only in such a number. They are lowered and
fused once: instructions contain the number as it is, rounded to float32. The class of an operation names the field
(``Op.free_number``). A number is free if the operation computes with it in float32, on floats, by one of
``FUNCTIONS``, and if it is neither special (0, 1, -1) nor close to the ends of float32.
"""

from math import copysign
from struct import Struct
from typing import NamedTuple

from nki_mlir.dialects.op import Op, changed
from nki_mlir.scalar.dtypes import FLOAT32

FUNCTIONS = "add", "maximum", "minimum", "multiply", "subtract"
LEAST, MOST = 2.0 ** -120, 2.0 ** 120
IN_FLOAT32 = Struct("f")
# by whether a number is an integer, and whether float32 represents it
STANDINS = {(True, True): 12_345.0, (True, False): 123_456_789.0, (False, True): 1_234.5, (False, False): 1_234.1}


class FreeNumber(NamedTuple):
    """The ``field`` of an operation with a free number, the number in ``float32``, and one that stands for all numbers
    of its sign, of which all or none are integers, and all or none are exact in float32."""

    field: str
    float32: float
    standin: float


def free_number(op: Op) -> FreeNumber | None:
    """Return the free number of an operation, if it has one."""
    if not op.free_number:
        return None
    field, function, tile = op.free_number
    values = op.__dict__
    if values[function] not in FUNCTIONS or (tile and values[tile] is not None):
        return None
    number = values[field]
    size = abs(number)
    if not LEAST <= size <= MOST or size == 1:
        return None
    for operand in type(op).tiles_in(values):
        if operand is not None and not operand.access.dtype.is_float:
            return None
    if op.compute is not FLOAT32:
        return None
    rounded, = IN_FLOAT32.unpack(IN_FLOAT32.pack(number))
    standin = STANDINS[float(number).is_integer(), rounded == number]
    return FreeNumber(field, rounded, copysign(standin, number))


def with_standin(op: Op) -> Op:
    """Return the operation with the number that stands for its free number; the operation itself if it has none, or
    has that number."""
    number = free_number(op)
    if number is None or op.__dict__[number.field] == number.standin:
        return op
    return changed(op, None, **{number.field: number.standin})

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Constants that are zero beside their diagonal, which has one value: ``diagonal<128xf32, 1.0>``.

Kernels load an identity matrix to transpose with it. MLIR prints the 65,536 bytes of such a ``memref.global`` as a
string of digits.
"""

import re
from collections.abc import Iterator

import numpy as np

from nki_mlir.custom_form.lexing import STRING
from nki_mlir.scalar.dtypes import BY_MLIR, DType

DENSE = re.compile(r'(\s*memref\.global .* : memref<(\d+)x\2x(\w+), "hbm"> = )dense<"0x([0-9A-F]+)">')
FORM = "= diagonal<"
DIAGONAL = re.compile(STRING + r"|//[^\n]*|\bmemref\.global\b[^\n]*? = (diagonal<(\d+)x(\w+), ([\w.+-]+)>)")
LARGEST = 1_024                         # rows: MLIR itself reports the form of a larger matrix, as no attribute


def with_diagonal(line: str) -> str:
    """Return the line of a constant in its short form, if the constant is zero beside a diagonal of one value."""
    match = DENSE.match(line)
    if match is None or match[3] not in BY_MLIR:
        return line
    dtype, value = BY_MLIR[match[3]], bytes.fromhex(match[4])
    short = str(np.frombuffer(value[:dtype.itemsize], dtype.numpy)[0])
    if dense_text(int(match[2]), dtype, short) != match[4]:
        return line
    return f"{match[1]}diagonal<{match[2]}x{match[3]}, {short}>{line[match.end():]}"


def diagonals_in(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield where each short form of a text begins and ends, and MLIR's form."""
    for match in DIAGONAL.finditer(text) if FORM in text else ():
        if match[1] is not None and match[3] in BY_MLIR:
            digits = dense_text(int(match[2]), BY_MLIR[match[3]], match[4])
            if digits is not None:
                yield *match.span(1), f'dense<"0x{digits}">'


def dense_text(size: int, dtype: DType, value: str) -> str | None:
    """Return the bytes of a square matrix with this value on its diagonal, as MLIR writes them; None if the text is no
    number of the type, or the matrix is too large."""
    if size > LARGEST:
        return None
    matrix = np.zeros((size, size), dtype.numpy)
    try:
        np.fill_diagonal(matrix, float(value) if dtype.is_float else int(value))
    except (ValueError, OverflowError):
        return None
    return matrix.tobytes().hex().upper()

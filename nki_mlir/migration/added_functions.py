# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that the migration adds to the new text, for facts that the old text does not show.

These are the dtype of an operation of a tile and a number, the dtype of a choice between two tiles or of a sum of
several, whether a view has one dimension, and the size of an element, which no function of ``nki`` returns.

before:  mean = total / 64              after:  mean = nl.multiply(total, 1 / 64, dtype=quotient_dtype(total))
         double = total * n                     double = nl.multiply(total, n, dtype=number_dtype(total.dtype, n))
         row = nl.load(x[i])                    row = nl.load(as_rows(x[i]))
        y = nl.where(m, a, b)                  y = nl.where(m, a, b, dtype=common_dtype(a.dtype, b.dtype))

A tile of floats and an integer give the tile's dtype, a narrow integer tile int32, and any tile and a float float32. A
quotient of integers is float32. Integers of Python and of NumPy have ``bit_count``. A choice gives the dtype to which
the beta generation promotes both.
"""

import ast
import re

from nki_mlir.migration.names import Names

QUOTIENT = "quotient_dtype"
NUMBER = "number_dtype"
COMMON = "common_dtype"
TOTAL = "total_dtype"
ROWS = "as_rows"
SIZE = "sizeinbytes"
DEFINITIONS = {QUOTIENT: '''

def quotient_dtype(tile, number=1):
    """Return the dtype of a quotient of a tile and a number: the tile's, but float32 for integers and by a float."""
    integers = (nl.bool_, nl.int8, nl.int16, nl.int32, nl.uint8, nl.uint16, nl.uint32)
    if not hasattr(number, "bit_count") or tile.dtype in integers:
        return nl.float32
    return tile.dtype
''', NUMBER: '''

def number_dtype(dtype, number):
    """Return the dtype of an operation of a tile with a number: the tile's, float32 by a float, or int32 if narrow."""
    if not hasattr(number, "bit_count") or dtype == nl.uint32:
        return nl.float32
    return nl.int32 if dtype in (nl.bool_, nl.int8, nl.int16, nl.uint8, nl.uint16) else dtype
''', COMMON: '''

def common_dtype(first, second):
    """Return the dtype that holds tiles of two dtypes: the float, the wider one, or one that is wider than both."""
    signed, unsigned = (nl.int8, nl.int16, nl.int32), (nl.bool_, nl.uint8, nl.uint16, nl.uint32)
    both, words = (first, second), (nl.bfloat16, nl.float16)
    if first == second and first != nl.bool_:
        return first
    if first in unsigned and second in unsigned:
        return nl.uint32 if nl.uint32 in both else nl.uint16 if nl.uint16 in both else nl.uint8
    if first in signed + unsigned and second in signed + unsigned:
        if nl.uint32 in both:
            return nl.float32
        return nl.int32 if nl.int32 in both or nl.uint16 in both else nl.int16
    if first in signed + unsigned or second in signed + unsigned:
        return second if first in signed + unsigned else first
    if nl.float32 in both or nl.tfloat32 in both or (first in words and second in words):
        return nl.float32
    return first if first in words else second if second in words else nl.bfloat16
''', TOTAL: '''

def total_dtype(dtype):
    """Return the dtype in which tiles are added: float32, and that of integers of 32 bits."""
    return dtype if dtype in (nl.int32, nl.uint32) else nl.float32
''', ROWS: '''

def as_rows(view):
    """Return a view of one dimension as a column, any other view unchanged."""
    return view.reshape((view.shape[0], 1)) if len(view.shape) == 1 else view
''', SIZE: '''

def sizeinbytes(dtype):
    """Return the bytes of an element."""
    if dtype in (nl.bfloat16, nl.float16, nl.int16, nl.uint16):
        return 2
    return 4 if dtype in (nl.float32, nl.tfloat32, nl.int32, nl.uint32) else 1
'''}


def with_added_functions(text: str) -> str:
    """Return a text with the definition of each function of this module that the text calls and does not define. The
    definitions follow the imports that precede the first function or class of the text."""
    for name, definition in reversed(DEFINITIONS.items()):
        if not re.search(rf"\b{name}\(", text) or f"def {name}(" in text:
            continue
        body = ast.parse(text).body
        first = next((k for k, n in enumerate(body) if isinstance(n, ast.FunctionDef | ast.ClassDef)), len(body))
        imports = [n for n in body[:first] if isinstance(n, ast.Import | ast.ImportFrom)]
        lines, at = text.splitlines(), max((n.end_lineno or 0 for n in imports), default=0)
        aliased = re.sub(r"\bnl\.", f"{Names(text).alias('nl')}.", definition)
        text = "\n".join([*lines[:at], *aliased.splitlines(), *lines[at:]]) + "\n"
    return text

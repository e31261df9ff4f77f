# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The dtype of quotients of tiles whose dtype the text does not show, by a function that the new text gets.

before:  mean = total / 64              after:  mean = nl.multiply(total, 1 / 64, dtype=quotient_dtype(total))

A quotient of a tile of floats and an integer has the tile's dtype, that of integers, or by a float, float32.
"""

import ast
import re

from nki_mlir.migration.names import Names

FUNCTION = "quotient_dtype"
DEFINITION = '''

def quotient_dtype(tile, number=1):
    """Return the dtype of a quotient of a tile and a number: the tile's, but float32 for integers and by a float."""
    integers = (nl.bool_, nl.int8, nl.int16, nl.int32, nl.uint8, nl.uint16, nl.uint32)
    if isinstance(number, float) or tile.dtype in integers:
        return nl.float32
    return tile.dtype
'''


def with_quotient_dtype(text: str) -> str:
    """Return a text with the function after its imports if it calls the function and does not define it."""
    if not re.search(rf"\b{FUNCTION}\(", text) or f"def {FUNCTION}(" in text:
        return text
    imports = [n for n in ast.parse(text).body if isinstance(n, ast.Import | ast.ImportFrom)]
    lines, at = text.splitlines(), max((n.end_lineno or 0 for n in imports), default=0)
    definition = re.sub(r"\bnl\.", f"{Names(text).alias('nl')}.", DEFINITION)
    return "\n".join([*lines[:at], *definition.splitlines(), *lines[at:]]) + "\n"

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds instructions that read a part of a tile and write a shifted one, whose result is undefined in the current
generation.

before:  t[:, 1:8] = t[:, 0:7]        after:  shifted = nl.ndarray((128, 7), dtype=t.dtype, buffer=nl.sbuf)
                                              nisa.tensor_copy(dst=shifted, src=t[:, 0:7])
                                              nisa.tensor_copy(dst=t[:, 1:8], src=shifted)

Beta reads all elements before it writes any. Parts that the text does not show to overlap stay, such as those of
iterations.
"""

import ast
from collections.abc import Iterable

from nki_mlir.migration import terms

SHIFTED = "the result goes through another tile, because the instruction would overwrite elements that it still reads"


def reads_shifted(dst: str, statements: Iterable[str]) -> bool:
    """Return whether statements that write a part of a tile, ``dst``, read another part of it that overlaps."""
    target = ast.parse(dst, mode="eval").body
    if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
        return False
    parts = [node for text in statements for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Subscript)
             and isinstance(node.value, ast.Name) and node.value.id == target.value.id]
    return any(ast.dump(part) != ast.dump(target) and overlap(part, target) for part in parts)


def overlap(first: ast.Subscript, second: ast.Subscript) -> bool:
    """Return whether the text shows that two parts of a tile have elements in common."""
    items, other_items = (part.slice.elts if isinstance(part.slice, ast.Tuple) else [part.slice]
                          for part in (first, second))
    return len(items) == len(other_items) and all(map(_meet, items, other_items))


def _meet(first: ast.expr, second: ast.expr) -> bool:
    if ast.unparse(first) == ast.unparse(second):
        return True
    spans = _span(first), _span(second)
    if None in spans:
        return False
    (start, count), (other_start, other_count) = (span for span in spans if span is not None)
    try:
        distance = terms.number(terms.simplified(terms.subtract(start, other_start)))
    except (SyntaxError, ValueError):
        return False
    return distance is not None and -count < distance < other_count


def _span(item: ast.expr) -> tuple[str, int] | None:
    """Return the start of a slice or an index, and the number of its elements; None if the text does not show it."""
    if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "ds" and (
            len(item.args) == 2):
        size = terms.number(ast.unparse(item.args[1]))
        return None if size is None else (ast.unparse(item.args[0]), size)
    if not isinstance(item, ast.Slice):
        return (ast.unparse(item), 1) if not isinstance(item, ast.Constant) or isinstance(item.value, int) else None
    if item.step is not None or item.upper is None:
        return None
    start = ast.unparse(item.lower) if item.lower is not None else "0"
    try:
        count = terms.number(terms.simplified(terms.subtract(ast.unparse(item.upper), start)))
    except (SyntaxError, ValueError):
        return None
    return None if count is None else (start, count)

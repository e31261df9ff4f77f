# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a part of a tensor or of a view as one subscript: ``x[:, nl.ds(k, n)]`` for ``x[:, 0:m][:, nl.ds(k, n)]``."""

import ast
import re
from collections.abc import Collection, Sequence

from nki_mlir.migration import terms


def part_of(text: str, items: Sequence[str], integers: Collection[str] = ()) -> str:
    """Return the subscript of a tensor or of a view by ``items``, one for each dimension. A dimension that the view has
    completely gets its item in the view's subscript. ``integers``: variables that are not slices."""
    items = list(items)
    while items and items[-1] == ":":
        items.pop()
    if not items:
        return text
    node = None if terms.SIMPLE.match(text) else ast.parse(text, mode="eval").body
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name | ast.Attribute):
        outer = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        elements = [ast.get_source_segment(text, element) or "" for element in outer]
        is_slice = [isinstance(e, ast.Slice) or re.match(r"\w+\.ds\(", t) is not None for e, t in zip(outer, elements)]
        position = 0
        for item in items:
            while position < len(outer) and (isinstance(outer[position], ast.Constant) or (
                    any(is_slice) and _is_integer(outer[position], integers))):         # it has no dimension
                position += 1
            if item != ":":
                if position < len(outer) and elements[position] != ":" and not _is_part_of_first(item, outer[position]):
                    break
                elements[position:position + 1] = [item]
            elif position == len(outer):
                elements.append(":")
            elif not is_slice[position]:
                break
            position += 1
        else:
            return f"{ast.unparse(node.value)}[{', '.join(elements)}]"
    return f"{text}[{', '.join(items)}]"


def _is_part_of_first(item: str, outer: ast.expr) -> bool:
    """Return whether a part of the first elements of a dimension is the same part of the dimension: ``nl.ds`` never
    leaves the view that it selects from."""
    if not isinstance(outer, ast.Slice) or outer.step is not None or outer.upper is None or not (
            outer.lower is None or ast.unparse(outer.lower) == "0"):
        return False
    return re.match(r"(\w+\.)?ds\(", item) is not None or item == f"0:{ast.unparse(outer.upper)}"


def _is_integer(node: ast.expr, integers: Collection[str]) -> bool:
    """Return whether an expression consists of integers and operators."""
    match node:
        case ast.Name(id=name):
            return name in integers
        case ast.BinOp(left=left, right=right):
            return _is_integer(left, integers) and _is_integer(right, integers)
    return isinstance(node, ast.Constant)

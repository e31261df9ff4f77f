# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Host arithmetic on source text: sums and products, with numbers folded and parentheses where needed."""

import ast
import math
import re
from collections.abc import Iterable, Mapping

from nki_mlir.migration.python_trees import tree_names

SIMPLE = re.compile(r"^[\w.]+$|^[\w.]+\[[\w.]+\]$")


def number(text: str) -> int | None:
    """Return the integer that a text is, or None."""
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError):
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def bounds(text: str) -> tuple[int | None, ...] | None:
    """Return lower bound, upper bound and step of a slice, None for each that it leaves out; None if one is not a
    number.
    """
    subscript = _tree(f"x[{text}]")
    if not isinstance(subscript, ast.Subscript) or not isinstance(subscript.slice, ast.Slice):
        return None
    parts = subscript.slice.lower, subscript.slice.upper, subscript.slice.step
    numbers = tuple(None if part is None else number(ast.unparse(part)) for part in parts)
    is_known = all(part is None or n is not None for part, n in zip(parts, numbers)) and numbers[2] != 0
    return numbers if is_known else None


def _tree(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def _is_sum(text: str) -> bool:
    return not SIMPLE.match(text) and not isinstance(
        _tree(text), (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant, ast.Tuple, ast.List))


def _is_loose(text: str) -> bool:
    """Return whether a text needs parentheses within a sum."""
    if SIMPLE.match(text):
        return False
    node = _tree(text)
    return isinstance(node, (ast.IfExp, ast.Compare, ast.BoolOp, ast.Lambda)) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)) or (
        isinstance(node, ast.BinOp) and not isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod,
                                                                 ast.Div)))


def without_parentheses(text: str) -> str:
    """Return a text without the parentheses around all of it, which an argument does not need."""
    while text.startswith("(") and text.endswith(")"):
        try:
            node = _tree(text)
            if isinstance(node, ast.GeneratorExp | ast.NamedExpr) or ast.dump(node) != ast.dump(_tree(text[1:-1])):
                break
        except SyntaxError:                     # (a) * (b), or a text of several lines
            break
        if isinstance(node, ast.Tuple):
            break
        text = text[1:-1].strip()
    return text


def factor(text: str) -> str:
    """Return the text as a factor of a product or the base of a subscript."""
    return f"({text})" if _is_sum(text) else text


def dtype_of(text: str) -> str:
    """Return the text of a tensor's dtype; a part of a tensor has the tensor's: ``x.dtype`` for ``x[:, 0:4]``."""
    node = None if SIMPLE.match(text) else _tree(text)
    while isinstance(node, ast.Subscript) and any(
            isinstance(item, ast.Slice) for item in (node.slice, *getattr(node.slice, "elts", ()))):
        node = node.value
    return f"{ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else factor(text)}.dtype"


def literal(text: str) -> float | None:
    """Return the number that a text denotes, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def inverse(number: str) -> str:
    """Return the reciprocal of a number of the host: of a power of two as a number."""
    value = literal(number)
    if value == 0:
        return f'float("{math.copysign(math.inf, value)}")'
    if value and abs(math.frexp(value)[0]) == 0.5:
        return repr(1 / value)
    return f"1 / {factor(without_parentheses(number))}"


def add(left: str, right: str) -> str:
    """Return left + right."""
    a, b = number(left), number(right)
    if a is not None and b is not None:
        return str(a + b)
    if a == 0:
        return right
    if b == 0:
        return left
    if b is not None and b < 0:
        return subtract(left, str(-b))
    if right.startswith("-") and not _is_loose(right[1:]) and not re.search(r"[+-]", right[1:]):
        return subtract(left, right[1:])
    first, second = (f"({t})" if _is_loose(t) else t for t in (left, right))
    return f"{first} + {second}"


def subtract(left: str, right: str) -> str:
    """Return left - right; terms of both cancel."""
    a, b = number(left), number(right)
    if a is not None and b is not None:
        return str(a - b)
    if b == 0:
        return left
    if left == right:
        return "0"
    if a == 0:
        return negated(right)
    first = f"({left})" if _is_loose(left) else left
    node = None if SIMPLE.match(right) else _tree(right)
    inner = (isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub))) or _is_loose(right)
    return f"{first} - ({right})" if inner else f"{first} - {right}"


def multiply(left: str, right: str) -> str:
    """Return left * right."""
    a, b = number(left), number(right)
    if a is not None and b is not None:
        return str(a * b)
    if a == 0 or b == 0:
        return "0"
    if a == 1:
        return right
    if b == 1:
        return left
    if a == -1:
        return negated(right)
    if b == -1:
        return negated(left)
    return f"{factor(left)} * {factor(right)}"


def negated(text: str) -> str:
    """Return -text: ``b - a`` for ``a - b``, ``-a * b`` for ``a * b``."""
    node = None if SIMPLE.match(text) else _tree(text)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return ast.unparse(node.operand)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return subtract(ast.unparse(node.right), ast.unparse(node.left))
    first = node
    while isinstance(first, ast.BinOp) and isinstance(first.op, ast.Mult):
        first = first.left
    is_sum = isinstance(first, ast.BinOp) and isinstance(first.op, (ast.Add, ast.Sub))      # a sum has parentheses
    if first is not None and first is not node and (is_sum or SIMPLE.match(ast.unparse(first))):
        return f"-{without_parentheses(text)}"
    return f"-{factor(text)}"


def product(parts: Iterable[str]) -> str:
    """Return the product of all texts; "?" if one of them is unknown."""
    total = "1"
    for part in parts:
        if part == "?":
            return part
        total = multiply(total, part)
    return total


def smallest(first: str, second: str) -> str:
    """Return min(first, second)."""
    if (distance := _distance(second, first)) is not None:
        return first if distance >= 0 else second
    return f"min({first}, {second})"


def largest(first: str, second: str) -> str:
    """Return max(first, second)."""
    if (distance := _distance(second, first)) is not None:
        return second if distance > 0 else first
    return f"max({first}, {second})"


def _distance(upper: str, lower: str) -> int | None:
    """Return upper - lower if it is a number, else None."""
    if "?" in (upper, lower):
        return 0 if upper == lower else None
    return number(difference(upper, lower) or "")


def names(text: str) -> set[str]:
    """Return the names that a text reads."""
    return tree_names(_tree(text))


def with_names(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the texts ``values`` for the names that it reads; sums and products of numbers are folded."""
    if text in values:
        return values[text]
    node = _tree(text)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
        left, right = (with_names(ast.unparse(side), values) for side in (node.left, node.right))
        return add(left, right) if isinstance(node.op, ast.Add) else subtract(left, right) if isinstance(
            node.op, ast.Sub) else multiply(left, right)
    for name in ast.walk(node):
        if isinstance(name, ast.Name) and name.id in values:
            name.id = factor(values[name.id])
    return ast.unparse(node)


def _polynomial(node: ast.expr) -> dict[tuple[str, ...], int]:
    """Return the coefficients of products of atoms; an atom is any term that is not a sum, difference or product."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return {(): node.value}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return {k: -v for k, v in _polynomial(node.operand).items()}
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        total = dict(_polynomial(node.left))
        sign = 1 if isinstance(node.op, ast.Add) else -1
        for k, v in _polynomial(node.right).items():
            total[k] = total.get(k, 0) + sign * v
        return total
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        result: dict[tuple[str, ...], int] = {}
        for a, x in _polynomial(node.left).items():
            for b, y in _polynomial(node.right).items():
                key = tuple(sorted((*a, *b)))
                result[key] = result.get(key, 0) + x * y
        return result
    return {(ast.unparse(node),): 1}


def simplified(text: str) -> str:
    """Return a sum of products with equal products collected, and the number last."""
    total = {k: v for k, v in _polynomial(_tree(text)).items() if v}
    result = "0"
    for atoms, count in sorted(total.items(), key=lambda item: (not item[0], item[1] < 0)):
        part = product((*atoms, str(abs(count))))
        result = add(result, part) if count > 0 else subtract(result, part)
    return result


def is_one_more(text: str) -> bool:
    """Return whether a text is a quotient and a number, ``rows // 128 + 1``."""
    if "//" not in text:
        return False
    node = _tree(text)
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(
        node.right, ast.Constant) and isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.FloorDiv)


def tensor_of(text: str) -> str:
    """Return the tensor of a text that is a subscript of one; else return the text as a factor."""
    match = re.match(r"[\w.]+(?=\[)", text)
    return match.group(0) if match else factor(text)


def difference(upper: str, lower: str) -> str | None:
    """Return upper - lower if it is a number or one product, else None."""
    total = {k: v for k, v in _polynomial(ast.BinOp(_tree(upper), ast.Sub(), _tree(lower))).items() if v}
    if not total:
        return "0"
    if len(total) > 1:
        return None
    (atoms, count), = total.items()
    return product((*atoms, str(count)))


def is_same_number(left: str, right: str) -> bool:
    """Return whether two texts are certainly the same number."""
    if "?" in (left, right):
        return False
    try:
        return left == right or difference(left, right) == "0"
    except SyntaxError:
        return False

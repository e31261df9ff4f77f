# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decides whether the number of elements that a mask selects may be less than 1, as far as the text shows.

    for i in nl.affine_range(3):                            for i in range(3):
        t = nl.copy(x, mask=p < 4 - 2 * i)                      num_rows = min(8, 4 - 2 * i)
                                                                t = nl.ndarray((8, 16), ...)
                                                                if num_rows > 0:
                                                                    nisa.tensor_copy(dst=t[0:num_rows], src=x[...])
"""

import ast
import itertools
import re
from collections.abc import Collection, Mapping
from math import prod

from nki_mlir.migration import terms

MOST = 4096                                 # combinations of values of variables
PROGRAMS = range(4)                         # programs of a grid whose size the text does not show
SEVERAL = 64                                # iterations of a loop to a stop that the text does not show
ARITHMETIC = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.Load, ast.Call, ast.operator,
              ast.unaryop)
FUNCTIONS = {"min": min, "max": max}


def expanded(text: str, texts: Mapping[str, str]) -> str:
    """Return a text in which the texts of counts replace their names; ``texts`` has the texts by name."""
    for _ in range(len(texts)):
        new = re.sub(r"\b[A-Za-z_]\w*\b", lambda m: f"({texts[m[0]]})" if m[0] in texts else m[0], text)
        if new == text:
            break
        text = new
    return text


def smallest(first: str, second: str, counts: Mapping[str, str]) -> str:
    """Return min(first, second): one of them if it is a count ``min(other, ...)``; ``counts`` has the names by text."""
    texts = {name: count for count, name in counts.items()}
    for count, other in ((first, second), (second, first)):
        if texts.get(count, "").startswith(f"min({other}, "):
            return count
    return terms.smallest(first, second)


def may_be_none(text: str, starts: Mapping[str, str], stops: Mapping[str, str], programs: Collection[str]) -> bool:
    """Return whether a count is less than 1 for some values of loop variables and programs. A loop to a stop that the
    text does not show has several iterations. False if the text has other names, or too many values."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    match tree.body:
        case ast.Call(func=ast.Name(id="min"), args=ends):
            return any(may_be_none(ast.unparse(end), starts, stops, programs) for end in ends)
    names = terms.names(text) - FUNCTIONS.keys()
    values: dict[str, range] = {}
    for name in names:
        start, stop = (terms.number(ends.get(name, "")) for ends in (starts, stops))
        if name in programs:
            values[name] = PROGRAMS
        elif start is not None:
            values[name] = range(start, start + SEVERAL if stop is None else stop)
        else:
            return False
    if not all(isinstance(node, ARITHMETIC) for node in ast.walk(tree)) or prod(map(len, values.values())) > MOST:
        return False
    code = compile(tree, "<count>", "eval")
    try:
        return any(eval(code, {"__builtins__": {}, **FUNCTIONS}, dict(zip(values, numbers))) < 1
                   for numbers in itertools.product(*values.values()))
    except (ArithmeticError, NameError, TypeError):
        return False

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The place in the source that each instruction of a code object comes from: lines and columns.

Since 3.11 Python keeps them. 3.10 keeps lines alone, so code that is compiled here is compiled with a line number of
its own for each node of the AST; from those the places are read, and then the code gets its real lines. For code that
Python compiled, its file is compiled once more in this way.
"""

import ast
import copy
import dis
import sys
from collections.abc import Iterator
from itertools import chain, repeat
from types import CodeType
from typing import Any

from nki_mlir.frontend.source import source_of

Position = tuple[int | None, int | None, int | None, int | None]       # first and last line, first and last column


def compiled(module: ast.Module, file: str, flags: int) -> CodeType:
    """The module's code, whose instructions have places."""
    if sys.version_info >= (3, 11):
        return compile(module, file, "exec", dont_inherit=True, flags=flags)
    found = _number(module)
    return _with_lines(compile(module, file, "exec", dont_inherit=True, flags=flags), found)


def positions_of(code: CodeType) -> list[Position]:
    """That of each instruction, by its number. Columns are None where they are not known."""
    if sys.version_info >= (3, 11):
        return list(code.co_positions())
    if id(code) in _known:
        return _known[id(code)][1]
    found: list[Position] = [(n, n, None, None) for start, end, n in code.co_lines() for _ in range(start, end, 2)]
    for other in _compiled_again(code.co_filename):
        if _outline(other) == _outline(code):
            for own, others in zip(_acting(code), _acting(other)):
                found[own] = _known[id(other)][1][others]
            break
    return found


NO_LINE = -128                  # in a table of lines: the instructions belong to none

_known: dict[int, tuple[CodeType, list[Position]]] = {}        # by ``id``: code of other places may be equal


def _number(module: ast.Module) -> list[Position]:
    """Give each node a line of its own, from 2, and the result its place, after the module's."""
    found: list[Position] = [(1, 1, 0, 0)]
    nodes: list[Any] = list({id(node): node for node in ast.walk(module) if hasattr(node, "lineno")}.values())
    for node in nodes:
        found.append((node.lineno, node.end_lineno, node.col_offset, node.end_col_offset))
        node.lineno = node.end_lineno = len(found)
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node.func.end_lineno = node.lineno      # by which 3.10 says where a method is called
    return found


def _with_lines(code: CodeType, found: list[Position]) -> CodeType:
    """The code with the lines of places in place of their numbers."""
    first = line = found[code.co_firstlineno - 1][0] or 1
    table: list[tuple[int, int]] = []               # bytes of code, and how many lines further they are
    of_instructions: list[Position] = []
    for start, end, number in code.co_lines():
        place = found[number - 1] if number else (None, None, None, None)
        of_instructions += [place] * ((end - start) // 2)
        if place[0] is None:
            table += [(size, NO_LINE) for size in _sizes(end - start)]
            continue
        step, line = place[0] - line, place[0]
        while abs(step) > 127:
            part = max(-127, min(step, 127))
            table.append((0, part))
            step -= part
        table += zip(_sizes(end - start), chain([step], repeat(0)))
    inner = tuple(_with_lines(c, found) if isinstance(c, CodeType) else c for c in code.co_consts)
    code = code.replace(co_firstlineno=first, co_consts=inner,
                        co_linetable=bytes(n & 255 for pair in table for n in pair))
    _known[id(code)] = code, of_instructions
    return code


def _sizes(size: int) -> list[int]:
    """It in as many pieces as a table of lines needs, whose entries are bytes."""
    return [*[254] * ((size - 1) // 254), (size - 1) % 254 + 1]


# -- code that Python compiled -----------------------------------------------------------------------------------------
SILENT = {dis.opmap.get(name) for name in ("NOP", "EXTENDED_ARG", "JUMP_FORWARD", "JUMP_ABSOLUTE")}    # differ by lines

_again: dict[str, tuple[ast.Module, list[CodeType]]] = {}


def _compiled_again(file: str) -> list[CodeType]:
    """All code of a file, with places; none where it cannot be read."""
    tree = source_of(file).tree
    if file not in _again or _again[file][0] is not tree:
        try:
            _again[file] = tree, list(_all(compiled(copy.deepcopy(tree), file, 0)))
        except (SyntaxError, ValueError):
            _again[file] = tree, []
    return _again[file][1]


def _all(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _all(inner)


def _acting(code: CodeType) -> list[int]:
    """The numbers of the instructions that are the same whatever the lines are."""
    return [k for k, operation in enumerate(code.co_code[::2]) if operation not in SILENT]


def _outline(code: CodeType) -> tuple[object, ...]:
    return code.co_firstlineno, code.co_name, code.co_names, [code.co_code[2 * k] for k in _acting(code)]

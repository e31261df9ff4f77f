# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the user's code is, and the variables it sees: the only place that looks at Python frames.

Each instruction of a code object comes from a place in the source, lines and columns. Since 3.11 Python keeps them.
3.10 keeps lines alone, so code that is compiled here is compiled with a line number of its own for each node of the
AST; from those the places are read, and then the code gets its real lines. For code that Python compiled, its file is
compiled once more in this way.
"""

import ast
import copy
import dis
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

import numpy as np

from nki_mlir.diagnostics import Location, errors
from nki_mlir.frontend.source import source_of, statement_at

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


PACKAGE = str(Path(__file__).parent.parent) + "/"
NUMPY = str(Path(np.__file__).parent) + "/"
STANDARD_LIBRARY = sysconfig.get_path("stdlib") + "/"
NKI = {"nki_mlir", "neuronxcc", "nki"}          # the packages that the names of NKI come from

_users: dict[str, bool] = {}


@cache
def is_own(file: str) -> bool:
    """Whether a file is part of the toolchain (kernels that ship with it count as user code)."""
    return file.startswith(PACKAGE)


def is_users(file: str, scope: dict[str, object]) -> bool:
    """Whether code of a file is a user's, given its globals: not the toolchain's, not Python's, and not that of an
    installed package, unless the module uses NKI: kernels come in packages, too."""
    if file not in _users:
        if "site-packages" in file or "dist-packages" in file:
            names = [getattr(v, "__module__" if callable(v) else "__name__", None) for v in list(scope.values())]
            _users[file] = not is_own(file) and any(str(name).split(".")[0] in NKI for name in names)
        else:
            _users[file] = not is_own(file) and not file.startswith((STANDARD_LIBRARY, "<frozen"))
    return _users[file]


@cache
def is_passed(file: str) -> bool:
    """Whether frames of a file are between the kernel and the toolchain (``contextlib``, NumPy), or its own."""
    installed = "site-packages" in file or "dist-packages" in file
    return is_own(file) or file.startswith(NUMPY) or (
        file.startswith((STANDARD_LIBRARY, "<frozen")) and not installed)


def user_frame(skip: int = 1) -> FrameType | None:
    """The innermost frame of user code; ``skip`` frames are known to be others and not looked at."""
    frame: FrameType | None = sys._getframe(skip)
    while frame is not None and is_passed(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


class Positions:
    """The places of one code object's instructions. Long code is read once, and asked for the same ones again."""

    def __init__(self, code: CodeType) -> None:
        self.code = code                            # keeps its ``id``, by which it is found, from going to another
        self.all = positions_of(code)
        self.found: dict[int, Location] = {}

    def at(self, instruction: int) -> Location:
        """That of the instruction at an offset in the bytecode; that of its statement where columns are not kept."""
        if instruction not in self.found:
            line, _, column, end = self.all[instruction // 2]
            line, file = line or self.code.co_firstlineno, self.code.co_filename
            if column is None:
                column, end = statement_at(file, line)
            self.found[instruction] = Location(file, line, column, end)
        return self.found[instruction]


_positions: dict[int, Positions] = {}


def _position(code: CodeType, instruction: int) -> Location:
    known = _positions.get(id(code))                # equal code of two files is equal as an object, but not the same
    if known is None:
        known = _positions[id(code)] = Positions(code)
    return known.at(instruction)


def user_location(skip: int = 1) -> Location:
    """The expression in the kernel that is being executed. About 0.1 us for each frame above it that is not skipped."""
    frame = user_frame(skip + 1)
    if frame is None:
        return Location("<unknown>", 0, 0)
    code, instruction = frame.f_code, frame.f_lasti
    known = _positions.get(id(code))
    found = None if known is None else known.found.get(instruction)
    return _position(code, instruction) if found is None else found


errors.kernel_line = user_location


def raised_at(traceback: TracebackType | None) -> Location | None:
    """Where the kernel was when an exception came: the innermost frame of user code in the traceback."""
    at = None
    while traceback is not None:
        if not is_passed(traceback.tb_frame.f_code.co_filename):
            at = traceback
        traceback = traceback.tb_next
    return _position(at.tb_frame.f_code, at.tb_lasti) if at is not None else None


def variables(names: tuple[str, ...]) -> dict[str, object]:
    """The values of those names in the kernel now: locals, closure cells, then globals. Unbound names are left out."""
    frame = user_frame()
    if frame is None:
        return {}
    local, outer = frame.f_locals, frame.f_globals
    return {n: local[n] if n in local else outer[n] for n in names if n in local or n in outer}

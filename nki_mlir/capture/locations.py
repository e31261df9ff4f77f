# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the source positions of instructions in the user's code, and the frames that run.

Since 3.11 Python keeps the lines and columns of each instruction. 3.10 keeps only lines, so code that is compiled
here is compiled with a separate line number for each node of the AST; the positions are read from those numbers,
and then the code gets its real lines. For code that Python compiled, its file is compiled once more in this way.
"""

import ast
import dis
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

import numpy as np

from nki_mlir import diagnostics
from nki_mlir.capture.source_text import copied_tree, source_of, statement_at
from nki_mlir.diagnostics import Location

# -- positions of instructions -----------------------------------------------------------------------------------------
Position = tuple[int | None, int | None, int | None, int | None]       # first and last line, first and last column


def compiled(module: ast.Module, file: str, flags: int) -> CodeType:
    """Compile a module to code whose instructions have source positions."""
    if sys.version_info >= (3, 11):
        return compile(module, file, "exec", dont_inherit=True, flags=flags)
    positions = _number(module)
    return _with_lines(compile(module, file, "exec", dont_inherit=True, flags=flags), positions)


def positions_of(code: CodeType) -> list[Position]:
    """Return the source position of each instruction. Columns are None where they are not known."""
    if sys.version_info >= (3, 11):
        return list(code.co_positions())
    if id(code) in _known:
        return _known[id(code)][1]
    positions: list[Position] = [(n, n, None, None) for start, end, n in code.co_lines() for _ in range(start, end, 2)]
    for other in _compiled_again(code.co_filename):
        if _outline(other) == _outline(code):
            for index, other_index in zip(_acting(code), _acting(other)):
                positions[index] = _known[id(other)][1][other_index]
            break
    return positions


NO_LINE = -128                  # in a table of lines: the instructions belong to no line

_known: dict[int, tuple[CodeType, list[Position]]] = {}        # by ``id``, because code of different files may be equal


def _number(module: ast.Module) -> list[Position]:
    """Give each node a separate line number, from 2, and return the nodes' positions after the module's."""
    positions: list[Position] = [(1, 1, 0, 0)]
    nodes: list[Any] = list({id(node): node for node in ast.walk(module) if hasattr(node, "lineno")}.values())
    for node in nodes:
        positions.append((node.lineno, node.end_lineno, node.col_offset, node.end_col_offset))
        node.lineno = node.end_lineno = len(positions)
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node.func.end_lineno = node.lineno      # 3.10 gives the call of a method this line
    return positions


def _with_lines(code: CodeType, positions: list[Position]) -> CodeType:
    """Return the code with real lines in place of the nodes' numbers."""
    first_line = line = positions[code.co_firstlineno - 1][0] or 1
    table: list[tuple[int, int]] = []               # bytes of code, and their distance in lines
    of_instructions: list[Position] = []
    for start, end, number in code.co_lines():
        position = positions[number - 1] if number else (None, None, None, None)
        of_instructions += [position] * ((end - start) // 2)
        if position[0] is None:
            table += [(size, NO_LINE) for size in _sizes(end - start)]
            continue
        step, line = position[0] - line, position[0]
        while abs(step) > 127:
            part = max(-127, min(step, 127))
            table.append((0, part))
            step -= part
        table += zip(_sizes(end - start), chain([step], repeat(0)))
    inner = tuple(_with_lines(c, positions) if isinstance(c, CodeType) else c for c in code.co_consts)
    code = code.replace(co_firstlineno=first_line, co_consts=inner,
                        co_linetable=bytes(n & 255 for pair in table for n in pair))
    _known[id(code)] = code, of_instructions
    return code


def _sizes(size: int) -> list[int]:
    """Split a size into the pieces that a table of lines needs, whose entries are bytes."""
    return [*[254] * ((size - 1) // 254), (size - 1) % 254 + 1]


# -- positions of code that Python compiled ----------------------------------------------------------------------------
SILENT = {dis.opmap.get(name) for name in ("NOP", "EXTENDED_ARG", "JUMP_FORWARD", "JUMP_ABSOLUTE")}    # depend on lines

_again: dict[str, tuple[ast.Module, list[CodeType]]] = {}


def _compiled_again(file: str) -> list[CodeType]:
    """Return all code of a file, compiled with source positions; none if it cannot be read."""
    tree = source_of(file).tree
    if file not in _again or _again[file][0] is not tree:
        try:
            _again[file] = tree, list(_all(compiled(copied_tree(tree), file, 0)))
        except (SyntaxError, ValueError):
            _again[file] = tree, []
    return _again[file][1]


def _all(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _all(inner)


def _acting(code: CodeType) -> list[int]:
    """Return the numbers of the instructions that do not depend on line numbers."""
    return [k for k, operation in enumerate(code.co_code[::2]) if operation not in SILENT]


def _outline(code: CodeType) -> tuple[object, ...]:
    return code.co_firstlineno, code.co_name, code.co_names, [code.co_code[2 * k] for k in _acting(code)]


# -- frames ------------------------------------------------------------------------------------------------------------
PACKAGE = str(Path(__file__).parent.parent) + "/"
NUMPY = str(Path(np.__file__).parent) + "/"
STANDARD_LIBRARY = str(Path(textwrap.__file__).parent) + "/"
NKI = {"nki_mlir", "neuronxcc", "nki"}          # the packages that the names of NKI come from
FRAMEWORKS = "jax", "jaxlib", "torch"           # they call functions of users: that of ``jax.jit``, tensors' methods

_users: dict[str, bool] = {}


@cache
def is_toolchain(file: str) -> bool:
    """Return whether a file is part of the toolchain (kernels that ship with it count as user code)."""
    return file.startswith(PACKAGE)


def is_users(file: str, scope: dict[str, object]) -> bool:
    """Return whether code of a file is a user's, given its globals.

    That excludes the toolchain, Python, and installed packages, unless the module uses NKI: kernels come in
    packages, too. Functions of a dataclass, whose text Python generates, belong to the module of the class; the
    constructor of a named tuple belongs to none.
    """
    if file == "<string>":
        if str(scope.get("__name__")).startswith("namedtuple_"):
            return False
        file = str(scope.get("__file__", file))
    if file not in _users:
        if "site-packages" in file or "dist-packages" in file:
            _users[file] = not is_toolchain(file) and not NKI.isdisjoint(map(_package_of, list(scope.values())))
        else:
            _users[file] = not is_toolchain(file) and not file.startswith((STANDARD_LIBRARY, "<frozen"))
    return _users[file]


def _package_of(value: object) -> str:
    """Return the package of a module, a function or a class, or of the class of any other value, whose attributes are
    not read, not even by ``isinstance``: they may be functions that fail or warn."""
    kind = type(value)
    if issubclass(kind, ModuleType):
        name = ModuleType.__getattribute__(value, "__dict__").get("__name__")
    else:
        name = (value if issubclass(kind, (type, FunctionType, BuiltinFunctionType)) else kind).__module__
    return str(name).partition(".")[0]


class Passed(dict[str, bool]):
    """Memoizes whether frames of a file are the toolchain's, or lie between it and the user's code (``contextlib``,
    NumPy, frameworks).

    It is a dict because the search reads it for every frame between an operation and its location.
    """

    def __missing__(self, file: str) -> bool:
        _, installed, inside = file.replace("dist-packages", "site-packages").partition("site-packages/")
        self[file] = passed = is_toolchain(file) or file.startswith(NUMPY) or (
            inside.partition("/")[0] in FRAMEWORKS) or (
            file.startswith((STANDARD_LIBRARY, "<frozen")) and not installed)
        return passed


is_passed = Passed()


def user_frame(skip: int = 1) -> FrameType | None:
    """Return the innermost frame of user code; the search skips the innermost ``skip`` frames."""
    frame: FrameType | None = sys._getframe(skip)
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_passed[file] and (file != "<string>" or is_users(file, frame.f_globals)):
            break                           # not the constructor that Python generated for a dataclass of the toolchain
        frame = frame.f_back
    return frame


class Positions:
    """The source positions of one code object's instructions. Those of long code are read once and memoized."""

    def __init__(self, code: CodeType) -> None:
        self.code = code                            # kept alive, because ``_positions`` is keyed by its ``id``
        self.all = positions_of(code)
        self.locations: dict[int, Location] = {}

    def at(self, instruction: int) -> Location:
        """Return the location of the instruction at an offset in the bytecode, or of its statement if Python keeps no
        columns."""
        if instruction not in self.locations:
            line, _, column, end = self.all[instruction // 2]
            line, file = line or self.code.co_firstlineno, self.code.co_filename
            if column is None:
                column, end = statement_at(file, line)
            self.locations[instruction] = Location(file, line, column, end)
        return self.locations[instruction]


_positions: dict[int, Positions] = {}


def _position(code: CodeType, instruction: int) -> Location:
    # equal code of two files is equal as an object, but not the same
    positions = _positions.get(id(code))
    if positions is None:
        positions = _positions[id(code)] = Positions(code)
    return positions.at(instruction)


def user_location(skip: int = 1) -> Location:
    """Return the location of the expression in the kernel that is being executed. The search takes about 0.1 us for
    each frame that it does not skip."""
    frame = user_frame(skip + 1)
    if frame is None:
        return Location("<unknown>", 0, 0)
    code, instruction = frame.f_code, frame.f_lasti
    positions = _positions.get(id(code))
    location = None if positions is None else positions.locations.get(instruction)
    return _position(code, instruction) if location is None else location


def kernel_line() -> Location | None:
    """Return the location of the expression in the kernel that is being executed; None if no user code runs."""
    location = user_location(2)
    return location if location.line else None


diagnostics.kernel_line = kernel_line


def _user_frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    """Yield the entries of a traceback that are frames of user code, the outermost first."""
    while traceback is not None:
        frame = traceback.tb_frame
        if not is_passed[frame.f_code.co_filename] and is_users(frame.f_code.co_filename, frame.f_globals):
            yield traceback
        traceback = traceback.tb_next


def raised_at(traceback: TracebackType | None) -> Location | None:
    """Return the location in the kernel at which an exception was raised: the innermost frame of user code in the
    traceback. An endless recursion can end in any library that the toolchain calls."""
    entries = list(_user_frames(traceback))
    return _position(entries[-1].tb_frame.f_code, entries[-1].tb_lasti) if entries else None


COMPREHENSIONS = "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"         # before Python 3.12 they have frames


def callers(traceback: TracebackType | None, at: Location) -> list[tuple[str, Location]]:
    """Return the functions of user code that called the one in which an exception was raised, the innermost first,
    each with the location of its call; none if the exception was not raised at the line of ``at``."""
    calls: list[tuple[str, Location]] = []
    for entry in _user_frames(traceback):
        code, name = entry.tb_frame.f_code, entry.tb_frame.f_code.co_name
        if name in COMPREHENSIONS and calls:
            name = calls.pop()[0]
        calls.append((name, _position(code, entry.tb_lasti)))
    return calls[-2::-1] if calls and calls[-1][1][:2] == at[:2] else []


def variables(names: tuple[str, ...]) -> dict[str, object]:
    """Return the values of names in the kernel now: locals, closure cells, then globals. Unbound names are left out."""
    frame = user_frame()
    if frame is None:
        return {}
    local, outer = frame.f_locals, frame.f_globals
    return {n: local[n] if n in local else outer[n] for n in names if n in local or n in outer}

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The definition of a function in its source file, as an AST with the file's own lines and columns.

The text of functions that no file has (of ``exec``, of ``python -c``, of standard input) is looked for when a kernel is
made: what ran the text is then a caller, and holds it. A text is the function's if Python compiles it to the same code.
"""

import ast
import copy
import linecache
import os
import stat
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import NamedTuple


class Definition(NamedTuple):
    """A ``def``, and the name of the class around it, whose names ``__x`` have another form inside of it."""

    function: ast.FunctionDef
    inside: str | None


class ParsedFile(NamedTuple):
    """A file as it was parsed: ``def`` by first line and name."""

    lines: list[str]
    tree: ast.Module
    definitions: dict[tuple[int, str], Definition]


_files: dict[str, ParsedFile] = {}


def definition(code: CodeType, scope: dict[str, object]) -> Definition | None:
    """The ``def`` that a function was compiled from; None without text, for lambdas, where the source has changed.

    ``scope`` are the function's globals, by which sources in archives are found. The ``def`` is the caller's to change.
    """
    linecache.lazycache(code.co_filename, scope)
    place = code.co_firstlineno, code.co_name
    found = source_of(code.co_filename).definitions.get(place)
    if found is None or not _is_of(found.function, code):
        text = text_of(code)
        found = None if text is None else _parsed(text).get(place)
    if found is None:
        return None
    return Definition(copy.deepcopy(found.function), found.inside)


@cache
def _parsed(text: str) -> dict[tuple[int, str], Definition]:
    return dict(_definitions(ast.parse(text), None))


def statement_at(file: str, line: int) -> tuple[int, int | None]:
    """The columns of the innermost statement on a line: its first, and the one after its last."""
    source = source_of(file)
    around = [n for n in ast.walk(source.tree) if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or 0)]
    if not around:
        return 0, None
    inner = max(around, key=lambda n: (n.lineno, n.col_offset))
    text = source.lines[line - 1].rstrip()
    first = inner.col_offset if inner.lineno == line else len(text) - len(text.lstrip())
    return first, inner.end_col_offset if inner.end_lineno == line else len(text)


def source_of(file: str) -> ParsedFile:
    """The file as it is now; empty where it cannot be read."""
    linecache.checkcache(file)
    lines = linecache.getlines(file)
    known = _files.get(file)
    if known is None or known.lines is not lines:
        try:
            tree = ast.parse("".join(lines))
        except (SyntaxError, ValueError):
            tree = ast.Module([], [])
        known = _files[file] = ParsedFile(lines, tree, dict(_definitions(tree, None)))
    return known


def _definitions(tree: ast.AST, inside: str | None) -> Iterator[tuple[tuple[int, str], Definition]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            yield (first, node.name), Definition(node, inside)
        yield from _definitions(node, node.name if isinstance(node, ast.ClassDef) else inside)


def _is_of(node: ast.FunctionDef, code: CodeType) -> bool:
    """Whether the definition has the code's parameters and variables. (Test runners add variables named ``@...``.)"""
    given = node.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    if tuple(names) != code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]:
        return False
    known = {name for inner in ast.walk(node) for name in _bound(inner)}
    return all(name in known or name.startswith(("@", ".")) for name in code.co_varnames)


def _bound(node: ast.AST) -> list[str]:
    """Names that a node can bind."""
    match node:
        case ast.Name(name) | ast.arg(name) | ast.FunctionDef(name) | ast.ClassDef(name):
            return [name]
        case ast.alias(name, asname):
            return [asname or name.split(".")[0]]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)):
            return [name]
    return []


# -- text that no file has ---------------------------------------------------------------------------------------------
LONGEST = 1 << 20               # characters of a text that is looked at
FARTHEST = 50                   # callers that are asked
FUTURES = 0x1000000             # ``from __future__ import annotations``

_found: dict[str, list[str]] = {}       # texts by the file name that their code has


def remember(function: FunctionType | None) -> None:
    """Look for the text of a function that has no file."""
    if function is None:
        return
    code = function.__code__
    if linecache.getlines(code.co_filename, function.__globals__) or text_of(code) is not None:
        return
    for candidate in _candidates(code):
        for text in _forms(candidate):
            if compiles_to(text, code):
                _found.setdefault(code.co_filename, []).append(text)
                return


def text_of(code: CodeType) -> str | None:
    """The text that was found for code, or for other code of the same text."""
    return next((text for text in reversed(_found.get(code.co_filename, ())) if compiles_to(text, code)), None)


def compiles_to(text: str, code: CodeType) -> bool:
    """Whether the code is a part of what Python makes of a text."""
    if code.co_name not in text:
        return False
    try:
        whole = compile(text, code.co_filename, "exec", flags=code.co_flags & FUTURES, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    pending = [whole]
    while pending:
        one = pending.pop()
        if one == code:
            return True
        pending += [c for c in one.co_consts if isinstance(c, CodeType)]
    return False


def _candidates(code: CodeType) -> Iterator[str]:
    if code.co_filename == "<stdin>" and (text := _standard_input()) is not None:
        yield text
    arguments = sys.orig_argv
    if code.co_filename == "<string>" and "-c" in arguments[:-1]:
        yield arguments[arguments.index("-c") + 1]
    frame, word = sys._getframe(1), f"def {code.co_name}"
    for _ in range(FARTHEST):
        for value in (*frame.f_locals.values(), *frame.f_code.co_consts):
            text = value.decode(errors="replace") if isinstance(value, bytes) else value
            if isinstance(text, str) and word in text and len(text) <= LONGEST:
                yield text
        if frame.f_back is None:
            return
        frame = frame.f_back


def _forms(text: str) -> Iterator[str]:
    """A text, and what is usually made of one before it is run."""
    yield text
    for other in (textwrap.dedent(text), text.strip(), textwrap.dedent(text).strip()):
        if other != text:
            yield other


def _standard_input() -> str | None:
    """All of it where it is a file, which Python has read by now."""
    try:
        status = os.fstat(0)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LONGEST:
            return None
        return os.pread(0, status.st_size, 0).decode(errors="replace")
    except OSError:
        return None

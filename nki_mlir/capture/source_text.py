# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the source text of the user's functions, parsed.

A function's definition is an AST with the file's own lines and columns. Text that no file contains (of ``exec``, of
``python -c``, of standard input) is searched for when a kernel is created, while the caller that ran the text still
has it in a variable. A text is the function's if Python compiles it to the same code.
"""

import ast
import linecache
import os
import stat
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any, NamedTuple


class Definition(NamedTuple):
    """A ``def``, and the name of the class around it (None outside of classes), by which Python mangles
    names ``__x``."""

    function: ast.FunctionDef
    inside: str | None


class ParsedFile(NamedTuple):
    """A parsed file: its lines, its AST, and its ``def`` statements by first line and name."""

    lines: list[str]
    tree: ast.Module
    definitions: dict[tuple[int, str], Definition]


_files: dict[str, ParsedFile] = {}


def definition(code: CodeType, scope: dict[str, object]) -> Definition | None:
    """Return the ``def`` that a function was compiled from; None for lambdas, without source, or if the source has
    changed.

    ``scope`` are the function's globals, which lead to sources in archives. The caller may change the ``def``.
    """
    parsed = shared_definition(code, scope)
    return None if parsed is None else Definition(copied_tree(parsed.function), parsed.inside)


def shared_definition(code: CodeType, scope: dict[str, object]) -> Definition | None:
    """Return the same as ``definition``, for callers that change nothing."""
    linecache.lazycache(code.co_filename, scope)
    key = code.co_firstlineno, code.co_name
    source = source_of(code.co_filename)
    parsed, current_text = source.definitions.get(key), "".join(source.lines)
    earlier = [text for text in _earlier.get(code.co_filename, ()) if text != current_text]
    if parsed is None or not _is_of(parsed.function, code) or (earlier and not compiles_to(current_text, code)):
        text = next((t for t in earlier if compiles_to(t, code)), None) or text_of(code)
        parsed = None if text is None else _parsed(text).get(key)
    return parsed


def copied_tree(node: Any) -> Any:
    """Copy a syntax tree, faster than ``copy.deepcopy``. Contexts, which nobody changes, are shared."""
    if isinstance(node, list):
        return [copied_tree(item) for item in node]
    if not isinstance(node, ast.AST) or isinstance(node, ast.expr_context):
        return node
    new = type(node).__new__(type(node))
    for name, value in vars(node).items():
        setattr(new, name, copied_tree(value))
    return new


@cache
def _parsed(text: str) -> dict[tuple[int, str], Definition]:
    return dict(_definitions(ast.parse(text), None))


def statement_at(file: str, line: int) -> tuple[int, int | None]:
    """Return the columns of the innermost statement on a line: where it starts, and the column after its end (None if
    unknown)."""
    source = source_of(file)
    enclosing = [n for n in ast.walk(source.tree)
                 if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or 0)]
    if not enclosing:
        return 0, None
    inner = max(enclosing, key=lambda n: (n.lineno, n.col_offset))
    text = source.lines[line - 1].rstrip()
    start = inner.col_offset if inner.lineno == line else len(text) - len(text.lstrip())
    return start, inner.end_col_offset if inner.end_lineno == line else len(text)


def source_of(file: str) -> ParsedFile:
    """Return the current text of a file, parsed; empty if it cannot be read."""
    linecache.checkcache(file)
    lines = linecache.getlines(file)
    parsed = _files.get(file)
    if parsed is None or parsed.lines is not lines:
        try:
            tree = ast.parse("".join(lines))
        except (SyntaxError, ValueError):
            tree = ast.Module([], [])
        parsed = _files[file] = ParsedFile(lines, tree, dict(_definitions(tree, None)))
    return parsed


def _definitions(tree: ast.AST, inside: str | None) -> Iterator[tuple[tuple[int, str], Definition]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):                              # holds no statements
            continue
        if isinstance(node, ast.FunctionDef):
            first_line = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            yield (first_line, node.name), Definition(node, inside)
        yield from _definitions(node, node.name if isinstance(node, ast.ClassDef) else inside)


def statements_below(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield all statements below a node."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.expr):                             # holds no statements
            continue
        if isinstance(inner, ast.stmt):
            yield inner
        yield from statements_below(inner)


def _is_of(node: ast.FunctionDef, code: CodeType) -> bool:
    """Return whether a definition in the source has the parameters and variables of the code.

    Test runners add variables named ``@...``.
    """
    parameters = node.args
    names = [a.arg for a in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)]
    if tuple(names) != code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]:
        return False
    unknown = {name for name in code.co_varnames[len(names):] if not name.startswith(("@", "."))}
    for inner in ast.walk(node):
        if not unknown:
            break
        unknown.difference_update(_bound(inner))
    return not unknown


def _bound(node: ast.AST) -> list[str]:
    """Return the names that a node can bind."""
    match node:
        case ast.Name(name) | ast.arg(name) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            return [name]
        case ast.alias(name, asname):
            return [asname or name.split(".")[0]]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)):
            return [name]
    return []


LONGEST = 1 << 20               # characters of the longest text that is examined
FARTHEST = 50                   # the most callers whose variables are searched
FUTURES = 0x1000000             # ``from __future__ import annotations``
_texts: dict[str, list[str]] = {}       # texts by the file name of their code
_earlier: dict[str, list[str]] = {}     # contents of files when their kernels were created


def remember(function: FunctionType | None) -> None:
    """Keep the text of a function: the text of its file, which may change later; without a file, a text in the callers'
    variables."""
    if function is None:
        return
    code = function.__code__
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    if text:
        if text not in (texts := _earlier.setdefault(code.co_filename, [])):
            texts.append(text)
        return
    if text_of(code) is not None:
        return
    for candidate in _candidates(code):
        for text in _forms(candidate):
            if compiles_to(text, code):
                _texts.setdefault(code.co_filename, []).append(text)
                return


def text_of(code: CodeType) -> str | None:
    """Return the text found earlier for this code, or for other code of the same text; None if there is none."""
    return next((text for text in reversed(_texts.get(code.co_filename, ())) if compiles_to(text, code)), None)


def compiles_to(text: str, code: CodeType) -> bool:
    """Return whether Python compiles a text to code that contains this code."""
    if code.co_name not in text:
        return False
    try:
        module_code = compile(text, code.co_filename, "exec", flags=code.co_flags & FUTURES, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    pending = [module_code]
    while pending:
        candidate = pending.pop()
        if candidate == code:
            return True
        pending += [c for c in candidate.co_consts if isinstance(c, CodeType)]
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
    """Yield a text, and the forms that Python usually derives from it before it is run."""
    yield text
    for form in (textwrap.dedent(text), text.strip(), textwrap.dedent(text).strip()):
        if form != text:
            yield form


def _standard_input() -> str | None:
    """Return the text of standard input if it is a file, which Python has read by now; else None."""
    try:
        status = os.fstat(0)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LONGEST:
            return None
        return os.pread(0, status.st_size, 0).decode(errors="replace")
    except OSError:
        return None

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Replaces a kernel whose text cannot be rewritten by a kernel that is printed from its capture."""

import ast
from collections.abc import Sequence
from dataclasses import replace

from nki_mlir.migration.added_functions import DEFINITIONS
from nki_mlir.migration.files import Migrated, formatted
from nki_mlir.migration.python_trees import parameters_of, tree_names
from nki_mlir.migration.report import Entry, MigrationReport

IMPORTS = {"nki": "import nki", "nisa": "import nki.isa as nisa", "nl": "import nki.language as nl",
           "np": "import numpy as np"}


def left_kernels(file: Migrated) -> list[str]:
    """Return the functions of a file with lines that the report leaves to a person, and those that call them."""
    functions = _functions(file.old)
    left = {f.name for f in functions if any(_has(f, e) for e in file.report.entries if e.left)}
    while callers := {f.name for f in functions if f.name not in left and tree_names(f, context=ast.Load) & left}:
        left |= callers
    return [f.name for f in functions if f.name in left]


def with_printed_kernel(file: Migrated, name: str, printed: str, shapes: str) -> Migrated:
    """Return the file in which the printed text of a kernel replaces its function, and say so in the report, or
    why not."""
    old = next(f for f in _functions(file.old) if f.name == name)
    new = next(f for f in _functions(file.new) if f.name == name)
    body = next(f for f in _functions(printed) if f.name == name)
    parameters = {a.arg for a in parameters_of(new.args)}
    unknown = [a.arg for a in body.args.args if a.arg not in parameters]
    if names := [*unknown, *_foreign_names(file.new, printed)]:
        file.report.add_manual(old.lineno,
                               f"{name} is not printed from IR: the file has no {', '.join(names)} with the "
                               "meaning of the printed text")
        return file
    before, after = file.new.splitlines(), printed.splitlines()
    start, end = _span(new)
    assert body.end_lineno is not None
    described, shaped = _docstring(new), _docstring(body)
    kernel = [f"@nki.jit\ndef {name}({ast.unparse(new.args)}):", *before[described[0]:described[1]],
              *after[shaped[1] if described[0] < described[1] else body.lineno:body.end_lineno]]
    lines = [*before[:start - 1], *kernel, *before[end:]]
    missing = [line for short, line in IMPORTS.items()
               if _imported(printed).get(short) and not _imported(file.new).get(short)]
    at = max((n.end_lineno or 0 for n in ast.parse(file.new).body if isinstance(n, ast.Import | ast.ImportFrom)),
             default=0)
    lines[at:at] = missing
    helpers = _called(file.old, old)
    added = DEFINITIONS.keys() - {f.name for f in _functions(file.old)}
    text, deleted = _without_spare("\n".join([*lines, ""]), [*(f.name for f in helpers), *added])
    replaced_functions = [old, *(f for f in helpers if f.name in deleted)]
    report = MigrationReport(file.report.file, [e for e in file.report.entries if not any(
        _has(f, e) and (e.left or e.line > f.lineno) for f in replaced_functions)])
    reasons = "; ".join(dict.fromkeys(e.text for e in sorted(file.report.entries) if e.left and any(
        _has(f, e) for f in (old, *helpers))))
    report.changed(old.lineno, f"{name} is printed from IR for {shapes}, because the tool cannot rewrite its text: "
                               f"{reasons}")
    return replace(file, new=formatted(text, file.path, report), report=report)


def _called(text: str, kernel: ast.FunctionDef) -> list[ast.FunctionDef]:
    """Return the functions of a file that a kernel calls, also through others."""
    functions = _functions(text)
    names = tree_names(kernel, context=ast.Load)
    while further := tree_names(*(f for f in functions if f.name in names), context=ast.Load) - names:
        names |= further
    return [f for f in functions if f.name in names and f.name != kernel.name]


def _without_spare(text: str, helpers: Sequence[str]) -> tuple[str, set[str]]:
    """Return a text without those of the functions that nothing reads, and their names."""
    deleted = set[str]()
    while spare := next((f for f in _functions(text) if f.name in helpers and not any(
            isinstance(n, ast.Name) and n.id == f.name for n in ast.walk(ast.parse(text)))), None):
        start, end = _span(spare)
        lines = text.splitlines()
        text = "\n".join([*lines[:start - 1], *lines[end:], ""])
        deleted.add(spare.name)
    return text, deleted


def _functions(text: str) -> list[ast.FunctionDef]:
    return [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]


def _span(function: ast.FunctionDef) -> tuple[int, int]:
    assert function.end_lineno is not None
    return min([function.lineno, *(d.lineno for d in function.decorator_list)]), function.end_lineno


def _docstring(function: ast.FunctionDef) -> tuple[int, int]:
    """Return the lines of a function's docstring, from the first and up to the last, counted from 0."""
    first = function.body[0]
    match first:
        case ast.Expr(value=ast.Constant(value=str())) if first.end_lineno is not None:
            return first.lineno - 1, first.end_lineno
    return function.lineno, function.lineno


def _has(function: ast.FunctionDef, entry: Entry) -> bool:
    start, end = _span(function)
    return start <= entry.line <= end


def _imported(text: str) -> dict[str, str]:
    """Return the names that a file's imports bind, with the path of each."""
    imports: dict[str, str] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import):
            imports |= {a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0]
                        for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            imports |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return imports


def _foreign_names(text: str, printed: str) -> Sequence[str]:
    """Return the names that the printed kernel takes from its imports, but that mean something else in a file."""
    printed_imports, file_imports = _imported(printed), _imported(text)
    return [name for name, path in printed_imports.items() if file_imports.get(name, path) != path]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies of the project with a change in a module, on which ``make faults`` and ``make mutation`` run tests.

A change replaces a span of a file's text. Handwritten faults name a text that occurs once; ``mutants_of`` draws
mutants from the module's syntax tree. Comments, layout and all other lines stay the same, so code that reads the
sources sees no other difference.
"""

import ast
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "nki_mlir"
BESIDE = ("tests", "examples", "lit_tests", "tools", "bench", "docs", "dialects", "pyproject.toml", "README.md",
          "Makefile", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "constraints.txt", "MANIFEST.in")


@dataclass(frozen=True)
class Change:
    """The replacement of the characters ``start`` to ``end`` of a file of the package by ``new``."""

    file: str                       # below the package
    start: int
    end: int
    new: str
    kind: str = ""
    line: int = 0
    old: str = ""


class NoSuchText(SystemExit):
    """The error of a text to replace that does not occur exactly once."""


def replacing(file: str, old: str, new: str) -> Change:
    """Return the change that replaces a text which occurs once in the file."""
    text = (ROOT / PACKAGE / file).read_text()
    if text.count(old) != 1:
        raise NoSuchText(f"{file} contains {old!r} {text.count(old)} times, not once")
    start = text.index(old)
    return Change(file, start, start + len(old), new, line=text.count("\n", 0, start) + 1, old=old)


def copy_project(directory: Path, beside: tuple[str, ...] = BESIDE) -> None:
    """Copy the package and the files beside it that tests need."""
    ignored = shutil.ignore_patterns("__pycache__", "Output", ".hypothesis")
    for name in (PACKAGE, *beside):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=ignored, symlinks=True)
        elif source.exists():
            shutil.copy(source, directory / name)


def edited(text: str, change: Change) -> str:
    """Return the text of a file with the change."""
    return text[:change.start] + change.new + text[change.end:]


def seed(change: Change, directory: Path) -> None:
    """Write the change to the copy."""
    text = (ROOT / PACKAGE / change.file).read_text()
    (directory / PACKAGE / change.file).write_text(edited(text, change))


def restore(change: Change, directory: Path) -> None:
    """Undo the change in the copy."""
    shutil.copy(ROOT / PACKAGE / change.file, directory / PACKAGE / change.file)


# -- mutants -----------------------------------------------------------------------------------------------------------
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
               ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
              ast.Div: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift,
              ast.RShift: ast.LShift}
IN_ANY_ORDER = ("min", "max")       # numbers that are compared
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor", "floor": "ceil"}


class _Candidates(ast.NodeVisitor):
    """Collects possible changes of a syntax tree: (node, replacement, kind)."""

    def __init__(self) -> None:
        self.changes: list[tuple[ast.expr | ast.stmt, str, str]] = []

    def add(self, node: ast.expr | ast.stmt, new: ast.AST | str, kind: str) -> None:
        text = new if isinstance(new, str) else ast.unparse(ast.fix_missing_locations(new))
        if text != ast.unparse(node):
            self.changes.append((node, f"({text})" if isinstance(node, ast.expr) else text, kind))

    # nodes that compute nothing, or only the text of a message
    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...
    def visit_Raise(self, node: ast.Raise) -> None: ...
    def visit_Import(self, node: ast.Import) -> None: ...
    def visit_ImportFrom(self, node: ast.ImportFrom) -> None: ...

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in ("__repr__", "__str__"):
            return
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
        if any(base.endswith(("Error", "Warning", "Exception")) for base in bases):
            return
        for statement in node.body:
            self.visit(statement)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self.add(node.test, ast.UnaryOp(ast.Not(), node.test), "condition negated")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.add(node, ast.IfExp(node.test, node.orelse, node.body), "branches exchanged")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for k, op in enumerate(node.ops):
            ops = [*node.ops]
            ops[k] = COMPARISONS[type(op)]()
            self.add(node, ast.Compare(node.left, ops, node.comparators), "comparison")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        opposite = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.add(node, ast.BoolOp(opposite, node.values), "and/or")
        fewer = node.values[0] if len(node.values) == 2 else ast.BoolOp(node.op, node.values[:-1])
        self.add(node, fewer, "last part dropped")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        words = isinstance(node.left, ast.JoinedStr) or isinstance(getattr(node.left, "value", None), str)
        if type(node.op) in ARITHMETIC and not words:
            self.add(node, ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right), "arithmetic")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self.add(node, node.operand, "sign or not dropped")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is bool:
            self.add(node, repr(not node.value), "constant")
        elif type(node.value) is int:
            self.add(node, repr(node.value + 1), "constant")

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
            self.add(node.func, FUNCTIONS[node.func.id], "function")
        in_any_order = isinstance(node.func, ast.Name) and node.func.id in IN_ANY_ORDER
        if len(node.args) > 1 and not in_any_order and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
            self.add(node, ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords),
                     "arguments exchanged")
        for k in range(len(node.keywords)):
            self.add(node, ast.Call(node.func, node.args, node.keywords[:k] + node.keywords[k + 1:]), "keyword dropped")
        self.generic_visit(node)

    def visit_Slice(self, node: ast.Slice) -> None:
        for part in (node.lower, node.upper):
            if part is not None and not isinstance(part, ast.Constant):
                self.add(part, ast.BinOp(part, ast.Add(), ast.Constant(1)), "slice")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.add(node, "pass", "statement removed")
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.add(node, "pass", "statement removed")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self.add(node, "break", "loop left")

    def visit_Break(self, node: ast.Break) -> None:
        self.add(node, "continue", "loop continued")

    def visit_Return(self, node: ast.Return) -> None:
        if isinstance(node.value, ast.Name | ast.Attribute):
            self.add(node, "return None", "no result")
        self.generic_visit(node)


def mutants_of(file: str, rng: random.Random) -> Iterator[Change]:
    """Yield all changes of a file of the package, in random order."""
    text = (ROOT / PACKAGE / file).read_text()
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def offset(line: int, column: int) -> int:                      # the tree counts columns in bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    visitor = _Candidates()
    visitor.visit(ast.parse(text))
    rng.shuffle(visitor.changes)
    for node, new, kind in visitor.changes:
        assert node.end_lineno is not None and node.end_col_offset is not None
        start, end = offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)
        yield Change(file, start, end, new, kind, node.lineno, text[start:end])

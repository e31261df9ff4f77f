# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Record which lines of functions run, by test and in processes that tests start.

``instrumented`` puts a probe, the store ``__nki_lines__[number] = 1``, before each run of statements that start
one after the other. ``ProbeTable`` numbers the probes of a package. A process that has called ``start`` loads it with
probes, which write to a file in memory: forks share it, and it outlives the process. ``take`` stores what ran since the
last call under the name of a test; ``collected`` returns the lines by test, with those of the other processes.
"""

import ast
import builtins
import json
import mmap
import os
import pickle
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

NAME = "__nki_lines__"
DIRECTORY = "NKI_MLIR_LINES"            # the variable that names the directory of the table and of what ran
BLOCKS = ("body", "orelse", "finalbody")
COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match, ast.AsyncFor, ast.AsyncWith)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


# -- probes ------------------------------------------------------------------------------------------------------------
class _Instrumenter(ast.NodeTransformer):
    """Adds probes to functions. ``lines`` has the lines of each."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.lines: list[list[int]] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        documented = ast.get_docstring(node, clean=False) is not None
        node.body = [*node.body[:documented], *self.block(node.body[documented:])]
        return node

    visit_AsyncFunctionDef = visit_FunctionDef      # type: ignore[assignment]

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements of a block with a probe at its start and after each statement that may leave it."""
        changed: list[ast.stmt] = []
        lines: list[int] | None = None
        for statement in statements:
            if lines is None:
                lines = []
                changed.append(probe(self.first + len(self.lines), statement))
                self.lines.append(lines)
            lines += _header(statement)
            changed.append(self.inside(statement))
            if isinstance(statement, COMPOUND):
                lines = None
        return changed

    def inside(self, statement: ast.stmt) -> ast.stmt:
        """Add the probes of the blocks within a statement."""
        if not isinstance(statement, COMPOUND):
            return self.visit(statement)            # functions and classes within functions
        for owner in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            for name in BLOCKS:
                if block := getattr(owner, name, None):
                    setattr(owner, name, self.block(block))
        return statement


def probe(number: int, at: ast.stmt) -> ast.stmt:
    """Return the statement that stores that what follows has run."""
    store, = ast.parse(f"{NAME}[{number}] = 1").body
    for node in ast.walk(store):
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = at.lineno
            node.col_offset = node.end_col_offset = 0
    return store


def _header(statement: ast.stmt) -> Iterator[int]:
    """Yield the lines of a statement without those of its blocks, but with the conditions of its cases and handlers."""
    if not isinstance(statement, (*COMPOUND, *FUNCTIONS, ast.ClassDef)):
        yield from range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        return
    owners = [(statement, statement.lineno)]
    owners += [(handler, handler.lineno) for handler in getattr(statement, "handlers", ())]
    owners += [(case, case.pattern.lineno) for case in getattr(statement, "cases", ())]
    for owner, start in owners:
        body = getattr(owner, "body", None)
        end = body[0].lineno if body else start + 1
        yield from range(start, max(start + 1, end))


def instrumented(text: str | bytes, first: int = 0) -> tuple[ast.Module, list[list[int]]]:
    """Return a module with probes from number ``first`` on, and the lines that each shows."""
    instrumenter = _Instrumenter(first)
    tree: ast.Module = instrumenter.visit(ast.parse(text))
    return tree, instrumenter.lines


class ProbeTable:
    """The number of the first probe of each file of a package, and the lines of its probes. ``size``: of all files."""

    def __init__(self, package: Path) -> None:
        self.files: dict[str, tuple[int, list[list[int]]]] = {}
        self.size = 0
        for file in sorted(package.rglob("*.py")):
            lines = instrumented(file.read_bytes())[1]
            self.files[str(file.relative_to(package))] = self.size, lines
            self.size += len(lines)

    def write(self, directory: Path, package: Path) -> None:
        """Write what ``start`` reads. The package may be a copy."""
        first = {str(package / file): number for file, (number, _) in self.files.items()}
        (directory / "table.json").write_text(json.dumps({"size": self.size, "first": first}))

    def lines(self, file: str, bits: bytes) -> set[int]:
        """Return the lines of a file that ran, given a byte for each probe."""
        first, lines = self.files[file]
        return {line for number, run in enumerate(lines, first) if bits[number] for line in run}


# -- in processes that run the package ---------------------------------------------------------------------------------
def start() -> None:
    """Load the package with probes in this process, if ``NKI_MLIR_LINES`` names a directory with a table."""
    name = os.environ.get(DIRECTORY)
    if not name:
        return
    directory = Path(name)
    table = json.loads((directory / "table.json").read_text())
    first: dict[str, int] = table["first"]
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    file = directory / f"{os.getpid()}-{time.monotonic_ns()}"
    file.with_suffix(".name").write_text(test)
    with open(file.with_suffix(".bits"), "w+b") as bits:
        bits.truncate(max(table["size"], 1))
        setattr(builtins, NAME, mmap.mmap(bits.fileno(), 0))
    sys.pycache_prefix = str(directory / "pycache")             # code without probes stays where it is
    load = SourceFileLoader.source_to_code

    def source_to_code(self: SourceFileLoader, data: Any, path: Any, **options: Any) -> CodeType:
        if path in first:
            return compile(instrumented(data, first[path])[0], path, "exec", dont_inherit=True)
        code: CodeType = load(self, data, path, **options)
        return code
    SourceFileLoader.source_to_code = source_to_code            # type: ignore[method-assign, assignment]


def take(test: str) -> None:
    """Store what has run since the last call under a test's name, and forget it."""
    probes: mmap.mmap = getattr(builtins, NAME)
    bits = probes[:]
    if any(bits):
        with open(Path(os.environ[DIRECTORY]) / f"{os.getpid()}.taken", "ab") as file:
            pickle.dump((test, zlib.compress(bits, 1)), file)
        probes[:] = bytes(len(bits))


def collected(directory: Path) -> dict[str, bytes]:
    """Return what ran by test, compressed: a byte for each probe. "" is what ran before the tests."""
    parts: dict[str, list[bytes]] = defaultdict(list)
    for file in directory.glob("*.taken"):
        with open(file, "rb") as source:
            while source.peek(1):
                test, bits = pickle.load(source)
                parts[test].append(zlib.decompress(bits))
    for file in directory.glob("*.bits"):
        parts[file.with_suffix(".name").read_text()].append(file.read_bytes())
    return {test: zlib.compress(union(several)) for test, several in parts.items()}


def union(several: list[bytes]) -> bytes:
    """Return the probes that one of several runs passed."""
    number = 0
    for bits in several:
        number |= int.from_bytes(bits, "little")
    return number.to_bytes(len(several[0]), "little")

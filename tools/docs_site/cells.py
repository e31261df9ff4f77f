# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The code cells of tutorials and guides: run them without Sphinx and compare their output with the sources.

    python -m tools.docs_site.cells [--update] [FILE.md ...]        compare, or update the outputs
    python -m tools.docs_site.cells --notebooks FOLDER [FILE.md ...]

A cell is a block ``{code-cell}``. Lines that begin with ``% `` after it contain its output. The site shows the
output of the cell at build time instead of these lines.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "docs" / "site"
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n((?::[^\n]*\n)*)\n?(.*?)^```\n((?:%[^\n]*\n)*)", re.DOTALL | re.MULTILINE)
FIGURE = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?= us\b|x\b|%| GB/s| ns\b| TFLOP/s)")
MARK = "\x1e"
# The program that runs a page's cells as a notebook does, and prints a mark after each.
RUNNER = """
import ast, json, linecache, sys, traceback, warnings
warnings.filterwarnings("ignore", category=DeprecationWarning)
names = {"__name__": "__main__"}
for number, (code, fails) in enumerate(json.load(open(sys.argv[1]))):
    name = f"cell{number + 1}.py"
    linecache.cache[name] = len(code), None, code.splitlines(True), name
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    try:
        exec(compile(tree, name, "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), names)
            if value is not None and not hasattr(value, "_repr_html_"):
                print(repr(value))
    except Exception as error:
        if not fails:
            traceback.print_exc()
            sys.exit(1)
    print(chr(30), flush=True)
"""


class Cell(NamedTuple):
    """A code cell. ``fails`` says that it demonstrates an error, ``language`` how to highlight its output."""

    code: str
    printed: str
    language: str
    fails: bool
    begin: int
    end: int


class Difference(NamedTuple):
    """A cell whose output differs from the page."""

    file: str
    line: int
    printed: str
    expected: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: prints\n{self.printed}\nnot\n{self.expected}\n" \
               f"If that is right: python -m tools.docs_site.cells --update {self.file}"


class CellFailed(Exception):
    """An error that a cell raised and its page does not announce."""


def pages() -> list[Path]:
    """Return the sources with code cells."""
    return sorted(f for f in SOURCES.rglob("*.md") if "{code-cell}" in f.read_text())


def cells(text: str) -> Iterator[Cell]:
    for match in CELL.finditer(text):
        options, code, printed = match.groups()
        lines = [line[2:] for line in printed.splitlines()]
        language = re.search(r"^:output: (\w+)$", options, re.MULTILINE)
        yield Cell(code, "\n".join(lines), language[1] if language else "text", "raises-exception" in options,
                   match.start(), match.end())


def run(file: Path) -> list[str]:
    """Run the cells of a page in a new process and return the output of each."""
    cell_texts = [(c.code, c.fails) for c in cells(file.read_text())]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "cells.json").write_text(json.dumps(cell_texts))
        (Path(folder) / "runner.py").write_text(RUNNER)
        # Tutorials show what is portable: nothing that a release of the language refuses.
        strict = {"NKI_MLIR_STRICT": "1"} if file.parent.name == "tutorials" else {}
        process = subprocess.run([sys.executable, f"{folder}/runner.py", f"{folder}/cells.json"], cwd=file.parent,
                                 env=os.environ | strict, capture_output=True, text=True)
    if process.returncode:
        raise CellFailed(f"{file.relative_to(ROOT)}: {process.stdout.rpartition(MARK)[2]}{process.stderr}")
    return [plain(text) for text in process.stdout.split(f"{MARK}\n")[:-1]]


def plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


def same(printed: str, expected: str) -> bool:
    """Return whether two outputs are equal up to rounding.

    Errors of rounding differ from machine to machine: below 1e-3 they count as equal. Figures of the timed machine,
    which have a unit, follow its model and the order of instructions: within a quarter, or ten percent of the whole,
    they count as equal.
    """
    texts = [re.sub(r"\d\.\de-(?:0[4-9]|[1-9]\d)\b", "rounding", text) for text in (printed, expected)]
    figures, expected_figures = ([(float(match[0]), text[match.end()] == "%") for match in FIGURE.finditer(text)]
                                 for text in texts)
    printed_words, expected_words = (" ".join(FIGURE.sub("figure", text).split()) for text in texts)
    return printed_words == expected_words and all(abs(a - b) <= (10 if is_share else max(a, b) / 4)
                                                   for (a, is_share),
                                                   (b, _) in zip(figures, expected_figures, strict=True))


def differences(file: Path) -> list[Difference]:
    """Return the cells whose output differs from the page."""
    text = file.read_text()
    return [Difference(str(file.relative_to(ROOT)), text[:cell.begin].count("\n") + 1, printed, cell.printed)
            for cell, printed in zip(cells(text), run(file), strict=True)
            if not same(printed, cell.printed)]


def update(file: Path) -> None:
    """Write the output of each cell after it."""
    text, position, parts = file.read_text(), 0, []
    for cell, printed in zip(cells(text), run(file), strict=True):
        source = re.sub(r"(?:^%[^\n]*\n)+\Z", "", text[cell.begin:cell.end], flags=re.MULTILINE)
        output_lines = [f"% {line}".rstrip() + "\n" for line in printed.split("\n") if printed]
        parts += [text[position:cell.begin], source, *output_lines]
        position = cell.end
    file.write_text("".join(parts) + text[position:])


# -- notebooks ---------------------------------------------------------------------------------------------------------
def notebook(text: str) -> dict[str, object]:
    """Convert a page to a notebook: prose without the blocks of the site, and the cells."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    notebook_cells, position = [], 0
    for cell in cells(text):
        notebook_cells += [prose_cell(text[position:cell.begin]), code_cell(cell.code)]
        position = cell.end
    notebook_cells.append(prose_cell(text[position:]))
    return {"cells": [c | {"id": f"cell-{n}"} for n, c in enumerate(notebook_cells) if c["source"]], "nbformat": 4,
            "nbformat_minor": 5, "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3",
                                                             "language": "python"}}}


def prose_cell(text: str) -> dict[str, object]:
    plain_text = re.sub(r"^(`{3,}|:{3,})\{[\w-]+\}.*?^\1[ ]*\n", "", text, flags=re.DOTALL | re.MULTILINE)
    plain_text = re.sub(r"^\([\w-]+\)=\n|^%.*\n", "", plain_text, flags=re.MULTILINE)
    return {"cell_type": "markdown", "metadata": {}, "source": plain_text.strip()}


def code_cell(code: str) -> dict[str, object]:
    return {"cell_type": "code", "metadata": {}, "source": code.strip(), "outputs": [], "execution_count": None}


def write_notebooks(folder: Path, files: list[Path]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        (folder / f"{file.stem}.ipynb").write_text(json.dumps(notebook(file.read_text()), indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the code of the site's pages.")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.md", help="the pages (all)")
    parser.add_argument("--update", action="store_true", help="write the output into the pages")
    parser.add_argument("--notebooks", type=Path, metavar="FOLDER", help="write the pages as notebooks")
    options = parser.parse_args()
    files = [f.resolve() for f in options.files] or pages()
    if options.notebooks is not None:
        write_notebooks(options.notebooks, files)
        return 0
    if options.update:
        for file in files:
            update(file)
        return 0
    failures = [d for file in files for d in differences(file)]
    print(*failures, sep="\n\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

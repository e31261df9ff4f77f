# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Count the modules that implement the same analysis, and write the counts to ``docs/architecture.md``.

    python tools/structure.py [--check] [--against COMMIT]

A regular expression finds each analysis in the source text of the modules of some folders; tests of overlap are also
found by their comparisons, whatever their functions are called. ``--against`` also counts in another commit of the
repository, and prints the modules.
"""

import argparse
import ast
import io
import itertools
import re
import subprocess
import sys
import tokenize
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/architecture.md"
BEGIN, END = "<!-- structure: written by tools/structure.py -->\n", "<!-- structure: end -->\n"
EARLIER = "0f41b8e"
EARLIER_TIED = 90           # modules in an import cycle, in that commit


class Analysis(NamedTuple):
    """An analysis: what its modules do, the regular expression that finds them, and their folders."""

    name: str
    pattern: str
    folders: tuple[str, ...]
    earlier: int                # modules in the commit EARLIER
    second: tuple[str, ...] = ()        # modules that implement it a second time on purpose, and do not count
    compares_spans: bool = False        # also count modules that compare the ends of two spans


# The checker shares no code with the emission that it checks. The spans of the others are steps of a program, rows of a
# convolution and ranges of values.
CHECKER = tuple(f"targets/neuron/checker/{name}.py" for name in (
    "conflicts", "footprint", "live_ranges", "register_numbers"))
OF_OTHER_SPANS = ("targets/neuron/codegen/liveness.py", "capture/writes.py")
BELOW = ("waist", "graph", "transforms", "selection", "conversion", "targets")
ANALYSES = (
    Analysis("read the operands and body of a `linalg.generic`", r'attributes\["indexing_maps"\]|'
             r'attributes\["operandSegmentSizes"\]', ("waist", "graph", "targets"), 4),
    Analysis("read `scf.for` in order to execute it", r'(== |case |executes\()"scf\.for"|"scf\.for": _',
             ("waist", "targets"), 4),
    Analysis("match the names of operations around nests in order to execute them",
             r'"(scf|linalg|scalar|affine)\.|"arith\.[a-z]+i"|"memref\.(alloc|load|store)"', ("targets",), 8),
    Analysis("recognize a product", r'\b(factors_of|_factors)\(|(element\.fn|step\.name|\)) [!=]= "multiply"|'
             r'\["multiply", "add"\]',
             ("waist", "targets", "selection", "graph"), 7),
    Analysis("recognize a fold", r"def fold_of\(", BELOW, 2),
    Analysis("have a normal form of a nest", r"def (simplified|arranged)\(self", ("waist",), 2),
    Analysis("read the source of a copy instead of its result",
             r"(?<!def )\b(_?through|inputs_through|source_map|fused)\(|"
             r"def (\w*through|at_source|at_target)\(", BELOW, 6),
    Analysis("test whether two accesses overlap",
             r"def (_?apart|_?interleaved|lie_apart|are_apart|elements_apart|\w*boxes_apart|may_meet|reads_result|"
             r"clearly_apart|meeting|conflicts|overlaps?|overlaps_later|\w*boxes_overlap|intersects)\(",
             (*BELOW, "capture", "frontend"), 12, (*CHECKER, *OF_OTHER_SPANS), True),
    Analysis("define a form of a tile on the way from capture to the CPU's program",
             r"(?m)^class (View|Access|ViewOp|Operand|MemrefView|ViewedNest|PlacedNest|TileComputation|ChunkAccess|"
             r"ByteRegion|ByteInterval)\b", ("capture", "dialects", "frontend", "waist", "targets"), 8),
    Analysis("name an instruction, the selection that reduces", "select[_]reduce",
             ("dialects", "language", "machine"), 5),
    Analysis("key a table by the address of an object",
             r"\bid\(|tuple\(map\(id\b", ("targets",), 18))

PAIRS = (("low", "high"), ("first", "last"), ("first", "after"), ("start", "end"), ("start", "stop"), ("b0", "b1"),
         ("p0", "p1"))
ENDS = {*PAIRS, *((end, begin) for begin, end in PAIRS)}        # the latter where code tests that spans are apart


def code_lines(text: str) -> int:
    """Count the lines of code, without blank lines, comments and docstrings."""
    counted: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
                              tokenize.ENDMARKER):
            counted.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            counted -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(counted)


def sources() -> dict[str, str]:
    """Return the texts of the package's modules in the working tree, by path in the package."""
    return {file.relative_to(ROOT / "nki_mlir").as_posix(): file.read_text()
            for file in sorted((ROOT / "nki_mlir").rglob("*.py"))}


def sources_of(commit: str) -> dict[str, str]:
    """Return the texts of the package's modules in a commit."""
    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True).stdout
    files = git("ls-tree", "-r", "--name-only", commit, "nki_mlir").split()
    return {file.removeprefix("nki_mlir/"): git("show", f"{commit}:{file}") for file in files if file.endswith(".py")}


def compares_spans(text: str) -> bool:
    """Return whether a module compares two spans: the begin of each with the end of the other."""
    return any(is_crossed(*pair) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.BoolOp)
               for pair in itertools.combinations(filter(None, map(ordered, node.values)), 2))


def ordered(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """Return the lesser and the greater side of a comparison; None for other expressions."""
    match node:
        case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE()], comparators=[right]):
            return left, right
        case ast.Compare(left=left, ops=[ast.Gt() | ast.GtE()], comparators=[right]):
            return right, left
    return None


def is_crossed(one: tuple[ast.expr, ast.expr], other: tuple[ast.expr, ast.expr]) -> bool:
    """Return whether two comparisons are of the ends of two spans, whose ends have one name: ``a.low < b.high`` and
    ``b.low < a.high``, or ``x < y + size`` and ``y < x + length``."""
    (low, high), (other_low, other_high) = one, other
    starts = [ast.unparse(end.left) if isinstance(end, ast.BinOp) else "" for end in (high, other_high)]
    names = [end_name(end) for end in (low, other_low, high, other_high)]
    return starts == [ast.unparse(other_low), ast.unparse(low)] or (
        names[0] == names[1] and names[2] == names[3] and (names[0], names[2]) in ENDS
        and ast.unparse(low) != ast.unparse(other_low) and ast.unparse(high) != ast.unparse(other_high))


def end_name(node: ast.expr) -> str:
    """Return the name of an end of a span, without the name of the span."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.removeprefix("other_").removesuffix("_a").removesuffix("_b")


def modules(analysis: Analysis, files: Mapping[str, str]) -> list[str]:
    """Return the modules that match an analysis's pattern."""
    return [name for name, text in files.items()
            if name.split("/")[0] in analysis.folders and name not in analysis.second
            and (re.search(analysis.pattern, text) or (analysis.compares_spans and compares_spans(text)))]


def imports(name: str, text: str, names: Mapping[str, str]) -> set[str]:
    """Return which of the modules ``names`` a module imports outside of functions, including imports for types."""
    imported, bodies = set(), [ast.parse(text).body]
    while bodies:
        for node in bodies.pop():
            if isinstance(node, ast.ImportFrom) and node.module:
                imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.If | ast.Try):
                bodies += [node.body, node.orelse]
    return {names[module] for module in imported & names.keys()} - {name}


def tied(files: Mapping[str, str]) -> int:
    """Count the modules in a cycle of imports, or between two cycles, including imports for types."""
    names = {f"nki_mlir.{name.removesuffix('.py').replace('/', '.')}": name for name in files
             if not name.endswith("__init__.py")}
    graph = {name: imports(name, files[name], names) for name in names.values()}
    while True:
        used_modules = set().union(*graph.values())
        remaining = {name: imported & graph.keys() for name, imported in graph.items() if imported & graph.keys()
                     and name in used_modules}
        if remaining == graph:
            return len(graph)
        graph = remaining


def table(files: Mapping[str, str]) -> str:
    rows = [*((q.name, q.earlier, len(modules(q, files))) for q in ANALYSES),
            ("are in an import cycle, also one of imports for types, or between two cycles", EARLIER_TIED, tied(files))]
    return "".join(["| modules that | before | now |\n|---|---|---|\n",
                    *(f"| {name} | {before} | {current} |\n" for name, before, current in rows)])


def page(text: str) -> str:
    """Return the page with an updated table."""
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:begin] + table(sources()) + text[end:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with status 1 if the page differs")
    parser.add_argument("--against", metavar="COMMIT", help="also count in this commit, with code lines")
    arguments = parser.parse_args()
    if arguments.against:
        current, before = sources(), sources_of(arguments.against)
        for analysis in ANALYSES:
            print(f"{analysis.name}: {len(modules(analysis, before))} before, {len(modules(analysis, current))} now: "
                  f"{', '.join(modules(analysis, current))}")
        print(f"in an import cycle: {tied(before)} before, {tied(current)} now")
        print(f"code lines: {sum(map(code_lines, before.values()))} before, {sum(map(code_lines, current.values()))} "
              f"now")
        return 0
    text = PAGE.read_text()
    if arguments.check:
        return int(page(text) != text)
    PAGE.write_text(page(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())

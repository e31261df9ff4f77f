# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What every source file of the project looks like."""

import ast
import io
import re
import subprocess
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.sources import PACKAGE, ROOT, by_folder, name, nodes, parsed

LINES = 500
LONGER: dict[str, str] = {}             # file -> why it may be longer
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc"}
SPDX = "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception"

PYTHON = sorted(f for folder in ("nki_mlir", "tests", "tools", "bench", "examples", "lit_tests")
                for f in (ROOT / folder).rglob("*.py"))
NATIVE = sorted(f for suffix in ("*.h", "*.hpp", "*.cpp", "*.mlir", "*.txt") for f in (ROOT / "nki_mlir").rglob(suffix))
TEXTS = sorted({*PYTHON, *NATIVE, *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("dialects/*"),
                *(ROOT / "lit_tests").rglob("*.mlir"), *(ROOT / "examples").rglob("*.mlir"), ROOT / "Makefile",
                ROOT / "pyproject.toml", ROOT / ".ci" / "run"})


@by_folder([*PYTHON, *NATIVE])
def test_files__start_with_the_license(files: list[Path]) -> None:
    assert not [name(f) for f in files if (text := f.read_text()) and SPDX not in text.split("\n")[0]]


def has_summary(docstring: str | None) -> bool:
    return bool(docstring) and (docstring.split("\n")[0].rstrip().endswith((".", ":", ";", ","))
                                or "\n\n" in docstring)


@by_folder([f for f in PYTHON if not f.name.startswith("__") and f.parent.name != "lit_tests"])
def test_modules__say_what_they_are_for(files: list[Path]) -> None:
    assert not [name(f) for f in files if not has_summary(ast.get_docstring(parsed(f)))]


def test_modules__are_at_most_500_lines() -> None:
    longer = {name(f): n for f in PACKAGE if (n := f.read_text().count("\n")) > LINES}
    assert longer.keys() == LONGER.keys(), longer


@by_folder(PACKAGE)
def test_functions__are_at_most_50_lines(files: list[Path]) -> None:
    """Split a longer function by its subjects. The lines of a docstring do not count."""
    assert not [f"{name(file)}:{node.lineno}: {node.name}" for file in files for node in nodes(file)
                if isinstance(node, ast.FunctionDef) and lines_of(node) > 50]


def lines_of(function: ast.FunctionDef) -> int:
    end = function.end_lineno or 0
    if ast.get_docstring(function) is None:
        return end - function.lineno + 1
    return end - (function.body[0].end_lineno or 0) + function.body[0].lineno - function.lineno


LIMITS = {128, 512, 2048, 16384, 32767}         # of partitions, columns, banks, searches, steps


@pytest.mark.parametrize("part", ["language", "dialects"])
def test_limits_of_the_machine__are_in_its_description(part: str) -> None:
    constants = []
    for file in sorted((ROOT / "nki_mlir" / part).rglob("*.py")):
        tree = parsed(file)
        opcodes = {k.value for n in ast.walk(tree) if isinstance(n, ast.ClassDef) for k in n.keywords}
        constants += [f"{name(file)}:{n.lineno}: {n.value}" for n in ast.walk(tree) if isinstance(n, ast.Constant)
                      and type(n.value) is int and n.value in LIMITS and n not in opcodes]
    assert not constants, "use a field of nki_mlir.machine.Machine"


def test_modules__have_telling_names() -> None:
    assert not [name(f) for f in PACKAGE if f.stem in VAGUE or f.parent.name in VAGUE]


@by_folder([f for f in PACKAGE if f.stem != "__init__"])
def test_modules__hold_no_stubs(files: list[Path]) -> None:
    for file in files:
        raised = [n.lineno for n in nodes(file) if isinstance(n, ast.Raise)
                  and "NotImplementedError" in ast.unparse(n)]
        assert not raised, f"{name(file)} raises NotImplementedError in lines {raised}"
        assert not re.search(r"\b(TODO|FIXME|XXX)\b", file.read_text()), name(file)


# -- what tests assert -------------------------------------------------------------------------------------------------
TESTS = [f for f in PYTHON if f.is_relative_to(ROOT / "tests")]
# Of an error that was caught, these tell where it was and of which class, not what it says.
NO_TEXT = {"at", "lineno", "filename", "category", "__traceback__", "__cause__"}


def looks_at_text(use: ast.Name, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether this use of what was caught does something with its text, or hands it on to who may."""
    node, names = use, set()
    while isinstance(parents[node], (ast.Attribute, ast.Subscript)):
        node = parents[node]
        names.add(getattr(node, "attr", ""))
    user = parents[node]
    is_message = isinstance(user, ast.Assert) and user.msg is node
    asks_class = isinstance(user, ast.Call) and ast.unparse(user.func) in ("isinstance", "type", "len")
    return not (names & NO_TEXT or is_message or asks_class)


def text_is_compared(call: ast.Call, parents: dict[ast.AST, ast.AST]) -> bool:
    if any(k.arg == "match" for k in call.keywords):
        return True
    scope = item = parents[call]
    if not (isinstance(item, ast.withitem) and isinstance(item.optional_vars, ast.Name)):
        return False
    while not isinstance(scope, (ast.FunctionDef, ast.Module)):
        scope = parents[scope]
    return any(looks_at_text(use, parents) for use in ast.walk(scope)
               if isinstance(use, ast.Name) and use.id == item.optional_vars.id and isinstance(use.ctx, ast.Load))


def blind_expectations(file: Path) -> list[int]:
    """The lines of ``raises`` and ``warns`` that do not compare the text."""
    expecting = [call for call in nodes(file) if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
                 and call.func.attr in ("raises", "warns") and ast.unparse(call.func) in ("pytest.raises", "pytest.warns")]
    parents = {child: node for node in nodes(file) for child in ast.iter_child_nodes(node)} if expecting else {}
    return [call.lineno for call in expecting if not text_is_compared(call, parents)]


@by_folder(TESTS)
def test_expected_errors__have_their_text_compared(files: list[Path]) -> None:
    """``raises`` and ``warns`` have a ``match``, or the test looks at the text of what it caught."""
    blind = {name(f): lines for f in files if (lines := blind_expectations(f))}
    assert not blind, f"give match=, or compare the text, in lines {blind}"


LOOSE = 1e-4
TOLERANCES = {"rtol", "atol", "rel", "abs", "tolerance"}
CLOSE = {"assert_allclose": 2, "allclose": 2, "isclose": 2, "assert_close": 2}      # how many arguments are not a tolerance


def tolerances_of(node: ast.AST) -> list[ast.AST]:
    """The expressions that say how far two values may be apart: of a comparing call, and of ``assert abs(...) < this``."""
    if isinstance(node, ast.Call):
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        positional = CLOSE.get(function, len(node.args))
        return [k.value for k in node.keywords if k.arg in TOLERANCES] + node.args[positional:]
    if isinstance(node, ast.Assert):
        return [c.comparators[0] for c in ast.walk(node.test) if isinstance(c, ast.Compare)
                and isinstance(c.ops[0], (ast.Lt, ast.LtE)) and "abs(" in ast.unparse(c.left)]
    return []


def constants_of(expression: ast.AST) -> list[float]:
    """The numbers in an expression, but for factors of what is computed."""
    if not any(isinstance(n, (ast.Name, ast.Compare, ast.Dict)) for n in ast.walk(expression)):
        value = eval(compile(ast.Expression(expression), "tolerance", "eval"))
        return [value] if type(value) in (int, float) else []
    if isinstance(expression, ast.IfExp):
        return constants_of(expression.body) + constants_of(expression.orelse)
    parts = [n for n in ast.iter_child_nodes(expression) if isinstance(n, ast.expr)]
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, (ast.Mult, ast.Div)):
        parts = [n for n in parts if any(isinstance(inner, ast.Name) for inner in ast.walk(n))]
    return [n for part in parts for n in constants_of(part)]


def bare_tolerances(file: Path) -> list[int]:
    """The lines of loose tolerances that have no comment."""
    loose = [e.lineno for node in nodes(file) for e in tolerances_of(node)
             if max(constants_of(e), default=0) > LOOSE]
    if not loose:
        return []
    tokens = tokenize.generate_tokens(io.StringIO(file.read_text()).readline)
    comments = {t.start[0] for t in tokens if t.type == tokenize.COMMENT}
    return [line for line in loose if not comments & {line - 1, line}]


@by_folder(TESTS)
def test_loose_tolerances__have_a_reason(files: list[Path]) -> None:
    """A tolerance above 1e-4 has a comment on its line or the one above; most follow from ``tests/tolerances.py``."""
    bare = {name(f): lines for f in files if (lines := bare_tolerances(f))}
    assert not bare, f"make them as tight as the arithmetic is, or say why not, in lines {bare}"


# -- types -------------------------------------------------------------------------------------------------------------
def anys_in(node: ast.AST) -> int:
    """How often it says that a type is anything."""
    return sum(isinstance(n, ast.Name) and n.id == "Any" for n in ast.walk(node))


def anys(file: Path) -> int:
    return sum(isinstance(n, ast.Name) and n.id == "Any" for n in nodes(file))


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(file: Path) -> int:
    """Lines of a file that are neither blank, nor comments alone, nor docstrings."""
    docstring_nodes = [n.body[0] for n in nodes(file) if isinstance(n, SCOPES) and ast.get_docstring(n, clean=False)]
    docstrings = {line for node in docstring_nodes for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    return sum(number not in docstrings and bool(line.strip()) and not line.lstrip().startswith("#")
               for number, line in enumerate(file.read_text().split("\n"), 1))


MOST_ANYS = 10                                  # of 1,000 lines


def test_types__are_seldom_anything() -> None:
    count, lines = sum(map(anys, PACKAGE)), sum(map(code_lines, PACKAGE))
    assert count * 1000 <= MOST_ANYS * lines, f"{count} times Any in {lines} lines: say what a value is, or object"


@pytest.mark.parametrize("file", [f for folder in ("nki", "nisa")
                                  for f in sorted((ROOT / "nki_mlir" / "dialects" / folder).glob("*.py"))], ids=name)
def test_op_class__has_types(file: Path) -> None:
    assert not anys(file)


# What op classes are given: ``s`` of a body, ``b`` of a lowering and what it gives, ``check`` of their rules.
@pytest.mark.parametrize("module, cls", [("scalar_body", "ScalarFunctions"), ("op", "LoweringBuilder"), ("op", "RowBuilder"),
                                         ("verifier", "Check"), ("target_rules", "TargetCheck")])
def test_what_op_classes_are_given__has_types(module: str, cls: str) -> None:
    text = ast.parse((ROOT / "nki_mlir" / "dialects" / f"{module}.py").read_text())
    definition, = (n for n in text.body if isinstance(n, ast.ClassDef) and n.name == cls)
    assert not anys_in(definition)


# -- names -------------------------------------------------------------------------------------------------------------
# Words that do not say what a thing is; CONTRIBUTING.md, "Words", has those that do.
RETIRED = {"doubts", "given", "givenup", "kept", "made", "notwhole", "place", "places", "remembered", "said",
           "surroundings", "whole", "writtenvalues", "written",
           "beside", "braces", "contradict", "goals", "grown", "hindrance", "lawful", "noun", "occasion", "outward", "partly",
           "relaid", "retract", "stuck", "sunk", "thinned", "turn", "undisturbed"}
# The same of locals and parameters: they say nothing of the value.
RETIRED_LOCALS = {"alike", "asked", "bad", "beside", "contested", "every", "found", "given", "gone", "good", "got",
                  "held", "here", "how", "it", "kept", "known", "made", "mine", "now", "once", "others", "own", "place",
                  "places", "rest", "said", "seen", "settled", "several", "some", "taken", "theirs", "there", "thing",
                  "told", "wanted", "what", "when", "whole", "whose"}
# Those that tests, tools and examples do not use either.
RETIRED_EVERYWHERE = {"asked", "found", "given", "held", "made", "own", "place", "whole"}
# The same of fields, attributes and methods of classes.
RETIRED_MEMBERS = {"alike", "every", "found", "given", "gone", "held", "kept", "known", "made", "own", "place", "rest",
                   "said", "several", "taken", "told", "what"}
# Words of names: "complete", and "index", "position" or "source location" say what these mean (``in_place`` is a term).
RETIRED_WORDS = {"whole", "wholes", "place", "places", "placed"}
GENERATIONS = "what the language has in each of its generations, under the language's name"
LEVELS = "an operation of one name at two levels; classes are named after their operation"
SHARED_NAMES = {
    "ActivationOp": LEVELS, "IotaOp": LEVELS, "Kernel": GENERATIONS, "MemoryRegion": GENERATIONS, "MemsetOp": LEVELS,
    "TileSize": GENERATIONS, "dge_mode": GENERATIONS, "engine": GENERATIONS, "nc_version": GENERATIONS,
}


def defined(file: Path) -> Iterator[tuple[int, str]]:
    """(line, name) of the classes, functions and fields of a module."""
    for node in nodes(file):
        match node:
            case ast.ClassDef(name=name, body=body):
                yield node.lineno, name
                yield from ((n.lineno, n.target.id) for n in body
                            if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name))
            case ast.FunctionDef(name=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


@by_folder(PACKAGE)
def test_modules__have_no_retired_names(files: list[Path]) -> None:
    names = [(file, *one) for file in files for one in ((0, file.stem), *defined(file))]
    assert not [f"{name(file)}:{line}: {word}" for file, line, word in names if word.strip("_").lower() in RETIRED]


def members(file: Path) -> Iterator[tuple[int, str]]:
    """(line, name) of the members of classes. Keys of a ``TypedDict`` are what a document has, not members."""
    for cls in (node for node in nodes(file) if isinstance(node, ast.ClassDef)):
        if "TypedDict" not in map(ast.unparse, cls.bases):
            yield from ((node.lineno, node.name) for node in cls.body if isinstance(node, ast.FunctionDef))
            yield from ((node.lineno, node.id) for statement in cls.body if isinstance(statement, ast.Assign | ast.AnnAssign)
                        for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    for node in nodes(file):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


@by_folder(PACKAGE)
def test_members__have_no_retired_names(files: list[Path]) -> None:
    assert not [f"{name(file)}:{line}: {word}" for file in files for line, word in members(file)
                if word.strip("_") in RETIRED_MEMBERS]


@cache
def locals_of(file: Path) -> list[tuple[int, str]]:
    """(line, name) of the variables that a module's functions bind, and of parameters."""
    outermost = [node for node in outside_functions(parsed(file)) if isinstance(node, FUNCTIONS)]
    names = []
    for node in (node for function in outermost for node in ast.walk(function)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.append((node.lineno, name))
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.append((node.lineno, name))
    return names


def outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree that no function contains, the outermost functions with them."""
    yield node
    if not isinstance(node, FUNCTIONS):
        for child in ast.iter_child_nodes(node):
            yield from outside_functions(child)


@by_folder(PACKAGE)
def test_locals__have_no_retired_names(files: list[Path]) -> None:
    """Name a local by its value: ``candidates``, ``start_address``, ``missing_names``."""
    assert not [f"{name(file)}:{line}: {word}" for file in files for line, word in locals_of(file)
                if word in RETIRED_LOCALS]


@by_folder(PACKAGE)
def test_names__have_no_retired_words(files: list[Path]) -> None:
    assert not [f"{name(file)}:{line}: {word}" for file in files for line, word in (*defined(file), *locals_of(file))
                if RETIRED_WORDS & set(word.lower().replace("in_place", "").split("_"))]


@by_folder(PYTHON)
def test_names__are_not_retired_everywhere(files: list[Path]) -> None:
    assert not [f"{name(file)}:{line}: {word}" for file in files for line, word in (*defined(file), *locals_of(file))
                if word.strip("_") in RETIRED_EVERYWHERE]


def test_class_names__are_defined_once() -> None:
    """Two classes of one name are two meanings of one word; ``SHARED_NAMES`` says why some are not."""
    files = defaultdict(set)
    for file in PACKAGE:
        for node in nodes(file):
            if isinstance(node, ast.ClassDef):
                files[node.name].add(name(file))
    shared = {label: definers for label, definers in files.items() if len(definers) > 1}
    assert shared.keys() == SHARED_NAMES.keys(), shared


# Absolute places of one machine, and folders beside the checkout, which only the acceptance tests may look for.
OUTSIDE = re.compile("/" + r"work\b|\.\./" + "shared")
ACCEPTANCE = "tests/acceptance"


@by_folder([f for f in TEXTS if not name(f).startswith(ACCEPTANCE)])
def test_files__name_no_place_outside_of_the_checkout(files: list[Path]) -> None:
    assert not [name(f) for f in files if OUTSIDE.search(f.read_text())]


# British spellings: the project spells in American English. Brackets keep the list from matching itself.
BRITISH = re.compile(
    r"neighbo[u]r|behavio[u]r|colo[u]r|flavo[u]r|favo[u]r|hono[u]r|labo[u]r|\bcent[r]e|\bfib[r]e|\bmet[r]e|licen[c]e|defen[c]e|offen[c]e"
    r"|catalog[u]e|dialog[u]e|analo[g]ue|analy[s]e[dr]?\b|artef[a]ct|judg[e]ment|gr[e]y\b|programm[e]s?\b|spel[t]\b|learn[t]\b"
    r"|(?:label|model|signal|cancel|travel|level|channel|tunnel)[l](?:ed|ing)"
    r"|(?:canonical|factor|general|initial|minim|maxim|memo|normal|optim|organ|parallel|quant|real|recogn|serial|special|standard|summar|synchron"
    r"|util|vector)i[s](?:e[drs]?|ing|ations?)(?![a-z])", re.IGNORECASE)
UPSTREAM = re.compile(r"C(?:ANCELLE[D]|ancelle[d]Error)")     # names of XLA and Python


@by_folder([f for f in [*TEXTS, *sorted((ROOT / "docs" / "site").rglob("*.md"))] if f.is_file()])
def test_words__are_spelled_in_american_english(files: list[Path]) -> None:
    assert not [f"{name(f)}: {word.group()}" for f in files for word in BRITISH.finditer(UPSTREAM.sub("", f.read_text()))]


TOP_LEVEL = {".ci", ".github", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "Makefile",
             "README.md", "SECURITY.md", "bench", "constraints.txt", "dialects", "docs", "examples", "lit_tests",
             "nki_mlir", "pyproject.toml", "tests", "tools", "typings"}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the files are not a checkout")
def test_top_level__holds_nothing_that_a_test_wrote() -> None:
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {line.split("/")[0] for line in names} == TOP_LEVEL

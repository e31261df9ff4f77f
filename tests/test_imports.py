# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Imports go in one direction, as docs/architecture.md says; those inside functions are not an exception."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import sources
from tests.sources import by_folder, nodes, parsed

ROOT = sources.ROOT
PACKAGE = ROOT / "nki_mlir"
TIERS = (("alone", "array_files", "bindings", "cache_entries", "diagnostics", "display", "environment", "extensions", "files",
          "input_limits", "plain_text", "progress", "python_commands", "result_memory", "similar_names", "text_limits", "version"), ("machine", "scalar"), ("dialects",),
         ("analysis", "passes", "custom_form"), ("waist",), ("selection", "graph"), ("transforms", "conversion"), ("targets",),
         ("capture",), ("language",), ("migration", "printing", "frameworks", "customop", "compat", "calibration", "checking", "stepping", "scoring",
          "tuning", "grading", "cli", "plugin", "autoload"))
TIER = {part: k for k, tier in enumerate(TIERS) for part in tier}
TOP = len(TIERS)                # nki_mlir itself and __main__
MLIR = ("torch_mlir", "mlir", "jaxlib.mlir")          # JAX has its own copy, which never meets ours

FILES = sources.PACKAGE
MODULES = {".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for f in FILES}


def part_of(module: str) -> str:
    """``dialects`` of ``nki_mlir.dialects.nki.elementwise``."""
    return (module.split(".") + [""])[1]


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


# Functions that import what they are given the name of.
IMPORTERS = ("import_module", "__import__", "find_spec", "resolve_name", "spec_from_file_location")
# Modules that import what no text before the program runs says, and why the tiers hold all the same.
UNREAD = {
    "nki_mlir.cli.packages": "the packages of the user's file",
    "nki_mlir.__main__": "the module that a user runs",
    "nki_mlir.bindings": "the MLIR bindings, whichever are installed",
    "nki_mlir.cli.source": "the file that a command is given",
    "nki_mlir.compat": "vendors' names, and modules that its tables name",
    "nki_mlir.extensions": "modules of plugins, which entry points name",
    "nki_mlir.plugin": "modules that a table of the same file names",
    "nki_mlir.language.current.beta_calls": "modules that a table of the same file names",
    "nki_mlir.language.kernel": "the module of a user's kernel that was pickled",
    "nki_mlir.language.signatures.binding": "modules that the functions of the two generations name",
    "nki_mlir.migration.neighbors": "the packages that a migrated text imports: whether they are installed",
    "nki_mlir.passes.packages": "the package at the top of one that is registered: it is there, and has no passes",
}
# What a lower tier imports of a higher one by a name that it makes, and why it cannot be the other way round.
UPWARDS = {
    ("nki_mlir.language.framework_tensors", "nki_mlir.frameworks"): "nothing has loaded a framework's adapter when a kernel is "
    "called with the first of its tensors",
}


def written(name: ast.expr, known: dict[str, str]) -> tuple[str, bool]:
    """What the text of a program says of a string from its start on, and whether that is all of it."""
    match name:
        case ast.Constant(value=str(text)):
            return text, True
        case ast.Name(id=variable) if variable in known:
            return known[variable], True
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return written(value, known)
        case ast.JoinedStr(values=parts):
            pass
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            parts = [left, right]
        case _:
            return "", False
    said = ""
    for text, complete in (written(part, known) for part in parts):
        said += text
        if not complete:
            return said, False
    return said, True


@cache
def imported(file: Path) -> list[tuple[int, str]]:
    return list(imports(file))


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import statement, at any depth, of strings that name a module, and of what ``IMPORTERS``
    are given: as much of a name that is made as tells its part of the package, "" where none is told."""
    name = module_name(file)
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in nodes(file):
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom(level=0):
                yield node.lineno, node.module or ""
                if node.module == "nki_mlir":
                    yield from ((node.lineno, f"nki_mlir.{alias.name}") for alias in node.names)
            case ast.ImportFrom():
                base = package.split(".")[:len(package.split(".")) - node.level + 1]
                yield node.lineno, ".".join([*base, *([node.module] if node.module else [])])
            case ast.Constant(value=str(text)) if text in MODULES:
                yield node.lineno, text
            case ast.Call(func=ast.Attribute(attr=called) | ast.Name(id=called), args=[imported_name, *_]) if called in IMPORTERS:
                text, complete = written(imported_name, {"__package__": package, "__name__": name})
                if text not in MODULES:
                    yield node.lineno, text if complete or text.count(".") > 1 else ""


def test_tiers__are_those_of_the_document() -> None:
    text = " ".join((ROOT / "docs" / "architecture.md").read_text().split())
    section = text[text.index("Imports go in one direction"):]
    said = section[:section.index(". A test")].partition(":")[2]
    tiers = tuple(tuple(word.strip(" `\n") for word in tier.split(",")) for tier in said.split("<"))
    assert tiers == TIERS


def test_every_part__has_a_tier() -> None:
    parts = {part_of(module_name(f)) for f in FILES} - {"", "__main__"}
    assert parts <= set(TIER)


@by_folder(FILES)
def test_imports__go_one_way(files: list[Path]) -> None:
    wrong = [f"{file}:{line}: imports {module}" for file in files for line, module in imported(file)
             if module.startswith("nki_mlir.")
             and TIER.get(part_of(module), TOP) > TIER.get(part_of(module_name(file)), TOP)
             and (module_name(file), f"nki_mlir.{part_of(module)}") not in UPWARDS]
    assert not wrong, "\n".join(wrong)


def test_names_that_are_made__are_read_or_explained() -> None:
    unread = {module_name(file): f"{file}:{line}" for file in FILES for line, module in imported(file) if not module}
    wrong = {name: unread.get(name, "is explained, but has none") for name in unread.keys() ^ UNREAD.keys()}
    assert not wrong


@pytest.mark.parametrize("text, expected", [
    ('importlib.import_module(f"nki_mlir.frameworks.{name}")', "nki_mlir.frameworks."),
    ('import_module("nki_mlir." + "cli" + "." + name)', "nki_mlir.cli."),
    ('__import__(f"{__package__}.{name}")', "nki_mlir.dialects."),
    ('importlib.import_module(f"nki_mlir.{\'customop\'}.{name}")', "nki_mlir.customop."),
    ('importlib.import_module(f"nki_mlir.{part}.{name}")', ""),
    ('importlib.import_module(f"{nki_mlir.__name__}.customop")', ""),
    ('importlib.import_module("nki_mlir.%s" % name)', ""),
    ("importlib.util.find_spec(name)", ""),
    ('MODULES = {"kernel": "nki_mlir.language.kernel"}', "nki_mlir.language.kernel"),
])
def test_names_that_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str) -> None:
    file = tmp_path / "nki_mlir" / "dialects" / "module.py"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert [module for _, module in imported(file)] == [expected]


def test_mlir__is_imported_in_one_place() -> None:
    uses = [f"{file}:{line}: imports {module}" for file in FILES if file != PACKAGE / "bindings.py"
            for line, module in imported(file) if f"{module}.".startswith(tuple(f"{name}." for name in MLIR))]
    assert not uses, "\n".join(uses)


def imported_at_once(file: Path, for_types: bool) -> set[str]:
    """Modules of ours that a module imports when it is imported itself, and ``for_types`` those whose types it names;
    no packages around it."""
    text, this_module = parsed(file), module_name(file)
    names: set[str] = set()
    bodies = [text.body]
    while bodies:
        for node in bodies.pop():
            match node:
                case ast.Import():
                    names |= {alias.name for alias in node.names}
                case ast.ImportFrom():
                    names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
                case ast.If(test=test) if "TYPE_CHECKING" in ast.unparse(test) and not for_types:
                    bodies.append(node.orelse)
                case ast.If() | ast.Try():
                    bodies += [node.body, node.orelse]
    return {name for name in names & MODULES if not f"{this_module}.".startswith(f"{name}.")}


@pytest.mark.parametrize("for_types", [False, True])
def test_modules__import_each_other_in_no_circle(for_types: bool) -> None:
    left = {module_name(file): imported_at_once(file, for_types) for file in FILES}
    while free := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in free:
            del left[name]
    assert not left, "in a circle, or behind one: " + ", ".join(sorted(left))


def inner_imports(file: Path) -> Iterator[tuple[int, str]]:
    """(line, reason) of the imports inside functions, those that stand together as one; the reason is a comment."""
    lines = file.read_text().split("\n")
    indented = any(n.col_offset for n in nodes(file) if isinstance(n, ast.Import | ast.ImportFrom))
    places = {n.lineno: n for function in (nodes(file) if indented else ())
              if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
              for n in ast.walk(function) if isinstance(n, ast.Import | ast.ImportFrom)}
    ends = {n.end_lineno for n in places.values()}
    for line in sorted(places):
        if line - 1 not in ends and (lines[line - 2].strip() or line - 2 not in ends):
            above = lines[line - 2].strip()
            yield line, lines[line - 1].partition("#")[2].strip() or (above if above.startswith("#") else "").strip("# ")


@by_folder(FILES)
def test_imports_inside_functions__say_why(files: list[Path]) -> None:
    """They are for optional packages, and for what a start does not need."""
    reasons = [(f"{file}:{line}", why) for file in files for line, why in inner_imports(file)]
    assert not [f"{at}: move the import to the top, or say why not" for at, why in reasons if not why]
    assert not [f"{at}: a circle" for at, why in reasons if "imports this module" in why]


def loaded_by(statement: str) -> set[str]:
    """Top-level packages that a statement loads in a fresh process."""
    code = f"import sys; {statement}; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["nki_mlir", "nki_mlir.language.beta.language", "nki_mlir.language.beta.nki",
                                    "nki_mlir.language.beta.isa", "nki_mlir.compat", "nki_mlir.dialects.op",
                                    "nki_mlir.cli.opt", "nki_mlir.cli.run", "nki_mlir.cli.translate",
                                    "nki_mlir.cli.migrate"])
def test_language_and_commands__load_no_mlir(module: str) -> None:
    assert not loaded_by(f"import {module}") & {"torch_mlir", "mlir", "jax", "jaxlib", "torch"}


@pytest.mark.torch
def test_torch_adapter__loads_no_sympy_which_dynamo_needs() -> None:
    """Calls of kernels on PyTorch tensors need neither, and they take longer to load than PyTorch itself."""
    pytest.importorskip("torch")
    loaded = loaded_by("import nki_mlir.frameworks.torch")
    assert "torch" in loaded and "sympy" not in loaded


def test_help__loads_nothing_heavy() -> None:
    statement = "import nki_mlir.cli.opt as o; o.build_parser(o.pass_summaries()).format_help()"
    assert not loaded_by(statement) & {"torch_mlir", "mlir", "jax", "torch"}

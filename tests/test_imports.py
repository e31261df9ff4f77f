# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Imports go one way, as docs/architecture.md says; those inside functions are no exception."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "nki_mlir"
TIERS = (("alone", "bindings", "diagnostics", "environment", "files"), ("machine", "scalar"), ("dialects",),
         ("analysis", "passes"), ("waist",), ("selection", "graph"), ("transforms", "conversion"), ("targets",),
         ("frontend",), ("language",), ("frameworks", "customop", "compat", "cli"))
TIER = {part: k for k, tier in enumerate(TIERS) for part in tier}
TOP = len(TIERS)                # nki_mlir itself and __main__
MLIR = ("torch_mlir", "mlir", "jaxlib.mlir")          # JAX has a copy of its own, which never meets ours

FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(module: str) -> str:
    """``dialects`` of ``nki_mlir.dialects.nki.elementwise``."""
    return (module.split(".") + [""])[1]


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(file: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import statement, at any depth; strings given to import_module, too."""
    name = module_name(file)
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text())):
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
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(text)), *_]):
                yield node.lineno, text


def test_tiers__are_those_of_the_document() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text[text.index("Imports go one way"):]
    said = section[:section.index(". A test")].partition(":")[2]
    tiers = tuple(tuple(word.strip(" `\n") for word in tier.split(",")) for tier in said.split("<"))
    assert tiers == TIERS


def test_every_part__has_a_tier() -> None:
    parts = {part_of(module_name(f)) for f in FILES} - {"", "__main__"}
    assert parts <= set(TIER)


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_imports__go_one_way(file: Path) -> None:
    own = TIER.get(part_of(module_name(file)), TOP)
    wrong = [f"{file}:{line}: imports {module}" for line, module in imported(file)
             if module.startswith("nki_mlir.") and TIER.get(part_of(module), TOP) > own]
    assert not wrong, "\n".join(wrong)


def test_mlir__is_imported_in_one_place() -> None:
    found = [f"{file}:{line}: imports {module}" for file in FILES if file != PACKAGE / "bindings.py"
             for line, module in imported(file) if f"{module}.".startswith(tuple(f"{name}." for name in MLIR))]
    assert not found, "\n".join(found)


def imported_at_once(file: Path) -> set[str]:
    """Modules of ours that a module imports when it is imported itself; neither packages around it nor for types."""
    text, own = ast.parse(file.read_text()), module_name(file)
    found: set[str] = set()
    bodies = [text.body]
    while bodies:
        for node in bodies.pop():
            match node:
                case ast.Import():
                    found |= {alias.name for alias in node.names}
                case ast.ImportFrom():
                    found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
                case ast.If(test=test) if "TYPE_CHECKING" in ast.unparse(test):
                    bodies.append(node.orelse)
                case ast.If() | ast.Try():
                    bodies += [node.body, node.orelse]
    return {name for name in found & {module_name(f) for f in FILES} if not f"{own}.".startswith(f"{name}.")}


def test_modules__import_each_other_in_no_circle() -> None:
    left = {module_name(file): imported_at_once(file) for file in FILES}
    while free := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in free:
            del left[name]
    assert not left, "in a circle, or behind one: " + ", ".join(sorted(left))


def loaded_by(statement: str) -> set[str]:
    """Top-level packages that a statement loads in a fresh process."""
    code = f"import sys; {statement}; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["nki_mlir", "nki_mlir.language.beta.language", "nki_mlir.language.beta.nki",
                                    "nki_mlir.language.beta.isa", "nki_mlir.compat", "nki_mlir.dialects.op",
                                    "nki_mlir.cli.opt", "nki_mlir.cli.run", "nki_mlir.cli.translate"])
def test_language_and_commands__load_no_mlir(module: str) -> None:
    assert not loaded_by(f"import {module}") & {"torch_mlir", "mlir", "jax", "jaxlib", "torch"}


def test_help__loads_nothing_heavy() -> None:
    statement = "import nki_mlir.cli.opt as o; o.build_parser(o.pass_summaries()).format_help()"
    assert not loaded_by(statement) & {"torch_mlir", "mlir", "jax", "torch"}

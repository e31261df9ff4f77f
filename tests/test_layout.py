# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What every source file of the project looks like."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINES = 400
LONGER: dict[str, str] = {}             # file -> why it may be longer
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc"}
SPDX = "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception"

PACKAGE = sorted((ROOT / "nki_mlir").rglob("*.py"))
PYTHON = sorted(f for folder in ("nki_mlir", "tests", "tools", "bench", "examples", "lit_tests")
                for f in (ROOT / folder).rglob("*.py"))
NATIVE = sorted(f for suffix in ("*.h", "*.hpp", "*.cpp", "*.mlir") for f in (ROOT / "nki_mlir").rglob(suffix))
TEXTS = sorted({*PYTHON, *NATIVE, *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("dialects/*"),
                *(ROOT / "lit_tests").rglob("*.mlir"), *(ROOT / "examples").rglob("*.mlir"), ROOT / "Makefile",
                ROOT / "pyproject.toml", ROOT / ".ci" / "run"})


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", [f for f in (*PYTHON, *NATIVE) if f.read_text()], ids=name)
def test_file__starts_with_the_licence(file: Path) -> None:
    assert SPDX in file.read_text().split("\n")[0]


@pytest.mark.parametrize("file", [f for f in PYTHON if not f.name.startswith("__") and f.parent.name != "lit_tests"],
                         ids=name)
def test_module__says_what_it_is_for(file: Path) -> None:
    docstring = ast.get_docstring(ast.parse(file.read_text()))
    assert docstring, "no module docstring"
    assert docstring.split("\n")[0].rstrip().endswith((".", ":", ";", ",")) or "\n\n" in docstring


def test_modules__are_at_most_400_lines() -> None:
    longer = {name(f): n for f in PACKAGE if (n := f.read_text().count("\n")) > LINES}
    assert longer.keys() == LONGER.keys(), longer


def test_modules__have_telling_names() -> None:
    assert not [name(f) for f in PACKAGE if f.stem in VAGUE or f.parent.name in VAGUE]


@pytest.mark.parametrize("file", [f for f in PACKAGE if f.stem != "__init__"], ids=name)
def test_module__holds_no_stub(file: Path) -> None:
    text = file.read_text()
    raised = [n.lineno for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Raise)
              and "NotImplementedError" in ast.unparse(n)]
    assert not raised, f"raises NotImplementedError in lines {raised}"
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", text)


# Absolute places of one machine, and folders beside the checkout, which only the acceptance tests may look for.
OUTSIDE = re.compile("/" + r"work\b|\.\./" + "shared")
ACCEPTANCE = "tests/acceptance"


@pytest.mark.parametrize("file", TEXTS, ids=name)
def test_file__names_no_place_outside_of_the_checkout(file: Path) -> None:
    assert name(file).startswith(ACCEPTANCE) or not OUTSIDE.search(file.read_text())

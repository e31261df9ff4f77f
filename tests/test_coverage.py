# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The coverage page has every documented name, says what the kernels show, and every name has a test."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nki_mlir.language.signatures.table import histories, releases_with
from tests.language import surface_beta
from tests.language_current import test_names as surface_current
from tests.property_counts import FUZZ

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "coverage.md").read_text()
TOOL = [sys.executable, str(ROOT / "tools" / "coverage.py")]
BETA, CURRENT, BY_RELEASE = re.split("## Current generation|## Names by release", PAGE)
PREFIX = {"nki": "nki", "language": "nl", "isa": "nisa", "compiler": "ncc", "typing": "nt"}
CURRENT_NAMES = {
    "nl": [*surface_current.LANGUAGE, *surface_current.OTHER_LANGUAGE.split()],
    "nisa": [*surface_current.ISA, *surface_current.OTHER_ISA.split()],
    "nki.collectives": ["ReplicaGroup", *surface_current.COLLECTIVES], "nki": ["jit", "simulate", "Kernel"],
}


def rows(text: str) -> dict[str, list[str]]:
    """Name -> the cells behind it."""
    lines = re.findall(r"^\| `(n[\w.]*)` \| (.*) \|$", text, re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split(" | ")] for name, cells in lines}


def test_every_name_has_a_row():
    documented = {f"{PREFIX[module]}.{name}" for module, names in surface_beta.MODULES.items() for name in names}
    assert rows(BETA).keys() == documented
    documented = {f"{prefix}.{name}" for prefix, names in CURRENT_NAMES.items() for name in names}
    assert documented <= rows(CURRENT).keys()


def test_no_name_fails_and_limits_say_why_another_executor_runs():
    for name, cells in (rows(BETA) | rows(CURRENT)).items():
        assert set(cells[1:4]) <= {"yes", "simulator"}, f"{name}: {cells}"
        assert ("simulator" in cells[1:4]) == bool(cells[4]), f"{name}: {cells}"


def test_every_name_has_its_releases():
    lines = [line.strip("|").split("|") for line in BY_RELEASE.splitlines() if line.startswith("|")]
    columns = [c.strip() for c in lines[0][1:]]
    table = {cells[0].strip(" `"): [c.strip() for c in cells[1:]] for cells in lines[2:]}
    assert table.keys() == histories().keys() and len(table) == 296
    for name, cells in table.items():
        assert [r for r, cell in zip(columns, cells, strict=True) if cell] == [
            r for r in releases_with(name) if r in columns], name
    assert table["nki.isa.dma_copy"] == ["", "1", "2", "3", "3", "3", "4", "5", "6", "6", "7", "7", "7"]
    assert rows(CURRENT)["nl.load"][5] == "2.20 to 2.26.1, 2.29 to 2.32"


@pytest.mark.parametrize("text", [BETA, CURRENT], ids=["beta", "current"])
@pytest.mark.parametrize("executor", [1, 2, 3], ids=["interpreter", "jit", "isa"])
def test_executors_have_nine_names_in_ten(text, executor):
    states = [cells[executor] for cells in rows(text).values()]
    assert states.count("yes") >= 0.9 * len(states)


TESTS = "\n".join(f.read_text() for folder in ("tests/language_current", "examples") for f in (ROOT / folder).glob("*.py")
                  if f.name != "test_names.py")


@pytest.mark.parametrize("prefix, name", [(p, n) for p, table in (
    ("nl", surface_current.LANGUAGE), ("nisa", surface_current.ISA), ("ncc", surface_current.COLLECTIVES))
    for n in table])
def test_some_test_of_the_current_generation_uses_the_name(prefix, name):
    assert re.search(rf"\b{prefix}\.{name}\b|[\"']{name}[\"']", TESTS), f"no test uses {prefix}.{name}"


@pytest.mark.slow
@pytest.mark.fuzz
def test_page_is_what_the_kernels_show():
    done = subprocess.run([*TOOL, "--check", f"--every={1 if FUZZ else 5}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_page_that_differs__is_an_error(tmp_path, monkeypatch, capsys):
    page = tmp_path / "coverage.md"
    page.write_text("old\n")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    coverage = importlib.import_module("tools.coverage")
    monkeypatch.setattr(coverage, "page", lambda every: "new\n")
    monkeypatch.setattr("sys.argv", ["coverage.py", "--check", f"--output={page}"])
    assert coverage.main() == 1 and page.read_text() == "old\n"
    assert capsys.readouterr().err == f"{page} differs from what the kernels show. fix: make docs\n"

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/adding-an-op.md works: its blocks are put where it says, in a copy of the project, and its tests run there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STEP = re.compile(r"(New file|Appended to|First entry of) `([\w/.]+)`:\n\n```python\n(.*?)```", re.DOTALL)
# The list or dictionary that an entry goes into.
COLLECTION = {"samples.py": "_GIVEN = [\n", "formulas.py": "FORMULAS: dict[str, Callable[[Any, dict], Any]] = {\n",
              "test_rules.py": "OWN: list[tuple[str, dict[str, Any], str]] = [\n",
              "elementwise.py": 'GROUP = Group("elementwise", "Elementwise instructions", {\n'}


def steps() -> list[tuple[str, str, str]]:
    """(what to do, file, text) of every block of the document that changes a file."""
    text = (ROOT / "docs" / "adding-an-op.md").read_text()
    matches = STEP.findall(text)
    assert len(matches) == text.count("```python")
    return matches


def follow(what: str, file: Path, code: str) -> None:
    match what:
        case "New file":
            file.write_text(code)
        case "Appended to":
            file.write_text(file.read_text() + "\n\n" + code)
        case "First entry of":
            start = COLLECTION[file.name]
            assert start in file.read_text()
            file.write_text(file.read_text().replace(start, start + code, 1))


def run(folder: Path, *command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False,
                          env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "HOME": str(folder)})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with the document's instruction."""
    folder = tmp_path_factory.mktemp("project")
    for part in ("nki_mlir", "tests", "tools", "examples"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for what, file, code in steps():
        follow(what, folder / file, code)
    return folder


def test_its_tests__pass(copy: Path) -> None:
    output = run(copy, "-m", "pytest", "-p", "no:cacheprovider", "tests/dialects", "-k", "clamp")
    count = re.search(r"(\d+) passed", output)
    assert count and int(count[1]) > 30, output


def test_its_page__is_whole(copy: Path) -> None:
    run(copy, "-m", "pytest", "-p", "no:cacheprovider", "tests/language/test_documentation.py", "-k", "clamp or whole")


def test_whole_sets__still_hold(copy: Path) -> None:
    run(copy, "-m", "pytest", "-p", "no:cacheprovider", "tests/dialects", "-k", "cover_every_op or distinct")


def test_commands__show_it(copy: Path) -> None:
    kernel = ["tests/dialects/test_clamp.py:limited", "--arg", "128x512xf32"]
    captured = run(copy, "-m", "nki_mlir.cli.opt", *kernel)
    assert '"nisa.clamp"(' in captured and "low = -5.000000e-01 : f64" in captured
    assert "CLAMP" in run(copy, "-m", "nki_mlir.cli.opt", *kernel, "--lower-to-isa")
    waist = run(copy, "-m", "nki_mlir.cli.opt", *kernel, "--split-masked-loops", "--nki-to-linalg", "--nisa-to-linalg")
    assert "nisa." not in waist
    assert waist.index('fn = "maximum"') < waist.index('fn = "minimum"')


def test_generated_files__have_it(copy: Path) -> None:
    run(copy, "tools/export_dialects.py", f"--output={copy / 'made'}")
    reference = (copy / "made" / "reference.md").read_text()
    section = reference[reference.index("### `nisa.clamp`"):].split("\n### ")[0]
    for text in ("Engines: vector (`dve`); assembly `CLAMP`, opcode `0xf0`.", "| `high` | float (f64) | `1.0` |",
                 "- low is at most high\n", "- `dst`, `src` have the same shape\n"):
        assert text in section
    assert "irdl.operation @clamp" in (copy / "made" / "nisa.irdl.mlir").read_text()


def test_an_instruction__is_named_in_two_files() -> None:
    """``select_reduce`` is named by its class and by its entry; all else is derived from these."""
    files = {path.relative_to(ROOT).as_posix() for path in [*(ROOT / "nki_mlir").rglob("*"), *(ROOT / "tools").rglob("*")]
             if path.suffix in (".py", ".txt") and "select_reduce" in path.read_text()}
    assert files == {"nki_mlir/dialects/nisa/accumulating.py", "nki_mlir/language/entries/reductions.py"}

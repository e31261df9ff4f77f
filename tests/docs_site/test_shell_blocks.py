# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Commands that the site's pages show run, on files with the page's kernels; code that is not run is Python at least."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.docs_site import cells

COMMAND = re.compile(r"^(?:nki-opt|nki-run) .*$", re.MULTILINE)
PAGES = sorted(f for f in cells.SOURCES.rglob("*.md") if COMMAND.search(f.read_text()))
JAX = pytest.mark.jax
# A graph's module: what a page that has one calls ``text``.
GRAPH = "\nfrom pathlib import Path\nPath('model.mlir').write_text(text)\n"


def declarations(code: str) -> str:
    """The code as a reader has it in a file: without what a page looks at."""
    statement_kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign)
    return "\n".join(ast.unparse(statement) for statement in ast.parse(code).body
                     if isinstance(statement, statement_kinds) or ast.unparse(statement) == "nki_mlir.compat.install()")


def page_cases() -> list:
    return [pytest.param(file, id=file.stem, marks=[JAX] if "import jax" in file.read_text() else []) for file in PAGES]


@pytest.mark.share(3)
@pytest.mark.parametrize("file", page_cases())
def test_commands_of_a_page__run(file: Path, tmp_path: Path) -> None:
    text = file.read_text()
    if "import jax" in text:
        pytest.importorskip("jax")
    code = "\n".join(c.code for c in cells.cells(text))
    for name in set(re.findall(r"(\w+)\.py:", text)):
        (tmp_path / f"{name}.py").write_text(declarations(code))
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                                "PYTHONPATH": str(cells.ROOT)}
    if "model.mlir" in text:
        subprocess.run([sys.executable, "-c", code.partition("from nki_mlir.frameworks")[0] + GRAPH], cwd=tmp_path,
                       env=environment, check=True)
    for line in COMMAND.findall(text):
        command = line.replace("nki-opt", f"{sys.executable} -m nki_mlir.cli.opt", 1)
        command = command.replace("nki-run", f"{sys.executable} -m nki_mlir.cli.run", 1)
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_kernel_of_the_start_page__is_the_first_tutorials() -> None:
    shown, = re.findall(r"^```python\n(.*?)^```", (cells.SOURCES / "index.md").read_text(), re.DOTALL | re.MULTILINE)
    kernel = shown[shown.index("@nki.jit"):shown.index("double(np")].strip()
    first = next(cells.cells((cells.SOURCES / "tutorials" / "first-kernel.md").read_text()))
    assert kernel and kernel in first.code


@pytest.mark.parametrize("file", sorted(cells.SOURCES.rglob("*.md")), ids=lambda f: f.stem)
def test_python_that_is_not_run__is_python(file: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", file.read_text(), re.DOTALL | re.MULTILINE):
        ast.parse(block)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The source files of the project, for tests that read them."""

import ast
import gc
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = sorted((ROOT / "nki_mlir").rglob("*.py"))


def name(file: Path) -> str:
    """A file's path in the checkout."""
    return str(file.relative_to(ROOT))


@cache
def parsed(file: Path) -> ast.Module:
    """The syntax tree of a module: several tests read each. The collector, which would examine its nodes again and again,
    is off meanwhile: parsing all sources takes half the time."""
    gc.disable()
    try:
        return ast.parse(file.read_text())
    finally:
        gc.enable()


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """All of it, as ``ast.walk`` finds them: tests look at each several times."""
    return tuple(ast.walk(parsed(file)))


def by_folder(files: Sequence[Path]) -> pytest.MarkDecorator:
    """Run a test once for each folder, with ``files``, those of it: a case for each file would cost more than the test."""
    folders: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        folders[name(file.parent)].append(file)
    return pytest.mark.parametrize("files", list(folders.values()), ids=list(folders))

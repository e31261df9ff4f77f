# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each error that the code raises has the values that its text names: an error without them could not be shown."""

import ast
import importlib
import string
from pathlib import Path

import pytest

import nki_mlir
from nki_mlir.diagnostics import NkiMlirError

PACKAGE = Path(nki_mlir.__file__).parent
FILES = sorted(str(file.relative_to(PACKAGE.parent)) for file in PACKAGE.rglob("*.py"))


def raised(file: str) -> list[tuple[int, type[NkiMlirError], set[str]]]:
    """The errors that a file creates with keywords alone: line, class, keywords."""
    calls = [call for call in ast.walk(ast.parse((PACKAGE.parent / file).read_text())) if isinstance(call, ast.Call)
             and isinstance(call.func, ast.Name) and call.func.id[:1].isupper()
             and not call.args and all(keyword.arg for keyword in call.keywords)]
    if not calls:
        return []
    if "\nimport torch\n" in (PACKAGE.parent / file).read_text():
        pytest.importorskip("torch")
    names = vars(importlib.import_module(".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")))
    described = [(call.lineno, names.get(call.func.id), {keyword.arg for keyword in call.keywords}) for call in calls]
    return [(line, kind, keywords) for line, kind, keywords in described
            if isinstance(kind, type) and issubclass(kind, NkiMlirError) and kind.__init__ is NkiMlirError.__init__]


def named(kind: type[NkiMlirError]) -> set[str]:
    texts = (kind.message, kind.why, kind.fix)
    fields = [field for text in texts for _, field, _, _ in string.Formatter().parse(text) if field]
    return {field.partition(".")[0].partition("[")[0] for field in fields}


@pytest.mark.parametrize("file", [file for file in FILES if "Error" in (PACKAGE.parent / file).read_text()])
def test_errors_have_the_values_of_their_texts(file):
    for line, kind, keywords in raised(file):
        assert named(kind) <= keywords, f"{file}:{line}: {kind.__name__} lacks {sorted(named(kind) - keywords)}"


def test_many_errors_are_looked_at():
    assert sum(len(raised(file)) for file in FILES if file.startswith("nki_mlir/language/")) > 100

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What holds for every pass and every operation: one file, one documentation, one FileCheck test of its name."""

import dataclasses
import importlib
import re
from pathlib import Path

import pytest

from nki_mlir.cli.opt import pass_summaries
from nki_mlir.dialects import catalog
from nki_mlir.dialects.op import REGISTRY
from nki_mlir.passes.pass_manager import PASSES, BadOption, file_names, pass_named

ROOT = Path(__file__).parent.parent.parent
LIT = {file: file.read_text() for file in (ROOT / "lit_tests").rglob("*.*") if file.suffix in (".mlir", ".py")}
catalog.load()


@pytest.mark.parametrize("name", sorted(file_names()))
def test_pass__is_found_by_its_name(name: str) -> None:
    cls = type(pass_named(name))
    assert cls.__name__ == "".join(word.capitalize() for word in name.split("-"))
    assert cls.__module__.rpartition(".")[2] == name.replace("-", "_")
    document = importlib.import_module(cls.__module__).__doc__ or ""
    assert document.startswith(f"{name}: ")


def test_passes__are_all_listed_by_help() -> None:
    for name in file_names():
        pass_named(name)
    summaries = {one.name: one for one in pass_summaries()}
    assert summaries.keys() == PASSES.keys()
    for name, cls in PASSES.items():
        fields = {field.name: field for field in dataclasses.fields(cls)}
        shown = {option: default.replace("_", "") for option, default, _ in summaries[name].options}
        assert shown == {field.replace("_", "-"): str(fields[field].default) for field in fields}
        assert summaries[name].text.endswith(".") and all(help_text for _, _, help_text in summaries[name].options)


@pytest.mark.parametrize("name", sorted(file_names()))
def test_pass__has_a_filecheck_test_of_its_name(name: str) -> None:
    texts = [text for file, text in LIT.items() if file.stem == name]
    assert texts and any(re.search(rf"RUN: .*--{name}\b", text) for text in texts)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_operation__is_in_a_filecheck_test(name: str) -> None:
    """What is checked is the operation with its operands, as it is printed."""
    shown = re.compile(rf'(//|#) [A-Z]+(-NEXT)?: .*"{name}"\(%.*\)')
    assert any(shown.search(text) for text in LIT.values())


@pytest.mark.parametrize("file", LIT, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_filecheck__shows_what_it_expects(file: Path) -> None:
    """No check counts operations, or has nothing but the name of one that has operands."""
    counted = re.findall(r"[A-Z]+-COUNT-\d+: .*", LIT[file])
    bare = re.findall(r'(?://|#) ?[A-Z]+(?:-NEXT)?: +"?[a-z_]+\.(?!yield|end\b)[a-z_.]+"?$', LIT[file], re.MULTILINE)
    assert not counted + bare


@pytest.mark.parametrize("file", LIT, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_filecheck__names_the_patterns_it_repeats(file: Path) -> None:
    """An access pattern that a part of a file writes twice is an alias: ``#tile = #nki.access<...>``."""
    for part in re.split(r"^// -----$", LIT[file], flags=re.MULTILINE):
        code = "\n".join(line for line in part.split("\n") if not line.startswith(("#", "//")))
        written = re.findall(r"#nki\.access<\w+, affine_map<.*?->.*?>, \[\[.*?\]\]>", code)
        assert len(written) == len(set(written)), "give it a name"


def test_option__unknown() -> None:
    with pytest.raises(BadOption, match="'nki-to-linalg' has no option 'fast'"):
        pass_named("nki-to-linalg", "fast=1")

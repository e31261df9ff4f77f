# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``docs/internals.md`` names what the code has: records in their files, modules, and the passes of the CPU in order."""

import re
from pathlib import Path

import pytest

from nki_mlir.targets.cpu.pipeline import NAMES

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/internals.md").read_text()
MODULES = {path.relative_to(ROOT / "nki_mlir").as_posix(): path.read_text() for path in (ROOT / "nki_mlir").rglob("*.py")}
RECORDS = PAGE.partition("## Data structures below the waist")[2].partition("\n\n`product_blocks.py`")[0]
LISTED = re.findall(r"((?:`\w+`(?:, | \.\.\. | ))+)\(`([\w/.]+\.py)`\)", RECORDS)


def modules_named(path: str) -> list[str]:
    """Return the texts of the modules whose path ends with a path."""
    return [text for name, text in MODULES.items() if f"/{name}".endswith(f"/{path}")]


@pytest.mark.parametrize(("names", "path"), LISTED, ids=[path for _, path in LISTED])
def test_records__are_defined_in_the_files_of_the_table(names: str, path: str) -> None:
    texts = modules_named(path)
    assert texts
    for name in re.findall(r"`(\w+)`", names):
        assert any(re.search(rf"^(class|def) {name}\b", text, re.MULTILINE) for text in texts), name


def test_modules__exist() -> None:
    tests = {path.name for path in (ROOT / "tests").rglob("*.py")}
    assert LISTED
    assert not [path for path in re.findall(r"`([\w/]+\.py)`", PAGE)
                if not modules_named(path) and not (ROOT / path).exists() and path not in tests]


def test_a_kernel_after_each_pass__lists_the_passes_of_the_cpu_in_order() -> None:
    example = PAGE.partition("shows one kernel after each pass")[2].split("```")[1]
    assert tuple(re.findall(r"^([a-z]+-?[a-z-]+) ", example, re.MULTILINE)) == NAMES


def test_the_table_of_passes__has_each_pass_of_the_cpu() -> None:
    rows = PAGE.partition("| pass | what it does | what it analyzes |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^\| `([a-z-]+)` \|", rows, re.MULTILINE)) == sorted(NAMES)

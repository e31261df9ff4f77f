# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernel that docs/architecture.md carries through the levels becomes what stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import structure

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "architecture.md").read_text()
HEAD = "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n\n\n"
LEVELS = {"nki": [], "waist": ["--lower-to-linalg"], "nisa": ["--lower-to-nisa"], "isa": ["--lower-to-isa"]}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def lowered(tmp_path_factory) -> dict[str, str]:
    file = tmp_path_factory.mktemp("architecture") / "scale.py"
    file.write_text(HEAD + blocks("python")[0])
    command = [sys.executable, "-m", "nki_mlir.cli.opt", f"{file}:scale", "--arg", "256x512xf32"]
    return {level: subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=True).stdout
            for level, options in LEVELS.items()}


def test_streams__are_those_of_the_document(lowered) -> None:
    quoted = re.findall(r"^(?:act|dve) \d{4}: .*$", TEXT, re.MULTILINE)
    assert len(quoted) == 3
    for line in quoted:
        assert f"\n{line}  //" in lowered["isa"]


@pytest.mark.parametrize("level, number", [("nki", 0), ("waist", 1), ("nisa", 2)])
def test_operations__are_those_of_the_document(lowered, level: str, number: int) -> None:
    block = blocks("mlir")[number]
    attributes = re.findall(r'"\w+\.\w+"', block) + re.findall(r'(?:fn|engine|op0) = "\w+"', block)
    attributes += re.findall(r"\[\[\d+, \d+\], \[\d+, \d+\]\]", block) + re.findall(r"s0 \* \d+", block)
    assert attributes
    assert not [text for text in attributes if text not in lowered[level]]


def test_counts__of_modules_that_answer_a_question_are_up_to_date() -> None:
    """``docs/architecture.md`` has what ``tools/structure.py`` counts (``make docs``)."""
    assert structure.page(structure.PAGE.read_text()) == structure.PAGE.read_text()

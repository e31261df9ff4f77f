# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The passes for ``--help``: names, first sentences and options, read from the files without importing MLIR."""

import re
from pathlib import Path
from typing import NamedTuple

from nki_mlir.passes import packages

# Passes of MLIR that have an option of their own; --pass-pipeline takes all.
UPSTREAM = {"canonicalize": "simplify operations to their canonical form",
            "cse": "compute equal operations once",
            "loop-invariant-code-motion": "move what does not change out of loops",
            "sccp": "propagate constants through branches",
            "symbol-dce": "drop functions and globals that nothing uses",
            "inline": "inline calls",
            "strip-debuginfo": "drop locations"}
OPTION = re.compile(r"    (\w+): (?:bool|int|str) = (\S+) +# (.*)")


class PassSummary(NamedTuple):
    """A pass: its name, the first sentence about it, and (name, default, meaning) of its options."""

    name: str
    text: str
    options: list[tuple[str, str, str]]


def pass_summaries() -> list[PassSummary]:
    """All passes, in alphabetical order."""
    return sorted(found for _, file in packages.files() if (found := summary(file)) is not None)


def summary(file: Path) -> PassSummary | None:
    """The pass that a file holds, if it does: its docstring starts with the pass's name."""
    name, text = file.stem.replace("_", "-"), file.read_text()
    start = re.search(rf'^"""{name}: (.*?)\n\n', text, re.MULTILINE | re.DOTALL)
    declared = text.find(f'Pass, name="{name}"')             # of a base class whose name ends so
    if start is None or declared < 0:
        return None
    options = []
    for line in text[declared:].splitlines()[1:]:
        found = OPTION.fullmatch(line)
        if found:
            constant = re.search(rf"^{found[2]} = (\w+)", text, re.MULTILINE)
            options.append((found[1].replace("_", "-"), constant[1] if constant else found[2], found[3]))
        elif line.startswith("    def "):
            break
    return PassSummary(name, start[1].replace("\n", " "), options)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What each pass states about itself: the levels that it reads and writes, and the defaults of its options.

``python -m tests.passes.pass_facts`` writes ``pass_facts.txt``, which a reviewer reads when a default changes: most are
measured bounds, which change no value, so that no other test compares them.
"""

import dataclasses
from pathlib import Path

from nki_mlir.passes.pass_manager import file_names, pass_named
from nki_mlir.targets.cpu.pipeline import NAMES, REQUIRED

FILE = Path(__file__).with_name("pass_facts.txt")


def facts() -> str:
    """Return a line for each pass with its options, and those of the CPU in their order."""
    lines = []
    for name in sorted(file_names()):
        one = pass_named(name)
        levels = f"{one.reads.name if one.reads else 'any'} to {one.writes.name if one.writes else 'any'}"
        options = "".join(f" {field.name}={getattr(one, field.name)}" for field in dataclasses.fields(one))
        lines.append(f"{name}: {levels}{options}")
    return "\n".join([*lines, f"CPU: {', '.join(NAMES)}; required: {', '.join(REQUIRED)}"]) + "\n"


if __name__ == "__main__":
    FILE.write_text(facts())

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The list of passes for ``--help``: names and first sentences, read from the files without importing MLIR."""

import ast
from pathlib import Path


def pass_summaries() -> list[tuple[str, str]]:
    """(name, summary) of every pass, in alphabetical order."""
    here = Path(__file__).parent.parent
    found = []
    for folder in ("transforms", "conversion"):
        for file in (here / folder).glob("*.py"):
            name, text = file.stem.replace("_", "-"), file.read_text()
            if f'name="{name}"' in text:
                doc = ast.get_docstring(ast.parse(text)) or ""
                summary = doc.split("\n\n")[0].replace("\n", " ").removeprefix(f"{name}: ")
                found.append((name, summary))
    return sorted(found)

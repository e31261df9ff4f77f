# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How errors read: source excerpts with a caret, as text or as JSON."""

import json
import linecache
from typing import Any

from nki_mlir.diagnostics.errors import Location, NkiMlirError


def excerpt(at: Location) -> list[str]:
    """The source line with a caret under the expression; empty where the source cannot be read."""
    text = linecache.getline(at.file, at.line).rstrip("\n")
    if not text.strip():
        return []
    number = f"{at.line:5d}"
    width = max(1, (at.end_column or at.column + 1) - at.column)
    width = min(width, max(1, len(text) - at.column))
    return [f"{number} | {text}", f"{' ' * len(number)} | {' ' * at.column}{'^' * width}"]


def as_json(error: NkiMlirError) -> str:
    """One error as a JSON object on one line, for editors and tools."""
    at = error.at
    record: dict[str, Any] = {"code": error.code, "message": error.headline}
    for part in ("why", "fix"):
        if template := getattr(error, part):
            record[part] = template.format(**error.values)
    if at:
        record |= {"file": at.file, "line": at.line, "column": at.column + 1}
    return json.dumps(record)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How errors read: source excerpts with a caret."""

import linecache

from nki_mlir.diagnostics.errors import Location


def excerpt(at: Location) -> list[str]:
    """The source line with a caret under the expression; empty where the source cannot be read."""
    text = linecache.getline(at.file, at.line).rstrip("\n")
    if not text.strip():
        return []
    number = f"{at.line:5d}"
    width = max(1, (at.end_column or at.column + 1) - at.column)
    width = min(width, max(1, len(text) - at.column))
    return [f"{number} | {text}", f"{' ' * len(number)} | {' ' * at.column}{'^' * width}"]

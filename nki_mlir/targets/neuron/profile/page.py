# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A profile as one page of HTML, which has all that it needs: style, scripts, the charting library, the document."""

import json
from html import escape
from pathlib import Path

from nki_mlir.targets.neuron.profile.document import Document

FILES = Path(__file__).parent / "page_files"
SCRIPTS = "uplot.js", "theme.js", "timeline.js", "panels.js"
STYLES = "uplot.css", "page.css"


def page(document: Document) -> str:
    """The page's text."""
    parts = {"TITLE": escape(document["timing"]["kernel"]), "STYLE": "\n".join(map(_read, STYLES)),
             # No text of a kernel can end the element that it is in.
             "PROFILE": json.dumps(document, separators=(",", ":")).replace("<", "\\u003c"),
             "SCRIPT": "\n".join([f"/*\n{_read('uplot.license')}*/", *map(_read, SCRIPTS)])}
    pieces = _read("page.html").split("@")
    return "".join(parts.get(piece, piece) if k % 2 else piece for k, piece in enumerate(pieces))


def _read(name: str) -> str:
    return (FILES / name).read_text()

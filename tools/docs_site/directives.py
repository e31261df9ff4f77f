# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Directives and a lexer for pages of the site.

``{picture} NAME NUMBERS`` draws a picture, ``{plot}`` plots the table that a cell of the page prints; the content of
both is a caption. The lexer colors code of MLIR.
"""

from typing import Any

from docutils import nodes
from pygments import token
from pygments.lexer import RegexLexer
from sphinx.util.docutils import SphinxDirective

from tools.docs_site import cells, plots
from tools.docs_site.pictures import PICTURES


class PictureDirective(SphinxDirective):
    """An SVG inside of the page, so that it has the page's colors."""

    has_content = True
    required_arguments = 1
    optional_arguments = 20

    def drawn(self) -> str:
        name, *numbers = self.arguments
        return PICTURES[name](*map(int, numbers))

    def run(self) -> list[nodes.Node]:
        caption = nodes.container(classes=["picture-caption"])
        self.state.nested_parse(self.content, self.content_offset, caption)
        return [nodes.container("", nodes.raw("", self.drawn(), format="html"), *([caption] if self.content else []),
                                classes=["picture"])]


class PlotDirective(PictureDirective):
    """A plot of the output in the page's source, which the tests compare with the actual output."""

    required_arguments = optional_arguments = 0

    def drawn(self) -> str:
        return plots.shares(plots.printed_table((cells.SOURCES / f"{self.env.docname}.md").read_text()))


class MlirLexer(RegexLexer):
    """A lexer of MLIR and the assembly of instruction streams."""

    name = "MLIR"
    tokens = {"root": [
        (r"//.*", token.Comment), (r'"(?:[^"\\]|\\.)*"', token.String), (r"%[\w$.-]+(?:#\d+)?", token.Name.Variable),
        (r"[@^][\w$.-]+", token.Name.Function), (r"[#!][\w$.-]+", token.Name.Class),
        (r"[a-z_]\w*\.[\w.]+", token.Keyword), (r"-?\d[\w.+-]*", token.Number), (r"\w+", token.Text),
        (r"\s+", token.Text), (r".", token.Punctuation)]}


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("picture", PictureDirective)
    app.add_directive("plot", PlotDirective)
    app.add_lexer("mlir", MlirLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

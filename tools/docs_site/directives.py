# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the site's pages are written with: ``{picture} NAME NUMBERS``, whose content is a caption, and code of MLIR."""

from typing import Any

from docutils import nodes
from pygments import token
from pygments.lexer import RegexLexer
from sphinx.util.docutils import SphinxDirective

from tools.docs_site.pictures import PICTURES


class PictureDirective(SphinxDirective):
    """An SVG in the page itself, so that it has the page's colours."""

    has_content = True
    required_arguments = 1
    optional_arguments = 20

    def run(self) -> list[nodes.Node]:
        name, *numbers = self.arguments
        drawn = PICTURES[name](*map(int, numbers))
        caption = nodes.container(classes=["picture-caption"])
        self.state.nested_parse(self.content, self.content_offset, caption)
        return [nodes.container("", nodes.raw("", drawn, format="html"), *([caption] if self.content else []),
                                classes=["picture"])]


class MlirLexer(RegexLexer):
    """MLIR and the assembly of instruction streams."""

    name = "MLIR"
    tokens = {"root": [
        (r"//.*", token.Comment), (r'"(?:[^"\\]|\\.)*"', token.String), (r"%[\w$.-]+(?:#\d+)?", token.Name.Variable),
        (r"[@^][\w$.-]+", token.Name.Function), (r"[#!][\w$.-]+", token.Name.Class),
        (r"[a-z_]\w*\.[\w.]+", token.Keyword), (r"-?\d[\w.+-]*", token.Number), (r"\w+", token.Text),
        (r"\s+", token.Text), (r".", token.Punctuation)]}


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("picture", PictureDirective)
    app.add_lexer("mlir", MlirLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

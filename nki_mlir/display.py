# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rich displays of notebooks: MLIR with colors and folding, tables, pages; functions from text to HTML.

Colors follow the notebook's: only hues are set, with enough contrast on white and on black.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

ROWS = 12                       # most rows, and columns, that a table shows at each end
FOLDED = 4                      # lines: longer regions can be folded

TOKEN = re.compile(r'(?P<comment>//.*)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<value>%[\w$.-]+(?:#\d+)?)'
                   r"|(?P<symbol>[@^][\w$.-]+)|(?P<alias>[#!][\w$.-]+)|(?P<op>(?<![\w.<])[a-z_]\w*\.[\w.]+)|(?P<number>(?<!\w)-?\d[\w.+-]*)")
COLORS = {"comment": "#7a7a7a", "string": "#3a8a3a", "value": "#3d7fc4", "symbol": "#b0620e", "alias": "#9a5fc0",
           "op": "#c4487a", "number": "#15868a"}
PRE = "margin:0;font-family:monospace;font-size:12px;line-height:1.35;white-space:pre;overflow-x:auto"


def colored(line: str) -> str:
    """Return a line of MLIR with a color for each kind of token."""
    pieces, last = [], 0
    for token in TOKEN.finditer(line):
        pieces.append(escape(line[last:token.start()]))
        pieces.append(f'<span style="color:{COLORS[token.lastgroup or "op"]}">{escape(token[0])}</span>')
        last = token.end()
    return "".join(pieces) + escape(line[last:])


def mlir(text: str) -> str:
    """Return MLIR or assembly, highlighted; regions of several lines can be folded."""
    lines = text.rstrip("\n").split("\n")
    return f'<div style="{PRE}">{_block(lines, 0, len(lines))}</div>'


def _block(lines: Sequence[str], first: int, end: int) -> str:
    pieces, at = [], first
    while at < end:
        close = _closing(lines, at, end)
        if close - at > FOLDED:
            pieces.append(f'<details open><summary style="list-style-position:outside">{colored(lines[at])}</summary>'
                        f"{_block(lines, at + 1, close)}</details>")
            at = close
        else:
            pieces.append(f"<div>{colored(lines[at]) or '&nbsp;'}</div>")
            at += 1
    return "".join(pieces)


def _closing(lines: Sequence[str], at: int, end: int) -> int:
    """Return the line that closes the region that line ``at`` opens: the next one that is not indented more. Return
    ``at`` if it opens none."""
    if not lines[at].rstrip().endswith("{"):
        return at
    indentation = _indent(lines[at])
    return next((k for k in range(at + 1, end) if lines[k].strip() and not lines[k].lstrip().startswith("^")
                 and _indent(lines[k]) <= indentation), at)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def folded(title: str, body: str, is_open: bool = False) -> str:
    """Return a body in HTML that the reader opens and closes by its title."""
    return f"<details{' open' if is_open else ''}><summary><b>{escape(title)}</b></summary>{body}</details>"


def table(head: Iterable[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a head; its cells are the texts of values."""
    cells = "".join(f"<th>{escape(str(name))}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def shown(count: int) -> list[int | None]:
    """Return the indices of the rows or columns to show, of ``count``; None stands for those that are left out."""
    return [*range(count)] if count <= 2 * ROWS else [*range(ROWS), None, *range(count - ROWS, count)]


def number(value: object) -> str:
    """Format floats to five digits, integers unchanged."""
    return str(value) if "int" in type(value).__name__ else f"{float(str(value)):.5g}"


def tile(title: str, array: Any, shape: Sequence[int]) -> str:
    """Return a table of a tile, with a row for each partition and a column for each free element.

    Of a large tile it has only the first and the last rows and columns.
    """
    columns = shown(shape[1])
    rows = [["..."] * (len(columns) + 1) if p is None else
            [p, *("..." if k is None else number(array[p][k]) for k in columns)] for p in shown(shape[0])]
    return f"<div>{escape(title)}</div>" + table(["partition", *("..." if k is None else k for k in columns)], rows)


def frame(page: str) -> str:
    """Return a separate page within the notebook."""
    return f'<iframe srcdoc="{escape(page)}" style="width:100%;height:720px;border:1px solid #8888"></iframe>'


def running_shell() -> Any:
    """Return the shell of IPython that runs this code, None outside of one. It does not import IPython."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def register() -> None:
    """Let the running notebook, if there is one, show MLIR modules of the bindings as HTML."""
    shell = running_shell()
    if shell is None or shell.display_formatter is None:
        return
    formatter = shell.display_formatter.formatters["text/html"]
    for package in ("torch_mlir", "mlir"):
        for name in ("Module", "Operation"):
            formatter.for_type_by_name(f"{package}._mlir_libs._mlir.ir", name, lambda module: mlir(str(module)))

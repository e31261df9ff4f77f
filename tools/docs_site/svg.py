# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The shapes of the site's pictures; their colors are classes of docs/site/_static/site.css."""

from html import escape

HEAD = 7            # length of an arrow's head


def box(x: float, y: float, width: float, height: float, look: str = "box", text: str = "", code: bool = False) -> str:
    """Return a rectangle with a text in its middle."""
    shape = f'<rect class="{look}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3"/>'
    return shape + (label(x + width / 2, y + height / 2 + 4.5, text, code=code) if text else "")


def cell(x: float, y: float, width: float, height: float, look: str) -> str:
    return f'<rect class="{look}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'


def label(x: float, y: float, text: str, anchor: str = "middle", look: str = "", code: bool = False) -> str:
    kind = " ".join(filter(None, [look, "code" if code else ""]))
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{escape(text)}</text>'


def arrow(x1: float, y1: float, x2: float, y2: float, at_both_ends: bool = False) -> str:
    """Return a straight arrow along an axis."""
    line = f'<line class="arrow" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'
    return line + head(x1, y1, x2, y2) + (head(x2, y2, x1, y1) if at_both_ends else "")


def head(x1: float, y1: float, x2: float, y2: float) -> str:
    length = max(abs(x2 - x1), abs(y2 - y1)) or 1
    dx, dy = (x2 - x1) / length * HEAD, (y2 - y1) / length * HEAD
    return f'<path class="head" d="M{x2:g},{y2:g} L{x2 - dx - dy / 2:g},{y2 - dy - dx / 2:g} ' \
           f'L{x2 - dx + dy / 2:g},{y2 - dy + dx / 2:g} Z"/>'


def line(x1: float, y1: float, x2: float, y2: float, look: str) -> str:
    return f'<line class="{look}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def path(points: list[tuple[float, float]], look: str) -> str:
    """Return straight lines from point to point."""
    return f'<path class="{look}" d="M{" L".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def circle(x: float, y: float, radius: float, look: str) -> str:
    return f'<circle class="{look}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'


def picture(width: float, height: float, title: str, *shapes: str) -> str:
    """Return the complete picture; screen readers read the title."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" style="min-width: {min(width, 340):g}px"'
    return (f'<svg {size} role="img" xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>'
            f"{''.join(shapes)}</svg>")

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plot the tables that a page's cells print."""

import math
from typing import NamedTuple

from tools.docs_site import cells
from tools.docs_site.svg import circle, label, line, path, picture

LEFT, TOP, WIDTH, HEIGHT = 52, 20, 360, 210
SHARES = (0, 25, 50, 75, 100)
MISSING = "-"


class Table(NamedTuple):
    """A share in percent for each size and series; a series may lack values at some sizes."""

    sizes: list[int]
    series: dict[str, list[float | None]]


def printed_table(text: str) -> Table:
    """Return the table that a cell of the page prints: a header that begins with ``size``, then a row for each size."""
    for cell in cells.cells(text):
        header, *rows = [line.split() for line in cell.printed.splitlines()] or [[]]
        if header[:1] == ["size"]:
            values = [[None if value == MISSING else float(value.rstrip("%")) for value in row[1:]] for row in rows]
            return Table([int(row[0]) for row in rows],
                         {name: list(column) for name, column in zip(header[1:], zip(*values), strict=True)})
    raise ValueError("no cell of the page prints a table that begins with 'size'")


def shares(table: Table) -> str:
    """Plot the shares of the peak over sizes, with powers of two equidistant."""
    low, high = math.log2(min(table.sizes)), math.log2(max(table.sizes))

    def across(size: float) -> float:
        return LEFT + 20 + (math.log2(size) - low) / (high - low) * (WIDTH - 40)

    def down(share: float) -> float:
        return TOP + HEIGHT * (1 - share / 100)

    shapes = [label(LEFT, 12, "share of the peak", "start", "quiet")]
    for share in SHARES:
        shapes += [line(LEFT, down(share), LEFT + WIDTH, down(share), "grid" if share else "axis"),
                   label(LEFT - 6, down(share) + 4, f"{share}%", "end", "small")]
    for power in range(math.ceil(low), math.floor(high) + 1):
        x = across(2 ** power)
        shapes += [line(x, TOP + HEIGHT, x, TOP + HEIGHT + 5, "axis"),
                   label(x, TOP + HEIGHT + 19, f"{2 ** power:,}", look="small")]
    shapes.append(label(LEFT + WIDTH / 2, TOP + HEIGHT + 38, "rows and columns of each matrix", look="quiet"))
    for number, (name, values) in enumerate(table.series.items()):
        points = [(across(size), down(share)) for size, share in zip(table.sizes, values) if share is not None]
        shapes += [path(points, f"series s{number}"), *(circle(x, y, 4.5 - number, f"s{number}") for x, y in points)]
        y = TOP + HEIGHT - 52 + 22 * number
        shapes += [path([(LEFT + WIDTH - 148, y), (LEFT + WIDTH - 120, y)], f"series s{number}"),
                   circle(LEFT + WIDTH - 134, y, 4.5 - number, f"s{number}"),
                   label(LEFT + WIDTH - 112, y + 4.5, name, "start", code=True)]
    description = "; ".join(f"{name}: " + ", ".join(f"{share:g}% at {size}" for size, share in zip(table.sizes, values)
                                                    if share is not None) for name, values in table.series.items())
    return picture(440, TOP + HEIGHT + 48, f"Share of the peak by size. {description}", *shapes)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The space of a search: the values of each parameter, including ``grid`` and ``O``."""

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from nki_mlir.cli.command import LEVELS
from nki_mlir.diagnostics import NkiMlirError, value_text
from nki_mlir.input_limits import PROGRAMS

Space = dict[str, list[object]]         # parameter -> its values
Choice = dict[str, object]              # parameter -> one of them
VALUES = 100_000                        # most values of a parameter
GRID, LEVEL = "grid", "O"               # the launch grid; how long to search for a fast order of instructions


class BadSpace(NkiMlirError, ValueError):
    code = "NKI-TUNE-SPACE"
    message = "the space is not understood: {what}"
    fix = "write {{'TILE': [128, 256, 512], 'BUFFERS': range(1, 5)}}, or --space TILE=128,256,512 --space BUFFERS=1..4"


def space_of(mapping: Mapping[str, Sequence[object]]) -> Space:
    """Convert a mapping to a space. Raise ``BadSpace``."""
    space: Space = {}
    for name, values in mapping.items():
        if not isinstance(name, str):
            raise BadSpace(what=f"the name of a parameter is {value_text(name, repr)}").here()
        try:
            listed = None if isinstance(values, (str, bytes)) else [*itertools.islice(values, VALUES + 1)]
        except TypeError:
            listed = None
        if listed is None:
            raise BadSpace(what=f"the values of {name} are {value_text(values, repr)}").here()
        space[name] = listed
        if not space[name]:
            raise BadSpace(what=f"{name} has no values").here()
        if len(space[name]) > VALUES:
            raise BadSpace(what=f"{name} has more than {VALUES:,} values").here()
    if not space:
        raise BadSpace(what="it has no parameters").here()
    if unknown := [level for level in space.get(LEVEL, []) if isinstance(level, (bool, float)) or level not in LEVELS]:
        raise BadSpace(what=f"{LEVEL} is {unknown[0]}; there are {', '.join(map(str, LEVELS))}").here()
    if GRID in space:
        grids = [tuple(v) if isinstance(v, (tuple, list)) else (v,) for v in space[GRID]]
        space[GRID] = [*grids]
        for grid in grids:
            if any(isinstance(extent, (bool, float, str)) or (isinstance(extent, int) and not 0 < extent <= PROGRAMS)
                   for extent in grid):
                raise BadSpace(what=f"{GRID} is {grid!r:.80}; its extents are numbers from 1 to {PROGRAMS:,}").here()
    return space


def space_from_texts(texts: Sequence[str]) -> Space:
    """Parse a space from ``NAME=1,2,4`` and ``NAME=1..8`` (or ``1..64..8``, with a step). Raise ``BadSpace``."""
    mapping: dict[str, list[object]] = {}
    for text in texts:
        name, separator, values = text.partition("=")
        if not separator or not name.isidentifier():
            raise BadSpace(what=text)
        mapping[name] = values_of(values, text)
    return space_of(mapping)


def values_of(text: str, argument: str) -> list[object]:
    """Return the values that a text lists. ``argument`` is the complete text for errors."""
    try:
        if ".." in text and "," not in text:
            low, high, *step = (int(part) for part in text.split(".."))
            values: Sequence[object] = range(low, high + 1, *step)
            return [*values[:VALUES + 1]]
        values = ast.literal_eval(f"[{text}]")
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):   # the last two for deep nesting
        raise BadSpace(what=argument[:80]) from None
    return list(values)


def size_of(space: Space) -> int:
    """Return the number of choices."""
    return prod(map(len, space.values()))


def grid_of(space: Space) -> Iterator[Choice]:
    """Yield all choices; the last parameter changes fastest."""
    return (dict(zip(space, values)) for values in itertools.product(*space.values()))

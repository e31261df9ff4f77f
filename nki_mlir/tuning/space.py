# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a search may choose: for each parameter its values, ``grid`` and ``O`` among them."""

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from nki_mlir.cli.command import LEVELS
from nki_mlir.diagnostics import NkiMlirError

Space = dict[str, list[object]]         # parameter -> its values
Choice = dict[str, object]              # parameter -> one of them
GRID, LEVEL = "grid", "O"               # the launch grid; how long a fast order of instructions is searched for


class BadSpace(NkiMlirError, ValueError):
    code = "NKI-TUNE-SPACE"
    message = "the space is not understood: {what}"
    fix = "write {{'TILE': [128, 256, 512], 'BUFFERS': range(1, 5)}}, or --space TILE=128,256,512 --space BUFFERS=1..4"


def space_of(given: Mapping[str, Sequence[object]]) -> Space:
    """A space of a mapping; raises ``BadSpace``."""
    space: Space = {}
    for name, values in given.items():
        if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
            raise BadSpace(what=f"the values of {name} are {values!r}")
        space[str(name)] = list(values)
        if not space[name]:
            raise BadSpace(what=f"{name} has no values")
    if not space:
        raise BadSpace(what="it has no parameters")
    if unknown := [level for level in space.get(LEVEL, []) if level not in LEVELS]:
        raise BadSpace(what=f"{LEVEL} is {unknown[0]}; there are {', '.join(map(str, LEVELS))}")
    if GRID in space:
        space[GRID] = [tuple(v) if isinstance(v, (tuple, list)) else (v,) for v in space[GRID]]
    return space


def space_from_texts(texts: Sequence[str]) -> Space:
    """A space of ``NAME=1,2,4`` and ``NAME=1..8`` (or ``1..64..8``, with a step); raises ``BadSpace``."""
    given: dict[str, list[object]] = {}
    for text in texts:
        name, found, values = text.partition("=")
        if not found or not name.isidentifier():
            raise BadSpace(what=text)
        given[name] = values_of(values, text)
    return space_of(given)


def values_of(text: str, whole: str) -> list[object]:
    """The values that a text lists."""
    try:
        if ".." in text and "," not in text:
            first, last, *step = (int(part) for part in text.split(".."))
            return list(range(first, last + 1, *step))
        values = ast.literal_eval(f"[{text}]")
    except (ValueError, SyntaxError):
        raise BadSpace(what=whole) from None
    return list(values)


def size_of(space: Space) -> int:
    """How many choices there are."""
    return prod(map(len, space.values()))


def grid_of(space: Space) -> Iterator[Choice]:
    """All choices, the last parameter changing fastest."""
    return (dict(zip(space, values)) for values in itertools.product(*space.values()))

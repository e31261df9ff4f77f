# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of an operation whose form in the current generation is a statement, until that statement is written."""

import builtins
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from nki_mlir.migration.facts import PSUM, MaskFact, Shape, TensorFact

LATER_ROWS = "an instruction under a mask that leaves out its first rows, at which no engine may start"
RESULTS = {"sum": "total", "max": "largest", "min": "smallest"}
NOUNS = RESULTS | {"add": "added", "subtract": "difference", "multiply": "scaled", "divide": "quotient",
                   "broadcast_to": "repeated", "transpose": "transposed", "copy": "copied", "load": "loaded",
                   "max8": "largest", "nc_find_index8": "positions", "nc_match_replace8": "replaced"}


def is_repeated(source: TensorFact, dst_fact: TensorFact) -> bool:
    """Return whether a tile has one element along a free axis where its destination has more."""
    if source.shape is None or dst_fact.shape is None or len(source.shape) != len(dst_fact.shape):
        return False
    return any(old == "1" and new not in ("1", "?") for old, new in zip(source.shape[1:], dst_fact.shape[1:]))


def name_of_result(text: str, language: str, used_names: Collection[str]) -> str:
    """Return a name for the tile that a text computes: ``tile``, or a name after the function of ``nl``, which the file
    calls ``language``, if it says more or another tile has that name."""
    called = re.match(rf"{re.escape(language)}\.(\w+)\(", text)
    if called is None or (called[1] not in RESULTS and ("tile" not in used_names or called[1] in dir(builtins))):
        return "tile"
    return NOUNS.get(called[1], called[1])


def name_of_operand(text: str, language: str) -> str:
    """Return a name for the wider operand of an operation: a name after the function of ``nl`` that computes it if it
    says more than ``wide``."""
    called = re.match(rf"{re.escape(language)}\.(\w+)\(", text)
    return RESULTS.get(called[1], "wide") if called is not None else "wide"


def tile_name(name: str) -> str:
    """Return a name for a tile that is called after an operation: a noun, and not the name of a function of Python,
    which the new text may call, for example ``max``."""
    return NOUNS.get(name, f"{name}_tile" if name in dir(builtins) else name)


class BinaryOperation(NamedTuple):
    """An operation of two operands: their texts, the tiles among them, and the tile whose shape the result has.

    ``dtype`` is the text of the result's dtype, which ``meaning`` names if it is known; it is ``explicit`` if the
    source states it.
    """

    name: str
    first: str
    second: str
    tiles: list[tuple[str, TensorFact]]
    fact: TensorFact
    dtype: str
    meaning: str
    explicit: bool

    @property
    def dtype_argument(self) -> str:
        return f", dtype={self.dtype}" if self.dtype else ""

    @property
    def written_dtype(self) -> str:
        return self.meaning or self.dtype


@dataclass
class OperationText:
    """The text of an operation: an expression, or statements that write its result into a destination, or both."""

    fact: TensorFact
    expression: str = ""
    write_to: Callable[[str, TensorFact], list[str]] | None = None
    shape: str = ""
    dtype: str = ""
    name: str = "tile"
    product: "Callable[[str], list[str]] | None" = None         # the accumulating statement of a matrix product
    exact: "Callable[[], OperationText] | None" = None          # the quotient that a reciprocal replaces
    condition: str = ""          # a condition of the host, under which the operation is executed
    mask: MaskFact | None = None
    selected: MaskFact | None = None        # the mask in the source; the new text may compute more rows
    operands: tuple[str, ...] = ()          # texts of operands, whose shapes the result's shape may name
    part_items: tuple[str, ...] = ()        # the subscript of the part of a new tile that a mask selects
    computed_shape: Shape = None        # the shape of this part
    starts_later: bool = False      # whether the part leaves out rows, so that an engine may not start at its first
    step: "EarlierOperation | None" = None        # the operation, on a float32 tile and a number or column
    narrow: tuple[str, str] = ("", "")          # the expression in the dtype of its operand, and this dtype, if a
                                                # conversion to that dtype gives the same elements
    first: str = ""             # in a sum over iterations, the condition of the first one, which allocates the tile
    is_assigned: bool = False   # whether a name, which later iterations read, gets the sum
    some_selected: "Callable[[], str] | None" = None    # of a reduction whose mask may select nothing in a row: write a
                                                        # tile with 1 in the other rows, and return its name

    @property
    def computed(self) -> TensorFact:
        """The elements that the operation computes: its result, or a part of it."""
        return self.fact.like(self.computed_shape) if self.computed_shape else self.fact

    @property
    def part(self) -> str:
        """The text of the subscript of the part that a mask selects; empty for a tile whose mask selects all."""
        return f"[{', '.join(self.part_items)}]" if self.part_items else ""


@dataclass(frozen=True)
class EarlierOperation:
    """An operation that an instruction computes before another one: ``scalar_tensor_tensor`` does both."""

    name: str
    data: str
    operand: str
    tile: TensorFact            # the data, which have the result's shape
    is_reversed: bool


def hint_of(result: OperationText, assigned: str, used_names: Collection[str]) -> str:
    """Return a name for the tile of a result. If its own name is taken, a tile in PSUM from which the statement copies
    is named after the name that the statement assigns."""
    of_copy = f"{assigned}_psum"
    is_named = assigned and result.fact.memory == PSUM and tile_name(result.name) in used_names
    return of_copy if is_named and of_copy not in used_names else result.name

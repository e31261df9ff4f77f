# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An entry of the table of instructions: signatures, operands, commands, documentation and examples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from nki_mlir.scalar.dtypes import DType

Extents: TypeAlias = tuple[int, ...]
Shape: TypeAlias = Callable[[list[Extents], dict[str, Any]], Extents]   # by the tiles' shapes and the attributes

# Errors that several instructions share.
STATES = "A tile with the wrong dtype or number of words, and a machine before NeuronCore-v3 (Vector: v4), are errors."
SAME = "Tiles of different shapes, and operands that are all in PSUM, are errors."
SHAPES = "A tile of the wrong shape, or in the wrong memory, is an error."


class Page(NamedTuple):
    """The documentation of a function. ``ops`` are the operations of the ``nisa`` dialect that the instruction
    becomes; engines and cost are read from them. ``takes`` describes arguments that ``COMMON`` does not."""

    ops: tuple[str, ...]
    takes: dict[str, str]
    result: str
    errors: str


@dataclass(frozen=True)
class Regular:
    """The map from the parameters of an instruction that is a single operation to the fields of the operation's class.

    A parameter that is in no list is the attribute of its name. The instruction's tiles have the result's shape. With a
    ``shape`` they are rows of any lengths instead; the tiles in ``rows`` always are.
    """

    does: str
    tiles: dict[str, str]                                               # parameter -> tile
    scalars: dict[str, tuple[str, str]] = field(default_factory=dict)   # parameter -> tile, attribute of a number
    named: dict[str, str] = field(default_factory=dict)                 # parameter -> attribute of another name
    rows: dict[str, str] = field(default_factory=dict)                  # parameter -> tile
    shape: Shape | None = None                                          # of the result, if it differs from the tiles'
    dtype: DType | None = None                                          # of the result, if it differs from the tiles'
    op: str = ""                                                        # the operation, if its name differs
    positions: str = ""                 # a result that has, or is selected by, positions from the first element on
    initial: str = "reduce_init"        # the parameter that ``load_reduce`` writes to the accumulation registers


def columns(count: int) -> Shape:
    """Return the shape function for rows of ``count`` elements."""
    return lambda shapes, attributes: (shapes[0][0], count)


@dataclass(frozen=True)
class InstructionEntry:
    """The table's entry of a function of ``nki.isa``.

    ``releases`` are its signatures in the form of ``signatures/table.py``; without ``regular`` both generations write
    the function by hand. ``commands`` are the values of ``reduce_cmd`` that the current generation takes; if an entry
    lists none, the operation's class checks the value. ``example`` has the form that ``documentation/examples.txt``
    describes. ``beta_example`` replaces it in the beta generation where more differs than that instructions return
    their tiles, and ``beta_page`` has the fields in which beta's page differs. An instruction ``repeats`` if the
    current generation emits the same operations for tensors of the same form, and reads no other state.
    """

    releases: str
    page: Page
    example: str
    beta_example: str = ""
    beta_page: Mapping[str, Any] = field(default_factory=dict)
    regular: Regular | None = None
    commands: tuple[str, ...] = ()
    repeats: bool = False

    def page_of(self, is_beta: bool) -> Page:
        """Return the page of a generation; the entries ``takes`` of ``beta_page`` are added to the page's."""
        if not is_beta:
            return self.page
        differing = dict(self.beta_page)
        return self.page._replace(**differing | {"takes": self.page.takes | differing.get("takes", {})})


@dataclass(frozen=True)
class Group:
    """A page of the reference: its file, its title and its entries."""

    page: str
    title: str
    entries: Mapping[str, InstructionEntry]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Facts that the rewriter infers about a value in a kernel's text: its memory, and its shape and dtype as expressions.

Shapes are tuples of texts; a text that is unknown makes the shape unknown (None). A tensor that has block
dimensions in the beta generation is one tensor with the partition in front here: ``blocks`` says how many of its
dimensions after the partition were before it.
"""

from dataclasses import dataclass, replace
from functools import reduce

from nki_mlir.language.functions import UNARY
from nki_mlir.migration import terms
from nki_mlir.scalar.dtypes import BY_NAME, DType, promote

OF_TWO_TILES = {"add", "subtract", "multiply", "maximum", "minimum"}
HBM, SBUF, PSUM = "hbm", "sbuf", "psum"
Shape = tuple[str, ...] | None


@dataclass(frozen=True)
class Fact:
    """A value that is certainly neither a tensor nor an index, and about which nothing else is known: the host computes
    it."""


@dataclass(frozen=True)
class Unknown(Fact):
    """A value that may be anything."""


@dataclass(frozen=True)
class NoElement(Unknown):
    """The elements of an empty list: the facts about the first appended element replace this one."""


@dataclass(frozen=True)
class NoneFact(Fact):
    """The value None. No operation takes it, so if a name is either None or a tensor, it is the tensor wherever it is
    an operand."""


@dataclass(frozen=True)
class NumberFact(Fact):
    """A number of the host; ``kind`` is float or int, or empty if the text does not show it."""

    kind: str = ""


@dataclass(frozen=True)
class TileFunction(Fact):
    """A function of ``nl`` that computes each element of one tile, or of two in the same shape."""

    operands: int = 1


@dataclass(frozen=True)
class LambdaFact(Fact):
    """A lambda; ``result`` has the facts about its result for any arguments."""

    result: Fact


@dataclass(frozen=True)
class TileClass(Fact):
    """A class whose methods compute on tiles."""

    name: str


@dataclass(frozen=True)
class RecordClass(Fact):
    """A named tuple or a data class; ``defaults`` has the facts about the defaults of its fields. A class
    method of ``factories`` returns an object of the class, whose fields have the facts ``declared``."""

    fields: tuple[str, ...]
    defaults: tuple[tuple[str, Fact], ...] = ()
    factories: tuple[str, ...] = ()
    declared: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class TileObject(Fact):
    """An object of a ``TileClass``: nothing is known about its attributes."""

    name: str


@dataclass(frozen=True)
class Items(Fact):
    """A tuple or list of values; ``fields`` has the names by which attributes read them."""

    items: tuple[Fact, ...]
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Many(Fact):
    """A list or iterator whose elements are alike, or a dictionary whose values are."""

    element: Fact
    is_dictionary: bool = False


@dataclass(frozen=True)
class ShapeOf(Fact):
    """``tensor.shape`` of a tensor; its elements have texts if they are known."""

    shape: Shape


@dataclass(frozen=True)
class Dtype(Fact):
    """A dtype, with its text."""

    text: str


@dataclass(frozen=True)
class BufferFact(Fact):
    """A memory region that the text names, for example ``nl.sbuf``."""

    memory: str


@dataclass(frozen=True)
class TensorFact(Fact):
    """A tensor or a view of one."""

    memory: str
    shape: Shape = None
    dtype: str = ""
    blocks: int = 0
    base: bool = False              # a complete tensor as it was created, with rows one after the other
    parameter: bool = False
    part: bool = False              # a part of a tensor in HBM: an access pattern would count rows of the tensor
    fresh: bool = False             # a PSUM tensor that was set to 0 when it was created
    filled: bool = False            # created with values, with which a reduction over loops begins
    floating: bool = False          # computed by a function whose results are floats, so the dtype is one of floats
    selection: "ComputedPart | None" = None        # the computed part of a tile
    cut: tuple[int, ...] = ()       # the axes that a mask has cut in the function that returns the tile

    @property
    def on_chip(self) -> bool:
        """Return whether the tensor is a tile."""
        return self.memory in (SBUF, PSUM)

    @property
    def is_float(self) -> bool:
        """Return whether the dtype is known to be one of floats."""
        return self.dtype.startswith(("nl.float", "nl.bfloat", "nl.tfloat")) if self.dtype.startswith("nl.") else (
            self.floating)

    @property
    def rank(self) -> int | None:
        """Return the number of dimensions, None if it is unknown."""
        return None if self.shape is None else len(self.shape)

    def like(self, shape: Shape, dtype: str = "") -> "TensorFact":
        """Return the fact of a view or result with another shape, or dtype."""
        return replace(self, shape=shape, dtype=dtype or self.dtype, blocks=0, base=False, parameter=False, fresh=False,
                       selection=None, cut=())


@dataclass(frozen=True)
class Axis:
    """One axis of an index: the number of its positions, and the step from one to the next."""

    extent: str
    step: str

    def part(self, lower: str, upper: str, stride: str) -> "tuple[str, Axis]":
        """Return the distance from the first position to that of a slice, and the axis of the slice. A bound or step
        that the slice leaves out is empty."""
        if not (lower or upper or stride) or self.extent == "1":
            return "0", self
        first, last = (terms.add(self.extent, bound) if bound.startswith("-") else bound
                       for bound in (lower or "0", upper or self.extent))
        count = terms.difference(last, first) or terms.subtract(last, first)
        if stride:
            number, step = terms.number(count), terms.number(stride)
            count = f"-(-({count}) // {terms.factor(stride)})" if number is None or step is None else str(
                -(-number // step))
        return terms.multiply(self.step, first), Axis(count, terms.multiply(self.step, stride or "1"))


@dataclass(frozen=True)
class IndexFact(Fact):
    """An affine index: ``base`` plus a step for each axis. Axes of one position have step 0.

    ``moved`` is the text of a tile of one element that the device adds to the index, or empty.
    """

    base: str
    axes: tuple[Axis, ...]
    moved: str = ""

    @property
    def is_vector(self) -> bool:
        """Return whether the index varies along an axis."""
        return any(a.step != "0" for a in self.axes)


@dataclass(frozen=True)
class MaskBound:
    """A comparison of a mask: along ``axis`` the first ``high`` elements from ``low`` (empty: 0) are touched."""

    axis: int                       # counted from the last, which is -1
    low: str = ""
    high: str = ""
    rank: int = 2
    extent: str = ""                # extent of the axis, if the text shows that ``high`` may be less than 1


@dataclass(frozen=True)
class Comparison:
    """A comparison of an index with 0, by the name of an operator of ``nl``."""

    index: IndexFact
    operator: str

    @property
    def varying(self) -> list[int]:
        """The axes along which the index varies, counted from the last, which is -1."""
        return [k - len(self.index.axes) for k, axis in enumerate(self.index.axes) if axis.step != "0"]


@dataclass(frozen=True)
class MaskFact(Fact):
    """Comparisons of indices, all of which hold.

    ``conditions`` are conditions of the host, ``diagonals`` the comparisons that ``bounds`` and conditions do not
    express, such as a causal mask. Of the ``alternatives``, at least one holds.
    """

    bounds: tuple[MaskBound, ...]
    conditions: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    diagonals: tuple[Comparison, ...] = ()
    is_known: bool = True               # whether the mask consists of comparisons
    is_selected: bool = False           # whether comparisons are of several masks, of which a condition selects one
    alternatives: tuple[Comparison, ...] = ()

    @property
    def depends_on_index(self) -> bool:
        """Return whether the mask depends on an index."""
        return not self.is_known or bool(self.bounds or self.comparisons or self.alternatives)

    @property
    def selects_no_box(self) -> bool:
        """Return whether no start and count for each axis describe the selected elements."""
        return bool(self.diagonals or self.alternatives)


@dataclass(frozen=True)
class ComputedPart:
    """The elements of a tile that an operation has computed: those that ``mask`` selects, if ``condition`` holds.

    ``versions`` has the assignments of the names in both, in ``function``. The elements are unknown if ``function`` is
    empty.
    """

    mask: MaskFact | None = None
    condition: str = ""
    versions: tuple[tuple[str, int], ...] = ()
    function: str = ""


@dataclass(frozen=True)
class SelectedVector(Fact):
    """An index vector or mask that branches or iterations of a loop have selected from several."""


def depends_on_index(fact: Fact) -> bool:
    """Return whether a value is or contains an index vector, or a mask of one."""
    if isinstance(fact, Items):
        return any(map(depends_on_index, fact.items))
    return isinstance(fact, SelectedVector) or (isinstance(fact, IndexFact) and fact.is_vector) or (
        isinstance(fact, MaskFact) and fact.depends_on_index)


def function_fact(meaning: str) -> Fact:
    """Return the fact about a function of ``nl`` as a value: in a table, or as an argument."""
    name = meaning.removeprefix("nl.")
    return TileFunction() if name in (*UNARY, "copy") else TileFunction(2) if name in OF_TWO_TILES else Fact()


def may_have_tiles(fact: Fact) -> bool:
    """Return whether a value is or contains a tile, or may do so."""
    match fact:
        case Items(items=items):
            return any(map(may_have_tiles, items))
        case Many(element=element):
            return may_have_tiles(element)
    return isinstance(fact, TensorFact | Unknown) and not isinstance(fact, NoElement)


def contains_tiles(fact: Fact) -> bool:
    """Return whether a value is or contains a tile."""
    match fact:
        case Items(items=items):
            return any(map(contains_tiles, items))
        case Many(element=element):
            return contains_tiles(element)
    return isinstance(fact, TensorFact)


def join(left: Fact, right: Fact) -> Fact:
    """Return the fact that holds for both values, for a name that may have either."""
    if left == right or isinstance(right, NoneFact):
        return left
    if isinstance(left, NoneFact):
        return right
    if isinstance(left, Many) and isinstance(right, Many):
        return Many(right.element if isinstance(left.element, NoElement) else left.element if isinstance(
            right.element, NoElement) else join(left.element, right.element), left.is_dictionary or right.is_dictionary)
    if isinstance(left, TensorFact) and isinstance(right, TensorFact):
        if left.on_chip != right.on_chip:
            return Unknown()
        return TensorFact(left.memory if left.memory == right.memory else SBUF,
                          common_shape(left, right),
                          left.dtype if left.dtype == right.dtype else "",
                          left.blocks if left.blocks == right.blocks else 0, part=left.part or right.part,
                          filled=left.filled and right.filled,
                          selection=left.selection if left.selection == right.selection else ComputedPart())
    if isinstance(left, TensorFact) or isinstance(right, TensorFact):
        return Unknown()
    if isinstance(left, Items) and isinstance(right, Items) and len(left.items) == len(right.items):
        return Items(tuple(map(join, left.items, right.items)), left.fields if left.fields == right.fields else ())
    if not isinstance(left, Items | Many) and not isinstance(right, Items | Many) and (
            depends_on_index(left) or depends_on_index(right)):
        return SelectedVector()
    if isinstance(left, Items | Many) and isinstance(right, Items | Many):      # a loop appends to a list
        return join(as_many(left), as_many(right))
    if isinstance(left, NumberFact) and isinstance(right, NumberFact):
        return NumberFact()
    return Unknown() if may_have_tiles(left) or may_have_tiles(right) else Fact()


def common_shape(left: TensorFact, right: TensorFact) -> Shape:
    """Return the sizes that two tensors have in common, "?" for others; None for tensors of different ranks."""
    if left.shape == right.shape or left.shape is None or right.shape is None:
        return left.shape if left.shape == right.shape else None
    if len(left.shape) != len(right.shape) or left.blocks != right.blocks:
        return None
    return tuple(a if a == b else "?" for a, b in zip(left.shape, right.shape))


def promoted(first: str, second: str) -> str:
    """Return the dtype of an operation of two tiles in the beta generation; empty if the text does not show it."""
    if first == second != "nl.bool_":
        return first
    types: list[DType] = [BY_NAME[d[3:]] for d in (first, second) if d.startswith("nl.") and d[3:] in BY_NAME]
    if len(types) < 2:
        return "nl.float32" if "nl.float32" in (first, second) else ""
    return f"nl.{promote(*types).name}"


def as_many(values: Items | Many) -> Many:
    """Return a list's fact for all of its elements together."""
    if isinstance(values, Many):
        return values
    return Many(reduce(join, values.items) if values.items else NoElement())


def element_at(values: Items | Many, position: int | None) -> Fact | None:
    """Return the fact of an element of a list; None if the text does not show which one it is, and they differ."""
    if isinstance(values, Many):
        return values.element
    if position is None or not -len(values.items) <= position < len(values.items):
        return None
    return values.items[position]


def part_of(values: Items | Many, bounds: tuple[int | None, ...] | None) -> Items | Many:
    """Return the fact of a slice of a list, whose numbers are ``bounds`` if the text shows them."""
    if isinstance(values, Items) and bounds is not None:
        return Items(values.items[slice(*bounds)])
    return as_many(values)


@dataclass(frozen=True)
class Span(Fact):
    """``nl.ds(start, size)`` or a slice."""

    start: str
    size: str

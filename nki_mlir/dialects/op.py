# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The op class: fields, verifier, reference, lowering, cost and encoding of one operation, in one place.

A class lists its tiles and attributes as annotated fields. An instance is one operation: its tiles are ``Tile``
records, its attributes plain Python values. Eager execution, capture, the interpreter, the conversions and the emitter
all work on such instances; ``dialects.mlir_ops`` makes the MLIR operations from the same classes. This file knows no
MLIR.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar, Union, get_args, get_origin

import numpy as np

from nki_mlir.diagnostics import InternalError
from nki_mlir.dialects.access import PSUM, SBUF, Constraint, Layout, Linear, Mask, Ranges, Tile
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import SHARING, Engine, Work
from nki_mlir.machine.costs import ISSUE
from nki_mlir.machine.engine import table_of
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.activation.entry import evaluate
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BOOL, FLOAT32, DType, convert

FRESH = "nki.fresh"             # of an operation: it reads elements that a mask left out, which are zeros

if TYPE_CHECKING:
    from nki_mlir.bindings import Attribute

    In: TypeAlias = Tile            # what the field of an operation holds
    Out: TypeAlias = Tile
    InOut: TypeAlias = Tile
    Integers: TypeAlias = tuple[int, ...]
else:
    Integers = tuple

    class In:
        """Annotation of a tile that is read."""

    class Out:
        """Annotation of a tile that is written."""

    class InOut:
        """Annotation of a tile that is read and then written (accumulation)."""


V = TypeVar("V")                # a value of one element, as whoever asks has them: an array, an SSA value, a node
Results: TypeAlias = np.ndarray | tuple[np.ndarray | None, ...] | None      # of ``reference``


class ScalarFunctions(Protocol[V]):
    """The scalar library on values of one kind: what a ``body`` is built with."""

    def constant(self, value: float) -> V:
        """The number as a value of the dtype in which the operation computes."""

    def alu(self, name: str, *values: V) -> V:
        """An operator of ``scalar.alu``, by name."""

    def activation(self, name: str, value: V) -> V:
        """A function of ``scalar.activation``, by name."""


class LoweringBuilder(Protocol):
    """The forms that the waist has: what ``lower`` chooses from."""

    def keep(self, op: "Op") -> None:
        """The operation stays as it is."""

    def elementwise(self, op: "Op") -> None:
        """``dst = op.body(sources)``, element for element."""

    def elementwise_with_rows(self, op: "Op", alu: str) -> None:
        """As ``elementwise``, and the values of ``dst``, before they are rounded, folded over the free axes."""

    def reduction(self, op: "Op", alu: str, negate: bool = False) -> None:
        """``dst = src`` folded over the op's reduced axes."""

    def contraction(self, op: "Op", accumulate: bool) -> None:
        """``dst`` = the sum over the reduced axis of the product of the last two sources, added to it if asked."""

    def recurrence(self, op: "Op") -> None:
        """``dst`` = op.next(the element before it, the elements of the sources), along all free axes."""

    def rows(self, op: "Op") -> "RowBuilder | None":
        """Computes values of whole partitions, in float32. None where a mask divides them: the operation stays."""


class RowBuilder(Protocol):
    """Values a partition, kept as [P, 1] tiles of float32. Nothing is written to the operation's tiles before
    ``write``.
    """

    def constant(self, value: float) -> Tile:
        """The value in each partition."""

    def each(self, value: Callable[..., object], *rows: Tile) -> Tile:
        """``value(scalar builder, of each of the rows)``."""

    def sum(self, value: Callable[..., object], elements: Sequence[Tile], *rows: Tile) -> Tile:
        """The sum of ``value(scalar builder, of each of the elements, of each of the rows)`` over the free axes."""

    def write(self, dst: Tile, columns: Sequence[Tile]) -> None:
        """The values as the columns of dst [P, n]."""


@dataclass(frozen=True)
class TileField:
    """A tile that a class declares: what the operation does with it, and whether it may be absent."""

    name: str
    role: type                  # In, Out or InOut
    optional: bool

    @cached_property
    def reads(self) -> bool:
        return self.role is not Out

    @cached_property
    def writes(self) -> bool:
        return self.role is not In


@dataclass(frozen=True)
class Iteration:
    """An op as a loop nest: extents of its axes, the axes of each tile's dims, and which axes are reduced."""

    extents: tuple[int, ...]
    axes: dict[str, tuple[int, ...]]            # tile field -> iteration axis of each of its dims
    reduced: frozenset[int] = frozenset()


def with_own_axes(main: Sequence[int], operands: Sequence[tuple[TileField, Tile]], shared: Callable[[str, Tile], int]
                  ) -> Iteration:
    """The axes ``main``. ``shared`` says how many of them a tile's first dims are; each other dim of a tile becomes an
    axis that is reduced."""
    extents, axes = list(main), {}
    for field, tile in operands:
        first, rank = shared(field.name, tile), len(tile.shape)
        axes[field.name] = (*range(first), *range(len(extents), len(extents) + rank - first))
        extents += tile.shape[first:]
    return Iteration(tuple(extents), axes, frozenset(range(len(main), len(extents))))


REGISTRY: dict[str, type["Op"]] = {}            # full name, for example "nisa.tensor_tensor"

ENGINE_NAMED = {engine.value: engine for engine in Engine}
ATTRIBUTE_KINDS = (str, int, float, bool, tuple, Linear)


class Op:
    """Base of all tile operations. Subclasses give ``verify``, ``reference``, ``lower``, ``work`` and ``encode``.

    ``mask`` restricts the iteration space; ``limits`` are constraints that must hold wherever the mask does and that
    could not be proved when the op was made; ``symbols`` are the holder's handles of the symbols that access patterns,
    mask and limits count by position, ``ranges`` their values.
    """

    name: ClassVar[str] = ""
    dialect: ClassVar[str] = ""
    tiles: ClassVar[tuple[TileField, ...]] = ()
    attributes: ClassVar[dict[str, type]] = {}
    defaults: ClassVar[dict[str, object]] = {}
    blank: ClassVar[dict[str, object]] = {}      # what fields hold that are not given
    inputs: ClassVar[tuple[str, ...]] = ()      # the names of the tiles that it reads
    outputs: ClassVar[tuple[str, ...]] = ()     # and that it writes
    has_optional_tiles: ClassVar[bool] = False
    has_linear_attributes: ClassVar[bool] = False
    engines: ClassVar[tuple[Engine, ...]] = ()
    shared_engines: ClassVar[tuple[Engine, ...]] = ()   # of these, any may have it where the rules of both hold
    engine = Engine.SYNC.value                  # by name; of what needs none, the one in whose stream it stands
    offsets: ClassVar[dict[str, tuple[int, ...]]] = {}  # of operands that may begin after a legal start partition, too
    destinations: ClassVar[tuple[str, ...]] = (SBUF, PSUM)      # memories its result may be directed to
    is_loop_nest: ClassVar[bool] = True         # elements of the iteration space are independent: any can be left out
    rows_apart: ClassVar[bool] = False          # what it makes of a row depends on the row's sequence of elements alone
    partition_group: ClassVar[int] = 1          # partitions that take from each other: masks leave whole groups
    chooses: ClassVar[bool] = False             # an element is one of a source or the other, as data or places say
    keeps_bits: ClassVar[bool] = False          # sources are handed over as they are, unless ``compute`` says a dtype
    broadcasts: ClassVar[bool] = False          # smaller sources are repeated to the shape of ``dst``
    mnemonic: ClassVar[str] = ""                # in assembly
    opcode: ClassVar[int] = 0                   # in the binary container; 0: never emitted
    since: ClassVar[int] = 2                    # the generation of the machine that it came with
    law: ClassVar[str] = ""                     # of the machine's costs, by the free elements of the tile ``walked``
    walked: ClassVar[str] = "dst"
    queued: ClassVar[bool] = False              # a transfer, which an engine puts into a queue
    acts_outside: ClassVar[bool] = False        # has an effect beyond its tiles: such ones keep their order
    addressed_by_data: ClassVar[str] = ""       # the tile of which data decide the elements that are meant

    def __init_subclass__(cls, *, name: str = "", engines: tuple[Engine, ...] = (), mnemonic: str = "", opcode: int = 0,
                          since: int = 2, **kw: object) -> None:
        super().__init_subclass__(**kw)
        if not name:
            return                              # a family's base class
        cls.name, cls.engines, cls.mnemonic, cls.opcode, cls.since = name, engines, mnemonic, opcode, since
        cls.queued = cls.queued or name.startswith("dma_")
        if cls.is_loop_nest and not cls.queued:
            cls.shared_engines = tuple(engine for engine in engines if engine in SHARING)
        tiles: dict[str, TileField] = {}        # a class may give a tile of its family another role
        attributes: dict[str, type] = {}
        defaults: dict[str, object] = {}
        for owner in reversed(cls.__mro__):
            own_tiles, own_attributes = _own_fields(owner)
            tiles |= own_tiles
            attributes |= own_attributes
            defaults |= {field: owner.__dict__[field] for field in own_attributes if field in owner.__dict__}
        cls.tiles, cls.attributes, cls.defaults = tuple(tiles.values()), attributes, defaults
        cls.blank = dict.fromkeys(tiles) | defaults
        cls.inputs = tuple(tile.name for tile in cls.tiles if tile.reads)
        cls.outputs = tuple(tile.name for tile in cls.tiles if tile.writes)
        cls.has_optional_tiles = any(tile.optional for tile in cls.tiles)
        cls.has_linear_attributes = Linear in attributes.values()
        REGISTRY[f"{cls.dialect}.{name}"] = cls

    def __init__(self, *, mask: Mask = (), limits: Mask = (), symbols: tuple[Any, ...] = (), ranges: Ranges = (),
                 extra: "dict[str, Attribute] | None" = None, **fields: object) -> None:
        values = self.__dict__
        values.update(self.blank)
        values.update(fields)
        if len(values) != len(self.tiles) + len(self.attributes):
            known = {*(tile.name for tile in self.tiles), *self.attributes}
            unknown, missing = [n for n in values if n not in known], ", ".join(n for n in known if n not in values)
            what = f"has no field {', '.join(unknown)}" if unknown else f"is made without {missing}"
            raise TypeError(f"{self.full_name()} {what}")
        self.mask, self.limits, self.symbols, self.ranges = mask, limits, symbols, ranges
        self.extra = extra or {}                # discardable attributes, kept by every pass

    def outline(self) -> tuple[object, ...]:
        """Equal for operations that differ in their buffers only, and in masks and limits."""
        values = self.__dict__
        tiles = [None if (tile := values[f.name]) is None else tile._layout or tile.layout for f in self.tiles]
        return (type(self), *tiles, *[same_value(values[name]) for name in self.attributes])

    @staticmethod
    def form_of(outline: tuple[object, ...]) -> tuple[object, ...]:
        """A key that is equal for operations of equal outline whose tiles may start at different offsets."""
        return tuple([part.form if type(part) is Layout else part for part in outline])

    def form(self) -> tuple[object, ...]:
        """That key of the operation itself."""
        values = self.__dict__
        forms = [None if (tile := values[f.name]) is None else tile._form or tile.form for f in self.tiles]
        return (type(self), *forms, *[same_value(values[name]) for name in self.attributes])

    # -- what holds for all ops ----------------------------------------------------------------------------------------
    @classmethod
    def full_name(cls) -> str:
        return f"{cls.dialect}.{cls.name}"

    def operands(self) -> list[tuple[TileField, Tile]]:
        """The tiles that are present, in the order of the fields."""
        values = self.__dict__
        return [(f, t) for f in self.tiles if (t := values[f.name]) is not None]

    def sources(self) -> list[tuple[str, Tile]]:
        """The tiles that ``reference`` gets, by name: those that are read, in the order of the fields."""
        values = self.__dict__
        return [(name, t) for name in self.inputs if (t := values[name]) is not None]

    def overwrites(self, name: str) -> bool:
        """Whether the operation writes a tile that it declares to read and write without a look at its elements."""
        return False

    def targets(self) -> list[tuple[str, Tile]]:
        values = self.__dict__
        return [(name, t) for name in self.outputs if (t := values[name]) is not None]

    def attribute_values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.attributes}

    # -- what subclasses say -------------------------------------------------------------------------------------------
    @property
    def runs_on(self) -> Engine:
        """Whose stream it is in."""
        return ENGINE_NAMED.get(self.engine) or Engine(self.engine)

    def verify(self, check: Check) -> None:
        """Rules that hold on every target."""

    def verify_target(self, check: TargetCheck) -> None:
        """Check the operation's rules that depend on the machine."""

    @property
    def compute(self) -> DType | None:
        """The dtype sources are converted to before ``reference``; None: they are handed over as they are."""
        return None if self.keeps_bits else FLOAT32

    def axes_apart(self, iteration: Iteration) -> frozenset[int]:
        """The axes along which no element has to do with another: what is there can be done piece by piece."""
        if self.is_loop_nest:
            return frozenset(range(len(iteration.extents))) - iteration.reduced
        return frozenset({0} if self.rows_apart else ())

    def index_forms(self) -> tuple[Linear, ...]:
        """Affine forms whose values, over the iteration space, ``body`` gets after the sources (in ``compute``)."""
        return ()

    def iteration(self) -> Iteration:
        raise InternalError(f"{self.full_name()} has no loop form")

    def meant(self, tiles: dict[str, np.ndarray], forms: Sequence[np.ndarray]) -> np.ndarray:
        """Which elements of the tile ``addressed_by_data`` an operation without a mask reads or writes.

        ``tiles`` are the operands by name, ``forms`` the values of ``index_forms``.
        """
        raise InternalError(f"{self.full_name()} has fixed addresses")

    def reference(self, *sources: np.ndarray) -> Results:
        """The meaning in NumPy: arrays of the tiles' shapes in, the new value of ``dst`` out.

        Several destinations: a tuple. None leaves one as it is.
        """
        raise InternalError(f"{self.full_name()} has no reference")

    def lower(self, b: LoweringBuilder) -> None:
        """The meaning in linalg, emitted through ``b``; what is no loop nest stays as it is."""
        if self.is_loop_nest:
            raise InternalError(f"{self.full_name()} has no lowering")
        b.keep(self)

    @property
    def function_set(self) -> str:
        """The set of functions that the scalar engine has to have at hand for it; none: an empty name."""
        function = self.__dict__.get("fn")
        return "" if function is None else table_of(function)

    def work(self) -> Work:
        """What its engine does, which the machine has costs for: as ``law`` says. Of a transfer: to trigger it."""
        if self.queued:
            return ISSUE
        if not self.law:
            raise InternalError(f"{self.full_name()} has no work")
        return Work(self.law, getattr(self, self.walked).free_elements)


O = TypeVar("O", bound=Op)


def changed(op: O, tile: Callable[[Tile], Tile], **fields: object) -> O:
    """A copy of the operation with each tile replaced, and other fields as given."""
    copy = object.__new__(type(op))
    values = copy.__dict__
    values.update(op.__dict__)
    for f in op.tiles:
        if (old := values[f.name]) is not None:
            values[f.name] = tile(old)
    values.update(fields)
    return copy


def with_forms(op: O, change: Callable[[Linear], Linear], **fields: object) -> O:
    """A copy of the operation with every form of its symbols changed, and other fields as given."""
    def tile(t: Tile) -> Tile:
        a = t.access
        if not a.free.symbols and (a.partition is None or not a.partition.symbols):
            return t
        return t.starting(t.handle, a.over(change))

    def over(mask: Mask) -> Mask:
        return tuple([Constraint(change(c.form), c.equal) for c in mask])
    attributes = {name: change(form) for name, form in affine_attributes(op).items()}
    return changed(op, tile, mask=over(op.mask), limits=over(op.limits), **attributes, **fields)


def affine_attributes(op: Op) -> dict[str, Linear]:
    """The attributes of an operation that are affine forms of its axes and symbols, by name."""
    return {name: getattr(op, name) for name, kind in op.attributes.items() if kind is Linear}


def same_value(value: Any) -> object:
    """Equal for values that are the same. Numbers that are equal need not be: 1 and True, 0.0 and -0.0."""
    kind = type(value)
    if kind is str:
        return value
    return kind, value if kind in (float, bool, int) and value > 0 else repr(value)


class NkiOp(Op):
    """An operation of the tile language (``nl``)."""

    dialect = "nki"


class NisaOp(Op):
    """An engine instruction. ``engine`` is one of the class's engines, by name, or ``unknown``: it stays open until
    ``schedule-instructions`` chooses among those that compute the same."""

    dialect = "nisa"
    engine: str = "unknown"

    @property
    def runs_on(self) -> Engine:
        """The engine it was given, or the first that can run it, which decides what it computes."""
        chosen = ENGINE_NAMED.get(self.engine) or Engine(self.engine)
        return self.engines[0] if chosen is Engine.UNKNOWN else chosen

    def same_on(self, engine: Engine) -> bool:
        """Whether it has the same values on another of its engines."""
        return on_engine(self, engine).compute is self.compute


def on_engine(op: Op, engine: Engine) -> Op:
    """The operation on an engine that is named."""
    return changed(op, lambda tile: tile, engine=engine.value)


@cache
def _own_fields(owner: type) -> tuple[dict[str, TileField], dict[str, type]]:
    """The tiles and the attributes that a class itself declares. Families are asked again for each of their classes."""
    tiles: dict[str, TileField] = {}
    attributes: dict[str, type] = {}
    for field, kind in inspect.get_annotations(owner).items():
        if (tile := _tile_field(field, kind)) is not None:
            tiles[field] = tile
        elif isinstance(kind, type) and kind in ATTRIBUTE_KINDS:
            attributes[field] = kind
    return tiles, attributes


def _tile_field(name: str, kind: object) -> TileField | None:
    if kind in (In, Out, InOut):
        return TileField(name, kind, False)
    if get_origin(kind) is Union or type(kind).__name__ == "UnionType":
        inner = [k for k in get_args(kind) if k is not type(None)]
        if len(inner) == 1 and inner[0] in (In, Out, InOut):
            return TileField(name, inner[0], True)
    return None


class Elementwise(Op):
    """Mixin of ops whose tiles all have the shape of ``dst``: one iteration axis a dim."""

    dst: Tile
    broadcasts = True

    def iteration(self) -> Iteration:
        shape = self.dst.shape
        same = tuple(range(len(shape)))
        return Iteration(shape, {f.name: same for f, _ in self.operands()})

    def lower(self, b: LoweringBuilder) -> None:
        b.elementwise(self)

    def body(self, s: ScalarFunctions[V], *values: V) -> V:
        """The scalar expression of ``dst``, built through ``s`` (constants, alu, activation) from the sources."""
        raise InternalError(f"{self.full_name()} has no scalar body")

    def reference(self, *sources: np.ndarray) -> Results:
        return self.body(ArrayScalars(self.compute), *sources)


def constant_value(value: float, dtype: DType) -> float | int:
    """A constant as ``dtype`` holds it. Unlike a conversion of elements it does not go through float32."""
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return float(convert(np.asarray(value, np.float32), dtype))
    if dtype is BOOL:
        return int(value != 0)
    limits = np.iinfo(dtype.numpy)
    if math.isnan(value):
        return 0
    return round(min(max(value, limits.min), limits.max))


@lru_cache(4096)
def array_constant(value: float, sign: float, dtype: DType) -> np.ndarray:
    """A constant as an array without dims. Zeros are equal, so the sign tells them apart."""
    number: np.ndarray = dtype.numpy.type(constant_value(value, dtype))
    return number


class ArrayScalars:
    """Evaluates a scalar body on whole arrays: the NumPy side of what ``lower`` emits as scalar operations."""

    def __init__(self, compute: DType | None) -> None:
        self.compute = compute or FLOAT32

    def constant(self, value: float) -> np.ndarray:
        return array_constant(value, math.copysign(1.0, value), self.compute)

    @staticmethod
    def alu(name: str, *values: np.ndarray) -> np.ndarray:
        return ALU[name].numpy(*values)

    @staticmethod
    def activation(name: str, value: np.ndarray) -> np.ndarray:
        return evaluate(ACTIVATIONS[name], value)

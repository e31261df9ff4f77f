# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The op class: fields, verifier, reference, lowering, cost and encoding of one operation, together in one class.

A class lists its tiles and attributes as annotated fields. An instance is one operation: its tiles are ``Tile``
records, its attributes plain Python values. Eager execution, capture, the interpreter, the conversions and the emitter
work on such instances; ``dialects.mlir_ops`` builds MLIR operations from the same classes. This file uses no MLIR.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar, Union, get_args, get_origin

import numpy as np

from nki_mlir.diagnostics import InternalError
from nki_mlir.dialects.access import PSUM, SBUF, Constraint, Layout, Linear, Mask, Ranges, Tile
from nki_mlir.dialects.access_factors import slowest
from nki_mlir.dialects.field_values import AccessedTiles, FieldValues, accessed_at, values_at
from nki_mlir.dialects.operation_kind import KIND, OperationKind, kind_of, same_value
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import SHARING, Engine, Machine, Work
from nki_mlir.machine.costs import ISSUE
from nki_mlir.machine.engine import ENGINE_NAMED, NAME_OF, table_of
from nki_mlir.scalar.dtypes import FLOAT32, DType

FRESH = "nki.fresh"             # marks an operation that reads elements that a mask left out, which are zeros
REGISTERS = ("accumulator", "state")            # fields of tiles that no parameter names

if TYPE_CHECKING:
    from nki_mlir.bindings import Attribute

    In: TypeAlias = Tile            # the value of an operation's field
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


Results: TypeAlias = np.ndarray | tuple[np.ndarray | None, ...] | None      # of ``reference``


class LoweringBuilder(Protocol):
    """The forms of the waist, among which ``lower`` chooses."""

    def keep(self, op: "Op") -> None:
        """Keep the operation unchanged."""

    def elementwise(self, op: "Op") -> None:
        """Emit ``dst = op.body(sources)``, element for element."""

    def elementwise_with_rows(self, op: "Op", alu: str) -> None:
        """Emit ``elementwise``, and fold the values of ``dst``, before they are rounded, over the free axes."""

    def reduction(self, op: "Op", alu: str, negate: bool = False) -> None:
        """Emit ``dst = src`` folded over the op's reduced axes."""

    def contraction(self, op: "Op", accumulate: bool) -> None:
        """Emit ``dst`` = the sum over the reduced axis of the product of the last two sources, or add it with
        ``accumulate``."""

    def recurrence(self, op: "Op") -> None:
        """Emit ``dst`` = op.next(the element before it, the elements of the sources), along all free axes."""

    def accumulation(self, op: "Op", scans: bool = False) -> None:
        """Emit ``dst = op.body(sources)``, and the fold of its elements into the registers of ``op``; with ``scans``
        each element is op.next(the element before it, sources)."""

    def rows(self, op: "Op") -> "RowBuilder | None":
        """Return a builder of float32 values, one for each partition; None for an operation with a mask or limits."""


class RowBuilder(Protocol):
    """Computes one value per partition, as [P, 1] tiles of float32. Only ``write`` writes to the operation's tiles."""

    def constant(self, value: float) -> Tile:
        """Return the value in each partition."""

    def each(self, value: Callable[..., object], *rows: Tile) -> Tile:
        """Return ``value(s, *rows)``, where ``s`` builds scalar expressions; it is computed once in each partition."""

    def sum(self, value: Callable[..., object], elements: Sequence[Tile], *rows: Tile) -> Tile:
        """Return the sum over the free axes of ``value(s, *elements, *rows)``, where ``s`` builds scalar
        expressions."""

    def write(self, dst: Tile, columns: Sequence[Tile]) -> None:
        """Write the values as the columns of dst [P, n]."""


@dataclass(frozen=True)
class TileField:
    """A tile that a class declares: whether the operation reads or writes it, and whether it may be absent."""

    name: str
    role: type                  # In, Out or InOut
    optional: bool

    @cached_property
    def reads(self) -> bool:
        return self.role is not Out

    @cached_property
    def writes(self) -> bool:
        return self.role is not In


class Iteration(NamedTuple):
    """An op as a loop nest: extents of its axes, the axes of each tile's dims, and the axes that are reduced."""

    extents: tuple[int, ...]
    axes: dict[str, tuple[int, ...]]            # tile field -> iteration axis of each of its dims
    reduced: frozenset[int] = frozenset()


def with_separate_axes(main: Sequence[int], operands: Sequence[tuple[TileField, Tile]],
                       shared: Callable[[str, Tile], int]) -> Iteration:
    """Return the iteration over the axes ``main`` and separate axes of tiles. For each tile, ``shared`` returns the
    number of its first dims that are axes of ``main``; each other dim becomes a reduced axis."""
    extents, axes = list(main), {}
    for field, tile in operands:
        shared_dims, rank = shared(field.name, tile), len(tile.shape)
        axes[field.name] = (*range(shared_dims), *range(len(extents), len(extents) + rank - shared_dims))
        extents += tile.shape[shared_dims:]
    return Iteration(tuple(extents), axes, frozenset(range(len(main), len(extents))))


REGISTRY: dict[str, type["Op"]] = {}            # full name, for example "nisa.tensor_tensor"

ATTRIBUTE_KINDS = (str, int, float, bool, tuple, Linear)


class Op:
    """Base of all tile operations. Subclasses define ``verify``, ``reference``, ``lower`` and ``work``.

    ``mask`` restricts the iteration space; ``limits`` are constraints that must hold wherever the mask does and
    that were not proved when the op was created; ``symbols`` are the handles of the symbols that access patterns,
    mask and limits number by position, ``ranges`` their least and greatest values.
    """

    name: ClassVar[str] = ""
    dialect: ClassVar[str] = ""
    tiles: ClassVar[tuple[TileField, ...]] = ()
    attributes: ClassVar[dict[str, type]] = {}
    defaults: ClassVar[dict[str, object]] = {}
    blank: ClassVar[dict[str, object]] = {}      # values of fields that are not given
    tile_names: ClassVar[tuple[str, ...]] = ()
    inputs: ClassVar[tuple[str, ...]] = ()      # names of the tiles that the operation reads
    outputs: ClassVar[tuple[str, ...]] = ()     # names of the tiles that the operation writes
    tiles_in: ClassVar[FieldValues]             # returns the tiles among the values of fields, None for absent ones
    tiles_read: ClassVar[FieldValues]           # returns the tiles that the operation reads
    tiles_written: ClassVar[FieldValues]        # returns the tiles that the operation writes
    # returns both; None if ``sources`` or ``targets`` leave some out
    tiles_accessed: ClassVar[AccessedTiles | None]
    has_optional_tiles: ClassVar[bool] = False
    has_linear_attributes: ClassVar[bool] = False
    engines: ClassVar[tuple[Engine, ...]] = ()
    shared_engines: ClassVar[tuple[Engine, ...]] = ()  # engines that may replace each other, if they keep the rules
    engine = Engine.SYNC.value                  # by name; if the operation needs none, the engine of its stream
    offsets: ClassVar[dict[str, tuple[int, ...]]] = {}  # operands that may begin at an offset from a legal start
    destinations: ClassVar[tuple[str, ...]] = (SBUF, PSUM)      # memories that its result may be in
    is_loop_nest: ClassVar[bool] = True         # elements of the iteration space are independent, and can be left out
    rows_apart: ClassVar[bool] = False          # the result of a row depends only on the row's sequence of elements
    partition_group: ClassVar[int] = 1          # partitions that exchange data: masks leave complete groups
    chooses: ClassVar[bool] = False             # data or positions choose each element from one of its sources
    keeps_bits: ClassVar[bool] = False          # sources are passed unchanged, unless ``compute`` is a dtype
    broadcasts: ClassVar[bool] = False          # smaller sources are repeated to the shape of ``dst``
    row_operands: ClassVar[tuple[str, ...]] = ()        # tiles of which it reads one value in each partition
    # fields of a number that may be free (free_numbers.py), of its function, and of the tile that may replace it
    free_number: ClassVar[tuple[str, str, str] | None] = None
    mnemonic: ClassVar[str] = ""                # in assembly
    opcode: ClassVar[int] = 0                   # in the binary container; 0: never emitted
    since: ClassVar[int] = 2                    # the first generation of the core that has the operation
    law: ClassVar[str] = ""                     # of the machine's costs, for each free element of the tile ``walked``
    walked: ClassVar[str] = "dst"
    queued: ClassVar[bool] = False              # a transfer, which an engine issues to a queue
    acts_outside: ClassVar[bool] = False        # has an effect beyond its tiles: such operations keep their order
    addressed_by_data: ClassVar[str] = ""       # the tile whose elements data select

    def __init_subclass__(cls, *, name: str = "", engines: tuple[Engine, ...] = (), mnemonic: str = "", opcode: int = 0,
                          since: int = 2, **kw: object) -> None:
        super().__init_subclass__(**kw)
        if not name:
            return                              # a family's base class
        cls.name, cls.engines, cls.mnemonic, cls.opcode, cls.since = name, engines, mnemonic, opcode, since
        cls.queued = cls.queued or name.startswith("dma_")
        if cls.is_loop_nest and not cls.queued:
            cls.shared_engines = tuple(engine for engine in engines if engine in SHARING)
        tiles: dict[str, TileField] = {}        # a class may redeclare a tile of its family
        attributes: dict[str, type] = {}
        defaults: dict[str, object] = {}
        for owner in reversed(cls.__mro__):
            declared_tiles, declared_attributes = _declared_fields(owner)
            tiles |= declared_tiles
            attributes |= declared_attributes
            defaults |= {field: owner.__dict__[field] for field in declared_attributes if field in owner.__dict__}
        cls.tiles, cls.attributes, cls.defaults = tuple(tiles.values()), attributes, defaults
        cls.blank = dict.fromkeys(tiles) | defaults
        cls.tile_names = tuple(tiles)
        cls.inputs = tuple(tile.name for tile in cls.tiles if tile.reads)
        cls.outputs = tuple(tile.name for tile in cls.tiles if tile.writes)
        cls.tiles_in, cls.tiles_read, cls.tiles_written = map(values_at, (cls.tile_names, cls.inputs, cls.outputs))
        leaves_out = cls.sources is not Op.sources or cls.targets is not Op.targets
        cls.tiles_accessed = None if leaves_out else accessed_at(cls.inputs, cls.outputs)
        cls.has_optional_tiles = any(tile.optional for tile in cls.tiles)
        cls.has_linear_attributes = Linear in attributes.values()
        REGISTRY[f"{cls.dialect}.{name}"] = cls

    def __init__(self, *, mask: Mask = (), limits: Mask = (), symbols: tuple[Any, ...] = (), ranges: Ranges = (),
                 extra: "dict[str, Attribute] | None" = None, **fields: object) -> None:
        values = self.__dict__
        values.update(self.blank)
        values.update(fields)
        if len(values) != len(self.tiles) + len(self.attributes):
            field_names = {*(tile.name for tile in self.tiles), *self.attributes}
            missing = ", ".join(n for n in field_names if n not in values)
            unknown = [n for n in values if n not in field_names]
            problem = f"has no field {', '.join(unknown)}" if unknown else f"lacks {missing}"
            raise TypeError(f"{self.full_name()} {problem}")
        self.mask, self.limits, self.symbols, self.ranges = mask, limits, symbols, ranges
        self.extra = extra or {}                # discardable attributes, kept by every pass

    def outline(self) -> tuple[object, ...]:
        """Return a key that is equal for operations that differ only in their buffers, masks and limits."""
        return (self.kind(), *[None if tile is None else tile._layout or tile.layout
                               for tile in type(self).tiles_in(self.__dict__)])

    @staticmethod
    def form_of(outline: tuple[object, ...]) -> tuple[object, ...]:
        """Return a key that is equal for operations of equal outline whose tiles may start at different offsets."""
        return tuple([part.form if type(part) is Layout else part for part in outline])

    def form(self) -> tuple[object, ...]:
        """Return that key of the operation itself."""
        return (self.kind(), *[None if tile is None else tile._form or tile.form
                               for tile in type(self).tiles_in(self.__dict__)])

    def kind(self) -> OperationKind:
        """Return the object that operations of one class with equal attributes share. Copies with other tiles share it,
        too."""
        values = self.__dict__
        return values.get(KIND) or values.setdefault(       # type: ignore[no-any-return]
            KIND, kind_of((type(self), *[same_value(values[name]) for name in self.attributes])))

    # -- common to all ops ---------------------------------------------------------------------------------------------
    @classmethod
    def full_name(cls) -> str:
        return f"{cls.dialect}.{cls.name}"

    def operands(self) -> list[tuple[TileField, Tile]]:
        """Return the tiles that are present, in the order of the fields."""
        values = self.__dict__
        return [(f, t) for f in self.tiles if (t := values[f.name]) is not None]

    def sources(self) -> list[tuple[str, Tile]]:
        """Return the tiles that ``reference`` gets, by name: those that are read, in the order of the fields."""
        values = self.__dict__
        return [(name, t) for name in self.inputs if (t := values[name]) is not None]

    def overwrites(self, name: str) -> bool:
        """Return whether the operation overwrites a tile without reading it, although it declares to read and write the
        tile."""
        return False

    def reads(self, name: str) -> bool:
        """Return whether the operation reads elements of a tile, which it may declare to read and write."""
        return any([source == name for source, _ in self.sources()]) and not self.overwrites(name)

    def unread_tiles(self) -> Sequence[str]:
        """Return the tiles that the class declares to read only because other elements than the written ones stay."""
        return ()

    def unchanged_tiles(self) -> Sequence[str]:
        """Return the tiles that the class declares to write, but that stay unchanged on the rank that runs."""
        return ()

    def targets(self) -> list[tuple[str, Tile]]:
        values = self.__dict__
        return [(name, t) for name in self.outputs if (t := values[name]) is not None]

    def attribute_values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.attributes}

    # -- defined by subclasses -----------------------------------------------------------------------------------------
    @property
    def runs_on(self) -> Engine:
        """The engine whose stream has the operation."""
        return ENGINE_NAMED.get(self.engine) or Engine(self.engine)

    def verify(self, check: Check) -> None:
        """Check the operation's rules that hold on every target. They do not read where tiles start."""

    def verify_target(self, check: TargetCheck) -> None:
        """Check an instruction's rules of the machine. Of tiles' starts they read partitions, and in PSUM offsets."""

    @property
    def compute(self) -> DType | None:
        """The dtype that sources are converted to before ``reference``; None: they are passed unchanged."""
        return None if self.keeps_bits else FLOAT32

    def axes_apart(self, iteration: Iteration) -> frozenset[int]:
        """Return the axes along which elements are independent: the operation can be split into pieces along them."""
        if self.is_loop_nest:
            return frozenset(range(len(iteration.extents))) - iteration.reduced
        return frozenset({0} if self.rows_apart else ())

    def index_forms(self) -> tuple[Linear, ...]:
        """Return affine forms. ``body`` gets their values over the iteration space, after the sources."""
        return ()

    def iteration(self) -> Iteration:
        raise InternalError(f"{self.full_name()} has no loop form")

    def accessed_elements(self, tiles: dict[str, np.ndarray], forms: Sequence[np.ndarray]) -> np.ndarray:
        """Return which elements of the tile ``addressed_by_data`` an operation without a mask reads or writes, as
        booleans.

        ``tiles`` are the operands by name, ``forms`` the values of ``index_forms``.
        """
        raise InternalError(f"{self.full_name()} has fixed addresses")

    def reference(self, *sources: np.ndarray) -> Results:
        """Compute the operation in NumPy: take arrays of the tiles' shapes, and return the new value of ``dst``.

        Several destinations: return a tuple. None leaves one unchanged.
        """
        raise InternalError(f"{self.full_name()} has no reference")

    def lower(self, b: LoweringBuilder) -> None:
        """Emit the operation in linalg through ``b``; one that is not a loop nest stays unchanged."""
        if self.is_loop_nest:
            raise InternalError(f"{self.full_name()} has no lowering")
        b.keep(self)

    @property
    def function_set(self) -> str:
        """The set of functions that the scalar engine must have loaded; "" if none."""
        function = self.__dict__.get("fn")
        return "" if function is None else table_of(function)

    def work(self) -> Work:
        """Return the work of the engine under ``law``, for which the machine has costs; for a transfer, the work of
        issuing it."""
        if self.queued:
            return ISSUE
        if not self.law:
            raise InternalError(f"{self.full_name()} has no work")
        factor = slowest(self.targets()[0][1], [tile for _, tile in self.sources()])
        return Work(self.law, getattr(self, self.walked).free_elements, factor)

    def busy_ns(self, machine: Machine) -> float:
        """Return the time in ns for which the engine is busy with the operation."""
        return machine.cost(self.runs_on, self.work()).busy


O = TypeVar("O", bound=Op)


def changed(op: O, tile: Callable[[Tile], Tile] | None, /, **fields: object) -> O:
    """Return a copy of an operation in which ``fields`` replace attributes and, unless ``tile`` is None, ``tile(t)``
    replaces each tile t."""
    copy = object.__new__(type(op))
    values = copy.__dict__ = op.__dict__.copy()
    for f in op.tiles if tile is not None else ():
        if (old := values[f.name]) is not None:
            values[f.name] = tile(old)              # type: ignore[misc]
    if not op.attributes.keys().isdisjoint(fields):
        values.pop(KIND, None)
    values.update(fields)
    return copy


def with_tiles(op: O, tiles: dict[str, Tile]) -> O:
    """Copy an operation with some tiles, by name, replaced."""
    copy = object.__new__(type(op))
    values = copy.__dict__ = op.__dict__.copy()
    values.update(tiles)
    return copy


def with_forms(op: O, change: Callable[[Linear], Linear], **fields: object) -> O:
    """Copy an operation with every form of its symbols changed, and the given fields replaced."""
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
    """Return the attributes of an operation that are affine forms of its axes and symbols, by name."""
    return {name: getattr(op, name) for name, kind in op.attributes.items() if kind is Linear}


class NkiOp(Op):
    """An operation of the tile language (``nl``)."""

    dialect = "nki"


class NisaOp(Op):
    """An engine instruction. ``engine`` names one of the class's engines, or ``unknown``: ``schedule-instructions``
    then chooses one that computes the same."""

    dialect = "nisa"
    engine: str = "unknown"

    @property
    def runs_on(self) -> Engine:
        """The engine that the kernel names, else the first that can run the instruction, whose arithmetic holds."""
        chosen = ENGINE_NAMED.get(self.engine) or Engine(self.engine)
        return self.engines[0] if chosen is Engine.UNKNOWN else chosen

    def same_on(self, engine: Engine) -> bool:
        """Return whether the instruction computes the same values on another of its engines."""
        return on_engine(self, engine).compute is self.compute


def on_engine(op: Op, engine: Engine) -> Op:
    """Return the operation on another engine."""
    name = NAME_OF[engine]
    copy = object.__new__(type(op))
    values = copy.__dict__ = op.__dict__.copy()
    values["engine"] = name
    kind = values.get(KIND)
    if kind is not None:
        kind_on_engine = kind.on_engines.get(name)
        if kind_on_engine is None:
            del values[KIND]
            kind_on_engine = kind.on_engines[name] = copy.kind()
        values[KIND] = kind_on_engine
    return copy


@cache
def _declared_fields(owner: type) -> tuple[dict[str, TileField], dict[str, type]]:
    """Return the tiles and attributes that a class itself declares, memoized because families have many classes."""
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


def fills(op: Op, operands: Sequence[tuple[TileField, Tile]]) -> bool:
    """Return whether an operation overwrites the complete buffer of its first operand, without reading it."""
    if not operands or op.mask:
        return False
    field, tile = operands[0]
    return field.role is Out and tile.form.covers_buffer and not (op.symbols and tile.access.symbols_used())

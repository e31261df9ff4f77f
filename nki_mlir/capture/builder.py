# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The builder seam: the language calls a ``Builder``. One executes at once, the other writes MLIR.

``emit`` is common: it broadcasts, applies masks, decides what is proved in bounds and verifies; what then happens to
the operation is the builder's.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias

import numpy as np

from nki_mlir.capture.affine import A, Affine, IndexChange
from nki_mlir.capture.assigned_names import assigned_name
from nki_mlir.capture.errors import EmptySubscript, OutsideKernel, SharedHbmInside, UnsupportedMask
from nki_mlir.capture.index import Index, Mask, Symbol
from nki_mlir.capture.iterations import LoopRun
from nki_mlir.capture.locations import user_location
from nki_mlir.capture.on_chip_memory import OnChipMemory
from nki_mlir.capture.races.touches import Touches
from nki_mlir.capture.strides import same_extents
from nki_mlir.capture.tensor import Buffer, View, tile_of
from nki_mlir.diagnostics import DeviceRules, InternalError, KernelError, Location, NkiMlirError, device_rules, report
from nki_mlir.dialects.access import HBM, Tile
from nki_mlir.dialects.op import FRESH, Iteration, Op, Out, TileField, same_value
from nki_mlir.dialects.target_findings import findings
from nki_mlir.dialects.target_rules import NotOnTarget
from nki_mlir.dialects.verification import verify, verify_mask
from nki_mlir.machine import DEFAULT_TARGET, machine_named
from nki_mlir.progress import Advance, ignore
from nki_mlir.scalar.dtypes import DType
from nki_mlir.targets.interpreter.execute import has_domain

current: ContextVar["Builder | None"] = ContextVar("builder", default=None)

Site = tuple[str, int, int]
Operands = Sequence[tuple[TileField, Tile]]
Views: TypeAlias = Mapping[str, View | None]         # operands of an operation by tile field, as the language has them


def active(name: str = "a language function") -> "Builder":
    """The builder of the kernel that is running; the named error outside of one."""
    builder = current.get()
    if builder is None:
        raise OutsideKernel(name=name).here()
    return builder


def require_generation(generation: int, what: str, instead: str) -> None:
    """Report something of the language, beyond its operations, that came with a generation of the core."""
    machine = active(what).machine
    if machine.generation < generation:
        active().report(NotOnTarget(what=what, needs=generation, target=machine.name, has=machine.generation,
                                    instead=instead), contested=False)


# What is kept for the operations of one outline or form: by names of the builder, or by what it depends on.
Known: TypeAlias = dict[Any, Any]
Marks: TypeAlias = Mapping[str, Any]                 # what an allocation is given beside its shape: an address


class Builder:
    """What the language layer needs. ``symbolic`` says whether loops may hand out symbols in place of numbers."""

    symbolic = False
    considering = False             # the operation that is emitted is to be checked only
    settles = False                 # rules that only older documents contest are the kernel's
    names_by_assignment = False     # tensors that the kernel does not name are named after the variable they go to

    advance: Advance = staticmethod(ignore)         # tells the progress line of an operation

    def __init__(self, grid: tuple[int, ...] = (), target: str = DEFAULT_TARGET) -> None:
        self.grid, self.target, self.machine = grid, target, machine_named(target)
        self.rules, self.memory = device_rules(), OnChipMemory(self.machine)
        self.names = itertools.count()
        self.last: Op | None = None
        self.first_writes: dict[Buffer, Location] = {}   # HBM tensors that an operation writes, with the first location
        self.inlined = 0                            # depth of kernels called from the kernel
        self.accumulating = False                   # operations combine with what their destinations hold
        self.masking = False                        # an operation has had a mask
        self.independent_programs = False           # programs must not write the same place
        # By the outline of an operation, what was worked out for it; by its form, which each outline keeps as "form".
        self.known: dict[tuple[object, ...], Known] = {}
        self.forms: dict[tuple[object, ...], Known] = {}
        self.properties: dict[str, Any] = {}        # state the language keeps for the duration of one run
        self.private: dict[Buffer, tuple[object, ...]] = {}   # tensors in private HBM: what tells each from the others
        self.private_at: dict[tuple[object, ...], int] = {}      # how many each place in the kernel has made
        self.touches = Touches(math.prod(grid) > 1, user_location)

    # -- what builders do ----------------------------------------------------------------------------------------------
    def allocate(self, shape: tuple[int, ...], dtype: DType, space: str, *, shared: bool = False,
                 partition_dim: int = 0, name: str = "", attributes: Marks | None = None,
                 at: Location | None = None) -> Buffer:
        """``at`` is where the kernel is, if the one operation that writes the buffer follows there."""
        raise InternalError("a builder must allocate")

    def state(self, key: str, shape: tuple[int, ...], dtype: DType) -> Buffer:
        """A zeroed SBUF buffer that lives as long as the kernel, from its first use: registers, generator states."""
        states: dict[str, Buffer] = self.properties.setdefault("states", {})
        if key not in states:
            states[key] = self.allocate_state(shape, dtype, key)
        return states[key]

    def allocate_state(self, shape: tuple[int, ...], dtype: DType, name: str) -> Buffer:
        return self.allocate(shape, dtype, "sbuf", name=name)

    def constant(self, array: np.ndarray, dtype: DType) -> Buffer:
        """An HBM buffer that holds the array's values."""
        raise InternalError("a builder must make constants")

    def program_id(self, axis: int) -> Any:
        raise InternalError("a builder must know the program id")

    def iteration(self, site: Site) -> None:
        """One more iteration of an unrolled loop begins; capture counts them against the limit."""

    def perform(self, op: Op, operands: Operands, views: Sequence[View], symbols: Sequence[Symbol],
                known: Known) -> None:
        """``views`` are those of the operands, ``symbols`` those that their patterns are over.

        ``known`` is the builder's to keep what it works out; operations with the same one differ in their buffers only.
        """
        raise InternalError("a builder must perform operations")

    def take_back(self, result: View) -> bool:
        """Undo the operation that computed ``result``, so that it can write elsewhere; its execution is not undone."""
        return False

    def promote(self, buffer: Buffer) -> None:
        """A private HBM tensor is returned: it becomes an output, which all programs share."""

    def new_private(self) -> tuple[object, ...]:
        """What a tensor in private HBM is known by when the kernel runs again: its place, and its number there."""
        at = tuple(user_location()[:3])
        self.private_at[at] = number = self.private_at.get(at, -1) + 1
        return *at, number

    def iterations(self, span: Iterable[int], site: Site, parallel: bool, name: str = "") -> Iterator[int]:
        """The numbers of an unrolled loop, each for an iteration."""
        outside, loop = self.touches.turn, LoopRun(parallel, name)
        several = not isinstance(span, range) or len(span) > 1      # one has nothing to do with others
        try:
            for number in span:
                self.iteration(site)
                if several:
                    self.touches.enter(loop, number)
                yield number
                self.touches.end(outside)
        finally:
            self.touches.end(outside)

    def enter_branch(self) -> None:
        """Enter a branch whose condition is known: operations that follow belong to it."""

    def leave_branch(self) -> None:
        pass

    def facts(self) -> tuple[Affine, ...]:
        """What is known to be ``>= 0`` where the next operation stands: conditions of enclosing ``if``s."""
        return ()

    def at_top_level(self) -> bool:
        """Whether the kernel is outside of loops, branches and inlined kernels."""
        return self.inlined == 0

    # -- common --------------------------------------------------------------------------------------------------------
    def new_name(self, name: str = "") -> str:
        return name or (assigned_name() if self.names_by_assignment else "") or f"t{next(self.names)}"

    def rename(self, buffer: Buffer, name: str) -> None:
        """Name a buffer after the variable it is assigned to: in messages and, where it is output, in the IR."""
        buffer.name = name
        if buffer.held is not None:
            buffer.held.name = name

    def check_shared(self) -> None:
        if not self.at_top_level():
            raise SharedHbmInside().here()

    def emit(self, cls: type[Op], views: Views, mask: object, attributes: dict[str, object]) -> Op | None:
        """Emit one operation and return it, or None if its mask is false everywhere.

        ``views`` are by tile field; elementwise sources broadcast to ``dst``. Attributes of kind ``Linear`` are given
        as ``Index`` over the operation's axes.
        """
        self.advance()
        try:
            if mask is None and (known := self._known_operation(cls, views, attributes)) is not None:
                return self._perform(*known)
            operands = {name: v for name, v in views.items() if v is not None}
            return self._emit(cls, operands, plain_mask(mask), attributes)
        except KernelError as error:
            raise error.here() from None

    def _emit(self, cls: type[Op], views: dict[str, View], mask: Mask | Literal[False] | None,
              attributes: dict[str, Any], piece: bool = False) -> Op | None:
        if mask is False:
            return None
        if mask is not None and mask.negated:
            return self._emit_pieces(cls, views, mask, attributes)
        shape = views["dst"].shape if cls.broadcasts and "dst" in views else None
        present: list[TileField] = []
        empty, symbolic, restricted = False, cls.has_linear_attributes, mask is not None
        for field in cls.tiles:
            if (view := views.get(field.name)) is not None:
                if shape is not None and not field.writes and not same_extents(view.shape, shape):
                    view = views[field.name] = broadcast(view, shape)
                present.append(field)
                empty |= 0 in view.shape
        if empty:
            self.last = None
            check_empty(present, views)
            return None
        used: list[View] = []
        for field in present:
            used.append(view := views[field.name].as_tile())
            symbolic |= bool(view.partition.symbols or view.free.symbols)
            restricted |= bool(view.limits) or view.mask is not None
        symbols: list[Symbol] = []
        position_of: dict[Symbol, int] = {}
        if symbolic:
            indices = [i for view in used for i in (view.partition, view.free) if i.symbols]
            linear = {name: v for name, v in attributes.items() if isinstance(v, Index)}
            symbols = self.symbols_of([*indices, *linear.values()])
            position_of = {s: k for k, s in enumerate(symbols)}
            attributes = attributes | {name: v.linear(position_of) for name, v in linear.items()}
        operands = [(f, tile_of(view, position_of)) for f, view in zip(present, used)]
        fields: dict[str, Any] = {f.name: tile for f, tile in operands}
        op = cls(**attributes, **fields)
        key = outline_of(cls, operands, attributes)
        known = self.known.get(key)
        if known is None:
            form = op.form_of(op.outline())
            if form not in self.forms:
                verify(op, operands)
            known = self.known[key] = {"form": self.forms.setdefault(form, {}),
                                       "fields": op.__dict__ | dict.fromkeys(fields)}
        if restricted:
            if not self._restrict(op, dict(zip([f.name for f in present], used)), mask, symbols, position_of, piece):
                return None
            verify_mask(op, operands)
        elif "apart" not in known["form"]:
            verify_mask(op, operands)
            known["form"]["apart"] = True
        if symbols:
            op.symbols, op.ranges = tuple(s.value for s in symbols), tuple((s.first, s.last) for s in symbols)
        return self._perform(op, operands, used, symbols, known)

    def _known_operation(self, cls: type[Op], views: Views, attributes: dict[str, object]
                         ) -> tuple[Op, Operands, list[View], tuple[Symbol, ...], Known] | None:
        """An operation without mask, limits and symbols whose like was verified: new are its buffers only."""
        if cls.has_linear_attributes:
            return None
        used: list[View] = []
        operands: list[tuple[TileField, Tile]] = []
        key: list[object] = [cls]
        for field in cls.tiles:
            view = views.get(field.name)
            if view is None:
                key.append(None)
                continue
            tile = view._tile or view.plain_tile()
            if tile is None:
                return None
            used.append(view)
            operands.append((field, tile))
            key.append(tile._layout or tile.layout)
        known = self.known.get((*key, *attributes, *map(same_value, attributes.values())))
        if known is None or "apart" not in known["form"]:
            return None
        op = object.__new__(cls)
        op.__dict__ = fields = known["fields"].copy()
        for field, tile in operands:
            fields[field.name] = tile
        return op, operands, used, (), known

    def _perform(self, op: Op, operands: Operands, used: list[View], symbols: Sequence[Symbol], known: Known
                 ) -> Op | None:
        """Do what has been verified."""
        if self.rules is not DeviceRules.OFF and not self.check_device(op, known):
            return None
        self.memory.use(used)
        if op.mask:
            self.masking = True
        if self.masking and from_fresh(op, operands, used) and has_domain(op):
            op.extra = {FRESH: self.flag()}
        self.perform(op, operands, used, symbols, {} if op.mask or op.limits or op.extra else known)
        self.last = op
        for (field, _), view in zip(operands, used):
            if field.writes:
                view.buffer.is_written = True
                if view.buffer.space == HBM:
                    self.wrote(op, view.buffer, symbols)
        return op

    def flag(self) -> Any:
        """The value of an attribute that an operation has or has not."""
        return True

    def check_device(self, op: Op, known: Known) -> bool:
        """Report the rules of the target that an operation breaks; ``known`` keeps which they are.

        False: the operation is not to be performed.
        """
        if op.ranges or op.mask or op.limits:
            key: object = op.ranges, bool(op.mask or op.limits)
        else:
            key = "findings"
        reported = known.get(key)
        if reported is None:
            reported = known[key] = findings(op, self.machine)
        for finding in reported:
            self.report(finding.error, finding.contested and not (finding.settled and self.settles))
        return not self.considering

    def track(self, buffer: Buffer, attributes: Marks | None, place: Location) -> None:
        """The kernel makes a tensor."""
        if buffer.on_chip and self.rules is not DeviceRules.OFF:
            finding = self.memory.allocate(buffer, attributes, place)
            if finding is not None:
                report(finding.error, self.rules, place, finding.contested)

    def check_memory(self) -> None:
        """The kernel has ended: what it held at once, and where."""
        if self.rules is DeviceRules.OFF:
            return
        for finding, location in self.memory.findings():
            report(finding.error, self.rules, location, finding.contested)

    def consider(self, cls: type[Op], views: Views, target: View, mask: object, attributes: dict[str, object]) -> None:
        """An operation whose result is copied to a target may come to write there itself, where the kernel is
        compiled."""

    def report(self, error: NkiMlirError, contested: bool = True) -> None:
        """A rule of the device that the kernel breaks where it stands."""
        report(error, self.rules, user_location(), contested)

    def reshaping_copy(self, op: str, dst: Sequence[int], src: Sequence[int]) -> None:
        """A DMA moves a tensor into one of as many elements and of another shape."""

    def wrote(self, op: Op, buffer: Buffer, symbols: Sequence[Symbol]) -> None:
        """The operation, which was performed last, writes a tensor in HBM."""
        if buffer not in self.first_writes:
            self.first_writes[buffer] = user_location()

    def _restrict(self, op: Op, views: dict[str, View], mask: object, symbols: list[Symbol], place: dict[Symbol, int],
                  piece: bool) -> bool:
        """Give the operation its mask, and the bounds that are left to run time; False where it does nothing.

        Masks and bounds of operands are carried from the operand's axes to those of the operation.
        """
        iteration = op.iteration()
        terms = list(mask.spread(iteration.extents).terms) if isinstance(mask, Mask) else []
        if piece and any(c for e, _ in terms for axis, c in enumerate(e.axes) if axis not in op.axes_apart(iteration)):
            raise UnsupportedMask(what=f"the mask of '{op.name}' is a negation or an |, over elements that it combines")
        lifts = {name: lift_to(iteration, name) for name in views}
        for name, view in views.items():
            if view.mask is not None:
                if view.mask.negated:
                    raise UnsupportedMask(what="the mask attached to a tile is a negation or an |")
                terms += [(lifts[name](e), equal) for e, equal in view.mask.terms]
        whole = Mask(tuple(terms))
        known = whole.known() if terms else True
        if known is False:
            return False
        if known:
            terms, whole = [], Mask(())
        facts = self.facts() + whole.facts
        open_ends = [i for name, v in views.items() if v.limits for i in v.unproved(facts, lifts[name])]
        for symbol in self.symbols_of([*(e for e, _ in terms), *open_ends]):
            if symbol not in place:
                place[symbol] = len(symbols)
                symbols.append(symbol)
        op.mask = whole.constraints(place)
        op.limits = Mask(tuple((i, False) for i in open_ends)).spread(iteration.extents).constraints(place)
        return True

    def _emit_pieces(self, cls: type[Op], views: dict[str, View], mask: Mask, attributes: dict[str, object]
                     ) -> Op | None:
        """A mask that is a negation (``!=``, ``|``): one operation for each of the conjunctions it consists of.

        The last of them has all conditions: it comes first, so that a mask is refused before anything is done.
        """
        if (known := mask.known()) is not None:
            return self._emit(cls, views, None if known else False, attributes)
        for field in (f for f in cls.tiles if f.writes and f.name in views):
            target = views[field.name]
            if any(v.buffer is target.buffer and not v.same_place(target) for v in views.values()):
                raise UnsupportedMask(what=f"the mask of '{cls.name}', which moves elements within "
                                           f"{target.buffer.name}, is a negation or an |")
        last = None
        for piece in reversed(mask.pieces()):
            last = self._emit(cls, dict(views), piece, dict(attributes), True) or last
        return last

    def symbols_of(self, indices: Sequence[Affine]) -> list[Symbol]:
        """The symbols used, each once; one whose loop has ended asks for numbers."""
        symbols = list(dict.fromkeys(s for i in indices for s in i.symbols))
        for symbol in symbols:
            if not symbol.usable():
                symbol.ask("its loop variable is used after the loop")
        return symbols


def from_fresh(op: Op, operands: Operands, used: Sequence[View]) -> bool:
    """Whether an operation, which is about to be performed, reads elements that a mask left out when their tile was
    first written; what it writes may have some then.

    They are zeros, which mean nothing: a kernel works on whole tiles, and stores the rows that count.
    """
    fresh = False
    for (field, _), view in zip(operands, used):
        fresh |= field.reads and view.buffer.fresh
    if fresh or op.mask:
        for (field, _), view in zip(operands, used):
            buffer = view.buffer
            if field.writes and buffer.on_chip and (fresh or not buffer.is_written):
                buffer.fresh = True
    return fresh


def fills(op: Op, operands: Operands) -> bool:
    """Whether an operation writes all of its first operand's buffer, and does not read there."""
    if not operands or op.mask:
        return False
    field, tile = operands[0]
    return field.role is Out and tile.layout.form.is_whole and not tile.access.symbols_used()


def outline_of(cls: type[Op], operands: Operands, attributes: dict[str, object]) -> tuple[object, ...]:
    """Equal for operations that differ in their buffers only, and in masks and limits."""
    layouts = {field.name: tile.layout for field, tile in operands}
    return (cls, *[layouts.get(field.name) for field in cls.tiles], *attributes,
            *map(same_value, attributes.values()))


def check_empty(fields: Sequence[TileField], views: dict[str, View]) -> None:
    """An operation with an operand of no elements: nothing is done where it would write such."""
    if not all(0 in views[f.name].shape for f in fields if f.writes):
        view = next(v for v in views.values() if 0 in v.shape)
        raise EmptySubscript(name=view.buffer.name, shape=view.shape)


def plain_mask(mask: object) -> Mask | Literal[False] | None:
    """The mask of an operation as a ``Mask``, or None or False where it says nothing or everything."""
    if mask is None or isinstance(mask, Mask):
        return mask
    if isinstance(mask, (bool, np.bool_)):
        return None if mask else False
    kind = "tile, known at run time only" if isinstance(mask, View) else type(mask).__name__
    raise UnsupportedMask(what=f"the mask is a {kind}")


def lift_to(iteration: Iteration, name: str) -> IndexChange:
    """Carries an index over the axes of an operand to the axes of the operation."""
    axes, extents = iteration.axes[name], iteration.extents

    def lift(index: A, /) -> A:
        moved = [0] * len(extents)
        for axis, c in zip(axes, index.axes):
            moved[axis] += c
        return index.with_axes(moved, extents)
    return lift


def broadcast(view: View, shape: tuple[int, ...]) -> View:
    """A source with the destination's shape: extents of 1 repeat; extents of 1 in front or behind may be missing."""
    missing = len(shape) - view.ndim
    if missing > 0 and repeats_behind(view.shape, shape):
        view = view.with_unit_dims(range(view.ndim, len(shape)), len(shape))
    if missing < 0 and [n for n in view.shape if n != 1] == [n for n in shape if n != 1]:
        return view.reshape(shape)
    return view.broadcast_to(shape)


def repeats_behind(small: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a tile of fewer dimensions is one value per partition, or lacks extents of 1 only, behind its own."""
    if small[:1] != shape[:1]:
        return False
    return all(n == 1 for n in small[1:]) or (small == shape[:len(small)] and all(n == 1 for n in shape[len(small):]))

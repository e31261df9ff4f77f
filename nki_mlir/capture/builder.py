# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The interface below the language, which calls a ``Builder``: one builder executes operations, another emits MLIR.

All builders share ``emit``: it broadcasts operands, applies masks, proves bounds or leaves them to the run, and
verifies. Each builder then executes or emits the verified operation.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias

import numpy as np

from nki_mlir.capture.affine import Affine
from nki_mlir.capture.assigned_names import assigned_name
from nki_mlir.capture.broadcasting import source_of
from nki_mlir.capture.errors import OutsideKernel, SharedHbmInside, TensorName, UnsupportedMask
from nki_mlir.capture.index import Index, Mask, Symbol
from nki_mlir.capture.iterations import LoopRun
from nki_mlir.capture.locations import user_location
from nki_mlir.capture.on_chip_memory import OnChipMemory
from nki_mlir.capture.operands import Operands, Views, broadcast_sources, check_empty, form_of, lift_to, plain_mask
from nki_mlir.capture.races.touches import Touches
from nki_mlir.capture.strides import same_extents
from nki_mlir.capture.tensor import Buffer, View, tile_of
from nki_mlir.capture.tracebacks import leave_out_internal_frames
from nki_mlir.diagnostics import DeviceRules, InternalError, KernelError, Location, NkiMlirError, device_rules, report
from nki_mlir.dialects.access import HBM, PSUM, Tile
from nki_mlir.dialects.op import FRESH, Op, TileField
from nki_mlir.dialects.operation_kind import same_value
from nki_mlir.dialects.scalar_body import has_domain
from nki_mlir.dialects.target_findings import findings, newly_broken
from nki_mlir.dialects.target_rules import NotOnTarget
from nki_mlir.dialects.verification import verify, verify_mask
from nki_mlir.dialects.verifier import UNNAMED
from nki_mlir.machine import DEFAULT_TARGET, machine_named
from nki_mlir.progress import Advance, ignore
from nki_mlir.scalar.dtypes import DType

current: ContextVar["Builder | None"] = ContextVar("builder", default=None)

Site = tuple[str, int, int]


def active(name: str = UNNAMED) -> "Builder":
    """Return the builder of the kernel that is running; raise ``OutsideKernel`` outside of one."""
    builder = current.get()
    if builder is None:
        raise OutsideKernel(name=name).here()
    return builder


def leave_out_outside_kernels(error: NkiMlirError) -> None:
    """Remove the toolchain's frames from the traceback of an error that no kernel raises: a kernel's call does so for
    its errors."""
    if current.get() is None:
        leave_out_internal_frames(error)
        error.__cause__ = None


def require_generation(generation: int, feature: str, instead: str) -> None:
    """Report a feature of the language, other than an operation, that needs a later generation of the core than the
    target's."""
    machine = active(feature).machine
    if machine.generation < generation:
        active().report(NotOnTarget(what=feature, needs=generation, target=machine.name, has=machine.generation,
                                    instead=instead), uncertain=False)


# Returns an error whose text names the parameters of the function that the kernel calls, instead of the fields of the
# operation; its second argument has the buffers by field.
ErrorOfCall: TypeAlias = Callable[[KernelError, Mapping[str, Buffer]], KernelError]

# A memo for the operations of one form, by keys that the builder chooses.
Memo: TypeAlias = dict[Any, Any]
Marks: TypeAlias = Mapping[str, Any]                 # attributes of an allocation, such as an address


class Builder:
    """The base of the builders. ``symbolic`` says whether loops may yield symbols in place of numbers."""

    symbolic = False
    considering = False             # whether operations are only checked, not emitted
    ignores_older_documents = False     # whether a rule is certain that only older documents contradict
    names_by_assignment = False     # tensors without a name are named after their variable
    shares_by_name = False          # tensors that programs share are the same memory if they have the same name

    advance: Advance = staticmethod(ignore)         # reports an operation to the progress line
    error_of_call: ErrorOfCall = staticmethod(lambda error, buffers: error)

    def __init__(self, grid: tuple[int, ...] = (), target: str = DEFAULT_TARGET) -> None:
        self.grid, self.target, self.machine = grid, target, machine_named(target)
        self.rules, self.memory = device_rules(), OnChipMemory(self.machine)
        self.names = itertools.count()
        self.last: Op | None = None
        self.first_writes: dict[Buffer, Location] = {}   # HBM tensors that an operation writes, with the first location
        self.inlined = 0                            # depth of kernels called from the kernel
        self.accumulating = False                   # operations combine with the values of their destinations
        self.masking = False                        # an operation has had a mask
        self.breaks_rules = False                   # an operation breaks a rule that no document contests
        self.independent_programs = False           # programs must write disjoint elements
        self.memos: dict[tuple[object, ...], Memo] = {}        # of operations, by form
        self.recorded_calls: dict[tuple[object, ...], Any] = {}    # records of calls of instructions, by form
        self.recorder: Any = None                   # notes what a call does (``language/current/repeated_calls.py``)
        self.instruction: str | None = None         # the label of the instruction whose operations are performed
        self.properties: dict[str, Any] = {}        # state that the language has for the duration of one run
        self.private: dict[Buffer, tuple[object, ...]] = {}   # the keys of tensors in private HBM
        self.private_at: dict[tuple[object, ...], int] = {}      # the last number at each location
        self.touches = Touches(math.prod(grid) > 1, user_location)
        self.shared_count = 0                       # tensors that all programs share

    # -- what builders do ----------------------------------------------------------------------------------------------
    def allocate(self, shape: tuple[int, ...], dtype: DType, space: str, *, shared: bool = False,
                 partition_dim: int = 0, name: str = "", attributes: Marks | None = None,
                 at: Location | None = None) -> Buffer:
        """Allocate a buffer. Pass ``at``, the current location, if the only operation that writes the buffer follows at
        once."""
        raise InternalError("a builder must allocate")

    def shared_key(self, name: str) -> Hashable:
        """Return the key of the next tensor that all programs share, which is the same in all of them: its name, where
        names identify such tensors, or else its number."""
        self.shared_count += 1
        return name if name and self.shares_by_name else self.shared_count

    def state(self, key: str, shape: tuple[int, ...], dtype: DType) -> Buffer:
        """Return a zeroed SBUF buffer for ``key`` (a register, a generator state), which lives until the
        kernel ends."""
        states: dict[str, Buffer] = self.properties.setdefault("states", {})
        if key not in states:
            states[key] = self.allocate_state(shape, dtype, key)
        return states[key]

    def allocate_state(self, shape: tuple[int, ...], dtype: DType, name: str) -> Buffer:
        return self.allocate(shape, dtype, "sbuf", name=name)

    def needs_total(self, engine: str) -> bool:
        """Return whether an operation must leave its total in an engine's registers, although it also writes the total
        to a tile."""
        return True

    def continues_total(self, engine: str) -> bool:
        """Note that an operation reads the registers of an engine. Return whether an earlier operation may have set
        them."""
        return f"{engine}_accumulators" in self.properties.get("states", {})

    def order(self, label: str, producer: str) -> None:
        """Note that the instruction with one label starts when the instruction with the other label is complete.
        Results do not depend on it."""

    def constant(self, array: np.ndarray, dtype: DType) -> Buffer:
        """Return an HBM buffer with the array's values."""
        raise InternalError("a builder must make constants")

    def program_id(self, axis: int) -> Any:
        raise InternalError("a builder must know the program id")

    def iteration(self, site: Site) -> None:
        """Begin another iteration of an unrolled loop; capture counts them against the limit."""

    def perform(self, op: Op, operands: Operands, views: Sequence[View], symbols: Sequence[Symbol],
                memo: Memo) -> None:
        """Perform an operation. ``views`` are its operands, ``symbols`` the symbols in their access patterns.

        ``memo`` is a memo for the builder, which operations share that differ only in their buffers and in the starts
        of their tiles. It is empty if the operation has a mask, limits or marks.
        """
        raise InternalError("a builder must perform operations")

    def repeats(self) -> bool:
        """Return whether ``perform_again`` may perform operations now."""
        return False

    def perform_again(self, op: Op, operands: Operands, views: Sequence[View], memo: Memo, at: Location) -> None:
        """Perform an operation at this location, like one that this builder has performed: of the same form, with tiles
        that start on chip where those of the other do. It has neither mask, limits nor symbols."""
        raise InternalError("a builder whose operations repeat must perform them")

    def undo(self, result: View) -> bool:
        """Undo the operation that computed ``result``, so that it can write elsewhere, and return whether that is
        possible. An execution is not undone."""
        return False

    def retarget(self, result: View, target: View, attributes: dict[str, object]) -> bool:
        """Undo the operation that computed ``result``, and let it write ``target``, if that is quickly possible; return
        whether it does."""
        return False

    def promote(self, buffer: Buffer) -> None:
        """Turn a private HBM tensor that the kernel returns into an output, which all programs share."""

    def new_private(self) -> tuple[object, ...]:
        """Return the key of a tensor in private HBM, equal when the kernel runs again: its location, and its number
        there."""
        at = tuple(user_location()[:3])
        self.private_at[at] = number = self.private_at.get(at, -1) + 1
        return *at, number

    def iterations(self, span: Iterable[int], site: Site, parallel: bool, name: str = "") -> Iterator[int]:
        """Yield the numbers of an unrolled loop, and begin an iteration with each."""
        start = span.start if isinstance(span, range) else None
        outside, loop = self.touches.iteration, LoopRun(parallel, name, site=site, start=start)
        may_race = not isinstance(span, range) or len(span) > 1      # a single iteration races with none
        try:
            for number in span:
                self.iteration(site)
                if may_race:
                    self.touches.enter(loop, number)
                yield number
                self.touches.end(outside)
        finally:
            self.touches.end(outside)

    def enter_branch(self) -> None:
        """Enter a branch whose condition is known: the operations that follow belong to it."""

    def leave_branch(self) -> None:
        pass

    def facts(self) -> tuple[Affine, ...]:
        """Return expressions known to be ``>= 0`` at the next operation: conditions of enclosing ``if``s."""
        return ()

    def at_top_level(self) -> bool:
        """Return whether the kernel is outside of loops, branches and inlined kernels."""
        return self.inlined == 0

    # -- common --------------------------------------------------------------------------------------------------------
    def new_name(self, name: str = "") -> str:
        """Return the name of a new tensor: the name in the call, else the variable's, else a generated one."""
        if not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name):
            raise TensorName(name=ascii(name)).here()
        return name or (assigned_name() if self.names_by_assignment else "") or f"t{next(self.names)}"

    def rename(self, buffer: Buffer, name: str) -> None:
        """Name a buffer after the variable it is assigned to, in messages and in the IR."""
        buffer.name = name
        if buffer.live_range is not None:
            buffer.live_range.name = name

    def check_shared(self) -> None:
        if not self.at_top_level():
            raise SharedHbmInside().here()

    def emit(self, cls: type[Op], views: Views, mask: object, attributes: dict[str, object]) -> Op | None:
        """Emit one operation and return it, or None if its mask is false everywhere.

        ``views`` are by tile field; elementwise sources broadcast to ``dst``. An attribute of kind ``Linear`` is
        passed as an ``Index`` over the operation's axes.
        """
        self.advance()
        try:
            if mask is None and (operation := self.known_operation(cls, views, attributes)) is not None:
                return self.perform_verified(*operation)
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
        present = broadcast_sources(cls, views)
        if any([0 in views[field.name].shape for field in present]):
            self.last = None
            check_empty(present, views)
            return None
        operand_views = [views[field.name].as_tile() for field in present]
        symbols, attributes = self.symbols_in(cls, operand_views, attributes)
        position_of = {symbol: k for k, symbol in enumerate(symbols)}
        operands = [(field, tile_of(view, position_of)) for field, view in zip(present, operand_views)]
        fields: dict[str, Any] = {field.name: tile for field, tile in operands}
        op = cls(**attributes, **fields)
        key = form_of(cls, operands, attributes)
        memo = self.memos.get(key)
        if memo is None:
            verify(op, operands)
            memo = self.memos[key] = {"fields": op.__dict__ | dict.fromkeys(fields)}
        if mask is not None or any([view.limits or view.mask is not None for view in operand_views]):
            if not self._restrict(op, dict(zip(fields, operand_views)), mask, symbols, position_of, piece):
                return None
            verify_mask(op, operands)
        elif "apart" not in memo:
            verify_mask(op, operands)
            memo["apart"] = True
        if symbols:
            op.symbols, op.ranges = tuple(s.value for s in symbols), tuple(s.handle_range() for s in symbols)
        return self.perform_verified(op, operands, operand_views, symbols, memo)

    def symbols_in(self, cls: type[Op], views: Sequence[View], attributes: dict[str, Any]
                   ) -> tuple[list[Symbol], dict[str, Any]]:
        """Return the symbols of views and attributes, and the attributes with indices as forms of these symbols."""
        if not cls.has_linear_attributes and not any([v.partition.symbols or v.free.symbols for v in views]):
            return [], attributes
        indices = [i for view in views for i in (view.partition, view.free) if i.symbols]
        linear = {name: v for name, v in attributes.items() if isinstance(v, Index)}
        symbols = self.symbols_of([*indices, *linear.values()])
        position_of = {symbol: k for k, symbol in enumerate(symbols)}
        return symbols, attributes | {name: v.linear(position_of) for name, v in linear.items()}

    def known_operation(self, cls: type[Op], views: Views, attributes: dict[str, object]
                         ) -> tuple[Op, Operands, list[View], tuple[Symbol, ...], Memo] | None:
        """Return the operation on these views, without verifying it, and its operands. Return None unless an operation
        of the same form, without mask, limits and symbols, has been verified. Operations of one form differ only in
        their buffers and in the starts of their tiles."""
        if cls.has_linear_attributes:
            return None
        operand_views: list[View] = []
        operands: list[tuple[TileField, Tile]] = []
        key: list[object] = [cls]
        shape = dst.shape if cls.broadcasts and (dst := views.get("dst")) is not None else None
        for field in cls.tiles:
            view = views.get(field.name)
            if view is None:
                key.append(None)
                continue
            if shape is not None and not same_extents(view.shape, shape) and not field.writes:
                view = source_of(cls, field.name, view, shape)
            tile = view._tile or view.plain_tile()
            if tile is None:
                return None
            operand_views.append(view)
            operands.append((field, tile))
            key.append(tile._form or tile.form)
        memo = self.memos.get((*key, *attributes, *map(same_value, attributes.values())))
        if memo is None or "apart" not in memo:
            return None
        op = object.__new__(cls)
        op.__dict__ = fields = memo["fields"].copy()
        for field, tile in operands:
            fields[field.name] = tile
        return op, operands, operand_views, (), memo

    def perform_verified(self, op: Op, operands: Operands, operand_views: list[View], symbols: Sequence[Symbol],
                         memo: Memo) -> Op | None:
        """Check the device's rules, and perform an operation that has been verified."""
        if self.rules is not DeviceRules.OFF and not self.check_device(op, operands, operand_views, memo):
            return None
        self.memory.record_operands(operand_views)
        if op.mask:
            self.masking = True
        if self.masking and from_fresh(op, operands, operand_views) and has_domain(op):
            op.extra = {FRESH: self.unit_attribute()}
        self.perform(op, operands, operand_views, symbols, {} if op.mask or op.limits or op.extra else memo)
        self.last = op
        for (field, _), view in zip(operands, operand_views):
            if field.writes:
                view.buffer.is_written = True
                if view.buffer.space == HBM:
                    self.wrote(op, view.buffer, symbols)
            elif not view.buffer.is_written and view.buffer.role == "output":
                view.buffer.read_at = view.buffer.read_at or user_location()
        return op

    def unit_attribute(self) -> Any:
        """Return the value of an attribute that is either present or absent."""
        return True

    def check_device(self, op: Op, operands: Operands, views: Sequence[View], memo: Memo) -> bool:
        """Report the rules of the target that an operation breaks, which ``memo`` memoizes. Return whether to perform
        the operation."""
        ranges = op.ranges
        starts: list[object] = []               # what ``Op.verify_target`` may read of them
        for _, tile in operands if op.engines else ():
            partition, free = tile.access.partition, tile.access.free
            if partition is not None:
                starts.append(partition if ranges else partition.const)
                if tile.space == PSUM:
                    starts.append(free if ranges else free.const)
        key = (ranges, bool(op.mask or op.limits), *starts)
        if (reported := memo.get(key)) is None:
            reported = memo[key] = findings(op, self.machine)
        for finding in newly_broken(reported, self.properties.get("replaces"), self.machine):
            self.breaks_rules |= not finding.uncertain
            buffers = {field.name: view.buffer for (field, _), view in zip(operands, views)}
            error = self.error_of_call(finding.error, buffers)
            self.report(error, finding.uncertain and not (finding.binds_current and self.ignores_older_documents))
        return not self.considering

    def track(self, buffer: Buffer, attributes: Marks | None, location: Location) -> None:
        """Record the allocation of a tensor, and report the rule of on-chip memory that it breaks."""
        if buffer.on_chip and self.rules is not DeviceRules.OFF:
            finding = self.memory.allocate(buffer, attributes, location)
            if finding is not None:
                report(finding.error, self.rules, location, finding.uncertain)

    def check_memory(self) -> None:
        """Report the rules of on-chip memory that the complete kernel breaks."""
        if self.rules is DeviceRules.OFF:
            return
        for finding, location in self.memory.findings():
            report(finding.error, self.rules, location, finding.uncertain)

    def consider(self, cls: type[Op], views: Views, target: View, mask: object, attributes: dict[str, object]) -> None:
        """Consider an operation whose result is copied to ``target``, where compiled code may let it write directly."""

    def report(self, error: NkiMlirError, uncertain: bool = True) -> None:
        """Report a rule of the device that the kernel breaks at its current location."""
        if self.recorder is not None:
            self.recorder.repeatable = False
        report(error, self.rules, user_location(), uncertain)

    def reshaping_copy(self, op: str, dst: Sequence[int], src: Sequence[int]) -> None:
        """Note a DMA between tensors with different shapes but the same number of elements."""

    def wrote(self, op: Op, buffer: Buffer, symbols: Sequence[Symbol]) -> None:
        """Record that the last operation writes a tensor in HBM."""
        if buffer not in self.first_writes:
            self.first_writes[buffer] = user_location()

    def _restrict(self, op: Op, views: dict[str, View], mask: object, symbols: list[Symbol],
                  position_of: dict[Symbol, int], piece: bool) -> bool:
        """Set the operation's mask, and the bounds that are checked at run time; return False if the mask holds
        nowhere.

        Masks and bounds of operands are mapped from the operand's axes to the operation's.
        """
        iteration = op.iteration()
        terms = list(mask.spread(iteration.extents).terms) if isinstance(mask, Mask) else []
        if piece and any(c for e, _ in terms for axis, c in enumerate(e.axes) if axis not in op.axes_apart(iteration)):
            raise UnsupportedMask(what=f"the mask of '{op.name}', which combines elements, contains ~, != or |")
        lifts = {name: lift_to(iteration, name) for name in views}
        for name, view in views.items():
            if view.mask is not None:
                if view.mask.negated:
                    raise UnsupportedMask(what="the mask attached to a tile contains ~, != or |")
                terms += [(lifts[name](e), equal) for e, equal in view.mask.terms]
        joint = Mask(tuple(terms))
        truth = joint.truth() if terms else True
        if truth is False:
            return False
        if truth:
            terms, joint = [], Mask(())
        facts = self.facts() + joint.facts
        open_ends = [i for name, v in views.items() if v.limits for i in v.unproved(facts, lifts[name])]
        for symbol in self.symbols_of([*(e for e, _ in terms), *open_ends]):
            if symbol not in position_of:
                position_of[symbol] = len(symbols)
                symbols.append(symbol)
        op.mask = joint.constraints(position_of)
        op.limits = Mask(tuple((i, False) for i in open_ends)).spread(iteration.extents).constraints(position_of)
        return True

    def _emit_pieces(self, cls: type[Op], views: dict[str, View], mask: Mask, attributes: dict[str, object]
                     ) -> Op | None:
        """Emit one operation for each of the conjunctions of a mask that is a negation (``!=``, ``|``).

        The last conjunction has all conditions: the builder emits it first, so that it refuses a mask before it emits
        anything.
        """
        if (truth := mask.truth()) is not None:
            return self._emit(cls, views, None if truth else False, attributes)
        for field in (f for f in cls.tiles if f.writes and f.name in views):
            target = views[field.name]
            if any(v.buffer is target.buffer and not v.same_elements(target) for v in views.values()):
                raise UnsupportedMask(what=f"the mask of '{cls.name}', which moves elements within "
                                           f"{target.buffer.name}, contains ~, != or |")
        last_op = None
        for piece in reversed(mask.pieces()):
            last_op = self._emit(cls, dict(views), piece, dict(attributes), True) or last_op
        return last_op

    def symbols_of(self, indices: Sequence[Affine]) -> list[Symbol]:
        """Return the symbols used, each once; request numbers for one whose loop has ended."""
        symbols = list(dict.fromkeys(s for i in indices for s in i.symbols))
        for symbol in symbols:
            if not symbol.usable():
                symbol.request_number("its loop variable is used after the loop")
        return symbols


def from_fresh(op: Op, operands: Operands, operand_views: Sequence[View]) -> bool:
    """Return whether an operation, about to be performed, reads elements that a mask left out when their tile was
    first written. Mark the tiles that it writes, which may then have such elements.

    They are zeros without a meaning: a kernel computes on complete tiles, and stores only the rows that it needs.
    """
    fresh = False
    for (field, _), view in zip(operands, operand_views):
        fresh |= field.reads and view.buffer.fresh
    if fresh or op.mask:
        for (field, _), view in zip(operands, operand_views):
            buffer = view.buffer
            if field.writes and buffer.on_chip and (fresh or not buffer.is_written):
                buffer.fresh = True
    return fresh

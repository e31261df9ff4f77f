# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Executes each operation eagerly on concrete numbers: the oracle of capture, and the executor under a debugger."""

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import prod
from typing import Protocol

import numpy as np

from nki_mlir.capture.builder import Builder, Marks, Memo, Site
from nki_mlir.capture.errors import NoRoomForTensor, OfAnotherCall
from nki_mlir.capture.index import Symbol
from nki_mlir.capture.iterations import EnclosingIteration, LoopRun
from nki_mlir.capture.locations import user_location
from nki_mlir.capture.operands import Operands, Views
from nki_mlir.capture.races.hazards import ProgramTouches, judge_loops, judge_programs, point_text
from nki_mlir.capture.races.overlaps import are_satisfiable, masks_of
from nki_mlir.capture.races.touches import Touch
from nki_mlir.capture.races.verdicts import Verdict
from nki_mlir.capture.shared_tensors import SharedTensors
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.diagnostics import DeviceRules, KernelError, Location, NkiMlirError
from nki_mlir.dialects.access import HBM, values_of
from nki_mlir.dialects.nki.movement import DevicePrintOp
from nki_mlir.dialects.op import Op, fills
from nki_mlir.machine import DEFAULT_TARGET
from nki_mlir.scalar.dtypes import DType
from nki_mlir.targets.interpreter.execute import Pattern, Runner, compile_op, floating, starts
from nki_mlir.targets.interpreter.unwritten_hbm import PreparedOperation, Tracked, tracked
from nki_mlir.targets.interpreter.unwritten_tiles import FreshTile, UnwrittenTiles


class PrivateResult(Exception):
    """Raised when one program of a grid returns a tensor in private HBM: the grid runs again and shares the tensor,
    which ``key`` identifies."""

    def __init__(self, key: tuple[object, ...]) -> None:
        super().__init__(key)
        self.key = key


CHECKING: ContextVar[bool] = ContextVar("checking", default=False)      # whether the run serves the race check only


@dataclass
class Launch:
    """State that the programs of one run share."""

    results: Container[tuple[object, ...]] = ()             # keys of the tensors in private HBM that are outputs
    shared: SharedTensors = field(default_factory=SharedTensors)
    memory: dict[int, np.ndarray] = field(default_factory=dict)             # of the shared tensors, by number
    doubtful: bool = False                                  # capture may refuse what a program did
    memos: dict[tuple[object, ...], dict[object, object]] = field(default_factory=dict)


class Observer(Protocol):
    """Observes the operations of a run."""

    def perform(self, op: Op, views: Sequence[View], run: Callable[[], None]) -> None:
        """Call ``run``, which performs the operation."""

    def broken_rule(self, error: NkiMlirError, at: Location | None, uncertain: bool) -> None:
        """Receive a rule of the device that the kernel breaks; ``uncertain``: documents differ on it."""

    def reshaping_copy(self, op: str, dst: Sequence[int], src: Sequence[int]) -> None:
        """Receive a DMA between tensors with different shapes but the same number of elements."""


class EagerBuilder(Builder):
    """Runs one program of a grid; ``fill`` returns the initial value of fresh memory of a dtype."""

    observer: Observer | None = None

    def __init__(self, grid: tuple[int, ...] = (), point: tuple[int, ...] = (), launch: Launch | None = None,
                 target: str = DEFAULT_TARGET, fill: Callable[[DType], float] = lambda dtype: 0.0) -> None:
        super().__init__(grid, target)
        self.launch = launch = launch or Launch()
        self.memos = launch.memos
        self.point, self.fill, self.unwritten = point, fill, UnwrittenTiles(elements_selected_by_data)
        self.branches: list[EnclosingIteration | None] = []       # the iteration around each open branch
        self.scope = object()               # scope of the tensors that this program creates
        self.operations_hash = 0            # equal for programs that do the same
        self.touches.selected_by_data = elements_selected_by_data

    def report(self, error: NkiMlirError, uncertain: bool = True) -> None:
        if self.observer is None or self.considering:
            super().report(error, uncertain)
        else:
            self.observer.broken_rule(error, user_location(), uncertain)

    def reshaping_copy(self, op: str, dst: Sequence[int], src: Sequence[int]) -> None:
        if self.observer is not None:
            self.observer.reshaping_copy(op, dst, src)

    def program_id(self, axis: int) -> int:
        return self.point[axis]

    def parameter(self, array: np.ndarray, dtype: DType, name: str, role: str = "input") -> Buffer:
        return Buffer(tuple(array.shape), dtype, "hbm", name, handle=array, role=role)

    def program(self) -> ProgramTouches:
        """Return this program's accesses to memory that all programs share."""
        shared: dict[Hashable, tuple[Buffer, list[Touch]]] = {
            id(b.handle): (b, listed) for b, listed in self.touches.programs.items()}
        return ProgramTouches(point_text(dict(enumerate(self.point)), len(self.grid)), self.operations_hash, shared,
                              {})

    def allocate(self, shape: tuple[int, ...], dtype: DType, space: str, *, shared: bool = False,
                 partition_dim: int = 0, name: str = "", attributes: Marks | None = None,
                 at: Location | None = None) -> Buffer:
        private = self.new_private() if space == HBM and not shared else None
        buffer = self.allocated(shape, dtype, space, shared or private in self.launch.results, partition_dim, name)
        buffer.scope = self.scope
        at = at or user_location(2)
        if space != HBM:
            buffer.unwritten = buffer.origin = FreshTile(buffer.name, at)
        self.track(buffer, attributes, at)
        if private is not None:
            self.private[buffer] = private
        return buffer

    def allocated(self, shape: tuple[int, ...], dtype: DType, space: str, shared: bool, partition_dim: int,
                  name: str) -> Buffer:
        buffer = Buffer(tuple(shape), dtype, space, self.new_name(name), partition_dim,
                        role="output" if shared else "local", iteration=self.touches.iteration)
        if shared:
            buffer.shared = self.launch.shared.number(self.shared_key(name), shape, dtype, buffer.name)
        if buffer.shared in self.launch.memory:
            buffer.handle = self.launch.memory[buffer.shared]
        else:
            buffer.handle = self.fresh(buffer.physical_shape, dtype)
            if space == HBM:
                buffer.handle = tracked(buffer.handle, buffer.name)
            if buffer.shared is not None:
                self.launch.memory[buffer.shared] = buffer.handle
        return buffer

    def rename(self, buffer: Buffer, name: str) -> None:
        super().rename(buffer, name)
        if isinstance(buffer.handle, Tracked):
            buffer.handle.label = name
        if buffer.origin is not None:
            buffer.origin.name = name

    def fresh(self, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
        value = self.fill(dtype)
        try:
            return np.full(shape, value, dtype.numpy) if value != 0 else np.zeros(shape, dtype.numpy)
        except (MemoryError, OverflowError, ValueError):          # ValueError: the size overflows in NumPy
            error = NoRoomForTensor(shape=list(shape), dtype=dtype, bytes=prod(shape) * dtype.itemsize)
            raise error.here() from None

    def allocate_state(self, shape: tuple[int, ...], dtype: DType, name: str) -> Buffer:
        return Buffer(shape, dtype, "sbuf", name, handle=np.zeros(shape, dtype.numpy))

    def constant(self, array: np.ndarray, dtype: DType) -> Buffer:
        buffer = Buffer(tuple(array.shape), dtype, "hbm", self.new_name(), handle=np.ascontiguousarray(array))
        self.touches.constant(buffer, array)
        return buffer

    def wrote(self, op: Op, buffer: Buffer, symbols: Sequence[Symbol]) -> None:
        if are_satisfiable(masks_of(op, symbols)) is not False:
            super().wrote(op, buffer, symbols)

    def consider(self, cls: type[Op], views: Views, target: View, mask: object, attributes: dict[str, object]) -> None:
        """Mark the run doubtful if the operation would break a rule: only capture knows the other readers of the
        result."""
        if self.rules in (DeviceRules.SPLIT, DeviceRules.ERROR) and cls.engines:
            self.considering = True
            try:
                self.emit(cls, {**views, "dst": target}, mask, attributes)
            except KernelError:
                self.launch.doubtful = True
            finally:
                self.considering = False

    def end(self) -> None:
        """End the program. If its tiles do not fit in memory, the run is doubtful: a compiled kernel may have fewer
        live tiles, which only capture can tell."""
        self.launch.doubtful |= self.rules is not DeviceRules.OFF and any(True for _ in self.memory.findings())

    def prepared(self, op: Op, operands: Operands, memo: Memo) -> "tuple[PreparedOperation, list[int]]":
        """Return an operation prepared to run, and the starts of its tiles where the preparation does not include
        them."""
        if not memo:
            return PreparedOperation(op, self.compiled(op)), []
        work: PreparedOperation | None = memo.get("work")
        if work is None:
            moving = floating(op)
            work = memo["work"] = PreparedOperation(moving, self.compiled(moving))
        return work, starts(operands)

    def compiled(self, op: Op) -> Runner:
        return compile_op(op)

    def run(self, op: Op, arrays: list[np.ndarray], work: "PreparedOperation", values: list[int]) -> None:
        if not CHECKING.get():
            work.perform(op, arrays, values, user_location)
        elif op.name != DevicePrintOp.name:
            work.run(arrays, values)

    # -- what capture might refuse -------------------------------------------------------------------------------------
    def iterations(self, span: Iterable[int], site: Site, parallel: bool, name: str = "") -> Iterator[int]:
        branches = len(self.branches)
        try:
            yield from super().iterations(span, site, parallel, name)
        finally:
            del self.branches[branches:]

    def enter_branch(self) -> None:
        self.branches.append(self.touches.iteration)
        if self.touches.iteration is not None:                # outside of loops capture knows the condition, too
            self.touches.enter(LoopRun(False, ""), None)

    def leave_branch(self) -> None:
        if self.branches:
            self.touches.end(self.branches.pop())

    def promote(self, buffer: Buffer) -> None:
        self.note_for_capture(buffer)
        if prod(self.grid) > 1:
            raise PrivateResult(self.private[buffer])

    def check_shared(self) -> None:
        super().check_shared()
        self.launch.doubtful |= self.touches.iteration is not None

    def perform(self, op: Op, operands: Operands, views: Sequence[View], symbols: Sequence[Symbol],
                memo: Memo) -> None:
        for view in views:
            if view.buffer.scope is not self.scope and view.buffer.scope is not None:
                raise OfAnotherCall(name=view.buffer.name).here()
        work, values = self.prepared(op, operands, memo)
        if self.observer is None:
            self.run(op, [tile.handle for _, tile in operands], work, values)
        else:
            self.observer.perform(op, views, lambda: self.run(op, [tile.handle for _, tile in operands], work, values))
        if any([view.buffer.unwritten is not None for view in views]):
            self.follow_unwritten(op, operands, views)
        touches = self.touches
        if touches.iteration is not None or touches.has_several_programs or op.acts_outside:
            touches.performed(op, views, (), self.accumulating, ())
            if touches.has_several_programs:
                work_key = (id(memo), *values) if memo else (op.outline(), op.mask)
                self.operations_hash = hash((self.operations_hash, *work_key))
        for view in views:
            if view.buffer.iteration is not None:
                self.note_for_capture(view.buffer)

    def follow_unwritten(self, op: Op, operands: Operands, views: Sequence[View]) -> None:
        """Record which elements of fresh tiles an operation has written; report unwritten elements that it has
        stored."""
        if fills(op, operands) and all([view.buffer.unwritten is None for view in views[1:]]):
            views[0].buffer.unwritten = None
        elif not CHECKING.get():
            after = self.unwritten.perform(op, [view.buffer.unwritten for view in views], (), user_location)
            for view, shadow in zip(views, after):
                view.buffer.unwritten = shadow

    def note_for_capture(self, buffer: Buffer) -> None:
        """Mark the run doubtful if the iteration that allocated the buffer has ended: if the loop stays rolled, capture
        refuses to use the buffer."""
        if buffer.iteration is not None and buffer.iteration.has_ended:
            self.launch.doubtful = True


def verdict_on(programs: Sequence[EagerBuilder]) -> Verdict:
    """Return the races of a run: between iterations of its programs, and between the programs."""
    verdict = Verdict()
    for program in programs:
        judge_loops(program.touches, (), verdict)
    if len(programs) > 1:
        judge_programs([program.program() for program in programs], len(programs[0].grid), verdict)
    return verdict


def elements_selected_by_data(op: Op) -> np.ndarray:
    """Return flat indices of the elements of a buffer that an index tensor selects."""
    operands = {field.name: tile for field, tile in op.operands()}
    tiles = {name: Pattern(tile).at(tile.handle, ()) for name, tile in operands.items()}
    extents = op.iteration().extents
    forms = [values_of(form, extents) for form in op.index_forms()]
    table = operands[op.addressed_by_data]
    positions = np.argwhere(op.accessed_elements(tiles, forms)).T
    return Pattern(table).elements(np.asarray(table.handle), (), positions)

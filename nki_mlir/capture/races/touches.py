# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Records what operations read and write of memory that iterations of a parallel loop, or programs of a grid, share,
and which values they write.

Both builders record while the kernel's Python runs; ``hazards`` decides afterwards which touches are races.
"""

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nki_mlir.capture.affine import Symbol
from nki_mlir.capture.iterations import EnclosingIteration, LoopRun, enclosing_iterations
from nki_mlir.capture.mask import Mask
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import Mask as Constraints
from nki_mlir.dialects.access import same_elements
from nki_mlir.dialects.launch_members import PROGRAMS
from nki_mlir.dialects.nisa.meeting import CoreBarrierOp, Meeting
from nki_mlir.dialects.nisa.movement import DmaComputeOp
from nki_mlir.dialects.op import REGISTERS, Op, TileField

if TYPE_CHECKING:
    from nki_mlir.capture.scope import Scope


class Restriction(NamedTuple):
    """The mask of an operation over the operation's axes. ``axes`` maps each dimension of the operand to one of these
    axes."""

    mask: Constraints
    axes: tuple[int, ...]
    extents: tuple[int, ...]


@dataclass(eq=False, slots=True)
class Touch:
    """The elements that an operation reads, writes or accumulates to through one operand. ``symbols`` are numbered by
    the mask.

    It is not ``exact`` where run-time values decide whether the operation runs, or which elements it selects, unless a
    run knows the values: ``elements`` are flat indices in the buffer. Immutable, though not declared so: a run creates
    very many.
    """

    view: View
    writes: bool
    accumulates: bool
    exact: bool
    symbols: Sequence[Symbol]
    restriction: Restriction | None
    conditions: tuple[Mask, ...]
    iteration: EnclosingIteration | None
    at: Location
    epoch: int
    elements: np.ndarray | None = None
    value: int | None = None            # the number of the value that it writes (``ValueNumbers``)

    def number_in(self, loop: LoopRun) -> int | None:
        """Return the number of the iteration of an enclosing loop; None if the loop is rolled."""
        return next((iteration.number for iteration in enclosing_iterations(self.iteration)
                     if iteration.loop is loop), None)


class Performed(NamedTuple):
    """An operation that was performed. ``sure``: it runs, whatever the branches around it; ``adds``: it combines with
    the values of its destinations."""

    op: Op
    symbols: Sequence[Symbol]
    at: Location
    value: int | None           # the number of the value that it writes
    sure: bool
    conditions: tuple[Mask, ...]
    adds: bool
    targets: Sequence[View]


class Touches:
    """The touches of one program, or of all programs that a capture stands for.

    ``has_several_programs``: the grid has more than one program. Others could touch the same memory only then, or
    inside a loop (``iteration``). ``locate(skip)`` returns the kernel's current location. ``selected_by_data``, where
    data are known, returns the elements that they select.
    """

    def __init__(self, has_several_programs: bool, locate: Callable[[int], Location]) -> None:
        self.has_several_programs, self.locate = has_several_programs, locate
        self.selected_by_data: Callable[[Op], np.ndarray] | None = None
        self.iteration: EnclosingIteration | None = None
        self.epoch = 0                  # number of times that the programs have met: at barriers and in collectives
        self.loops: dict[LoopRun, dict[Buffer, list[Touch]]] = {}      # memory that iterations share
        self.shared: list[Buffer] = []  # memory that all programs share, in order of allocation
        self.programs: dict[Buffer, list[Touch]] = {}
        self.reducing = False           # inside a loop_reduce, whose iterations combine
        self.values: ValueNumbers | None = None        # where programs run, or are captured, one by one

    def enter(self, loop: LoopRun, number: int | None) -> None:
        self.iteration = EnclosingIteration(loop, number, self.iteration)

    def leave(self) -> None:
        assert self.iteration is not None
        self.iteration = self.iteration.outside

    def end(self, outside: EnclosingIteration | None) -> None:
        """Leave the iterations inside ``outside`` (inside the kernel if None), which have ended."""
        while self.iteration is not None and self.iteration is not outside:
            self.iteration.has_ended = True
            self.leave()

    def constant(self, buffer: Buffer, array: np.ndarray) -> None:
        if self.has_several_programs and self.values is not None:
            self.values.constant(buffer, array)

    @contextmanager
    def combining(self) -> Iterator[None]:
        """Mark the operations of the ``with`` block as parts of a reduction over a loop: its iterations combine."""
        outside, self.reducing = self.reducing, True
        try:
            yield
        finally:
            self.reducing = outside

    def performed(self, op: Op, views: Sequence[View], symbols: Sequence[Symbol], accumulating: bool,
                  scopes: "Sequence[Scope]") -> None:
        """Record the operands of an operation. ``scopes`` are the blocks around it; the blocks of branches have a
        condition."""
        if op.acts_outside and self.synchronizes(op) and isinstance(op, CoreBarrierOp):
            return                      # the operation moves nothing
        value = None
        if self.has_several_programs and self.values is not None:
            value = self.values.performed(op, views, len(scopes) < 2, self.epoch)
        iteration = self.iteration
        inside = iteration is not None and iteration.parallels > 0
        if not inside and not self.has_several_programs:
            return
        performed: Performed | None = None
        operands = op.operands()
        for (kind, _), view in zip(operands, views):
            if kind.name in REGISTERS:
                continue                # the engine performs the operations on its registers in program order
            buffer = view.buffer
            created_in = buffer.iteration
            shared = self.has_several_programs and buffer.role != "local"
            depth = created_in.parallels if created_in is not None else 0
            if not shared and (not inside or iteration.parallels == depth):     # type: ignore[union-attr]
                continue
            if performed is None:
                performed = Performed(
                    op, symbols, self.locate(5), value,
                    sure=not any([s.may_skip for s in scopes]),
                    conditions=tuple([s.holds for s in scopes if s.holds is not None]),
                    adds=accumulating or self.reducing or getattr(op, "rmw", "bypass") != "bypass" or adds_up(op),
                    targets=[v for (k, _), v in zip(operands, views) if k.writes])
            touch = self.of(performed, kind, view)
            if shared:
                self.programs.setdefault(buffer, []).append(touch)
            enclosing = iteration
            while enclosing is not None and enclosing is not created_in:
                if enclosing.loop.parallel:
                    self.loops.setdefault(enclosing.loop, {}).setdefault(buffer, []).append(touch)
                enclosing = enclosing.outside

    def of(self, performed: Performed, kind: TileField, view: View) -> Touch:
        """Return the touch of one operand of an operation."""
        op, adds = performed.op, performed.adds
        fixed, restriction, elements = kind.name != op.addressed_by_data, None, None
        if op.mask:
            iteration = op.iteration()
            restriction = Restriction(op.mask, iteration.axes[kind.name], iteration.extents)
        if kind.writes:
            adds |= fixed and kind.reads and kind.name in [name for name, _ in op.sources()]
        elif adds:
            adds = any([view.same_elements(target) for target in performed.targets])
        epoch = self.epoch - (isinstance(op, Meeting) and not kind.writes)
        counted = tuple(performed.symbols) if restriction is not None else ()
        if not fixed and self.selected_by_data is not None and restriction is None:
            elements = self.selected_by_data(op)
        exact = performed.sure and (fixed or elements is not None)
        return Touch(view, kind.writes, adds, exact, counted, restriction, performed.conditions, self.iteration,
                     performed.at, epoch, elements, performed.value)

    def synchronizes(self, op: Op) -> bool:
        """Return whether programs meet at an operation: accesses after it are ordered after the accesses before it.
        An exchange of core 1 with core 0 names only core 0."""
        if not isinstance(op, Meeting) or op.between != PROGRAMS or all(len(op.members(n)) < 2 for n in (0, 1)):
            return False
        self.epoch += 1
        rolled = False
        for iteration in enclosing_iterations(self.iteration):
            rolled |= iteration.loop.symbol is not None
            iteration.loop.has_barrier |= rolled
        return True


def adds_up(op: Op) -> bool:
    """Return whether a DMA accumulates to its destination."""
    return isinstance(op, DmaComputeOp) and (same_elements(op.dst, op.lhs) or same_elements(op.dst, op.rhs))


# -- values ------------------------------------------------------------------------------------------------------------
# Value numbering tells whether programs that were captured, or ran, one by one write the same values. The number of a
# value is a hash of the operation and of the numbers of the values that it read. Equal numbers mean equal elements;
# different numbers mean nothing.

_unlike = itertools.count()             # numbers of values that are equal to no other


class ValueNumbers:
    """The value numbers of one program: for each buffer, a number for its contents."""

    def __init__(self) -> None:
        self.numbers: dict[Buffer, int] = {}

    def constant(self, buffer: Buffer, array: np.ndarray) -> None:
        self.numbers[buffer] = hash((array.tobytes(), array.shape, array.dtype.str))

    def of(self, buffer: Buffer) -> int:
        """Return the number of a buffer's contents. Unwritten inputs and outputs are numbered by name, other buffers
        as fresh."""
        if buffer not in self.numbers:
            self.numbers[buffer] = hash((buffer.role, buffer.name if buffer.role != "local" else "", buffer.shape))
        return self.numbers[buffer]

    def performed(self, op: Op, views: Sequence[View], runs_once: bool, epoch: int) -> int:
        """Return the number of an operation's result. An operation in a device loop (not ``runs_once``) gets a unique
        number.

        It reads shared memory as it is after ``epoch`` meetings of the programs.
        """
        operands = [(kind, view, written_at(view)) for (kind, _), view in zip(op.operands(), views)]
        if not runs_once or isinstance(op, Meeting):
            created_in = hash((next(_unlike), "unlike"))
        else:
            read = [(kind.name, location, self.of(v.buffer), v.buffer.role != "local" and epoch)
                    for kind, v, location in operands if kind.reads]
            created_in = hash((op.outline(), op.mask, *read))
        for kind, view, location in operands:
            if kind.writes:
                self.numbers[view.buffer] = hash((self.of(view.buffer), created_in, kind.name, location))
        return created_in


def written_at(view: View) -> Hashable:
    """Return a key that is equal for views of the same elements of their buffers."""
    return view.partition.key, view.free.key, view.dims, view.dtype

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What operations read and write of memory that iterations of a parallel loop, or programs of a grid, share, and which
values they write.

Both builders note it while the kernel's Python runs; ``races`` decides afterwards which of it can meet.
"""

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.capture.affine import Symbol
from nki_mlir.capture.iterations import LoopRun, Turn, outward
from nki_mlir.capture.mask import Mask
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import Mask as Constraints
from nki_mlir.dialects.access import same_place
from nki_mlir.dialects.meeting import PROGRAMS
from nki_mlir.dialects.nisa.meeting import CoreBarrierOp, Meeting
from nki_mlir.dialects.nisa.movement import DmaComputeOp
from nki_mlir.dialects.op import Op, TileField

if TYPE_CHECKING:
    from nki_mlir.capture.scope import Scope


@dataclass(frozen=True, eq=False)
class Restriction:
    """The mask of an operation: over its axes, of which ``axes`` are those of the operand's dimensions."""

    mask: Constraints
    axes: tuple[int, ...]
    extents: tuple[int, ...]


@dataclass(eq=False, slots=True)
class Touch:
    """An operand: which elements an operation reads, writes or adds to. ``symbols`` are those that its mask counts.

    Where data decide which of the elements are meant, it is not ``exact``, unless a run has found them: ``elements``
    are flat, in the buffer. Immutable. (Not declared so: a run makes a great many.)
    """

    view: View
    writes: bool
    accumulates: bool
    exact: bool
    symbols: Sequence[Symbol]
    restriction: Restriction | None
    conditions: tuple[Mask, ...]
    turn: Turn | None
    at: Location
    epoch: int
    elements: np.ndarray | None = None
    value: int | None = None            # of what it writes, where programs are told apart by their numbers

    def number_in(self, loop: LoopRun) -> int | None:
        """Which iteration of an enclosing loop it belongs to."""
        return next((turn.number for turn in outward(self.turn) if turn.loop is loop), None)


class Touches:
    """Those of one program (or all programs that a capture stands for). ``several``: the grid has more than one.
    There are other iterations or programs, which could touch the same, where it has or there is a ``turn``.

    ``locate(skip)`` is where the kernel is, ``meant`` finds which elements data choose, where these are known.
    """

    def __init__(self, several: bool, locate: Callable[[int], Location], meant: Callable[[Op], np.ndarray] | None = None
                 ) -> None:
        self.several, self.locate, self.meant = several, locate, meant
        self.turn: Turn | None = None
        self.epoch = 0                  # how often the programs have met
        self.loops: dict[LoopRun, dict[Buffer, list[Touch]]] = {}      # parallel ones: what their iterations share
        self.shared: list[Buffer] = []  # the memory of all programs, in the order it was made in
        self.programs: dict[Buffer, list[Touch]] = {}
        self.reducing = False           # operations of a loop_reduce, whose iterations combine
        self.values: ValueNumbers | None = None        # where programs run, or are captured, one by one

    def enter(self, loop: LoopRun, number: int | None) -> None:
        self.turn = Turn(loop, number, self.turn)

    def leave(self) -> None:
        assert self.turn is not None
        self.turn = self.turn.outside

    def end(self, outside: Turn | None) -> None:
        """The iterations inside of one, or of none, have ended."""
        while self.turn is not None and self.turn is not outside:
            self.turn.has_ended = True
            self.leave()

    def constant(self, buffer: Buffer, array: np.ndarray) -> None:
        if self.several and self.values is not None:
            self.values.constant(buffer, array)

    @contextmanager
    def combining(self) -> Iterator[None]:
        """Operations inside reduce over a loop: its iterations combine."""
        outside, self.reducing = self.reducing, True
        try:
            yield
        finally:
            self.reducing = outside

    def performed(self, op: Op, views: Sequence[View], symbols: Sequence[Symbol], accumulating: bool,
                  scopes: "Sequence[Scope]") -> None:
        """An operation on these operands. Of the scopes it stands in, those of branches have a condition that holds."""
        if op.acts_outside and self.met(op) and isinstance(op, CoreBarrierOp):
            return                      # it moves nothing
        value = None
        if self.several and self.values is not None:
            value = self.values.performed(op, views, len(scopes) < 2, self.epoch)
        turn = self.turn
        inside = turn is not None and turn.parallels > 0
        if not inside and not self.several:
            return
        at: Location | None = None
        targets: list[View] = []
        operands = op.operands()
        for (kind, _), view in zip(operands, views):
            buffer = view.buffer
            created_in = buffer.turn
            shared = self.several and buffer.role != "local"
            if not shared and (not inside or turn.parallels == (created_in.parallels if created_in is not None else 0)):     # type: ignore[union-attr]
                continue
            if at is None:
                at, conditions = self.locate(5), tuple([s.holds for s in scopes if s.holds is not None])
                sure = not any([s.may_skip for s in scopes])
                targets = [v for (k, _), v in zip(operands, views) if k.writes]
                adds = accumulating or self.reducing or getattr(op, "rmw", "bypass") != "bypass" or adds_up(op)
            touch = self.of(op, kind, view, symbols, adds, sure, targets, conditions, at, value)
            if shared:
                self.programs.setdefault(buffer, []).append(touch)
            around = turn
            while around is not None and around is not created_in:
                if around.loop.parallel:
                    self.loops.setdefault(around.loop, {}).setdefault(buffer, []).append(touch)
                around = around.outside

    def of(self, op: Op, kind: TileField, view: View, symbols: Sequence[Symbol], adds: bool, sure: bool,
           targets: Sequence[View], conditions: tuple[Mask, ...], at: Location, value: int | None) -> Touch:
        """The touch of one operand; ``adds``: the operation combines with what its destinations hold, ``sure``: it
        runs."""
        fixed, restriction, elements = kind.name != op.addressed_by_data, None, None
        if op.mask:
            iteration = op.iteration()
            restriction = Restriction(op.mask, iteration.axes[kind.name], iteration.extents)
        if kind.writes:
            adds |= fixed and kind.reads and kind.name in [name for name, _ in op.sources()]
        elif adds:
            adds = any([view.same_place(target) for target in targets])
        epoch = self.epoch - (isinstance(op, Meeting) and not kind.writes)
        counted = tuple(symbols) if restriction is not None else ()
        if not fixed and self.meant is not None and restriction is None:
            elements = self.meant(op)
        exact = sure and (fixed or elements is not None)
        return Touch(view, kind.writes, adds, exact, counted, restriction, conditions, self.turn, at, epoch, elements,
                     value)

    def met(self, op: Op) -> bool:
        """Whether programs meet at an operation: what comes behind it comes after what they did before it."""
        if not isinstance(op, Meeting) or op.between != PROGRAMS or all(len(op.members(n)) < 2 for n in (0, 1)):
            return False
        self.epoch += 1
        rolled = False
        for turn in outward(self.turn):
            rolled |= turn.loop.symbol is not None
            turn.loop.meets |= rolled
        return True


def adds_up(op: Op) -> bool:
    """Whether a transfer adds to what its destination holds."""
    return isinstance(op, DmaComputeOp) and (same_place(op.dst, op.lhs) or same_place(op.dst, op.rhs))


# -- values ------------------------------------------------------------------------------------------------------------
# Whether programs that were captured, or ran, one by one write the same values: by how each value was made. A value is
# the operation and the values that it read. Programs get the same from the same: equal numbers mean equal elements,
# different ones say nothing.

_unlike = itertools.count()             # numbers of values that are equal to no other


class ValueNumbers:
    """Of one program: for each buffer, a number for all that it holds."""

    def __init__(self) -> None:
        self.held: dict[Buffer, int] = {}

    def constant(self, buffer: Buffer, array: np.ndarray) -> None:
        self.held[buffer] = hash((array.tobytes(), array.shape, array.dtype.str))

    def of(self, buffer: Buffer) -> int:
        """Where nothing was written, inputs and outputs are known by their names, others are fresh."""
        if buffer not in self.held:
            self.held[buffer] = hash((buffer.role, buffer.name if buffer.role != "local" else "", buffer.shape))
        return self.held[buffer]

    def performed(self, op: Op, views: Sequence[View], once: bool, epoch: int) -> int:
        """The number of what an operation makes that runs ``once``; in a loop of the device it is equal to no other.

        What it reads of the memory of all is what it was after so many meetings (``epoch``).
        """
        operands = [(kind, view, written_at(view)) for (kind, _), view in zip(op.operands(), views)]
        if not once or isinstance(op, Meeting):
            created_in = hash((next(_unlike), "unlike"))
        else:
            read = [(kind.name, place, self.of(v.buffer), v.buffer.role != "local" and epoch)
                    for kind, v, place in operands if kind.reads]
            created_in = hash((op.outline(), op.mask, *read))
        for kind, view, place in operands:
            if kind.writes:
                self.held[view.buffer] = hash((self.of(view.buffer), created_in, kind.name, place))
        return created_in


def written_at(view: View) -> Hashable:
    """Equal for views that are the same elements of their buffers."""
    return view.partition.key, view.free.key, view.dims, view.dtype

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a program may touch, proved when it is assembled, else checked when it runs.

No operation touches memory outside of its buffers, no iteration of a parallel loop what another one writes, and nothing
is read of a buffer before it is written.

What a kernel's capture has proved is proved here again, because a module may come from a file. A proof is an interval
over the values of loop variables, program ids and axes, with the conditions of enclosing branches and the mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nki_mlir.dialects.access import Constraint, Linear, Mask
from nki_mlir.dialects.facts import interval_given
from nki_mlir.dialects.op import Op
from nki_mlir.targets.cpu.program import BUFFERS, Assembly, ProgramLabel, RoutineCall, ScratchBuffer
from nki_mlir.targets.cpu.routines import Limits
from nki_mlir.targets.cpu.schedule import reach_of
from nki_mlir.targets.cpu.values import MemrefView, Ranges, Values
from nki_mlir.waist.nest import Nest, Operand

AXES = 1 << 48                      # as symbols of a proof, axes are numbered from here on


@dataclass(frozen=True)
class RuntimeCheck:
    """What is left to run time: forms of slots that must be >= 0, or a routine over the active elements.

    ``upper`` tells the checks of the last element from those of the first.
    """

    view: MemrefView
    itemsize: int
    value: Linear | None = None
    upper: bool = False
    routine: Limits | None = None
    arguments: tuple[Linear, ...] = ()


def open_checks(values: Values, nest: Nest, views: Sequence[MemrefView], symbols: Sequence[Linear]
                ) -> list[RuntimeCheck]:
    """The checks that an operation needs; mostly none."""
    checks: list[RuntimeCheck] = []
    for k, view in enumerate(views):
        operand = nest.operands[k]
        size, item = view.size, operand.dtype.itemsize
        low, high = reach_of(nest, k)
        if not view.offset.symbols and view.offset.const + low >= 0 and view.offset.const + high < size:
            continue
        first, last = view.offset.plus(Linear(low)), Linear(size - 1 - high).plus(view.offset, -1)
        if all(interval_given(form, values.facts, values.ranges)[0] >= 0 for form in (first, last)):    # type: ignore[arg-type]
            continue
        if nest.mask:
            checks += _under_mask(values, nest, k, view, symbols)
        else:
            checks += [RuntimeCheck(view, item, first), RuntimeCheck(view, item, last, True)]
    return checks


def _under_mask(values: Values, nest: Nest, k: int, view: MemrefView, symbols: Sequence[Linear]) -> list[RuntimeCheck]:
    """As above where a mask decides which elements count."""
    operand = nest.operands[k]
    item = operand.dtype.itemsize
    ranges = Ranges(values.ranges)
    ranges |= {AXES + axis: (0, extent - 1) for axis, extent in enumerate(nest.extents)}
    place = view.offset.plus(Linear(0, tuple((AXES + a, s * item) for a, s in enumerate(operand.strides) if s)))
    rest = Linear(view.size - item).plus(place, -1)
    facts = [*values.facts, *(f for c in nest.mask for f in _as_facts(c, symbols))]
    if all(interval_given(form, facts, ranges)[0] >= 0 for form in (place, rest)):      # type: ignore[arg-type]
        return []
    axes = tuple((a, s) for a, s in enumerate(operand.strides) if s)
    own = len(symbols)                      # the offset in elements is one more symbol of the routine
    limits: Mask = (Constraint(Linear(0, ((own, 1),), axes)),
                    Constraint(Linear(view.size // item - 1, ((own, -1),), tuple((a, -s) for a, s in axes))))
    routine = Limits(nest.extents, nest.mask, limits, own + 1)
    return [RuntimeCheck(view, item, routine=routine, arguments=(*symbols, _in_elements(view.offset, item)))]


def _as_facts(constraint: Constraint, symbols: Sequence[Linear]) -> list[Linear]:
    """A constraint over axes and an operation's symbols as forms of slots and axes that are >= 0."""
    form = Linear(constraint.form.const, tuple((AXES + a, c) for a, c in constraint.form.axes))
    for position, c in constraint.form.symbols:
        form = form.plus(symbols[position], c)
    return [form, Linear().plus(form, -1)] if constraint.equal else [form]


def _in_elements(form: Linear, itemsize: int) -> Linear:
    return Linear(form.const // itemsize, tuple((slot, c // itemsize) for slot, c in form.symbols))


# -- independence ------------------------------------------------------------------------------------------------------
# A loop that the kernel's author calls parallel is only taken at its word where it can be shown that iterations keep
# apart: sums that iterations build together in one buffer, for example, are not. The arrays of a kernel are taken to be
# different memory.

@dataclass(frozen=True)
class ByteInterval:
    """Bytes an instruction touches: ``low`` to ``high`` around an address, a form of slots, in the memory ``root``.

    Of these it touches ``size`` bytes at a time, at the steps and counts of ``dims``; all of them where none are given.
    """

    root: object
    address: Linear
    low: int
    high: int
    writes: bool
    dims: tuple[tuple[int, int], ...] = ()
    size: int = 0


def independent(accesses: Sequence[ByteInterval], variable: int, span: range, ranges: dict[int, tuple[int, int]],
                private: set[Any]) -> bool:
    """Whether iterations that differ in the slot ``variable``, whose values are ``span``, keep apart.

    Slots above ``variable`` belong to the body: ``ranges`` has what is known of their values. ``private`` are the
    memories an iteration has for itself.
    """
    by_root: dict[object, list[ByteInterval]] = {}
    for access in accesses:
        if access.root not in private:
            by_root.setdefault(access.root, []).append(access)
    return all(_apart(group, variable, span.step, ranges) or _interleaved(group, variable, span, ranges)
               for group in by_root.values() if any(a.writes for a in group))


def _interleaved(group: list[ByteInterval], variable: int, span: range, ranges: dict[int, tuple[int, int]]) -> bool:
    """All accesses touch the same pattern, and steps of the iterations fit between those of the pattern.

    Like columns of a matrix: an iteration touches some bytes of each row, and the rows are further apart than all
    iterations reach.
    """
    first = group[0]
    if not first.size or any((a.address, a.dims, a.size) != (first.address, first.dims, first.size) for a in group):
        return False
    inner = {slot: c for slot, c in first.address.symbols if variable < slot < BUFFERS}
    if not inner.keys() <= ranges.keys():
        return False
    pace = abs(dict(first.address.symbols).get(variable, 0)) * span.step
    dims = [(abs(step), count, False) for step, count in first.dims if step and count > 1]
    dims += [(abs(c), ranges[slot][1] - ranges[slot][0] + 1, False) for slot, c in inner.items()]
    reach, passed = first.size, False               # bytes that the steps so far span
    for step, count, is_iteration in sorted([*dims, (pace, len(span), True)]):
        if (is_iteration or passed) and step < reach:
            return False
        passed |= is_iteration
        reach += step * (count - 1)
    return True


def _apart(group: list[ByteInterval], variable: int, step: int, ranges: dict[int, tuple[int, int]]) -> bool:
    """All accesses move by the same distance an iteration, which is more than they reach."""
    fixed, lows, highs = set(), [], []
    for access in group:
        symbols = dict(access.address.symbols)
        pace = symbols.pop(variable, 0)
        inner = {slot: c for slot, c in symbols.items() if slot > variable and slot in ranges}
        fixed.add((pace, tuple((slot, c) for slot, c in symbols.items() if slot not in inner)))
        ends = [sorted((c * ranges[slot][0], c * ranges[slot][1])) for slot, c in inner.items()]
        lows.append(access.address.const + access.low + sum(e[0] for e in ends))
        highs.append(access.address.const + access.high + sum(e[1] for e in ends))
    if len(fixed) != 1:
        return False
    (pace, others), = fixed
    if any(variable < slot < BUFFERS for slot, _ in others):
        return False                    # something in the body that varies in an unknown way
    return max(highs) - min(lows) < abs(pace) * step


# -- fresh buffers -----------------------------------------------------------------------------------------------------
# Their memory has what other buffers, calls and kernels left in it, so they are zeroed where there is no proof. A proof
# is the first operation on a buffer: it writes all of it, alone or over the iterations of the loops around it, of which
# each has read no more than it has written.

Piece = tuple[Linear, tuple[tuple[int, int], ...]]           # an offset, and a step and count for each axis


@dataclass(eq=False)
class OpenBlock:
    """An open block; a loop that has an iteration has its variable's slot and its values."""

    slot: int = -1
    span: range | None = None


@dataclass(frozen=True)
class Piecewise:
    """Written piece by piece: all of it when the block has ended, until then what an iteration's piece has."""

    block: OpenBlock
    piece: Piece


@dataclass
class Fresh:
    """What is known of one buffer."""

    base: Linear
    label: ProgramLabel                        # in the program, where it would be zeroed
    depth: int                          # how many blocks were open
    zeroed: bool = False
    state: Piecewise | bool = False


class FreshBuffers:
    """Watches the operations on each buffer while a program is written."""

    def __init__(self) -> None:
        self.blocks: list[OpenBlock] = []
        self.buffers: dict[ScratchBuffer, Fresh] = {}

    def allocated(self, view: MemrefView, code: Assembly) -> None:
        assert isinstance(view.root, ScratchBuffer)
        self.buffers[view.root] = Fresh(view.base, code.label(), len(self.blocks))
        code.mark(self.buffers[view.root].label)

    def labels(self) -> dict[int, ScratchBuffer]:
        """Where buffers would be zeroed, by ``id`` of the label."""
        return {id(fresh.label): buffer for buffer, fresh in self.buffers.items()}

    def zeroed(self) -> set[ScratchBuffer]:
        return {buffer for buffer, fresh in self.buffers.items() if fresh.zeroed}

    def end(self, code: Assembly) -> None:
        """Put the zeroing into the program."""
        by_place = {id(fresh.label): (buffer, fresh) for buffer, fresh in self.buffers.items()}
        items: list[Any] = []
        for item in code.items:
            if id(item) not in by_place:
                items.append(item)
                continue
            buffer, fresh = by_place[id(item)]
            if fresh.zeroed:
                items.append(RoutineCall("nki_zero", (fresh.base, Linear(buffer.size))))
        code.items[:] = items

    def open(self, root: ScratchBuffer | str) -> Fresh | None:
        """The state of a buffer of which something may be unwritten."""
        fresh = self.buffers.get(root) if isinstance(root, ScratchBuffer) else None
        if fresh is None or fresh.zeroed or fresh.state is True:
            return None
        if isinstance(fresh.state, Piecewise) and fresh.state.block not in self.blocks:
            fresh.state = True
            return None
        return fresh

    # -- operations ----------------------------------------------------------------------------------------------------
    def computed(self, nest: Nest, views: list[MemrefView]) -> None:
        """A nest runs on views: those of its inputs, then of its outputs."""
        inputs = len(nest.inputs)
        for k, view in enumerate(views):
            fresh = self.open(view.root)
            if fresh is None:
                continue
            number = nest.first_output + k - inputs
            reads = k < inputs or nest.uses(number) > 0 or any(v.root is view.root for v in views[:inputs])
            piece = piece_of(view, nest.operands[k], nest)
            if isinstance(fresh.state, Piecewise):
                fresh.zeroed = reads and piece != fresh.state.piece
            elif reads or nest.mask:
                fresh.zeroed = True
            else:
                self.wrote(fresh, view, piece)

    def performed(self, op: Op, views: list[MemrefView]) -> None:
        """A tile operation runs on views, those of its operands."""
        read = {name for name, _ in op.sources()}
        sources = [view.root for (field, _), view in zip(op.operands(), views) if field.name in read]
        for (_, tile), view in zip(op.operands(), views):
            fresh = self.open(view.root)
            if fresh is None:
                continue
            if view.root in sources or op.mask or not tile.layout.form.is_whole or fresh.state is not False:
                fresh.zeroed = True
            else:
                self.wrote(fresh, view, (Linear(), ((1, view.size),)))

    def loaded(self, view: MemrefView) -> None:
        fresh = self.open(view.root)
        if fresh is not None:
            fresh.zeroed = True

    def wrote(self, fresh: Fresh, view: MemrefView, piece: Piece) -> None:
        """The first operation on a buffer writes a piece of it."""
        offset, dims = piece
        inner = self.blocks[fresh.depth:]
        steps, start, symbols = list(dims), offset.const, dict(offset.symbols)
        for block in inner:
            if block.span is None:
                fresh.zeroed = True                     # it may not run
                return
            if factor := symbols.pop(block.slot, 0):
                steps.append((factor * block.span.step, len(block.span)))
                start += factor * block.span.start
        filled = 1
        for step, count in sorted(steps):
            if step == filled:
                filled *= count
        whole = not symbols and not start and filled == view.size
        fresh.zeroed = not whole
        by_loops = len(offset.symbols) > 0
        fresh.state = whole and (Piecewise(next(b for b in inner if b.slot in dict(offset.symbols)), piece)
                                 if by_loops else True)


def piece_of(view: MemrefView, operand: Operand, nest: Nest) -> Piece:
    """What an operand names: where in its memory, and (step, count) in bytes, smallest first."""
    item = operand.dtype.itemsize
    dims = [(stride * item, extent) for stride, extent in zip(operand.strides, nest.extents) if extent != 1 and stride]
    return view.offset, ((1, item), *sorted(dims))

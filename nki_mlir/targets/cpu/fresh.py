# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fresh buffers of a program: zeroed where it is not proved that all of one is written before any of it is read.

Their memory has what other buffers, calls and kernels left in it. A proof is the first operation on a buffer: it writes
all of it, alone or over the iterations of the loops around it, of which each has read no more than it has written.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.op import Op
from nki_mlir.targets.cpu.program import Assembly, ProgramLabel, RoutineCall
from nki_mlir.targets.cpu.storage import ScratchBuffer
from nki_mlir.targets.cpu.values import MemrefView
from nki_mlir.waist.nest import Nest, Operand

if TYPE_CHECKING:
    pass


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

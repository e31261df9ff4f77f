# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""zero-unwritten: zero each buffer if one of its elements may be read before it is written.

before:  t = allocate; add(t, x)        after:  t = allocate zeroed; add(t, x)

Uninitialized memory contains values of other buffers, calls and kernels. The pass zeroes each buffer for which it does
not prove one of two facts: the first operation writes the complete buffer, alone or over the iterations of the loops
around it, and no iteration reads an element before it is written; or the first operation writes a box, and all other
operations read only from this box.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.op import Op
from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.contraction import TileProduct
from nki_mlir.targets.cpu.forwarding import ByteBox
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.waist.nest import Nest, Operand
from nki_mlir.waist.overlap import ByteRegion


class ZeroUnwritten(FunctionPass, name="zero-unwritten"):
    def rewrite(self, function: NativeFunction) -> None:
        proof = WriteTracker()
        proof.block(function.body)
        for buffer, fresh in proof.buffers.items():
            buffer.zeroed |= fresh.zeroed


Piece = tuple[Linear, tuple[tuple[int, int], ...]]           # an offset in bytes, and a step and a count for each axis


@dataclass(eq=False, repr=False)
class OpenBlock:
    """A block whose end the pass has not reached. For the body of a loop with at least one iteration, ``slot`` is that
    of the loop's variable and ``span`` the variable's values."""

    slot: int = -1
    span: range | None = None


class Piecewise(NamedTuple):
    """A buffer that iterations write piece by piece: before the end of ``block``, only an iteration's piece is written;
    after it, the complete buffer."""

    block: OpenBlock
    piece: Piece


class PartlyWritten(NamedTuple):
    """A buffer of which a box has been written."""

    box: ByteBox


@dataclass(eq=False, repr=False)
class WriteState:
    """The facts about one buffer."""

    depth: int                          # the number of open blocks
    zeroed: bool = False
    state: Piecewise | PartlyWritten | bool = False


class WriteTracker:
    """Follows the operations on each buffer in the order of the program."""

    def __init__(self) -> None:
        self.blocks: list[OpenBlock] = []
        self.buffers: dict[cpu.ScratchBuffer, WriteState] = {}

    def block(self, *blocks: cpu.NativeBlock, opened: OpenBlock | None = None) -> None:
        """Handle blocks that run one after the other, as do the blocks of one node."""
        if opened is not None:
            self.blocks.append(opened)
        for block in blocks:
            for node in block.nodes:
                self.node(node)
        if opened is not None:
            self.blocks.pop()

    def node(self, node: cpu.Node) -> None:
        match node:
            case cpu.Allocate(buffer):
                self.buffers[buffer] = WriteState(len(self.blocks))
            case cpu.NestCall():
                self.computed(node.nest, node.regions, isinstance(node.function, TileProduct) and node.function.fresh)
            case cpu.NativeLoad():
                self.loaded(node.region)
            case cpu.TileCall():
                self.performed(node.op, node.regions)
            case cpu.NativeLoop():
                self.block(node.body, opened=OpenBlock(node.slot, node.span))
            case cpu.NativeWhile():
                self.block(node.test, node.body, opened=OpenBlock())
            case _:
                for inner in cpu.sub_blocks(node):
                    self.block(inner, opened=OpenBlock())

    def open(self, root: object) -> WriteState | None:
        """Return the state of a buffer if part of it may be unwritten."""
        fresh = self.buffers.get(root) if isinstance(root, cpu.ScratchBuffer) else None
        if fresh is None or fresh.zeroed or fresh.state is True:
            return None
        if isinstance(fresh.state, Piecewise) and fresh.state.block not in self.blocks:
            fresh.state = True
            return None
        return fresh

    # -- operations ----------------------------------------------------------------------------------------------------
    def computed(self, nest: Nest, views: Sequence[ByteRegion], is_fresh: bool) -> None:
        """Record that a nest runs on the views of its inputs, then of its outputs. With ``is_fresh``, its sums start
        from 0."""
        inputs = len(nest.inputs)
        for k, view in enumerate(views):
            fresh = self.open(view.root)
            if fresh is None:
                continue
            number = nest.first_output + k - inputs
            adds = nest.uses(number) > 0 and not is_fresh
            reads = k < inputs or adds or any(v.root is view.root for v in views[:inputs])
            piece = piece_of(view, nest.operands[k], nest)
            if isinstance(fresh.state, Piecewise):
                fresh.zeroed = reads and piece != fresh.state.piece
            elif isinstance(fresh.state, PartlyWritten):
                fresh.zeroed = reads and not fresh.state.box.contains(*piece)
            elif reads or nest.mask:
                fresh.zeroed = True
            else:
                self.wrote(fresh, view, piece)

    def performed(self, op: Op, views: Sequence[ByteRegion]) -> None:
        """Record that a tile operation runs on the views of its operands."""
        read = {name for name, _ in op.sources()}
        sources = [view.root for (field, _), view in zip(op.operands(), views) if field.name in read]
        for (_, tile), view in zip(op.operands(), views):
            fresh = self.open(view.root)
            if fresh is None:
                continue
            if view.root in sources or op.mask or not tile.layout.form.covers_buffer or fresh.state is not False:
                fresh.zeroed = True
            else:
                self.wrote(fresh, view, (Linear(), ((1, view.size),)))

    def loaded(self, view: ByteRegion) -> None:
        fresh = self.open(view.root)
        if fresh is not None:
            fresh.zeroed = True

    def wrote(self, fresh: WriteState, view: ByteRegion, piece: Piece) -> None:
        """Record that the first operation on a buffer writes a piece of it."""
        offset, dims = piece
        inner = self.blocks[fresh.depth:]
        steps, start, symbols = list(dims), offset.const, dict(offset.symbols)
        for block in inner:
            if block.span is None:
                fresh.zeroed = True                     # the operation may not run
                return
            if factor := symbols.pop(block.slot, 0):
                steps.append((factor * block.span.step, len(block.span)))
                start += factor * block.span.start
        filled = 1
        for step, count in sorted(steps):
            if step == filled:
                filled *= count
        fills_buffer = not symbols and not start and filled == view.size
        box = ByteBox.filled_by(offset, dims, view.size) if not fills_buffer else None
        if box is not None:
            fresh.state = PartlyWritten(box)
            return
        fresh.zeroed = not fills_buffer
        by_loops = len(offset.symbols) > 0
        fresh.state = fills_buffer and (Piecewise(next(b for b in inner if b.slot in dict(offset.symbols)), piece)
                                 if by_loops else True)


def piece_of(view: ByteRegion, operand: Operand, nest: Nest) -> Piece:
    """Return the bytes that an operand names: their offset in the memory, and (step, count) in bytes, smallest first.
    """
    item = operand.dtype.itemsize
    dims = [(stride * item, extent) for stride, extent in zip(operand.strides, nest.extents) if extent != 1 and stride]
    return view.offset, ((1, item), *sorted(dims))

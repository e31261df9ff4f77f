# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""store-rows: gather rows of a table directly to the buffer where they are stored.

before:  gather(index, table, tile); copy(tile, y + 4096 * i)
after:   gather(index, table, y + 4096 * i)

The copy must be the next operation and copy the complete tile, which nothing else uses, to an output that the kernel
does not read. Streaming stores may write such rows, too.
"""

from dataclasses import replace

from nki_mlir.targets.cpu.forwarding import move_of
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import Allocate, Compute, ScratchBuffer, TileCall, blocks
from nki_mlir.targets.cpu.routines import RowCopies
from nki_mlir.waist.nest import Operand
from nki_mlir.waist.recognize import is_copy


class StoreRows(FunctionPass, name="store-rows"):
    def rewrite(self, function: NativeFunction) -> None:
        pairs = [(block, k) for block in blocks(function.body) for k in reversed(range(len(block.nodes) - 1))
                 if isinstance(block.nodes[k], TileCall) and isinstance(block.nodes[k + 1], Compute)]
        users = function.users() if pairs else {}
        dropped = set[object]()
        for block, k in pairs:
            rows, copy = block.nodes[k:k + 2]
            assert isinstance(rows, TileCall) and isinstance(copy, Compute)
            if rows.piece is None or copy.regions[-1].root not in function.only_written:
                continue
            tile, stored = rows.piece.root, _stored(rows, copy)
            if stored is not None and isinstance(tile, ScratchBuffer) and len(users[tile]) == 2:
                block.nodes[k:k + 2] = [stored]
                dropped.add(tile)
        for block in blocks(function.body) if dropped else ():
            block.nodes[:] = [n for n in block.nodes if not (isinstance(n, Allocate) and n.buffer in dropped)]


def _stored(call: TileCall, copy: Compute) -> TileCall | None:
    """Return the call with its rows at the destination of the copy; None if it may skip rows, or if the copy has other
    elements."""
    rows, nest, piece = call.function, copy.nest, call.piece
    assert piece is not None
    if not isinstance(rows, RowCopies) or rows.skips or not rows.gathers:      # only scatters add to rows
        return None
    if not is_copy(nest) or copy.regions[0].root != piece.root or nest.elements != rows.count * rows.row.elements:
        return None
    target, = rows.row.outputs
    forwarded = move_of(copy).at_target(
        Operand(target.dtype, (rows.piece_step, *target.strides)), piece.offset, (rows.count, *rows.row.extents))
    if forwarded is None or nest.outputs[0].dtype is not target.dtype:
        return None
    (step, *steps), offset = forwarded[0].strides, forwarded[1]
    rows_stored = replace(rows, piece_step=step, row=replace(rows.row, outputs=(Operand(target.dtype, tuple(steps)),)))
    rows_stored = replace(rows_stored, streams=copy.streams and rows_stored.can_stream)
    index, table, _, *further = call.arguments
    piece = replace(copy.regions[1], offset=offset)
    regions = [copy.regions[1] if region.root is call.piece.root else region for region in call.regions]    # type: ignore
    arguments = (index, table, piece.address, *further)
    return replace(call, function=rows_stored, arguments=arguments, regions=regions, piece=piece)

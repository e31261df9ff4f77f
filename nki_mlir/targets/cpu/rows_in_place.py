# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of a table that are gathered only to be stored: they are written where they are stored.

before:  gather(index, table, tile); copy(tile, y + 4096 * i)
after:   gather(index, table, y + 4096 * i)

That is so where the copy follows at once and takes all of the tile, which nothing else uses, to an output that the
kernel does not read. Such rows may go past the caches, too.
"""

from collections.abc import Mapping
from dataclasses import replace

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu.loop_products import PlacedNest, through
from nki_mlir.targets.cpu.loops import does_stream
from nki_mlir.targets.cpu.program import BUFFERS, Assembly, RoutineCall, ScratchBuffer
from nki_mlir.targets.cpu.routines import RowCopies
from nki_mlir.targets.cpu.row_chunks import TileComputation
from nki_mlir.targets.cpu.values import MemrefView
from nki_mlir.waist.nest import Operand


def store_rows_in_place(code: Assembly, pieces: Mapping[int, MemrefView], computations: Mapping[int, TileComputation],
                        only_written: set[str]) -> None:
    """Rewrites the program. ``pieces`` has where the rows of a call are put, ``computations`` the nests, by ``id``."""
    users: dict[ScratchBuffer, int] = {}
    for call in code.instructions:
        slots = {slot for form in call.arguments if isinstance(form, Linear) for slot, _ in form.symbols}
        for slot in slots:
            if slot >= BUFFERS:
                buffer = code.buffers[slot - BUFFERS][0]
                users[buffer] = users.get(buffer, 0) + 1
    for k in reversed(range(len(code.items) - 1)):
        rows, following = code.items[k:k + 2]
        if not (isinstance(rows, RoutineCall) and isinstance(following, RoutineCall)):
            continue
        piece, copy = pieces.get(id(rows)), computations.get(id(following))
        if piece is None or copy is None or copy.views[-1].root not in only_written:
            continue
        stored = _stored(rows, piece, copy, does_stream(following.function))
        if stored is not None and isinstance(piece.root, ScratchBuffer) and users[piece.root] == 2:
            code.items[k:k + 2] = [stored]
            piece.root.size = 0


def _stored(call: RoutineCall, piece: MemrefView, copy: TileComputation, streams: bool) -> RoutineCall | None:
    """The call with its rows where the copy puts them; None where the copy is another one, or more."""
    rows, nest = call.function, copy.nest
    if not isinstance(rows, RowCopies) or rows.skips or not rows.gathers or rows.row.uses(rows.row.first_output):
        return None
    placed = PlacedNest(nest, tuple([view.root for view in copy.views]), tuple([v.offset for v in copy.views]), False)
    if not placed.is_copy or placed.reads != (piece.root,) or nest.elements != rows.count * rows.row.elements:
        return None
    target, = rows.row.outputs
    found = through(placed, 0, Operand(target.dtype, (rows.piece_step, *target.strides)), piece.offset,
                    (rows.count, *rows.row.extents))
    if found is None or nest.outputs[0].dtype is not target.dtype:
        return None
    (step, *steps), offset = found[0].strides, found[1]
    made = replace(rows, piece_step=step, row=replace(rows.row, outputs=(Operand(target.dtype, tuple(steps)),)))
    made = replace(made, streams=streams and made.can_stream)
    index, table, _, *rest = call.arguments
    return RoutineCall(made, (index, table, replace(copy.views[1], offset=offset).address, *rest))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints operations on a part of their tiles: rows where no engine can start, and elements that are not boxes.

Rows move to a new tile and back. Under a mask that does not select a box of elements the operation writes a new tile,
and ``tensor_copy_predicated`` copies the elements that the mask selects.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeGuard

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import HBM, PSUM, SBUF, Linear, Tile, same_elements
from nki_mlir.dialects.nisa.elementwise import AffineSelectOp
from nki_mlir.dialects.nisa.microscaling import NcMatmulMxOp
from nki_mlir.dialects.nisa.movement import TensorCopyOp
from nki_mlir.dialects.nki.elementwise import SelectOp
from nki_mlir.dialects.nki.matmul import MatrixProduct
from nki_mlir.dialects.nki.movement import Copying, CopyOp, MemsetOp
from nki_mlir.dialects.op import Op, TileField, changed
from nki_mlir.dialects.scalar_body import Elementwise
from nki_mlir.dialects.target_rules import rows_around, starts_legally
from nki_mlir.dialects.verification import verify
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.implicit_sums import IMPLICIT
from nki_mlir.printing.kernel_text import KernelText
from nki_mlir.scalar.dtypes import FLOAT32, UINT8, DType
from nki_mlir.targets.neuron.codegen.forward_transfers import is_backwards, rows_of, with_target_forwards

Write = Callable[[KernelText, Op], None]


def call(text: KernelText, op: Op, function: str, target: Tile, source: Tile) -> None:
    """Write a call with a destination and a source."""
    text.write(f"nisa.{function}(dst={text.tile(op, target)}, src={text.tile(op, source)})")


@contextmanager
def on_legal_tiles(text: KernelText, op: Op) -> Iterator[Op]:
    """Yield the operation on tiles that start where engines can; copy other rows to such tiles before, and back after
    if anything reads them."""
    operands = [(f, t) for f, t in op.operands() if t.handle not in text.registers]
    moved = [(f, t) for f, t in operands
             if t.on_chip and not starts_legally(text.machine, t, op.offsets.get(f.name, (0,)))]
    if not moved:
        yield op
        return
    staged: dict[str, Tile] = {}
    copies: list[tuple[Tile, Tile]] = []            # (tile that is read, copy): two operands of one tile share a copy
    for field, tile in moved:
        copy = next((copy for read, copy in copies if not field.writes and same_elements(read, tile)), None)
        staged[field.name] = copy = copy if copy is not None else _staged(text, op, field, tile)
        if not field.writes:
            copies.append((tile, copy))
    yield _with_implicit_sum(text, changed(op, lambda tile: tile, **staged), staged)
    for field, tile in moved:
        if field.writes and tile.handle not in text.unread:
            put_rows(text, op, tile, staged[field.name])


def _with_implicit_sum(text: KernelText, op: Op, staged: Mapping[str, Tile]) -> Op:
    """Return the operation, marked as an implicit sum if it is a product that begins one in a new tile."""
    is_implied = isinstance(op, MatrixProduct | NcMatmulMxOp) and "dst" in staged and not (
        op.accumulate or text.beta or text.placement is not None)
    return changed(op, lambda tile: tile, extra=op.extra | {IMPLICIT: True}) if is_implied else op


def _staged(text: KernelText, op: Op, field: TileField, tile: Tile) -> Tile:
    """Return a tile that begins at partition 0 and has the elements that the operation reads."""
    space = SBUF
    if tile.space == PSUM:
        inside = tile.patterned(partition=Linear(0))
        space = SBUF if _allows(op, field, replace(inside, space=SBUF)) else PSUM
    # The value that a selection copies first is staged as it will be in the result: the optimizer transfers it there.
    selection = op if isinstance(op, SelectOp) and field.name == "on_false" else None
    complete = field.writes or selection is not None
    unrepeated = tile if complete else without_repeats(tile)
    converts = selection is not None and (selection.dst.dtype is FLOAT32 or all(
        _in_float32(value.dtype) for value in (selection.on_true, tile)))
    dtype = selection.dst.dtype if selection is not None and converts else tile.dtype

    def staged() -> Tile:
        before = tile.handle if tile.handle not in text.unread else None
        copy = text.temporary(unrepeated.shape, dtype, space, before=before)
        if op.reads(field.name):
            take_rows(text, op, copy, unrepeated)
        return copy
    copy = staged() if complete or space == PSUM else text.staged_before_loops(unrepeated, dtype, staged)
    return copy if complete else repeated_as(copy, tile)


def _in_float32(dtype: DType) -> bool:
    """Return whether float32 has all values of a dtype: a selection in float32 then rounds them once, as a transfer."""
    return dtype.is_float or dtype.bits <= 16


def without_repeats(tile: Tile) -> Tile:
    """Return the tile with one element along each free axis that repeats elements."""
    rows, *free = tile.access.dims
    return tile.patterned(dims=(rows, *((step, count if step else 1) for step, count in free)))


def repeated_as(copy: Tile, tile: Tile) -> Tile:
    """Return a copy of ``without_repeats`` of a tile with the tile's repeats."""
    rows, *free = copy.access.dims
    repeated = [(step if old else 0, count) for (step, _), (old, count) in zip(free, tile.access.dims[1:])]
    return copy.patterned(dims=(rows, *repeated))


def _allows(op: Op, field: TileField, tile: Tile) -> bool:
    try:
        verify(changed(op, lambda tile: tile, **{field.name: tile}, mask=(), limits=()))
    except NkiMlirError:
        return False
    return True


def take_rows(text: KernelText, op: Op, copy: Tile, tile: Tile) -> None:
    """Write ``copy`` = rows of a tile from any partition. Transfers reach them in SBUF only."""
    source = rows_for_transfer(text, op, tile)
    if copy.space == PSUM:
        staging = text.temporary(copy.shape, copy.dtype, SBUF)
        call(text, op, "dma_copy", staging, source)
        call(text, op, "tensor_copy", copy, staging)
    else:
        call(text, op, "dma_copy", copy, source)


def rows_for_transfer(text: KernelText, op: Op, tile: Tile) -> Tile:
    """Return rows from any partition where a transfer reads them: those of the tile, or of a copy from a legal start.
    """
    if tile.space != PSUM and not is_backwards(tile):
        return tile
    around, rows = _aligned_tile(text, tile)
    staging = text.temporary(around.shape, tile.dtype, SBUF)
    call(text, op, "tensor_copy", staging, around)
    return rows_of(staging, rows)


def copy_rows(text: KernelText, op: Copying) -> None:
    """Write a copy within SBUF of rows from or to any partition: a transfer, and before it a copy that reverses
    elements if one of the tiles steps backwards."""
    op = with_target_forwards(op)
    take_rows(text, op, op.dst, op.src)


def put_rows(text: KernelText, op: Op, tile: Tile, copy: Tile) -> None:
    """Write rows of a tile from any partition = ``copy``."""
    if copy.space == PSUM:
        staging = text.temporary(copy.shape, copy.dtype, SBUF)
        call(text, op, "tensor_copy", staging, copy)
        copy = staging
    if tile.space != PSUM and not is_backwards(tile):
        call(text, op, "dma_copy", tile, copy)
        return
    around, rows = _aligned_tile(text, tile)
    staging = text.temporary(around.shape, tile.dtype, SBUF)
    call(text, op, "tensor_copy", staging, around)
    call(text, op, "dma_copy", rows_of(staging, rows), copy)
    call(text, op, "tensor_copy", around, staging)


def _aligned_tile(text: KernelText, tile: Tile) -> tuple[Tile, range]:
    """Return a tile that starts where engines can and contains the rows of another tile, and the indices of these
    rows."""
    around = rows_around(text.machine, tile)
    if around is None:
        raise Unprintable(what="a part of PSUM whose first partition depends on a loop variable, where no engine can "
                               "start",
                          fix="let the loop step by 32 partitions")
    return around


def can_select(op: Op) -> TypeGuard[Elementwise]:
    """Return whether an operation may compute elements that its mask excludes, so that a predicated copy stores the
    others."""
    if not isinstance(op, Elementwise) or len(op.targets()) != 1 or any(f.writes and f.reads for f, _ in op.operands()):
        return False
    if op.iteration().axes["dst"] != tuple(range(len(op.dst.shape))) or not op.is_loop_nest:
        return False
    try:
        verify(changed(op, lambda tile: tile, mask=(), limits=()))
    except NkiMlirError:
        return False                        # elements that are left out are outside of a tensor
    return True


def write_selected(text: KernelText, op: Elementwise, write: Write) -> None:
    """Write an operation under a mask that does not select a box of elements.

    If nothing has written the tile, nothing reads the elements that the mask leaves out: the operation computes all.
    """
    target: Tile = op.dst
    if target.on_chip and target.handle in text.waiting and target.handle not in text.zeroed:
        write(text, changed(op, lambda tile: tile, mask=(), limits=()))
        return
    text.emit_allocations(target.handle)
    if _is_selected(op, text):
        computed = op.src
    else:
        computed = text.temporary(target.shape, target.dtype, SBUF, name="computed")
        write(text, changed(op, lambda tile: tile, dst=computed, mask=(), limits=()))
    chosen = _mask_tile(text, op, write)
    onto = target
    moved = target.space == HBM or not starts_legally(text.machine, target)
    if moved:
        onto = text.temporary(target.shape, target.dtype, SBUF)
        take_rows(text, op, onto, target)
    text.write(f"nisa.tensor_copy_predicated(dst={text.tile(op, onto)}, src={text.tile(op, computed)}, "
               f"predicate={text.tile(op, chosen)})")
    if moved:
        put_rows(text, op, target, onto)


def _is_selected(op: Elementwise, text: KernelText) -> TypeGuard[Copying]:
    """Return whether an operation copies elements that the predicated copy can read directly."""
    if not isinstance(op, CopyOp | TensorCopyOp):
        return False
    source, target = op.src, op.dst
    apart = source.handle != target.handle or same_elements(source, target)
    same_type = source.shape == target.shape and source.dtype is target.dtype and apart
    return same_type and source.space == SBUF and starts_legally(text.machine, source) and (
        source.access.dims[0][0] == 1 or source.shape[0] == 1)


def _mask_tile(text: KernelText, op: Elementwise, write: Write) -> Tile:
    """Return a tile that is 1 where all constraints of the mask hold, else 0."""
    flags = text.temporary(op.dst.shape, UINT8, SBUF, name="flags")
    write(text, MemsetOp(dst=flags, value=1.0))
    for constraint in op.mask:
        write(text, AffineSelectOp(dst=flags, src=flags, predicate=constraint.form, equal=constraint.equal, value=0.0,
                                   symbols=op.symbols, ranges=op.ranges))
    return flags

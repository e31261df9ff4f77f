# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on a part of their tiles: rows where no engine begins, and elements that are no box.

Rows move to a tile of their own and back. Under a mask that is no box the operation writes a tile of its own, of which
``tensor_copy_predicated`` takes the elements that the mask has.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeGuard

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import HBM, PSUM, SBUF, Constraint, Tile
from nki_mlir.dialects.nki.movement import IotaOp
from nki_mlir.dialects.op import Elementwise, Op, TileField, changed
from nki_mlir.dialects.target_rules import starts_legally
from nki_mlir.dialects.verifier import verify
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.kernel_text import KernelText
from nki_mlir.scalar.dtypes import INT32, UINT8

Write = Callable[[KernelText, Op], None]


def call(text: KernelText, op: Op, function: str, target: Tile, source: Tile) -> None:
    """A call with a destination and a source."""
    read = text.tile(op, source)
    text.write(f"nisa.{function}(dst={text.tile(op, target)}, src={read})")


def is_backwards(tile: Tile) -> bool:
    """Whether a pattern has a negative step, which no transfer has."""
    return any(step < 0 for step, _ in tile.access.dims)


@contextmanager
def placed(text: KernelText, op: Op) -> Iterator[Op]:
    """The operation on tiles that begin where engines do; rows that do not are copied to such tiles, and back."""
    operands = [(f, t) for f, t in op.operands() if t.handle not in text.registers]
    moved = [(f, t) for f, t in operands
             if t.on_chip and not starts_legally(text.machine, t, op.offsets.get(f.name, (0,)))]
    if not moved:
        yield op
        return
    staged = {f.name: _staged(text, op, f, t) for f, t in moved}
    yield changed(op, lambda tile: tile, **staged)
    for field, tile in moved:
        if field.writes:
            call(text, op, "dma_copy", tile, staged[field.name])


def _staged(text: KernelText, op: Op, field: TileField, tile: Tile) -> Tile:
    """A tile from partition 0 on with the elements that the operation reads."""
    if tile.space == PSUM or is_backwards(tile):
        raise Unprintable(what="a part of a tile that begins where no engine does and that no transfer reaches",
                          fix="begin the part at a partition that is a multiple of 32")
    text.use(tile.handle)
    copy = text.temporary(tile.shape, tile.dtype, SBUF)
    if field.reads:
        call(text, op, "dma_copy", copy, tile)
    return copy


def can_select(op: Op) -> TypeGuard[Elementwise]:
    """Whether an operation may compute elements that its mask leaves out, and write those that it has."""
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
    """An operation under a mask that is no box."""
    target: Tile = op.dst
    text.use(target.handle)
    computed = text.temporary(target.shape, target.dtype, SBUF)
    write(text, changed(op, lambda tile: tile, dst=computed, mask=(), limits=()))
    chosen = _mask_tile(text, op, write)
    onto = target
    if target.space == HBM or not starts_legally(text.machine, target):
        if target.space == PSUM or is_backwards(target):
            raise Unprintable(what="an operation under a mask on a part of a tile that no transfer reaches",
                              fix="begin the part at a partition that is a multiple of 32")
        onto = text.temporary(target.shape, target.dtype, SBUF)
        call(text, op, "dma_copy", onto, target)
    text.write(f"nisa.tensor_copy_predicated(dst={text.tile(op, onto)}, src={text.tile(op, computed)}, "
               f"predicate={text.tile(op, chosen)})")
    if onto is not target:
        call(text, op, "dma_copy", target, onto)


def _mask_tile(text: KernelText, op: Elementwise, write: Write) -> Tile:
    """1 where all constraints of the mask hold, else 0."""
    chosen: Tile | None = None
    for constraint in op.mask:
        flags = _constraint_tile(text, op, constraint, write)
        if chosen is not None:
            text.write(f"nisa.tensor_tensor(dst={text.tile(op, flags)}, data1={text.tile(op, chosen)}, "
                       f"data2={text.tile(op, flags)}, op=nl.logical_and)")
        chosen = flags
    assert chosen is not None
    return chosen


def _constraint_tile(text: KernelText, op: Elementwise, constraint: Constraint, write: Write) -> Tile:
    counts = text.temporary(op.dst.shape, INT32, SBUF)
    write(text, IotaOp(dst=counts, expression=constraint.form, symbols=op.symbols, ranges=op.ranges))
    flags = text.temporary(op.dst.shape, UINT8, SBUF)
    comparison = "equal" if constraint.equal else "greater_equal"
    text.write(f"nisa.tensor_scalar(dst={text.tile(op, flags)}, data={text.tile(op, counts)}, op0=nl.{comparison}, "
               "operand0=0.0)")
    return flags

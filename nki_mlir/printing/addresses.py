# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints copies whose addresses have a run-time part, which is in a register or a tile of indices.

An address is ``start + sum(steps[k] * position[k]) + scale * index`` with an index below ``extent``. Where a dimension
of the tensor has that scale and extent, it is an access pattern with ``scalar_offset`` or ``vector_offset``; otherwise
one with a dimension for the index, which is subscripted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from nki_mlir.dialects.access import PSUM, SBUF, Linear, Tile, dense, joined_dims
from nki_mlir.dialects.nisa.dynamic_access import OnChip, PatternAddressed, RunTimeIndexed
from nki_mlir.dialects.nisa.indirect import DataAddressed, RowAddressed
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.target_rules import starts_legally
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.kernel_text import KernelText
from nki_mlir.printing.masked import call
from nki_mlir.printing.tile_text import dtype_text, offset_text
from nki_mlir.scalar.dtypes import INT32, UINT32
from nki_mlir.targets.neuron.codegen.forward_transfers import is_backwards

FLOAT_INTEGERS = 1 << 24         # float32 has all integers below this


@dataclass(frozen=True)
class RunTimeAddress:
    """``steps`` and ``start`` count elements of the tensor; on chip axis 0 steps from partition to partition."""

    table: Tile
    start: Linear
    steps: Sequence[int]
    counts: Sequence[int]
    index: Tile
    scale: int
    extent: int

    @property
    def single(self) -> bool:
        """Return whether one index moves all elements, instead of an index for each row."""
        return prod(self.index.shape) == 1

    def text(self, text: KernelText, op: Op) -> str:
        text.emit_allocations(self.table.handle)
        tensor = text.tensors[self.table.handle]
        name, base = tensor.name, list(self.table.base_shape)
        if self.table.dtype is not self.table.base_dtype:
            name = f"{name}.view({dtype_text(self.table.dtype)})"
            base[-1] = base[-1] * self.table.base_dtype.itemsize // self.table.dtype.itemsize
        index = text.tile(op, self.index)
        pattern = [[step if count > 1 else 1, count] for step, count in zip(self.steps, self.counts)]
        if self.table.on_chip:
            pattern[0][0] = self.steps[0]
        offset = offset_text(text.indices.form(self.start, op.symbols))
        rows, columns = [self.scale, self.extent], ", ".join(":" for _ in pattern[1:])
        if not self.single:
            pattern[0][0] = self.scale
            if not self.table.on_chip and [prod(base[1:]), base[0]] == rows:
                return f"{name}.ap({pattern}{offset}, vector_offset={index})"
            return f"{name}.ap({[rows, *pattern[1:]]}{offset})[{index}, {columns}]"
        for dim, extent in enumerate(base):
            if [prod(base[dim + 1:]), extent] == rows:
                return f"{name}.ap({pattern}{offset}, scalar_offset={index}, indirect_dim={dim})"
        if self.table.on_chip and self.scale == prod(base[1:]):         # partitions
            rows[1] += self.counts[0] - 1
            return f"{name}.ap({[rows, *pattern[1:]]}{offset})[nl.ds({index}, {self.counts[0]}), {columns}]"
        return f"{name}.ap({[*pattern, rows]}{offset})[:, {columns}, {index}]"


def write_run_time_copy(text: KernelText, op: DataAddressed) -> None:
    """Write a copy between a tile and elements that data choose in another one."""
    address = address_of(text, op)
    piece, is_read = op.piece, op.piece_field == "dst"
    copied = piece
    if piece.space == PSUM or is_backwards(piece):
        text.emit_allocations(piece.handle)
        copied = text.temporary(piece.shape, piece.dtype, SBUF)
        if not is_read:
            call(text, op, "tensor_copy", copied, piece)
    shown, address_text = text.tile(op, copied, exact=True), address.text(text, op)
    target, source = (shown, address_text) if is_read else (address_text, shown)
    if address.table.space == PSUM or _is_copied_by_engine(text, op, address):
        engine = "" if op.engine == "unknown" else f", engine=nisa.engine.{op.engine}"
        text.write(f"nisa.tensor_copy(dst={target}, src={source}{engine})")
    elif op.rmw == "add":
        text.write(f"nisa.dma_compute(dst={address_text}, srcs=[{address_text}, {shown}], reduce_op=nl.add{_mode(op)})")
    elif op.rmw != "bypass":
        raise Unprintable(what=f"a transfer that combines by '{op.rmw}'", fix="read, combine and write the elements")
    else:
        text.write(f"nisa.dma_copy(dst={target}, src={source}{_mode(op)})")
    if is_read and copied is not piece:
        call(text, op, "tensor_copy", piece, copied)


def _is_copied_by_engine(text: KernelText, op: DataAddressed, address: RunTimeAddress) -> bool:
    """Return whether an engine copies within SBUF at one position for all partitions, as ``nisa.tensor_copy`` does."""
    return isinstance(op, PatternAddressed | OnChip) and op.table.on_chip and op.mode == "error" and (
        op.rmw == "bypass" and address.single and op.table.dtype is op.piece.dtype
        and all(starts_legally(text.machine, tile) for tile in (op.table, op.piece)))


def _mode(op: DataAddressed) -> str:
    return ", oob_mode=nisa.oob_mode.skip" if op.mode == "skip" else ""


def address_of(text: KernelText, op: DataAddressed) -> RunTimeAddress:
    """Return the address of the elements of the piece in the table's tensor."""
    table, counts = op.table, op.piece.shape
    match op:
        case PatternAddressed():
            steps, scale, extent = list(op.steps), op.scale, op.extent
            start, index = Linear(op.start), op.index
        case RowAddressed():
            # The only index of a table with one row is 0, and the language indexes no dimension with step 0.
            start, scale, extent, index = Linear(), table.strides[0] or 1, table.shape[0], op.index
            steps = [scale, *table.strides[1:]]
        case RunTimeIndexed():
            start, steps, scale, extent, index = _indexed(text, op)
        case _:
            raise Unprintable(what=f"'{op.full_name()}'", fix="write this part of the kernel by hand")
    if isinstance(op, PatternAddressed | OnChip) and table.on_chip:
        steps[0] = table.row
    return RunTimeAddress(table, start.plus(table.offset), steps, counts, index, scale, extent)


def _indexed(text: KernelText, op: RunTimeIndexed) -> tuple[Linear, list[int], int, int, Tile]:
    """Return an index below an extent to which positions of the piece are added: (start, steps, scale, extent, index).
    """
    counts = op.piece.shape
    if len(op.scales) != 1:
        raise Unprintable(what="a tile with two dimensions that are indexed at run time",
                          fix="compute one index of both")
    extent, (low, high) = op.extents[0], op.first.interval(op.ranges, counts)
    if (in_tensor := _in_tensor(op, (-low, extent - 1 - high))) is None:
        raise Unprintable(what="a part of a tile that is indexed at run time", fix="index the complete tile")
    position, scale = in_tensor
    index = op.offset
    if low != high and op.mode == "skip":
        raise Unprintable(what="a transfer that skips some elements of a row", fix="give each row its own index")
    if index.dtype is UINT32:
        low = min(low, 0)                       # no index is negative: those of later elements alone bound it
    if low:                                     # the least index is the first element's
        shown, index = text.tile(op, index), text.temporary(index.shape, index.dtype, SBUF, name="moved")
        text.write(f"nisa.tensor_scalar(dst={text.tile(op, index)}, data={shown}, op0=nl.add, "
                   f"operand0={float(low)})")
    steps = [dict(position.axes).get(axis, 0) for axis in range(len(counts))]
    start = replace(position, axes=()).plus(Linear(-scale * low))
    if steps[0] and counts[0] > 1 and prod(index.shape) > 1 and not isinstance(op, OnChip):
        least = min(0, steps[0] * (counts[0] - 1))
        greatest = scale * (extent - (high - low) - 1) + abs(steps[0]) * (counts[0] - 1)
        unit = gcd(scale, steps[0])            # the new index counts pieces of this many elements
        position = Linear(-least // unit, axes=((0, steps[0] // unit),))
        index = _piece_index(text, op, index, scale // unit, position, greatest // unit)
        return start.plus(Linear(least)), [unit, *steps[1:]], unit, greatest // unit + 1, index
    return start, steps, scale, extent - (high - low), index


def _piece_index(text: KernelText, op: Op, index: Tile, scale: int, position: Linear, greatest: int) -> Tile:
    """Write the sum of each row's index, in pieces of a table, and of a position that moves from row to row."""
    if greatest >= FLOAT_INTEGERS:
        raise Unprintable(what="row indices in addition to a start that differs from row to row, in a large tensor",
                          fix="add both in the tile of indices")
    added, piece = (text.temporary(index.shape, INT32, SBUF, name=name) for name in ("rows", "pieces"))
    step = dict(position.axes)[0]
    text.write(f"nisa.iota(dst={text.tile(op, added)}, pattern=[[0, 1]], offset={position.const}, "
               f"channel_multiplier={step})")
    text.write(f"nisa.scalar_tensor_tensor(dst={text.tile(op, piece)}, data={text.tile(op, index)}, op0=nl.multiply, "
               f"operand0={float(scale)}, op1=nl.add, operand1={text.tile(op, added)})")
    return piece


def _in_tensor(op: RunTimeIndexed, index: tuple[int, int]) -> tuple[Linear, int] | None:
    """Return the position of an element and the scale of the index, which count the elements of the table row by row,
    in elements of its tensor. ``index``: the least and the greatest index. None if the rows of a table on chip are not
    contiguous, or if an element's row follows only from the number at run time."""
    table, first, symbol = op.table, int(isinstance(op, OnChip)), len(op.symbols)
    if table.on_chip and not first and prod(table.shape[1:]) != table.row:
        return None
    dims = joined_dims(zip(table.strides[first:], table.shape[first:])) or ((1, 1),)
    ranges = (*op.ranges, index)
    remaining, total = op.position.plus(Linear(symbols=((symbol, op.scales[0]),))), Linear()
    for (stride, _), unit in zip(dims, dense([count for _, count in dims])):
        along = Linear(remaining.const // unit, *(tuple((key, int(c / unit)) for key, c in terms)
                                                  for terms in (remaining.symbols, remaining.axes)))
        remaining, total = remaining.plus(along, -unit), total.plus(along, stride)
        low, high = remaining.interval(ranges, op.piece.shape)
        if low < 0 or high >= unit:
            return None
    return total.substitute(symbol, 0), dict(total.symbols).get(symbol, 0)

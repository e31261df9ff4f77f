# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites a graph's transfers at an address that depends on a loaded number: they read the number from its tile, as
the transfers of the language do, instead of a register.

before:  %n = memref.load %t; %i = arith.minsi(arith.maxsi(%n, 0), 48); nisa.dma_copy %out = %x[32 * %i, 0:512]
after:   nisa.tensor_scalar %c = %t {maximum 0, minimum 48}; nisa.dynamic_read %out = %x, %c {scale = 32, ...}
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from nki_mlir.analysis.effects import defining, users_through_views
from nki_mlir.analysis.index_values import constant_of
from nki_mlir.analysis.mask_boxes import with_used_symbols
from nki_mlir.bindings import Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.access import HBM, SBUF, ZERO, Access, Tile, full_tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.buffer_types import memref_parts
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op, write_op
from nki_mlir.dialects.nisa.dynamic_access import DynamicReadOp, DynamicWriteOp
from nki_mlir.dialects.nisa.elementwise import ScalarTensorTensorOp, TensorScalarOp
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.op import NisaOp, Op
from nki_mlir.printing.addresses import FLOAT_INTEGERS
from nki_mlir.printing.new_tiles import new_tile
from nki_mlir.scalar.dtypes import INT32

EXTREMES = {"arith.maxsi": "maximum", "arith.minsi": "minimum"}
NUMBER = (1, 1), INT32, SBUF    # the tile of a loaded number: its shape, dtype and memory


class LoadedNumber(NamedTuple):
    """A number that is loaded from a tile, and the extremes with constants that bound it, the first one first."""

    tile: Value
    bounds: tuple[tuple[str, int], ...] = ()

    @property
    def greatest(self) -> int:
        """The greatest number, at least ``FLOAT_INTEGERS`` if no constant bounds it from both sides."""
        bounds = dict(self.bounds)
        return bounds["minimum"] if len(bounds) == 2 and bounds["maximum"] >= 0 else FLOAT_INTEGERS


def read_numbers_from_tiles(module: Module) -> None:
    """Rewrite the transfers, in place. Transfers of other forms stay."""
    make = Attributes()
    for operation in operations_of(module, lambda name: name == DmaCopyOp.full_name()):
        op = read_op(operation)
        assert isinstance(op, DmaCopyOp)
        numbers = {k: n for k, v in enumerate(op.symbols) if (n := loaded_number(v)) is not None}
        moved = [field for field in ("dst", "src") if numbers.keys() & _symbols(getattr(op, field))]
        if len(moved) != 1 or op.mask or op.limits:
            continue
        table: Tile = getattr(op, moved[0])
        rewritten = _rewritten(op, moved[0], table, numbers, operation)
        if rewritten is not None:
            write_op(with_used_symbols(rewritten), make, operation.location, ir.InsertionPoint(operation))
            operation.erase()


def loaded_number(value: Value) -> LoadedNumber | None:
    """Return the loaded number that an index value is, or None for other values. No operation writes its tile after the
    load, so that later operations may read it there."""
    op = defining(value)
    if op is None:
        return None
    match op.name:
        case "memref.load" if memref_parts(op.operands[0].type) == NUMBER and keeps_number(op):
            return LoadedNumber(op.operands[0])
        case "arith.index_cast":
            return loaded_number(op.operands[0])
        case "arith.maxsi" | "arith.minsi":
            for inner, bound in (tuple(op.operands), tuple(op.operands)[::-1]):
                constant, number = constant_of(bound), loaded_number(inner)
                if constant is not None and number is not None:
                    return LoadedNumber(number.tile, (*number.bounds, (EXTREMES[op.name], constant)))
    return None


def keeps_number(load: Operation) -> bool:
    """Return whether the tile of a loaded number has only one writer, before the load in the same block."""
    tile = load.operands[0]
    writers = [user for user in users_through_views(tile) if user.name != "memref.load" and not (
        is_tile_op(user) and all(t.handle != tile for _, t in read_op(user).targets()))]
    return len(writers) == 1 and writers[0].block == load.block and writers[0].is_before_in_block(load)


def _symbols(tile: Tile) -> set[int]:
    starts = (tile.access.free, tile.access.partition or ZERO)
    return {position for start in starts for position, _ in start.symbols}


def _rewritten(op: DmaCopyOp, field: str, table: Tile, numbers: Mapping[int, LoadedNumber], before: Operation
               ) -> Op | None:
    """Return the transfer that reads its number from a tile, or None if no such transfer has the same address."""
    dims: Sequence[tuple[int, int]] = table.access.dims
    piece = op.src if field == "dst" else op.dst
    if table.space != HBM or table.dtype is not table.base_dtype or piece.shape != table.shape:
        return None
    if not numbers.keys() >= {position for position, _ in table.access.free.symbols}:
        return None
    emitter = _Indices(before)
    index = emitter.index(table, [(numbers[position], scale) for position, scale in table.access.free.symbols])
    if index is None:
        return None
    rows = _in_rows(piece, table, index.scale)
    if rows is not None:
        piece, dims = rows
    complete = replace(table, access=Access(table.dtype, None, ZERO, ((0, 1), (1, prod(table.base_shape)))))
    fields: dict[str, Any] = dict(
        index=index.tile, start=table.access.free.const, steps=tuple(step for step, _ in dims), scale=index.scale,
        extent=index.extent, ranges=op.ranges, symbols=op.symbols)
    if field == "src":
        return DynamicReadOp(dst=piece, src=complete, **fields)
    return DynamicWriteOp(dst=complete, src=piece, **fields)


class RowIndex(NamedTuple):
    """A tile with one number below ``extent``, which moves an address by ``scale`` elements for each 1."""

    tile: Tile
    scale: int
    extent: int


class _Indices:
    """Emits the tiles of indices before an operation."""

    def __init__(self, before: Operation) -> None:
        self.before, self.make = before, Attributes()

    def index(self, table: Tile, numbers: Sequence[tuple[LoadedNumber, int]]) -> RowIndex | None:
        """Return the index that moves an address by the sum of one or two numbers with their scales. Return None if
        float32 may round it, or if no dimension of the table has its scale."""
        if len(numbers) == 1:
            (number, scale), = numbers
            dim = next((d for d in range(len(table.base_shape)) if prod(table.base_shape[d + 1:]) == scale), None)
            tile = self.bounded(number) if dim is not None else None
            return RowIndex(tile, scale, table.base_shape[dim]) if tile is not None and dim is not None else None
        (outer, large), (inner, scale) = sorted(numbers, key=lambda each: -each[1])
        greatest = outer.greatest * (large // scale) + inner.greatest if scale > 0 else FLOAT_INTEGERS
        if len(numbers) > 2 or large % scale or greatest >= FLOAT_INTEGERS:
            return None
        first, second = self.bounded(outer), self.bounded(inner)
        if first is None or second is None:
            return None
        total = self.emit(ScalarTensorTensorOp, src=first, operand0=None, rhs=second, op0="multiply",
                          imm0=float(large // scale), op1="add", engine="vector")
        return RowIndex(total, scale, greatest + 1)

    def bounded(self, number: LoadedNumber) -> Tile | None:
        """Return the tile of a number between its bounds, or None if float32 may round the number."""
        loaded = full_tile(number.tile, *NUMBER)
        if not number.bounds:
            return loaded
        if {fn for fn, _ in number.bounds} != set(EXTREMES.values()) or len(number.bounds) != 2 or any(
                abs(bound) > FLOAT_INTEGERS for _, bound in number.bounds):
            return None
        (op0, imm0), (op1, imm1) = number.bounds
        return self.emit(TensorScalarOp, src=loaded, operand0=None, operand1=None, op0=op0, imm0=float(imm0),
                         op1=op1, imm1=float(imm1))

    def emit(self, kind: type[NisaOp], **fields: Any) -> Tile:
        """Emit an instruction that writes a tile for one number, and return the tile."""
        shape, dtype, _ = NUMBER
        result = new_tile(self.make, self.before, shape, dtype)
        write_op(kind(dst=result, **fields), self.make, self.before.location, ir.InsertionPoint(self.before))
        return result


def _in_rows(piece: Tile, table: Tile, row: int) -> tuple[Tile, Sequence[tuple[int, int]]] | None:
    """Return the piece, and the dims of the part of the table, as rows of the table; None if either is no such block.

    A graph moves neighboring rows as one run of elements.
    """
    runs = [[dim for dim in tile.access.dims if dim[1] > 1] for tile in (piece, table)]
    count = prod(table.shape)
    if any(run != [(1, count)] for run in runs) or count % row or piece.space != HBM:
        return None
    dims = ((row, count // row), (1, row))
    return piece.patterned(free=piece.access.free, dims=dims), dims

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gather and scatter of rows as compiled loops: a row's address comes from the index tile, the row itself is a nest."""

from dataclasses import dataclass

from nki_mlir.bindings import ir
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.nisa.indirect import DmaScatterOp, RowAddressed
from nki_mlir.dialects.op import Op
from nki_mlir.scalar.dtypes import FLOAT32, INT32, INT64, DType
from nki_mlir.targets.cpu.lanes import FunctionEmitter, Value
from nki_mlir.targets.cpu.loops import Loops
from nki_mlir.targets.cpu.schedule import schedule
from nki_mlir.waist.nest import Nest, Operand, Step


@dataclass(frozen=True)
class RowCopies:
    """``row`` for each number of an index tile, between that row of a table and the next one of a piece.

    Steps are in elements. Arguments: the addresses of index, table and piece, that of two words for an error, where the
    table starts in its tensor, the site.
    """

    count: int
    rows: int                   # of the table
    index_dtype: DType
    index_step: int
    table_step: int
    piece_step: int
    row: Nest                   # one source, one destination
    gathers: bool
    skips: bool                 # numbers that are no row of the table; else they are an error

    @property
    def title(self) -> str:
        return f"{'gather' if self.gathers else 'scatter'}_{self.count}_{self.row.title}"

    def emit(self, code: FunctionEmitter, words: Value) -> Value:
        """The status: 0, or the site, with the number and the start in the words for an error."""
        index, table, piece, record = (code.word(words, k, code.pointer) for k in range(4))
        start, site = (code.word(words, k, code.i64_type) for k in (4, 5))
        loop = code.scf.ForOp(code.i64(0), code.i64(self.count), code.i64(1), [code.i64(0)])
        with ir.InsertionPoint(loop.body):
            position, status = loop.induction_variable, loop.inner_iter_args[0]
            number = self._number(code, index, position)
            inside = code.cmp("ult", number, self.rows)                 # a negative number is a large one
            fine = code.cmp("eq", status, 0)
            branch = code.scf.IfOp(code.and_(inside, fine), [code.i64_type], has_else=True)
            with ir.InsertionPoint(branch.then_block):
                self._copy(code, number, position, table, piece)
                code.scf.YieldOp([status])
            with ir.InsertionPoint(branch.else_block):
                if not self.skips:
                    status = self._failed(code, fine, status, (number, start), site, record)
                code.scf.YieldOp([status])
            code.scf.YieldOp(list(branch.results))
        return loop.results[0]

    def _number(self, code: FunctionEmitter, index: Value, position: Value) -> Value:
        element = code.element(self.index_dtype)
        place = code.at(index, code.times(position, self.index_step), element)
        number = code.fetch(place, 0, self.index_dtype, 1, None)
        return code.extsi(number, "i64") if self.index_dtype is INT32 else code.extui(number, "i64")

    def _copy(self, code: FunctionEmitter, number: Value, position: Value, table: Value, piece: Value) -> None:
        source, target = self.row.operands
        table_operand, piece_operand = (source, target) if self.gathers else (target, source)
        there = code.at(table, code.times(number, self.table_step), code.element(table_operand.dtype))
        here = code.at(piece, code.times(position, self.piece_step), code.element(piece_operand.dtype))
        Loops(code, self.row, schedule(self.row), []).emit((there, here) if self.gathers else (here, there))

    @staticmethod
    def _failed(code: FunctionEmitter, fine: Value, status: Value, words: tuple[Value, ...], site: Value, record: Value
                ) -> Value:
        """The status of the first number that is outside, whose words are kept for the message."""
        for k, value in enumerate(words):
            place = code.at(record, k, code.i64_type)
            before = code.fetch(place, 0, INT64, 1, None)
            code.put(code.select(fine, value, before), place, 0, INT64, 1, None)
        return code.select(fine, site, status)


def row_copies_of(op: Op) -> RowCopies | None:
    """What an operation does as compiled loops; None where a mask divides it, or it is another one."""
    if not isinstance(op, RowAddressed) or op.mask or op.limits:
        return None
    sums = isinstance(op, DmaScatterOp) and op.rmw == "add"
    steps, result = _steps(op.src.dtype, op.dst.dtype, sums)
    free = op.piece.shape[1:]
    row = Nest(free, frozenset(), (_row(op.src),), 0, (_row(op.dst),), steps, (result,)).simplified
    return RowCopies(op.index.shape[0], op.table.shape[0], op.index.dtype, op.index.strides[0], op.table.strides[0],
                     op.piece.strides[0], row, op.addressed_by_data == "src", op.mode == "skip")


def _row(tile: Tile) -> Operand:
    return Operand(tile.dtype, tile.strides[1:])


def _steps(src: DType, dst: DType, sums: bool) -> tuple[tuple[Step, ...], int]:
    """The body: the source converted, or added to what is there, in float32. Values: source, old value, steps."""
    if not sums:
        return ((), 0) if src is dst else ((Step("convert", dst, (0,)),), 2)
    steps: list[Step] = []

    def add(step: Step) -> int:
        steps.append(step)
        return 1 + len(steps)
    value, old = (k if dtype is FLOAT32 else add(Step("convert", FLOAT32, (k,))) for k, dtype in enumerate((src, dst)))
    total = add(Step("alu", FLOAT32, (old, value), "add"))
    result = total if dst is FLOAT32 else add(Step("convert", dst, (total,)))
    return tuple(steps), result

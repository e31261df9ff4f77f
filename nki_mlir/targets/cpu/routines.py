# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles nests, copies of rows, searches and checks to functions, each once for all kernels of the process.

A routine is ``i64 routine(i64* arguments)``: the addresses of the nest's inputs and outputs, then its symbols. It
returns 0, or a status where a check fails.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nki_mlir.alone import ALONE
from nki_mlir.bindings import Module, Operation, ir, operations_of
from nki_mlir.dialects.access import Linear, Mask, Tile
from nki_mlir.dialects.nisa.indirect import DmaScatterOp, RowAddressed
from nki_mlir.dialects.op import Op
from nki_mlir.passes.pass_manager import PassObserver, run_passes
from nki_mlir.progress import phase
from nki_mlir.scalar.dtypes import FLOAT32, INT32, INT64, DType
from nki_mlir.targets.cpu.addressed_nest import AddressedNest, can_stream, where_aligned, with_memory
from nki_mlir.targets.cpu.contraction import TileProduct, contraction_of
from nki_mlir.targets.cpu.image import MOST_EXCESS, SITE_BITS
from nki_mlir.targets.cpu.lanes import FunctionEmitter, Value
from nki_mlir.targets.cpu.loops import Loops, MemoryUse, stored_bytes
from nki_mlir.targets.cpu.passes.align_stack import AlignStack
from nki_mlir.targets.cpu.schedule import cost_of, reach_of, schedule
from nki_mlir.targets.cpu.searches import IndicesOfEight, LargestEight
from nki_mlir.targets.cpu.tile_registers import FEATURES, TileRegisterProduct
from nki_mlir.targets.runtime import host, jit
from nki_mlir.targets.runtime.jit import Batch, addresses_text, code_context, compile_functions, lower
from nki_mlir.waist.nest import Nest, Operand, Step

AHEAD = 2 * host.PAGE           # bytes of rows that are prefetched while one is copied
LONGEST_ROW = 16 * host.PAGE     # bytes of a row; the processor itself prefetches the rest of longer rows
MOST_IN_BATCH = 64  # most routines in a batch, for which LLVM takes 0.1 s; in larger batches, each routine takes longer


@dataclass(frozen=True)
class RowCopies:
    """Copies rows between a table and a piece. For each number of an index tile, it runs ``row`` on the row of the
    table with that number and the next row of the piece.

    Steps are in elements. Arguments: the addresses of index, table and piece, the address of two words for an error,
    the offset of the table in its tensor, the site. The code prefetches rows of the table, since the processor cannot
    predict them.
    """

    count: int
    rows: int                   # rows of the table
    index_dtype: DType
    index_step: int
    table_step: int
    piece_step: int
    row: Nest                   # the nest of a row, with one source and one destination
    gathers: bool
    skips: bool                 # whether numbers outside of the table are skipped; otherwise they are an error
    streams: bool = False       # whether streaming stores write the piece

    @property
    def title(self) -> str:
        name = "gather" if self.gathers else "scatter"
        return f"{name}_{self.count}_{self.row.title}" + "_streamed" * self.streams

    @property
    def cost(self) -> float:
        """The estimated nanoseconds of a run."""
        return self.count * cost_of(self.row)

    @property
    def can_stream(self) -> bool:
        """Whether the piece's rows are whole vectors at multiples of their size."""
        size = stored_bytes(self.row.outputs[0], schedule(self.row))
        step = self.piece_step * self.row.outputs[0].dtype.itemsize
        return self.gathers and can_stream(self.row) and step % size == 0

    def emit(self, code: FunctionEmitter, words: Value) -> Value:
        """Return the status: 0, or the site, after storing the number and the table's start in the words for an
        error."""
        if not self.streams:
            return self._rows(code, words, False)
        piece = code.word(words, 2, code.i64_type), stored_bytes(self.row.outputs[0], schedule(self.row))
        return where_aligned(code, [piece], lambda streams: [self._rows(code, words, streams)], [code.i64_type])[0]

    def _rows(self, code: FunctionEmitter, words: Value, streams: bool) -> Value:
        index, table, piece, record = (code.word(words, k, code.pointer) for k in range(4))
        start, site = (code.word(words, k, code.i64_type) for k in (4, 5))
        loop = code.scf.ForOp(code.i64(0), code.i64(self.count), code.i64(1), [code.i64(0)])
        with ir.InsertionPoint(loop.body):
            position, status = loop.induction_variable, loop.inner_iter_args[0]
            number = self._number(code, index, position)
            ahead = self._prefetch_distance(code, index, position, number)
            inside = code.cmp("ult", number, self.rows)                 # a negative number is a large one
            fine = code.cmp("eq", status, 0)
            branch = code.scf.IfOp(code.and_(inside, fine), [code.i64_type], has_else=True)
            with ir.InsertionPoint(branch.then_block):
                self._copy(code, number, position, (table, piece), streams, ahead)
                code.scf.YieldOp([status])
            with ir.InsertionPoint(branch.else_block):
                if not self.skips:
                    status = self._failed(code, fine, status, (number, start), site, record)
                code.scf.YieldOp([status])
            code.scf.YieldOp(list(branch.results))
        return loop.results[0]

    def _number(self, code: FunctionEmitter, index: Value, position: Value) -> Value:
        element = code.element(self.index_dtype)
        address = code.at(index, code.times(position, self.index_step), element)
        number = code.fetch(address, 0, self.index_dtype, 1, None)
        return code.extsi(number, "i64") if self.index_dtype is INT32 else code.extui(number, "i64")

    def _prefetch_distance(self, code: FunctionEmitter, index: Value, position: Value, number: Value) -> Value | None:
        """Return the distance in bytes of a prefetch: from a row of the table to the row that is copied some numbers
        later. None if rows are too long."""
        low, high = reach_of(self.row, self._table)
        if high - low >= LONGEST_ROW:
            return None
        rows = max(min(AHEAD // (high - low + 1), self.count // 8), 1)
        later = self._number(code, index, code.minsi(code.add(position, code.i64(rows)), self.count - 1))
        return code.times(code.sub(later, number), self.table_step * self.row.operands[self._table].dtype.itemsize)

    @property
    def _table(self) -> int:
        """Return which operand of ``row`` is in the table."""
        return 0 if self.gathers else 1

    def _copy(self, code: FunctionEmitter, number: Value, position: Value, addresses: tuple[Value, Value],
              streams: bool, ahead: Value | None) -> None:
        steps, operands = (self.table_step, self.piece_step), (self._table, 1 - self._table)
        pointers = [code.at(address, code.times(n, step), code.element(self.row.operands[operand].dtype))
                  for address, n, step, operand in zip(addresses, (number, position), steps, operands)]
        loops = Loops(code, self.row, schedule(self.row), [], MemoryUse((0,) if streams else ()))
        loops.ahead = {} if ahead is None else {self._table: ahead}
        loops.emit(pointers if self.gathers else pointers[::-1])

    @staticmethod
    def _failed(code: FunctionEmitter, fine: Value, status: Value, words: tuple[Value, ...], site: Value, record: Value
                ) -> Value:
        """Return the status of the first number that is outside of the table, and store its words for the message."""
        for k, value in enumerate(words):
            slot = code.at(record, k, code.i64_type)
            before = code.fetch(slot, 0, INT64, 1, None)
            code.put(code.select(fine, value, before), slot, 0, INT64, 1, None)
        return code.select(fine, site, status)


def row_copies_of(op: Op) -> RowCopies | None:
    """Return an operation's copies of rows; None for an operation with a mask, or of another class."""
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
    """Return the body of a row's nest: it converts the source, or with ``sums`` adds it to the old value in float32.
    Its values are the source, the old value, then the steps."""
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


@dataclass(frozen=True)
class Limits:
    """Checks that every ``limits`` form is ``>= 0`` at all elements where ``mask`` holds. The last argument is the
    site."""

    extents: tuple[int, ...]
    mask: Mask
    limits: Mask
    symbols: int

    @property
    def title(self) -> str:
        return f"limits_{'x'.join(map(str, self.extents))}"

    def emit(self, code: FunctionEmitter, arguments: list[Value]) -> Value:
        """Return 0, or a status with the site and the amount by which the least form is below zero."""
        *symbols, site = arguments
        forms = [c.form for c in (*self.mask, *self.limits)]
        axes = sorted({axis for form in forms for axis, _ in form.axes})
        worst = self._walk(code, axes, {}, symbols, code.i64(0))
        excess = code.minsi(code.sub(code.i64(0), worst), MOST_EXCESS)
        failed = code.or_(code.shl(excess, SITE_BITS), site)
        return code.select(code.cmp("slt", worst, 0), failed, code.i64(0))

    def _walk(self, code: FunctionEmitter, axes: list[int], positions: dict[int, Value], symbols: list[Value],
              worst: Value) -> Value:
        if not axes:
            return self._worse(code, positions, symbols, worst)
        return code.loop(range(self.extents[axes[0]]), [worst], lambda i, worst: [
            self._walk(code, axes[1:], {**positions, axes[0]: i}, symbols, *worst)])[0]

    def _worse(self, code: FunctionEmitter, positions: dict[int, Value], symbols: list[Value], worst: Value) -> Value:
        """Return the lesser of ``worst`` and the forms at one element, if the element is active."""
        def value(form: Linear) -> Any:
            return code.linear(form.const, [*((symbols[p], c) for p, c in form.symbols),
                                            *((positions[a], c) for a, c in form.axes)])
        lowest = worst
        for constraint in self.limits:
            lowest = code.minsi(lowest, value(constraint.form))
        for constraint in self.mask:
            active = code.cmp("eq" if constraint.equal else "sge", value(constraint.form), 0)
            lowest = code.select(active, lowest, worst)
        return lowest


TileRoutine = RowCopies | LargestEight | IndicesOfEight         # routines of tile operations that are not nests
Routine = Nest | AddressedNest | TileProduct | TileRegisterProduct | Limits | TileRoutine

HALVED = '[["prefer-vector-width", "256"], ["min-legal-vector-width", "256"]]'       # LLVM splits wider vectors

_SHELL = """llvm.func internal @{name}(%arguments: !llvm.ptr) -> i64 {{
  %fine = llvm.mlir.constant(0 : i64) : i64
  llvm.return %fine : i64
}}
"""
_compiled: dict[Routine, tuple[Batch, int]] = {}


def name_of(routine: Routine) -> str:
    """Return a symbol that describes the routine's work, and is unique to the routine."""
    digest = hashlib.sha256(repr(routine).encode()).hexdigest()[:10]
    return f"{routine.title}_{digest}"


def compiled(routines: Iterable[Routine]) -> dict[Routine, tuple[Batch, int]]:
    """Return the batch of each routine, and its index in the batch. New routines are compiled, in batches.

    MLIR and LLVM compile a batch without returning to Python, so signals wait for its end.
    """
    distinct = list(dict.fromkeys(routines))
    with ALONE:
        new = [r for r in distinct if r not in _compiled]
        with phase("compiling", len(new), "routines") as advance:
            for first in range(0, len(new), MOST_IN_BATCH):
                batch = new[first:first + MOST_IN_BATCH]
                _compile_batch(batch)
                advance(len(batch))
        return {r: _compiled[r] for r in distinct}


def _compile_batch(routines: Sequence[Routine]) -> None:
    names = [name_of(r) for r in routines]
    batch = compile_functions(lambda: vector_code(routines, addresses_text(names)), names, repr(routines))
    _compiled.update((r, (batch, number)) for number, r in enumerate(routines))


def clear_memo() -> None:
    """Clear the memo of compiled routines, so that later calls compile again; measurements need this. Code in use stays
    loaded."""
    with ALONE:
        _compiled.clear()
        jit.clear_memo()


def vector_code(routines: Sequence[Routine], extra_text: str = "", observer: PassObserver | None = None) -> Module:
    """Return a module with a function for each routine, in vector, scf and arith operations on LLVM pointers, and
    ``extra_text``."""
    with ALONE, code_context(), ir.Location.unknown():
        module = ir.Module.parse("".join(_SHELL.format(name=name_of(r)) for r in routines) + extra_text)
        for function, routine in zip(operations_of(module, lambda name: name == "llvm.func"), routines):
            _emit(function, routine)
        run_passes(module, [AlignStack()], observer)
        return module


def llvm_code(routines: Sequence[Routine], observer: PassObserver | None) -> Module:
    """Return the module of routines in the LLVM dialect, which the engine compiles."""
    module = vector_code(routines, observer=observer)
    with ALONE, code_context(), ir.Location.unknown():
        lower(module, observer)
    return module


def _emit(function: Operation, routine: Routine) -> None:
    block = function.regions[0].blocks[0]
    code = FunctionEmitter()
    code.entry = ir.InsertionPoint.at_block_begin(block)
    leave, = operations_of(function, lambda name: name == "llvm.return")
    with ir.InsertionPoint(leave):
        words = block.arguments[0]
        if isinstance(routine, Limits):
            symbols = [code.word(words, k, code.i64_type) for k in range(routine.symbols + 1)]
            leave.operands[0] = routine.emit(code, symbols)
            return
        if isinstance(routine, TileRoutine):
            leave.operands[0] = routine.emit(code, words)
            return
        if isinstance(routine, TileRegisterProduct):
            function.attributes["target_features"] = ir.Attribute.parse(FEATURES)
        if isinstance(routine, Nest):
            routine = with_memory(routine) if contraction_of(routine) is None else TileProduct(routine)
        if isinstance(routine, AddressedNest) and "halves" in routine.forms:
            function.attributes["passthrough"] = ir.Attribute.parse(HALVED)
        routine.emit(code, words)

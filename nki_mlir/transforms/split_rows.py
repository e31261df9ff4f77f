# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""split-rows: compute a graph's operations on rows for one block of rows after the other, if SBUF cannot keep all.

before:  linalg.generic ins(%x) outs(%sums) { in + out }               (16384 rows)
         linalg.generic ins(%x, %sums) outs(%r) { in / in }
after:   linalg.generic ins(%x 0) outs(%sums 0) { in + out }           (views of rows 0 to 1023)
         linalg.generic ins(%x 0, %sums 0) outs(%r 0) { in / in }
         linalg.generic ins(%x 1) outs(%sums 1) { in + out }           (rows 1024 to 2047)
         ...

Each operation computes a row of its result from that row of its operands, and from operands that all rows share. So the
tiles that one operation loads or computes are still on chip when the next one needs them. A row may be a matrix: the
scores of a head of attention. A block has as many rows, a multiple of 128 if there are more, as results may have that
``tile-and-place`` keeps on chip. Operands that all rows share take as much at most: an operation with larger ones
begins another run. Blocks of matrices may load these operands again: that must be less than the bytes that stay on
chip.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from nki_mlir.analysis.effects import VIEWS, memory_of
from nki_mlir.analysis.view_starts import start_in_buffer
from nki_mlir.bindings import Module, Operation, Value, ir
from nki_mlir.dialects.buffer_types import memref_parts
from nki_mlir.dialects.kernel_function import KernelFunction, kernel_functions
from nki_mlir.graph.nests import in_hbm
from nki_mlir.graph.placement import STAYS
from nki_mlir.graph.views import reinterpreted
from nki_mlir.machine import Machine, machine_named
from nki_mlir.passes.pass_manager import Pass
from nki_mlir.transforms.fuse_tiles import fuse_function
from nki_mlir.waist.fusion import fusible
from nki_mlir.waist.generic import GenericOperation, axes_of

SHARE = 2                   # a run that reuses more than SHARE times what stays on chip is split
FILL = 75                   # percent of the room beside shared operands that a block may take
BESIDE = (*VIEWS, "memref.alloc", "memref.get_global", "arith.constant")   # may be between the operations of a run


class SplitRows(Pass, name="split-rows"):
    rows: int = 0               # rows of a block; 0: as many as fit
    inner: bool = True          # split the rows of matrices, too, of which one is too large

    def run(self, module: Module) -> None:
        with module.context, ir.Location.unknown():
            for kernel in kernel_functions(module):
                if not any(a.kind == "input" and kernel.may_alias for a in kernel.arguments):
                    split_rows(kernel, machine_named(kernel.target), self.rows, self.inner)


def split_rows(kernel: KernelFunction, machine: Machine, rows: int = 0, inner: bool = True) -> None:
    room = machine.sbuf_bytes_per_partition // STAYS * machine.partitions
    memory = SHARE * room
    if not any(run.reused_bytes > memory or rows for run in runs_of(kernel, room)):
        return
    fuse_function(kernel, in_hbm)
    for _ in range(1 + inner):      # heads of attention, then rows of the heads that are too large
        for run in list(runs_of(kernel, room)):
            if rows or run.reused_bytes > memory:
                unit = machine.partitions if run.rows >= machine.partitions else 1          # else rows are matrices
                count = rows or run.rows_that_fit() // unit * unit or (inner and unit == 1)
                if 0 < count < run.rows and (unit > 1 or run.reloaded_bytes(count) < run.reused_bytes):
                    run.split(count)


@dataclass
class RowOperand:
    """An operand whose row ``i`` begins ``(first + i) * step`` elements after the start of its buffer; step 0: all
    rows share it. ``is_contiguous``: each row is in ``step`` successive elements; else the elements of different rows
    interleave, and a row has ``elements`` of them."""

    value: Value
    buffer: Value
    step: int
    is_contiguous: bool
    elements: int
    first: int = 0              # number of the buffer's row that is row 0

    @property
    def rows_of_buffer(self) -> tuple[int, int]:
        """The step and the first of the rows: equal ones are the same rows of a buffer."""
        return self.step, self.first

    @property
    def row_bytes(self) -> int:
        return (self.step if self.is_contiguous else self.elements) * self.dtype_bytes

    @property
    def dtype_bytes(self) -> int:
        return memref_parts(self.value.type)[1].itemsize

    def block(self, axis: int, mapping: ir.AffineMap, start: int, count: int) -> Value:
        """Write the view of ``count`` rows from row ``start`` on."""
        kind = ir.MemRefType(self.value.type)
        strides, _ = kind.get_strides_and_offset()
        sizes = [count if a == axis else n for a, n in zip(axes_of(mapping), kind.shape)]
        offset = start_in_buffer(self.value).offset + start * self.step
        return reinterpreted(self.buffer, sizes, strides, offset)


@dataclass
class RowOperation:
    """An operation that computes the rows of its result one by one, along ``axis``."""

    nest: GenericOperation
    axis: int
    rows: int
    operands: dict[int, RowOperand]             # those in memory, by number

    @property
    def result(self) -> RowOperand:
        return self.operands[len(self.nest.inputs)]

    @property
    def is_fill(self) -> bool:
        return len(self.operands) == 1


def row_operation(op: Operation) -> RowOperation | None:
    """Return an operation with the rows of its operands; None if a row of its result depends on several rows."""
    nest = fusible(op, indices=True) if in_hbm(op) else None
    if nest is None:
        return None
    kind = ir.MemRefType(nest.output.type)
    axis = next((a for a, n in zip(axes_of(nest.maps[-1]), kind.shape) if n > 1), -1)
    operands = {}
    for number, (value, mapping) in enumerate(zip(nest.operands, nest.maps)):
        if isinstance(value.type, ir.MemRefType):
            operand = row_operand(value, mapping, axis)
            if operand is None:
                return None
            operands[number] = operand
    if axis < 0 or any(inner.name == "linalg.index" and inner.attributes["dim"].value == axis for inner in nest.body):
        return None                     # a block would count its rows from 0
    operation = RowOperation(nest, axis, nest.extents.get(axis, 0), operands)
    result = operation.result
    if not (result.step and result.is_contiguous):
        return None
    return None if any(o.buffer == result.buffer and not o.is_contiguous for o in operands.values()) else operation


def row_operand(value: Value, mapping: ir.AffineMap, axis: int) -> RowOperand | None:
    """Return an operand with its rows along an axis of the operation; None if a row is not a view of its buffer."""
    kind, start, axes = ir.MemRefType(value.type), start_in_buffer(value), axes_of(mapping)
    strides, _ = kind.get_strides_and_offset()
    if start.buffer != memory_of(value) or start.terms or any(
            a < 0 and not isinstance(e, ir.AffineConstantExpr) for a, e in zip(axes, mapping.results)):
        return None
    steps = [step for a, step in zip(axes, strides) if a == axis]
    elements = prod([n for a, n in zip(axes, kind.shape) if a != axis])
    if not steps:
        return RowOperand(value, start.buffer, 0, True, elements)
    if len(steps) != 1:
        return None
    first, offset = divmod(start.offset, steps[0]) if steps[0] else (0, start.offset)
    last = offset + sum((n - 1) * step for a, n, step in zip(axes, kind.shape, strides) if a != axis)
    return RowOperand(value, start.buffer, steps[0], last < steps[0], elements, first)


@dataclass
class RowRun:
    """Successive operations on the same number of rows. To compute a row, none reads what another one writes for
    another row. ``room``: the bytes that a block may have."""

    room: int
    operations: list[RowOperation] = field(default_factory=list)
    results: set[Value] = field(default_factory=set)
    spread: set[Value] = field(default_factory=set)     # buffers of which an operation reads rows that are not apart
    shared: dict[Value, int] = field(default_factory=dict)
    shared_bytes: int = 0
    steps: dict[Value, set[tuple[int, int]]] = field(default_factory=dict)
    is_aligned: bool = True         # whether all use the same rows of each buffer that one of them writes

    @property
    def rows(self) -> int:
        return self.operations[0].rows

    def row_bytes(self, least_users: int) -> int:
        """Return the bytes of a row in the buffers whose rows this many operations use."""
        users: dict[Value, int] = {}
        size: dict[Value, int] = {}
        for operation in self.operations:
            of_rows = {operand.buffer: operand.row_bytes for operand in operation.operands.values() if operand.step}
            size |= of_rows
            for buffer in of_rows:
                users[buffer] = users.get(buffer, 0) + (not operation.is_fill)
        return sum(size[buffer] for buffer, count in users.items() if count >= least_users)

    @property
    def reused_bytes(self) -> int:
        """Bytes of all rows that several operations use."""
        return self.row_bytes(2) * self.rows

    def reloaded_bytes(self, count: int) -> int:
        """Return the bytes that blocks of ``count`` rows load again if the operands of all rows do not stay on chip."""
        return self.shared_bytes * (-(-self.rows // count) - 1)

    def rows_that_fit(self) -> int:
        """Return the number of rows for which there is room beside the operands that all rows share."""
        room_for_rows = (self.room * SHARE - self.shared_bytes) * FILL // 100
        return min(self.room, room_for_rows) // self.row_bytes(1)

    def takes(self, operation: RowOperation) -> bool:
        """Return whether an operation may join the run."""
        if not self.operations:
            return True
        operands, result = operation.operands.values(), operation.result.buffer
        contiguous = all(operand.is_contiguous or not (operand.buffer == result or operand.buffer in self.results)
                    for operand in operands)
        if not contiguous or not self.is_aligned or result in self.spread or operation.rows != self.rows:
            return False
        steps = {operand.buffer: self.steps.get(operand.buffer, {operand.rows_of_buffer}) for operand in operands}
        aligned = all(steps[operand.buffer] == {operand.rows_of_buffer} for operand in operands
                      if operand.buffer == result or operand.buffer in self.results)
        return aligned and self.shared_bytes + self.more_shared(operation) <= self.room

    def more_shared(self, operation: RowOperation) -> int:
        """Return the bytes of operands shared by all rows that an operation would add to the run."""
        return sum(size - self.shared.get(buffer, 0) for buffer, size in shared_by_rows(operation).items())

    def add(self, operation: RowOperation) -> None:
        """Add an operation at the end of the run."""
        self.operations.append(operation)
        self.results.add(operation.result.buffer)
        self.shared_bytes += self.more_shared(operation)
        self.shared |= shared_by_rows(operation)
        for operand in operation.operands.values():
            self.steps.setdefault(operand.buffer, set()).add(operand.rows_of_buffer)
            if not operand.is_contiguous:
                self.spread.add(operand.buffer)
        self.is_aligned &= all(len(self.steps[operand.buffer]) == 1 for operand in operation.operands.values()
                               if operand.buffer in self.results)

    def split(self, count: int) -> None:
        """Replace the run by its operations on blocks of ``count`` rows, one block after the other."""
        for start in range(0, self.rows, count):
            for operation in self.operations:
                nest = operation.nest
                with nest.op.location, ir.InsertionPoint(self.operations[-1].nest.op):
                    copy = nest.op.clone()
                    for number, operand in operation.operands.items():
                        if operand.step:
                            with ir.InsertionPoint(copy):
                                copy.operands[number] = operand.block(
                                    operation.axis, nest.maps[number], start, min(count, self.rows - start))
        for operation in self.operations:
            operation.nest.op.erase()


def shared_by_rows(operation: RowOperation) -> dict[Value, int]:
    """Return the bytes of the operands that all rows share."""
    return {operand.buffer: prod(ir.MemRefType(operand.value.type).shape) * operand.dtype_bytes
            for operand in operation.operands.values() if not operand.step}


def runs_of(kernel: KernelFunction, room: int) -> Iterator[RowRun]:
    """Yield the runs of several operations on rows."""
    run = RowRun(room)
    for entry in [*kernel.op.regions[0].blocks[0].operations]:
        op = entry.operation
        if op.name in BESIDE:
            continue
        operation = row_operation(op)
        if operation is None or not run.takes(operation):
            if len(run.operations) > 1:
                yield run
            run = RowRun(room)
        if operation is not None:
            run.add(operation)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The builder by which op classes lower themselves: each of its methods emits one form of the waist.

``lower_operations`` reads every operation of a dialect, passes this builder to it, and removes it.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from nki_mlir.analysis.mask_boxes import shrink
from nki_mlir.bindings import Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.access import Ranges, Tile, same_elements
from nki_mlir.dialects.kernel_function import kernel_functions
from nki_mlir.dialects.mlir_ops import read_op
from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.dialects.source_locations import errors_at
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, DType
from nki_mlir.waist.accumulation import accumulation_of
from nki_mlir.waist.overlap import may_overlap
from nki_mlir.waist.rows import Expression, Rows, count_along, recurrence
from nki_mlir.waist.writer import IterationSpace, OperandView, ScalarBody, Writer


class Reduction(NamedTuple):
    """A reduction: a start value, a function of each element, a step, and a function of the result.

    ``first`` is an earlier reduction of the same elements; ``element`` and ``last`` get its result, too.
    """

    step: str
    start: float
    element: Expression = lambda s, value, *folded: value
    last: Expression | None = None
    first: "Reduction | None" = None

    def add(self, s: ScalarBody, total: Value, value: Value, *folded: Value) -> Value:
        return s.alu(self.step, total, self.element(s, value, *folded))


class StructuredBuilder:
    """Emits the structured operations that replace an operation."""

    def __init__(self, aliases: frozenset[Value] = frozenset()) -> None:
        """Create a builder; the buffers ``aliases`` may overlap each other."""
        self.aliases = aliases
        self.writer = Writer()
        self.stays = False
        self.templates: dict[tuple[object, ...], Template] = {}

    def convert(self, operation: Operation) -> None:
        """Replace one tile operation by the operations that its class emits."""
        read, operands = read_op(operation), list(operation.operands)
        # The key also tells which operands are equal.
        key = (read.outline(), read.mask, read.limits, read.ranges, tuple(read.extra.items()),
               tuple([operands.index(value) for value in operands]), tuple([v in self.aliases for v in operands]))
        template = self.templates.get(key)
        if template is not None:
            template.write(operands, operation.location, ir.InsertionPoint(operation))
            operation.erase()
            return
        self.writer.at(operation, bool(read.mask or read.limits))
        self.stays = False
        op = shrink(read)
        with errors_at(operation):
            if op is not None:
                op.lower(self)
        if not self.stays:
            self.templates[key] = Template(operands, self.writer.emitted)
            operation.erase()

    def may_overlap(self, a: Tile, b: Tile, ranges: Ranges) -> bool:
        """Return whether two operands can share a byte."""
        if a.handle != b.handle and {a.handle, b.handle} <= self.aliases:
            return True
        return may_overlap(a, b, ranges)

    # -- the forms -----------------------------------------------------------------------------------------------------
    def keep(self, op: Op) -> None:
        """Keep the operation unchanged."""
        self.stays = True

    def elementwise(self, op: Op) -> None:
        """Write ``dst = op.body(sources)``, element for element."""
        (name, dst), = op.targets()
        work = _Work(self, op)
        target = work.target(name, dst, work.readers(name))
        read = [(n, t) for n, t in op.sources() if t is not dst or target is not dst]
        self.writer.generic(work.nest, [work.operand(n, t) for n, t in read], [work.operand(name, target)],
                            work.compute, lambda s, ins, outs: [work.value(s, read, ins, outs[0], dst.dtype)],
                            op.index_forms(), op.extra)
        if target is not dst:
            work.move(name, target, dst)

    def elementwise_with_rows(self, op: Op, alu: str) -> None:
        """Write the operations of ``elementwise``, and fold the values of ``dst`` over the free axes before they are
        rounded."""
        (name, dst), (rows_name, rows) = op.targets()
        work = _Work(self, op)
        fold = work.fold(alu)
        sources = op.sources()
        target = work.target(name, dst, work.readers(name))
        overlaps = any(self.may_overlap(rows, t, op.ranges) for _, t in op.operands() if t is not rows)
        total = work.accumulator(rows, fold.last, overlaps)

        def value(s: ScalarBody, ins: Sequence[Value]) -> Value:
            return work.expression(s, sources, ins)
        if op.mask:  # compute one result at a time, since what depends on a mask has several forms
            folded_tiles = work.folds(rows_name, total, fold, work.inputs(), value)
            self.writer.generic(work.elements, work.inputs(), [work.operand(name, target)], work.compute,
                                lambda s, ins, outs: [s.convert(value(s, ins), work.compute, dst.dtype)],
                                op.index_forms(), op.extra)
        else:
            folded_tiles = []
            work.fill(rows_name, total, fold.start)

            def body(s: ScalarBody, ins: Sequence[Value], outs: Sequence[Value]) -> list[Value]:
                result = value(s, ins)
                return [s.convert(result, work.compute, dst.dtype), fold.add(s, outs[1], result)]
            self.writer.generic(work.nest, work.inputs(), [work.operand(name, target), work.folded(rows_name, total)],
                                work.compute, body, op.index_forms(), op.extra)
        if target is not dst:
            work.move(name, target, dst)
        work.finish(rows_name, total, rows, fold.last, folded_tiles)

    def reduction(self, op: Op, alu: str, negate: bool = False) -> None:
        """Write ``dst`` = ``src`` folded over the reduced axes of the operation."""
        (source, src), (name, dst) = op.sources()[0], op.targets()[0]
        work = _Work(self, op)
        fold = work.fold(alu, negate)
        total = work.accumulator(dst, fold.last, self.may_overlap(dst, src, op.ranges))
        folded_tiles = work.folds(name, total, fold, [work.operand(source, src)],
                                  lambda s, ins: s.convert(ins[0], src.dtype, work.compute))
        work.finish(name, total, dst, fold.last, folded_tiles)

    def contraction(self, op: Op, accumulate: bool) -> None:
        """Write ``dst`` = the sum over the reduced axis of the products of the last two sources, added to ``dst`` if
        the operation accumulates."""
        (name, dst), (first, a), (second, b) = op.targets()[0], *op.sources()[-2:]
        work = _Work(self, op)
        total = work.accumulator(dst)
        if not accumulate:
            work.fill(name, total, 0)
        elif total is not dst:
            work.start_from(name, dst, total)

        def body(s: ScalarBody, ins: Sequence[Value], outs: Sequence[Value]) -> list[Value]:
            left, right = (s.convert(v, t.dtype, FLOAT32) for v, t in zip(ins, (a, b)))
            return [s.alu("add", outs[0], s.alu("multiply", left, right))]
        self.writer.generic(work.nest, [work.operand(first, a), work.operand(second, b)], [work.folded(name, total)],
                            FLOAT32, body, (), op.extra)
        work.finish(name, total, dst)

    def rows(self, op: Op) -> "Rows | None":
        """Return the writer of values of each partition; None for an operation with a mask or limits."""
        return None if op.mask or op.limits else Rows(self.writer, op, op.targets()[0][1].shape[0])

    def recurrence(self, op: Op) -> None:
        """Write ``dst`` = op.next(the element before it, the elements of the sources), along all free axes."""
        rows = self.rows(op)
        if rows is None:
            self.keep(op)
        else:
            recurrence(rows, op, op.ranges)         # type: ignore[arg-type]

    def accumulation(self, op: Op, scans: bool = False) -> None:
        """Write ``dst`` = op.body(sources), and fold its elements into the registers of the operation."""
        rows = self.rows(op)
        accumulates = accumulation_of(op, scans, self.may_overlap) if rows is not None else None
        if rows is None or accumulates is None:
            self.keep(op)
        else:
            accumulates.write(rows)


class _Work:
    """The conversion of one operation: its iteration space, and the parts from which forms are built."""

    def __init__(self, builder: StructuredBuilder, op: Op) -> None:
        self.op, self.writer, self.may_overlap = op, builder.writer, builder.may_overlap
        self.iteration = op.iteration()
        self.reduced = self.iteration.reduced
        self.target_names = {name for name, _ in op.targets()}
        self.compute: DType = op.compute or op.sources()[-1][1].dtype
        self.nest = IterationSpace(len(self.iteration.extents), self.reduced, op.mask, op.limits, op.symbols)
        self.elements = self.nest._replace(reduced=frozenset())

    # -- operands ------------------------------------------------------------------------------------------------------
    def operand(self, name: str, tile: Tile) -> OperandView:
        return self.writer.view(tile, self.iteration.axes[name], self.op.symbols)

    def folded(self, name: str, tile: Tile) -> OperandView:
        """Return the view of a fold's result, without the reduced axes."""
        return self.writer.view(tile, self.iteration.axes[name], self.op.symbols, self.reduced)

    def readers(self, name: str) -> list[Tile]:
        """Return the sources, except the ones with exactly the elements that ``name`` writes, in the same order."""
        axes, dst = self.iteration.axes, getattr(self.op, name)
        return [t for n, t in self.op.sources() if not (same_elements(t, dst) and axes[n] == axes[name])]

    def target(self, name: str, dst: Tile, readers: Sequence[Tile]) -> Tile:
        """Return ``dst``, or a temporary where a write to it could change what a later operation reads."""
        overlaps = any(self.may_overlap(dst, t, self.op.ranges) for t in readers)
        return self.writer.temporary(dst, dst.dtype) if overlaps else dst

    def accumulator(self, dst: Tile, last_step: Expression | None = None, overlaps: bool = False) -> Tile:
        """Return the tile that holds a fold: ``dst`` or, if its dtype is not the fold's, a temporary.

        Under a mask the last step runs once for each folded element: it must not read elements that it writes.
        """
        apart = overlaps or dst.dtype is not self.compute or (last_step is not None and bool(self.nest.mask))
        return self.writer.temporary(dst, self.compute) if apart else dst

    # -- expressions ---------------------------------------------------------------------------------------------------
    def expression(self, s: ScalarBody, sources: Sequence[tuple[str, Tile]], values: Sequence[Value]) -> Value:
        """Emit the body of the operation on the values of its sources, in the dtype in which it computes."""
        operands = values if self.op.compute is None else [
            s.convert(v, t.dtype, self.compute) for v, (_, t) in zip(values, sources)]
        value: Value = self.op.body(s, *operands, *map(s.position, self.op.index_forms()))  # type: ignore[attr-defined]
        return value

    def value(self, s: ScalarBody, read: Sequence[tuple[str, Tile]], ins: Sequence[Value], out: Value,
              dtype: DType) -> Value:
        """Return the new value of ``dst``. The old value of ``dst`` is a value of an output, not of an input."""
        value_of = {t: v for (_, t), v in zip(read, ins)}
        sources = self.op.sources()
        return s.convert(self.expression(s, sources, [value_of.get(t, out) for _, t in sources]), self.compute, dtype)

    def fold(self, alu: str, negate: bool = False) -> Reduction:
        entry, masked = ALU[alu], bool(self.nest.mask)
        start = entry.identity(self.compute)
        if start is not None:
            return Reduction(alu, start, last=(lambda s, total: s.alu("negative", total)) if negate else None)
        if alu == "average":
            number = prod(self.iteration.extents[axis] for axis in self.reduced)

            def mean(s: ScalarBody, total: Value, *counted: Value) -> Value:
                return _signed(s, s.alu("divide", total, counted[0] if counted else s.constant(number)), negate)
            return Reduction("add", 0, last=mean,
                             first=Reduction("add", 0, lambda s, value: s.constant(1)) if masked else None)
        # a - b - c ...: the sum, in which all elements but the first have the other sign.
        order = count_along(self.reduced, self.iteration.extents)

        def element(s: ScalarBody, value: Value, *earlier: Value) -> Value:
            position = s.position(order)
            behind = s.alu("not_equal", position, earlier[0]) if earlier else position
            return s.alu("select", behind, s.alu("negative", value), value)
        return Reduction("add", 0, element, (lambda s, total, *earlier: s.alu("negative", total)) if negate else None,
                         Reduction("minimum", float("inf"), lambda s, value: s.position(order)) if masked else None)

    # -- steps ---------------------------------------------------------------------------------------------------------
    def inputs(self) -> list[OperandView]:
        """Return all sources. A body may ignore some, but each loop needs an operand that determines its extent."""
        return [self.operand(n, t) for n, t in self.op.sources() if n not in self.target_names]

    def fill(self, name: str, total: Tile, start: float, everywhere: bool = False) -> None:
        """Write the start of a fold. Under a mask this writes only the elements that the fold changes, if it is not
        ``everywhere``."""
        out = self.folded(name, total)
        if not self.nest.mask or everywhere:
            self.writer.fill(out, start)
        else:
            self.writer.generic(self.nest, self.inputs(), [out], self.compute,
                                lambda s, ins, outs: [s.constant(start)])

    def move(self, name: str, temporary: Tile, dst: Tile) -> None:
        """Copy a temporary to the tile that it replaces."""
        self.writer.generic(self.elements, [self.operand(name, temporary)], [self.operand(name, dst)], dst.dtype,
                            lambda s, ins, outs: [ins[0]])

    def folds(self, name: str, total: Tile, fold: Reduction, inputs: list[OperandView], value: Expression
              ) -> list[Tile]:
        """Fold ``value(s, inputs)`` into ``total``. Return the result of the earlier reduction, which ``finish``
        takes."""
        folded_tiles = []
        if fold.first is not None:
            folded_tiles.append(self.writer.temporary(total, self.compute))
            self.folds(name, folded_tiles[0], fold.first, inputs, value)
        is_temporary = all(tile is not total for _, tile in self.op.targets())     # nothing reads its other elements
        self.fill(name, total, fold.start, everywhere=is_temporary)
        count = len(inputs)
        self.writer.generic(
            self.nest, [*inputs, *(self.folded(name, t) for t in folded_tiles)], [self.folded(name, total)],
            self.compute,
            lambda s, ins, outs: [fold.add(s, outs[0], value(s, ins[:count]), *ins[count:])],
            self.op.index_forms(), self.op.extra)
        return folded_tiles

    def finish(self, name: str, total: Tile, dst: Tile, last_step: Expression | None = None,
               folded_tiles: Sequence[Tile] = ()
               ) -> None:
        """Write a fold's result, or ``last_step`` of it, to ``dst``."""
        if total is dst and last_step is None:
            return
        self._copy_folded(name, total, dst, last_step or (lambda s, value, *folded_tiles: value), folded_tiles)

    def start_from(self, name: str, dst: Tile, total: Tile) -> None:
        """Start a fold from the value of ``dst``."""
        self._copy_folded(name, dst, total, lambda s, value: value)

    def _copy_folded(self, name: str, source: Tile, target: Tile, change: Expression, folded_tiles: Sequence[Tile] = ()
                     ) -> None:
        folded, out = [self.folded(name, t) for t in (source, *folded_tiles)], self.folded(name, target)
        nest, inputs = self.nest, list[OperandView]()
        if nest.mask:
            inputs = self.inputs()
        else:                                       # a loop over only the result
            position_of = {axis: k for k, axis in enumerate(out.axes)}
            *folded, out = (OperandView(o.value, o.dtype, tuple(position_of[a] for a in o.axes))
                            for o in (*folded, out))
            nest = IterationSpace(len(position_of))

        def body(s: ScalarBody, ins: Sequence[Value], outs: Sequence[Value]) -> list[Value]:
            value = change(s, s.convert(ins[0], source.dtype, self.compute), *ins[1:len(folded)])
            return [s.convert(value, self.compute, target.dtype)]
        self.writer.generic(nest, [*folded, *inputs], [out], self.compute, body)


def _signed(s: ScalarBody, value: Value, negate: bool) -> Value:
    return s.alu("negative", value) if negate else value


def lower_operations(module: Module, dialect: str) -> None:
    """Convert every tile operation of a dialect."""
    operations = operations_of(module, lambda name: name in REGISTRY and name.startswith(f"{dialect}."))
    with module.context, ir.Location.unknown():
        builder = StructuredBuilder(frozenset(
            value for kernel in kernel_functions(module) if kernel.may_alias
            for value, spec in zip(kernel.op.regions[0].blocks[0].arguments, kernel.arguments) if spec.kind == "input"))
        for operation in operations:
            builder.convert(operation)


# -- templates ---------------------------------------------------------------------------------------------------------
# Conversions are memoized: the result of the first of equal operations is copied for the others.
# A kernel that was unrolled has the same few operations on thousands of buffers.

class Template:
    """The operations that an operation was lowered to, as a function of its operands.

    Copies have the location of the operation that they replace. Operations in their regions keep the first operation's.
    """

    def __init__(self, operands: Sequence[Value], written: Sequence[Operation]) -> None:
        """Create a template from the operations ``written``, which use ``operands`` and each other's results."""
        number_of = {value: k for k, value in enumerate(operands)}
        total = len(operands)
        self.steps: list[tuple[Operation, list[int]]] = []        # an operation, and the sources of its operands
        for op in written:
            self.steps.append((op, [number_of[value] for value in op.operands]))
            for result in op.results:
                number_of[result] = total
                total += 1

    def write(self, operands: Sequence[Value], location: ir.Location, at: ir.InsertionPoint) -> None:
        values = list(operands)
        for op, sources in self.steps:
            copy = op.clone(at)
            copy.location = location
            copied = copy.operands
            for k, source in enumerate(sources):
                copied[k] = values[source]
            values += copy.results

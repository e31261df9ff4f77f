# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads a kernel function of the waist and writes the machine's program for it.

Loops and branches become the machine's, structured operations calls of routines, views nothing: an address is a linear
form of slots.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np

from nki_mlir.analysis.effects import RESHAPES, effects_of
from nki_mlir.bindings import Operation, Value, ir, operations_of
from nki_mlir.diagnostics import InternalError, Unsupported
from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op
from nki_mlir.dialects.nisa.indirect import rows_of
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.dialects.symbol_ranges import CASTS
from nki_mlir.targets.cpu import host
from nki_mlir.targets.cpu.host_operations import HostOperations
from nki_mlir.targets.cpu.image import PYTHON, SITE_BITS, Site
from nki_mlir.targets.cpu.loops import addressed, can_stream
from nki_mlir.targets.cpu.packed_products import PackedProducts
from nki_mlir.targets.cpu.program import (
    CODE,
    FIRST_ID,
    MEMORY,
    SELF,
    Assembly,
    CodeAddress,
    Extent,
    LiveBuffers,
    RoutineCall,
    ScratchBuffer,
    slot_address,
    slot_value,
)
from nki_mlir.targets.cpu.proofs import ByteInterval, FreshBuffers, OpenBlock, RuntimeCheck, independent, open_checks
from nki_mlir.targets.cpu.read_in_place import ReadInPlace, find_fields
from nki_mlir.targets.cpu.routines import Limits, row_copies_of
from nki_mlir.targets.cpu.row_chunks import RowChunks
from nki_mlir.targets.cpu.rows_in_place import store_rows_in_place
from nki_mlir.targets.cpu.schedule import cost_of, dims_of, parts_of, reach_of
from nki_mlir.targets.cpu.values import ALIASES, ARITHMETIC, MemrefView, Values
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.reader import Reader, Structured, copied, layout_of

MUCH = 8                            # part of the last cache that is worth keeping free for others
TERMINATORS = {"scf.yield", "scf.condition", "func.return"}

@dataclass
class CommonParts:
    """What all programs of a kernel share: the places that can fail, constants, operations that the host runs."""

    sites: list[Site] = field(default_factory=list)
    constants: list[np.ndarray] = field(default_factory=list)
    hosts: HostOperations = field(default_factory=HostOperations)

    def site(self, op: Operation, rule: str = "mask", *values: object) -> Linear:
        """The number of an operation's place, from 1 on. It has few bits: places beyond share the last."""
        if len(self.sites) < (1 << SITE_BITS) - 1:
            self.sites.append(Site(location_of(op), rule, values))
        return Linear(len(self.sites))


class Assembler:
    """One function."""

    def __init__(self, kernel: KernelFunction, axes: int, reader: Reader, common: CommonParts) -> None:
        self.kernel, self.reader, self.common, self.hosts = kernel, reader, common, common.hosts
        self.code = Assembly(FIRST_ID + axes + len(kernel.inputs) + len(kernel.shared), common.constants)
        self.values = Values(kernel, axes, self.code)
        self.lives = LiveBuffers()
        self.fresh = FreshBuffers()
        self.chunks = RowChunks([ALIASES] if kernel.may_alias else [spec.name for spec in kernel.inputs])
        self.pieces: dict[int, MemrefView] = {}     # where rows of tables are put, by ``id`` of the call
        self.memory = MEMORY                        # slot of the memory that buffers are made in
        self.cost = 0.0                             # of one run, in nanoseconds, roughly
        self.times = 1                              # how often the current block runs
        self.parallel = False                       # whether the program uses the pool
        self.accesses: list[ByteInterval] | None = None   # of the parallel loop that is being written
        self.targets = set[ScratchBuffer | str]()   # roots
        self.products = PackedProducts(self.code)

    def assemble(self) -> Assembly:
        self.body(iter(operations_of(self.kernel.op, lambda name: True)[1:]))
        self.parallel |= self.products.pack(lambda: self.only_read)
        labels = self.fresh.labels()
        ReadInPlace(self.code, self.chunks, lambda: self.only_read).rewrite()
        if self.pieces:
            store_rows_in_place(self.code, self.pieces, self.chunks.computations, self.only_written)
        self.chunks.split(self.code, labels, self.fresh.zeroed())
        find_fields(self.code)
        self.fresh.end(self.code)
        self.code.items.append(None)
        return self.code

    def body(self, operations: Iterator[Operation]) -> Operation:
        """The operations of one block up to its terminator, which is returned.

        Operations inside others follow them in the sequence.
        """
        for op in operations:
            match op.name:
                case name if name in TERMINATORS:
                    return op
                case "scf.for":
                    self.loop(op, operations)
                case "scf.if":
                    self.branch(op, operations)
                case "scf.while":
                    self.while_loop(op, operations)
                case "linalg.generic" | "linalg.fill":
                    self.computation(op, self.reader.read(op, _body_of(operations)))
                case "memref.copy":
                    self.computation(op, copied(op))
                case "memref.load":
                    self.load(op)
                case _ if is_tile_op(op):
                    self.tile_operation(op)
                case _:
                    self.simple(op)
        raise InternalError("a block without a terminator")

    # -- structure -----------------------------------------------------------------------------------------------------
    def loop(self, op: ir.Operation, operations: Iterator[Operation]) -> None:
        _carries_nothing(op)
        low, high, step = (self.values.form(v) for v in list(op.operands)[:3])
        static = not (low.symbols or high.symbols or step.symbols)
        span = range(low.const, high.const, step.const) if static else None
        memory, variable = self.code.slot(), self.values.variable(low, high, step)
        self.values.forms[op.regions[0].blocks[0].arguments[0]] = slot_value(variable)
        if span and len(span) > 1 and self.accesses is None and _is_parallel(op):
            self.parallel_loop(operations, span, memory, variable)
            return
        outer, self.times = self.times, self.times * (len(span) if span else 1)
        self.products.enter()
        again, end = self.code.label(), self.code.label()
        self.code.emit("nki_set", slot_address(variable), low)
        if not span:
            self.code.emit("nki_unless", self.values.compute("cmpi_slt", low, high), end)
        self.code.mark(again)
        self.inside(operations, OpenBlock(variable, span or None))
        self.code.emit("nki_next", slot_address(variable), step, high, again)
        self.code.mark(end)
        self.products.leave(variable, span or None)
        self.times = outer

    def inside(self, operations: Iterator[Operation], block: OpenBlock, facts: list[Linear] | None = None) -> None:
        """A nested block. Buffers from outside that it uses live on until it has ended, one instruction later."""
        known = len(self.values.facts)
        self.values.facts += facts or []
        self.lives.open()
        self.fresh.blocks.append(block)
        self.body(operations)
        self.fresh.blocks.pop()
        self.lives.close(len(self.code.items))
        del self.values.facts[known:]

    def parallel_loop(self, operations: Iterator[Operation], span: range, memory: int, variable: int) -> None:
        """A loop whose iterations run on the pool, if they are independent and worth it; else one like the others.

        The body is the same in both cases, so it is written first: two items before it and two after it decide.
        """
        start, end = self.code.label(), self.code.label()
        self.products.enter()
        head = len(self.code.items)
        self.code.items += [None, start]
        outside, self.memory, self.accesses = self.memory, memory, []
        cost, self.times, hosts = self.cost, self.times * len(span), len(self.hosts.runners)
        self.inside(operations, OpenBlock(variable, span))
        private = {buffer for buffer, where in self.code.buffers if where == memory}
        if (self.cost - cost >= host.WORTH_WAKING and len(self.hosts.runners) == hosts
                and independent(self.accesses, variable, span, self.values.ranges, private)):
            first = RoutineCall("nki_parallel", (
                slot_value(SELF), slot_value(CODE), start, Linear(variable), Linear(span[0]), Linear(span.step),
                Linear(len(span)), Extent(), Extent(memory), end))
            self.code.items.append(None)
            self.parallel = True
        else:
            self.code.move(memory, outside)
            first = RoutineCall("nki_set", (slot_address(variable), Linear(span[0])))
            self.code.emit("nki_next", slot_address(variable), Linear(span.step), Linear(span.stop), start)
        self.code.items[head] = first
        self.code.mark(end)
        self.products.leave(variable, span)
        self.memory, self.accesses, self.times = outside, None, self.times // len(span)

    def branch(self, op: Operation, operations: Iterator[Operation]) -> None:
        _carries_nothing(op)
        condition = op.operands[0]
        self.products.enter()
        otherwise, end = self.code.label(), self.code.label()
        has_else = len(op.regions[1].blocks) > 0
        self.code.emit("nki_unless", self.values.form(condition), otherwise)
        self.inside(operations, OpenBlock(), self.values.holding(condition, False))
        if has_else:
            self.code.emit("nki_unless", Linear(), end)
        self.code.mark(otherwise)
        if has_else:
            self.inside(operations, OpenBlock(), self.values.holding(condition, True))
        self.code.mark(end)
        self.products.leave()

    def while_loop(self, op: Operation, operations: Iterator[Operation]) -> None:
        _carries_nothing(op)
        self.products.enter()
        again, end = self.code.label(), self.code.label()
        self.lives.open()
        self.fresh.blocks.append(OpenBlock())
        self.code.mark(again)
        condition = self.body(operations).operands[0]
        self.code.emit("nki_unless", self.values.form(condition), end)
        self.body(operations)
        self.code.emit("nki_unless", Linear(), again)
        self.fresh.blocks.pop()
        self.lives.close(len(self.code.items))
        self.code.mark(end)
        self.products.leave()

    # -- values --------------------------------------------------------------------------------------------------------
    def simple(self, op: Operation) -> None:
        """An operation that makes one value and no computation on tiles."""
        values = self.values
        match op.name:
            case "arith.constant":
                if isinstance(op.results[0].type, ir.IndexType | ir.IntegerType):
                    values.forms[op.results[0]] = Linear(int(op.attributes["value"].value))
            case "affine.apply":
                values.forms[op.results[0]], = values.affine(op)
            case "affine.min" | "affine.max":
                values.forms[op.results[0]] = values.extreme(op)
            case "memref.alloc" | "memref.alloca":
                values.allocated(op.results[0], self.memory, self.lives.depth)
                self.fresh.allocated(values.views[op.results[0]], self.code)
            case "memref.get_global":
                values.constant(op)
            case "nki.view" | "memref.reinterpret_cast" | "memref.subview":
                values.views[op.results[0]] = values.part(op)
            case name if name in RESHAPES:
                values.views[op.results[0]] = values.views[op.operands[0]]
            case name if name in CASTS and op.operands[0] in values.forms:
                values.forms[op.results[0]] = values.cast(op)
            case name if name in ARITHMETIC and op.operands[0] in values.forms:
                values.forms[op.results[0]] = values.arithmetic(op)
            case name if name.startswith("scalar.") or name == "memref.dealloc":
                pass                    # scalars outside of bodies are read with the body that uses them
            case name:
                raise Unsupported(feature=f"'{name}' on the CPU", instead="lower to the nki, waist or nisa level"
                                  ).located(location_of(op))

    def use(self, value: object) -> MemrefView:
        view = self.values.views[value]
        if isinstance(view.root, ScratchBuffer):
            self.lives.use(view.root, len(self.code.items))
        return view

    def view(self, value: ir.Value, start: int) -> MemrefView:
        """The memref that a computation works on, from so many bytes on."""
        if value not in self.values.views:
            raise Unsupported(feature="a number that is no constant in a structured operation on the CPU",
                              instead="compute it in the body, or give it as a memref")
        view = self.use(value)
        if not start:
            return view
        return MemrefView(view.root, view.base, view.size, view.offset.plus(Linear(start)), view.name)

    def load(self, op: Operation) -> None:
        """One integer of a buffer, as a value."""
        dtype = layout_of(op.operands[0].type).dtype
        if not dtype.is_integer:
            raise Unsupported(feature="'memref.load' of a float on the CPU", instead="use a linalg operation"
                              ).located(location_of(op))
        self.fresh.loaded(self.use(op.operands[0]))
        view, offset = self.values.element(op)
        for low in (offset, Linear(view.size - dtype.itemsize).plus(offset, -1)):
            if self.values.interval(low)[0] < 0:
                self.code.emit("nki_check", low, self.outside(op, view, 1, False))
        address = view.base.plus(offset)
        self.values.forms[op.results[0]] = self.values.compute(f"load_{dtype.numpy.kind}{dtype.bits}", address)
        if self.accesses is not None:
            self.accesses.append(ByteInterval(view.root, address, 0, dtype.itemsize - 1, False))

    # -- computations --------------------------------------------------------------------------------------------------
    def computation(self, op: Operation, read: Structured) -> None:
        nest = replace(read.nest, limits=()).simplified
        symbols = [self.values.form(v) for v in read.symbols]
        views = [self.view(value, start * o.dtype.itemsize)
                 for value, start, o in zip(read.values, read.starts, read.nest.operands)]
        if read.nest.limits:
            self.check(op, read, symbols)
        for check in open_checks(self.values, nest, views, symbols):
            self.check_bounds(op, check)
        self.fresh.computed(nest, views)
        self.targets |= {view.root for view in views[len(nest.inputs):]}
        places = [view.address for view in views]
        self.cost += self.times * cost_of(nest)
        self.products.enter()
        parts = parts_of(nest, host.threads(), 4 * host.threads()) if self.is_large(nest) else None
        streams = self.streams(nest, views[len(nest.inputs):])
        if parts is None:
            self.code.emit(addressed(nest, streams), *places, *symbols)
            self.chunks.computed(self.code.items[-1], nest, views, places)          # type: ignore[arg-type]
        else:
            self.spread(nest, *parts, places, symbols, streams)
        self.products.computed(nest, views)
        if self.accesses is not None:
            self.accesses += [
                ByteInterval(view.root, place, *reach_of(nest, k), k >= len(nest.inputs), dims_of(nest, k),
                             o.dtype.itemsize)
                for k, (view, place, o) in enumerate(zip(views, places, nest.operands))]

    def streams(self, nest: Nest, written: list[MemrefView]) -> bool:
        """Whether a computation writes nothing but large outputs that the kernel does not read.

        Large are those that no cache holds, and of a kernel whose arrays it does not hold together those that are
        much of it: reading their lines before they are written costs as much as it may save who reads them later.
        """
        least = host.cache_bytes() // (1 if self.fits_cache else MUCH)
        return all(view.size > least for view in written) and can_stream(nest) and all(
            view.root in self.only_written for view in written)

    @cached_property
    def fits_cache(self) -> bool:
        arrays = (prod(spec.shape) * spec.dtype.itemsize for spec in self.kernel.arguments if spec.dtype is not None)
        return sum(arrays) <= host.cache_bytes()

    @cached_property
    def only_written(self) -> set[str]:
        """The kernel's outputs that none of its operations reads."""
        return self.arguments("shared", effects_of(self.kernel.op).reads)

    @cached_property
    def only_read(self) -> set[str]:
        """The kernel's inputs that none of its operations writes; none where they may overlap one that is written."""
        if self.kernel.may_alias:
            return set()
        return self.arguments("input", effects_of(self.kernel.op).writes)

    def arguments(self, kind: str, besides: set[Value]) -> set[str]:
        arguments = zip(self.kernel.op.regions[0].blocks[0].arguments, self.kernel.arguments)
        return {spec.name for value, spec in arguments if spec.kind == kind and value not in besides}

    def is_large(self, nest: Nest) -> bool:
        """Whether one operation is worth several threads, which nothing around it uses."""
        alone = self.accesses is None and prod(self.kernel.grid) == 1
        return alone and cost_of(nest) >= host.WORTH_WAKING and host.threads() > 1

    def spread(self, nest: Nest, part: Nest, count: int, extent: int, places: list[Linear], symbols: list[Linear],
               streams: bool) -> None:
        """The parts of a large operation, on the pool."""
        steps = [o.strides[0] * extent * o.dtype.itemsize for o in nest.operands] + [0] * len(symbols)
        given = [n for value, step in zip((*places, *symbols), steps) for n in (value, Linear(step))]
        address = CodeAddress(addressed(part, streams))
        self.code.emit("nki_spread", address, Linear(count), Linear(len(steps)), *given)
        self.parallel = True

    def check(self, op: Operation, read: Structured, symbols: list[Linear]) -> None:
        """The bounds that were left to run time, before the operation runs."""
        site = self.common.site(op)
        nest = read.nest                            # over the axes that the limits are over
        if nest.mask:
            self.code.emit(Limits(nest.extents, nest.mask, nest.limits, len(symbols)), *symbols, site)
            return
        for constraint in nest.limits:
            self.code.emit("nki_check", _least(constraint, nest.extents, symbols), site)

    def check_bounds(self, op: Operation, check: RuntimeCheck) -> None:
        """A bound of an operand that could not be proved."""
        if check.routine is not None:
            self.code.emit(check.routine, *check.arguments, self.common.site(op))
            return
        assert check.value is not None
        self.code.emit("nki_check", check.value, self.outside(op, check.view, check.itemsize, check.upper))

    def outside(self, op: Operation, view: MemrefView, itemsize: int, upper: bool) -> Linear:
        """The site of an access that may leave its memory."""
        return self.common.site(op, "bounds", view.name, view.size // itemsize, itemsize, upper)

    def tile_operation(self, op: Operation) -> None:
        """What is no structured operation: rows that move by their numbers, and what the interpreter does."""
        read = read_op(op)
        rows = row_copies_of(read)
        views = [self.use(tile.handle) for _, tile in read.operands()]
        self.targets |= {view.root for (field, _), view in zip(read.operands(), views) if field.writes}
        if rows is None or len({view.root for view in views}) < len(views):
            self.on_host(op)
            return
        self.fresh.performed(read, views)
        symbols = [self.values.form(v) for v in read.symbols]
        placed = {field.name: replace(view, offset=view.offset.plus(_combined(tile.offset, symbols),
                                                                    tile.dtype.itemsize))
                  for (field, tile), view in zip(read.operands(), views)}
        places = {name: view.address for name, view in placed.items()}
        table = read.table                     # type: ignore[attr-defined]
        piece, source = read.piece_field, read.addressed_by_data            # type: ignore[attr-defined]
        record = self.code.constant(np.zeros(2, np.int64))      # threads that fail at once may show the other's failure
        site = self.common.site(op, "row", len(self.code.constants) - 1, *rows_of(table))
        start = Linear() if table.on_chip else _combined(table.access.free, symbols)
        self.code.emit(rows, places["index"], places[source], places[piece], record, start,
                       site.plus(Linear(1 << SITE_BITS)))
        self.pieces[id(self.code.items[-1])] = placed[piece]
        self.cost += self.times * (rows.count * cost_of(rows.row))
        if self.accesses is not None:
            written = {field.name for field, _ in read.operands() if field.writes}
            for (field, tile), view in zip(read.operands(), views):
                dims = tuple([(step * tile.dtype.itemsize, n) for step, n in zip(tile.strides, tile.shape)])
                ends, size = [step * (n - 1) for step, n in dims], tile.dtype.itemsize
                low, high = sum(min(0, e) for e in ends), sum(max(0, e) for e in ends) + size - 1
                self.accesses.append(ByteInterval(view.root, places[field.name], low, high, field.name in written, dims,
                                                  0 if tile is table else size))

    def on_host(self, op: Operation) -> None:
        site = self.common.site(op)
        read, values = self.hosts.add(site.const, op)
        self.fresh.performed(read, [self.values.views[tile.handle] for _, tile in read.operands()])
        arguments = [self.use(v).address if v in self.values.views else self.values.form(v) for v in values]
        self.code.emit(PYTHON, site, *arguments)


def _body_of(operations: Iterator[Operation]) -> list[Operation]:
    """The operations in a structured one, which follow it."""
    found = [next(operations)]
    while found[-1].name != "linalg.yield":
        found.append(next(operations))
    return found


def _combined(form: Linear, symbols: list[Linear]) -> Linear:
    """A form over symbols as a form of slots."""
    total = Linear(form.const)
    for position, c in form.symbols:
        total = total.plus(symbols[position], c)
    return total


def _carries_nothing(op: Operation) -> None:
    if len(op.results):
        raise Unsupported(feature=f"'{op.name}' that carries values on the CPU", instead="keep them in a buffer"
                          ).located(location_of(op))


def _is_parallel(op: Operation) -> bool:
    return "nki.loop" in op.attributes and op.attributes["nki.loop"].value == "parallel"


def _least(constraint: Constraint, extents: tuple[int, ...], symbols: list[Linear]) -> Linear:
    """The lowest value of a form over all elements, as a form of slots."""
    form = constraint.form
    low = sum(min(0, c * (extents[axis] - 1)) for axis, c in form.axes)
    return _combined(form, symbols).plus(Linear(low))

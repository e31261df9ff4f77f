# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads a kernel function of the waist into records (``function.py``).

Loops and branches are nodes, structured operations calls of routines, views nothing: an address is a linear form of
slots. Bounds are proved here, where branches around say what holds; what is not proved is a check in the program.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from dataclasses import field as record_field
from functools import cached_property
from math import prod

import numpy as np

from nki_mlir.analysis.effects import RESHAPES
from nki_mlir.bindings import Operation, ir, operations_of
from nki_mlir.diagnostics import InternalError, Unsupported
from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op
from nki_mlir.dialects.nisa.indirect import rows_of
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.dialects.symbol_ranges import CASTS
from nki_mlir.targets.cpu import host
from nki_mlir.targets.cpu.function import (
    ByteRegion,
    NativeBlock,
    NativeBranch,
    NativeFunction,
    NativeLoad,
    NativeLoop,
    NativeWhile,
    TileCall,
    compute,
    slot_address,
    slot_value,
)
from nki_mlir.targets.cpu.host_operations import HostOperations
from nki_mlir.targets.cpu.image import PYTHON, SITE_BITS, Site
from nki_mlir.targets.cpu.loops import can_stream
from nki_mlir.targets.cpu.proofs import RuntimeCheck, open_checks
from nki_mlir.targets.cpu.routines import Limits, row_copies_of
from nki_mlir.targets.cpu.values import ARITHMETIC, Values
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.overlap import ByteInterval
from nki_mlir.waist.reader import Reader, Structured, copied, layout_of

MUCH = 8                            # part of the last cache that is worth keeping free for others
TERMINATORS = {"scf.yield", "scf.condition", "func.return"}


@dataclass
class CommonParts:
    """What all programs of a kernel share: the places that can fail, constants, operations that the host runs."""

    sites: list[Site] = record_field(default_factory=list)
    constants: list[np.ndarray] = record_field(default_factory=list)
    hosts: HostOperations = record_field(default_factory=HostOperations)

    def site(self, op: Operation, rule: str = "mask", *values: object) -> Linear:
        """The number of an operation's place, from 1 on. It has few bits: places beyond share the last."""
        if len(self.sites) < (1 << SITE_BITS) - 1:
            self.sites.append(Site(location_of(op), rule, values))
        return Linear(len(self.sites))


def read_function(kernel: KernelFunction, axes: int, reader: Reader, common: CommonParts) -> NativeFunction:
    """The records of a kernel function whose grid has so many axes."""
    return FunctionReader(kernel, axes, reader, common).function


class FunctionReader:
    """Reads one function."""

    def __init__(self, kernel: KernelFunction, axes: int, reader: Reader, common: CommonParts) -> None:
        self.kernel, self.reader, self.common, self.hosts = kernel, reader, common, common.hosts
        self.function = NativeFunction(kernel, axes, common.constants)
        self.values = Values(self.function)
        self.body(iter(operations_of(kernel.op, lambda name: True)[1:]))

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
        memory, variable = self.function.slot(), self.values.variable(low, high, step)
        self.values.forms[op.regions[0].blocks[0].arguments[0]] = slot_value(variable)
        loop = NativeLoop(variable, low, high, step, span or None, memory=memory, parallel=_is_parallel(op))
        if not span:
            loop.guard = self.function.slot()
        self.function.add(loop)
        self.inside(operations, loop.body)

    def inside(self, operations: Iterator[Operation], block: NativeBlock, facts: list[Linear] | None = None
               ) -> Operation:
        """The operations of a nested block, in which some facts hold."""
        known = len(self.values.facts)
        self.values.facts += facts or []
        with self.function.inside(block):
            last = self.body(operations)
        del self.values.facts[known:]
        return last

    def branch(self, op: Operation, operations: Iterator[Operation]) -> None:
        _carries_nothing(op)
        condition = op.operands[0]
        branch = NativeBranch(self.values.form(condition))
        self.function.add(branch)
        self.inside(operations, branch.then, self.values.holding(condition, False))
        if len(op.regions[1].blocks) > 0:
            branch.otherwise = NativeBlock()
            self.inside(operations, branch.otherwise, self.values.holding(condition, True))

    def while_loop(self, op: Operation, operations: Iterator[Operation]) -> None:
        _carries_nothing(op)
        loop = NativeWhile()
        self.function.add(loop)
        loop.condition = self.values.form(self.inside(operations, loop.test).operands[0])
        self.inside(operations, loop.body)

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
                values.allocated(op.results[0])
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

    def view(self, value: ir.Value, start: int) -> ByteRegion:
        """The memref that a computation works on, from so many bytes on."""
        if value not in self.values.views:
            raise Unsupported(feature="a number that is no constant in a structured operation on the CPU",
                              instead="compute it in the body, or give it as a memref")
        region = self.values.views[value]
        return replace(region, offset=region.offset.plus(Linear(start))) if start else region

    def load(self, op: Operation) -> None:
        """One integer of a buffer, as a value."""
        dtype = layout_of(op.operands[0].type).dtype
        if not dtype.is_integer:
            raise Unsupported(feature="'memref.load' of a float on the CPU", instead="use a linalg operation"
                              ).located(location_of(op))
        region, offset = self.values.element(op)
        for low in (offset, Linear(region.size - dtype.itemsize).plus(offset, -1)):
            if self.values.interval(low)[0] < 0:
                self.function.emit("nki_check", low, self.outside(op, region, 1, False))
        address, slot = region.base.plus(offset), self.function.slot()
        self.function.add(NativeLoad(f"nki_load_{dtype.numpy.kind}{dtype.bits}", (slot_address(slot), address), region,
                               ByteInterval(region.root, address, 0, dtype.itemsize - 1, False)))
        self.values.forms[op.results[0]] = slot_value(slot)

    # -- computations --------------------------------------------------------------------------------------------------
    def computation(self, op: Operation, read: Structured) -> None:
        nest = replace(read.nest, limits=()).simplified
        symbols = [self.values.form(v) for v in read.symbols]
        regions = [self.view(value, start * o.dtype.itemsize)
                   for value, start, o in zip(read.values, read.starts, read.nest.operands)]
        if read.nest.limits:
            self.check(op, read, symbols)
        for check in open_checks(self.values, nest, regions, symbols):
            self.check_bounds(op, check)
        self.function.add(compute(nest, regions, symbols, self.streams(nest, regions[len(nest.inputs):])))

    def streams(self, nest: Nest, written: list[ByteRegion]) -> bool:
        """Whether a computation writes nothing but large outputs that the kernel does not read.

        Large are those that no cache holds, and of a kernel whose arrays it does not hold together those that are
        much of it: reading their lines before they are written costs as much as it may save who reads them later.
        """
        least = host.cache_bytes() // (1 if self.fits_cache else MUCH)
        return all(region.size > least for region in written) and can_stream(nest) and all(
            region.root in self.function.only_written for region in written)

    @cached_property
    def fits_cache(self) -> bool:
        arrays = (prod(spec.shape) * spec.dtype.itemsize for spec in self.kernel.arguments if spec.dtype is not None)
        return sum(arrays) <= host.cache_bytes()

    def check(self, op: Operation, read: Structured, symbols: list[Linear]) -> None:
        """The bounds that were left to run time, before the operation runs."""
        site = self.common.site(op)
        nest = read.nest                            # over the axes that the limits are over
        if nest.mask:
            self.function.emit(Limits(nest.extents, nest.mask, nest.limits, len(symbols)), *symbols, site)
            return
        for constraint in nest.limits:
            self.function.emit("nki_check", _least(constraint, nest.extents, symbols), site)

    def check_bounds(self, op: Operation, check: RuntimeCheck) -> None:
        """A bound of an operand that could not be proved."""
        if check.routine is not None:
            self.function.emit(check.routine, *check.arguments, self.common.site(op))
            return
        assert check.value is not None
        self.function.emit("nki_check", check.value, self.outside(op, check.view, check.itemsize, check.upper))

    def outside(self, op: Operation, region: ByteRegion, itemsize: int, upper: bool) -> Linear:
        """The site of an access that may leave its memory."""
        return self.common.site(op, "bounds", region.name, region.size // itemsize, itemsize, upper)

    def tile_operation(self, op: Operation) -> None:
        """What is no structured operation: rows that move by their numbers, and what the interpreter does."""
        read = read_op(op)
        rows = row_copies_of(read)
        regions = [self.values.views[tile.handle] for _, tile in read.operands()]
        if rows is None or len({region.root for region in regions}) < len(regions):
            self.on_host(op)
            return
        symbols = [self.values.form(v) for v in read.symbols]
        placed = {field.name: replace(region, offset=region.offset.plus(_combined(tile.offset, symbols),
                                                                        tile.dtype.itemsize))
                  for (field, tile), region in zip(read.operands(), regions)}
        places = {name: region.address for name, region in placed.items()}
        table = read.table                     # type: ignore[attr-defined]
        piece, source = read.piece_field, read.addressed_by_data            # type: ignore[attr-defined]
        record = self.function.constant(np.zeros(2, np.int64))  # threads that fail at once may show the other's failure
        site = self.common.site(op, "row", len(self.function.constants) - 1, *rows_of(table))
        start = Linear() if table.on_chip else _combined(table.access.free, symbols)
        written = {field.name for field, _ in read.operands() if field.writes}
        accesses = []
        for (field, tile), region in zip(read.operands(), regions):
            dims = tuple([(step * tile.dtype.itemsize, n) for step, n in zip(tile.strides, tile.shape)])
            ends, size = [step * (n - 1) for step, n in dims], tile.dtype.itemsize
            low, high = sum(min(0, e) for e in ends), sum(max(0, e) for e in ends) + size - 1
            accesses.append(ByteInterval(region.root, places[field.name], low, high, field.name in written, dims,
                                         0 if tile is table else size))
        arguments = (places["index"], places[source], places[piece], record, start, site.plus(Linear(1 << SITE_BITS)))
        self.function.add(TileCall(rows, arguments, read, regions, accesses, placed[piece]))

    def on_host(self, op: Operation) -> None:
        site = self.common.site(op)
        read, values = self.hosts.add(site.const, op)
        regions = [self.values.views[tile.handle] for _, tile in read.operands()]
        arguments = [self.values.views[v].address if v in self.values.views else self.values.form(v) for v in values]
        self.function.add(TileCall(PYTHON, (site, *arguments), read, regions))


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

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowers the records of a kernel function (``waist/function.py``) to the records of the CPU (``function.py``).

A loop or branch becomes a node, and a structured operation becomes a call of a routine. A view becomes no node: its
address is a linear form of slots. The reader proves bounds with the conditions of the branches around an access; for
each bound that it cannot prove it emits a check.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from dataclasses import field as record_field
from functools import cached_property
from math import prod

import numpy as np

from nki_mlir.bindings import Operation
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects import native
from nki_mlir.dialects.access import Constraint, Linear, Tile
from nki_mlir.dialects.enclosing_conditions import interval_given
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.nisa.indirect import rows_of
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.addressed_nest import can_stream
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.host_operations import HostOperations
from nki_mlir.targets.cpu.image import PYTHON, SITE_BITS, Site
from nki_mlir.targets.cpu.proofs import RuntimeCheck, open_checks
from nki_mlir.targets.cpu.routines import Limits, RowCopies, row_copies_of
from nki_mlir.targets.cpu.searches import IndicesOfEight, Search, search_of
from nki_mlir.targets.cpu.values import Values
from nki_mlir.targets.runtime import host
from nki_mlir.waist import function as waist
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.nest_reader import Reader, Structured, layout_of
from nki_mlir.waist.overlap import ByteRegion
from nki_mlir.waist.reader import Executor, read_function

HERE = Executor("on the CPU", multiplies_pairs=True)
MUCH = 8                            # if the arrays exceed the cache, outputs larger than 1 / MUCH of it are streamed


@dataclass
class CommonParts:
    """The state that the programs of a kernel share: failure sites, constants, and operations that the interpreter
    runs."""

    sites: list[Site] = record_field(default_factory=list)
    constants: list[np.ndarray] = record_field(default_factory=list)
    hosts: HostOperations = record_field(default_factory=HostOperations)

    def site(self, op: Operation, rule: str = "mask", *values: object) -> Linear:
        """Register an operation as a failure site; return its number, from 1 on. Sites that exceed ``SITE_BITS`` share
        the last number."""
        if len(self.sites) < (1 << SITE_BITS) - 1:
            self.sites.append(Site(location_of(op), rule, values))
        return Linear(len(self.sites))


def read_native(kernel: KernelFunction, axes: int, nests: Reader, common: CommonParts) -> NativeFunction:
    """Return the CPU's records of a kernel function; ``axes`` is the number of axes of the launch grid."""
    return NativeReader(kernel, axes, nests, common).function


class NativeReader:
    """Lowers the nodes of one kernel function."""

    def __init__(self, kernel: KernelFunction, axes: int, nests: Reader, common: CommonParts) -> None:
        self.kernel, self.common, self.hosts = kernel, common, common.hosts
        self.function = NativeFunction(kernel, axes, common.constants, common.sites)
        body = read_function(kernel.op, HERE, nests)
        self.values = Values(self.function, body.index_values)
        self.memory = cpu.MEMORY                            # the slot of the memory in which buffers are allocated
        self.checked = set[tuple[Limits, tuple[Linear, ...]]]()         # by operations of the block
        self.block(body)

    def block(self, block: waist.FunctionBlock) -> None:
        for node in block.nodes:
            self.node(node)

    def node(self, node: waist.FunctionNode) -> None:
        values = self.values
        match node:
            case waist.NestComputation():
                self.computation(node)
            case waist.BufferReinterpretation():
                values.buffers[node.result] = values.buffers[node.source]
            case waist.BufferAllocation():
                values.allocated(node.result, self.memory, native.ZEROED in node.op.attributes)
            case waist.ForLoop():
                self.loop(node)
            case waist.IfBranch():
                self.branch(node)
            case waist.WhileLoop():
                loop = cpu.NativeWhile()
                self.function.add(loop)
                self.inside(node.test, loop.test)
                loop.condition = values.form(node.test.condition)
                self.inside(node.body, loop.body)
            case waist.ElementLoad():
                self.load(node)
            case waist.TileInstruction():
                self.tile_operation(node)
            case waist.NativeOperation():
                self.native_operation(node)
            case waist.ConstantBuffer():
                values.constant(node)
            case waist.ScalarStep():
                pass                    # the nest whose body uses a scalar reads it
            case waist.ScalarValue() if values.takes(node):
                values.define(node)
            case _:
                raise HERE.refusal(node.op)

    # -- structure -----------------------------------------------------------------------------------------------------
    def loop(self, node: waist.ForLoop) -> None:
        low, high, step = (self.values.form(v) for v in node.bounds)
        if node.body.is_idle and not step.symbols and step.const > 0:
            return
        static = not (low.symbols or high.symbols or step.symbols)
        span = range(low.const, high.const, step.const) if static else None
        variable = self.values.variable(low, high, step)
        self.values.forms[node.variable] = cpu.slot_value(variable)
        loop = cpu.NativeLoop(variable, low, high, step, span or None, on_pool=native.ON_POOL in node.op.attributes)
        if not span:
            loop.guard = self.function.slot()
        self.function.add(loop)
        outside, self.memory = self.memory, loop.memory if loop.on_pool else self.memory
        self.inside(node.body, loop.body)
        self.memory = outside
        if loop.on_pool and (not span or outside != cpu.MEMORY or any(
                isinstance(call, cpu.InParts) or (isinstance(call, cpu.TileCall) and call.on_host)
                for call in cpu.calls_in(loop))):
            from nki_mlir.targets.cpu import native_marks  # start-up: only functions that passes wrote have marks
            raise native_marks.malformed(node.op, "a loop on the pool has constant bounds, no loop on the pool around "
                                         "it, and in it neither spread nests nor operations that the host runs")

    def inside(self, block: waist.FunctionBlock, target_block: cpu.NativeBlock, facts: Sequence[Linear] = ()) -> None:
        """Lower a nested block, in which the facts hold as well."""
        number_of_facts, checked = len(self.values.facts), self.checked
        self.values.facts, self.checked = [*self.values.facts, *facts], set(checked)
        with self.function.inside(target_block):
            self.block(block)
        del self.values.facts[number_of_facts:]
        self.checked = checked

    def branch(self, node: waist.IfBranch) -> None:
        branch = cpu.NativeBranch(self.values.form(node.condition))
        self.function.add(branch)
        self.inside(node.then, branch.then, self.values.holding(node.condition, False))
        if node.otherwise is not None:
            branch.otherwise = cpu.NativeBlock()
            self.inside(node.otherwise, branch.otherwise, self.values.holding(node.condition, True))

    # -- memory --------------------------------------------------------------------------------------------------------
    def load(self, node: waist.ElementLoad) -> None:
        """Load one integer of a buffer into a slot, after the checks of its bounds."""
        op, dtype = node.op, layout_of(node.memref.type).dtype
        if not dtype.is_integer:
            raise Unsupported(feature="'memref.load' of a float on the CPU", instead="use a linalg operation"
                              ).located(location_of(op))
        element = self.values.element(node)
        for low in (element.offset, Linear(element.size - dtype.itemsize).plus(element.offset, -1)):
            if interval_given(low, self.values.facts, self.values.ranges)[0] < 0:             # type: ignore[arg-type]
                self.function.emit("nki_check", low, self.outside(op, element, 1, False))
        slot = self.function.slot()
        self.function.add(cpu.NativeLoad(f"nki_load_{dtype.numpy.kind}{dtype.bits}",
                                         (cpu.slot_address(slot), element.address), element, dtype))
        self.values.forms[node.result] = cpu.slot_value(slot)

    # -- computations --------------------------------------------------------------------------------------------------
    def computation(self, node: waist.NestComputation) -> None:
        op, read = node.op, node.read
        nest = replace(read.nest, limits=())
        if not self.function.is_written:
            nest = nest.simplified
        elif native.FRESH in op.attributes and not nest.inputs:
            return                                      # the fill, a part of the product after it
        symbols = [self.values.form(v) for v in read.symbols]
        regions = [self.values.resolved(region, start * o.dtype.itemsize)
                   for region, start, o in zip(node.regions, read.starts, read.nest.operands)]
        if any(step.kind == "lookup" for step in nest.steps):
            from nki_mlir.targets.cpu import native_marks  # start-up: only functions that passes wrote have marks
            native_marks.check_lookups(op, nest, regions, self.function)
        if read.nest.limits:
            self.check(op, read, symbols)
        for check in open_checks(self.values, nest, regions, symbols):
            self.check_bounds(op, check)
        if self.function.is_written:
            from nki_mlir.targets.cpu import native_marks  # start-up: only functions that passes wrote have marks
            self.function.add(native_marks.marked_call(op, nest, regions, symbols))
            return
        self.function.add(cpu.compute(nest, regions, symbols, self.streams(nest, regions[len(nest.inputs):])))

    def streams(self, nest: Nest, written: list[ByteRegion]) -> bool:
        """Return whether streaming stores pay: the computation writes large outputs only, and the kernel does not read
        them.

        An output is large if it exceeds the last-level cache or, if the arrays of the kernel together exceed the cache,
        a fraction of it: an ordinary store first loads the cache line, which costs as much as a later reader may save.
        """
        least = host.cache_bytes() // (1 if self.fits_cache else MUCH)
        return all(region.size > least for region in written) and can_stream(nest) and all(
            region.root in self.function.only_written for region in written)

    @cached_property
    def fits_cache(self) -> bool:
        arrays = (prod(spec.shape) * spec.dtype.itemsize for spec in self.kernel.arguments if spec.dtype is not None)
        return sum(arrays) <= host.cache_bytes()

    def check(self, op: Operation, read: Structured, symbols: list[Linear]) -> None:
        """Emit the checks of an operation's limits, which run before the operation."""
        site = self.common.site(op)
        nest = read.nest                            # not simplified, because the limits use its axes
        if nest.mask:
            self.function.emit(Limits(nest.extents, nest.mask, nest.limits, len(symbols)), *symbols, site)
            return
        for constraint in nest.limits:
            self.function.emit("nki_check", _least(constraint, nest.extents, symbols), site)

    def check_bounds(self, op: Operation, check: RuntimeCheck) -> None:
        """Emit the check of an operand's bound that could not be proved."""
        if check.routine is not None:
            if (check.routine, check.arguments) not in self.checked:
                self.function.emit(check.routine, *check.arguments, self.common.site(op))
            return
        assert check.value is not None
        self.function.emit("nki_check", check.value, self.outside(op, check.view, check.itemsize, check.upper))

    def outside(self, op: Operation, region: ByteRegion, itemsize: int, upper: bool) -> Linear:
        """Return the failure site of an access that may be out of bounds."""
        return self.common.site(op, "bounds", region.name, region.size // itemsize, itemsize, upper)

    def tile_operation(self, node: waist.TileInstruction) -> None:
        """Lower an instruction that is not a structured operation to a routine, or to a call of the interpreter."""
        read = node.instruction
        regions = [self.values.buffers[tile.handle] for _, tile in read.operands()]
        distinct = len({region.root for region in regions}) == len(regions)
        rows, search = row_copies_of(read), search_of(read)
        if rows is not None and distinct:
            self.row_copies(node, rows, regions)
        elif search is not None and (distinct or works_in_place(search[0], regions)):
            self.search(node, *search, regions)
        else:
            self.on_host(node, read)

    def operand_regions(self, op: Op, regions: Sequence[ByteRegion], symbols: list[Linear]) -> dict[str, ByteRegion]:
        """Return the region of each operand from its first element on, by the operand's name."""
        return {field.name: region.moved(tile.offset.over(symbols), tile.dtype.itemsize)
                for (field, tile), region in zip(op.operands(), regions)}

    def search(self, node: waist.TileInstruction, search: Search, names: Sequence[str],
               regions: Sequence[ByteRegion]) -> None:
        """Lower a search to its routine."""
        op = node.instruction
        symbols = [self.values.form(v) for v in op.symbols]
        tiles = self.operand_regions(op, regions, symbols)
        accesses = [accessed(tile, tiles[field.name], field.writes) for field, tile in op.operands()]
        arguments = (self.common.site(node.op), *[tiles[name].address for name in names])
        call = cpu.TileCall(search, arguments, op, regions, symbols, accesses)
        if native.SPREAD in node.op.attributes:
            from nki_mlir.targets.cpu import native_marks  # start-up: only functions that passes wrote have marks
            call = native_marks.spread_search(node.op, call)
        self.function.add(call)

    def row_copies(self, node: waist.TileInstruction, rows: RowCopies, regions: Sequence[ByteRegion]) -> None:
        """Lower an operation that moves rows by their numbers to a routine."""
        op, read = node.op, node.instruction
        symbols = [self.values.form(v) for v in read.symbols]
        operand_regions = self.operand_regions(read, regions, symbols)
        starts = {name: region.address for name, region in operand_regions.items()}
        table = read.table                     # type: ignore[attr-defined]
        piece, source = read.piece_field, read.addressed_by_data            # type: ignore[attr-defined]
        # Each call has a separate error record. Threads that fail in the same call at the same time overwrite it.
        record = self.function.constant(np.zeros(2, np.int64))
        site = self.common.site(op, "row", len(self.function.constants) - 1, *rows_of(table))
        start = Linear() if table.on_chip else table.access.free.over(symbols)
        accesses = [accessed(tile, operand_regions[field.name], field.writes, tile is not table)
                    for field, tile in read.operands()]
        arguments = (starts["index"], starts[source], starts[piece], record, start, site.plus(Linear(1 << SITE_BITS)))
        rows = replace(rows, streams=native.STREAMS in op.attributes and rows.can_stream)
        self.function.add(cpu.TileCall(rows, arguments, read, regions, symbols, accesses, operand_regions[piece]))

    def on_host(self, node: waist.TileInstruction, op: Op) -> None:
        site = self.common.site(node.op)
        self.hosts.add(site.const, op, location_of(node.op))
        regions = [self.values.buffers[tile.handle] for _, tile in op.operands()]
        symbols = [self.values.form(v) for v in op.symbols]
        arguments = (site, *[region.address for region in regions], *symbols)
        self.function.add(cpu.TileCall(PYTHON, arguments, op, regions, symbols))

    # -- operations that passes write ----------------------------------------------------------------------------------
    def native_operation(self, node: waist.NativeOperation) -> None:
        from nki_mlir.targets.cpu import native_marks  # start-up: only functions that passes wrote have marks
        op = node.op
        if op.name == native.TABLE:
            self.values.buffers[op.results[0]] = native_marks.table_of_operation(self.function, op)
            return
        if op.name == native.PACKED_PRODUCT:
            regions = [self.values.resolved(region) for region in node.regions]
            routine, nest = native_marks.packed_product(op)
            for check in open_checks(self.values, nest, regions, ()):
                self.check_bounds(op, check)
            self.function.add(cpu.NestCall(routine, tuple([region.address for region in regions]), nest, regions))
            return
        forms = [self.values.form(value) for value in op.operands]
        site = self.common.site(op, *native_marks.failure_of(op))
        if op.name == native.CHECK:
            self.function.emit("nki_check", *forms, site)
            self.values.facts.append(forms[0])
        else:
            limits = native_marks.limits_of(op)
            self.function.emit(limits, *forms, site)
            self.checked.add((limits, tuple(forms)))


def accessed(tile: Tile, region: ByteRegion, writes: bool, by_runs: bool = True) -> ByteRegion:
    """Return the bytes of a tile from its first element on: those of each contiguous run or, without ``by_runs``, all
    from the first to the last."""
    size = tile.dtype.itemsize
    access = region.accessed(tuple([(step * size, n) for step, n in zip(tile.strides, tile.shape)]), size, writes)
    low, high = access.reach
    return access if by_runs else region.moved(Linear(low)).accessed((), high + 1 - low, writes)


def works_in_place(search: Search, regions: Sequence[ByteRegion]) -> bool:
    """Return whether a search replaces elements of its data, and its other operands are in other buffers."""
    return isinstance(search, IndicesOfEight) and search.in_place and len(
        {region.root for region in regions}) == len(regions) - 1


def _least(constraint: Constraint, extents: tuple[int, ...], symbols: list[Linear]) -> Linear:
    """Return the minimum of a linear form over all elements, as a form over slots."""
    form = constraint.form
    low = sum(min(0, c * (extents[axis] - 1)) for axis, c in form.axes)
    return Linear(form.const + low, form.symbols).over(symbols)

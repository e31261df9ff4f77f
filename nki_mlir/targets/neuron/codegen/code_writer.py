# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the records of a kernel back into the function of MLIR that they were read from."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nki_mlir.bindings import Attribute, ir
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import PSUM
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.mlir_ops import write_op
from nki_mlir.dialects.op import Op, changed
from nki_mlir.scalar.dtypes import BOOL
from nki_mlir.scalar.predicates import COMPARISONS
from nki_mlir.targets.neuron.codegen import records

ADDRESS = "nki.address"         # the attribute of a memref.alloc: [partition, byte in the partition]
ADDRESSES = "nki.addresses"  # an element for each block: [partition, byte], in PSUM [bank, partition, byte in the bank]
PLACED = "nki.placed"           # marks an address that allocate-on-chip chose and may choose again

EXTREMES = {"min": "arith.minsi", "max": "arith.maxsi"}
LOGIC = {"and": "arith.andi", "or": "arith.ori"}
AFFINE: dict[str, Callable[[ir.AffineExpr, ir.AffineExpr], ir.AffineExpr]] = {
    "add": operator.add, "subtract": operator.sub, "mult": operator.mul, "mod": ir.AffineExpr.get_mod,
    "floordiv": ir.AffineExpr.get_floor_div}
# predicates of arith.cmpi
PREDICATES = {comparison.name: number for number, comparison in enumerate(COMPARISONS)}
LEAVES = (*EXTREMES, *PREDICATES, *LOGIC)    # leaves of affine expressions


def write_code(kernel: KernelFunction, code: records.Code) -> None:
    """Replace the function's body; program ids that the code does not use any more are dropped from its signature."""
    _RecordsWriter(kernel, code)


class _RecordsWriter:
    def __init__(self, kernel: KernelFunction, code: records.Code) -> None:
        self.kernel, self.code = kernel, code
        self.make = Attributes()
        self.index = ir.IndexType.get()
        self.unknown = ir.Location.unknown()
        self.buffers: dict[records.DeviceBuffer, ir.Value] = {}
        self.values: dict[records.Value, ir.Value] = {}
        self.constants: dict[int, ir.Value] = {}
        self.block_now = kernel.op.regions[0].blocks[0]
        self.location = self.unknown
        for operation in reversed(list(self.block_now.operations)):
            operation.operation.erase()
        self.arguments()
        self.nodes(code.body)
        self.operation("func.return")
        self.signature()

    # -- arguments -----------------------------------------------------------------------------------------------------
    def arguments(self) -> None:
        """Map tensors, and program ids that instructions still read, to the function's arguments."""
        by_role = {(b.role, b.index): b for b in self.code.globals}
        programs = {p.axis: p for p in self.code.programs}
        for argument, spec in zip(self.block_now.arguments, self.kernel.arguments):
            if spec.kind == "program_id":
                if spec.index in programs:
                    self.values[programs[spec.index]] = argument
            else:
                self.buffers[by_role["output" if spec.kind == "shared" else "input", spec.index]] = argument

    def signature(self) -> None:
        """Drop the program ids and the grid if loops replace them."""
        op, block = self.kernel.op, self.kernel.op.regions[0].blocks[0]
        used_axes = {p.axis for p in self.code.programs}
        used_arguments = [k for k, a in enumerate(self.kernel.arguments) if a.kind != "program_id"
                          or a.index in used_axes]
        if len(used_arguments) < len(self.kernel.arguments):
            for k in reversed(range(len(self.kernel.arguments))):
                if k not in used_arguments:
                    block.erase_argument(k)
            marks = op.attributes["arg_attrs"]
            op.attributes["arg_attrs"] = ir.ArrayAttr.get([marks[k] for k in used_arguments])
            signature = ir.FunctionType.get([a.type for a in block.arguments], [])
            op.attributes["function_type"] = ir.TypeAttr.get(signature)
            op.attributes["nki.results"] = self.make.value(tuple(used_arguments.index(r) for r in self.kernel.results))
        if "nki.grid" in op.attributes:
            op.attributes["nki.grid"] = self.make.value(tuple(self.code.grid))

    # -- code ----------------------------------------------------------------------------------------------------------
    def block(self, block: records.Block, target_block: ir.Block, condition: records.Value | None = None) -> None:
        """Write a block that ends with its condition, or with nothing."""
        outer, self.block_now = self.block_now, target_block
        saved_values = dict(self.values)
        self.nodes(block)
        if condition is None:
            self.operation("scf.yield")
        else:
            self.operation("scf.condition", [self.truth(condition)])
        self.block_now, self.values = outer, saved_values

    def nodes(self, block: records.Block) -> None:
        for buffer in block.buffers:
            self.allocation(buffer)
        for node in block.nodes:
            self.location = self.file_location(node.location)
            match node:
                case records.InstructionStep():
                    self.step(node.op)
                case records.Loop():
                    bounds = [self.constant(n) for n in (node.span.start, node.span.stop, node.span.step)]
                    op = self.operation("scf.for", bounds, regions=1, attributes=node.attributes)
                    inner = op.regions[0].blocks.append(self.index, arg_locs=[self.unknown])
                    self.values[node.variable] = inner.arguments[0]
                    self.block(node.body, inner)
                case records.Branch():
                    op = self.operation("scf.if", [self.truth(node.condition)], regions=2)
                    for body, region in zip((node.then, node.otherwise), op.regions):
                        if body.nodes or region == op.regions[0]:
                            self.block(body, region.blocks.append())
                case records.Load():
                    self.load(node)
                case records.While():
                    op = self.operation("scf.while", regions=2)
                    before, after = (region.blocks.append() for region in op.regions)
                    self.block(node.test, before, node.condition)
                    self.block(node.body, after)

    def step(self, op: Op) -> None:
        buffers = [t.handle for _, t in op.operands()]
        for buffer in buffers:
            if buffer not in self.buffers:
                self.allocation(buffer)                 # a constant, whose global is read where it is first used
        symbols = tuple(self.value(s) for s in op.symbols)
        on_values = changed(op, lambda t: replace(t, handle=self.buffers[t.handle]), symbols=symbols)
        write_op(on_values, self.make, self.location, ir.InsertionPoint(self.block_now))

    def load(self, node: records.Load) -> None:
        access = node.tile.access
        assert access.partition is not None
        subscripts, remaining = [], access.free.const
        for extent in reversed(node.tile.base_shape[1:]):
            subscripts.append(self.constant(remaining % extent))
            remaining //= extent
        number = self.operation("memref.load", [self.buffers[node.tile.handle], self.constant(access.partition.const),
                                                *reversed(subscripts)], [ir.Type.parse(access.dtype.mlir)])
        cast = "arith.index_castui" if access.dtype is BOOL else "arith.index_cast"
        self.values[node.variable] = self.operation(cast, number.results, [self.index]).results[0]

    def allocation(self, buffer: records.DeviceBuffer) -> None:
        kind = self.make.memref(buffer.shape, buffer.dtype, buffer.space)
        location = self.file_location(buffer.location)
        if buffer.role == "constant":
            name = ir.FlatSymbolRefAttr.get(buffer.name)
            op = self.at_head("memref.get_global", [kind], {"name": name}, location)
        else:
            attributes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0]), **buffer.attributes}
            if buffer.name:
                attributes["nki.name"] = self.make.value(buffer.name)
            if buffer.address is not None:
                attributes[ADDRESS] = self.make.value(buffer.address)
                if not buffer.fixed:
                    attributes[PLACED] = ir.UnitAttr.get()
            if buffer.addresses:
                attributes[ADDRESSES] = self.make.value(tuple(self.block_address(buffer, a) for a in buffer.addresses))
            op = ir.Operation.create("memref.alloc", results=[kind], attributes=attributes, loc=location,
                                     ip=ir.InsertionPoint(self.block_now))
        self.buffers[buffer] = op.results[0]

    def block_address(self, buffer: records.DeviceBuffer, address: tuple[int, int]) -> tuple[int, ...]:
        partition, byte = address
        bank = self.code.machine.psum_bank_bytes
        return (byte // bank, partition, byte % bank) if buffer.space == PSUM else address

    # -- values --------------------------------------------------------------------------------------------------------
    def value(self, value: records.Value) -> ir.Value:
        if isinstance(value, int):
            return self.constant(value)
        if value not in self.values:
            assert isinstance(value, records.Computed)
            self.values[value] = self.computed(value)
        return self.values[value]

    def truth(self, condition: records.Value) -> ir.Value:
        """Return a condition, which is any number that is not 0."""
        truth = self.value(condition)
        return truth if truth.type == self.make.i1 else self.value(records.Computed("ne", condition, 0))

    def number(self, value: records.Value) -> ir.Value:
        number = self.value(value)
        if number.type != self.make.i1:
            return number
        return self.operation("arith.index_castui", [number], [self.index]).results[0]

    def computed(self, value: records.Computed) -> ir.Value:
        if value.op in PREDICATES:
            predicate = ir.IntegerAttr.get(self.make.i64, PREDICATES[value.op])
            return self.operation("arith.cmpi", [self.number(value.lhs), self.number(value.rhs)], [self.make.i1],
                                  {"predicate": predicate}).results[0]
        if value.op in LOGIC:
            return self.operation(LOGIC[value.op], [self.truth(value.lhs), self.truth(value.rhs)], [self.make.i1]
                                  ).results[0]
        if value.op in EXTREMES:
            return self.operation(EXTREMES[value.op], [self.number(value.lhs), self.number(value.rhs)], [self.index]
                                  ).results[0]
        leaves: dict[records.Value, int] = {}
        expression = self.affine(value, leaves)
        mapping = ir.AffineMapAttr.get(ir.AffineMap.get(0, len(leaves), [expression]))
        return self.operation("affine.apply", [self.number(v) for v in leaves], [self.index],
                              {"map": mapping}).results[0]

    def affine(self, value: records.Value, leaves: dict[records.Value, int]) -> ir.AffineExpr:
        """Return the value as an affine expression of loop variables. Values that are not affine in them become
        symbols."""
        if isinstance(value, int):
            return ir.AffineExpr.get_constant(value)
        if not isinstance(value, records.Computed) or value.op in LEAVES:
            return ir.AffineExpr.get_symbol(leaves.setdefault(value, len(leaves)))
        return AFFINE[value.op](self.affine(value.lhs, leaves), self.affine(value.rhs, leaves))

    def constant(self, value: int) -> ir.Value:
        if value not in self.constants:
            number = ir.IntegerAttr.get(self.index, value)
            self.constants[value] = self.at_head("arith.constant", [self.index], {"value": number},
                                                 self.unknown).results[0]
        return self.constants[value]

    # -- operations ----------------------------------------------------------------------------------------------------
    def file_location(self, at: Location | None) -> ir.Location:
        return ir.Location.file(at.file, at.line, at.column + 1) if at is not None else self.unknown

    def operation(self, name: str, operands: Sequence[ir.Value] = (), results: Sequence[ir.Type] = (),
                  attributes: Mapping[str, Attribute] | None = None,
                  regions: int = 0) -> ir.Operation:
        return ir.Operation.create(name, operands=list(operands), results=list(results), attributes=attributes,
                                   regions=regions, loc=self.location, ip=ir.InsertionPoint(self.block_now))

    def at_head(self, name: str, results: list[ir.Type], attributes: dict[str, Attribute],
                location: ir.Location) -> ir.Operation:
        """Write at the head of the function, where every block sees it."""
        ip = ir.InsertionPoint.at_block_begin(self.kernel.op.regions[0].blocks[0])
        return ir.Operation.create(name, results=results, attributes=attributes, loc=location, ip=ip)

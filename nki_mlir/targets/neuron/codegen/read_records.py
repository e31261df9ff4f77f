# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads a nisa-level module into records (``kernel_code``)."""

from dataclasses import replace

import numpy as np

from nki_mlir.bindings import Attribute, Operation, ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import HBM, Access, Linear, Tile
from nki_mlir.dialects.attributes import affine_value
from nki_mlir.dialects.buffer_types import global_array, memref_parts
from nki_mlir.dialects.creation import terminator
from nki_mlir.dialects.kernel_function import BadSignature, KernelFunction
from nki_mlir.dialects.mlir_ops import is_tile_op, loop_span, read_op
from nki_mlir.dialects.op import Op, changed
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.dialects.symbol_ranges import CASTS
from nki_mlir.machine import machine_named
from nki_mlir.scalar.dtypes import BOOL
from nki_mlir.targets.neuron.codegen.records import (
    Block,
    Branch,
    Code,
    DeviceBuffer,
    InstructionStep,
    Load,
    Loop,
    LoopVariable,
    Value,
    While,
    compute,
)
from nki_mlir.targets.neuron.codegen.substitution import with_values

COMPARISONS = {0: "eq", 1: "ne", 2: "lt", 3: "le", 4: "gt", 5: "ge"}            # predicates of arith.cmpi
OPERATIONS = {"arith.addi": "add", "arith.subi": "subtract", "arith.muli": "mult", "arith.andi": "and",
              "arith.ori": "or", "arith.minsi": "min", "arith.maxsi": "max", "arith.floordivsi": "floordiv"}
DROPPED = ("memref.dealloc", "scf.yield", "scf.condition", "func.return")
ADDRESS = "nki.address"         # of a memref.alloc: [partition, byte in the partition]
ADDRESSES = "nki.addresses"     # of each block: [partition, byte], in PSUM [bank, partition, byte in the bank]
PLACED = "nki.placed"           # beside an address that allocate-on-chip chose, which it may choose again


def read_code(kernel: KernelFunction, like: Code | None = None) -> Code:
    """The records of a kernel function; raises ``Unsupported`` for what has no instruction.

    ``like``: the code of another variant of the kernel, whose inputs, outputs and constants this one shares.
    """
    return _Reader(kernel, like).code


class _Reader:
    def __init__(self, kernel: KernelFunction, like: Code | None) -> None:
        self.buffers: dict[object, DeviceBuffer] = {}        # by SSA value
        self.values: dict[object, Value] = {}
        self.code = Code(kernel.name, machine_named(kernel.target), like.globals if like else [], Block(),
                         kernel.grid)
        block = kernel.op.regions[0].blocks[0]
        for argument, spec in zip(block.arguments, kernel.arguments):
            if spec.kind == "program_id":
                variable = LoopVariable(f"program_id_{spec.index}", 0, kernel.grid[spec.index] - 1, spec.index)
                self.code.programs.append(variable)
                self.values[argument] = variable
                continue
            assert spec.dtype is not None
            if spec.space != HBM:
                what = f"argument {argument.arg_number} of @{kernel.name} is in {spec.space}"
                raise BadSignature(what=what).located(location_of(kernel.op))
            role = "output" if spec.kind == "shared" else "input"
            self.buffers[argument] = self.shared(
                DeviceBuffer(spec.name, "hbm", spec.shape, spec.dtype, role, spec.index))
        self.block(block, self.code.body)

    def block(self, block: ir.Block, into: Block) -> Block:
        for op in block.operations:
            self.operation(op.operation, into)
        return into

    def operation(self, op: Operation, into: Block) -> None:
        name = op.name
        if is_tile_op(op):
            into.nodes.append(InstructionStep(self.tile_operation(op), location_of(op)))
        elif name == "scf.for":
            into.nodes += self.loop(op)
        elif name == "scf.if":
            then, otherwise = Block(), Block()
            for region, made in zip(op.regions, (then, otherwise)):
                for block in region.blocks:
                    self.block(block, made)
            into.nodes.append(Branch(self.values[op.operands[0]], then, otherwise, location_of(op)))
        elif name == "scf.while":
            into.nodes.append(self.while_loop(op))
        elif name == "memref.load":
            into.nodes.append(self.load(op))
        elif name == "memref.alloc":
            into.buffers.append(self.allocation(op))
        elif name == "memref.get_global":
            self.buffers[op.results[0]] = self.constant(op)
        elif name not in DROPPED:
            value = self.value(op)
            self.values[op.results[0]] = value

    def tile_operation(self, op: Operation) -> Op:
        read = read_op(op)
        if not read.mnemonic:
            raise Unsupported(feature=f"'{op.name}' in an instruction stream",
                              instead="lower it to nisa operations first").located(location_of(op))
        def tile(tile: Tile) -> Tile:
            buffer = self.buffers[tile.handle]
            return replace(tile, handle=buffer, label=buffer.name or tile.label)

        symbols = [self.values[s] for s in read.symbols]
        return with_values(changed(read, tile), symbols)

    def loop(self, op: Operation) -> list[Loop]:
        span = loop_span(op)
        if span is None:
            raise Unsupported(feature="a loop whose bounds are known at run time only",
                              instead="use constant bounds").located(location_of(op))
        if not span:
            return []
        block = op.regions[0].blocks[0]
        variable = LoopVariable("i", span[0], span[-1])
        self.values[block.arguments[0]] = variable
        marks = dict(op.attributes.items())
        return [Loop(variable, span, self.block(block, Block()), location_of(op), marks)]

    def while_loop(self, op: Operation) -> While:
        if len(op.results) or len(op.operands):
            raise Unsupported(feature="'scf.while' with loop-carried values", instead="keep them in a buffer").located(
                location_of(op))
        before, after = (region.blocks[0] for region in op.regions)
        test = self.block(before, Block())
        condition = self.values[terminator(before).operands[0]]
        return While(test, condition, self.block(after, Block()), location_of(op))

    def load(self, op: ir.Operation) -> Load:
        """An element as a number."""
        buffer, starts = self.buffers[op.operands[0]], [self.values[v] for v in list(op.operands)[1:]]
        if buffer.space == HBM or not buffer.dtype.is_integer or not all(isinstance(n, int) for n in starts):
            raise Unsupported(feature=f"a register that is loaded from {buffer.name or buffer.space}",
                              instead="load it from an integer at a fixed place on chip").located(location_of(op))
        free = 0
        for extent, start in zip(buffer.shape[1:], starts[1:]):
            free = free * extent + start                                # type: ignore[operator]
        access = Access(buffer.dtype, Linear(starts[0]), Linear(free), ((1, 1), (1, 1)))     # type: ignore[arg-type]
        low, high = (0, 1) if buffer.dtype is BOOL else (-1 << 31, (1 << 31) - 1)
        variable = LoopVariable("loaded", low, high)
        self.values[op.results[0]] = variable
        loaded = Tile(buffer, buffer.space, buffer.shape, buffer.dtype, access, buffer.name)
        return Load(variable, loaded, location_of(op))

    def value(self, op: ir.Operation) -> Value:
        name = op.name
        if name in CASTS:
            return self.values[op.operands[0]]
        if name == "arith.constant":
            return int(op.attributes["value"].value)
        if name == "affine.apply":
            mapping = op.attributes["map"].value
            operands = [self.values[v] for v in op.operands]
            return affine_value(mapping.results[0], operands, mapping.n_dims, lambda n: n, compute)
        if name == "arith.cmpi" and op.attributes["predicate"].value in COMPARISONS:
            return compute(COMPARISONS[op.attributes["predicate"].value], *(self.values[v] for v in op.operands))
        if name in OPERATIONS:
            return compute(OPERATIONS[name], *(self.values[v] for v in op.operands))
        raise Unsupported(feature=f"'{name}' in an instruction stream", instead="lower to the nisa level").located(
            location_of(op))

    # -- memory --------------------------------------------------------------------------------------------------------
    def allocation(self, op: Operation) -> DeviceBuffer:
        shape, dtype, space = memref_parts(op.results[0].type)
        marks = dict(op.attributes.items())
        buffer = DeviceBuffer(text_of(marks.pop("nki.name", None)), space, shape, dtype, location=location_of(op))
        marks.pop("operandSegmentSizes", None)
        if ADDRESS in marks:
            partition, byte = (n.value for n in marks.pop(ADDRESS))
            buffer.address, buffer.fixed = (partition, byte), marks.pop(PLACED, None) is None
        if ADDRESSES in marks:
            buffer.addresses = tuple(self.block_address([n.value for n in a]) for a in marks.pop(ADDRESSES))
            if len(buffer.addresses) == 1:
                (buffer.address,), buffer.addresses, buffer.fixed = buffer.addresses, (), True
        buffer.attributes = marks
        self.buffers[op.results[0]] = buffer
        return buffer

    def block_address(self, given: list[int]) -> tuple[int, int]:
        """(partition, byte) of a block; a bank comes first in PSUM."""
        partition, byte = given[-2:]
        return partition, byte + (given[0] * self.code.machine.psum_bank_bytes if len(given) == 3 else 0)

    def constant(self, op: ir.Operation) -> DeviceBuffer:
        name = op.attributes["name"].value
        shape, dtype, space = memref_parts(op.results[0].type)
        data = np.ascontiguousarray(global_array(op)).tobytes()
        for known in self.code.globals:
            if (known.name, known.role, known.data) == (name, "constant", data):
                return known
        place = sum(g.role == "constant" for g in self.code.globals)
        return self.shared(DeviceBuffer(name, space, shape, dtype, "constant", place, data, location=location_of(op)))

    def shared(self, buffer: DeviceBuffer) -> DeviceBuffer:
        """The HBM tensor of that role and place, made if it is new."""
        for known in self.code.globals:
            if (known.role, known.index) == (buffer.role, buffer.index):
                return known
        self.code.globals.append(buffer)
        return buffer


def text_of(attribute: Attribute | None) -> str:
    return attribute.value if attribute is not None else ""

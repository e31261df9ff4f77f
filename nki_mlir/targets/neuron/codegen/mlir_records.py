# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads nisa-level MLIR into records; the base of passes on records."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nki_mlir.bindings import Module, Operation, ir
from nki_mlir.conversion.operation_groups import Repeats
from nki_mlir.diagnostics import Location, NkiMlirError, Unsupported
from nki_mlir.dialects.access import HBM, Access, Linear, Tile
from nki_mlir.dialects.attributes import affine_value
from nki_mlir.dialects.buffer_types import global_array, memref_parts
from nki_mlir.dialects.kernel_function import BadSignature, KernelFunction, kernel_functions
from nki_mlir.dialects.late_operations import DelayedAllocation
from nki_mlir.dialects.mlir_ops import recognize
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.source_locations import in_file, location_of
from nki_mlir.machine import Machine, machine_named
from nki_mlir.passes.pass_manager import Pass
from nki_mlir.scalar.dtypes import BOOL, DType
from nki_mlir.targets.neuron.codegen.code_writer import ADDRESS, ADDRESSES, PLACED, PREDICATES, write_code
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
    with_values,
)
from nki_mlir.targets.neuron.codegen.repeated_records import Templates
from nki_mlir.transforms.verify_target import VerifiedInstruction
from nki_mlir.waist.function import (
    BufferAllocation,
    ConstantBuffer,
    ElementLoad,
    ForLoop,
    FunctionBlock,
    FunctionNode,
    IfBranch,
    IndexCast,
    IndexMap,
    IndexOperation,
    ScalarConstant,
    ScalarValue,
    TileInstruction,
    WhileLoop,
)
from nki_mlir.waist.reader import Executor, read_function

HERE = Executor("in an instruction stream", "lower to the nisa level")
SIZES = "operandSegmentSizes"
FUNCTIONS = ("add", "subtract", "mult", "and", "or", "min", "max", "floordiv", *PREDICATES)


def read_code(kernel: KernelFunction, like: Code | None = None, repeats: Repeats | None = None,
              instructions: Sequence[VerifiedInstruction] = ()) -> Code:
    """Return the records of a kernel function. Raise ``Unsupported`` for an operation without an instruction.

    ``like``: the code of another variant of the kernel, whose inputs, outputs and constants this one shares.
    ``repeats``: the operations that the function lacks, since they repeat others. Raise ``NoTemplate`` if they must be
    lowered. ``instructions``: those of the module, if they have been read.
    """
    return _Reader(kernel, like, repeats, instructions).code


class _Reader:
    def __init__(self, kernel: KernelFunction, like: Code | None, repeats: Repeats | None,
                 instructions: Sequence[VerifiedInstruction]) -> None:
        self.instructions = iter(instructions)
        self.buffers: dict[object, DeviceBuffer] = {}        # buffers and numbers by SSA value
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
                problem = f"argument {argument.arg_number} of @{kernel.name} is in {spec.space}"
                raise BadSignature(what=problem).located(location_of(kernel.op))
            role = "output" if spec.kind == "shared" else "input"
            self.buffers[argument] = self.shared(
                DeviceBuffer(spec.name, "hbm", spec.shape, spec.dtype, role, spec.index))
        body = read_function(kernel.op, HERE)
        if repeats is None:
            self.block(body, self.code.body)
        else:
            self.with_repeats(body, self.code.body, Templates(
                repeats, [self.buffers.get(argument) for argument in block.arguments], self.allocation))

    def with_repeats(self, block: FunctionBlock, target_block: Block, templates: Templates) -> None:
        """Read the function's block, and write the records of omitted operations where they were."""
        for node in block.nodes:
            templates.write_in_front(node.op, target_block)
            if isinstance(node, BufferAllocation) and (buffer := templates.repeated_allocation(node.op)) is not None:
                self.buffers[node.result] = buffer
                continue
            self.node(node, target_block)
            match node:
                case TileInstruction():
                    templates.note_instruction(node.op, target_block.nodes[-1].op)
                case BufferAllocation():
                    templates.note_buffer(node.op, target_block.buffers[-1])
                case _:
                    templates.note_other(node.op)
        templates.write_rest(target_block)

    def block(self, block: FunctionBlock, target_block: Block) -> Block:
        for node in block.nodes:
            self.node(node, target_block)
        return target_block

    def node(self, node: FunctionNode, target_block: Block) -> None:
        match node:
            case TileInstruction():
                target_block.nodes.append(InstructionStep(self.instruction(node.op), location_of(node.op)))
            case BufferAllocation():
                self.buffers[node.result] = buffer = self.allocation(node.op)
                target_block.buffers.append(buffer)
            case ScalarValue():
                self.values[node.result] = self.value(node)
            case ForLoop():
                target_block.nodes += self.loop(node)
            case IfBranch():
                then, otherwise = (self.block(b or FunctionBlock(), Block()) for b in (node.then, node.otherwise))
                target_block.nodes.append(Branch(self.values[node.condition], then, otherwise, location_of(node.op)))
            case WhileLoop():
                test = self.block(node.test, Block())
                condition = self.values[node.test.condition]
                target_block.nodes.append(While(test, condition, self.block(node.body, Block()), location_of(node.op)))
            case ElementLoad():
                target_block.nodes.append(self.load(node))
            case ConstantBuffer():
                self.buffers[node.result] = self.constant(node.op)
            case _:
                raise HERE.refusal(node.op)

    def instruction(self, operation: Operation) -> Op:
        # Buffers of loops without iterations are left out.
        verified = next((other for other in self.instructions if other.operation == operation), None)
        record, operands = recognize(operation) if verified is None else verified[1:]
        record.op.kind()                                    # known to copies, too
        op = record.on(operation, operands, self.tile)
        if not op.mnemonic:
            raise Executor(HERE.where, "lower it to nisa operations first").refusal(operation)
        return with_values(op, [self.values[s] for s in op.symbols])

    def tile(self, tile: Tile, handle: ir.Value) -> Tile:
        buffer = self.buffers[handle]
        return tile.on(buffer, buffer.name or tile.label)

    def loop(self, node: ForLoop) -> list[Loop]:
        span = node.span
        if span is None:
            raise Unsupported(feature="a loop whose bounds are known at run time only",
                              instead="use constant bounds").located(location_of(node.op))
        if not span:
            return []
        variable = LoopVariable("i", span[0], span[-1])
        self.values[node.variable] = variable
        marks = dict(node.op.attributes.items())
        return [Loop(variable, span, self.block(node.body, Block()), location_of(node.op), marks)]

    def load(self, node: ElementLoad) -> Load:
        """Return the load of an integer from a fixed address on chip into a register."""
        if node.memref not in self.buffers:
            raise HERE.refusal(node.op)
        buffer, starts = self.buffers[node.memref], [self.values[v] for v in node.subscripts]
        if buffer.space == HBM or not buffer.dtype.is_integer or not all(isinstance(n, int) for n in starts):
            raise Unsupported(feature=f"a register that is loaded from {buffer.name or buffer.space}",
                              instead="load it from a fixed address on chip").located(location_of(node.op))
        free = 0
        for extent, start in zip(buffer.shape[1:], starts[1:]):
            free = free * extent + start                                # type: ignore[operator]
        access = Access(buffer.dtype, Linear(starts[0]), Linear(free), ((1, 1), (1, 1)))     # type: ignore[arg-type]
        low, high = (0, 1) if buffer.dtype is BOOL else (-1 << 31, (1 << 31) - 1)
        variable = LoopVariable("loaded", low, high)
        self.values[node.result] = variable
        loaded = Tile(buffer, buffer.space, buffer.shape, buffer.dtype, access, buffer.name)
        return Load(variable, loaded, location_of(node.op))

    def value(self, node: ScalarValue) -> Value:
        match node:
            case ScalarConstant():
                return int(node.number)
            case IndexCast(narrows=False):
                return self.values[node.operands[0]]
            case IndexMap(choice="", mapping=mapping):
                operands = [self.values[v] for v in node.operands]
                return affine_value(mapping.results[0], operands, mapping.n_dims, lambda n: n, compute)
            case IndexOperation(function=name) if name in FUNCTIONS:
                try:
                    return compute(name, *(self.values[v] for v in node.operands))
                except NkiMlirError as error:
                    raise error.located(location_of(node.op)) from None
        raise HERE.refusal(node.op)

    # -- memory --------------------------------------------------------------------------------------------------------
    def allocation(self, op: Operation | DelayedAllocation) -> DeviceBuffer:
        if type(op) is DelayedAllocation:
            return delayed_buffer(op, self.code.machine)
        shape, dtype, space = memref_parts(op.results[0].type)
        marks = dict(op.attributes.items())
        name = marks.pop("nki.name").value if "nki.name" in marks else ""
        return allocated_buffer(name, space, shape, dtype, marks, location_of(op), self.code.machine)

    def constant(self, op: ir.Operation) -> DeviceBuffer:
        name = op.attributes["name"].value
        shape, dtype, space = memref_parts(op.results[0].type)
        data = np.ascontiguousarray(global_array(op)).tobytes()
        for existing in self.code.globals:
            if (existing.name, existing.role, existing.data) == (name, "constant", data):
                return existing
        position = sum(g.role == "constant" for g in self.code.globals)
        return self.shared(DeviceBuffer(name, space, shape, dtype, "constant", position, data,
                                        location=location_of(op)))

    def shared(self, buffer: DeviceBuffer) -> DeviceBuffer:
        """Return the HBM tensor of that role and index; add it if it is new."""
        for existing in self.code.globals:
            if (existing.role, existing.index) == (buffer.role, buffer.index):
                return existing
        self.code.globals.append(buffer)
        return buffer


def delayed_buffer(entry: DelayedAllocation, machine: Machine) -> DeviceBuffer:
    """Return the buffer of an allocation that is not MLIR."""
    buffer, attributes, (file, line, column, *_) = entry
    return allocated_buffer(buffer.name, buffer.space, buffer.physical_shape, buffer.dtype, attributes,
                            in_file(file, line, column, ""), machine)


def allocated_buffer(name: str, space: str, shape: tuple[int, ...], dtype: DType, attributes: Mapping[str, Any],
                     location: Location | None, machine: Machine) -> DeviceBuffer:
    """Return the buffer of a ``memref.alloc`` with these attributes in addition to its name."""
    buffer = DeviceBuffer(name, space, shape, dtype, location=location)
    if len(attributes) == 1 and SIZES in attributes:
        return buffer
    marks = dict(attributes)
    marks.pop(SIZES, None)
    if ADDRESS in marks:
        partition, byte = (n.value for n in marks.pop(ADDRESS))
        buffer.address, buffer.fixed = (partition, byte), marks.pop(PLACED, None) is None
    if ADDRESSES in marks:
        buffer.addresses = tuple(block_address([n.value for n in a], machine) for a in marks.pop(ADDRESSES))
        if len(buffer.addresses) == 1:
            (buffer.address,), buffer.addresses, buffer.fixed = buffer.addresses, (), True
    buffer.attributes = marks
    return buffer


def block_address(numbers: list[int], machine: Machine) -> tuple[int, int]:
    """Return (partition, byte) of a block; in PSUM the numbers begin with a bank."""
    partition, byte = numbers[-2:]
    return partition, byte + (numbers[0] * machine.psum_bank_bytes if len(numbers) == 3 else 0)


class RecordsPass(Pass):
    """Base of passes that work on the records of a kernel's code."""

    def run(self, module: Module) -> None:
        with module.context, ir.Location.unknown():
            for kernel in kernel_functions(module):
                code = read_code(kernel)
                write_code(kernel, self.rewritten(code) or code)

    def rewritten(self, code: Code) -> Code | None:
        """Return the code after the pass; None if the pass changed the code in place."""



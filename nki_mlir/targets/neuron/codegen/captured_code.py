# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the records of a kernel from its capture, without MLIR in between.

That is possible for a kernel that consists of instructions on buffers, outside of loops, branches and launch grids: the
capture has checked the rules of the target for each. The records equal those that ``mlir_records`` reads from the
kernel's module.
"""

from typing import Any

from nki_mlir.bindings import Module, ir
from nki_mlir.conversion.delayed_groups import is_known, lower_delayed
from nki_mlir.conversion.repeated_operations import LoweredOnce
from nki_mlir.dialects.attributes import LARGEST_STEP, Attributes, read_value
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.late_operations import DelayedAllocation, DelayedOperation, LateOperations, LateValue
from nki_mlir.dialects.nisa.gpsimd_call import GpsimdCallOp
from nki_mlir.dialects.nisa.meeting import Meeting
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.source_locations import in_file
from nki_mlir.machine import machine_named
from nki_mlir.targets import CapturedVariant
from nki_mlir.targets.neuron.codegen.lowered_kernel import LoweredKernel
from nki_mlir.targets.neuron.codegen.mlir_records import delayed_buffer
from nki_mlir.targets.neuron.codegen.records import Block, Code, DeviceBuffer, InstructionStep

# the key of an operation's record without buffers in the operation's memo; the value is None if the record needs MLIR
RECORD = "record"


def lowered_variant(variant: CapturedVariant) -> LoweredKernel:
    """Return the kernel of a variant that serves all programs, lowered for the emission."""
    late, signature = variant.late, variant.signature
    if late is None or not late.complete or any(a.kind == "program_id" for a in signature.arguments):
        return LoweredKernel(variant.module)
    with signature.op.context, ir.Location.unknown():
        is_straight = all(is_known(entry.buffer.dtype) if type(entry) is DelayedAllocation else
                          is_instruction(entry, late.make) for entry in late.entries)
    if is_straight and late.checked:
        return StraightKernel(signature, late)
    delayed = None if is_straight else lower_delayed(variant.partial_module, signature, late)
    return LoweredKernel(variant.module) if delayed is None else DelayedKernel(variant, delayed)


def is_instruction(late: DelayedOperation, make: Attributes) -> bool:
    """Return whether an operation is an instruction that has no mask, symbols and marks, and whose record needs no
    MLIR (``record_of``)."""
    memo = late.memo
    if not memo or late.marks or late.op.symbols:
        return False
    if RECORD not in memo:
        memo[RECORD] = record_of(late, make)
    return memo[RECORD] is not None


def record_of(late: DelayedOperation, make: Attributes) -> Op | None:
    """Return the record of operations of this form, with the values that attributes of MLIR have; None if it needs
    MLIR."""
    cls = type(late.op)
    if cls.dialect != "nisa" or not cls.mnemonic or cls.has_linear_attributes or issubclass(
            cls, (GpsimdCallOp, Meeting)):
        return None
    tiles = {field.name: tile for field, tile in late.operands}
    for tile in tiles.values():
        if not (is_known(tile.base_dtype) and is_known(tile.dtype)) or any(
                abs(step) > LARGEST_STEP or count > LARGEST_STEP for step, count in tile.access.dims):
            return None
    written = ir.DictAttr.get({name: make.value(kind(getattr(late.op, name))) for name, kind in cls.attributes.items()})
    fields: dict[str, Any] = tiles | {name: read_value(written[name], kind, name)
                                      for name, kind in cls.attributes.items()}
    op = cls(**fields)
    op.kind()                                           # copies share the memo
    return op


class DelayedKernel(LoweredKernel):
    """A kernel of which the capture wrote no MLIR, lowered from its operations."""

    def __init__(self, variant: CapturedVariant, lowered: LoweredOnce) -> None:
        self.variant = variant
        self.module, self.repeats, self.instructions = lowered

    @property
    def captured(self) -> Module:
        return self.variant.module


class StraightKernel(LoweredKernel):
    """A kernel of instructions whose records the capture has."""

    exchanges_data = False

    def __init__(self, signature: KernelFunction, late: LateOperations) -> None:
        self.kernel, self.entries = signature, late.entries

    def code(self, like: Code | None = None) -> Code:
        kernel, entries = self.kernel, self.entries
        code = Code(kernel.name, machine_named(kernel.target), [], Block(), kernel.grid)
        buffers: dict[LateValue, DeviceBuffer] = {}
        by_argument = list[DeviceBuffer]()
        for spec in kernel.arguments:
            role = "output" if spec.kind == "shared" else "input"
            assert spec.dtype is not None
            by_argument.append(DeviceBuffer(spec.name, "hbm", spec.shape, spec.dtype, role, spec.index))
        code.globals.extend(by_argument)
        nodes, allocations = code.body.nodes, code.body.buffers
        for entry in entries:
            if type(entry) is DelayedAllocation:
                buffer = buffers[entry.buffer.handle] = delayed_buffer(entry, code.machine)
                allocations.append(buffer)
                continue
            file, line, column = entry.at[:3]
            op = object.__new__(type(entry.op))
            values = op.__dict__ = entry.memo[RECORD].__dict__.copy()
            values["extra"] = {}
            for field, tile in entry.operands:
                handle = tile.handle
                if handle not in buffers:
                    buffers[handle] = by_argument[handle.value.arg_number]
                buffer = buffers[handle]
                values[field.name] = tile.on(buffer, buffer.name or field.name)
            nodes.append(InstructionStep(op, in_file(file, line, column, "")))
        return code

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""unread-results: drop instructions whose results no instruction with an effect outside of the chip's memories needs.

before:  t = load x;  s = exp t;  y = store t          after:  t = load x;  y = store t

The pass keeps writes of inputs and outputs in HBM, and of all tensors in HBM if programs exchange data; reads by
branches and registers; and instructions that print, exchange data, or check run-time indices. Every instruction that
writes a tile which a needed instruction reads is needed, too; a sum that begins from 0 does not read the registers. The
pass treats tiles at addresses that the kernel chose as separate: a write is not visible through another tile at its
address.
"""

from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.instruction_order import is_pinned
from nki_mlir.dialects.nisa.indirect import DataAddressed
from nki_mlir.dialects.op import REGISTERS, Op
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.dependences import accessed
from nki_mlir.targets.neuron.codegen.fuse_instructions import BufferUses, Uses, uses_of
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Code, DeviceBuffer, InstructionStep, blocks, steps_in


class UnreadResults(RecordsPass, name="unread-results", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        unread_results(code)


def unread_results(code: Code) -> int:
    """Drop instructions in place, and return their number."""
    if not _may_be_unread(code):
        return 0
    uses = uses_of(code)
    if any(step.op.acts_outside for step in steps_in(code.body)):       # another core may read what this one writes
        for buffer, of_buffer in uses.items():
            of_buffer.controls |= buffer.space == HBM
    if not any(_only_writers_read(*item) for item in uses.items()) and not any(
            _begins_sum(step.op) for step in steps_in(code.body)):
        return 0
    needed = _needed(code, uses)
    dropped = 0
    for block in blocks(code.body):
        nodes = [node for node in block.nodes if type(node) is not InstructionStep or node in needed]
        dropped += len(block.nodes) - len(nodes)
        block.nodes = nodes
    return dropped


def _may_be_unread(code: Code) -> bool:
    """Return whether no instruction reads some tile of the program, except those that write it."""
    written, read = set[DeviceBuffer](), set[DeviceBuffer]()
    for step in steps_in(code.body):
        sources, targets = accessed(step.op)
        handles = [tile.handle for tile in targets if tile is not None]
        written.update(handles)
        for tile in sources:
            if tile is not None and tile.handle not in handles:
                read.add(tile.handle)
        if _begins_sum(step.op):                # the registers, whose earlier values may be unread
            return True
    return any(buffer.role == "local" for buffer in written - read)


def _begins_sum(op: Op) -> bool:
    return op.__dict__.get(REGISTERS[0]) is not None and op.overwrites(REGISTERS[0])


def _only_writers_read(buffer: DeviceBuffer, uses: BufferUses) -> bool:
    return not _is_needed(buffer, uses) and bool(uses.writers) and all(
        reader in uses.writers for reader in uses.readers)


def _is_needed(buffer: DeviceBuffer, uses: BufferUses) -> bool:
    """Return whether all writes of a buffer are needed."""
    return buffer.role != "local" or uses.controls


def _needed(code: Code, uses: Uses) -> set[InstructionStep]:
    """Return the instructions that have an effect outside, and all that write what these read."""
    waiting = [step for step in steps_in(code.body) if _has_effect(step, uses)]
    needed, reached = set(waiting), set[DeviceBuffer]()
    while waiting:
        op = waiting.pop().op
        for name, tile in op.sources():
            if tile.handle not in reached and not op.overwrites(name):
                reached.add(tile.handle)
                new = [writer for writer in uses[tile.handle].writers if writer not in needed]
                needed.update(new)
                waiting += new
    return needed


def _has_effect(step: InstructionStep, uses: Uses) -> bool:
    op, targets = step.op, step.op.targets()
    return not targets or op.acts_outside or is_pinned(op) or (
        isinstance(op, DataAddressed) and op.mode == "error") or any(
            _is_needed(tile.handle, uses[tile.handle]) for _, tile in targets)

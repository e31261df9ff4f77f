# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""unread-results: drop instructions whose results no instruction with an effect outside of the chip's memories needs.

before:  t = load x;  s = exp t;  y = store t          after:  t = load x;  y = store t

The pass keeps writes of inputs and outputs in HBM, and of all tensors in HBM if programs exchange data; reads by
branches and registers; and instructions that print, exchange data, or check run-time indices. Every instruction that
writes a tile which a needed instruction reads is needed, too; a sum that begins from 0 does not read the registers, and
dropout of no element or of all elements does not need the generator's state. The pass treats tiles at addresses that
the kernel chose as separate: a write is not visible through another tile at its address.
"""

from collections import defaultdict

from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.instruction_order import is_pinned
from nki_mlir.dialects.nisa.indirect import DataAddressed
from nki_mlir.dialects.nisa.random import DropoutOp
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
    needed = _needed(code, uses)
    dropped = 0
    for block in blocks(code.body):
        nodes = [node for node in block.nodes if type(node) is not InstructionStep or node in needed]
        dropped += len(block.nodes) - len(nodes)
        block.nodes = nodes
    return dropped


def _may_be_unread(code: Code) -> bool:
    """Return whether no instruction with an effect outside reads some tile of the program, directly or through others;
    also for tiles that only instructions read which write these tiles."""
    sources_of = defaultdict[DeviceBuffer, list[DeviceBuffer]](list)    # of the instructions that write a buffer
    waiting = list[DeviceBuffer]()
    for step in steps_in(code.body):
        op = step.op
        # the earlier values may be unread
        if (REGISTERS[0] in op.__dict__ and _begins_sum(op)) or (isinstance(op, DropoutOp) and op.is_certain):
            return True
        sources, targets = accessed(op)
        read = [tile.handle for tile in sources if tile is not None]
        written, is_needed = list[DeviceBuffer](), op.acts_outside
        for tile in targets:
            if tile is not None:
                buffer = tile.handle
                written.append(buffer)
                sources_of[buffer] += read
                is_needed = is_needed or buffer.role != "local"
        if is_needed or not written:
            waiting += read + written
    reached = set[DeviceBuffer]()
    while waiting:
        if (buffer := waiting.pop()) not in reached:
            reached.add(buffer)
            waiting += sources_of.get(buffer, ())
    return not reached.issuperset(sources_of)


def _begins_sum(op: Op) -> bool:
    return op.__dict__.get(REGISTERS[0]) is not None and op.overwrites(REGISTERS[0])


def _is_any_state(op: Op, name: str) -> bool:
    """Return whether an operand is the state of a generator, and does not decide the operation's other results."""
    return isinstance(op, DropoutOp) and op.is_certain and name == "state"


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
            if tile.handle not in reached and not op.overwrites(name) and not _is_any_state(op, name):
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

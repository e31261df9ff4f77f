# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""coalesce-copies: merge a tile whose last use is a copy with the target of that copy.

before:  t = x; t = y where p; q[j] = copy t          after:  q[j] = x; q[j] = y where p
         t = load x; q[j] = copy t                            q[j] = load x
         register r = 1; register s = copy r                  register s = 1

The pass merges the two if the copy keeps the dtype, if one run of instructions writes the tile, reads it only until its
last write, and copies it last, all with the same elements in one order, and if nothing else touches the destination
from the first of these instructions to the copy. The tile may be at an address that the kernel chose, which becomes
free. Where the kernel fixes the order or the address of the destination, the copy must follow the load of its source.
``apart`` bounds the number of instructions between the first and the copy. The pass merges a copy in one of several
iterations only after its loop has been unrolled.
"""

from collections.abc import Sequence

from nki_mlir.dialects.access import Tile, in_shape, same_pattern
from nki_mlir.dialects.instruction_order import is_ordered, is_pinned
from nki_mlir.dialects.nisa.movement import DmaCopyOp, TensorCopyOp
from nki_mlir.dialects.op import FRESH, Op, changed
from nki_mlir.dialects.target_findings import may_replace
from nki_mlir.machine import Engine, Machine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.forward_transfers import is_backwards
from nki_mlir.targets.neuron.codegen.fuse_instructions import APART, Uses, plain, uses_of
from nki_mlir.targets.neuron.codegen.fusion_patterns import in_one
from nki_mlir.targets.neuron.codegen.merge_instructions import has_registers
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Code, InstructionStep, blocks, tiles_of
from nki_mlir.targets.neuron.codegen.schedule_instructions import runs_of
from nki_mlir.targets.neuron.timing.transfers import Transfers


class CoalesceCopies(RecordsPass, name="coalesce-copies", reads=Level.NISA):
    apart: int = 200            # most instructions between the first write of a tile and the copy

    def rewritten(self, code: Code) -> None:
        coalesce_copies(code, self.apart)


def coalesce_copies(code: Code, apart: int = APART) -> int:
    """Drop copies if the source can be the destination itself, in place. Return the number of dropped copies."""
    uses, dropped = Uses(), 0
    for block in blocks(code.body):
        dropped_copies: set[InstructionStep] = set()
        for run in list(runs_of(block.nodes)):
            for at, copy in enumerate(run):
                if type(copy.op) is not TensorCopyOp:
                    continue
                follows = at > 0 and _follows_load(copy.op, run[at - 1].op)
                if not _may_be_dropped(copy.op, follows):
                    continue
                uses = uses or uses_of(code)
                before = [step for step in run[max(0, at - apart):at] if step not in dropped_copies]
                writers = _writers(copy, before[-1:] if follows else before, uses, follows)
                if writers and _write_there(copy, writers, code.machine):
                    dropped_copies.add(copy)
                    _move_uses(copy, writers, uses)
        if dropped_copies:
            block.nodes = [node for node in block.nodes if node not in dropped_copies]
        dropped += len(dropped_copies)
    return dropped


def _follows_load(copy: TensorCopyOp, before: Op) -> bool:
    """Return whether the operation before a copy is the transfer that fills its source, so that no instruction
    moves."""
    return type(before) is DmaCopyOp and before.dst.handle is copy.src.handle and not before.acts_outside


def _may_be_dropped(op: TensorCopyOp, follows: bool) -> bool:
    """Return whether a copy stays in one memory and may be left out. ``follows``: it follows a load of its source."""
    if op.compute is not None or op.dst.dtype is not op.src.dtype or is_ordered(op) or (
            op.mask or op.limits or op.dst.space != op.src.space or op.src.access.symbols_used()):
        return False
    return follows or (plain(op) and not (op.dst.handle.fixed or op.dst.handle.addresses))


def _writers(copy: InstructionStep, before: Sequence[InstructionStep], uses: Uses,
             follows: bool) -> list[InstructionStep]:
    """Return the instructions that write the copy's source, in order; none if they cannot write its destination
    instead. ``before`` are the instructions before the copy; all of them must be among these."""
    op = copy.op
    assert isinstance(op, TensorCopyOp)
    source_uses = uses[op.src.handle]
    if op.src.handle.attributes or op.src.handle.addresses or source_uses.controls or not source_uses.writers:
        return []                               # other code uses the source, or nothing writes it
    first_writer = next(iter(source_uses.writers))
    start = next((k for k, step in enumerate(before) if step is first_writer), len(before))
    between = [step for step in before[start:] if any(t.handle is op.src.handle for t in tiles_of(step))]
    if len(between) != len(source_uses.writers) or between != list(source_uses.writers) or any(
            step is not copy and step not in source_uses.writers for step in source_uses.readers):
        return []
    if first_writer in source_uses.readers or first_writer.op.mask or first_writer.op.limits:
        return []                               # the first writer does not write all elements
    if any(tile.handle is op.dst.handle for step in before[start:] for tile in tiles_of(step)):
        return []
    if any(step.op.queued for step in between) and has_registers(op.dst.handle, uses[op.dst.handle]):
        return []                               # PSUM, which no transfer writes
    return between if all(_may_move(step, op, follows) for step in between) else []


def _may_move(step: InstructionStep, copy: TensorCopyOp, follows: bool) -> bool:
    """Return whether an instruction may write the copy's destination as it writes the copy's source."""
    op = step.op
    loads = type(op) is DmaCopyOp and not op.acts_outside and (follows or not is_pinned(op))
    if not (plain(op) or (loads and not is_backwards(copy.dst))) or FRESH in op.extra or (
            op.runs_on is Engine.TENSOR) or (
            copy.engine not in (Engine.UNKNOWN.value, op.runs_on.value)):
        return False
    return all(_in_destination(tile, copy) is not None for tile in tiles_of(step) if tile.handle is copy.src.handle)


def _in_destination(tile: Tile, copy: TensorCopyOp) -> Tile | None:
    """Return the part of the copy's destination that replaces an instruction's tile of its source; None if the
    instruction uses other elements, or the destination has no such pattern."""
    return in_shape(copy.dst, tile.shape) if same_pattern(tile, copy.src) else None


def _takes_longer(new: Op, old: Op, machine: Machine) -> bool:
    """Return whether a transfer takes longer than another one, such as one to single elements."""
    transfers = Transfers(machine)
    assert isinstance(new, DmaCopyOp) and isinstance(old, DmaCopyOp)
    return max(transfers.of(new).parts) > max(transfers.of(old).parts)


def _write_there(copy: InstructionStep, writers: Sequence[InstructionStep], machine: Machine) -> bool:
    """Let the instructions write the copy's destination if the target then supports all of them. Return whether it
    does."""
    rewritten: list[Op] = []
    for step in writers:
        writer_op, copy_op = in_one(step.op, copy.op)
        assert isinstance(copy_op, TensorCopyOp)
        new = changed(writer_op, lambda tile, copy_op=copy_op: (_in_destination(tile, copy_op) or tile)
                      if tile.handle is copy_op.src.handle else tile)   # type: ignore[misc]
        if not may_replace(new, [step.op, copy.op], machine) or new.runs_on is not step.op.runs_on or (
                new.queued and _takes_longer(new, step.op, machine)):
            return False
        rewritten.append(new)
    for step, new in zip(writers, rewritten, strict=True):
        step.op, step.work = new, None
    return True


def _move_uses(copy: InstructionStep, writers: Sequence[InstructionStep], uses: Uses) -> None:
    """Update the uses of the two tiles: the instructions that wrote the source now write the destination, at the copy's
    number."""
    op = copy.op
    assert isinstance(op, TensorCopyOp)
    source, target = uses[op.src.handle], uses[op.dst.handle]
    after = list(target.writers)
    at = after.index(copy)
    target.writers = dict.fromkeys([*after[:at], *writers, *after[at + 1:]])
    target.readers.update(dict.fromkeys(step for step in writers if step in source.readers))
    source.writers.clear()
    source.readers.clear()

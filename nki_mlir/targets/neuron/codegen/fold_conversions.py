# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fold-conversions: let a transpose by DMA convert its elements, instead of a copy after it.

before:  s = transpose of x;  t = copy s (bfloat16)         after:  t = transpose of x (bfloat16)

A DMA transfer converts like an engine. The transpose must keep the dtype: a transpose that converts would round before
the copy rounds. The copy must be the only instruction that reads the transposed tile, in the same run and on any
engine, and nothing touches its destination in between. Where the kernel fixes the order, the copy must follow the
transpose immediately, so that no instruction moves.
"""

from collections.abc import Sequence

from nki_mlir.dialects.access import in_shape, same_pattern
from nki_mlir.dialects.instruction_order import is_ordered, is_pinned
from nki_mlir.dialects.nisa.movement import DmaCopyOp, DmaTransposeOp, TensorCopyOp
from nki_mlir.dialects.op import FRESH, Op, changed
from nki_mlir.dialects.target_findings import may_replace
from nki_mlir.machine import Engine, Machine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.fuse_instructions import APART, Uses, uses_of
from nki_mlir.targets.neuron.codegen.fusion_patterns import in_one
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Code, InstructionStep, blocks, tiles_of
from nki_mlir.targets.neuron.codegen.schedule_instructions import runs_of


class FoldConversions(RecordsPass, name="fold-conversions", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        fold_conversions(code)


def fold_conversions(code: Code) -> int:
    """Fold copies into transposes in place, and return the number of dropped copies."""
    uses, dropped = Uses(), 0
    for block in blocks(code.body):
        copies: set[InstructionStep] = set()
        for run in list(runs_of(block.nodes)):
            for at, step in enumerate(run):
                if type(step.op) is DmaTransposeOp:
                    uses = uses or uses_of(code)
                    copy = _converted(step, run[at + 1:at + 1 + APART], uses, code.machine)
                    if copy is not None:
                        copies.add(copy)
        block.nodes = [node for node in block.nodes if node not in copies]
        dropped += len(copies)
    return dropped


def _converted(step: InstructionStep, following: Sequence[InstructionStep], uses: Uses,
               machine: Machine) -> InstructionStep | None:
    """Let a transpose write to the destination of the copy that converts its result. Return the copy, which is then
    unneeded; None if the transpose cannot convert."""
    (_, source), (_, between) = step.op.sources()[0], step.op.targets()[0]
    if source.dtype is not between.dtype:
        return None
    tile_uses = uses[between.handle]
    if not tile_uses.free or tile_uses.controls or [*tile_uses.writers] != [step] or len(tile_uses.readers) != 1:
        return None
    copy, = tile_uses.readers
    if copy not in following or not _only_converts(copy.op) or is_ordered(copy.op):
        return None
    if step.op.mask or step.op.limits or FRESH in step.op.extra:
        return None
    transpose, copied = in_one(step.op, copy.op)
    assert isinstance(copied, TensorCopyOp | DmaCopyOp)
    target, between_them = copied.dst.handle, following[:following.index(copy)]
    if between_them and (target.fixed or target.addresses or is_pinned(step.op) or is_pinned(copy.op)):
        return None
    if any(tile.handle is target for other in between_them for tile in tiles_of(other)):
        return None
    if not same_pattern(copied.src, between) or (converted := in_shape(copied.dst, between.shape)) is None:
        return None
    new = changed(transpose, lambda tile: converted if tile.handle is between.handle else tile)
    if not may_replace(new, [step.op, copy.op], machine):
        return None
    step.op, step.work = new, None
    return copy


def _only_converts(op: Op) -> bool:
    """Return whether an operation copies a tile in another dtype, on any engine."""
    return isinstance(op, TensorCopyOp | DmaCopyOp) and op.engine == Engine.UNKNOWN.value and not (
        op.mask or op.limits or op.dst.dtype is op.src.dtype)

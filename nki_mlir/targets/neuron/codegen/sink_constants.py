# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""sink-constants: write a constant right before its buffer is used next, or not at all.

before:  memset p_0 = 0; memset p_1 = 0            after:  p_0  = l.T @ m      (the first product of a sum overwrites)
         p_0 += l.T @ m; copy p_0                          copy p_0
         p_1 += l.T @ m; copy p_1                          p_1  = l.T @ m; copy p_1

A buffer is then needed from its first use on, so that buffers with one address may take turns. A constant that the next
operation overwrites unread is dropped, and one that nothing uses any more.
"""

from collections.abc import Iterator
from typing import Any

from nki_mlir.analysis.dead_code import covers
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.nisa.matmul import NcMatmulOp
from nki_mlir.dialects.nisa.movement import MemsetOp
from nki_mlir.dialects.op import changed
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import (
    Block,
    Branch,
    Code,
    DeviceBuffer,
    InstructionStep,
    Loop,
    blocks,
    nodes_in,
    sub_blocks,
    tiles_of,
)
from nki_mlir.targets.neuron.codegen.schedule_instructions import NO_REORDER


class SinkConstants(RecordsPass, name="sink-constants", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        sink_constants(code)


def sink_constants(code: Code) -> None:
    """Move or drop constants, in place."""
    for block in blocks(code.body):
        block.nodes = list(sunk(block))


def sunk(block: Block) -> Iterator[object]:
    """The block's nodes, each constant right before the next one that touches its buffer."""
    waiting: dict[DeviceBuffer, list[InstructionStep]] = {}
    for node in block.nodes:
        constant = is_constant(node)
        for buffer in {tile.handle: None for tile in touched(node)} if waiting else ():
            if buffer in waiting and not constant:
                node, kept = first_use(node, waiting.pop(buffer))
                yield from kept
        if constant:
            waiting.setdefault(node.op.dst.handle, []).append(node)
        else:
            yield node
    own = set(block.buffers) if waiting else ()
    for buffer, steps in waiting.items():
        if buffer not in own:               # what follows the block may use it
            yield from steps


def is_constant(node: Branch | InstructionStep | Loop) -> bool:
    return (isinstance(node, InstructionStep) and type(node.op) is MemsetOp
            and not (node.op.symbols or node.op.mask or node.op.limits or NO_REORDER in node.op.extra))


def touched(node: InstructionStep | Loop) -> Iterator[Tile]:
    """The tiles that a node uses, those of its inner blocks included."""
    yield from tiles_of(node)
    for inner in sub_blocks(node):
        for part in nodes_in(inner):
            yield from tiles_of(part)


def first_use(node: object, constants: list[InstructionStep]) -> tuple[object, list[InstructionStep]]:
    """The node that uses the buffer next, and those constants that it still needs in front of it."""
    if not isinstance(node, InstructionStep) or node.op.mask or node.op.limits:
        return node, constants
    op: Any = node.op
    if isinstance(op, NcMatmulOp) and op.accumulate and len(constants) == 1:
        zeros: Any = constants[0].op
        if zeros.value == 0 and zeros.dst.handle is op.dst.handle and (
                covers(op.dst, zeros.dst) and covers(zeros.dst, op.dst)):
            return InstructionStep(changed(op, lambda tile: tile, accumulate=False), node.location), []
    read = {tile.handle for _, tile in op.sources()}
    written = [tile for _, tile in op.targets()]
    return node, [s for s in constants if s.op.dst.handle in read                       # type: ignore[attr-defined]
                  or not any(w.handle is s.op.dst.handle and covers(w, s.op.dst)        # type: ignore[attr-defined]
                             for w in written)]

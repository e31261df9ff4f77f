# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""count-loops: replace run-time loops whose bounds are constants by loops of the compiler, which know their iterations.

before:  i = memset 0                                 after:  for k = 0 to 12 step 4:
         while i < 12:                                            i = iota k
             t = copy x[i]                                        t = copy x[i]
             i = i + 4

``nl.fori_loop(0, 12, body, 4)`` keeps its counter in a tile, which bounds that are registers need. A loop that counts
from a constant to a constant can be unrolled, scheduled, proved and timed as others. The pass drops the iota if the
body does not read its counter.
"""

from math import prod
from typing import NamedTuple

from nki_mlir.dialects.access import Linear, Tile, same_pattern
from nki_mlir.dialects.nisa.elementwise import TensorScalarOp
from nki_mlir.dialects.nisa.movement import IotaOp, MemsetOp
from nki_mlir.passes.levels import Level
from nki_mlir.scalar.dtypes import INT32
from nki_mlir.targets.neuron.codegen.dependences import accessed
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import (
    Block,
    Code,
    Computed,
    DeviceBuffer,
    InstructionStep,
    Load,
    Loop,
    LoopVariable,
    While,
    blocks,
    nodes_in,
    tiles_of,
)

EXACT = 1 << 24                     # float32, in which engines add, has all integers up to here


class CountLoops(RecordsPass, name="count-loops", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        count_loops(code)


Users = dict[DeviceBuffer, list[object]]         # the nodes that access a buffer


class Counted(NamedTuple):
    """A loop that counts from a constant to a constant: the steps that set and advance its counter, and its numbers."""

    begins: InstructionStep
    advances: InstructionStep
    counter: Tile
    span: range


def count_loops(code: Code) -> None:
    """Replace loops in place, inner loops first."""
    if not any(isinstance(node, While) for node in nodes_in(code.body)):
        return
    users: Users = {}
    for node in nodes_in(code.body):
        for buffer in {tile.handle for tile in tiles_of(node)}:
            users.setdefault(buffer, []).append(node)
    for block in reversed([*blocks(code.body)]):
        for node in [node for node in block.nodes if isinstance(node, While)]:
            if (counted := _counted(node, block, users)) is not None:
                _replace(node, counted, block, users)


def _counted(loop: While, block: Block, users: Users) -> Counted | None:
    """Return how a loop counts; None if its bounds are no constants, or if other code uses its counter."""
    match loop.test.nodes, loop.condition:
        case [Load() as load], Computed("lt", lhs, int(limit)) if lhs is load.variable:
            counter = load.tile.handle
        case _:
            return None
    inside = {*nodes_in(loop.body)}
    outside = [node for node in users[counter] if node not in inside and node is not load]
    if counter not in block.buffers or counter.fixed or not loop.body.nodes:
        return None
    match outside, loop.body.nodes[-1]:
        case ([InstructionStep(op=MemsetOp() as memset) as begins],
              InstructionStep(op=TensorScalarOp(op0="add", operand0=None, op1="bypass") as add) as advances):
            writers = [node for node in users[counter] if isinstance(node, InstructionStep) and any(
                tile is not None and tile.handle is counter for tile in accessed(node.op)[1])]
            span = _span(memset, add, load.tile, limit)
            if (span is not None and begins in block.nodes[:block.nodes.index(loop)]
                    and writers in ([begins, advances], [advances, begins])):
                return Counted(begins, advances, memset.dst, span)
    return None


def _span(memset: MemsetOp, add: TensorScalarOp, loaded: Tile, limit: int) -> range | None:
    """Return the numbers to which a counter is set and advanced; None if it is not one int32 that grows exactly, by
    whole numbers and without a mask."""
    counter, first, step = memset.dst, float(memset.value), float(add.imm0)
    is_plain = counter.dtype is INT32 and prod(counter.shape) == 1 and not memset.mask and not add.mask and all(
        tile.handle is counter.handle and same_pattern(tile, counter) for tile in (add.src, add.dst, loaded))
    if not (is_plain and first.is_integer() and step.is_integer() and step > 0 and -EXACT <= first):
        return None
    return range(int(first), limit, int(step)) if limit + step <= EXACT else None


def _replace(loop: While, counted: Counted, block: Block, users: Users) -> None:
    begins, advances, counter, span = counted
    block.buffers.remove(counter.handle)
    block.nodes.remove(begins)
    position, body = block.nodes.index(loop), loop.body
    if not span:
        del block.nodes[position]
        return
    variable = LoopVariable("i", span[0], span[-1])
    body.nodes.remove(advances)
    readers = [node for node in users[counter.handle] if node is not begins and node is not advances
               and node not in loop.test.nodes]
    if readers:
        counts = IotaOp(dst=counter, expression=Linear(0, ((0, 1),)), symbols=(variable,),
                        ranges=((span[0], span[-1]),))
        body.nodes.insert(0, InstructionStep(counts, begins.location))
        body.buffers.insert(0, counter.handle)
        users[counter.handle] = [body.nodes[0], *readers]
    block.nodes[position] = Loop(variable, span, body, loop.location)

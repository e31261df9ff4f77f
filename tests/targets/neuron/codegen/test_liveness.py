# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From where to where buffers are needed, in random code of loops and branches, by the definition."""

import random
from collections import defaultdict

import pytest

from nki_mlir.targets.neuron.codegen.liveness import Liveness
from nki_mlir.targets.neuron.codegen.records import Block, InstructionStep, Load, Loop, While, steps_in, sub_blocks

from ..code_builder import Builder

SHAPE = (4, 4)
COMPLETE = (0, 4, 0, 4)


def statements(b: Builder, rng: random.Random, buffers: list, depth: int) -> None:
    """Copies between visible buffers, in loops and branches, some of which allocate buffers."""
    for _ in range(rng.randint(1, 4)):
        visible = [*buffers]
        match rng.choice(["copy", "copy", "own"] + ["loop", "while", "branch"] * (depth > 0)):
            case "own":
                buffers.append(b.on_chip(f"t{rng.random()}", SHAPE))
                b.memset((buffers[-1], *COMPLETE), 1)
            case "copy":
                b.copy((rng.choice(buffers), *COMPLETE), (rng.choice(buffers), *COMPLETE))
            case "loop":
                with b.loop(3):
                    statements(b, rng, visible, depth - 1)
            case "while":
                with b.while_loop("lt", rng.choice(buffers), 3):
                    statements(b, rng, visible, depth - 1)
            case "branch":
                with b.when(b.load(b.open[-1], rng.choice(buffers))) as branch:
                    statements(b, rng, visible, depth - 1)
                with b.otherwise(branch):
                    statements(b, rng, [*buffers], depth - 1)


class Uses:
    """Where each buffer is used, and the steps of the loops around a use but not around its allocation."""

    def __init__(self, body: Block) -> None:
        self.count = 0
        self.of: defaultdict[object, set[int]] = defaultdict(set)
        self.walk(body)

    def walk(self, block: Block) -> set:
        """The buffers that the block uses."""
        used = set()
        for node in block.nodes:
            if isinstance(node, InstructionStep):
                handles = {tile.handle for _, tile in node.op.operands()}
                for handle in handles:
                    self.of[handle].add(self.count)
                used |= handles
                self.count += 1
            elif isinstance(node, Load):
                self.of[node.tile.handle].add(max(0, self.count - 1))
                used.add(node.tile.handle)
            else:
                first = self.count
                inside = [self.walk(inner) for inner in sub_blocks(node)]
                within = set().union(*inside)
                if isinstance(node, Loop | While):
                    for buffer in within - {b for inner in sub_blocks(node) for b in allocated(inner)}:
                        self.of[buffer] |= {first, self.count - 1}
                used |= within
        return used


def allocated(block: Block) -> set:
    return set(block.buffers).union(*(allocated(inner) for node in block.nodes for inner in sub_blocks(node)))


@pytest.mark.parametrize("seed", range(60))
def test_buffers_are_needed_from_their_first_to_their_last_use(seed):
    b, rng = Builder(), random.Random(seed)
    buffers = [b.on_chip(f"first{k}", SHAPE) for k in range(2)]
    for buffer in buffers:
        b.memset((buffer, *COMPLETE), 0)
    statements(b, rng, buffers, 3)
    live, uses = Liveness(b.code), Uses(b.code.body)
    assert live.steps == list(steps_in(b.code.body))
    assert {buffer: (life.first, life.last) for buffer, life in live.of.items()} == {
        buffer: (min(steps), max(steps)) for buffer, steps in uses.of.items()}


@pytest.mark.parametrize("spaces, names", [(("sbuf", "psum"), {"flag", "row", "sums"}), (("sbuf",), {"flag", "row"}),
                                           (("psum",), {"sums"}), ((), set())])
def test_buffers_of_other_memories_are_left_out(spaces, names):
    b = Builder()
    flag, row, sums = b.on_chip("flag", (1, 1)), b.on_chip("row", SHAPE), b.on_chip("sums", SHAPE, "psum")
    b.memset((flag, 0, 1, 0, 1), 1)
    b.memset((row, *COMPLETE), 2)
    b.load(b.open[-1], flag)
    b.tensor_copy((sums, *COMPLETE), (row, *COMPLETE))
    assert {buffer.name for buffer in Liveness(b.code, spaces).of} == names

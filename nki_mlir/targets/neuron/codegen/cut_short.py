# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shorten the loops of code to a window of few iterations, on which the search times an order."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop

from nki_mlir.targets.neuron.codegen.records import (
    Block,
    Branch,
    Code,
    InstructionStep,
    Loop,
    While,
    sub_blocks,
)


@dataclass(eq=False)
class ShortLoop:
    """A loop within the loop ``parent``: the iterations that it keeps, and how many instructions one iteration runs."""

    parent: "ShortLoop | None"
    span: range
    per_iteration: int = 0

    @property
    def size(self) -> int:
        return len(self.span) * self.per_iteration

    def truncate(self, iterations: int) -> int:
        """Keep only the first iterations. Return by how many instructions the code is shorter."""
        fewer = (len(self.span) - iterations) * self.per_iteration
        self.span, outer = self.span[:iterations], self.parent
        while outer is not None:
            outer.per_iteration -= fewer
            fewer *= len(outer.span)
            outer = outer.parent
        return fewer


def cut_short(rolled: Code, instructions: int) -> Code:
    """Return the code without the last iterations of the loops that run most instructions. It runs about
    ``instructions`` instructions, or more if each loop has one iteration left."""
    loops: list[ShortLoop] = []
    remaining = add_loops(rolled.body, None, loops)
    largest_first = [(-loop.size, number) for number, loop in enumerate(loops) if len(loop.span) > 1 and loop.size]
    heapify(largest_first)
    while remaining > instructions and largest_first:           # a loop comes before its inner loops, which are smaller
        _, number = heappop(largest_first)
        loop = loops[number]
        iterations = round((instructions - (remaining - loop.size)) / loop.per_iteration)
        iterations = min(max(1, iterations), len(loop.span) - 1)
        remaining -= loop.truncate(iterations)
        if iterations > 1:
            break
    body = with_spans(rolled.body, iter([loop.span for loop in loops]))
    return Code(rolled.name, rolled.machine, rolled.globals, body, rolled.grid, rolled.programs)


def add_loops(block: Block, parent: ShortLoop | None, loops: list[ShortLoop]) -> int:
    """Append the loops of a block, outer ones before inner ones. Return how many instructions the block runs."""
    total = 0
    for node in block.nodes:
        if type(node) is InstructionStep:
            total += 1
        elif isinstance(node, Loop):
            loop = ShortLoop(parent, node.span)
            loops.append(loop)
            loop.per_iteration = add_loops(node.body, loop, loops)
            total += loop.size
        else:
            total += sum([add_loops(inner, parent, loops) for inner in sub_blocks(node)])
    return total


def with_spans(block: Block, spans: Iterator[range]) -> Block:
    """Return the block with other iterations of its loops: ``spans`` yields those of outer loops before inner ones."""
    nodes: list[object] = []
    for node in block.nodes:
        match node:
            case Loop():
                span = next(spans)
                nodes.append(Loop(node.variable, span, with_spans(node.body, spans), node.location, node.attributes))
            case Branch():
                then = with_spans(node.then, spans)
                nodes.append(Branch(node.condition, then, with_spans(node.otherwise, spans), node.location))
            case While():
                test = with_spans(node.test, spans)
                nodes.append(While(test, node.condition, with_spans(node.body, spans), node.location))
            case _:
                nodes.append(node)
    return Block(nodes, block.buffers)

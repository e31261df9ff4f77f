# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code whose loops run fewer iterations: about as many instructions as wanted, of the first iterations of each loop."""

import random

import pytest

from nki_mlir.targets.neuron.codegen.cut_short import cut_short
from nki_mlir.targets.neuron.codegen.records import Block, Computed, Loop, sub_blocks
from tests.targets.neuron.code_builder import Builder


def executed(block: Block) -> int:
    """The instructions that a block runs; both sides of branches count, and an iteration of loops without bounds."""
    total = 0
    for node in block.nodes:
        inner = [executed(part) for part in sub_blocks(node)]
        total += (len(node.span) * inner[0] if isinstance(node, Loop) else sum(inner)) if inner else 1
    return total


def loops_of(block: Block) -> list[Loop]:
    return [loop for node in block.nodes for loop in (
        *([node] if isinstance(node, Loop) else []), *(each for part in sub_blocks(node) for each in loops_of(part)))]


def draw(b: Builder, r: random.Random, tile: object, depth: int) -> None:
    """Instructions, loops and branches within each other."""
    for _ in range(r.randrange(1, 4)):
        kind = r.random() if depth else 1.0
        if kind < 0.6:
            with b.loop(r.randrange(1, 9), r.randrange(3), r.randrange(1, 3)) as variable:
                draw(b, r, tile, depth - 1)
                if r.random() < 0.3:
                    with b.when(Computed("lt", variable, 3)) as branch:
                        draw(b, r, tile, depth - 1)
                    with b.otherwise(branch):
                        draw(b, r, tile, 0)
        else:
            b.add(*[(tile, 0, 32, 0, 8)] * 3)


@pytest.mark.parametrize("seed", range(30))
def test_code__runs_about_as_many_instructions(seed: int) -> None:
    r, b = random.Random(seed), Builder()
    draw(b, r, b.on_chip("t", (32, 8)), 3)
    length, spans = executed(b.code.body), [loop.span for loop in loops_of(b.code.body)]
    for wanted in (1, length // 7, length // 3, length // 2, length - 1, length, length + 1):
        code = cut_short(b.code, wanted)
        left, short = loops_of(code.body), executed(code.body)
        assert [loop.span for loop in loops_of(b.code.body)] == spans          # the code itself stays
        assert all(1 <= len(loop.span) and loop.span == span[:len(loop.span)] for loop, span in zip(left, spans, strict=True))
        assert [loop.variable for loop in left] == [loop.variable for loop in loops_of(b.code.body)]
        if wanted >= length:
            assert short == length
        elif any(len(loop.span) > 1 and executed(loop.body) for loop in left):
            assert abs(short - wanted) <= max(executed(loop.body) for loop in left)
        else:
            assert short <= length


def test_code__loses_iterations_of_the_loops_that_run_most() -> None:
    b = Builder()
    tile = b.on_chip("t", (32, 8)), 0, 32, 0, 8
    for outer, inner, count in ((2, 3, 1), (10, 5, 2), (4, 1, 6)):
        with b.loop(outer):
            with b.loop(inner):
                for _ in range(count):
                    b.add(tile, tile, tile)
    assert executed(b.code.body) == 6 + 100 + 24
    for wanted, spans in ((100, [2, 3, 7, 5, 4, 1]), (50, [2, 3, 2, 5, 4, 1]), (40, [2, 3, 1, 5, 4, 1]),
                          (35, [2, 3, 1, 5, 3, 1]), (3, [1, 1, 1, 1, 1, 1])):
        assert [len(loop.span) for loop in loops_of(cut_short(b.code, wanted).body)] == spans, wanted


@pytest.mark.parametrize("wanted, iterations", [(41, 10), (40, 10), (39, 9), (38, 9), (33, 8), (5, 1), (1, 1), (0, 1)])
def test_loop__loses_at_least_one_iteration_where_the_code_is_longer(wanted: int, iterations: int) -> None:
    b = Builder()
    tile = b.on_chip("t", (32, 8)), 0, 32, 0, 8
    with b.loop(10):
        for _ in range(4):
            b.add(tile, tile, tile)
    assert executed(cut_short(b.code, wanted).body) == 4 * iterations

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which computations of a function may be parts of one product."""

from itertools import product as pairs_of

import pytest

from nki_mlir.dialects.access import Linear
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.passes.form_products import Accesses, first_of
from nki_mlir.waist.nest import Nest, Operand, Step

SIZE = 64
TILES = [cpu.ScratchBuffer(4 * SIZE, number) for number in range(4)]
A, B, C, D = range(4)


def step(*buffers: int) -> cpu.Compute:
    """Return a computation that reads one or two tiles, and writes the last one."""
    row, count = Operand(FLOAT32, (1,)), len(buffers) - 1
    steps = (Step("alu", FLOAT32, (0, 1), "add"),) if count == 2 else ()
    nest = Nest((SIZE,), frozenset(), (row,) * count, 0, (row,), steps, (3 if steps else 0,))
    return cpu.compute(nest, [TILES[b].region for b in buffers])


def loop(*nodes: cpu.Node) -> cpu.NativeLoop:
    return cpu.NativeLoop(9, Linear(), Linear(2), Linear(1), range(2), cpu.NativeBlock([*nodes]))


CALL = cpu.RoutineCall("nki_wait", ())
CASES = {
    "one": ([step(A, B)], 0),
    "chain": ([step(A, B), step(B, C), step(C, D)], 0),
    "same memory": ([step(A, D), step(B, D), step(C, D)], 0),
    "unrelated first": ([step(A, B), step(A, C), step(C, D)], 1),
    "unrelated between": ([step(A, C), step(A, B), step(C, D)], 2),
    "read by a later one": ([step(A, B), step(B, C), step(B, C, D)], 0),
    "loops": ([step(A, B), loop(step(B, C)), loop(step(C, D))], 0),
    "call before": ([loop(CALL), step(A, B), step(B, C)], 1),
    "call between": ([step(A, B), loop(CALL), step(B, C)], 2),
    "call in the last one": ([step(A, B), step(B, C), loop(CALL)], 2),
    "call beside a computation": ([step(A, B), loop(step(B, C), CALL), step(C, D)], 2),
}


@pytest.mark.parametrize("name", CASES)
def test_parts__begin_where_all_later_ones_lead_to_the_last(name: str) -> None:
    parts, first = CASES[name]
    assert first_of([*map(Accesses.of, parts)]) == first


def test_parts__of_any_three_copies() -> None:
    """A part belongs to the later ones if they read or write the tile that it writes."""
    copies = [(source, target) for source, target in pairs_of(range(4), repeat=2) if source != target]
    for three in pairs_of(copies, repeat=3):
        needed, first = {*three[-1]}, len(three) - 1
        for source, target in reversed(three[:-1]):
            if target not in needed:
                break
            needed |= {source, target}
            first -= 1
        assert first_of([Accesses.of(step(*copy)) for copy in three]) == first, three

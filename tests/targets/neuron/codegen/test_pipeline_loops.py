# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pipelined loops: values under every order, proofs of the checker, stages, copies and rounds."""

import os
from itertools import pairwise

import numpy as np
import pytest

from nki_mlir.dialects.access import PSUM
from nki_mlir.targets.neuron.checker import check_streams
from nki_mlir.targets.neuron.codegen import fastest, program_order
from nki_mlir.targets.neuron.codegen.allocate_on_chip import allocate
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.iteration_waits import straight_loops
from nki_mlir.targets.neuron.codegen.pipeline_loops import pipeline_loops, stages_of, window_of
from nki_mlir.targets.neuron.codegen.records import compute, steps_in
from nki_mlir.targets.neuron.codegen.schedule_instructions import NO_REORDER
from nki_mlir.targets.neuron.codegen.scheduling_order import Order
from nki_mlir.targets.neuron.codegen.search_options import SearchOptions
from nki_mlir.targets.neuron.codegen.synchronize_engines import synchronized
from nki_mlir.targets.neuron.format.assembly import print_program
from nki_mlir.targets.neuron.simulator import simulate
from tests.targets.neuron.code_builder import Builder
from tests.targets.neuron.random_code import COLUMNS, ROWS, RandomCode

FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
FIRST = int(os.environ.get("NKI_MLIR_FUZZ_SEED", "0")) * 1000 if FUZZ else 0
LONGEST = 11                    # the greatest value of a loop's variable
SEEDS = range(FIRST, FIRST + (400 if FUZZ else 24))


class LongLoops(RandomCode):
    """Random code with two loops of many iterations: each loads a tile, works on it and on tiles of all iterations, and
    stores."""

    def start(self, room: int):
        if self.variables and self.random.random() < 0.5:
            factor = self.random.choice((1, 2, 4))
            by = self.random.choice((self.variables[-1], compute("mod", self.variables[-1], 3)))
            if room >= LONGEST * factor:
                return self.random.randint(0, room - LONGEST * factor), {by: factor}
        return self.random.randint(0, max(0, room))

    def steps(self, count: int, depth: int = 0) -> None:
        r = self.random
        for _ in range(2):
            with self.b.loop(r.randint(7, LONGEST - 1), r.randint(0, 1), 1) as i:
                self.variables.append(i)
                fresh = [self.b.on_chip(f"f{k}", (ROWS, COLUMNS)) for k in range(r.randint(1, 3))]
                shared, sums = list(self.tiles), list(self.sums)
                if r.random() < 0.5:
                    self.sums.append(self.b.on_chip("q", (ROWS, COLUMNS), "psum"))
                    self.b.memset((self.sums[-1], 0, ROWS, 0, COLUMNS), 0.25)
                for k, tile in enumerate(fresh):
                    self.b.copy((tile, 0, ROWS, 0, COLUMNS),
                                (self.inputs[k % 2], 0, ROWS, (r.randint(0, 16), {i: r.choice((0, 8, 16))}), COLUMNS))
                self.tiles += fresh * 4
                for _ in range(r.randint(2, count)):
                    self.instruction()
                self.b.copy((self.output, 0, ROWS, (r.randint(0, 32), {i: r.choice((0, 16))}), COLUMNS),
                            (fresh[-1], 0, ROWS, 0, COLUMNS))
                self.tiles, self.sums = shared, sums
                self.variables.pop()
            for _ in range(r.randint(0, 2)):
                self.instruction()


def pipelined(seed):
    drawn = LongLoops(seed, 10)
    expected = drawn.expected()
    count = pipeline_loops(drawn.code, EngineChoice(drawn.code.machine))
    return drawn, expected, count


@pytest.mark.share(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_pipelined_loops__give_the_values_of_program_order(seed):
    drawn, expected, _ = pipelined(seed)
    allocate(drawn.code)
    for overlap in (False, True):
        program = synchronized(drawn.code, overlap=overlap)
        report = check_streams([program])
        assert (report.verdict, report.violations) == ("proved", [])
        for scheduler in (None, *range(4)):
            output = np.zeros_like(expected)
            simulate(program, [a.copy() for a in drawn.arrays], [output], scheduler)
            np.testing.assert_array_equal(output, expected)


def test_most_random_loops__are_pipelined():
    assert sum(pipelined(seed)[2] for seed in range(40)) >= 60          # of 80


# -- one loop ----------------------------------------------------------------------------------------------------------
def rows_of_sums(iterations=12, address=None, extra=None):
    """Each iteration loads a tile, adds it to itself by products in PSUM, and stores the result."""
    b = Builder()
    x, y = (b.hbm(name, (ROWS, iterations * COLUMNS), kind) for name, kind in (("x", "input"), ("y", "output")))
    with b.loop(iterations) as i:
        tile, copy = (b.on_chip(name, (ROWS, COLUMNS), address=address if name == "t" else None) for name in "tc")
        sums = b.on_chip("p", (COLUMNS, COLUMNS), "psum")
        b.copy((tile, 0, ROWS, 0, COLUMNS), (x, 0, ROWS, (0, {i: COLUMNS}), COLUMNS))
        b.matmul((sums, 0, COLUMNS, 0, COLUMNS), (tile, 0, ROWS, 0, COLUMNS), (tile, 0, ROWS, 0, COLUMNS), False)
        b.activation((copy, 0, COLUMNS, 0, COLUMNS), (sums, 0, COLUMNS, 0, COLUMNS), "relu")
        b.copy((y, 0, COLUMNS, (0, {i: COLUMNS}), COLUMNS), (copy, 0, COLUMNS, 0, COLUMNS))
    for step in steps_in(b.code.body):
        if extra is not None:
            step.op.extra.update(extra)
    return b.code


def stages(code):
    loop, = straight_loops(code)
    return stages_of(loop, window_of(loop, code, EngineChoice(code.machine)), code, Order(share=3))


def test_a_load__is_an_iteration_ahead_of_the_product():
    code = rows_of_sums()
    cut = stages(code)
    load, product, activation, store = cut.stage
    assert load < product == activation <= store
    assert cut.copies() == 1 + max(product - load, store - activation)


@pytest.mark.parametrize("seed", range(10))
def test_a_buffer_in_psum__is_used_in_one_stage(seed):
    drawn = LongLoops(seed, 10)
    for loop in straight_loops(drawn.code):
        window = window_of(loop, drawn.code, EngineChoice(drawn.code.machine))
        cut = stages_of(loop, window, drawn.code, Order(share=3))
        for buffer, users in cut.users.items() if cut else ():
            assert buffer.space != PSUM or len({cut.stage[k] for k in users}) == 1


def test_prologue_loop_and_epilogue__have_each_step_once_an_iteration():
    code = rows_of_sums(13)
    assert pipeline_loops(code, EngineChoice(code.machine)) == 1
    loop, = straight_loops(code)
    outside = [node for node in code.body.nodes if node is not loop]
    assert len(outside) + len(loop.span) * len(loop.body.nodes) == 13 * 4
    assert len(loop.span) >= 2


@pytest.mark.parametrize("code", [rows_of_sums(3), rows_of_sums(address=(0, 0)), rows_of_sums(extra={NO_REORDER: True})],
                         ids=["few iterations", "an address of the kernel's", "no reorder"])
def test_what_is_not_pipelined(code):
    assert pipeline_loops(code, EngineChoice(code.machine)) == 0
    assert len(straight_loops(code)[0].body.nodes) == 4


def wide_tiles(width):
    """Each iteration loads two tiles of ``width`` columns, adds them, and stores the result."""
    b = Builder()
    x, y = (b.hbm(name, (ROWS, 16 * width), kind) for name, kind in (("x", "input"), ("y", "output")))
    with b.loop(16) as i:
        tiles = [(b.on_chip(name, (ROWS, width)), 0, ROWS, 0, width) for name in "abc"]
        for tile in tiles[:2]:
            b.copy(tile, (x, 0, ROWS, (0, {i: width}), width))
        b.add(tiles[2], *tiles[:2])
        b.copy((y, 0, ROWS, (0, {i: width}), width), tiles[2])
    return b.code


def test_loops_whose_copies_sbuf_cannot_keep__are_not_pipelined():
    narrow = stages(wide_tiles(512))
    assert (narrow.copies(), narrow.copied_bytes()) == (2, 2 * 3 * 512 * 4)         # of all three tiles
    most = wide_tiles(512).machine.sbuf_bytes_per_partition
    several = [stages(wide_tiles(width)) for width in range(1024, most // 6, 1024)]
    assert all(cut is None or cut.copied_bytes() <= most for cut in several)
    assert several[0] is not None and several[-1] is None           # two copies of one tile exceed SBUF
    assert pipeline_loops(wide_tiles(most // 6), EngineChoice(wide_tiles(512).machine)) == 0


def test_loops_that_stay_as_they_are__are_tried_with_more_memory_as_new_code_is():
    candidate = fastest.Candidate(4, 4, pipelined=100)
    texts = []
    for percents in ((100,), (1, 100)):
        code = wide_tiles(2048)
        search = fastest.TimedCandidates(code, EngineChoice(code.machine), SearchOptions())
        for memory in percents:
            prepared = search.prepared(candidate._replace(pipelined=memory))
            assert prepared.pipelined == (memory == 100)
            search.time(candidate._replace(pipelined=memory), prepared)
        assert (not search.unpipelined) and len(prepared.windows) == 1
        texts.append([print_program(result.program) for _, result in search.timed])
    assert texts[0] == texts[1] and len(texts[0]) >= 2


def long_chain(iterations):
    """Each iteration loads a tile, works on it by turns on two engines, and stores it."""
    b = Builder()
    x, y = (b.hbm(name, (ROWS, iterations * COLUMNS), kind) for name, kind in (("x", "input"), ("y", "output")))
    with b.loop(iterations) as i:
        tiles = [b.on_chip(f"t{k}", (ROWS, COLUMNS)) for k in range(17)]
        parts = [(tile, 0, ROWS, 0, COLUMNS) for tile in tiles]
        b.copy(parts[0], (x, 0, ROWS, (0, {i: COLUMNS}), COLUMNS))
        for k, (part, result) in enumerate(pairwise(parts)):
            b.add(result, part, part) if k % 2 else b.activation(result, part)
        b.copy((y, 0, ROWS, (0, {i: COLUMNS}), COLUMNS), parts[-1])
    return b.code


def test_code_of_many_instructions__has_pipelined_loops_where_they_are_fastest(monkeypatch):
    for name, value in (("STRAIGHT", {1: 50, 3: 50}), ("BODY", 36), ("BODIES", (36,)), ("PIPELINED", 18)):
        monkeypatch.setattr(fastest, name, value)
    plain, pipelined = (emit_code(long_chain(60), Emission(pipeline=pipeline, kernel_as_written=False))
                        for pipeline in (False, True))      # as written, it is unrolled
    assert program_order.end_of(pipelined) < 0.8 * program_order.end_of(plain)
    assert check_streams([pipelined]).verdict == "proved"

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ready steps of each engine, against sets of ranks."""

import random

import pytest

from nki_mlir.targets.neuron.codegen.ready_steps import ReadySteps

ENGINES = 3


@pytest.mark.parametrize("steps", (1, 31, 32, 33, 1023, 1024, 1025, 2500))
def test_ready_steps__are_those_of_a_set(steps: int) -> None:
    rng, ready, expected = random.Random(steps), ReadySteps(ENGINES, steps), [set[int]() for _ in range(ENGINES)]
    for field in ("ready", "rank_bits", "any_bits"):            # as Python runs it; machine code has arrays
        setattr(ready, field, getattr(ready, field).tolist())
    for _ in range(300):
        engine, rank = rng.randrange(ENGINES), rng.choice((rng.randrange(steps), 0, steps - 1))
        if rank in expected[engine]:
            ready.remove_rank(engine, rank)
        else:
            ready.add_ready(engine, rank)
        expected[engine] ^= {rank}
        assert ready.ready == [len(ranks) for ranks in expected]
        for first in (0, rank, rank + 1, rng.randrange(steps + 1), steps):
            for other, ranks in enumerate(expected):
                assert ready.next_ready(other, first) == min((n for n in ranks if n >= first), default=-1)

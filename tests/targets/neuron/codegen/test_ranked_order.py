# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Orders by ranks, against a search for the next step at each position."""

from random import Random

import pytest

from nki_mlir.targets.neuron.codegen.ranked_order import ranked_order


def expected_order(before: list[list[int]], ranks: list[int]) -> list[int]:
    order: list[int] = []
    while ready := [k for k in range(len(ranks)) if k not in order and {*before[k]} <= {*order}]:
        order.append(min(ready, key=lambda k: (ranks[k], k)))
    return order


@pytest.mark.parametrize("seed", range(30))
def test_order__has_the_least_rank_next(seed: int) -> None:
    r = Random(seed)
    count = r.randrange(12)
    before = [r.sample(range(k), r.randrange(min(k, 3) + 1)) for k in range(count)]
    ranks = [r.randrange(4) for _ in range(count)]
    order = ranked_order(before, ranks)
    assert order == expected_order(before, ranks) and sorted(order) == list(range(count))


def test_order__lacks_cycles_and_what_follows_them() -> None:
    assert ranked_order([[], [2], [1], [2], [0]], [0] * 5) == [0, 4]

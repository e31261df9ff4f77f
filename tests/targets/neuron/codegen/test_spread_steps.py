# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps that several engines can run go to the one that completes them first, the first of several."""

import pytest

from nki_mlir.dialects.isa.instruction import Engine
from nki_mlir.targets.neuron.codegen.spread_steps import FIRST, SpreadSteps

VECTOR, POOL = FIRST.index(Engine.VECTOR), FIRST.index(Engine.GPSIMD)


def steps(transfers: list[int], engines: list[int], busy: list[float], ports: list[int]) -> SpreadSteps:
    """Steps that all have the same choices."""
    spread = object.__new__(SpreadSteps)
    spread.choices, spread.count, spread.is_transfer = [0] * len(transfers), len(transfers), transfers
    spread.starts, spread.engines, spread.busy, spread.port = [0, len(engines)], engines, busy, ports
    spread.free, spread.port_free, spread.chosen = [0.0] * len(FIRST), 0.0, [-1] * len(transfers)
    spread.spread()
    return spread


@pytest.mark.parametrize("busy, ports, chosen, free", [
    ([2.0, 2.0], [0, 0], [0, 1, 0, 1], (4.0, 4.0)),
    ([2.0, 3.0], [0, 0], [0, 1, 0, 0], (6.0, 3.0)),
    ([2.0, 3.0], [1, 1], [0, 0, 0, 0], (8.0, 0.0)),             # both wait for the port that they share
    ([3.0, 2.0], [1, 1], [1, 1, 1, 1], (0.0, 8.0)),
    ([2.0, 3.0], [0, 1], [0, 1, 0, 0], (6.0, 3.0)),
    ([1.0, 9.0], [0, 0], [0, 0, 0, 0], (4.0, 0.0))])
def test_steps__go_to_the_engine_that_completes_them_first(
        busy: list[float], ports: list[int], chosen: list[int], free: tuple[float, float]) -> None:
    spread = steps([0] * 4, [VECTOR, POOL], busy, ports)
    assert spread.chosen == chosen and (spread.free[VECTOR], spread.free[POOL]) == free


def test_transfers__occupy_the_only_engine_that_may_trigger_them() -> None:
    assert steps([1, 1], [POOL], [3.0], [0]).free[POOL] == 6.0
    several = steps([1, 1], [VECTOR, POOL], [3.0, 3.0], [0, 0])
    assert several.chosen == [0, 0] and not any(several.free)

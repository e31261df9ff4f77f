# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tensor engine's ramp: full speed while it is used enough, half of it before and after that."""

import itertools
import math
from statistics import NormalDist

import pytest

from nki_mlir.machine import Engine, Ramp, Work, machine_named
from nki_mlir.machine.cited import Cited
from nki_mlir.targets.neuron.timing.ramp import RampState
from tests.targets.neuron.timing.streams import ends, load, ran, starts

WIDE = machine_named("trn2").cost(Engine.TENSOR, Work("product.float32", 512)).busy


def state(spread: float = 0.001) -> RampState:
    """Half speed below a use of 0.4 in a window of 100 ns."""
    half, needed, window, about = (Cited(value, "assumption: of the test") for value in (0.5, 0.4, 100, spread))
    return RampState(Ramp(half, needed, window, about))


def product(rows: int = 128, *, waits: str = "", dtype: str = "fp32") -> str:
    text = (f"MATMUL dst=fp32@0x2000000[1][512] stationary={dtype}@0x0[1][{rows}] moving={dtype}@0x1000[1][512] "
            f"channels={rows}")
    return f"{waits} {text}" if waits else text


def test_full_speed_begins_behind_a_window_with_enough_use() -> None:
    ramp = state()
    assert ramp.end(0, 30, 1.0) == 60
    assert ramp.end(60, 30, 1.0) == 120             # keeps the speed that it began with
    assert ramp.end(120, 30, 1.0) == 150            # of the first 100 ns 50 count
    assert ramp.limited == [[0, 120]] and ramp.lost_ns == 60


def test_a_burst_shorter_than_its_window_does_not_reach_full_speed() -> None:
    """It counts for the windows in which it is: 38 ns of two windows each, where one alone would have had 76."""
    ramp = state()
    assert ramp.end(62, 38, 1.0) == 138
    assert ramp.end(200, 30, 1.0) == 260
    ramp = state()
    assert ramp.end(0, 45, 1.0) == 90               # 45 of 100
    assert ramp.end(200, 30, 1.0) == 260            # an empty window is between
    assert ramp.end(260, 10, 1.0) == 280


def test_a_pause_takes_full_speed_away() -> None:
    ramp = state()
    for start in (0, 100):
        ramp.end(start, 50, 1.0)
    assert ramp.end(200, 50, 1.0) == 250            # 50 of the window before
    assert ramp.end(330, 50, 1.0) == 380
    assert ramp.end(530, 50, 1.0) == 630            # none
    assert ramp.limited == [[0, 100], [530, 630]]


def test_use_near_the_threshold_loses_full_speed_sooner_or_later() -> None:
    """A device counts 0.4 or more where the model counts 0.5 with a probability of 97.7%, where it counts 0.25 with
    one of 0.1%."""
    ramp, end, took = state(spread=0.05), 0.0, list[float]()
    for _ in range(10):
        end = ramp.end(end, 10, 1.0)
    while end < 40_000:
        begin, end = end, ramp.end(end, 10, 0.5)
        took.append(end - begin)
    behind = took[20:]                          # the window of the burst
    assert all(b >= a - 1e-9 for a, b in itertools.pairwise(behind))
    assert took[0] == pytest.approx(10, abs=0.5)            # a window behind the burst
    half = next(k for k, ns in enumerate(took) if ns > 15)
    assert sum(took[:half]) == pytest.approx(100 * math.log(0.5) / math.log(0.97725), rel=0.1)     # whole windows
    assert took[-1] == pytest.approx(10 * (1 + 0.0228 / (0.0228 + 0.00135)), rel=0.02)     # what is lost comes back


def test_work_on_half_of_the_rows_never_comes_to_full_speed() -> None:
    """It uses half of the rows at half speed: a quarter. At full speed it would stay there."""
    ramp, end = state(), 0.0
    for _ in range(20):
        begin, end = end, ramp.end(end, 10, 0.5)
        assert end - begin == 20
    ramp, end = state(), 0.0
    for _ in range(10):
        end = ramp.end(end, 10, 1.0)
    for _ in range(50):
        begin, end = end, ramp.end(end, 10, 0.5)
        assert end - begin == 10


def test_products_of_the_tensor_engine_ramp_up() -> None:
    """With 128 rows at full speed after about 3 us, with 64 rows never: measured by others, 860 and 1,707 ns."""
    machine = ran({"pe": [product()] * 8})
    took = [end - start for start, end in zip(starts(machine, "pe"), ends(machine, "pe"))]
    slow = NormalDist().cdf((0.46 - 0.5) / 0.015)       # behind a window at half speed, and twice behind two
    assert took == pytest.approx([2 * WIDE] * 2 + [WIDE * (1 + slow)] * 3 + [WIDE * (1 + slow ** 2)] * 3)
    assert WIDE == pytest.approx(860)
    machine = ran({"pe": [product(64)] * 8})
    took = [end - start for start, end in zip(starts(machine, "pe"), ends(machine, "pe"))]
    assert took == pytest.approx([1707] * 8, rel=0.01)      # a measurement


def test_semaphores_are_no_use_of_the_tensor_engine() -> None:
    """An instruction that moves no data takes its time at any speed."""
    machine = ran({"pe": ["EVENT_SEMAPHORE", product()]})
    taken = machine.machine.costs.control.event_ns
    assert ends(machine, "pe") == pytest.approx([taken, taken + 2 * WIDE])
    (ramp,) = machine.ramp_states().values()
    assert ramp.limited == [[taken, taken + 2 * WIDE]]


def test_waiting_for_data_costs_speed() -> None:
    """Products that each wait for their load have half speed all the time."""
    waits = [f"S[4] (qSyncIO0)>={16 * (k + 1)}" for k in range(8)]
    machine = ran({"sp": [load(columns=4096)] * 8, "pe": [product(waits=wait) for wait in waits]})
    took = [end - start for start, end in zip(starts(machine, "pe"), ends(machine, "pe"))]
    assert took == pytest.approx([2 * WIDE] * 8)


def test_trn1_has_no_ramp() -> None:
    machine = ran({"pe": [product()] * 2}, "trn1")
    assert machine.agents[0].ramp is None
    assert ends(machine, "pe")[1] == pytest.approx(2 * ends(machine, "pe")[0])

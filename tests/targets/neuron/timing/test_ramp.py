# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tensor engine's ramp: full speed while it is used enough, half of it before and after that."""

import pytest

from nki_mlir.machine import Engine, Ramp, Work, machine_named
from nki_mlir.machine.cited import Cited
from nki_mlir.targets.neuron.timing.ramp import RampState
from tests.targets.neuron.timing.streams import ends, load, ran, starts

WIDE = machine_named("trn2").cost(Engine.TENSOR, Work("product.float32", 512)).busy


def state() -> RampState:
    """Half speed below a use of 0.4 in the last 100 ns."""
    half, needed, window = (Cited(value, "assumption: of the test") for value in (0.5, 0.4, 100))
    return RampState(Ramp(half, needed, window))


def product(rows: int = 128, *, waits: str = "", dtype: str = "fp32") -> str:
    text = (f"MATMUL dst=fp32@0x2000000[1][512] stationary={dtype}@0x0[1][{rows}] moving={dtype}@0x1000[1][512] "
            f"channels={rows}")
    return f"{waits} {text}" if waits else text


def test_full_speed_begins_when_the_window_has_enough_use() -> None:
    ramp = state()
    assert ramp.end(0, 30, 1.0) == 60               # 30 of 40 that are needed
    assert ramp.end(60, 30, 1.0) == 120
    assert ramp.end(120, 30, 1.0) == 150            # of the last 100 ns the work of 20 to 120 counts: 50
    assert ramp.limited == [[0, 120]] and ramp.lost_ns == 60


def test_a_pause_takes_full_speed_away() -> None:
    ramp = state()
    for start in (0, 100):
        ramp.end(start, 50, 1.0)
    assert ramp.end(200, 50, 1.0) == 250            # 50 of the last 100 ns
    assert ramp.end(330, 50, 1.0) == 430            # 20
    assert ramp.limited == [[0, 100], [330, 430]]


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
    assert took == pytest.approx([2 * WIDE] * 2 + [WIDE] * 6)
    assert WIDE == pytest.approx(860)
    machine = ran({"pe": [product(64)] * 8})
    took = [end - start for start, end in zip(starts(machine, "pe"), ends(machine, "pe"))]
    assert took == pytest.approx([1707] * 8, rel=0.01)      # a measurement


def test_semaphores_are_no_use_of_the_tensor_engine() -> None:
    """An instruction that moves no data takes its time at any speed."""
    machine = ran({"pe": ["EVENT_SEMAPHORE", product()]})
    taken = machine.machine.costs.control.event_ns
    assert ends(machine, "pe") == pytest.approx([taken, taken + 2 * WIDE])
    (ramp,) = [agent.ramp for agent in machine.agents]
    assert ramp is not None and ramp.limited == [[taken, taken + 2 * WIDE]]


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

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The waits of random steps, by machine code and by Python, against clocks that are computed step by step."""

import random

import pytest

from nki_mlir.targets.neuron.codegen import segment_waits
from nki_mlir.targets.neuron.codegen.dependence_scan import StepEdges, joined
from nki_mlir.targets.neuron.codegen.segment_waits import QUEUES, SegmentWaits

ENGINES, GROUPS = 4, 3


def random_steps(seed):
    """Return for each step its engine and its group of queues, and the steps that it comes after."""
    r = random.Random(seed)
    issuers = [(group, group) if (group := r.randrange(2 * GROUPS)) < GROUPS else (r.randrange(ENGINES), None)
               for _ in range(300)]
    return issuers, [sorted(r.sample(range(k), min(k, r.choice((0, 1, 1, 2, 5))))) for k in range(300)]


@pytest.fixture(params=["python", "code"])
def mode(request, monkeypatch):
    if request.param == "code" and not segment_waits.CODE.functions:
        segment_waits.CODE.load(compiles=True)
    monkeypatch.setattr(segment_waits.CODE, "is_ready", lambda work: request.param == "code")


@pytest.mark.parametrize("seed", range(6))
def test_waits__imply_all_dependences_and_no_more_than_needed(seed, mode):
    issuers, before = random_steps(seed)
    waits = SegmentWaits([None] * len(issuers), issuers, ENGINES, GROUPS, StepEdges(*joined(before)))
    complete, before_lane, clock = [], {}, [set() for _ in range(ENGINES)]      # what an engine knows to be complete
    signal, values = {}, dict.fromkeys(range(ENGINES + QUEUES * GROUPS), 0)
    for k, (engine, group) in enumerate(issuers):
        lane = waits.lanes[k]
        assert lane == engine if group is None else 0 <= lane - ENGINES - QUEUES * group < waits.used[group]
        known = set(clock[engine])
        several = [signal[wait] for wait in waits.waits[k]]
        for step in several:
            assert step not in known and not any(step in complete[other] for other in several if other != step)
        for step in several:
            known |= complete[step] | {step}
        assert set(before[k]) <= known
        if lane != engine:                                      # a queue has one transfer under way
            assert before_lane.get(lane, k) in known | {k}
        before_lane[lane] = k
        complete.append(set(known))
        clock[engine] = known | ({k} if lane == engine else set())
        values[lane] += waits.signals[k]
        if waits.signals[k]:
            signal[lane, values[lane]] = k
        assert lane == engine or waits.signals[k]
    for engine in range(ENGINES):
        for lane, last in before_lane.items():
            assert lane == engine or waits.unknown(engine, lane) == (last not in clock[engine])
    assert {lane: count for lane, count in values.items() if lane in waits.signaled} == waits.signaled
    assert {step for of_step in waits.waits for step in map(signal.get, of_step)} == {
        k for k, signals in enumerate(waits.signals) if signals and waits.lanes[k] == issuers[k][0]} | {
        signal[wait] for of_step in waits.waits for wait in of_step if wait[0] >= ENGINES}


@pytest.mark.parametrize("seed", range(6))
def test_machine_code_has_the_waits_of_python(seed, monkeypatch):
    issuers, before = random_steps(seed)
    results = []
    for is_code in (False, True):
        if is_code and not segment_waits.CODE.functions:
            segment_waits.CODE.load(compiles=True)
        monkeypatch.setattr(segment_waits.CODE, "is_ready", lambda work, is_code=is_code: is_code)
        waits = SegmentWaits([None] * len(issuers), issuers, ENGINES, GROUPS, StepEdges(*joined(before)))
        results.append(vars(waits))
    assert results[0] == results[1] and any(results[0]["waits"])

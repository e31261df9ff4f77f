# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Meetings of several cores as the checker follows them: each gathers one event of each core."""

import pytest

from nki_mlir.targets.neuron.checker import check_streams
from nki_mlir.targets.neuron.checker.trace import Choices, CoreMeeting, StreamTrace

from .test_cores import X, programs_of, swapped


@pytest.mark.parametrize("limit", [50_000, 4], ids=["written out", "register loop"])
def test_each_meeting_gathers_one_event_of_each_core(limit, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    _, programs = programs_of(swapped(True), X, unroll_limit=limit)
    trace = StreamTrace(programs, Choices(), 10_000)
    meetings = [step.events for step in trace.steps if isinstance(step, CoreMeeting)]
    assert len(meetings) % 4 == 0 and len(meetings) >= 4            # two barriers in each of two iterations
    for events in meetings:
        assert sorted(event.core for event in events) == [0, 1]
    for core in (0, 1):
        indices = [event.index for events in meetings for event in events if event.core == core]
        assert indices == sorted(set(indices))                      # each event meets once, in the order of its lane
    report = check_streams(programs)
    assert not report.violations and not report.not_analysed

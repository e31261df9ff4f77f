# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""When a memory has bytes for the buffers of a step, while steps are scheduled."""

from types import SimpleNamespace

import pytest

from nki_mlir.targets.neuron.codegen.scheduled_memory import ScheduledMemory


def memory(**changes: object) -> SimpleNamespace:
    """100 bytes of SBUF are free, of which results need 30; the oldest step that waits is 5."""
    fields = {"free": [100, 40], "results": 30, "lacking": [0] * 9, "lacks": -1, "least": 0, "spare": 1000, "oldest": 5,
              "has_addresses": False, "limit": [200, 100], "most": [0, 0], "nearby": [0, 0], "near": [0, 0],
              "needed_until": lambda space, last_step: 0}
    return SimpleNamespace(**(fields | changes))


@pytest.mark.parametrize("k, space, size, transfer, busy, fits, lacks, least", [
    (7, 0, 70, True, True, True, -1, 0), (7, 0, 71, True, True, False, 0, 101),     # a load leaves room for results
    (7, 0, 71, True, False, True, -1, 0), (7, 0, 100, False, True, True, -1, 0),
    (7, 0, 101, False, True, False, 0, 101), (7, 1, 40, True, True, True, -1, 0), (7, 1, 41, True, True, False, 1, 41),
    (5, 0, 101, False, False, True, -1, 0), (5, 0, 101, False, True, False, 0, 101),
    (7, 0, 101, False, False, False, 0, 101)])
def test_bytes_for_a_step(k: int, space: int, size: int, transfer: bool, busy: bool, fits: bool, lacks: int,
                          least: int) -> None:
    state = memory()
    assert ScheduledMemory.has_bytes(state, k, space, size, 6, transfer, busy) is fits
    assert (state.lacks, state.least) == (lacks, least)
    assert state.lacking[k] == (least if space == 0 else 0)
    assert state.spare == (100 - size if fits and transfer and busy and space == 0 else 1000)


def test_oldest_step__does_not_start_without_bytes_where_steps_have_addresses() -> None:
    assert not ScheduledMemory.has_bytes(memory(has_addresses=True), 5, 0, 101, 6, False, False)


@pytest.mark.parametrize("most, nearby, near, needed, last_step, fits", [
    (151, 0, 0, 0, 6, True),                                    # what others need then leaves room
    (151, 0, 0, 151, 6, False), (151, 0, 0, 150, 6, True), (150, 0, 0, 151, 6, True),
    (151, 0, 0, 151, 5, True),                                  # used before the oldest step
    (151, 0, 6, 151, 6, True), (151, 151, 6, 151, 6, False)])
def test_bytes_that_other_steps_need_before(most: int, nearby: int, near: int, needed: int, last_step: int,
                                            fits: bool) -> None:
    """Of 200 bytes the step takes 50."""
    state = memory(most=[most, 0], near_bytes=[nearby, 0], near_step=[near, 0], needed_until=lambda space, last_step: needed)
    assert ScheduledMemory.has_bytes(state, 7, 0, 50, last_step, False, True) is fits

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What control instructions do to registers, as the simulator, the timed machine and the checker have it."""

from typing import Any

import pytest

from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.targets.neuron.control import computed, control_step
from nki_mlir.targets.neuron.timing.machine import computed_if_known

A, B, C = map(isa.Register, range(3))


def after(op: isa.Control, registers: list[Any], compute: Any = computed) -> tuple[int | None, list[Any]]:
    target = control_step(op, registers, compute, lambda load: 77, lambda holds: bool(holds), lambda *numbers: None)
    return target, registers


@pytest.mark.parametrize(("op", "target", "registers"), [
    (isa.Move(A, -5), None, [-5, 7, 9]),
    (isa.Move(A, B), None, [7, 7, 9]),
    (isa.RegisterAlu("subtract", C, A, B), None, [3, 7, -4]),
    (isa.RegisterAlu("mult", C, 1 << 20, 1 << 12), None, [3, 7, 0]),        # 32 bits with a sign
    (isa.RegisterAlu("add", C, (1 << 31) - 1, A), None, [3, 7, -(1 << 31) + 2]),
    (isa.RegisterAlu("lt", C, A, B), None, [3, 7, 1]),
    (isa.RegisterAlu("floordiv", C, -7, A), None, [3, 7, -3]),
    (isa.CompareBranch("ge", B, 7, isa.Label(4)), 4, [3, 7, 9]),
    (isa.CompareBranch("gt", B, 7, isa.Label(4)), None, [3, 7, 9]),
    (isa.EventSemaphore(), None, [3, 7, 9]),
])
def test_registers_and_branches(op: isa.Control, target: int | None, registers: list[int]) -> None:
    assert after(op, [3, 7, 9]) == (target, registers)
    assert after(op, [3, 7, 9], computed_if_known) == (target, registers)


def test_range_clear__names_its_semaphores() -> None:
    cleared = []
    control_step(isa.RangeClear(2, 5), [0], computed, lambda load: 0, bool, lambda *ends: cleared.append(ends))
    assert cleared == [(2, 5)]


def test_numbers_that_memory_says__stay_unknown_in_the_timed_machine() -> None:
    assert after(isa.RegisterAlu("add", C, A, 1), [None, 7, 9], computed_if_known) == (None, [None, 7, None])


def test_division_by_zero__is_an_error() -> None:
    with pytest.raises(isa.RegisterDivision, match="mod of 3 by 0 in a register"):
        after(isa.RegisterAlu("mod", C, A, 0), [3, 7, 9])

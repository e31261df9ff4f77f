# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps that keep their order: by their data, and across those that no other may cross."""

import pytest

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import SBUF, ZERO, Access, Linear, Tile
from nki_mlir.dialects.instruction_order import AFTER, NO_REORDER
from nki_mlir.dialects.nisa.movement import MemsetOp
from nki_mlir.dialects.op import changed
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.neuron.codegen.order_instructions import ContradictoryOrder, needs, program_order, sorted_steps
from nki_mlir.targets.neuron.codegen.records import DeviceBuffer, InstructionStep
from tests.dialects.samples import context

BUFFERS = {name: DeviceBuffer(name, SBUF, (128, 8), FLOAT32) for name in "abcde"}


def fill(name: str, is_fixed: bool) -> InstructionStep:
    tile = Tile(BUFFERS[name], SBUF, (128, 8), FLOAT32, Access(FLOAT32, ZERO, Linear(), ((1, 128), (1, 8))))
    return InstructionStep(changed(MemsetOp(dst=tile, value=1.0), None, extra={NO_REORDER: None} if is_fixed else {}))


def test_order__of_fixed_steps_and_of_those_around_them() -> None:
    steps = [fill(name, name in "bd") for name in "abcde"]
    assert program_order(steps) == [set(), {0}, {1}, {1, 2}, {3}]


def test_order__of_steps_that_write_one_tile() -> None:
    assert program_order([fill(name, False) for name in "aba"]) == [set(), set(), {0}]


def after(name: str, label: str, line: int) -> InstructionStep:
    step = fill(name, False)
    step.location = Location("kernel.py", line, 1)
    step.op = changed(step.op, None, extra={AFTER: ir.ArrayAttr.get([ir.StringAttr.get(label)])})
    return step


def test_contradiction__names_a_step_that_its_producer_waits_for() -> None:
    """Step 0 only waits for step 2; steps 1 and 2 wait for each other."""
    with context():
        run, before = [after("a", "x", 4), after("b", "x", 5), after("c", "y", 6)], [{2}, {2}, {1}]
        with pytest.raises(ContradictoryOrder) as caught:
            sorted_steps(run, before, {"x": [2]})
        assert str(caught.value).startswith(
            "kernel.py:5:2: error: nisa.memset cannot start after the nisa.memset of line 6, which comes after it by its "
            "data or by other orders")
        assert sorted_steps(run[:1] + run[2:], [{1}, set()], {"x": [1]}) == [1, 0]
    assert needs(2, 1, before) and needs(0, 1, before) and not needs(2, 0, before) and not needs(1, 0, before)

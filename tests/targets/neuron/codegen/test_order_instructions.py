# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps that keep their order: by their data, and across those that no other may cross."""

from nki_mlir.dialects.access import SBUF, ZERO, Access, Linear, Tile
from nki_mlir.dialects.instruction_order import NO_REORDER
from nki_mlir.dialects.nisa.movement import MemsetOp
from nki_mlir.dialects.op import changed
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.neuron.codegen.order_instructions import program_order
from nki_mlir.targets.neuron.codegen.records import DeviceBuffer, InstructionStep

BUFFERS = {name: DeviceBuffer(name, SBUF, (128, 8), FLOAT32) for name in "abcde"}


def fill(name: str, is_fixed: bool) -> InstructionStep:
    tile = Tile(BUFFERS[name], SBUF, (128, 8), FLOAT32, Access(FLOAT32, ZERO, Linear(), ((1, 128), (1, 8))))
    return InstructionStep(changed(MemsetOp(dst=tile, value=1.0), None, extra={NO_REORDER: None} if is_fixed else {}))


def test_order__of_fixed_steps_and_of_those_around_them() -> None:
    steps = [fill(name, name in "bd") for name in "abcde"]
    assert program_order(steps) == [set(), {0}, {1}, {1, 2}, {3}]


def test_order__of_steps_that_write_one_tile() -> None:
    assert program_order([fill(name, False) for name in "aba"]) == [set(), set(), {0}]

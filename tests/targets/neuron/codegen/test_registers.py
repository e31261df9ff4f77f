# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The registers of an engine: what an instruction needs at the same time stays, the least recently used goes."""

import pytest

from nki_mlir.dialects.isa.instruction import REGISTERS, Control
from nki_mlir.targets.neuron.codegen.records import Computed, LoopVariable
from nki_mlir.targets.neuron.codegen.registers import RegisterFile, TooManyRegisters


def test_values_that_an_instruction_needs__keep_their_registers():
    registers, emitted = RegisterFile(), list[Control]()
    variable = LoopVariable("i", 0, 7)
    registers.pin(variable)
    values = [Computed("add", variable, k) for k in range(1, REGISTERS)]
    assigned = [registers.get(value, (), emitted.append) for value in values]
    assert len({r.number for r in assigned}) == REGISTERS - 1 == len(emitted)
    first, second, third = values[:3]
    new = registers.get(Computed("mult", variable, 3), (first, second), emitted.append)
    assert new == assigned[2]                               # of the others the least recently used
    assert [registers.get(v, (), emitted.append) for v in (first, second)] == assigned[:2]
    assert len(emitted) == REGISTERS
    registers.get(third, (first, second), emitted.append)   # it is computed anew
    assert len(emitted) == REGISTERS + 1


def test_without_a_register_left__it_is_an_error():
    registers = RegisterFile()
    for k in range(REGISTERS):
        registers.pin(LoopVariable(f"i{k}", 0, 7))
    with pytest.raises(TooManyRegisters, match=f"an instruction needs more than the {REGISTERS} registers of an engine"):
        registers.pin(LoopVariable("last", 0, 7))

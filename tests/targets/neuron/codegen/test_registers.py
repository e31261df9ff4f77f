# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The registers of an engine: what an instruction needs at the same time stays, the least recently used goes."""

import pytest

from nki_mlir.dialects.isa.instruction import REGISTERS, Control, Register, RegisterAlu
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


def test_value__is_computed_from_its_sides_once_until_it_is_forgotten():
    registers, emitted = RegisterFile(), list[Control]()
    outer, inner = LoopVariable("i", 0, 7), LoopVariable("j", 0, 7)
    i, j = registers.pin(outer), registers.pin(inner)
    assert [registers.get(v, (), emitted.append) for v in (outer, inner)] == [i, j] and not emitted
    row = Computed("mult", outer, 3)
    value = Computed("subtract", row, inner)
    result = registers.get(value, (), emitted.append)
    assert (i, j, result) == (Register(0), Register(1), Register(3))
    assert emitted == [RegisterAlu("mult", Register(2), i, 3), RegisterAlu("subtract", result, Register(2), j)]
    assert registers.get(row, (), emitted.append) == Register(2) and registers.get(value, (), emitted.append) == result
    assert len(emitted) == 2
    registers.release(inner)
    assert registers.get(Computed("add", 5, outer), (), emitted.append) == j
    assert emitted[2:] == [RegisterAlu("add", j, 5, i)]
    registers.invalidate_computed()
    assert registers.get(row, (), emitted.append) == Register(1)
    assert emitted[3:] == [RegisterAlu("mult", Register(1), i, 3)]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every instruction class: on physical memory, through text and binary, it computes what its class says."""

import dataclasses

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.isa.instruction import CONTROLS, Instruction, NoEncoding, by_mnemonic, by_opcode
from nki_mlir.dialects.isa.module import load_isa, read_program, write_program
from nki_mlir.dialects.op import REGISTRY, In, NisaOp, Out, changed
from nki_mlir.machine import machine_named
from nki_mlir.targets.neuron.codegen.records import Block, Code, DeviceBuffer, InstructionStep
from nki_mlir.targets.neuron.codegen.synchronize_engines import synchronized
from nki_mlir.targets.neuron.format.assembly import instruction_text, parse_program, print_program
from nki_mlir.targets.neuron.format.assembly_operation import operation_text
from nki_mlir.targets.neuron.format.container import decode_program, encode_program
from nki_mlir.targets.neuron.simulated_core import Core
from nki_mlir.targets.neuron.simulator import run as run_cores
from tests.dialects.samples import SAMPLES, arrays_of, run

NISA = sorted(name for name in SAMPLES if name.startswith("nisa."))


def code_with(op):
    """One instruction, its buffers behind each other in memory."""
    at = {"sbuf": 64, "psum": 2048}
    buffers, code = {}, Code("kernel", machine_named("trn2"), [], Block())
    for field, tile in op.operands():
        role = "local" if tile.on_chip else "input"
        buffer = buffers[field.name] = DeviceBuffer(field.name, tile.space, tile.base_shape, tile.base_dtype, role,
                                                    len(code.globals))
        if tile.on_chip:
            buffer.address, buffer.fixed = (0, at[tile.space]), True
            at[tile.space] += -(-buffer.bytes_per_partition // 64) * 64
        else:
            code.globals.append(buffer)
    names = iter(buffers.values())
    physical = changed(op, lambda t: dataclasses.replace(t, handle=next(names)), engine=op.runs_on.value)
    code.body.nodes.append(InstructionStep(physical))
    return code, buffers


@pytest.mark.parametrize("name", NISA)
def test_instruction__computes_what_its_class_says(name):
    op = SAMPLES[name].make()
    code, buffers = code_with(op)
    arrays = arrays_of(op)
    expected = run(op, arrays)
    program = synchronized(code)
    text = "\n".join(instruction_text(i, program) for s in program.streams.values() for i in s)
    assert by_mnemonic()[op.mnemonic].name == op.name and op.mnemonic in text
    program = decode_program(encode_program(program))
    core = Core(program, [arrays[b.name].copy() for b in code.globals], [])
    for key, buffer in buffers.items():
        if buffer.address:
            window(core, buffer)[...] = arrays[key]
    run_cores([core])
    inputs = {v.name: core.memory[v] for v in program.variables}
    for key, buffer in buffers.items():
        result = window(core, buffer) if buffer.address else inputs[key]
        np.testing.assert_array_equal(result, expected[key], err_msg=key)


def window(core, buffer):
    """A buffer's bytes in the core's memory, as an array of its shape."""
    memory, dtype = core.memory[buffer.space], buffer.dtype.numpy
    steps, step = [], dtype.itemsize
    for extent in reversed(buffer.shape[1:]):
        steps.append(step)
        step *= extent
    return np.ndarray(buffer.shape, dtype, memory, buffer.address[1], (memory.shape[1], *reversed(steps)))


@pytest.mark.parametrize("name", NISA)
def test_instruction__is_the_same_in_text_binary_and_ir(name):
    program = synchronized(code_with(SAMPLES[name].make())[0])
    text, data = print_program(program), encode_program(program)
    assert encode_program(parse_program(text)) == data
    assert print_program(decode_program(data)) == text
    context = ir.Context()
    load_isa(context)
    with context, ir.Location.unknown():
        module = ir.Module.create()
        write_program(module, program)
        module = ir.Module.parse(module.operation.get_asm(enable_debug_info=True))
        module.operation.verify()
        assert print_program(read_program(module)) == text


def test_negative_zero__is_not_left_out_as_a_default():
    op = SAMPLES["nisa.tensor_scalar"].make(imm0=-0.0, op1="bypass", imm1=0.0)
    program = synchronized(code_with(op)[0])
    text = print_program(program)
    assert "imm0=-0.0" in text and "imm1" not in text
    assert print_program(decode_program(encode_program(parse_program(text)))) == text


def test_every_class__has_a_mnemonic_and_an_opcode_of_its_own():
    classes = [c for c in REGISTRY.values() if issubclass(c, NisaOp) or c.name == "device_print"]
    assert all(c.mnemonic and 0 < c.opcode < 256 for c in classes)
    assert len(by_opcode()) == len(by_mnemonic()) == len(classes) + len(CONTROLS)


def test_error__class_without_an_opcode():
    class Unfinished(NisaOp):
        dst: Out
        src: In

    Unfinished.name, Unfinished.mnemonic, Unfinished.tiles = "unfinished", "UNFINISHED", ()
    with pytest.raises(NoEncoding, match=r"'nisa.unfinished' has no instruction: its class has no opcode"):
        operation_text(Unfinished())
    assert isinstance(Instruction(Unfinished()), Instruction)

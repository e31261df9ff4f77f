# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The isa dialect: programs as IR and back, and what its verifier refuses."""

import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.attributes import MalformedAttribute
from nki_mlir.dialects.isa.module import NotAProgram, load_isa, program_text, read_program, write_program
from nki_mlir.passes.levels import IllegalAtLevel, Level, check_level
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.format.assembly import parse_program, print_program

from .random_code import RandomCode
from .test_assembly import PROGRAM


@pytest.fixture(scope="module")
def context():
    context_of_isa = ir.Context()
    load_isa(context_of_isa)
    return context_of_isa


def parsed(text, context):
    with context, ir.Location.unknown():
        module = ir.Module.parse(text)
        module.operation.verify()
        return module


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("limit", [1, 50_000])
def test_program__comes_back_from_ir(seed, limit, context):
    program = emit_code(RandomCode(seed, 25).code, Emission(unroll_limit=limit))
    with context, ir.Location.unknown():
        module = ir.Module.create()
        write_program(module, program)
        again = parsed(module.operation.get_asm(enable_debug_info=True), context)
        check_level(again, Level.ISA, "after parsing")
        assert print_program(read_program(again)) == print_program(program)


def test_branch__to_the_end_of_a_stream(context):
    text = PROGRAM.replace("op=lt lhs=r1 rhs=4 target=0002", "op=lt lhs=r1 rhs=4 target=0005")
    streams = read_program(parsed(program_text(parse_program(text)), context)).streams
    assert [i.op.target for s in streams.values() for i in s if i.op.mnemonic == "COMPARE_BRANCH"] == [5]


@pytest.mark.parametrize("old,new,what", [
    ('mnemonic = "TENSOR_TENSOR"', 'mnemonic = "TENSOR"', "names no instruction: 'TENSOR'"),
    ('op = "add"}, mnemonic = "TENSOR_TENSOR"', 'op = "adds"}, mnemonic = "TENSOR_TENSOR"',
     "attribute 'op' of 'tensor_tensor' is 'adds'"),
    ('fields = {op = "add"}, mnemonic = "TENSOR_TENSOR"', 'fields = {}, mnemonic = "TENSOR_TENSOR"',
     "TENSOR_TENSOR lacks 'op'"),
    ('["x", #nki', '["z", #nki', "there is no variable 'z'"),
    ('["x", #nki', '["sbuf", #nki', "the access of 'src' does not fit its memory 'sbuf'"),
    ('fields = {dst = "r1", value', 'fields = {dst = 1 : i64, value', "field dst of MOVE cannot be 1"),
    ('waits = [[', 'waits = [[], [', "has an attribute that is not of the documented form"),
    ('{op = "lt"', '{op = "less"', "'isa.branch' op has no comparison"),
])
def test_error__malformed(old, new, what, context):
    text = program_text(parse_program(PROGRAM))
    assert old in text
    with pytest.raises(ir.MLIRError) as caught:
        parsed(text.replace(old, new, 1), context)
    assert what in str(caught.value)


@pytest.mark.parametrize("old,new,what", [
    ("uses = {act = [1, 1], ", "uses = {act = [1], ", "is not a live range: 't sbuf 0x400 128\\*512 act:1 pool:0-0'"),
    ("uses = {act = [1, 1], ", "uses = {act = 1, ", "'uses' must have the first and the last index for each engine, got"),
    ("uses = {act = [1, 1], ", "uses = {axt = [1, 1], ", "is not a live range"),
    ("address = 1024", "address = -1", "is not a live range"),
    ("address = 1024", "address = 33554432", "is not a live range"),
    ('"sbuf", partitions', '"hbm", partitions', "is not a live range"),
])
def test_error__live_range(old, new, what, context):
    text = program_text(parse_program(PROGRAM + ".live t sbuf 0x400 128*512 act:1-1 pool:0-0\n"))
    assert old in text
    with pytest.raises(ir.MLIRError, match=f"'isa.live_range' op {what}"):
        parsed(text.replace(old, new, 1), context)


def test_error__branch_on_a_name(context):
    text = program_text(parse_program(PROGRAM))
    assert 'sides = ["r1", 4]' in text
    module = parsed(text.replace('sides = ["r1", 4]', 'sides = ["one", 4]'), context)
    with pytest.raises(MalformedAttribute, match="a branch compares numbers and registers, not 'one'"):
        read_program(module)


def test_error__no_program(context):
    with pytest.raises(NotAProgram, match="the module has 0 programs"):
        read_program(parsed("module {}", context))


def test_level__allows_isa_operations_alone(context):
    module = parsed(program_text(parse_program(PROGRAM)), context)
    with pytest.raises(IllegalAtLevel, match=r"'isa.program' is not legal at the nisa level"):
        check_level(module, Level.NISA, "now")

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What single instructions move, how many operations they are, and which of them a profile counts as one."""

from types import SimpleNamespace

import pytest

from nki_mlir.dialects.access import full_tile
from nki_mlir.dialects.isa.instruction import ActTableLoad, Instruction
from nki_mlir.dialects.isa.program import SPILLED, Variable
from nki_mlir.dialects.nisa.elementwise import ActivationOp, TensorCopyPredicatedOp, TensorTensorOp
from nki_mlir.dialects.nisa.matmul import NcMatmulOp, NcTransposeOp
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.machine import Engine
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, TFLOAT32, UINT8, dtype_of
from nki_mlir.targets.neuron.checker.rules import missing_tables
from nki_mlir.targets.neuron.profile.slices import Traffic, form_of, moved_by, passes_of, traffic_of


def on_chip(*shape, dtype=FLOAT32, space="sbuf"):
    return full_tile(None, shape, dtype, space)


def in_hbm(*shape, dtype=FLOAT32, name="x"):
    return full_tile(Variable(name, "input", 0, shape, dtype), shape, dtype, "hbm")


def product(accumulate=False, dtype=BFLOAT16):
    return NcMatmulOp(dst=on_chip(64, 300, space="psum"), stationary=on_chip(128, 64, dtype=dtype),
                      moving=on_chip(128, 300, dtype=dtype), accumulate=accumulate)


LOAD = ActTableLoad(table="exp")


@pytest.mark.parametrize("op, expected", [
    (DmaCopyOp(dst=on_chip(100, 30), src=in_hbm(100, 30)), {"hbm_read": 12000, "sbuf_written": 12000}),
    (DmaCopyOp(dst=in_hbm(100, 30, dtype=BFLOAT16), src=on_chip(100, 30)), {"hbm_written": 6000, "sbuf_read": 12000}),
    (DmaCopyOp(dst=on_chip(8, 3), src=in_hbm(8, 3, name="t" + SPILLED)),
     {"hbm_read": 96, "sbuf_written": 96, "spill_reloaded": 96}),
    (DmaCopyOp(dst=in_hbm(8, 3, name="t" + SPILLED), src=on_chip(8, 3)),
     {"hbm_written": 96, "sbuf_read": 96, "spill_saved": 96}),
    (TensorTensorOp(dst=on_chip(16, 5, dtype=UINT8), lhs=on_chip(16, 5), rhs=on_chip(16, 5, space="psum"), op="add"),
     {"sbuf_written": 80, "sbuf_read": 320, "psum_read": 320}),
    (product(), {"psum_written": 4 * 64 * 300, "sbuf_read": 2 * 128 * 364, "product": 2 * 128 * 64 * 300}),
    (product(True), {"psum_written": 4 * 64 * 300, "psum_read": 4 * 64 * 300, "sbuf_read": 2 * 128 * 364,
                     "product": 2 * 128 * 64 * 300}),
    (TensorCopyPredicatedOp(dst=on_chip(16, 5), src=on_chip(16, 5), predicate=on_chip(16, 5, dtype=UINT8)),
     {"sbuf_written": 320, "sbuf_read": 320 + 320 + 80}),
    (LOAD, {})], ids=lambda value: getattr(value, "name", ""))
def test_traffic__is_the_bytes_of_the_tiles(op, expected):
    assert traffic_of(op) == Traffic(**expected)


def test_transfers__name_their_tensor_and_their_partitions():
    load = DmaCopyOp(dst=on_chip(100, 30), src=in_hbm(100, 30, name="weights"))
    assert moved_by(Instruction(load, queue=0)) == ("weights", 100)
    assert moved_by(Instruction(load)) == ("", 0) == moved_by(Instruction(LOAD, queue=0))
    between = DmaCopyOp(dst=in_hbm(9, 30, name="out"), src=in_hbm(9, 30, name="weights"))
    assert moved_by(Instruction(between, queue=1)) == ("out", 0)
    assert moved_by(Instruction(DmaCopyOp(dst=on_chip(7, 2), src=on_chip(9, 2)), queue=1)) == ("", 9)


@pytest.mark.parametrize("dtype, generation, passes", [
    (BFLOAT16, 2, 1.0), (BFLOAT16, 3, 1.0), (FLOAT32, 2, 4.0), (FLOAT32, 4, 4.0), (TFLOAT32, 3, 1.0),
    (dtype_of("float8_e4m3"), 2, 1.0), (dtype_of("float8_e4m3"), 3, 0.5), (dtype_of("float8_e4m3"), 4, 0.5)], ids=str)
def test_products__count_as_operations_of_bfloat16(dtype, generation, passes):
    assert passes_of(product(dtype=dtype), generation) == passes


def test_operands_of_two_dtypes__count_by_the_moving_one():
    mixed = NcMatmulOp(dst=on_chip(64, 300, space="psum"), stationary=on_chip(128, 64),
                       moving=on_chip(128, 300, dtype=BFLOAT16))
    assert passes_of(mixed, 3) == 1.0


def test_transposes_of_the_tensor_engine__are_products_with_the_identity():
    op = NcTransposeOp(dst=on_chip(100, 64, space="psum"), src=on_chip(64, 100), engine="tensor")
    assert traffic_of(op) == Traffic(psum_written=4 * 6400, sbuf_read=4 * 6400, transpose=2 * 64 * 64 * 100)
    assert passes_of(op, 3) == 4.0


def test_other_instructions__count_once():
    assert passes_of(LOAD, 3) == 1.0
    assert passes_of(DmaCopyOp(dst=on_chip(8, 3), src=in_hbm(8, 3)), 3) == 1.0


def test_forms__differ_in_all_that_costs_depend_on():
    same = [form_of(Instruction(product())) for _ in range(2)]
    assert same[0] == same[1]
    others = [form_of(Instruction(op, queue=queue)) for op, queue in [
        (product(), None), (product(True), None), (product(dtype=FLOAT32), None), (LOAD, None),
        (DmaCopyOp(dst=on_chip(8, 3), src=in_hbm(8, 3)), 0), (DmaCopyOp(dst=on_chip(8, 3), src=in_hbm(8, 3)), None),
        (DmaCopyOp(dst=on_chip(8, 3), src=in_hbm(8, 3, name="y")), 0),
        (DmaCopyOp(dst=on_chip(8, 2), src=in_hbm(8, 2)), 0)]]
    assert len(set(others)) == len(others) and form_of(Instruction(LOAD)) == form_of(Instruction(ActTableLoad("tanh")))


def activation(function, engine=Engine.SCALAR):
    op = ActivationOp(dst=on_chip(8, 3), src=on_chip(8, 3), fn=function)
    return SimpleNamespace(engine=engine, instruction=Instruction(op))


def test_function_sets__are_those_that_the_stream_loaded_last():
    def load(table):
        return SimpleNamespace(engine=Engine.SCALAR, instruction=Instruction(ActTableLoad(table=table)))
    exp, tanh, copy = activation("exp"), activation("tanh"), activation("copy")
    sets = [event.instruction.op.function_set for event in (exp, tanh)]
    assert len({*sets, ""}) == 3 and copy.instruction.op.function_set == ""
    assert list(missing_tables([load(sets[0]), exp, copy, exp])) == []
    assert list(missing_tables([copy, exp, exp, tanh])) == [(exp, sets[0], ""), (tanh, sets[1], sets[0])]
    assert list(missing_tables([load(sets[1]), exp, load(sets[1]), tanh])) == [(exp, sets[0], sets[1])]
    assert list(missing_tables([load(sets[0]), activation("tanh", Engine.VECTOR), exp])) == []

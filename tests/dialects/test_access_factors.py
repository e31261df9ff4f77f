# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How much longer engines take for elements that are apart in memory."""

import pytest

from nki_mlir.dialects.access_factors import access_factor_of_dims
from nki_mlir.machine import Cost, Engine, Work, machine_named
from tests.targets.neuron.timing.streams import program

TRN2 = machine_named("trn2")


@pytest.mark.parametrize("dims, itemsize, factor", [
    ([(1, 512)], 4, 1.0),                       # adjacent
    ([(2, 512)], 4, 1.0),                       # 8 bytes: two elements in a sector
    ([(3, 512)], 4, 1.5),
    ([(4, 512)], 4, 2.0),                       # each element is in another sector
    ([(100, 512)], 4, 2.0),
    ([(-8, 64)], 4, 2.0),
    ([(1, 512)], 2, 1.0),
    ([(4, 512)], 2, 1.0),
    ([(8, 512)], 2, 2.0),
    ([(0, 64)], 4, 1.0),                        # one element, repeated
    ([(64, 8), (1, 64)], 4, 1.0),
    ([(64, 8), (8, 8)], 4, 2.0),                # one dim of 64 elements with a step of 8
    ([(64, 8), (1, 2)], 4, 1.0),                # pairs
    ([(64, 8), (7, 1)], 4, 2.0),                # a dim of one element has no step
    ([(5, 1)], 4, 1.0),
    ([(3, 2)], 4, 1.0), ([(4, 2)], 4, 2.0),     # 16 bytes from the first to the last are one sector, 20 are two
    ([(3, 3)], 4, 4 / 3), ([(2, 4)], 4, 1.0), ([(7, 2)], 2, 1.0), ([(8, 2)], 2, 2.0),
])
def test_factor_of_a_pattern(dims: list[tuple[int, int]], itemsize: int, factor: float) -> None:
    assert access_factor_of_dims(tuple(dims), itemsize) == pytest.approx(factor, rel=0.01)      # sectors at the end are counted in full


def work(text: str) -> Work:
    (instruction,) = program({"dve": [text]}).streams[Engine.VECTOR]
    return instruction.work_of(instruction.op)


def seen_ns(cost: Cost) -> float:
    return cost.busy + cost.result


def test_copies_with_a_step_of_eight_elements_take_what_others_measured() -> None:
    """617 ns on the vector engine and 1,111 ns on the scalar engine, of 512 elements of float32."""
    apart = work("COPY dst=fp32@0x0[1][512] src=fp32@0x1000[8][512] channels=128")
    assert apart == Work("tensor_copy", 512, 2.0)
    assert seen_ns(TRN2.cost(Engine.VECTOR, apart)) == pytest.approx(617, rel=0.15)     # measurements, whose size is not stated
    assert seen_ns(TRN2.cost(Engine.SCALAR, apart)) == pytest.approx(1111, rel=0.1)     # likewise


@pytest.mark.parametrize("text, expected", [
    # Both sources of a sum are read one after the other, but with one in PSUM at the same time.
    ("TENSOR_TENSOR op=add dst=fp32@0x0[1][512] lhs=fp32@0x1000[8][512] rhs=fp32@0x9000[1][512] channels=128",
     Work("tensor_tensor", 512, 1.5)),
    ("TENSOR_TENSOR op=add dst=fp32@0x0[8][512] lhs=fp32@0x5000[1][512] rhs=fp32@0x9000[1][512] channels=128",
     Work("tensor_tensor", 512, 1.0)),
    ("TENSOR_TENSOR op=add dst=fp32@0x0[1][512] lhs=fp32@0x5000[8][512] rhs=fp32@0x2000000[1][512] channels=128",
     Work("tensor_tensor.psum", 512, 2.0)),
    # The fast modes of 16 bits need adjacent elements.
    ("COPY dst=bfloat16@0x0[1][512] src=bfloat16@0x1000[1][512] channels=128", Work("tensor_copy.bfloat16", 512)),
    ("COPY dst=bfloat16@0x0[1][512] src=bfloat16@0x1000[2][512] channels=128", Work("tensor_copy.apart", 512)),
    ("COPY dst=bfloat16@0x0[1][512] src=bfloat16@0x2000000[1][512] channels=128",
     Work("tensor_copy.psum.bfloat16", 512)),
    ("COPY dst=bfloat16@0x0[1][512] src=fp32@0x2000000[1][512] channels=128", Work("tensor_copy.psum", 512)),
    ("COPY dst=fp8_e4@0x0[1][512] src=fp8_e4@0x1000[1][512] channels=128", Work("tensor_copy.float8_e4m3", 512)),
    ("COPY dst=fp8_e4@0x0[1][512] src=fp8_e4@0x1000[2][512] channels=128", Work("tensor_copy", 512)),
    ("COPY dst=fp8_e4@0x0[1][512] src=fp8_e5@0x1000[1][512] channels=128", Work("tensor_copy", 512)),
])
def test_work_of_an_instruction(text: str, expected: Work) -> None:
    assert work(text) == expected


@pytest.mark.parametrize("law", ["tensor_tensor", "tensor_scalar", "tensor_scalar.psum", "tensor_copy.psum"])
@pytest.mark.parametrize("narrow", ["float8_e4m3", "float8_e4m3fn", "float8_e5m2"])
def test_floats_of_8_bits_have_the_fast_modes_of_trn3_alone(law: str, narrow: str) -> None:
    for target, like in (("trn1", law), ("trn2", law), ("trn3", f"{law}.bfloat16")):
        machine = machine_named(target)
        times = [machine.cost(Engine.VECTOR, Work(name, 512)).busy for name in (f"{law}.{narrow}", like)]
        assert times[0] == times[1], target

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random code as instruction streams: the values of program order under every scheduler, no race, no needless wait."""

import numpy as np
import pytest

from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.format.assembly import parse_program, print_program
from nki_mlir.targets.neuron.format.container import decode_program, encode_program
from nki_mlir.targets.neuron.simulator import simulate

from .code_builder import Builder
from .ordering import Ordering, waits_of, without_wait
from .random_code import RandomCode

OPTIONS = [Emission(), Emission(reorder=False), Emission(unroll_limit=1), Emission(unroll_limit=40)]


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_values__are_those_of_program_order_under_every_scheduler(seed, options):
    drawn = RandomCode(seed, 30)
    expected = drawn.expected()
    program = decode_program(encode_program(emit_code(drawn.code, options)))
    for scheduler in (None, *range(5)):
        output = np.zeros_like(expected)
        simulate(program, [a.copy() for a in drawn.arrays], [output], scheduler)
        np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("seed", range(20, 26))
def test_text_and_binary__stand_for_the_same_program(seed):
    program = emit_code(RandomCode(seed, 30).code, Emission(unroll_limit=20))
    text, data = print_program(program), encode_program(program)
    assert print_program(parse_program(text)) == text
    assert encode_program(parse_program(text)) == data
    assert print_program(decode_program(data)) == text


@pytest.mark.parametrize("reorder", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_waits__order_all_conflicts_and_none_can_go(seed, reorder):
    program = emit_code(RandomCode(seed, 18, loops=False).code, Emission(reorder=reorder))
    assert Ordering(program).races() == []
    needless = [wait for wait in waits_of(program) if not Ordering(without_wait(program, *wait)).races()]
    assert needless == []


def pipeline():
    """Two tiles through load, two engines and store, in memory that both use: every kind of dependence."""
    b = Builder()
    x, y = b.hbm("x", (256, 32), "input"), b.hbm("y", (256, 32), "output")
    t = b.on_chip("t", (128, 32), address=(0, 0))
    u = b.on_chip("u", (128, 32), address=(0, 128))
    for k in range(2):
        b.copy((t, 0, 128, 0, 32), (x, 128 * k, 128, 0, 32))
        b.activation((u, 0, 128, 0, 32), (t, 0, 128, 0, 32), "square")
        b.add((u, 0, 128, 0, 32), (u, 0, 128, 0, 32), (t, 0, 128, 0, 32))
        b.copy((y, 128 * k, 128, 0, 32), (u, 0, 128, 0, 32))
    return b.code


def test_each_wait__is_needed_for_the_values():
    program = emit_code(pipeline(), Emission())
    x = np.arange(256 * 32, dtype=np.float32).reshape(256, 32)
    expected = x * x + x
    waits = waits_of(program)
    assert len(waits) >= 6
    for wait in waits:
        broken = without_wait(program, *wait)
        outputs = [np.zeros_like(x) for _ in range(60)]
        for seed, output in enumerate(outputs):
            simulate(broken, [x], [output], seed)
        assert any(not np.array_equal(o, expected) for o in outputs), f"without {wait} nothing changed"


def test_long_code__meets_before_a_semaphore_overflows(monkeypatch):
    monkeypatch.setattr("nki_mlir.dialects.isa.instruction.SEMAPHORE_MAX", 47)      # of the emission and the simulator
    drawn = RandomCode(3, 60)
    expected = drawn.expected()
    program = emit_code(drawn.code, Emission())
    highest = max(w.value for s in program.streams.values() for i in s for w in i.waits)
    assert highest <= 47
    for scheduler in range(6):
        output = np.zeros_like(expected)
        simulate(program, [a.copy() for a in drawn.arrays], [output], scheduler)
        np.testing.assert_array_equal(output, expected)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order of instructions: what can overlap does, dependences hold, memory bounds how far loads run ahead."""

import numpy as np
import pytest

from nki_mlir.machine import machine_named
from nki_mlir.targets.neuron.codegen.allocate_on_chip import allocate
from nki_mlir.targets.neuron.codegen.liveness import Liveness, peak
from nki_mlir.targets.neuron.codegen.records import InstructionStep, Loop
from nki_mlir.targets.neuron.codegen.schedule_instructions import Order, schedule
from tests.targets.neuron.code_builder import Builder, run_in_order
from tests.targets.neuron.random_code import RandomCode


def stages(count=6, width=512, shared=False):
    """Load, exp, add, store for several tiles."""
    b = Builder()
    x, y = b.hbm("x", (128 * count, width), "input"), b.hbm("y", (128 * count, width), "output")
    own = b.on_chip("own", (128, width))
    for k in range(count):
        t = own if shared else b.on_chip(f"t{k}", (128, width))
        e = b.on_chip(f"e{k}", (128, width))
        b.copy((t, 0, 128, 0, width), (x, 128 * k, 128, 0, width))
        b.activation((e, 0, 128, 0, width), (t, 0, 128, 0, width), "exp")
        b.add((e, 0, 128, 0, width), (e, 0, 128, 0, width), (t, 0, 128, 0, width))
        b.copy((y, 128 * k, 128, 0, width), (e, 0, 128, 0, width))
    return b.code


def kinds(code):
    return [("load" if n.op.src.space == "hbm" else "store") if n.op.name == "dma_copy" else n.op.name
            for n in code.body.nodes if isinstance(n, InstructionStep)]


def test_loads__run_ahead_of_the_work_on_earlier_tiles():
    code = stages()
    schedule(code)
    order = kinds(code)
    assert order.index("activation") > 0 and order[:3].count("load") == 3
    assert order.index("store") > [k for k, kind in enumerate(order) if kind == "load"][1]
    assert sorted(order) == sorted(kinds(stages()))


def test_one_buffer_for_all_tiles__leaves_nothing_to_overlap():
    code = stages(shared=True)
    schedule(code)
    order = [k for k in kinds(code) if k in ("load", "tensor_tensor")]
    assert order == ["load", "tensor_tensor"] * 6


def test_memory__bounds_how_far_loads_run_ahead():
    size = machine_named("trn2").sbuf_bytes_per_partition
    code = stages(count=12, width=size // 4 // 6)
    schedule(code, Order(90))
    most, _ = peak(list(Liveness(code).of.values()))
    assert most <= size
    narrow = stages(count=12, width=size // 4 // 6)
    schedule(narrow, Order(40))
    assert kinds(narrow)[:5].count("load") < kinds(code)[:5].count("load")


@pytest.mark.parametrize("seed", range(10))
def test_values__stay_those_of_program_order(seed):
    made = RandomCode(seed, 40)
    expected = made.expected()
    schedule(made.code)
    np.testing.assert_array_equal(made.expected(), expected)


def test_order__is_the_same_each_time():
    first, second = (RandomCode(5, 40) for _ in range(2))
    for made in (first, second):
        schedule(made.code)
    assert [type(n).__name__ + getattr(getattr(n, "op", None), "name", "") for n in first.code.body.nodes] == [
        type(n).__name__ + getattr(getattr(n, "op", None), "name", "") for n in second.code.body.nodes]


def test_addresses__that_were_allocated_for_the_old_order_go():
    code = stages(2)
    allocate(code)
    code.body.buffers[1].fixed = True
    schedule(code)
    assert [x.address is None for x in code.body.buffers] == [True, False, True, True, True]


def test_loops__are_not_crossed():
    b = Builder()
    x, y = b.hbm("x", (128, 64), "input"), b.hbm("y", (128, 64), "output")
    t = b.on_chip("t", (128, 64))
    b.memset((t, 0, 128, 0, 64), 0)
    with b.loop(2):
        b.copy((t, 0, 128, 0, 64), (x, 0, 128, 0, 64))
    b.copy((y, 0, 128, 0, 64), (t, 0, 128, 0, 64))
    schedule(b.code)
    assert [type(n) for n in b.code.body.nodes] == [InstructionStep, Loop, InstructionStep]
    made = np.zeros((128, 64), np.float32)
    run_in_order(b.code, {x: np.ones((128, 64), np.float32), y: made})
    assert (made == 1).all()

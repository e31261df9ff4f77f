# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order of instructions: what can overlap does, dependences hold, memory bounds how far loads run ahead."""

from pathlib import Path

import numpy as np
import pytest

from nki_mlir.cli.arguments import parse_arguments
from nki_mlir.cli.source import load_kernel
from nki_mlir.compat import install
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.machine import machine_named
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen.allocate_on_chip import allocate
from nki_mlir.targets.neuron.codegen.emission import WRITTEN_OUT
from nki_mlir.targets.neuron.codegen.liveness import Liveness, peak
from nki_mlir.targets.neuron.codegen.records import InstructionStep, Loop
from nki_mlir.targets.neuron.codegen.schedule_instructions import NO_REORDER, Order, Schedules, schedule
from nki_mlir.targets.neuron.codegen.sink_constants import sink_constants
from nki_mlir.targets.neuron.codegen.split_blocks import split_blocks
from nki_mlir.targets.neuron.codegen.unroll_loops import unrolled, with_grid
from tests.targets.neuron.code_builder import Builder, run_in_order
from tests.targets.neuron.random_code import RandomCode

CALIBRATION = Path(__file__).parents[4] / "bench" / "calibration"


def stages(count=6, width=512, shared=False, builder=None):
    """Load, exp, add, store for several tiles."""
    b = builder or Builder()
    x, y = b.hbm("x", (128 * count, width), "input"), b.hbm("y", (128 * count, width), "output")
    common = b.on_chip("common", (128, width))
    for k in range(count):
        t = common if shared else b.on_chip(f"t{k}", (128, width))
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


def test_functions__are_kept_together_where_nothing_speaks_against_it():
    """exp and tanh of eight tiles in turn: without regard to what is loaded there would be sixteen loads."""
    b = Builder()
    for k in range(8):
        t = b.on_chip(f"t{k}", (128, 512))
        b.memset((t, 0, 128, 0, 512), k)
        b.activation((t, 0, 128, 0, 512), (t, 0, 128, 0, 512), "exp")
        b.activation((t, 0, 128, 0, 512), (t, 0, 128, 0, 512), "tanh")
    assert changes(b.code) == 16
    schedule(b.code)
    assert changes(b.code) <= 4


def changes(code):
    """How often the scalar engine has to load functions."""
    sets = [node.op.fn for node in code.body.nodes if node.op.name == "activation"]
    return sum(one != before for one, before in zip(sets, [None, *sets]))


def test_memory__bounds_how_far_loads_run_ahead():
    size = machine_named("trn2").sbuf_bytes_per_partition
    code = stages(count=12, width=size // 4 // 6)
    schedule(code, Order(90))
    most, _ = peak(list(Liveness(code).of.values()))
    assert most <= size
    narrow = stages(count=12, width=size // 4 // 6)
    schedule(narrow, Order(40))
    assert kinds(narrow)[:5].count("load") < kinds(code)[:5].count("load")


def test_loads__leave_room_for_results():
    size = machine_named("trn2").sbuf_bytes_per_partition
    ahead = {}
    for loads in (100, 60):
        code = stages(count=12, width=size // 4 // 6)
        schedule(code, Order(loads=loads))
        ahead[loads] = kinds(code).index("activation")
        assert sorted(kinds(code)) == sorted(kinds(stages(count=12)))
    assert ahead == {100: 4, 60: 3}             # tiles are a sixth of SBUF


@pytest.mark.parametrize(("tiles", "searched"), [(80, 1), (6, 3)])
def test_loads_that_leave_room_anyway__are_ordered_once(tiles, searched):
    """Orders are the same as without the memo, and found anew where less room makes a difference."""
    width = machine_named("trn2").sbuf_bytes_per_partition // 4 // tiles
    schedules = Schedules(stages(count=12, width=width))
    orders = [Order(loads=loads) for loads in (100, 99, 60, 30)]
    arrangements = [schedules.arrangement(order) for order in orders]
    assert [one[:4] for one in arrangements] == [Schedules(stages(count=12, width=width)).arrangement(order)[:4]
                                                 for order in orders]
    assert len({id(one) for one in arrangements}) == searched


def test_orders_that_are_too_late_whatever_loads_leave__are_stopped_once(monkeypatch):
    width = machine_named("trn2").sbuf_bytes_per_partition // 4 // 80
    schedules = Schedules(stages(count=12, width=width))
    most = schedules.critical_path() * 0.9
    assert schedules.arrangement_within(Order(), most) is None
    monkeypatch.setattr(Schedules, "ordered_runs", lambda *_: pytest.fail("it is known to be too late"))
    assert schedules.arrangement_within(Order(loads=60), most / 2) is None


def test_loads_that_fill_more_than_they_may__start_when_nothing_else_can():
    size = machine_named("trn2").sbuf_bytes_per_partition
    code = stages(count=2, width=size // 4 // 2)
    schedule(code, Order(loads=10))
    assert kinds(code) == ["load", "activation", "tensor_tensor", "store"] * 2


def test_loads__wait_for_the_steps_that_read_earlier_ones():
    """Of small tiles all are loaded ahead; limited, the next load starts with an activation, or where nothing else is
    under way."""
    ahead = {}
    for unread in (0, 1, 3):
        code = stages(count=12)
        schedule(code, Order(unread=unread))
        names, most, waiting = kinds(code), 0, 0
        for name in names:
            waiting += (name == "load") - (name == "activation")
            most = max(most, waiting)
        ahead[unread] = most
        assert sorted(names) == sorted(kinds(stages(count=12)))
    assert ahead[1] == 2 and ahead[3] == 3 < ahead[0]


def test_loads_that_are_not_read__do_not_stop_the_run():
    """Nothing reads the tiles, so each further load starts when nothing else can."""
    b = Builder()
    x = b.hbm("x", (128 * 12, 512), "input")
    for k in range(12):
        b.copy((b.on_chip(f"t{k}", (128, 512)), 0, 128, 0, 512), (x, 128 * k, 128, 0, 512))
    schedule(b.code, Order(unread=2))
    assert kinds(b.code) == ["load"] * 12


def test_loads__wait_for_no_room_in_psum():
    """Sums that are in use throughout take more banks than the order may fill; loads go to SBUF."""
    b = Builder()
    sums = [b.on_chip(f"sums{k}", (128, 512), "psum") for k in range(4)]
    with b.loop(2):
        for tile in sums:
            b.memset((tile, 0, 128, 0, 512), 0)
    code = stages(builder=b)
    for tile in sums:
        b.memset((tile, 0, 128, 0, 512), 1)
    schedule(code, Order(30))
    order = kinds(code)
    assert order.index("store") > [k for k, kind in enumerate(order) if kind == "load"][1]


@pytest.mark.parametrize("seed", range(10))
def test_values__stay_those_of_program_order(seed):
    drawn = RandomCode(seed, 40)
    expected = drawn.expected()
    schedule(drawn.code)
    np.testing.assert_array_equal(drawn.expected(), expected)


def test_order__is_the_same_each_time():
    first, second = (RandomCode(5, 40) for _ in range(2))
    for drawn in (first, second):
        schedule(drawn.code)
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
    result = np.zeros((128, 64), np.float32)
    run_in_order(b.code, {x: np.ones((128, 64), np.float32), y: result})
    assert (result == 1).all()


def calibrated(name: str, *arguments: str) -> Schedules:
    """The orders of a kernel of the calibration, with its loops written out."""
    install()
    kernel = load_kernel(str(CALIBRATION / name), "trn2", ())
    positional, keywords = parse_arguments(list(arguments), values=False)
    spec = kernel.specialize(kernel.bind(tuple(positional), keywords, is_array, describe_array))
    kernel, = neuron.lowered(spec.captured).values()
    code = unrolled(with_grid(kernel.code()), WRITTEN_OUT)
    split_blocks(code)
    sink_constants(code)
    return Schedules(code)


def test_what_much_waits_for__starts_early() -> None:
    """The next tile's scores are not behind this one's products, so that the vector engine has work meanwhile."""
    schedules = calibrated("fused.py:attention", *["128x1024xbf16"] * 3, "separate=True", "wide=True")
    assert schedules.arrangement(Order(ahead=50, share=0)).ns < schedules.arrangement(Order(share=0)).ns


@pytest.mark.parametrize("order", [Order(95), Order(ahead=100), Order(60, 200, 0), Order(share=3)], ids=str)
def test_room__is_kept_for_what_program_order_needs(order: Order) -> None:
    """Six tiles of a row each fill SBUF: what runs ahead leaves the oldest tile the room to come to its end."""
    schedules = calibrated("rows.py:layernorm", "1024x8192xf32", "8192xf32", "8192xf32")
    schedules.arrange(schedules.arrangement(order))
    most, _ = peak([life for life in Liveness(schedules.code).of.values() if life.buffer.space == "sbuf"])
    assert most <= machine_named("trn2").sbuf_bytes_per_partition
    allocate(schedules.code)


def sums_in_chains(units: int) -> Builder:
    """For each of two tiles the sum of two loads, and a chain of functions on it. SBUF holds ``units`` tiles."""
    b = Builder()
    width = b.code.machine.sbuf_bytes_per_partition // units // 32 * 8
    x, y = b.hbm("x", (512, width), "input"), b.hbm("y", (256, width), "output")
    for k in range(2):
        one, other, total = (b.on_chip(f"{name}{k}", (128, width)) for name in ("one", "other", "total"))
        accumulator = (total, 0, 128, 0, width)
        b.copy((one, 0, 128, 0, width), (x, 256 * k, 128, 0, width))
        b.copy((other, 0, 128, 0, width), (x, 256 * k + 128, 128, 0, width))
        b.add(accumulator, (one, 0, 128, 0, width), (other, 0, 128, 0, width))
        for _ in range(4):
            b.activation(accumulator, accumulator, "exp")
        b.copy((y, 128 * k, 128, 0, width), accumulator)
    return b


@pytest.mark.parametrize("units,early", [(4, True), (3, False)])
def test_tiles_that_are_early__count_once(units: int, early: bool) -> None:
    """While the first tile's chain runs, one unit is in use: the second tile's sum has room in three others."""
    code = sums_in_chains(units).code
    (run,) = Schedules(code).arrangement(Order(share=0)).runs
    second_sum, first_chain_end = 8 + 2, 6
    assert (run.index(second_sum) < run.index(first_chain_end)) == early


def test_steps_that_must_not_be_reordered__stay():
    code = stages(3)
    expected = kinds(code)
    for step in code.body.nodes:
        step.op.extra = {**step.op.extra, NO_REORDER: True}
    schedule(code)
    assert kinds(code) == expected
    assert kinds(code) != kinds(scheduled(stages(3)))


def scheduled(code):
    schedule(code)
    return code

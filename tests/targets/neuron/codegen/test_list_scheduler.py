# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""List scheduling of random programs, compared with its plain statement: order, engines, starts, addresses, time."""

import pytest

from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.codegen.list_scheduler import CODE, list_schedule, list_schedule_within
from nki_mlir.targets.neuron.codegen.scheduling_graph import SchedulingGraph
from nki_mlir.targets.neuron.codegen.scheduling_order import Order, TooLate
from tests.targets.neuron.code_builder import Builder
from tests.targets.neuron.crowded_code import graphs_of, program

from .plain_list_schedule import PlainSchedule, plain_schedule

ORDERS = [Order(), Order(ahead=50, after=True), Order(memory=30, share=3), Order(ahead=300, share=1, loads=70),
          Order(memory=0, share=0, passed=1), Order(ahead=100, issue=False, passed=8, loads=40)]


@pytest.fixture(autouse=True, params=[False, True], ids=["python", "compiled"])
def is_compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """The scheduler runs as Python, or as machine code."""
    if request.param and not CODE.functions:
        CODE.load(compiles=True)
    monkeypatch.setattr(CODE, "is_ready", lambda work: request.param)
    return bool(request.param)


def compare(graph: SchedulingGraph, order: Order, base: dict[str, int] | None) -> PlainSchedule:
    schedule, plain = list_schedule(graph, order, base), plain_schedule(graph, order, base)
    assert schedule.order == plain.order
    assert schedule.ns == pytest.approx(plain.ns, rel=1e-9)
    assert schedule.engines == [plain.chosen[k] for k in range(len(graph))]
    assert schedule.starts == pytest.approx([plain.starts[k] for k in range(len(graph))])
    assert schedule.addresses == (None if plain.base is None else [plain.addresses[n] for n in range(len(graph.size))])
    needed = next(n for n in range(101) if plain.limit[0] * (100 - n) // 100 <= max(plain.spare, 0))
    assert needed <= schedule.loads <= order.loads
    assert list_schedule(graph, order._replace(loads=schedule.loads), base) == schedule
    return plain


@pytest.mark.parametrize("with_addresses", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_schedules_are_those_of_the_rules(seed: int, with_addresses: bool) -> None:
    written = seed % 4 == 3
    graph, = graphs_of(program(seed, 24, "trn2" if seed % 3 else "trn1", products=4 if written else 1), written)
    for order in ORDERS:
        compare(graph, order, {"sbuf": 96 * (seed % 2), "psum": 0} if with_addresses else None)


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(6))
def test_schedules_that_end_too_late_are_not_computed_to_their_end(seed: int) -> None:
    graph, = graphs_of(program(seed, 300))
    stopped = 0
    for order in ORDERS:
        schedule = list_schedule(graph, order, None)
        for share in (0.3, 0.9, 0.999, 1.0, 1.1):
            within = list_schedule_within(graph, order, None, share * schedule.ns)
            assert isinstance(within, TooLate) or within == schedule
            assert share < 1 or within == schedule
            if isinstance(within, TooLate):
                fewer = order._replace(loads=within.loads)
                assert list_schedule(graph, fewer, None).ns > share * schedule.ns
                stopped += 1
        least = max(graph.least_rests(order.share, order.issue))
        assert isinstance(list_schedule_within(graph, order, None, 0.999 * least), TooLate)
    assert stopped


@pytest.mark.parametrize("seed", range(4))
def test_runs_leave_room_for_the_buffers_of_others(seed: int) -> None:
    for graph in graphs_of(program(seed, 24, loop_at=14)):
        for order in ORDERS:
            compare(graph, order, None)


@pytest.mark.parametrize("target,written", [("trn1", False), ("trn1", True), ("trn2", True)])
def test_results_wait_for_psum_and_its_port(target: str, written: bool) -> None:
    """Products whose results fill PSUM several times, read by both engines that share its port."""
    b = Builder(target)
    x = b.on_chip("x", (128, 512))
    b.memset((x, 0, 128, 0, 512), 1)
    for k in range(20):
        total, result = b.on_chip(f"p{k}", (128, 512), "psum"), b.on_chip(f"r{k}", (128, 512))
        b.matmul((total, 0, 128, 0, 512), (x, 0, 128, 0, 128), (x, 0, 128, 0, 512))
        (b.activation if k % 3 else b.tensor_copy)((result, 0, 128, 0, 512), (total, 0, 128, 0, 512))
        b.add((result, 0, 128, 0, 512), (result, 0, 128, 0, 512), (total if k % 2 else x, 0, 128, 0, 512))
        if k % 4 == 0:
            b.activation((x, 0, 128, 0, 256), (result, 0, 128, 0, 256), "exp")
    graph, = graphs_of(b, written)
    for order in (Order(), Order(ahead=300), Order(ahead=50, passed=16)):
        compare(graph, order, None)
        compare(graph, order, {"sbuf": 0, "psum": 0})


@pytest.mark.parametrize("order", [Order(share=0), Order(ahead=50), Order(passed=16)], ids=str)
def test_transfers_wait_for_a_queue(order: Order) -> None:
    b = Builder()
    x, y = b.hbm("x", (128, 512), "input"), b.hbm("y", (128, 512), "output")
    for k in range(30):
        tile = b.on_chip(f"t{k}", (128, 16))
        full_tile = tile, 0, 128, 0, 16
        if k % 3:
            b.memset(full_tile, k)
            b.copy((y, 0, 128, 16 * k, 16), full_tile)
        else:
            b.copy(full_tile, (x, 0, 128, 16 * k, 16))
        b.activation(full_tile, full_tile)
    for node in b.code.body.nodes:
        if order.share:
            node.op.engine = Engine.UNKNOWN.value
    graph, = graphs_of(b)
    compare(graph, order, None)


@pytest.mark.parametrize("stores", [7, 8, 9, 20])
@pytest.mark.parametrize("engine", ["sync", "any"])
def test_transfers_in_one_direction_that_are_all_ready_wait_for_a_queue(stores: int, engine: str) -> None:
    """Stores of one tile, beside few loads: the queues of one direction are full, those of the other are not."""
    for loads in (0, 1, stores):
        b = Builder()
        x, y, tile = b.hbm("x", (128, 640), "input"), b.hbm("y", (128, 640), "output"), b.on_chip("t", (128, 16))
        b.memset((tile, 0, 128, 0, 16), 1)
        for k in range(max(stores, loads)):
            if k < stores:
                b.copy((y, 0, 128, 16 * k, 16), (tile, 0, 128, 0, 16))
            if k < loads:
                b.copy((b.on_chip(f"l{k}", (128, 16)), 0, 128, 0, 16), (x, 0, 128, 16 * k, 16))
        if engine == "any":
            for node in b.code.body.nodes:
                node.op.engine = Engine.UNKNOWN.value
        for graph in graphs_of(b):
            for order in (Order(share=0), Order(ahead=50), Order(passed=16)):
                compare(graph, order, None)


@pytest.mark.parametrize("seed,steps,fragmented", [(21, 40, True), (22, 40, True), (0, 70, False), (7, 70, False)])
def test_schedules_without_an_address_for_each_buffer_are_continued(seed: int, steps: int, fragmented: bool) -> None:
    graph, = graphs_of(program(seed, steps))
    assert (compare(graph, Order(ahead=300), {"sbuf": 0, "psum": 0}).base is None) == fragmented


def test_banks_are_not_taken_in_turns_if_that_leaves_too_small_gaps() -> None:
    """Every second bank of PSUM is released before two banks are needed at once."""
    b = Builder()
    x = b.on_chip("x", (128, 512))
    kept = [b.on_chip(f"kept{k}", (128, 512), "psum") for k in range(4)]
    for tile in kept:
        other = b.on_chip("other", (128, 512), "psum")
        for psum in (other, tile):
            b.memset((psum, 0, 128, 0, 512), 1)
        b.tensor_copy((x, 0, 128, 0, 512), (other, 0, 128, 0, 512))
    wide = b.on_chip("wide", (128, 1024), "psum")
    b.memset((wide, 0, 128, 0, 1024), 2)
    b.tensor_copy((x, 0, 128, 0, 512), (wide, 0, 128, 0, 512))      # the kept ones are read behind it
    for tile in kept:
        b.tensor_copy((x, 0, 128, 0, 512), (tile, 0, 128, 0, 512))
    graph, = graphs_of(b)
    plain = compare(graph, Order(share=0), {"sbuf": 0, "psum": 0})
    assert plain.base is not None and not plain.rotates
    assert compare(graph, Order(share=0), None).starts == plain.starts


def test_a_tile_beyond_the_free_memory_has_no_address() -> None:
    b = Builder()
    tile = b.on_chip("t", (128, b.code.machine.sbuf_bytes_per_partition // 32 * 8))
    b.memset((tile, 0, 128, 0, 64), 0)
    graph, = graphs_of(b)
    assert compare(graph, Order(), {"sbuf": 0, "psum": 0}).addresses == {0: 0}
    assert compare(graph, Order(), {"sbuf": 32, "psum": 0}).base is None

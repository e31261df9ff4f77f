# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""List scheduling of random programs, compared with its plain statement: order, engines, starts, addresses, time."""

import pytest

from nki_mlir.targets.neuron.codegen.list_scheduler import list_schedule
from nki_mlir.targets.neuron.codegen.scheduling_order import Order
from tests.targets.neuron.crowded_code import graphs_of, program

from .plain_list_schedule import Fragmented, PlainSchedule

ORDERS = [Order(), Order(ahead=50), Order(memory=30, share=3), Order(ahead=300, share=1, loads=70),
          Order(memory=0, share=0, passed=1), Order(ahead=100, issue=False, passed=8, loads=40)]


@pytest.mark.parametrize("with_addresses", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_schedules_are_those_of_the_rules(seed: int, with_addresses: bool) -> None:
    graph, = graphs_of(program(seed, 24, "trn2" if seed % 3 else "trn1"), written=seed % 4 == 3)
    base = {"sbuf": 96 * (seed % 2), "psum": 0} if with_addresses else None
    for order in ORDERS:
        schedule = list_schedule(graph, order, base)
        try:
            plain = PlainSchedule(graph, order, base)
        except Fragmented:
            continue
        assert schedule.order == plain.order
        assert schedule.ns == pytest.approx(plain.ns, rel=1e-9)
        assert schedule.engines == [plain.chosen[k] for k in range(len(graph))]
        assert schedule.starts == pytest.approx([plain.starts[k] for k in range(len(graph))])
        if with_addresses:
            assert schedule.addresses == [plain.addresses[n] for n in range(len(graph.size))]
        needed = next(n for n in range(101) if plain.limit[0] * (100 - n) // 100 <= max(plain.spare, 0))
        assert needed <= schedule.loads <= order.loads
        assert list_schedule(graph, order._replace(loads=schedule.loads), base) == schedule

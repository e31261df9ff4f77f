# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A search computes orders near the best one so far, each once."""

from nki_mlir.machine import machine_named
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.scheduling_order import CHANGES, ORDERS, SECOND, Order, OrderSearch, changes

FIRST = ORDERS[0], SECOND


def search(orders: tuple[Order, ...] = (*FIRST, *ORDERS[1:]), target: str = "trn2") -> OrderSearch:
    return OrderSearch(orders, len(FIRST), CHANGES, EngineChoice(machine_named(target)).canonical)


def remaining(orders: OrderSearch) -> list[Order]:
    """Return the orders that a search still computes if it learns nothing."""
    several = []
    while (order := orders.next()) is not None:
        several.append(order)
    return several


def test_changes__change_one_option_each() -> None:
    assert changes(share=(2, 3), ahead=(0,)) == [{"share": 2}, {"share": 3}, {"ahead": 0}]


def test_search__begins_with_the_first_orders_and_then_changes_the_best() -> None:
    orders = search()
    assert (orders.next(), orders.next()) == FIRST
    orders.record(FIRST[0], 20.0)
    orders.record(FIRST[1], 10.0)
    better = SECOND._replace(share=2)
    assert orders.next() == better
    orders.record(better, 5.0)
    assert orders.next() == better._replace(share=1)
    orders.record(better._replace(share=1), 7.0)
    assert orders.next() == better._replace(ahead=0)
    assert orders.count == 5


def test_search__computes_each_order_once() -> None:
    orders = search()
    orders.record(FIRST[0], 10.0)
    several = remaining(orders)
    assert len(several) == len(set(several)) == orders.count
    assert set(several) >= {*ORDERS, *[ORDERS[0]._replace(**change) for change in CHANGES]}


def test_search__has_no_changes_without_an_order_that_has_room() -> None:
    assert remaining(search()) == list(dict.fromkeys((*FIRST, *ORDERS[1:])))


def test_search_without_changes__computes_the_orders_as_they_are() -> None:
    limited = Order(loads=85), *FIRST
    orders = OrderSearch(limited, 1, [], EngineChoice(machine_named("trn2")).canonical)
    assert orders.next() == limited[0]
    orders.record(FIRST[0], 10.0)
    assert remaining(orders) == [*limited[1:]]


def test_orders_that_choose_the_same_engines__are_computed_once() -> None:
    orders = search((Order(share=2), Order(share=1), Order(share=0)), "trn1")       # the GpSimd engine shares a port
    assert remaining(orders) == [Order(share=2), Order(share=0)]

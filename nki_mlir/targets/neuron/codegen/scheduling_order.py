# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The options of the list scheduler, the combinations that the search tries, and the schedule that it returns."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from nki_mlir.machine import Engine

MEMORY = 100                     # percent
PASSED_OVER = 4                 # most ready steps among which one that can start is searched
LOADS = 85, 60                  # percentages of SBUF that loads may fill, tried if not all tiles fit at once
# the same, with how many loaded tiles may wait to be read; tried second and last
LAST = (90, 3), (90, 2), (80, 0)


class Order(NamedTuple):
    """The options by which the list scheduler finds an order. ``memory``: percent of on-chip memory that buffers may
    fill; ``ahead``: how early a step starts if a long chain waits for it, in percent of the chain's time; ``share``:
    the engines that a step with several engines may choose from when it starts: only its first (0); all, but GpSimd
    does not compute (1); all (2); or, except for transfers, the engine that balances the engines in program order (3).
    ``passed``: the number of ready steps among which one that can start is searched; ``issue``: any engine that can
    triggers an open transfer; ``loads``: percent of SBUF beyond which no load starts, which leaves room for results
    computed from loaded data; ``unread``: the number of loaded tiles that may wait for the first step that reads them;
    0: any number; ``after``: whether the chain's time begins at the end of the step instead of at its start, so that
    of several long steps for one engine the one with the longest time after it is first."""

    memory: int = MEMORY
    ahead: int = 0
    share: int = 2
    passed: int = PASSED_OVER
    issue: bool = True
    loads: int = 100
    unread: int = 0
    after: bool = False


ORDERS = (*(Order(ahead=ahead, share=share) for share, ahead in (
    (2, 50), (3, 50), (1, 50), (2, 0), (3, 300))), Order(ahead=50, share=3, issue=False),
    *(Order(ahead=ahead, share=share) for share, ahead in ((0, 100), (2, 300), (3, 0))), Order(ahead=500, passed=16))
SECOND = Order(ahead=300, share=3)      # both options differ from those of the first order
MORE_ORDERS = tuple(Order(ahead=ahead, share=share, passed=passed) for passed in (4, 3, 1, 8)
                    for share in (3, 2, 1, 0) for ahead in (0, 25, 50, 100, 200, 300))


def crowded_orders(orders: tuple[Order, ...], first: int, unread: bool) -> tuple[Order, ...]:
    """Return the orders to try where tiles do not all fit, the ``first`` ones early: with loads that leave room to
    results and, if ``unread``, with few loaded tiles that no step reads yet."""
    fewer = [order._replace(loads=loads) for order in orders[:2 * first] for loads in LOADS]
    last = [order._replace(loads=loads, unread=most) for loads, most in LAST if unread or not most
            for order in orders[:2 * first]]
    second = last[:unread]
    return (orders[0], *second, *orders[1:first], *fewer[:2 * first], *orders[first:], *fewer[2 * first:],
            *last[len(second):])


def changes(**values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return a change for each value of each option."""
    return [{option: value} for option, option_values in values.items() for value in option_values]


# Changes of the best order so far, the most promising first.
CHANGES = [*changes(share=(2, 3, 1), ahead=(0, 50, 300), unread=(4,), issue=(False,)),
           *changes(ahead=(500, 100), after=(True,))]
CHANGES_IF_CROWDED = changes(share=(2, 3, 1), issue=(False,), after=(True,), ahead=(300, 50, 0, 500, 100))


class OrderSearch:
    """The orders that a search computes, one by one: the ``first`` of ``orders``, then those that differ in one option
    from the best so far, as ``changes`` says, then the rest of ``orders``, first those that do not limit loads. Without
    ``changes``, or an order that has room for all tiles, it computes ``orders`` as they are. ``key_of`` returns equal
    keys for orders that choose the same engines. ``count``: the number of orders so far."""

    def __init__(self, orders: Sequence[Order], first: int, changes: Sequence[dict[str, Any]],
                 key_of: Callable[[Order], Order]) -> None:
        self.orders, self.first, self.changes, self.key_of = orders, first, changes, key_of
        self.computed: set[Order] = set()
        self.best: tuple[float, Order] | None = None

    @property
    def count(self) -> int:
        return len(self.computed)

    def next(self) -> Order | None:
        """Return the next order; None after the last."""
        for order in self.candidates():
            key = self.key_of(order)
            if key not in self.computed:
                self.computed.add(key)
                return order
        return None

    def candidates(self) -> Iterator[Order]:
        if self.changes and self.count >= self.first and self.best is not None:
            for change in self.changes:
                yield self.best[1]._replace(**change)
            yield from [order for order in self.orders if order.loads == 100]
        yield from self.orders

    def record(self, order: Order, ns: float) -> None:
        """Record the estimate of an order that has room for all tiles."""
        if self.best is None or ns < self.best[0]:
            self.best = ns, order


class ListSchedule(NamedTuple):
    """``order``: the steps; ``engines`` and ``addresses``: by step and by buffer; ``ns``: when the last is complete;
    ``starts``: when each step starts, empty if they must stay in order; ``loads``: the least ``Order.loads`` for which
    the schedule is the same, since no load that started left less of SBUF."""

    order: list[int]
    engines: list[Engine]
    addresses: list[int] | None
    ns: float
    starts: list[float] = []
    loads: int = 100


class TooLate(NamedTuple):
    """The result for a schedule that certainly ends too late; ``loads``: the least ``Order.loads`` for which it
    does."""

    loads: int

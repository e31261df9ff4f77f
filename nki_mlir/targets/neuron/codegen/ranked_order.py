# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An order of steps that obeys their dependences and otherwise follows ranks."""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any


def ranked_order(before: Iterable[Iterable[int]], ranks: Sequence[Any]) -> list[int]:
    """Return the numbers of steps in an order in which each follows the steps in its entry of ``before``. Of the steps
    that may come next, the one with the least rank comes first, of equal ones the one with the least number. The order
    lacks the steps in cycles, and those after them."""
    users: list[list[int]] = [[] for _ in ranks]
    missing = [0] * len(ranks)
    for k, earlier in enumerate(before):
        for other in earlier:
            users[other].append(k)
            missing[k] += 1
    ready = [(ranks[k], k) for k, count in enumerate(missing) if count == 0]
    heapify(ready)
    order: list[int] = []
    while ready:
        _, k = heappop(ready)
        order.append(k)
        for user in users[k]:
            missing[user] -= 1
            if missing[user] == 0:
                heappush(ready, (ranks[user], user))
    return order

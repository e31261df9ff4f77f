# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""order-by-results: compute what the first result needs, then what the next one needs, so that fewer tiles are live.

before:  a0 = exp x0; a1 = exp x1; b0 = a0 * s; b1 = a1 * s; store b0; store b1
after:   a0 = exp x0; b0 = a0 * s; store b0; a1 = exp x1; b1 = a1 * s; store b1

A kernel that computes each step of an algorithm for all rows, before the next step begins, keeps the tiles of all rows
on chip. The pass orders straight-line code by dependences: among the instructions whose operands are complete, that one
comes first after which the earliest of the last instructions comes, those on which no other depends.
"""

from heapq import heapify, heappop, heappush

from nki_mlir.dialects.instruction_order import NO_REORDER
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.dependences import RunDependences
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Code, InstructionStep, forget_addresses


class OrderByResults(RecordsPass, name="order-by-results", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        order_by_results(code)


def order_by_results(code: Code, dependences: RunDependences | None = None) -> bool:
    """Order straight-line code in place, and drop the addresses of the old order. Return whether the order changed."""
    steps = code.body.nodes
    if not all([isinstance(step, InstructionStep) and NO_REORDER not in step.op.extra for step in steps]):
        return False
    before = (dependences or RunDependences()).of([step.op for step in steps]).lists
    users: list[list[int]] = [[] for _ in steps]
    for k, earlier in enumerate(before):
        for other in earlier:
            users[other].append(k)
    results = list(range(len(steps)))           # the first of the last steps that come after a step
    for k in range(len(steps) - 1, -1, -1):
        if users[k]:
            results[k] = min([results[user] for user in users[k]])
    missing = [len(earlier) for earlier in before]
    ready = [(results[k], k) for k, count in enumerate(missing) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        _, k = heappop(ready)
        order.append(k)
        for user in users[k]:
            missing[user] -= 1
            if not missing[user]:
                heappush(ready, (results[user], user))
    if order == list(range(len(steps))):
        return False
    forget_addresses(code)
    code.body.nodes = [steps[k] for k in order]
    return True

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""order-by-results: compute what the first result needs, then what the next one needs, so that fewer tiles are live.

before:  a0 = exp x0; a1 = exp x1; b0 = a0 * s; b1 = a1 * s; store b0; store b1
after:   a0 = exp x0; b0 = a0 * s; store b0; a1 = exp x1; b1 = a1 * s; store b1

A kernel that computes each step of an algorithm for all rows, before the next step begins, keeps the tiles of all rows
on chip. The pass orders straight-line code by dependences. A result is an instruction on which no other depends. Among
the instructions whose operands are complete, the pass takes one on which the first incomplete result depends.
"""

from nki_mlir.dialects.instruction_order import NO_REORDER
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.dependences import RunDependences
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.ranked_order import ranked_order
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
    results = [len(steps)] * len(steps)         # by step: the first result that depends on it
    for k in reversed(range(len(steps))):
        if results[k] == len(steps):
            results[k] = k                      # no step depends on it
        for other in before[k]:
            results[other] = min(results[other], results[k])
    order = ranked_order(before, results)
    if order == list(range(len(steps))):
        return False
    forget_addresses(code)
    code.body.nodes = [steps[k] for k in order]
    return True

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""order-instructions: move instructions after those that the kernel orders before them.

before:  a = exp x {nki.after = ["2"]}             after:  b = tanh y {nki.label = "2"}
         b = tanh y {nki.label = "2"}                      a = exp x {nki.after = ["2"]}

An instruction moves only if it stands before one that it must come after (``depends_on`` and ``with_schedule`` of the
language); those that need its result move with it. Later passes keep this order: a label is a dependence to them
(``dependences.py``). Instructions do not move across loops of the device and branches, nor across one that is marked
``nki.no_reorder``; an order that requires that, or contradicts the data, is an error.
"""

from collections.abc import Sequence
from typing import NoReturn

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.instruction_order import AFTER, NO_REORDER, label_of, labels_before
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.dependences import dependences_between, separate_memory, touched
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.ranked_order import ranked_order
from nki_mlir.targets.neuron.codegen.records import Code, InstructionStep, blocks, steps_in
from nki_mlir.targets.neuron.codegen.schedule_instructions import runs_of


class OrderInstructions(RecordsPass, name="order-instructions", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        order_instructions(code)


class ContradictoryOrder(NkiMlirError):
    code = "NKI-ORDER"
    message = "{consumer} cannot start after the {producer} of {line}{why_not}"
    fix = "leave this dependence out, or order the instructions the other way round"


def has_order(code: Code) -> bool:
    """Return whether the kernel orders instructions of the code."""
    return any(AFTER in step.op.extra for step in steps_in(code.body))


def order_instructions(code: Code) -> None:
    """Order the code's instructions, in place."""
    if not has_order(code):
        return
    later = {label: step for step in steps_in(code.body) if (label := label_of(step.op)) is not None}
    for block in blocks(code.body):
        ordered = {run[0]: (run, in_order(run, later)) for run in runs_of(block.nodes)}
        nodes = []
        for node in block.nodes:
            if node in ordered:
                nodes += ordered[node][1]
            elif type(node) is not InstructionStep:
                nodes.append(node)
        block.nodes = nodes


def in_order(run: Sequence[InstructionStep], later: dict[str, InstructionStep]) -> list[InstructionStep]:
    """Return the steps of a run, each as early as its dependences allow and no earlier than it was. Remove the run's
    labels from ``later``, which has the labels of the following code."""
    labeled: dict[str, list[int]] = {}
    for k, step in enumerate(run):
        if (label := label_of(step.op)) is not None:
            labeled.setdefault(label, []).append(k)
            later.pop(label, None)
    before = program_order(run)
    is_moving = False
    for k, step in enumerate(run):
        for label in labels_before(step.op):
            if label in later:
                raise_contradiction(step, later[label],
                                    ": instructions do not move across loops of the device and branches")
            before[k] |= set(labeled.get(label, ()))
            is_moving |= any(other > k for other in labeled.get(label, ()))
    return [run[k] for k in sorted_steps(run, before, labeled)] if is_moving else list(run)


def program_order(run: Sequence[InstructionStep]) -> list[set[int]]:
    """Return for each step the steps that it comes after by its data, and by marks ``nki.no_reorder``."""
    ops = [step.op for step in run]
    before = list(map(set, dependences_between(touched(ops, separate_memory, edges=False))))
    fixed: int | None = None
    for k, op in enumerate(ops):
        if fixed is not None:
            before[k].add(fixed)
        if NO_REORDER in op.extra:
            before[k] |= set(range(k) if fixed is None else range(fixed, k))
            fixed = k
    return before


def sorted_steps(run: Sequence[InstructionStep], before: Sequence[set[int]], labeled: dict[str, list[int]]
                 ) -> list[int]:
    """Return the numbers of the steps in an order that obeys ``before``; of several steps the first one comes next."""
    order = ranked_order(before, range(len(run)))
    ordered = set(order)
    left = [k for k in range(len(run)) if k not in ordered]
    for k in left:
        for label in labels_before(run[k].op):
            for other in labeled.get(label, ()):
                if needs(other, k, before):
                    raise_contradiction(run[k], run[other], ", which comes after it by its data or by other orders")
    return order


def needs(k: int, other: int, before: Sequence[set[int]]) -> bool:
    """Return whether a step comes after another one."""
    reached, waiting = {k}, [k]
    while waiting:
        for earlier in before[waiting.pop()] - reached:
            reached.add(earlier)
            waiting.append(earlier)
    return other in reached


def raise_contradiction(consumer: InstructionStep, producer: InstructionStep, why_not: str) -> NoReturn:
    """Raise the error for an instruction that cannot come after another one."""
    line = "an unknown line" if producer.location is None else f"line {producer.location.line}"
    raise ContradictoryOrder(consumer=consumer.op.full_name(), producer=producer.op.full_name(),
                             line=line, why_not=why_not).located(consumer.location)

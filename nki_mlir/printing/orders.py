# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Orders of single instructions (``depends_on`` and ``with_schedule`` of the kernel) as calls of ``depends_on``.

    b_written = nisa.tensor_scalar(dst=b, data=b, op0=nl.multiply, operand0=2.0)
    nisa.tensor_scalar(dst=a, data=a, op0=nl.multiply, operand0=2.0).depends_on(b_written)

An instruction that stands before one that it comes after gets a variable, too: ``a_written.depends_on(b_written)``
follows the other. In a text with a placement the regions in which nothing moves express these orders.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from nki_mlir.dialects.instruction_order import label_of, labels_before
from nki_mlir.dialects.op import Op
from nki_mlir.printing.releases import has_orders
from nki_mlir.waist import function as waist

CALL = re.compile(r"nisa\.(\w+)\((?:\w*dst=(\w+))?")


@dataclass
class InstructionOrders:
    """The orders of the instructions of a body: the variables of the text so far, and the orders that it lacks."""

    unique: Callable[[str, str], str]               # reserves a name
    has_words: bool                                 # whether the release has calls for orders
    awaited: frozenset[str]                         # labels of operations that others come after
    handles: dict[str, tuple[str, ...]] = field(default_factory=dict)       # variables of instructions, by label
    early: dict[str, tuple[str, ...]] = field(default_factory=dict)         # those in front of the label's instruction
    op: Op | None = None                            # the operation whose lines come next
    lines: int = 0                                  # calls so far of the instructions of ``op``
    lost: int = 0                                   # operations that the text does not order

    def saved(self) -> "InstructionOrders":
        """Return a copy, which the lines that follow do not change."""
        return replace(self, handles={**self.handles}, early={**self.early})

    def begin(self, op: Op) -> None:
        """Note that the next lines are those of an operation."""
        self.op, self.lines = op, 0

    def end(self) -> list[str]:
        """Return the statements that order instructions above after those of the operation."""
        op, self.op = self.op, None
        if op is None:
            return []
        self.lost += bool(labels_before(op)) and not self.lines
        label = label_of(op)
        if label is None or label not in self.handles:
            return []
        produced = ", ".join(self.handles[label])
        return [f"{consumer}.depends_on({produced})" for consumer in self.early.pop(label, ())]

    def ordered(self, line: str) -> str:
        """Return the line of a call with its orders, and with a variable for its instruction if others need one."""
        call = CALL.match(line) if self.has_words else None
        if self.op is None or call is None:
            return line
        label, before = label_of(self.op), labels_before(self.op)
        self.lines += 1
        producers = [handle for producer in before for handle in self.handles.get(producer, ())]
        missing = [producer for producer in before if producer not in self.handles]
        if producers:
            line = f"{line}.depends_on({', '.join(producers)})"
        if label not in self.awaited and not missing:
            return line
        handle = self.unique(f"{call[2] or call[1]}_written", "written")
        if label is not None and label in self.awaited:
            self.handles[label] = (*self.handles.get(label, ()), handle)
        for producer in missing:
            self.early[producer] = (*self.early.get(producer, ()), handle)
        return f"{handle} = {line}"


def instruction_orders(body: waist.FunctionBlock, release: str, beta: bool, unique: Callable[[str, str], str]
                       ) -> InstructionOrders | None:
    """Return the orders of the instructions of a body, or None if there are none."""
    awaited = frozenset([label for node in waist.nodes_of(body) if isinstance(node, waist.TileInstruction)
                         for label in labels_before(node.instruction)])
    return InstructionOrders(unique, not beta and has_orders(release), awaited) if awaited else None

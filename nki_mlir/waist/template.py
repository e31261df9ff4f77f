# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conversions that are worked out once: what the first of equal operations becomes is copied for the others.

A kernel that was unrolled has the same few operations on thousands of buffers.
"""

from collections.abc import Sequence
from typing import Any

from nki_mlir.bindings import Operation, Value, ir


class Template:
    """What an operation became, as a function of its operands.

    Copies have the place of the operation they stand for; what is inside of their regions keeps that of the first.
    """

    def __init__(self, operands: Sequence[object], written: Sequence[Operation]) -> None:
        """``written`` uses ``operands``, which are values, and its own results."""
        place = {value: k for k, value in enumerate(operands)}
        total = len(operands)
        self.steps: list[tuple[Any, list[int]]] = []        # an operation, where its operands are found
        for op in written:
            self.steps.append((op, [place[value] for value in op.operands]))
            for result in op.results:
                place[result] = total
                total += 1

    def write(self, operands: Sequence[Value], location: object, at: ir.InsertionPoint) -> None:
        values = list(operands)
        for op, sources in self.steps:
            copy = op.clone(at)
            copy.location = location
            own = copy.operands
            for k, source in enumerate(sources):
                own[k] = values[source]
            values += copy.results

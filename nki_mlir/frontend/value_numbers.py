# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether programs that were captured, or ran, one by one write the same values: by how each value was made.

A value is the operation and the values that it read. Programs get the same from the same: equal numbers mean equal
elements, different ones say nothing.
"""

import itertools
from collections.abc import Hashable, Sequence

import numpy as np

from nki_mlir.dialects.nisa.meeting import Meeting
from nki_mlir.dialects.op import Op
from nki_mlir.frontend.tensor import Buffer, View

_unlike = itertools.count()             # numbers of values that are equal to no other


class ValueNumbers:
    """Of one program: for each buffer, a number for all that it holds."""

    def __init__(self) -> None:
        self.held: dict[Buffer, int] = {}

    def constant(self, buffer: Buffer, array: np.ndarray) -> None:
        self.held[buffer] = hash((array.tobytes(), array.shape, array.dtype.str))

    def of(self, buffer: Buffer) -> int:
        """Where nothing was written, inputs and outputs are known by their names, others are fresh."""
        if buffer not in self.held:
            self.held[buffer] = hash((buffer.role, buffer.name if buffer.role != "local" else "", buffer.shape))
        return self.held[buffer]

    def performed(self, op: Op, views: Sequence[View], once: bool, epoch: int) -> int:
        """The number of what an operation makes that runs ``once``; in a loop of the device it is equal to no other.

        What it reads of the memory of all is what it was after so many meetings (``epoch``).
        """
        operands = [(kind, view, written_at(view)) for (kind, _), view in zip(op.operands(), views)]
        if not once or isinstance(op, Meeting):
            made = hash((next(_unlike), "unlike"))
        else:
            read = [(kind.name, place, self.of(v.buffer), v.buffer.role != "local" and epoch)
                    for kind, v, place in operands if kind.reads]
            made = hash((op.outline(), op.mask, *read))
        for kind, view, place in operands:
            if kind.writes:
                self.held[view.buffer] = hash((self.of(view.buffer), made, kind.name, place))
        return made


def written_at(view: View) -> Hashable:
    """Equal for views that are the same elements of their buffers."""
    return view.partition.key, view.free.key, view.dims, view.dtype

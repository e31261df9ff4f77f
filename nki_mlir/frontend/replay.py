# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The second opinion on rolled loops: run the body once more and see whether it emits the same operations.

Snapshots see the state that a kernel's variables lead to; a replay also sees state behind them (a counter in another
module, a random generator). Neither alone is enough: a list that only grows changes no operation of the body.
"""

from collections.abc import Sequence
from typing import Any

from nki_mlir.dialects.op import FRESH


class BlockArguments:
    """The arguments of a block that was opened."""

    def __init__(self, arguments: Sequence[object]) -> None:
        self.arguments = list(arguments)


class Trace:
    """Operations in the order they are emitted; ``BlockArguments`` where a body begins.

    Every operation of a capture is recorded, few are looked at: what there is to know of one is read from it then.
    """

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.record = self.entries.append

    def mark(self) -> int:
        return len(self.entries)

    def segment(self, start: int, end: int) -> list[object]:
        """Names, attributes and operands, with the values made inside replaced by the place that made them.

        Whether elements were left out before may be known after the first iteration only; it changes no values.
        """
        local: dict[object, tuple[int, int]] = {}
        canonical: list[object] = []
        for at, entry in enumerate(self.entries[start:end]):
            values: Sequence[object] = ()
            if isinstance(entry, BlockArguments):
                canonical.append(BlockArguments)
                values = entry.arguments
            else:
                operands = [local.get(v, v) for v in entry.operands]
                attributes = {name: value for name, value in entry.attributes.items() if name != FRESH}
                canonical.append((entry.name, operands, attributes))
                values = entry.results
            for k, value in enumerate(values):
                local[value] = at, k
        return canonical

    def erase_from(self, mark: int) -> None:
        """Undo everything emitted since the mark. Touching an erased operation later would abort: none is kept."""
        for entry in reversed(self.entries[mark:]):
            if not isinstance(entry, BlockArguments):
                entry.erase()
        del self.entries[mark:]

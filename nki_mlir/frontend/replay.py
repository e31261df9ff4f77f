# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The second opinion on rolled loops: run the body once more and see whether it emits the same operations.

Snapshots see the state that a kernel's variables lead to; a replay also sees state behind them (a counter in another
module, a random generator). Neither alone is enough: a list that only grows changes no operation of the body.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Emitted:
    """One operation, or (without ``op``) the arguments of a block or the place of an operation that was taken back."""

    name: str
    op: Any = None
    operands: Sequence[Any] = ()
    attributes: dict | None = None
    values: Sequence[Any] = ()


class Trace:
    """Operations in the order they are emitted."""

    def __init__(self) -> None:
        self.entries: list[Emitted] = []

    def record(self, name: str, op: Any, operands: Sequence[Any], attributes: dict | None, values: Sequence[Any]
               ) -> None:
        self.entries.append(Emitted(name, op, operands, attributes, values))

    def block(self, arguments: Sequence[Any]) -> None:
        self.entries.append(Emitted("block", values=list(arguments)))

    def erase_last_result(self) -> bool:
        """Erase the last operation and the allocation of its destination just before it, where that is how it was.

        Index arithmetic may stand behind them: Python computes a value before the subscripts of its target.
        """
        at = len(self.entries) - 1
        while at >= 0 and self.entries[at].name == "affine.apply":
            at -= 1
        if at < 1:
            return False
        allocation, last = self.entries[at - 1:at + 1]
        if not (allocation.name == "memref.alloc" and allocation.op is not None and last.op is not None
                and len(last.operands) > 0 and last.operands[0] == allocation.values[0]):
            return False
        for place in (at, at - 1):
            self._erase(place)
        return True

    def _erase(self, at: int) -> None:
        """Touching an erased operation later would abort the process: none is kept."""
        self.entries[at].op.erase()
        self.entries[at] = Emitted("taken back")

    def mark(self) -> int:
        return len(self.entries)

    def segment(self, start: int, end: int) -> list[tuple]:
        """Names, attributes and operands, with the values made inside replaced by the place that made them."""
        local: dict[Any, tuple[int, int]] = {}
        canonical = []
        for at, entry in enumerate(self.entries[start:end]):
            canonical.append((entry.name, [local.get(v, v) for v in entry.operands], entry.attributes))
            for k, value in enumerate(entry.values):
                local[value] = at, k
        return canonical

    def erase_from(self, mark: int) -> None:
        """Undo everything emitted since the mark."""
        for at in range(len(self.entries) - 1, mark - 1, -1):
            if self.entries[at].op is not None:
                self._erase(at)
        del self.entries[mark:]

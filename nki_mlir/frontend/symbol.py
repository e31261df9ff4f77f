# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Integers that are unknown during capture: loop variables, program ids, and quotients and remainders of such."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nki_mlir.frontend.index import Index
    from nki_mlir.frontend.mlir_builder import MlirBuilder


class NeedsValue(BaseException):
    """Python asked for the number behind a symbol. Recorded before it is raised: user code may swallow it."""


@dataclass(eq=False)
class Symbol:
    """An integer unknown during capture: ``first``, ``first + step``, ... up to ``last`` inclusive.

    ``parents`` are the symbols a derived one (``i // 2``, ``i % 2``) comes from; its interval is exact for itself but
    not together with theirs. ``formula`` is then (index, floordiv or mod, number).
    """

    name: str
    first: int
    last: int
    key: tuple[object, ...]             # what to capture again with numbers: a loop's place, a grid axis
    builder: "MlirBuilder"
    value: Any = None                   # the builder's handle (SSA value)
    step: int = 1
    is_open: bool = True                # False once the loop has ended
    parents: tuple["Symbol", ...] = ()
    formula: "tuple[Index, str, int] | None" = None

    def roots(self) -> list["Symbol"]:
        """The loop variables and program ids it comes from."""
        return [r for p in self.parents for r in p.roots()] or [self]

    def ask(self, why: str) -> None:
        """Request numbers in place of this symbol; raises ``NeedsValue``."""
        for root in self.roots():
            self.builder.request(root, why)

    def hint(self, why: str) -> None:
        """Should this attempt fail, numbers may help: its text was used, which is another one for each value."""
        for root in self.roots():
            self.builder.hint(root, why)

    def usable(self) -> bool:
        return self.is_open and all(p.usable() for p in self.parents)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The dimensions that operations of a source line may overrun, for the errors of checks at run time.

Those checks compare an affine form with 0, and know neither tensor nor dimension. The capture notes both for each bound
that it leaves to a run. A line of a helper function may have bounds of many tensors; an error then names none.
"""

from types import CodeType
from typing import NamedTuple

from nki_mlir.diagnostics import Location

MOST = 3                        # dimensions that an error lists


class NotedCall(NamedTuple):
    """The code that has a call, and the dimensions that a run checks in the call."""

    code: CodeType
    dimensions: list[str]


_OF_CALLS: dict[tuple[str, int, int], NotedCall] = {}


def record_check(at: Location, code: CodeType, tensor: str, dim: int) -> None:
    """Note that a run checks the indices of a dimension in a call. Other code at the same position comes from a module
    that was edited and loaded again: its entry replaces the old one."""
    text, position = f"dimension {dim} of `{tensor}`", (at.file, at.line, at.column)
    noted = _OF_CALLS.get(position)
    if noted is None or noted.code != code:
        noted = _OF_CALLS[position] = NotedCall(code, [])
    if text not in noted.dimensions and len(noted.dimensions) <= MOST:
        noted.dimensions.append(text)


def dimensions_at(at: Location | None) -> str:
    """Return the dimensions that a run checks in a call, as an error names them."""
    noted = _OF_CALLS.get((at.file, at.line, at.column)) if at is not None else None
    return " or ".join(noted.dimensions) if noted is not None and len(noted.dimensions) <= MOST else "its dimension"

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The dimensions that operations of a source line may overrun, for the errors of checks at run time.

Those checks compare an affine form with 0, and know neither tensor nor dimension. The capture notes both for each bound
that it leaves to a run. A line of a helper function may have bounds of many tensors; an error then names none.
"""

from nki_mlir.diagnostics import Location

MOST = 3                        # dimensions that an error lists
_OF_CALLS: dict[tuple[str, int, int], list[str]] = {}


def note(at: Location | None, tensor: str, dim: int) -> None:
    """Note that a run checks the indices of a dimension in a call."""
    text = f"dimension {dim} of `{tensor}`"
    if at is not None and text not in (noted := _OF_CALLS.setdefault((at.file, at.line, at.column), [])) and (
            len(noted) <= MOST):
        noted.append(text)


def dimensions_at(at: Location | None) -> str:
    """Return the dimensions that a run checks in a call, as an error names them."""
    noted = _OF_CALLS.get((at.file, at.line, at.column), []) if at is not None else []
    return " or ".join(noted) if 0 < len(noted) <= MOST else "its dimension"

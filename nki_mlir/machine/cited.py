# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A number of a machine with its source, the entries on which it is fitted, and its residual.

A source is one of

- a document and its section, or a measurement that a document prints;
- "fitted on L...": the entries of the calibration set that isolate the number, if documents leave it open;
- "assumption: ...", with the reason.

A residual is relative: the standard deviation of measurements about the number. A number without a fitted residual has
the residual of its kind of source (``RESIDUALS``).
"""

import re

DOCUMENT, MEASURED, FITTED, ASSUMPTION, NOTHING = "document", "measured", "fitted", "assumption", "nothing"

# Residuals by kind of source: of numbers about single instructions and transfers that were measured on trn1 and trn2
# (bench/calibration/instructions.py), and of assumptions that measurements later replaced.
RESIDUALS = {MEASURED: 0.03, FITTED: 0.06, DOCUMENT: 0.08, ASSUMPTION: 0.25, NOTHING: 0.0}

ENTRY = r"\b[LV]\d{3}\b"
NO_NUMBER = "nothing to add"


class Cited(float):
    """A number with its source. ``residual``: one standard deviation, relative."""

    source: str
    residual: float

    def __new__(cls, value: float, source: str, residual: float | None = None) -> "Cited":
        number = super().__new__(cls, value)
        number.source = source
        number.residual = RESIDUALS[number.kind] if residual is None else residual
        return number

    @property
    def kind(self) -> str:
        """Return the kind of the source; a fit counts more than the document from which it starts."""
        if "fitted on" in self.source:
            return FITTED
        for kind in (MEASURED, ASSUMPTION):
            if self.source.startswith(kind):
                return kind
        return NOTHING if self.source == NO_NUMBER else DOCUMENT

    @property
    def fit(self) -> tuple[str, ...]:
        """Return the calibration entries that the source names."""
        return tuple(re.findall(ENTRY, self.source))

    def __getnewargs__(self) -> tuple[float, str, float]:          # type: ignore[override]
        return float(self), self.source, self.residual


NONE = Cited(0.0, NO_NUMBER)


def combined(*parts: tuple[float, float]) -> float:
    """Return the relative residual of a sum of independent parts, given as pairs of value and relative residual."""
    total = sum(value for value, _ in parts)
    return sum((value * residual) ** 2 for value, residual in parts) ** 0.5 / total if total else 0.0

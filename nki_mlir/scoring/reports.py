# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors and warnings as JSON, for messages between the processes of a worker."""

import warnings
from collections.abc import Sequence
from typing import TypedDict

from nki_mlir.diagnostics import NkiMlirError, text_of

LONGEST = 2_000                 # most characters of a text


class Reason(TypedDict):
    """The reason why a candidate is not right: the error's code, text, advice and line."""

    code: str
    message: str
    fix: str
    location: str


class Remark(TypedDict):
    """A warning that the candidate raised."""

    category: str
    message: str
    location: str


def reason_of(error: BaseException) -> Reason:
    """Convert an error to the form of the JSON report. Exceptions of other packages get the code of errors that a
    kernel raises."""
    if isinstance(error, NkiMlirError):
        at = error.at
        return Reason(code=error.code, message=cut(error.headline), fix=cut(error.advice[1]), location=str(at or ""))
    from nki_mlir.capture.locations import raised_at  # start-up: only what ran a kernel needs it
    code = getattr(error, "code", "")
    location = getattr(error, "at", None) or raised_at(error.__traceback__)
    return Reason(code=code if isinstance(code, str) and code.startswith("NKI-") else "NKI-KERNEL-RAISED",
                  message=cut(f"{type(error).__name__}: {text_of(error)}"), fix="", location=str(location or ""))


def remarks_of(recorded: Sequence[warnings.WarningMessage]) -> list[Remark]:
    """Convert warnings to the form of the JSON report, without repetitions."""
    remarks = [Remark(category=w.category.__name__, message=cut(str(w.message)), location=f"{w.filename}:{w.lineno}")
               for w in recorded]
    return [remark for k, remark in enumerate(remarks) if remark not in remarks[:k]][:50]


def cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + " ..."

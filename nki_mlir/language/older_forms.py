# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forms that the newest release does not have: when the functions of the language report them."""

from nki_mlir.capture.builder import Builder, current
from nki_mlir.environment import is_strict

REPORTED = "reports_older_forms"                # key in a builder's properties


class OlderFormWarning(UserWarning):
    """Warns of a form that the newest release does not have."""


def report_forms_of(builder: Builder) -> None:
    """Let the kernel that runs with a builder report the older forms that it uses."""
    builder.properties[REPORTED] = True


def are_reported() -> bool:
    """Return whether ``NKI_MLIR_STRICT`` is set, or a check of the kernel reports older forms."""
    builder = current.get()
    return is_strict() or (builder is not None and REPORTED in builder.properties)

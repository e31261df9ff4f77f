# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Limits how many operations a kernel may perform during its capture, since a loop of Python may have no end."""

from nki_mlir.diagnostics import KernelError
from nki_mlir.input_limits import InputLimit
from nki_mlir.progress import Advance, ignore

OPERATIONS = InputLimit("NKI_MLIR_OPERATIONS", "operations", 1_000_000)     # of one program; each takes 1 to 5 KB


class TooManyOperations(KernelError):
    code = "NKI-OPERATIONS"
    message = "the kernel has performed {limit:,} operations, the limit of a capture or check"
    why = "each iteration of a Python loop adds its operations: a `while` whose condition stays true never ends"
    fix = "let the loop end (print what its condition compares), or set {variable} to a larger number"


def limited(advance: Advance) -> Advance:
    """Return the function that reports an operation, which raises ``TooManyOperations`` after the last that the limit
    allows."""
    limit, performed = OPERATIONS.value(), 0

    def count(operations: int = 1) -> None:
        nonlocal performed
        performed += operations
        if performed > limit:
            raise TooManyOperations(limit=limit, variable=OPERATIONS.variable).here()
        if advance is not ignore:
            advance(operations)
    return count

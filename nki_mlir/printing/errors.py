# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What has no form in NKI Python."""

from nki_mlir.diagnostics import NkiMlirError


class Unprintable(NkiMlirError):
    code = "NKI-PRINT"
    message = "{what} cannot be printed as NKI Python"
    why = "the current generation has no form of it that computes the same"
    fix = "{fix}"

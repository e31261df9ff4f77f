# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The error about operations that NKI Python cannot express."""

from nki_mlir.diagnostics import NkiMlirError


class Unprintable(NkiMlirError):
    code = "NKI-PRINT"
    message = "{what} cannot be printed as NKI Python"
    why = "no function of that generation computes the same"
    fix = "{fix}"

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors and warnings: named classes with a rule, values and a fix, and their rendering."""

from nki_mlir.diagnostics.errors import InternalError, KernelError, Location, NkiMlirError, Unsupported

__all__ = ["InternalError", "KernelError", "Location", "NkiMlirError", "Unsupported"]

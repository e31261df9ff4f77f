# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors of kernels that call a tensor, a dtype, a shape or a memory, or use a tensor or a function in ``with``."""

from nki_mlir.diagnostics import KernelError


class CalledValue(KernelError, TypeError):
    code = "NKI-CALL"
    message = "{kind} is called like a function"
    fix = "{instead}"


CALLED = r"'([\w.]+)(?:\[\w+\])?' object is not callable"          # Python's text
CALLED_VALUES = {
    **dict.fromkeys(("Tensor", "NkiTensor"), ("a tensor", "write a subscript in brackets, tile[0]")),
    **dict.fromkeys(("DType", "numpy.dtype", "numpy.dtypes", "ml_dtypes"),
                    ("a dtype", "convert a tile with nl.copy(tile, dtype=nl.bfloat16), or another dtype")),
    "Shape": ("a shape", "leave out the parentheses, or write a subscript: tile.shape[0]"),
    "MemoryRegion": ("a memory", "leave out the parentheses: buffer=nl.sbuf")}


class EnteredValue(KernelError, TypeError):
    code = "NKI-WITH"
    message = "`with` is used on {kind}"
    fix = "{instead}"


ENTERED = r"'([\w.]+)' object does not support the context manager protocol.*|__enter__"     # Python's text
ENTERED_VALUES = {
    **dict.fromkeys(("Tensor", "NkiTensor"), ("a tensor", "assign it, tile = ...: it lives as long as it is used")),
    "function": ("a function", "call it, as in `with nl.no_reorder():`")}

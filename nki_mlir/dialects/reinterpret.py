# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.reinterpret``: a buffer's bytes as elements of another type, which no memref operation gives.

``%b = "nki.reinterpret"(%a) : (memref<128x64xf32, "sbuf">) -> memref<128x128xbf16, "sbuf">``. On chip the partitions
stay.
"""

# mypy: disable-error-code="call-arg, name-defined"
# (the bindings' classes are not typed)

from math import prod
from typing import Any

from nki_mlir.bindings import Type, ext, ir
from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.attributes import Nki
from nki_mlir.scalar.dtypes import BY_MLIR


class ReinterpretOp(Nki.Operation, name="reinterpret", traits=[ext.Pure]):
    """The same memory as a memref of another element type."""

    source: ext.Operand[Any]
    result_: ext.Result[Any]

    def verify_invariants(self) -> bool:
        sizes = [_row_bytes(self.operands[0].type), _row_bytes(self.results[0].type)]
        if None in sizes:
            self.location.emit_error("'nki.reinterpret' takes contiguous memrefs of the language's element types")
        elif sizes[0] != sizes[1]:
            self.location.emit_error(f"'nki.reinterpret' changes (memory, partitions, bytes) {sizes[0]} to {sizes[1]}")
        return None not in sizes and sizes[0] == sizes[1]


def _row_bytes(kind: Type) -> tuple[str, int, int] | None:
    """Memory, partitions, and bytes of one of them; None for a type that is not a whole buffer's."""
    if not isinstance(kind, ir.MemRefType) or not kind.has_static_shape:
        return None
    if isinstance(kind.layout, ir.StridedLayoutAttr):
        return None
    element, space = str(kind.element_type), kind.memory_space
    if element not in BY_MLIR or not isinstance(space, ir.StringAttr):
        return None
    on_chip = space.value != HBM and len(kind.shape) > 0
    partitions = kind.shape[0] if on_chip else 1
    free = kind.shape[1:] if on_chip else kind.shape
    return space.value, partitions, prod(free) * BY_MLIR[element].itemsize

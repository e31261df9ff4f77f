# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Allocates the tiles that the printer's rewrites of a module add."""

from collections.abc import Sequence

from nki_mlir.bindings import Operation, ir
from nki_mlir.dialects.access import SBUF, Tile, full_tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.graph.functions import allocated
from nki_mlir.scalar.dtypes import DType


def new_tile(make: Attributes, before: Operation, shape: Sequence[int], dtype: DType) -> Tile:
    """Allocate a tile in SBUF before an operation."""
    with before.location, ir.InsertionPoint(before):
        return full_tile(allocated(make.memref(tuple(shape), dtype, SBUF)), shape, dtype, SBUF)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of matrix products in both generations: the used part of the array, operands of performance modes."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Protocol

from nki_mlir.capture.builder import active
from nki_mlir.capture.index import Index, Mask
from nki_mlir.capture.strides import Dim
from nki_mlir.capture.tensor import View
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.verifier import TooLarge
from nki_mlir.machine import Machine
from nki_mlir.scalar.dtypes import DType


class BadPosition(KernelError, ValueError):
    code = "NKI-TILE-POSITION"
    message = "{op} with tile_position {position} and tile_size {size}: {rule}"
    fix = "leave both out, or name (row, column) and (rows, columns) of a part of the 128 x 128 array"


class BadPerfMode(KernelError):
    code = "NKI-PERF-MODE"
    message = "nc_matmul with perf_mode {mode}: {what}"
    fix = "use perf_mode double_row from trn2 on, with 8-bit floats of shapes [K, 2, M] and [K, 2, N]"


class MaskOfProduct(KernelError):
    code = "NKI-PRODUCT-MASK"
    message = "the mask of shape {mask} may select rows (M) or columns (N) of a product of [K, M, N] = {extents}"
    why = "the second dimension of a mask with two selects in M, unless only N has its extent"
    fix = "write its index tensors with 3 dimensions: nl.arange({extent})[None, None, :] selects in N"


def product_shape(op: str, stationary: View, moving: View, mask: object) -> tuple[int, ...]:
    """Return the result's shape. Raise ``TooLarge`` for an operand that is too large, before the result's shape is
    checked. Raise ``MaskOfProduct`` for a mask of two dimensions if its second one may be M as well as N."""
    for label, tile, limit in (("stationary", stationary, Machine.stationary_free_max),
                               ("moving", moving, Machine.moving_free_max)):
        if prod(tile.shape[1:]) > limit:
            raise TooLarge(dim=1, tile=f"{label}{list(tile.shape)}", op=op, limit=limit).here()
    extents = [stationary.shape[0], prod(stationary.shape[1:]), prod(moving.shape[1:])]
    for index, _ in mask.terms if isinstance(mask, Mask) else ():
        is_row = len(index.shape) == 2 and index.shape[0] == 1 < index.shape[1] and any(index.axes)
        if is_row and index.shape[1] == extents[1] == extents[2]:
            raise MaskOfProduct(mask=tuple(index.shape), extents=extents, extent=extents[2]).here()
    return *stationary.shape[1:], *moving.shape[1:]


class ArrayPart:
    """The part of the tensor engine's array that a product runs on. It changes no value."""

    def __init__(self, op: str, position: Sequence[int | Index], size: Sequence[int]) -> None:
        self.op, self.position, self.size = op, tuple(position), tuple(size)
        machine = active(op).machine
        limits, sizes = (machine.partitions, machine.stationary_free_max), machine.array_parts
        self.rows, self.columns = limits
        self.has_all_columns = True
        if not self.position and not self.size:
            return
        self.require(len(self.position) == len(self.size) == 2, "both must be given, with two integers each")
        start = [n if isinstance(n, Index) else int(n) for n in self.position]
        self.rows, self.columns = int(self.size[0]), int(self.size[1])
        self.require(self.rows in sizes and self.columns in sizes, f"rows and columns must be of {sizes}")
        self.require(all(isinstance(n, Index) or n in range(0, sizes[-1], extent)
                         for n, extent in zip(start, (self.rows, self.columns))),
                     "the position must be a multiple of the size")
        self.has_all_columns = self.columns == limits[1]

    def require(self, holds: bool, rule: str) -> None:
        if not holds:
            raise BadPosition(op=self.op, position=self.position, size=self.size, rule=rule).here()

    def check(self, shape: Sequence[int]) -> None:
        """Check that a stationary operand of this shape fits the part."""
        fits = shape[0] <= self.rows and prod(shape[1:]) <= self.columns
        self.require(fits or not self.size, f"stationary must fit the part, got {list(shape)}")


class RowPairs(Protocol):
    """A tile of either generation."""

    @property
    def shape(self) -> Sequence[int]: ...

    @property
    def dtype(self) -> DType: ...


def joined_rows(products: Sequence[Mapping[str, View]]) -> dict[str, View] | None:
    """Return the operands of the instruction that computes the products of both rows; None for one product, and if the
    operands are not two rows of one tile, because they were copied."""
    if len(products) != 2:
        return None
    first, second = products
    operands: dict[str, View] = {}
    for label in ("stationary", "moving"):
        row, other = first[label], second[label]
        step = other.free - row.free
        if not step.is_constant or row.buffer is not other.buffer or row.partition.key != other.partition.key or (
                (row.dims, row.dtype, row.limits, row.mask) != (other.dims, other.dtype, (), None)):
            return None
        operands[label] = row.like(dims=(row.dims[0], Dim(0, step.const, 2), *row.dims[1:]))
    return operands


def check_double_row(mode: str, operands: Mapping[str, RowPairs], is_transpose: bool) -> None:
    """Check the operands of a product of 8-bit floats whose rows are pairs."""
    wrong = "it does not transpose" if is_transpose else ""
    for label, tile in operands.items():
        if len(tile.shape) < 3 or tile.shape[1] != 2 or tile.dtype.itemsize != 1 or not tile.dtype.is_float:
            wrong = wrong or f"{label} must have 8-bit floats of shape [K, 2, N], got {list(tile.shape)} {tile.dtype}"
    if wrong:
        raise BadPerfMode(mode=mode, what=wrong).here()

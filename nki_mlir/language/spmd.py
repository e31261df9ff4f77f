# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The launch grid from inside a kernel, reductions over its programs, and the markers of its dimensions."""

import json
import math
from typing import Any

import numpy as np

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import SBUF
from nki_mlir.dialects.meeting import PROGRAMS
from nki_mlir.dialects.nisa.collectives import AllReduceOp
from nki_mlir.dialects.nki.movement import CopyOp
from nki_mlir.frontend.builder import active, current
from nki_mlir.frontend.errors import UnsupportedMask
from nki_mlir.frontend.index import Mask
from nki_mlir.frontend.tensor import View
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import Tensor, as_operand, emit, filled, integer, new_tensor
from nki_mlir.scalar.alu.op import AluOperator
from nki_mlir.scalar.dtypes import FLOAT32, dtype_of
from nki_mlir.scalar.tokens import alu_token


class BadGridAxis(KernelError, IndexError):
    code = "NKI-GRID-AXIS"
    message = "axis {axis} of a launch grid of {rank} dimensions"
    fix = "launch the kernel with a grid that has the axis, kernel[g0, g1, ...], or use another axis"


def _axes_of(given: Any, rank: int) -> list[int]:
    """An axis or several, all of which the grid has."""
    axes = list(given) if isinstance(given, (list, tuple)) else [given]
    for axis in axes:
        if not 0 <= axis < rank:
            raise BadGridAxis(axis=axis, rank=rank, last=rank - 1).here()
    return axes


def program_id(axis: int) -> Any:
    """This program's place along an axis of the grid."""
    builder = active("nl.program_id")
    axis, = _axes_of(axis, len(builder.grid))
    return builder.program_id(axis)


def num_programs(axes: object = None) -> int:
    """Programs along an axis or several, or of the whole grid."""
    grid = active("nl.num_programs").grid
    if axes is None:
        return math.prod(grid)
    return math.prod(grid[a] for a in _axes_of(axes, len(grid)))


def program_ndim() -> int:
    """Dimensions of the grid; 0 outside of a kernel."""
    builder = current.get()
    return 0 if builder is None else len(builder.grid)


def all_reduce(x: object, op: object, program_axes: object, *, dtype: object = None, mask: Mask | None = None
               ) -> Tensor:
    """``op`` over the x of all programs along axes of the grid, a tile that each of them gets."""
    grid = active("nl.all_reduce").grid
    axes = _axes_of(program_axes, len(grid))
    source = as_operand(x, "nl.all_reduce")
    if mask is not None:
        source = neutral_outside(source, alu_token(op), mask)
    elif source.buffer.space != SBUF:
        source = ops.copy(source)
    made = new_tensor(source.shape, dtype_of(dtype) if dtype is not None else source.dtype)
    numbers = np.moveaxis(np.arange(math.prod(grid)).reshape(grid), axes, range(len(axes)))
    groups = numbers.reshape(math.prod(grid[a] for a in axes), -1).T.tolist()
    emit(AllReduceOp, {"dst": made, "src": source}, op=alu_token(op).name, groups=json.dumps(groups), over=PROGRAMS)
    return made if mask is None else ops.copy(made, mask=mask)


def neutral_outside(source: View, op: AluOperator, mask: object) -> Tensor:
    """The tile with values that change nothing where a mask leaves it out: other programs get nothing from there."""
    neutral = op.identity(FLOAT32 if source.dtype.is_float else source.dtype)
    if neutral is None:
        raise UnsupportedMask(what=f"the mask is on 'nl.all_reduce' with {op.name}").here()
    held = filled(source.shape, neutral, source.dtype)
    ops.compute(CopyOp, source.shape, source.dtype, {"src": source}, mask, destination=held)
    return held


class nc:
    """``nc(n)``: a grid extent over n physical cores; products with an int group programs by core."""

    def __init__(self, extent: int) -> None:
        self.extent = integer(extent, "the extent of nl.nc")

    def __int__(self) -> int:
        return self.extent

    __index__ = __int__

    def __mul__(self, inner: int) -> "spmd_dim":
        return spmd_dim(self, inner)

    def __rmul__(self, outer: int) -> "spmd_dim":
        return spmd_dim(outer, self)


class spmd_dim:
    """``spmd_dim(outer, inner)``: one grid axis of outer * inner programs, numbered ``outer_id * inner + inner_id``."""

    def __init__(self, outer: "int | nc | spmd_dim", inner: "int | nc | spmd_dim") -> None:
        integer(outer, "outer of nl.spmd_dim")
        integer(inner, "inner of nl.spmd_dim")
        self.outer, self.inner = outer, inner

    def __int__(self) -> int:
        return int(self.outer) * int(self.inner)

    __index__ = __int__

    def core_of(self, program: int) -> int:
        """The physical core that a program runs on; 0 where no dimension is a core dimension."""
        outer, inner = divmod(program, int(self.inner))
        return outer if isinstance(self.outer, nc) else inner if isinstance(self.inner, nc) else 0

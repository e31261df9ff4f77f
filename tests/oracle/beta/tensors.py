# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of the beta generation: members and operators (document: 3.1), operands and results of its functions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arithmetic import Operand, binary
from ..dtypes import DType, dtype_of, weak
from ..memory import SBUF, View, fresh
from ..subscripts import number


class par_dim(int):
    """The size n of the partition dimension, ``nl.par_dim(n)`` (3.2)."""


class Tensor(View):
    """A tensor of the beta language, ``nki.tensor``."""

    minimum_rank = 2                    # 4.2

    def __class_getitem__(cls, shape: Any) -> "Annotation":
        return Annotation(shape)

    # -- 3.1: members --------------------------------------------------------------------------------------------------
    def astype(self, dtype: Any) -> "Tensor":
        return result(self.read(), dtype_of(dtype), dtype=dtype)

    def view(self, dtype: Any) -> Any:
        return self.reinterpret(dtype)

    def reshape(self, *shape: Any, **named: Any) -> Any:
        sizes = named.get("shape", shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        reshaped = super().reshape(tuple(sizes))
        reshaped.blocks = partition_of(sizes)
        return reshaped

    def broadcast_to(self, *shape: Any, **named: Any) -> Any:
        sizes = named.get("shape", shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        return self.broadcast(sizes)

    def expand_dims(self, axis: int | Sequence[int]) -> Any:
        return self.like(lambda array: np.expand_dims(array, axis if isinstance(axis, int) else tuple(axis)))

    def assert_shape(self, shape: Sequence[int]) -> Any:
        if self.shape != tuple(shape):
            raise ValueError(f"the shape is {self.shape}, not {tuple(shape)}")
        return self

    def permute(self, *axes: Any) -> Any:
        return self.transpose(axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)

    def __iter__(self) -> Any:
        return (self[k] for k in range(self.shape[0]))

    def __pos__(self) -> Any:
        return self

    def as_tile(self) -> Any:
        return self

    @property
    def buffer(self) -> str:
        return self.space

    def __bool__(self) -> bool:
        raise ValueError("err_ambiguous_tensor_truth_value")

    # -- 5.1: in place -------------------------------------------------------------------------------------------------
    def in_place(self, name: str, other: Any) -> Any:
        """Compute ``x += v`` or ``x[...] += v``: addition accumulates in any order, and the result is rounded once."""
        adds = name == "add"
        active, (a, b), _ = operands((self, other), quietly=adds, accumulates=adds)
        self.write(binary(name, a, b), active, accumulates=adds)
        return self

    def __iadd__(self, other: Any) -> Any:
        return self.in_place("add", other)

    def __isub__(self, other: Any) -> Any:
        return self.in_place("subtract", other)

    def __imul__(self, other: Any) -> Any:
        return self.in_place("multiply", other)

    def __itruediv__(self, other: Any) -> Any:
        return self.in_place("divide", other)


def partition_of(shape: Sequence[int]) -> int:
    """Return the dimension that ``par_dim`` marks, else the first."""
    return next((k for k, n in enumerate(shape) if isinstance(n, par_dim)), 0)


class Annotation:
    """The annotation of a tensor's shape, ``nt.tensor[128, 512]``."""

    def __init__(self, shape: Any) -> None:
        shape = shape if isinstance(shape, tuple) else (shape,)
        self.annotated_shape = tuple(shape) if all(isinstance(n, (int, np.integer)) for n in shape) else None


# -- operands and results ----------------------------------------------------------------------------------------------
def shape_of(value: Any) -> tuple[int, ...]:
    return tuple(np.shape(value)) if not isinstance(value, View) else value.shape


def stretch(value: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast a tile to a shape; numbers stay as they are."""
    return value.broadcast(shape) if isinstance(value, View) and value.shape != shape else value


def active_of(shape: tuple[int, ...], mask: Any, *views: Any) -> np.ndarray | None:
    """Return which elements of an operation are active under its mask and its operands' masks (4.5); None: all."""
    parts = [placed(np.asarray(mask, bool), shape)] if mask is not None else []
    parts += [stretch(v, shape).active for v in views if isinstance(v, View) and v.active is not None]
    chosen = None
    for part in parts:
        part = np.broadcast_to(part, shape)
        chosen = part if chosen is None else chosen & part
    return chosen


def placed(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Reshape a mask of fewer axes than the operation: its first axis is the partitions', the others the last ones."""
    if 1 < mask.ndim < len(shape):
        return mask.reshape(mask.shape[0], *(1,) * (len(shape) - mask.ndim), *mask.shape[1:])
    return mask


def aligned(values: Sequence[Any]) -> Sequence[Any]:
    """Reshape values of rows, [P, 1], to the rank of the other operands."""
    rank = max(len(shape_of(v)) for v in values)
    return [v.reshape((v.shape[0],) + (1,) * (rank - 1))
            if isinstance(v, View) and v.ndim < rank and v.size == v.shape[0] else v for v in values]


def operands(values: Sequence[Any], mask: Any = None, shape: tuple[int, ...] | None = None, quietly: bool = False,
             accumulates: bool = False) -> tuple[np.ndarray | None, list[Operand], tuple[int, ...]]:
    """Return the active elements, the operands' values, and the shape to which they broadcast, partitions included."""
    values = aligned(values)
    shape = np.broadcast_shapes(*map(shape_of, values)) if shape is None else shape
    active = active_of(shape, mask, *values)
    read = []
    for first, value in enumerate(values):
        if isinstance(value, View):
            here = quietly and not first, accumulates and not first
            read.append(Operand(stretch(value, shape).read(active, *here), value.dtype))
        elif isinstance(value, np.ndarray):
            read.append(Operand(np.broadcast_to(value, shape), weak(0)))        # an index expression (5.5)
        else:
            read.append(Operand.number(value))
    return active, read, shape


def result(values: Any, default: DType, mask: Any = None, dtype: Any = None, space: str = SBUF) -> Any:
    """Return a new tile of the dtype that the kernel names, or of the default."""
    return fresh(Tensor, values, default if dtype is None else dtype_of(dtype), mask, dtype is not None, space)


def scalar_index(value: Any) -> Any:
    """Return the number in a tile of one element; other operands stay."""
    return number(value) if isinstance(value, View) else value

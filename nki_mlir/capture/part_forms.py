# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dimensions and access patterns of complete tensors and of their parts, memoized: views of equal form share them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from nki_mlir.capture import strides
from nki_mlir.capture.errors import RankTooSmall
from nki_mlir.capture.strides import ONE_MORE, Dim, Shape
from nki_mlir.dialects.access import Access, Form, Linear, Tile, dense
from nki_mlir.dialects.verifier import TooManyPartitions
from nki_mlir.machine import Machine
from nki_mlir.scalar.dtypes import BY_NAME

PARTITIONS = Machine.partitions
MOST_PARTS = 1 << 16


class PartForm(NamedTuple):
    """The form of parts that differ only in their buffers and starts. ``pattern``: the steps and counts of the part as
    an operand; None if the part cannot be an operand unchanged. ``form``: the form of its tile, if it is known."""

    dims: tuple[Dim, ...]
    shape: Shape
    pattern: tuple[tuple[int, int], ...] | None
    form: Form | None


@lru_cache(4096)
def complete_dims(shape: tuple[int, ...], partition: int | None) -> tuple[Dim, ...]:
    """Return the dimensions of a complete tensor; ``partition`` is its partition dimension, None in HBM."""
    dims, step = [], 1
    for k in range(len(shape) - 1, -1, -1):
        dims.append(Dim(1, 0, shape[k]) if k == partition else Dim(0, step, shape[k]))
        step *= 1 if k == partition else shape[k]
    return tuple(reversed(dims))


@lru_cache(4096)
def dense_shape(shape: tuple[int, ...]) -> tuple[Shape, tuple[int, ...]]:
    """Return the shape of a dense tensor, one object for equal ones, and its strides."""
    return Shape(shape), dense(shape)


@lru_cache(4096)
def strided_part(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[PartForm, int, int]:
    """Return the form of a part of a tensor in HBM, and the distances from its start to its first and last element. The
    part has elements."""
    dims = tuple([Dim(0, step, count) for step, count in zip(strides, shape)])
    reach = [step * (count - 1) for step, count in zip(strides, shape)]
    pattern = pattern_of(dims, False) if is_tile(dims, False) else None
    return (PartForm(dims, Shape(shape), pattern, None), sum([by for by in reach if by < 0]),
            sum([by for by in reach if by > 0]))


@lru_cache(4096)
def is_tile(dims: tuple[Dim, ...], on_chip: bool) -> bool:
    """Return whether a view with these dimensions is a tile as it is: at least two dimensions, the partition first."""
    partition_dim, *free_dims = dims or (ONE_MORE,)
    return len(dims) > 1 and not (on_chip and (
        any(d.partition and d.count > 1 for d in free_dims) or (partition_dim.free and partition_dim.count > 1)
        or partition_dim.count > PARTITIONS))


@lru_cache(4096)
def pattern_of(dims: tuple[Dim, ...], on_chip: bool) -> tuple[tuple[int, int], ...]:
    """Return ``(step, count)`` pairs, the partition first on chip."""
    if not on_chip:
        return tuple([(d.free, d.count) for d in dims])
    partition_dim = dims[0]
    return ((partition_dim.partition if partition_dim.count > 1 else 1, partition_dim.count),
            *[(d.free, d.count) for d in dims[1:]])


@lru_cache(MOST_PARTS)
def constant_access(dtype_name: str, partition: int | None, free: int, pattern: tuple[tuple[int, int], ...]) -> Access:
    """Return the access of a view without symbols. Equal ones are one object, which makes looking them up cheap. (The
    name of a dtype hashes fast.)"""
    start = None if partition is None else Linear(partition)
    return Access(BY_NAME[dtype_name], start, Linear(free), pattern)


@lru_cache(4096)
def complete_part(shape: tuple[int, ...], dtype_name: str, space: str) -> tuple[PartForm, Access]:
    """Return the form and the access of complete tiles of a shape."""
    dims, dtype = complete_dims(shape, 0), BY_NAME[dtype_name]
    pattern = pattern_of(dims, True)
    access = constant_access(dtype_name, 0, 0, pattern)
    return PartForm(dims, Shape(shape), pattern, Tile(None, space, shape, dtype, access).form), access


@lru_cache(4096)
def complete_tile(shape: tuple[int, ...], dtype_name: str, space: str) -> tuple[PartForm, Access]:
    """Return the form and the access of complete tiles whose free dimensions of extent 1 step by 0."""
    if 1 not in shape[1:]:
        return complete_part(shape, dtype_name, space)
    dims = (Dim(1, 0, shape[0]), *[Dim(0, 0 if n == 1 else step, n) for n, step in zip(shape[1:], dense(shape)[1:])])
    pattern = pattern_of(dims, True)
    access = constant_access(dtype_name, 0, 0, pattern)
    return PartForm(dims, Shape(shape), pattern, Tile(None, space, shape, BY_NAME[dtype_name], access).form), access


def part_form(dims: tuple[Dim, ...], spans: Sequence[int], on_chip: bool, tile: Tile | None) -> PartForm:
    """Return the form of the parts of a view that subscripts of these steps and counts select; ``tile`` is the view as
    an operand, if it is one."""
    part = strides.part_dims(dims, spans, on_chip)
    pattern = pattern_of(part, on_chip) if is_tile(part, on_chip) else None
    form = None
    if tile is not None and pattern is not None:
        form = tile.patterned(dims=pattern).form
    return PartForm(part, Shape([d.count for d in part]), pattern, form)


def check_on_chip_shape(shape: tuple[int, ...], partition_dim: int) -> None:
    """Check the rules for the shape of an on-chip tensor."""
    if len(shape) < 2:
        raise RankTooSmall(shape=shape, extent=shape[0] if shape else 1)
    if shape[partition_dim] > PARTITIONS:
        raise TooManyPartitions(count=shape[partition_dim], limit=PARTITIONS)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nl``: creation of tensors, transfers, views (documents: 3.2, 6.1)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import arithmetic
from ..dtypes import Whole, convert, dtype_of
from ..memory import HBM, PSUM, SBUF, View, allocate
from ..program import current
from .indexing import shape_without_marks
from .tensors import Tensor, active_of, operands, partition_of, result, stretch

__all__ = ["all_reduce", "atomic_rmw", "broadcast_to", "copy", "device_print", "dropout", "empty_like", "expand_dims",
           "full", "hbm", "load", "load_transpose2d", "loop_reduce", "ndarray", "ones", "private_hbm", "psum", "rand",
           "random_seed", "sbuf", "shared_constant", "shared_hbm", "shared_identity_matrix", "store", "zeros",
           "zeros_like"]


class Buffer(str):
    """A memory, which equals its name; ``space`` names the memory that contains its tensors."""

    @property
    def space(self) -> str:
        return HBM if self.endswith("hbm") else str(self)


sbuf, psum, hbm, private_hbm, shared_hbm = map(Buffer, ("sbuf", "psum", "hbm", "hbm", "shared_hbm"))


# -- 3.2: creation -----------------------------------------------------------------------------------------------------
def ndarray(shape: Sequence[int], dtype: Any, *, buffer: Any = None, name: str = "", **_: Any) -> Any:
    """Return a tensor. In shared HBM all programs get the same one from their n-th call."""
    made_in = sbuf if buffer is None else buffer if isinstance(buffer, Buffer) else Buffer(getattr(buffer, "space", buffer))
    if made_in == shared_hbm:
        shared = current().run.shared
        key = current().count("shared")
        if key not in shared:
            shared[key] = allocate(Tensor, shape, dtype, HBM, name or f"output{key}")
            shared[key].storage.declared = ()
        return shared[key]
    tensor = allocate(Tensor, shape, dtype, made_in.space, name)
    tensor.blocks = partition_of(shape) if made_in.space in (SBUF, PSUM) else 0
    return tensor


def full(shape: Sequence[int], fill_value: Any, dtype: Any, *, buffer: Any = None, name: str = "", **_: Any) -> Any:
    tensor = ndarray(shape, dtype, buffer=buffer, name=name)
    tensor.write(fill_value)
    return tensor


def zeros(shape: Sequence[int], dtype: Any, *, buffer: Any = None, name: str = "", **_: Any) -> Any:
    return full(shape, 0, dtype, buffer=buffer, name=name)


def ones(shape: Sequence[int], dtype: Any, *, buffer: Any = None, name: str = "", **_: Any) -> Any:
    return full(shape, 1, dtype, buffer=buffer, name=name)


def empty_like(a: Any, dtype: Any = None, *, buffer: Any = None, name: str = "", **_: Any) -> Any:
    return ndarray(a.shape, a.dtype if dtype is None else dtype, buffer=buffer, name=name)


def zeros_like(a: Any, dtype: Any = None, *, buffer: Any = None, name: str = "", **_: Any) -> Any:
    return zeros(a.shape, a.dtype if dtype is None else dtype, buffer=buffer, name=name)


def shared_constant(constant: Any, dtype: Any = None, **_: Any) -> Any:
    """Return an array as a tensor in HBM."""
    constant = np.asarray(constant)
    tensor = allocate(Tensor, constant.shape, constant.dtype if dtype is None else dtype, HBM, "constant")
    tensor.write(constant)
    return tensor


def shared_identity_matrix(n: int, dtype: Any = np.uint8, **_: Any) -> Any:
    return shared_constant(np.eye(n, dtype=np.float32), dtype)


# -- 6.1: transfers ----------------------------------------------------------------------------------------------------
def as_tile(src: Any) -> Any:
    """Return a part of a tensor in HBM as a tile: [n] becomes [n, 1], a single element [1, 1] (4.2)."""
    return src if src.ndim >= 2 else src.reshape((src.size, 1))


def load(src: Any, *, mask: Any = None, dtype: Any = None, mode: Any = None, **_: Any) -> Any:
    """Copy from HBM to a new tile in SBUF, converted if the call names a dtype."""
    src = as_tile(src)
    active = active_of(src.shape, mask, src)
    active = without_outside(src, active) if skips(mode) else active
    return result(src.read(active), src.dtype, active, dtype)


def store(dst: Any, value: Any, *, mask: Any = None, mode: Any = None, **_: Any) -> None:
    """Copy a tile or a number to HBM, converted to the dtype of the destination."""
    target = as_tile(dst)
    if isinstance(value, View):
        if value.ndim != target.ndim or value.shape != target.shape:
            target, value = meeting(target, value)
        value = stretch(value, target.shape)
    active = active_of(target.shape, mask, target, value)
    active = without_outside(target, active) if skips(mode) else active
    target.write(value.read(active) if isinstance(value, View) else value, active)


def meeting(target: Any, value: Any) -> tuple[Any, Any]:
    """Return two views with one rank: without leading dimensions of size 1, or reshaped if they have equal sizes."""
    if target.size == value.size:
        return target.reshape(value.shape), value
    while value.ndim > target.ndim and value.shape[0] == 1:
        value = value.like(lambda array: array[0])
    return target, value


def skips(mode: Any) -> bool:
    return getattr(mode, "name", "") == "skip"


def without_outside(view: Any, active: np.ndarray | None) -> np.ndarray | None:
    """Return the active elements without those outside of the tensor, as ``oob_mode.skip`` does (4.4)."""
    if view.outside is None:
        return active
    return view.index >= 0 if active is None else active & (view.index >= 0)


def load_transpose2d(src: Any, *, mask: Any = None, dtype: Any = None, **_: Any) -> Any:
    """Load [N, M] from HBM as a tile [M, N]."""
    active = active_of(src.shape, mask, src)
    return result(src.read(active).T, src.dtype, None if active is None else active.T, dtype)


def atomic_rmw(dst: Any, value: Any, op: Any = np.add, *, mask: Any = None, **_: Any) -> None:
    """Set ``dst`` to ``op(dst, value)``, one element after the other, so that an element that occurs twice is updated
    twice."""
    combined_in_order(dst, stretch(value, dst.shape), op, active_of(dst.shape, mask, dst, value))


def combined_in_order(dst: Any, value: Any, op: Any, active: np.ndarray | None) -> None:
    values = value.read(active) if isinstance(value, View) else np.broadcast_to(value, dst.shape)
    kind = value.dtype if isinstance(value, View) else arithmetic.Operand.number(value).dtype
    for row in range(dst.shape[0]):
        here = dst.like(lambda array, row=row: array[row])
        left = None if active is None else active[row]
        old = arithmetic.Operand(here.read(left, accumulates=True), dst.dtype)
        here.write(arithmetic.binary(arithmetic.operator(op), old, arithmetic.Operand(values[row], kind)), left, True)


def copy(src: Any, *, mask: Any = None, dtype: Any = None, **_: Any) -> Any:
    active, (a,), _shape = operands((src,), mask)
    return result(a.values, a.dtype, active, dtype)


# -- 6.1, 6.3: views and others ----------------------------------------------------------------------------------------
def broadcast_to(src: Any, *, shape: Sequence[int], **_: Any) -> Any:
    return src if src.shape == tuple(shape) else src.broadcast(shape)


def expand_dims(data: Any, axis: Any) -> Any:
    return data.expand_dims(axis)


def loop_reduce(x: Any, op: Any, loop_indices: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> Any:
    """Return a value whose assignment sets the target to op(target, x), or to x where nothing has been written yet."""
    active, (a,), _shape = operands((x,), mask)
    name, default = arithmetic.operator(op), a.dtype if dtype is None else dtype_of(dtype)
    pending = result(a.values, default, active, dtype)
    pending.pending.combine = lambda old, new: convert(
        arithmetic.binary(name, arithmetic.Operand(old, default), arithmetic.Operand(new, default)), default)
    return pending


def all_reduce(x: Any, op: Any, program_axes: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> Any:
    """Combine x of all programs that differ only in these ids; each of them gets the result."""
    active, (a,), _shape = operands((x,), mask)
    program, axes = current(), [program_axes] if isinstance(program_axes, int) else list(program_axes)
    grid = program.run.grid
    members = [n for n, ids in enumerate(np.ndindex(*grid)) if all(
        i == j for k, (i, j) in enumerate(zip(ids, program.ids)) if k not in axes)]
    brought = program.meet("all_reduce", members, (a, np.ones(a.values.shape, bool) if active is None else active))
    name, total, begun = arithmetic.operator(op), a.values, np.zeros(a.values.shape, bool)
    for member in members:
        b, left = brought[member]
        if name in ("maximum", "minimum") and a.dtype.kind != "float":      # no engine computes it: decisions
            both = {"maximum": np.maximum, "minimum": np.minimum}[name](total, b.values)
        else:
            both = arithmetic.binary(name, arithmetic.Operand(total, a.dtype), b)
            both = both.integers if isinstance(both, Whole) else both
        total = np.where(left, np.where(begun, both, b.values), total).astype(both.dtype)
        begun = begun | left
    return result(total + 0 if len(members) > 1 else total, a.dtype, active, dtype)


def device_print(prefix: str, x: Any, *, mask: Any = None, **_: Any) -> None:
    """Print the complete tile, with 0 where a mask over elements does not hold; a condition on loop variables decides
    whether it prints."""
    if mask is not None and np.ndim(mask) == 0 and not mask:
        return
    active, (a,), _shape = operands((x,), mask)
    current().run.printed.append((prefix, a.values.copy()))


# -- 6.3: random numbers, any values of the range ----------------------------------------------------------------------
def chances(shape: Sequence[int]) -> np.ndarray:
    """Return numbers in [0, 1); tests compare only results that are the same for any of them."""
    run = current().run
    run.random = True
    largest = np.float32(1 - 2.0 ** -24)
    mixed = np.random.default_rng(len(shape)).random(tuple(shape), np.float32)
    return [np.zeros(shape, np.float32), np.full(shape, largest), mixed][run.luck]


def rand(shape: Sequence[int], dtype: Any = np.float32, **_: Any) -> Any:
    return result(chances(shape_without_marks(shape)), dtype_of(dtype))


def random_seed(seed: Any, *, mask: Any = None, **_: Any) -> None:
    """Set the seed, which has no visible effect."""


def dropout(x: Any, rate: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> Any:
    """Return 0 with the probability, else x (6.3, 7.4)."""
    active, (a, probability), shape = operands((x, rate), mask, x.shape)
    keep = chances(shape) >= arithmetic.widened(probability.values)
    return result(np.where(keep, a.values, np.zeros((), a.values.dtype)), a.dtype, active, dtype)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of PyTorch that the upstream passes to StableHLO change or refuse, in terms of those that they take."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from nki_mlir.frameworks.torch_batching import map_by_calls

aten = torch.ops.aten


def same_dtype(a: Any, b: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Both as tensors of the dtype of their result."""
    dtype = torch.result_type(a, b)
    first, second = (x.to(dtype) if isinstance(x, torch.Tensor) else torch.full((), x, dtype=dtype) for x in (a, b))
    return first, second


def remainder(a: object, b: Any) -> torch.Tensor:
    """With the sign of the divisor; the remainder of StableHLO has that of the dividend."""
    negative = b < 0
    a, b = same_dtype(a, b)
    left = aten.fmod.Tensor(a, b)
    return torch.where((left != 0) & ((left < 0) != negative), left + b, left)


def fmod(a: torch.Tensor, b: object) -> torch.Tensor:
    return aten.fmod.Tensor(*same_dtype(a, b))


def sign(a: torch.Tensor) -> torch.Tensor:
    """Upstream compares with an integer, which is wrong where the tensor is constant."""
    return (a > 0).to(a.dtype) - (a < 0).to(a.dtype)


def roll(a: torch.Tensor, shifts: list[int], dims: Sequence[int] = ()) -> torch.Tensor:
    """For any shift: upstream takes no slice out of an axis of one element."""
    if not dims:
        return roll(a.flatten(), shifts, [0]).reshape(a.shape)
    for shift, axis in zip(shifts, dims):
        size = a.shape[axis]
        if size and (first := shift % size):
            a = torch.cat([a.narrow(axis, size - first, first), a.narrow(axis, 0, size - first)], axis)
    return a.clone()


def of_bytes(op: Callable[..., object]) -> Callable[..., object]:
    """Computed as int32 where all tensors are of bytes, which upstream takes for integers with a sign here."""
    def found(*arguments: object, **keywords: object) -> Any:
        if any(isinstance(a, torch.Tensor) and a.dtype != torch.uint8 for a in arguments):
            return NotImplemented
        made = op(*(a.to(torch.int32) if isinstance(a, torch.Tensor) else a for a in arguments), **keywords)
        several = made if isinstance(made, tuple) else (made,)
        results = tuple(r.to(torch.uint8) if r.dtype == torch.int32 else r for r in several)
        return results if isinstance(made, tuple) else results[0]
    return found


def truth(op: Any) -> Callable[..., object]:
    """``any`` and ``all`` of bytes, which are bytes: upstream takes the bits together."""
    def found(a: torch.Tensor, *arguments: object, **keywords: object) -> object:
        return op(a != 0, *arguments, **keywords).to(a.dtype) if a.dtype == torch.uint8 else NotImplemented
    return found


def absolute(a: torch.Tensor) -> object:
    return a.clone() if a.dtype == torch.uint8 else NotImplemented


def shift(op: Callable[..., torch.Tensor]) -> Callable[[torch.Tensor, object], torch.Tensor]:
    return lambda a, b: op(*same_dtype(a, b))


BYTES = (aten.amax.default, aten.amin.default, aten.max.default, aten.min.default, aten.max.dim, aten.min.dim,
         aten.argmax.default, aten.argmin.default, aten.bitwise_right_shift.Tensor)
TRUTHS = (aten.any.default, aten.any.dim, aten.any.dims, aten.all.default, aten.all.dim, aten.all.dims)
OWN: dict[object, Callable[..., object]] = {
    torch.ops.nki.map.default: map_by_calls,
    aten.remainder.Tensor: remainder,
    aten.remainder.Scalar: remainder,
    aten.remainder.Scalar_Tensor: remainder,
    aten.fmod.Scalar: fmod,
    aten.sign.default: sign,
    aten.roll.default: roll,
    aten.abs.default: absolute,
    aten.__lshift__.Scalar: shift(aten.bitwise_left_shift.Tensor),
    aten.__lshift__.Tensor: shift(aten.bitwise_left_shift.Tensor),
    aten.__rshift__.Scalar: shift(aten.bitwise_right_shift.Tensor),
    aten.__rshift__.Tensor: shift(aten.bitwise_right_shift.Tensor),
    **{op: of_bytes(op) for op in BYTES},
    **{op: truth(op) for op in TRUTHS},
}


def numbers_of_floats(graph: torch.fx.Graph) -> None:
    """Integers beside floating-point tensors as floats: upstream, a negative one is a great one when it folds."""
    for node in graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
            continue
        tensors = [a.meta["val"] for a in node.all_input_nodes if isinstance(a.meta.get("val"), torch.Tensor)]
        if not tensors or not all(t.is_floating_point() for t in tensors):
            continue
        for place, (value, slot) in enumerate(zip(node.args, node.target._schema.arguments)):
            if type(value) is int and str(slot.type) in ("Tensor", "number"):
                node.update_arg(place, float(value))

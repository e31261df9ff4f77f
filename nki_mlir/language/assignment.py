# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``t[...] = value`` and ``t += value``: where it can, the operation that computes the value writes the target itself.

That is one instruction and one rounding. Both builders decide by the same rules, so that they round alike; capture
takes the first operation back, eager execution lets it stand.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nki_mlir.capture.builder import active
from nki_mlir.capture.index import Index, Mask
from nki_mlir.capture.strides import same_extents
from nki_mlir.capture.tensor import View
from nki_mlir.dialects.access import PSUM
from nki_mlir.dialects.nki import movement
from nki_mlir.dialects.verifier import ShapeMismatch
from nki_mlir.language import creation
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import Tensor, emit, emit_with
from nki_mlir.language.operations import LastResult


def assign(target: View, value: Any, mask: object = None) -> None:
    """``t[...] = value``."""
    if isinstance(value, Mask) or value is None:
        raise ShapeMismatch(what=f"a {type(value).__name__} is assigned to a tensor").here()
    if not isinstance(value, View):
        value = ops.plain_number(value)
        if not isinstance(value, Index):
            ops.check_number("assignment", value)
        if isinstance(value, Index):
            index = value if value.shape else value.spread((1,) * target.ndim)
            kind = ops.dtype_of_number(0)
            assign(target, ops.compute(movement.IotaOp, index.shape, kind, {}, expression=index), mask)
        elif target.buffer.on_chip:
            creation.memset(target, value, mask)
        else:
            ops.store(target, value, mask=mask)
        return
    made = last_result(value)
    if made is not None and redirect(made, target, mask):
        return
    if not target.buffer.on_chip:
        ops.store(target, value, mask=mask)
    elif not value.buffer.on_chip:
        emit(movement.LoadOp, {"dst": target, "src": value}, mask)
    else:
        value = creation.located(ops.match_destination, value, target.shape, "assignment")
        if made is not None and made.is_masked and target.shape == value.shape:     # what is masked out stays
            target, value, mask = beside(made, target), made.operand, made.where_written()
        emit(movement.CopyOp, {"dst": creation.partition_first(target), "src": creation.partition_first(value)}, mask)


def last_result(value: object) -> LastResult | None:
    """The operation that computed ``value``, if nothing has happened since."""
    builder = active()
    made: LastResult | None = builder.properties.get("made")
    return made if made is not None and made.result is value and builder.last is made.op else None


def beside(made: LastResult, target: View) -> View:
    """The target with the axes that the operand of the operation has besides its own."""
    return target.with_unit_dims(made.dropped, made.operand.ndim) if made.dropped else target


def redirect(made: LastResult, target: View, mask: object) -> bool:
    """Let the operation that has just computed a result write to ``target`` itself."""
    value = made.result
    if mask is not None or not target.buffer.on_chip or target.mask is not None or (
            not same_extents(target.shape, value.shape)) or made.writes_more:
        return False
    if made.explicit_dtype and target.dtype is not value.dtype:
        return False                    # an asked dtype is rounded to first, then converted
    if target.buffer.space != value.buffer.space and target.buffer.space not in made.cls.destinations:
        return False
    builder = active()
    taken = builder.symbolic and builder.take_back(made.operand)
    if not taken and target.dtype is value.dtype and not made.is_masked:
        builder.consider(made.cls, made.views, beside(made, target), made.mask, made.attributes)
        return False                    # it stands already: a copy gives the same bits
    emit_with(made.cls, {**made.views, "dst": beside(made, target)}, made.mask, made.attributes)
    return True


def combine(op: str, target: Tensor, value: object) -> Tensor:
    """``t -= value`` and its like: the result has t's dtype."""
    with accumulating():
        ops.binary(op, target, value, destination=target)
    return target


@contextmanager
def accumulating() -> Iterator[None]:
    """Operations inside combine with what their destinations hold, so that iterations may share those."""
    builder = active()
    outside, builder.accumulating = builder.accumulating, True
    try:
        yield
    finally:
        builder.accumulating = outside


def accumulate(target: Tensor, value: Any) -> Tensor:
    """``t += value``: a product accumulates in PSUM, anything else is an addition in place."""
    builder = active()
    made = last_result(value) if isinstance(value, View) and target.buffer.space == PSUM else None
    if made is not None and "accumulate" in made.cls.attributes and not made.writes_more:
        if target.shape == value.shape and builder.symbolic and builder.take_back(made.operand):
            emit_with(made.cls, {**made.views, "dst": target}, made.mask, made.attributes | {"accumulate": True})
            return target
        builder.consider(made.cls, made.views, target, made.mask, made.attributes)
    combine("add", target, value)
    return target

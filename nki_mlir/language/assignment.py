# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Emits ``t[...] = value`` and ``t += value``: if possible, the operation that computes the value writes the target.

That is one instruction and one rounding. Both builders decide by the same rules, so that they round alike; capture
removes the first operation, eager execution keeps it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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
    """Emit ``t[...] = value``."""
    if isinstance(value, Mask) or value is None:
        raise ShapeMismatch(what=f"a value of type {type(value).__name__} cannot be assigned to a tensor").here()
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
    producer = last_result(value)
    if producer is not None and redirect(producer, target, mask):
        return
    if not target.buffer.on_chip:
        ops.store(target, value, mask=mask)
    elif not value.buffer.on_chip:
        emit(movement.LoadOp, {"dst": target, "src": value}, mask)
    else:
        value = creation.located(ops.match_destination, value, target.shape, "assignment")
        # elements that are masked out stay
        if producer is not None and producer.is_masked and target.shape == value.shape:
            target, value, mask = with_dropped_axes(producer, target), producer.operand, producer.where_written()
        emit(movement.CopyOp, {"dst": creation.partition_first(target), "src": creation.partition_first(value)}, mask)


def last_result(value: object) -> LastResult | None:
    """Return the operation that computed ``value`` if no operation follows it, else None."""
    builder = active()
    producer: LastResult | None = builder.properties.get("last_result")
    return producer if producer is not None and producer.result is value and builder.last is producer.op else None


def with_dropped_axes(producer: LastResult, target: View) -> View:
    """Return the target with the axes that the result dropped from the operation's operand."""
    return target.with_unit_dims(producer.dropped, producer.operand.ndim) if producer.dropped else target


def redirect(producer: LastResult, target: View, mask: object) -> bool:
    """Let the operation that has just computed a result write to ``target`` itself; return whether it does."""
    value = producer.result
    if mask is not None or not target.buffer.on_chip or target.mask is not None or (
            not same_extents(target.shape, value.shape)) or producer.writes_more:
        return False
    if producer.explicit_dtype and target.dtype is not value.dtype:
        return False                    # the value is rounded to an explicit dtype first, then converted
    if target.buffer.space != value.buffer.space and target.buffer.space not in producer.cls.destinations:
        return False
    builder = active()
    builder.properties["replaces"] = producer.op
    try:
        return perform_on(target, producer)
    finally:
        del builder.properties["replaces"]


def perform_on(target: View, producer: LastResult) -> bool:
    """Perform an operation again with ``target`` as its destination; return whether that replaces the assignment."""
    builder = active()
    if producer.mask is None and not producer.states_transpose and builder.retarget(
            producer.operand, with_dropped_axes(producer, target), producer.attributes):
        return True
    undone = builder.symbolic and builder.undo(producer.operand)
    if not undone and target.dtype is producer.result.dtype and not producer.is_masked:
        builder.consider(producer.cls, producer.views, with_dropped_axes(producer, target), producer.mask,
                         producer.attributes)
        return False                    # the operation has run: a copy has the same bits
    with ops.stated_transpose() if producer.states_transpose else nullcontext():
        views = {**producer.views, "dst": with_dropped_axes(producer, target)}
        emit_with(producer.cls, views, producer.mask, producer.attributes)
    return True


def combine(op: str, target: Tensor, value: object) -> Tensor:
    """Emit ``t -= value`` and similar updates: the result has t's dtype."""
    with accumulating():
        ops.binary(op, target, value, destination=target)
    return target


@contextmanager
def accumulating() -> Iterator[None]:
    """Mark the operations of the ``with`` block as accumulating to their destinations, so that iterations may share
    those."""
    builder = active()
    outside, builder.accumulating = builder.accumulating, True
    try:
        yield
    finally:
        builder.accumulating = outside


def accumulate(target: Tensor, value: Any) -> Tensor:
    """Emit ``t += value``: a product accumulates in PSUM, any other value is added in place."""
    builder = active()
    producer = last_result(value) if isinstance(value, View) and target.buffer.space == PSUM else None
    if producer is not None and "accumulate" in producer.cls.attributes and not producer.writes_more:
        # Under a mask a product runs again, into the target: its first result has elements that it did not write.
        if target.shape == value.shape and (
                (builder.symbolic and builder.undo(producer.operand)) or producer.is_masked):
            attributes = producer.attributes | {"accumulate": True}
            emit_with(producer.cls, {**producer.views, "dst": target}, producer.mask, attributes)
            return target
        builder.consider(producer.cls, producer.views, target, producer.mask, producer.attributes)
    combine("add", target, value)
    return target

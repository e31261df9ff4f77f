# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The patterns of two instructions that one instruction replaces: the fused operation, if the values stay equal."""

from collections.abc import Callable
from typing import Any, NamedTuple

from nki_mlir.dialects.access import Linear, Tile, dense, in_shape
from nki_mlir.dialects.nisa.elementwise import ActivationOp, ScalarTensorTensorOp, TensorScalarOp, TensorTensorOp
from nki_mlir.dialects.nisa.matmul import NcMatmulDoubleRowOp, NcMatmulOp, NcTransposeOp
from nki_mlir.dialects.nisa.movement import TensorCopyOp
from nki_mlir.dialects.nisa.reduction import ActivationReduceOp, TensorReduceOp, TensorScalarReduceOp
from nki_mlir.dialects.op import Op, changed, with_forms
from nki_mlir.machine import Engine
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.neuron.codegen.records import value_range

REDIRECTED = (ActivationOp, ActivationReduceOp, NcMatmulDoubleRowOp, NcMatmulOp, NcTransposeOp, ScalarTensorTensorOp,
              # may write directly to the destination of a copy
              TensorReduceOp, TensorScalarOp, TensorScalarReduceOp, TensorTensorOp)


class FusedPair(NamedTuple):
    """The operation that replaces two. ``step``: which of the two (0 or 1) it takes the place of, with its discardable
    attributes; ``negated``: a tile of the first that the fused operation reads negated."""

    op: Op
    step: int
    negated: Tile | None = None


Pattern = Callable[[Op, Op, Tile], FusedPair | None]


def reads(op: Op, buffer: object) -> bool:
    return any(tile.handle is buffer for _, tile in op.sources())


def combines_each_partition(op: TensorReduceOp, tile: Tile) -> bool:
    """Return whether a reduction combines all elements of each partition of a tile, along one axis or along several."""
    if op.axes != tuple(range(1, len(op.src.shape))):
        return False
    if op.src.access == tile.access:
        return True
    starts = [(t.access.partition, t.access.free, t.access.dims[0], t.free_elements) for t in (op.src, tile)]
    return starts[0] == starts[1] and all(map(is_dense, (op.src, tile)))


def is_dense(tile: Tile) -> bool:
    """Return whether the elements of a partition are contiguous, in the order of the tile's axes."""
    return all(count == 1 or step == other for (step, count), other in zip(
        tile.access.dims[1:], dense(tile.shape[1:])))


def in_one(first: Op, second: Op) -> tuple[Op, Op]:
    """Return both operations with one list of symbols."""
    symbols = tuple(dict.fromkeys((*first.symbols, *second.symbols)))
    return numbered(first, symbols), numbered(second, symbols)


def numbered(op: Op, symbols: tuple[object, ...]) -> Op:
    """Return the operation with its symbols numbered as in a longer list."""
    if op.symbols == symbols:
        return op
    number = [symbols.index(symbol) for symbol in op.symbols]

    def put(form: Linear) -> Linear:
        return Linear(form.const, tuple(sorted((number[k], c) for k, c in form.symbols)), form.axes)
    return with_forms(op, put, symbols=symbols, ranges=tuple(value_range(s) for s in symbols))      # type: ignore[arg-type]


# -- patterns ----------------------------------------------------------------------------------------------------------
def shared(op: Op) -> dict[str, Any]:
    return {"mask": op.mask, "limits": op.limits, "symbols": op.symbols, "ranges": op.ranges, "extra": op.extra}


def redirected(first: Op, second: Op, intermediate: Tile) -> FusedPair | None:
    """Return the first operation with the destination of the second, which copies the result of the first."""
    assert isinstance(second, TensorCopyOp)
    if type(first) not in REDIRECTED or first.compute is not FLOAT32:
        return None
    if intermediate.dtype is not FLOAT32 and intermediate.dtype is not second.dst.dtype:
        return None
    if reads(first, second.dst.handle):
        return None
    if second.src.shape != intermediate.shape and (second.mask or second.limits):
        return None                             # equal masks of other axes
    first, copy = in_one(first, second)
    assert isinstance(copy, TensorCopyOp)
    target = in_shape(copy.dst, intermediate.shape)
    return None if target is None else FusedPair(
        changed(first, lambda tile: target if tile.handle is intermediate.handle else tile), 0)


def reducing(first: Op, second: Op, intermediate: Tile) -> FusedPair | None:
    """Return the first operation, which also reduces its result as the second does."""
    assert isinstance(second, TensorReduceOp)
    if intermediate.dtype is not FLOAT32 or second.negate or not combines_each_partition(second, intermediate) or (
            first.compute is not FLOAT32 or second.compute is not FLOAT32):
        return None
    if reads(first, second.dst.handle):
        return None
    first, reduction = in_one(first, second)
    assert isinstance(reduction, TensorReduceOp)
    rows, *_ = reduction.dst.access.dims
    total = reduction.dst.patterned(dims=(rows, (1, 1))) if reduction.dst.free_elements == 1 else reduction.dst
    common: dict[str, Any] = {**shared(first), "reduce_res": total, "reduce_op": reduction.op}
    if isinstance(first, ActivationOp) and reduction.op == "add":
        return FusedPair(ActivationReduceOp(dst=first.dst, src=first.src, bias=first.bias, scale=first.scale,
                                            fn=first.fn, imm=first.imm, **common), 0)
    if isinstance(first, TensorScalarOp) and first.op1 == "bypass" and not first.reverse0:
        return FusedPair(TensorScalarReduceOp(dst=first.dst, src=first.src, operand0=first.operand0, op0=first.op0,
                                              imm0=first.imm0, **common), 0)
    return None


def in_float32(first: Op, second: Op, intermediate: Tile) -> bool:
    """Return whether both operations compute in float32, and the tile between them has it."""
    return intermediate.dtype is FLOAT32 and first.compute is FLOAT32 and second.compute is FLOAT32


def scaled_activation(first: Op, second: Op, intermediate: Tile) -> FusedPair | None:
    """Return the activation fn(x * scale), fn(x - tile) or fn(x + tile); a subtracted tile has to be negated."""
    if not in_float32(first, second, intermediate):
        return None
    first, second = in_one(first, second)
    assert isinstance(first, TensorScalarOp) and isinstance(second, ActivationOp | ActivationReduceOp)
    if second.src.handle is not intermediate.handle or second.scale is not None or second.imm != 1.0 or reads_again(
            second, intermediate) or first.op1 != "bypass":
        return None
    tile, fields = first.operand0, dict[str, object]()
    negated = None
    if first.op0 == "multiply":
        if tile is None and first.src.dtype is not FLOAT32:
            return None
        fields = {"imm": first.imm0} if tile is None else {"scale": tile}
    elif first.op0 in ("add", "subtract") and tile is not None and second.bias is None and not (
            first.op0 == "subtract" and first.reverse0):
        fields = {"bias": tile}
        negated = tile if first.op0 == "subtract" else None
        if negated is not None and reads_again(first, negated):
            return None
    else:
        return None
    if tile is not None and tile.dtype is not FLOAT32:
        return None
    new = changed(second, lambda t: first.src if t.handle is intermediate.handle else t, **fields)
    return FusedPair(new, 1, negated)


def two_scalars(first: Op, second: Op, intermediate: Tile) -> FusedPair | None:
    if not in_float32(first, second, intermediate):
        return None
    first, second = in_one(first, second)
    assert isinstance(first, TensorScalarOp) and isinstance(second, TensorScalarOp)
    second = with_column_as_source(second, intermediate)
    if (first.op1, second.op1) != ("bypass", "bypass") or reads_again(second, intermediate) or (
            first.src.dtype is not FLOAT32):
        return None
    if second.src.handle is not intermediate.handle or first.engine != second.engine:
        return None
    return FusedPair(TensorScalarOp(
        dst=second.dst, src=first.src, operand0=first.operand0, operand1=second.operand0, op0=first.op0,
        imm0=first.imm0, reverse0=first.reverse0, op1=second.op0, imm1=second.imm0, reverse1=second.reverse0,
        engine=second.engine, **shared(second)), 1)


def with_column_as_source(op: TensorScalarOp, column: Tile) -> TensorScalarOp:
    """Return an operation of two columns with one of them as its source, if it is the other operand."""
    if op.operand0 is None or op.operand0.handle is not column.handle or op.op1 != "bypass" or (
            op.src.free_elements != 1 or op.dst.shape != column.shape):
        return op
    return changed(op, lambda tile: tile, src=column, operand0=op.src, reverse0=not op.reverse0)


def scalar_and_tile(first: Op, second: Op, intermediate: Tile) -> FusedPair | None:
    if not in_float32(first, second, intermediate):
        return None
    first, second = in_one(first, second)
    assert isinstance(first, TensorScalarOp) and isinstance(second, TensorTensorOp)
    if first.op1 != "bypass" or first.src.dtype is not FLOAT32 or second.runs_on is not Engine.VECTOR or (
            first.runs_on is not Engine.VECTOR) or second.lhs.handle is second.rhs.handle:
        return None
    reverses = second.rhs.handle is intermediate.handle
    return FusedPair(ScalarTensorTensorOp(
        dst=second.dst, src=first.src, operand0=first.operand0, rhs=second.lhs if reverses else second.rhs,
        op0=first.op0, op1=second.op, imm0=first.imm0, reverse0=first.reverse0, reverse1=reverses, **shared(second)), 1)


def reads_again(op: Op, intermediate: Tile) -> bool:
    """Return whether an operation reads a tile as more than one operand."""
    return sum(tile.handle is intermediate.handle for _, tile in op.sources()) > 1


PATTERNS: dict[tuple[type[Op], type[Op]], tuple[Pattern, ...]] = {
    (TensorScalarOp, ActivationOp): (scaled_activation,),
    (TensorScalarOp, ActivationReduceOp): (scaled_activation,),
    (TensorScalarOp, TensorScalarOp): (two_scalars,),
    (TensorScalarOp, TensorTensorOp): (scalar_and_tile,),
}

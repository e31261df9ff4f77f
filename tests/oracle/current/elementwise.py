# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise instructions, and the totals that some of them accumulate (sections 4.2, 4.3, 4.4)."""

from typing import Any

import numpy as np

from ..dtypes import DType
from ..memory import PSUM
from .enums import engine, reduce_cmd
from .operands import (
    Instruction,
    accumulated,
    activate,
    combine,
    combine_bits,
    floats,
    is_bitwise,
    moved,
    numbers,
    operand,
    operator,
    put,
    require,
    rows,
)
from .tensor import NkiTensor

FP32_MIN = -3.4028235e38


def tensor_tensor(dst: Any, data1: Any, data2: Any, op: Any, engine: Any = engine.unknown,
                  name: str | None = None) -> Instruction:
    """Write op(data1, data2) to dst (4.3)."""
    if is_bitwise(op):
        return put(dst, combine_bits(op, rows(data1), rows(data2)))
    if dst.space != PSUM and exact(engine, op, dst.dtype, data1, data2):
        return put(dst, wrapped(combine(op, rows(data1).astype(np.int64), rows(data2).astype(np.int64)), data1.dtype))
    return put(dst, combine(op, floats(data1), floats(data2)))


def exact(chosen: Any, op: Any, dst: DType, data: NkiTensor, *others: Any) -> bool:
    """Return whether GpSimd computes the operation exactly: a sum, difference or product of 32-bit integers of one type
    (4.3, open 16).

    Numbers are whole and of the type. GpSimd has no access to PSUM; a kernel may choose an engine that has float32 only.
    """
    def of_the_type(x: Any) -> bool:
        if isinstance(x, NkiTensor):
            return x.dtype == data.dtype and x.space != PSUM
        limits = np.iinfo(data.dtype.numpy)
        return float(x).is_integer() and limits.min <= x <= limits.max
    wide = {dst.name, data.dtype.name} <= {"int32", "uint32"} and data.space != PSUM
    return (operator(op) in ("add", "subtract", "multiply") and chosen.name in ("unknown", "gpsimd") and wide
            and all(map(of_the_type, others)))


def wrapped(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Return int64 values as integers of the type, modulo 2 ** 32 (open 14)."""
    return values.astype(np.uint32).view(dtype.numpy)


def tensor_scalar(dst: Any, data: Any, op0: Any, operand0: Any, reverse0: bool = False, op1: Any = None,
                  operand1: Any = None, reverse1: bool = False, engine: Any = engine.unknown,
                  name: str | None = None) -> Instruction:
    """Write op1(op0(data, operand0), operand1) to dst; a reversed operation swaps its operands (4.3)."""
    require(op1 is not None or operand1 is None, "operand1 belongs to op1")
    steps = [(op0, operand0, reverse0)] + ([(op1, operand1, reverse1)] if op1 is not None else [])
    bits = is_bitwise(op0)
    require(all(is_bitwise(op) == bits for op, _, _ in steps), "both operations are bitwise, or both arithmetic")
    if bits:
        value = rows(data)
        for op, number, reverse in steps:
            value = combine_bits(op, value, numbers(number, value.dtype), reverse)
        return put(dst, value)
    if dst.space != PSUM and all(exact(engine, op, dst.dtype, data, number) for op, number, _ in steps):
        value = rows(data).astype(np.int64)
        for op, number, reverse in steps:
            value = wrapped(combine(op, value, numbers(number, np.dtype(np.int64)), reverse), data.dtype).astype(np.int64)
        return put(dst, value)
    value = floats(data)
    for op, number, reverse in steps:
        value = combine(op, value, operand(number), reverse)
    return put(dst, value)


def scalar_tensor_tensor(dst: Any, data: Any, op0: Any, operand0: Any, op1: Any, operand1: Any, reverse0: bool = False,
                         reverse1: bool = False, name: str | None = None) -> Instruction:
    """Write op1(op0(data, operand0), operand1) to dst; operand1 is a tile (4.3)."""
    value = combine(op0, floats(data), operand(operand0), reverse0)
    return put(dst, combine(op1, value, floats(operand1), reverse1))


def tensor_copy(dst: Any, src: Any, engine: Any = engine.unknown, name: str | None = None) -> Instruction:
    """Copy bits if the dtypes are equal, else convert through float32 (4.3)."""
    return moved(dst, src)


def tensor_copy_predicated(dst: Any, src: Any, predicate: Any, reverse_pred: bool = False,
                           name: str | None = None) -> Instruction:
    """Write src to dst where the predicate is not 0 (reversed: where it is 0); the other elements of dst keep their
    values (4.3)."""
    chosen = (rows(predicate) != 0) != reverse_pred
    if isinstance(src, (int, float)):
        return put(dst, np.full(chosen.shape, src, np.float32), where=chosen)
    require(src.dtype == dst.dtype, "tensor_copy_predicated does not change the dtype")
    return moved(dst, src, where=chosen)


def memset(dst: Any, value: Any, engine: Any = engine.unknown, name: str | None = None) -> Instruction:
    """Fill dst with the value in the dtype of dst (4.3)."""
    shape = rows(dst, unwritten=True).shape
    if isinstance(value, int):
        return put(dst, np.full(shape, value, np.int64))
    return put(dst, np.full(shape, value, np.float32))


def reciprocal(dst: Any, data: Any, name: str | None = None) -> Instruction:
    """Write 1 / data to dst (4.3)."""
    with np.errstate(divide="ignore"):
        return put(dst, np.float32(1) / floats(data))


def scaled(data: NkiTensor, scale: Any, bias: Any) -> np.ndarray:
    """Return data * scale + bias in float32. Without a bias it adds nothing, so the sign of a zero stays."""
    value = floats(data) * operand(scale)
    return value if bias is None else value + operand(bias)


def activation(dst: Any, op: Any, data: Any, bias: Any = None, scale: Any = 1.0, reduce_op: Any = None,
               reduce_res: Any = None, reduce_cmd: Any = reduce_cmd.idle, name: str | None = None) -> Instruction:
    """Write op(data * scale + bias) to dst. The Scalar Engine's registers sum the values before they are rounded (4.2).
    """
    value = activate(op, scaled(data, scale, bias))
    put(dst, value)
    total = accumulated("scalar", reduce_cmd, "add", value)
    return Instruction() if reduce_res is None else put(reduce_res, total)


def activation_reduce(dst: Any, op: Any, data: Any, reduce_op: Any, reduce_res: Any, bias: Any = None, scale: Any = 1.0,
                      name: str | None = None) -> Instruction:
    """Reset the registers, then compute as ``activation``, which adds to them (4.2)."""
    value = activate(op, scaled(data, scale, bias))
    put(dst, value)
    total = accumulated("scalar", reduce_cmd.reset_reduce, operator(reduce_op), value)
    return Instruction() if reduce_res is None else put(reduce_res, total)


def activate2(dst: Any, op: Any, data: Any, imm0: Any, imm1: Any, op0: Any, op1: Any, relu_param: Any = 0.0,
              reverse0: bool = False, reverse1: bool = False, reduce_op: Any = None, reduce_res: Any = None,
              reduce_cmd: Any = reduce_cmd.idle, name: str | None = None) -> Instruction:
    """Write op(op1(op0(data, imm0), imm1)) to dst (4.2)."""
    value = floats(data)
    for function, number, reverse in ((op0, imm0, reverse0), (op1, imm1, reverse1)):
        if operator(function) != "bypass":
            value = combine(function, value, operand(number), reverse)
    value = activate(op, value, operand(relu_param))
    put(dst, value)
    total = accumulated("scalar", reduce_cmd, "add" if reduce_op is None else operator(reduce_op), value)
    return Instruction() if reduce_res is None else put(reduce_res, total)


def exponential(dst: Any, src: Any, max_value: Any = 0.0, reduce_res: Any = None, reduce_cmd: Any = reduce_cmd.idle,
                reduce_init: Any = 0.0, name: str | None = None) -> Instruction:
    """Write exp(src - max_value) to dst, and the sum of each row to reduce_res (4.3)."""
    value = activate("exp", floats(src) - operand(max_value))
    put(dst, value)
    total = accumulated("vector", reduce_cmd, "add", value, operand(reduce_init))
    return Instruction() if reduce_res is None else put(reduce_res, total)


def tensor_scalar_reduce(dst: Any, data: Any, op0: Any, operand0: Any, reduce_op: Any, reduce_res: Any = None,
                         reverse0: bool = False, reduce_cmd: Any = reduce_cmd.reset_reduce, reduce_init: Any = None,
                         reduce_res_negate: bool = False, name: str | None = None) -> Instruction:
    """Write op0(data, operand0) to dst, and reduce it with reduce_op along the free axes (4.3)."""
    value = combine(op0, floats(data), operand(operand0), reverse0)
    put(dst, value)
    total = accumulated("vector", reduce_cmd, operator(reduce_op), value, None if reduce_init is None else operand(reduce_init))
    return Instruction() if reduce_res is None else put(reduce_res, -total if reduce_res_negate else total)


def range_select(dst: Any, on_true_tile: Any, comp_op0: Any, comp_op1: Any, bound0: Any, bound1: Any,
                 reduce_cmd: Any = reduce_cmd.reset_reduce, reduce_res: Any = None, reduce_op: Any = "maximum",
                 range_start: int = 0, on_false_value: float = FP32_MIN, name: str | None = None) -> Instruction:
    """Keep the elements whose position, counted from range_start, is in both ranges (4.3)."""
    data = floats(on_true_tile)
    column = np.broadcast_to(np.arange(range_start, range_start + data.shape[1], dtype=np.float32), data.shape)
    inside = (combine(comp_op0, column, operand(bound0)) != 0) & (combine(comp_op1, column, operand(bound1)) != 0)
    value = np.where(inside, data, np.float32(FP32_MIN))
    put(dst, value)
    total = accumulated("vector", reduce_cmd, "maximum", value)
    return Instruction() if reduce_res is None else put(reduce_res, total)


def select_reduce(dst: Any, predicate: Any, on_true: Any, on_false: Any, reduce_res: Any = None,
                  reduce_cmd: Any = reduce_cmd.idle, reduce_op: Any = "maximum", reverse_pred: bool = False,
                  name: str | None = None) -> Instruction:
    """Write on_true to dst where the predicate holds, else on_false, and the maximum of each row to reduce_res (4.3).
    """
    chosen = (rows(predicate) != 0) != reverse_pred
    value = np.where(chosen, floats(on_true), operand(on_false)).astype(np.float32)
    put(dst, value)
    total = accumulated("vector", reduce_cmd, "maximum", value)
    return Instruction() if reduce_res is None else put(reduce_res, total)


def pattern_values(partitions: int, pattern: Any, offset: Any, channel_multiplier: int) -> np.ndarray:
    """Return offset + p * channel_multiplier + the sum of step * index as 32-bit integers, which wrap (4.4)."""
    require(len(pattern) <= 4, "a pattern has at most four [step, count]")
    total = np.zeros((), np.int64)
    for step, count in pattern:
        total = total[..., None] + step * np.arange(count)
    channels = np.arange(partitions)[:, None] * channel_multiplier
    return (total.reshape(1, -1) + channels + int(offset)).astype(np.int32)


def iota(dst: Any, pattern: Any, offset: Any = 0, channel_multiplier: int = 0, name: str | None = None) -> Instruction:
    """Write the pattern's numbers to dst, in its dtype (4.4)."""
    values = pattern_values(rows(dst, unwritten=True).shape[0], pattern, offset, channel_multiplier)
    return put(dst, values)


def affine_select(dst: Any, pattern: Any, channel_multiplier: int, on_true_tile: Any, on_false_value: float,
                  cmp_op: Any = "equal", offset: Any = 0, name: str | None = None) -> Instruction:
    """Keep the elements where cmp_op(the pattern's number, 0) holds (4.4)."""
    data = rows(on_true_tile)
    values = pattern_values(data.shape[0], pattern, offset, channel_multiplier)
    chosen = combine(cmp_op, values.astype(np.float64), np.float64(0)) != 0
    put(dst, np.full(data.shape, on_false_value, np.float32), where=~chosen)
    return moved(dst, on_true_tile, data, where=chosen)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nisa``: elementwise instructions of the Scalar, Vector and GpSimd engines (documents: 7.3, 7.4, 7.5).

Operations that one instruction chains are computed in float32, or exactly on integers, and rounded once.
"""

from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..arithmetic import BITS, Operand, binary, operator, unary, widened
from ..dtypes import FLOAT32, Whole, dtype_of
from ..memory import View
from ..program import current
from .elementwise import type_of, type_of_result
from .reductions import reduce_rows
from .tensors import active_of, operands, result

ONE_OPERAND = {"rsqrt", "abs", "reciprocal", "logical_not", "invert", "sqrt", "exp", "square", "copy", "identity"}


def step(op: Any, a: Operand, b: Operand | None, reverse: bool = False) -> Any:
    """Perform one operation of a chain."""
    name = operator(op)
    if name in ONE_OPERAND or b is None:
        return unary(name, a)
    return binary(name, *((b, a) if reverse else (a, b)))


def chain(a: Operand, *steps: tuple[Any, Operand | None, bool]) -> Any:
    """Perform operations one after the other and round at the end. They compute in float32, on bits, or in integers if
    all steps do."""
    single, exact = a, True
    integers = a
    for op, b, reverse in steps:
        value = step(op, single, b, reverse)
        single = Operand(value.single, FLOAT32) if isinstance(value, Whole) else Operand(
            value, dtype_of(value.dtype) if operator(op) in BITS or operator(op) == "invert" else FLOAT32)
        value = step(op, integers, b, reverse) if exact else None
        exact = isinstance(value, Whole)
        integers = Operand(value.integers, dtype_of(value.integers.dtype)) if isinstance(value, Whole) else integers
    return Whole(integers.values, single.values) if exact else single.values


def beside(data: Any, other: Any) -> Any:
    """Return a scalar operand: a number, or [P, 1] with as many free axes as the tile has."""
    if isinstance(other, View) and other.ndim < data.ndim:
        return other.reshape((other.shape[0],) + (1,) * (data.ndim - 1))
    return other


# -- 7.4: elementwise on the Vector engine -----------------------------------------------------------------------------
def tensor_tensor(data1: Any, data2: Any, op: Any, *, dtype: Any = None, mask: Any = None, engine: Any = None,
                  **_: Any) -> Any:
    active, (a, b), _shape = operands((data1, data2), mask)
    return result(step(op, a, b), type_of_result(operator(op), data1, data2), active, dtype)


def tensor_scalar(data: Any, op0: Any, operand0: Any, reverse0: bool = False, op1: Any = None, operand1: Any = None,
                  reverse1: bool = False, *, dtype: Any = None, mask: Any = None, engine: Any = None, **_: Any) -> Any:
    """Return ``(data op0 operand0) op1 operand1``; a reversed operation swaps its sides."""
    values = (data, *(beside(data, o) for o in (operand0, operand1) if o is not None))
    active, read, _shape = operands(values, mask, data.shape)
    steps = [(op0, read[1] if operand0 is not None else None, reverse0)]
    if op1 is not None:
        steps.append((op1, read[-1] if operand1 is not None else None, reverse1))
    return result(chain(read[0], *steps), data.dtype, active, dtype)


def scalar_tensor_tensor(*, data: Any, op0: Any, operand0: Any, op1: Any, operand1: Any, reverse0: bool = False,
                         reverse1: bool = False, dtype: Any = None, mask: Any = None, **_: Any) -> Any:
    active, (a, b, c), _shape = operands((data, beside(data, operand0), operand1), mask, data.shape)
    return result(chain(a, (op0, b, reverse0), (op1, c, reverse1)), type_of(data, operand1), active, dtype)


def tensor_scalar_reduce(*, data: Any, op0: Any, operand0: Any, reduce_op: Any, reduce_res: Any, reverse0: bool = False,
                         dtype: Any = None, mask: Any = None, **_: Any) -> Any:
    """Return ``data op0 operand0``; write its rows to ``reduce_res``, reduced before they are rounded."""
    active, (a, b), _shape = operands((data, beside(data, operand0)), mask, data.shape)
    value = step(op0, a, b, reverse0)
    values = value.to(data.dtype if dtype is None else dtype_of(dtype)) if isinstance(value, Whole) else value
    write_rows(reduce_res, reduce_rows(operator(reduce_op), widened(values), active)[0], active)
    return result(value, data.dtype, active, dtype)


def tensor_copy(src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None, **_: Any) -> Any:
    active, (a,), _shape = operands((src,), mask)
    return result(a.values, a.dtype, active, dtype)


def tensor_copy_dynamic_src(src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None, **_: Any) -> Any:
    """Copy from a position that a run-time index in the subscript selects (4.4)."""
    return tensor_copy(src, mask=mask, dtype=dtype)


def tensor_copy_dynamic_dst(*, dst: Any, src: Any, mask: Any = None, dtype: Any = None, engine: Any = None,
                            **_: Any) -> None:
    """Copy to a position that a run-time index in the subscript selects (4.4)."""
    active, (a,), _shape = operands((src,), mask, dst.shape)
    dst.write(a.values, active)


def tensor_copy_predicated(*, src: Any, dst: Any, predicate: Any, reverse_pred: bool = False, mask: Any = None,
                           dtype: Any = None, **_: Any) -> None:
    """Set ``dst`` to ``src`` where the predicate is not zero."""
    active, (flags, a), _shape = operands((predicate, src), mask, dst.shape)
    chosen = (flags.values != 0) ^ bool(reverse_pred)
    dst.write(a.values, chosen if active is None else chosen & active)


def tensor_tensor_scan(data0: Any, data1: Any, initial: Any, op0: Any, op1: Any, reverse0: bool = False,
                       reverse1: bool = False, *, dtype: Any = None, mask: Any = None, **_: Any) -> Any:
    """Compute ``r[i] = (data0[i] op0 r[i - 1]) op1 data1[i]`` along the free axes, in float32; the scan skips elements
    that a mask leaves out."""
    active, (a, b), shape = operands((data0, data1), mask, data0.shape)
    P, N = shape[0], prod(shape[1:])
    x, y = (widened(o.values).reshape(P, N) for o in (a, b))
    left = np.ones((P, N), bool) if active is None else active.reshape(P, N)
    state = start(initial, P)
    states = np.zeros((P, N), np.float32)
    for i in range(N):
        new = chain(Operand(x[:, i], FLOAT32), (op0, Operand(state, FLOAT32), reverse0),
                    (op1, Operand(y[:, i], FLOAT32), reverse1))
        state = np.where(left[:, i], widened(new), state)
        states[:, i] = state
    return result(states.reshape(shape), type_of(data0, data1), active, dtype)


def start(initial: Any, partitions: int) -> np.ndarray:
    """Return a value for each partition: a number, or the elements of a [P, 1] tile."""
    values = widened(initial.read()).reshape(-1) if isinstance(initial, View) else np.float32(initial)
    return np.broadcast_to(values, (partitions,)).astype(np.float32)


def tensor_scalar_cumulative(*, src: Any, dst: Any, op0: Any, op1: Any, imm0: Any, imm1: Any = None,
                             reduce_cmd: Any = None, mask: Any = None, **_: Any) -> None:
    """Compute ``r = (src[i] op0 imm0) op1 r`` and store it at each i (documents of the current generation: 3, releases
    3.5)."""
    active, (a,), shape = operands((src,), mask)
    P, N = shape[0], prod(shape[1:])
    x, name = widened(a.values).reshape(P, N), operator(op1)
    left = np.ones((P, N), bool) if active is None else active.reshape(P, N)
    command = getattr(reduce_cmd, "name", "reset_reduce")
    begin = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}[name]
    registers = current().state.setdefault("vector", np.zeros(128, np.float32))
    state = registers[:P] if command == "reduce" else start(imm1 if command == "load_reduce" else begin, P)
    factor, states = start(imm0, P), np.zeros((P, N), np.float32)
    for i in range(N):
        new = chain(Operand(x[:, i], FLOAT32), (op0, Operand(factor, FLOAT32), False),
                    (op1, Operand(state, FLOAT32), False))
        state = np.where(left[:, i], widened(new), state)
        states[:, i] = state
    registers[:P] = state
    dst.write(states.reshape(dst.shape), None if active is None else active.reshape(dst.shape))


def reciprocal(data: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> Any:
    active, (a,), _shape = operands((data,), mask)
    return result(unary("reciprocal", a), a.dtype, active, dtype)


def memset(shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Any = None, **_: Any) -> Any:
    shape = tuple(int(n) for n in shape)
    return result(np.full(shape, value), dtype_of(dtype), active_of(shape, mask))


# -- 7.3: the Scalar engine --------------------------------------------------------------------------------------------
def accumulate(engine: str, command: Any, name: str, identity: float, values: np.ndarray,
               active: np.ndarray | None) -> np.ndarray:
    """Update the registers of an engine, one for each partition, by a command: idle, reset, reduce or reset_reduce
    (7.3)."""
    command = getattr(command, "name", "idle")
    registers = current().state.setdefault(engine, np.zeros(128, np.float32))
    P = values.shape[0]
    if "reset" in command:
        registers[:P] = identity
    if "reduce" in command:
        rows, left = reduce_rows(name, values, active)
        both = binary(name, Operand(registers[:P], FLOAT32), Operand(rows[:, 0], FLOAT32))
        registers[:P] = both if left is None else np.where(left[:, 0], both, registers[:P])
    return registers[:P].reshape(P, 1).copy()


def activation(op: Any, data: Any, *, bias: Any = None, scale: Any = 1.0, reduce_op: Any = None, reduce_res: Any = None,
               reduce_cmd: Any = None, mask: Any = None, dtype: Any = None, **_: Any) -> Any:
    """Return ``f(data * scale + bias)``; registers may sum its rows before they are rounded."""
    others = [beside(data, scale)] + ([] if bias is None else [beside(data, bias)])
    active, read, _shape = operands((data, *others), mask, data.shape)
    with np.errstate(all="ignore"):
        inner = widened(read[0].values) * widened(read[1].values)
        inner = inner if bias is None else inner + widened(read[2].values)
    values = unary(operator(op), Operand(inner, FLOAT32))
    if reduce_cmd is not None or reduce_res is not None:
        rows = accumulate("scalar", reduce_cmd, operator(reduce_op or "add"), 0.0, values, active)
        write_rows(reduce_res, rows, active)
    return result(values, data.dtype, active, dtype)


def write_rows(reduce_res: Any, rows: np.ndarray, active: np.ndarray | None) -> None:
    """Write the second result of an instruction, in the rows that have an active element."""
    if reduce_res is not None:
        left = None if active is None else active.reshape(active.shape[0], -1).any(axis=1).reshape(reduce_res.shape)
        reduce_res.write(rows.reshape(reduce_res.shape), left)


def activation_reduce(op: Any, data: Any, *, reduce_op: Any, reduce_res: Any, bias: Any = None, scale: Any = 1.0,
                      mask: Any = None, dtype: Any = None, **_: Any) -> Any:
    return activation(op, data, bias=bias, scale=scale, reduce_op=reduce_op, reduce_res=reduce_res,
                      reduce_cmd=SimpleNamespace(name="reset_reduce"), mask=mask, dtype=dtype)


# -- 7.4: selection ----------------------------------------------------------------------------------------------------
def select_reduce(*, dst: Any, predicate: Any, on_true: Any, on_false: Any, reduce_res: Any = None,
                  reduce_cmd: Any = None, reduce_op: Any = np.amax, reverse_pred: bool = False, mask: Any = None,
                  dtype: Any = None, **_: Any) -> None:
    """Write on_true to dst where the predicate is not zero, else on_false; registers take the maximum of each row."""
    active, (flags, a, b), _shape = operands((predicate, on_true, beside(dst, on_false)), mask, dst.shape)
    chosen = (flags.values != 0) ^ bool(reverse_pred)
    values = np.where(chosen, widened(a.values), widened(b.values))
    rows = accumulate("vector", reduce_cmd, operator(reduce_op), -np.inf, values, active)
    dst.write(values, active)
    write_rows(reduce_res, rows, active)


def range_select(*, on_true_tile: Any, comp_op0: Any, comp_op1: Any, bound0: Any, bound1: Any, reduce_cmd: Any = None,
                 reduce_res: Any = None, reduce_op: Any = np.amax, range_start: int = 0,
                 on_false_value: Any = None, mask: Any = None, dtype: Any = None, **_: Any) -> Any:
    """Return x where its position in the row is within both bounds, else the least float32; registers take the maximum
    of each row."""
    active, (a, low, high), shape = operands((on_true_tile, bound0, bound1), mask, on_true_tile.shape)
    column = np.float32(range_start) + np.arange(prod(shape[1:]), dtype=np.float32).reshape(1, *shape[1:])
    within = [step(op, Operand(column, FLOAT32), bound) != 0 for op, bound in ((comp_op0, low), (comp_op1, high))]
    values = np.where(within[0] & within[1], widened(a.values), np.finfo(np.float32).min)
    rows = accumulate("vector", reduce_cmd, operator(reduce_op), -np.inf, values, active)
    write_rows(reduce_res, rows, active)
    return result(values, on_true_tile.dtype, active, dtype)


# -- 7.5: the GpSimd engine --------------------------------------------------------------------------------------------
def iota(expr: Any, dtype: Any, *, mask: Any = None, **_: Any) -> Any:
    """Return the values of an index expression, int32 and then converted."""
    values = np.asarray(expr, np.int64)
    values = values if values.ndim >= 2 else values.reshape(-1, 1)
    return result(values, dtype_of(dtype), active_of(values.shape, mask))


def affine_select(pred: Any, on_true_tile: Any, on_false_value: Any, *, mask: Any = None, dtype: Any = None,
                  **_: Any) -> Any:
    """Return x where a condition on positions holds, else a value."""
    active, (a,), shape = operands((on_true_tile,), mask)
    values = np.where(np.broadcast_to(pred, shape), widened(a.values), np.float32(on_false_value))
    return result(values, a.dtype, active, dtype)



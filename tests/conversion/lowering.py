# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run one operation in two ways: by its class's reference, and in its linalg form in the interpreter."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context, write_op
from nki_mlir.dialects.op import Op
from nki_mlir.passes.levels import Level, check_level
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.scalar.dtypes import DType, dtype_of
from nki_mlir.targets.interpreter.execute import compile_op
from nki_mlir.targets.interpreter.module import compile_function


def buffers_of(op: Op) -> list[np.ndarray]:
    """The distinct arrays behind an operation's tiles."""
    buffers: list[np.ndarray] = []
    for _, tile in op.operands():
        if not any(tile.handle is array for array in buffers):
            buffers.append(tile.handle)
    return buffers


def run_reference(op: Op, values: Sequence[int]) -> list[np.ndarray]:
    """The buffers after the operation."""
    before = buffers_of(op)
    after = [array.copy() for array in before]
    index = {id(array): k for k, array in enumerate(before)}
    compile_op(op)([after[index[id(t.handle)]] for _, t in op.operands()], values)
    return after


def module_of(op: Op) -> Any:
    """A function whose arguments are the operation's buffers and symbols."""
    before = buffers_of(op)
    spaces = {id(t.handle): (t.space, t.base_dtype) for _, t in op.operands()}
    with shared_context(), ir.Location.unknown():
        make = Attributes()
        kinds = [make.memref(a.shape, spaces[id(a)][1], spaces[id(a)][0]) for a in before]
        arguments = [f"%b{k}: {kind}" for k, kind in enumerate(kinds)]
        arguments += [f"%s{k}: index {{nki.program_id = {k} : i64}}" for k in range(len(op.symbols))]
        grid = ", ".join(str(high + 1) for _, high in op.ranges)
        signature = f"func.func @f({', '.join(arguments)}) attributes {{nki.grid = [{grid}]}}"
        module = ir.Module.parse(f"{signature} {{ return }}")
        block = module.body.operations[0].operation.regions[0].blocks[0]
        block_arguments = list(block.arguments)
        index = {id(array): k for k, array in enumerate(before)}
        written = type(op)(mask=op.mask, limits=op.limits, symbols=tuple(block_arguments[len(before):]),
                           ranges=op.ranges, extra=op.extra, **op.attribute_values(),
                           **{f.name: _on(t, block_arguments[index[id(t.handle)]]) for f, t in op.operands()})
        write_op(written, make, ir.Location.file("kernel.py", 3, 7), ir.InsertionPoint.at_block_begin(block))
    return module


def _on(tile: Any, value: Any) -> Any:
    return type(tile)(value, tile.space, tile.base_shape, tile.base_dtype, tile.access, tile.label)


def lower(op: Op) -> Any:
    """The module after both conversions, verified."""
    module = module_of(op)
    assert module.operation.verify()
    check_level(module, Level.NKI, "before")
    run_passes(module, [pass_named("nki-to-linalg"), pass_named("nisa-to-linalg")])
    assert module.operation.verify()
    return module


def run_module(module: Any, op: Op, values: Sequence[int]) -> list[np.ndarray]:
    after = [array.copy() for array in buffers_of(op)]
    compile_function(the_kernel(module))(values, after, [])
    return after


def equal(a: np.ndarray, b: np.ndarray, dtype: DType, bound: float = 0.0, signed_zero: bool = True,
          of_float32: bool = False) -> bool:
    """The same bytes, read as ``dtype``, NaN equal to NaN. With a ``bound``, relative to the largest value, a float32
    may differ by it, and what is rounded to another dtype by one step of that; integers ``of_float32``, which have no
    odd neighbors from 2^24 on, by one step of float32.
    """
    if a.tobytes() == b.tobytes():
        return True
    left, right = (np.ndarray(x.nbytes // dtype.itemsize, dtype.numpy, x) for x in (a, b))
    if not dtype.is_float:
        step = np.maximum(1, np.spacing(np.abs(left.astype(np.float32)))) if of_float32 else 1
        return bool(bound) and bool(np.all(np.abs(left.astype(np.float64) - right.astype(np.float64)) <= step))
    bound = bound and max(bound, 2.0 ** -dtype.mantissa)
    left, right = left.astype(np.float64), right.astype(np.float64)
    if signed_zero and not np.array_equal(np.signbit(left[left == 0]), np.signbit(right[left == 0])):
        return False
    if bound:
        scale = np.abs(left[np.isfinite(left)]).max(initial=1.0)
        with np.errstate(all="ignore"):
            # In another order a sum may overflow.
            huge = (np.abs(left) >= 1e38) & (np.abs(right) >= 1e38)
            near = huge | (left == right) | (np.abs(left - right) <= bound * scale) | (np.isnan(left) & np.isnan(right))
        return bool(near.all())
    return np.array_equal(left, right, equal_nan=True)


def dtype_at(op: Op, array: np.ndarray) -> DType:
    """The element type an operation writes into a buffer."""
    return next((t.dtype for _, t in op.targets() if t.handle is array), dtype_of(array.dtype))

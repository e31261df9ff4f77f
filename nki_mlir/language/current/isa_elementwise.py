# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise instructions of the Vector, Scalar and GpSimd engines."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from nki_mlir.dialects.nisa import elementwise, movement
from nki_mlir.dialects.nisa.random import DropoutOp
from nki_mlir.language import creation, functions
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import emit
from nki_mlir.language.current import enums as e
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.calls import reported
from nki_mlir.language.current.errors import device, invalid, older, require
from nki_mlir.language.current.instruction import alu, instruction
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, MICROSCALING, UINT8, UINT16, UINT32


def unary_operand(op: str, name: str, operand: object, label: str) -> object:
    """The operand of an operator of one input, which must be nothing."""
    if ALU[name].arity != 1:
        if operand is None:
            invalid(f"{op} {label} is missing for {name}")
        return operand
    require(operand is None or (not isinstance(operand, NkiTensor) and operand == 0),
            f"{op} {label} of the operator {name}, which has one input, must be None or 0")
    return 0.0


def check_operand(op: str, name: str, operand: object, label: str) -> None:
    """A tile of numbers for an arithmetic operator is float32; bits and integers are as they are."""
    kind = operand.dtype if isinstance(operand, NkiTensor) else FLOAT32
    device(not kind.is_float or kind.itemsize == 4, f"{op} {label} must be float32 for {name}, it is {kind}")


@instruction
def tensor_tensor(dst: NkiTensor, data1: NkiTensor, data2: NkiTensor, op: object, engine: e.engine) -> None:
    """dst = data1 (op) data2."""
    token = alu(op, "tensor_tensor op")
    if not ALU[token].floats:
        sizes = {low.is_tensor(t, "tensor_tensor", n).itemsize for n, t in (("dst", dst), ("data1", data1),
                                                                            ("data2", data2))}
        require(len(sizes) == 1, f"tensor_tensor with {token} takes operands of one width, got {dst.dtype}, "
                                 f"{data1.dtype} and {data2.dtype}")
    with low.writing(dst, "tensor_tensor") as out:
        target, left, right = low.paired("tensor_tensor", dst=out, data1=data1, data2=data2)
        emit(elementwise.TensorTensorOp, {"dst": target, **ops.of_one_kind(token, left, right)}, op=token,
             engine=e.engine_name(engine))


@instruction
def tensor_scalar(dst: NkiTensor, data: NkiTensor, op0: object, operand0: object, reverse0: object, op1: object,
                  operand1: object, reverse1: object, engine: e.engine) -> None:
    """dst = (data op0 operand0) op1 operand1; an operand is a number or a [P, 1] tile."""
    op = "tensor_scalar"
    require(op1 is not None or operand1 is None, f"{op} operand1 is given without op1")
    first, second = alu(op0, f"{op} op0"), "bypass" if op1 is None else alu(op1, f"{op} op1")
    check_operand(op, first, operand0, "operand0")
    check_operand(op, second, operand1, "operand1")
    operand0 = unary_operand(op, first, operand0, "operand0")
    operand1 = 0.0 if op1 is None else unary_operand(op, second, operand1, "operand1")
    with low.writing(dst, op) as out:
        target, source = low.paired(op, dst=out, data=data)
        tile0, imm0 = low.number_and_tile(op, "operand0", operand0, source)
        tile1, imm1 = low.number_and_tile(op, "operand1", operand1, source)
        emit(elementwise.TensorScalarOp, {"dst": target, "src": source, "operand0": tile0, "operand1": tile1},
             op0=first, imm0=imm0, reverse0=bool(reverse0), op1=second, imm1=imm1, reverse1=bool(reverse1),
             engine=e.engine_name(engine))


@instruction
def scalar_tensor_tensor(dst: NkiTensor, data: NkiTensor, op0: object, operand0: object, op1: object, operand1: object,
                         reverse0: object, reverse1: object, *, dtype: object = None) -> None:
    """dst = (data op0 operand0) op1 operand1; operand0 is a number or a [P, 1] tile, operand1 a tile."""
    op = "scalar_tensor_tensor"
    first, second = alu(op0, f"{op} op0"), alu(op1, f"{op} op1")
    require(ALU[first].floats and ALU[second].floats, f"{op} has no {first} with {second}")
    operand0 = unary_operand(op, first, operand0, "operand0")
    with rounded(dst, op, dtype) as given, low.writing(given, op) as out:
        target, source, right = low.paired(op, dst=out, data=data, operand1=operand1)
        tile, number = low.number_and_tile(op, "operand0", operand0, source)
        emit(elementwise.ScalarTensorTensorOp, {"dst": target, "src": source, "operand0": tile, "rhs": right},
             op0=first, op1=second, imm0=number, reverse0=bool(reverse0), reverse1=bool(reverse1))


@instruction
def tensor_copy(dst: NkiTensor, src: NkiTensor, engine: "e.engine", *, dtype: object = None) -> None:
    """dst = src on chip; with ``dtype``, of release 0.2, rounded to that first."""
    low.is_tensor(src, "tensor_copy", "src")
    with rounded(dst, "tensor_copy", dtype) as out:
        low.copy_on_chip(out, src, engine=e.engine_name(engine))


@contextmanager
def rounded(dst: NkiTensor, op: str, dtype: Any) -> Iterator[NkiTensor]:
    """The destination; where another dtype is asked for, a tile of that dtype which is copied to it at the end."""
    if dtype is None or dtype is low.is_tensor(dst, op, "dst").dtype:
        yield dst
        return
    made = low.allocate(dst.shape if dst.indirection is None else low.moved_shape(dst), dtype)
    yield made
    low.copy_on_chip(dst, made)


@reported
def tensor_copy_dynamic_src(dst: object, src: object, engine: object, name: object) -> object:
    """Of older releases: ``tensor_copy`` of a view with ``scalar_offset``."""
    older("nisa.tensor_copy_dynamic_src(dst, src) is now nisa.tensor_copy(dst, src.ap(..., scalar_offset=...))")
    return tensor_copy(dst, src, engine, name=name)


@reported
def tensor_copy_dynamic_dst(dst: object, src: object, engine: object, name: object) -> object:
    """Of older releases: ``tensor_copy`` to a view with ``scalar_offset``."""
    older("nisa.tensor_copy_dynamic_dst(dst, src) is now nisa.tensor_copy(dst.ap(..., scalar_offset=...), src)")
    return tensor_copy(dst, src, engine, name=name)


@instruction
def tensor_copy_predicated(dst: NkiTensor, src: float | NkiTensor, predicate: NkiTensor, reverse_pred: object) -> None:
    """dst = src where predicate is not 0 (with ``reverse_pred``: is 0); src is a tile or a number."""
    op = "tensor_copy_predicated"
    require(isinstance(predicate, NkiTensor) and predicate.dtype in (UINT8, UINT16, UINT32),
            f"{op} predicate must be uint8, uint16 or uint32")
    with low.writing(dst, op, reads=True) as out:
        if isinstance(src, NkiTensor):
            require(src.dtype is out.dtype, f"{op} src is {src.dtype}, dst is {out.dtype}; they must be equal")
            target, source, chosen = low.paired(op, dst=out, src=src, predicate=predicate)
        else:
            target, chosen = low.paired(op, dst=out, predicate=predicate)
            row = low.allocate((target.shape[0], 1), out.dtype)
            creation.memset(low.core_view(row), float(src))
            source = low.scalar(op, "src", row, target)
        emit(elementwise.TensorCopyPredicatedOp, {"dst": target, "src": source, "predicate": chosen},
             reverse_pred=bool(reverse_pred))


@instruction
def memset(dst: NkiTensor, value: float, engine: e.engine) -> None:
    """dst = value, which an integer tile rounds to the nearest even integer."""
    target = low.is_tensor(dst, "memset", "dst")
    if target.dtype in MICROSCALING and target.dtype.is_integer:
        require(value == 0, f"memset of {target.dtype} takes only 0, got {value}")
    if target.dtype.is_integer and isinstance(value, (float, np.floating)):
        require(np.isfinite(value), f"memset of {target.dtype} takes a finite number, got {value!r}")
        older(f"memset of {target.dtype} takes an integer, got {value!r}")
    with low.writing(dst, "memset") as out:
        view, = low.paired("memset", dst=out)
        emit(movement.MemsetOp, {"dst": view}, value=float(value), engine=e.engine_name(engine))


@instruction
def dropout(dst: NkiTensor, data: NkiTensor, prob: float | NkiTensor) -> None:
    """dst = data, set to zero with probability ``prob``; nothing is rescaled."""
    require(isinstance(prob, NkiTensor) or 0 <= prob <= 1, f"dropout prob {prob} is no probability")
    with low.writing(dst, "dropout") as out:
        target, source = low.paired("dropout", dst=out, data=data)
        require(target.dtype is source.dtype,
                f"dropout dst is {target.dtype}, data is {source.dtype}; they must be equal")
        tile, number = low.number_and_tile("dropout", "prob", prob, source)
        emit(DropoutOp, {"dst": target, "state": functions.generator_state(), "src": source, "prob": tile}, imm=number)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise instructions of the Vector, Scalar and GpSimd engines."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from nki_mlir.frontend.tensor import View
from nki_mlir.language import creation
from nki_mlir.language import instructions as core
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import emit
from nki_mlir.language.current import assignment
from nki_mlir.language.current import enums as e
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.calls import reported
from nki_mlir.language.current.errors import device, invalid, older, require
from nki_mlir.language.current.instruction import activation_name, alu, generation_from, instruction
from nki_mlir.language.current.regions import machine
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, MICROSCALING, TFLOAT32, UINT8, UINT16, UINT32

MAGNITUDE = ("abs_max", "abs_min")


def check_gates(op: str, *names: str) -> None:
    """Operators that only the newest engines have."""
    if any(n in MAGNITUDE for n in names):
        generation_from(4, f"{op} with abs_max or abs_min")


def unary_operand(op: str, name: str, operand: Any, label: str) -> Any:
    """The operand of an operator of one input, which must be nothing."""
    if ALU[name].arity != 1:
        if operand is None:
            invalid(f"{op} {label} is missing for {name}")
        return operand
    require(operand is None or (not isinstance(operand, NkiTensor) and operand == 0),
            f"{op} {label} of the operator {name}, which has one input, must be None or 0")
    return 0.0


SCALAR_FORMS = (("multiply", "add"), ("multiply", None), ("add", None))         # of the Scalar engine before gen4
GPSIMD_OPS = ("add", "multiply", "subtract", "power", "rsqrt", None)


def check_engine(op: str, engine: str, first: str, second: str | None) -> None:
    """The operators that an engine has besides the Vector engine's, which are all."""
    if engine == "scalar":
        generation_from(3, f"{op} on the Scalar engine")
        device(machine().generation > 3 or (first, second) in SCALAR_FORMS,
               f"{op} on the Scalar engine is multiply and add, multiply, or add; not {first} and {second}")
    if engine == "gpsimd":
        missing = [n for n in (first, second) if n not in GPSIMD_OPS]
        device(not missing, f"{op} on the GpSimd engine has no operator {', '.join(map(str, missing))}")


def check_operand(op: str, name: str, operand: Any, label: str) -> None:
    """A tile of numbers for an arithmetic operator is float32; bits and integers are as they are."""
    kind = operand.dtype if isinstance(operand, NkiTensor) else FLOAT32
    device(not kind.is_float or kind.itemsize == 4, f"{op} {label} must be float32 for {name}, it is {kind}")


@instruction
def tensor_tensor(dst, data1, data2, op, engine) -> None:
    """dst = data1 (op) data2."""
    token = alu(op, "tensor_tensor op")
    check_gates("tensor_tensor", token)
    if token == "power":
        low.in_sbuf("tensor_tensor with power", dst=dst, data1=data1, data2=data2)
    if not ALU[token].floats:
        sizes = {low.is_tensor(t, "tensor_tensor", n).itemsize for n, t in (("dst", dst), ("data1", data1),
                                                                            ("data2", data2))}
        require(len(sizes) == 1, f"tensor_tensor with {token} takes operands of one width, got {dst.dtype}, "
                                 f"{data1.dtype} and {data2.dtype}")
    with low.writing(dst, "tensor_tensor") as out:
        target, left, right = low.paired("tensor_tensor", dst=out, data1=data1, data2=data2)
        core.tensor_tensor(left, right, token, dst=target, engine=e.engine_name(engine))


@instruction
def tensor_scalar(dst, data, op0, operand0, reverse0, op1, operand1, reverse1, engine) -> None:
    """dst = (data op0 operand0) op1 operand1; an operand is a number or a [P, 1] tile."""
    first = alu(op0, "tensor_scalar op0")
    second = None if op1 is None else alu(op1, "tensor_scalar op1")
    require(op1 is not None or operand1 is None, "tensor_scalar operand1 is given without op1")
    check_gates("tensor_scalar", first, second or "")
    if "power" in (first, second):
        low.in_sbuf("tensor_scalar with power", dst=dst, data=data)
    check_engine("tensor_scalar", e.engine_name(engine), first, second)
    check_operand("tensor_scalar", first, operand0, "operand0")
    check_operand("tensor_scalar", second or "", operand1, "operand1")
    if first in ("square", "relu"):
        generation_from(4, f"tensor_scalar with {first}")
    operand0 = unary_operand("tensor_scalar", first, operand0, "operand0")
    operand1 = None if second is None else unary_operand("tensor_scalar", second, operand1, "operand1")
    with low.writing(dst, "tensor_scalar") as out:
        target, source = low.paired("tensor_scalar", dst=out, data=data)
        core.tensor_scalar(source, first, low.scalar("tensor_scalar", "operand0", operand0, source), reverse0, second,
                           low.scalar("tensor_scalar", "operand1", operand1, source), reverse1, dst=target,
                           engine=e.engine_name(engine))


@instruction
def scalar_tensor_tensor(dst, data, op0, operand0, op1, operand1, reverse0, reverse1, *, dtype=None) -> None:
    """dst = (data op0 operand0) op1 operand1; operand0 is a number or a [P, 1] tile, operand1 a tile."""
    first, second = alu(op0, "scalar_tensor_tensor op0"), alu(op1, "scalar_tensor_tensor op1")
    check_gates("scalar_tensor_tensor", first, second)
    require(ALU[first].floats and ALU[second].floats, f"scalar_tensor_tensor has no {first} with {second}")
    operand0 = unary_operand("scalar_tensor_tensor", first, operand0, "operand0")
    with rounded(dst, "scalar_tensor_tensor", dtype) as given, low.writing(given, "scalar_tensor_tensor") as out:
        target, source, right = low.paired("scalar_tensor_tensor", dst=out, data=data, operand1=operand1)
        left = low.scalar("scalar_tensor_tensor", "operand0", operand0, source)
        core.scalar_tensor_tensor(source, first, left, second, right, reverse0, reverse1, dst=target)


def bias_and_scale(op: str, fn: str, bias: Any, scale: Any, beside: View) -> tuple[Any, Any]:
    """Bias as a float tile of the right rank or None, scale as a number or a tile."""
    if fn == "reciprocal" and bias is not None:
        generation_from(3, f"{op} of reciprocal with a bias")
    scale = low.scalar(op, "scale", scale, beside)
    if bias is None or (not isinstance(bias, NkiTensor) and float(bias) == 0):
        return None, scale
    if not isinstance(bias, NkiTensor):
        generation_from(3, f"{op} with a bias that is a number")
        made = low.allocate((beside.shape[0], 1), FLOAT32)
        creation.memset(low.core_view(made), float(bias))
        bias = made
    require(bias.dtype is not TFLOAT32, f"{op} bias cannot be tfloat32")
    if not bias.dtype.is_float or bias.itemsize == 1:
        made = low.allocate((bias.shape[0], 1), FLOAT32)
        assignment.copy_on_chip(made, bias)
        bias = made
    return low.scalar(op, "bias", bias, beside), scale


@instruction
def activation(dst, op, data, bias, scale, reduce_op, reduce_res, reduce_cmd) -> None:
    """dst = op(data * scale + bias); the registers follow ``reduce_cmd`` and are read into ``reduce_res``."""
    from nki_mlir.language.current.isa_accumulate import accumulate_activation, command_of
    fn = activation_name(op, "activation op")
    require(fn != "prelu", "activation op prelu is for nisa.activate2")
    command = command_of("activation", reduce_cmd)
    plain = command is e.reduce_cmd.idle and reduce_res is None
    with low.writing(dst, "activation", scratch=not plain) as out:
        target, source = low.paired("activation", dst=out, data=data)
        tiles = bias_and_scale("activation", fn, bias, scale, source)
        if plain:
            core.activation(fn, source, bias=tiles[0], scale=tiles[1], dst=target)
        else:
            accumulate_activation(target, source, fn, tiles, reduce_op, reduce_res, command)


@instruction
def activation_reduce(dst, op, data, reduce_op, reduce_res, bias, scale) -> None:
    """dst = op(data * scale + bias), and its sum over the free axes into ``reduce_res``."""
    from nki_mlir.language.current.isa_accumulate import accumulate_activation
    fn = activation_name(op, "activation_reduce op")
    if alu(reduce_op, "activation_reduce reduce_op") != "add":
        generation_from(3, "activation_reduce with another operator than nl.add")
    with low.writing(dst, "activation_reduce", scratch=True) as out:
        target, source = low.paired("activation_reduce", dst=out, data=data)
        tiles = bias_and_scale("activation_reduce", fn, bias, scale, source)
        if reduce_res is None:
            accumulate_activation(target, source, fn, tiles, reduce_op, None, e.reduce_cmd.reset_reduce)
            return
        with low.writing(reduce_res, "activation_reduce", "reduce_res") as rows:
            core.activation_reduce(fn, source, reduce_op=alu(reduce_op, "activation_reduce reduce_op"), bias=tiles[0],
                                   scale=tiles[1], reduce_res=low.scalar("activation_reduce", "reduce_res", rows,
                                                                         source),
                                   dst=target)


@instruction
def reciprocal(dst, data) -> None:
    """dst = 1 / data."""
    with low.writing(dst, "reciprocal") as out:
        target, source = low.paired("reciprocal", dst=out, data=data)
        core.reciprocal(source, dst=target)


@instruction
def tensor_copy(dst, src, engine, *, dtype=None) -> None:
    """dst = src on chip; with ``dtype``, of release 0.2, rounded to that first."""
    low.is_tensor(src, "tensor_copy", "src")
    if e.engine_name(engine) == "scalar":
        generation_from(3, "tensor_copy on the Scalar engine")
    with rounded(dst, "tensor_copy", dtype) as out:
        assignment.copy_on_chip(out, src, engine=e.engine_name(engine))


@contextmanager
def rounded(dst: Any, op: str, dtype: Any) -> Iterator[Any]:
    """The destination; where another dtype is asked for, a tile of that dtype which is copied to it at the end."""
    if dtype is None or dtype is low.is_tensor(dst, op, "dst").dtype:
        yield dst
        return
    made = low.allocate(dst.shape if dst.indirection is None else low.moved_shape(dst), dtype)
    yield made
    assignment.copy_on_chip(dst, made)


@reported
def tensor_copy_dynamic_src(dst, src, engine, name) -> Any:
    """Of older releases: ``tensor_copy`` of a view with ``scalar_offset``."""
    older("nisa.tensor_copy_dynamic_src(dst, src) is now nisa.tensor_copy(dst, src.ap(..., scalar_offset=...))")
    return tensor_copy(dst, src, engine, name=name)


@reported
def tensor_copy_dynamic_dst(dst, src, engine, name) -> Any:
    """Of older releases: ``tensor_copy`` to a view with ``scalar_offset``."""
    older("nisa.tensor_copy_dynamic_dst(dst, src) is now nisa.tensor_copy(dst.ap(..., scalar_offset=...), src)")
    return tensor_copy(dst, src, engine, name=name)


@instruction
def tensor_copy_predicated(dst, src, predicate, reverse_pred) -> None:
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
        core.tensor_copy_predicated(src=source, dst=target, predicate=chosen, reverse_pred=reverse_pred)


@instruction
def memset(dst, value, engine) -> None:
    """dst = value, which an integer tile rounds to the nearest even integer."""
    from nki_mlir.dialects.nisa import movement
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
def dropout(dst, data, prob) -> None:
    """dst = data, set to zero with probability ``prob``; nothing is rescaled."""
    from nki_mlir.language import special
    require(isinstance(prob, NkiTensor) or 0 <= prob <= 1, f"dropout prob {prob} is no probability")
    with low.writing(dst, "dropout") as out:
        target, source = low.paired("dropout", dst=out, data=data)
        require(target.dtype is source.dtype,
                f"dropout dst is {target.dtype}, data is {source.dtype}; they must be equal")
        special.dropout(source, low.scalar("dropout", "prob", prob, source), dst=target)


@instruction
def tensor_tensor_scan(dst, data0, data1, initial, op0, op1, reverse0, reverse1) -> None:
    """dst[i] = op1(op0(data0[i], dst[i-1]), data1[i]) along the free axis; dst[-1] is ``initial``."""
    from nki_mlir.language import special
    op = "tensor_tensor_scan"
    with low.writing(dst, op) as out:
        target, first, second = low.paired(op, dst=out, data0=data0, data1=data1)
        special.tensor_tensor_scan(first, second, low.scalar(op, "initial", initial, first), alu(op0, f"{op} op0"),
                                   alu(op1, f"{op} op1"), reverse0, reverse1, dst=target)

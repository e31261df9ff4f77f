# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions, and instructions that run the accumulation registers of their engine."""

from typing import Any

from nki_mlir.dialects.nisa import elementwise, reduction
from nki_mlir.dialects.nisa.accumulating import ActivationAccumulateOp
from nki_mlir.dialects.nki.reduction import reduced_shape
from nki_mlir.dialects.op import Op
from nki_mlir.frontend.builder import require_generation
from nki_mlir.frontend.tensor import View
from nki_mlir.language import creation
from nki_mlir.language import instructions as core
from nki_mlir.language.creation import emit
from nki_mlir.language.current import enums as e
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.errors import invalid, require
from nki_mlir.language.current.instruction import activation_name, alu, instruction
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.scalar.dtypes import FLOAT32, TFLOAT32

COMMANDS = dict.fromkeys(("activation", "activate2"), ("idle", "reset", "reduce", "reset_reduce")) | dict.fromkeys(
    ("tensor_scalar_reduce", "tensor_scalar_cumulative"), ("reset_reduce", "reduce", "load_reduce")) | dict.fromkeys(
    ("range_select", "select_reduce"), ("idle", "reduce", "reset_reduce")) | {
    "exponential": ("idle", "reduce", "reset_reduce", "load_reduce")}


@instruction
def tensor_reduce(dst: NkiTensor, op: object, data: NkiTensor, axis: object, negate: object, keepdims: object) -> None:
    """dst = data reduced over the last free axes, times -1 with ``negate``."""
    source = low.reading(low.is_tensor(data, "tensor_reduce", "data"))
    axes = low.free_axes("tensor_reduce", source, axis)
    kept = reduced_shape(tuple(source.shape), axes)
    with low.writing(dst, "tensor_reduce", flat=True) as out:
        count = out.size // out.shape[0]
        expected = source.size // source.shape[0]
        for a in axes:
            expected //= source.shape[a]
        require(out.shape[0] == source.shape[0] and count == expected,
                f"tensor_reduce dst has shape {list(out.shape)}, which must hold {source.shape[0]} x {expected}")
        target = low.core_view(out.reshape(kept))
        emit(reduction.TensorReduceOp, {"dst": target, "src": low.core_view(source)}, axes=axes, negate=bool(negate),
             op=alu(op, "tensor_reduce op"))


@instruction
def tensor_partition_reduce(dst: NkiTensor, op: object, data: NkiTensor) -> None:
    """dst[0, ...] = data reduced over its partitions."""
    kind = "tensor_partition_reduce"
    source = low.flat_tile(kind, "data", data)
    low.in_sbuf(kind, dst=dst, data=data)
    token = alu(op, f"{kind} op")
    with low.writing(dst, kind, flat=True) as out:
        target = low.flat_view(out)
        emit(reduction.TensorPartitionReduceOp, {"dst": target, "src": source},
             op="add" if token == "average" else token)
        if token == "average":
            emit(elementwise.TensorScalarOp, {"dst": target, "src": target}, op0="multiply", imm0=1.0 / source.shape[0])


# -- registers ---------------------------------------------------------------------------------------------------------
def rows_of(op: str, reduce_res: NkiTensor) -> View:
    """A [P, 1] result."""
    require(reduce_res.size == reduce_res.shape[0], f"{op} reduce_res has shape {list(reduce_res.shape)}, not [P, 1]")
    return low.flat_tile(op, "reduce_res", reduce_res)


def accumulated(op: str, cls: type[Op], dst: View, views: dict[str, Any], engine: str, reduce_res: NkiTensor | None,
                command: str, **attributes: object) -> None:
    """Emit an instruction with the registers, and the tile that reads them where one is given."""
    views = {"dst": dst, "accumulator": core.registers(engine, dst.shape[0]), **views}
    if reduce_res is None:
        emit(cls, views, reduce_cmd=command, **attributes)
        return
    with low.writing(reduce_res, op, "reduce_res") as rows:
        emit(cls, {**views, "reduce_res": rows_of(op, rows)}, reduce_cmd=command, **attributes)


def command_of(op: str, command: e.reduce_cmd) -> str:
    """A ``reduce_cmd`` argument, which is one of those that the instruction has."""
    require(command.name in COMMANDS[op], f"{op} has no reduce_cmd {command.name}",
            fix=f"one of {', '.join(f'nisa.reduce_cmd.{c}' for c in COMMANDS[op])}")
    return str(command.name)


def loaded(op: str, command: str, init: object, partitions: int) -> str:
    """The command; ``load_reduce`` puts its value into the registers first and then is a reduce."""
    if command != "load_reduce":
        require(init is None or (not isinstance(init, NkiTensor) and init == 0),
                f"{op} has an initial value only with reduce_cmd load_reduce, not with {command}")
        return command
    held = core.registers("vector", partitions)
    if init is None:
        invalid(f"{op} with load_reduce needs reduce_init")
    core.load_registers(held, *low.number_and_tile(op, "reduce_init", init, held))
    return "reduce"


# -- activations -------------------------------------------------------------------------------------------------------
def activation_operands(op: str, fn: str, bias: Any, scale: object,
                        beside: View) -> tuple[dict[str, View | None], dict[str, float | str]]:
    """An activation's bias, made a float tile where it is none, and scale as operands; its attributes."""
    scale = low.scalar(op, "scale", scale, beside)
    if bias is not None and not isinstance(bias, NkiTensor) and float(bias) == 0:
        bias = None
    if bias is not None and not isinstance(bias, NkiTensor):
        require_generation(3, f"{op} with a bias that is a number", "give it as a tile")
        made = low.allocate((beside.shape[0], 1), FLOAT32)
        creation.memset(low.core_view(made), float(bias))
        bias = made
    if bias is not None:
        require(bias.dtype is not TFLOAT32, f"{op} bias cannot be tfloat32")
        if not bias.dtype.is_float or bias.itemsize == 1:
            made = low.allocate((bias.shape[0], 1), FLOAT32)
            low.copy_on_chip(made, bias)
            bias = made
        bias = low.scalar(op, "bias", bias, beside)
    bias, tile, number = core.activation_operands(fn, bias, scale, beside.shape[0])
    return {"bias": core.over_row(bias, beside.shape), "scale": core.over_row(tile, beside.shape)}, {
        "fn": fn, "imm": number}


@instruction
def activation(dst: NkiTensor, op: object, data: NkiTensor, bias: float | NkiTensor | None, scale: object,
               reduce_op: object, reduce_res: NkiTensor | None, reduce_cmd: e.reduce_cmd) -> None:
    """dst = op(data * scale + bias); the registers follow ``reduce_cmd`` and are read into ``reduce_res``."""
    fn = activation_name(op, "activation op")
    require(fn != "prelu", "activation op prelu is for nisa.activate2")
    command = command_of("activation", reduce_cmd)
    plain = command == "idle" and reduce_res is None
    with low.writing(dst, "activation", scratch=not plain) as out:
        target, source = low.paired("activation", dst=out, data=data)
        tiles, attributes = activation_operands("activation", fn, bias, scale, source)
        if plain:
            emit(elementwise.ActivationOp, {"dst": target, "src": source, **tiles}, **attributes)
            return
        check_sum(reduce_op)
        accumulated("activation", ActivationAccumulateOp, target, {"src": source, **tiles}, "scalar", reduce_res,
                    command, reduce_op="add", **attributes)


def check_sum(reduce_op: object) -> None:
    require(reduce_op is None or alu(reduce_op, "activation reduce_op") == "add", "activation reduces by nl.add only")


@instruction
def activation_reduce(dst: NkiTensor, op: object, data: NkiTensor, reduce_op: object, reduce_res: NkiTensor,
                      bias: object, scale: float) -> None:
    """dst = op(data * scale + bias), and its sum over the free axes into ``reduce_res``."""
    kind = "activation_reduce"
    fn, token = activation_name(op, f"{kind} op"), alu(reduce_op, f"{kind} reduce_op")
    with low.writing(dst, kind, scratch=True) as out:
        target, source = low.paired(kind, dst=out, data=data)
        tiles, attributes = activation_operands(kind, fn, bias, scale, source)
        if reduce_res is None:
            check_sum(reduce_op)
            accumulated(kind, ActivationAccumulateOp, target, {"src": source, **tiles}, "scalar", None, "reset_reduce",
                        reduce_op="add", **attributes)
            return
        with low.writing(reduce_res, kind, "reduce_res") as rows:
            result = core.rows_like(low.scalar(kind, "reduce_res", rows, source), source)
            emit(reduction.ActivationReduceOp, {"dst": target, "reduce_res": result, "src": source, **tiles},
                 reduce_op=token, **attributes)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions of the Vector, Scalar and GpSimd engines that compute: elementwise, reductions, activations.

Instructions that only emit their operation come from ``language/generated_functions.py``: ``writing`` emits them, and
``RULES`` has the checks that only this generation makes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from nki_mlir.capture.builder import active, require_generation
from nki_mlir.capture.tensor import View
from nki_mlir.dialects.nisa import elementwise, movement, reduction
from nki_mlir.dialects.nisa.accumulating import ActivationAccumulateOp
from nki_mlir.dialects.nisa.random import DropoutOp
from nki_mlir.dialects.nki.reduction import reduced_shape
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.target_rules import DtypeOfOperand
from nki_mlir.dialects.verifier import BrokenRule, ShapeMismatch, WrongAttribute, WrongDtype
from nki_mlir.language import creation, functions, generated_functions
from nki_mlir.language import instructions as core
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import emit
from nki_mlir.language.current import assignment, write_history
from nki_mlir.language.current import enums as e
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.calls import reported
from nki_mlir.language.current.errors import core_rule, device, invalid, older, require, warn
from nki_mlir.language.current.instruction import activation_name, alu, instruction
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.language.entries import INSTRUCTIONS
from nki_mlir.language.entries.entry import Regular
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, MICROSCALING, UINT8, UINT16, UINT32


def unary_operand(op: str, name: str, operand: object, label: str) -> object:
    """Check the operand of an operator and return it. For an operator of one input it must be None or 0."""
    if ALU[name].arity != 1:
        core_rule(operand is not None or label != "operand1" or op != "tensor_scalar", core.UnpairedOperand,
                  missing=label)
        if operand is None:
            invalid(f"{op} {label} is missing for {name}", fix=f"give {label}, a number or a tile")
        return operand
    require(operand is None or (not isinstance(operand, NkiTensor) and operand == 0),
            f"{op} {label} of the operator {name}, which has one input, must be None or 0", fix="leave the operand out")
    return 0.0


def check_operand(op: str, name: str, operand: object, label: str) -> None:
    """Report a floating-point operand tile that is not float32. Integer tiles are accepted unchanged."""
    kind = operand.dtype if isinstance(operand, NkiTensor) else FLOAT32
    if kind.is_float and kind.itemsize != 4:
        device(False, f"{op} {label} must be float32 for {name}, it is {kind}",
               fix="copy it to a float32 tile first, with nisa.tensor_copy", code=DtypeOfOperand.code)


@instruction
def tensor_tensor(dst: NkiTensor, data1: NkiTensor, data2: NkiTensor, op: object, engine: e.engine) -> None:
    """Set dst = data1 (op) data2."""
    token = alu(op, "tensor_tensor op")
    if not ALU[token].floats:
        sizes = {low.is_tensor(t, "tensor_tensor", n).itemsize for n, t in (("dst", dst), ("data1", data1),
                                                                            ("data2", data2))}
        require(len(sizes) == 1, f"tensor_tensor with {token} takes operands of the same width, got {dst.dtype}, "
                                 f"{data1.dtype} and {data2.dtype}",
                fix="copy the operands to one dtype first, with nisa.tensor_copy", code=DtypeOfOperand.code)
    with low.operands("tensor_tensor", dst, data1=data1, data2=data2) as (target, left, right):
        emit(elementwise.TensorTensorOp, {"dst": target, **ops.of_one_kind(token, left, right)}, op=token,
             engine=e.engine_name(engine))


@instruction
def tensor_scalar(dst: NkiTensor, data: NkiTensor, op0: object, operand0: object, reverse0: object, op1: object,
                  operand1: object, reverse1: object, engine: e.engine) -> None:
    """Set dst = (data op0 operand0) op1 operand1; an operand is a number or a [P, 1] tile."""
    op = "tensor_scalar"
    core_rule(op1 is not None or operand1 is None, core.UnpairedOperand, missing="op1")
    first, second = alu(op0, f"{op} op0"), "bypass" if op1 is None else alu(op1, f"{op} op1")
    check_operand(op, first, operand0, "operand0")
    check_operand(op, second, operand1, "operand1")
    operand0 = unary_operand(op, first, operand0, "operand0")
    operand1 = 0.0 if op1 is None else unary_operand(op, second, operand1, "operand1")
    with low.operands(op, dst, data=data) as (target, source):
        tile0, imm0 = low.number_and_tile(op, "operand0", operand0, source)
        tile1, imm1 = low.number_and_tile(op, "operand1", operand1, source)
        emit(elementwise.TensorScalarOp, {"dst": target, "src": source, "operand0": tile0, "operand1": tile1},
             op0=first, imm0=imm0, reverse0=bool(reverse0), op1=second, imm1=imm1, reverse1=bool(reverse1),
             engine=e.engine_name(engine))


@instruction
def scalar_tensor_tensor(dst: NkiTensor, data: NkiTensor, op0: object, operand0: object, op1: object, operand1: object,
                         reverse0: object, reverse1: object, *, dtype: object = None) -> None:
    """Set dst = (data op0 operand0) op1 operand1; operand0 is a number or a [P, 1] tile, operand1 a tile."""
    op = "scalar_tensor_tensor"
    first, second = alu(op0, f"{op} op0"), alu(op1, f"{op} op1")
    core_rule(ALU[first].floats and ALU[second].floats, BrokenRule, op=op, fix="compute with two instructions",
              what=f"op0 and op1 must both be arithmetic, got {first} and {second}")
    operand0 = unary_operand(op, first, operand0, "operand0")
    with rounded(dst, op, dtype) as out, low.operands(op, out, data=data, operand1=operand1) as (target, source, right):
        tile, number = low.number_and_tile(op, "operand0", operand0, source)
        emit(elementwise.ScalarTensorTensorOp, {"dst": target, "src": source, "operand0": tile, "rhs": right},
             op0=first, op1=second, imm0=number, reverse0=bool(reverse0), reverse1=bool(reverse1))


@instruction
def tensor_copy(dst: NkiTensor, src: NkiTensor, engine: "e.engine", *, dtype: object = None) -> None:
    """Set dst = src on chip. With ``dtype`` (of release 0.2) src is rounded to that dtype first."""
    for label, tensor in (("dst", dst), ("src", src)):
        low.is_tensor(tensor, "tensor_copy", label)
    with rounded(dst, "tensor_copy", dtype) as out:
        if not assignment.copied_at_once(out, src, e.engine_name(engine)):
            low.copy_on_chip(out, src, engine=e.engine_name(engine))


@contextmanager
def rounded(dst: NkiTensor, op: str, dtype: Any) -> Iterator[NkiTensor]:
    """Yield the destination, or if ``dtype`` is another dtype a tile of it, copied to the destination at the end."""
    if dtype is None or dtype is low.is_tensor(dst, op, "dst").dtype:
        yield dst
        return
    tile = low.allocate(dst.shape if dst.indirection is None else low.moved_shape(dst), dtype)
    yield tile
    low.copy_on_chip(dst, tile)


@reported
def tensor_copy_dynamic_src(dst: object, src: object, engine: object, name: object) -> object:
    """Copy a view with ``scalar_offset``: the form of older releases for ``tensor_copy``."""
    older("nisa.tensor_copy_dynamic_src(dst, src) is now nisa.tensor_copy(dst, src.ap(..., scalar_offset=...))")
    return tensor_copy(dst, src, engine, name=name)


@reported
def tensor_copy_dynamic_dst(dst: object, src: object, engine: object, name: object) -> object:
    """Copy to a view with ``scalar_offset``: the form of older releases for ``tensor_copy``."""
    older("nisa.tensor_copy_dynamic_dst(dst, src) is now nisa.tensor_copy(dst.ap(..., scalar_offset=...), src)")
    return tensor_copy(dst, src, engine, name=name)


@instruction
def tensor_copy_predicated(dst: NkiTensor, src: float | NkiTensor, predicate: NkiTensor, reverse_pred: object) -> None:
    """Set dst = src where predicate is not 0 (with ``reverse_pred``: is 0); src is a tile or a number."""
    op = "tensor_copy_predicated"
    dtype = low.is_tensor(predicate, op, "predicate").dtype
    if dtype not in (UINT8, UINT16, UINT32):         # other documents do not mention signed integers
        core_rule(False, DtypeOfOperand, op=op, operand="predicate", found=dtype, expected="uint8, uint16, uint32")
    with low.writing(dst, op, reads=True) as out:
        if isinstance(src, NkiTensor):
            low.one_dtype(op, "dst", dst=out, src=src)
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
    """Set dst = value. For an integer tile the value is rounded to the nearest integer, ties to even."""
    target = low.is_tensor(dst, "memset", "dst")
    if target.dtype in MICROSCALING and target.dtype.is_integer:
        require(value == 0, f"memset of {target.dtype} takes only 0, got {value}",
                fix="fill an integer tile of zeros, or a tile of another dtype and copy it")
    if target.dtype.is_integer and isinstance(value, (float, np.floating)):
        require(np.isfinite(value), f"memset of {target.dtype} takes a finite number, got {value!r}",
                fix="give a finite number")
        text = f"memset of {target.dtype} takes an integer, got {value!r}"
        if (filled := int(np.rint(value))) != value:
            warn(f"{text}, which becomes {filled}")
        else:
            older(text)
    with low.operands("memset", dst) as (view,):
        emit(movement.MemsetOp, {"dst": view}, value=creation.fill_value(value, target.dtype),
             engine=e.engine_name(engine))
    if value == 0 and not target.is_indirect():
        write_history.note_writer(low.core_view(target), write_history.ZERO)


@instruction
def dropout(dst: NkiTensor, data: NkiTensor, prob: float | NkiTensor) -> None:
    """Set dst = data, with each element set to zero with probability ``prob``. The others are not rescaled."""
    low.one_dtype("dropout", "data", dst=dst, data=data)
    with low.operands("dropout", dst, data=data) as (target, source):
        tile, number = low.number_and_tile("dropout", "prob", prob, source)
        emit(DropoutOp, {"dst": target, "state": functions.generator_state(), "src": source, "prob": tile}, imm=number)


# -- reductions --------------------------------------------------------------------------------------------------------
FREE_AXES = range(1, 5)         # the axes that release 2.28 has names for


def counted_axes(dst: NkiTensor, source: NkiTensor, axis: object) -> tuple[int, ...]:
    """Return the axes by the rule of release 2.28: if ``axis`` names n axes, they are the last n. Return () if it does
    not apply.

    The rule applies to axes that later releases refuse, if the size of the destination matches.
    """
    if source.ndim < 3:
        return ()
    axis_list: list[Any] = list(axis) if isinstance(axis, (tuple, list)) else [axis]
    if not axis_list or not all(type(a) is int and a in FREE_AXES for a in axis_list) or (
            len(set(axis_list)) < len(axis_list)):
        return ()
    axes = tuple(range(source.ndim - len(axis_list), source.ndim))
    kept_elements = low.is_tensor(dst, "tensor_reduce", "dst").size == prod(source.shape[:axes[0]])
    if axes[0] < 1 or not kept_elements or axes == tuple(sorted(axis_list)):
        return ()
    warn(f"tensor_reduce axis {axis} of a tensor of {source.ndim} dimensions reduces the last {len(axes)}, axes "
         f"{[*axes]}, as in release 2.28; later releases refuse it")
    return axes


@instruction
def tensor_reduce(dst: NkiTensor, op: object, data: NkiTensor, axis: object, negate: object, keepdims: object) -> None:
    """Set dst = data reduced over the last free axes, times -1 with ``negate``."""
    source = low.reading(low.is_tensor(data, "tensor_reduce", "data"))
    axes = counted_axes(dst, source, axis) or low.free_axes("tensor_reduce", source, axis)
    reduced = reduced_shape(tuple(source.shape), axes)
    with low.writing(dst, "tensor_reduce", flat=tuple(getattr(dst, "shape", ())) != reduced) as out:
        if out.shape[0] != reduced[0] or out.size != prod(reduced):
            size = f"{reduced[0]} x {prod(reduced[1:])}"
            core_rule(False, ShapeMismatch, fix=f"create it with shape {reduced}",
                      what=f"tensor_reduce dst has shape {list(out.shape)}, which must hold {size}")
        target = low.core_view(out if tuple(out.shape) == reduced else out.reshape(reduced))
        emit(reduction.TensorReduceOp, {"dst": target, "src": low.core_view(source)}, axes=axes, negate=bool(negate),
             op=alu(op, "tensor_reduce op"))


@instruction
def tensor_partition_reduce(dst: NkiTensor, op: object, data: NkiTensor) -> None:
    """Set dst[0, ...] = data reduced over its partitions."""
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


# -- accumulation registers --------------------------------------------------------------------------------------------
def accumulated(op: str, cls: type[Op], dst: View, views: dict[str, Any], engine: str, reduce_res: NkiTensor | None,
                command: str, **attributes: object) -> None:
    """Emit an instruction that accumulates in the engine's registers and writes them to ``reduce_res``, if given."""
    core.note_registers(engine, command, reduce_res)
    views = {"dst": dst, "accumulator": core.registers(engine, dst.shape[0]), **views}
    if reduce_res is None:
        emit(cls, views, reduce_cmd=command, **attributes)
        return
    with low.writing(reduce_res, op, "reduce_res") as rows:
        emit(cls, {**views, "reduce_res": low.flat_tile(op, "reduce_res", rows)}, reduce_cmd=command, **attributes)


def command_of(op: str, command: e.reduce_cmd) -> str:
    """Return the name of a ``reduce_cmd`` argument. Check that the instruction's entry lists it; if the entry lists no
    commands, the operation checks it."""
    name, commands = str(command.name), INSTRUCTIONS[op].commands if op in INSTRUCTIONS else ()
    core_rule(not commands or name in commands, WrongAttribute, attribute="reduce_cmd", op=op, found=repr(name),
              expected=f"one of {', '.join(commands)}")
    return name


def loaded(op: str, command: str, init: object, partitions: int) -> str:
    """Return the command to emit. ``load_reduce`` becomes a load of ``init`` into the registers and ``reduce``."""
    if command != "load_reduce":
        require(init is None or (not isinstance(init, NkiTensor) and init == 0),
                f"{op} has an initial value only with reduce_cmd load_reduce, not with {command}",
                fix="leave reduce_init out, or use nisa.reduce_cmd.load_reduce")
        return command
    accumulators = core.registers("vector", partitions)
    if init is None:
        invalid(f"{op} with load_reduce needs reduce_init", fix="give reduce_init, a number or a tile of shape (P, 1)")
    core.load_registers(accumulators, *low.number_and_tile(op, "reduce_init", init, accumulators))
    return "reduce"


# -- activations -------------------------------------------------------------------------------------------------------
def activation_operands(op: str, fn: str, bias: Any, scale: object,
                        data: View) -> tuple[dict[str, View | None], dict[str, float | str]]:
    """Return the tile operands and the attributes of an activation for a bias and scale. A nonzero number as bias
    becomes a float tile."""
    scale = low.scalar(op, "scale", scale, data, core.ScaleShape)
    if bias is not None and not isinstance(bias, NkiTensor) and float(bias) == 0:
        bias = None
    if bias is not None and not isinstance(bias, NkiTensor):
        require_generation(3, f"{op} with a bias that is a number", "give it as a tile")
        tile = low.allocate((data.shape[0], 1), FLOAT32)
        creation.memset(low.core_view(tile), float(bias))
        bias = tile
    if bias is not None:
        if not bias.dtype.is_float or bias.itemsize == 1:
            bias = low.copied(bias, FLOAT32)
        bias = low.scalar(op, "bias", bias, data)
    tiles, number = core.activation_operands(fn, bias, scale, data.shape)
    return tiles, {"fn": fn, "imm": number}


@instruction
def activation(dst: NkiTensor, op: object, data: NkiTensor, bias: float | NkiTensor | None, scale: object,
               reduce_op: object, reduce_res: NkiTensor | None, reduce_cmd: e.reduce_cmd) -> None:
    """Set dst = op(data * scale + bias). ``reduce_cmd`` can add up rows in registers, which reduce_res receives."""
    fn = activation_name(op, "activation op")
    require(fn != "prelu", "activation op prelu is for nisa.activate2", fix="use nisa.activate2, or nl.relu",
            code="NKI-OPERATOR")
    command = command_of("activation", reduce_cmd)
    plain = command == "idle" and reduce_res is None
    with low.operands("activation", dst, data=data, scratch=not plain) as (target, source):
        tiles, attributes = activation_operands("activation", fn, bias, scale, source)
        if plain:
            emit(elementwise.ActivationOp, {"dst": target, "src": source, **tiles}, **attributes)
            return
        accumulated("activation", ActivationAccumulateOp, target, {"src": source, **tiles}, "scalar", reduce_res,
                    command, reduce_op=summing(reduce_op), **attributes)


def summing(reduce_op: object) -> str:
    """Return the operator with which an activation's registers accumulate, by default add."""
    return "add" if reduce_op is None else alu(reduce_op, "activation reduce_op")


@instruction
def activation_reduce(dst: NkiTensor, op: object, data: NkiTensor, reduce_op: object, reduce_res: NkiTensor,
                      bias: object, scale: float) -> None:
    """Set dst = op(data * scale + bias), and ``reduce_res`` = its reduction with ``reduce_op`` over the free axes."""
    kind = "activation_reduce"
    fn, token = activation_name(op, f"{kind} op"), alu(reduce_op, f"{kind} reduce_op")
    with low.operands(kind, dst, data=data, scratch=True) as (target, source):
        tiles, attributes = activation_operands(kind, fn, bias, scale, source)
        if reduce_res is None or (token == "add" and active().needs_total("scalar")):
            accumulated(kind, ActivationAccumulateOp, target, {"src": source, **tiles}, "scalar", reduce_res,
                        "reset_reduce", reduce_op=token, **attributes)
            return
        with low.writing(reduce_res, kind, "reduce_res") as rows:
            result = low.scalar(kind, "reduce_res", rows, source)
            emit(reduction.ActivationReduceOp, {"dst": target, "reduce_res": result, "src": source, **tiles},
                 reduce_op=token, **attributes)


# -- instructions that only emit their operation -----------------------------------------------------------------------
FP32_MIN = -3.4028235e38
TEXTS: dict[str, generated_functions.Convert] = {
    "operator": lambda token, name, parameter: alu(token, f"{name} {parameter}"),
    "fn": lambda token, name, parameter: activation_name(token, f"{name} {parameter}"),
    "reduce_cmd": lambda command, name, parameter: command_of(name, command)}


def writing(name: str, cls: type[Op], entry: Regular) -> object:
    """Return the function that emits a regular instruction. Tiles of one shape are paired with
    ``dst``, others are rows of any length."""
    flat, rule = entry.shape is not None, RULES.get(name)
    reads = any(tile.name == "dst" and tile.reads for tile in cls.tiles)
    accumulates = any(tile.name == "accumulator" for tile in cls.tiles)
    paired, rows = ({}, entry.tiles | entry.rows) if flat else (entry.tiles, entry.rows)
    scalars = [(p, tile, number) for p, (tile, number) in entry.scalars.items()]

    def write(arguments: dict[str, Any], attributes: dict[str, Any]) -> None:
        if rule is not None:
            rule(arguments, attributes)
        with low.writing(arguments["dst"], name, reads=reads, flat=flat, scratch=accumulates) as out:
            if flat:
                views = {"dst": low.flat_view(out)}
            else:
                views = dict(zip(("dst", *paired.values()),
                                 low.paired(name, dst=out, **{p: arguments[p] for p in paired})))
            views |= {tile: low.flat_tile(name, p, arguments[p]) for p, tile in rows.items()}
            for parameter, tile, number in scalars:
                value = 0.0 if arguments[parameter] is None else arguments[parameter]
                views[tile], attributes[number] = low.number_and_tile(name, parameter, value, views["dst"])
            if not accumulates:
                emit(cls, views, **attributes)
                return
            command = attributes.pop("reduce_cmd")
            if entry.initial in arguments:
                command = loaded(name, command, arguments[entry.initial], out.shape[0])
            accumulated(name, cls, views.pop("dst"), views, cls.engines[0].value, arguments.get("reduce_res"), command,
                        **attributes)
    return write


# -- rules of this generation ------------------------------------------------------------------------------------------
def check_activate2(arguments: dict[str, object], attributes: dict[str, object]) -> None:
    for label, token in (("imm0", "op0"), ("imm1", "op1")):
        require(arguments[label] is not None or attributes[token] == "bypass", f"activate2 {label} is missing",
                fix=f"give {label}, a number or a tile of shape (P, 1)")


def check_nc_n_gather(arguments: dict[str, object], attributes: dict[str, object]) -> None:
    op = "nc_n_gather"
    low.in_sbuf(op, **arguments)
    indices = low.is_tensor(arguments["indices"], op, "indices")
    core_rule(indices.dtype is UINT32, WrongDtype, op=op, operand="indices", found=indices.dtype, expected=UINT32)
    low.one_dtype(op, "data", dst=arguments["dst"], data=arguments["data"])


def check_tensor_scalar_reduce(arguments: dict[str, object], attributes: dict[str, Any]) -> None:
    arguments["operand0"] = unary_operand("tensor_scalar_reduce", attributes["op0"], arguments["operand0"], "operand0")


def check_range_select(arguments: dict[str, Any], attributes: dict[str, object]) -> None:
    op, tile, value = "range_select", arguments["on_true_tile"], arguments["on_false_value"]
    if not isinstance(value, int | float | np.number) or np.float32(value) != np.float32(FP32_MIN):
        warn(f"range_select on_false_value is always {FP32_MIN}; {value} has no effect")
    attributes["fill"] = FP32_MIN
    low.is_tensor(tile, op, "on_true_tile")
    if attributes["reduce_cmd"] == "idle" and arguments["reduce_res"] is not None:  # the default of the first release
        older("range_select(reduce_res=) with reduce_cmd idle is now range_select(reduce_cmd=reduce_cmd.reset_reduce)")
        attributes["reduce_cmd"] = "reset_reduce"


RULES: dict[str, Callable[[dict[str, object], dict[str, object]], None]] = {
    "activate2": check_activate2, "nc_n_gather": check_nc_n_gather, "tensor_scalar_reduce": check_tensor_scalar_reduce,
    "range_select": check_range_select}

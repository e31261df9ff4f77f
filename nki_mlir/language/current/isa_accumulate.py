# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions, and instructions that run the accumulation registers of their engine."""

from typing import Any

from nki_mlir.dialects.nisa import accumulating, elementwise, movement, reduction
from nki_mlir.dialects.nisa.selection import RangeSelectOp, SelectReduceOp
from nki_mlir.dialects.nki.reduction import reduced_shape
from nki_mlir.frontend.tensor import View
from nki_mlir.language import instructions as core
from nki_mlir.language.assignment import accumulating as free_order
from nki_mlir.language.creation import emit
from nki_mlir.language.current import enums as e
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.errors import invalid, older, require, warn
from nki_mlir.language.current.instruction import activation_name, alu, instruction
from nki_mlir.language.current.isa_elementwise import unary_operand
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.scalar.dtypes import INT32, TFLOAT32, UINT32

FP32_MIN = -3.4028235e38
COMMANDS = dict.fromkeys(("activation", "activate2"), ("idle", "reset", "reduce", "reset_reduce")) | dict.fromkeys(
    ("tensor_scalar_reduce", "tensor_scalar_cumulative"), ("reset_reduce", "reduce", "load_reduce")) | dict.fromkeys(
    ("range_select", "select_reduce"), ("idle", "reduce", "reset_reduce")) | {
    "exponential": ("idle", "reduce", "reset_reduce", "load_reduce")}


@instruction
def tensor_reduce(dst, op, data, axis, negate, keepdims) -> None:
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
def tensor_partition_reduce(dst, op, data) -> None:
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


def accumulated(op: str, cls: Any, dst: View, views: dict[str, Any], engine: str, reduce_res: Any, command: str,
                **attributes: Any) -> None:
    """Emit an instruction with the registers, and the tile that reads them where one is given."""
    views = {"dst": dst, "accumulator": core.registers(engine, dst.shape[0]), **views}
    if reduce_res is None:
        emit(cls, views, reduce_cmd=command, **attributes)
        return
    with low.writing(reduce_res, op, "reduce_res") as rows:
        emit(cls, {**views, "reduce_res": rows_of(op, rows)}, reduce_cmd=command, **attributes)


def command_of(op: str, value: Any) -> Any:
    """A ``reduce_cmd`` argument, which is one of those that the instruction has."""
    command = e.member(value, e.reduce_cmd, "reduce_cmd")
    require(command.name in COMMANDS[op], f"{op} has no reduce_cmd {command.name}",
            fix=f"one of {', '.join(f'nisa.reduce_cmd.{c}' for c in COMMANDS[op])}")
    return command


def loaded(op: str, value: Any, init: Any, partitions: int) -> str:
    """The command's name; ``load_reduce`` puts its value into the registers first and then is a reduce."""
    command = command_of(op, value)
    if command is not e.reduce_cmd.load_reduce:
        require(init is None or (not isinstance(init, NkiTensor) and init == 0),
                f"{op} has an initial value only with reduce_cmd load_reduce, not with {command.name}")
        return command.name
    held = core.registers("vector", partitions)
    with free_order():                  # registers are each iteration's own
        if isinstance(init, NkiTensor):
            emit(movement.TensorCopyOp, {"dst": held, "src": low.scalar(op, "reduce_init", init, held)})
        elif init is None:
            invalid(f"{op} with load_reduce needs reduce_init")
        else:
            emit(movement.MemsetOp, {"dst": held}, value=float(init))
    return "reduce"


@instruction
def tensor_scalar_reduce(dst, data, op0, operand0, reduce_op, reduce_res, reverse0, reduce_cmd, reduce_init,
                         reduce_res_negate) -> None:
    """dst = data op0 operand0; the registers reduce it and are read into ``reduce_res``."""
    op = "tensor_scalar_reduce"
    first, second = alu(op0, f"{op} op0"), alu(reduce_op, f"{op} reduce_op")
    operand0 = unary_operand(op, first, operand0, "operand0")
    require(second in ("add", "multiply", "maximum", "minimum"),
            f"{op} reduce_op {second} is not add, multiply, max or min")
    with low.writing(dst, op, scratch=True) as out:
        target, source = low.paired(op, dst=out, data=data)
        command = loaded(op, reduce_cmd, reduce_init, source.shape[0])
        tile, number = low.number_and_tile(op, "operand0", operand0, source)
        accumulated(op, accumulating.TensorScalarAccumulateOp, target, {"src": source, "operand0": tile}, "vector",
                    reduce_res, command, op0=first, imm0=number, reverse0=bool(reverse0), reduce_op=second,
                    negate=bool(reduce_res_negate))


@instruction
def tensor_scalar_cumulative(dst, src, op0, op1, imm0, imm1, reduce_cmd) -> None:
    """dst[i] = op1(op0(src[i], imm0), dst[i-1]) along the free axis."""
    op = "tensor_scalar_cumulative"
    first, second = alu(op0, f"{op} op0"), alu(op1, f"{op} op1")
    for label, t in (("dst", dst), ("src", src)):
        kind = low.is_tensor(t, op, label).dtype
        require(not kind.is_integer or kind.itemsize < 4, f"{op} {label} cannot be {kind}")
    with low.writing(dst, op) as out:
        target, source = low.paired(op, dst=out, src=src)
        command = loaded(op, reduce_cmd, imm1, source.shape[0])
        tile, number = low.number_and_tile(op, "imm0", imm0, source)
        accumulated(op, accumulating.TensorScalarCumulativeOp, target, {"src": source, "operand0": tile}, "vector",
                    None,
                    command, op0=first, op1=second, imm0=number)


@instruction
def activate2(dst, op, data, imm0, imm1, op0, op1, relu_param, reverse0, reverse1, reduce_op, reduce_res, reduce_cmd
            ) -> None:
    """dst = op((data op0 imm0) op1 imm1); the Scalar engine's registers follow ``reduce_cmd``."""
    kind = "activate2"
    command = command_of(kind, reduce_cmd)
    for label, value, token in (("imm0", imm0, op0), ("imm1", imm1, op1)):
        require(value is not None or alu(token, f"{kind} operator") == "bypass", f"{kind} {label} is missing")
    with low.writing(dst, kind, scratch=reduce_res is not None) as out:
        target, source = low.paired(kind, dst=out, data=data)
        tile0, number0 = low.number_and_tile(kind, "imm0", 0.0 if imm0 is None else imm0, source)
        tile1, number1 = low.number_and_tile(kind, "imm1", 0.0 if imm1 is None else imm1, source)
        slope, alpha = low.number_and_tile(kind, "relu_param", relu_param, source)
        accumulated(kind, accumulating.Activate2Op, target,
                    {"src": source, "operand0": tile0, "operand1": tile1, "slope": slope}, "scalar", reduce_res,
                    command.name, fn=activation_name(op, "activate2 op"), op0=alu(op0, "activate2 op0"),
                    op1=alu(op1, "activate2 op1"), imm0=number0, imm1=number1, alpha=alpha, reverse0=bool(reverse0),
                    reverse1=bool(reverse1),
                    reduce_op="add" if reduce_op is None else alu(reduce_op, "activate2 reduce_op"))


@instruction
def exponential(dst, src, max_value, reduce_res, reduce_cmd, reduce_init) -> None:
    """dst = exp(src - max_value); the registers add it up and are read into ``reduce_res``."""
    op = "exponential"
    with low.writing(dst, op, scratch=reduce_res is not None) as out:
        target, source = low.paired(op, dst=out, src=src)
        command = loaded(op, reduce_cmd, reduce_init, source.shape[0])
        tile, number = low.number_and_tile(op, "max_value", max_value, source)
        accumulated(op, accumulating.ExponentialOp, target, {"src": source, "highest": tile}, "vector", reduce_res,
                    command, imm=number)


@instruction
def range_select(dst, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd, reduce_res, reduce_op, range_start,
                 on_false_value) -> None:
    """dst = on_true_tile where its free index is in the range of the bounds, else the lowest float32; row maximum."""
    op = "range_select"
    if on_false_value != FP32_MIN:
        warn(f"range_select on_false_value is always {FP32_MIN}; {on_false_value} has no effect")
    require(alu(reduce_op, f"{op} reduce_op") == "maximum", f"{op} reduce_op is maximum")
    kind = low.is_tensor(on_true_tile, op, "on_true_tile").dtype
    require(kind.is_float, f"{op} on_true_tile must be a float type, it is {kind}")
    last = range_start + on_true_tile.size // on_true_tile.shape[0]
    require(abs(range_start) < 2**24 and last < 2**24, f"{op} counts from {range_start} to {last}, beyond 2**24")
    command = command_of(op, reduce_cmd)
    if command is e.reduce_cmd.idle and reduce_res is not None:         # the first release's default, which it replaced
        older("range_select(reduce_res=) with reduce_cmd idle is now range_select(reduce_cmd=reduce_cmd.reset_reduce)")
        command = e.reduce_cmd.reset_reduce
    with low.writing(dst, op) as out:
        target, source = low.paired(op, dst=out, on_true_tile=on_true_tile)
        views = {"src": source, "bound0": low.flat_tile(op, "bound0", bound0),
                 "bound1": low.flat_tile(op, "bound1", bound1)}
        accumulated(op, RangeSelectOp, target, views, "vector", reduce_res, command.name,
                    comp0=alu(comp_op0, f"{op} comp_op0"), comp1=alu(comp_op1,
                                                                     f"{op} comp_op1"), base=float(range_start),
                    fill=FP32_MIN)


@instruction
def select_reduce(dst, predicate, on_true, on_false, reduce_res, reduce_cmd, reduce_op, reverse_pred) -> None:
    """dst = on_true where the predicate is not 0, else on_false; the registers keep the row maximum."""
    op = "select_reduce"
    require(alu(reduce_op, f"{op} reduce_op") == "maximum", f"{op} reduce_op is maximum")
    require(isinstance(predicate, NkiTensor) and predicate.dtype.is_integer and predicate.itemsize <= 2,
            f"{op} predicate must be an integer of 8 or 16 bits")
    kind = low.is_tensor(on_true, op, "on_true").dtype
    require(kind not in (INT32, UINT32, TFLOAT32), f"{op} on_true cannot be {kind}")
    command = command_of(op, reduce_cmd)
    require(not isinstance(reduce_res, NkiTensor) or reduce_res.dtype.is_float, f"{op} reduce_res must be a float type")
    with low.writing(dst, op, scratch=reduce_res is not None) as out:
        target, chosen, source = low.paired(op, dst=out, predicate=predicate, on_true=on_true)
        tile, number = low.number_and_tile(op, "on_false", on_false, source)
        accumulated(op, SelectReduceOp, target, {"predicate": chosen, "on_true": source, "on_false": tile}, "vector",
                    reduce_res, command.name, imm=number, reverse_pred=bool(reverse_pred))

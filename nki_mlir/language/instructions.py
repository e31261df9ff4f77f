# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments of instructions of both generations: scalar operands, biases and scales, engines, accumulation registers.
"""


from math import prod
from typing import Any

from nki_mlir.capture.builder import active
from nki_mlir.capture.errors import UnsupportedMask
from nki_mlir.capture.index import Index, Mask
from nki_mlir.capture.tensor import View
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.nisa import movement
from nki_mlir.language import creation
from nki_mlir.language import operations as ops
from nki_mlir.language.assignment import accumulating
from nki_mlir.language.creation import Tensor, emit
from nki_mlir.language.direct_allocation import HiddenBias, refuse_hidden
from nki_mlir.machine import Engine, Machine
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32
from nki_mlir.scalar.tokens import activation_token


class BiasType(KernelError):
    code = "err_activation_bias_invalid_type"
    message = "the bias of an activation is {found}; it must be a float32, float16 or bfloat16 tile of shape [P, 1]"
    fix = "create it with nisa.memset((P, 1), value, nl.float32)"


class ScaleType(KernelError):
    code = "err_activation_scale_invalid_type"
    message = "the scale tile of an activation has dtype {found}; it must be float32"
    fix = "convert it with nl.copy(scale, dtype=nl.float32)"


class ScaleShape(KernelError):
    code = "err_activation_scale_scalar_or_vector"
    message = "the scale of an activation has shape {found}; it must be a number or a [P, 1] tile"
    fix = "use nl.multiply for a scale of another shape"


class DestinationDtype(KernelError, TypeError):
    code = "NKI-DESTINATION-DTYPE"
    message = "'{op}' has dtype={explicit_dtype}, but its destination is {found}"
    fix = "leave dtype out, or create the destination with that dtype"


class TransposedAxes(KernelError):
    code = "NKI-TRANSPOSE-AXES"
    message = ("dma_transpose axes {axes} of a tensor of {rank} dimensions: (1, 0), (2, 1, 0) and (3, 1, 2, 0) are "
               "supported")
    fix = "leave axes out, or reshape the tensor first"


DMA_AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}       # the permutation of a DMA transpose by the number of axes


def check_destination(op: str, dst: View, dtype: object) -> None:
    """Check that ``dtype``, if given, is the dtype of the destination."""
    if dtype is not None and creation.located_dtype(dtype) is not dst.dtype:
        raise DestinationDtype(op=op, explicit_dtype=creation.located_dtype(dtype), found=dst.dtype).here()


def over_row(tile: View | None, shape: tuple[int, ...]) -> View | None:
    """Return a [P, 1] operand broadcast to every element of its partition, others unchanged."""
    if tile is None or tile.shape == shape or prod(tile.shape) not in (1, shape[0]):
        return tile
    flat = tile.reshape((tile.shape[0], *(1 for _ in shape[1:]))) if tile.ndim != len(shape) else tile
    return flat.broadcast_to(shape)


def engine_name(engine: object) -> str:
    """Return the IR's name of an engine that is an enum member, name or None."""
    if engine is None:
        return Engine.UNKNOWN.value
    return getattr(engine, "name", str(engine)).removesuffix("_engine").lower()


def operand(value: Any, op: str = "an instruction") -> tuple[View | None, float]:
    """Return a scalar operand as (tile or None, number)."""
    if isinstance(value, View):
        return value, 0.0
    if isinstance(value, Index):
        value = value.as_int("it is a scalar operand of an instruction")
    ops.check_number(op, value)
    return None, float(value)


class UnpairedOperand(KernelError, TypeError):
    code = "NKI-OPERAND"
    message = "the second operation of tensor_scalar has no {missing}"
    fix = "give both op1 and operand1, or neither"


class NoTable(KernelError):
    code = "NKI-ACTIVATION"
    message = "'{fn}' is not an activation function of the Scalar engine"
    fix = "use nl.{fn}, which consists of several instructions"


def check_table(op: object) -> None:
    """Report a function for which the Scalar engine has no table: the language composes it of other instructions."""
    function = activation_token(op)
    if not function.native:
        active().report(NoTable(fn=function.name), uncertain=False)


def refuse_hidden_bias(op: object, bias: object, source: View) -> None:
    """Require an explicit bias of activations in a kernel that allocates directly; a copy needs none."""
    if bias is None and activation_token(op).name != "copy":
        refuse_hidden(HiddenBias, "activation", source)


def activation_operands(op: object, bias: Any, scale: Any, shape: tuple[int, ...]
                        ) -> tuple[dict[str, View | None], float]:
    """Return the bias and scale of an activation as operands of that shape, and the scale's number, checked by the
    documented rules."""
    check_table(op)
    partitions = shape[0]
    if bias is not None and not isinstance(bias, View):
        active().report(BiasType(found=bias))               # documents require a tile, but kernels in use pass numbers
        bias = creation.filled((partitions, 1), float(bias), FLOAT32)
    if bias is not None and bias.dtype not in (FLOAT32, FLOAT16, BFLOAT16):
        raise BiasType(found=bias.dtype).here()
    if isinstance(scale, View):
        if scale.dtype is not FLOAT32:
            raise ScaleType(found=scale.dtype).here()
        if any(n != 1 for n in scale.shape[1:]) or scale.shape[0] != partitions:
            raise ScaleShape(found=list(scale.shape)).here()
    tile, number = (scale, 1.0) if isinstance(scale, View) else (None, float(scale))
    return {"bias": over_row(bias, shape), "scale": over_row(tile, shape)}, number


def rows_like(rows: View, source: View) -> View:
    """Return a [P, 1] operand with the rank of the tile that it belongs to. The operation's class refuses one of more
    values."""
    shape = (rows.shape[0], *(1 for _ in source.shape[1:]))
    return rows if rows.shape == shape or prod(rows.shape) != rows.shape[0] else rows.reshape(shape)


def command_name(command: object) -> str:
    """Return the name of ``reduce_cmd``, an enum member or name."""
    return getattr(command, "name", str(command))


def registers(engine: str, partitions: int) -> Tensor:
    """Return the accumulation registers of an engine for the first partitions: one float32 each, kept between
    instructions."""
    registers: Any = creation.tensor_of(active().state(f"{engine}_accumulators", (Machine.partitions, 1), FLOAT32))
    part: Tensor = registers[0:partitions, 0:1]
    return part


def note_registers(engine: str, command: str, reduce_res: object) -> None:
    """Tell the builder if an instruction with this ``reduce_cmd`` reads the registers of an engine. Warn if no earlier
    instruction has set them."""
    if command == "reduce" or (command == "idle" and reduce_res is not None):
        if not active().continues_total(engine):
            from nki_mlir.capture.unwritten_reads import report_unset_registers  # start-up: few kernels need it
            report_unset_registers(engine, command)


def load_registers(target: View, tile: View | None, number: float) -> None:
    """Write a value to accumulation registers, which are separate in each iteration."""
    with accumulating():
        if tile is None:
            emit(movement.MemsetOp, {"dst": target}, value=number)
        else:
            emit(movement.TensorCopyOp, {"dst": target, "src": tile})


def require_from_first(op: str, mask: Mask | None, shape: tuple[int, ...], *axes: int) -> None:
    """Refuse a mask that leaves out the first elements along axes on which the operation counts positions."""
    for expression, equal in mask.spread(shape).terms if isinstance(mask, Mask) else ():
        at_origin = Index(expression.const, expression.symbols)
        if any((c := expression.axes[k]) > 0 or (equal and c) for k in axes) and at_origin.interval()[0] < 0:
            raise UnsupportedMask(what=f"the mask of '{op}', which counts from the first element, excludes the "
                                       "first elements", instead="let the mask begin at the first element").here()

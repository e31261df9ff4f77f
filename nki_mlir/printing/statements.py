# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints instructions as calls of ``nki.isa``, with functions that the printers of all operations share."""

import math

import numpy as np

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import PSUM, SBUF, Tile
from nki_mlir.dialects.nisa.elementwise import (
    ScalarTensorTensorOp,
    TensorCopyPredicatedOp,
    TensorScalarOp,
    TensorTensorOp,
)
from nki_mlir.dialects.nisa.matmul import NcMatmulDoubleRowOp, NcTransposeOp
from nki_mlir.dialects.nisa.meeting import Meeting, SendrecvOp
from nki_mlir.dialects.op import Op, changed
from nki_mlir.dialects.scalar_body import Elementwise
from nki_mlir.dialects.verification import verify
from nki_mlir.language.current import language
from nki_mlir.language.current.instruction import ACTIVATION_FUNCTIONS
from nki_mlir.language.signatures.older_releases import CHANGED
from nki_mlir.machine.engine import Engine, engines_of
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.implicit_sums import IMPLICIT
from nki_mlir.printing.instruction_forms import ENUMS, OPERATORS, PrintedCall, form_of
from nki_mlir.printing.kernel_text import KernelText
from nki_mlir.printing.merged_programs import RANKS, rank_text
from nki_mlir.printing.quotients import without_quotients
from nki_mlir.printing.tile_text import column
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, INT32
from nki_mlir.targets.neuron.codegen.forward_transfers import is_backwards

ANY_DIMS = {("tensor_reduce", "dst"), ("local_gather", "dst"),       # parameters that take a tile of any free dims
            *((function, parameter) for function in ("tensor_scalar_reduce", "tensor_scalar_cumulative")
              for parameter in ("dst", "data", "src", "reduce_res"))}


def with_repeats(op: Op) -> Op:
    """Return the operation with smaller sources repeated to the shape of ``dst``."""
    if not isinstance(op, Elementwise) or not op.broadcasts or op.dialect != "nki":
        return op                               # instructions also have operands of rows
    shape = op.dst.shape

    def repeated(tile: Tile) -> Tile:
        if tile.shape == shape or len(tile.shape) != len(shape):
            return tile
        return tile.patterned(dims=tuple((0, n) if count == 1 and n != 1 else (step, count)
                                         for (step, count), n in zip(tile.access.dims, shape)))
    return changed(op, repeated)


def operator_text(name: str) -> str:
    """Return the text of an operator, such as ``nl.add``."""
    if not hasattr(language, name):
        raise Unprintable(what=f"the operator '{name}'", fix="use an operator that nki.language has")
    return f"nl.{name}"


def number_text(value: float) -> str:
    """Return the text of a number."""
    if math.isnan(value) or math.isinf(value):
        return f'float("{value}")'
    return repr(value)


def immediate_text(value: float) -> str:
    """Return the shortest text of a number that engines read as a float32: 1e-05, not 9.999999747378752e-06.

    Numbers of 32-bit integers have all their digits, because integer instructions read them as integers.
    """
    is_integer = value.is_integer() and abs(value) < 1 << INT32.bits
    is_normal = float(np.finfo(np.float32).tiny) < abs(value) < math.inf
    if is_normal and not is_integer and float(np.float32(value)) == value:
        return repr(float(str(np.float32(value))))
    return number_text(value)


def value_text(attribute: str, value: object) -> str:
    """Return the text of an attribute's value."""
    match value:
        case str() if attribute in OPERATORS:
            return operator_text(value)
        case str() if attribute in ENUMS:
            return f"{ENUMS[attribute]}.{value}"
        case float() if attribute == "base":            # the base of what iota counts
            return str(round(value))
        case float():
            return number_text(value) if attribute == "value" else immediate_text(value)
        case bool() | int():
            return str(value)
        case (axis,) if attribute == "axes":
            return str(axis)
        case tuple():
            return str(list(value))
    raise Unprintable(what=f"{attribute} = {value}", fix="write this part of the kernel by hand")


def write_instruction(text: KernelText, op: Op) -> None:
    """Write the call of an instruction."""
    op = adapted(op)
    form = form_of(type(op))
    if form is None:
        raise Unprintable(what=f"'{op.full_name()}'", fix="write this part of the kernel by hand")
    if isinstance(op, Meeting) and not text.on_core:
        raise Unprintable(what=f"'{op.full_name()}' of programs that are not cores of a launch",
                          fix="launch the kernel on a grid of two programs")
    op, load = _with_initial_value(text, _with_float32_operands(text, op, form), form)
    arguments = [f"{p}={value}" for p in form.parameters if (value := _argument(text, op, form, p, load)) is not None]
    check_taken(op)
    if form.function == "dma_copy" and op.engine != "unknown":
        arguments = [a for a in arguments if not a.startswith("engine=")]
        arguments += _trigger(op)
    named = len(type(op).engines) < 2 or op.engine == "unknown" or any(
        a.startswith(("engine=", "dge_mode=")) for a in arguments)
    if text.placement is not None and not named:
        text.placement.engines[f"nisa.{form.function}"] += 1
    text.write(f"nisa.{form.function}({', '.join(arguments)})")


def _with_float32_operands(text: KernelText, op: Op, form: PrintedCall) -> Op:
    """Return the operation with copies of its scalar operands of narrow floats: calls take float32 tiles only."""
    for tile_name, _ in form.scalars.values():
        if (tile := getattr(op, tile_name)) is not None and _is_narrow(column(tile)):
            converted = text.temporary(column(tile).shape, FLOAT32, SBUF, name="converted", with_address=True)
            text.write(f"nisa.tensor_copy(dst={text.tile(op, converted)}, src={text.tile(op, column(tile))}"
                       f"{text.vector_engine})")
            op = changed(op, lambda tile: tile, **{tile_name: converted})
    return op


def _with_initial_value(text: KernelText, op: Op, form: PrintedCall) -> tuple[Op, str | None]:
    """Return the operation, and the initial value of its registers if the call takes one as an argument."""
    if (state := getattr(op, "state", None)) is not None:
        text.use_register(state.handle, anew=False)
    registers = getattr(op, "accumulator", None)
    if registers is None:
        return op, None
    begins = text.use_register(registers.handle, anew=op.overwrites("accumulator"))
    load = text.loads.pop(registers.handle, "0.0")
    text.begins.pop(registers.handle, None)
    command = getattr(op, "reduce_cmd", "")
    if not begins:
        return op, None
    if command == "reduce" and load == number_text(ALU[op.reduce_op].identity(FLOAT32) or 0.0):  # type: ignore[attr-defined]
        return changed(op, lambda tile: tile, reduce_cmd="reset_reduce"), None
    if command != "reduce" or form.initial not in form.parameters:
        raise Unprintable(what="a value in the registers of an engine", fix="begin the sum with its own command")
    return op, load


def check_taken(op: Op) -> None:
    """Raise ``Unprintable`` if the op class accepts more than the function of the language. Without a placement,
    several instructions are printed for such an operation."""
    description, fn = "", getattr(op, "fn", None)
    if type(op).name == "dma_copy" and any(is_backwards(tile) for _, tile in op.operands()):
        description = "a transfer of rows from the last to the first"
    elif fn is not None and "fn" in type(op).attributes and fn not in ACTIVATION_FUNCTIONS:
        description = f"the activation '{fn}'"
    elif isinstance(op, TensorCopyPredicatedOp) and op.src is not None and op.src.dtype is not op.dst.dtype:
        description = f"a predicated copy from {op.src.dtype} to {op.dst.dtype}"
    if description:
        raise Unprintable(what=f"{description} in one instruction", fix="print it from the 'nki' level, without "
                                                                        "placement")


def _trigger(op: Op) -> list[str]:
    """Return the arguments that choose who triggers a transfer: the gpsimd engine writes descriptors; two other
    engines take them from hardware, which moves bytes unchanged."""
    if op.engine == "gpsimd":
        return ["dge_mode=nisa.dge_mode.swdge"]
    (_, target), (_, source) = op.operands()[:2]
    if op.engine in ("sync", "scalar") and target.dtype is source.dtype:
        return ["dge_mode=nisa.dge_mode.hwdge", f"engine=nisa.engine.{op.engine}"]
    return []


def adapted(op: Op) -> Op:
    """Return the operation with values that its function accepts."""
    if type(op).name == "tensor_reduce" and not op.axes:                                     # type: ignore[attr-defined]
        of_one = [axis for axis, extent in enumerate(op.src.shape) if axis and extent == 1]  # type: ignore[attr-defined]
        if not of_one:
            raise Unprintable(what="a reduction over no axis", fix="copy the tile")
        return changed(op, lambda tile: tile, axes=(of_one[-1],))
    if type(op).name == "tensor_reduce":                        # over the last axes; those after them have one element
        axes, shape = op.axes, op.src.shape                                                  # type: ignore[attr-defined]
        more = [axis for axis in range(min(axes), len(shape)) if axis not in axes and shape[axis] == 1]
        return changed(op, lambda tile: tile, axes=tuple(sorted([*axes, *more])))
    if type(op).name == "memset" and op.dst.dtype.is_integer and math.isfinite(op.value):    # type: ignore[attr-defined]
        return changed(op, lambda tile: tile, value=round(op.value))                         # type: ignore[attr-defined]
    if isinstance(op, NcTransposeOp) and op.engine == "unknown" and (op.dst.space, op.src.space) != (PSUM, SBUF):
        return changed(op, lambda tile: tile, engine="vector")          # which capture chooses for this call
    if isinstance(op, TensorScalarOp):
        op = _with_repeated_operand(without_quotients(op))
    slots = [slot for slot in "01" if isinstance(op, TensorScalarOp) and getattr(op, f"op{slot}") == "negative"]
    if not slots:
        return op
    product = changed(op, lambda tile: tile, **{f"op{slot}": "multiply" for slot in slots},      # no document has an
                      **{f"imm{slot}": -1.0 for slot in slots})                                  # operator negative
    return product if product.compute is op.compute else changed(product, lambda tile: tile, engine="vector")


def _with_repeated_operand(op: Op) -> Op:
    """If the last scalar operand is a tile of narrow floats, return an operation that reads it as a second tile of any
    dtype, repeated along the rows: a scalar operand has to be float32. Return all other operations unchanged."""
    if not isinstance(op, TensorScalarOp):
        return op
    if op.operand1 is not None and _is_narrow(op.operand1) and op.engine != "gpsimd":
        pair: Op = ScalarTensorTensorOp(
            dst=op.dst, src=op.src, operand0=op.operand0, rhs=_repeated(op.operand1, op), op0=op.op0, op1=op.op1,
            imm0=op.imm0, reverse0=op.reverse0, reverse1=op.reverse1, symbols=op.symbols, ranges=op.ranges,
            extra=op.extra, engine=op.engine if op.engine == "unknown" else "vector")
        return pair if pair.compute is op.compute and _is_valid(pair) else op
    if op.operand0 is None or op.op1 != "bypass" or not _is_narrow(op.operand0):
        return op
    repeated = _repeated(op.operand0, op)
    lhs, rhs = (repeated, op.src) if op.reverse0 else (op.src, repeated)
    engine = "vector" if Engine.VECTOR in engines_of(op.op0) else "gpsimd"
    pair = TensorTensorOp(dst=op.dst, lhs=lhs, rhs=rhs, op=op.op0, symbols=op.symbols, ranges=op.ranges, extra=op.extra,
                          engine=op.engine if op.engine in ("unknown", "gpsimd") else engine)
    return pair if pair.compute is op.compute and _is_valid(pair) else op


def _repeated(operand: Tile, op: TensorScalarOp) -> Tile:
    """Return a column, repeated to the shape of an operation's destination."""
    rows, *_ = operand.access.dims
    return operand.patterned(dims=(rows, *((0, count) for count in op.dst.shape[1:])))


def _is_valid(op: Op) -> bool:
    try:
        verify(op)
    except NkiMlirError:
        return False
    return True


def _is_narrow(tile: Tile) -> bool:
    return tile.dtype.is_float and tile.dtype is not FLOAT32


def _argument(text: KernelText, op: Op, form: PrintedCall, parameter: str, load: str | None) -> str | None:
    """Return the text of an argument, or None if the parameter keeps its default. ``load`` is the value that registers
    begin with."""
    if load is not None and parameter in (form.initial, "reduce_cmd"):
        return load if parameter == form.initial else "nisa.reduce_cmd.load_reduce"
    if parameter in form.constants:
        return form.constants[parameter]
    if parameter in form.scalars:
        tile_name, number = form.scalars[parameter]
        if getattr(op, tile_name) is None and parameter == "scale" and getattr(op, number) == 1:     # the default
            return None
        return _scalar(text, op, tile_name, number, parameter)
    tile_name = form.tiles.get(parameter, "dst" if parameter == "dst" else "")
    if tile_name:
        tile = getattr(op, tile_name)
        if tile is None:
            return None
        free = (form.function, parameter) in ANY_DIMS and (form.function == "tensor_reduce" or not text.beta)
        paired = form.paired and (not isinstance(op, NcMatmulDoubleRowOp) or parameter == "dst")
        exact, paired = not paired and not free, paired or (free and form.function != "tensor_reduce")
        return text.tile(op, column(tile) if tile_name == "bias" else tile, exact, paired)
    attribute = form.attributes.get(parameter, parameter)
    if attribute not in type(op).attributes:
        return None
    if isinstance(op, SendrecvOp) and attribute in RANKS:
        return rank_text(op, attribute, text.program_id)
    if attribute == "accumulate" and IMPLICIT in op.extra:
        return None
    value = getattr(op, attribute)
    if attribute == "permutation" and value == (1, 0):
        return None
    default = form.parameters[parameter].default
    skipped = (attribute == "engine" and value == "unknown") or (isinstance(value, bool) and default is value) or (
        attribute == "reduce_cmd" and getattr(default, "name", None) == value
        and f"nki.isa.{form.function}.reduce_cmd" not in CHANGED) or (
        default is None and attribute != "accumulate" and value == type(op).defaults.get(attribute))
    if skipped or (attribute in ("op1", "reverse1") and getattr(op, "op1", "") == "bypass"
                   and form.function == "tensor_scalar"):
        return None
    return value_text(attribute, value)


def _scalar(text: KernelText, op: Op, tile_name: str, number: str, parameter: str) -> str | None:
    """Return the text of a scalar operand: a tile or a number."""
    operator = getattr(op, {"operand0": "op0", "operand1": "op1"}.get(parameter, ""), "")
    if operator == "bypass" and parameter == "operand1":
        return None
    if operator in ALU and ALU[operator].arity == 1:
        return "None" if parameter == "operand0" else None
    tile = getattr(op, tile_name)
    if tile is None:
        value = getattr(op, number)
        return str(int(value)) if operator in ALU and ALU[operator].on_bits else immediate_text(value)
    return text.tile(op, column(tile))

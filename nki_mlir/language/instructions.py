# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The instructions, shared by both generations: operand rules, then builder calls.

Each makes its result tile or writes ``dst``. Scalars may be numbers or [P, 1] tiles.
"""

from typing import Any

import numpy as np

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import HBM, PSUM, SBUF
from nki_mlir.dialects.nisa import elementwise, movement, permutation, reduction
from nki_mlir.dialects.nisa import matmul as products
from nki_mlir.dialects.nki.reduction import reduced_shape
from nki_mlir.dialects.target_rules import NotOnTarget
from nki_mlir.frontend.builder import active
from nki_mlir.frontend.errors import UnsupportedMask
from nki_mlir.frontend.index import Index, Mask
from nki_mlir.frontend.locations import user_location
from nki_mlir.frontend.tensor import View
from nki_mlir.language import creation
from nki_mlir.language import operations as ops
from nki_mlir.language.allocation import HiddenBias, HiddenTranspose, refuse_hidden
from nki_mlir.language.creation import emit
from nki_mlir.machine import Engine, machine_named
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from nki_mlir.scalar.promotion import promote
from nki_mlir.scalar.tokens import activation_token, alu_token


class BiasType(KernelError):
    code = "err_activation_bias_invalid_type"
    message = "the bias of an activation is {found}; it must be a float32, float16 or bfloat16 tile of shape [P, 1]"
    fix = "make it with nisa.memset((P, 1), value, nl.float32)"


class ScaleType(KernelError):
    code = "err_activation_scale_invalid_type"
    message = "the scale tile of an activation has dtype {found}; it must be float32"
    fix = "convert it with nl.copy(scale, dtype=nl.float32)"


class ScaleShape(KernelError):
    code = "err_activation_scale_scalar_or_vector"
    message = "the scale of an activation has shape {found}; it must be a number or a [P, 1] tile"
    fix = "use nl.multiply for a scale of another shape"


class UnpairedOperand(KernelError, TypeError):
    code = "NKI-OPERAND"
    message = "the second operation of tensor_scalar has no {missing}"
    fix = "give both op1 and operand1, or neither"


class BadTransposeEngine(KernelError, ValueError):
    code = "NKI-ENGINE"
    message = "nc_transpose does not run on the {found} engine"
    fix = "use nisa.tensor_engine, nisa.vector_engine (up to 32 x 32), or leave the choice to the compiler"


class DestinationDtype(KernelError, TypeError):
    code = "NKI-DESTINATION-DTYPE"
    message = "'{op}' is asked for {asked}, but its destination is {found}"
    fix = "leave dtype out, or make the destination with that dtype"


def check_destination(op: str, dst: Any, dtype: Any) -> None:
    """The dtype of an instruction that writes where it is told is that of the place."""
    if dtype is not None and creation.located_dtype(dtype) is not dst.dtype:
        raise DestinationDtype(op=op, asked=creation.located_dtype(dtype), found=dst.dtype).located(user_location())


def over_row(tile: Any, shape: tuple[int, ...]) -> Any:
    """A [P, 1] operand read by every element of its partition."""
    if tile is None or tile.shape == shape:
        return tile
    flat = tile.reshape((tile.shape[0], *(1 for _ in shape[1:]))) if tile.ndim != len(shape) else tile
    return flat.broadcast_to(shape)


def engine_name(engine: Any) -> str:
    """The IR's name of an engine given as enum member, name or None."""
    if engine is None:
        return Engine.UNKNOWN.value
    return getattr(engine, "name", str(engine)).removesuffix("_engine").lower()


def operand(value: Any, op: str = "an instruction") -> tuple[Any, float]:
    """A scalar operand as (tile or None, number)."""
    if isinstance(value, View):
        return value, 0.0
    if isinstance(value, Index):
        value = value.as_int("it is a scalar operand of an instruction")
    ops.check_number(op, value)
    return None, float(value)


def tensor_tensor(data1: Any, data2: Any, op: Any, *, dst: Any = None, dtype: Any = None, mask: Any = None,
                  engine: Any = None) -> Any:
    """data1 (op) data2."""
    left, right = creation.as_operand(data1), creation.as_operand(data2)
    shape = ops.broadcast_shape(left.shape, right.shape, what="tensor_tensor")
    name = alu_token(op).name
    kind = ops.result_dtype(name, left, right, dtype, False)
    if left.shape[0] != right.shape[0]:
        tiles = f"data1{list(left.shape)}, data2{list(right.shape)}"
        from nki_mlir.dialects.verifier import PartitionMismatch
        raise PartitionMismatch(tiles=tiles, op="tensor_tensor").located(user_location())
    return ops.compute(elementwise.TensorTensorOp, shape, kind, ops.of_one_kind(name, left, right), mask,
                       destination=dst, explicit_dtype=dtype is not None, op=name, engine=engine_name(engine))


def tensor_scalar(data: Any, op0: Any, operand0: Any, reverse0: bool = False, op1: Any = None, operand1: Any = None,
                  reverse1: bool = False, *, dst: Any = None, dtype: Any = None, mask: Any = None,
                  engine: Any = None) -> Any:
    """(data op0 operand0) op1 operand1."""
    source = creation.as_operand(data)
    if (operand1 is None) != (op1 is None) and (op1 is None or alu_token(op1).arity == 2):
        raise UnpairedOperand(missing="op1" if op1 is None else "operand1").located(user_location())
    tile0, imm0 = operand(operand0, alu_token(op0).name)
    tile1, imm1 = operand(0.0 if operand1 is None else operand1, "bypass" if op1 is None else alu_token(op1).name)
    views = {"src": source, "operand0": tile0, "operand1": tile1 if op1 is not None else None}
    return ops.compute(elementwise.TensorScalarOp, source.shape, dtype or data.dtype, views, mask, destination=dst,
                       explicit_dtype=dtype is not None, op0=alu_token(op0).name, imm0=imm0, reverse0=bool(reverse0),
                       op1="bypass" if op1 is None else alu_token(op1).name, imm1=imm1, reverse1=bool(reverse1),
                       engine=engine_name(engine))


def scalar_tensor_tensor(data: Any, op0: Any, operand0: Any, op1: Any, operand1: Any, reverse0: bool = False,
                         reverse1: bool = False, *, dst: Any = None, dtype: Any = None, mask: Any = None) -> Any:
    """(data op0 operand0) op1 operand1; operand0 a number or [P, 1], operand1 a tile."""
    source = creation.as_operand(data)
    tile0, imm0 = operand(operand0)
    kind = creation.located_dtype(dtype) if dtype is not None else promote(source.dtype, operand1.dtype)
    return ops.compute(elementwise.ScalarTensorTensorOp, source.shape, kind,
                       {"src": source, "operand0": tile0, "rhs": operand1}, mask, destination=dst,
                       explicit_dtype=dtype is not None, op0=alu_token(op0).name, op1=alu_token(op1).name, imm0=imm0,
                       reverse0=bool(reverse0), reverse1=bool(reverse1))


def activation_operands(bias: Any, scale: Any, partitions: int) -> tuple[Any, Any, float]:
    """(bias tile, scale tile, scale number), checked by the documented rules."""
    if bias is not None and not isinstance(bias, View):
        active().report(BiasType(found=bias))                   # documents want a tile, kernels in use give numbers
        bias = creation.filled((partitions, 1), float(bias), FLOAT32)
    if bias is not None and bias.dtype not in (FLOAT32, FLOAT16, BFLOAT16):
        raise BiasType(found=bias.dtype).located(user_location())
    if isinstance(scale, View):
        if scale.dtype is not FLOAT32:
            raise ScaleType(found=scale.dtype).located(user_location())
        if any(n != 1 for n in scale.shape[1:]) or scale.shape[0] != partitions:
            raise ScaleShape(found=list(scale.shape)).located(user_location())
        return bias, scale, 1.0
    return bias, None, float(scale)


class NoTable(KernelError):
    code = "NKI-ACTIVATION"
    message = "'{fn}' is no activation function of the Scalar engine"
    fix = "use nl.{fn}, which is made of other instructions"


def check_table(op: Any) -> None:
    """The Scalar engine has a table of the function; what the language composes of other instructions has none."""
    function = activation_token(op)
    if not function.native:
        active().report(NoTable(fn=function.name), contested=False)


def refuse_hidden_bias(op: Any, bias: Any, source: View) -> None:
    """In a kernel that allocates directly an activation says its bias; a copy needs none."""
    if bias is None and activation_token(op).name != "copy":
        refuse_hidden(HiddenBias, "activation", source)


def activation(op: Any, data: Any, *, bias: Any = None, scale: Any = 1.0, dst: Any = None, dtype: Any = None,
               mask: Any = None) -> Any:
    """op(data * scale + bias)."""
    source = creation.as_operand(data)
    check_table(op)
    refuse_hidden_bias(op, bias, source)
    bias, tile, number = activation_operands(bias, scale, source.shape[0])
    return ops.compute(elementwise.ActivationOp, source.shape, dtype or data.dtype,
                       {"src": source, "bias": bias, "scale": tile}, mask, destination=dst,
                       explicit_dtype=dtype is not None, fn=activation_token(op).name, imm=number)


def activation_reduce(op: Any, data: Any, *, reduce_op: Any, reduce_res: Any, bias: Any = None, scale: Any = 1.0,
                      dst: Any = None, dtype: Any = None, mask: Any = None) -> Any:
    """op(data * scale + bias), and its sum over the free axes into reduce_res."""
    source = creation.as_operand(data)
    check_table(op)
    refuse_hidden_bias(op, bias, source)
    bias, tile, number = activation_operands(bias, scale, source.shape[0])
    rows = rows_like(reduce_res, source)
    return ops.compute(reduction.ActivationReduceOp, source.shape, dtype or data.dtype,
                       {"reduce_res": rows, "src": source, "bias": over_row(bias, source.shape),
                        "scale": over_row(tile, source.shape)}, mask, destination=dst,
                       explicit_dtype=dtype is not None, fn=activation_token(op).name,
                       reduce_op=alu_token(reduce_op).name, imm=number)


def tensor_scalar_reduce(*, data: Any, op0: Any, operand0: Any, reduce_op: Any, reduce_res: Any, reverse0: bool = False,
                         dst: Any = None, dtype: Any = None, mask: Any = None) -> Any:
    """data op0 operand0, and its reduction over the free axes into reduce_res."""
    source = creation.as_operand(data)
    tile0, imm0 = operand(operand0)
    return ops.compute(reduction.TensorScalarReduceOp, source.shape, dtype or data.dtype,
                       {"reduce_res": rows_like(reduce_res, source), "src": source,
                        "operand0": over_row(tile0, source.shape)}, mask,
                       destination=dst, explicit_dtype=dtype is not None, op0=alu_token(op0).name, imm0=imm0,
                       reverse0=bool(reverse0), reduce_op=alu_token(reduce_op).name)


def rows_like(rows: View, source: View) -> View:
    """A [P, 1] result with the rank of the tile it belongs to."""
    shape = (rows.shape[0], *(1 for _ in source.shape[1:]))
    return rows if rows.shape == shape else rows.reshape(shape)


def tensor_reduce(op: Any, data: Any, axis: Any, *, dst: Any = None, dtype: Any = None, negate: bool = False,
                  keepdims: bool = False, mask: Any = None) -> Any:
    """data reduced over free axes, times -1 with ``negate``."""
    source = creation.as_operand(data)
    axes = ops.free_axes(source, axis)
    kept = reduced_shape(source.shape, axes)
    destination = dst.reshape(kept) if dst is not None and dst.shape != kept else dst
    result = ops.compute(reduction.TensorReduceOp, kept, dtype or data.dtype, {"src": source}, mask,
                         destination=destination, explicit_dtype=dtype is not None, op=alu_token(op).name, axes=axes,
                         negate=bool(negate))
    return result if dst is not None else ops.drop_axes(result, axes, keepdims)


def tensor_partition_reduce(op: Any, data: Any, *, dst: Any = None, dtype: Any = None, mask: Any = None) -> Any:
    """data reduced over its partitions: [1, F...]."""
    source = creation.as_operand(data)
    return ops.compute(reduction.TensorPartitionReduceOp, (1, *source.shape[1:]), dtype or data.dtype, {"src": source},
                       mask, destination=dst, explicit_dtype=dtype is not None, op=alu_token(op).name)


def reciprocal(data: Any, *, dst: Any = None, dtype: Any = None, mask: Any = None) -> Any:
    source = creation.as_operand(data)
    return ops.compute(elementwise.ReciprocalOp, source.shape, dtype or data.dtype, {"src": source}, mask,
                       destination=dst, explicit_dtype=dtype is not None)


def tensor_copy(src: Any, *, dst: Any = None, dtype: Any = None, mask: Any = None, engine: Any = None) -> Any:
    """A copy on chip."""
    source = creation.as_operand(src)
    return ops.compute(movement.TensorCopyOp, source.shape, dtype or src.dtype, {"src": source}, mask, destination=dst,
                       explicit_dtype=dtype is not None, engine=engine_name(engine))


def tensor_copy_predicated(*, src: Any, dst: Any, predicate: Any, reverse_pred: bool = False, mask: Any = None) -> Any:
    """dst = src where the predicate is not 0."""
    source = src if isinstance(src, View) else ops.as_tile(src, dst, dst.dtype)
    emit(elementwise.TensorCopyPredicatedOp, {"dst": dst, "src": source, "predicate": predicate}, mask,
             reverse_pred=bool(reverse_pred))
    return dst


def affine_select(pred: Any, on_true_tile: Any, on_false_value: float, *, dst: Any = None, dtype: Any = None,
                  mask: Any = None) -> Any:
    """on_true_tile where the affine comparison holds, else the value."""
    source = creation.as_operand(on_true_tile)
    if isinstance(pred, (bool, np.bool_)):
        pred = Mask(((Index(0 if pred else -1), False),))
    if not isinstance(pred, Mask) or len(pred.terms) != 1 or (pred.negated and not pred.terms[0][1]):
        raise UnsupportedMask(what="affine_select takes one affine comparison").located(user_location())
    (expression, equal), = pred.terms
    if pred.negated:
        raise UnsupportedMask(what="affine_select has no != comparison").located(user_location())
    form = expression.spread(source.shape)
    return ops.compute(elementwise.AffineSelectOp, source.shape, dtype or on_true_tile.dtype, {"src": source}, mask,
                       destination=dst, explicit_dtype=dtype is not None, predicate=form, equal=equal,
                       value=float(on_false_value))


def memset(shape: Any, value: float, dtype: Any, *, mask: Any = None, engine: Any = None) -> Any:
    """A constant tile; dimension 0 is the partition."""
    extents, _ = creation.plain_shape(shape)
    return ops.compute(movement.MemsetOp, extents, dtype, {}, mask, explicit_dtype=True, value=float(value),
                       engine=engine_name(engine))


def iota(expression: Any, dtype: Any, *, mask: Any = None) -> Any:
    """The values of an index expression as a tile."""
    spread = ops.tile_index(expression)
    return ops.compute(movement.IotaOp, spread.shape, dtype, {}, mask, explicit_dtype=True, expression=spread)


def check_descriptors(op: str, mode: Any) -> None:
    """Descriptors made by the hardware came with generation 3."""
    machine = active(op).machine
    if getattr(mode, "name", mode) == "hwdge" and machine.generation < 3:
        active().report(NotOnTarget(what=f"{op} with dge_mode hwdge", needs=3, target=machine.name,
                                    has=machine.generation, instead="leave dge_mode to the compiler"), contested=False)


class BadPosition(KernelError, ValueError):
    code = "NKI-TILE-POSITION"
    message = "nc_matmul with tile_position {position} and tile_size {size}: {rule}"
    fix = "give neither, or (row, column) and (rows, columns) of a part of the 128 x 128 array"


def check_position(position: Any, size: Any, stationary: View) -> None:
    """The part of the array that a product runs on changes no value; it is checked by its documented rules."""
    if not len(position) and not len(size):
        return
    start, extent = [n if isinstance(n, Index) else int(n) for n in position], [int(n) for n in size]
    if len(start) != 2 or len(extent) != 2:
        rule = "both are given, with two integers each"
    else:
        (rows, columns), smallest = extent, 32 if machine_named(ops.active("nc_matmul").target).generation > 2 else 64
        sizes = [n for n in (32, 64, 128) if n >= smallest]
        rule = "" if rows in sizes and columns in sizes else f"rows and columns are of {sizes}"
        if not rule and any(isinstance(n, int) and (n % e or not 0 <= n < 128) for n, e in zip(start, extent)):
            rule = "the position is no multiple of the size"
        if not rule and (stationary.shape[0] > rows or int(np.prod(stationary.shape[1:])) > columns):
            rule = f"stationary is {list(stationary.shape)}"
    if rule:
        raise BadPosition(position=tuple(position), size=tuple(size), rule=rule).located(user_location())


def nc_matmul(stationary: Any, moving: Any, *, dst: Any = None, accumulate: bool = False, is_transpose: bool = False,
              mask: Any = None) -> Any:
    """stationary.T @ moving in PSUM, float32. With ``is_transpose`` moving is an identity: elements are moved."""
    left, right = (ops.to_sbuf(t) if t.buffer.movable else t
                   for t in (creation.as_operand(stationary), creation.as_operand(moving)))
    for label, tile in (("stationary", left), ("moving", right)):
        ops.require_space("nc_matmul", label, tile, SBUF)
    shape = ops.product_shape("nc_matmul", left, right)
    if is_transpose:
        return ops.compute(permutation.MatmulTransposeOp, shape, FLOAT32, {"stationary": left, "moving": right}, mask,
                           space=PSUM, destination=dst)
    return ops.compute(products.NcMatmulOp, shape, FLOAT32, {"stationary": left, "moving": right}, mask, space=PSUM,
                       destination=dst, accumulate=accumulate)


class BadPerfMode(KernelError):
    code = "NKI-PERF-MODE"
    message = "nc_matmul with perf_mode {mode}: {what}"
    fix = "use perf_mode='double_row_gen3' from trn2 on, with 8-bit floats of shapes [K, 2, M] and [K, 2, N]"


def double_row_matmul(stationary: Any, moving: Any, mode: Any, *, mask: Any = None) -> Any:
    """The product over the partitions and axis 1, which is 2 in both operands."""
    from nki_mlir.language.assignment import accumulate
    name = getattr(mode, "name", str(mode))
    builder, wrong = ops.active("nisa.nc_matmul"), ""
    if name not in ("double_row", "double_row_gen3"):
        wrong = "there is no such mode here"
    elif machine_named(builder.target).generation < 3:
        wrong = f"{builder.target} does not have it"
    for label, tile in (("stationary", stationary), ("moving", moving)):
        if tile.ndim != 3 or tile.shape[1] != 2 or tile.itemsize != 1 or not tile.dtype.is_float:
            wrong = wrong or f"{label} is {list(tile.shape)} {tile.dtype}"
    if wrong:
        raise BadPerfMode(mode=name, what=wrong).located(user_location())
    first, second = (nc_matmul(stationary[:, row, :], moving[:, row, :], mask=mask) for row in range(2))
    return accumulate(first, second)


def nc_transpose(data: Any, *, dst: Any = None, dtype: Any = None, engine: Any = None, mask: Any = None) -> Any:
    """data with partition and free axis exchanged; extra free axes are collapsed."""
    source = creation.as_operand(data)
    if len(source.shape) > 2:
        source = source.reshape((source.shape[0], int(np.prod(source.shape[1:]))))
    name = engine_name(engine)
    if name not in ("unknown", "tensor", "vector"):
        raise BadTransposeEngine(found=name).located(user_location())
    small = max(source.shape) <= 32
    on_vector = name == "vector" or (name == "unknown" and (small or source.buffer.space == PSUM))
    if not on_vector:
        refuse_hidden(HiddenTranspose, "nc_transpose", source)
    kind: DType = source.dtype
    made = ops.compute(products.NcTransposeOp, source.shape[::-1], kind, {"src": source}, mask,
                       space=SBUF if on_vector else PSUM, destination=dst, engine="vector" if on_vector else "tensor")
    if dst is None:
        made.buffer.movable = name == "unknown"
    if dtype is None or dst is not None:
        return made
    return ops.copy(made, dtype=dtype, mask=mask.transposed() if isinstance(mask, Mask) else mask)


def dma_copy(*, dst: Any, src: Any, mask: Any = None) -> None:
    """dst = src between HBM and SBUF, either way."""
    target, source = creation.as_operand(dst), creation.as_operand(src)
    ops.require_space("dma_copy", "dst", target, HBM, SBUF)
    ops.require_space("dma_copy", "src", source, HBM, SBUF)
    emit(movement.DmaCopyOp, {"dst": target, "src": source}, mask)


def dma_accumulate(*, dst: Any, src: Any, op: Any, mask: Any = None) -> None:
    """dst = dst (op) src with dst in HBM: read to SBUF, combined, written back."""
    before = ops.load(dst, mask=mask) if dst.buffer.space == HBM else dst
    value = src if src.buffer.on_chip else ops.load(src, mask=mask)
    total = ops.binary(op, before, value, mask=mask, dtype=dst.dtype)
    dma_copy(dst=dst, src=total, mask=mask)

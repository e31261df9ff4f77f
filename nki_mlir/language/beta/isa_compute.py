# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions of the beta generation that do more than emit their operation: they allocate their result tile.

Scalars may be numbers or [P, 1] tiles. The other instructions are in ``isa.py``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_mlir.capture.builder import active
from nki_mlir.capture.errors import UnsupportedMask
from nki_mlir.capture.index import Index, Mask
from nki_mlir.capture.tensor import View
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import HBM, PSUM, SBUF
from nki_mlir.dialects.nisa import accumulating, elementwise, movement, reduction
from nki_mlir.dialects.nisa import matmul as products
from nki_mlir.dialects.nki.reduction import reduced_shape
from nki_mlir.dialects.verifier import PartitionMismatch, ShapeMismatch
from nki_mlir.language import assignment, creation, indirect, tensor
from nki_mlir.language import instructions as core
from nki_mlir.language import operations as ops
from nki_mlir.language.beta import enums, language
from nki_mlir.language.beta.enums import dge_mode, engine, oob_mode
from nki_mlir.language.creation import Tensor, emit
from nki_mlir.language.direct_allocation import HiddenTranspose, refuse_hidden
from nki_mlir.language.indirect import DynamicView, IndirectNotSupported, IndirectView
from nki_mlir.language.product_rules import ArrayPart, BadPerfMode, check_double_row, joined_rows, product_shape
from nki_mlir.machine import Machine
from nki_mlir.scalar.dtypes import FLOAT32, DType
from nki_mlir.scalar.tokens import activation_token, alu_token


def tensor_tensor(data1: Tensor, data2: Tensor, op: object, *, dtype: object, mask: object, engine: engine) -> Tensor:
    """Compute data1 op data2 elementwise, on the Vector or GpSimd engine."""
    left, right = creation.as_operand(data1), creation.as_operand(data2)
    shape = ops.broadcast_shape(left.shape, right.shape, subject="tensor_tensor")
    name = alu_token(op).name
    kind = ops.result_dtype(name, left, right, dtype, False)
    if left.shape[0] != right.shape[0]:
        tiles = f"data1{list(left.shape)}, data2{list(right.shape)}"
        raise PartitionMismatch(tiles=tiles, op="tensor_tensor").here()
    return ops.compute(elementwise.TensorTensorOp, shape, kind, ops.of_one_kind(name, left, right), mask,
                       explicit_dtype=dtype, op=name, engine=core.engine_name(engine))


def tensor_scalar(data: Tensor, op0: object, operand0: float | Tensor, reverse0: object, op1: object,
                  operand1: object, reverse1: object, *, dtype: object, mask: object, engine: engine) -> Tensor:
    """Return (data op0 operand0) op1 operand1; operands are numbers or [P, 1] tiles."""
    source = creation.as_operand(data)
    if (operand1 is None) != (op1 is None) and (op1 is None or alu_token(op1).arity == 2):
        raise core.UnpairedOperand(missing="op1" if op1 is None else "operand1").here()
    first, second = alu_token(op0).name, "bypass" if op1 is None else alu_token(op1).name
    tile0, imm0 = core.operand(operand0, first)
    tile1, imm1 = core.operand(0.0 if operand1 is None else operand1, second)
    return ops.compute(elementwise.TensorScalarOp, source.shape, data.dtype,
                       {"src": source, "operand0": tile0, "operand1": tile1}, mask, explicit_dtype=dtype, op0=first,
                       imm0=imm0,
                       reverse0=bool(reverse0), op1=second, imm1=imm1, reverse1=bool(reverse1),
                       engine=core.engine_name(engine))


def activation_source(op: object, data: object, bias: object, scale: object
                      ) -> tuple[View, dict[str, View | None], dict[str, Any]]:
    """Return an activation's tile, its operands (tile, bias and scale of that shape), and its attributes."""
    source = creation.as_operand(data)
    core.refuse_hidden_bias(op, bias, source)
    tiles, number = core.activation_operands(op, bias, scale, source.shape)
    return source, {"src": source, **tiles}, {"fn": activation_token(op).name, "imm": number}


def activation(op: object, data: View, *, bias: float | Tensor | None, scale: object, reduce_op: object,
               reduce_res: View | None, reduce_cmd: object, dtype: object, mask: object, buffer: object = None
               ) -> Tensor:
    """Return op(data * scale + bias), by the Scalar engine; ``reduce_cmd`` can accumulate it in registers."""
    source, views, attributes = activation_source(op, data, bias, scale)
    kind = source.dtype if dtype is None else dtype
    dst = None if buffer is None else language.ndarray(source.shape, kind, buffer=buffer)
    cls, command = elementwise.ActivationOp, core.command_name(reduce_cmd)
    if command != "idle" or reduce_res is not None:
        core.note_registers("scalar", command, reduce_res)
        cls = accumulating.ActivationAccumulateOp                              # type: ignore[assignment]
        views |= {"accumulator": core.registers("scalar", source.shape[0]), "reduce_res": reduce_res}
        attributes |= {"reduce_op": "add" if reduce_op is None else alu_token(reduce_op).name, "reduce_cmd": command}
    return ops.compute(cls, source.shape, kind, views, mask, explicit_dtype=dtype, destination=dst, **attributes)


def activation_reduce(op: object, data: View, *, reduce_op: object, reduce_res: View, bias: Tensor | None,
                      scale: object, dtype: object, mask: Mask | None) -> Tensor:
    """Return op(data * scale + bias), and write its sum over the free axes to reduce_res."""
    source, views, attributes = activation_source(op, data, bias, scale)
    views |= {"reduce_res": core.rows_like(reduce_res, source)}
    attributes |= {"reduce_op": alu_token(reduce_op).name}
    if attributes["reduce_op"] == "add" and active().needs_total("scalar"):
        views |= {"accumulator": core.registers("scalar", source.shape[0])}
        return ops.compute(accumulating.ActivationAccumulateOp, source.shape, data.dtype, views, mask,
                           explicit_dtype=dtype, reduce_cmd="reset_reduce", **attributes)
    return ops.compute(reduction.ActivationReduceOp, source.shape, data.dtype, views, mask, explicit_dtype=dtype,
                       **attributes)


def tensor_scalar_reduce(*, data: Tensor, op0: object, operand0: Tensor, reduce_op: object, reduce_res: Tensor,
                         reverse0: object, dtype: object, mask: object) -> Tensor:
    """Return data op0 operand0, and write its reduction over the free axes to reduce_res."""
    source = creation.as_operand(data)
    tile0, imm0 = core.operand(operand0)
    views = {"reduce_res": core.rows_like(reduce_res, source), "src": source,
             "operand0": core.over_row(tile0, source.shape)}
    return ops.compute(reduction.TensorScalarReduceOp, source.shape, data.dtype, views, mask, explicit_dtype=dtype,
                       op0=alu_token(op0).name, imm0=imm0, reverse0=bool(reverse0),
                       reduce_op=alu_token(reduce_op).name)


def tensor_reduce(op: object, data: Tensor, axis: object, *, mask: Mask | None, dtype: object, negate: object,
                  keepdims: bool) -> Tensor:
    """Return data reduced over free axes, times -1 with ``negate``."""
    source = creation.as_operand(data)
    axes = ops.free_axes(source.ndim, axis)
    result = ops.compute(reduction.TensorReduceOp, reduced_shape(source.shape, axes), data.dtype, {"src": source}, mask,
                         explicit_dtype=dtype, op=alu_token(op).name, axes=axes, negate=bool(negate))
    return ops.drop_axes(result, axes, keepdims)


def tensor_copy_predicated(*, src: float | Tensor, dst: Tensor, predicate: Tensor, reverse_pred: object,
                           mask: object, dtype: object) -> Tensor:
    """Set dst = src where the predicate is not 0."""
    core.check_destination("tensor_copy_predicated", dst, dtype)
    source = src if isinstance(src, View) else ops.as_tile(src, dst, dst.dtype)
    emit(elementwise.TensorCopyPredicatedOp, {"dst": dst, "src": source, "predicate": predicate}, mask,
         reverse_pred=bool(reverse_pred))
    return dst


def affine_select(pred: Mask, on_true_tile: View, on_false_value: float, *, mask: object, dtype: object) -> Tensor:
    """Select on_true_tile where an affine comparison holds, else ``on_false_value``."""
    source = creation.as_operand(on_true_tile)
    if isinstance(pred, (bool, np.bool_)):
        pred = Mask(((Index(0 if pred else -1), False),))
    if not isinstance(pred, Mask) or len(pred.terms) != 1 or (pred.negated and not pred.terms[0][1]):
        raise UnsupportedMask(what="affine_select takes one affine comparison",
                              instead="call it once for each comparison").here()
    (expression, equal), = pred.terms
    if pred.negated:
        raise UnsupportedMask(what="affine_select has no != comparison",
                              instead="copy the tile, and write on_false_value with mask= where they are equal").here()
    return ops.compute(elementwise.AffineSelectOp, source.shape, on_true_tile.dtype, {"src": source}, mask,
                       explicit_dtype=dtype,
                       predicate=expression.spread(source.shape), equal=equal, value=float(on_false_value))


def memset(shape: object, value: float, dtype: object, *, mask: object, engine: object) -> Tensor:
    """Return a new tile whose elements all have the same value."""
    extents, _ = creation.plain_shape(shape)
    return ops.compute(movement.MemsetOp, extents, dtype, {}, mask, explicit_dtype=dtype,
                       value=creation.fill_value(value, creation.located_dtype(dtype)), engine=core.engine_name(engine))


def iota(expr: Index, dtype: DType, *, mask: object) -> Tensor:
    """Return the values of an affine index expression as a tile."""
    spread = ops.tile_index(expr)
    return ops.compute(movement.IotaOp, spread.shape, dtype, {}, mask, explicit_dtype=dtype, expression=spread)


def nc_matmul(stationary: tensor.Tensor, moving: tensor.Tensor, *, is_stationary_onezero: object,
              is_moving_onezero: object, is_transpose: bool, tile_position: Sequence[int] | None,
              tile_size: Sequence[int] | None, mask: Mask | None, perf_mode: str | None = None) -> Tensor:
    """Compute stationary.T @ moving as a float32 tile in PSUM. Hints do not change values; ``perf_mode`` says how the
    operands are laid out.

    With ``is_transpose`` moving is an identity matrix, and the instruction moves elements without arithmetic.
    """
    ArrayPart("nc_matmul", tile_position or (), tile_size or ()).check(stationary.shape)
    if getattr(perf_mode, "name", perf_mode) not in (None, "none"):
        return double_row_matmul(stationary, moving, perf_mode, is_transpose, mask)
    return product(stationary, moving, mask, is_transpose)


def product(stationary: Tensor, moving: Tensor, mask: object, is_transpose: bool = False) -> Tensor:
    """Emit stationary.T @ moving in PSUM."""
    left, right = (ops.to_sbuf(t) if t.buffer.movable else t
                   for t in (creation.as_operand(stationary), creation.as_operand(moving)))
    for label, tile in (("stationary", left), ("moving", right)):
        ops.require_space("nc_matmul", label, tile, SBUF)
    shape = product_shape("nc_matmul", left, right, mask)
    if is_transpose:
        return ops.compute(products.MatmulTransposeOp, shape, FLOAT32, {"stationary": left, "moving": right}, mask,
                           space=PSUM)
    return ops.compute(products.NcMatmulOp, shape, FLOAT32, {"stationary": left, "moving": right}, mask, space=PSUM,
                       accumulate=False)


def double_row_matmul(stationary: tensor.Tensor, moving: tensor.Tensor, mode: object, is_transpose: bool,
                      mask: object) -> Tensor:
    """Emit the product over the partitions and axis 1, whose extent is 2 in both operands."""
    name = getattr(mode, "name", str(mode))
    machine, wrong = active("nisa.nc_matmul").machine, ""
    if name not in ("double_row", "double_row_gen3"):
        wrong = "there is no such mode"
    elif machine.generation < 3:
        wrong = f"{machine.name} does not have it"
    if wrong:
        raise BadPerfMode(mode=name, what=wrong).here()
    check_double_row(name, {"stationary": stationary, "moving": moving}, is_transpose)
    rows = [{"stationary": stationary[:, row, :], "moving": moving[:, row, :]} for row in range(2)]
    operands = joined_rows([dict(zip(row, map(creation.as_operand, row.values()))) for row in rows])
    if operands is None or mask is not None or any(t.buffer.space != SBUF for t in operands.values()):
        first, second = (product(**row, mask=mask) for row in rows)
        return assignment.accumulate(first, second)
    shape = product_shape("nc_matmul", rows[0]["stationary"], rows[0]["moving"], None)
    return ops.compute(products.NcMatmulDoubleRowOp, shape, FLOAT32, operands, space=PSUM, accumulate=False)


class TransposeInBlocks(KernelError):
    code = "NKI-TRANSPOSE-BLOCKS"
    message = "nc_transpose of {rows} x {columns} on the vector engine is {count} instructions"
    why = "the vector engine transposes blocks of {side} x {side}, and the documents allow no larger tile for it"
    fix = "use nisa.tensor_engine, or leave the engine to the compiler"


def transpose_in_blocks(source: View, mask: object) -> Tensor:
    """Transpose a tile that is larger than a block of the vector engine, block by block, in SBUF."""
    side, (rows, columns) = Machine.transpose_vector_max, source.shape
    starts = [(p, f) for p in range(0, rows, side) for f in range(0, columns, side)]
    active().report(TransposeInBlocks(rows=rows, columns=columns, count=len(starts), side=side))
    result = creation.result_tensor((columns, rows), source.dtype, SBUF)
    for p, f in starts:
        across, down = slice(p, min(p + side, rows)), slice(f, min(f + side, columns))
        block = {"dst": result.subscript((down, across)), "src": source.subscript((across, down))}
        emit(products.NcTransposeOp, block, engine="vector")
    return ops.copy(result, mask=mask.transposed()) if isinstance(mask, Mask) else result


def nc_transpose(data: Tensor, *, mask: object, dtype: object, engine: engine) -> Tensor:
    """Return data with its partition and its flattened free axes exchanged."""
    source = creation.as_operand(data)
    if len(source.shape) > 2:
        source = source.reshape((source.shape[0], int(np.prod(source.shape[1:]))))
    name = core.engine_name(engine)
    small = max(source.shape) <= Machine.transpose_vector_max
    on_vector = name == "vector" or (name == "unknown" and (small or source.buffer.space == PSUM))
    if not on_vector:
        refuse_hidden(HiddenTranspose, "nc_transpose", source)
    if name == "vector" and not small:
        result = transpose_in_blocks(source, mask)
    else:
        chosen = "vector" if on_vector and name == "unknown" else name      # unknown: the tensor engine, or DMA engines
        result = ops.compute(products.NcTransposeOp, source.shape[::-1], source.dtype, {"src": source}, mask,
                           space=SBUF if on_vector else PSUM, engine=chosen)
    result.buffer.movable = name == "unknown"
    if dtype is None:
        return result
    return ops.copy(result, dtype=dtype, mask=mask.transposed() if isinstance(mask, Mask) else mask)


def dma_copy(*, dst: object, src: object, mask: Mask | None, dst_rmw_op: object, oob_mode: oob_mode,
             dge_mode: dge_mode) -> None:
    """Set dst = src between HBM and SBUF, in either direction, with conversion; either side may be indexed by
    a tile."""
    if isinstance(src, indirect.ADDRESSED):
        if not isinstance(dst, indirect.ADDRESSED) and dst_rmw_op is None:
            indirect.gather(src, dst=dst, mask=mask, mode=oob_mode)
            return
        if indirect.mode_name(oob_mode) == "skip":
            raise IndirectNotSupported(op="dma_copy that skips rows, then combines or scatters them,").here()
        src = indirect.gather(src, mask=mask)
    if isinstance(dst, indirect.ADDRESSED):
        rmw = "bypass" if dst_rmw_op is None else alu_token(dst_rmw_op).name
        indirect.scatter(dst, src, mask=mask, mode=oob_mode, rmw=rmw)
    elif dst_rmw_op is not None:
        combine(dst, src, dst_rmw_op, mask)
    else:
        move(dst, src, mask)


def move(dst: object, src: object, mask: Mask | None) -> None:
    """Emit dst = src between HBM and SBUF, in either direction."""
    target, source = creation.as_operand(dst), creation.as_operand(src)
    ops.require_space("dma_copy", "dst", target, HBM, SBUF)
    ops.require_space("dma_copy", "src", source, HBM, SBUF)
    emit(movement.DmaCopyOp, {"dst": target, "src": source}, mask)


def combine(dst: Any, src: Any, op: object, mask: Any) -> None:
    """Emit dst = dst op src with dst in HBM: load it to SBUF, combine, store it."""
    before = ops.load(dst, mask=mask) if dst.buffer.space == HBM else dst
    value = src if src.buffer.on_chip else ops.load(src, mask=mask)
    move(dst, ops.binary(op, before, value, mask=mask, dtype=dst.dtype), mask)


def dma_transpose(src: View, *, axes: Sequence[int] | None, mask: object, dtype: object,
                  dge_mode: dge_mode = enums.dge_mode.unknown) -> Tensor:
    """Return src with its axes permuted, through DMA; by default (1, 0), (2, 1, 0) or (3, 1, 2, 0)."""
    if isinstance(src, indirect.ADDRESSED):
        src = indirect.gather(src)
    default = core.DMA_AXES.get(src.ndim, ())
    permutation = tuple(int(a) for a in axes) if axes is not None else default
    if permutation != default or not default:
        active("nisa.dma_transpose").report(core.TransposedAxes(axes=permutation, rank=src.ndim), uncertain=False)
    if sorted(permutation) != list(range(src.ndim)):
        raise ShapeMismatch(what=f"dma_transpose with axes {axes} of a tensor of shape {src.shape}").here()
    shape = tuple(src.shape[k] for k in permutation)
    return ops.compute(movement.DmaTransposeOp, shape, src.dtype, {"src": src}, mask, explicit_dtype=dtype,
                       permutation=permutation)


def tensor_scalar_cumulative(dst: View, src: View, op0: object, op1: object, imm0: object, imm1: object = None,
                             reduce_cmd: object = enums.reduce_cmd.reset_reduce, *, mask: object = None) -> None:
    """Set dst[i] = op1(op0(src[i], imm0), dst[i-1]) along the free axis; ``load_reduce`` starts from ``imm1``."""
    command = core.command_name(reduce_cmd)
    core.note_registers("vector", command, None)
    accumulators = core.registers("vector", src.shape[0])
    if command == "load_reduce":
        core.load_registers(accumulators, *core.operand(imm1))
        command = "reduce"
    tile, number = core.operand(imm0)
    views = {"dst": dst, "accumulator": accumulators, "src": src, "operand0": tile}
    emit(accumulating.TensorScalarCumulativeOp, views, mask, op0=alu_token(op0).name, op1=alu_token(op1).name,
         imm0=number, reduce_cmd=command)


def tensor_copy_dynamic_src(src: View | IndirectView | DynamicView, *, mask: Mask | None, dtype: object,
                            engine: engine) -> Tensor:
    """Copy elements of src from a free offset on that a [1, 1] tile contains."""
    if isinstance(src, indirect.ADDRESSED):
        return indirect.gather(src, mask=mask, dtype=dtype, engine=core.engine_name(engine))
    return ops.copy(src, dtype=dtype, mask=mask)


def tensor_copy_dynamic_dst(*, dst: Any, src: object, mask: object, dtype: object, engine: object) -> object:
    """Copy src to elements of dst from a free offset on that a [1, 1] tile contains."""
    core.check_destination("tensor_copy_dynamic_dst", dst, dtype)
    if isinstance(dst, indirect.ADDRESSED):
        indirect.scatter(dst, src, mask=mask, engine=core.engine_name(engine))
    else:
        assignment.assign(dst, src, mask)
    return dst

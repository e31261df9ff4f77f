# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions of the beta generation without a loop form: statistics, searches, shuffles, selections."""

from math import prod
from typing import Any

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.nisa import accumulating, movement, search, selection, shuffle
from nki_mlir.frontend.builder import active
from nki_mlir.frontend.locations import user_location
from nki_mlir.language import assignment, creation, indirect
from nki_mlir.language import operations as ops
from nki_mlir.language.beta import enums
from nki_mlir.language.beta.isa_compute import check_descriptors
from nki_mlir.language.creation import emit
from nki_mlir.language.instructions import (
    check_destination,
    command_name,
    engine_name,
    operand,
    registers,
    require_from_first,
)
from nki_mlir.scalar.dtypes import UINT32
from nki_mlir.scalar.tokens import alu_token


def nc_find_index8(*, data, vals, mask, dtype) -> Any:
    """[P, 8]: where each of 8 values occurs in data, flattened."""
    source = creation.as_operand(data)
    require_from_first("nc_find_index8", mask, source.shape, *range(1, source.ndim))
    return ops.compute(search.FindIndex8Op, (source.shape[0], 8), dtype or UINT32, {"data": source, "vals": vals}, mask,
                       explicit_dtype=True)


def nc_match_replace8(*, data, vals, imm, dst_idx, mask, dtype) -> Any:
    """data with the first occurrence of each of 8 values replaced; dst_idx gets the places."""
    source = creation.as_operand(data)
    if dst_idx is not None:
        require_from_first("nc_match_replace8", mask, source.shape, *range(1, source.ndim))
    return ops.compute(search.MatchReplace8Op, source.shape, dtype or data.dtype,
                       {"dst_idx": dst_idx, "data": source, "vals": vals}, mask, explicit_dtype=dtype is not None,
                       imm=float(imm))


def nc_stream_shuffle(src, dst, shuffle_mask, *, dtype, mask) -> Any:
    """dst[i] = src[shuffle_mask[i]] in each group of 32 partitions; 255 leaves dst[i]."""
    check_destination("nc_stream_shuffle", dst, dtype)
    emit(shuffle.StreamShuffleOp, {"dst": dst, "src": src}, mask, shuffle=tuple(int(m) for m in shuffle_mask))
    return dst


def local_gather(src_buffer, index, num_elem_per_idx, num_valid_indices, *, mask) -> Any:
    """Gathered elements of each partition by indices that 16 partitions share."""
    source, indices, elements = creation.as_operand(src_buffer), creation.as_operand(index), int(num_elem_per_idx)
    shape = (source.shape[0], *indices.shape[1:], shuffle.GROUP, elements)
    return ops.compute(shuffle.LocalGatherOp, shape, source.dtype, {"src": source, "index": indices}, mask,
                       explicit_dtype=True, elements=elements,
                       valid=-1 if num_valid_indices is None else int(num_valid_indices))


class TransposedAxes(KernelError):
    code = "NKI-TRANSPOSE-AXES"
    message = "dma_transpose with axes {axes}; of that many dimensions it takes {legal}"
    fix = "leave axes out, or permute the tensor's view"


def dma_transpose(src, *, axes, mask, dtype, dge_mode=enums.dge_mode.unknown) -> Any:
    """src with its axes permuted, through DMA; (1, 0), (2, 1, 0) or (3, 1, 2, 0) where axes are not given."""
    check_descriptors("dma_transpose", dge_mode)
    if isinstance(src, indirect.ADDRESSED):
        src = indirect.gather(src)
    defaults = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
    permutation = tuple(int(a) for a in axes) if axes is not None else defaults.get(src.ndim, ())
    if permutation != defaults.get(src.ndim, permutation):
        active("nisa.dma_transpose").report(TransposedAxes(axes=permutation, legal=defaults[src.ndim]),
                                            contested=False)
    if sorted(permutation) != list(range(src.ndim)):
        raise ops.ShapeMismatch(what=f"dma_transpose with axes {axes} of a tensor of shape {src.shape}").located(
            user_location())
    shape = tuple(src.shape[k] for k in permutation)
    return ops.compute(shuffle.DmaTransposeOp, shape, dtype or src.dtype, {"src": src}, mask,
                       explicit_dtype=dtype is not None, permutation=permutation)


def tensor_scalar_cumulative(dst, src, op0, op1, imm0, imm1=None, reduce_cmd=enums.reduce_cmd.reset_reduce, *,
                             mask=None) -> None:
    """dst[i] = op1(op0(src[i], imm0), dst[i-1]) along the free axis; ``load_reduce`` starts from ``imm1``."""
    command, held = command_name(reduce_cmd), registers("vector", src.shape[0])
    if command == "load_reduce":
        tile, number = operand(imm1)
        with assignment.accumulating():         # registers are each iteration's own
            if tile is None:
                emit(movement.MemsetOp, {"dst": held}, value=number)
            else:
                emit(movement.TensorCopyOp, {"dst": held, "src": tile})
        command = "reduce"
    tile, number = operand(imm0)
    emit(accumulating.TensorScalarCumulativeOp, {"dst": dst, "accumulator": held, "src": src, "operand0": tile}, mask,
         op0=alu_token(op0).name, op1=alu_token(op1).name, imm0=number, reduce_cmd=command)


def select_reduce(*, dst, predicate, on_true, on_false, reduce_res, reduce_cmd, reduce_op, reverse_pred, mask, dtype
                  ) -> Any:
    """dst = on_true where the predicate is not 0, else on_false; the row maximum accumulates."""
    check_destination("select_reduce", dst, dtype)
    tile, number = operand(on_false)
    views = {"dst": dst, "accumulator": registers("vector", dst.shape[0]), "reduce_res": reduce_res,
             "predicate": predicate, "on_true": on_true, "on_false": tile}
    emit(selection.SelectReduceOp, views, mask, imm=number, reverse_pred=bool(reverse_pred),
             reduce_cmd=command_name(reduce_cmd), reduce_op=alu_token(reduce_op).name)
    return dst


def range_select(*, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd, reduce_res, reduce_op, range_start,
                 on_false_value, mask, dtype) -> Any:
    """on_true_tile where its free index is in the range of the bounds, else on_false_value; its maximum accumulates."""
    source = creation.as_operand(on_true_tile)
    require_from_first("range_select", mask, source.shape, *range(1, source.ndim))
    views = {"accumulator": registers("vector", source.shape[0]), "reduce_res": reduce_res, "src": source,
             "bound0": bound0, "bound1": bound1}
    return ops.compute(selection.RangeSelectOp, source.shape, dtype or on_true_tile.dtype, views, mask,
                       explicit_dtype=dtype is not None, comp0=alu_token(comp_op0).name, comp1=alu_token(comp_op1).name,
                       base=float(range_start), fill=float(on_false_value), reduce_cmd=command_name(reduce_cmd),
                       reduce_op=alu_token(reduce_op).name)


def sequence_bounds(*, segment_ids, dtype) -> Any:
    """[1, 2, n]: first and one past last place of the run of equal ids at each place."""
    source = creation.as_operand(segment_ids)
    return ops.compute(selection.SequenceBoundsOp, (1, 2, prod(source.shape[1:])), dtype or source.dtype,
                       {"segment_ids": source}, explicit_dtype=dtype is not None)


def tensor_copy_dynamic_src(src, *, mask, dtype, engine) -> Any:
    """A copy from a free offset that a [1, 1] tile holds."""
    return indirect.copy_dynamic_src(src, mask=mask, dtype=dtype, engine=engine_name(engine))


def tensor_copy_dynamic_dst(*, dst, src, mask, dtype, engine) -> Any:
    """A copy to a free offset that a [1, 1] tile holds."""
    check_destination("tensor_copy_dynamic_dst", dst, dtype)
    return indirect.copy_dynamic_dst(dst, src, mask=mask, engine=engine_name(engine))

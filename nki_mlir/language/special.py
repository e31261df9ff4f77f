# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions without a loop form: scans, statistics, searches, shuffles, selections, random numbers."""

from typing import Any

import numpy as np

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.nisa import accumulating, movement, random, scan, search, selection, shuffle, statistics
from nki_mlir.frontend.builder import active
from nki_mlir.frontend.errors import UnsupportedMask
from nki_mlir.frontend.index import Index, Mask
from nki_mlir.frontend.tensor import View
from nki_mlir.language import assignment, creation
from nki_mlir.language import instructions as core
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import emit
from nki_mlir.scalar.dtypes import FLOAT32, INT32, UINT32
from nki_mlir.scalar.promotion import promote
from nki_mlir.scalar.tokens import activation_token, alu_token

COMMANDS = ("idle", "reset", "reduce", "reset_reduce", "load_reduce")


def command_name(command: Any) -> str:
    """``reduce_cmd`` as enum member, number or name."""
    if isinstance(command, int):
        return COMMANDS[command]
    return getattr(command, "name", str(command))


def registers(engine: str, partitions: int) -> Any:
    """The accumulation registers of an engine for the first partitions: one float32 each, kept between instructions."""
    whole = creation.tensor_of(active().state(f"{engine}_accumulators", (128, 1), FLOAT32))
    return whole[0:partitions, 0:1]


def require_from_first(op: str, mask: Any, shape: tuple[int, ...], *axes: int) -> None:
    """Refuse a mask that leaves out elements in front along axes that the operation counts places along."""
    for expression, equal in mask.spread(shape).terms if isinstance(mask, Mask) else ():
        first = Index(expression.const, expression.symbols)
        if any((c := expression.axes[k]) > 0 or (equal and c) for k in axes) and first.interval()[0] < 0:
            raise UnsupportedMask(what=f"the mask of '{op}', which counts places from the first element, leaves out "
                                       "the first ones").located(ops.user_location())


def tensor_tensor_scan(data0: Any, data1: Any, initial: Any, op0: Any, op1: Any, reverse0: bool = False,
                       reverse1: bool = False, *, dst: Any = None, dtype: Any = None, mask: Any = None) -> Any:
    """r[i] = op1(op0(data0[i], r[i-1]), data1[i]) along the free axis."""
    first, second = creation.as_operand(data0), creation.as_operand(data1)
    tile, number = core.operand(initial)
    kind = creation.located_dtype(dtype) if dtype is not None else promote(first.dtype, second.dtype)
    return ops.compute(scan.TensorTensorScanOp, first.shape, kind,
                       {"data0": first, "data1": second.broadcast_to(first.shape), "initial": tile}, mask,
                       destination=dst, explicit_dtype=dtype is not None, op0=alu_token(op0).name,
                       op1=alu_token(op1).name, imm=number, reverse0=bool(reverse0), reverse1=bool(reverse1))


def bn_stats(data: Any, *, dst: Any = None, dtype: Any = None, mask: Any = None) -> Any:
    source = creation.as_operand(data)
    return ops.compute(statistics.BnStatsOp, (source.shape[0], 6), dtype or data.dtype, {"src": source}, mask,
                       destination=dst, explicit_dtype=dtype is not None)


def bn_aggr(data: Any, *, dst: Any = None, dtype: Any = None, mask: Any = None) -> Any:
    source = creation.as_operand(data)
    return ops.compute(statistics.BnAggrOp, (source.shape[0], 2), dtype or data.dtype, {"src": source}, mask,
                       destination=dst, explicit_dtype=dtype is not None)


def max8(src: Any, *, dst: Any = None, dtype: Any = None, mask: Any = None) -> Any:
    source = creation.as_operand(src)
    return ops.compute(search.Max8Op, (source.shape[0], 8), dtype or src.dtype, {"src": source}, mask, destination=dst,
                       explicit_dtype=dtype is not None)


def nc_find_index8(data: Any, vals: Any, *, dst: Any = None, dtype: Any = None, mask: Any = None) -> Any:
    source = creation.as_operand(data)
    require_from_first("nc_find_index8", mask, source.shape, *range(1, source.ndim))
    return ops.compute(search.FindIndex8Op, (source.shape[0], 8), dtype or UINT32, {"data": source, "vals": vals}, mask,
                       destination=dst, explicit_dtype=True)


def nc_match_replace8(data: Any, vals: Any, imm: float, *, dst: Any = None, dst_idx: Any = None, dtype: Any = None,
                      mask: Any = None) -> Any:
    source = creation.as_operand(data)
    if dst_idx is not None:
        require_from_first("nc_match_replace8", mask, source.shape, *range(1, source.ndim))
    return ops.compute(search.MatchReplace8Op, source.shape, dtype or data.dtype,
                       {"dst_idx": dst_idx, "data": source, "vals": vals}, mask, destination=dst,
                       explicit_dtype=dtype is not None, imm=float(imm))


def nc_stream_shuffle(src: Any, dst: Any, shuffle_mask: Any, *, mask: Any = None) -> Any:
    emit(shuffle.StreamShuffleOp, {"dst": dst, "src": src}, mask, shuffle=tuple(int(m) for m in shuffle_mask))
    return dst


def local_gather(src: Any, index: Any, elements: int = 1, valid: int | None = None, *, dst: Any = None,
                 mask: Any = None) -> Any:
    source, indices = creation.as_operand(src), creation.as_operand(index)
    shape = (source.shape[0], *indices.shape[1:], shuffle.GROUP, int(elements))
    return ops.compute(shuffle.LocalGatherOp, shape, src.dtype, {"src": source, "index": indices}, mask,
                       destination=dst, explicit_dtype=True, elements=int(elements),
                       valid=-1 if valid is None else int(valid))


def gather_flattened(data: Any, indices: Any, *, dst: Any = None, dtype: Any = None, mask: Any = None) -> Any:
    source, places = creation.as_operand(data), creation.as_operand(indices)
    made = ops.compute(shuffle.GatherFlattenedOp, places.shape, data.dtype, {"src": source, "index": places}, mask,
                       destination=dst, explicit_dtype=True)
    return made if dtype is None else ops.copy(made, dtype=dtype)


class TransposedAxes(KernelError):
    code = "NKI-TRANSPOSE-AXES"
    message = "dma_transpose with axes {axes}; of that many dimensions it takes {legal}"
    fix = "leave axes out, or permute the tensor's view"


def dma_transpose(src: Any, axes: Any = None, *, dst: Any = None, dtype: Any = None, mask: Any = None) -> Any:
    """The axes of a tensor in another order, as one transfer; without ``axes`` as documented for its rank."""
    defaults = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
    permutation = tuple(int(a) for a in axes) if axes is not None else defaults.get(src.ndim, ())
    if permutation != defaults.get(src.ndim, permutation):
        active("nisa.dma_transpose").report(TransposedAxes(axes=permutation, legal=defaults[src.ndim]),
                                            contested=False)
    if sorted(permutation) != list(range(src.ndim)):
        raise ops.ShapeMismatch(what=f"dma_transpose with axes {axes} of a tensor of shape {src.shape}").located(
            ops.user_location())
    shape = tuple(src.shape[k] for k in permutation)
    return ops.compute(shuffle.DmaTransposeOp, shape, dtype or src.dtype, {"src": src}, mask, destination=dst,
                       explicit_dtype=dtype is not None, permutation=permutation)


def activation_accumulate(op: Any, data: Any, bias: Any, scale: Any, reduce_op: Any, reduce_res: Any, reduce_cmd: Any,
                          *, dst: Any = None, dtype: Any = None, mask: Any = None) -> Any:
    """An activation that runs the accumulation registers of the Scalar engine."""
    source = creation.as_operand(data)
    core.check_table(op)
    core.refuse_hidden_bias(op, bias, source)
    partitions = source.shape[0]
    bias, tile, number = core.activation_operands(bias, scale, partitions)
    shape = source.shape
    views = {"accumulator": registers("scalar", partitions), "reduce_res": reduce_res, "src": source,
             "bias": core.over_row(bias, shape), "scale": core.over_row(tile, shape)}
    return ops.compute(selection.ActivationAccumulateOp, shape, dtype or data.dtype, views, mask, destination=dst,
                       explicit_dtype=dtype is not None, fn=activation_token(op).name,
                       reduce_op="add" if reduce_op is None else alu_token(reduce_op).name,
                       reduce_cmd=command_name(reduce_cmd), imm=number)


def tensor_scalar_cumulative(dst: Any, src: Any, op0: Any, op1: Any, imm0: Any, imm1: Any, reduce_cmd: Any, *,
                             mask: Any = None) -> None:
    """dst[i] = op1(op0(src[i], imm0), dst[i-1]) along the free axis; ``load_reduce`` starts from ``imm1``."""
    command, held = command_name(reduce_cmd), registers("vector", src.shape[0])
    if command == "load_reduce":
        tile, number = core.operand(imm1)
        with assignment.accumulating():         # registers are each iteration's own
            if tile is None:
                emit(movement.MemsetOp, {"dst": held}, value=number)
            else:
                emit(movement.TensorCopyOp, {"dst": held, "src": tile})
        command = "reduce"
    tile, number = core.operand(imm0)
    emit(accumulating.TensorScalarCumulativeOp, {"dst": dst, "accumulator": held, "src": src, "operand0": tile}, mask,
         op0=alu_token(op0).name, op1=alu_token(op1).name, imm0=number, reduce_cmd=command)


def select_reduce(dst: Any, predicate: Any, on_true: Any, on_false: Any, *, reduce_res: Any = None,
                  reduce_cmd: Any = "idle", reduce_op: Any = np.amax, reverse_pred: bool = False,
                  mask: Any = None) -> Any:
    """dst = on_true where the predicate holds (``reverse_pred``: does not), else on_false; rows may be reduced, too."""
    tile, number = core.operand(on_false)
    views = {"dst": dst, "accumulator": registers("vector", dst.shape[0]), "reduce_res": reduce_res,
             "predicate": predicate, "on_true": on_true, "on_false": tile}
    emit(selection.SelectReduceOp, views, mask, imm=number, reverse_pred=bool(reverse_pred),
             reduce_cmd=command_name(reduce_cmd), reduce_op=alu_token(reduce_op).name)
    return dst


def range_select(on_true_tile: Any, comp_op0: Any, comp_op1: Any, bound0: Any, bound1: Any, *, reduce_cmd: Any = "idle",
                 reduce_res: Any = None, reduce_op: Any = np.amax, range_start: Any = 0, on_false_value: float = 0.0,
                 dst: Any = None, dtype: Any = None, mask: Any = None) -> Any:
    """data where both comparisons of its place with the bounds hold, else ``on_false_value``; rows may be reduced."""
    source = creation.as_operand(on_true_tile)
    require_from_first("range_select", mask, source.shape, *range(1, source.ndim))
    views = {"accumulator": registers("vector", source.shape[0]), "reduce_res": reduce_res, "src": source,
             "bound0": bound0, "bound1": bound1}
    return ops.compute(selection.RangeSelectOp, source.shape, dtype or on_true_tile.dtype, views, mask, destination=dst,
                       explicit_dtype=dtype is not None, comp0=alu_token(comp_op0).name, comp1=alu_token(comp_op1).name,
                       base=float(range_start), fill=float(on_false_value), reduce_cmd=command_name(reduce_cmd),
                       reduce_op=alu_token(reduce_op).name)


def sequence_bounds(segment_ids: Any, *, dst: Any = None, dtype: Any = None) -> Any:
    source = creation.as_operand(segment_ids)
    shape = (1, 2, int(np.prod(source.shape[1:])))
    return ops.compute(selection.SequenceBoundsOp, shape, dtype or segment_ids.dtype, {"segment_ids": source},
                       destination=dst, explicit_dtype=dtype is not None)


class BadProbability(KernelError, ValueError):
    code = "NKI-PROBABILITY"
    message = "the probability of dropout is {found}"
    fix = "give a number of 0 to 1"


# -- random numbers ----------------------------------------------------------------------------------------------------
def generator_state() -> Any:
    return creation.tensor_of(active().state("random_state", (1, 2), UINT32))


def random_seed(seed: Any, *, mask: Any = None) -> None:
    """Seed the generator; the same seed gives the same numbers."""
    if not isinstance(seed, View):
        seed = creation.filled((1, 1), float(int(seed) & 0x7FFFFFFF), INT32)
    emit(random.RandomSeedOp, {"state": generator_state(), "seed": seed}, mask)


def rand(shape: Any, dtype: Any = np.float32, *, mask: Any = None) -> Any:
    """Uniform numbers in [0, 1)."""
    extents, _ = creation.plain_shape(shape)
    return ops.compute(random.RandOp, extents, dtype, {"state": generator_state()}, mask, explicit_dtype=True)


def dropout(data: Any, prob: Any, *, dst: Any = None, dtype: Any = None, mask: Any = None) -> Any:
    """data with elements set to zero with a probability, which is a number or a [P, 1] tile."""
    source = creation.as_operand(data)
    tile, number = core.operand(prob)
    if not 0 <= number <= 1:
        raise BadProbability(found=prob).located(ops.user_location())
    if tile is not None and tile.shape[0] != source.shape[0]:
        tile = tile.broadcast_to((source.shape[0], 1))
    return ops.compute(random.DropoutOp, source.shape, dtype or data.dtype,
                       {"state": generator_state(), "src": source, "prob": tile}, mask, destination=dst,
                       explicit_dtype=dtype is not None, imm=number)

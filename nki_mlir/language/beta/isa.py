# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.isa`` (``nisa``): one function per engine instruction, returning new tiles."""

import enum
from typing import Any

import numpy as np

from nki_mlir.frontend.builder import current
from nki_mlir.language import indirect, special
from nki_mlir.language import instructions as core
from nki_mlir.language.beta import language
from nki_mlir.language.beta.calls import BETA, bind_module, missing_from
from nki_mlir.language.run_time_index import IndirectNotSupported
from nki_mlir.language.tiles import fp32 as fp32
from nki_mlir.machine import machine_named
from nki_mlir.scalar.tokens import alu_token


class engine(enum.Enum):
    """Engines of a core; ``unknown`` leaves the choice to the compiler."""

    unknown, tensor, scalar, gpsimd, vector, sync = 0, 1, 2, 3, 5, 6


unknown_engine, tensor_engine, scalar_engine = engine.unknown, engine.tensor, engine.scalar
gpsimd_engine, vector_engine, dma_engine = engine.gpsimd, engine.vector, engine.sync


class reduce_cmd(enum.Enum):
    """What an activation does with the accumulation registers."""

    idle, reset, reduce, reset_reduce, load_reduce = 0, 1, 2, 3, 4


_engine, _reduce_cmd = engine, reduce_cmd           # parameters of these names hide them


class dge_mode(enum.Enum):
    """Who writes the descriptors of a DMA."""

    none, swdge, hwdge, unknown = 0, 1, 2, 3


class oob_mode(enum.Enum):
    """What an indirect DMA does with an index out of bounds."""

    error, skip = 0, 1


class nc_version(enum.IntEnum):
    """Generations of the core."""

    gen2, gen3, gen4 = 2, 3, 4


def get_nc_version() -> nc_version:
    """The generation of the kernel's target."""
    builder = current.get()
    return nc_version(machine_named(builder.target if builder is not None else "trn2").generation)


def tensor_tensor(data1: Any, data2: Any, op: Any, *, dtype: Any = None, mask: Any = None, engine: Any = engine.unknown
                  ) -> Any:
    """data1 (op) data2, elementwise, on the Vector or GpSimd engine."""
    return core.tensor_tensor(data1, data2, op, dtype=dtype, mask=mask, engine=engine)


def tensor_scalar(data: Any, op0: Any, operand0: Any, reverse0: bool = False, op1: Any = None, operand1: Any = None,
                  reverse1: bool = False, *, dtype: Any = None, mask: Any = None, engine: Any = engine.unknown) -> Any:
    """(data op0 operand0) op1 operand1; operands are numbers or [P, 1] tiles."""
    return core.tensor_scalar(data, op0, operand0, reverse0, op1, operand1, reverse1, dtype=dtype, mask=mask,
                              engine=engine)


def tensor_scalar_reduce(*, data: Any, op0: Any, operand0: Any, reduce_op: Any, reduce_res: Any, reverse0: bool = False,
                         dtype: Any = None, mask: Any = None) -> Any:
    """data op0 operand0, with its reduction over the free axes written to reduce_res."""
    return core.tensor_scalar_reduce(data=data, op0=op0, operand0=operand0, reduce_op=reduce_op, reduce_res=reduce_res,
                                     reverse0=reverse0, dtype=dtype, mask=mask)


def scalar_tensor_tensor(*, data: Any, op0: Any, operand0: Any, op1: Any, operand1: Any, reverse0: bool = False,
                         reverse1: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """(data op0 operand0) op1 operand1; operand0 a number or [P, 1], operand1 a tile."""
    return core.scalar_tensor_tensor(data, op0, operand0, op1, operand1, reverse0, reverse1, dtype=dtype, mask=mask)


def tensor_reduce(op: Any, data: Any, axis: Any, *, mask: Any = None, dtype: Any = None, negate: bool = False,
                  keepdims: bool = False) -> Any:
    """data reduced over free axes."""
    return core.tensor_reduce(op, data, axis, mask=mask, dtype=dtype, negate=negate, keepdims=keepdims)


def tensor_partition_reduce(op: Any, data: Any, *, mask: Any = None, dtype: Any = None) -> Any:
    """data reduced over its partitions."""
    return core.tensor_partition_reduce(op, data, mask=mask, dtype=dtype)


def activation(op: Any, data: Any, *, bias: Any = None, scale: Any = 1.0, reduce_op: Any = None, reduce_res: Any = None,
               reduce_cmd: Any = reduce_cmd.idle, dtype: Any = None, mask: Any = None, buffer: Any = None) -> Any:
    """op(data * scale + bias) on the Scalar engine, with its accumulation registers where ``reduce_cmd`` says so."""
    kind = data.dtype if dtype is None else dtype
    dst = None if buffer is None else language.ndarray(data.shape, kind, buffer=buffer)
    if reduce_cmd != _reduce_cmd.idle or reduce_res is not None:
        return special.activation_accumulate(op, data, bias, scale, reduce_op, reduce_res, reduce_cmd, dst=dst,
                                             dtype=dtype, mask=mask)
    return core.activation(op, data, bias=bias, scale=scale, dst=dst, dtype=dtype, mask=mask)


def activation_reduce(op: Any, data: Any, *, reduce_op: Any, reduce_res: Any, bias: Any = None, scale: Any = 1.0,
                      dtype: Any = None, mask: Any = None) -> Any:
    """The activation, with its sum over the free axes written to reduce_res."""
    return core.activation_reduce(op, data, reduce_op=reduce_op, reduce_res=reduce_res, bias=bias, scale=scale,
                                  dtype=dtype, mask=mask)


def reciprocal(data: Any, *, dtype: Any = None, mask: Any = None) -> Any:
    """1 / data."""
    return core.reciprocal(data, dtype=dtype, mask=mask)


def tensor_copy(src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = engine.unknown) -> Any:
    """A copy on chip."""
    return core.tensor_copy(src, mask=mask, dtype=dtype, engine=engine)


def tensor_copy_predicated(*, src: Any, dst: Any, predicate: Any, reverse_pred: bool = False, mask: Any = None,
                           dtype: Any = None) -> Any:
    """dst = src where the predicate is not 0."""
    core.check_destination("tensor_copy_predicated", dst, dtype)
    return core.tensor_copy_predicated(src=src, dst=dst, predicate=predicate, reverse_pred=reverse_pred, mask=mask)


def affine_select(pred: Any, on_true_tile: Any, on_false_value: Any, *, mask: Any = None, dtype: Any = None) -> Any:
    """on_true_tile where one affine comparison holds, else on_false_value."""
    return core.affine_select(pred, on_true_tile, on_false_value, mask=mask, dtype=dtype)


def memset(shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Any = engine.unknown) -> Any:
    """A constant tile."""
    return core.memset(shape, value, dtype, mask=mask, engine=engine)


def iota(expr: Any, dtype: Any, *, mask: Any = None) -> Any:
    """The values of an affine index expression as a tile."""
    return core.iota(expr, dtype, mask=mask)


def nc_matmul(stationary: Any, moving: Any, *, is_stationary_onezero: bool = False, is_moving_onezero: bool = False,
              is_transpose: bool = False, tile_position: tuple = (), tile_size: tuple = (), mask: Any = None,
              perf_mode: Any = None) -> Any:
    """stationary.T @ moving as a float32 tile in PSUM. Hints change no values; ``perf_mode`` is the operands' form."""
    core.check_position(tile_position, tile_size, stationary)
    if getattr(perf_mode, "name", perf_mode) not in (None, "none"):
        return core.double_row_matmul(stationary, moving, perf_mode, mask=mask)
    return core.nc_matmul(stationary, moving, is_transpose=bool(is_transpose), mask=mask)


def nc_transpose(data: Any, *, mask: Any = None, dtype: Any = None, engine: Any = engine.unknown) -> Any:
    """data with partition and free axis exchanged."""
    return core.nc_transpose(data, mask=mask, dtype=dtype, engine=engine)


def dma_copy(*, dst: Any, src: Any, mask: Any = None, dst_rmw_op: Any = None, oob_mode: Any = oob_mode.error,
             dge_mode: Any = dge_mode.unknown) -> None:
    """dst = src between HBM and SBUF, either way, converted on the way; either side may be indexed by a tile."""
    core.check_descriptors("dma_copy", dge_mode)
    if isinstance(src, indirect.ADDRESSED):
        if not isinstance(dst, indirect.ADDRESSED) and dst_rmw_op is None:
            indirect.gather(src, dst=dst, mask=mask, mode=oob_mode)
            return
        if indirect.mode_name(oob_mode) == "skip":
            raise IndirectNotSupported(op="dma_copy that skips rows, then combines or scatters them,").located(
                core.user_location())
        src = indirect.gather(src, mask=mask)
    if isinstance(dst, indirect.ADDRESSED):
        rmw = "bypass" if dst_rmw_op is None else alu_token(dst_rmw_op).name
        indirect.scatter(dst, src, mask=mask, mode=oob_mode, rmw=rmw)
    elif dst_rmw_op is not None:
        core.dma_accumulate(dst=dst, src=src, op=dst_rmw_op, mask=mask)
    else:
        core.dma_copy(dst=dst, src=src, mask=mask)


def dma_transpose(src: Any, *, axes: Any = None, mask: Any = None, dtype: Any = None, dge_mode: Any = dge_mode.unknown
                  ) -> Any:
    """src with its axes permuted, through DMA; (1, 0), (2, 1, 0) or (3, 1, 2, 0) where axes are not given."""
    core.check_descriptors("dma_transpose", dge_mode)
    if isinstance(src, indirect.ADDRESSED):
        src = indirect.gather(src)
    return special.dma_transpose(src, axes, mask=mask, dtype=dtype)


def tensor_copy_dynamic_src(src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = engine.unknown) -> Any:
    """A copy from a free offset that a [1, 1] tile holds."""
    return indirect.copy_dynamic_src(src, mask=mask, dtype=dtype, engine=core.engine_name(engine))


def tensor_copy_dynamic_dst(*, dst: Any, src: Any, mask: Any = None, dtype: Any = None, engine: Any = engine.unknown
                            ) -> Any:
    """A copy to a free offset that a [1, 1] tile holds."""
    core.check_destination("tensor_copy_dynamic_dst", dst, dtype)
    return indirect.copy_dynamic_dst(dst, src, mask=mask, engine=core.engine_name(engine))


def tensor_tensor_scan(data0: Any, data1: Any, initial: Any, op0: Any, op1: Any, reverse0: bool = False,
                       reverse1: bool = False, *, dtype: Any = None, mask: Any = None) -> Any:
    """r[i] = op1(op0(data0[i], r[i-1]), data1[i]) along the free axis; r[-1] is ``initial``."""
    return special.tensor_tensor_scan(data0, data1, initial, op0, op1, reverse0, reverse1, dtype=dtype, mask=mask)


def tensor_scalar_cumulative(dst: Any, src: Any, op0: Any, op1: Any, imm0: Any, imm1: Any = None,
                             reduce_cmd: Any = reduce_cmd.reset_reduce, *, mask: Any = None) -> None:
    """dst[i] = op1(op0(src[i], imm0), dst[i-1]) along the free axis; dst[-1] is what ``reduce_cmd`` says."""
    special.tensor_scalar_cumulative(dst, src, op0, op1, imm0, imm1, reduce_cmd, mask=mask)


def bn_stats(data: Any, *, mask: Any = None, dtype: Any = None) -> Any:
    """[P, 6]: count, mean and variance * count of the even elements, then of the odd ones."""
    return special.bn_stats(data, mask=mask, dtype=dtype)


def bn_aggr(data: Any, *, mask: Any = None, dtype: Any = None) -> Any:
    """[P, 2]: mean and variance of groups given as (count, mean, variance * count)."""
    return special.bn_aggr(data, mask=mask, dtype=dtype)


def max8(*, src: Any, mask: Any = None, dtype: Any = None) -> Any:
    """[P, 8]: the largest values of each partition, largest first."""
    return special.max8(src, mask=mask, dtype=dtype)


def nc_find_index8(*, data: Any, vals: Any, mask: Any = None, dtype: Any = None) -> Any:
    """[P, 8]: where each of 8 values occurs in data, flattened."""
    return special.nc_find_index8(data, vals, mask=mask, dtype=dtype)


def nc_match_replace8(*, data: Any, vals: Any, imm: float, dst_idx: Any = None, mask: Any = None, dtype: Any = None
                      ) -> Any:
    """data with the first occurrence of each of 8 values replaced; dst_idx gets the places."""
    return special.nc_match_replace8(data, vals, imm, dst_idx=dst_idx, mask=mask, dtype=dtype)


def nc_stream_shuffle(src: Any, dst: Any, shuffle_mask: Any, *, dtype: Any = None, mask: Any = None) -> Any:
    """dst[i] = src[shuffle_mask[i]] in each group of 32 partitions; 255 leaves dst[i]."""
    core.check_destination("nc_stream_shuffle", dst, dtype)
    return special.nc_stream_shuffle(src, dst, shuffle_mask, mask=mask)


def local_gather(src_buffer: Any, index: Any, num_elem_per_idx: int = 1, num_valid_indices: int | None = None, *,
                 mask: Any = None) -> Any:
    """Gathered elements of each partition by indices that 16 partitions share."""
    return special.local_gather(src_buffer, index, num_elem_per_idx, num_valid_indices, mask=mask)


def select_reduce(*, dst: Any, predicate: Any, on_true: Any, on_false: Any, reduce_res: Any = None,
                  reduce_cmd: Any = reduce_cmd.idle, reduce_op: Any = np.amax, reverse_pred: bool = False,
                  mask: Any = None, dtype: Any = None) -> Any:
    """dst = on_true where the predicate is not 0, else on_false; the row maximum accumulates."""
    core.check_destination("select_reduce", dst, dtype)
    return special.select_reduce(dst, predicate, on_true, on_false, reduce_res=reduce_res, reduce_cmd=reduce_cmd,
                                 reduce_op=reduce_op, reverse_pred=reverse_pred, mask=mask)


def range_select(*, on_true_tile: Any, comp_op0: Any, comp_op1: Any, bound0: Any, bound1: Any,
                 reduce_cmd: Any = reduce_cmd.idle, reduce_res: Any = None, reduce_op: Any = np.amax,
                 range_start: Any = 0, on_false_value: float = fp32.min, mask: Any = None, dtype: Any = None) -> Any:
    """on_true_tile where its free index is in the range of the bounds, else on_false_value; its maximum accumulates."""
    return special.range_select(on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd,
                                reduce_res=reduce_res, reduce_op=reduce_op, range_start=range_start,
                                on_false_value=on_false_value, mask=mask, dtype=dtype)


def dropout(data: Any, prob: Any, *, mask: Any = None, dtype: Any = None) -> Any:
    """data with elements set to zero with a probability."""
    return special.dropout(data, prob, mask=mask, dtype=dtype)


def sequence_bounds(*, segment_ids: Any, dtype: Any = None) -> Any:
    """[1, 2, n]: first and one past last place of the run of equal ids at each place."""
    return special.sequence_bounds(segment_ids, dtype=dtype)


BETA.values.enumerations |= {e.__name__: e for e in (_engine, _reduce_cmd, dge_mode, oob_mode)}
BETA.names |= {**BETA.values.enumerations, "fp32": fp32}
BETA.values.numbers["engine", 4] = "sync"             # ``dma`` of release 2.22
bind_module(globals(), "nki.isa")
__getattr__ = missing_from("module 'neuronxcc.nki.isa'", globals())

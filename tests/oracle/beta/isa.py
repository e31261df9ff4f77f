# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.isa``: its names, from the modules that define them; enums (document: 7.6)."""

from enum import Enum, IntEnum

from .indexing import fp32
from .instructions import (
    activation,
    activation_reduce,
    affine_select,
    iota,
    memset,
    range_select,
    reciprocal,
    scalar_tensor_tensor,
    select_reduce,
    tensor_copy,
    tensor_copy_dynamic_dst,
    tensor_copy_dynamic_src,
    tensor_copy_predicated,
    tensor_scalar,
    tensor_scalar_cumulative,
    tensor_scalar_reduce,
    tensor_tensor,
    tensor_tensor_scan,
)
from .products import dma_transpose, nc_matmul, nc_transpose
from .reductions import tensor_partition_reduce, tensor_reduce
from .searches import (
    bn_aggr,
    bn_stats,
    dma_copy,
    local_gather,
    max8,
    nc_find_index8,
    nc_match_replace8,
    nc_stream_shuffle,
    sequence_bounds,
)
from .searches import nisa_dropout as dropout


class engine(Enum):
    unknown, tensor, scalar, gpsimd, vector, sync = 0, 1, 2, 3, 5, 6


class reduce_cmd(Enum):
    idle, reset, reduce, reset_reduce, load_reduce = 0, 1, 2, 3, 4


class dge_mode(Enum):
    none, swdge, hwdge, unknown = 0, 1, 2, 3


class oob_mode(Enum):
    error, skip = 0, 1


class nc_version(IntEnum):
    gen2, gen3 = 2, 3


tensor_engine, vector_engine, scalar_engine, gpsimd_engine = engine.tensor, engine.vector, engine.scalar, engine.gpsimd
dma_engine, unknown_engine = engine.sync, engine.unknown


def get_nc_version() -> nc_version:
    """Return the version of the default target, trn2 (decisions)."""
    return nc_version.gen3


__all__ = ["activation", "activation_reduce", "affine_select", "bn_aggr", "bn_stats", "dge_mode", "dma_copy",
           "dma_engine", "dma_transpose", "dropout", "engine", "fp32", "get_nc_version", "gpsimd_engine", "iota",
           "local_gather", "max8", "memset", "nc_find_index8", "nc_match_replace8", "nc_matmul", "nc_stream_shuffle",
           "nc_transpose", "nc_version", "oob_mode", "range_select", "reciprocal", "reduce_cmd", "scalar_engine",
           "scalar_tensor_tensor", "select_reduce", "sequence_bounds", "tensor_copy", "tensor_copy_dynamic_dst",
           "tensor_copy_dynamic_src", "tensor_copy_predicated", "tensor_engine", "tensor_partition_reduce",
           "tensor_reduce", "tensor_scalar", "tensor_scalar_cumulative", "tensor_scalar_reduce", "tensor_tensor",
           "tensor_tensor_scan", "unknown_engine", "vector_engine"]

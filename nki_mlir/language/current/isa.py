# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.isa`` (``nisa``): one function per engine instruction, which writes its first argument."""

import os
from typing import NoReturn

from nki_mlir.language.current.calls import reported
from nki_mlir.language.current.enums import (
    dge_mode,
    dma_engine,
    engine,
    gpsimd_engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
    scalar_engine,
    tensor_engine,
    unknown_engine,
    vector_engine,
)
from nki_mlir.language.current.errors import NkiValidationError, unknown_name
from nki_mlir.language.current.instruction import NkiInstruction
from nki_mlir.language.current.isa_accumulate import (
    activate2,
    bn_aggr,
    bn_stats,
    exponential,
    range_select,
    select_reduce,
    tensor_partition_reduce,
    tensor_reduce,
    tensor_scalar_cumulative,
    tensor_scalar_reduce,
)
from nki_mlir.language.current.isa_cores import core_barrier, sendrecv
from nki_mlir.language.current.isa_dma import dma_compute, dma_copy, dma_transpose
from nki_mlir.language.current.isa_elementwise import (
    activation,
    activation_reduce,
    dropout,
    memset,
    reciprocal,
    scalar_tensor_tensor,
    tensor_copy,
    tensor_copy_dynamic_dst,
    tensor_copy_dynamic_src,
    tensor_copy_predicated,
    tensor_scalar,
    tensor_tensor,
    tensor_tensor_scan,
)
from nki_mlir.language.current.isa_gpsimd import (
    affine_select,
    iota,
    local_gather,
    max8,
    nc_find_index8,
    nc_match_replace8,
    nc_n_gather,
    nc_stream_shuffle,
    nonzero_with_count,
    rand2,
    rand_get_state,
    rand_set_state,
    rng,
    sequence_bounds,
    set_rng_seed,
    topk,
)
from nki_mlir.language.current.isa_matmul import nc_matmul, nc_matmul_mx, nc_transpose, quantize_mx
from nki_mlir.language.current.isa_register import register_alloc, register_load, register_move, register_store
from nki_mlir.language.current.regions import machine
from nki_mlir.language.current.register import VirtualRegister


@reported
def get_nc_version() -> nc_version:
    """The generation of the kernel's target."""
    return nc_version(machine().generation)


@reported
def get_nc_sub_version() -> int:
    """The revision of the kernel's target, 0 where ``NKI_NC_SUB_VERSION`` says nothing else."""
    return int(os.environ.get("NKI_NC_SUB_VERSION", "0"))


__all__ = [
    "NkiInstruction", "NkiValidationError", "VirtualRegister", "activate2", "activation", "activation_reduce",
    "affine_select", "bn_aggr", "bn_stats", "core_barrier", "dge_mode", "dma_compute", "dma_copy", "dma_engine",
    "dma_transpose", "dropout", "engine", "exponential", "get_nc_sub_version", "get_nc_version", "gpsimd_engine",
    "iota",
    "local_gather", "matmul_perf_mode", "max8", "memset", "nc_find_index8", "nc_match_replace8", "nc_matmul",
    "nc_matmul_mx", "nc_n_gather", "nc_stream_shuffle", "nc_transpose", "nc_version", "nonzero_with_count", "oob_mode",
    "quantize_mx", "rand2", "rand_get_state", "rand_set_state", "range_select", "reciprocal", "reduce_cmd",
    "register_alloc", "register_load", "register_move", "register_store", "rng", "scalar_engine",
    "scalar_tensor_tensor",
    "select_reduce", "sendrecv", "sequence_bounds", "set_rng_seed", "tensor_copy", "tensor_copy_dynamic_dst",
    "tensor_copy_dynamic_src", "tensor_copy_predicated", "tensor_engine", "tensor_partition_reduce", "tensor_reduce",
    "tensor_scalar", "tensor_scalar_cumulative", "tensor_scalar_reduce", "tensor_tensor", "tensor_tensor_scan", "topk",
    "unknown_engine", "vector_engine",
]


def __getattr__(name: str) -> NoReturn:
    raise unknown_name("module 'nki.isa'", name, __all__)

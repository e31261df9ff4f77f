# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What instructions of the current generation must refuse, by the documents' list: a validation error at the call."""

import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.current.errors import NkiValidationError

BF16, X4 = nl.bfloat16, nl.float8_e4m3fn_x4
DOUBLE_ROW = nisa.matmul_perf_mode.double_row


def tile(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype)


def psum(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.psum)


def hbm(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.private_hbm)


REFUSED = {
    # partitions, sizes, memories
    "partitions, sizes, memories: P>128": (lambda: nisa.tensor_copy(tile(129, 4), tile(129, 4)),),
    "partitions, sizes, memories: P mismatch": (
        lambda: nisa.tensor_tensor(tile(4, 4), tile(4, 4), tile(3, 4), nl.add),),
    "partitions, sizes, memories: free mismatch": (
        lambda: nisa.tensor_tensor(tile(4, 4), tile(4, 4), tile(4, 5), nl.add),),
    "partitions, sizes, memories: dst HBM": (lambda: nisa.tensor_copy(hbm(4, 4), tile(4, 4)),),
    "partitions, sizes, memories: src HBM": (lambda: nisa.activation(tile(4, 4), nl.exp, hbm(4, 4)),),
    "partitions, sizes, memories: both psum tt": (
        lambda: nisa.tensor_tensor(tile(4, 4), psum(4, 4), psum(4, 4), nl.add),),
    "partitions, sizes, memories: both psum scan": (
        lambda: nisa.tensor_tensor_scan(tile(4, 4), psum(4, 4), psum(4, 4), 0.0, nl.multiply, nl.add),),
    "partitions, sizes, memories: both psum stt": (
        lambda: nisa.scalar_tensor_tensor(tile(4, 4), psum(4, 4), nl.add, 1.0, nl.add, psum(4, 4)),),
    "partitions, sizes, memories: both psum tcp": (
        lambda: nisa.tensor_copy_predicated(tile(4, 4), psum(4, 4), psum(4, 4, dtype=nl.uint8)),),
    "partitions, sizes, memories: both psum selred": (
        lambda: nisa.select_reduce(tile(4, 4), psum(4, 4, dtype=nl.uint8), psum(4, 4), 0.0),),
    "partitions, sizes, memories: gpsimd psum copy": (
        lambda: nisa.tensor_copy(tile(4, 4), psum(4, 4), nisa.engine.gpsimd),),
    "partitions, sizes, memories: gpsimd psum memset": (lambda: nisa.memset(psum(4, 4), 0.0, nisa.engine.gpsimd),),
    "partitions, sizes, memories: power psum": (
        lambda: nisa.tensor_tensor(tile(4, 4), psum(4, 4), tile(4, 4), nl.power),),
    "partitions, sizes, memories: scalar power psum": (
        lambda: nisa.tensor_scalar(tile(4, 4), psum(4, 4), nl.power, 2.0),),
    "partitions, sizes, memories: iota psum": (lambda: nisa.iota(psum(4, 4), [[1, 4]]),),
    "partitions, sizes, memories: affine_select psum": (
        lambda: nisa.affine_select(psum(4, 4), [[1, 4]], 1, tile(4, 4), 0.0),),
    "partitions, sizes, memories: affine_select psum src": (
        lambda: nisa.affine_select(tile(4, 4), [[1, 4]], 1, psum(4, 4), 0.0),),
    "partitions, sizes, memories: partition_reduce psum": (
        lambda: nisa.tensor_partition_reduce(tile(1, 4), nl.add, psum(4, 4)),),
    "partitions, sizes, memories: local_gather psum": (
        lambda: nisa.local_gather(psum(16, 16), tile(16, 16), tile(16, 1, dtype=nl.uint16)),),
    "partitions, sizes, memories: n_gather psum": (
        lambda: nisa.nc_n_gather(psum(16, 16), tile(16, 16), tile(16, 16, dtype=nl.uint32)),),
    "partitions, sizes, memories: seq bounds psum": (lambda: nisa.sequence_bounds(psum(1, 2, 8), tile(1, 8)),),
    "partitions, sizes, memories: dma psum dst": (lambda: nisa.dma_copy(psum(4, 4), hbm(4, 4)),),
    "partitions, sizes, memories: quantize psum": (
        lambda: nisa.quantize_mx(psum(32, 2, dtype=nl.float8_e4m3fn_x4), tile(32, 8, dtype=BF16), tile(4, 2,
            dtype=nl.uint8)),),
    "partitions, sizes, memories: gpsimd psum tt": (
        lambda: nisa.tensor_tensor(psum(4, 4), tile(4, 4), tile(4, 4), nl.add, nisa.engine.gpsimd),),
    "partitions, sizes, memories: gpsimd psum scalar": (
        lambda: nisa.tensor_scalar(tile(4, 4), psum(4, 4), nl.add, 1.0, engine=nisa.engine.gpsimd),),
    "partitions, sizes, memories: rng gpsimd psum": (
        lambda: nisa.rng(psum(4, 4, dtype=nl.uint32), nisa.engine.gpsimd),),
    "partitions, sizes, memories: nonzero psum": (
        lambda: nisa.nonzero_with_count(psum(16, 9, dtype=nl.int32), tile(16, 8)),),
    "partitions, sizes, memories: topk psum": (
        lambda: nisa.topk(psum(16, 4, dtype=BF16), tile(16, 4, dtype=nl.uint32), tile(16, 4, dtype=BF16), 16),),
    "partitions, sizes, memories: dma_transpose psum": (lambda: nisa.dma_transpose(psum(4, 4), hbm(4, 4)),),
    "partitions, sizes, memories: dma_compute psum": (
        lambda: nisa.dma_compute(psum(4, 4), [hbm(4, 4), hbm(4, 4)], nl.add),),
    # matmul
    "matmul: K mismatch": (lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(9, 4)),),
    "matmul: M>128": (lambda: nisa.nc_matmul(psum(128, 4), tile(8, 129), tile(8, 4)),),
    "matmul: N>512 trn2": (lambda: nisa.nc_matmul(psum(4, 513), tile(8, 4), tile(8, 513)), "trn2"),
    "matmul: N>4096": (lambda: nisa.nc_matmul(nl.ndarray((4, 4097), nl.float32, buffer=nl.psum), tile(8, 4),
                                               tile(8, 4097)),),
    "matmul: fp32/bf16": (lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(8, 4, dtype=BF16)),),
    "matmul: e4m3/e4m3fn": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4, dtype=nl.float8_e4m3), tile(8, 4, dtype=nl.float8_e4m3fn)),),
    "matmul: ints": (lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4, dtype=nl.int32), tile(8, 4, dtype=nl.int32)),),
    "matmul: dst sbuf": (lambda: nisa.nc_matmul(tile(4, 4), tile(8, 4), tile(8, 4)),),
    "matmul: dst int": (lambda: nisa.nc_matmul(psum(4, 4, dtype=nl.int32), tile(8, 4), tile(8, 4)),),
    "matmul: dst bf16 trn2": (lambda: nisa.nc_matmul(psum(4, 4, dtype=BF16), tile(8, 4), tile(8, 4)), "trn2"),
    "matmul: dst fp16": (lambda: nisa.nc_matmul(psum(4, 4, dtype=nl.float16), tile(8, 4), tile(8, 4)),),
    "matmul: psum stationary": (lambda: nisa.nc_matmul(psum(4, 4), psum(8, 4), tile(8, 4)),),
    "matmul: double_row shape": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4, dtype=nl.float8_e4m3), tile(8, 4, dtype=nl.float8_e4m3),
            perf_mode=DOUBLE_ROW),),
    "matmul: double_row bf16": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 2, 4, dtype=BF16), tile(8, 2, 4, dtype=BF16),
            perf_mode=DOUBLE_ROW),),
    "matmul: double_row v2": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 2, 4, dtype=nl.float8_e4m3), tile(8, 2, 4, dtype=nl.float8_e4m3),
            perf_mode=DOUBLE_ROW), "trn1"),
    "matmul: double_row transpose": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 2, 4, dtype=nl.float8_e4m3), tile(8, 2, 4, dtype=nl.float8_e4m3),
            is_transpose=True, perf_mode=DOUBLE_ROW),),
    "matmul: double_row col tile": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 2, 4, dtype=nl.float8_e4m3), tile(8, 2, 4, dtype=nl.float8_e4m3),
            tile_position=(0, 64), tile_size=(64, 64), perf_mode=DOUBLE_ROW),),
    "matmul: tile size only": (lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(8, 4), tile_size=(64, 64)),),
    "matmul: tile multiple": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(8, 4), tile_size=(64, 64), tile_position=(32, 0)),),
    "matmul: tile 32 v2": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(8, 4), tile_size=(32, 32), tile_position=(0, 0)), "trn1"),
    "matmul: K>rows": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(65, 4), tile(65, 4), tile_size=(64, 64), tile_position=(0, 0)),),
    "matmul: bank cross trn2": (lambda: nisa.nc_matmul(psum(4, 1024)[:, 256:768], tile(8, 4), tile(8, 512)), "trn2"),
    "matmul: K>128": (lambda: nisa.nc_matmul(psum(4, 4), tile(129, 4), tile(129, 4)),),
    "matmul: N>512 trn1": (lambda: nisa.nc_matmul(psum(4, 513), tile(8, 4), tile(8, 513)), "trn1"),
    "matmul: M>columns": (
        lambda: nisa.nc_matmul(psum(65, 4), tile(8, 65), tile(8, 4), tile_size=(64, 64), tile_position=(0, 0)),),
    "matmul: tile position only": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(8, 4), tile_position=(0, 0)),),
    "matmul: tf32/bf16": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4, dtype=nl.tfloat32), tile(8, 4, dtype=BF16)),),
    "matmul: bank cross trn1": (lambda: nisa.nc_matmul(psum(4, 1024)[:, 256:768], tile(8, 4), tile(8, 512)), "trn1"),
    # microscaled matmul
    "microscaled matmul: P%32": (
        lambda: nisa.nc_matmul_mx(psum(4, 4), tile(16, 4, dtype=X4), tile(16, 4, dtype=X4), tile(2, 4,
            dtype=nl.uint8), tile(2, 4, dtype=nl.uint8)),),
    "microscaled matmul: M odd": (
        lambda: nisa.nc_matmul_mx(psum(3, 4), tile(32, 3, dtype=X4), tile(32, 4, dtype=X4), tile(4, 3,
            dtype=nl.uint8), tile(4, 4, dtype=nl.uint8)),),
    "microscaled matmul: dtype": (
        lambda: nisa.nc_matmul_mx(psum(4, 4), tile(32, 4, dtype=BF16), tile(32, 4, dtype=X4), tile(4, 4,
            dtype=nl.uint8), tile(4, 4, dtype=nl.uint8)),),
    "microscaled matmul: scale dtype": (
        lambda: nisa.nc_matmul_mx(psum(4, 4), tile(32, 4, dtype=X4), tile(32, 4, dtype=X4), tile(4, 4), tile(4, 4,
            dtype=nl.uint8)),),
    "microscaled matmul: scale shape": (
        lambda: nisa.nc_matmul_mx(psum(4, 4), tile(64, 4, dtype=X4), tile(64, 4, dtype=X4), tile(8, 4,
            dtype=nl.uint8), tile(8, 4, dtype=nl.uint8)),),
    "microscaled matmul: v3": (
        lambda: nisa.nc_matmul_mx(psum(4, 4), tile(32, 4, dtype=X4), tile(32, 4, dtype=X4), tile(4, 4,
            dtype=nl.uint8), tile(4, 4, dtype=nl.uint8)), "trn2"),
    # activation
    "activation: op": (lambda: nisa.activation(tile(4, 4), nl.add, tile(4, 4)),),
    "activation: reduce_op": (
        lambda: nisa.activation(tile(4, 4), nl.exp, tile(4, 4), reduce_op=nl.maximum, reduce_res=tile(4, 1),
            reduce_cmd=nisa.reduce_cmd.reset_reduce),),
    "activation: float bias v2": (lambda: nisa.activation(tile(4, 4), nl.exp, tile(4, 4), bias=1.0), "trn1"),
    "activation: scale f16": (
        lambda: nisa.activation(tile(4, 4), nl.exp, tile(4, 4), scale=tile(4, 1, dtype=nl.float16)),),
    "activation: bias tf32": (
        lambda: nisa.activation(tile(4, 4), nl.exp, tile(4, 4), bias=tile(4, 1, dtype=nl.tfloat32)),),
    "activation: reciprocal bias v2": (
        lambda: nisa.activation(tile(4, 4), nl.reciprocal, tile(4, 4), bias=tile(4, 1)), "trn1"),
    # tensor_scalar
    "tensor_scalar: op1 alone": (lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.add, 1.0, op1=nl.add),),
    "tensor_scalar: operand1 alone": (lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.add, 1.0, operand1=2.0),),
    "tensor_scalar: mixing": (
        lambda: nisa.tensor_scalar(tile(4, 4, dtype=nl.int32), tile(4, 4, dtype=nl.int32), nl.add, 1,
            op1=nl.bitwise_and, operand1=1),),
    "tensor_scalar: bitvec float": (lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.bitwise_and, 1),),
    "tensor_scalar: operand shape": (lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.add, tile(4, 2)),),
    "tensor_scalar: operand f16": (
        lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.add, tile(4, 1, dtype=nl.float16)),),
    "tensor_scalar: unary operand": (lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.rsqrt, 2.0),),
    "tensor_scalar: gpsimd maximum": (
        lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.maximum, 2.0, engine=nisa.engine.gpsimd),),
    "tensor_scalar: square v3": (lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.square, None), "trn2"),
    "tensor_scalar: abs_max v3": (lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.abs_max, 1.0), "trn2"),
    "tensor_scalar: tensor engine": (
        lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.add, 1.0, engine=nisa.engine.tensor),),
    # tensor_reduce
    "tensor_reduce: axis 0": (lambda: nisa.tensor_reduce(tile(1, 4), nl.add, tile(4, 4), 0),),
    "tensor_reduce: not suffix": (lambda: nisa.tensor_reduce(tile(4, 4), nl.add, tile(4, 4, 4), 1),),
    "tensor_reduce: negate bitvec": (
        lambda: nisa.tensor_reduce(tile(4, 1, dtype=nl.int32), nl.bitwise_and, tile(4, 4, dtype=nl.int32), 1,
            negate=True),),
    "tensor_reduce: op": (lambda: nisa.tensor_reduce(tile(4, 1), nl.equal, tile(4, 4), 7),),
    # statistics and searches
    "statistics and searches: bn 513": (lambda: nisa.bn_stats(tile(4, 6), tile(4, 513)),),
    "statistics and searches: bn dst": (lambda: nisa.bn_stats(tile(4, 5), tile(4, 51)),),
    "statistics and searches: aggr %3": (lambda: nisa.bn_aggr(tile(4, 2), tile(4, 4)),),
    "statistics and searches: aggr dst": (lambda: nisa.bn_aggr(tile(4, 3), tile(4, 6)),),
    "statistics and searches: max8 short": (lambda: nisa.max8(tile(4, 8), tile(4, 7)),),
    "statistics and searches: max8 dst": (lambda: nisa.max8(tile(4, 7), tile(4, 8)),),
    "statistics and searches: max8 long": (lambda: nisa.max8(tile(4, 8), tile(4, 16385)),),
    "statistics and searches: vals": (
        lambda: nisa.nc_find_index8(tile(4, 8, dtype=nl.uint32), tile(4, 16), tile(4, 7)),),
    "statistics and searches: idx dtype": (
        lambda: nisa.nc_find_index8(tile(4, 8, dtype=nl.int32), tile(4, 16), tile(4, 8)),),
    "statistics and searches: mr idx dtype": (
        lambda: nisa.nc_match_replace8(tile(4, 16), tile(4, 16), tile(4, 8), 0.0, tile(4, 8, dtype=nl.int32)),),
    "statistics and searches: find short": (
        lambda: nisa.nc_find_index8(tile(4, 8, dtype=nl.uint32), tile(4, 7), tile(4, 8)),),
    "statistics and searches: find long": (
        lambda: nisa.nc_find_index8(tile(4, 8, dtype=nl.uint32), tile(4, 16385), tile(4, 8)),),
    # shuffle
    "shuffle: mask len": (lambda: nisa.nc_stream_shuffle(tile(32, 4), tile(32, 4), [0]*31),),
    "shuffle: mask val": (lambda: nisa.nc_stream_shuffle(tile(32, 4), tile(32, 4), [32]*32),),
    "shuffle: dtype": (lambda: nisa.nc_stream_shuffle(tile(32, 4), tile(32, 4, dtype=nl.int32), [0]*32),),
    "shuffle: start": (lambda: nisa.nc_stream_shuffle(tile(128, 4)[32:128], tile(96, 4), [0]*32),),
    "shuffle: mask negative": (lambda: nisa.nc_stream_shuffle(tile(32, 4), tile(32, 4), [-1]*32),),
    # patterns
    "patterns: pattern 5": (lambda: nisa.iota(tile(4, 4), [[1, 1]]*4+[[1, 4]]),),
    "patterns: product": (lambda: nisa.iota(tile(4, 4), [[1, 5]]),),
    "patterns: select 5": (
        lambda: nisa.affine_select(tile(4, 4), [[1, 1]]*4+[[1, 4]], 1, tile(4, 4), 0.0, nl.equal),),
    "patterns: select product": (
        lambda: nisa.affine_select(tile(4, 4), [[1, 5]], 1, tile(4, 4), 0.0, nl.equal),),
    # gathers and lists
    "gathers and lists: P%16": (lambda: nisa.local_gather(tile(8, 16), tile(8, 16), tile(8, 1, dtype=nl.uint16)),),
    "gathers and lists: epi": (
        lambda: nisa.local_gather(tile(16, 48), tile(16, 16), tile(16, 1, dtype=nl.uint16), 3),),
    "gathers and lists: dtype": (
        lambda: nisa.local_gather(tile(16, 16), tile(16, 16), tile(16, 1, dtype=nl.uint32)),),
    "gathers and lists: 4096": (
        lambda: nisa.local_gather(tile(16, 4112), tile(16, 16), tile(16, 257, dtype=nl.uint16)),),
    "gathers and lists: dst dtype": (
        lambda: nisa.local_gather(tile(16, 16, dtype=BF16), tile(16, 16), tile(16, 1, dtype=nl.uint16)),),
    "gathers and lists: ngather float idx": (lambda: nisa.nc_n_gather(tile(4, 4), tile(4, 4), tile(4, 4)),),
    "gathers and lists: nonzero dst": (lambda: nisa.nonzero_with_count(tile(4, 8, dtype=nl.int32), tile(4, 8)),),
    "gathers and lists: nonzero dtype": (lambda: nisa.nonzero_with_count(tile(4, 9), tile(4, 8)),),
    "gathers and lists: nonzero src dtype": (
        lambda: nisa.nonzero_with_count(tile(4, 9, dtype=nl.int32), tile(4, 8, dtype=BF16)),),
    "gathers and lists: topk n small": (
        lambda: nisa.topk(tile(16, 4, dtype=BF16), tile(16, 4, dtype=nl.uint32), tile(16, 4, dtype=BF16), 7),),
    "gathers and lists: topk S": (
        lambda: nisa.topk(tile(16, 4, dtype=BF16), tile(16, 4, dtype=nl.uint32), tile(16, 4, dtype=BF16), 65),),
    "gathers and lists: topk K>n": (
        lambda: nisa.topk(tile(16, 9, dtype=BF16), tile(16, 9, dtype=nl.uint32), tile(16, 4, dtype=BF16), 8),),
    "gathers and lists: topk dtype": (lambda: nisa.topk(tile(16, 4), tile(16, 4, dtype=nl.uint32), tile(16, 4), 16),),
    "gathers and lists: topk idx dtype": (
        lambda: nisa.topk(tile(16, 4, dtype=BF16), tile(16, 4, dtype=nl.int32), tile(16, 4, dtype=BF16), 16),),
    "gathers and lists: seq P": (lambda: nisa.sequence_bounds(tile(2, 2, 8), tile(2, 8)),),
    "gathers and lists: seq dtype": (
        lambda: nisa.sequence_bounds(tile(1, 2, 8, dtype=BF16), tile(1, 8, dtype=BF16)),),
    "gathers and lists: ngather int32": (
        lambda: nisa.nc_n_gather(tile(4, 4), tile(4, 4), tile(4, 4, dtype=nl.int32)),),
    "gathers and lists: topk n large": (
        lambda: nisa.topk(tile(16, 4, dtype=BF16), tile(16, 4, dtype=nl.uint32), tile(16, 4096, dtype=BF16), 65536),),
    "gathers and lists: topk P": (
        lambda: nisa.topk(tile(8, 4, dtype=BF16), tile(8, 4, dtype=nl.uint32), tile(8, 4, dtype=BF16), 16),),
    # selections
    "selections: v2": (
        lambda: nisa.range_select(tile(4, 4), tile(4, 4), nl.less, nl.less, tile(4, 1), tile(4, 1)), "trn1"),
    "selections: bounds dtype": (
        lambda: nisa.range_select(tile(4, 4), tile(4, 4), nl.less, nl.less, tile(4, 1, dtype=nl.int32), tile(4, 1)),),
    "selections: reduce op": (
        lambda: nisa.range_select(tile(4, 4), tile(4, 4), nl.less, nl.less, tile(4, 1), tile(4, 1),
            reduce_op=nl.add),),
    "selections: comp op": (
        lambda: nisa.range_select(tile(4, 4), tile(4, 4), nl.not_equal, nl.less, tile(4, 1), tile(4, 1)),),
    "selections: int data": (
        lambda: nisa.range_select(tile(4, 4), tile(4, 4, dtype=nl.int32), nl.less, nl.less, tile(4, 1), tile(4, 1)),),
    "selections: sel pred dtype": (lambda: nisa.select_reduce(tile(4, 4), tile(4, 4), tile(4, 4), 0.0),),
    "selections: sel on_true int32": (
        lambda: nisa.select_reduce(tile(4, 4), tile(4, 4, dtype=nl.uint8), tile(4, 4, dtype=nl.int32), 0.0),),
    "selections: sel op": (
        lambda: nisa.select_reduce(tile(4, 4), tile(4, 4, dtype=nl.uint8), tile(4, 4), 0.0, reduce_op=nl.add),),
    "selections: tcp pred": (lambda: nisa.tensor_copy_predicated(tile(4, 4), tile(4, 4), tile(4, 4)),),
    "selections: tcp dtype": (
        lambda: nisa.tensor_copy_predicated(tile(4, 4), tile(4, 4, dtype=BF16), tile(4, 4, dtype=nl.uint8)),),
    "selections: range reduce dtype": (
        lambda: nisa.range_select(tile(4, 4), tile(4, 4), nl.less, nl.less, tile(4, 1), tile(4, 1, dtype=BF16)),),
    "selections: sel pred int32": (
        lambda: nisa.select_reduce(tile(4, 4), tile(4, 4, dtype=nl.int32), tile(4, 4), 0.0),),
    "selections: tcp pred int8": (
        lambda: nisa.tensor_copy_predicated(tile(4, 4), tile(4, 4), tile(4, 4, dtype=nl.int8)),),
    # DMA
    "DMA: backwards": (lambda: nisa.dma_copy(tile(1, 4), hbm(1, 8).ap([[8, 1], [-1, 4]], offset=5)),),
    "DMA: counts": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 5)),),
    "DMA: hwdge dtype": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4, dtype=BF16), dge_mode=nisa.dge_mode.hwdge),),
    "DMA: hwdge v2": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), dge_mode=nisa.dge_mode.hwdge), "trn1"),
    "DMA: engine no hwdge": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), engine=nisa.engine.sync),),
    "DMA: engine vector": (
        lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.vector),),
    "DMA: vo hwdge": (
        lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4).ap([[4, 4], [1, 4]], vector_offset=tile(4, 1, dtype=nl.int32)),
            dge_mode=nisa.dge_mode.hwdge),),
    "DMA: vo sbuf": (
        lambda: nisa.dma_copy(hbm(4, 4), tile(4, 4).ap([[4, 4], [1, 4]], vector_offset=tile(4, 1, dtype=nl.int32))),),
    "DMA: vo dim1": (
        lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4).ap([[4, 4], [1, 4]], vector_offset=tile(4, 1, dtype=nl.int32),
            indirect_dim=1)),),
    "DMA: vo float": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4).ap([[4, 4], [1, 4]], vector_offset=tile(4, 1))),),
    "DMA: both offsets": (
        lambda: hbm(4, 4).ap([[4, 4], [1, 4]], vector_offset=tile(4, 1, dtype=nl.int32), scalar_offset=tile(1, 1,
            dtype=nl.int32)),),
    "DMA: skip static transpose": (lambda: nisa.dma_transpose(tile(4, 4), hbm(4, 4), oob_mode=nisa.oob_mode.skip),),
    "DMA: skip static compute": (
        lambda: nisa.dma_compute(tile(4, 4), [hbm(4, 4), hbm(4, 4)], nl.add, oob_mode=nisa.oob_mode.skip),),
    "DMA: transp axes": (lambda: nisa.dma_transpose(tile(4, 4, 4), hbm(4, 4, 4), (0, 2, 1)),),
    "DMA: transp shape": (lambda: nisa.dma_transpose(tile(4, 8), hbm(4, 8)),),
    "DMA: transp dst hbm": (lambda: nisa.dma_transpose(hbm(8, 4), hbm(4, 8)),),
    "DMA: transp dtype": (lambda: nisa.dma_transpose(tile(8, 4), hbm(4, 8, dtype=BF16)),),
    "DMA: compute op": (lambda: nisa.dma_compute(tile(4, 4), [hbm(4, 4)], nl.multiply),),
    "DMA: compute 17": (lambda: nisa.dma_compute(tile(4, 4), [hbm(4, 4)]*17, nl.add),),
    "DMA: scales": (lambda: nisa.dma_compute(tile(4, 4), [hbm(4, 4)], nl.add, [2.0]),),
    "DMA: unique": (lambda: nisa.dma_compute(tile(4, 4), [hbm(4, 4)], nl.add, unique_indices=False),),
    "DMA: priority v3": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), 1), "trn2"),
    "DMA: priority 4": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), 4),),
    "DMA: transpose counts": (lambda: nisa.dma_transpose(tile(4, 4), hbm(4, 4, 4), (2, 1, 0)),),
    "DMA: compute counts": (lambda: nisa.dma_compute(tile(4, 4), [hbm(4, 4), hbm(4, 5)], nl.add),),
    "DMA: engine gpsimd": (
        lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.gpsimd),),
    "DMA: vo none": (
        lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4).ap([[4, 4], [1, 4]], vector_offset=tile(4, 1, dtype=nl.int32)),
            dge_mode=nisa.dge_mode.none),),
    # memset and quantisation
    "memset and quantisation: memset": (lambda: nisa.memset(tile(4, 4, dtype=nl.int32), np.inf),),
    "memset and quantisation: memset x4": (lambda: nisa.memset(tile(4, 4, dtype=X4), 1),),
    "memset and quantisation: q P": (
        lambda: nisa.quantize_mx(tile(16, 2, dtype=X4), tile(16, 8, dtype=BF16), tile(2, 2, dtype=nl.uint8)),),
    "memset and quantisation: q F": (
        lambda: nisa.quantize_mx(tile(32, 2, dtype=X4), tile(32, 10, dtype=BF16), tile(4, 2, dtype=nl.uint8)),),
    "memset and quantisation: q src f32": (
        lambda: nisa.quantize_mx(tile(32, 2, dtype=X4), tile(32, 8), tile(4, 2, dtype=nl.uint8)),),
    "memset and quantisation: q fp4": (
        lambda: nisa.quantize_mx(tile(32, 2, dtype=nl.float4_e2m1fn_x4), tile(32, 8, dtype=BF16), tile(4, 2,
            dtype=nl.uint8)),),
    "memset and quantisation: q v3": (
        lambda: nisa.quantize_mx(tile(32, 2, dtype=X4), tile(32, 8, dtype=BF16), tile(4, 2, dtype=nl.uint8)), "trn2"),
    # generations
    "generations: exponential v3": (lambda: nisa.exponential(tile(4, 4), tile(4, 4)), "trn2"),
    "generations: rand2 v3": (lambda: nisa.rand2(tile(4, 4), 0.0, 1.0), "trn2"),
    "generations: activate2 v3": (
        lambda: nisa.activate2(tile(4, 4), nl.exp, tile(4, 4), 1.0, 0.0, nl.multiply, nl.add), "trn2"),
    "generations: nonzero v2": (lambda: nisa.nonzero_with_count(tile(4, 9, dtype=nl.int32), tile(4, 8)), "trn1"),
    "generations: topk v2": (
        lambda: nisa.topk(tile(16, 4, dtype=BF16), tile(16, 4, dtype=nl.uint32), tile(16, 4, dtype=BF16), 16),
            "trn1"),
    "generations: rand_get_state v2": (lambda: nisa.rand_get_state(tile(4, 6, dtype=nl.uint32)), "trn1"),
    "generations: rand state vector v3": (
        lambda: nisa.rand_get_state(tile(4, 24, dtype=nl.uint32), nisa.engine.vector), "trn2"),
    "generations: rng gpsimd v2": (lambda: nisa.rng(tile(4, 4, dtype=nl.uint32), nisa.engine.gpsimd), "trn1"),
    "generations: scalar copy v2": (lambda: nisa.tensor_copy(tile(4, 4), tile(4, 4), nisa.engine.scalar), "trn1"),
    "generations: sendrecv lnc1": (lambda: nisa.sendrecv(tile(4, 4), tile(4, 4), 1, 1, 0),),
    "generations: indirect v3": (
        lambda: nisa.tensor_copy(tile(16, 16), tile(16, 16).indirect(tile(16, 1, dtype=nl.uint16))), "trn2"),
    "generations: e4m3fn v3": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4, dtype=nl.float8_e4m3fn), tile(8, 4, dtype=nl.float8_e4m3fn)),
            "trn2"),
    "generations: abs_max v3 tt": (
        lambda: nisa.tensor_tensor(tile(4, 4), tile(4, 4), tile(4, 4), nl.abs_max), "trn2"),
    "generations: select v2": (lambda: nisa.rand_set_state(tile(4, 6, dtype=nl.uint32)), "trn1"),
    "generations: sendrecv v2": (lambda: nisa.sendrecv(tile(4, 4), tile(4, 4), 1, 1, 0), "trn1"),
    "generations: barrier lnc1": (lambda: nisa.core_barrier(hbm(4, 4), (0, 1)),),
    "generations: prelu v3": (lambda: nisa.activation(tile(4, 4), nl.prelu, tile(4, 4)), "trn2"),
    "generations: float bias v2 reduce": (
        lambda: nisa.activation_reduce(tile(4, 4), nl.exp, tile(4, 4), nl.add, tile(4, 1), bias=1.0), "trn1"),
    "generations: indirect dma_transpose v2": (
        lambda: nisa.dma_transpose(tile(16, 16, dtype=BF16), hbm(16, 16, dtype=BF16).ap([[16, 16], [1, 16]],
            vector_offset=tile(16, 1, dtype=nl.uint32))), "trn1"),
    "generations: tile 32 v2": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(8, 4), tile_position=(0, 0), tile_size=(32, 64)), "trn1"),
    "generations: tensor_scalar on scalar v2": (
        lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.multiply, 2.0, engine=nisa.engine.scalar), "trn1"),
    # enumerations
    "enumerations: raw": (lambda: nisa.tensor_copy(tile(4, 4), tile(4, 4), 7),),
    "enumerations: reduce_cmd": (
        lambda: nisa.activation(tile(4, 4), nl.exp, tile(4, 4), reduce_op=nl.add, reduce_cmd=9),),
    "enumerations: oob_mode": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), oob_mode=2),),
    "enumerations: dge_mode": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), dge_mode=4),),
    "enumerations: dma engine": (
        lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), dge_mode=nisa.dge_mode.hwdge, engine=7),),
    "enumerations: perf_mode": (lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(8, 4), perf_mode=1),),
    "enumerations: barrier engine": (lambda: nisa.core_barrier(hbm(4, 4), (0,), engine=9),),
    "enumerations: exponential": (lambda: nisa.exponential(tile(4, 4), tile(4, 4), reduce_cmd=9),),
    "enumerations: range_select": (
        lambda: nisa.range_select(tile(4, 4), tile(4, 4), nl.less, nl.less, tile(4, 1), tile(4, 1), reduce_cmd=9),),
    "enumerations: select_reduce": (
        lambda: nisa.select_reduce(tile(4, 4), tile(4, 4, dtype=nl.uint8), tile(4, 4), 0.0, reduce_cmd=9),),
    "enumerations: cumulative": (
        lambda: nisa.tensor_scalar_cumulative(tile(4, 4), tile(4, 4), nl.add, nl.add, 1.0, reduce_cmd=9),),
    "enumerations: rng": (lambda: nisa.rng(tile(4, 4, dtype=nl.uint32), 8),),
    "enumerations: memset": (lambda: nisa.memset(tile(4, 4), 0.0, 8),),
    "enumerations: transpose": (lambda: nisa.nc_transpose(psum(4, 4), tile(4, 4), 7),),
    "enumerations: buffer": (lambda: nl.ndarray((4, 4), nl.float32, buffer=1),),
    # others
    "others: transpose dtype": (lambda: nisa.nc_transpose(psum(4, 4), tile(4, 4, dtype=BF16)),),
    "others: transpose vector big": (lambda: nisa.nc_transpose(tile(64, 64), tile(64, 64), nisa.engine.vector),),
    "others: transpose tensor to sbuf": (lambda: nisa.nc_transpose(tile(64, 64), tile(64, 64), nisa.engine.tensor),),
    "others: tsr init": (
        lambda: nisa.tensor_scalar_reduce(tile(4, 4), tile(4, 4), nl.add, 1.0, nl.add, tile(4, 1),
            reduce_cmd=nisa.reduce_cmd.load_reduce),),
    "others: cumulative int32": (
        lambda: nisa.tensor_scalar_cumulative(tile(4, 4), tile(4, 4, dtype=nl.int32), nl.add, nl.add, 1.0),),
    "others: cumulative op1": (lambda: nisa.tensor_scalar_cumulative(tile(4, 4), tile(4, 4), nl.add, nl.power, 1.0),),
    "others: rand2 order": (lambda: nisa.rand2(tile(4, 4), 1.0, 0.0),),
    "others: rng float": (lambda: nisa.rng(tile(4, 4)),),
    "others: seed shape": (lambda: nisa.set_rng_seed(tile(4, 1, dtype=nl.int32)),),
    "others: rand_set cols": (lambda: nisa.rand_set_state(tile(4, 5, dtype=nl.uint32)),),
    "others: activate2 ops": (lambda: nisa.activate2(tile(4, 4), nl.exp, tile(4, 4), 1.0, 0.0, nl.add, nl.multiply),),
    "others: partition_reduce op": (lambda: nisa.tensor_partition_reduce(tile(1, 4), nl.multiply, tile(4, 4)),),
    "others: bitvec dtypes differ": (
        lambda: nisa.tensor_tensor(tile(4, 4, dtype=nl.int16), tile(4, 4, dtype=nl.int32), tile(4, 4, dtype=nl.int16),
            nl.bitwise_and),),
    "others: dropout dtype": (lambda: nisa.dropout(tile(4, 4), tile(4, 4, dtype=BF16), 0.5),),
    "others: gelu in tensor_scalar": (lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.gelu, None),),
    "others: partition stride": (lambda: nisa.tensor_copy(tile(4, 4), tile(8, 4)[0:8:2]),),
    "others: random_seed int": (lambda: nl.random_seed(3),),
    "others: program_id(-1)": (lambda: nl.program_id(-1),),
}


@pytest.mark.parametrize("launch", [nki.simulate, lambda kernel: nki.jit(kernel).on("interpreter")],
                         ids=["simulated", "captured"])
@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_the_call(name, launch, monkeypatch):
    call, *target = REFUSED[name]
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", *(target or ["trn3"]))

    def kernel(x):
        call()
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out
    with pytest.raises(NkiValidationError) as raised:
        launch(kernel)(np.zeros((1, 1), np.float32))
    assert isinstance(raised.value, AssertionError) and raised.value.at.file == __file__
    first = call.__code__.co_firstlineno
    assert first <= raised.value.at.line < first + 4

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
    "partitions, sizes, memories: P>128": (lambda: nisa.tensor_copy(tile(129, 4), tile(129, 4)),
        "tensor_copy dst partition dimension 129 exceeds maximum 128"),
    "partitions, sizes, memories: P mismatch": (
        lambda: nisa.tensor_tensor(tile(4, 4), tile(4, 4), tile(3, 4), nl.add),
        "tensor_tensor data2 has 3 partitions, dst has 4"),
    "partitions, sizes, memories: free mismatch": (
        lambda: nisa.tensor_tensor(tile(4, 4), tile(4, 4), tile(4, 5), nl.add),
        "tensor_tensor data2 has 5 elements per partition, dst has 4"),
    "partitions, sizes, memories: dst HBM": (lambda: nisa.tensor_copy(hbm(4, 4), tile(4, 4)),
        "Expected operand 'dst' of 'tensor_copy' to be in address space 'psum|sbuf', but got a tile in 'hbm' instead."),
    "partitions, sizes, memories: src HBM": (lambda: nisa.activation(tile(4, 4), nl.exp, hbm(4, 4)),
        "Expected operand 'data' of 'activation' to be in address space 'psum|sbuf', but got a tile in 'hbm' instead."),
    "partitions, sizes, memories: both psum tt": (
        lambda: nisa.tensor_tensor(tile(4, 4), psum(4, 4), psum(4, 4), nl.add),
        "'tensor_tensor': at most one of data1 and data2 may be in PSUM"),
    "partitions, sizes, memories: both psum scan": (
        lambda: nisa.tensor_tensor_scan(tile(4, 4), psum(4, 4), psum(4, 4), 0.0, nl.multiply, nl.add),
        "'tensor_tensor_scan': at most one of data0 and data1 may be in PSUM"),
    "partitions, sizes, memories: both psum stt": (
        lambda: nisa.scalar_tensor_tensor(tile(4, 4), psum(4, 4), nl.add, 1.0, nl.add, psum(4, 4)),
        "'scalar_tensor_tensor': at most one of data and operand1 may be in PSUM"),
    "partitions, sizes, memories: both psum tcp": (
        lambda: nisa.tensor_copy_predicated(tile(4, 4), psum(4, 4), psum(4, 4, dtype=nl.uint8)),
        "'tensor_copy_predicated': at most one of src and predicate may be in PSUM"),
    "partitions, sizes, memories: both psum selred": (
        lambda: nisa.select_reduce(tile(4, 4), psum(4, 4, dtype=nl.uint8), psum(4, 4), 0.0),
        "'select_reduce': at most one of on_true and predicate may be in PSUM"),
    "partitions, sizes, memories: gpsimd psum copy": (
        lambda: nisa.tensor_copy(tile(4, 4), psum(4, 4), nisa.engine.gpsimd),
        "Expected operand 'src' of 'tensor_copy' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "partitions, sizes, memories: gpsimd psum memset": (lambda: nisa.memset(psum(4, 4), 0.0, nisa.engine.gpsimd),
        "Expected operand 'dst' of 'memset' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "partitions, sizes, memories: power psum": (
        lambda: nisa.tensor_tensor(tile(4, 4), psum(4, 4), tile(4, 4), nl.power),
        "Expected operand 'data1' of 'tensor_tensor' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "partitions, sizes, memories: scalar power psum": (
        lambda: nisa.tensor_scalar(tile(4, 4), psum(4, 4), nl.power, 2.0),
        "'tensor_scalar': power reads and writes SBUF only, got a tile in PSUM"),
    "partitions, sizes, memories: iota psum": (lambda: nisa.iota(psum(4, 4), [[1, 4]]),
        "Expected operand 'dst' of 'iota' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "partitions, sizes, memories: affine_select psum": (
        lambda: nisa.affine_select(psum(4, 4), [[1, 4]], 1, tile(4, 4), 0.0),
        "Expected operand 'dst' of 'affine_select' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "partitions, sizes, memories: affine_select psum src": (
        lambda: nisa.affine_select(tile(4, 4), [[1, 4]], 1, psum(4, 4), 0.0),
        "Expected operand 'on_true_tile' of 'affine_select' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "partitions, sizes, memories: partition_reduce psum": (
        lambda: nisa.tensor_partition_reduce(tile(1, 4), nl.add, psum(4, 4)),
        "Expected operand 'data' of 'tensor_partition_reduce' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "partitions, sizes, memories: local_gather psum": (
        lambda: nisa.local_gather(psum(16, 16), tile(16, 16), tile(16, 1, dtype=nl.uint16)),
        "Expected operand 'dst' of 'local_gather' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "partitions, sizes, memories: n_gather psum": (
        lambda: nisa.nc_n_gather(psum(16, 16), tile(16, 16), tile(16, 16, dtype=nl.uint32)),
        "Expected operand 'dst' of 'nc_n_gather' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "partitions, sizes, memories: seq bounds psum": (lambda: nisa.sequence_bounds(psum(1, 2, 8), tile(1, 8)),
        "Expected operand 'dst' of 'sequence_bounds' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "partitions, sizes, memories: dma psum dst": (lambda: nisa.dma_copy(psum(4, 4), hbm(4, 4)),
        "dma_copy dst is in PSUM, which DMA cannot access; copy it to SBUF first"),
    "partitions, sizes, memories: quantize psum": (
        lambda: nisa.quantize_mx(psum(32, 2, dtype=nl.float8_e4m3fn_x4), tile(32, 8, dtype=BF16), tile(4, 2,
            dtype=nl.uint8)),
        "Expected operand 'dst' of 'quantize_mx' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "partitions, sizes, memories: gpsimd psum tt": (
        lambda: nisa.tensor_tensor(psum(4, 4), tile(4, 4), tile(4, 4), nl.add, nisa.engine.gpsimd),
        "Expected operand 'dst' of 'tensor_tensor' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "partitions, sizes, memories: gpsimd psum scalar": (
        lambda: nisa.tensor_scalar(tile(4, 4), psum(4, 4), nl.add, 1.0, engine=nisa.engine.gpsimd),
        "Expected operand 'data' of 'tensor_scalar' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "partitions, sizes, memories: rng gpsimd psum": (
        lambda: nisa.rng(psum(4, 4, dtype=nl.uint32), nisa.engine.gpsimd),
        "Expected operand 'dst' of 'rng' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "partitions, sizes, memories: nonzero psum": (
        lambda: nisa.nonzero_with_count(psum(16, 9, dtype=nl.int32), tile(16, 8)),
        "Expected operand 'dst' of 'nonzero_with_count' to be in address space 'sbuf', but got a tile in "
        "'psum' instead."),
    "partitions, sizes, memories: topk psum": (
        lambda: nisa.topk(psum(16, 4, dtype=BF16), tile(16, 4, dtype=nl.uint32), tile(16, 4, dtype=BF16), 16),
        "Expected operand 'val_dst' of 'topk' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "partitions, sizes, memories: dma_transpose psum": (lambda: nisa.dma_transpose(psum(4, 4), hbm(4, 4)),
        "Expected operand 'dst' of 'dma_transpose' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "partitions, sizes, memories: dma_compute psum": (
        lambda: nisa.dma_compute(psum(4, 4), [hbm(4, 4), hbm(4, 4)], nl.add),
        "Expected operand 'dst' of 'dma_compute' to be in address space 'hbm|sbuf', but got a tile in 'psum' instead."),
    # matmul
    "matmul: K mismatch": (lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(9, 4)),
        "'nc_matmul': contracts axis 0 of both operands, got [8, 4] and [9, 4]"),
    "matmul: M>128": (lambda: nisa.nc_matmul(psum(128, 4), tile(8, 129), tile(8, 4)),
        "size of dimension 1 in 'stationary[8, 129]' of 'nc_matmul' exceed architecture limitation of 128."),
    "matmul: N>512 trn2": (lambda: nisa.nc_matmul(psum(4, 513), tile(8, 4), tile(8, 513)),
        "nc_matmul moving has 513 columns, more than 512 on trn2", "trn2"),
    "matmul: N>4096": (
        lambda: nisa.nc_matmul(nl.ndarray((4, 4097), nl.float32, buffer=nl.psum), tile(8, 4),
                                               tile(8, 4097)),
        "a tile of shape [4, 4097] of float32 takes 16388 bytes of each partition; PSUM of trn3 has 16384"),
    "matmul: fp32/bf16": (lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(8, 4, dtype=BF16)),
        "'nc_matmul': multiplies float32 with float32 only, got float32 and bfloat16"),
    "matmul: e4m3/e4m3fn": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4, dtype=nl.float8_e4m3), tile(8, 4, dtype=nl.float8_e4m3fn)),
        "'nc_matmul': cannot mix float8_e4m3 and float8_e4m3fn"),
    "matmul: ints": (lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4, dtype=nl.int32), tile(8, 4, dtype=nl.int32)),
        "operand 'stationary' of 'nc_matmul' has dtype int32, which must be a float type"),
    "matmul: dst sbuf": (lambda: nisa.nc_matmul(tile(4, 4), tile(8, 4), tile(8, 4)),
        "Expected operand 'dst' of 'nc_matmul' to be in address space 'psum', but got a tile in 'sbuf' instead."),
    "matmul: dst int": (lambda: nisa.nc_matmul(psum(4, 4, dtype=nl.int32), tile(8, 4), tile(8, 4)),
        "'nc_matmul': writes float32 or bfloat16, got int32"),
    "matmul: dst bf16 trn2": (lambda: nisa.nc_matmul(psum(4, 4, dtype=BF16), tile(8, 4), tile(8, 4)),
        "a result of nc_matmul in bfloat16 needs generation 4 of the core, and trn2 is generation 3", "trn2"),
    "matmul: dst fp16": (lambda: nisa.nc_matmul(psum(4, 4, dtype=nl.float16), tile(8, 4), tile(8, 4)),
        "'nc_matmul': writes float32 or bfloat16, got float16"),
    "matmul: psum stationary": (lambda: nisa.nc_matmul(psum(4, 4), psum(8, 4), tile(8, 4)),
        "Expected operand 'stationary' of 'nc_matmul' to be in address space 'sbuf', but got a tile in 'psum' instead."),
    "matmul: double_row shape": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4, dtype=nl.float8_e4m3), tile(8, 4, dtype=nl.float8_e4m3),
            perf_mode=DOUBLE_ROW),
        "nc_matmul with perf_mode double_row: stationary must have 8-bit floats of shape [K, 2, N], got [8, 4] float8_e4m3"),
    "matmul: double_row bf16": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 2, 4, dtype=BF16), tile(8, 2, 4, dtype=BF16),
            perf_mode=DOUBLE_ROW),
        "nc_matmul with perf_mode double_row: stationary must have 8-bit floats of shape [K, 2, N], got [8, 2, 4] bfloat16"),
    "matmul: double_row v2": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 2, 4, dtype=nl.float8_e4m3), tile(8, 2, 4, dtype=nl.float8_e4m3),
            perf_mode=DOUBLE_ROW),
        "nc_matmul with perf_mode double_row needs generation 3 of the core, and trn1 is generation 2", "trn1"),
    "matmul: double_row transpose": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 2, 4, dtype=nl.float8_e4m3), tile(8, 2, 4, dtype=nl.float8_e4m3),
            is_transpose=True, perf_mode=DOUBLE_ROW),
        "nc_matmul with perf_mode double_row: it does not transpose"),
    "matmul: double_row col tile": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 2, 4, dtype=nl.float8_e4m3), tile(8, 2, 4, dtype=nl.float8_e4m3),
            tile_position=(0, 64), tile_size=(64, 64), perf_mode=DOUBLE_ROW),
        "nc_matmul with tile_position (0, 64) and tile_size (64, 64): perf_mode double_row takes all columns"),
    "matmul: tile size only": (lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(8, 4), tile_size=(64, 64)),
        "nc_matmul with tile_position () and tile_size (64, 64): both must be given, with two integers each"),
    "matmul: tile multiple": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(8, 4), tile_size=(64, 64), tile_position=(32, 0)),
        "nc_matmul with tile_position (32, 0) and tile_size (64, 64): the position must be a multiple of the size"),
    "matmul: tile 32 v2": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(8, 4), tile_size=(32, 32), tile_position=(0, 0)),
        "nc_matmul with tile_position (0, 0) and tile_size (32, 32): rows and columns must be of (64, 128)", "trn1"),
    "matmul: K>rows": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(65, 4), tile(65, 4), tile_size=(64, 64), tile_position=(0, 0)),
        "nc_matmul with tile_position (0, 0) and tile_size (64, 64): stationary must fit the part, got [65, 4]"),
    "matmul: bank cross trn2": (lambda: nisa.nc_matmul(psum(4, 1024)[:, 256:768], tile(8, 4), tile(8, 512)),
        "nc_matmul dst of 2048 bytes crosses a PSUM bank of 2048 bytes", "trn2"),
    "matmul: K>128": (lambda: nisa.nc_matmul(psum(4, 4), tile(129, 4), tile(129, 4)),
        "nc_matmul stationary partition dimension 129 exceeds maximum 128"),
    "matmul: N>512 trn1": (lambda: nisa.nc_matmul(psum(4, 513), tile(8, 4), tile(8, 513)),
        "nc_matmul moving has 513 columns, more than 512 on trn1", "trn1"),
    "matmul: M>columns": (
        lambda: nisa.nc_matmul(psum(65, 4), tile(8, 65), tile(8, 4), tile_size=(64, 64), tile_position=(0, 0)),
        "nc_matmul with tile_position (0, 0) and tile_size (64, 64): stationary must fit the part, got [8, 65]"),
    "matmul: tile position only": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(8, 4), tile_position=(0, 0)),
        "nc_matmul with tile_position (0, 0) and tile_size (): both must be given, with two integers each"),
    "matmul: tf32/bf16": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4, dtype=nl.tfloat32), tile(8, 4, dtype=BF16)),
        "'nc_matmul': multiplies float32 with float32 only, got tfloat32 and bfloat16"),
    "matmul: bank cross trn1": (lambda: nisa.nc_matmul(psum(4, 1024)[:, 256:768], tile(8, 4), tile(8, 512)),
        "nc_matmul dst of 2048 bytes crosses a PSUM bank of 2048 bytes", "trn1"),
    # microscaled matmul
    "microscaled matmul: P%32": (
        lambda: nisa.nc_matmul_mx(psum(4, 4), tile(16, 4, dtype=X4), tile(16, 4, dtype=X4), tile(2, 4,
            dtype=nl.uint8), tile(2, 4, dtype=nl.uint8)),
        "'nc_matmul_mx': contracts 32, 64, 96 or 128 partitions of both operands, got 16 and 16"),
    "microscaled matmul: M odd": (
        lambda: nisa.nc_matmul_mx(psum(3, 4), tile(32, 3, dtype=X4), tile(32, 4, dtype=X4), tile(4, 3,
            dtype=nl.uint8), tile(4, 4, dtype=nl.uint8)),
        "'nc_matmul_mx': takes an even number of up to 128 stationary columns, got 3"),
    "microscaled matmul: dtype": (
        lambda: nisa.nc_matmul_mx(psum(4, 4), tile(32, 4, dtype=BF16), tile(32, 4, dtype=X4), tile(4, 4,
            dtype=nl.uint8), tile(4, 4, dtype=nl.uint8)),
        "nc_matmul_mx stationary must be a packed type (..._x4), it is bfloat16"),
    "microscaled matmul: scale dtype": (
        lambda: nisa.nc_matmul_mx(psum(4, 4), tile(32, 4, dtype=X4), tile(32, 4, dtype=X4), tile(4, 4), tile(4, 4,
            dtype=nl.uint8)),
        "operand 'stationary_scale' of 'nc_matmul_mx' has dtype float32, which must be uint8 or float8_e8m0fnu"),
    "microscaled matmul: scale shape": (
        lambda: nisa.nc_matmul_mx(psum(4, 4), tile(64, 4, dtype=X4), tile(64, 4, dtype=X4), tile(8, 4,
            dtype=nl.uint8), tile(8, 4, dtype=nl.uint8)),
        "'nc_matmul_mx': the tile of scales must have a partition for each scale, got [8, 4] for 36 partitions of 4"),
    "microscaled matmul: v3": (
        lambda: nisa.nc_matmul_mx(psum(4, 4), tile(32, 4, dtype=X4), tile(32, 4, dtype=X4), tile(4, 4,
            dtype=nl.uint8), tile(4, 4, dtype=nl.uint8)),
        "'nc_matmul_mx' needs generation 4 of the core, and trn2 is generation 3", "trn2"),
    # activation
    "activation: op": (lambda: nisa.activation(tile(4, 4), nl.add, tile(4, 4)),
        "activation op: add is not an activation function"),
    "activation: reduce_op": (
        lambda: nisa.activation(tile(4, 4), nl.exp, tile(4, 4), reduce_op=nl.maximum, reduce_res=tile(4, 1),
            reduce_cmd=nisa.reduce_cmd.reset_reduce),
        "'activation_accumulate': reduces by maximum; an activation is documented to reduce by nl.add only"),
    "activation: float bias v2": (lambda: nisa.activation(tile(4, 4), nl.exp, tile(4, 4), bias=1.0),
        "activation with a bias that is a number needs generation 3 of the core, and trn1 is generation 2", "trn1"),
    "activation: scale f16": (
        lambda: nisa.activation(tile(4, 4), nl.exp, tile(4, 4), scale=tile(4, 1, dtype=nl.float16)),
        "the scale tile of an activation has dtype float16; it must be float32"),
    "activation: bias tf32": (
        lambda: nisa.activation(tile(4, 4), nl.exp, tile(4, 4), bias=tile(4, 1, dtype=nl.tfloat32)),
        "the bias of an activation is tfloat32; it must be a float32, float16 or bfloat16 tile of shape [P, 1]"),
    "activation: reciprocal bias v2": (
        lambda: nisa.activation(tile(4, 4), nl.reciprocal, tile(4, 4), bias=tile(4, 1)),
        "the activation 'reciprocal' with a bias needs generation 3 of the core, and trn1 is generation 2", "trn1"),
    # tensor_scalar
    "tensor_scalar: op1 alone": (lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.add, 1.0, op1=nl.add),
        "the second operation of tensor_scalar has no operand1"),
    "tensor_scalar: operand1 alone": (lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.add, 1.0, operand1=2.0),
        "the second operation of tensor_scalar has no op1"),
    "tensor_scalar: mixing": (
        lambda: nisa.tensor_scalar(tile(4, 4, dtype=nl.int32), tile(4, 4, dtype=nl.int32), nl.add, 1,
            op1=nl.bitwise_and, operand1=1),
        "'tensor_scalar': op0 and op1 must both be bit operations or both arithmetic"),
    "tensor_scalar: bitvec float": (lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.bitwise_and, 1),
        "operand 'data' of 'tensor_scalar' has dtype float32, which must be an integer type"),
    "tensor_scalar: operand shape": (lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.add, tile(4, 2)),
        "operand 'operand0' of 'tensor_scalar' has 2 values in each partition; it must have one"),
    "tensor_scalar: operand f16": (
        lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.add, tile(4, 1, dtype=nl.float16)),
        "tensor_scalar operand0 must be float32 for add, it is float16"),
    "tensor_scalar: unary operand": (lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.rsqrt, 2.0),
        "tensor_scalar operand0 of the operator rsqrt, which has one input, must be None or 0"),
    "tensor_scalar: gpsimd maximum": (
        lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.maximum, 2.0, engine=nisa.engine.gpsimd),
        "the gpsimd engine has no maximum, which 'tensor_scalar' needs"),
    "tensor_scalar: square v3": (lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.square, None),
        "'tensor_scalar' of square needs generation 4 of the core, and trn2 is generation 3", "trn2"),
    "tensor_scalar: abs_max v3": (lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.abs_max, 1.0),
        "'tensor_scalar' of abs_max needs generation 4 of the core, and trn2 is generation 3", "trn2"),
    "tensor_scalar: tensor engine": (
        lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.add, 1.0, engine=nisa.engine.tensor),
        "attribute 'engine' of 'tensor_scalar' is 'tensor', which must be one of unknown, vector, scalar, gpsimd"),
    # tensor_reduce
    "tensor_reduce: axis 0": (lambda: nisa.tensor_reduce(tile(1, 4), nl.add, tile(4, 4), 0),
        "axis 0 is the partition axis, along which the engines do not reduce"),
    "tensor_reduce: not suffix": (lambda: nisa.tensor_reduce(tile(4, 4), nl.add, tile(4, 5, 4), 1),
        "tensor_reduce axis 1 of a tensor of 3 dimensions: the last contiguous free axes are reduced"),
    "tensor_reduce: negate bitvec": (
        lambda: nisa.tensor_reduce(tile(4, 1, dtype=nl.int32), nl.bitwise_and, tile(4, 4, dtype=nl.int32), 1,
            negate=True),
        "'tensor_reduce': negate is for arithmetic reductions, got bitwise_and"),
    "tensor_reduce: op": (lambda: nisa.tensor_reduce(tile(4, 1), nl.equal, tile(4, 4), 1),
        "attribute 'op' of 'tensor_reduce' is 'equal', which must be one of add, subtract, multiply, average, maximum, "
        "minimum, abs_max, abs_min, bitwise_and, bitwise_or, bitwise_xor, logical_and, logical_or, logical_xor"),
    "tensor_reduce: no such axis": (lambda: nisa.tensor_reduce(tile(4, 1), nl.add, tile(4, 4), 7),
        "a tile of 2 dimensions has no axis 7"),
    # statistics and searches
    "statistics and searches: bn 513": (lambda: nisa.bn_stats(tile(4, 6), tile(4, 513)),
        "size of dimension 1 in 'data[4, 513]' of 'bn_stats' exceed architecture limitation of 512."),
    "statistics and searches: bn dst": (lambda: nisa.bn_stats(tile(4, 5), tile(4, 51)),
        "operand 'dst' of 'bn_stats' has shape [4, 5], which must be [4, 6]"),
    "statistics and searches: aggr %3": (lambda: nisa.bn_aggr(tile(4, 2), tile(4, 4)),
        "'bn_aggr': takes triples, got 4 values a partition"),
    "statistics and searches: aggr dst": (lambda: nisa.bn_aggr(tile(4, 3), tile(4, 6)),
        "operand 'dst' of 'bn_aggr' has shape [4, 3], which must be [4, 2]"),
    "statistics and searches: max8 short": (lambda: nisa.max8(tile(4, 8), tile(4, 7)),
        "'max8': takes 8 to 16384 values a partition in src, got 7"),
    "statistics and searches: max8 dst": (lambda: nisa.max8(tile(4, 7), tile(4, 8)),
        "operand 'dst' of 'max8' has shape [4, 7], which must be [4, 8]"),
    "statistics and searches: max8 long": (lambda: nisa.max8(tile(4, 8), tile(4, 16385)),
        "'max8': takes 8 to 16384 values a partition in src, got 16385"),
    "statistics and searches: vals": (
        lambda: nisa.nc_find_index8(tile(4, 8, dtype=nl.uint32), tile(4, 16), tile(4, 7)),
        "operand 'vals' of 'nc_find_index8' has shape [4, 7], which must be [4, 8]"),
    "statistics and searches: idx dtype": (
        lambda: nisa.nc_find_index8(tile(4, 8, dtype=nl.int32), tile(4, 16), tile(4, 8)),
        "operand 'dst' of 'nc_find_index8' has dtype int32, which must be uint32 or uint16"),
    "statistics and searches: mr idx dtype": (
        lambda: nisa.nc_match_replace8(tile(4, 16), tile(4, 16), tile(4, 8), 0.0, tile(4, 8, dtype=nl.int32)),
        "operand 'dst_idx' of 'nc_match_replace8' has dtype int32, which must be uint32 or uint16"),
    "statistics and searches: find short": (
        lambda: nisa.nc_find_index8(tile(4, 8, dtype=nl.uint32), tile(4, 7), tile(4, 8)),
        "'nc_find_index8': takes 8 to 16384 values a partition in data, got 7"),
    "statistics and searches: find long": (
        lambda: nisa.nc_find_index8(tile(4, 8, dtype=nl.uint32), tile(4, 16385), tile(4, 8)),
        "'nc_find_index8': takes 8 to 16384 values a partition in data, got 16385"),
    # shuffle
    "shuffle: mask len": (lambda: nisa.nc_stream_shuffle(tile(32, 4), tile(32, 4), [0]*31),
        "'nc_stream_shuffle': takes 32 entries of 0..31 or 255, got 31 such entries of 31"),
    "shuffle: mask val": (lambda: nisa.nc_stream_shuffle(tile(32, 4), tile(32, 4), [32]*32),
        "'nc_stream_shuffle': takes 32 entries of 0..31 or 255, got 0 such entries of 32"),
    "shuffle: dtype": (lambda: nisa.nc_stream_shuffle(tile(32, 4), tile(32, 4, dtype=nl.int32), [0]*32),
        "'nc_stream_shuffle': dst and src must have the same dtype and free shape, got float32 [32, 4] and int32 [32, 4]"),
    "shuffle: start": (lambda: nisa.nc_stream_shuffle(tile(128, 4)[32:128], tile(96, 4), [0]*32),
        "operand 'dst' of 'nc_stream_shuffle' begins at partition 32 and has 96 partitions"),
    "shuffle: mask negative": (lambda: nisa.nc_stream_shuffle(tile(32, 4), tile(32, 4), [-1]*32),
        "'nc_stream_shuffle': takes 32 entries of 0..31 or 255, got 0 such entries of 32"),
    # patterns
    "patterns: pattern 5": (lambda: nisa.iota(tile(4, 4), [[1, 1]]*4+[[1, 4]]),
        "iota pattern must have 1 to 4 [step, count] pairs"),
    "patterns: product": (lambda: nisa.iota(tile(4, 4), [[1, 5]]),
        "iota pattern [[1, 5]] has 5 elements, dst 4 per partition"),
    "patterns: select 5": (
        lambda: nisa.affine_select(tile(4, 4), [[1, 1]]*4+[[1, 4]], 1, tile(4, 4), 0.0, nl.equal),
        "affine_select pattern must have 1 to 4 [step, count] pairs"),
    "patterns: select product": (
        lambda: nisa.affine_select(tile(4, 4), [[1, 5]], 1, tile(4, 4), 0.0, nl.equal),
        "affine_select pattern [[1, 5]] has 5 elements, dst 4 per partition"),
    # gathers and lists
    "gathers and lists: P%16": (lambda: nisa.local_gather(tile(8, 16), tile(8, 16), tile(8, 1, dtype=nl.uint16)),
        "'local_gather': src_buffer and index must have the same number of partitions, a multiple of 16, got 8 and 8"),
    "gathers and lists: epi": (
        lambda: nisa.local_gather(tile(16, 48), tile(16, 16), tile(16, 1, dtype=nl.uint16), 3),
        "'local_gather': gathers 1, 2, 4, 8, 16 or 32 elements for each index, got 3"),
    "gathers and lists: dtype": (
        lambda: nisa.local_gather(tile(16, 16), tile(16, 16), tile(16, 1, dtype=nl.uint32)),
        "operand 'index' of 'local_gather' has dtype uint32, which must be uint16"),
    "gathers and lists: 4096": (
        lambda: nisa.local_gather(tile(16, 4112), tile(16, 16), tile(16, 257, dtype=nl.uint16)),
        "size of dimension 1 in 'index[16, 257]' of 'local_gather' exceed architecture limitation of 256."),
    "gathers and lists: dst dtype": (
        lambda: nisa.local_gather(tile(16, 16, dtype=BF16), tile(16, 16), tile(16, 1, dtype=nl.uint16)),
        "'local_gather': dst and src_buffer must have the same dtype, got bfloat16 and float32"),
    "gathers and lists: ngather float idx": (lambda: nisa.nc_n_gather(tile(4, 4), tile(4, 4), tile(4, 4)),
        "operand 'indices' of 'nc_n_gather' has dtype float32, which must be uint32"),
    "gathers and lists: nonzero dst": (lambda: nisa.nonzero_with_count(tile(4, 8, dtype=nl.int32), tile(4, 8)),
        "'nonzero_with_count': dst must have one element more than src, got 8 and 8"),
    "gathers and lists: nonzero dtype": (lambda: nisa.nonzero_with_count(tile(4, 9), tile(4, 8)),
        "operand 'dst' of 'nonzero_with_count' has dtype float32, which must be int32"),
    "gathers and lists: nonzero src dtype": (
        lambda: nisa.nonzero_with_count(tile(4, 9, dtype=nl.int32), tile(4, 8, dtype=BF16)),
        "operand 'src' of 'nonzero_with_count' has dtype bfloat16, which must be float32 or int32"),
    "gathers and lists: topk n small": (
        lambda: nisa.topk(tile(16, 4, dtype=BF16), tile(16, 4, dtype=nl.uint32), tile(16, 4, dtype=BF16), 7),
        "'topk': takes lists of 8 to 64, got 7"),
    "gathers and lists: topk S": (
        lambda: nisa.topk(tile(16, 4, dtype=BF16), tile(16, 4, dtype=nl.uint32), tile(16, 4, dtype=BF16), 65),
        "'topk': takes lists of 8 to 64, got 65"),
    "gathers and lists: topk K>n": (
        lambda: nisa.topk(tile(16, 9, dtype=BF16), tile(16, 9, dtype=nl.uint32), tile(16, 4, dtype=BF16), 8),
        "'topk': gives 1 to 8 results in both tiles, got 9 and 9"),
    "gathers and lists: topk dtype": (lambda: nisa.topk(tile(16, 4), tile(16, 4, dtype=nl.uint32), tile(16, 4), 16),
        "operand 'val_dst' of 'topk' has dtype float32, which must be bfloat16"),
    "gathers and lists: topk idx dtype": (
        lambda: nisa.topk(tile(16, 4, dtype=BF16), tile(16, 4, dtype=nl.int32), tile(16, 4, dtype=BF16), 16),
        "operand 'idx_dst' of 'topk' has dtype int32, which must be uint32"),
    "gathers and lists: seq P": (lambda: nisa.sequence_bounds(tile(2, 2, 8), tile(2, 8)),
        "'sequence_bounds': segment_ids must have 1 partition, got 2"),
    "gathers and lists: seq dst": (lambda: nisa.sequence_bounds(tile(1, 2, 9), tile(1, 8)),
        "operand 'dst' of 'sequence_bounds' has shape [1, 2, 9], which must be [1, 2, 8]"),
    "gathers and lists: seq dtype": (
        lambda: nisa.sequence_bounds(tile(1, 2, 8, dtype=BF16), tile(1, 8, dtype=BF16)),
        "operand 'dst' of 'sequence_bounds' has dtype bfloat16; it must have float32, int32"),
    "gathers and lists: ngather int32": (
        lambda: nisa.nc_n_gather(tile(4, 4), tile(4, 4), tile(4, 4, dtype=nl.int32)),
        "operand 'indices' of 'nc_n_gather' has dtype int32, which must be uint32"),
    "gathers and lists: topk n large": (
        lambda: nisa.topk(tile(16, 4, dtype=BF16), tile(16, 4, dtype=nl.uint32), tile(16, 4096, dtype=BF16), 65536),
        "'topk': takes lists of 8 to 65535, got 65536"),
    "gathers and lists: topk P": (
        lambda: nisa.topk(tile(8, 4, dtype=BF16), tile(8, 4, dtype=nl.uint32), tile(8, 4, dtype=BF16), 16),
        "'topk': takes a multiple of 16 partitions, got 8"),
    # selections
    "selections: v2": (
        lambda: nisa.range_select(tile(4, 4), tile(4, 4), nl.less, nl.less, tile(4, 1), tile(4, 1)),
        "'range_select' needs generation 3 of the core, and trn1 is generation 2", "trn1"),
    "selections: bounds dtype": (
        lambda: nisa.range_select(tile(4, 4), tile(4, 4), nl.less, nl.less, tile(4, 1, dtype=nl.int32), tile(4, 1)),
        "operand 'bound0' of 'range_select' has dtype int32, which must be float32"),
    "selections: reduce op": (
        lambda: nisa.range_select(tile(4, 4), tile(4, 4), nl.less, nl.less, tile(4, 1), tile(4, 1),
            reduce_op=nl.add),
        "attribute 'reduce_op' of 'range_select' is 'add', which must be one of maximum"),
    "selections: comp op": (
        lambda: nisa.range_select(tile(4, 4), tile(4, 4), nl.not_equal, nl.less, tile(4, 1), tile(4, 1)),
        "attribute 'comp0' of 'range_select' is 'not_equal', which must be one of equal, less, less_equal, "
        "greater, greater_equal"),
    "selections: int data": (
        lambda: nisa.range_select(tile(4, 4), tile(4, 4, dtype=nl.int32), nl.less, nl.less, tile(4, 1), tile(4, 1)),
        "'range_select': selects floats, got int32"),
    "selections: sel pred dtype": (lambda: nisa.select_reduce(tile(4, 4), tile(4, 4), tile(4, 4), 0.0),
        "operand 'predicate' of 'select_reduce' has dtype float32; it must have int8, uint8, int16, uint16, bool"),
    "selections: sel on_true int32": (
        lambda: nisa.select_reduce(tile(4, 4), tile(4, 4, dtype=nl.uint8), tile(4, 4, dtype=nl.int32), 0.0),
        "'select_reduce': selects floats and integers of 8 and 16 bits, got int32 as on_true"),
    "selections: sel op": (
        lambda: nisa.select_reduce(tile(4, 4), tile(4, 4, dtype=nl.uint8), tile(4, 4), 0.0, reduce_op=nl.add),
        "attribute 'reduce_op' of 'select_reduce' is 'add', which must be one of maximum"),
    "selections: tcp pred": (lambda: nisa.tensor_copy_predicated(tile(4, 4), tile(4, 4), tile(4, 4)),
        "operand 'predicate' of 'tensor_copy_predicated' has dtype float32; it must have uint8, uint16, uint32"),
    "selections: tcp dtype": (
        lambda: nisa.tensor_copy_predicated(tile(4, 4), tile(4, 4, dtype=BF16), tile(4, 4, dtype=nl.uint8)),
        "operand 'src' of 'tensor_copy_predicated' has dtype bfloat16; it must have float32"),
    "selections: bound1 dtype": (
        lambda: nisa.range_select(tile(4, 4), tile(4, 4), nl.less, nl.less, tile(4, 1), tile(4, 1, dtype=BF16)),
        "operand 'bound1' of 'range_select' has dtype bfloat16, which must be float32"),
    "selections: sel pred int32": (
        lambda: nisa.select_reduce(tile(4, 4), tile(4, 4, dtype=nl.int32), tile(4, 4), 0.0),
        "operand 'predicate' of 'select_reduce' has dtype int32; it must have int8, uint8, int16, uint16, bool"),
    "selections: tcp pred int8": (
        lambda: nisa.tensor_copy_predicated(tile(4, 4), tile(4, 4), tile(4, 4, dtype=nl.int8)),
        "operand 'predicate' of 'tensor_copy_predicated' has dtype int8; it must have uint8, uint16, uint32"),
    # DMA
    "DMA: backwards": (lambda: nisa.dma_copy(tile(1, 4), hbm(1, 8).ap([[8, 1], [-1, 4]], offset=5)),
        "dma_copy src steps backwards: [[8, 1], [-1, 4]]"),
    "DMA: counts": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 5)),
        "dma_copy moves 20 elements of shape [4, 5] to 16 of shape [4, 4]"),
    "DMA: hwdge dtype": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4, dtype=BF16), dge_mode=nisa.dge_mode.hwdge),
        "dma_copy with dge_mode hwdge moves bytes: dst is float32, src bfloat16"),
    "DMA: hwdge v2": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), dge_mode=nisa.dge_mode.hwdge),
        "dma_copy with dge_mode hwdge needs generation 3 of the core, and trn1 is generation 2", "trn1"),
    "DMA: engine no hwdge": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), engine=nisa.engine.sync),
        "dma_copy engine is chosen only with dge_mode hwdge"),
    "DMA: engine vector": (
        lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.vector),
        "dma_copy is started by engine sync or scalar, not vector"),
    "DMA: vo hwdge": (
        lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4).ap([[4, 4], [1, 4]], vector_offset=tile(4, 1, dtype=nl.int32)),
            dge_mode=nisa.dge_mode.hwdge),
        "dma_copy with vector_offset needs dge_mode swdge or unknown"),
    "DMA: vo sbuf": (
        lambda: nisa.dma_copy(hbm(4, 4), tile(4, 4).ap([[4, 4], [1, 4]], vector_offset=tile(4, 1, dtype=nl.int32))),
        "vector_offset needs a tensor in HBM"),
    "DMA: vo dim1": (
        lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4).ap([[4, 4], [1, 4]], vector_offset=tile(4, 1, dtype=nl.int32),
            indirect_dim=1)),
        "vector_offset needs indirect_dim 0"),
    "DMA: vo float": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4).ap([[4, 4], [1, 4]], vector_offset=tile(4, 1))),
        "vector_offset is a tensor of integers"),
    "DMA: both offsets": (
        lambda: hbm(4, 4).ap([[4, 4], [1, 4]], vector_offset=tile(4, 1, dtype=nl.int32), scalar_offset=tile(1, 1,
            dtype=nl.int32)),
        "only one of scalar_offset and vector_offset can be given"),
    "DMA: skip static transpose": (lambda: nisa.dma_transpose(tile(4, 4), hbm(4, 4), oob_mode=nisa.oob_mode.skip),
        "dma_transpose with oob_mode skip needs an address that is known at run time only"),
    "DMA: skip static compute": (
        lambda: nisa.dma_compute(tile(4, 4), [hbm(4, 4), hbm(4, 4)], nl.add, oob_mode=nisa.oob_mode.skip),
        "dma_compute with oob_mode skip needs an address that is known at run time only"),
    "DMA: transp axes": (lambda: nisa.dma_transpose(tile(4, 4, 4), hbm(4, 4, 4), (0, 2, 1)),
        "dma_transpose axes (0, 2, 1) of a tensor of 3 dimensions: (1, 0), (2, 1, 0) and (3, 1, 2, 0) are supported"),
    "DMA: transp shape": (lambda: nisa.dma_transpose(tile(4, 8), hbm(4, 8)),
        "operand 'dst' of 'dma_transpose' has shape [4, 8], which must be [8, 4]"),
    "DMA: transp dst hbm": (lambda: nisa.dma_transpose(hbm(8, 4), hbm(4, 8)),
        "Expected operand 'dst' of 'dma_transpose' to be in address space 'sbuf', but got a tile in 'hbm' instead."),
    "DMA: transp dtype": (lambda: nisa.dma_transpose(tile(8, 4), hbm(4, 8, dtype=BF16)),
        "operand 'dst' of 'dma_transpose' has dtype float32; it must have bfloat16"),
    "DMA: compute op": (lambda: nisa.dma_compute(tile(4, 4), [hbm(4, 4)], nl.multiply),
        "dma_compute reduce_op must be nl.add"),
    "DMA: compute 17": (lambda: nisa.dma_compute(tile(4, 4), [hbm(4, 4)]*17, nl.add),
        "dma_compute takes 1 to 16 sources"),
    "DMA: scales": (lambda: nisa.dma_compute(tile(4, 4), [hbm(4, 4)], nl.add, [2.0]),
        "dma_compute scales must be 1.0 for each of the 1 source, got [2.0]"),
    "DMA: unique": (lambda: nisa.dma_compute(tile(4, 4), [hbm(4, 4)], nl.add, unique_indices=False),
        "dma_compute unique_indices must be True"),
    "DMA: priority v3": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), 1),
        "a priority needs generation 4 of the core, and trn2 is generation 3", "trn2"),
    "DMA: priority 4": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), 4),
        "priority 4 is none of 0, 1, 2, 3"),
    "DMA: transpose counts": (lambda: nisa.dma_transpose(tile(4, 4), hbm(4, 4, 4), (2, 1, 0)),
        "operand 'dst' of 'dma_transpose' has shape [4, 4], which must be [4, 4, 4]"),
    "DMA: compute counts": (lambda: nisa.dma_compute(tile(4, 4), [hbm(4, 4), hbm(4, 5)], nl.add),
        "dma_compute srcs[1] has 20 elements, dst 16"),
    "DMA: engine gpsimd": (
        lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.gpsimd),
        "dma_copy is started by engine sync or scalar, not gpsimd"),
    "DMA: vo none": (
        lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4).ap([[4, 4], [1, 4]], vector_offset=tile(4, 1, dtype=nl.int32)),
            dge_mode=nisa.dge_mode.none),
        "dma_copy with dge_mode none has no run-time addresses"),
    # memset and quantization
    "memset and quantization: memset": (lambda: nisa.memset(tile(4, 4, dtype=nl.int32), np.inf),
        "memset of int32 takes a finite number, got inf"),
    "memset and quantization: memset x4": (lambda: nisa.memset(tile(4, 4, dtype=X4), 1),
        "memset of float8_e4m3fn_x4 takes only 0, got 1"),
    "memset and quantization: q P": (
        lambda: nisa.quantize_mx(tile(16, 2, dtype=X4), tile(16, 8, dtype=BF16), tile(2, 2, dtype=nl.uint8)),
        "'quantize_mx': takes 32, 64, 96 or 128 partitions of a multiple of 4 values, got 16 x 8"),
    "memset and quantization: q F": (
        lambda: nisa.quantize_mx(tile(32, 2, dtype=X4), tile(32, 10, dtype=BF16), tile(4, 2, dtype=nl.uint8)),
        "'quantize_mx': takes 32, 64, 96 or 128 partitions of a multiple of 4 values, got 32 x 10"),
    "memset and quantization: q src f32": (
        lambda: nisa.quantize_mx(tile(32, 2, dtype=X4), tile(32, 8), tile(4, 2, dtype=nl.uint8)),
        "operand 'src' of 'quantize_mx' has dtype float32, which must be bfloat16 or float16"),
    "memset and quantization: q fp4": (
        lambda: nisa.quantize_mx(tile(32, 2, dtype=nl.float4_e2m1fn_x4), tile(32, 8, dtype=BF16), tile(4, 2,
            dtype=nl.uint8)),
        "'quantize_mx': packs float8_e4m3fn or float8_e5m2, got float4_e2m1fn"),
    "memset and quantization: q v3": (
        lambda: nisa.quantize_mx(tile(32, 2, dtype=X4), tile(32, 8, dtype=BF16), tile(4, 2, dtype=nl.uint8)),
        "'quantize_mx' needs generation 4 of the core, and trn2 is generation 3", "trn2"),
    # generations
    "generations: exponential v3": (lambda: nisa.exponential(tile(4, 4), tile(4, 4)),
        "'exponential' needs generation 4 of the core, and trn2 is generation 3", "trn2"),
    "generations: rand2 v3": (lambda: nisa.rand2(tile(4, 4), 0.0, 1.0),
        "'rand2' needs generation 4 of the core, and trn2 is generation 3", "trn2"),
    "generations: activate2 v3": (
        lambda: nisa.activate2(tile(4, 4), nl.exp, tile(4, 4), 1.0, 0.0, nl.multiply, nl.add),
        "'activate2' needs generation 4 of the core, and trn2 is generation 3", "trn2"),
    "generations: nonzero v2": (lambda: nisa.nonzero_with_count(tile(4, 9, dtype=nl.int32), tile(4, 8)),
        "'nonzero_with_count' needs generation 3 of the core, and trn1 is generation 2", "trn1"),
    "generations: topk v2": (
        lambda: nisa.topk(tile(16, 4, dtype=BF16), tile(16, 4, dtype=nl.uint32), tile(16, 4, dtype=BF16), 16),
        "'topk' needs generation 3 of the core, and trn1 is generation 2", "trn1"),
    "generations: rand_get_state v2": (lambda: nisa.rand_get_state(tile(4, 6, dtype=nl.uint32)),
        "'rand_get_state' on the gpsimd engine needs generation 3 of the core, and trn1 is generation 2", "trn1"),
    "generations: rand state vector v3": (
        lambda: nisa.rand_get_state(tile(4, 24, dtype=nl.uint32), nisa.engine.vector),
        "'rand_get_state' on the vector engine needs generation 4 of the core, and trn2 is generation 3", "trn2"),
    "generations: rng gpsimd v2": (lambda: nisa.rng(tile(4, 4, dtype=nl.uint32), nisa.engine.gpsimd),
        "'rng' on the gpsimd engine needs generation 3 of the core, and trn1 is generation 2", "trn1"),
    "generations: scalar copy v2": (lambda: nisa.tensor_copy(tile(4, 4), tile(4, 4), nisa.engine.scalar),
        "'tensor_copy' on the scalar engine needs generation 3 of the core, and trn1 is generation 2", "trn1"),
    "generations: sendrecv lnc1": (lambda: nisa.sendrecv(tile(4, 4), tile(4, 4), 1, 1, 0),
        "sendrecv with another core needs a launch of 2 cores"),
    "generations: indirect v3": (
        lambda: nisa.tensor_copy(tile(16, 16), tile(16, 16).indirect(tile(16, 1, dtype=nl.uint16))),
        "an operand with .indirect() needs generation 4 of the core, and trn2 is generation 3", "trn2"),
    "generations: e4m3fn v3": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4, dtype=nl.float8_e4m3fn), tile(8, 4, dtype=nl.float8_e4m3fn)),
        "nc_matmul of float8_e4m3fn needs generation 4 of the core, and trn2 is generation 3", "trn2"),
    "generations: abs_max v3 tt": (
        lambda: nisa.tensor_tensor(tile(4, 4), tile(4, 4), tile(4, 4), nl.abs_max),
        "'tensor_tensor' of abs_max needs generation 4 of the core, and trn2 is generation 3", "trn2"),
    "generations: rand_set_state v2": (lambda: nisa.rand_set_state(tile(4, 6, dtype=nl.uint32)),
        "'rand_set_state' on the gpsimd engine needs generation 3 of the core, and trn1 is generation 2", "trn1"),
    "generations: sendrecv v2": (lambda: nisa.sendrecv(tile(4, 4), tile(4, 4), 1, 1, 0),
        "sendrecv with another core needs a launch of 2 cores", "trn1"),
    "generations: barrier lnc1": (lambda: nisa.core_barrier(hbm(4, 4), (0, 1)),
        "core_barrier names the cores [0, 1], the launch has 1"),
    "generations: prelu v3": (lambda: nisa.activation(tile(4, 4), nl.prelu, tile(4, 4)),
        "activation op prelu is for nisa.activate2", "trn2"),
    "generations: float bias v2 reduce": (
        lambda: nisa.activation_reduce(tile(4, 4), nl.exp, tile(4, 4), nl.add, tile(4, 1), bias=1.0),
        "activation_reduce with a bias that is a number needs generation 3 of the core, and trn1 is generation 2", "trn1"),
    "generations: indirect dma_transpose v2": (
        lambda: nisa.dma_transpose(tile(16, 16, dtype=BF16), hbm(16, 16, dtype=BF16).ap([[16, 16], [1, 16]],
            vector_offset=tile(16, 1, dtype=nl.uint32))),
        "dma_transpose of gathered rows needs generation 3 of the core, and trn1 is generation 2", "trn1"),
    "generations: tile 32 v2": (
        lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(8, 4), tile_position=(0, 0), tile_size=(32, 64)),
        "nc_matmul with tile_position (0, 0) and tile_size (32, 64): rows and columns must be of (64, 128)", "trn1"),
    "generations: tensor_scalar on scalar v2": (
        lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.multiply, 2.0, engine=nisa.engine.scalar),
        "tensor_scalar on the scalar engine needs generation 3 of the core, and trn1 is generation 2", "trn1"),
    # enumerations
    "enumerations: raw": (lambda: nisa.tensor_copy(tile(4, 4), tile(4, 4), 7),
        "expecting 'engine' for engine, got 7"),
    "enumerations: reduce_cmd": (
        lambda: nisa.activation(tile(4, 4), nl.exp, tile(4, 4), reduce_op=nl.add, reduce_cmd=9),
        "expecting 'reduce_cmd' for reduce_cmd, got 9"),
    "enumerations: oob_mode": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), oob_mode=2),
        "expecting 'oob_mode' for oob_mode, got 2"),
    "enumerations: dge_mode": (lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), dge_mode=4),
        "expecting 'dge_mode' for dge_mode, got 4"),
    "enumerations: dma engine": (
        lambda: nisa.dma_copy(tile(4, 4), hbm(4, 4), dge_mode=nisa.dge_mode.hwdge, engine=7),
        "expecting 'engine' for engine, got 7"),
    "enumerations: perf_mode": (lambda: nisa.nc_matmul(psum(4, 4), tile(8, 4), tile(8, 4), perf_mode=1),
        "expecting 'matmul_perf_mode' for perf_mode, got 1"),
    "enumerations: barrier engine": (lambda: nisa.core_barrier(hbm(4, 4), (0,), engine=9),
        "expecting 'engine' for engine, got 9"),
    "enumerations: exponential": (lambda: nisa.exponential(tile(4, 4), tile(4, 4), reduce_cmd=9),
        "expecting 'reduce_cmd' for reduce_cmd, got 9"),
    "enumerations: range_select": (
        lambda: nisa.range_select(tile(4, 4), tile(4, 4), nl.less, nl.less, tile(4, 1), tile(4, 1), reduce_cmd=9),
        "expecting 'reduce_cmd' for reduce_cmd, got 9"),
    "enumerations: select_reduce": (
        lambda: nisa.select_reduce(tile(4, 4), tile(4, 4, dtype=nl.uint8), tile(4, 4), 0.0, reduce_cmd=9),
        "expecting 'reduce_cmd' for reduce_cmd, got 9"),
    "enumerations: cumulative": (
        lambda: nisa.tensor_scalar_cumulative(tile(4, 4), tile(4, 4), nl.add, nl.add, 1.0, reduce_cmd=9),
        "expecting 'reduce_cmd' for reduce_cmd, got 9"),
    "enumerations: rng": (lambda: nisa.rng(tile(4, 4, dtype=nl.uint32), 8),
        "expecting 'engine' for engine, got 8"),
    "enumerations: memset": (lambda: nisa.memset(tile(4, 4), 0.0, 8),
        "expecting 'engine' for engine, got 8"),
    "enumerations: transpose": (lambda: nisa.nc_transpose(psum(4, 4), tile(4, 4), 7),
        "expecting 'engine' for engine, got 7"),
    "enumerations: buffer": (lambda: nl.ndarray((4, 4), nl.float32, buffer=1),
        "expecting 'buffer type', got 1; use nl.sbuf, nl.psum, nl.private_hbm or nl.shared_hbm"),
    # others
    "others: transpose dtype": (lambda: nisa.nc_transpose(psum(4, 4), tile(4, 4, dtype=BF16)),
        "operand 'dst' of 'nc_transpose' has dtype float32; it must have bfloat16"),
    "others: transpose vector big": (lambda: nisa.nc_transpose(tile(64, 64), tile(64, 64), nisa.engine.vector),
        "size of dimension 0 in 'data[64, 64]' of 'nc_transpose' exceed architecture limitation of 32."),
    "others: transpose tensor to sbuf": (lambda: nisa.nc_transpose(tile(64, 64), tile(64, 64), nisa.engine.tensor),
        "Expected operand 'dst' of 'nc_transpose' to be in address space 'psum', but got a tile in 'sbuf' instead."),
    "others: tsr init": (
        lambda: nisa.tensor_scalar_reduce(tile(4, 4), tile(4, 4), nl.add, 1.0, nl.add, tile(4, 1),
            reduce_cmd=nisa.reduce_cmd.load_reduce),
        "tensor_scalar_reduce with load_reduce needs reduce_init"),
    "others: cumulative int32": (
        lambda: nisa.tensor_scalar_cumulative(tile(4, 4), tile(4, 4, dtype=nl.int32), nl.add, nl.add, 1.0),
        "'tensor_scalar_cumulative': src cannot be int32"),
    "others: cumulative op1": (lambda: nisa.tensor_scalar_cumulative(tile(4, 4), tile(4, 4), nl.add, nl.power, 1.0),
        "attribute 'op1' of 'tensor_scalar_cumulative' is 'power', which must be one of add, subtract, "
        "multiply, maximum, minimum"),
    "others: rand2 order": (lambda: nisa.rand2(tile(4, 4), 1.0, 0.0),
        "rand2 takes min < max, got 1.0 and 0.0"),
    "others: rng float": (lambda: nisa.rng(tile(4, 4)),
        "operand 'dst' of 'rng' has dtype float32, which must be an integer type"),
    "others: seed shape": (lambda: nisa.set_rng_seed(tile(4, 1, dtype=nl.int32)),
        "'random_seed': the seed must be a single value, got [4, 1]"),
    "others: rand_set cols": (lambda: nisa.rand_set_state(tile(4, 5, dtype=nl.uint32)),
        "rand_set_state src_seeds has 5 words per partition, which must be 6"),
    "others: activate2 ops": (lambda: nisa.activate2(tile(4, 4), nl.exp, tile(4, 4), 1.0, 0.0, nl.add, nl.multiply),
        "'activate2': takes multiply with add or subtract, or one operation and bypass, got add and multiply"),
    "others: partition_reduce op": (lambda: nisa.tensor_partition_reduce(tile(1, 4), nl.multiply, tile(4, 4)),
        "attribute 'op' of 'tensor_partition_reduce' is 'multiply', which must be one of add, maximum, "
        "bitwise_or, bitwise_and"),
    "others: bitvec dtypes differ": (
        lambda: nisa.tensor_tensor(tile(4, 4, dtype=nl.int16), tile(4, 4, dtype=nl.int32), tile(4, 4, dtype=nl.int16),
            nl.bitwise_and),
        "tensor_tensor with bitwise_and takes operands of the same width, got int16, int32 and int16"),
    "others: matmul of scales": (
        lambda: nisa.nc_matmul(psum(8, 4), tile(16, 8, dtype=nl.float8_e8m0fnu), tile(16, 4, dtype=BF16)),
        "operand 'stationary' of 'nc_matmul' has dtype float8_e8m0fnu, which must be a float type"),
    "others: n_gather dtype": (
        lambda: nisa.nc_n_gather(tile(16, 4, dtype=BF16), tile(16, 4), tile(16, 4, dtype=nl.uint32)),
        "operand 'dst' of 'nc_n_gather' has dtype bfloat16; it must have float32"),
    "others: dropout dtype": (lambda: nisa.dropout(tile(4, 4), tile(4, 4, dtype=BF16), 0.5),
        "operand 'dst' of 'dropout' has dtype float32; it must have bfloat16"),
    "others: gelu in tensor_scalar": (lambda: nisa.tensor_scalar(tile(4, 4), tile(4, 4), nl.gelu, None),
        "tensor_scalar op0: gelu is not an operator"),
    "others: partition stride": (lambda: nisa.tensor_copy(tile(4, 4), tile(8, 4)[0:8:2]),
        "operand 'src' steps through partitions by 2"),
    "others: random_seed int": (lambda: nl.random_seed(3),
        "random_seed: expecting 'tensor', got 'int'"),
    "others: program_id(-1)": (lambda: nl.program_id(-1),
        "invalid program axis -1"),
}


@pytest.mark.parametrize("launch", [nki.simulate, lambda kernel: nki.jit(kernel).on("interpreter")],
                         ids=["simulated", "captured"])
@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_the_call(name, launch, monkeypatch):
    call, text, *target = REFUSED[name]
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", *(target or ["trn3"]))

    def kernel(x):
        call()
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out
    with pytest.raises(NkiValidationError) as raised:
        launch(kernel)(np.zeros((1, 1), np.float32))
    assert raised.value.headline == text
    fix = raised.value.advice[1]
    assert len(fix.split()) >= 2 and f"fix: {fix}" in str(raised.value)
    assert isinstance(raised.value, AssertionError) and raised.value.at.file == __file__
    first = call.__code__.co_firstlineno
    assert first <= raised.value.at.line < first + 4

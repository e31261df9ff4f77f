# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of 8 bits: rows and blocks with scales, products of fp8, zero points, packed integers."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

FP8_MAX = 240.0


@nki.jit
def quantize_fp8(x):
    """x [rows, cols] to fp8 with a scale for each row."""
    rows, cols = x.shape
    q = nl.ndarray((rows, cols), dtype=nl.float8_e4m3, buffer=nl.shared_hbm)
    scales = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 64):
        tile = nl.load(x[nl.ds(i * 64, 64), :])
        biggest = nl.max(nl.abs(tile), axis=1, keepdims=True)
        scale = nl.maximum(nl.multiply(biggest, 1.0 / 256.0), 1e-6)
        inverse = nl.reciprocal(scale)
        scaled = nl.minimum(nl.maximum(nl.multiply(tile, inverse), -FP8_MAX), FP8_MAX)
        nl.store(q[nl.ds(i * 64, 64), :], nl.copy(scaled, dtype=nl.float8_e4m3))
        nl.store(scales[nl.ds(i * 64, 64), :], scale)
    return q, scales


@nki.jit
def fp8_matmul(a_t, b, a_scale, b_scale):
    """a_t [K, M], b [K, N] in fp8; a_scale [M, 1], b_scale [1, N]."""
    K, M = a_t.shape
    _, N = b.shape
    out = nl.ndarray((M, N), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    acc = nl.zeros((nl.par_dim(M), N), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(K // 64):
        acc += nisa.nc_matmul(nl.load(a_t[nl.ds(k * 64, 64), :]), nl.load(b[nl.ds(k * 64, 64), :]))
    rows = nl.load(a_scale)
    columns = nl.load(b_scale).broadcast_to((M, N))
    scaled = nisa.tensor_scalar(acc, np.multiply, rows)
    result = nl.multiply(scaled, columns, dtype=nl.bfloat16)
    nl.store(out, result)
    return out


@nki.jit
def asymmetric_uint8(x, zero_point=128.0, step=0.05):
    """Integers of 8 bits with a zero point, and the values that they stand for."""
    rows, cols = x.shape
    q = nl.ndarray(x.shape, dtype=nl.uint8, buffer=nl.shared_hbm)
    back = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    scaled = nisa.tensor_scalar(tile, op0=np.multiply, operand0=1.0 / step, op1=np.add, operand1=zero_point)
    clipped = nisa.tensor_scalar(scaled, op0=np.maximum, operand0=0.0, op1=np.minimum, operand1=255.0)
    tile_q = nl.copy(nl.floor(nl.add(clipped, 0.5)), dtype=nl.uint8)
    nl.store(q, tile_q)
    nl.store(back, nisa.tensor_scalar(tile_q, np.subtract, zero_point, op1=np.multiply, operand1=step, dtype=x.dtype))
    return q, back


@nki.jit
def unpack_nibbles(packed, scale):
    """Two integers of 4 bits in each byte, and a scale for each row."""
    rows, cols = packed.shape
    out = nl.ndarray((rows, 2 * cols), dtype=nl.float32, buffer=nl.shared_hbm)
    ip, jf = nl.mgrid[0:rows, 0:cols]
    bytes_ = nl.load(packed, dtype=nl.int32)
    low = nl.bitwise_and(bytes_, 15)
    high = nl.right_shift(bytes_, 4)
    both = nl.ndarray((nl.par_dim(rows), 2 * cols), dtype=nl.float32, buffer=nl.sbuf)
    both[ip, 2 * jf] = nl.copy(low, dtype=nl.float32)
    both[ip, 2 * jf + 1] = nl.copy(high, dtype=nl.float32)
    nl.store(out, nl.multiply(nl.subtract(both, 8.0), nl.load(scale)))
    return out


@nki.jit
def block_scales(x, block=16):
    """A scale for each block of columns."""
    rows, cols = x.shape
    num = cols // block
    out = nl.ndarray((rows, cols), dtype=nl.int8, buffer=nl.shared_hbm)
    scales = nl.ndarray((rows, num), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    largest = nl.ndarray((nl.par_dim(rows), num), dtype=nl.float32, buffer=nl.sbuf)
    result = nl.ndarray((nl.par_dim(rows), cols), dtype=nl.int8, buffer=nl.sbuf)
    for b in nl.static_range(num):
        part = tile[:, nl.ds(b * block, block)]
        largest[:, b:b + 1] = nl.max(nl.abs(part), axis=1, keepdims=True)
        inverse = nl.multiply(nl.reciprocal(largest[:, b:b + 1]), 64.0)
        result[:, nl.ds(b * block, block)] = nl.multiply(part, inverse, dtype=nl.int8)
    nl.store(out, result)
    nl.store(scales, nl.multiply(largest, 1.0 / 64.0))
    return out, scales


def cases():
    r = np.random.default_rng(19)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    fp8 = lambda *s: r.integers(-8, 9, s).astype(np.float32).astype(nl.float8_e4m3)
    return [
        (quantize_fp8, (f(128, 40),)),
        (fp8_matmul, (fp8(128, 32), fp8(128, 48), np.abs(f(32, 1)), np.abs(f(1, 48)))),
        (asymmetric_uint8, (f(64, 50),)),
        (unpack_nibbles, (r.integers(0, 256, (32, 24)).astype(np.uint8), np.abs(f(32, 1)))),
        (block_scales, (f(48, 64),)),
    ]

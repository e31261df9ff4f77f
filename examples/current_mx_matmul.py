# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A product of microscaled tiles: each element packs four 8-bit floats, and 32 floats share a power of two (trn3).

python -m nki_mlir examples/current_mx_matmul.py
"""

import os

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

TARGET = "trn3"         # the first generation with these instructions


def quantized(source):
    """Quantize a [128, 4 n] tile in HBM; return (packed elements, scales), where an element packs four neighbors of a
    row."""
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    packed = nl.ndarray((128, source.shape[1] // 4), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
    scales = nl.ndarray((128, source.shape[1] // 4), dtype=nl.uint8, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    nisa.memset(dst=scales, value=0)
    nisa.quantize_mx(dst=packed, src=tile, dst_scale=scales)
    return packed, scales


@nki.jit
def mx_matmul(a, b):
    """Multiply a [128, M, 4] and b [128, N, 4] to [M, N], summed over the partitions and the groups of four."""
    (_, m, _), (_, n, _) = a.shape, b.shape
    stationary, stationary_scale = quantized(a.reshape((128, m * 4)))
    moving, moving_scale = quantized(b.reshape((128, n * 4)))
    product = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul_mx(dst=product, stationary=stationary, moving=moving, stationary_scale=stationary_scale,
                      moving_scale=moving_scale)
    result = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=product)
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=result)
    return out


def rounded(x):
    """Round x [128, N, 4] to the format: blocks of eight partitions by four have the same power of two."""
    blocks = x.astype(np.float64).reshape(16, 8, -1, 4)
    largest = np.abs(blocks).max((1, 3), keepdims=True)
    scale = np.exp2(np.floor(np.log2(largest)) - 7)
    return ((blocks / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * scale).reshape(x.shape)


def cases():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((128, n, 4)).astype(ml_dtypes.bfloat16) for n in (64, 96))
    return [(mx_matmul, (a, b), np.einsum("kmq,knq->mn", rounded(a), rounded(b)), 2e-5)]


if __name__ == "__main__":
    os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = TARGET
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance

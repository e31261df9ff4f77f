# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products: a single tile, tiled with PSUM accumulation, and blocked so that loaded tiles are used again.

python -m nki_mlir examples/matmul.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def matmul_tile(a_t, b):
    """Compute a_t.T @ b [128, 512] of a_t [64, 128], b [64, 512] with one instruction."""
    out = nl.ndarray((128, 512), dtype=a_t.dtype, buffer=nl.shared_hbm)
    product = nl.matmul(nl.load(a_t), nl.load(b), transpose_x=True)
    nl.store(out, nl.copy(product, dtype=out.dtype))
    return out


@nki.jit
def matmul_tiled(a_t, b):
    """Compute a_t.T @ b of a_t [K, M], b [K, N]; accumulate K in PSUM in steps of 128."""
    (k, m), (_, n) = a_t.shape, b.shape
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(m // 128):
        for j in nl.affine_range(n // 512):
            total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
            for s in nl.affine_range(k // 128):
                left = nl.load(a_t[nl.ds(s * 128, 128), nl.ds(i * 128, 128)])
                right = nl.load(b[nl.ds(s * 128, 128), nl.ds(j * 512, 512)])
                total += nl.matmul(left, right, transpose_x=True)
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * 512, 512)], nl.copy(total, dtype=out.dtype))
    return out


@nki.jit
def matmul_blocked(a_t, b, rows_in_block=2):
    """Compute a_t.T @ b; keep all K tiles of a block of rows in SBUF during the loop over columns."""
    (k, m), (_, n) = a_t.shape, b.shape
    steps, blocks = k // 128, m // (128 * rows_in_block)
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for block in nl.affine_range(blocks):
        left = nl.ndarray((steps, nl.par_dim(128), rows_in_block * 128), dtype=a_t.dtype, buffer=nl.sbuf)
        for s in nl.affine_range(steps):
            left[s] = nl.load(a_t[nl.ds(s * 128, 128), nl.ds(block * rows_in_block * 128, rows_in_block * 128)])
        for j in nl.affine_range(n // 512):
            right = nl.ndarray((steps, nl.par_dim(128), 512), dtype=b.dtype, buffer=nl.sbuf)
            for s in nl.affine_range(steps):
                right[s] = nl.load(b[nl.ds(s * 128, 128), nl.ds(j * 512, 512)])
            for r in nl.affine_range(rows_in_block):
                total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
                for s in nl.affine_range(steps):
                    total += nisa.nc_matmul(left[s, :, nl.ds(r * 128, 128)], right[s])
                row = (block * rows_in_block + r) * 128
                nl.store(out[nl.ds(row, 128), nl.ds(j * 512, 512)], nl.copy(total, dtype=out.dtype))
    return out


def cases():
    rng = np.random.default_rng(0)
    small = rng.standard_normal((64, 128)).astype(np.float32), rng.standard_normal((64, 512)).astype(np.float32)
    large = rng.standard_normal((384, 256)).astype(np.float32), rng.standard_normal((384, 1024)).astype(np.float32)
    product = lambda pair: pair[0].astype(np.float64).T @ pair[1]
    return [(matmul_tile, small, product(small), 1e-4), (matmul_tiled, large, product(large), 1e-4),
            (matmul_blocked, large, product(large), 1e-4)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance

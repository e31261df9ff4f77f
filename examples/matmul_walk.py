# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From a slow matrix product to a fast one in four steps, each of which is advice of the profile of the one before.

    python -m nki_mlir examples/matmul_walk.py
    nki-run --time --as-written --profile DIR examples/matmul_walk.py:as_it_comes --arg 512x512xf32 --arg 512x512xf32

The arguments change, too: at first a is [M, K], then its transpose a_t is [K, M], at last both are of bfloat16.
"""

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def as_it_comes(a, b):
    """Compute a @ b of a [M, K], b [K, N] in tiles of 128 x 128 x 128; each partition loads a column of a."""
    (m, k), (_, n) = a.shape, b.shape
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:128, 0:128]
    for i in nl.affine_range(m // 128):
        for j in nl.affine_range(n // 128):
            total = nl.zeros((128, 128), nl.float32, buffer=nl.psum)
            for s in nl.affine_range(k // 128):
                left = nl.load(a[i * 128 + i_f, s * 128 + i_p])
                right = nl.load(b[nl.ds(s * 128, 128), nl.ds(j * 128, 128)])
                total += nisa.nc_matmul(left, right)
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * 128, 128)], nl.copy(total))
    return out


@nki.jit
def transposed(a_t, b):
    """Avoid runs of 4 bytes: the caller passes a_t [K, M], whose rows are contiguous in HBM."""
    (k, m), (_, n) = a_t.shape, b.shape
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(m // 128):
        for j in nl.affine_range(n // 128):
            total = nl.zeros((128, 128), nl.float32, buffer=nl.psum)
            for s in nl.affine_range(k // 128):
                left = nl.load(a_t[nl.ds(s * 128, 128), nl.ds(i * 128, 128)])
                right = nl.load(b[nl.ds(s * 128, 128), nl.ds(j * 128, 128)])
                total += nisa.nc_matmul(left, right)
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * 128, 128)], nl.copy(total))
    return out


@nki.jit
def loaded_once(a_t, b):
    """Avoid repeated loads: load all tiles before the loops, and keep them in SBUF."""
    (k, m), (_, n) = a_t.shape, b.shape
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.ndarray((128, k // 128, m), dtype=a_t.dtype, buffer=nl.sbuf)
    right = nl.ndarray((128, k // 128, n), dtype=b.dtype, buffer=nl.sbuf)
    for s in nl.affine_range(k // 128):
        for i in nl.affine_range(m // 128):
            left[:, s, nl.ds(i * 128, 128)] = nl.load(a_t[nl.ds(s * 128, 128), nl.ds(i * 128, 128)])
        for j in nl.affine_range(n // 128):
            right[:, s, nl.ds(j * 128, 128)] = nl.load(b[nl.ds(s * 128, 128), nl.ds(j * 128, 128)])
    for i in nl.affine_range(m // 128):
        for j in nl.affine_range(n // 128):
            total = nl.zeros((128, 128), nl.float32, buffer=nl.psum)
            for s in nl.affine_range(k // 128):
                total += nisa.nc_matmul(left[:, s, nl.ds(i * 128, 128)], right[:, s, nl.ds(j * 128, 128)])
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * 128, 128)], nl.copy(total))
    return out


@nki.jit
def large_transfers(a_t, b):
    """Avoid many small transfers: load and store complete rows at once."""
    (k, m), (_, n) = a_t.shape, b.shape
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.ndarray((128, k // 128, m), dtype=a_t.dtype, buffer=nl.sbuf)
    right = nl.ndarray((128, k // 128, n), dtype=b.dtype, buffer=nl.sbuf)
    for s in nl.affine_range(k // 128):
        left[:, s, :] = nl.load(a_t[nl.ds(s * 128, 128), :])
        right[:, s, :] = nl.load(b[nl.ds(s * 128, 128), :])
    for i in nl.affine_range(m // 128):
        rows = nl.ndarray((128, n), dtype=nl.float32, buffer=nl.sbuf)
        for j in nl.affine_range(n // 128):
            total = nl.zeros((128, 128), nl.float32, buffer=nl.psum)
            for s in nl.affine_range(k // 128):
                total += nisa.nc_matmul(left[:, s, nl.ds(i * 128, 128)], right[:, s, nl.ds(j * 128, 128)])
            rows[:, nl.ds(j * 128, 128)] = nl.copy(total)
        nl.store(out[nl.ds(i * 128, 128), :], rows)
    return out


# What to profile in turn: the kernel, whether it takes the transpose, and the dtype of its operands; and the rule whose
# advice leads to the next.
STEPS = [(as_it_comes, False, np.float32, "short-runs"), (transposed, True, np.float32, "repeated-loads"),
         (loaded_once, True, np.float32, "one-issuer"), (large_transfers, True, np.float32, "dtype"),
         (large_transfers, True, ml_dtypes.bfloat16, "")]


def cases():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((256, 256)).astype(np.float32), rng.standard_normal((256, 512)).astype(np.float32)
    cases_of_kernels = []
    for kernel, transpose, dtype, _ in STEPS:
        left, right = (np.ascontiguousarray(a.T) if transpose else a).astype(dtype), b.astype(dtype)
        wide = left.astype(np.float64).T if transpose else left.astype(np.float64)
        cases_of_kernels.append((kernel, (left, right), wide @ right.astype(np.float64), 1e-4))
    return cases_of_kernels


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance

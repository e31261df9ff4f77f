# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A tiled matrix product in the current generation: repeated products into a PSUM tile add up.

python -m nki_mlir examples/current_matmul.py
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def loaded(source, dtype):
    """Load a view of HBM into a new tile."""
    tile = nl.ndarray(source.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


@nki.jit
def matmul(a_t, b):
    """Compute a_t.T @ b of a_t [K, M], b [K, N]; load tiles of a_t once for each block of rows."""
    (k, m), (_, n) = a_t.shape, b.shape
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for i in range(0, m, 128):
        left = [loaded(a_t[s:s + 128, i:i + 128], a_t.dtype) for s in range(0, k, 128)]
        for j in range(0, n, 512):
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for s, stationary in enumerate(left):
                nisa.nc_matmul(dst=product, stationary=stationary,
                               moving=loaded(b[s * 128:(s + 1) * 128, j:j + 512], b.dtype))
            result = nl.ndarray((128, 512), dtype=out.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=product)
            nisa.dma_copy(dst=out[i:i + 128, j:j + 512], src=result)
    return out


def cases():
    rng = np.random.default_rng(0)
    a_t, b = rng.standard_normal((384, 256)).astype(np.float32), rng.standard_normal((384, 1024)).astype(np.float32)
    return [(matmul, (a_t, b), a_t.astype(np.float64).T @ b, 1e-4)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transpose with tiles at addresses that the kernel chooses: two slots in SBUF and two banks of PSUM, used in turn.

python -m nki_mlir examples/allocated_transpose.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

ROW = 128 * 4           # bytes of a partition that a tile of 128 float32 takes


def in_turn_after_the_sources(idx, pdim_size, fdim_size):
    """Allocate results in two slots after the identity and the two slots of the sources."""
    return 0, 3 * ROW + idx[0] % 2 * fdim_size


def two_banks(idx, pdim_size, fdim_size):
    """Allocate products in banks 0 and 1 of PSUM in turn."""
    return idx[0] % 2, 0, 0


@nki.jit
def transpose(x):
    """Transpose x [N, 128], N a multiple of 128: multiply each tile by the identity."""
    tiles = x.shape[0] // 128
    out = nl.ndarray((128, x.shape[0]), dtype=x.dtype, buffer=nl.shared_hbm)
    identity = nl.ndarray((128, 128), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    identity[...] = nl.load(nl.shared_constant(np.eye(128, dtype=np.float32)))
    sources = nl.ndarray((tiles, nl.par_dim(128), 128), dtype=x.dtype,
                         buffer=ncc.sbuf.mod_alloc(base_addr=ROW, num_free_tiles=(2,)))
    products = nl.ndarray((tiles, nl.par_dim(128), 128), dtype=nl.float32, buffer=ncc.psum.alloc(two_banks))
    results = nl.ndarray((tiles, nl.par_dim(128), 128), dtype=x.dtype,
                         buffer=ncc.sbuf.alloc(in_turn_after_the_sources))
    for i in nl.affine_range(tiles):
        sources[i] = nl.load(x[nl.ds(i * 128, 128), :])
        products[i] = nisa.nc_matmul(sources[i], identity)          # the transpose of the source times the identity
        results[i] = nl.copy(products[i], dtype=x.dtype)
        nl.store(out[:, nl.ds(i * 128, 128)], results[i])
    return out


def cases():
    x = np.random.default_rng(0).standard_normal((768, 128)).astype(np.float32)
    return [(transpose, (x,), x.T, 0)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance

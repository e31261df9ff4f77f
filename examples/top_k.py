# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Find the 16 largest values of each row and their indices, eight at a time.

python -m nki_mlir examples/top_k.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def top16(x):
    """Return the largest values [P, 16] of x [P, N], in descending order, and their indices [P, 16]."""
    partitions, count = x.shape
    values = nl.ndarray((partitions, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    places = nl.ndarray((partitions, 16), dtype=nl.uint32, buffer=nl.shared_hbm)
    left = nl.load(x)
    for half in nl.static_range(2):
        best = nisa.max8(src=left)
        where = nisa.nc_find_index8(data=left, vals=best)
        nl.store(values[:, half * 8:half * 8 + 8], best)
        nl.store(places[:, half * 8:half * 8 + 8], where)
        left = nisa.nc_match_replace8(data=left, vals=best, imm=-3e38)
    return values, places


def cases():
    x = np.random.default_rng(0).permutation(128 * 64).reshape(128, 64).astype(np.float32)
    order = np.argsort(-x, 1)[:, :16]
    return [(top16, (x,), np.stack([np.take_along_axis(x, order, 1), order]), 0)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance

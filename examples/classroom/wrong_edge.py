# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Skips the last rows if they do not fill a tile."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def row_softmax(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:columns]
    for i in nl.affine_range(rows // 128):
        inside = i * 128 + p < rows
        tile = nl.load(x[i * 128 + p, f], mask=inside)
        shifted = nl.subtract(tile, nl.max(tile, axis=1, keepdims=True, mask=inside), mask=inside)
        powers = nl.exp(shifted, mask=inside)
        nl.store(out[i * 128 + p, f], powers / nl.sum(powers, axis=1, keepdims=True, mask=inside), mask=inside)
    return out

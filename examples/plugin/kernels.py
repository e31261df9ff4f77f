# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of both generations that use the plugin's instruction."""

import neuronxcc.nki as beta
import neuronxcc.nki.language as beta_nl
import nki
import nki.language as nl
from nki_mlir_example import clamp


@beta.jit
def limited(x):
    out = beta_nl.ndarray(x.shape, dtype=x.dtype, buffer=beta_nl.shared_hbm)
    for i in beta_nl.affine_range(x.shape[0] // 128):
        rows = slice(i * 128, (i + 1) * 128)
        tile = clamp(beta_nl.load(x[rows, :]), -0.5, high=0.75)
        beta_nl.store(out[rows, :], tile)
    return out


@nki.jit
def limited_twice(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    clamp(tile, tile, -2.0, 0.75)
    clamp(dst=tile, data=tile, low=-0.5)
    nl.store(out, tile)
    return out

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A layer whose Python keeps tiles in lists and unrolls all loops, as libraries of kernels do."""

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
from case import Case, Goal, case, random, tolerance

TOKENS, WIDTH, HIDDEN = 512, 1024, 2048
ROWS, COLUMNS = 128, 512                # the shape of a tile of sums


def rows_of(matrix):
    """Load a matrix as a list of tiles of 128 rows."""
    tiles = []
    for start in range(0, matrix.shape[0], ROWS):
        tile = nl.ndarray((ROWS, matrix.shape[1]), dtype=matrix.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=matrix[start:start + ROWS, :])
        tiles.append(tile)
    return tiles


def transposed_columns_of(x):
    """Load x [T, K] as a list of transposed tiles, of 128 columns each."""
    tiles = []
    for k in range(0, x.shape[1], ROWS):
        tile = nl.ndarray((ROWS, x.shape[0]), dtype=x.dtype, buffer=nl.sbuf)
        for t in range(0, x.shape[0], ROWS):
            block = nl.ndarray((ROWS, ROWS), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=block, src=x[t:t + ROWS, k:k + ROWS])
            transposed = nl.ndarray((ROWS, ROWS), dtype=x.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=transposed, data=block)
            nisa.tensor_copy(dst=tile[:, t:t + ROWS], src=transposed)
        tiles.append(tile)
    return tiles


def product(stationary, moving, rows, columns):
    """Return the sum of the products of two lists of tiles, for 128 rows and at most 512 columns."""
    total = nl.ndarray((ROWS, columns.stop - columns.start), dtype=nl.float32, buffer=nl.psum)
    for left, right in zip(stationary, moving):
        nisa.nc_matmul(dst=total, stationary=left[:, rows], moving=right[:, columns])
    return total


@nki.jit
def gated_mlp(x, gate, up, down):
    """Compute (silu(x @ gate) * (x @ up)) @ down for x [T, K], gate and up [K, F], down [F, N]; T at most 512, N a
    multiple of 512, all others of 128."""
    tokens, columns = x.shape[0], down.shape[1]
    out = nl.ndarray((tokens, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    x_t, gates, ups, downs = transposed_columns_of(x), rows_of(gate), rows_of(up), rows_of(down)
    hidden = []
    for f in range(0, gate.shape[1], ROWS):
        part, tile = slice(f, f + ROWS), nl.ndarray((ROWS, tokens), dtype=x.dtype, buffer=nl.sbuf)
        activated = nl.ndarray((ROWS, tokens), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=activated, op=nl.silu, data=product(gates, x_t, part, slice(0, tokens)))
        nisa.tensor_tensor(dst=tile, data1=activated, data2=product(ups, x_t, part, slice(0, tokens)), op=nl.multiply)
        hidden.append(tile)
    for t in range(0, tokens, ROWS):
        for n in range(0, columns, COLUMNS):
            rows, part = slice(t, t + ROWS), slice(n, n + COLUMNS)
            result = nl.ndarray((ROWS, COLUMNS), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=product(hidden, downs, rows, part))
            nisa.dma_copy(dst=out[rows, part], src=result)
    return out


@case("gated_mlp_512x1024x2048", Goal(faster=1), Goal(faster=0.8))
def three_products(dtype: str = "float32") -> Case:
    def formula(xp: Any, x: Any, gate: Any, up: Any, down: Any) -> Any:
        between = x @ gate
        return (between / (1 + xp.exp(-between)) * (x @ up)) @ down

    def torch_formula(x: Any, gate: Any, up: Any, down: Any) -> Any:
        import torch
        return (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down
    arrays = tuple((random(rows, columns, seed=k) / np.float32(depth ** 0.5)).astype(dtype) for k, (
        rows, columns, depth) in enumerate(((TOKENS, WIDTH, 1), (WIDTH, HIDDEN, WIDTH), (WIDTH, HIDDEN, WIDTH),
                                            (HIDDEN, WIDTH, HIDDEN))))
    return Case(arrays, gated_mlp, formula, torch_formula, "fma", 6 * TOKENS * WIDTH * HIDDEN,
                lambda: formula(np, *[a.astype("float64") for a in arrays]), tolerance(dtype, 1e-3))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers whose Python keeps tiles in lists and unrolls all loops, as libraries of kernels do."""

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


SEQUENCE, WIDTH_OF_HEAD, MASKED = 2048, 128, -30000.0


def softmax_step(scores, highest, total, sums):
    """Continue a softmax with a block of scores: return exp(scores - maximum), and scale the sums so far."""
    block_highest, negative, factor, block_total = (nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf)
                                                    for _ in range(4))
    nisa.tensor_reduce(dst=block_highest, op=nl.maximum, data=scores, axis=1)
    nisa.tensor_tensor(dst=block_highest, data1=block_highest, data2=highest, op=nl.maximum)
    nisa.tensor_scalar(dst=negative, data=block_highest, op0=nl.multiply, operand0=-1.0)
    nisa.activation(dst=factor, op=nl.exp, data=highest, bias=negative)
    nisa.tensor_copy(dst=highest, src=block_highest)
    powers = nl.ndarray(scores.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=powers, op=nl.exp, data=scores, bias=negative)
    nisa.tensor_reduce(dst=block_total, op=nl.add, data=powers, axis=1)
    nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=block_total)
    nisa.tensor_scalar(dst=sums, data=sums, op0=nl.multiply, operand0=factor)
    return powers


@nki.jit
def causal_attention(q_t, k_t, v, scale):
    """Compute softmax(q @ k.T * scale) @ v, masked above the diagonal, for q_t and k_t [D, S], v [S, D]; D at most 128,
    S a multiple of 512."""
    width, steps = q_t.shape
    out = nl.ndarray((steps, width), dtype=v.dtype, buffer=nl.shared_hbm)
    values, keys = rows_of(v), []
    for start in range(0, steps, COLUMNS):
        tile = nl.ndarray((width, COLUMNS), dtype=k_t.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=k_t[:, start:start + COLUMNS])
        keys.append(tile)
    for row in range(0, steps, ROWS):
        queries = nl.ndarray((width, ROWS), dtype=q_t.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=queries, src=q_t[:, row:row + ROWS])
        highest, total, reciprocal = (nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf) for _ in range(3))
        sums = nl.ndarray((ROWS, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=highest, value=MASKED)
        nisa.memset(dst=total, value=0.0)
        nisa.memset(dst=sums, value=0.0)
        for start in range(0, row + ROWS, COLUMNS):
            products = nl.ndarray((ROWS, COLUMNS), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=products, stationary=queries, moving=keys[start // COLUMNS])
            scores = nl.ndarray((ROWS, COLUMNS), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=scores, op=nl.copy, data=products, scale=scale)
            if start + COLUMNS > row:
                nisa.affine_select(dst=scores, pattern=[[-1, COLUMNS]], channel_multiplier=1, on_true_tile=scores,
                                   on_false_value=MASKED, cmp_op=nl.greater_equal, offset=row - start)
            powers = softmax_step(scores, highest, total, sums)
            weighted = nl.ndarray((ROWS, width), dtype=nl.float32, buffer=nl.psum)
            for part in range(0, COLUMNS, ROWS):
                transposed = nl.ndarray((ROWS, ROWS), dtype=nl.float32, buffer=nl.psum)
                nisa.nc_transpose(dst=transposed, data=powers[:, part:part + ROWS])
                weights = nl.ndarray((ROWS, ROWS), dtype=v.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(dst=weights, src=transposed)
                nisa.nc_matmul(dst=weighted, stationary=weights, moving=values[(start + part) // ROWS])
            nisa.tensor_tensor(dst=sums, data1=sums, data2=weighted, op=nl.add)
        nisa.reciprocal(dst=reciprocal, data=total)
        result = nl.ndarray((ROWS, width), dtype=v.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=result, data=sums, op0=nl.multiply, operand0=reciprocal)
        nisa.dma_copy(dst=out[row:row + ROWS, :], src=result)
    return out


@case("causal_attention_2048x128", Goal(faster=1.3), Goal(faster=1.3))
def masked_scores(dtype: str = "float32") -> Case:
    scale = WIDTH_OF_HEAD ** -0.5

    def formula(xp: Any, q_t: Any, k_t: Any, v: Any) -> Any:
        scores = q_t.T @ k_t * scale
        scores = xp.where(xp.tril(xp.ones(scores.shape, bool)), scores, xp.asarray(MASKED, scores.dtype))
        powers = xp.exp(scores - scores.max(1, keepdims=True))
        return powers @ v / powers.sum(1, keepdims=True)

    def torch_formula(q_t: Any, k_t: Any, v: Any) -> Any:
        import torch
        q, k = (t.T.contiguous()[None, None] for t in (q_t, k_t))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v[None, None], is_causal=True)[0, 0]
    shapes = (WIDTH_OF_HEAD, SEQUENCE), (WIDTH_OF_HEAD, SEQUENCE), (SEQUENCE, WIDTH_OF_HEAD)
    arrays = tuple(random(*shape, seed=n, dtype=dtype) for n, shape in enumerate(shapes))
    return Case(arrays, lambda *a: causal_attention(*a, scale), formula, torch_formula, "fma",
                2 * SEQUENCE ** 2 * WIDTH_OF_HEAD, lambda: formula(np, *(a.astype("float64") for a in arrays)),
                tolerance(dtype))

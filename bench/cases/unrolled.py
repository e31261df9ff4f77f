# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the current generation, whose loops Python unrolls: one new token, and gradients that iterations sum."""

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
from case import Case, Goal, case, random, tolerance

ROWS, KEYS = 128, 512


def tile(rows, columns, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray((rows, columns), dtype=dtype, buffer=buffer)


@nki.jit
def decode_attention(q, keys, values):
    """Compute the attention of one new token: q [B, G, D, N] has N queries for each key head, keys are [B, G, D, S],
    values [B, G, S, D]; the result is [B, G, N, D]."""
    batch, groups, depth, queries = q.shape
    length = keys.shape[3]
    out = nl.ndarray((batch, groups, queries, depth), dtype=q.dtype, buffer=nl.shared_hbm)
    for b in range(batch):
        for g in range(groups):
            query, key = tile(depth, queries, q.dtype), tile(depth, length, keys.dtype)
            nisa.dma_copy(dst=query, src=q[b, g])
            nisa.dma_copy(dst=key, src=keys[b, g])
            scores = tile(queries, length)
            for s in range(0, length, KEYS):
                product = tile(queries, KEYS, buffer=nl.psum)
                nisa.nc_matmul(dst=product, stationary=query, moving=key[:, s:s + KEYS])
                nisa.activation(dst=scores[:, s:s + KEYS], op=nl.copy, data=product, scale=depth ** -0.5)
            largest, powers, total = tile(queries, 1), tile(queries, length), tile(queries, 1)
            nisa.tensor_reduce(dst=largest, op=nl.maximum, data=scores, axis=1, negate=True)
            nisa.activation_reduce(dst=powers, op=nl.exp, data=scores, bias=largest, reduce_op=nl.add, reduce_res=total)
            nisa.reciprocal(dst=total, data=total)
            sums = tile(queries, depth, buffer=nl.psum)
            for s in range(0, length, ROWS):
                transposed, weights = tile(ROWS, queries, buffer=nl.psum), tile(ROWS, queries, values.dtype)
                nisa.nc_transpose(dst=transposed, data=powers[:, s:s + ROWS])
                nisa.tensor_copy(dst=weights, src=transposed)
                rows = tile(ROWS, depth, values.dtype)
                nisa.dma_copy(dst=rows, src=values[b, g, s:s + ROWS, :])
                nisa.nc_matmul(dst=sums, stationary=weights, moving=rows)
            result = tile(queries, depth, q.dtype)
            nisa.tensor_scalar(dst=result, data=sums, op0=nl.multiply, operand0=total)
            nisa.dma_copy(dst=out[b, g], src=result)
    return out


@case("decode_attention_4x8x2048", Goal(faster=1.3))
def decoding(dtype: str = "float32") -> Case:
    batch, groups, queries, depth, length = 4, 2, 4, 128, 2048
    scale = depth ** -0.5

    def formula(xp: Any, q: Any, k: Any, v: Any) -> Any:
        scores = xp.swapaxes(q, 2, 3) @ k * scale
        powers = xp.exp(scores - scores.max(3, keepdims=True))
        return powers @ v / powers.sum(3, keepdims=True)

    def torch_formula(q: Any, k: Any, v: Any) -> Any:
        return (q.mT @ k * scale).softmax(3) @ v
    q = random(batch, groups, depth, queries, dtype=dtype)
    k = random(batch, groups, depth, length, seed=1, dtype=dtype)
    v = random(batch, groups, length, depth, seed=2, dtype=dtype)
    return Case((q, k, v), decode_attention, formula, torch_formula, "read", k.nbytes + v.nbytes,
                lambda: formula(np, *(a.astype("float64") for a in (q, k, v))), tolerance(dtype))


@nki.jit
def layernorm_backward(x, weight, gradient, mean, rstd):
    """Return the gradients of x [T, H], of the weight [1, H] and of the shift [1, H] of a layer normalization."""
    tokens, width = x.shape
    x_gradient = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    sums = [nl.ndarray((1, width), dtype=nl.float32, buffer=nl.shared_hbm) for _ in range(2)]
    weights, totals = tile(ROWS, width), [tile(ROWS, width), tile(ROWS, width)]
    nisa.dma_copy(dst=weights, src=weight.ap(pattern=[[0, ROWS], [1, width]]))
    for total in totals:
        nisa.memset(dst=total, value=0.0)
    for t in range(tokens // ROWS):
        rows = nl.ds(t * ROWS, ROWS)
        inputs, above, center, scale = tile(ROWS, width), tile(ROWS, width), tile(ROWS, 1), tile(ROWS, 1)
        for target, source in ((inputs, x), (above, gradient), (center, mean), (scale, rstd)):
            nisa.dma_copy(dst=target, src=source[rows, :])
        normal, product, weighted = tile(ROWS, width), tile(ROWS, width), tile(ROWS, width)
        nisa.tensor_scalar(dst=normal, data=inputs, op0=nl.subtract, operand0=center, op1=nl.multiply, operand1=scale)
        nisa.tensor_tensor(dst=product, data1=above, data2=normal, op=nl.multiply)
        for total, part in zip(totals, (product, above)):
            nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
        nisa.tensor_tensor(dst=weighted, data1=above, data2=weights, op=nl.multiply)
        means = []
        nisa.tensor_tensor(dst=product, data1=weighted, data2=normal, op=nl.multiply)
        for part in (weighted, product):
            means.append(tile(ROWS, 1))
            nisa.tensor_reduce(dst=means[-1], op=nl.add, data=part, axis=1)
            nisa.tensor_scalar(dst=means[-1], data=means[-1], op0=nl.multiply, operand0=-1.0 / width)
        nisa.scalar_tensor_tensor(dst=normal, data=normal, op0=nl.multiply, operand0=means[1], op1=nl.add,
                                  operand1=weighted)
        result = tile(ROWS, width, x.dtype)
        nisa.tensor_scalar(dst=result, data=normal, op0=nl.add, operand0=means[0], op1=nl.multiply, operand1=scale)
        nisa.dma_copy(dst=x_gradient[rows, :], src=result)
    ones = tile(ROWS, 1)
    nisa.memset(dst=ones, value=1.0)
    for total, out in zip(totals, sums):
        for c in range(0, width, KEYS):
            product, result = tile(1, KEYS, buffer=nl.psum), tile(1, KEYS)
            nisa.nc_matmul(dst=product, stationary=ones, moving=total[:, c:c + KEYS])
            nisa.tensor_copy(dst=result, src=product)
            nisa.dma_copy(dst=out[:, c:c + KEYS], src=result)
    return x_gradient, sums[0], sums[1]


@case("layernorm_backward_2048", Goal(faster=1))
def backward(dtype: str = "float32") -> Case:
    def formula(xp: Any, x: Any, w: Any, g: Any, mean: Any, rstd: Any) -> Any:
        normal, weighted = (x - mean) * rstd, g * w
        means = weighted.mean(1, keepdims=True), (weighted * normal).mean(1, keepdims=True)
        return ((weighted - means[0] - normal * means[1]) * rstd, (g * normal).sum(0, keepdims=True),
                g.sum(0, keepdims=True))

    def torch_formula(x: Any, w: Any, g: Any, mean: Any, rstd: Any) -> Any:
        import torch
        return torch.ops.aten.native_layer_norm_backward(g, x, [x.shape[1]], mean, rstd, w[0], w[0], [True, True, True])
    x, w, g = (random(rows, 2048, seed=n, dtype=dtype) for n, rows in enumerate((2048, 1, 2048)))
    wide = x.astype("float32")
    mean = wide.mean(1, keepdims=True).astype(dtype)
    rstd = (1 / np.sqrt(wide.var(1, keepdims=True) + 1e-5)).astype(dtype)
    return Case((x, w, g, mean, rstd), layernorm_backward, formula, torch_formula, "copy", 3 * x.nbytes,
                lambda: formula(np, *(a.astype("float64") for a in (x, w, g, mean, rstd))), tolerance(dtype, 1e-3))

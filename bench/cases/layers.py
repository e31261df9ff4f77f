# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers that multiply matrices and compute functions between products, and products that tiles do not divide."""

from typing import Any

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from case import Case, case, random, tolerance

TOKENS, WIDTH, HIDDEN = 512, 1024, 2048


@nki.jit
def mlp(x_t, w1, w2):
    """Compute silu(x @ w1) @ w2 for x_t [K, T], w1 [K, F], w2 [F, N]; T and N multiples of 512, K and F of 128."""
    (depth, tokens), (hidden, columns) = x_t.shape, w2.shape
    out = nl.ndarray((tokens, columns), dtype=x_t.dtype, buffer=nl.shared_hbm)
    for t in nl.affine_range(tokens // 512):
        span = nl.ds(t * 512, 512)
        powers = nl.ndarray((hidden // 128, nl.par_dim(128), 512), dtype=x_t.dtype, buffer=nl.sbuf)
        for f in nl.affine_range(hidden // 128):
            sums = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(depth // 128):
                rows = nl.ds(k * 128, 128)
                sums += nisa.nc_matmul(nl.load(w1[rows, nl.ds(f * 128, 128)]), nl.load(x_t[rows, span]))
            powers[f] = nl.silu(sums, dtype=x_t.dtype)
        for r in nl.affine_range(4):
            for j in nl.affine_range(columns // 512):
                total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
                for f in nl.affine_range(hidden // 128):
                    right = nl.load(w2[nl.ds(f * 128, 128), nl.ds(j * 512, 512)])
                    total += nisa.nc_matmul(powers[f, :, nl.ds(r * 128, 128)], right)
                nl.store(out[nl.ds(t * 512 + r * 128, 128), nl.ds(j * 512, 512)], nl.copy(total, dtype=out.dtype))
    return out


@case("mlp_512x1024x2048")
def two_products(dtype: str = "float32") -> Case:
    def formula(xp: Any, x_t: Any, w1: Any, w2: Any) -> Any:
        between = x_t.T @ w1
        return (between / (1 + xp.exp(-between))) @ w2

    def torch_formula(x_t: Any, w1: Any, w2: Any) -> Any:
        import torch
        return torch.nn.functional.silu(x_t.T @ w1) @ w2
    x_t, w1, w2 = (random(rows, columns, seed=k, dtype=dtype) / np.float32(rows ** 0.5) for k, (rows, columns) in
                   enumerate(((WIDTH, TOKENS), (WIDTH, HIDDEN), (HIDDEN, WIDTH))))
    arrays = tuple(a.astype(dtype) for a in (x_t, w1, w2))
    return Case(arrays, mlp, formula, torch_formula, "fma", 4 * TOKENS * WIDTH * HIDDEN,
                lambda: formula(np, *[a.astype("float64") for a in arrays]), tolerance(dtype, 1e-3))


@nki.jit
def rmsnorm_product(x, w, epsilon=1e-6):
    """Compute (x / sqrt(mean of x^2 + epsilon)) @ w for x [T, K], w [K, N]; T and K multiples of 128, N of 512."""
    (tokens, depth), columns = x.shape, w.shape[1]
    out = nl.ndarray((tokens, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for t in nl.affine_range(tokens // 128):
        tile = nl.load(x[nl.ds(t * 128, 128), :])
        squares = nl.sum(nl.square(tile, dtype=nl.float32), axis=1, keepdims=True)
        normal = nl.multiply(tile, nl.rsqrt(squares * (1 / depth) + epsilon), dtype=x.dtype)
        transposed = nl.ndarray((depth // 128, nl.par_dim(128), 128), dtype=x.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(depth // 128):
            transposed[k] = nl.copy(nisa.nc_transpose(normal[:, nl.ds(k * 128, 128)]), dtype=x.dtype)
        for j in nl.affine_range(columns // 512):
            total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(depth // 128):
                total += nisa.nc_matmul(transposed[k], nl.load(w[nl.ds(k * 128, 128), nl.ds(j * 512, 512)]))
            nl.store(out[nl.ds(t * 128, 128), nl.ds(j * 512, 512)], nl.copy(total, dtype=out.dtype))
    return out


@case("rmsnorm_product")
def norm_and_product(dtype: str = "float32") -> Case:
    def formula(xp: Any, x: Any, w: Any) -> Any:
        return (x / xp.sqrt((x * x).mean(1, keepdims=True) + 1e-6)).astype(x.dtype) @ w

    def torch_formula(x: Any, w: Any) -> Any:
        import torch
        return torch.nn.functional.rms_norm(x, (x.shape[1],), None, 1e-6) @ w
    x, w = random(TOKENS, WIDTH, dtype=dtype), (random(WIDTH, WIDTH, seed=1) / np.float32(32)).astype(dtype)
    return Case((x, w), rmsnorm_product, formula, torch_formula, "fma", 2 * TOKENS * WIDTH * WIDTH,
                lambda: formula(np, x.astype("float64"), w.astype("float64")), tolerance(dtype, 1e-3))


@nki.jit
def ragged_product(a_t, b):
    """Compute a_t.T @ b for a_t [K, M], b [K, N] of any sizes: masks leave out what tiles have beyond them."""
    (depth, rows), columns = a_t.shape, b.shape[1]
    out = nl.ndarray((rows, columns), dtype=a_t.dtype, buffer=nl.shared_hbm)
    k, m, n = (nl.arange(size) for size in (128, 128, 512))
    for i in nl.affine_range(-(-rows // 128)):
        for j in nl.affine_range(-(-columns // 512)):
            total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
            for s in nl.affine_range(-(-depth // 128)):
                deep = s * 128 + k[:, None] < depth
                left = nl.load(a_t[s * 128 + k[:, None], i * 128 + m[None, :]],
                               mask=deep & (i * 128 + m[None, :] < rows))
                right = nl.load(b[s * 128 + k[:, None], j * 512 + n[None, :]],
                                mask=deep & (j * 512 + n[None, :] < columns))
                total += nl.matmul(left, right, transpose_x=True, mask=(s * 128 + k[:, None] < depth))
            nl.store(out[i * 128 + m[:, None], j * 512 + n[None, :]], nl.copy(total, dtype=out.dtype),
                     mask=(i * 128 + m[:, None] < rows) & (j * 512 + n[None, :] < columns))
    return out


def product_of(kernel: Any, depth: int, rows: int, columns: int, dtype: str) -> Case:
    a_t, b = random(depth, rows, dtype=dtype), random(depth, columns, seed=1, dtype=dtype)
    return Case((a_t, b), kernel, lambda xp, a, b: xp.matmul(a.T, b), lambda a, b: a.T @ b, "fma",
                2 * rows * depth * columns, lambda: a_t.astype("float64").T @ b.astype("float64"),
                tolerance(dtype, 1e-3))


@nki.jit
def outer_product(a_t, b):
    """Compute a_t.T @ b for a_t [1, M], b [1, N], in tiles of one row; M a multiple of 128, N of 512."""
    rows, columns = a_t.shape[1], b.shape[1]
    out = nl.ndarray((rows, columns), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        left = nl.load(a_t[:, nl.ds(i * 128, 128)])
        for j in nl.affine_range(columns // 512):
            total = nisa.nc_matmul(left, nl.load(b[:, nl.ds(j * 512, 512)]))
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * 512, 512)], nl.copy(total, dtype=out.dtype))
    return out


@case("product_1000x777x1301")
def ragged(dtype: str = "float32") -> Case:
    return product_of(ragged_product, 777, 1000, 1301, dtype)


@case("outer_product_1024")
def outer(dtype: str = "float32") -> Case:
    return product_of(outer_product, 1, 1024, 1024, dtype)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions of nisa under masks: the last rows and columns, statistics, searches, reductions, copies."""

import math

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def fused_norm(x, gamma, eps=1e-5):
    """activation_reduce, tensor_scalar and tensor_tensor under the mask of rows."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    P = nl.tile_size.pmax
    i_p = nl.arange(P)[:, None]
    i_f = nl.arange(cols)[None, :]
    g = nl.load(gamma).broadcast_to((P, cols))
    for i in nl.affine_range(math.ceil(rows / P)):
        mask = i * P + i_p < rows
        tile = nl.load(x[i * P + i_p, i_f], mask=mask)
        total = nl.ndarray((nl.par_dim(P), 1), dtype=nl.float32)
        squares = nisa.activation_reduce(np.square, tile, reduce_op=np.add, reduce_res=total, mask=mask)
        scale = nisa.tensor_scalar(total, np.multiply, 1.0 / cols, op1=np.add, operand1=eps, mask=mask)
        root = nisa.activation(nl.rsqrt, scale, mask=mask)
        scaled = nisa.tensor_scalar(tile, np.multiply, root, mask=mask)
        result = nisa.tensor_tensor(scaled, g, op=np.multiply, mask=mask)
        nl.store(out[i * P + i_p, i_f], value=result, mask=mask)
    return out


@nki.jit
def row_statistics(x):
    """Mean and variance of the rows by bn_stats and bn_aggr."""
    rows, cols = x.shape
    out = nl.ndarray((rows, 2), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p = nl.arange(128)[:, None]
    i_f = nl.arange(cols)[None, :]
    for i in nl.affine_range(math.ceil(rows / 128)):
        tile = nl.load(x[i * 128 + i_p, i_f], mask=(i * 128 + i_p < rows))
        stats = nisa.bn_stats(tile, mask=(i * 128 + i_p < rows))
        aggregated = nisa.bn_aggr(stats, mask=(i * 128 + i_p < rows))
        nl.store(out[i * 128 + i_p, nl.arange(2)[None, :]], value=aggregated, mask=(i * 128 + i_p < rows))
    return out


@nki.jit
def largest_of_columns(x, num=24):
    """The eight largest elements among the first num columns."""
    rows, cols = x.shape
    values = nl.ndarray((rows, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    indices = nl.ndarray((rows, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:rows, 0:cols]
    tile = nl.load(x)
    top = nisa.max8(src=tile[i_p, i_f], mask=i_f < num)
    where = nisa.nc_find_index8(data=tile[i_p, i_f], vals=top, mask=i_f < num)
    nl.store(values, top)
    nl.store(indices, where)
    return values, indices


@nki.jit
def two_sided(x, lo=4, hi=20):
    """Reductions of the columns from lo to hi."""
    rows, cols = x.shape
    out = nl.ndarray((rows, 2), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:rows, 0:cols]
    t = nl.load(x)
    window = (i_f >= lo) & (i_f < hi)
    largest = nisa.tensor_reduce(np.max, t[i_p, i_f], axis=(1,), mask=window)
    total = nisa.tensor_reduce(np.add, t[i_p, i_f], axis=(1,), mask=window)
    both = nl.ndarray((nl.par_dim(rows), 2), dtype=nl.float32, buffer=nl.sbuf)
    both[:, 0:1] = nisa.tensor_copy(largest)
    both[:, 1:2] = nisa.tensor_copy(total)
    nl.store(out, both)
    return out


@nki.jit
def causal_bias(scores, value=-1000.0):
    """Scores behind the diagonal, and the value in front of it, by affine_select; a second window by a mask."""
    n, m = scores.shape
    out = nl.ndarray(scores.shape, dtype=scores.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(n)[:, None]
    i_f = nl.arange(m)[None, :]
    t = nl.load(scores)
    masked = nisa.affine_select(pred=(i_f <= i_p), on_true_tile=t[i_p, i_f], on_false_value=value)
    masked[i_p, i_f] = nisa.tensor_scalar(masked[i_p, i_f], np.add, 1.0, mask=i_f < m // 2)
    nl.store(out, value=masked)
    return out


@nki.jit
def part_of_a_product(lhs_t, rhs, m=40, n=30):
    """A product whose mask leaves rows and columns, in a tile of zeros."""
    K, M = lhs_t.shape
    _, N = rhs.shape
    out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    a, b = nl.load(lhs_t), nl.load(rhs)
    i_m, i_n = nl.mgrid[0:M, 0:N]
    product = nisa.nc_matmul(a, b)
    result = nl.zeros((M, N), dtype=nl.float32, buffer=nl.sbuf)
    result[i_m, i_n] = nisa.tensor_copy(product[i_m, i_n], mask=(i_m < m) & (i_n < n))
    nl.store(out[i_m, i_n], value=result)
    return out


def cases():
    r = np.random.default_rng(18)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    return [
        (fused_norm, (f(150, 64), f(1, 64))),
        (row_statistics, (f(140, 100),)),
        (largest_of_columns, (f(32, 40),)),
        (two_sided, (f(64, 32),)),
        (causal_bias, (f(48, 48),)),
        (part_of_a_product, (f(64, 64), f(64, 48))),
    ]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Idioms of contributed kernels: gradients of attention, top-k by rounds, three axes of a grid, addresses."""
import functools
import math
from typing import NamedTuple

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim


class FlashConfig(NamedTuple):
    seq_tile: int = 128
    causal: bool = True
    mixed: bool = False


def n_elts(shape):
    return functools.reduce(lambda a, b: a * b, shape, 1)


def transpose_p_local(dst, src, d):
    """Transposes of a tile in pieces of 128 columns."""
    for i in nl.affine_range(d // 128):
        ps = nl.ndarray((par_dim(128), 128), dtype=nl.float32, buffer=nl.psum)
        ps[:, :] = nisa.nc_transpose(src[:, nl.ds(i * 128, 128)])
        dst[:, nl.ds(i * 128, 128)] = nl.copy(ps, dtype=dst.dtype)


@nki.jit
def attn_bwd_small(q, k, v, dy, cfg=FlashConfig()):
    """Gradients of attention for one head of up to 128 rows: [d, s] q and k, [s, d] v and dy."""
    d, s = q.shape
    dq = nl.ndarray((s, d), dtype=q.dtype, buffer=nl.shared_hbm)
    dk = nl.ndarray((s, d), dtype=q.dtype, buffer=nl.shared_hbm)
    dv = nl.ndarray((s, d), dtype=q.dtype, buffer=nl.shared_hbm)
    scale = 1 / math.sqrt(d)
    q_t, k_t = nl.load(q), nl.load(k)
    v_t, dy_t = nl.load(v), nl.load(dy)
    ix, iy = nl.mgrid[0:s, 0:s]
    sc = nl.ndarray((s, s), dtype=nl.float32, buffer=nl.psum)
    sc[ix, iy] = nisa.nc_matmul(q_t, k_t)
    scaled = nisa.tensor_scalar(sc, np.multiply, scale)
    if cfg.causal:
        scaled = nisa.affine_select(pred=(ix >= iy), on_true_tile=scaled, on_false_value=-9984.0)
    m = nisa.tensor_reduce(np.max, scaled, axis=(1,), keepdims=True, negate=True)
    p = nisa.activation(np.exp, scaled, bias=m)
    p_sum = nl.sum(p, axis=1, keepdims=True)
    p_n = nl.multiply(p, nl.reciprocal(p_sum))
    dv_ps = nisa.nc_matmul(p_n, dy_t)
    nl.store(dv, nl.copy(dv_ps))
    v_tr = nl.copy(nisa.nc_transpose(v_t))
    dy_tr = nl.copy(nisa.nc_transpose(dy_t))
    dp = nisa.nc_matmul(dy_tr, v_tr)
    row = nl.sum(nl.multiply(dp, p_n), axis=[1], keepdims=True)
    ds = (dp - row) * p_n * scale
    k_n, q_n = nl.copy(nisa.nc_transpose(k_t)), nl.copy(nisa.nc_transpose(q_t))
    dk_ps = nisa.nc_matmul(ds, q_n)
    ds_t = nl.copy(nisa.nc_transpose(ds))
    dq_ps = nisa.nc_matmul(ds_t, k_n)
    nl.store(dk, dk_ps)
    nl.store(dq, dq_ps)
    return dq, dk, dv


@nki.jit
def topk_mask(x, k: int = 16):
    """Keeps the k largest of a row: rounds of max8 and match_replace8."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    work = nl.load(x)
    orig = nl.copy(work)
    for i in range(math.ceil(k / 8)):
        best = nisa.max8(src=work)
        if i != math.ceil(k / 8) - 1:
            work = nisa.nc_match_replace8(data=work, vals=best, imm=-1e30)
    thr = best[:, (k - 1) % 8:(k - 1) % 8 + 1]
    keep = nl.greater_equal(orig, thr, dtype=nl.float32)
    nl.store(out, orig * keep)
    return out


@nki.jit
def block_sparse_rows(x, *, block=32, keep=(0, 2)):
    """Only some blocks of columns, others 0; keyword arguments only."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    zeros = nl.zeros((rows, block), dtype=x.dtype)
    for b in range(cols // block):
        cs = nl.ds(b * block, block)
        if b in keep:
            nl.store(out[:, cs], value=nl.load(x[:, cs]))
        else:
            nl.store(out[:, cs], value=zeros)
    return out


@nki.jit
def grouped_conv1d(x, w):
    """[N, C, L] with a tap loop and a batch loop; masks with three conditions."""
    N, C, L = x.shape
    _, K = w.shape
    out = nl.ndarray((N, C, L), dtype=x.dtype, buffer=nl.shared_hbm)
    i_c = nl.arange(128)[:, None]
    i_l = nl.arange(L)[None, :]
    w_sb = nl.load(w[i_c, nl.arange(K)[None, :]], mask=(i_c < C))
    for n in nl.affine_range(N):
        acc = nl.zeros((128, L), dtype=nl.float32)
        for t in nl.sequential_range(K):
            shift = t - K // 2
            tile = nl.zeros((128, L), dtype=x.dtype)
            tile[i_c, i_l] = nl.load(x[n, i_c, i_l + shift], mask=(i_c < C) & (i_l + shift >= 0) & (i_l + shift < L))
            acc[i_c, i_l] = nisa.scalar_tensor_tensor(data=tile[i_c, i_l], op0=np.multiply, operand0=w_sb[i_c, t],
                                                      op1=np.add, operand1=acc[i_c, i_l], mask=(i_c < C))
        nl.store(out[n, i_c, i_l], value=acc[i_c, i_l], mask=(i_c < C))
    return out


@nki.jit
def spmd_three_axes(x, y):
    """Three axes of a grid; blocks chosen by them."""
    b, h, s, d = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ib, ih, it = nl.program_id(axis=0), nl.program_id(axis=1), nl.program_id(axis=2)
    i_p, i_f = nl.mgrid[0:64, 0:d]
    t = it * 64 + i_p
    lhs = nl.load(x[ib, ih, t, i_f], mask=(t < s))
    rhs = nl.load(y[ih, t, i_f], mask=(t < s))
    nl.store(out[ib, ih, t, i_f], value=nl.tanh(lhs + rhs, mask=(t < s)), mask=(t < s))
    return out


@nki.jit
def variance_two_pass(x, out_dtype=nl.float32, unbiased=False):
    rows, cols = x.shape
    stats = nl.ndarray((rows, 2), dtype=out_dtype, buffer=nl.shared_hbm)
    n_chunks = (cols + 63) // 64
    i_p = nl.arange(rows)[:, None]
    part = nl.ndarray((rows, n_chunks), dtype=nl.float32, buffer=nl.sbuf)
    for c in nl.affine_range(n_chunks):
        i_f = c * 64 + nl.arange(64)[None, :]
        part[i_p, c] = nl.sum(nl.load(x[i_p, i_f], mask=i_f < cols), axis=1, mask=i_f < cols)
    mean = nl.sum(part, axis=1, keepdims=True) * (1.0 / cols)
    sq = nl.ndarray((rows, n_chunks), dtype=nl.float32, buffer=nl.sbuf)
    for c in nl.affine_range(n_chunks):
        i_f = c * 64 + nl.arange(64)[None, :]
        tile = nl.load(x[i_p, i_f], mask=i_f < cols)
        sq[i_p, c] = nl.sum(nl.square(nl.subtract(tile, mean, mask=i_f < cols), mask=i_f < cols), axis=1,
                            mask=i_f < cols)
    var = nl.sum(sq, axis=1, keepdims=True) / (cols - 1 if unbiased else cols)
    nl.store(stats[:, 0:1], mean)
    nl.store(stats[:, 1:2], var)
    return stats


@nki.jit
def matmul_direct_alloc(aT, b):
    """Buffers at addresses, two banks in turn."""
    k, m = aT.shape
    _, n = b.shape
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    nt = k // 128
    a_sb = nl.ndarray((nt, par_dim(128), m), dtype=aT.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(nt,)))
    b_sb = nl.ndarray((nt, par_dim(128), n), dtype=b.dtype,
                      buffer=ncc.sbuf.mod_alloc(base_addr=nt * m * 4, num_free_tiles=(nt,)))
    ps = nl.ndarray((par_dim(m), n), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=2))
    res = nl.ndarray((par_dim(m), n), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=nt * (m + n) * 4))
    for i in nl.affine_range(nt):
        a_sb[i] = nl.load(aT[nl.ds(i * 128, 128), :])
        b_sb[i] = nl.load(b[nl.ds(i * 128, 128), :])
    for i in nl.affine_range(nt):
        ps[:, :] += nisa.nc_matmul(a_sb[i], b_sb[i])
    res[...] = nl.copy(ps)
    nl.store(out, res)
    return out


@nki.jit
def in_halves(x):
    """A helper that writes its first argument; slices with steps."""
    rows, cols = x.shape
    out = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    src = nl.load(x)
    dst = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.sbuf)
    transpose_p_local(dst, src, cols)
    even, odd = dst[:, 0:cols:2], dst[:, 1:cols:2]
    res = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.sbuf)
    res[:, 0:cols // 2] = nl.add(even, odd)
    res[:, cols // 2:cols] = even - odd
    nl.store(out, res)
    return out


def reference_softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def cases():
    r = np.random.default_rng(0)
    def f(*s):
        return r.standard_normal(s).astype(np.float32)
    return [(attn_bwd_small, (f(64, 128), f(64, 128), f(128, 64), f(128, 64))),
            (topk_mask, (f(64, 100),), {"k": 12}),
            (block_sparse_rows, (f(64, 128),), {"block": 32}),
            (grouped_conv1d, (f(2, 96, 50), f(96, 3))),
            (spmd_three_axes[2, 2, 2], (f(2, 2, 100, 32), f(2, 100, 32))),
            (variance_two_pass, (f(100, 150),), {"unbiased": True}),
            (matmul_direct_alloc, (f(256, 64), f(256, 96))),
            (in_halves, (f(128, 256),))]

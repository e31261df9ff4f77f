# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of a diffusion model, allocated; rotary layouts; cross entropy; sampling."""
import math

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim


@nki.jit
def attention_fwd_multi_bank(q, k, v, scale=0.125):
    """q, k [d, s], v [s, d]: buffers by tile index, allocated by modulo."""
    d, s = q.shape
    P = nl.tile_size.pmax
    n = s // P
    out = nl.ndarray((s, d), dtype=q.dtype, buffer=nl.shared_hbm)
    q_sb = nl.ndarray((par_dim(d), s), dtype=q.dtype, buffer=ncc.sbuf.alloc(lambda idx, pdim_size, fdim_size: (0, 0)))
    k_sb = nl.ndarray((par_dim(d), s), dtype=q.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=s * 4))
    v_sb = nl.ndarray((n, par_dim(P), d), dtype=q.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=2 * s * 4, num_free_tiles=(n,)))
    q_sb[...] = nl.load(q)
    k_sb[...] = nl.load(k)
    for i in nl.affine_range(n):
        v_sb[i] = nl.load(v[nl.ds(i * P, P), :])
    qk = nl.ndarray((n, n, par_dim(P), P), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=0, num_bank_tiles=(1, 2)))
    scores = nl.ndarray((n, par_dim(P), s), dtype=nl.float32, buffer=ncc.sbuf.auto_alloc())
    tp = nl.ndarray((n, n, par_dim(P), P), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=2, num_bank_tiles=(1, 2)))
    pv = nl.ndarray((n, par_dim(P), d), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=4, num_bank_tiles=(2,)))
    neg_max = nl.ndarray((n, par_dim(P), 1), dtype=nl.float32)
    row_sum = nl.ndarray((n, par_dim(P), 1), dtype=nl.float32)
    pT = nl.ndarray((n, n, par_dim(P), P), dtype=q.dtype)
    res = nl.ndarray((n, par_dim(P), d), dtype=q.dtype)
    for i in nl.affine_range(n):
        for j in nl.affine_range(n):
            qk[i, j] = nisa.nc_matmul(q_sb[:, nl.ds(i * P, P)], k_sb[:, nl.ds(j * P, P)])
            scores[i, :, nl.ds(j * P, P)] = nisa.activation(np.copy, qk[i, j], scale=scale)
        neg_max[i] = nisa.tensor_reduce(np.max, scores[i], axis=(1,), negate=True)
        scores[i] = nisa.activation_reduce(np.exp, scores[i], bias=neg_max[i], reduce_op=np.add, reduce_res=row_sum[i])
        for j in nl.affine_range(n):
            tp[i, j] = nisa.nc_transpose(scores[i, :, nl.ds(j * P, P)])
            pT[i, j] = nisa.tensor_copy(tp[i, j])
        pv[i] = 0
        for j in nl.affine_range(n):
            pv[i] += nisa.nc_matmul(pT[i, j], v_sb[j])
        inv = nisa.reciprocal(row_sum[i])
        res[i] = nisa.tensor_scalar(pv[i], np.multiply, inv)
        nl.store(out[nl.ds(i * P, P), :], res[i])
    return out


@nki.jit
def rope_qk(q, k, cos, sin):
    """q, k [d, S] each; cos, sin [d // 2, S]: the first half, the second half."""
    d, S = q.shape
    h = d // 2
    q_out = nl.ndarray((d, S), dtype=q.dtype, buffer=nl.shared_hbm)
    k_out = nl.ndarray((d, S), dtype=k.dtype, buffer=nl.shared_hbm)
    TS = min(512, S)
    i_upper, i_lower = nl.arange(h)[:, None], h + nl.arange(h)[:, None]
    i_s = nl.arange(TS)[None, :]
    for src, dst in ((q, q_out), (k, k_out)):
        for t in nl.affine_range(math.ceil(S / TS)):
            m = t * TS + i_s < S
            up = nl.load(src[i_upper, t * TS + i_s], mask=m)
            lo = nl.load(src[i_lower, t * TS + i_s], mask=m)
            c = nl.load(cos[i_upper, t * TS + i_s], mask=m)
            s = nl.load(sin[i_upper, t * TS + i_s], mask=m)
            nl.store(dst[i_upper, t * TS + i_s], nl.subtract(nl.multiply(up, c, mask=m), nl.multiply(lo, s, mask=m), mask=m), mask=m)
            nl.store(dst[i_lower, t * TS + i_s], nl.add(nl.multiply(lo, c, mask=m), nl.multiply(up, s, mask=m), mask=m), mask=m)
    return q_out, k_out


@nki.jit
def cross_entropy_fwd(logits, labels):
    """Mean-free loss of each row: logsumexp - logit[label]; labels int32 [N, 1]."""
    N, V = logits.shape
    loss = nl.ndarray((N, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    CH = 256
    for t in nl.affine_range((N - 1) // 128 + 1):
        ip = nl.arange(128)[:, None]
        rm = t * 128 + ip < N
        lab = nl.load(labels[t * 128 + ip, 0], dtype=nl.float32, mask=rm)
        m = nl.full((128, 1), -3e38, dtype=nl.float32)
        s = nl.zeros((128, 1), dtype=nl.float32)
        picked = nl.zeros((128, 1), dtype=nl.float32)
        for c in nl.sequential_range((V - 1) // CH + 1):
            iv = nl.arange(CH)[None, :]
            mk = rm & (c * CH + iv < V)
            x = nl.load(logits[t * 128 + ip, c * CH + iv], mask=mk)
            mx = nl.max(x, axis=1, mask=mk)
            nm = nl.maximum(mx, m, mask=rm)
            e = nisa.activation(np.exp, x, bias=nl.negative(nm, mask=rm), mask=mk)
            s[...] = nl.add(nl.multiply(s, nl.exp(nl.subtract(m, nm, mask=rm), mask=rm), mask=rm), nl.sum(e, axis=1, mask=mk), mask=rm)
            m[...] = nl.copy(nm, mask=rm)
            pos = nisa.iota(c * CH + iv, dtype=nl.float32)
            hit = nl.equal(pos.broadcast_to((128, CH)), lab, mask=mk, dtype=nl.float32)
            picked[...] += nl.sum(nl.multiply(hit, x, mask=mk), axis=1, mask=mk)
        nl.store(loss[t * 128 + ip, 0], nl.subtract(nl.add(m, nl.log(s, mask=rm), mask=rm), picked, mask=rm), mask=rm)
    return loss


@nki.jit
def top_p_threshold(probs, iters: int = 12):
    """Bisection for the largest threshold whose tail mass is at least p = 0.9."""
    B, V = probs.shape
    out = nl.ndarray((B, V), dtype=probs.dtype, buffer=nl.shared_hbm)
    x = nl.load(probs)
    lo = nl.zeros((B, 1), dtype=nl.float32)
    hi = nl.ones((B, 1), dtype=nl.float32)
    for _ in nl.static_range(iters):
        mid = (lo + hi) * 0.5
        keep = nl.greater_equal(x, mid, dtype=nl.float32)
        mass = nl.sum(keep * x, axis=1)
        ok = nl.greater_equal(mass, 0.9)
        lo[...] = nl.where(ok, mid, lo)
        hi[...] = nl.where(ok, hi, mid)
    nl.store(out, nl.where(nl.greater_equal(x, lo), x, 0.0))
    return out


@nki.jit
def resize_nearest(img, out_shape):
    """[N, H, W, C] by integer factors through strided views."""
    N, H, W, C = img.shape
    oh, ow = out_shape
    fh, fw = oh // H, ow // W
    out = nl.ndarray((N, oh, ow, C), dtype=img.dtype, buffer=nl.shared_hbm)
    for n in nl.affine_range(N):
        i_h = nl.arange(H)[:, None, None]
        i_w = nl.arange(W)[None, :, None]
        i_c = nl.arange(C)[None, None, :]
        t = nl.load(img[n, i_h, i_w, i_c])
        for dh in nl.affine_range(fh):
            for dw in nl.affine_range(fw):
                nl.store(out[n, fh * i_h + dh, fw * i_w + dw, i_c], value=t[i_h, i_w, i_c])
    return out


def cases():
    r = np.random.default_rng(0)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    p = np.abs(f(16, 40))
    return [(attention_fwd_multi_bank, (f(64, 256), f(64, 256), f(256, 64))), (rope_qk, (f(64, 600), f(64, 600), f(32, 600), f(32, 600))),
            (cross_entropy_fwd, (f(150, 600), r.integers(0, 600, (150, 1)).astype(np.int32))), (top_p_threshold, (p / p.sum(1, keepdims=True),)),
            (resize_nearest, (f(2, 4, 5, 3), (8, 15)))]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation for the layers of a decoder, with the framework code that measures and checks them."""

import math
from functools import partial

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki import baremetal, benchmark, trace
from neuronxcc.nki.language import par_dim
from neuronxcc.nki.typing import mutable_tensor

P = nl.tile_size.pmax
FMAX = nl.tile_size.gemm_moving_fmax


def cdiv(a, b):
    return -(-a // b)


@nki.jit
def fused_qkv(hidden, gamma, weights, eps=1e-6):
    """hidden [B, S, H] through RMSNorm and a product with weights [H, Q + 2 KV]; a program for half of the columns."""
    B, S, H = hidden.shape
    _, F = weights.shape
    half = F // nl.num_programs(0)
    first = nl.program_id(0) * half
    out = nl.ndarray((B, S, F), dtype=hidden.dtype, buffer=nl.shared_hbm)
    blocks = H // P

    gamma_sb = nl.load(gamma.reshape((1, H)))
    w_sb = nl.ndarray((par_dim(P), blocks, half), dtype=weights.dtype, buffer=nl.sbuf)
    ik, jn = nl.mgrid[0:P, 0:half]
    for k in nl.affine_range(blocks):
        w_sb[ik, k, jn] = nl.load(weights[k * P + ik, first + jn])

    ix, iy = nl.mgrid[0:P, 0:H]
    for b in nl.affine_range(B):
        for s in nl.affine_range(cdiv(S, P)):
            x = nl.load(hidden[b, s * P + ix, iy], mask=(s * P + ix < S))
            square_sum = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
            squared = nisa.activation_reduce(np.square, x, reduce_op=np.add, reduce_res=square_sum[...],
                                             mask=(s * P + ix < S), dtype=nl.float32)
            rms = nl.rsqrt(square_sum / float(H) + eps, mask=(s * P + nl.arange(P)[:, None] < S))
            normed = nl.multiply(x, rms, mask=(s * P + ix < S))
            normed[ix, iy] = nl.multiply(normed, gamma_sb.broadcast_to((P, H)), mask=(s * P + ix < S))

            result = nl.zeros((P, half), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(blocks):
                transposed = nl.ndarray((P, P), dtype=weights.dtype)
                transposed[...] = nl.copy(nl.transpose(normed[:, nl.ds(k * P, P)]), dtype=weights.dtype)
                result[...] += nisa.nc_matmul(transposed, w_sb[ik, k, jn])
            nl.store(out[b, s * P + ik, first + jn], value=nl.copy(result, dtype=out.dtype), mask=(s * P + ik < S))
    return out


@nki.jit
def attend_with_cache(q, k_prior, v_prior, k_active, v_active, prior_mask, active_mask, scale: float = 0.125):
    """One new token for each head: q [H, d]; caches [S, d] of one key head; masks uint8 [H, S] and [H, A]."""
    H, d = q.shape
    S, _ = k_prior.shape
    A, _ = k_active.shape
    out = nl.ndarray((H, d), dtype=q.dtype, buffer=nl.shared_hbm)
    NEG = -9984.0

    qT = nl.load_transpose2d(q) * scale
    prior = nl.ndarray((H, S), dtype=nl.float32, buffer=nl.sbuf)
    for t in nl.affine_range(cdiv(S, FMAX)):
        width = min(FMAX, S - t * FMAX)
        kT = nl.load_transpose2d(k_prior[nl.ds(t * FMAX, width), 0:d])
        prior[:, nl.ds(t * FMAX, width)] = nl.copy(nisa.nc_matmul(qT, kT))
    active = nisa.tensor_copy(nisa.nc_matmul(qT, nl.load_transpose2d(k_active)))

    prior = nl.where(nl.load(prior_mask), prior, NEG)
    active = nl.where(nl.load(active_mask), active, NEG)
    peak = nl.maximum(nl.max(prior, axis=1, keepdims=True), nl.max(active, axis=1, keepdims=True))

    e_prior = nisa.activation(np.exp, prior, bias=nl.negative(peak), scale=1.0)
    e_active = nisa.activation(np.exp, active, bias=nl.negative(peak), scale=1.0)
    total = nisa.tensor_reduce(np.add, e_prior, axis=[1], keepdims=True)
    total += nl.sum(e_active, axis=[1], keepdims=True)

    acc = nl.zeros((H, d), dtype=nl.float32, buffer=nl.psum)
    for t in nl.affine_range(cdiv(S, P)):
        i_s = nl.arange(P)[:, None]
        v = nl.load(v_prior[t * P + i_s, nl.arange(d)[None, :]], mask=(t * P + i_s < S))
        pT = nl.ndarray((P, H), dtype=nl.float32, buffer=nl.sbuf)
        pT[...] = nl.transpose(e_prior[nl.arange(H)[:, None], t * P + nl.arange(P)[None, :]],
                               mask=(t * P + nl.arange(P)[None, :] < S))
        acc[...] += nl.matmul(pT, v, transpose_x=True, mask=(t * P + nl.arange(P)[:, None] < S))
    aT = nl.copy(nl.transpose(e_active))
    acc[...] += nl.matmul(aT, nl.load(v_active), transpose_x=True)
    nl.store(out, value=nl.divide(acc, total))
    return out


@nki.jit
def rotate_half(x, cos, sin, lnc_shard=True):
    """x [S, heads, D] with cos and sin [S, D / 2]; rows are divided among the programs."""
    S, heads, D = x.shape
    n_prgs, prg_id = (nl.num_programs(axes=0), nl.program_id(0)) if lnc_shard and nl.program_ndim() > 0 else (1, 0)
    rows = S // n_prgs
    offset = prg_id * rows
    out = nl.ndarray((S, heads, D), dtype=x.dtype, buffer=nl.shared_hbm)
    for t in nl.affine_range(cdiv(rows, P)):
        i_p = nl.arange(P)[:, None, None]
        i_h = nl.arange(heads)[None, :, None]
        i_d = nl.arange(D)[None, None, :]
        i_x = nl.arange(D // 2)[None, None, :]
        mask = t * P + i_p < rows
        tile = nl.load(x[offset + t * P + i_p, i_h, i_d], mask=mask)
        j_p, j_d = nl.mgrid[0:P, 0:D // 2]
        c = nl.load(cos[offset + t * P + j_p, j_d], mask=t * P + j_p < rows)
        s = nl.load(sin[offset + t * P + j_p, j_d], mask=t * P + j_p < rows)
        rotated = nl.ndarray((P, heads, D), dtype=x.dtype, buffer=nl.sbuf)
        for h in range(heads):
            low, high = tile[:, h, 0:D // 2], tile[:, h, D // 2:D]
            rotated[:, h, 0:D // 2] = nl.subtract(nl.multiply(low, c), nl.multiply(high, s))
            rotated[:, h, D // 2:D] = nl.add(nl.multiply(high, c), nl.multiply(low, s))
        nl.store(out[offset + t * P + i_p, i_h, i_d], value=rotated, mask=mask)
    return out


@nki.jit
def write_cache_rows(new, positions, cache: mutable_tensor, batch_stride: int = 64):
    """cache [B * batch_stride, d] gets the row of each sequence at its position; positions int32 [B, 1]."""
    B, d = new.shape
    i_b = nl.arange(B)[:, None]
    i_d = nl.arange(d)[None, :]
    at = nl.load(positions)
    base = nisa.iota(nl.arange(B)[:, None] * batch_stride, dtype=nl.int32)
    row = nl.add(at, base, dtype=nl.int32)
    tile = nl.load(new[i_b, i_d])
    nl.store(cache[row[i_b, 0], i_d], value=tile)
    return cache


@trace
def gated_mlp_by_reference(x, w_gate, w_up, w_down, out):
    """silu(x w_gate) * (x w_up) w_down for x [S, H], S at most 128; the result is the last parameter."""
    S, H = x.shape
    _, I = w_gate.shape
    n_h, n_i = H // P, cdiv(I, P)
    xT = nl.ndarray((n_h, par_dim(P), S), dtype=x.dtype, buffer=nl.sbuf)
    for h in nl.affine_range(n_h):
        xT[h] = nl.load_transpose2d(x[0:S, h * P:(h + 1) * P])
    acc = nl.zeros((S, H), dtype=nl.float32, buffer=nl.sbuf)
    ip = nl.arange(P)[:, None]
    for i in nl.sequential_range(n_i):
        jf = nl.arange(P)[None, :]
        gate = nl.zeros((P, S), dtype=nl.float32, buffer=nl.psum)
        up = nl.zeros((P, S), dtype=nl.float32, buffer=nl.psum)
        for h in nl.affine_range(n_h):
            wg = nl.load(w_gate[h * P + ip, i * P + jf], mask=(i * P + jf < I))
            wu = nl.load(w_up[h * P + ip, i * P + jf], mask=(i * P + jf < I))
            gate += nl.matmul(wg, xT[h], transpose_x=True, mask=(i * P + nl.arange(P)[None, :, None] < I))
            up += nl.matmul(wu, xT[h], transpose_x=True, mask=(i * P + nl.arange(P)[None, :, None] < I))
        inner = nl.multiply(nl.silu(gate), up, mask=(i * P + ip < I), dtype=x.dtype)
        wd = nl.load(w_down[i * P + ip, nl.arange(H)[None, :]], mask=(i * P + ip < I))
        acc += nisa.nc_matmul(inner, wd, mask=(i * P + ip < I))
    nl.store(out, acc)


@nki.jit
def quantized_rows(x, dtype=nl.float8_e4m3, limit=240.0):
    """Rows of x [S, H] in 8-bit floats with the scale of each row, the largest magnitude over the limit."""
    S, H = x.shape
    q = nl.ndarray((S, H), dtype=dtype, buffer=nl.shared_hbm)
    scales = nl.ndarray((S, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for t in nl.affine_range(math.ceil(S / P)):
        i_p, i_f = nl.mgrid[:P, :H]
        tile = nl.load(x[t * P + i_p, i_f], mask=(t * P + i_p < S), dtype=nl.float32)
        peak = nl.max(nl.abs(tile), axis=1, keepdims=True, mask=(t * P + i_p < S))
        peak = nl.maximum(peak, 1e-5, mask=(t * P + nl.arange(P)[:, None] < S))
        scale = nl.multiply(peak, 1.0 / limit)
        inverse = nisa.reciprocal(scale, mask=(t * P + nl.arange(P)[:, None] < S))
        scaled = nisa.tensor_scalar(tile, np.multiply, inverse, op1=np.minimum, operand1=limit,
                                    mask=(t * P + i_p < S), dtype=dtype)
        nl.store(q[t * P + i_p, i_f], value=scaled, mask=(t * P + i_p < S))
        nl.store(scales[t * P + nl.arange(P)[:, None], nl.arange(1)[None, :]], value=scale,
                 mask=(t * P + nl.arange(P)[:, None] < S))
    return q, scales


def measured_layers():
    """Times and values of the layers, as a script of the beta generation takes them."""
    r = np.random.default_rng(3)
    x = r.standard_normal((64, 256)).astype(np.float32)
    w = [0.1 * r.standard_normal(shape).astype(np.float32) for shape in ((256, 200), (256, 200), (200, 256))]
    out = np.zeros((64, 256), np.float32)
    baremetal(gated_mlp_by_reference)(x, *w, out)
    timed = benchmark(warmup=2, iters=5, save_neff_name="quantized.neff")(quantized_rows)
    timed(x)
    p50 = timed.benchmark_result.nc_latency.get_latency_percentile(50)
    q, scales = nki.simulate_kernel(quantized_rows, x)
    return out, p50, q, scales


def cases():
    r = np.random.default_rng(17)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    mask = lambda *s: (r.random(s) < 0.8).astype(np.uint8)
    qkv = (f(2, 100, 256), f(256), 0.1 * f(256, 96))
    return [(fused_qkv[2], qkv),
            (fused_qkv[1], qkv),
            (attend_with_cache, (f(32, 64), f(600, 64), f(600, 64), f(4, 64), f(4, 64), mask(32, 600), mask(32, 4))),
            (rotate_half[2], (f(280, 2, 32), f(280, 16), f(280, 16))),
            (rotate_half, (f(130, 2, 32), f(130, 16), f(130, 16))),
            (write_cache_rows, (f(6, 48), r.integers(0, 64, (6, 1)).astype(np.int32), f(6 * 64, 48))),
            (gated_mlp_by_reference, (f(64, 256), 0.1 * f(256, 200), 0.1 * f(256, 200), 0.1 * f(200, 256),
                                      np.zeros((64, 256), np.float32))),
            (quantized_rows, (f(150, 96),)),
            (partial(quantized_rows, dtype=nl.float8_e5m2, limit=57344.0), (f(20, 33),))]

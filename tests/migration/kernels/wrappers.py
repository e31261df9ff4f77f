# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Wrappers, SPMD, tuning scripts, dtypes by strings, helpers with kwargs, seq parallel pieces."""
from __future__ import annotations

import enum
import math

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc import nki
from neuronxcc.nki.language import load, psum, sbuf, shared_hbm, store

P = 128


class ActFn(enum.Enum):
    SiLU = 'silu'
    GELU = 'gelu'


def get_act(fn: ActFn):
    if fn == ActFn.SiLU:
        return nl.silu
    return nl.gelu


def _tile_info(n, tile):
    full, tail = divmod(n, tile)
    return full, tail, full + (1 if tail else 0)


@nki.jit(mode="trace")
def _load_weight(w, r0, c0, nr, nc, *, dtype=None):
    """A tile of a weight; both sizes are exact."""
    return nl.load(w[nl.ds(r0, nr), nl.ds(c0, nc)], dtype=dtype or w.dtype)


@nki.jit
def gated_mlp_tkg(x, wg, wu, wd, act: ActFn = ActFn.SiLU):
    """Token generation: T tokens in the free dimension of the stationary operand."""
    T, H = x.shape
    H2, I = wg.shape
    assert H == H2, f"{H=} {H2=}"
    assert T <= P and H % P == 0
    out = nl.ndarray((T, H), dtype=x.dtype, buffer=shared_hbm)
    xT = nl.ndarray((nl.par_dim(P), H // P, T), dtype=x.dtype, buffer=sbuf)
    x_sb = load(x)
    for h in range(H // P):
        xT[:, h, :] = nisa.tensor_copy(nisa.nc_transpose(x_sb[:, h * P:(h + 1) * P]))
    full, tail, n = _tile_info(I, P)
    y = nl.zeros((T, H), dtype=nl.float32, buffer=sbuf)
    for i in range(n):
        size = P if i < full else tail
        g = nl.zeros((size, T), dtype=nl.float32, buffer=psum)
        u = nl.zeros((size, T), dtype=nl.float32, buffer=psum)
        for h in range(H // P):
            g[...] += nisa.nc_matmul(_load_weight(wg, h * P, i * P, P, size), xT[:, h, :])
            u[...] += nisa.nc_matmul(_load_weight(wu, h * P, i * P, P, size), xT[:, h, :])
        a = nisa.activation(get_act(act), g)
        hid = nisa.tensor_tensor(a, u, nl.multiply, dtype=x.dtype)
        y += nl.matmul(hid, _load_weight(wd, i * P, 0, size, H), transpose_x=True)
    store(out, y)
    return out


@nki.jit
def softmax_online(x, tile: int = 32):
    """Running maximum and sum over tiles of a row, two passes."""
    R, C = x.shape
    out = nl.ndarray((R, C), x.dtype, buffer=shared_hbm)
    n = math.ceil(C / tile)
    for r in nl.affine_range(math.ceil(R / P)):
        ip = nl.arange(P)[:, None]
        ic = nl.arange(tile)[None, :]
        m = nl.full((P, 1), fill_value=-np.inf, dtype=nl.float32, buffer=sbuf)
        s = nl.zeros((P, 1), dtype=nl.float32)
        for c in nl.sequential_range(n):
            mk = (r * P + ip < R) & (c * tile + ic < C)
            t = nl.load(x[r * P + ip, c * tile + ic], mask=mk)
            mx = nl.max(t, axis=[1], mask=mk)
            new = nl.maximum(m, mx)
            corr = nl.exp(m - new)
            e = nl.exp(nl.subtract(t, new, mask=mk), mask=mk)
            s[...] = s * corr + nl.sum(e, axis=1, mask=mk)
            m[...] = new
        inv = 1.0 / s
        for c in nl.affine_range(n):
            mk = (r * P + ip < R) & (c * tile + ic < C)
            t = nl.load(x[r * P + ip, c * tile + ic], mask=mk)
            y = nl.exp(t - m, mask=mk) * inv
            nl.store(out[r * P + ip, c * tile + ic], y, mask=mk)
    return out


@nki.jit
def split_qkv(qkv, n_q: int, n_kv: int, d: int):
    """[T, (n_q + 2 n_kv) d] -> q, k, v as [heads, d, T] by transposes."""
    T, F = qkv.shape
    assert F == (n_q + 2 * n_kv) * d
    q = nl.ndarray((n_q, d, T), dtype=qkv.dtype, buffer=nl.shared_hbm)
    k = nl.ndarray((n_kv, d, T), dtype=qkv.dtype, buffer=nl.shared_hbm)
    v = nl.ndarray((n_kv, T, d), dtype=qkv.dtype, buffer=nl.shared_hbm)
    outs = {"q": (q, 0, n_q), "k": (k, n_q * d, n_kv)}
    for t in nl.affine_range(T // P):
        tile = nl.load(qkv[t * P:(t + 1) * P, :])
        for name in ("q", "k"):
            dst, start, heads = outs[name]
            for h in range(heads):
                tr = nl.transpose(tile[:, start + h * d:start + (h + 1) * d])
                nl.store(dst[h, :, t * P:(t + 1) * P], tr)
        for h in range(n_kv):
            c = (n_q + n_kv + h) * d
            nl.store(v[h, t * P:(t + 1) * P, :], tile[:, c:c + d])
    return q, k, v


@nki.jit
def dequant_int8_matmul(xT, w_q, scale):
    """x^T [K, M] float32, w int8 [K, N], scale [1, N]."""
    K, M = xT.shape
    _, N = w_q.shape
    out = nl.ndarray((M, N), dtype=xT.dtype, buffer=nl.hbm)
    acc = nl.zeros((M, N), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(K // P):
        w = nl.load(w_q[k * P:(k + 1) * P, 0:N])
        w_f = nl.copy(w, dtype=xT.dtype)
        acc += nl.matmul(nl.load(xT[k * P:(k + 1) * P, :]), w_f, transpose_x=True)
    sc = nl.load(scale)
    res = nl.multiply(acc, sc.broadcast_to((M, N)))
    nl.store(out, value=res)
    return out


@nki.jit
def spmd_rows_two_cores(x):
    """Half of the rows for each core."""
    R, C = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    n = nl.num_programs(0)
    per = R // n
    t = nl.load(x[nl.ds(core * per, per), :])
    nl.store(out[nl.ds(core * per, per), :], nl.gelu(t))
    return out


@nki.jit
def kv_update(cache: nl.tensor if hasattr(nl, 'tensor') else None, new, pos):
    """Read the position at run time, return a new cache."""
    S, D = cache.shape
    out = nl.ndarray((S, D), dtype=cache.dtype, buffer=nl.shared_hbm)
    c = nl.load(cache)
    nl.store(out, c)
    p = nl.load(pos)
    n = nl.load(new)
    nl.store(out[p[0, 0], nl.arange(D)[None, :]], value=n)
    return out


@nki.jit
def arg_max_rows(x):
    """The first index of each row's maximum, by max8 and nc_find_index8."""
    R, C = x.shape
    idx = nl.ndarray((R, 1), dtype=nl.uint32, buffer=nl.shared_hbm)
    t = nl.load(x)
    top = nisa.max8(src=t)
    i8 = nisa.nc_find_index8(data=t, vals=top)
    nl.store(idx, i8[:, 0:1])
    return idx


def main(k=None):
    x = np.random.rand(256, 64).astype(np.float32)
    a = nki.simulate_kernel(nki.trace(spmd_rows_two_cores)[nl.nc(2)], x)
    b = nki.simulate_kernel(softmax_online, x, tile=16)
    kernel = nki.baremetal(save_neff_name="a.neff")(softmax_online)
    c = kernel(x)
    bench = nki.benchmark(warmup=1, iters=2, save_neff_name='file.neff', save_trace_name='profile.ntff')(softmax_online)
    bench(x)
    return a, b, c


def cases():
    r = np.random.default_rng(0)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    return [(gated_mlp_tkg, (f(16, 256), f(256, 200), f(256, 200), f(200, 256))),
            (gated_mlp_tkg, (f(16, 256), f(256, 128), f(256, 128), f(128, 256), ActFn.GELU)),
            (softmax_online, (f(150, 100),)), (split_qkv, (f(256, 128), 4, 2, 16)),
            (dequant_int8_matmul, (f(256, 64), r.integers(-99, 99, (256, 48)).astype(np.int8), f(1, 48))),
            (spmd_rows_two_cores[2], (f(256, 64),)),
            (kv_update, (f(64, 32), f(1, 32), np.array([[5]], np.int32))), (arg_max_rows, (f(64, 40),))]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation with helpers, lists of tiles, options and grids, as public repositories have them."""
import functools
import math
from dataclasses import dataclass

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
from neuronxcc.nki.language import par_dim


@dataclass(frozen=True)
class AttnConfig:
    q_tile: int = 128
    kv_tile: int = 128
    use_scale: bool = True


def ceil_div(a, b):
    return (a + b - 1) // b


@nki.jit(mode="trace")
def _transpose_tile(tile, dtype):
    res = nl.ndarray((par_dim(128), 128), dtype=dtype)
    res[...] = nl.copy(nisa.nc_transpose(tile), dtype=dtype)
    return res


@nki.jit
def attn_fwd_small_head(q_ref, k_ref, v_ref, config=AttnConfig()):
    bs, seqlen, d_head = q_ref.shape
    out_ref = nl.ndarray((bs, seqlen, d_head), dtype=q_ref.dtype, buffer=nl.shared_hbm)
    b = nl.program_id(axis=0)
    scale = 1.0 / math.sqrt(d_head) if config.use_scale else 1.0
    n_q, n_kv = ceil_div(seqlen, config.q_tile), ceil_div(seqlen, config.kv_tile)
    ip_d = nl.arange(d_head)[:, None]
    trans_v = nl.ndarray((n_kv, par_dim(config.kv_tile), d_head), dtype=v_ref.dtype)
    k_local = nl.ndarray((n_kv, par_dim(d_head), config.kv_tile), dtype=k_ref.dtype)
    for i_kv in nl.affine_range(n_kv):
        ip = nl.arange(config.kv_tile)[:, None]
        if_ = nl.arange(d_head)[None, :]
        trans_v[i_kv, ip, if_] = nl.load(v_ref[b, i_kv * config.kv_tile + ip, if_])
        k_local[i_kv, ip_d, nl.arange(config.kv_tile)[None, :]] = nl.load_transpose2d(
            k_ref[b, i_kv * config.kv_tile + nl.arange(config.kv_tile)[:, None], nl.arange(d_head)[None, :]])
    for i_q in nl.affine_range(n_q):
        q_local = nl.load_transpose2d(q_ref[b, i_q * 128 + nl.arange(128)[:, None], nl.arange(d_head)[None, :]])
        q_local = nl.multiply(q_local, scale)
        qk_res = nl.ndarray((par_dim(128), seqlen), dtype=np.float32)
        neg_max = nl.ndarray((par_dim(128), n_kv), dtype=np.float32)
        for i_kv in nl.affine_range(n_kv):
            qk_psum = nl.zeros((par_dim(128), config.kv_tile), dtype=np.float32, buffer=nl.psum)
            qk_psum[:, :] += nisa.nc_matmul(moving=k_local[i_kv], stationary=q_local)
            qk_res[:, nl.ds(i_kv * config.kv_tile, config.kv_tile)] = nl.copy(qk_psum[:, :])
            neg_max[:, i_kv] = nisa.tensor_reduce(np.max, data=qk_res[:, nl.ds(i_kv * config.kv_tile, config.kv_tile)],
                                                  axis=(1,), dtype=np.float32, negate=False)
        final_max = nisa.tensor_reduce(np.max, data=neg_max, axis=(1,), dtype=np.float32, negate=True)
        sums = nl.ndarray((par_dim(128), 1), dtype=np.float32)
        exp_res = nisa.activation(np.exp, data=qk_res, bias=final_max, scale=1.0)
        sums[...] = nisa.tensor_reduce(np.add, data=exp_res, axis=(1,), dtype=np.float32)
        recip = nl.divide(1.0, sums)
        out_psum = nl.zeros((par_dim(128), d_head), dtype=np.float32, buffer=nl.psum)
        for i_kv in nl.affine_range(n_kv):
            p_t = _transpose_tile(exp_res[:, nl.ds(i_kv * config.kv_tile, config.kv_tile)], v_ref.dtype)
            out_psum += nisa.nc_matmul(moving=trans_v[i_kv], stationary=p_t)
        res = nl.multiply(out_psum, recip)
        nl.store(out_ref[b, nl.ds(i_q * 128, 128), :], value=res)
    return out_ref



@nki.jit
def tensor_split_kernel_(in_tensor):
    X_SIZE, Y_SIZE = in_tensor.shape
    out_tensor_even = nl.ndarray((X_SIZE, Y_SIZE // 2), dtype=in_tensor.dtype, buffer=nl.shared_hbm)
    out_tensor_odd = nl.ndarray((X_SIZE, Y_SIZE // 2), dtype=in_tensor.dtype, buffer=nl.shared_hbm)
    in_tile = nl.load(in_tensor)
    out_tile_even = nl.ndarray((X_SIZE, Y_SIZE // 2), dtype=in_tensor.dtype, buffer=nl.sbuf)
    out_tile_odd = nl.ndarray((X_SIZE, Y_SIZE // 2), dtype=in_tensor.dtype, buffer=nl.sbuf)
    i_p, i_f = nl.mgrid[0:X_SIZE, 0:Y_SIZE // 2]
    out_tile_even[i_p, i_f] = nl.copy(in_tile[i_p, 2 * i_f])
    out_tile_odd[i_p, i_f] = nl.copy(in_tile[i_p, 2 * i_f + 1])
    nl.store(out_tensor_even, value=out_tile_even)
    nl.store(out_tensor_odd, value=out_tile_odd)
    return out_tensor_even, out_tensor_odd



ACT = {"silu": nl.silu, "gelu": nl.gelu}


@nki.jit
def gated_mlp(x_t, w_gate, w_up, w_down, *, act="silu"):
    """x_t [H, T], w_gate and w_up [H, I], w_down [I, H]; returns [T, H]."""
    H, T = x_t.shape
    _, I = w_gate.shape
    out = nl.ndarray((T, H), dtype=x_t.dtype, buffer=nl.shared_hbm)
    act_fn = ACT[act]
    x_sb = nl.load(x_t)
    gate_w = nl.load(w_gate)
    up_w = nl.load(w_up)
    down_w = nl.ndarray((I // 128, nl.par_dim(128), H), dtype=w_down.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(I // 128):
        down_w[i] = nl.load(w_down[nl.ds(i * 128, 128), :])
    acc = nl.zeros((T, H), nl.float32, buffer=nl.psum)
    for i in nl.affine_range(I // 128):
        g = nisa.nc_matmul(gate_w[:, nl.ds(i * 128, 128)], x_sb)
        u = nisa.nc_matmul(up_w[:, nl.ds(i * 128, 128)], x_sb)
        a = nisa.activation(act_fn, g, dtype=nl.float32)
        h = nl.multiply(a, u, dtype=x_t.dtype)
        acc += nisa.nc_matmul(h, down_w[i])
    nl.store(out, value=acc)
    return out



@nki.jit
def update_kv_cache(cache: nt.mutable_tensor, new, slot: int, scale=None):
    heads, length, dim = cache.shape
    for h in nl.affine_range(heads):
        row = nl.load(new[h, nl.arange(1)[:, None], nl.arange(dim)[None, :]])
        if scale is not None:
            row = nl.multiply(row, scale)
        nl.store(cache[h, slot + nl.arange(1)[:, None], nl.arange(dim)[None, :]], row)
    return cache



def _scale_by(tile, factor):
    return nl.multiply(tile, factor)


_double = functools.partial(_scale_by, factor=2.0)


@nki.jit
def transpose_and_double(x):
    n, d = x.shape
    out = nl.ndarray((d, n), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(n // 128):
        for j in nl.affine_range(d // 128):
            t = nl.load(x[i * 128:(i + 1) * 128, j * 128:(j + 1) * 128])
            tt = nl.transpose(t)
            nl.store(out[j * 128:(j + 1) * 128, i * 128:(i + 1) * 128], value=_double(tt))
    return out



@nki.jit
def windowed_scores(q, k, window=32):
    """q [d, n], k [d, n]; out [n, n] scores, -1e9 outside."""
    d, n = q.shape
    out = nl.ndarray((n, n), dtype=nl.float32, buffer=nl.shared_hbm)
    q_sb, k_sb = nl.load(q), nl.load(k)
    i_q = nl.arange(128)[:, None]
    i_k = nl.arange(n)[None, :]
    for i in nl.affine_range(n // 128):
        s = nisa.nc_matmul(q_sb[:, nl.ds(i * 128, 128)], k_sb)
        sb = nl.copy(s)
        sb = nisa.affine_select(pred=(i * 128 + i_q >= i_k), on_true_tile=sb, on_false_value=-1e9, dtype=nl.float32)
        sb = nisa.affine_select(pred=(i * 128 + i_q - i_k < window), on_true_tile=sb, on_false_value=-1e9,
                                dtype=nl.float32)
        nl.store(out[i * 128 + i_q, i_k], sb)
    return out


def cases():
    r = np.random.default_rng(0)
    def f(*s): return r.standard_normal(s).astype(np.float32)
    return [(attn_fwd_small_head[2], (f(2, 256, 64), f(2, 256, 64), f(2, 256, 64))),
            (tensor_split_kernel_, (f(64, 48),)),
            (gated_mlp, (f(64, 96), f(64, 256), f(64, 256), f(256, 64))),
            (update_kv_cache, (f(4, 16, 32), f(4, 1, 32), 3, 0.5)),
            (transpose_and_double, (f(256, 128),)),
            (windowed_scores, (f(64, 256), f(64, 256)))]

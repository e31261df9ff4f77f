# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recurrences and convolutions: scans over states, online softmax, shifted tokens, strided taps, packed bits."""
import math

import numpy as np
from neuronxcc import nki
from neuronxcc.nki import isa as nisa
from neuronxcc.nki import language as nl
from neuronxcc.nki.typing import mutable_tensor


class ScanParams:
    """Sizes of a scan, computed once."""

    def __init__(self, channels, states, seq):
        self.channels, self.states, self.seq = channels, states, seq
        self.channel_tiles = -(-channels // 128)

    def last(self, t):
        return min(128, self.channels - t * 128)


@nki.jit
def selective_scan_states(dt, u, A, B, C, D):
    """A state space model: a loop over states, channels in partitions."""
    channels, seq = dt.shape
    states = A.shape[1]
    p = ScanParams(channels, states, seq)
    y = nl.ndarray((channels, seq), dtype=dt.dtype, buffer=nl.shared_hbm)
    for t in nl.affine_range(p.channel_tiles):
        i_c = nl.arange(128)[:, None]
        i_t = nl.arange(seq)[None, :]
        dt_i = nl.load(dt[t * 128 + i_c, i_t], mask=(t * 128 + i_c < channels))
        u_i = nl.load(u[t * 128 + i_c, i_t], mask=(t * 128 + i_c < channels))
        du = nisa.tensor_tensor(dt_i, u_i, op=np.multiply, mask=(t * 128 + i_c < channels))
        acc = nl.zeros((nl.par_dim(128), seq), dtype=nl.float32)
        for n in nl.sequential_range(states):
            a_i = nl.load(A[t * 128 + i_c, n], mask=(t * 128 + i_c < channels))
            dA = nisa.activation(op=nl.exp, data=dt_i, scale=a_i, mask=(t * 128 + i_c < channels))
            b_row = nl.load(B[n:n + 1, :]).broadcast_to((128, seq))
            dBu = nisa.tensor_tensor(du, b_row, op=np.multiply, mask=(t * 128 + i_c < channels))
            h = nisa.tensor_tensor_scan(dA, dBu, initial=0, op0=np.multiply, op1=np.add,
                                        mask=(t * 128 + i_c < channels))
            c_row = nl.load(C[n:n + 1, :]).broadcast_to((128, seq))
            acc[i_c, i_t] += nisa.tensor_tensor(h, c_row, op=np.multiply, mask=(t * 128 + i_c < channels))
        d_i = nl.load(D[t * 128 + i_c, nl.arange(1)[None, :]], mask=(t * 128 + i_c < channels))
        skip = nl.multiply(u_i, d_i, mask=(t * 128 + i_c < channels))
        nl.store(y[t * 128 + i_c, i_t], nl.add(acc, skip, mask=(t * 128 + i_c < channels)),
                 mask=(t * 128 + i_c < channels))
    return y


@nki.jit
def online_softmax_attention(q, k, v, scale=None):
    """A running maximum and sum over blocks of keys; grid over batch and heads."""
    B, H, S, D = q.shape
    scale = scale or 1.0 / math.sqrt(D)
    out = nl.ndarray((B, H, S, D), dtype=q.dtype, buffer=nl.shared_hbm)
    b, h = nl.program_id(0), nl.program_id(1)
    bs = 128
    i_d, i_q = nl.mgrid[0:D, 0:bs]
    i_s, i_dd = nl.mgrid[0:bs, 0:D]
    for qi in nl.affine_range(S // bs):
        q_t = nl.load_transpose2d(q[b, h, qi * bs + i_s, i_dd])
        q_s = nl.multiply(q_t, scale)
        m_run = nl.full((nl.par_dim(bs), 1), -3e38, dtype=nl.float32, buffer=nl.sbuf)
        l_run = nl.zeros((nl.par_dim(bs), 1), dtype=nl.float32, buffer=nl.sbuf)
        o_run = nl.zeros((nl.par_dim(bs), D), dtype=nl.float32, buffer=nl.sbuf)
        for ki in nl.sequential_range(S // bs):
            k_t = nl.load_transpose2d(k[b, h, ki * bs + i_s, i_dd])
            v_t = nl.load(v[b, h, ki * bs + i_s, i_dd])
            s_psum = nl.zeros((nl.par_dim(bs), bs), dtype=nl.float32, buffer=nl.psum)
            s_psum[...] += nisa.nc_matmul(q_s, k_t)
            m_new = nl.maximum(m_run, nl.max(s_psum, axis=1, keepdims=True))
            alpha = nisa.activation(op=nl.exp, data=m_run, bias=nl.negative(m_new), scale=1.0)
            p_tile = nisa.activation(op=nl.exp, data=s_psum, bias=nl.negative(m_new), scale=1.0)
            l_run[...] = nl.add(nl.multiply(l_run, alpha), nl.sum(p_tile, axis=1, keepdims=True))
            p_t = nisa.nc_transpose(p_tile)
            pv = nisa.nc_matmul(nl.copy(p_t), v_t)
            o_run[...] = nl.add(nl.multiply(o_run, alpha), pv)
            m_run[...] = nl.copy(m_new)
        nl.store(out[b, h, qi * bs + i_s, i_dd], value=nl.divide(o_run, l_run))
    return out


@nki.jit
def cumulative_sum_by_product(x):
    """A cumulative sum along rows: a product with a triangle of ones, built by affine_select."""
    n, m = x.shape
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    ones = nl.ones((n, n), dtype=nl.float32)
    i_k, i_m = nl.mgrid[0:n, 0:n]
    tri = nisa.affine_select(pred=(i_m >= i_k), on_true_tile=ones[i_k, i_m], on_false_value=0.0)
    ps = nisa.nc_matmul(tri, nl.load(x))
    nl.store(out, ps)
    return out


@nki.jit
def token_shift_mix(x, mix, prev: mutable_tensor):
    """RWKV's token shift: x[t] and x[t - 1], with the last token kept for the next call."""
    seq, c = x.shape
    out = nl.ndarray((seq, c), dtype=x.dtype, buffer=nl.shared_hbm)
    i_s = nl.arange(seq)[:, None]
    i_c = nl.arange(c)[None, :]
    cur = nl.load(x[i_s, i_c])
    shifted = nl.zeros((seq, c), dtype=x.dtype, buffer=nl.sbuf)
    shifted[0:1, :] = nl.load(prev)
    nisa.dma_copy(dst=shifted[1:seq, :], src=x[0:seq - 1, :])
    mu = nl.load(mix.reshape((1, c))).broadcast_to((seq, c))
    mixed = cur * mu + shifted * (1.0 - mu)
    nl.store(out[i_s, i_c], value=mixed)
    nl.store(prev, value=nl.load(x[seq - 1:seq, :]))
    return out, prev


@nki.jit
def conv1d_strided(x, w, bias, stride=2):
    """Channels in partitions; taps as products accumulated in PSUM; strided columns."""
    cin, length = x.shape
    taps, _, cout = w.shape
    out_len = (length - taps) // stride + 1
    out = nl.ndarray((cout, out_len), dtype=x.dtype, buffer=nl.shared_hbm)
    x_sb = nl.load(x)
    b_sb = nl.load(bias)
    i_ci = nl.arange(cin)[:, None]
    i_o = nl.arange(out_len)[None, :]
    acc = nl.zeros((cout, out_len), dtype=nl.float32, buffer=nl.psum)
    for tap in nl.affine_range(taps):
        w_tap = nl.load(w[tap, i_ci, nl.arange(cout)[None, :]])
        acc += nisa.nc_matmul(w_tap, nl.copy(x_sb[i_ci, stride * i_o + tap]))
    y = nisa.activation(op=nl.gelu, data=acc, bias=b_sb)
    nl.store(out, y)
    return out


@nki.jit
def pack_int4(x):
    """Two numbers of four bits in a byte."""
    rows, cols = x.shape
    assert cols % 2 == 0
    out = nl.ndarray((rows, cols // 2), dtype=nl.uint8, buffer=nl.shared_hbm)
    ip = nl.arange(rows)[:, None]
    jf = nl.arange(cols // 2)[None, :]
    t = nl.load(x)
    low = nl.bitwise_and(t[ip, 2 * jf], 0xF)
    high = nl.left_shift(nl.bitwise_and(t[ip, 2 * jf + 1], 0xF), 4)
    nl.store(out[ip, jf], nl.bitwise_or(low, high))
    return out


@nki.jit
def swiglu_with_table(gate, up, kind="silu"):
    """The activation by name."""
    acts = {"silu": nl.silu, "gelu": nl.gelu, "relu": nl.relu}
    act = acts[kind]
    n, f = gate.shape
    out = nl.ndarray((n, f), dtype=gate.dtype, buffer=nl.shared_hbm)
    for t in nl.affine_range(n // 128):
        for c in nl.static_range(f // 64):
            sl = (slice(t * 128, (t + 1) * 128), slice(c * 64, (c + 1) * 64))
            g = nl.load(gate[t * 128:(t + 1) * 128, c * 64:(c + 1) * 64])
            g = act(g) if kind != "none" else g
            nl.store(out[t * 128:(t + 1) * 128, c * 64:(c + 1) * 64],
                     g * nl.load(up[t * 128:(t + 1) * 128, c * 64:(c + 1) * 64]))
    return out


@nki.jit
def gather_add_scatter(table, ids, update):
    """Rows by index, an addition, and the rows back: an embedding's update."""
    n, d = update.shape
    out = nl.ndarray(table.shape, dtype=table.dtype, buffer=nl.shared_hbm)
    ix = nl.arange(n)[:, None]
    iy = nl.arange(d)[None, :]
    for t in nl.affine_range(table.shape[0] // 128):
        nl.store(out[t * 128:(t + 1) * 128, :], nl.load(table[t * 128:(t + 1) * 128, :]))
    idx = nl.load(ids)
    rows = nl.ndarray((n, d), dtype=table.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows[ix, iy], src=table[idx[ix, 0], iy])
    new = nl.add(rows, nl.load(update))
    nisa.dma_copy(dst=out[idx[ix, 0], iy], src=new[ix, iy])
    return out


def cases():
    r = np.random.default_rng(0)
    def f(*s):
        return r.standard_normal(s).astype(np.float32)
    return [(selective_scan_states, (np.abs(f(160, 64)), f(160, 64), -np.abs(f(160, 4)), f(4, 64), f(4, 64), f(160, 1))),
            (online_softmax_attention[2, 2], (f(2, 2, 256, 32), f(2, 2, 256, 32), f(2, 2, 256, 32))),
            (cumulative_sum_by_product, (f(64, 48),)),
            (token_shift_mix, (f(64, 48), np.abs(f(48)), f(1, 48))),
            (conv1d_strided, (f(32, 65), f(3, 32, 48), f(48, 1))),
            (pack_int4, (r.integers(0, 16, (64, 32)).astype(np.uint8),)),
            (swiglu_with_table, (f(256, 128), f(256, 128)), {"kind": "gelu"}),
            (gather_add_scatter, (f(256, 16), r.permutation(256)[:64].astype(np.int32)[:, None], f(64, 16)))]

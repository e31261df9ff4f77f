# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation for single layers: attention, convolutions, positions, norms, sparse products, sampling."""

import functools
import math
from dataclasses import dataclass

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim

PMAX = nl.tile_size.pmax


@nki.jit
def causal_attention(q_ref, k_ref, v_ref, softmax_scale=None, use_causal_mask=True):
    """q, k: (d, seq); v: (seq, d). Returns (seq, d)."""
    d, seqlen_q = q_ref.shape
    _, seqlen_k = k_ref.shape
    assert d <= nl.tile_size.pmax
    kernel_dtype = nl.bfloat16 if q_ref.dtype == nl.bfloat16 else np.float32
    acc_type = np.dtype(np.float32)
    softmax_scale = softmax_scale or (1.0 / math.sqrt(d))
    out_ref = nl.ndarray((seqlen_q, d), dtype=q_ref.dtype, buffer=nl.shared_hbm)

    B_P_SIZE = nl.tile_size.pmax
    B_F_SIZE = nl.tile_size.gemm_moving_fmax
    n_q = seqlen_q // B_P_SIZE
    n_k = seqlen_k // B_F_SIZE
    n_sub = B_F_SIZE // B_P_SIZE

    i_q_p = nl.arange(B_P_SIZE)[:, None]
    i_q_f = nl.arange(B_P_SIZE)[None, :]
    i_d_p = nl.arange(d)[:, None]
    i_d_f = nl.arange(d)[None, :]
    i_k_f = nl.arange(B_F_SIZE)[None, :]

    v_local = nl.ndarray((seqlen_k // B_P_SIZE, par_dim(B_P_SIZE), d), dtype=kernel_dtype)
    for i in nl.affine_range(seqlen_k // B_P_SIZE):
        v_local[i, i_q_p, i_d_f] = nl.load(v_ref[i * B_P_SIZE + i_q_p, i_d_f], dtype=kernel_dtype)

    for iq in nl.affine_range(n_q):
        q_tile = nl.load(q_ref[i_d_p, iq * B_P_SIZE + i_q_f], dtype=kernel_dtype)
        q_tile = nl.multiply(q_tile, softmax_scale, dtype=kernel_dtype)
        scores = nl.ndarray((par_dim(B_P_SIZE), seqlen_k), dtype=acc_type, buffer=nl.sbuf)
        neg_max = nl.full((par_dim(B_P_SIZE), n_k), fill_value=9984.0, dtype=acc_type, buffer=nl.sbuf)
        for ik in nl.affine_range(n_k):
            k_tile = nl.load(k_ref[i_d_p, ik * B_F_SIZE + i_k_f], dtype=kernel_dtype)
            qk_psum = nl.zeros((par_dim(B_P_SIZE), B_F_SIZE), dtype=np.float32, buffer=nl.psum)
            qk_psum[i_q_p, i_k_f] += nl.matmul(q_tile, k_tile, transpose_x=True)
            if use_causal_mask:
                scores[i_q_p, ik * B_F_SIZE + i_k_f] = nisa.affine_select(
                    pred=(iq * B_P_SIZE + i_q_p >= ik * B_F_SIZE + i_k_f),
                    on_true_tile=qk_psum[i_q_p, i_k_f], on_false_value=-9984.0, dtype=acc_type)
            else:
                scores[i_q_p, ik * B_F_SIZE + i_k_f] = nl.copy(qk_psum[i_q_p, i_k_f], dtype=acc_type)
            neg_max[i_q_p, ik] = nisa.tensor_reduce(np.max, data=scores[i_q_p, ik * B_F_SIZE + i_k_f], axis=(1,),
                                                     dtype=acc_type, negate=True)
        row_max = nisa.tensor_reduce(np.min, data=neg_max[i_q_p, nl.arange(n_k)[None, :]], axis=(1,), dtype=acc_type)
        row_sum = nl.zeros((par_dim(B_P_SIZE), n_k), dtype=acc_type)
        acc = nl.zeros((par_dim(B_P_SIZE), d), dtype=np.float32, buffer=nl.psum)
        for ik in nl.affine_range(n_k):
            p_local = nl.ndarray((par_dim(B_P_SIZE), B_F_SIZE), dtype=kernel_dtype)
            p_local[i_q_p, i_k_f] = nisa.activation_reduce(
                np.exp, scores[i_q_p, ik * B_F_SIZE + i_k_f], bias=row_max, scale=1.0, reduce_op=np.add,
                reduce_res=row_sum[:, ik], dtype=kernel_dtype)
            for s in nl.affine_range(n_sub):
                p_t = nisa.nc_transpose(p_local[i_q_p, s * B_P_SIZE + i_q_f])
                p_sb = nl.copy(p_t, dtype=kernel_dtype)
                acc[i_q_p, i_d_f] += nisa.nc_matmul(p_sb, v_local[ik * n_sub + s, i_q_p, i_d_f])
        inv = nl.divide(1.0, nl.sum(row_sum, axis=1))
        res = nl.multiply(acc, inv.broadcast_to((B_P_SIZE, d)), dtype=q_ref.dtype)
        nl.store(out_ref[iq * B_P_SIZE + i_q_p, i_d_f], value=res)
    return out_ref


@nki.jit
def depthwise_conv1d(x, w, bias, padding="causal"):
    """x: [N, C, T], w: [C, K], bias: [C]; each channel on a partition."""
    N, C, T = x.shape
    K = w.shape[1]
    y = nl.ndarray([N, C, T], dtype=x.dtype, buffer=nl.shared_hbm)
    left = K - 1 if padding == "causal" else (K - 1) // 2
    i_c, i_t = nl.mgrid[0:PMAX, 0:T]
    for c in nl.affine_range((C + PMAX - 1) // PMAX):
        ic = nl.arange(PMAX)[:, None]
        taps = nl.load(w[c * PMAX + ic, nl.arange(K)[None, :]], mask=(c * PMAX + ic < C))
        b = nl.load(bias.reshape((C, 1))[c * PMAX + ic, nl.arange(1)[None, :]], mask=(c * PMAX + ic < C))
        for n in nl.affine_range(N):
            padded = nl.zeros((nl.par_dim(PMAX), T + K - 1), dtype=nl.float32, buffer=nl.sbuf)
            padded[i_c, left + i_t] = nl.load(x[n, c * PMAX + i_c, i_t], mask=(c * PMAX + i_c < C))
            acc = nl.zeros((nl.par_dim(PMAX), T), dtype=nl.float32, buffer=nl.sbuf)
            for k in nl.static_range(K):
                acc[i_c, i_t] = nisa.scalar_tensor_tensor(data=padded[i_c, k + i_t], op0=np.multiply,
                                                          operand0=taps[:, k], op1=np.add, operand1=acc[i_c, i_t],
                                                          mask=(c * PMAX + i_c < C))
            out = nisa.activation(op=nl.silu, data=acc, bias=b, mask=(c * PMAX + i_c < C))
            nl.store(y[n, c * PMAX + i_c, i_t], out, mask=(c * PMAX + i_c < C))
    return y


def load_rows(ref, start, rows, cols):
    ip = nl.arange(128)[:, None]
    jf = nl.arange(cols)[None, :]
    return nl.load(ref[start + ip, jf], mask=(start + ip < rows))


@nki.jit
def rope(x, cos, sin, interleaved=False):
    # x: [heads, seq, dim]
    heads, seq, dim = x.shape
    half = dim // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ip = nl.arange(128)[:, None]
    jh = nl.arange(half)[None, :]
    for t in nl.affine_range((seq + 127) // 128):
        c = load_rows(cos, t * 128, seq, half)
        s = load_rows(sin, t * 128, seq, half)
        mask = t * 128 + ip < seq
        for h in nl.affine_range(heads):
            tile = nl.load(x[h, t * 128 + ip, nl.arange(dim)[None, :]], mask=mask)
            res = nl.ndarray((nl.par_dim(128), dim), dtype=x.dtype, buffer=nl.sbuf)
            if interleaved:
                re, im = tile[ip, 2 * jh], tile[ip, 2 * jh + 1]
                res[ip, 2 * jh] = nl.subtract(re * c, im * s, mask=mask)
                res[ip, 2 * jh + 1] = nl.add(re * s, im * c, mask=mask)
            else:
                re, im = tile[:, :half], tile[:, half:]
                res[:, :half] = re * c - im * s
                res[:, half:] = re * s + im * c
            nl.store(out[h, t * 128 + ip, nl.arange(dim)[None, :]], res, mask=mask)
    return out


@nki.jit(mode="trace")
def layer_norm_of_ragged_rows(x_hbm, gamma, beta, eps=1e-5):
    """Statistics in blocks of columns, the last of which is narrower, as are the last rows."""
    num_rows, hidden = x_hbm.shape
    FMAX = nl.tile_size.bn_stats_fmax
    y_hbm = nl.ndarray(x_hbm.shape, dtype=x_hbm.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(nl.tile_size.pmax)[:, None]
    i_f = nl.arange(hidden)[None, :]
    i_one = nl.arange(1)[:, None]
    g = nl.load(gamma.reshape((1, hidden))[i_one, i_f]).broadcast_to((nl.tile_size.pmax, hidden))
    b = nl.load(beta.reshape((1, hidden))[i_one, i_f]).broadcast_to((nl.tile_size.pmax, hidden))
    for i in nl.affine_range(math.ceil(num_rows / nl.tile_size.pmax)):
        row_mask = i * nl.tile_size.pmax + i_p < num_rows
        x = nl.load(x_hbm[i * nl.tile_size.pmax + i_p, i_f], mask=row_mask)
        n_stats = math.ceil(hidden / FMAX)
        stats = nl.ndarray((nl.tile_size.pmax, 6 * n_stats), dtype=nl.float32)
        for j in nl.affine_range(n_stats):
            i_s = nl.arange(FMAX)[None, :]
            stats[i_p, j * 6 + nl.arange(6)[None, :]] = nisa.bn_stats(
                x[i_p, j * FMAX + i_s], mask=row_mask & (j * FMAX + i_s < hidden), dtype=nl.float32)
        aggr = nisa.bn_aggr(stats, mask=row_mask)
        mean, var = aggr[:, 0], aggr[:, 1]
        rstd = nl.rsqrt(var + eps, mask=row_mask)
        norm = nisa.tensor_scalar(x, op0=np.subtract, operand0=mean, op1=np.multiply, operand1=rstd, mask=row_mask)
        y = nl.multiply(norm, g, mask=row_mask)
        y[...] = nl.add(y, b, mask=row_mask)
        nl.store(y_hbm[i * nl.tile_size.pmax + i_p, i_f], value=y, mask=row_mask)
    return y_hbm


@nki.jit
def block_sparse_matmul(blocks, columns, dense):
    """blocks: [R, B, 64, 64] transposed blocks; columns: [R, B] int32; dense: [C * 64, N]."""
    R, B, S, _ = blocks.shape
    N = dense.shape[1]
    out = nl.ndarray((R * S, N), dtype=dense.dtype, buffer=nl.shared_hbm)
    ip = nl.arange(S)[:, None]
    iN = nl.arange(N)[None, :]
    lanes = nisa.iota(ip, dtype=nl.int32)
    for r in nl.affine_range(R):
        cols = nl.load(columns[r:r + 1, :])
        acc = nl.zeros((nl.par_dim(S), N), dtype=nl.float32, buffer=nl.psum)
        for b in nl.affine_range(B):
            block = nl.load(blocks[r, b, ip, nl.arange(S)[None, :]])
            start = nl.multiply(cols[0:1, b:b + 1], S, dtype=nl.int32)
            rows = nl.add(lanes, start.broadcast_to((S, 1)), dtype=nl.int32)
            gathered = nl.load(dense[rows[ip, 0], iN])
            acc += nl.matmul(block, gathered, transpose_x=True)
        nl.store(out[r * S + ip, iN], acc)
    return out


@nki.jit
def embedding_bag(table, ids, valid):
    """Mean of the rows of each bag; ids: [bags, n], rows beyond valid[bag] do not count."""
    bags, n = ids.shape
    V, D = table.shape
    out = nl.ndarray((bags, D), dtype=table.dtype, buffer=nl.shared_hbm)
    ip = nl.arange(128)[:, None]
    jd = nl.arange(D)[None, :]
    for t in nl.affine_range((bags + 127) // 128):
        inside = t * 128 + ip < bags
        idx = nl.load(ids[t * 128 + ip, nl.arange(n)[None, :]], mask=inside)
        cnt = nl.load(valid[t * 128 + ip, nl.arange(1)[None, :]], mask=inside)
        total = nl.zeros((nl.par_dim(128), D), dtype=nl.float32)
        for k in nl.sequential_range(n):
            row = nl.load(table[idx[ip, k], jd], mask=inside)
            use = nl.greater(cnt, k, mask=inside)
            total[ip, jd] = nl.add(total, nl.where(use.broadcast_to((128, D)), row, 0.0), mask=inside)
        mean = nl.divide(total, nl.maximum(cnt, 1), mask=inside)
        nl.store(out[t * 128 + ip, jd], mean, mask=inside)
    return out


@nki.jit
def upsample_bilinear_2x(img):
    """Each row and column between two others is three quarters of the nearer and a quarter of the other."""
    C, H, W = img.shape
    out = nl.ndarray((C, 2 * H, 2 * W), dtype=img.dtype, buffer=nl.shared_hbm)
    ic, ih, iw = nl.mgrid[0:C, 0:H, 0:W]
    src = nl.load(img[ic, ih, iw])
    wide = nl.ndarray((nl.par_dim(C), H, 2 * W), dtype=img.dtype)
    jc, jh, jw = nl.arange(C)[:, None, None], nl.arange(H)[None, :, None], nl.arange(W - 1)[None, None, :]
    a = src[jc, jh, jw]
    b = src[jc, jh, jw + 1]
    wide[jc, jh, 2 * jw + 1] = 0.75 * a + 0.25 * b
    wide[jc, jh, 2 * jw + 2] = 0.25 * a + 0.75 * b
    wide[:, :, 0] = nl.copy(src[:, :, 0])
    wide[:, :, 2 * W - 1] = nl.copy(src[:, :, W - 1])
    for h in nl.static_range(H):
        up = max(h - 1, 0)
        down = min(h + 1, H - 1)
        top = nl.add(nl.multiply(wide[:, up, :], 0.25), nl.multiply(wide[:, h, :], 0.75))
        bottom = nl.add(nl.multiply(wide[:, h, :], 0.75), nl.multiply(wide[:, down, :], 0.25))
        nl.store(out[:, 2 * h, :], top)
        nl.store(out[:, 2 * h + 1, :], bottom)
    return out


@nki.jit
def windowed_softmax(scores, window=40):
    """Softmax of the scores that a query sees: its own position and some before it."""
    n, m = scores.shape
    out = nl.ndarray(scores.shape, dtype=scores.dtype, buffer=nl.shared_hbm)
    ip = nl.arange(PMAX)[:, None]
    jf = nl.arange(m)[None, :]
    for t in nl.affine_range(n // PMAX):
        tile = nl.load(scores[t * PMAX + ip, jf])
        seen = nisa.affine_select(pred=(jf <= t * PMAX + ip), on_true_tile=tile, on_false_value=-30000.0)
        seen = nisa.affine_select(pred=(jf >= t * PMAX + ip - window), on_true_tile=seen, on_false_value=-30000.0)
        top = nl.max(seen, axis=1, keepdims=True)
        e = nl.exp(seen - top)
        nl.store(out[t * PMAX + ip, jf], e / nl.sum(e, axis=1, keepdims=True))
    return out


@dataclass(frozen=True)
class ConvShape:
    height: int
    width: int
    kernel: int = 3
    stride: int = 1

    @property
    def out_height(self):
        return (self.height - self.kernel) // self.stride + 1

    @property
    def out_width(self):
        return (self.width - self.kernel) // self.stride + 1


@nki.jit
def conv2d(img, filters, stride=1):
    """img: [C_in, H, W]; filters: [K, K, C_in, C_out]."""
    c_in, H, W = img.shape
    K, _, _, c_out = filters.shape
    shape = ConvShape(H, W, K, stride)
    oh, ow = shape.out_height, shape.out_width
    out = nl.ndarray((c_out, oh, ow), dtype=img.dtype, buffer=nl.shared_hbm)
    x = nl.load(img)
    w = nl.ndarray((nl.par_dim(c_in), K, K, c_out), dtype=filters.dtype, buffer=nl.sbuf)
    for ky, kx in ((a, b) for a in range(K) for b in range(K)):
        w[:, ky, kx, :] = nl.load(filters[ky, kx])
    i_ci = nl.arange(c_in)[:, None]
    i_ow = nl.arange(ow)[None, :]
    for y in nl.affine_range(oh):
        acc = nl.zeros((nl.par_dim(c_out), ow), dtype=nl.float32, buffer=nl.psum)
        for ky in nl.affine_range(K):
            for kx in nl.affine_range(K):
                acc += nisa.nc_matmul(w[:, ky, kx, :], x[i_ci, y * stride + ky, i_ow * stride + kx])
        nl.store(out[:, y, :], nl.maximum(acc, 0.0))
    return out


@nki.jit
def group_norm(x, gamma, beta, groups: int, eps=1e-5):
    """x: [N, C, L]; statistics over each group of channels."""
    N, C, L = x.shape
    size = C // groups
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    membership = nl.zeros((nl.par_dim(C), groups), dtype=nl.float32)
    for g in nl.static_range(groups):
        ic, ig = nl.mgrid[0:C, 0:1]
        membership[ic, g + ig] = nisa.affine_select(pred=(ic >= g * size), on_true_tile=nl.ones((C, 1), dtype=nl.float32), on_false_value=0.0)
        membership[ic, g + ig] = nisa.affine_select(pred=(ic < (g + 1) * size), on_true_tile=membership[ic, g + ig], on_false_value=0.0)
    back = nl.copy(nl.transpose(membership))
    g_t, b_t = nl.load(gamma.reshape((C, 1))), nl.load(beta.reshape((C, 1)))
    for n in nl.affine_range(N):
        tile = nl.load(x[n])
        sums = nl.ndarray((nl.par_dim(C), 2), dtype=nl.float32)
        sums[:, 0] = nl.sum(tile, axis=1)
        sums[:, 1] = nl.sum(nl.square(tile), axis=1)
        per_group = nl.copy(nl.matmul(membership, sums, transpose_x=True))
        mean = per_group[:, 0:1] / (size * L)
        var = per_group[:, 1:2] / (size * L) - nl.square(mean)
        stats = nl.ndarray((nl.par_dim(groups), 2), dtype=nl.float32)
        stats[:, 0:1] = mean
        stats[:, 1:2] = nl.rsqrt(var + eps)
        wide = nl.copy(nl.matmul(back, stats, transpose_x=True))
        norm = (tile - wide[:, 0:1]) * wide[:, 1:2]
        nl.store(out[n], norm * g_t + b_t)
    return out


@nki.jit
def argmax_rows(logits):
    """The index of the greatest logit of each row, from blocks of 64."""
    R, V = logits.shape
    out = nl.ndarray((R, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    BLOCK = 64
    nb = (V + BLOCK - 1) // BLOCK
    x = nl.load(logits)
    vals = nl.full((R, nb), nl.finfo(nl.float32).min, dtype=nl.float32)
    idxs = nl.zeros((R, nb), dtype=nl.float32)
    for b in nl.static_range(nb):
        lo, hi = b * BLOCK, min((b + 1) * BLOCK, V)
        top = nisa.max8(src=x[:, lo:hi])
        pos = nisa.nc_find_index8(data=x[:, lo:hi], vals=top)
        vals[:, b:b + 1] = top[:, 0:1]
        idxs[:, b:b + 1] = nl.add(nl.copy(pos[:, 0:1], dtype=nl.float32), float(lo))
    best = nl.max(vals, axis=1, keepdims=True)
    candidate = nl.where(nl.equal(vals, best), idxs, nl.full((R, nb), 1e9, dtype=nl.float32))
    first = nl.min(candidate, axis=1, keepdims=True)
    nl.store(out, nl.copy(first, dtype=nl.int32))
    return out


@nki.jit
def accept_drafts(target, draft, uniform):
    """Speculative decoding: how many leading drafts are accepted in each row."""
    R, K = target.shape
    accepted = nl.ndarray((R, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    p, q, u = nl.load(target), nl.load(draft), nl.load(uniform)
    ok = nl.less(u * q, p, dtype=nl.float32)
    ones = nl.ones((R, K), dtype=nl.float32)
    run = nisa.tensor_tensor_scan(ok, ones, initial=1.0, op0=np.multiply, op1=np.multiply)
    nl.store(accepted, nl.sum(run, axis=[1], keepdims=True))
    return accepted


def cases():
    rng = np.random.default_rng(41)

    def floats(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    def numbers(most, *shape):
        return rng.integers(0, most, shape).astype(np.int32)

    q, k, v = floats(32, 512), floats(32, 512), floats(512, 32)
    signal, taps, bias = floats(2, 140, 40), floats(140, 4), floats(140)
    positions = np.arange(150)[:, None] / 10000 ** (np.arange(16)[None, :] / 16)
    rotated = floats(2, 150, 32), np.cos(positions).astype(np.float32), np.sin(positions).astype(np.float32)
    return [(causal_attention, (q, k, v)),
            (functools.partial(causal_attention, use_causal_mask=False, softmax_scale=0.3), (q, k, v)),
            (depthwise_conv1d, (signal, taps, bias)),
            (functools.partial(depthwise_conv1d, padding="same"), (signal, taps, bias)),
            (rope, rotated), (functools.partial(rope, interleaved=True), rotated),
            (layer_norm_of_ragged_rows, (floats(150, 700), floats(700), floats(700))),
            (block_sparse_matmul, (floats(3, 2, 64, 64), np.array([[0, 3], [2, 1], [3, 3]], np.int32), floats(256, 48))),
            (embedding_bag, (floats(50, 32), numbers(50, 150, 5), numbers(6, 150, 1))),
            (upsample_bilinear_2x, (floats(16, 8, 10),)), (windowed_softmax, (floats(256, 64),)),
            (conv2d, (floats(8, 12, 14), floats(3, 3, 8, 16))),
            (functools.partial(conv2d, stride=2), (floats(8, 12, 14), floats(3, 3, 8, 16))),
            (functools.partial(group_norm, groups=4), (floats(2, 32, 40), floats(32), floats(32))),
            (argmax_rows, (floats(16, 150),)), (accept_drafts, tuple(abs(floats(12, 5)) for _ in range(3)))]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scans, losses, norms and choices in pieces, in the beta generation: what one piece leaves, the next one continues."""
from math import prod

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import affine_range, par_dim, sequential_range

P = 128
VOCAB_TILE = 64


@nki.jit
def cross_entropy_in_chunks(logits, labels, ignore_index=-100, label_smoothing=0.0):
    """logits [N, V], labels int32 [N, 1]: losses [N, 1] and logarithms of sums [N, 1]; pieces of the vocabulary update
    a running maximum and a running sum; rows whose label is ignored have no loss."""
    N, V = logits.shape
    losses = nl.ndarray((N, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    lse_out = nl.ndarray((N, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    n_chunks = (V + VOCAB_TILE - 1) // VOCAB_TILE
    ix = nl.arange(P)[:, None]
    iv = nl.arange(VOCAB_TILE)[None, :]
    for t in affine_range((N + P - 1) // P):
        rows = t * P + ix < N
        label = nl.load(labels[t * P + ix, 0], mask=rows)
        label_f = nl.copy(label, dtype=nl.float32, mask=rows)
        m = nl.full((par_dim(P), 1), -3.0e38, dtype=nl.float32, buffer=nl.sbuf)
        s = nl.zeros((par_dim(P), 1), dtype=nl.float32, buffer=nl.sbuf)
        picked = nl.zeros((par_dim(P), 1), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.zeros((par_dim(P), 1), dtype=nl.float32, buffer=nl.sbuf)
        for c in sequential_range(n_chunks):
            seen = rows & (c * VOCAB_TILE + iv < V)
            x = nl.load(logits[t * P + ix, c * VOCAB_TILE + iv], mask=seen, dtype=nl.float32)
            chunk_max = nisa.tensor_reduce(np.max, x, axis=(1,), mask=seen)
            new_m = nl.maximum(m, chunk_max, mask=rows)
            shrink = nisa.activation(np.exp, m, bias=nl.negative(new_m, mask=rows), mask=rows)
            e = nl.exp(nl.subtract(x, new_m, mask=seen), mask=seen)
            s[ix, 0] = nl.add(nl.multiply(s, shrink, mask=rows), nl.sum(e, axis=[1], mask=seen), mask=rows)
            column = nisa.iota(c * VOCAB_TILE + iv + 0 * ix, dtype=nl.float32)
            hit = nl.equal(column, label_f, mask=rows, dtype=nl.float32)
            picked[ix, 0] += nl.sum(nl.multiply(x, hit, mask=seen), axis=[1], mask=seen)
            total[ix, 0] += nl.sum(x, axis=[1], mask=seen)
            m[ix, 0] = nl.copy(new_m, mask=rows)
        lse = nl.add(nl.log(s, mask=rows), m, mask=rows)
        loss = nl.subtract(lse, picked, mask=rows)
        if label_smoothing:
            smooth = nl.subtract(lse, nl.multiply(total, 1.0 / V, mask=rows), mask=rows)
            loss = nl.add(nl.multiply(loss, 1 - label_smoothing, mask=rows),
                          nl.multiply(smooth, label_smoothing, mask=rows), mask=rows)
        counts = nl.not_equal(label_f, float(ignore_index), dtype=nl.float32, mask=rows)
        nl.store(losses[t * P + ix, 0], value=nl.multiply(loss, counts, mask=rows), mask=rows)
        nl.store(lse_out[t * P + ix, 0], value=lse, mask=rows)
    return losses, lse_out


@nki.jit
def batch_norm_inference_and_stats(x, gamma, beta, eps=1e-5):
    """x [N, C, L], gamma and beta [C, 1]: channels on partitions, statistics by bn_stats in pieces of bn_stats_fmax."""
    N, C, L = x.shape
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    stats_out = nl.ndarray((C, 2), dtype=nl.float32, buffer=nl.shared_hbm)
    fmax = min(nl.tile_size.bn_stats_fmax, L)
    pieces = L // fmax
    x_sb = nl.ndarray((par_dim(C), N, L), dtype=x.dtype, buffer=nl.sbuf)
    stats = nl.ndarray((par_dim(C), N * pieces, 6), dtype=nl.float32, buffer=nl.sbuf)
    for n in affine_range(N):
        x_sb[:, n, :] = nl.load(x[n, :, :])
        for k in affine_range(pieces):
            stats[:, n * pieces + k, :] = nisa.bn_stats(x_sb[:, n, k * fmax:(k + 1) * fmax], dtype=nl.float32)
    mean_var = nisa.bn_aggr(stats)
    g, b = nl.load(gamma), nl.load(beta)
    inv = nl.rsqrt(mean_var[:, 1] + eps)
    scale = g * inv
    shift = b - mean_var[:, 0] * scale
    for n in affine_range(N):
        result = nisa.tensor_scalar(x_sb[:, n, :], op0=np.multiply, operand0=scale, op1=np.add, operand1=shift)
        nl.store(y[n], value=result)
    nl.store(stats_out, value=mean_var)
    return y, stats_out


@nki.jit
def top_k_rows(scores, k: int = 20, descending=True):
    """scores [R, C]: the k largest (or smallest) of each row and their columns, eight in a round; k need not be a
    multiple of eight."""
    R, C = scores.shape
    values = nl.ndarray((R, k), dtype=scores.dtype, buffer=nl.shared_hbm)
    columns = nl.ndarray((R, k), dtype=nl.uint32, buffer=nl.shared_hbm)
    sign = 1.0 if descending else -1.0
    for r in affine_range((R + P - 1) // P):
        num = min(P, R - r * P)
        work = nl.load(scores[nl.ds(r * P, num), :])
        work = nl.multiply(work, sign)
        for i in nl.static_range((k + 7) // 8):
            width = min(8, k - 8 * i)
            eight = nisa.max8(src=work)
            index = nisa.nc_find_index8(data=work, vals=eight)
            work[...] = nisa.nc_match_replace8(data=work, vals=eight, imm=-3.0e38)
            nl.store(values[nl.ds(r * P, num), nl.ds(8 * i, width)], value=nl.multiply(eight[:, 0:width], sign))
            nl.store(columns[nl.ds(r * P, num), nl.ds(8 * i, width)], value=index[:, 0:width])
    return values, columns


@nki.jit
def wkv_recurrence(k, v, w, u, piece=32):
    """k, v [C, T], decays w [C, 1], bonus u [C, 1]: a weighted mean of the values so far; numerator and denominator are
    scans of T steps, whose state goes from piece to piece."""
    C, T = k.shape
    out = nl.ndarray((C, T), dtype=nl.float32, buffer=nl.shared_hbm)
    decay = nl.exp(-1.0 * nl.exp(nl.load(w)))
    bonus = nl.exp(nl.load(u))
    decays = decay.broadcast_to((C, piece))
    num = nl.zeros((par_dim(C), 1), dtype=nl.float32)
    den = nl.zeros((par_dim(C), 1), dtype=nl.float32)
    for i in sequential_range(T // piece):
        part = nl.ds(i * piece, piece)
        e = nl.exp(nl.load(k[:, part]))
        v_t = nl.load(v[:, part])
        ev = e * v_t
        nums = nl.ndarray((C, piece + 1), dtype=nl.float32)
        dens = nl.ndarray((C, piece + 1), dtype=nl.float32)
        nums[:, 0:1] = num
        dens[:, 0:1] = den
        nums[:, 1:] = nisa.tensor_tensor_scan(decays, ev, initial=num, op0=nl.multiply, op1=nl.add)
        dens[:, 1:] = nisa.tensor_tensor_scan(decays, e, initial=den, op0=nl.multiply, op1=nl.add)
        above = nisa.scalar_tensor_tensor(data=ev, op0=nl.multiply, operand0=bonus, op1=nl.add, operand1=nums[:, 0:piece])
        below = nisa.scalar_tensor_tensor(data=e, op0=nl.multiply, operand0=bonus, op1=nl.add, operand1=dens[:, 0:piece])
        nl.store(out[:, part], above / below)
        num[...] = nums[:, piece:piece + 1]
        den[...] = dens[:, piece:piece + 1]
    return out


@nki.jit
def norm_of_heads(q, k, q_weight, k_weight, eps=1e-6):
    """q [S, H, D], k [S, G, D]: root mean square norm of each head, weights [1, D] for queries and for keys."""
    results = []
    for x_hbm, weight in [(q, q_weight), (k, k_weight)]:
        S, heads, D = x_hbm.shape
        y_hbm = nl.ndarray((S, heads, D), dtype=x_hbm.dtype, buffer=nl.shared_hbm)
        w = nl.load(weight).broadcast_to((P, D))
        for t in affine_range(S // P):
            x = nl.load(x_hbm[t * P:(t + 1) * P, :, :], dtype=nl.float32)
            sums = nl.sum(nl.square(x), axis=2)
            factor = nl.rsqrt(sums * (1 / D) + eps)
            y = nl.ndarray((P, heads, D), dtype=nl.float32)
            for h in affine_range(heads):
                y[:, h, :] = nisa.tensor_scalar(x[:, h, :], np.multiply, factor[:, h]) * w
            nl.store(y_hbm[t * P:(t + 1) * P, :, :], value=nl.copy(y, dtype=x_hbm.dtype))
        results.append(y_hbm)
    return tuple(results)


def cases():
    r = np.random.default_rng(43)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    labels = r.integers(0, 150, (200, 1)).astype(np.int32)
    labels[::7] = -100
    return [(cross_entropy_in_chunks, (f(200, 150), labels)),
            (cross_entropy_in_chunks, (f(100, 128), labels[:100] % 128, -1, 0.1)),
            (batch_norm_inference_and_stats, (f(3, 40, 64), f(40, 1), f(40, 1))),
            (batch_norm_inference_and_stats, (f(2, 20, 1024), f(20, 1), f(20, 1))),
            (top_k_rows, (f(140, 90),)),
            (top_k_rows, (f(30, 50), 5, False)),
            (wkv_recurrence, (f(48, 96), f(48, 96), f(48, 1), f(48, 1))),
            (norm_of_heads, (f(256, 4, 16), f(256, 2, 16), f(1, 16), np.arange(prod((1, 16)), dtype=np.float32)[None]))]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers of a model as the beta generation writes them: blocked products, norms, windows, state carried by loops."""

import math
from functools import reduce

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
from neuronxcc.nki.language import par_dim


def div_ceil(n, d):
    return (n + d - 1) // d


@nki.jit
def gram_matrix(x):
    """Blocks of rows and columns, each operand loaded once into a list of lists."""
    K, M = x.shape
    TILE_K, TILE_M = nl.tile_size.pmax // 2, 32
    result = nl.ndarray((M, M), dtype=nl.float32, buffer=nl.shared_hbm)
    i_k = nl.arange(TILE_K)[:, None]
    i_m = nl.arange(TILE_M)[None, :]
    tiles = nl.ndarray((M // TILE_M, K // TILE_K, par_dim(TILE_K), TILE_M), dtype=x.dtype, buffer=nl.sbuf)
    for m in nl.affine_range(M // TILE_M):
        for k in nl.affine_range(K // TILE_K):
            tiles[m, k, i_k, i_m] = nl.load(x[k * TILE_K + i_k, m * TILE_M + i_m])
    i_p = nl.arange(TILE_M)[:, None]
    for m in nl.affine_range(M // TILE_M):
        for n in nl.affine_range(M // TILE_M):
            res_psum = nl.zeros((TILE_M, TILE_M), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(K // TILE_K):
                res_psum[...] += nl.matmul(tiles[m, k, i_k, i_m], tiles[n, k, i_k, i_m], transpose_x=True)
            res_sb = nl.copy(res_psum, dtype=result.dtype)
            nl.store(result[m * TILE_M + i_p, n * TILE_M + i_m], value=res_sb)
    return result


@nki.jit
def blocks_summed_in_sbuf(a_t, b):
    """Blocks of the contraction, whose products are added in SBUF."""
    K, M = a_t.shape
    _, N = b.shape
    out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    sums = nl.zeros((N // 16, nl.par_dim(M), 16), dtype=nl.float32, buffer=nl.sbuf)
    i_lhs = nl.mgrid[0:32, 0:M]
    i_rhs = nl.mgrid[0:32, 0:16]
    i_res = nl.mgrid[0:M, 0:16]
    for block in nl.sequential_range(K // 64):
        for n in nl.affine_range(N // 16):
            part = nl.zeros((M, 16), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(2):
                lhs = nl.load(a_t[(block * 2 + k) * 32 + i_lhs.p, i_lhs.x])
                rhs = nl.load(b[(block * 2 + k) * 32 + i_rhs.p, n * 16 + i_rhs.x])
                part[i_res.p, i_res.x] += nisa.nc_matmul(lhs[i_lhs.p, i_lhs.x], rhs[i_rhs.p, i_rhs.x])
            sums[n, i_res.p, i_res.x] += part[i_res.p, i_res.x]
    for n in nl.affine_range(N // 16):
        nl.store(out[i_res.p, n * 16 + i_res.x], value=sums[n, i_res.p, i_res.x])
    return out


@nki.jit
def gated_unit(x, w_gate, w_up):
    """Two products of one operand, an activation of one times the other."""
    k, rows = x.shape
    _, width = w_gate.shape
    out = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.shared_hbm)
    x_sb, gate_sb, up_sb = nl.load(x), nl.load(w_gate), nl.load(w_up)
    gate = nisa.nc_matmul(x_sb, gate_sb)
    up = nisa.nc_matmul(x_sb, up_sb)
    act = nisa.activation(op=nl.silu, data=gate, dtype=nl.float32)
    prod = nisa.tensor_tensor(data1=act, data2=up, op=np.multiply)
    nl.store(out, value=prod)
    return out


@nki.jit
def linear_with_bias(x_t, w, bias):
    """A bias for each partition, which the activation adds."""
    out = nl.ndarray((w.shape[1], x_t.shape[1]), dtype=x_t.dtype, buffer=nl.shared_hbm)
    product = nl.ndarray((nl.par_dim(w.shape[1]), x_t.shape[1]), dtype=np.float32, buffer=nl.psum)
    product[...] = nisa.nc_matmul(stationary=nl.load(w), moving=nl.load(x_t))
    b = nl.load(bias)
    out_sb = nisa.activation(np.tanh, product, bias=b, scale=0.5)
    nl.store(out, out_sb)
    return out


@nki.jit
def group_norm(x, gamma, num_groups=4, eps=1e-5):
    """Statistics of groups of columns by index arithmetic on one tile."""
    rows, cols = x.shape
    size = cols // num_groups
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(rows)[:, None]
    i_g = nl.arange(size)[None, :]
    tile = nl.load(x)
    g = nl.load(gamma.reshape((1, cols)))
    normed = nl.ndarray((par_dim(rows), cols), dtype=nl.float32, buffer=nl.sbuf)
    for group in nl.affine_range(num_groups):
        piece = tile[i_p, group * size + i_g]
        mean = nl.mean(piece, axis=1)
        centered = nl.subtract(piece, mean)
        var = nl.mean(nl.square(centered), axis=[1])
        normed[i_p, group * size + i_g] = nl.multiply(centered, nl.rsqrt(nl.add(var, eps)))
    nl.store(out[i_p, nl.arange(cols)[None, :]], value=normed * g.broadcast_to((rows, cols)))
    return out


@nki.jit
def row_norm_with_tail(x, weight):
    """Rows that do not divide into tiles, a weight broadcast over the partitions."""
    n, d = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ix = nl.arange(64)[:, None]
    iw = nl.arange(1)[:, None]
    iy = nl.arange(d)[None, :]
    w_tile = nl.load(weight.reshape((1, d))[iw, iy])
    for i in nl.affine_range(math.ceil(n / 64)):
        valid = i * 64 + ix < n
        a_tile = nl.load(x[i * 64 + ix, iy], mask=valid)
        largest = nl.max(nl.abs(a_tile, mask=valid), axis=[1], keepdims=True, mask=valid)
        scaled = nl.divide(a_tile, largest, mask=valid)
        w_bcast = w_tile.broadcast_to((64, d))
        scaled[...] = nl.multiply(scaled, w_bcast, mask=valid)
        nl.store(out[i * 64 + ix, iy], value=scaled, mask=valid)
    return out


@nki.jit
def log_of_sum(x, tile_f=24):
    """The largest and the sum over pieces of the columns, carried by a sequential loop."""
    p, f = x.shape
    out = nl.ndarray((p, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    running_max = nl.full((par_dim(p), 1), fill_value=-9984.0, dtype=np.float32)
    running_sum = nl.zeros((par_dim(p), 1), dtype=np.float32)
    for j in nl.sequential_range(f // tile_f):
        piece = nl.load(x[:, nl.ds(j * tile_f, tile_f)])
        new_max = nl.maximum(running_max, nisa.tensor_reduce(np.max, piece, axis=(1,)))
        shrink = nl.exp(running_max - new_max)
        powers = nisa.activation(op=np.exp, data=piece, bias=nl.negative(new_max), scale=1.0)
        running_sum[...] = running_sum * shrink + nl.sum(powers, axis=1)
        running_max[...] = nl.copy(new_max)
    nl.store(out, value=nl.log(running_sum) + running_max)
    return out


@nki.jit
def decayed_state(x, decay):
    """y[t] = decay * y[t - 1] + x[t] over pieces, the last column of one the start of the next."""
    channels, steps = x.shape
    piece = 16
    out = nl.ndarray((channels, steps), dtype=x.dtype, buffer=nl.shared_hbm)
    d = nl.load(decay)
    state = nl.zeros((par_dim(channels), 1), dtype=nl.float32)
    i_p = nl.arange(channels)[:, None]
    i_f = nl.arange(piece)[None, :]
    for t in nl.sequential_range(steps // piece):
        x_i = nl.load(x[i_p, t * piece + i_f])
        scan = nisa.tensor_tensor_scan(d.broadcast_to((channels, piece)), x_i, initial=state, op0=np.multiply, op1=np.add)
        state[...] = nl.copy(scan[i_p, piece - 1 + nl.arange(1)[None, :]])
        nl.store(out[i_p, t * piece + i_f], scan)
    return out


@nki.jit
def depthwise_filter(x, weights):
    """A window over the columns with a weight for each channel, added in place."""
    channels, length = x.shape
    taps = weights.shape[1]
    n = length - taps + 1
    out = nl.ndarray((channels, n), dtype=x.dtype, buffer=nl.shared_hbm)
    image, w = nl.load(x), nl.load(weights)
    i_c = nl.arange(channels)[:, None]
    i_n = nl.arange(n)[None, :]
    acc = nl.zeros((channels, n), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.static_range(taps):
        acc[i_c, i_n] += nisa.tensor_scalar(image[i_c, k + i_n], np.multiply, w[:, k:k + 1])
    nl.store(out[i_c, i_n], acc[i_c, i_n])
    return out


@nki.jit
def doubled_image(image):
    """Each element four times, by index grids of five dimensions."""
    c, h, w = image.shape
    out = nl.ndarray((c, 2 * h, 2 * w), dtype=image.dtype, buffer=nl.shared_hbm)
    i_c = nl.arange(c)[:, None, None]
    i_h = nl.arange(h)[None, :, None]
    i_w = nl.arange(w)[None, None, :]
    tile = nl.load(image[i_c, i_h, i_w])
    wide = nl.ndarray((par_dim(c), 2 * h, 2 * w), dtype=image.dtype, buffer=nl.sbuf)
    for dh in nl.static_range(2):
        for dw in nl.static_range(2):
            wide[i_c, 2 * i_h + dh, 2 * i_w + dw] = nl.copy(tile[i_c, i_h, i_w])
    nl.store(out, value=wide)
    return out


@nki.jit
def edges(image):
    """Differences of neighbors in both directions of an image."""
    c, h, w = image.shape
    out = nl.ndarray((c, h - 1, w - 1), dtype=image.dtype, buffer=nl.shared_hbm)
    tile: nt.tensor[c, h, w] = nl.load(image)
    i = nl.mgrid[0:c, 0:h - 1, 0:w - 1]
    down = nl.subtract(tile[i.p, i.x + 1, i.y], tile[i.p, i.x, i.y])
    right = nl.subtract(tile[i.p, i.x, i.y + 1], tile[i.p, i.x, i.y])
    nl.store(out[i.p, i.x, i.y], nl.add(nl.abs(down), nl.abs(right)))
    return out


@nki.jit
def clipped_rows(x, limit=1.0):
    """Rows whose norm is over a bound are shortened: a predicate chooses the factor."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0:rows, 0:cols])
    norm = nl.sqrt(nl.sum(tile * tile, axis=[1], keepdims=True))
    factor = nl.where(norm > limit, nl.divide(limit, norm), nl.ones((rows, 1), dtype=nl.float32))
    nl.store(out[0:rows, 0:cols], tile * factor)
    return out


@nki.jit
def seen_before(scores):
    """A product's rows, without what lies behind the diagonal, by tiles of both axes."""
    rows, cols = scores.shape
    out = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    i_q, i_k = nl.mgrid[0:32, 0:32]
    for q in nl.affine_range(rows // 32):
        total = nl.zeros((par_dim(32), 1), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.sequential_range(cols // 32):
            tile = nl.load(scores[q * 32 + i_q, k * 32 + i_k])
            kept = nisa.affine_select(pred=q * 32 + i_q >= k * 32 + i_k, on_true_tile=tile[i_q, i_k],
                                      on_false_value=0.0, dtype=nl.float32)
            total[...] = nl.add(total, nisa.tensor_reduce(np.add, kept, axis=[1], keepdims=True))
        nl.store(out[nl.ds(q * 32, 32), :], total)
    return out


@nki.jit
def shared_heads(q, k):
    """Several heads of one operand for each head of the other, in a launch of two dimensions."""
    batch, heads, d, n = q.shape
    ratio = heads // k.shape[1]
    out = nl.ndarray((batch, heads, n, n), dtype=q.dtype, buffer=nl.shared_hbm)
    batch_id = nl.program_id(axis=0)
    head_id = nl.program_id(axis=1)
    k_sb = nl.load(k[batch_id, head_id])
    for i in nl.affine_range(ratio):
        q_sb = nl.load(q[batch_id, head_id * ratio + i, :, :])
        q_sb = nl.multiply(q_sb, 1.0 / math.sqrt(d))
        qk = nl.ndarray((par_dim(n), n), dtype=nl.float32, buffer=nl.psum)
        qk[...] = nl.matmul(q_sb, k_sb, transpose_x=True)
        nl.store(out[batch_id, head_id * ratio + i], nl.copy(qk))
    return out


@nki.compiler.skip_middle_end_transformations
@nki.jit
def placed_norm(x):
    """Tiles of a loop in places that repeat, one after the other."""
    n, d = x.shape
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = div_ceil(n, 32)
    x_sb = nl.ndarray((tiles, par_dim(32), d), dtype=x.dtype,
                      buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2,)))
    sq_sb = nl.ndarray((tiles, par_dim(32), d), dtype=nl.float32,
                       buffer=ncc.sbuf.mod_alloc(base_addr=2 * d * 4, num_free_tiles=(2,)))
    sum_sb = nl.ndarray((tiles, par_dim(32), 1), dtype=nl.float32,
                        buffer=ncc.sbuf.mod_alloc(base_addr=4 * d * 4, num_free_tiles=(2,)))
    zero = nl.ndarray((par_dim(32), 1), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=4 * d * 4 + 8))
    zero[...] = nisa.memset((32, 1), value=0, dtype=nl.float32)
    i_p, i_f = nl.mgrid[0:32, 0:d]
    for t in nl.affine_range(tiles):
        x_sb[t, i_p, i_f] = nl.load(x[t * 32 + i_p, i_f])
        sq_sb[t, i_p, i_f] = nisa.activation_reduce(op=np.square, data=x_sb[t, i_p, i_f], bias=zero,
                                                    reduce_op=np.add, reduce_res=sum_sb[t])
        sum_sb[t] = nisa.activation(op=nl.rsqrt, data=sum_sb[t], bias=zero, scale=1.0 / d)
        sq_sb[t, i_p, i_f] = nisa.tensor_scalar(x_sb[t, i_p, i_f], np.multiply, sum_sb[t])
        nl.store(out[t * 32 + i_p, i_f], value=sq_sb[t, i_p, i_f])
    return out


@nki.jit
def attention_backward(q, k, v, o, dy, sums, causal=True):
    """q, k, v, o, dy (b, h, d, s), sums (b, h, 64, s // 64); blocks above the diagonal are not computed."""
    b, h = nl.program_id(axis=0), nl.program_id(axis=1)
    batch, heads, d, s = q.shape
    n = s // 64
    scale = 1.0 / math.sqrt(d)
    dq = nl.ndarray((batch, heads, d, s), dtype=q.dtype, buffer=nl.shared_hbm)
    dk = nl.ndarray((batch, heads, d, s), dtype=q.dtype, buffer=nl.shared_hbm)
    dv = nl.ndarray((batch, heads, d, s), dtype=q.dtype, buffer=nl.shared_hbm)
    i_q, i_k = nl.arange(64)[:, None], nl.arange(64)[None, :]
    dy_o_sum = nl.ndarray((n, par_dim(64), 1), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(n):
        dy_rows = nl.load_transpose2d(dy[b, h, :, nl.ds(i * 64, 64)])
        o_rows = nl.load_transpose2d(o[b, h, :, nl.ds(i * 64, 64)])
        dy_o_sum[i, :, :] = nl.sum(nl.multiply(dy_rows, o_rows), axis=1, keepdims=True)
    dq_sb = nl.zeros((n, par_dim(d), 64), dtype=nl.float32, buffer=nl.sbuf)
    for j in nl.affine_range(n):
        k_sb = nl.load(k[b, h, 0:d, nl.ds(j * 64, 64)])
        v_sb = nl.load(v[b, h, 0:d, nl.ds(j * 64, 64)])
        k_rows = nl.copy(nisa.nc_transpose(k_sb))
        dk_psum = nl.zeros((par_dim(d), 64), dtype=nl.float32, buffer=nl.psum)
        dv_psum = nl.zeros((par_dim(d), 64), dtype=nl.float32, buffer=nl.psum)
        for i in nl.affine_range(n):
            mask = i * 64 >= j * 64 if causal else None
            q_sb = nl.load(q[b, h, 0:d, nl.ds(i * 64, 64)], mask=mask)
            dy_sb = nl.load(dy[b, h, 0:d, nl.ds(i * 64, 64)], mask=mask)
            sum_sb = nl.load(sums[b, h, 0:64, i], mask=mask)
            scores = nisa.nc_matmul(nl.multiply(q_sb, scale, mask=mask), k_sb, mask=mask)
            if causal:
                scores = nisa.affine_select(pred=(i * 64 + i_q >= j * 64 + i_k), on_true_tile=scores,
                                            on_false_value=-9984.0, dtype=nl.float32, mask=mask)
            p = nisa.activation(np.exp, scores, bias=nl.multiply(sum_sb, -1.0, mask=mask), scale=1.0, mask=mask)
            dv_psum[...] += nisa.nc_matmul(nl.copy(nisa.nc_transpose(dy_sb, mask=mask), mask=mask), p, mask=mask)
            dp = nisa.nc_matmul(dy_sb, v_sb, mask=mask)
            ds = nl.multiply(nisa.scalar_tensor_tensor(data=dp, op0=np.subtract, operand0=dy_o_sum[i], op1=np.multiply,
                                                       operand1=p, mask=mask), scale, mask=mask)
            dk_psum[...] += nisa.nc_matmul(nl.copy(nisa.nc_transpose(q_sb, mask=mask), mask=mask), ds, mask=mask)
            ds_t = nl.copy(nisa.nc_transpose(ds, mask=mask), mask=mask)
            dq_sb[i] = nl.loop_reduce(nisa.nc_matmul(k_rows, ds_t, mask=mask), op=np.add, loop_indices=(j,),
                                      dtype=nl.float32, mask=mask)
        nl.store(dk[b, h, 0:d, nl.ds(j * 64, 64)], value=nl.copy(dk_psum))
        nl.store(dv[b, h, 0:d, nl.ds(j * 64, 64)], value=nl.copy(dv_psum))
    for i in nl.affine_range(n):
        nl.store(dq[b, h, 0:d, nl.ds(i * 64, 64)], value=dq_sb[i])
    return dq, dk, dv


def cases():
    rng = np.random.default_rng(0)
    def floats(*shape):
        return rng.standard_normal(shape).astype(np.float32)
    x = floats(64, 48)
    return [(gram_matrix, (floats(128, 64),)), (blocks_summed_in_sbuf, (floats(128, 24), floats(128, 32))),
            (gated_unit, (floats(32, 16), floats(32, 24), floats(32, 24))),
            (linear_with_bias, (floats(32, 20), floats(32, 24), floats(24, 1))), (group_norm, (x, floats(48))),
            (row_norm_with_tail, (floats(100, 20), floats(20))), (log_of_sum, (x,)), (decayed_state, (x, floats(64, 1))),
            (depthwise_filter, (x, floats(64, 3))), (doubled_image, (floats(16, 4, 6),)), (edges, (floats(16, 5, 7),)),
            (clipped_rows, (x,)), (seen_before, (floats(64, 64),)),
            (shared_heads[2, 2], (floats(2, 4, 16, 32), floats(2, 2, 16, 32))), (placed_norm, (floats(96, 16),)),
            (attention_backward[1, 2], (*(floats(1, 2, 16, 128) for _ in range(5)), 3 + np.abs(floats(1, 2, 64, 2))))]


def gradients_of_attention(q, k, v, o, dy, sums):
    """By NumPy, for causal attention whose rows have these logarithms of sums."""
    scale, n = 1 / np.sqrt(q.shape[2]), q.shape[3]
    logs = sums.transpose(0, 1, 3, 2).reshape(*q.shape[:2], n, 1)
    p = np.exp(np.einsum("bhdq,bhdk->bhqk", q, k) * scale - logs) * np.tri(n)
    ds = p * (np.einsum("bhdq,bhdk->bhqk", dy, v) - (dy * o).sum(2)[..., None]) * scale
    return (np.einsum("bhqk,bhdk->bhdq", ds, k), np.einsum("bhqk,bhdq->bhdk", ds, q), np.einsum("bhqk,bhdq->bhdk", p, dy))


def expected():
    """The same by NumPy alone, in the order of the cases."""
    (x,), (a, b), (c, g, u), (m, w, bias), (n, gamma), (r, rw), (s,), (t, decay), (f, taps), (small,), (image,), (long,), (
        scores,), (q, k), (p,), backward = (arguments for _, arguments in cases())
    groups = n.reshape(64, 4, 12)
    groups = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    states = reduce(lambda ys, column: [*ys, decay[:, 0] * ys[-1] + column], t.T, [np.zeros(64, np.float32)])[1:]
    center = image[:, :-1, :-1]
    return [x.T @ x, a.T @ b, (v := c.T @ g) / (1 + np.exp(-v)) * (c.T @ u), np.tanh(0.5 * (w.T @ m) + bias),
            groups.reshape(64, 48) * gamma, r / np.abs(r).max(1, keepdims=True) * rw,
            np.log(np.exp(s).sum(1, keepdims=True)), np.stack(states, axis=1),
            sum(f[:, i:46 + i] * taps[:, i:i + 1] for i in range(3)), small.repeat(2, axis=1).repeat(2, axis=2),
            np.abs(image[:, 1:, :-1] - center) + np.abs(image[:, :-1, 1:] - center),
            long / np.maximum(1, np.linalg.norm(long, axis=1, keepdims=True)),
            np.tril(scores).sum(1, keepdims=True),
            np.einsum("bhdi,bhdj->bhij", q, k.repeat(2, axis=1)) / 4,
            p / np.sqrt((p * p).mean(1, keepdims=True)), gradients_of_attention(*backward)]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation: losses, recurrent cells and images."""

from dataclasses import dataclass

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.isa.constants import oob_mode
from neuronxcc.nki.language import affine_range, load, par_dim, store

P = PMAX = nl.tile_size.pmax


@dataclass(frozen=True)
class ConvSpec:
    kh: int
    kw: int
    dilation: int = 1


@nki.jit
def huber_loss(pred, target, delta=1.0):
    """Mean Huber loss of each row."""
    n, d = pred.shape
    out = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    ip = nl.arange(P)[:, None]
    jf = nl.arange(d)[None, :]
    for t in nl.affine_range((n + P - 1) // P):
        valid = t * P + ip < n
        p_tile = nl.load(pred[t * P + ip, jf], mask=valid)
        t_tile = nl.load(target[t * P + ip, jf], mask=valid)
        err = nl.abs(nl.subtract(p_tile, t_tile, mask=valid), mask=valid)
        # 0.5 e^2 within delta, delta (|e| - 0.5 delta) beyond
        quadratic = nl.minimum(err, delta, mask=valid)
        linear = nl.subtract(err, quadratic, mask=valid)
        loss = nl.add(nl.multiply(nl.square(quadratic, mask=valid), 0.5, mask=valid),
                      nl.multiply(linear, delta, mask=valid), mask=valid)
        mean = nl.mean(loss, axis=[1], mask=valid)
        nl.store(out[t * P + ip, nl.arange(1)[None, :]], mean, mask=valid)
    return out


@nki.jit
def label_smoothing_ce(logits, labels, smoothing=0.1):
    """Cross entropy with smoothed labels; labels [N, 1] int32."""
    n, c = logits.shape
    loss = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for b in nl.affine_range(n // P):
        rows = nl.load(logits[nl.ds(b * P, P), :])
        label = nl.load(labels[nl.ds(b * P, P), :])
        m = nl.max(rows, axis=1, keepdims=True)
        e = nl.ndarray((P, c), dtype=nl.float32)
        s = nl.ndarray((P, 1), dtype=nl.float32)
        e[...] = nisa.activation_reduce(np.exp, rows, bias=nl.negative(m), reduce_op=np.add, reduce_res=s[...])
        lse = nl.log(s) + m
        column = nisa.iota(nl.arange(c)[None, :], dtype=nl.int32)
        hit = nl.equal(column.broadcast_to((P, c)), label.broadcast_to((P, c)), dtype=nl.float32)
        chosen = nl.sum(hit * rows, axis=1, keepdims=True)
        average = nl.mean(rows, axis=1, keepdims=True)
        target = (1.0 - smoothing) * chosen + smoothing * average
        nl.store(loss[nl.ds(b * P, P), :], lse - target)
    return loss


@nki.jit
def clip_by_norm(grad, max_norm=1.0):
    """Scale a gradient so that its norm is at most max_norm."""
    rows, cols = grad.shape
    tiles = rows // P
    out = nl.ndarray(grad.shape, dtype=grad.dtype, buffer=nl.shared_hbm)
    kept = nl.ndarray((tiles, par_dim(P), cols), dtype=grad.dtype, buffer=nl.sbuf)
    acc = nl.zeros((P, 1), dtype=nl.float32, buffer=nl.sbuf)
    for t in nl.sequential_range(tiles):
        kept[t] = nl.load(grad[t * P:(t + 1) * P, :])
        acc += nl.sum(nl.square(kept[t]), axis=1, keepdims=True)
    # the sum over partitions by a product with ones
    ones = nl.ones((P, P), dtype=nl.float32)
    total = nl.copy(nisa.nc_matmul(ones, acc))
    scale = nl.minimum(max_norm * nl.rsqrt(total + 1e-12), 1.0)
    for t in nl.affine_range(tiles):
        nl.store(out[t * P:(t + 1) * P, :], nl.multiply(kept[t], scale.broadcast_to((P, cols))))
    return out


@nki.jit
def gru_steps(x_gates, h0, w_t):
    """x_gates [T, 3H, B] (inputs already multiplied), h0 [H, B], w_t [H, 3H]: the state after T steps."""
    T, H3, B = x_gates.shape
    H = H3 // 3
    out = nl.ndarray((H, B), dtype=h0.dtype, buffer=nl.shared_hbm)
    h = nl.load(h0)
    w = nl.load(w_t)
    for t in nl.sequential_range(T):
        r_x = nl.load(x_gates[t, 0:H, :])
        z_x = nl.load(x_gates[t, H:2 * H, :])
        n_x = nl.load(x_gates[t, 2 * H:3 * H, :])
        r = nl.sigmoid(r_x + nisa.nc_matmul(w[:, 0:H], h))
        z = nl.sigmoid(z_x + nisa.nc_matmul(w[:, H:2 * H], h))
        n = nl.tanh(n_x + r * nisa.nc_matmul(w[:, 2 * H:3 * H], h))
        h[...] = (1.0 - z) * n + z * h
    nl.store(out, h)
    return out


@nki.jit
def retention_chunk(q_t, k_t, v, decay=0.9):
    """A chunk of retention: (q k^T masked by decay^(i-j)) v; q_t, k_t [D, S], v [S, D]."""
    D, S = q_t.shape
    out = nl.ndarray((S, D), dtype=v.dtype, buffer=nl.shared_hbm)
    i_i = nl.arange(S)[:, None]
    i_j = nl.arange(S)[None, :]
    i_d = nl.arange(D)[:, None]
    q_sb = nl.load(q_t[i_d, i_j])
    k_sb = nl.load(k_t[i_d, i_j])
    v_sb = nl.load(v)
    # transposed scores: keys on partitions
    scores = nisa.nc_matmul(k_sb[i_d, i_j], q_sb[i_d, i_j])
    distance = nisa.iota(i_j - i_i, dtype=nl.int32)
    weight = nl.exp(nl.multiply(distance, float(np.log(decay)), dtype=nl.float32))
    p = nl.ndarray((S, S), dtype=v.dtype, buffer=nl.sbuf)
    p[...] = nl.multiply(scores, weight)
    p_causal = nisa.affine_select(pred=(i_j - i_i >= 0), on_true_tile=p[i_i, i_j], on_false_value=0.0)
    nl.store(out, nl.copy(nisa.nc_matmul(p_causal, v_sb), dtype=v.dtype))
    return out


@nki.jit
def butterflies(re, im, w_re, w_im):
    """A stage of a radix-2 FFT: pairs (j, j + n/2) of each row."""
    P, N = re.shape
    h = N // 2
    out_re = nl.ndarray((P, N), dtype=re.dtype, buffer=nl.shared_hbm)
    out_im = nl.ndarray((P, N), dtype=im.dtype, buffer=nl.shared_hbm)
    r, i = nl.load(re), nl.load(im)
    wr = nl.load(w_re.reshape((1, h))).broadcast_to((P, h))
    wi = nl.load(w_im.reshape((1, h))).broadcast_to((P, h))
    top = nl.arange(h)[None, :]
    bot = h + nl.arange(h)[None, :]
    p = nl.arange(P)[:, None]
    t_re = wr * r[p, bot] - wi * i[p, bot]
    t_im = wr * i[p, bot] + wi * r[p, bot]
    nl.store(out_re[p, top], r[p, top] + t_re)
    nl.store(out_re[p, bot], r[p, top] - t_re)
    nl.store(out_im[p, top], i[p, top] + t_im)
    nl.store(out_im[p, bot], i[p, top] - t_im)
    return out_re, out_im


@nki.jit
def gather_skip(table, ids):
    """Rows of a table; ids out of range leave zeros."""
    n = ids.shape[0]
    d = table.shape[1]
    out = nl.ndarray((n, d), dtype=table.dtype, buffer=nl.shared_hbm)
    rows = nl.zeros((n, d), dtype=table.dtype)
    idx = nl.load(ids)
    nisa.dma_copy(dst=rows[nl.arange(n)[:, None], nl.arange(d)[None, :]],
                  src=table[idx[nl.arange(n)[:, None], 0], nl.arange(d)[None, :]], oob_mode=oob_mode.skip)
    nl.store(out, rows)
    return out


@nki.jit
def dilated_conv(img, weights, spec):
    """img [C, H, W], weights [kh*kw, C, K]; valid convolution with dilation -> [K, Ho, Wo]."""
    C, H, W = img.shape
    K = weights.shape[2]
    d = spec.dilation
    Ho, Wo = H - d * (spec.kh - 1), W - d * (spec.kw - 1)
    out = nl.ndarray((K, Ho, Wo), dtype=img.dtype, buffer=nl.shared_hbm)
    tile = load(img)
    taps = [load(weights[t]) for t in range(spec.kh * spec.kw)]
    i_c = nl.arange(C)[:, None]
    i_w = nl.arange(Wo)[None, :]
    for y in affine_range(Ho):
        row = nl.zeros((K, Wo), dtype=nl.float32, buffer=nl.psum)
        for ky in range(spec.kh):
            for kx in range(spec.kw):
                row += nisa.nc_matmul(taps[ky * spec.kw + kx], tile[i_c, y + d * ky, d * kx + i_w])
        store(out[:, y, :], row)
    return out


@nki.jit
def sobel(img):
    """Gradient magnitude of [P, H, W] images, one on each partition; the border stays zero."""
    P, H, W = img.shape
    out = nl.ndarray(img.shape, dtype=img.dtype, buffer=nl.shared_hbm)
    t = load(img)
    mag = nl.zeros((P, H, W), dtype=img.dtype, buffer=nl.sbuf)
    ip, iy, ix = nl.mgrid[0:P, 0:H - 2, 0:W - 2]
    gx = nl.zeros((P, H - 2, W - 2), dtype=nl.float32, buffer=nl.sbuf)
    gy = nl.zeros((P, H - 2, W - 2), dtype=nl.float32, buffer=nl.sbuf)
    for k, weight in enumerate((1, 2, 1)):
        gx[...] = gx + weight * (t[ip, iy + k, ix + 2] - t[ip, iy + k, ix])
        gy[...] = gy + weight * (t[ip, iy + 2, ix + k] - t[ip, iy, ix + k])
    mag[ip, iy + 1, ix + 1] = nl.sqrt(gx * gx + gy * gy)
    store(out, mag)
    return out


@nki.jit
def box_iou_matrix(boxes_a, boxes_b):
    """IoU of each box of a [N, 4] with each of b [M, 4] (x1, y1, x2, y2)."""
    N, M = boxes_a.shape[0], boxes_b.shape[0]
    out = nl.ndarray((N, M), dtype=nl.float32, buffer=nl.shared_hbm)
    a = load(boxes_a)
    one = nl.ones((1, N), dtype=nl.float32)
    # each coordinate of b on all partitions, by a product with ones
    spread = nl.ndarray((4, nl.par_dim(N), M), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.static_range(4):
        line = load(boxes_b[:, k:k + 1].reshape((1, M)))
        spread[k] = nl.copy(nisa.nc_matmul(one, line))
    x1 = nl.maximum(a[:, 0:1], spread[0])
    y1 = nl.maximum(a[:, 1:2], spread[1])
    x2 = nl.minimum(a[:, 2:3], spread[2])
    y2 = nl.minimum(a[:, 3:4], spread[3])
    inter = nl.maximum(x2 - x1, 0.0) * nl.maximum(y2 - y1, 0.0)
    area_a = (a[:, 2:3] - a[:, 0:1]) * (a[:, 3:4] - a[:, 1:2])
    area_b = (spread[2] - spread[0]) * (spread[3] - spread[1])
    store(out, inter / (area_a + area_b - inter))
    return out


@nki.jit
def squares_of_tiles(x):
    """The sum of the squares of all tiles, by name."""
    n, c = x.shape
    out = nl.ndarray((P, c), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p = nl.arange(P)[:, None]
    i_f = nl.arange(c)[None, :]
    for k in nl.affine_range(n // P):
        t = nl.load(x[k * P + i_p, i_f])
        total = nl.loop_reduce(nl.square(t), op=np.add, loop_indices=[k], dtype=nl.float32)
    nl.store(out[i_p, i_f], total)
    return out


@nki.jit
def greatest_of_groups(x):
    """A maximum over blocks of each group, in a loop over groups."""
    g, n, c = x.shape
    out = nl.ndarray((g, P, c), dtype=x.dtype, buffer=nl.shared_hbm)
    for b in nl.affine_range(g):
        for k in nl.affine_range(n // P):
            for j in nl.affine_range(2):
                t = nl.load(x[b, nl.ds(k * P, P), :])
                top = nl.loop_reduce(nl.multiply(t, 1.0 + j), op=np.max, loop_indices=[k, j], dtype=x.dtype)
        nl.store(out[b], nl.exp(top))
    return out


def cases():
    rng = np.random.default_rng(28)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)
    labels, ids = rng.integers(0, 40, (128, 1)).astype(np.int32), rng.integers(0, 60, (32, 1)).astype(np.int32)
    ids[5] = 100
    corner = rng.random((40, 2)).astype(np.float32)
    boxes = np.concatenate([corner, corner + 0.1 + rng.random((40, 2)).astype(np.float32)], axis=1)
    return [(huber_loss, (normal(150, 48), normal(150, 48))), (label_smoothing_ce, (normal(128, 40), labels)),
            (clip_by_norm, (normal(256, 40),)), (gru_steps, (normal(3, 96, 16), normal(32, 16), normal(32, 96) * 0.1)),
            (retention_chunk, (normal(32, 64), normal(32, 64), normal(64, 32))),
            (butterflies, (normal(64, 32), normal(64, 32), normal(16), normal(16))),
            (gather_skip, (normal(60, 24), ids)), (dilated_conv, (normal(16, 8, 14), normal(9, 16, 24), ConvSpec(3, 3, 2))),
            (sobel, (normal(32, 10, 12),)), (box_iou_matrix, (boxes, boxes[:24])),
            (squares_of_tiles, (normal(256, 20),)), (greatest_of_groups, (normal(2, 256, 20),))]

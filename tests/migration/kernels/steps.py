# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation for steps of training and decoding: losses, gradients, optimizers, masks, states."""

import math

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np

PMAX = 128


@nki.jit
def cross_entropy_bwd(logits, labels, scale=1.0):
    """logits [N, V], labels [N, 1]: (softmax - one-hot) * scale, rows in tiles, the last one partial."""
    n_rows, vocab = logits.shape
    grad = nl.ndarray((n_rows, vocab), dtype=logits.dtype, buffer=nl.shared_hbm)
    ip = nl.arange(PMAX)[:, None]
    iv = nl.arange(vocab)[None, :]
    i0 = nl.arange(1)[None, :]
    for t in nl.affine_range(math.ceil(n_rows / PMAX)):
        in_rows = t * PMAX + ip < n_rows
        x = nl.load(logits[t * PMAX + ip, iv], mask=in_rows)
        target = nl.load(labels[t * PMAX + ip, i0], mask=in_rows)
        neg_max = nisa.tensor_reduce(np.max, x, axis=(1,), negate=True, mask=in_rows)
        e = nisa.activation(np.exp, x, bias=neg_max, scale=1.0, mask=in_rows)
        denom = nl.sum(e, axis=[1], mask=in_rows)
        p = nl.multiply(e, nl.reciprocal(denom, mask=in_rows), mask=in_rows)
        columns = nisa.iota(iv + 0 * ip, dtype=nl.float32)
        hot = nl.equal(columns, target, dtype=nl.float32, mask=in_rows)
        g = nl.subtract(p, hot, mask=in_rows)
        nl.store(grad[t * PMAX + ip, iv], value=nl.multiply(g, scale, mask=in_rows), mask=in_rows)
    return grad


@nki.jit
def rmsnorm_bwd(x, weight, dy, eps=1e-6):
    """The gradients of x and of the weight; the latter is a sum over rows in PSUM."""
    N, D = x.shape
    dx = nl.ndarray((N, D), dtype=x.dtype, buffer=nl.shared_hbm)
    dw = nl.ndarray((1, D), dtype=nl.float32, buffer=nl.shared_hbm)
    w = nl.load(weight.reshape((1, D))).broadcast_to((PMAX, D))
    ones = nl.ones((PMAX, 1), dtype=nl.float32)
    dw_psum = nl.zeros((1, D), dtype=nl.float32, buffer=nl.psum)
    for i in nl.affine_range(N // PMAX):
        rows = nl.ds(i * PMAX, PMAX)
        x_tile = nl.load(x[rows, :])
        dy_tile = nl.load(dy[rows, :])
        mean_sq = nl.mean(nl.square(x_tile), axis=1, keepdims=True)
        r = nl.rsqrt(mean_sq + eps)
        xhat = nisa.tensor_scalar(x_tile, np.multiply, r)
        wdy = nl.multiply(dy_tile, w)
        dot = nl.mean(wdy * xhat, axis=1, keepdims=True)
        inner = wdy - xhat * dot
        nl.store(dx[rows, :], nl.multiply(inner, r))
        dw_psum += nl.matmul(ones, dy_tile * xhat, transpose_x=True)
    nl.store(dw, nl.copy(dw_psum))
    return dx, dw


@nki.jit
def adamw_step(param: nt.mutable_tensor, exp_avg: nt.mutable_tensor, exp_avg_sq: nt.mutable_tensor, grad, step=1, lr=1e-3,
               betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
    """Updates the parameters and both moments in place."""
    rows, cols = param.shape
    b1, b2 = betas
    correction1, correction2 = 1 - b1 ** step, 1 - b2 ** step
    i_p, i_f = nl.mgrid[0:PMAX, 0:cols]
    for t in nl.affine_range((rows + PMAX - 1) // PMAX):
        mask = (t * PMAX + i_p < rows)
        p = nl.load(param[t * PMAX + i_p, i_f], mask=mask)
        g = nl.load(grad[t * PMAX + i_p, i_f], mask=mask)
        m = nl.load(exp_avg[t * PMAX + i_p, i_f], mask=mask)
        v = nl.load(exp_avg_sq[t * PMAX + i_p, i_f], mask=mask)
        m = nl.add(nl.multiply(m, b1, mask=mask), nl.multiply(g, 1 - b1, mask=mask), mask=mask)
        v = nl.add(nl.multiply(v, b2, mask=mask), nl.multiply(nl.square(g, mask=mask), 1 - b2, mask=mask), mask=mask)
        denom = nl.add(nl.sqrt(nl.multiply(v, 1.0 / correction2, mask=mask), mask=mask), eps, mask=mask)
        update = nl.multiply(m, nl.reciprocal(denom, mask=mask), mask=mask)
        p = nl.multiply(p, 1 - lr * weight_decay, mask=mask)
        p = nl.subtract(p, nl.multiply(update, lr / correction1, mask=mask), mask=mask)
        nl.store(param[t * PMAX + i_p, i_f], p, mask=mask)
        nl.store(exp_avg[t * PMAX + i_p, i_f], m, mask=mask)
        nl.store(exp_avg_sq[t * PMAX + i_p, i_f], v, mask=mask)
    return param, exp_avg, exp_avg_sq


@nki.jit
def sliding_window_attention(q, k, v, window=32, scale=None):
    """q, k [D, S], v [S, D] of one head: each query sees itself and the window - 1 keys before it."""
    D, S = q.shape
    softmax_scale = scale or 1.0 / math.sqrt(D)
    out = nl.ndarray((S, D), dtype=q.dtype, buffer=nl.shared_hbm)
    q_sb, k_sb = nl.load(q), nl.load(k)
    i_q = nl.arange(PMAX)[:, None]
    i_k = nl.arange(S)[None, :]
    for t in nl.affine_range(S // PMAX):
        scores = nl.matmul(q_sb[:, nl.ds(t * PMAX, PMAX)], k_sb, transpose_x=True)
        scaled = nl.multiply(scores, softmax_scale)
        seen = nisa.affine_select(pred=(t * PMAX + i_q >= i_k), on_true_tile=scaled, on_false_value=-9984.0)
        seen = nisa.affine_select(pred=(i_k > t * PMAX + i_q - window), on_true_tile=seen, on_false_value=-9984.0)
        row_max = nl.max(seen, axis=1, keepdims=True)
        p = nl.exp(seen - row_max)
        row_sum = nl.sum(p, axis=1, keepdims=True)
        acc = nl.zeros((PMAX, D), dtype=nl.float32, buffer=nl.psum)
        for j in nl.affine_range(S // PMAX):
            pT = nl.copy(nisa.nc_transpose(p[:, nl.ds(j * PMAX, PMAX)]))
            acc += nisa.nc_matmul(pT, nl.load(v[nl.ds(j * PMAX, PMAX), :]))
        nl.store(out[nl.ds(t * PMAX, PMAX), :], nl.multiply(acc, nl.reciprocal(row_sum)))
    return out


@nki.jit
def alibi_scores(q, k, slopes):
    """q, k [H, D, S], slopes [1, H]: scores of all heads with a bias that grows with the distance."""
    H, D, S = q.shape
    out = nl.ndarray((H, S, S), dtype=nl.float32, buffer=nl.shared_hbm)
    slope_sb = nl.load(slopes)
    i_q, i_k = nl.mgrid[0:S, 0:S]
    distance = nisa.iota(i_k - i_q, dtype=nl.float32)
    for h in nl.sequential_range(H):
        q_h, k_h = nl.load(q[h]), nl.load(k[h])
        qk = nisa.nc_matmul(q_h, k_h)
        slope = slope_sb[0, h].broadcast_to((S, 1))
        bias = nisa.tensor_scalar(distance, op0=np.multiply, operand0=slope)
        nl.store(out[h, i_q, i_k], value=nisa.tensor_tensor(qk, bias, op=np.add))
    return out


@nki.jit
def decode_gqa(q, k_cache, v_cache, lengths):
    """q [B, H, D], caches [B, Hkv, S, D], lengths [1, B]: one token; keys beyond a sequence's length are masked."""
    B, H, D = q.shape
    _, Hkv, S, _ = k_cache.shape
    group = H // Hkv
    out = nl.ndarray((B, H, D), dtype=q.dtype, buffer=nl.shared_hbm)
    i_d, i_g = nl.mgrid[0:D, 0:group]
    positions = nisa.iota(nl.arange(S)[None, :] + 0 * nl.arange(group)[:, None], dtype=nl.float32)
    for b in nl.sequential_range(B):
        length = nl.load(lengths[0:1, nl.ds(b, 1)]).broadcast_to((group, 1))
        for h in nl.sequential_range(Hkv):
            qT = nl.load_transpose2d(q[b, h * group:(h + 1) * group, :])
            kT = nl.load_transpose2d(k_cache[b, h])
            s = nl.multiply(nisa.nc_matmul(qT, kT), 1.0 / D ** 0.5)
            valid = nl.less(positions, length, dtype=nl.uint8)
            s = nl.where(valid, s, -30000.0)
            s_max = nl.max(s, axis=[1], keepdims=True)
            e = nl.exp(nl.subtract(s, s_max))
            total = nl.sum(e, axis=[1], keepdims=True)
            eT = nl.copy(nisa.nc_transpose(e))
            o = nisa.nc_matmul(eT, nl.load(v_cache[b, h]))
            nl.store(out[b, h * group:(h + 1) * group, :], value=o * nl.reciprocal(total))
    return out


@nki.jit
def mamba_decode_step(state: nt.mutable_tensor, x, dt, A, B, C, D):
    """state [E, N]: h = exp(dt A) h + (dt x) B and y = h C + D x, one token, channels in tiles."""
    E, N = state.shape
    y = nl.ndarray((E, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    b_row = nl.load(B).broadcast_to((PMAX, N))
    c_row = nl.load(C).broadcast_to((PMAX, N))
    for e in nl.affine_range(E // PMAX):
        ch = nl.ds(e * PMAX, PMAX)
        h, a = nl.load(state[ch]), nl.load(A[ch])
        x_t, dt_t, d_t = nl.load(x[ch]), nl.load(dt[ch]), nl.load(D[ch])
        dt_t = nl.softplus(dt_t)
        decay = nisa.activation(np.exp, a, scale=dt_t)
        dx = nl.multiply(dt_t, x_t)
        h_new = nl.ndarray((PMAX, N), dtype=nl.float32, buffer=nl.sbuf)
        h_new[...] = decay * h + dx * b_row
        nl.store(state[ch], h_new)
        y_t = nl.sum(h_new * c_row, axis=[1], keepdims=True)
        nl.store(y[ch], y_t + d_t * x_t)
    return y, state


@nki.jit
def group_norm_silu(x, gamma, beta, groups=4, eps=1e-5):
    """x [C, L]: channels of a group are summed by a product with a matrix of 0 and 1."""
    C, L = x.shape
    size = C // groups
    out = nl.ndarray((C, L), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    i_c, i_g, i_s = nl.mgrid[0:C, 0:groups, 0:size]
    ones = nl.ones((C, groups, size), dtype=nl.float32)
    same = nisa.affine_select(pred=(i_c >= size * i_g + 0 * i_s), on_true_tile=ones, on_false_value=0.0)
    same = nisa.affine_select(pred=(i_c < size * i_g + size + 0 * i_s), on_true_tile=same, on_false_value=0.0)
    same = same.reshape((C, C))
    sums = nl.ndarray((C, 2), dtype=nl.float32)
    sums[:, 0:1] = nl.sum(tile, axis=1, keepdims=True)
    sums[:, 1:2] = nl.sum(nl.square(tile), axis=1, keepdims=True)
    moments = nl.multiply(nl.matmul(same, sums, transpose_x=True), 1.0 / (size * L))
    mean, mean_sq = moments[:, 0:1], moments[:, 1:2]
    var = nl.subtract(mean_sq, nl.square(mean))
    inv = nl.rsqrt(nl.add(var, eps))
    scale = nl.multiply(inv, nl.load(gamma))
    shift = nl.subtract(nl.load(beta), nl.multiply(mean, scale))
    y = nisa.tensor_scalar(tile, np.multiply, scale, op1=np.add, operand1=shift)
    nl.store(out, nl.silu(y))
    return out


@nki.jit
def cumsum_over_rows(x):
    """x [R, F]: sums over the rows so far, by a product with a triangle, and a carry from tile to tile."""
    R, F = x.shape
    out = nl.ndarray((R, F), dtype=x.dtype, buffer=nl.shared_hbm)
    i_k, i_m = nl.mgrid[0:PMAX, 0:PMAX]
    ones = nl.ones((PMAX, PMAX), dtype=nl.float32)
    triangle = nisa.affine_select(pred=(i_m >= i_k), on_true_tile=ones, on_false_value=0.0)
    carry = nl.zeros((1, F), dtype=nl.float32)
    for t in nl.sequential_range(R // PMAX):
        tile = nl.load(x[t * PMAX:(t + 1) * PMAX, :])
        sums = nl.ndarray((PMAX, F), dtype=nl.float32)
        sums[...] = nisa.nc_matmul(triangle, tile)
        sums[...] = nl.add(sums, carry.broadcast_to((PMAX, F)))
        nl.store(out[t * PMAX:(t + 1) * PMAX, :], sums)
        total = nl.matmul(ones[:, 0:1], tile, transpose_x=True)
        carry[...] = nl.add(carry, total)
    return out


@nki.jit
def conv_transpose1d(x, weight, stride=2):
    """x [Cin, L], weight [K, Cin, Cout]: every input adds K outputs, which start `stride` apart."""
    Cin, L = x.shape
    K, _, Cout = weight.shape
    Lo = (L - 1) * stride + K
    out = nl.ndarray((Cout, Lo), dtype=x.dtype, buffer=nl.shared_hbm)
    x_sb = nl.load(x)
    acc = nl.zeros((Cout, Lo), dtype=nl.float32)
    i_o = nl.arange(Cout)[:, None]
    i_l = nl.arange(L)[None, :]
    for tap in nl.static_range(K):
        part = nisa.nc_matmul(nl.load(weight[tap]), x_sb)
        acc[i_o, stride * i_l + tap] = nl.add(acc[i_o, stride * i_l + tap], part)
    nl.store(out, value=acc)
    return out


@nki.jit
def max_pool2d_bwd(x, dy, k=2):
    """x [C, H, W], dy [C, H / k, W / k]: the gradient goes to elements that equal their window's largest."""
    C, H, W = x.shape
    h, w = H // k, W // k
    dx = nl.ndarray((C, H, W), dtype=x.dtype, buffer=nl.shared_hbm)
    x_sb, dy_sb = nl.load(x), nl.load(dy)
    i_c = nl.arange(C)[:, None, None, None, None]
    i_y, i_x = nl.arange(h)[None, :, None, None, None], nl.arange(w)[None, None, :, None, None]
    i_ky, i_kx = nl.arange(k)[None, None, None, :, None], nl.arange(k)[None, None, None, None, :]
    best = nl.max(x_sb[i_c, k * i_y + i_ky, k * i_x + i_kx], axis=[3, 4])
    grad = nl.zeros((nl.par_dim(C), H, W), dtype=x.dtype)
    c, y, z = nl.mgrid[0:C, 0:h, 0:w]
    for dy_ in nl.static_range(k):
        for dx_ in nl.static_range(k):
            is_best = nl.equal(x_sb[c, k * y + dy_, k * z + dx_], best, dtype=nl.float32)
            grad[c, k * y + dy_, k * z + dx_] = nl.multiply(is_best, dy_sb)
    nl.store(dx, grad)
    return dx


@nki.jit
def dequant_matmul(xT, w_int8, w_scale):
    """xT [K, M], w_int8 [K, N] with a scale for each column: the scale multiplies the sum."""
    K, M = xT.shape
    N = w_int8.shape[1]
    out = nl.ndarray((M, N), dtype=xT.dtype, buffer=nl.shared_hbm)
    acc = nl.zeros((M, N), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(K // PMAX):
        lhs = nl.load(xT[k * PMAX:(k + 1) * PMAX, :])
        rhs = nl.copy(nl.load(w_int8[k * PMAX:(k + 1) * PMAX, :]), dtype=xT.dtype)
        acc[...] += nl.matmul(lhs, rhs, transpose_x=True)
    scale = nl.load(w_scale.reshape((1, N))).broadcast_to((M, N))
    nl.store(out, nl.multiply(acc, scale, dtype=out.dtype))
    return out


@nki.jit
def quantize_by_tensor(x):
    """x [R, F]: one scale for all elements; the largest magnitude over partitions by a transpose."""
    R, F = x.shape
    q = nl.ndarray((R, F), dtype=nl.int8, buffer=nl.shared_hbm)
    scale_out = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    amax = nl.max(nl.abs(tile), axis=[1], keepdims=True)
    amax_row = nl.copy(nisa.nc_transpose(amax))
    biggest = nl.maximum(nl.max(amax_row, axis=1, keepdims=True), 1e-6)
    scale = nl.multiply(biggest, 1 / 127.0)
    inverse = nl.reciprocal(scale)
    inverse_all = inverse.broadcast_to((R, 1))
    scaled = nl.multiply(tile, inverse_all)
    clipped = nl.minimum(nl.maximum(scaled, -127.0), 127.0)
    nl.store(q, nl.copy(clipped, dtype=nl.int8))
    nl.store(scale_out, scale)
    return q, scale_out


@nki.jit
def l2_normalize(x, eps=1e-12):
    """Rows by their length; the last tile is partial in rows."""
    N, D = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(-(-N // PMAX)):
        ip, id = nl.mgrid[0:PMAX, 0:D]
        x_t = nl.load(x[i * PMAX + ip, id], mask=(i * PMAX + ip < N))
        sq = nl.ndarray((PMAX, 1), dtype=nl.float32)
        nisa.activation_reduce(np.square, x_t, reduce_op=np.add, reduce_res=sq, mask=(i * PMAX + ip < N))
        inv = nl.rsqrt(nl.maximum(sq, eps), mask=(i * PMAX + nl.arange(PMAX)[:, None] < N))
        nl.store(out[i * PMAX + ip, id], x_t * inv, mask=(i * PMAX + ip < N))
    return out


@nki.jit
def rope_by_position(x, cos_table, sin_table, positions):
    """x [S, D], tables [P, D / 2], positions [S, 1]: rows of the tables by position; the halves rotate."""
    S, D = x.shape
    half = D // 2
    out = nl.ndarray((S, D), dtype=x.dtype, buffer=nl.shared_hbm)
    ip, ih = nl.arange(S)[:, None], nl.arange(half)[None, :]
    pos = nl.load(positions)
    cos = nl.load(cos_table[pos[ip, 0], ih])
    sin = nl.load(sin_table[pos[ip, 0], ih])
    x_sb = nl.load(x)
    x1, x2 = x_sb[:, 0:half], x_sb[:, half:D]
    rotated = nl.ndarray((S, D), dtype=x.dtype)
    rotated[ip, ih] = nl.subtract(nl.multiply(x1, cos), nl.multiply(x2, sin))
    rotated[ip, half + ih] = nl.add(nl.multiply(x2, cos), nl.multiply(x1, sin))
    nl.store(out, rotated)
    return out


@nki.jit
def softmax_with_lengths(x, lengths):
    """x [N, T], lengths [N, 1]: columns at and beyond a row's length have the probability 0."""
    N, T = x.shape
    y = nl.ndarray((N, T), dtype=x.dtype, buffer=nl.shared_hbm)
    x_sb = nl.load(x)
    n_valid = nl.load(lengths)
    index = nisa.iota(nl.arange(T)[None, :], dtype=nl.int32)
    keep = nl.less(index.broadcast_to((N, T)), n_valid, dtype=nl.float32)
    shifted = nl.add(x_sb, nl.multiply(nl.subtract(keep, 1.0), 1e9))
    m = nl.max(shifted, axis=1, keepdims=True)
    e = nl.multiply(nl.exp(nl.subtract(shifted, m)), keep)
    s = nl.sum(e, axis=1, keepdims=True)
    nl.store(y, nl.multiply(e, nl.reciprocal(s)))
    return y


@nki.jit
def gate_and_count(hidden_T, router):
    """hidden_T [D, T], router [D, E]: each token's best expert and weight, and how many tokens each expert has."""
    D, T = hidden_T.shape
    E = router.shape[1]
    chosen = nl.ndarray((T, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
    weight = nl.ndarray((T, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    counts = nl.ndarray((1, E), dtype=nl.float32, buffer=nl.shared_hbm)
    logits = nl.ndarray((T, E), dtype=nl.float32, buffer=nl.sbuf)
    logits[...] = nisa.nc_matmul(nl.load(hidden_T), nl.load(router))
    top8 = nisa.max8(src=logits)
    places = nisa.nc_find_index8(data=logits, vals=top8)
    e = nl.exp(nl.subtract(logits, top8[:, 0:1]))
    nl.store(weight, nl.reciprocal(nl.sum(e, axis=1, keepdims=True)))
    nl.store(chosen, places)
    is_best = nl.greater_equal(logits, top8[:, 0:1], dtype=nl.float32)
    load = nl.matmul(nl.ones((T, 1), dtype=nl.float32), is_best, transpose_x=True)
    nl.store(counts, load)
    return chosen, weight, counts


@nki.jit
def resize_bilinear_rows(img, out_h):
    """img [C, H, W]: rows between two neighbors, whose places and weights Python computes."""
    C, H, W = img.shape
    out = nl.ndarray((C, out_h, W), dtype=img.dtype, buffer=nl.shared_hbm)
    tile = nl.load(img)
    resized = nl.ndarray((nl.par_dim(C), out_h, W), dtype=img.dtype)
    ratio = (H - 1) / (out_h - 1)
    for y in nl.static_range(out_h):
        low = min(int(y * ratio), H - 2)
        frac = y * ratio - low
        top = nl.multiply(tile[:, low, :], 1 - frac)
        bottom = nl.multiply(tile[:, low + 1, :], frac)
        resized[:, y, :] = nl.add(top, bottom)
    nl.store(out, value=resized)
    return out


@nki.jit
def mlp_gelu_blocked(x, w1, b1, w2, b2):
    """x [T, D] in bfloat16: both products in blocks of 128, the hidden units stay in SBUF."""
    T, D = x.shape
    F = w1.shape[1]
    out = nl.ndarray((T, D), dtype=x.dtype, buffer=nl.shared_hbm)
    xT = nl.ndarray((D // PMAX, nl.par_dim(PMAX), T), dtype=x.dtype)
    for d in nl.affine_range(D // PMAX):
        xT[d] = nl.load_transpose2d(x[:, d * PMAX:(d + 1) * PMAX])
    hT = nl.ndarray((F // PMAX, nl.par_dim(PMAX), T), dtype=x.dtype)
    for f in nl.affine_range(F // PMAX):
        cols = nl.ds(f * PMAX, PMAX)
        up = nl.zeros((PMAX, T), dtype=nl.float32, buffer=nl.psum)
        for d in nl.affine_range(D // PMAX):
            up += nisa.nc_matmul(nl.load(w1[d * PMAX:(d + 1) * PMAX, cols]), xT[d])
        hT[f] = nisa.activation(nl.gelu, up, bias=nl.load(b1[cols, :]), dtype=x.dtype)
    down = nl.zeros((T, D), dtype=nl.float32, buffer=nl.psum)
    for f in nl.affine_range(F // PMAX):
        down += nisa.nc_matmul(hT[f], nl.load(w2[f * PMAX:(f + 1) * PMAX, :]))
    bias2 = nl.load(b2).broadcast_to((T, D))
    nl.store(out, nl.add(down, bias2, dtype=out.dtype))
    return out


@nki.jit
def layernorm_params_bwd(x, dy):
    """x, dy [N, D]: the gradients of gamma and beta, rows summed by a product with ones."""
    N, D = x.shape
    dgamma = nl.ndarray((1, D), dtype=nl.float32, buffer=nl.shared_hbm)
    dbeta = nl.ndarray((1, D), dtype=nl.float32, buffer=nl.shared_hbm)
    both = nl.zeros((1, 2 * D), dtype=nl.float32, buffer=nl.psum)
    i_p = nl.arange(PMAX)[:, None]
    i_d = nl.arange(D)[None, :]
    for i in nl.affine_range((N + PMAX - 1) // PMAX):
        valid = i * PMAX + i_p < N
        x_t = nl.load(x[i * PMAX + i_p, i_d], mask=valid)
        dy_t = nl.load(dy[i * PMAX + i_p, i_d], mask=valid)
        stats = nisa.bn_stats(x_t, mask=valid)
        mv = nisa.bn_aggr(stats, mask=i * PMAX + nl.arange(PMAX)[:, None] < N)
        rstd = nisa.activation(nl.rsqrt, mv[i_p, 1], bias=None, scale=1.0, mask=valid)
        xhat = nisa.tensor_scalar(x_t, np.subtract, mv[i_p, 0], op1=np.multiply, operand1=rstd, mask=valid)
        pair = nl.zeros((PMAX, 2 * D), dtype=nl.float32)
        pair[i_p, i_d] = nl.multiply(dy_t, xhat, mask=valid)
        pair[i_p, D + i_d] = nl.copy(dy_t, mask=valid)
        both += nl.matmul(nl.ones((PMAX, 1), dtype=nl.float32), pair, transpose_x=True)
    nl.store(dgamma, nl.copy(both[:, 0:D]))
    nl.store(dbeta, nl.copy(both[:, D:2 * D]))
    return dgamma, dbeta


def cases():
    r = np.random.default_rng(5)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    u = lambda *s: r.random(s).astype(np.float32)
    half = lambda *s: nl.static_cast(f(*s) / 8, nl.bfloat16)
    return [(cross_entropy_bwd, (f(150, 40), r.integers(0, 40, (150, 1)).astype(np.float32), 0.5)),
            (rmsnorm_bwd, (f(256, 48), f(48), f(256, 48))),
            (adamw_step, (f(150, 24), f(150, 24), u(150, 24), f(150, 24), 3)),
            (sliding_window_attention, (f(32, 256), f(32, 256), f(256, 32))),
            (alibi_scores, (f(3, 16, 40), f(3, 16, 40), u(1, 3))),
            (decode_gqa, (f(2, 4, 32), f(2, 2, 64, 32), f(2, 2, 64, 32), np.array([[40, 64]], np.float32))),
            (mamba_decode_step, (f(256, 16), f(256, 1), u(256, 1), -u(256, 16), f(1, 16), f(1, 16), f(256, 1))),
            (group_norm_silu, (f(32, 50), f(32, 1), f(32, 1))),
            (cumsum_over_rows, (f(256, 20),)),
            (conv_transpose1d, (f(24, 30), f(3, 24, 40))),
            (max_pool2d_bwd, (f(20, 8, 6), f(20, 4, 3))),
            (dequant_matmul, (f(256, 32), r.integers(-100, 100, (256, 60)).astype(np.int8), u(60))),
            (quantize_by_tensor, (f(60, 32),)),
            (l2_normalize, (f(200, 40),)),
            (rope_by_position, (f(48, 32), f(100, 16), f(100, 16), r.integers(0, 100, (48, 1)).astype(np.int32))),
            (softmax_with_lengths, (f(70, 40), r.integers(1, 41, (70, 1)).astype(np.int32))),
            (gate_and_count, (f(64, 48), f(64, 16))),
            (resize_bilinear_rows, (f(16, 5, 12), 9)),
            (mlp_gelu_blocked, (half(64, 256), half(256, 256), f(256, 1), half(256, 256), f(1, 256))),
            (layernorm_params_bwd, (f(200, 40), f(200, 40)))]

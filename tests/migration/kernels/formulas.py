# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Formulas of layers: gates, statistics, rotations, losses, distances, transforms of rows."""

import math

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim


@nki.jit
def squeeze_excite(x, w1, w2):
    """x [channels, pixels], w1 [channels, squeezed], w2 [squeezed, channels]."""
    channels, pixels = x.shape
    squeezed = w1.shape[1]
    out = nl.ndarray((channels, pixels), dtype=x.dtype, buffer=nl.shared_hbm)
    ip, iff = nl.mgrid[0:channels, 0:pixels]
    image = nl.load(x[ip, iff])
    pooled = nl.mean(image, axis=[1], keepdims=True)
    hidden = nl.ndarray((par_dim(squeezed), 1), dtype=nl.float32, buffer=nl.sbuf)
    hidden[...] = nisa.activation(op=nl.relu, data=nisa.nc_matmul(nl.load(w1), pooled))
    gate = nl.sigmoid(nisa.nc_matmul(nl.load(w2), hidden))
    nl.store(out[ip, iff], value=image * gate)
    return out


@nki.jit
def layer_norm_over_chunks(x, eps=1e-5):
    rows, width = x.shape
    chunk = 64
    steps = width // chunk
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(128)[:, None]
    i_f = nl.arange(chunk)[None, :]
    for r in nl.affine_range(math.ceil(rows / 128)):
        inside = r * 128 + i_p < rows
        total = nl.zeros((128, 1), nl.float32)
        squares = nl.zeros((par_dim(128), 1), nl.float32)
        for c in nl.sequential_range(steps):
            tile = nl.load(x[r * 128 + i_p, c * chunk + i_f], mask=inside, dtype=nl.float32)
            total[...] += nl.sum(tile, axis=1, keepdims=True, mask=inside)
            squares[...] += nl.sum(nl.square(tile, mask=inside), axis=1, keepdims=True, mask=inside)
        mean = total / width
        scale = nl.rsqrt(squares / width - mean * mean + eps)
        for c in nl.affine_range(steps):
            tile = nl.load(x[r * 128 + i_p, c * chunk + i_f], mask=inside)
            nl.store(out[r * 128 + i_p, c * chunk + i_f], (tile - mean) * scale, mask=inside)
    return out


@nki.jit
def product_with_cached_rows(lhsT, rhs):
    """The stationary blocks stay in SBUF for all columns."""
    K, M = lhsT.shape
    _, N = rhs.shape
    TILE_K, TILE_M, TILE_N = nl.tile_size.pmax, nl.tile_size.gemm_stationary_fmax, 256
    out = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // TILE_M):
        cached = nl.ndarray((K // TILE_K, par_dim(TILE_K), TILE_M), dtype=lhsT.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(K // TILE_K):
            cached[k] = nl.load(lhsT[k * TILE_K:(k + 1) * TILE_K, m * TILE_M:(m + 1) * TILE_M])
        for n in nl.affine_range(N // TILE_N):
            acc = nl.zeros((TILE_M, TILE_N), nl.float32, buffer=nl.psum)
            i_rhs = nl.mgrid[0:TILE_K, 0:TILE_N]
            for k in nl.affine_range(K // TILE_K):
                moving = nl.load(rhs[k * TILE_K + i_rhs.p, n * TILE_N + i_rhs.x])
                acc += nl.matmul(cached[k], moving, transpose_x=True)
            i_out = nl.mgrid[0:TILE_M, 0:TILE_N]
            nl.store(out[m * TILE_M + i_out.p, n * TILE_N + i_out.x], value=nl.copy(acc, dtype=out.dtype))
    return out


@nki.jit
def rope_of_pairs(x, cos, sin):
    """Even and odd columns are the parts of complex numbers."""
    rows, width = x.shape
    half = width // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(rows)[:, None], nl.arange(half)[None, :]
    tile, c, s = nl.load(x), nl.load(cos), nl.load(sin)
    turned = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.sbuf)
    turned[p, 2 * f] = tile[p, 2 * f] * c - tile[p, 2 * f + 1] * s
    turned[p, 2 * f + 1] = tile[p, 2 * f] * s + tile[p, 2 * f + 1] * c
    nl.store(out, turned)
    return out


@nki.jit
def top_16(x):
    """The sixteen largest of each row, in two rounds of eight."""
    rows, width = x.shape
    out = nl.ndarray((rows, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for k in nl.static_range(2):
        largest = nisa.max8(src=tile)
        nl.store(out[:, k * 8:(k + 1) * 8], value=largest)
        tile = nisa.nc_match_replace8(data=tile, vals=largest, imm=-1e9)
    return out


@nki.jit
def smoothed(x, decay):
    """y[t] = decay * y[t - 1] + x[t], by one scan of each row."""
    rows, width = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    factors = nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.sbuf)
    factors[...] = nl.load(decay).broadcast_to((rows, width))
    nl.store(out, nisa.tensor_tensor_scan(factors, nl.load(x), initial=0.0, op0=np.multiply, op1=np.add))
    return out


@nki.jit
def statistics_of_ragged_chunks(x):
    rows, width = x.shape
    size = 100
    out = nl.ndarray((rows, 2), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    chunks = math.ceil(width / size)
    stats = nl.ndarray((rows, 6 * chunks), dtype=nl.float32, buffer=nl.sbuf)
    for c in nl.static_range(chunks):
        end = min(width, (c + 1) * size)
        stats[:, c * 6:(c + 1) * 6] = nisa.bn_stats(tile[:, c * size:end], dtype=nl.float32)
    nl.store(out, nisa.bn_aggr(stats))
    return out


@nki.jit
def prefix_mask(scores, prefix=12):
    """Rows see a prefix and the columns up to their own."""
    rows, width = scores.shape
    out = nl.ndarray(scores.shape, dtype=scores.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(rows)[:, None], nl.arange(width)[None, :]
    tile = nl.load(scores)
    causal = nisa.affine_select(pred=(i_p >= i_f), on_true_tile=tile[i_p, i_f], on_false_value=-9984.0, dtype=nl.float32)
    j_f = nl.arange(prefix)[None, :]
    causal[i_p, j_f] = nl.copy(tile[i_p, j_f])
    nl.store(out[i_p, i_f], nl.softmax(causal, axis=-1))
    return out


@nki.jit
def ragged_sum_on_a_grid(a, b):
    """Each program has a block of rows and of columns."""
    rows, width = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    r, c = nl.program_id(axis=0), nl.program_id(axis=1)
    ix = r * 128 + nl.arange(128)[:, None]
    iy = c * 200 + nl.arange(200)[None, :]
    inside = (ix < rows) & (iy < width)
    total = nl.add(nl.load(a[ix, iy], mask=inside), nl.load(b[ix, iy], mask=inside), mask=inside)
    nl.store(out[ix, iy], value=total, mask=inside)
    return out


@nki.jit
def gelu_by_tanh(x):
    rows, width = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        t = nl.load(x[nl.ds(i * 128, 128), :])
        inner = math.sqrt(2 / math.pi) * (t + 0.044715 * nl.power(t, 3))
        nl.store(out[nl.ds(i * 128, 128), :], 0.5 * t * (1 + nl.tanh(inner)))
    return out


@nki.jit
def chamfer(a, b):
    """a [d, n], b [d, m]: the squared distance of each point of a to its nearest of b."""
    d, n = a.shape
    _, m = b.shape
    out = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(a), nl.load(b)
    ones = nl.ones((d, n), dtype=nl.float32)
    cross = nisa.nc_matmul(left, right)
    norm_b = nisa.nc_matmul(ones, nl.square(right))
    norm_a = nisa.nc_matmul(nl.square(left), nl.ones((d, 1), dtype=nl.float32))
    distance = nl.add(nl.subtract(nl.copy(norm_b), nl.multiply(cross, 2.0)), nl.copy(norm_a))
    nl.store(out, nl.min(distance, axis=1, keepdims=True))
    return out


@nki.jit
def nll_of_classes(logits, labels):
    """logits [rows, classes], labels int32 [rows, 1]."""
    rows, classes = logits.shape
    out = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile, label = nl.load(logits), nl.load(labels)
    highest = nl.max(tile, axis=1, keepdims=True)
    total = nl.zeros((rows, 1), dtype=nl.float32)
    raised = nisa.activation_reduce(op=nl.exp, data=tile - highest, reduce_op=np.add, reduce_res=total)
    numbers = nisa.iota(nl.arange(classes)[None, :], dtype=nl.int32)
    numbers_of_rows = nl.copy(numbers.broadcast_to((rows, classes)), dtype=nl.float32)
    hit = nl.equal(numbers_of_rows, nl.copy(label, dtype=nl.float32), dtype=nl.float32)
    chosen = nl.sum(hit * tile, axis=1, keepdims=True)
    nl.store(out, nl.log(total) + highest - chosen)
    return out


@nki.jit
def hadamard(x):
    """The fast transform of each row."""
    rows, width = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    step = 1
    while step < width:
        after = nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.sbuf)
        for start in range(0, width, 2 * step):
            low, high = tile[:, start:start + step], tile[:, start + step:start + 2 * step]
            after[:, start:start + step] = low + high
            after[:, start + step:start + 2 * step] = low - high
        tile = after
        step *= 2
    nl.store(out, tile * (1 / math.sqrt(width)))
    return out


def _normalized(tile, eps):
    return tile * nl.rsqrt(nl.mean(nl.square(tile), axis=1, keepdims=True) + eps)


@nki.jit
def qk_norm_scores(q, k, eps=1e-6):
    """q, k [sequence, d]."""
    rows, d = q.shape
    out = nl.ndarray((rows, k.shape[0]), dtype=nl.float32, buffer=nl.shared_hbm)
    identity = nl.load(nl.shared_identity_matrix(n=128, dtype=nl.float32))
    sides = []
    for tensor in (q, k):
        normed = _normalized(nl.load(tensor), eps)
        turned = nisa.nc_matmul(normed, identity[0:rows, 0:rows], is_transpose=True, is_moving_onezero=True)
        sides.append(nisa.tensor_copy(turned, engine=nisa.vector_engine))
    nl.store(out, nisa.nc_matmul(sides[0], sides[1]) * (d ** -0.5))
    return out


@nki.jit
def mean_pool_by_strides(image):
    """image [channels, 2 h, 2 w]: the mean of each 2 x 2 window, by an access pattern of five axes."""
    channels, height, width = image.shape
    out = nl.ndarray((channels, height // 2, width // 2), dtype=image.dtype, buffer=nl.shared_hbm)
    i0 = nl.arange(channels)[:, None, None, None, None]
    i1 = nl.arange(height // 2)[None, :, None, None, None]
    i2 = nl.arange(width // 2)[None, None, :, None, None]
    i3 = nl.arange(2)[None, None, None, :, None]
    i4 = nl.arange(2)[None, None, None, None, :]
    tile = nl.load(image)
    pooled = nl.sum(tile[i0, 2 * i1 + i3, 2 * i2 + i4], axis=[3, 4]) / 4
    nl.store(out, value=pooled)
    return out


def cases():
    r = np.random.default_rng(3)

    def n(*shape):
        return r.standard_normal(shape).astype(np.float32)
    return [
        (squeeze_excite, (n(96, 49), n(96, 24), n(24, 96))),
        (layer_norm_over_chunks, (n(200, 192),)),
        (product_with_cached_rows, (n(256, 128), n(256, 512))),
        (rope_of_pairs, (n(64, 32), n(64, 16), n(64, 16))),
        (top_16, (n(64, 96),)),
        (smoothed, (n(40, 70), np.full((40, 1), 0.75, np.float32))),
        (statistics_of_ragged_chunks, (n(60, 270),)),
        (prefix_mask, (n(48, 48),)),
        (ragged_sum_on_a_grid[2, 2], (n(200, 300), n(200, 300))),
        (gelu_by_tanh, (n(256, 40),)),
        (chamfer, (n(16, 90), n(16, 120))),
        (nll_of_classes, (n(70, 33), r.integers(0, 33, (70, 1)).astype(np.int32))),
        (hadamard, (n(50, 32),)),
        (qk_norm_scores, (n(120, 64), n(120, 64))),
        (mean_pool_by_strides, (n(20, 8, 12),)),
    ]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of courses and forums: a convolution with pooling, a backward pass, quantization, lengths at run time."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def fused_conv2d_maxpool(X, W, bias, pool_size=1):
    """The exercise of a course: convolution by products of shifted views, bias, max pooling."""
    batch_size, in_channels, input_height, input_width = X.shape
    out_channels, in_channels_, filter_height, filter_width = W.shape
    out_channels_ = bias.shape[0]
    assert (
        in_channels_ == in_channels and out_channels_ == out_channels
    ), f"Shape mismatch. {in_channels_}, {in_channels}, {out_channels_}, {out_channels}"
    out_height = input_height - filter_height + 1
    out_width = input_width - filter_width + 1
    out_pool_height = out_height // pool_size
    out_pool_width = out_width // pool_size
    # Can assume one PSUM bank can at least fit one row of the pixels
    assert nl.tile_size.gemm_moving_fmax >= out_width

    # Initialize output array
    X_out = nl.ndarray(
        shape=(batch_size, out_channels, out_pool_height, out_pool_width),
        dtype=X.dtype,
        buffer=nl.hbm,
    )
    c_in_pmax = min(in_channels, nl.tile_size.pmax)
    n_tiles_c_in = in_channels // c_in_pmax
    c_out_pmax = min(out_channels, 128)
    n_tiles_c_out = out_channels // c_out_pmax

    w_sbuf = nl.ndarray((n_tiles_c_out, nl.par_dim(c_out_pmax), n_tiles_c_in, c_in_pmax, filter_height, filter_width),
                        dtype=W.dtype, buffer=nl.sbuf)
    for co in nl.affine_range(n_tiles_c_out):
        w_sbuf[co] = nl.load(W.reshape((n_tiles_c_out, c_out_pmax, n_tiles_c_in, c_in_pmax, filter_height,
                                        filter_width))[co])
    w_t = nl.ndarray((filter_height, filter_width, n_tiles_c_out, n_tiles_c_in, nl.par_dim(c_in_pmax), c_out_pmax),
                     dtype=W.dtype, buffer=nl.sbuf)
    for co in nl.affine_range(n_tiles_c_out):
        for ci in nl.affine_range(n_tiles_c_in):
            for i in nl.affine_range(filter_height):
                for j in nl.affine_range(filter_width):
                    w_t[i, j, co, ci] = nisa.nc_transpose(nl.copy(w_sbuf[co, :, ci, :, i, j]))
    for b in nl.affine_range(batch_size):
        x_sbuf = nl.ndarray((n_tiles_c_in, nl.par_dim(c_in_pmax), input_height, input_width), dtype=X.dtype,
                            buffer=nl.sbuf)
        for ci in nl.affine_range(n_tiles_c_in):
            x_sbuf[ci] = nl.load(X[b, ci * c_in_pmax:(ci + 1) * c_in_pmax])
        for co in nl.affine_range(n_tiles_c_out):
            b_tile = nl.load(bias[co * c_out_pmax:(co + 1) * c_out_pmax])
            out_tile = nl.ndarray((nl.par_dim(c_out_pmax), out_height, out_width), dtype=X.dtype, buffer=nl.sbuf)
            for r in nl.affine_range(out_height):
                acc = nl.zeros((nl.par_dim(c_out_pmax), out_width), dtype=nl.float32, buffer=nl.psum)
                for ci in nl.affine_range(n_tiles_c_in):
                    for i in nl.affine_range(filter_height):
                        for j in nl.affine_range(filter_width):
                            acc += nl.matmul(w_t[i, j, co, ci], x_sbuf[ci, :, r + i, j:j + out_width], transpose_x=True)
                out_tile[:, r, :] = nisa.tensor_scalar(acc, np.add, b_tile)
            if pool_size > 1:
                i_0 = nl.arange(c_out_pmax)[:, None, None, None, None]
                i_1 = nl.arange(out_pool_height)[None, :, None, None, None]
                i_2 = nl.arange(pool_size)[None, None, :, None, None]
                i_3 = nl.arange(out_pool_width)[None, None, None, :, None]
                i_4 = nl.arange(pool_size)[None, None, None, None, :]
                pooled = nl.max(out_tile[i_0, i_1 * pool_size + i_2, i_3 * pool_size + i_4], axis=[2, 4])
                nl.store(X_out[b, co * c_out_pmax:(co + 1) * c_out_pmax], value=pooled)
            else:
                nl.store(X_out[b, co * c_out_pmax:(co + 1) * c_out_pmax, :, :], value=out_tile)
    return X_out


@nki.jit
def flash_bwd_tile(q, k, v, o, dy, lse, scale=0.125, causal=True):
    """The gradients of one head for one block of queries and keys."""
    d, s = q.shape
    dq = nl.ndarray((d, s), dtype=q.dtype, buffer=nl.shared_hbm)
    dk = nl.ndarray((d, s), dtype=q.dtype, buffer=nl.shared_hbm)
    dv = nl.ndarray((s, d), dtype=q.dtype, buffer=nl.shared_hbm)
    q_t, k_t, v_t, o_t, dy_t = (nl.load(t) for t in (q, k, v, o, dy))
    lse_t = nl.load(lse)
    do_o = nl.sum(o_t * dy_t, axis=[1])
    i_q, i_k = nl.mgrid[0:s, 0:s]
    qk = nl.ndarray((s, s), dtype=nl.float32, buffer=nl.psum)
    qk[...] = nisa.nc_matmul(q_t, k_t)
    logits = nl.multiply(qk, scale)
    if causal:
        logits = nisa.affine_select(pred=(i_q >= i_k), on_true_tile=logits, on_false_value=-9984.0)
    p = nisa.activation(np.exp, logits, bias=-lse_t)
    dv_psum = nisa.nc_matmul(p, dy_t)
    nl.store(dv, nl.copy(dv_psum))
    dy_tt, v_tt = nl.copy(nisa.nc_transpose(dy_t)), nl.copy(nisa.nc_transpose(v_t))
    dp = nisa.nc_matmul(dy_tt, v_tt)
    ds_ = nisa.scalar_tensor_tensor(data=dp, op0=np.subtract, operand0=do_o, op1=np.multiply, operand1=p)
    ds_ = nl.multiply(ds_, scale)
    dk_psum = nisa.nc_matmul(nl.copy(nisa.nc_transpose(q_t)), ds_)
    nl.store(dk, nl.copy(dk_psum))
    ds_t = nl.copy(nisa.nc_transpose(ds_))
    dq_psum = nisa.nc_matmul(nl.copy(nisa.nc_transpose(k_t)), ds_t)
    nl.store(dq, nl.copy(dq_psum))
    return dq, dk, dv


@nki.jit
def rmsnorm_quant(hidden, w, lower_bound=0.0, eps=1e-6):
    """Norm, clipping by a bound, a scale for each row; rows by a static_range with a tail."""
    n, d = hidden.shape
    out = nl.ndarray((n, d), dtype=nl.int8, buffer=nl.shared_hbm)
    scales = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    g = nl.load(w.reshape((1, d)))
    p_max = 128
    ones = nl.ones((1, p_max), dtype=nl.float32)
    g_bc = nl.copy(nisa.nc_matmul(ones, g))
    for t in nl.static_range((n + p_max - 1) // p_max):
        size = min(p_max, n - t * p_max)
        tile = nl.load(hidden[nl.ds(t * p_max, size), :])
        sq = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        _ = nisa.activation_reduce(op=nl.square, data=tile, reduce_op=np.add, reduce_res=sq)
        rms = nl.rsqrt(sq / d + eps)
        x = nisa.scalar_tensor_tensor(data=tile, op0=nl.multiply, operand0=rms, op1=nl.multiply,
                                      operand1=g_bc[0:size, :])
        if lower_bound > 0:
            x = nisa.tensor_scalar(x, op0=nl.minimum, operand0=lower_bound, op1=nl.maximum, operand1=-lower_bound)
        amax = nisa.tensor_reduce(nl.max, nl.abs(x), axis=1)
        scale = nl.maximum(amax, 1e-6) / 127
        nl.store(scales[t * p_max:t * p_max + size, :], scale)
        xq = nl.divide(x, scale)
        nl.store(out[t * p_max:t * p_max + size, :], nl.copy(xq, dtype=nl.int8))
    return out, scales


@nki.jit
def select_by_length(x, lengths):
    """Row lengths at run time: a comparison of an iota tile with a column."""
    n, m = x.shape
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    t, l = nl.load(x), nl.load(lengths)
    pos = nisa.iota(nl.arange(m)[None, :], dtype=nl.float32)
    pos_bc = nl.broadcast_to(pos, shape=(n, m))
    keep = nl.less(pos_bc, l)
    nl.store(out, nl.where(keep, t, -1e4))
    return out


@nki.jit
def histogram(values, bins: int = 8):
    """Counts by comparisons, one column for each bin; sum over partitions by a product."""
    p, f = values.shape
    out = nl.ndarray((1, bins), dtype=nl.float32, buffer=nl.shared_hbm)
    v = nl.load(values)
    counts = nl.zeros((p, bins), dtype=nl.float32)
    for b in range(bins):
        inside = nl.logical_and(nl.greater_equal(v, float(b)), nl.less(v, float(b + 1)), dtype=nl.float32)
        counts[:, b] = nl.sum(inside, axis=[1])
    total = nl.matmul(nl.ones((p, 1), dtype=nl.float32), counts, transpose_x=True)
    nl.store(out, total)
    return out


@nki.jit
def optional_bias(x, bias=None, square=True):
    """Values of conditional expressions that take several instructions."""
    n, m = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    b = nisa.tensor_copy(nl.load(bias)) if bias is not None else None
    # scaled
    y = nisa.activation(np.square, t) if square else nl.copy(t)
    z = nisa.tensor_scalar(y, np.add, b) if b is not None else y
    w = nl.sum(nl.copy(nl.transpose(z)), axis=[1]) if n == m and not square else nl.max(z, axis=[1])
    nl.store(out, z - w)
    return out


def cases():
    r = np.random.default_rng(0)
    def f(*s):
        return r.standard_normal(s).astype(np.float32)
    return [(fused_conv2d_maxpool, (np.rint(f(2, 32, 8, 10)), np.rint(f(32, 32, 3, 3)), f(32, 1), 2)),
            (fused_conv2d_maxpool, (np.rint(f(1, 16, 8, 10)), np.rint(f(32, 16, 3, 3)), f(32, 1))),
            (flash_bwd_tile, (*(f(*s) for s in ((32, 64), (32, 64), (64, 32), (64, 32), (64, 32))),
                              np.abs(f(64, 1)) + 4)),
            (rmsnorm_quant, (f(200, 48), f(48))), (rmsnorm_quant, (f(200, 48), f(48), 1.0)),
            (select_by_length, (f(16, 24), r.integers(1, 24, (16, 1)).astype(np.float32))),
            (histogram, (r.uniform(0, 8, (32, 40)).astype(np.float32),)), (optional_bias, (f(16, 24),)),
            (optional_bias, (f(16, 24), f(16, 1))), (optional_bias, (f(16, 16), f(16, 1), False))]

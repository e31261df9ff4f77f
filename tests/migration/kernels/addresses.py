# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles at addresses of callbacks, strided windows, scans, and blocks that a table of the host selects."""

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim


def sbuf_alloc(base, size):
    """An allocation callback: tiles of size bytes, one after the other."""
    def alloc(idx, pdim_size, fdim_size):
        block, = idx
        return (0, base + (block % 2) * size)
    return alloc


def psum_alloc(bank):
    def alloc(idx, pdim_size, fdim_size):
        return (bank + idx[0] % 2, 0, 0)
    return alloc


@ncc.enable_stack_allocator
@ncc.skip_middle_end_transformations
@nki.jit
def softmax_attention_allocated(q_ref, k_ref, v_ref, use_causal_mask=False):
    """(d, s) operands: scores, softmax, product; tiles by callbacks."""
    d, s = q_ref.shape
    out = nl.ndarray((s, d), dtype=q_ref.dtype, buffer=nl.shared_hbm)
    n = s // 128
    zero = nl.ndarray((par_dim(128), 1), dtype=np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    zero[...] = nisa.memset((128, 1), 0, np.float32)
    addr = 4
    ident = nl.ndarray((par_dim(128), 128), dtype=np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=60000))
    ident[...] = nl.load(nl.shared_constant(np.identity(128, np.float32)))
    k_sb = nl.ndarray((par_dim(d), s), dtype=k_ref.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=addr))
    addr += s * 4
    k_sb[...] = nl.load(k_ref)
    q_sb = nl.ndarray((n, par_dim(d), 128), dtype=q_ref.dtype, buffer=ncc.sbuf.alloc(sbuf_alloc(addr, 512)))
    addr += 1024
    v_sb = nl.ndarray((n, par_dim(128), d), dtype=v_ref.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=addr, num_free_tiles=(n,)))
    addr += n * d * 4
    for j in nl.affine_range(n):
        v_sb[j] = nl.load(v_ref[nl.ds(j * 128, 128), :])
    scores = nl.ndarray((n, par_dim(128), s), dtype=np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=addr, num_free_tiles=(2,)))
    addr += 2 * s * 4
    qk = nl.ndarray((n, par_dim(128), s), dtype=np.float32, buffer=ncc.psum.alloc(psum_alloc(0)))
    mx = nl.ndarray((n, par_dim(128), 1), dtype=np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=addr, num_free_tiles=(2,)))
    addr += 8
    sums = nl.ndarray((n, par_dim(128), 1), dtype=np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=addr, num_free_tiles=(2,)))
    addr += 8
    probs = nl.ndarray((n, par_dim(128), s), dtype=q_ref.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=addr, num_free_tiles=(2,)))
    addr += 2 * s * 4
    pt = nl.ndarray((n, n, par_dim(128), 128), dtype=np.float32, buffer=ncc.psum.mod_alloc(base_bank=2, num_bank_tiles=(1, 2)))
    pt_sb = nl.ndarray((n, n, par_dim(128), 128), dtype=q_ref.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=addr, num_free_tiles=(1, 2)))
    addr += 1024
    o_ps = nl.ndarray((n, par_dim(128), d), dtype=np.float32, buffer=ncc.psum.mod_alloc(base_bank=4, num_bank_tiles=(2,)))
    o_sb = nl.ndarray((n, par_dim(128), d), dtype=out.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=addr, num_free_tiles=(2,)))
    addr += 2 * d * 4
    inv = nl.ndarray((n, par_dim(128), 1), dtype=np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=addr, num_free_tiles=(2,)))
    ip, jf = nl.mgrid[0:128, 0:s]
    for i in nl.affine_range(n):
        q_sb[i] = nl.load(q_ref[:, nl.ds(i * 128, 128)])
        qk[i] = nisa.nc_matmul(q_sb[i], k_sb)
        if use_causal_mask:
            scores[i, ip, jf] = nisa.affine_select(pred=(i * 128 + ip >= jf), on_true_tile=qk[i, ip, jf], on_false_value=-9984.0)
        else:
            scores[i] = nisa.activation(op=nl.copy, data=qk[i], bias=zero)
        mx[i] = nisa.tensor_reduce(np.max, scores[i], axis=(1,), negate=True)
        probs[i] = nisa.activation_reduce(op=np.exp, data=scores[i], bias=mx[i], reduce_op=np.add, reduce_res=sums[i])
        for j in nl.affine_range(n):
            pt[i, j] = nisa.nc_matmul(probs[i, :, nl.ds(j * 128, 128)], ident, is_transpose=True)
            pt_sb[i, j] = nisa.tensor_copy(pt[i, j], engine=nisa.vector_engine)
        for j in nl.affine_range(n):
            o_ps[i] += nisa.nc_matmul(pt_sb[i, j], v_sb[j])
        inv[i] = nisa.reciprocal(sums[i])
        o_sb[i] = nisa.tensor_scalar(data=o_ps[i], op0=np.multiply, operand0=inv[i])
        nl.store(out[nl.ds(i * 128, 128), :], o_sb[i])
    return out


@nki.jit
def max_pool(img, k=3, stride=2):
    """(C, H, W): windows as five-dimensional index grids."""
    C, H, W = img.shape
    ho, wo = (H - k) // stride + 1, (W - k) // stride + 1
    out = nl.ndarray((C, ho, wo), dtype=img.dtype, buffer=nl.shared_hbm)
    for ct in nl.affine_range((C + 127) // 128):
        i_c = nl.arange(128)[:, None, None, None, None]
        i_0 = nl.arange(ho)[None, :, None, None, None]
        i_1 = nl.arange(wo)[None, None, :, None, None]
        i_2 = nl.arange(k)[None, None, None, :, None]
        i_3 = nl.arange(k)[None, None, None, None, :]
        i_cc, i_h, i_w = nl.mgrid[0:128, 0:H, 0:W]
        x = nl.load(img[ct * 128 + i_cc, i_h, i_w], mask=(ct * 128 + i_cc < C))
        y = nl.max(x[i_c, stride * i_0 + i_2, stride * i_1 + i_3], axis=[3, 4], mask=(ct * 128 + i_c < C))
        nl.store(out[ct * 128 + nl.arange(128)[:, None, None], nl.arange(ho)[None, :, None], nl.arange(wo)[None, None, :]],
                 value=y, mask=(ct * 128 + nl.arange(128)[:, None, None] < C))
    return out


@nki.jit
def upsample_nearest(img, factor=2):
    """Nearest neighbors: writes with strides."""
    C, H, W = img.shape
    out = nl.ndarray((C, H * factor, W * factor), dtype=img.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(C)[:, None, None]
    i_y = nl.arange(H)[None, :, None]
    i_x = nl.arange(W)[None, None, :]
    x = nl.load(img)
    big = nl.ndarray((par_dim(C), H * factor, W * factor), dtype=img.dtype)
    for dy in nl.static_range(factor):
        for dx in nl.static_range(factor):
            big[i_p, factor * i_y + dy, factor * i_x + dx] = nl.copy(x[i_p, i_y, i_x])
    nl.store(out, big)
    return out


@nki.jit
def pixel_shuffle(x, r=2):
    """(C*r*r, H, W) to (C, H*r, W*r): loads of strided partitions."""
    crr, H, W = x.shape
    C = crr // (r * r)
    out = nl.ndarray((C, H * r, W * r), dtype=x.dtype, buffer=nl.shared_hbm)
    i_c = nl.arange(C)[:, None, None]
    i_h = nl.arange(H)[None, :, None]
    i_w = nl.arange(W)[None, None, :]
    for a in nl.affine_range(r):
        for b in nl.affine_range(r):
            t = nl.load(x[i_c * (r * r) + a * r + b, i_h, i_w])
            nl.store(out[i_c, i_h * r + a, i_w * r + b], value=t)
    return out


@nki.jit
def selective_scan(delta, u, A, B, C):
    """Mamba: (channels, L), A (channels, S), B and C (S, L)."""
    ch, L = delta.shape
    S = A.shape[1]
    out = nl.ndarray((ch, L), dtype=delta.dtype, buffer=nl.shared_hbm)
    for c in nl.affine_range(ch // 128):
        sl = nl.ds(c * 128, 128)
        d_i = nl.load(delta[sl, :])
        u_i = nl.load(u[sl, :])
        A_i = nl.load(A[sl, :])
        du = nl.multiply(d_i, u_i)
        acc = nl.zeros((par_dim(128), L), dtype=delta.dtype)
        for s in nl.affine_range(S):
            dA = nisa.activation(op=nl.exp, data=d_i, scale=A_i[:, s])
            B_s = nl.load(B[s:s + 1, :])
            dBu = nisa.tensor_tensor(du, B_s.broadcast_to((128, L)), op=nl.multiply)
            scan = nisa.tensor_tensor_scan(dA, dBu, initial=0, op0=np.multiply, op1=np.add)
            C_s = nl.load(C[s:s + 1, :]).broadcast_to((128, L))
            acc[...] += nisa.tensor_tensor(scan, C_s, op=nl.multiply)
        nl.store(out[sl, :], acc)
    return out


@nki.jit
def prefix_sum_rows(x):
    """Sums down the rows, by a product with a triangle of ones, the carry from tile to tile."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_k = nl.arange(128)[:, None]
    i_m = nl.arange(128)[None, :]
    ones = nl.ones((128, 128), dtype=np.float32)
    tri = nisa.affine_select(pred=(i_m >= i_k), on_true_tile=ones, on_false_value=0)
    last = nl.zeros((1, cols), dtype=np.float32)
    for t in nl.sequential_range(rows // 128):
        tile = nl.load(x[t * 128:(t + 1) * 128, :])
        sums = nisa.nc_matmul(tri, tile)
        cur = sums + last.broadcast_to((128, cols))
        nl.store(out[t * 128:(t + 1) * 128, :], cur)
        last[...] = nisa.tensor_partition_reduce(np.add, tile) + last
    return out


@nki.jit
def block_sparse(a_t, b, pattern):
    """A product in which a table of the host says which blocks there are."""
    K, M = a_t.shape
    N = b.shape[1]
    out = nl.ndarray((M, N), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for m, row in enumerate(pattern):
        blocks = [k for k, on in enumerate(row) if on]
        if not blocks:
            nl.store(out[nl.ds(m * 64, 64), :], nl.zeros((64, N), dtype=a_t.dtype))
            continue
        acc = nl.zeros((par_dim(64), N), dtype=nl.float32, buffer=nl.psum)
        for k in blocks:
            acc += nl.matmul(nl.load(a_t[nl.ds(k * 64, 64), nl.ds(m * 64, 64)]), nl.load(b[nl.ds(k * 64, 64), :]), transpose_x=True)
        nl.store(out[nl.ds(m * 64, 64), :], nl.copy(acc, dtype=a_t.dtype))
    return out


def cases():
    rng = np.random.default_rng(4)
    def f(*s): return rng.standard_normal(s).astype(np.float32)
    return [(softmax_attention_allocated, (f(64, 256), f(64, 256), f(256, 64))),
            (softmax_attention_allocated, (f(64, 256), f(64, 256), f(256, 64)), {"use_causal_mask": True}),
            (max_pool, (f(130, 11, 13),)), (upsample_nearest, (f(32, 5, 7),)), (pixel_shuffle, (f(32, 5, 6),)),
            (selective_scan, (f(128, 64) * 0.1, f(128, 64), -np.abs(f(128, 4)), f(4, 64), f(4, 64))),
            (prefix_sum_rows, (f(256, 40),)),
            (block_sparse, (f(192, 192), f(192, 80), ((1, 0, 1), (0, 0, 0), (1, 1, 1))))]

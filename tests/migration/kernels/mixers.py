# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Token mixers and samplers of the beta generation: retention, blocks of keys, choices of tokens, gathers in SBUF."""

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim
from neuronxcc.nki.typing import tensor

FLOOR = -1.0e30


@nki.jit
def matmul_loop_reduce(lhsT, rhs, tiles_per_block=2):
    """lhsT [K, M], rhs [K, N]: products of blocks of K, reduced over the loop of blocks in SBUF."""
    K, M = lhsT.shape
    K_, N = rhs.shape
    assert K == K_
    TILE_K = nl.tile_size.pmax
    block = TILE_K * tiles_per_block
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    out_tile = nl.zeros((par_dim(M), N), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.affine_range(K // block):
        i = nl.mgrid[0:TILE_K, 0:M]
        j = nl.mgrid[0:TILE_K, 0:N]
        partial = nl.zeros((par_dim(M), N), dtype=nl.float32, buffer=nl.psum)
        for b in nl.affine_range(tiles_per_block):
            left = nl.load(lhsT[k * block + b * TILE_K + i.p, i.x])
            right = nl.load(rhs[k * block + b * TILE_K + j.p, j.x])
            partial[...] += nisa.nc_matmul(left, right)
        out_tile[...] = nl.loop_reduce(partial, op=np.add, loop_indices=[k], dtype=nl.float32)
    nl.store(result, value=out_tile)
    return result


@nki.jit
def retention_decode(state_in, q, k, v, gamma):
    """state [H, D, E], q, k [H, D], v [H, E], gamma [1, H]: s = gamma * s + k^T v and y = q s, for one token."""
    H, D, E = state_in.shape
    state_out = nl.ndarray(state_in.shape, dtype=state_in.dtype, buffer=nl.shared_hbm)
    y_out = nl.ndarray((H, E), dtype=q.dtype, buffer=nl.shared_hbm)
    gammas = nl.load(gamma)
    for h in nl.affine_range(H):
        s: tensor[D, E] = nl.load(state_in[h])
        decay = gammas[:, h].broadcast_to((D, 1))
        k_h = nl.load(k[h:h + 1, :])
        v_h = nl.load(v[h:h + 1, :])
        outer = nl.matmul(k_h, v_h, transpose_x=True)
        new = nisa.scalar_tensor_tensor(data=s, op0=nl.multiply, operand0=decay, op1=nl.add, operand1=outer)
        q_h = nl.load_transpose2d(q[h:h + 1, :])
        y = nisa.nc_matmul(stationary=q_h, moving=new)
        nl.store(state_out[h], new)
        nl.store(y_out[h:h + 1, :], nl.copy(y))
    return state_out, y_out


@nki.jit
def top_p_filter(probs, p: float = 0.9, rounds: int = 2):
    """probs [B, V]: keep the largest probabilities until their sum reaches p (of the 8 * rounds largest ones at most),
    and rescale; the others become zero."""
    B, V = probs.shape
    out = nl.ndarray((B, V), dtype=nl.float32, buffer=nl.shared_hbm)
    x = nl.load(probs, dtype=nl.float32)
    work = nl.copy(x)
    best = nl.ndarray((par_dim(B), 8 * rounds), dtype=nl.float32, buffer=nl.sbuf)
    for r in nl.static_range(rounds):
        best[:, 8 * r:8 * (r + 1)] = nisa.max8(src=work)
        if r < rounds - 1:
            work[...] = nisa.nc_match_replace8(data=work, vals=best[:, 8 * r:8 * (r + 1)], imm=FLOOR)
    ones = nl.ones((B, 8 * rounds), dtype=nl.float32)
    running = nisa.tensor_tensor_scan(ones, best, initial=0.0, op0=np.multiply, op1=np.add)
    before = nl.subtract(running, best)
    inside = nl.less(before, p, dtype=nl.float32)
    kept = nl.where(inside, best, 1.0e30)
    smallest = nl.min(kept, axis=[1], keepdims=True)
    chosen = nl.greater_equal(x, smallest, dtype=nl.float32)
    masked = x * chosen
    nl.store(out, masked / nl.sum(masked, axis=[1], keepdims=True))
    return out


@nki.jit
def select_with_peak(scores, allowed, floor=-1000.0):
    """scores [R, C] where allowed (uint8) is not zero, else floor; also the largest of each row."""
    R, C = scores.shape
    out = nl.ndarray((R, C), dtype=nl.float32, buffer=nl.shared_hbm)
    peaks = nl.ndarray((R, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    on_true = nl.load(scores)
    predicate = nl.load(allowed)
    result = nl.ndarray((R, C), dtype=nl.float32, buffer=nl.sbuf)
    peak = nl.ndarray((R, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.select_reduce(dst=result, predicate=predicate, on_true=on_true, on_false=floor, reduce_res=peak,
                       reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_op=np.max)
    nl.store(out, result)
    nl.store(peaks, peak)
    return out, peaks


@nki.jit
def window_at_run_time(cache, start, width: int = 16):
    """cache [D, S], start int32 [1, 1]: ``width`` columns from a column that the device reads, and their sum."""
    D, S = cache.shape
    out = nl.ndarray((D, width), dtype=cache.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((D, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(cache)
    at = nl.load(start)
    i_p, i_f = nl.mgrid[0:D, 0:width]
    part = nisa.tensor_copy_dynamic_src(tile[i_p, at[0, 0] + i_f])
    sums = nl.ndarray((D, 1), dtype=nl.float32, buffer=nl.sbuf)
    scaled = nisa.tensor_scalar_reduce(data=part, op0=np.multiply, operand0=0.5, reduce_op=np.add, reduce_res=sums[i_p, 0])
    nl.store(out, scaled)
    nl.store(total, sums)
    return out, total


@nki.jit
def block_sparse_scores(q, k, blocks, allocated=True):
    """q [D, S], k [D, T], blocks int32 [S / 64, n]: scores of each block of queries with its n blocks of 64 keys; the
    tiles of keys are at addresses."""
    D, S = q.shape
    n = blocks.shape[1]
    out = nl.ndarray((S // 64, 64, n * 64), dtype=nl.float32, buffer=nl.shared_hbm)
    buffer = ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2,)) if allocated else nl.sbuf
    keys = nl.ndarray((n, par_dim(D), 64), dtype=k.dtype, buffer=buffer)
    flat = k.reshape((D, k.shape[1] // 64, 64))
    for b in nl.sequential_range(S // 64):
        q_tile = nl.load(q[:, b * 64:(b + 1) * 64])
        numbers = nl.load(blocks[b:b + 1, :])
        for j in nl.affine_range(n):
            i_d = nl.arange(D)[:, None]
            i_f = nl.arange(64)[None, :]
            keys[j] = nl.load(flat[i_d, numbers[0, j], i_f])
            scores = nisa.nc_matmul(q_tile, keys[j])
            nl.store(out[b, :, j * 64:(j + 1) * 64], nl.copy(scores))
    return out


def cases():
    r = np.random.default_rng(53)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    probs = np.exp(f(12, 40))
    probs /= probs.sum(1, keepdims=True)
    return [(matmul_loop_reduce, (f(512, 64), f(512, 96))),
            (retention_decode, (f(3, 32, 48), f(3, 32), f(3, 32), f(3, 48), np.float32([[0.9, 0.8, 0.7]]))),
            (top_p_filter, (probs, 0.7)), (top_p_filter, (probs, 0.5, 1)),
            (select_with_peak, (f(40, 24), r.integers(0, 2, (40, 24)).astype(np.uint8))),
            (window_at_run_time, (f(32, 100), np.array([[21]], np.int32))),
            (block_sparse_scores, (f(32, 128), f(32, 512), np.array([[3, 0], [7, 5]], np.int32)))]

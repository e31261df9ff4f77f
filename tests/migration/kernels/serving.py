# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Token generation: paged kv cache, rope, top-k, position encodings, MoE."""
import neuronxcc.nki.typing as nt
import numpy as np
from neuronxcc import nki
from neuronxcc.nki import isa as nisa
from neuronxcc.nki import language as nl
from neuronxcc.nki.isa.constants import oob_mode
from neuronxcc.nki.language import ds, par_dim

PMAX = nl.tile_size.pmax


def div_ceil(n, d):
    return (n + d - 1) // d


@nki.jit
def reshape_and_cache(key, value, k_cache: nt.mutable_tensor, v_cache: nt.mutable_tensor, slot_mapping):
    """Write keys and values of new tokens into blocks of a cache, in place; -1 is padding."""
    num_tokens, kv_dim = key.shape
    num_slots, _ = k_cache.shape
    for t in nl.affine_range(div_ceil(num_tokens, PMAX)):
        i_p = nl.arange(PMAX)[:, None]
        i_f = nl.arange(kv_dim)[None, :]
        mask = t * PMAX + i_p < num_tokens
        slots = nl.load(slot_mapping[t * PMAX + i_p, 0], mask=mask)
        k_t = nl.load(key[t * PMAX + i_p, i_f], mask=mask)
        v_t = nl.load(value[t * PMAX + i_p, i_f], mask=mask)
        nl.store(k_cache[slots[i_p, 0], i_f], k_t, mask=mask)
        nl.store(v_cache[slots[i_p, 0], i_f], v_t, mask=mask)
    return k_cache, v_cache


@nki.jit
def paged_decode_attention(q, k_cache, v_cache, block_table, block_size, scale):
    """q [H, d]; caches [num_blocks, block_size, d]; block_table [num_active, 1] of one sequence."""
    H, d = q.shape
    num_blocks, bs, _ = k_cache.shape
    assert bs == block_size
    n_active, _ = block_table.shape
    out = nl.ndarray((H, d), dtype=q.dtype, buffer=nl.shared_hbm)
    table = nl.load(block_table)
    k_flat = k_cache.reshape((num_blocks, bs * d))
    v_flat = v_cache.reshape((num_blocks, bs * d))
    i_b = nl.arange(n_active)[:, None]
    i_e = nl.arange(bs * d)[None, :]
    k_sb = nl.load(k_flat[table[i_b, 0], i_e])
    v_sb = nl.load(v_flat[table[i_b, 0], i_e])
    q_sb = nl.load(q) * scale
    qT = nl.copy(nl.transpose(q_sb))
    s = nl.ndarray((par_dim(H), bs, n_active), dtype=nl.float32)
    for t in nl.affine_range(bs):
        kT = nisa.nc_transpose(k_sb[:, ds(t * d, d)])
        s[:, t, :] = nisa.nc_matmul(qT, nl.copy(kT))
    m = nl.max(s, axis=[1, 2], keepdims=True)
    p = nl.exp(s - m)
    den = nl.sum(p, axis=[1, 2])
    acc = nl.zeros((par_dim(H), d), dtype=nl.float32, buffer=nl.psum)
    for t in nl.affine_range(bs):
        pT = nl.copy(nisa.nc_transpose(p[:, t, :]))
        acc += nl.matmul(pT, v_sb[:, ds(t * d, d)], transpose_x=True)
    nl.store(out, acc / den)
    return out


@nki.jit
def apply_rope(x, cos, sin):
    """x [B, H, S, D]; cos, sin [S, D]: rotate the halves."""
    B, H, S, D = x.shape
    half = D // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for s in nl.affine_range(S // PMAX):
        c = nl.load(cos[nl.ds(s * PMAX, PMAX), :])
        sn = nl.load(sin[nl.ds(s * PMAX, PMAX), :])
        for b in nl.affine_range(B):
            for h in nl.affine_range(H):
                xt = nl.load(x[b, h, nl.ds(s * PMAX, PMAX), :])
                rot = nl.ndarray((PMAX, D), dtype=x.dtype, buffer=nl.sbuf)
                rot[:, :half] = -1 * xt[:, half:]
                rot[:, half:] = nl.copy(xt[:, :half])
                nl.store(out[b, h, nl.ds(s * PMAX, PMAX), :], xt * c + rot * sn)
    return out


@nki.jit
def add_position_embedding(tokens, table, positions):
    """tokens [n, d] + table[positions]; positions int32 [n, 1]."""
    n, d = tokens.shape
    out = nl.ndarray((n, d), dtype=tokens.dtype, buffer=nl.shared_hbm)
    for t in range(div_ceil(n, PMAX)):
        rows = min(PMAX, n - t * PMAX)
        pos = nl.load(positions[t * PMAX:t * PMAX + rows])
        i_p, i_f = nl.mgrid[:rows, :d]
        emb = nl.ndarray((par_dim(rows), d), dtype=table.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=emb, src=table[pos[i_p, 0], i_f], oob_mode=oob_mode.skip)
        x = nl.load(tokens[t * PMAX:t * PMAX + rows])
        nl.store(out[t * PMAX:t * PMAX + rows], nl.add(x, emb))
    return out


@nki.jit
def topk_router(logits, k: int = 8):
    """Softmax over experts and the 8 largest with their indices."""
    T, E = logits.shape
    weights = nl.ndarray((T, k), dtype=nl.float32, buffer=nl.shared_hbm)
    indices = nl.ndarray((T, k), dtype=nl.uint32, buffer=nl.shared_hbm)
    x = nl.load(logits, dtype=nl.float32)
    probs = nl.softmax(x, axis=-1)
    top = nisa.max8(src=probs)
    where = nisa.nc_find_index8(data=probs, vals=top)
    norm = nl.sum(top[:, 0:k], axis=1)
    nl.store(weights, value=top[:, 0:k] / norm)
    nl.store(indices, value=where[:, 0:k])
    return weights, indices


@nki.jit
def moe_block_matmul(hidden, expert_w, block_to_expert, token_ids):
    """Blocks of 128 tokens, each of one expert."""
    T, D = hidden.shape
    E, _, F = expert_w.shape
    n_blocks = block_to_expert.shape[0]
    B = token_ids.shape[1]
    out = nl.ndarray((T, F), dtype=hidden.dtype, buffer=nl.shared_hbm)
    for blk in nl.sequential_range(n_blocks):
        e = nl.load(block_to_expert[blk, 0], dtype=nl.int32)
        ids = nl.load_transpose2d(token_ids[blk:blk + 1, :])
        i_t, i_d = nl.mgrid[0:B, 0:D]
        x = nl.load(hidden[ids[i_t, 0], i_d])
        xT = nl.copy(nl.transpose(x), dtype=hidden.dtype)
        w = nl.load(expert_w[e[0, 0], nl.arange(D)[:, None], nl.arange(F)[None, :]])
        y = nl.matmul(xT, w, transpose_x=True)
        j_t, j_f = nl.mgrid[0:B, 0:F]
        nl.store(out[ids[j_t, 0], j_f], value=y)
    return out


def cases():
    r = np.random.default_rng(0)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    i = lambda hi, *s: r.integers(0, hi, s).astype(np.int32)
    slots = r.permutation(300)[:150, None].astype(np.int32)
    return [(reshape_and_cache, (f(150, 32), f(150, 32), f(300, 32), f(300, 32), slots)),
            (paged_decode_attention, (f(16, 32), f(20, 8, 32), f(20, 8, 32), i(20, 12, 1), 8, 0.17)),
            (apply_rope, (f(1, 2, 256, 32), f(256, 32), f(256, 32))),
            (add_position_embedding, (f(150, 48), f(77, 48), i(77, 150, 1))),
            (topk_router, (f(64, 16), 4)),
            (moe_block_matmul, (f(64, 32), f(4, 32, 48), i(4, 4, 1), r.permutation(64).reshape(4, 16).astype(np.int32)))]

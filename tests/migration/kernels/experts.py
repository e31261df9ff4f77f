# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation around a mixture of experts: routing, blocks of tokens, and products of experts."""

import math
from dataclasses import dataclass
from enum import Enum

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
from neuronxcc.nki.language import par_dim

PSUM_SIZE = 512
PARTITIONS = nl.tile_size.pmax


class RouterActivation(Enum):
    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"


class SkipMode(Enum):
    NONE = 0
    SKIP_TOKEN = 1


@dataclass(frozen=True)
class BlockShapes:
    """Sizes of one block of tokens."""

    tokens: int
    hidden: int
    intermediate: int

    @property
    def hidden_tiles(self):
        return math.ceil(self.hidden / PARTITIONS)

    @property
    def intermediate_tiles(self):
        return math.ceil(self.intermediate / PARTITIONS)


@nki.jit
def route_tokens(hidden, weights, k=2, activation=RouterActivation.SOFTMAX):
    """hidden [T, H], weights [H, E]: the affinities of the k chosen experts, zero elsewhere, and their indices."""
    T, H = hidden.shape
    _, E = weights.shape
    affinities = nl.ndarray((T, E), dtype=nl.float32, buffer=nl.shared_hbm)
    chosen = nl.ndarray((T, k), dtype=nl.uint32, buffer=nl.shared_hbm)
    n_h = H // PARTITIONS

    # All the weights fit into SBUF
    w_sb = nl.ndarray((n_h, par_dim(PARTITIONS), E), dtype=weights.dtype, buffer=nl.sbuf)
    i_hp, i_ef = nl.mgrid[0:PARTITIONS, 0:E]
    for h in nl.affine_range(n_h):
        w_sb[h, i_hp, i_ef] = nl.load(weights[h * PARTITIONS + i_hp, i_ef])

    i_tp = nl.arange(PARTITIONS)[:, None]
    for t in nl.affine_range(math.ceil(T / PARTITIONS)):
        logits = nl.zeros((par_dim(PARTITIONS), E), dtype=nl.float32, buffer=nl.psum)
        for h in nl.affine_range(n_h):
            x_t = nl.ndarray((PARTITIONS, PARTITIONS), dtype=hidden.dtype, buffer=nl.sbuf)
            x = nl.load(hidden[t * PARTITIONS + i_tp, h * PARTITIONS + nl.arange(PARTITIONS)[None, :]],
                        mask=(t * PARTITIONS + i_tp < T))
            x_t[...] = nl.copy(nisa.nc_transpose(x))
            logits[...] += nisa.nc_matmul(x_t, w_sb[h])

        scores = nisa.tensor_copy(logits, dtype=nl.float32)
        if activation == RouterActivation.SOFTMAX:
            peak = nisa.tensor_reduce(np.max, scores, axis=(1,), negate=True)
            total = nl.zeros((PARTITIONS, 1), dtype=nl.float32, buffer=nl.sbuf)
            scores = nisa.activation_reduce(np.exp, scores, reduce_op=np.add, reduce_res=total, bias=peak)
            scores = nisa.tensor_scalar(scores, np.multiply, nisa.reciprocal(total))
        else:
            scores = nisa.activation(nl.sigmoid, scores)

        best = nisa.max8(src=scores)
        index = nisa.nc_find_index8(data=scores, vals=best)
        nl.store(chosen[t * PARTITIONS + i_tp, nl.arange(k)[None, :]], value=index[:, 0:k],
                 mask=(t * PARTITIONS + i_tp < T))

        # An expert is chosen where its score reaches the k-th best one
        is_chosen = nisa.tensor_scalar(scores, np.greater_equal, best[:, k - 1:k])
        kept = nl.multiply(scores, is_chosen)
        nl.store(affinities[t * PARTITIONS + i_tp, nl.arange(E)[None, :]], value=kept,
                 mask=(t * PARTITIONS + i_tp < T))
    return affinities, chosen


def load_expert_weights(weights, expert, rows, cols, dtype):
    """A matrix of weights [rows, cols] of one expert, as tiles of 128 rows."""
    tiles = nl.ndarray((rows // PARTITIONS, par_dim(PARTITIONS), cols), dtype=dtype, buffer=nl.sbuf)
    ip = nl.arange(PARTITIONS)[:, None]
    jf = nl.arange(cols)[None, :]
    for r in nl.affine_range(rows // PARTITIONS):
        tiles[r] = nl.load(weights[expert[0, 0], r * PARTITIONS + ip, jf], dtype=dtype)
    return tiles


def load_tokens_transposed(hidden, ids, shapes, dtype, skip):
    """The rows of a block, transposed into tiles of 128 hidden elements."""
    ip, jf = nl.mgrid[0:shapes.tokens, 0:shapes.hidden]
    rows = nl.zeros((par_dim(shapes.tokens), shapes.hidden), dtype=dtype, buffer=nl.sbuf)
    if skip == SkipMode.SKIP_TOKEN:
        nisa.dma_copy(dst=rows, src=hidden[ids[ip, 0], jf], oob_mode=nisa.oob_mode.skip)
    else:
        rows[ip, jf] = nl.load(hidden[ids[ip, 0], jf])
    transposed = nl.ndarray((shapes.hidden_tiles, par_dim(PARTITIONS), shapes.tokens), dtype=dtype, buffer=nl.sbuf)
    for h in nl.affine_range(shapes.hidden_tiles):
        transposed[h] = nl.copy(nl.transpose(rows[:, nl.ds(h * PARTITIONS, PARTITIONS)]), dtype=dtype)
    return transposed


@nki.jit
def blockwise_mlp(hidden, gate_up, down, block_expert, token_ids, affinities, compute_dtype=nl.float32,
                  skip=SkipMode.NONE):
    """Blocks of B tokens of one expert each; gate and up weights lie side by side in gate_up [E, H, 2, I]."""
    T, H = hidden.shape
    E, _, _, I_TP = gate_up.shape
    N, B = token_ids.shape
    shapes = BlockShapes(B, H, I_TP)
    out = nl.ndarray((N, B, H), dtype=hidden.dtype, buffer=nl.shared_hbm)
    gate_up_flat = gate_up.reshape((E, H, 2 * I_TP))

    for block in nl.sequential_range(N):
        expert = nl.load(block_expert[block, 0], dtype=nl.int32)
        ids = nl.load_transpose2d(token_ids[nl.ds(block, 1), 0:B])
        x = load_tokens_transposed(hidden, ids, shapes, compute_dtype, skip)
        w_in = load_expert_weights(gate_up_flat, expert, H, 2 * I_TP, compute_dtype)
        w_out = load_expert_weights(down, expert, I_TP, H, compute_dtype)

        activated = nl.ndarray((shapes.intermediate_tiles, par_dim(PARTITIONS), B), dtype=compute_dtype)
        for i in nl.affine_range(shapes.intermediate_tiles):
            gate = nl.zeros((par_dim(PARTITIONS), B), dtype=np.float32, buffer=nl.psum, lazy_initialization=True)
            up = nl.zeros((par_dim(PARTITIONS), B), dtype=np.float32, buffer=nl.psum, lazy_initialization=True)
            for h in nl.affine_range(shapes.hidden_tiles):
                gate[0:PARTITIONS, 0:B] += nisa.nc_matmul(w_in[h, 0:PARTITIONS, nl.ds(i * PARTITIONS, PARTITIONS)],
                                                          x[h, 0:PARTITIONS, 0:B])
                up[0:PARTITIONS, 0:B] += nisa.nc_matmul(
                    w_in[h, 0:PARTITIONS, nl.ds(I_TP + i * PARTITIONS, PARTITIONS)], x[h, 0:PARTITIONS, 0:B])
            activated[i, 0:PARTITIONS, 0:B] = nl.multiply(nl.silu(gate), up, dtype=compute_dtype)

        # the affinity of the block's expert for each token
        weight = nl.load(affinities[block], dtype=nl.float32)
        for n in nl.affine_range(math.ceil(H / PSUM_SIZE)):
            acc = nl.zeros((B, PSUM_SIZE), dtype=nl.float32, buffer=nl.psum)
            i_b, i_n = nl.mgrid[0:B, 0:PSUM_SIZE]
            i_k = nl.arange(PARTITIONS)[:, None]
            for i in nl.affine_range(shapes.intermediate_tiles):
                acc[i_b, i_n] += nisa.nc_matmul(
                    activated[i], w_out[i, i_k, n * PSUM_SIZE + nl.arange(PSUM_SIZE)[None, :]],
                    mask=(n * PSUM_SIZE + i_n < H))
            scaled = nisa.tensor_scalar(acc, op0=np.multiply, operand0=weight, dtype=hidden.dtype,
                                        mask=(n * PSUM_SIZE + i_n < H))
            nl.store(out[block, i_b, n * PSUM_SIZE + i_n], value=scaled, mask=(n * PSUM_SIZE + i_n < H))
    return out


@nki.jit
def combine_experts(values, slots, total: nt.mutable_tensor):
    """values [N, B, H] of blocks; total[slots] += values, for one block after the other; slot T is padding."""
    N, B, H = values.shape
    T, _ = total.shape
    i_b = nl.arange(B)[:, None]
    i_h = nl.arange(H)[None, :]
    for n in nl.sequential_range(N):
        at = nl.load(slots[n, i_b, 0])
        old = nl.zeros((B, H), dtype=total.dtype)
        nisa.dma_copy(dst=old[i_b, i_h], src=total[at, i_h], oob_mode=nisa.oob_mode.skip)
        new = nl.add(old, nl.load(values[n, i_b, i_h]))
        nisa.dma_copy(dst=total[at, i_h], src=new[i_b, i_h], oob_mode=nisa.oob_mode.skip)
    return total


@nki.jit
def expert_loads(chosen, E=8, limit=6.0):
    """chosen [T, k] of experts: how many tokens each expert has, and the share above a limit of each."""
    T, k = chosen.shape
    loads = nl.ndarray((1, E), dtype=nl.float32, buffer=nl.shared_hbm)
    excess = nl.ndarray((1, E), dtype=nl.float32, buffer=nl.shared_hbm)
    count = nl.zeros((1, E), dtype=nl.float32, buffer=nl.psum)
    ones = nl.ones((PARTITIONS, 1), dtype=nl.float32)
    i_p = nl.arange(PARTITIONS)[:, None]
    for t in range((T + PARTITIONS - 1) // PARTITIONS):
        ids = nl.load(chosen[t * PARTITIONS + i_p, nl.arange(k)[None, :]], mask=(t * PARTITIONS + i_p < T))
        numbers = nisa.iota(nl.arange(E)[None, :], dtype=nl.float32)
        wide = numbers.broadcast_to((PARTITIONS, E))
        hits = nl.zeros((PARTITIONS, E), dtype=nl.float32, buffer=nl.sbuf)
        for slot in nl.static_range(k):
            is_equal = nl.equal(wide, ids[:, slot:slot + 1], dtype=nl.float32, mask=(t * PARTITIONS + i_p < T))
            hits[i_p, nl.arange(E)[None, :]] = nl.add(hits, is_equal, mask=(t * PARTITIONS + i_p < T))
        count += nl.matmul(ones, hits, transpose_x=True)
    counted = nl.copy(count)
    nl.store(loads, value=counted)
    nl.store(excess, value=nl.maximum(counted - limit, 0.0) / counted)
    return loads, excess


def cases():
    r = np.random.default_rng(5)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    hidden, router = f(200, 256), f(256, 16)
    ids = np.stack([r.permutation(60)[:32] for _ in range(3)]).astype(np.int32)
    padded = ids.copy()
    padded[1, 20:] = 60
    mlp = (f(60, 256), 0.1 * f(4, 256, 2, 128), 0.1 * f(4, 128, 256), r.integers(0, 4, (3, 1)).astype(np.int32))
    return [(route_tokens, (hidden, router)),
            (route_tokens, (hidden, router, 4, RouterActivation.SIGMOID)),
            (blockwise_mlp, (*mlp, ids, r.random((3, 32, 1)).astype(np.float32))),
            (blockwise_mlp, (*mlp, padded, r.random((3, 32, 1)).astype(np.float32), nl.bfloat16, SkipMode.SKIP_TOKEN)),
            (combine_experts, (f(3, 32, 48), padded[:, :, None], f(60, 48))),
            (expert_loads, (np.float32(r.integers(0, 8, (200, 2))),))]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mixtures of experts in the beta generation: routes, loads, positions of tokens, quantized products, and pools of them."""
import functools
import operator

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc import nki
from neuronxcc.nki.isa.constants import oob_mode

TOKENS = 128            # in one tile


def _ceil_div(total, size):
    return -(-total // size)


def softmax_over_experts(logits, temperature=1.0):
    peak = nisa.tensor_reduce(np.max, logits, axis=(1,), keepdims=True)
    shifted = nisa.tensor_scalar(data=logits, op0=np.subtract, operand0=peak, op1=np.multiply, operand1=1 / temperature)
    e = nisa.activation(op=np.exp, data=shifted)
    z = nisa.tensor_reduce(np.add, e, axis=(1,), keepdims=True)
    return nl.divide(e, z)


@nki.jit
def balance_loss(logits, k: int = 2, temperature: float = 1.0):
    """logits [T, E]: E * sum over experts of (share of tokens that choose it) * (mean probability), [1, 1]."""
    T, E = logits.shape
    loss = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    ones = nl.ones((nl.par_dim(TOKENS), 1), dtype=nl.float32, buffer=nl.sbuf)
    loads = nl.zeros((nl.par_dim(1), E), dtype=nl.float32, buffer=nl.psum)
    means = nl.zeros((nl.par_dim(1), E), dtype=nl.float32, buffer=nl.psum)
    for t in nl.affine_range(_ceil_div(T, TOKENS)):
        ip, ie = nl.mgrid[0:TOKENS, 0:E]
        valid = t * TOKENS + ip < T
        x = nl.load(logits[t * TOKENS + ip, ie], mask=valid)
        probs = nl.zeros((TOKENS, E), dtype=nl.float32, buffer=nl.sbuf)
        probs[ip, ie] = nl.copy(softmax_over_experts(x, temperature), mask=valid)
        best = nisa.max8(src=probs)
        chosen = nl.zeros((TOKENS, E), dtype=nl.float32, buffer=nl.sbuf)
        chosen[ip, ie] = nl.greater_equal(probs, best[:, k - 1:k], dtype=nl.float32, mask=valid)
        loads += nl.matmul(ones, chosen, transpose_x=True)
        means += nl.matmul(ones, probs, transpose_x=True)
    share = nl.multiply(nl.copy(loads), 1.0 / (T * k))
    product = share * means
    total = nl.sum(product, axis=1) * (E / T)
    nl.store(loss, total)
    return loss


@nki.jit
def positions_in_experts(experts, num_experts, capacity):
    """experts int32 [1, T]: the slot of each token, expert * capacity + its number among the expert's tokens; tokens
    beyond the capacity get the slot num_experts * capacity."""
    _, T = experts.shape
    slots = nl.ndarray((1, T), dtype=nl.int32, buffer=nl.shared_hbm)
    ids = nl.load(experts).broadcast_to((num_experts, T))
    me = nisa.iota(nl.arange(num_experts)[:, None], dtype=nl.float32)
    hot = nisa.tensor_scalar(ids, np.equal, me, dtype=nl.float32)
    zeros = nl.zeros((num_experts, T), dtype=nl.float32)
    seen = nisa.tensor_tensor_scan(data0=hot, data1=zeros, initial=0.0, op0=np.add, op1=np.add)
    number = nisa.scalar_tensor_tensor(data=seen, op0=np.subtract, operand0=1.0, op1=np.multiply, operand1=hot)
    fits = nl.less(number, capacity, dtype=nl.float32)
    base = nisa.tensor_scalar(me, np.multiply, float(capacity))
    slot = nisa.tensor_scalar(number, np.add, base)
    slot = nl.where(fits, slot, float(num_experts * capacity))
    mine = nl.multiply(slot, hot)
    flat = nisa.tensor_partition_reduce(np.add, mine)
    nl.store(slots, nl.copy(flat, dtype=nl.int32))
    return slots


@nki.jit
def dispatch_and_combine(tokens, slots, gates, num_slots):
    """tokens [T, D] to their slots (one beyond the last is dropped), then back, weighted by gates [T, 1]."""
    T, D = tokens.shape
    buffers = nl.ndarray((num_slots, D), dtype=tokens.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray((T, D), dtype=tokens.dtype, buffer=nl.shared_hbm)
    for s in nl.affine_range(_ceil_div(num_slots, TOKENS)):
        i_s, i_d = nl.mgrid[0:TOKENS, 0:D]
        nl.store(buffers[s * TOKENS + i_s, i_d], nl.zeros((TOKENS, D), dtype=tokens.dtype),
                 mask=(s * TOKENS + i_s < num_slots))
    for t in nl.affine_range(_ceil_div(T, TOKENS)):
        ix = nl.arange(TOKENS)[:, None]
        iy = nl.arange(D)[None, :]
        keep = t * TOKENS + ix < T
        where = nl.load(slots[t * TOKENS + ix, 0], mask=keep)
        row = nl.load(tokens[t * TOKENS + ix, iy], mask=keep)
        nisa.dma_copy(dst=buffers[where[ix, 0], iy], src=row, mask=keep, oob_mode=oob_mode.skip)
    for t in nl.affine_range(_ceil_div(T, TOKENS)):
        ix = nl.arange(TOKENS)[:, None]
        iy = nl.arange(D)[None, :]
        keep = t * TOKENS + ix < T
        where = nl.load(slots[t * TOKENS + ix, 0], mask=keep)
        gate = nl.load(gates[t * TOKENS + ix, 0], mask=keep)
        back = nl.zeros((TOKENS, D), dtype=tokens.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=back[ix, iy], src=buffers[where[ix, 0], iy], mask=keep, oob_mode=oob_mode.skip)
        nl.store(out[t * TOKENS + ix, iy], value=nl.multiply(back, gate, mask=keep), mask=keep)
    return buffers, out


@nki.jit
def w8a8_matmul(xT, x_scale, w, w_scale, bias=None, out_dtype=nl.bfloat16, m_tile=128, k_tile=128):
    """xT int8 [K, M], x_scale [M, 1], w int8 [K, N], w_scale [1, N], bias [1, N]: products of integers as bfloat16,
    whose sums are exact; both scales multiply the sum."""
    K, M = xT.shape
    N = w.shape[1]
    out = nl.ndarray((M, N), dtype=out_dtype, buffer=nl.shared_hbm)
    columns = nl.load(w_scale)
    scale_tile = columns.broadcast_to((m_tile, N))
    if bias is not None:
        bias_tile = nl.load(bias).broadcast_to((m_tile, N))
    num_k = K // k_tile
    weights = [nl.load(w[k * k_tile:(k + 1) * k_tile, :], dtype=nl.bfloat16) for k in range(num_k)]
    for m in nl.affine_range(M // m_tile):
        sums = nl.zeros((m_tile, N), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(num_k):
            part = nl.load(xT[nl.ds(k * k_tile, k_tile), nl.ds(m * m_tile, m_tile)])
            sums += nisa.nc_matmul(stationary=nl.copy(part, dtype=nl.bfloat16), moving=weights[k])
        rows = nl.load(x_scale[nl.ds(m * m_tile, m_tile), :])
        y = nisa.scalar_tensor_tensor(data=sums, op0=np.multiply, operand0=rows, op1=np.multiply, operand1=scale_tile)
        if bias is not None:
            y = nl.add(y, bias_tile)
        nl.store(out[nl.ds(m * m_tile, m_tile), :], value=nl.copy(y, dtype=out_dtype))
    return out


@nki.jit
def swiglu_of_an_expert(x, w_gate, w_up, w_down, expert):
    """x [T, D], weights [E, D, F] and [E, F, D], expert int32 [1, 1]: one expert, which the device reads."""
    T, D = x.shape
    E, _, F = w_gate.shape
    out = nl.ndarray((T, D), dtype=x.dtype, buffer=nl.shared_hbm)
    e = nl.load(expert)
    i_d, i_f = nl.mgrid[0:D, 0:F]
    j_f, j_d = nl.mgrid[0:F, 0:D]
    gate_w = nl.load(w_gate[e[0, 0], i_d, i_f])
    up_w = nl.load(w_up[e[0, 0], i_d, i_f])
    down_w = nl.load(w_down[e[0, 0], j_f, j_d])
    x_t = nl.load_transpose2d(x)
    gate = nl.matmul(gate_w, x_t, transpose_x=True)
    up = nl.matmul(up_w, x_t, transpose_x=True)
    hidden = nl.silu(gate) * up
    nl.store(out, nl.matmul(hidden, down_w, transpose_x=True))
    return out


def reference_slots(experts, num_experts, capacity):
    counts = [0] * num_experts
    slots = []
    for e in experts.reshape(-1):
        slots.append(e * capacity + counts[e] if counts[e] < capacity else num_experts * capacity)
        counts[e] += 1
    return np.array(slots, np.int32)


def cases():
    r = np.random.default_rng(37)

    def f(*shape, dtype=np.float32):
        return r.standard_normal(shape).astype(dtype)

    experts = r.integers(0, 5, (1, 150)).astype(np.int32)
    slots = reference_slots(experts, 5, 40)[:, None]
    eight = lambda *shape: r.integers(-127, 128, shape).astype(np.int8)
    positive = lambda *shape: np.float32(r.random(shape) + 0.5)
    elements = functools.reduce(operator.mul, (256, 48))
    return [(balance_loss, (f(200, 16),)),
            (balance_loss, (f(128, 8), 1, 0.7)),
            (positions_in_experts, (experts, 5, 40)),
            (dispatch_and_combine, (f(150, 24), slots, positive(150, 1), 200)),
            (w8a8_matmul, (eight(256, 128), positive(128, 1), eight(elements).reshape(256, 48), positive(1, 48))),
            (w8a8_matmul, (eight(128, 256), positive(256, 1), eight(128, 40), positive(1, 40), f(1, 40), nl.float32)),
            (swiglu_of_an_expert, (f(64, 32), f(3, 32, 48), f(3, 32, 48), f(3, 48, 32), np.array([[2]], np.int32)))]

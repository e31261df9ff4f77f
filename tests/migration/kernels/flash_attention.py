# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention in one pass over the keys: a config, helpers in trace mode, conditions on tile numbers, an optional result."""

from dataclasses import dataclass

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim

ROWS = 128


@dataclass(frozen=True)
class Steps:
    """How many keys a step reads, whether the sums are a result, and how the values lie in memory."""

    keys: int = 256
    keeps_sums: bool = True
    values_by_column: bool = False

    __annotations__ = {"keys": int, "keeps_sums": bool, "values_by_column": bool}


@nki.jit(mode="trace")
def transpose_blocks(transposed, weights, width):
    """Transpose each block of 128 columns within two loops, of which the inner one has a single iteration."""
    for outer in nl.affine_range(width // ROWS):
        block = nl.ndarray((par_dim(ROWS), ROWS), dtype=np.float32, buffer=nl.psum)
        for inner in nl.affine_range(ROWS // 128):
            here = nl.ds(inner * 128, 128)
            there = nl.ds(outer * ROWS + inner * 128, 128)
            block[:, here] = nisa.nc_transpose(weights[:, there])
        transposed[:, nl.ds(outer * ROWS, ROWS)] = nl.copy(block, dtype=transposed.dtype)


@nki.jit(mode="trace")
def scores_of(queries, keys, scores, peaks, query_tile, key_step, steps, is_causal):
    """Multiply queries with the keys of a step; tiles above the diagonal are set, those on it masked."""
    for t in nl.affine_range(steps.keys // ROWS):
        columns = nl.ds(t * ROWS, ROWS)
        first_key = key_step * steps.keys + t * ROWS
        sums = nl.zeros((par_dim(ROWS), ROWS), dtype=np.float32, buffer=nl.psum)
        if is_causal:
            is_needed = first_key <= query_tile * ROWS
        else:
            is_needed = True
        if is_needed:
            sums[:, :] = nl.matmul(queries, keys[:, columns], transpose_x=True)
        else:
            sums[:, :] = 0
        if is_causal:
            is_below = query_tile * ROWS >= first_key + ROWS
            reaches_diagonal = (query_tile * ROWS < first_key + ROWS)
            row, column = nl.mgrid[0:ROWS, 0:ROWS]
            seen = query_tile * ROWS + row >= first_key + column
            on_chip = nl.ndarray(sums.shape, dtype=sums.dtype, buffer=nl.sbuf)
            on_chip[...] = nl.copy(sums, dtype=on_chip.dtype)
            if is_below:
                scores[:, columns] = nl.copy(sums, dtype=scores.dtype)
            if reaches_diagonal:
                scores[:, columns] = nisa.affine_select(pred=seen, on_true_tile=on_chip, on_false_value=-9984.0,
                                                        dtype=scores.dtype)
        else:
            scores[:, columns] = nl.copy(sums, dtype=scores.dtype)
        peaks[:, t] = nisa.tensor_reduce(np.max, scores[:, columns], axis=(1,), dtype=peaks.dtype, negate=False)


@nki.jit(mode="trace")
def one_step(queries, keys, values, result, logs, peak, query_tile, key_step, narrow, wide, steps, is_causal, is_first,
             head_size=64):
    """Add what the keys of a step contribute, after the earlier part is scaled to the new maximum."""
    width = steps.keys
    scores = nl.ndarray((par_dim(ROWS), width), buffer=nl.sbuf, dtype=wide)
    peaks = nl.ndarray((par_dim(ROWS), width // ROWS), dtype=wide)
    scores_of(queries=queries, keys=keys, scores=scores, peaks=peaks, query_tile=query_tile, key_step=key_step,
              steps=steps, is_causal=is_causal)
    step_peak = nisa.tensor_reduce(np.max, peaks[:, :], axis=(1,), dtype=wide, negate=False)
    scaled = nl.ndarray((par_dim(ROWS), head_size), dtype=result.dtype)
    if is_first:
        peak[:, 0] = nl.copy(step_peak)
        now = step_peak
    else:
        earlier = nl.copy(peak[:, 0])
        peak[:, 0] = nl.maximum(earlier, step_peak)
        now = peak[:, 0]
        factor = nisa.activation(np.exp, now, bias=earlier, scale=-1.0)
        scaled[...] = nl.multiply(result[:, :], factor)
    powers = nl.ndarray((par_dim(ROWS), width), dtype=narrow)
    half = min(2048, width // 2)
    parts = nl.ndarray((par_dim(ROWS), width // half), dtype=wide)
    for h in nl.affine_range(width // half):
        piece = nl.ds(h * half, half)
        powers[:, piece] = nisa.activation_reduce(np.exp, scores[:, piece], bias=-1 * now, scale=1.0, reduce_op=nl.add,
                                                  reduce_res=parts[:, h], dtype=narrow)
    total = nl.sum(parts, axis=1, dtype=wide)
    transposed = nl.ndarray((par_dim(ROWS), width), dtype=narrow)
    transpose_blocks(transposed=transposed, weights=powers, width=width)
    product = nl.zeros((par_dim(ROWS), head_size), dtype=np.float32, buffer=nl.psum, lazy_initialization=True)
    for t in nl.affine_range(width // ROWS):
        product[:, :] += nl.matmul(transposed[:, nl.ds(t * ROWS, ROWS)], values[t, :, :], transpose_x=True)
    if is_first:
        result[:, :] = nl.copy(product[:, :])
        logs[:, 0] = nl.add(nl.log(total), step_peak)
    else:
        result[:, :] = nl.add(scaled, product)
        before = nisa.activation(nl.exp, now, bias=logs[:, 0], scale=-1.0)
        logs[:, 0] = nl.add(now, nisa.activation(nl.log, before, bias=total))


@nki.jit(mode="trace")
def read_values(source, values, step, t, steps):
    """Two layouts of the values; the common one returns early."""
    rows = nl.ds(step * steps.keys + ROWS * t, ROWS)
    if not steps.values_by_column:
        values[t, :, :] = nl.load(source[rows, :], dtype=values.dtype)
        return
    values[t, :, :] = nisa.tensor_copy(nisa.nc_transpose(nl.load(source[:, rows], dtype=values.dtype)),
                                       dtype=values.dtype)


@nki.jit
def attention_forward_in_steps(q, k, v, scale=None, is_causal=True, mixed=True, steps=None):
    """q [B, H, D, S], k [B, G, D, T], v [B, G, T, D]; H is a multiple of G. A program has one batch and one group."""
    steps = steps or Steps()
    batches, heads, head_size, queries = q.shape
    _, groups, _, keys = k.shape
    if steps.values_by_column:
        assert tuple(v.shape) == (batches, groups, head_size, keys), f"v has shape {v.shape}"
    else:
        assert tuple(v.shape) == (batches, groups, keys, head_size), f"v has shape {v.shape}"
    assert head_size <= 128, f"{head_size} elements a head are more than 128"
    narrow = nl.bfloat16 if mixed else q.dtype
    wide = np.dtype(np.float32) if mixed else narrow
    out = nl.ndarray((batches, heads, queries, head_size), dtype=q.dtype, buffer=nl.shared_hbm)
    if steps.keeps_sums:
        sums = nl.ndarray((batches, heads, nl.tile_size.pmax, queries // nl.tile_size.pmax), dtype=wide,
                          buffer=nl.shared_hbm)
    else:
        sums = None
    assert nl.program_ndim() == 2, f"a grid of two dimensions, not of {nl.program_ndim()}"
    batch, group = nl.program_id(axis=0), nl.program_id(axis=1)
    scale = scale or (1.0 / (head_size ** 0.5))
    assert keys % steps.keys == 0, f"{keys} keys are not a multiple of {steps.keys}"
    tiles, per_group = queries // ROWS, heads // groups
    for member in nl.affine_range(per_group):
        logs = nl.zeros((par_dim(ROWS), tiles), dtype=wide, buffer=nl.sbuf, lazy_initialization=True)
        result = nl.zeros((tiles, par_dim(ROWS), head_size), dtype=wide, buffer=nl.sbuf, lazy_initialization=True)
        peak = nl.zeros((tiles, par_dim(ROWS), 1), dtype=wide, buffer=nl.sbuf, lazy_initialization=True)
        for step in nl.sequential_range(0, keys // steps.keys):
            k_tile = nl.ndarray((par_dim(head_size), steps.keys), dtype=narrow)
            v_tile = nl.ndarray((steps.keys // ROWS, par_dim(ROWS), head_size), dtype=narrow)
            k_tile[:, :] = nl.load(k[batch, group, :, nl.ds(step * steps.keys, steps.keys)], dtype=k_tile.dtype)
            group_values = v[batch, group]
            for t in nl.affine_range(steps.keys // ROWS):
                read_values(source=group_values, values=v_tile, step=step, t=t, steps=steps)
            for i in nl.affine_range(tiles):
                q_tile = nl.ndarray((head_size, ROWS), dtype=narrow)
                head = q[batch, group * per_group + member]
                q_tile[:, :] = nl.load(head[:, nl.ds(i * ROWS, ROWS)], dtype=narrow) * scale
                one_step(queries=q_tile, keys=k_tile, values=v_tile, result=result[i], logs=logs[:, i], peak=peak[i],
                         query_tile=i, key_step=step, narrow=narrow, wide=wide, steps=steps, is_causal=is_causal,
                         is_first=step == 0, head_size=head_size)
        for i in nl.affine_range(tiles):
            normal = nl.ndarray((par_dim(ROWS), head_size), dtype=narrow)
            factor = nisa.activation(np.exp, logs[:, i], bias=peak[i, :, :], scale=-1.0)
            normal[:, :] = nl.multiply(result[i, :, :], factor, dtype=narrow)
            nl.store(out[batch, group * per_group + member, nl.ds(i * ROWS, ROWS), :], normal)
        if steps.keeps_sums:
            nl.store(sums[batch, group * per_group + member, :, :], logs[:, :])
    if steps.keeps_sums:
        return out, sums
    return out


def cases():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in (
        (1, 2, 64, 256), (1, 1, 64, 512), (1, 1, 512, 64)))
    return [(attention_forward_in_steps[1, 1], (q, k, v, None, True, False)),
            (attention_forward_in_steps[1, 1], (q, k, v, 0.25, False, False)),
            (attention_forward_in_steps[1, 1], (q, k, np.swapaxes(v, 2, 3).copy(), None, True, False,
                                                Steps(keeps_sums=False, values_by_column=True)))]

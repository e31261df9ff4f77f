# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pairs of kernels that compute the same: one before, one after following a rule of the advice."""

import nki_mlir.language.beta.isa as nisa
import nki_mlir.language.beta.language as nl
from nki_mlir.language.beta import nki


# -- repeated-loads ----------------------------------------------------------------------------------------------------
@nki.jit
def added_repeatedly(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        same = nl.load(y)
        nl.store(out[nl.ds(i * 128, 128), :], nl.load(x[nl.ds(i * 128, 128), :]) + same)
    return out


@nki.jit
def added_once(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    same = nl.load(y)
    for i in nl.affine_range(x.shape[0] // 128):
        nl.store(out[nl.ds(i * 128, 128), :], nl.load(x[nl.ds(i * 128, 128), :]) + same)
    return out


# -- short-runs --------------------------------------------------------------------------------------------------------
@nki.jit
def columns(x):
    """x [N, 128], read a column a partition."""
    out = nl.ndarray((128, x.shape[0]), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:128, 0:512]
    for i in nl.affine_range(x.shape[0] // 512):
        nl.store(out[:, nl.ds(i * 512, 512)], nl.load(x[i * 512 + i_f, i_p]))
    return out


@nki.jit
def rows(x):
    """x [128, N], read a row a partition."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[1] // 512):
        nl.store(out[:, nl.ds(i * 512, 512)], nl.load(x[:, nl.ds(i * 512, 512)]))
    return out


# -- one-issuer --------------------------------------------------------------------------------------------------------
@nki.jit
def many_small(x):
    """x [128, N], loaded in tiles of 64 columns."""
    out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    gathered = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(x.shape[1] // 64):
        gathered[:, nl.ds(i * 64, 64)] = nl.load(x[:, nl.ds(i * 64, 64)])
    nl.store(out, nl.max(gathered, axis=1, keepdims=True))
    return out


@nki.jit
def few_large(x):
    """The same in tiles of 512 columns."""
    out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    gathered = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(x.shape[1] // 512):
        gathered[:, nl.ds(i * 512, 512)] = nl.load(x[:, nl.ds(i * 512, 512)])
    nl.store(out, nl.max(gathered, axis=1, keepdims=True))
    return out


# -- imbalance ---------------------------------------------------------------------------------------------------------
def bounded(x, engines):
    """x [128, 8192]: 32 steps on each of 16 pieces, by engines in turn."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for step in nl.static_range(32):
        for piece in nl.static_range(16):
            part = tile[:, nl.ds(piece * 512, 512)]
            tile[:, nl.ds(piece * 512, 512)] = nisa.tensor_scalar(part, nl.multiply, 0.5, op1=nl.add, operand1=1.0,
                                                                   engine=engines[piece % len(engines)])
    nl.store(out, tile)
    return out


@nki.jit
def one_engine(x):
    return bounded(x, [nisa.vector_engine])


@nki.jit
def two_engines(x):
    return bounded(x, [nisa.vector_engine] * 3 + [nisa.scalar_engine] * 2)


# -- psum-eviction -----------------------------------------------------------------------------------------------------
def evicted(a_t, b, engines):
    """a_t [128, 128], b [128, 8192] to a_t.T @ b, eight times."""
    out = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.shared_hbm)
    left, right = nl.load(a_t), nl.load(b)
    result = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.sbuf)
    for again in nl.static_range(8):
        for j in nl.static_range(16):
            total = nisa.nc_matmul(left, right[:, nl.ds(j * 512, 512)])
            result[:, nl.ds(j * 512, 512)] = nisa.tensor_copy(total, dtype=b.dtype, engine=engines[j % len(engines)])
    nl.store(out, result)
    return out


@nki.jit
def evicted_by_one(a_t, b):
    return evicted(a_t, b, [nisa.vector_engine])


@nki.jit
def evicted_by_two(a_t, b):
    return evicted(a_t, b, [nisa.scalar_engine, nisa.vector_engine] * 4 + [nisa.scalar_engine])    # 56% of them


# -- no-overlap --------------------------------------------------------------------------------------------------------
@nki.jit
def one_tile(x):
    """x [128, N]: each piece is loaded into the same tile."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 1024), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.sequential_range(x.shape[1] // 1024):
        nisa.dma_copy(dst=tile, src=x[:, nl.ds(i * 1024, 1024)])
        nl.store(out[:, nl.ds(i * 1024, 1024)], nisa.activation(nl.exp, tile))
    return out


@nki.jit
def tiles_in_turn(x):
    """Each piece has its own tile."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[1] // 1024):
        tile = nl.ndarray((128, 1024), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, nl.ds(i * 1024, 1024)])
        nl.store(out[:, nl.ds(i * 1024, 1024)], nisa.activation(nl.exp, tile))
    return out


# -- weight-loads ------------------------------------------------------------------------------------------------------
@nki.jit
def narrow(a_t, b):
    """a_t [128, 128], b [128, N] to 8 a_t.T @ b, 32 columns at a time."""
    left, right = nl.load(a_t), nl.load(b)
    out = nl.ndarray((128, b.shape[1]), dtype=b.dtype, buffer=nl.shared_hbm)
    result = nl.ndarray((128, b.shape[1]), dtype=b.dtype, buffer=nl.sbuf)
    for j in nl.affine_range(b.shape[1] // 512):
        total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
        for again in nl.static_range(8):
            for c in nl.affine_range(16):
                total[:, nl.ds(c * 32, 32)] += nisa.nc_matmul(left, right[:, nl.ds(j * 512 + c * 32, 32)])
        result[:, nl.ds(j * 512, 512)] = nl.copy(total, dtype=b.dtype)
    nl.store(out, result)
    return out


@nki.jit
def wide(a_t, b):
    """The same, 512 columns at a time."""
    left, right = nl.load(a_t), nl.load(b)
    out = nl.ndarray((128, b.shape[1]), dtype=b.dtype, buffer=nl.shared_hbm)
    result = nl.ndarray((128, b.shape[1]), dtype=b.dtype, buffer=nl.sbuf)
    for j in nl.affine_range(b.shape[1] // 512):
        total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
        for again in nl.static_range(8):
            total += nisa.nc_matmul(left, right[:, nl.ds(j * 512, 512)])
        result[:, nl.ds(j * 512, 512)] = nl.copy(total, dtype=b.dtype)
    nl.store(out, result)
    return out


# -- ramp --------------------------------------------------------------------------------------------------------------
def multiplied(a, b, ahead):
    """a [M, 64], b [64, N] to a @ b; ``ahead`` tiles of 128 rows are transposed before their products."""
    out = nl.ndarray((a.shape[0], b.shape[1]), dtype=b.dtype, buffer=nl.shared_hbm)
    right = nl.load(b)
    tiles, p, f = nl.arange(a.shape[0] // 128)[None, :, None], nl.arange(128)[:, None, None], nl.arange(64)[None, None, :]
    rows = nl.load(a.reshape((a.shape[0] // 128, 128, 64))[tiles, p, f])
    for i in nl.affine_range(a.shape[0] // (128 * ahead)):
        left = nl.ndarray((ahead, nl.par_dim(64), 128), dtype=b.dtype, buffer=nl.sbuf)
        for r in nl.affine_range(ahead):
            left[r] = nisa.activation(nl.copy, nisa.nc_transpose(rows[:, i * ahead + r, :]))
        for r in nl.affine_range(ahead):
            for j in nl.affine_range(b.shape[1] // 512):
                product = nisa.nc_matmul(left[r], right[:, nl.ds(j * 512, 512)])
                nl.store(out[nl.ds((i * ahead + r) * 128, 128), nl.ds(j * 512, 512)], nl.copy(product))
    return out


@nki.jit
def transposed_in_turn(a, b):
    return multiplied(a, b, 1)


@nki.jit
def transposed_before(a, b):
    return multiplied(a, b, a.shape[0] // 128)


# -- dtype: the same kernel on operands of float32 and of bfloat16 ------------------------------------------------------
@nki.jit
def products(a_t, b):
    """a_t [128 k, 128], b [128 k, 512] to a_t.T @ b."""
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
    for s in nl.affine_range(a_t.shape[0] // 128):
        left = nl.load(a_t[nl.ds(s * 128, 128), :])
        right = nl.load(b[nl.ds(s * 128, 128), :])
        for _ in nl.static_range(16):
            total += nisa.nc_matmul(left, right)
    nl.store(out, nl.copy(total))
    return out


def rows_multiplied(a_t, b, both_at_once):
    """a_t [128, 2, 128], b [128, 2, 512] to 64 times the product over both rows of each partition."""
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
    left, right = nl.load(a_t), nl.load(b)
    for _ in nl.static_range(64):
        if both_at_once:
            total += nisa.nc_matmul(left, right, perf_mode="double_row_gen3")
        else:
            for s in nl.static_range(2):
                total += nisa.nc_matmul(left[:, s], right[:, s])
    nl.store(out, nl.copy(total))
    return out


@nki.jit
def single_rows(a_t, b):
    return rows_multiplied(a_t, b, False)


@nki.jit
def double_rows(a_t, b):
    return rows_multiplied(a_t, b, True)


@nki.jit
def three_repeatedly(x, y, z):
    """Load the same three tiles for each of four results."""
    out = nl.ndarray((4, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        nl.store(out[i], nl.add(nl.add(nl.load(x), nl.load(y)), nl.load(z)))
    return out


# -- partitions --------------------------------------------------------------------------------------------------------
@nki.jit
def few_partitions(x):
    """x [8, 16 N]: sixteen times as many columns on 8 partitions."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[1] // 2048):
        nl.store(out[:, nl.ds(i * 2048, 2048)], nl.exp(nl.load(x[:, nl.ds(i * 2048, 2048)])))
    return out


@nki.jit
def all_partitions(x):
    """x [8, 16 N], with the sixteen pieces of a row on different partitions."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    pieces, results = x.reshape((128, x.shape[1] // 16)), out.reshape((128, x.shape[1] // 16))
    for i in nl.affine_range(x.shape[1] // 16 // 2048):
        nl.store(results[:, nl.ds(i * 2048, 2048)], nl.exp(nl.load(pieces[:, nl.ds(i * 2048, 2048)])))
    return out


# -- fuse-activation ---------------------------------------------------------------------------------------------------
@nki.jit
def scaled_before(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for i in nl.static_range(16):
        scaled = nisa.tensor_scalar(tile, nl.multiply, 0.5, engine=nisa.vector_engine)
        tile = nisa.activation(nl.exp, scaled)
    nl.store(out, tile)
    return out


@nki.jit
def scaled_in_place(x):
    """The same, in one tile."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for i in nl.static_range(16):
        tile[...] = nisa.tensor_scalar(tile, nl.multiply, 0.5, engine=nisa.vector_engine)
        tile[...] = nisa.activation(nl.exp, tile)
    nl.store(out, tile)
    return out


@nki.jit
def scaled_for_others(x):
    """What is scaled is read by more than the activation, all of it or a part."""
    out = nl.ndarray((4, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, sums = nl.load(x), nl.load(x)
    for i in nl.static_range(16):
        tile[...] = nisa.tensor_scalar(tile, nl.multiply, 0.5, engine=nisa.vector_engine)
        sums[:, 0:8] = nl.add(sums[:, 0:8], tile[:, 0:8])
        tile[...] = nisa.activation(nl.exp, tile)
    nl.store(out[0], tile)
    nl.store(out[1], sums)
    for i in nl.static_range(2):
        tile[...] = nisa.tensor_scalar(tile, nl.multiply, 0.5, engine=nisa.vector_engine)
        sums[...] = nisa.activation(nl.exp, tile)
        nl.store(out[2 + i], sums)
    return out


@nki.jit
def some_fit(x):
    out = nl.ndarray((7, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, column = nl.load(x), nl.load(x[:, 0:1])
    a = nisa.tensor_scalar(tile, nl.multiply, 0.5, op1=nl.add, operand1=1.0)        # fits
    nl.store(out[0], nisa.activation(nl.exp, a))
    b = nisa.tensor_scalar(tile, nl.add, 0.5, op1=nl.multiply, operand1=2.0)
    nl.store(out[1], nisa.activation(nl.exp, b))
    c = nisa.tensor_scalar(tile, nl.add, 0.5)
    nl.store(out[2], nisa.activation(nl.exp, c, bias=column))
    d = nisa.tensor_scalar(tile, nl.multiply, 0.5)                                  # fits
    nl.store(out[3], nisa.activation(nl.exp, d, bias=column))
    e = nisa.tensor_scalar(tile, nl.multiply, column)
    nl.store(out[4], nisa.activation(nl.exp, e, scale=2.0))
    f = nisa.tensor_scalar(column, nl.multiply, 2.0)
    nl.store(out[5], nisa.activation(nl.exp, tile, bias=f))
    g = nisa.tensor_scalar(tile, nl.add, column)                                    # fits
    nl.store(out[6, :, 0:8], nisa.activation(nl.exp, g))
    return out


@nki.jit
def scaled_within(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for i in nl.static_range(16):
        tile = nisa.activation(nl.exp, tile, scale=0.5)
    nl.store(out, tile)
    return out


# -- table-loads -------------------------------------------------------------------------------------------------------
@nki.jit
def functions_in_turn(x):
    """x [128, N] to tanh(exp(x)), in 16 pieces that go through one tile."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, width = nl.load(x), x.shape[1] // 16
    part = nl.ndarray((nl.par_dim(128), width), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.static_range(16):
        part[...] = nisa.activation(nl.exp, tile[:, nl.ds(i * width, width)])
        tile[:, nl.ds(i * width, width)] = nisa.activation(nl.tanh, part)
    nl.store(out, tile)
    return out


@nki.jit
def functions_together(x):
    """The same, one function after the other."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, width = nl.load(x), x.shape[1] // 16
    for function in (nl.exp, nl.tanh):
        for i in nl.static_range(16):
            part = tile[:, nl.ds(i * width, width)]
            tile[:, nl.ds(i * width, width)] = nisa.activation(function, part)
    nl.store(out, tile)
    return out

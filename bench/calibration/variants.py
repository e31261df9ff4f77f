# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Variants of the same kernels that take different times: lengths of runs, engines, order of transposes.

Their source describes them in words, and we wrote the kernels. All are float32 on trn2.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P, MOVING = 128, 512
RATE, DECAY, FIRST, SECOND, EPSILON = 1e-3, 1e-2, 0.9, 0.999, 1e-8


# -- a step of AdamW: four arrays read, one written --------------------------------------------------------------------
def stepped(weight, gradient, mean, square):
    """Use two instructions of the scalar engine and four of the vector engine."""
    squared = nisa.activation(nl.square, gradient, scale=(1 - SECOND) ** 0.5)
    second = nisa.scalar_tensor_tensor(data=square, op0=np.multiply, operand0=SECOND, op1=np.add, operand1=squared)
    inverse = nisa.activation(nl.rsqrt, second)
    first = nisa.scalar_tensor_tensor(data=mean, op0=np.multiply, operand0=FIRST / (1 - FIRST), op1=np.add,
                                      operand1=gradient)
    update = nisa.scalar_tensor_tensor(data=first, op0=np.multiply, operand0=-RATE * (1 - FIRST), op1=np.multiply,
                                       operand1=inverse)
    return nisa.scalar_tensor_tensor(data=weight, op0=np.multiply, operand0=1 - RATE * DECAY, op1=np.add,
                                     operand1=update)


@nki.jit
def adamw(weight, gradient, mean, square, columns=512):
    """Update a contiguous part of the arrays in each partition, in tiles of ``columns`` columns."""
    count = weight.shape[0] * weight.shape[1] // P
    out = nl.ndarray(weight.shape, dtype=weight.dtype, buffer=nl.shared_hbm)
    views = [array.reshape((P, count // columns, columns)) for array in (weight, gradient, mean, square)]
    result = out.reshape((P, count // columns, columns))
    for i in nl.affine_range(count // columns):
        tiles = [nl.load(view[:, i, :]) for view in views]
        nl.store(result[:, i, :], stepped(*tiles))
    return out


@nki.jit
def adamw_of_rows(weight, gradient, mean, square):
    """Update complete rows, 128 to a tile; the last tile may have fewer."""
    rows = weight.shape[0]
    out = nl.ndarray(weight.shape, dtype=weight.dtype, buffer=nl.shared_hbm)
    for first in range(0, rows, P):
        rows_of_tile = nl.ds(first, min(P, rows - first))
        tiles = [nl.load(array[rows_of_tile, :]) for array in (weight, gradient, mean, square)]
        nl.store(out[rows_of_tile, :], stepped(*tiles))
    return out


@nki.jit
def adamw_in_steps(weight, gradient, mean, square, columns=1824):
    """Write a step as textbooks do, as operations of two operands whose results are tiles: averages without their
    bias, and a quotient."""
    count = weight.shape[0] * weight.shape[1] // P
    out = nl.ndarray(weight.shape, dtype=weight.dtype, buffer=nl.shared_hbm)
    views = [array.reshape((P, count // columns, columns)) for array in (weight, gradient, mean, square)]
    result = out.reshape((P, count // columns, columns))
    for i in nl.affine_range(count // columns):
        w, g, m, v = (nl.load(view[:, i, :]) for view in views)
        first = nl.add(nl.multiply(m, FIRST), nl.multiply(g, 1 - FIRST))
        second = nl.add(nl.multiply(v, SECOND), nl.multiply(nl.multiply(g, g), 1 - SECOND))
        unbiased, variance = nl.multiply(first, 1 / (1 - FIRST)), nl.multiply(second, 1 / (1 - SECOND))
        update = nl.divide(unbiased, nl.add(nl.sqrt(variance), EPSILON))
        decayed = nl.multiply(w, 1 - RATE * DECAY)
        nl.store(result[:, i, :], nl.subtract(decayed, nl.multiply(update, RATE)))
    return out


# -- rotary embedding: x [128, N], cos and sin [64, N] -----------------------------------------------------------------
@nki.jit
def rope_halves(x, cos, sin, width=512):
    """Rotate each half of the partitions separately: six products and sums on 64 partitions."""
    half = P // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[1] // width):
        columns = nl.ds(i * width, width)
        upper, lower = nl.load(x[0:half, columns]), nl.load(x[half:P, columns])
        c, s = nl.load(cos[:, columns]), nl.load(sin[:, columns])
        nl.store(out[0:half, columns], nisa.tensor_tensor(nisa.tensor_tensor(upper, c, np.multiply),
                                                          nisa.tensor_tensor(lower, s, np.multiply), np.subtract))
        nl.store(out[half:P, columns], nisa.tensor_tensor(nisa.tensor_tensor(lower, c, np.multiply),
                                                          nisa.tensor_tensor(upper, s, np.multiply), np.add))
    return out


@nki.jit
def rope_copied(x, cos, sin, width=512, exchange=None):
    """Rotate all partitions: the scalar engine swaps the halves and negates one, or, with ``exchange`` [128, 128] of
    0, 1 and -1, the tensor engine does; it copies cosines and sines to the other half."""
    half = P // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    if exchange is not None:
        swap = nl.load(exchange)
    for i in nl.affine_range(x.shape[1] // width):
        some = nl.ds(i * width, width)
        tile = nl.load(x[:, some])
        cosines, sines = (nl.ndarray((P, width), dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
        for doubled, half_of_both in ((cosines, cos), (sines, sin)):
            doubled[0:half] = nl.load(half_of_both[:, some])
            doubled[half:P] = nisa.activation(nl.copy, doubled[0:half])
        if exchange is not None:
            swapped = nisa.nc_matmul(swap, tile)
        else:
            swapped = nl.ndarray((P, width), dtype=x.dtype, buffer=nl.sbuf)
            swapped[0:half] = nisa.activation(nl.copy, tile[half:P], scale=-1.0)
            swapped[half:P] = nisa.activation(nl.copy, tile[0:half])
        nl.store(out[:, some], nisa.tensor_tensor(nisa.tensor_tensor(tile, cosines, np.multiply),
                                                  nisa.tensor_tensor(swapped, sines, np.multiply), np.add))
    return out


# -- products: a [M, K], whose tiles the tensor engine transposes, b [K, N] --------------------------------------------
def transposed(tile, k, dtype=nl.float32):
    """Return tile k of a row of tiles, transposed, in SBUF."""
    return nisa.activation(nl.copy, nisa.nc_transpose(tile[:, nl.ds(k * P, P)]), dtype=dtype)


def parts(x):
    """Split a float32 tile into the sum of two bfloat16 tiles."""
    high = nl.copy(x, dtype=nl.bfloat16)
    return high, nisa.tensor_tensor(x, high, np.subtract, dtype=nl.bfloat16)


def add_products(total, left, right):
    """Add the product of two tiles, or the products of their parts except that of the small parts."""
    total += nisa.nc_matmul(left[0], right[0])
    if len(left) > 1:
        total += nisa.nc_matmul(left[1], right[0])
        total += nisa.nc_matmul(left[0], right[1])


@nki.jit
def product(a, b, block=4, pieces=0):
    """Multiply in blocks of row tiles, and load each tile of the right side once for a block.

    ``pieces``: 0 for products of float32, 1 for one of bfloat16, 3 for those of two parts each, without the smallest.
    """
    (m, k), n = a.shape, b.shape[1]
    out = nl.ndarray((m, n), dtype=a.dtype, buffer=nl.shared_hbm)
    steps, count = k // P, 2 if pieces == 3 else 1
    kind = nl.bfloat16 if pieces else nl.float32
    for i in nl.affine_range(m // (P * block)):
        left = nl.ndarray((block, steps, nl.par_dim(P), count, P), dtype=kind, buffer=nl.sbuf)
        for r in nl.affine_range(block):
            row_tile = nl.load(a[nl.ds((i * block + r) * P, P), :])
            for s in nl.affine_range(steps):
                if pieces == 3:
                    left[r, s, :, 0, :], left[r, s, :, 1, :] = parts(transposed(row_tile, s))
                else:
                    left[r, s, :, 0, :] = transposed(row_tile, s, kind)
        for j in nl.affine_range(n // MOVING):
            sums = nl.zeros((block, nl.par_dim(P), MOVING), nl.float32, buffer=nl.psum)
            for s in nl.affine_range(steps):
                right = nl.load(b[nl.ds(s * P, P), nl.ds(j * MOVING, MOVING)])
                rights = parts(right) if pieces == 3 else (nl.copy(right, dtype=kind) if pieces else right,)
                for r in nl.affine_range(block):
                    add_products(sums[r], [left[r, s, :, c, :] for c in range(count)], rights)
            for r in nl.affine_range(block):
                nl.store(out[nl.ds((i * block + r) * P, P), nl.ds(j * MOVING, MOVING)], nl.copy(sums[r]))
    return out


@nki.jit
def batched(a, b, ahead=1, pieces=0, loaded=False):
    """Multiply a [batch, M, K] and b [batch, K, N]; transpose ``ahead`` row tiles, also of later batches, before their
    products; with ``loaded`` as they are loaded, else on the tensor engine."""
    (batch, m, k), n = a.shape, b.shape[2]
    tiles = m // P
    kind = nl.bfloat16 if pieces else nl.float32
    out = nl.ndarray((batch, m, n), dtype=a.dtype, buffer=nl.shared_hbm)
    together = max(1, ahead // tiles)
    for g in nl.affine_range(batch // together):
        rights = nl.ndarray((together, nl.par_dim(k), n), dtype=kind, buffer=nl.sbuf)
        for t in nl.affine_range(together):
            rights[t] = nl.load(b[g * together + t], dtype=kind)
        for i in nl.affine_range(together * tiles // ahead):
            left = nl.ndarray((ahead, nl.par_dim(k), P), dtype=kind, buffer=nl.sbuf)
            for r in nl.affine_range(ahead):
                t, row = divmod(i * ahead + r, tiles)
                rows = a[g * together + t, nl.ds(row * P, P), :]
                if loaded:
                    left[r] = nl.load_transpose2d(rows)
                else:
                    left[r] = nisa.activation(nl.copy, nisa.nc_transpose(nl.load(rows)), dtype=kind)
            for r in nl.affine_range(ahead):
                t, row = divmod(i * ahead + r, tiles)
                results = nl.ndarray((P, n), dtype=out.dtype, buffer=nl.sbuf)
                for j in nl.affine_range(n // MOVING):
                    columns_here = nl.ds(j * MOVING, MOVING)
                    results[:, columns_here] = nl.copy(nisa.nc_matmul(left[r], rights[t, :, columns_here]))
                    nl.store(out[g * together + t, nl.ds(row * P, P), columns_here], results[:, columns_here])
    return out


@nki.jit
def lora(x, weight, down, up, block=4, columns=512, pieces=0, added=False):
    """Compute x @ weight + x @ down @ up of x [M, K]; ``added``: add down @ up to the weights in HBM first. ``pieces``
    as for ``product``."""
    (m, k), n, rank = x.shape, weight.shape[1], down.shape[1]
    steps = k // P
    out = nl.ndarray((m, n), dtype=x.dtype, buffer=nl.shared_hbm)
    raised = nl.load(up)
    if added:
        updated_weight = nl.ndarray((k, n), dtype=x.dtype, buffer=nl.hbm)
        for s in nl.affine_range(steps):
            down_t = transposed(nl.load(down[nl.ds(s * P, P), :]), 0)
            for j in nl.affine_range(n // MOVING):
                here = nl.ds(j * MOVING, MOVING)
                nl.store(updated_weight[nl.ds(s * P, P), here],
                         nl.add(nl.load(weight[nl.ds(s * P, P), here]), nisa.nc_matmul(down_t, raised[:, here])))
    lowered = [] if added else [nl.load(down[nl.ds(s * P, P), :]) for s in range(steps)]
    for i in nl.affine_range(m // (P * block)):
        left, small = [], []
        for r in range(block):
            row_tile = nl.load(x[nl.ds((i * block + r) * P, P), :])
            tiles = [transposed(row_tile, s) for s in range(steps)]
            left.append([parts(tile) if pieces else (tile,) for tile in tiles])
            if not added:
                low = nl.zeros((rank, P), nl.float32, buffer=nl.psum)
                for s in range(steps):
                    low += nisa.nc_matmul(lowered[s], tiles[s])
                small.append(nl.copy(low))
        for j in nl.affine_range(n // columns):
            here = nl.ds(j * columns, columns)
            sums = nl.zeros((block, nl.par_dim(P), columns), nl.float32, buffer=nl.psum)
            for s in range(steps):
                right = nl.load((updated_weight if added else weight)[nl.ds(s * P, P), here])
                rights = parts(right) if pieces else (right,)
                for r in range(block):
                    add_products(sums[r], left[r][s], rights)
            for r in range(block):
                if not added:
                    sums[r] += nisa.nc_matmul(small[r], raised[:, here])
                nl.store(out[nl.ds((i * block + r) * P, P), here], nl.copy(sums[r]))
    return out


@nki.jit
def normalized_product(x, weight, order="before", pieces=0):
    """Compute rmsnorm(x) @ weight of x [M, K], scaled ``before`` the transposes or ``after`` the products; ``loaded``:
    scaled after the products, of tiles that are transposed as they are loaded."""
    (m, k), n = x.shape, weight.shape[1]
    steps = k // P
    kind = nl.bfloat16 if pieces else nl.float32
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    rights = [nl.load(weight[nl.ds(s * P, P), :]) for s in range(steps)]
    halves = [parts(right) if pieces == 3 else (nl.copy(right, dtype=kind) if pieces else right,) for right in rights]
    for i in nl.affine_range(m // P):
        tile = nl.load(x[nl.ds(i * P, P), :])
        total = nl.ndarray((P, 1), nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(nl.square, tile, reduce_op=np.add, reduce_res=total)
        inverse = nisa.activation(nl.rsqrt, total, scale=1.0 / k)
        data = nisa.tensor_scalar(tile, np.multiply, inverse) if order == "before" else tile
        left = []
        for s in range(steps):
            one = nl.load_transpose2d(x[nl.ds(i * P, P), nl.ds(s * P, P)]) if order == "loaded" else transposed(
                data, s, nl.float32 if pieces == 3 else kind)
            left.append(parts(one) if pieces == 3 else (one,))
        for j in nl.affine_range(n // MOVING):
            here = nl.ds(j * MOVING, MOVING)
            sums = nl.zeros((P, MOVING), nl.float32, buffer=nl.psum)
            for s in range(steps):
                add_products(sums, left[s], [half[:, here] for half in halves[s]])
            scaled = nl.copy(sums) if order == "before" else nisa.activation(nl.copy, sums, scale=inverse)
            nl.store(out[nl.ds(i * P, P), here], scaled)
    return out

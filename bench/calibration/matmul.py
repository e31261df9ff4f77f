# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Published matrix products: tile by tile, with operands kept in SBUF, and blocked in all three dimensions."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

P, MOVING = 128, 512


@nki.jit
def tiled(a_t, b):
    """Multiply a_t [K, M] and b [K, N]; load both tiles for each product."""
    (k, m), (_, n) = a_t.shape, b.shape
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(m // P):
        for j in nl.affine_range(n // MOVING):
            total = nl.zeros((P, MOVING), nl.float32, buffer=nl.psum)
            for s in nl.affine_range(k // P):
                left = nl.load(a_t[nl.ds(s * P, P), nl.ds(i * P, P)])
                right = nl.load(b[nl.ds(s * P, P), nl.ds(j * MOVING, MOVING)])
                total += nisa.nc_matmul(left, right)
            nl.store(out[nl.ds(i * P, P), nl.ds(j * MOVING, MOVING)], nl.copy(total, dtype=out.dtype))
    return out


@nki.jit
def hoisted(a_t, b, block_m=1, block_n=1):
    """Keep a panel of rows and loop over panels of columns; a load moves all adjacent tiles of a block."""
    (k, m), (_, n) = a_t.shape, b.shape
    steps, rows, columns = k // P, P * block_m, MOVING * block_n
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(m // rows):
        left = nl.ndarray((steps, nl.par_dim(P), rows), dtype=a_t.dtype, buffer=nl.sbuf)
        for s in nl.affine_range(steps):
            left[s] = nl.load(a_t[nl.ds(s * P, P), nl.ds(i * rows, rows)])
        for j in nl.affine_range(n // columns):
            right = nl.ndarray((steps, nl.par_dim(P), columns), dtype=b.dtype, buffer=nl.sbuf)
            for s in nl.affine_range(steps):
                right[s] = nl.load(b[nl.ds(s * P, P), nl.ds(j * columns, columns)])
            products(out, left, right, i * rows, j * columns, steps, block_m, block_n)
    return out


@nki.jit
def transposing(a, b, block_m=1, block_n=1):
    """Multiply as ``hoisted`` does, but a [M, K], whose tiles the tensor engine transposes, four to a bank of PSUM."""
    (m, k), (_, n) = a.shape, b.shape
    steps, rows, columns = k // P, P * block_m, MOVING * block_n
    out = nl.ndarray((m, n), dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(m // rows):
        left = nl.ndarray((steps // 4, nl.par_dim(P), block_m, 4 * P), dtype=a.dtype, buffer=nl.sbuf)
        for r in nl.affine_range(block_m):
            row = nl.load(a[nl.ds(i * rows + r * P, P), :])
            for s in nl.affine_range(steps // 4):
                transposed = nl.ndarray((P, 4 * P), dtype=a.dtype, buffer=nl.psum)
                for t in nl.affine_range(4):
                    transposed[:, nl.ds(t * P, P)] = nisa.nc_transpose(row[:, nl.ds((s * 4 + t) * P, P)])
                left[s, :, r, :] = nl.copy(transposed)
        for j in nl.affine_range(n // columns):
            right = nl.ndarray((steps, nl.par_dim(P), columns), dtype=b.dtype, buffer=nl.sbuf)
            for s in nl.affine_range(steps):
                right[s] = nl.load(b[nl.ds(s * P, P), nl.ds(j * columns, columns)])
            for r in nl.affine_range(block_m):
                for c in nl.affine_range(block_n):
                    total = nl.zeros((P, MOVING), nl.float32, buffer=nl.psum)
                    for s in nl.affine_range(steps // 4):
                        for t in nl.affine_range(4):
                            total += nisa.nc_matmul(left[s, :, r, nl.ds(t * P, P)],
                                                    right[s * 4 + t, :, nl.ds(c * MOVING, MOVING)])
                    nl.store(out[nl.ds(i * rows + r * P, P), nl.ds(j * columns + c * MOVING, MOVING)],
                             nl.copy(total, dtype=out.dtype))
    return out


def products(out, left, right, row, column, steps, block_m, block_n):
    """Compute every tile of a block from panels on chip."""
    for r in nl.affine_range(block_m):
        for c in nl.affine_range(block_n):
            total = nl.zeros((P, MOVING), nl.float32, buffer=nl.psum)
            for s in nl.affine_range(steps):
                total += nisa.nc_matmul(left[s, :, nl.ds(r * P, P)], right[s, :, nl.ds(c * MOVING, MOVING)])
            nl.store(out[nl.ds(row + r * P, P), nl.ds(column + c * MOVING, MOVING)], nl.copy(total, dtype=out.dtype))


@nki.jit
def blocked(a_t, b, block_m=16, block_n=2, block_k=8):
    """Block all three dimensions; keep sums over blocks of K in SBUF, in the dtype of the operands."""
    (k, m), (_, n) = a_t.shape, b.shape
    rows, columns, depth = P * block_m, MOVING * block_n, P * block_k
    tiles = m // P
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for j in nl.affine_range(n // columns):
        sums = nl.zeros((tiles, block_n, nl.par_dim(P), MOVING), out.dtype, buffer=nl.sbuf)
        for kk in nl.sequential_range(k // depth):
            right = nl.ndarray((block_k, nl.par_dim(P), columns), dtype=b.dtype, buffer=nl.sbuf)
            for s in nl.affine_range(block_k):
                right[s] = nl.load(b[nl.ds(kk * depth + s * P, P), nl.ds(j * columns, columns)])
            for i in nl.affine_range(m // rows):
                left = nl.ndarray((block_k, nl.par_dim(P), rows), dtype=a_t.dtype, buffer=nl.sbuf)
                for s in nl.affine_range(block_k):
                    left[s] = nl.load(a_t[nl.ds(kk * depth + s * P, P), nl.ds(i * rows, rows)])
                for c in nl.affine_range(block_n):
                    for r in nl.affine_range(block_m):
                        total = nl.zeros((P, MOVING), nl.float32, buffer=nl.psum)
                        for s in nl.affine_range(block_k):
                            total += nisa.nc_matmul(left[s, :, nl.ds(r * P, P)],
                                                    right[s, :, nl.ds(c * MOVING, MOVING)])
                        sums[i * block_m + r, c] += total
        for i in nl.affine_range(tiles):
            packed = nl.ndarray((P, columns), dtype=out.dtype, buffer=nl.sbuf)
            for c in nl.affine_range(block_n):
                packed[:, nl.ds(c * MOVING, MOVING)] = nl.copy(sums[i, c], dtype=out.dtype)
            nl.store(out[nl.ds(i * P, P), nl.ds(j * columns, columns)], packed)
    return out

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation, right or with one flaw."""

import ml_dtypes
import numpy as np

from nki_mlir.compat import install

from . import numbers, register

install()

import neuronxcc.nki as nki  # noqa: E402
import neuronxcc.nki.isa as nisa  # noqa: E402
import neuronxcc.nki.language as nl  # noqa: E402


@nki.jit
def layer_norm(x, gamma, flaw=""):
    """Normalize the rows of x [N, M], a tile at a time; a mask leaves out the rows beyond the last one."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(columns)[None, :]
    weight = nl.load(gamma).broadcast_to((128, columns))
    tiles = rows // 128 if flaw == "rows rounded down" else (rows + 127) // 128
    for i in nl.affine_range(tiles):
        inside = i * 128 + p < rows
        if flaw == "no mask at the edge":
            tile = nl.load(x[i * 128 + p, f])  # out-of-bounds: no mask at the edge
        else:
            tile = nl.load(x[i * 128 + p, f], mask=inside)
        mean = nl.mean(tile, axis=1, mask=inside)
        centered = nl.subtract(tile, mean, mask=inside)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        if flaw == "sum never set to zero":
            total[...] = nl.add(total, nl.sum(nl.square(centered), axis=1))  # unwritten-read: sum never set to zero
        else:
            total[...] = nl.sum(nl.square(centered), axis=1, mask=inside)
        variance = nl.multiply(total, 1.0 / columns, mask=inside)
        if flaw == "unused deviation":
            nl.sqrt(variance, mask=inside)  # dead-store: unused deviation
        if flaw == "minus epsilon":
            scale = nl.rsqrt(nl.subtract(variance, 10.0), mask=inside)  # not-finite: minus epsilon
        else:
            scale = nl.rsqrt(nl.add(variance, 1e-5), mask=inside)
        scaled = nl.multiply(nl.multiply(centered, scale, mask=inside), weight, mask=inside)
        nl.store(out[i * 128 + p, f], scaled, mask=inside)  # unwritten-output: rows rounded down
    return out


register(layer_norm, edge=lambda: (numbers(300, 96), numbers(1, 96)), even=lambda: (numbers(256, 64), numbers(1, 64)),
         few=lambda: (numbers(7, 33), numbers(1, 33)))


@nki.jit
def product(a_t, b, flaw=""):
    """Compute a_t.T @ b for a_t [K, M], b [K, N] in tiles of 128 x 512."""
    (k, m), (_, n) = a_t.shape, b.shape
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(m // 128):
        for j in nl.affine_range(n // 512):
            total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
            if flaw == "sum of a parallel loop":
                total = nl.zeros((128, 512), nl.float32, buffer=nl.sbuf)
            if flaw == "sum in bfloat16":
                total = nl.zeros((128, 512), nl.bfloat16, buffer=nl.sbuf)
            for s in nl.sequential_range(k // 128) if flaw == "sum in bfloat16" else nl.affine_range(k // 128):
                rows = nl.ds(s * 128, 128)
                if flaw == "rows and columns exchanged":
                    left = nl.load(a_t[nl.ds(i * 128 + 128, 128), rows])  # out-of-bounds: rows and columns exchanged
                else:
                    left = nl.load(a_t[rows, nl.ds(i * 128, 128)])
                right = nl.load(b[rows, nl.ds(j * 512, 512)])
                if flaw == "sum of a parallel loop":
                    total[...] = nl.add(total, nisa.nc_matmul(left, right))  # race: sum of a parallel loop
                elif flaw == "sum in bfloat16":
                    total[...] = nl.add(total, nisa.nc_matmul(left, right))  # precision: sum in bfloat16
                elif flaw == "product not added":
                    total[...] = nisa.nc_matmul(left, right)  # dead-store: product not added
                else:
                    total += nisa.nc_matmul(left, right)
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * 512, 512)], nl.copy(total, dtype=out.dtype))
            if flaw == "part of a product":
                part = nl.ndarray((32, 512), dtype=nl.float32, buffer=nl.sbuf)
                part[...] = nisa.tensor_copy(total[16:48, :])  # device-rule: part of a product
                nl.store(out[nl.ds(i * 128 + 16, 32), nl.ds(j * 512, 512)], part)
    return out


register(product, square=lambda: (numbers(256, 256), numbers(256, 512)),
         half=lambda: (numbers(256, 128, dtype=ml_dtypes.bfloat16), numbers(256, 512, dtype=ml_dtypes.bfloat16)))


@nki.jit
def attention(q_t, k_t, v, flaw=""):
    """Compute softmax(q @ k.T) @ v for each head, in a loop over heads."""
    heads, d, s = q_t.shape
    out = nl.ndarray((heads, s, d), dtype=v.dtype, buffer=nl.shared_hbm)
    for head in nl.affine_range(heads):
        at = 0 if flaw == "head forgotten" else head
        queries, keys, values = nl.load(q_t[head]), nl.load(k_t[head]), nl.load(v[head])
        scores = nl.copy(nisa.nc_matmul(queries, keys))
        if flaw == "large scores in float16":
            narrow = nl.multiply(scores, 1e5, dtype=nl.float16)  # range: large scores in float16
            scores = nl.copy(nl.multiply(narrow, 1e-5), dtype=nl.float32)
        if flaw == "no maximum subtracted":
            powers = nl.exp(nl.multiply(scores, 1000.0))  # not-finite: no maximum subtracted
        else:
            powers = nl.exp(nl.subtract(scores, nl.max(scores, axis=1)))
        total = nl.sum(powers, axis=1)
        weights = nl.divide(powers, total)
        turned = nl.copy(nisa.nc_transpose(weights))
        if flaw == "values overwritten":
            nl.store(v[head], nl.multiply(values, 2.0))  # overwritten-input: values overwritten
        mixed = nl.copy(nisa.nc_matmul(turned, values))
        if flaw == "result of half of the columns":
            nl.store(out[at, :, 0:d // 2], mixed[:, 0:d // 2])  # unwritten-output: result of half of the columns
        else:
            nl.store(out[at], mixed)  # race: head forgotten
    if flaw == "last head after the loop":
        nl.store(out[0], mixed)  # lifetime: last head after the loop
    return out


register(attention, heads=lambda: (numbers(2, 64, 128), numbers(2, 64, 128), numbers(2, 128, 64)))


@nki.jit
def quantized(x, flaw=""):
    """Return x as int8 with a scale for each row, and the scales."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=nl.int8, buffer=nl.shared_hbm)
    scales = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    largest = nl.max(nl.abs(tile), axis=1)
    scale = nl.multiply(largest, 1.0 / 127)
    if flaw == "scale forgotten":
        rounded = nl.copy(nl.multiply(tile, 10.0), dtype=nl.int8)  # range: scale forgotten
    elif flaw == "negative in uint8":
        rounded = nl.copy(nl.copy(tile, dtype=nl.uint8), dtype=nl.int8)  # range: negative in uint8
    else:
        rounded = nl.copy(nl.multiply(tile, nl.reciprocal(scale)), dtype=nl.int8)
    if flaw == "scale of zero":
        zero = nl.subtract(scale, scale)
        nl.store(scales, nl.multiply(nl.divide(zero, zero), scale))  # not-finite: scale of zero
    elif flaw == "half of the scales":
        nl.store(scales[0:64], scale[0:64])  # unwritten-output: half of the scales
    else:
        nl.store(scales, scale)
    if flaw == "stored twice":
        nl.store(out, nl.copy(tile, dtype=nl.int8))  # dead-store: stored twice
    nl.store(out, rounded)
    return out, scales


register(quantized, blocks=lambda: (numbers(128, 256, low=-60, high=60),))


@nki.jit
def convolved(x, w, flaw=""):
    """Correlate each row of x [C, L] with its three weights; the result has L - 2 columns."""
    channels, length = x.shape
    taps = w.shape[1]
    width = length - taps + 1
    out = nl.ndarray((channels, width), dtype=x.dtype, buffer=nl.shared_hbm)
    image = nl.load(x)
    weights = nl.load(w)
    total = nl.ndarray((channels, width), dtype=nl.float32, buffer=nl.sbuf)
    if flaw != "total never written":
        total[...] = nl.zeros((channels, width), nl.float32)
    for t in nl.static_range(taps):
        if flaw == "one too far" and t == taps - 1:
            moved = nl.copy(image[:, nl.ds(t + 1, width)])  # out-of-bounds: one too far
        else:
            moved = nl.copy(image[:, nl.ds(t, width)])
        total[...] = nl.add(total, nl.multiply(moved, weights[:, t:t + 1]))  # unwritten-read: total never written
    if flaw == "moved in place":
        nl.store(out, total)
        nisa.dma_copy(dst=out[1:channels, :], src=out[0:channels - 1, :])  # race: moved in place
    else:
        nl.store(out, total)
    return out


register(convolved, shifts=lambda: (numbers(128, 512), numbers(128, 3)), short=lambda: (numbers(64, 40), numbers(64, 3)))


@nki.jit
def looked_up(table, rows, flaw=""):
    """Return the rows of a table that 128 indices choose."""
    count, width = table.shape
    out = nl.ndarray((128, width), dtype=table.dtype, buffer=nl.shared_hbm)
    numbers_of_rows = nl.load(rows)
    if flaw == "index beyond the table":
        numbers_of_rows = nl.add(numbers_of_rows, 50)
    f = nl.arange(width)[None, :]
    p = nl.arange(128)[:, None]
    chosen = nl.load(table[numbers_of_rows[p, 0], f])  # out-of-bounds: index beyond the table
    if flaw == "several rows to one":
        target = nl.ndarray((128, width), dtype=table.dtype, buffer=nl.shared_hbm)
        nl.store(target, chosen)
        nl.store(target[nl.bitwise_and(numbers_of_rows, 7)[p, 0], f], chosen)  # race: several rows to one
        nl.store(out, nl.load(target))
    else:
        nl.store(out, chosen)
    return out


register(looked_up, rows=lambda: (numbers(100, 64), np.arange(128, dtype=np.int32).reshape(128, 1)[::-1] % 100))


@nki.jit
def by_programs(x, flaw=""):
    """Center 128 rows of x in each program of a grid of four."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    program = nl.program_id(0)
    first = program * 64 if flaw == "programs overlap" else program * 128
    tile = nl.load(x[nl.ds(program * 128, 128), :])
    centered = nl.subtract(tile, nl.mean(tile, axis=1))
    if flaw == "programs overlap":
        nl.store(out[nl.ds(first, 128), :], centered)  # race: programs overlap
    elif flaw == "row of another program":
        middle = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(middle[nl.ds(first, 128), :], centered)  # race: row of another program
        nl.store(out[nl.ds(first, 128), :], nl.load(middle[nl.ds((3 - program) * 128, 128), :]))
    else:
        nl.store(out[nl.ds(first, 128), :], centered)
    return out


register(by_programs[4], grid=lambda: (numbers(512, 64),))


@nki.jit
def log_variances(x, flaw=""):
    """Return the logarithm of each row's variance; the numbers are far from zero."""
    rows, columns = x.shape
    out = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(rows)[:, None], nl.arange(columns + 16)[None, :]
    if flaw == "columns that the mask left out":
        tile = nl.load(x[i_p, i_f], mask=i_f < columns)
    else:
        tile = nl.load(x)
    mean = nl.multiply(nl.sum(tile, axis=1), 1.0 / columns)  # unwritten-read: columns that the mask left out
    if flaw == "difference of squares":
        squares = nl.multiply(nl.sum(nl.square(tile), axis=1), 1.0 / columns)
        variance = nl.subtract(squares, nl.square(mean))  # precision: difference of squares
        variance = nl.abs(variance)
    else:
        centered = nl.subtract(tile, mean)
        variance = nl.multiply(nl.sum(nl.square(centered), axis=1), 1.0 / columns)
    if flaw == "logarithm of zero":
        variance = nl.subtract(variance, variance)
    result = nl.log(variance)  # not-finite: logarithm of zero
    nl.store(out, result)
    return out


register(log_variances, near=lambda: (numbers(128, 64, low=4999, high=5001),), few=lambda: (numbers(3, 8, low=10, high=20),))


@nki.jit
def running_sums(x, flaw=""):
    """Return the sums of the first, the first two, ... of the matrices x [N, 128, M]."""
    count, rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out[0], nl.load(x[0]))
    if flaw == "parallel loop over its results":
        for i in nl.affine_range(count - 1):
            nl.store(out[i + 1], nl.add(nl.load(out[i]), nl.load(x[i + 1])))  # race: parallel loop over its results
        return out
    total = nl.ndarray((nl.par_dim(rows), columns), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(count):
        if i > 0:
            total[...] = nl.add(total, nl.load(x[i]))  # unwritten-read: first matrix left out
            nl.store(out[i], total)
        elif flaw != "first matrix left out":
            total[...] = nl.load(x[i])
    return out


register(running_sums, four=lambda: (numbers(4, 128, 32),))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the current generation, right or with one flaw."""

import ml_dtypes
import numpy as np

from nki_mlir.compat import install

from . import numbers, register

install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402


@nki.jit
def rms_norm(x, g, flaw=""):
    """Divide the rows of x [N, M] by the root of the mean of their squares, and multiply by g [1, M]."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    weight = nl.ndarray((128, columns), dtype=g.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=weight, src=g.ap([[0, 128], [1, columns]]))
    shift = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    if flaw != "epsilon never written":
        nisa.memset(dst=shift, value=1e-6)
    end = rows // 128 * 128 if flaw == "rows rounded down" else rows
    for start in range(0, end, 128):
        count = min(128, rows - start)
        if flaw == "tiles of 128 rows":
            count = 128
        tile = nl.ndarray((count, columns), dtype=x.dtype, buffer=nl.sbuf)
        square = nl.ndarray((count, columns), dtype=nl.float32, buffer=nl.sbuf)
        scale = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
        if flaw == "operands swapped":
            nisa.memset(dst=tile, value=1.0)
            nisa.dma_copy(dst=x[start:start + count], src=tile)  # overwritten-input: operands swapped
        else:
            nisa.dma_copy(dst=tile, src=x[start:start + count])  # out-of-bounds: tiles of 128 rows
        nisa.activation_reduce(dst=square, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=scale)
        if flaw == "root of a difference":
            nisa.tensor_scalar(dst=scale, data=scale, op0=nl.subtract, operand0=1e6)
            nisa.activation(dst=scale, op=nl.sqrt, data=scale)  # not-finite: root of a difference
        else:
            nisa.activation(dst=scale, op=nl.rsqrt, data=scale, scale=1.0 / columns, bias=shift[0:count])  # unwritten-read: epsilon never written
        nisa.scalar_tensor_tensor(dst=tile, data=tile, op0=nl.multiply, operand0=scale, op1=nl.multiply,
                                  operand1=weight[0:count])
        nisa.dma_copy(dst=out[start:start + count], src=tile)  # unwritten-output: rows rounded down
    return out


register(rms_norm, edge=lambda: (numbers(300, 96), numbers(1, 96)), even=lambda: (numbers(128, 512), numbers(1, 512)))


@nki.jit
def product(a_t, b, flaw=""):
    """Compute a_t.T @ b of a_t [K, M], b [K, N], with sums in PSUM."""
    (k, m), (_, n) = a_t.shape, b.shape
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    columns = 1024 if flaw == "across banks" else n
    total = nl.ndarray((m, columns), dtype=nl.float32, buffer=nl.psum)
    first = 256 if flaw == "across banks" else 0
    for s in range(0, k, 128):
        left = nl.ndarray((128, m), dtype=a_t.dtype, buffer=nl.sbuf)
        right = nl.ndarray((128, n), dtype=b.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=a_t[s:s + 128, :])
        if flaw == "rows of the result":
            nisa.dma_copy(dst=right, src=b[s + 1:s + 129, :])  # out-of-bounds: rows of the result
        else:
            nisa.dma_copy(dst=right, src=b[s:s + 128, :])
        if flaw == "not accumulated":
            nisa.nc_matmul(dst=total, stationary=left, moving=right, accumulate=False)  # dead-store: not accumulated
        else:
            nisa.nc_matmul(dst=total[:, first:first + n], stationary=left, moving=right)  # device-rule: across banks
    result = nl.ndarray((m, n), dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=total[:, first:first + n])
    if flaw == "half of the columns":
        nisa.dma_copy(dst=out[:, 0:n // 2], src=result[:, 0:n // 2])  # unwritten-output: half of the columns
    elif flaw == "result transposed":
        flat = nl.ndarray((n, m), dtype=out.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=flat, src=result)  # dma-shape: result transposed
        nisa.dma_copy(dst=out, src=flat.reshape((m, n)))
    else:
        nisa.dma_copy(dst=out, src=result)
    return out


register(product, deep=lambda: (numbers(384, 128), numbers(384, 512)),
         half=lambda: (numbers(128, 128, dtype=ml_dtypes.bfloat16), numbers(128, 512, dtype=ml_dtypes.bfloat16)))


@nki.jit
def softmax(x, flaw=""):
    """Compute the softmax of each row."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, 128):
        count = min(128, rows - start)
        tile = nl.ndarray((count, columns), dtype=nl.float32, buffer=nl.sbuf)
        powers = nl.ndarray((count, columns), dtype=nl.float32, buffer=nl.sbuf)
        below = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start:start + count])
        nisa.tensor_reduce(dst=below, op=nl.maximum, data=tile, axis=1, negate=True)  # dead-store: maximum not subtracted
        if flaw == "maximum not subtracted":
            nisa.activation(dst=powers, op=nl.exp, data=tile)
            nisa.tensor_reduce(dst=total, op=nl.add, data=powers, axis=1)
        elif flaw == "scaled up":
            nisa.activation(dst=powers, op=nl.exp, data=tile, scale=10.0)  # range: scaled up
            nisa.tensor_scalar(dst=powers, data=powers, op0=nl.multiply, operand0=below)
            nisa.tensor_reduce(dst=total, op=nl.add, data=powers, axis=1)
        else:
            nisa.activation_reduce(dst=powers, op=nl.exp, data=tile, bias=below, reduce_op=nl.add, reduce_res=total)
        if flaw == "sum in bfloat16":
            narrow = nl.ndarray((count, 1), dtype=nl.bfloat16, buffer=nl.sbuf)
            nisa.memset(dst=narrow, value=0.0)
            for column in range(0, 8):
                nisa.tensor_tensor(dst=narrow, data1=narrow, data2=powers[:, column:column + 1], op=nl.add)  # precision: sum in bfloat16
            nisa.tensor_copy(dst=total, src=narrow)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=powers, data=powers, op0=nl.multiply, operand0=total)
        result = nl.ndarray((count, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=powers)
        nisa.dma_copy(dst=out[start:start + count], src=result)
    return out


register(softmax, wide=lambda: (numbers(200, 130, low=-30, high=30),), low=lambda: (numbers(128, 64, dtype=ml_dtypes.bfloat16),))


@nki.jit
def centered_by_cores(x, flaw=""):
    """Subtract the mean of each row of x; each of two cores has half of the columns."""
    rows, columns = x.shape
    core, cores = nl.program_id(0), nl.num_programs()
    width = columns // cores
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((rows, cores), dtype=nl.float32, buffer=nl.shared_hbm, name="sums")
    tile = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.sbuf)
    part = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    mean = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[:, nl.ds(core * width, width)])
    nisa.tensor_reduce(dst=part, op=nl.add, data=tile, axis=1)
    if flaw == "one column for both":
        nisa.dma_copy(dst=sums[:, 0:1], src=part)  # race: one column for both
        nisa.core_barrier(sums, (0, 1))
        nisa.dma_copy(dst=mean, src=sums[:, 0:1])
    else:
        nisa.dma_copy(dst=sums[:, nl.ds(core, 1)], src=part)  # race: no barrier
        if flaw != "no barrier":
            nisa.core_barrier(sums, (0, 1))
        parts = nl.ndarray((rows, cores), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=parts, src=sums)
        nisa.tensor_reduce(dst=mean, op=nl.add, data=parts, axis=1)
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1.0 / columns)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=mean)
    at = core * width // 2 if flaw == "halves overlap" else core * width
    if flaw == "halves overlap":
        nisa.dma_copy(dst=out[:, nl.ds(at, width)], src=tile)  # race: halves overlap
    else:
        nisa.dma_copy(dst=out[:, nl.ds(at, width)], src=tile)
    return out


register(centered_by_cores[2], cores=lambda: (numbers(128, 512),))


@nki.jit
def quantized(x, flaw=""):
    """Return x as int8 with a scale for each row, and the scales."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=nl.int8, buffer=nl.shared_hbm)
    scales = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)
    largest = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    inverse = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    rounded = nl.ndarray((rows, columns), dtype=nl.int8, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_reduce(dst=largest, op=nl.maximum, data=tile, axis=1)
    if flaw == "sign of the largest":
        nisa.tensor_scalar(dst=largest, data=largest, op0=nl.multiply, operand0=0.5)
    else:
        smallest = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=smallest, op=nl.minimum, data=tile, axis=1, negate=True)
        nisa.tensor_tensor(dst=largest, data1=largest, data2=smallest, op=nl.maximum)
    nisa.tensor_scalar(dst=largest, data=largest, op0=nl.multiply, operand0=1.0 / 127)
    if flaw == "inverse never written":
        nisa.tensor_scalar(dst=rounded, data=tile, op0=nl.multiply, operand0=inverse)  # unwritten-read: inverse never written
    else:
        nisa.reciprocal(dst=inverse, data=largest)
        nisa.tensor_scalar(dst=rounded, data=tile, op0=nl.multiply, operand0=inverse)  # range: sign of the largest
    if flaw == "inverse computed again":
        nisa.reciprocal(dst=inverse, data=largest)  # dead-store: inverse computed again
    nisa.dma_copy(dst=out, src=rounded)
    nisa.dma_copy(dst=scales, src=largest)
    if flaw == "scale in float8":
        tiny = nl.ndarray((rows, 1), dtype=nl.float8_e4m3, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=tiny, data=largest, op0=nl.multiply, operand0=10000.0)  # range: scale in float8
        nisa.tensor_copy(dst=largest, src=tiny)
        nisa.dma_copy(dst=scales, src=largest)
    return out, scales


register(quantized, rows=lambda: (numbers(128, 128, low=-60, high=60),))


@nki.jit
def at_addresses(x, y, flaw=""):
    """Compute exp(x) + y in tiles whose addresses the kernel chooses."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    step = 128 if flaw == "half of the bytes" else 256
    left = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
    right = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf, address=(0, step))  # lifetime: half of the bytes
    nisa.dma_copy(dst=left, src=x)
    nisa.dma_copy(dst=right, src=y)
    nisa.activation(dst=left, op=nl.exp, data=left)
    if flaw == "tile moved within itself":
        nisa.dma_copy(dst=left[:, 1:columns], src=left[:, 0:columns - 1])  # race: tile moved within itself
    nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.add)
    if flaw == "columns as rows":
        turned = nl.ndarray((columns, rows), dtype=nl.float32, buffer=nl.sbuf, address=(0, 4096))
        nisa.dma_copy(dst=turned, src=left)  # dma-shape: columns as rows
        nisa.dma_copy(dst=out.reshape((columns, rows)), src=turned)
    elif flaw == "third partition":
        part = nl.ndarray((64, columns), dtype=nl.float32, buffer=nl.sbuf, address=(0, 4096))
        nisa.tensor_copy(dst=part, src=left[3:67, :])  # device-rule: third partition
        nisa.dma_copy(dst=out[0:64, :], src=part)
        nisa.dma_copy(dst=out[64:128, :], src=left[64:128, :])
    else:
        nisa.dma_copy(dst=out, src=left)
    return out


register(at_addresses, tiles=lambda: (numbers(128, 64), numbers(128, 64)))


@nki.jit
def convolved(x, w, flaw=""):
    """Correlate each row of x [C, L] with its weights [C, T]."""
    channels, length = x.shape
    taps = w.shape[1]
    width = length - taps + 1
    out = nl.ndarray((channels, width), dtype=x.dtype, buffer=nl.shared_hbm)
    image = nl.ndarray((channels, length), dtype=x.dtype, buffer=nl.sbuf)
    weights = nl.ndarray((channels, taps), dtype=w.dtype, buffer=nl.sbuf)
    total = nl.ndarray((channels, width), dtype=nl.float32, buffer=nl.sbuf)
    if flaw == "image in part":
        nisa.dma_copy(dst=image[:, 0:width], src=x[:, 0:width])
    else:
        nisa.dma_copy(dst=image, src=x)
    nisa.dma_copy(dst=weights, src=w)
    nisa.tensor_scalar(dst=total, data=image[:, 0:width], op0=nl.multiply, operand0=weights[:, 0:1])
    reach = taps + 1 if flaw == "a tap too many" else taps
    for t in range(1, reach):
        nisa.scalar_tensor_tensor(dst=total, data=image[:, t:t + width], op0=nl.multiply, operand0=weights[:, t:t + 1], op1=nl.add, operand1=total)  # unwritten-read: image in part; out-of-bounds: a tap too many
    nisa.dma_copy(dst=out, src=total)
    if flaw == "weights updated":
        nisa.tensor_scalar(dst=weights, data=weights, op0=nl.multiply, operand0=0.5)
        nisa.dma_copy(dst=w, src=weights)  # overwritten-input: weights updated
    return out


register(convolved, halo=lambda: (numbers(96, 260), numbers(96, 5)))


@nki.jit
def looked_up(table, rows, flaw=""):
    """Return the rows of a table that 128 indices choose."""
    count, width = table.shape
    out = nl.ndarray((128, width), dtype=table.dtype, buffer=nl.shared_hbm)
    index = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
    chosen = nl.ndarray((128, width), dtype=table.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=index, src=rows)
    if flaw == "index beyond the table":
        nisa.tensor_scalar(dst=index, data=index, op0=nl.add, operand0=50)
    nisa.dma_copy(dst=chosen, src=table.ap([[width, 128], [1, width]], vector_offset=index, indirect_dim=0))  # out-of-bounds: index beyond the table
    if flaw == "several rows to one":
        target = nl.ndarray((128, width), dtype=table.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=target, src=chosen)
        nisa.tensor_scalar(dst=index, data=index, op0=nl.bitwise_and, operand0=7)
        nisa.dma_copy(dst=target.ap([[width, 128], [1, width]], vector_offset=index, indirect_dim=0), src=chosen)  # race: several rows to one
        nisa.dma_copy(dst=out, src=target)
    else:
        nisa.dma_copy(dst=out, src=chosen)
    return out


register(looked_up, rows=lambda: (numbers(100, 64), (np.arange(128, dtype=np.int32)[::-1] % 100).reshape(128, 1)))


@nki.jit
def log_variances(x, flaw=""):
    """Return the logarithm of each row's variance; the numbers are far from zero."""
    rows, columns = x.shape
    out = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)
    square = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)
    mean = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    variance = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_reduce(dst=mean, op=nl.add, data=tile, axis=1)
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1.0 / columns)
    if flaw == "difference of squares":
        nisa.activation_reduce(dst=square, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=variance)
        nisa.tensor_scalar(dst=variance, data=variance, op0=nl.multiply, operand0=1.0 / columns)
        nisa.tensor_tensor(dst=mean, data1=mean, data2=mean, op=nl.multiply)
        nisa.tensor_tensor(dst=variance, data1=variance, data2=mean, op=nl.subtract)  # precision: difference of squares
        nisa.activation(dst=variance, op=nl.abs, data=variance)
    else:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=mean)
        nisa.activation_reduce(dst=square, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=variance)
        nisa.tensor_scalar(dst=variance, data=variance, op0=nl.multiply, operand0=1.0 / columns)
    if flaw == "logarithm of zero":
        nisa.tensor_tensor(dst=variance, data1=variance, data2=variance, op=nl.subtract)
    nisa.activation(dst=variance, op=nl.log, data=variance)  # not-finite: logarithm of zero
    nisa.dma_copy(dst=out, src=variance)
    return out


register(log_variances, near=lambda: (numbers(128, 64, low=4999, high=5001),), few=lambda: (numbers(3, 8, low=10, high=20),))


@nki.jit
def window(x, start, flaw=""):
    """Return 16 columns of x, from a column on that a tensor states, as int8."""
    rows, columns = x.shape
    out = nl.ndarray((rows, 16), dtype=nl.int8, buffer=nl.shared_hbm)
    first = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    part = nl.ndarray((rows, 16), dtype=nl.float32, buffer=nl.sbuf)
    rounded = nl.ndarray((rows, 16), dtype=nl.int8, buffer=nl.sbuf)
    nisa.dma_copy(dst=first, src=start)
    if flaw == "a window beyond the rows":
        nisa.tensor_scalar(dst=first, data=first, op0=nl.add, operand0=rows * columns)
    register_of_first = nisa.register_alloc(0)
    nisa.register_load(register_of_first, first)
    moved = x.ap([[columns, rows], [1, 16]], scalar_offset=register_of_first, indirect_dim=1)
    if flaw == "half of the window":
        nisa.dma_copy(dst=part[:, 0:8], src=x[:, 0:8])
    else:
        nisa.dma_copy(dst=part, src=moved)  # out-of-bounds: a window beyond the rows
    if flaw == "too large for int8":
        nisa.tensor_scalar(dst=rounded, data=part, op0=nl.multiply, operand0=1000.0)  # range: too large for int8
    else:
        nisa.tensor_scalar(dst=rounded, data=part, op0=nl.multiply, operand0=100.0)  # unwritten-read: half of the window
    nisa.dma_copy(dst=out, src=rounded)
    return out


register(window, inside=lambda: (numbers(64, 48), np.array([[30]], np.int32)), first=lambda: (numbers(64, 48), np.array([[0]], np.int32)))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Launches, drivers and index expressions of public tests and samples of the beta generation, whole as they have them."""

import functools
import math

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki import baremetal, benchmark, simulate_kernel
from neuronxcc.nki.isa.constants import oob_mode
from neuronxcc.nki.typing import mutable_tensor, tensor
from torch_neuronx import nki_jit


@nki_jit
def written_by_torch(a_input, b_input, c_output):
    """The decorator of PyTorch: the last argument is the result, programs write their parts of it."""
    offset = nl.program_id(0) * 32
    ix = offset + nl.arange(32)[:, None]
    iy = nl.arange(24)[None, :]
    a_tile = nl.load(a_input[ix, iy])
    b_tile = nl.load(b_input[ix, iy])
    nl.store(c_output[ix, iy], value=a_tile - b_tile)


@baremetal(save_neff_name="file.neff", save_trace_name="profile.ntff")
def exponents(a_tensor):
    """A kernel that is compiled for the device at once."""
    out = nl.ndarray(a_tensor.shape, dtype=a_tensor.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(32)[:, None]
    i_f = nl.arange(a_tensor.shape[1])[None, :]
    for p in nl.affine_range(a_tensor.shape[0] // 32):
        a = nl.load(a_tensor[p * 32 + i_p, i_f])
        nl.store(out[p * 32 + i_p, i_f], value=nl.exp(a))
    return out


@benchmark(warmup=1, iters=2)
def products(a_tensor, b_tensor):
    """A kernel that is measured."""
    out = nl.ndarray(a_tensor.shape, dtype=a_tensor.dtype, buffer=nl.shared_hbm)
    a, b = nl.load(a_tensor), nl.load(b_tensor)
    nl.store(out, nl.multiply(a, b))
    return out


@nki.jit(mode="simulation", platform_target="trn1")
def parity(in_tensor):
    """Even and odd columns, two results."""
    sz_p, sz_f = in_tensor.shape
    even = nl.ndarray((sz_p, sz_f // 2), dtype=in_tensor.dtype, buffer=nl.shared_hbm)
    odd = nl.ndarray((sz_p, sz_f // 2), dtype=in_tensor.dtype, buffer=nl.shared_hbm)
    in_tile = nl.load(in_tensor)
    ip = nl.arange(sz_p)[:, None]
    ifr = nl.arange(sz_f // 2)[None, :]
    even_tile = in_tile[ip, ifr * 2]
    ...
    nl.store(even, value=even_tile)
    nl.store(odd, value=in_tile[ip, ifr * 2 + 1])
    return even, odd


@nki.jit
def on_two_cores(x):
    """The first axis of the grid is the cores, the second the programs of each."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    core, part = nl.program_id(0), nl.program_id(1)
    start = core * (rows // 2) + part * (rows // 4)
    i_p = start + nl.arange(rows // 4)[:, None]
    i_f = nl.arange(cols)[None, :]
    nl.store(out[i_p, i_f], nl.gelu(nl.load(x[i_p, i_f])))
    return out


@nki.jit
def columns_in_pieces(x):
    """A program takes several pieces, the last of which is shorter."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    pid, programs = nl.program_id(axis=0), nl.num_programs(axes=0)
    i_p, i_f = nl.mgrid[0:rows, 0:16]
    for j in nl.affine_range(2):
        col = (pid * 2 + j) * 16 + i_f
        tile = nl.load(x[i_p, col], mask=(col < cols))
        nl.store(out[i_p, col], nl.multiply(tile, 1.0 / programs, mask=(col < cols)), mask=(col < cols))
    return out


@nki.jit
def transposed_free_axes(in_tensor, shape2D):
    """The two axes of a flattened image exchanged, element by element."""
    sz_p, sz_f = in_tensor.shape
    f1, f2 = shape2D
    out = nl.ndarray((sz_p, sz_f), dtype=in_tensor.dtype, buffer=nl.shared_hbm)
    in_tile = nl.load(in_tensor)
    out_tile = nl.ndarray((sz_p, f2 * f1), dtype=in_tensor.dtype)
    i_p = nl.arange(sz_p)[:, None]
    for i in nl.affine_range(f1):
        for j in nl.affine_range(f2):
            out_tile[i_p, j * f1 + i + nl.arange(1)[None, :]] = nl.copy(in_tile[i_p, i * f2 + j + nl.arange(1)[None, :]])
    nl.store(out, value=out_tile)
    return out


@nki.jit
def reversed_blocks(x):
    """Blocks of rows in the other order, by an index that falls."""
    blocks = x.shape[0] // 32
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for b in nl.affine_range(blocks):
        src = (blocks - 1 - b) * 32
        nl.store(out[b * 32:b * 32 + 32, :], value=nl.load(x[src:src + 32, :]))
    return out


@nki.jit
def sums_of_strides(x):
    """A view of four dimensions in the free axis, of which two are summed."""
    rows, cols = x.shape
    out = nl.ndarray((rows, cols // 8), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    i_0 = nl.arange(rows)[:, None, None, None]
    i_1 = nl.arange(cols // 8)[None, :, None, None]
    i_2 = nl.arange(2)[None, None, :, None]
    i_3 = nl.arange(4)[None, None, None, :]
    summed = nisa.tensor_reduce(np.add, tile[i_0, i_1 * 8 + i_2 * 4 + i_3], axis=[2, 3], dtype=x.dtype)
    nl.store(out, value=summed)
    return out


@nki.jit
def scattered_rows(x, indices):
    """Rows written where a tile of indices says, those out of range left out."""
    rows, cols = x.shape
    out = nl.ndarray((48, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.zeros((48, cols), dtype=x.dtype))
    tile, index = nl.load(x), nl.load(indices)
    i_f = nl.arange(cols)[None, :]
    nisa.dma_copy(src=tile, dst=out[index, i_f], oob_mode=oob_mode.skip)
    return out


@nki.jit
def one_hot(labels, classes=24):
    """Column numbers compared with a label for each row."""
    rows, _ = labels.shape
    out = nl.ndarray((rows, classes), dtype=nl.float32, buffer=nl.shared_hbm)
    label: tensor[rows, 1] = nl.load(labels)
    numbers = nisa.iota(nl.arange(classes)[None, :], dtype=nl.float32)
    row_of_numbers = nl.ndarray((nl.par_dim(rows), classes), dtype=nl.float32, buffer=nl.sbuf)
    row_of_numbers[...] = nl.copy(numbers.broadcast_to((rows, classes)))
    hot = nisa.tensor_scalar(row_of_numbers, op0=np.equal, operand0=label, dtype=nl.float32)
    nl.store(out, hot)
    return out


@nki.jit
def cached(cache: mutable_tensor, new, position=4):
    """A cache of which one part is written, and a result that reads all of it."""
    rows, cols = cache.shape
    n = new.shape[1]
    out = nl.ndarray((rows, 1), dtype=cache.dtype, buffer=nl.shared_hbm)
    nl.store(cache[:, nl.ds(position, n)], nl.load(new))
    nl.store(out, nl.mean(nl.load(cache), axis=1, keepdims=True))
    return cache, out


def _binary(kind):
    return {"sub": nl.subtract, "max": nl.maximum}[kind]


@nki.jit(mode="trace")
def chain(tile, *functions):
    """Helpers of a kernel may be kernels, and take as many arguments as they are called with."""
    for function in functions:
        tile = function(tile)
    return tile


@nki.jit
def composed(x, y, kind="sub", **options):
    """Functions by name, partial functions, keyword arguments that are passed on."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = _binary(kind)(nl.load(x), nl.load(y))
    halved = functools.partial(nl.multiply, 0.5)
    nl.store(out, chain(tile, nl.square, halved))
    return out


@nki.jit
def power_of_two_columns(x):
    """A tree of sums: a Python loop whose extent halves."""
    rows, cols = x.shape
    out = nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    width = cols
    while width > 1:
        width //= 2
        tile = nl.add(tile[:, 0:width], tile[:, width:2 * width])
    nl.store(out, tile)
    return out


@nki.jit
def programs_by_core(x):
    """Two programs on each of two cores."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    p, f = nl.mgrid[0:16, 0:x.shape[1]]
    nl.store(out[i * 16 + p, f], value=nl.load(x[i * 16 + p, f]) * 2)
    return out


@nki.jit
def flattened_gather(x, idx):
    """Elements of each row by a tile of indices."""
    out = nl.ndarray(idx.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.gather_flattened(data=nl.load(x), indices=nl.load(idx)))
    return out


@nki.jit
def selected(x, m):
    """A choice by a predicate, whose row's largest is a by-product."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    largest = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.shared_hbm)
    on_true, predicate = nl.load(x), nl.load(m)
    dst = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    res = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.select_reduce(dst=dst, predicate=predicate, on_true=on_true, on_false=-100.0, reduce_res=res,
                       reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_op=nl.max)
    nl.store(out, dst)
    nl.store(largest, res)
    return out, largest


@nki.jit
def halves_exchanged(x):
    """Partitions of one tile that two loads write."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    i_p = nl.arange(32)[:, None]
    i_f = nl.arange(x.shape[1])[None, :]
    for k in range(2):
        t[k * 32 + i_p, i_f] = nl.load(x[(1 - k) * 32 + i_p, i_f])
    nl.store(out, t[0:64])
    return out


@nki.jit
def batched(x, w):
    """An operand of three axes, transposed as it is loaded."""
    b, n, d = x.shape
    out = nl.ndarray((b, n, w.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    right = nl.load(w)
    for i in nl.affine_range(b):
        left = nl.load_transpose2d(x[i, 0:n, 0:d])
        result = nl.ndarray((n, w.shape[1]), dtype=nl.float32, buffer=nl.psum)
        result[:, :] = nisa.nc_matmul(left[:, :], right[:, :])
        nl.store(out[i, :, :], value=nisa.tensor_copy(result))
    return out


@nki.jit
def rounded_twice(x):
    """Results in bfloat16 between two instructions."""
    out = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
    t = nl.load(x, dtype=nl.bfloat16)
    doubled = nl.add(t, t, dtype=nl.bfloat16)
    nl.store(out, nisa.tensor_scalar(doubled, np.multiply, 3.0, op1=np.add, operand1=1.0, dtype=nl.bfloat16))
    return out


class Driver:
    """A test's driver as a case: NumPy arrays in, NumPy arrays out, on whatever executor."""

    def __init__(self, function):
        self.function, self.__name__ = function, function.__name__

    def run(self, arguments, keywords, on):
        return self.function(*arguments, **keywords)


def simulated_program(x):
    return simulate_kernel(on_two_cores[nl.nc(2), 2], x)


@nki.jit
def causal_scores(q, k):
    """The results are created behind the question for the program, the unpacked shapes have names that nothing reads."""
    b = nl.program_id(0)
    h = nl.program_id(1)
    _, _, d, s = q.shape
    out = nl.ndarray((q.shape[0], q.shape[1], s, s), dtype=q.dtype, buffer=nl.shared_hbm)
    i_q, i_k = nl.arange(s)[:, None], nl.arange(s)[None, :]
    product = nisa.nc_matmul(nl.load(q[b, h]), nl.load(k[b, h]))
    scores = nisa.affine_select(pred=(i_q >= i_k), on_true_tile=product, on_false_value=-9984.0, dtype=nl.float32)
    nl.store(out[b, h], value=scores)
    return out


def main(a, b):
    """What a sample's main function does."""
    exp = exponents(a)
    product = products(a, b)
    c = np.zeros_like(a)
    simulate_kernel(written_by_torch[2], a, b, c)
    assert np.allclose(c, a - b)
    return exp, product, c


@nki.jit
def blocks_of_experts(x, weights, expert, rows):
    """Each block of rows has its numbers in one row of a tensor, and the weights of an expert that is known at run time."""
    total, h = x.shape
    e, _, i = weights.shape
    out = nl.ndarray((total, i), dtype=x.dtype, buffer=nl.shared_hbm)
    columns = nl.arange(i)[None, :]
    for b in nl.sequential_range(expert.shape[0]):
        number = nl.load(expert[b, 0:1])
        r = nl.load(rows[b, nl.arange(64)[:, None]])
        tokens = nl.load(x[r[nl.arange(64)[:, None], 0], nl.arange(h)[None, :]])
        chosen = nl.load(weights[number, nl.arange(h)[:, None], columns])
        nl.store(out[r[nl.arange(64)[:, None], 0], columns], value=nl.copy(nl.matmul(tokens, chosen), dtype=x.dtype))
    return out


def add_bias(block, scale, bias_tile=None):
    """An operand that some calls leave out."""
    block[:, :] = nl.multiply(block[:, :], scale)
    if bias_tile is not None:
        block[:, :] = nl.add(block[:, :], bias_tile[:, :])


@nki.jit
def blocks_with_options(x, bias=None, tile=16, training=True):
    """A size that is bound twice, operands that are None or a tile, a result of one option: its last statements return."""
    rows, columns = x.shape
    tile = min(tile, rows)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    if training:
        sums = nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    else:
        sums = None
    count = rows // tile // nl.num_programs(0)
    first = nl.program_id(0) * count
    blocks = nl.zeros((count, nl.par_dim(tile), columns), dtype=x.dtype, buffer=nl.sbuf)
    scales = nl.full((count, nl.par_dim(tile), 1), 2.0, dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(count):
        here = nl.ds((first + i) * tile, tile)
        blocks[i] = nl.load(x[here, :])
        bias_tile = None
        if bias is not None:
            bias_tile = nl.load(bias[here, :])
        add_bias(block=blocks[i], scale=scales[i], bias_tile=bias_tile)
        nl.store(out[here, :], blocks[i])
        if training:
            nl.store(sums[here, :], nl.sum(blocks[i], axis=1, keepdims=True))
    if training:
        return out, sums
    return out


def cases():
    rng = np.random.default_rng(0)
    def floats(*shape):
        return rng.standard_normal(shape).astype(np.float32)
    x, y = floats(64, 24), floats(64, 24)
    return [(Driver(main), (x, y)), (parity, (x,)), (on_two_cores[2, 2], (x,)), (Driver(simulated_program), (x,)),
            (columns_in_pieces[2], (floats(16, 56),)), (transposed_free_axes, (floats(16, 12), (3, 4))),
            (reversed_blocks, (floats(96, 16),)), (sums_of_strides, (x,)),
            (scattered_rows, (floats(32, 16), (rng.permutation(56)[:32, None]).astype(np.int32))),
            (one_hot, (rng.integers(0, 24, (32, 1)).astype(np.float32),)), (cached, (x, floats(64, 3))),
            (composed, (x, y)), (power_of_two_columns, (floats(64, 16),)),
            (programs_by_core[nl.spmd_dim(nl.nc(2), 2)], (x,)), (programs_by_core[nl.nc(2) * 2], (x,)),
            (flattened_gather, (floats(32, 20), rng.integers(0, 20, (32, 8)).astype(np.uint32))),
            (selected, (x, (x > 0).astype(np.uint8))), (halves_exchanged, (x,)),
            (batched, (floats(2, 32, 16), floats(16, 24))), (rounded_twice, (x,)),
            (causal_scores[1, 2], (floats(1, 2, 16, 32), floats(1, 2, 16, 32))),
            (blocks_of_experts, (floats(128, 32), floats(4, 32, 24), np.array([[3], [1]], np.int32),
                                 rng.permutation(128).astype(np.int32).reshape(2, 64))),
            (blocks_with_options[2], (x, y)), (blocks_with_options[2], (x, None, 16, False))]


def expected():
    """The same by NumPy alone, in the order of the cases."""
    (x, y), _, _, _, (wide,), (flat, _), (blocks,), _, (rows, indices), (labels,), (cache, new), _, (powers,), _, _, (
        data, columns), *_, (left, right), _, (q, k), (tokens, weights, expert, blocks_of), _, _ = (arguments for _, arguments in cases())
    gelu = np.vectorize(lambda v: 0.5 * v * (1 + math.erf(v / np.sqrt(2))))(x)
    scattered = np.zeros((56, 16), np.float32)
    scattered[indices[:, 0]] = rows
    cache = cache.copy()
    cache[:, 4:7] = new
    positive = np.where(x > 0, x, -100)
    mixed = np.zeros((128, 24), np.float32)
    for number, numbers in zip(expert[:, 0], blocks_of):
        mixed[numbers] = tokens[numbers] @ weights[number]
    low = (2 * x.astype(ml_dtypes.bfloat16)).astype(np.float32)
    return [(np.exp(x), x * y, x - y), (x[:, ::2], x[:, 1::2]), gelu, gelu, wide / 2,
            flat.reshape(16, 3, 4).transpose(0, 2, 1).reshape(16, 12), blocks.reshape(3, 32, 16)[::-1].reshape(96, 16),
            x.reshape(64, 3, 8).sum(2), scattered[:48], (labels == np.arange(24)).astype(np.float32),
            (cache, cache.mean(1, keepdims=True)), 0.5 * (x - y) ** 2, powers.sum(1, keepdims=True), x * 2,
            x * 2, np.take_along_axis(data, columns.astype(int), 1), (positive, positive.max(1, keepdims=True)),
            np.concatenate([x[32:], x[:32]]), left @ right, (low * 3 + 1).astype(ml_dtypes.bfloat16),
            np.where(np.tril(np.ones((32, 32), bool)), q.swapaxes(2, 3) @ k, -9984), mixed,
            (2 * x + y, (2 * x + y).sum(1, keepdims=True)), 2 * x]

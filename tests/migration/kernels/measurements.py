# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that check kernels, measure them and print tables of latencies, as courses and samples have them."""

import argparse
import os
import sys

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

PERCENTILES = (50, 90, 99)


@nki.jit
def vector_add_stream(a_vec, b_vec, row_chunk=64, col_chunk=32):
    """Vectors as rows of a matrix, in tiles of row_chunk x col_chunk."""
    M = a_vec.shape[0]
    rows = M // col_chunk
    a, b = a_vec.reshape((rows, col_chunk)), b_vec.reshape((rows, col_chunk))
    out = nl.ndarray(shape=(rows, col_chunk), dtype=a_vec.dtype, buffer=nl.hbm)
    for r in nl.affine_range(rows // row_chunk):
        a_tile = nl.ndarray((nl.par_dim(row_chunk), col_chunk), dtype=a_vec.dtype, buffer=nl.sbuf)
        b_tile = nl.ndarray((nl.par_dim(row_chunk), col_chunk), dtype=a_vec.dtype, buffer=nl.sbuf)
        a_tile[...] = nl.load(a[r * row_chunk:(r + 1) * row_chunk, :])
        b_tile[...] = nl.load(b[r * row_chunk:(r + 1) * row_chunk, :])
        result = nl.add(a_tile, b_tile)
        nl.store(out[r * row_chunk:(r + 1) * row_chunk, :], result)
    return out.reshape((M,))


@nki.jit
def matrix_transpose(a_tensor):
    """Tiles of 128 x 128, transposed by the Tensor Engine."""
    M, N = a_tensor.shape
    out = nl.ndarray((N, M), dtype=a_tensor.dtype, buffer=nl.hbm)
    tile_dim = nl.tile_size.pmax
    assert M % tile_dim == N % tile_dim == 0, "Matrix dimensions not divisible by tile dimension!"
    for m in nl.affine_range(M // tile_dim):
        for n in nl.affine_range(N // tile_dim):
            tile = nl.load(a_tensor[m * tile_dim:(m + 1) * tile_dim, n * tile_dim:(n + 1) * tile_dim])
            nl.store(out[n * tile_dim:(n + 1) * tile_dim, m * tile_dim:(m + 1) * tile_dim],
                     value=nisa.nc_transpose(tile))
    return out


@nki.jit
def conv2d_maxpool(X, W, bias, pool_size=1):
    """X [batch, in, height, width], W [out, in, k, k], bias [out]: convolution, bias, maxima of pool_size windows."""
    batch_size, in_channels, input_height, input_width = X.shape
    out_channels, in_channels_, filter_height, filter_width = W.shape
    out_channels_ = bias.shape[0]
    assert in_channels_ == in_channels and out_channels_ == out_channels, (
        f"Shape mismatch. {in_channels}, {in_channels_}, {out_channels}, {out_channels_}")
    out_height = input_height - filter_height + 1
    out_width = input_width - filter_width + 1
    out_pool_height = out_height // pool_size
    out_pool_width = out_width // pool_size
    X_out = nl.ndarray(shape=(batch_size, out_channels, out_pool_height, out_pool_width), dtype=X.dtype, buffer=nl.hbm)

    w = nl.load(W.reshape((out_channels, in_channels * filter_height * filter_width)))
    w_view = w.reshape((out_channels, in_channels, filter_height, filter_width))
    w_t = nl.ndarray((filter_height, filter_width, nl.par_dim(in_channels), out_channels), dtype=X.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(filter_height):
        for j in nl.affine_range(filter_width):
            plane = nl.copy(w_view[:, :, i, j])
            w_t[i, j] = nl.copy(nisa.nc_transpose(plane))
    bias_tile = nl.load(bias.reshape((out_channels, 1)))
    for b in nl.affine_range(batch_size):
        image = nl.load(X[b])
        rows = nl.ndarray((nl.par_dim(out_channels), out_height, out_width), dtype=X.dtype, buffer=nl.sbuf)
        for r in nl.affine_range(out_height):
            acc = nl.zeros((nl.par_dim(out_channels), out_width), dtype=nl.float32, buffer=nl.psum)
            for i in nl.affine_range(filter_height):
                for j in nl.affine_range(filter_width):
                    acc += nl.matmul(w_t[i, j], image[:, r + i, j:j + out_width], transpose_x=True)
            rows[:, r, :] = nl.add(acc, bias_tile)
        if pool_size > 1:
            i_0 = nl.arange(out_channels)[:, None, None, None, None]
            i_1 = nl.arange(out_pool_height)[None, :, None, None, None]
            i_2 = nl.arange(pool_size)[None, None, :, None, None]
            i_3 = nl.arange(out_pool_width)[None, None, None, :, None]
            i_4 = nl.arange(pool_size)[None, None, None, None, :]
            pooled = nl.max(rows[i_0, pool_size * i_1 + i_2, pool_size * i_3 + i_4], axis=[2, 4])
            nl.store(X_out[b], value=pooled)
        else:
            nl.store(X_out[b], value=rows)
    return X_out


def reference_conv(X, W, bias, pool_size=1):
    batch, _, height, width = X.shape
    out_channels, _, k, _ = W.shape
    out = np.zeros((batch, out_channels, height - k + 1, width - k + 1), np.float32)
    for i in range(k):
        for j in range(k):
            out += np.einsum("oc,bchw->bohw", W[:, :, i, j], X[:, :, i:i + out.shape[2], j:j + out.shape[3]])
    out += bias[None, :, None, None]
    if pool_size > 1:
        b, c, h, w = out.shape
        out = out.reshape(b, c, h // pool_size, pool_size, w // pool_size, pool_size).max(axis=(3, 5))
    return out


def latency_table(kernel, *arguments, **keywords):
    """Return one row of the table for each percentile."""
    bench_func = nki.benchmark(warmup=2, iters=4)(kernel)
    bench_func(*arguments, **keywords)
    latency_res = bench_func.benchmark_result.nc_latency
    rows = []
    for p in PERCENTILES:
        value = latency_res.get_latency_percentile(p)
        rows.append(f"p{p}: {value} us")
    return rows


def check_correct(kernel, simulate, *arguments, **keywords):
    if simulate:
        return nki.simulate_kernel(kernel, *arguments, **keywords)
    return nki.baremetal(kernel)(*arguments, **keywords)


def main(argv=None):
    parser = argparse.ArgumentParser(description="Check and measure a kernel")
    parser.add_argument("--kernel", choices=["add", "transpose", "conv"], default="add")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--pool", type=int, default=1)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--profile", type=str, default=None)
    args = parser.parse_args(argv)
    rng = np.random.default_rng(0)
    if args.kernel == "add":
        kernel, inputs = vector_add_stream, [rng.random(args.size, dtype=np.float32) for _ in range(2)]
        expected, keywords = inputs[0] + inputs[1], {}
    elif args.kernel == "transpose":
        kernel, inputs, keywords = matrix_transpose, [rng.random((256, 128), dtype=np.float32)], {}
        expected = inputs[0].T
    else:
        kernel = conv2d_maxpool
        inputs = [rng.random((2, 16, 6, 8), dtype=np.float32), rng.random((8, 16, 3, 3), dtype=np.float32),
                  rng.random(8, dtype=np.float32)]
        keywords = {"pool_size": args.pool}
        expected = reference_conv(*inputs, **keywords)
    out = check_correct(kernel, args.simulate, *inputs, **keywords)
    if not np.allclose(out, expected, rtol=1e-4, atol=1e-4):
        print("Mismatch: the kernel's output is wrong", file=sys.stderr)
        return 1
    if not args.simulate:
        for row in latency_table(kernel, *inputs, **keywords):
            print(row)
    if args.profile:
        nki.benchmark(kernel, warmup=1, iters=1, save_neff_name="file.neff",
                      save_trace_name=args.profile + ".ntff")(*inputs, **keywords)
    return 0


class Program:
    """The command as a case: its exit status for a command line."""

    def __init__(self, *argv):
        self.argv, self.__name__ = argv, "main " + " ".join(argv)

    def run(self, arguments, keywords, on):
        status = [main([*self.argv, "--simulate"]), main(self.argv)]
        if "--profile" in self.argv:
            status += [os.path.exists(name) for name in ("file.neff", f"{self.argv[-1]}.ntff")]
        return np.array(status, np.int32)


def cases():
    r = np.random.default_rng(13)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    return [
        (vector_add_stream, (f(4096), f(4096))),
        (matrix_transpose, (f(128, 256),)),
        (conv2d_maxpool, (f(2, 16, 6, 8), f(8, 16, 3, 3), f(8)), {"pool_size": 2}),
        (conv2d_maxpool, (f(1, 4, 5, 5), f(4, 4, 2, 2), f(4))),
        (Program("--kernel", "add"), ()),
        (Program("--kernel", "transpose", "--profile", "trace"), ()),
        (Program("--kernel", "conv", "--pool", "2"), ()),
    ]


if __name__ == "__main__":
    sys.exit(main())

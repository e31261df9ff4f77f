# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers of JAX whose kernels run by nki_call: results as parameters, grids, constants by partial, a gradient rule."""

from functools import partial

import jax
import jax.numpy as jnp
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from jax_neuronx import nki_call


def rms_norm_kernel(a_tensor, g_tensor, out_tensor, eps=1e-6):
    """a [rows, cols], g [cols]: rows in tiles of 128, the last one under a mask."""
    ix = nl.arange(128)[:, None]
    iw = nl.arange(1)[:, None]
    iy = nl.arange(a_tensor.shape[1])[None, :]
    num_rows = a_tensor.shape[0]
    g_tile = nl.load(g_tensor.reshape((1, g_tensor.shape[0]))[iw, iy])
    for i in nl.affine_range((num_rows + 127) // 128):
        a_tile = nl.load(a_tensor[i * 128 + ix, iy], mask=(i * 128 + ix < num_rows))
        in_square = nl.square(a_tile)
        square_sum = nl.sum(in_square, axis=[1])
        mean = square_sum / a_tensor.shape[1]
        rms_reciprocal = nl.rsqrt(mean + eps)
        out_tile = nl.multiply(a_tile, rms_reciprocal)
        g_bcast = g_tile.broadcast_to((128, g_tensor.shape[0]))
        out_tile[...] = nl.multiply(out_tile, g_bcast, mask=(i * 128 + ix < num_rows))
        nl.store(out_tensor[i * 128 + ix, iy], value=out_tile, mask=(i * 128 + ix < num_rows))


def gelu_bias_kernel(x, bias, y, *, tile_cols):
    """Each program computes a tile of 128 rows and tile_cols columns."""
    i_row = nl.program_id(0)
    i_col = nl.program_id(1)
    ip = i_row * 128 + nl.arange(128)[:, None]
    jf = i_col * tile_cols + nl.arange(tile_cols)[None, :]
    tile = nl.load(x[ip, jf])
    b = nl.load(bias[nl.arange(1)[:, None], jf])
    nl.store(y[ip, jf], nl.gelu(nl.add(tile, b.broadcast_to((128, tile_cols)))))


def swish_forward_kernel(x, y):
    i = nl.program_id(axis=0)
    rows = nl.ds(i * 64, 64)
    t = nl.load(x[rows, :])
    nl.store(y[rows, :], value=t * nl.sigmoid(t))


def swish_backward_kernel(x, dy, dx):
    i = nl.program_id(axis=0)
    rows = nl.ds(i * 64, 64)
    t, g = nl.load(x[rows, :]), nl.load(dy[rows, :])
    s = nl.sigmoid(t)
    nl.store(dx[rows, :], value=g * (s + t * s * (1 - s)))


def min_max_kernel(x, lo, hi):
    """Two results."""
    t = nl.load(x)
    nl.store(lo, nisa.tensor_reduce(np.min, t, axis=(1,)))
    nl.store(hi, nisa.tensor_reduce(np.max, t, axis=(1,)))


def rms_norm(a, g, eps=1e-6):
    return nki_call(partial(rms_norm_kernel, eps=eps), a, g, out_shape=jax.ShapeDtypeStruct(a.shape, dtype=a.dtype))


def gelu_bias(x, bias, tile_cols=64):
    rows, cols = x.shape
    return nki_call(
        partial(gelu_bias_kernel, tile_cols=tile_cols), x, bias,
        grid=(rows // 128, cols // tile_cols),
        out_shape=jax.ShapeDtypeStruct((rows, cols), x.dtype),
    )


@jax.custom_vjp
def swish(x):
    return nki_call(swish_forward_kernel, x, grid=(x.shape[0] // 64,), out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))


def swish_fwd(x):
    return swish(x), x


def swish_bwd(x, dy):
    dx = nki_call(swish_backward_kernel, x, dy, grid=(x.shape[0] // 64,),
                  out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))
    return (dx,)


swish.defvjp(swish_fwd, swish_bwd)


def min_max(x):
    shape = jax.ShapeDtypeStruct((x.shape[0], 1), x.dtype)
    return nki_call(min_max_kernel, x, out_shape=(shape, shape))


class JaxDriver:
    """A function of JAX as a case: NumPy arrays in and out."""

    def __init__(self, function):
        self.function, self.__name__ = function, function.__name__

    def run(self, arguments, keywords, on):
        result = self.function(*map(jnp.asarray, arguments), **keywords)
        return jax.tree.map(np.asarray, result)


def gradient_of_swish(x):
    return jax.grad(lambda v: jnp.sum(swish(v) ** 2))(x)


@jax.jit
def block(x, g, bias):
    return gelu_bias(rms_norm(x, g), bias)


def cases():
    r = np.random.default_rng(11)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    return [
        (JaxDriver(rms_norm), (f(200, 64), f(64))),
        (JaxDriver(gelu_bias), (f(256, 128), f(1, 128))),
        (JaxDriver(gradient_of_swish), (f(128, 32),)),
        (JaxDriver(min_max), (f(64, 48),)),
        (JaxDriver(block), (f(128, 64), f(64), f(1, 64))),
    ]

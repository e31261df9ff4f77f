# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation as tests of single functions have them: annotations, ``...``, one instruction each."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.typing import tensor

ROWS = nl.arange(32)[:, None]


@nki.jit(mode="simulation")
def activation(a_tensor, b_tensor):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    ...
    a: tensor[128, 512] = nl.load(a_tensor)
    b: tensor[128, 1] = nl.load(b_tensor)
    act: tensor[128, 512] = nisa.activation(op=nl.exp, data=a, bias=b, scale=0.5)
    ...
    nl.store(out, act)
    return out


@nki.jit(mode="simulation", platform_target="trn2")
def shuffle(in_tensor):
    out = nl.ndarray(shape=(32, 128), dtype=np.float32, buffer=nl.shared_hbm)
    a: tensor[32, 128] = nl.load(in_tensor)
    grid = nl.mgrid[0:32, 0:128]
    order = [(i - 1) % 32 for i in range(32)]
    nisa.nc_stream_shuffle(src=a[grid.p, grid.x], dst=a[grid.p, grid.x], shuffle_mask=order)
    nl.store(out, value=a)
    return out


@nki.jit
def loop_reduced(a):
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    i_p = nl.arange(128)[:, None]
    i_f = nl.arange(64)[None, :]
    for i in nl.affine_range(4):
        part = nl.load(a[i_p, i * 64 + i_f], mask=(i * 64 + i_f < 200))
        powers = nl.exp(part[i_p, i_f])
        total = nl.sum(powers, axis=1, mask=(i * 64 + i_f < 200))
        if ~(i == 2):
            total = nl.multiply(total, 2)
        acc[...] = nl.loop_reduce(total, op=np.add, loop_indices=[i])
    nl.store(out, acc)
    return out


@nki.jit
def chosen(a):
    rows, columns = a.shape
    out = nl.ndarray((rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
    t = nl.load(a[ROWS, nl.arange(16)[None, :]])
    limit = nl.ndarray((nl.par_dim(32), 1), dtype=nl.float32)
    limit[...] = nl.mean(t, axis=[-1])
    nl.store(out, nl.where(t > limit, t, 0.0))
    return out


@nki.jit
def composed(a, w):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    transposed = nl.ndarray((64, 32), dtype=a.dtype, buffer=nl.shared_hbm)
    t = nl.load(a)
    normal = nl.rms_norm(t, nl.load(w), axis=1, n=64)
    nl.store(out, nl.softmax(normal, axis=-1))
    nl.store(transposed, nl.transpose(t))
    return out, transposed


@nki.jit
def transposed_load(a):
    out = nl.ndarray((64, 32), dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load_transpose2d(a))
    return out


@nki.jit
def scanned(a, b):
    out = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    x, y = nl.load(a), nl.load(b)
    result = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
    half = a.shape[1] // 2
    result[:, 0:half] = nisa.tensor_tensor_scan(x[:, 0:half], y[:, 0:half], initial=0, op0=np.multiply, op1=np.add)
    result[:, half:2 * half] = nisa.tensor_tensor_scan(x[:, half:2 * half], y[:, half:2 * half],
                                                       initial=result[:, half - 1:half], op0=np.multiply, op1=np.add)
    nl.store(out, result)
    return out


@nki.jit
def numbered():
    out = nl.ndarray((16, 40), dtype=nl.int32, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(16)[:, None], nl.arange(40)[None, :]
    numbers = nisa.iota(5 + 100 * i_p - 2 * i_f, dtype=nl.int32)
    nl.store(out, value=numbers)
    return out


@nki.jit
def tensor_ops(a, b):
    out = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    x, y = nl.load(a), nl.load(b)
    z = nisa.tensor_tensor(x, y, op=np.maximum)
    z = nisa.tensor_scalar(z, op0=np.subtract, operand0=1.0, reverse0=True, op1=np.multiply, operand1=3.0)
    row = nisa.tensor_reduce(op=np.add, data=z, axis=[1], keepdims=True)
    w = nisa.scalar_tensor_tensor(data=z, op0=np.add, operand0=row, op1=np.multiply, operand1=y)
    filled = nisa.memset(shape=(32, 64), value=2.5, dtype=nl.float32)
    nl.store(out, nl.add(w, nisa.reciprocal(filled)))
    return out


@nki.jit
def filled_and_kept(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:32, 0:64]
    tile = nl.full((32, 64), -1.0, dtype=a.dtype)
    tile[i_p, i_f] = nl.load(a[i_p, i_f], mask=(i_f < 50) & (i_p < 20))
    tile[0:4, 0:8] = 7.0
    nl.store(out[i_p, i_f], tile[i_p, i_f])
    return out


def cases():
    rng = np.random.default_rng(0)
    def floats(*shape):
        return rng.standard_normal(shape).astype(np.float32)
    small = floats(32, 64), floats(32, 64)
    return [(activation, (floats(128, 512), floats(128, 1))), (shuffle, (floats(32, 128),)),
            (loop_reduced, (floats(128, 200),)), (chosen, (floats(32, 16),)), (composed, (small[0], floats(1, 64))),
            (transposed_load, (small[0],)), (scanned, small), (numbered, ()), (tensor_ops, small),
            (filled_and_kept, (small[1],))]

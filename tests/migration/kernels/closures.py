# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation whose inner functions get masks and index vectors, and parts of index vectors."""

import math

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np

P = nl.tile_size.pmax


@nki.jit
def slices_of_vectors(x):
    """Parts of index vectors, with negative bounds and steps."""
    n, c = x.shape
    out = nl.ndarray((n, c), dtype=x.dtype, buffer=nl.shared_hbm)
    ip = nl.arange(n)[:, None]
    jf = nl.arange(c)[None, :]
    tile = nl.load(x)
    nl.store(out[ip, jf[:, 0:c // 2]], nl.exp(tile[ip, jf[:, c // 2:]]))
    nl.store(out[ip, jf[:, c // 2:-1]], tile[ip, jf[:, 1:c - c // 2]])
    nl.store(out[ip, jf[:, -1:]], tile[ip, jf[:, :1]])
    nl.store(out[ip[0:4], jf[:, 0:8:2]], tile[ip[4:8], jf[:, 1:8:2]])
    return out


@nki.jit
def inner_with_two_calls(x, y):
    n, c = x.shape
    out = nl.ndarray((n, c), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(P)[:, None]
    i_f = nl.arange(c)[None, :]

    def scaled(t, k, mask=None):
        """Load and scale."""
        tile = nl.load(t[k * P + i_p, i_f], mask=mask)
        # only the valid rows
        return nl.multiply(tile, 2.0, mask=mask)

    for k in nl.affine_range(math.ceil(n / P)):
        valid = k * P + i_p < n
        total = nl.add(scaled(x, k, valid), scaled(y, k, mask=valid), mask=valid)
        nl.store(out[k * P + i_p, i_f], total, mask=valid)
    return out


@nki.jit
def inner_that_stores(x):
    n, c = x.shape
    out = nl.ndarray((n, c), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:P, 0:c]

    def write(k, value, mask):
        nl.store(out[k * P + i_p, i_f], value, mask=mask)

    for k in nl.affine_range(math.ceil(n / P)):
        t = nl.load(x[k * P + i_p, i_f], mask=(k * P + i_p < n))
        write(k, nl.tanh(t, mask=(k * P + i_p < n)), k * P + i_p < n)
    return out


@nki.jit
def inner_used_twice(x):
    """The same helper with a mask and without one."""
    n, c = x.shape
    out = nl.ndarray((n, c), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:n, 0:c]

    def soft(t, mask=None):
        e = nl.exp(t, mask=mask)
        return nl.multiply(e, 0.5, mask=mask)

    tile = nl.load(x)
    first = soft(tile)
    second = nl.zeros((n, c), dtype=x.dtype)
    second[i_p, i_f] = soft(tile, i_f < c // 2)
    nl.store(out, first + second)
    return out


@nki.jit
def kl_with_temperature(student, teacher, T=2.0):
    """T^2 KL(teacher | student) of each row of logits."""
    n, c = student.shape
    out = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    ix, iy = nl.mgrid[0:P, 0:c]

    def log_softmax(x, mask):
        z = nl.multiply(x, 1.0 / T, mask=mask)
        top = nl.max(z, axis=1, keepdims=True, mask=mask)
        shifted = nl.subtract(z, top, mask=mask)
        total = nl.sum(nl.exp(shifted, mask=mask), axis=1, keepdims=True, mask=mask)
        return nl.subtract(shifted, nl.log(total, mask=mask), mask=mask)

    for t in nl.affine_range(math.ceil(n / P)):
        inside = (t * P + ix < n)
        ls = log_softmax(nl.load(student[t * P + ix, iy], mask=inside), inside)
        lt = log_softmax(nl.load(teacher[t * P + ix, iy], mask=inside), inside)
        term = nl.multiply(nl.exp(lt, mask=inside), nl.subtract(lt, ls, mask=inside), mask=inside)
        kl = nl.sum(term, axis=1, keepdims=True, mask=inside)
        nl.store(out[t * P + ix[:, 0:1], iy[:, 0:1]], nl.multiply(kl, T * T, mask=inside),
                 mask=(t * P + ix[:, 0:1] < n))
    return out


def cases():
    rng = np.random.default_rng(27)
    x, y = (rng.standard_normal((200, 30)).astype(np.float32) for _ in range(2))
    return [(slices_of_vectors, (x[:64],)), (inner_with_two_calls, (x, y)), (inner_that_stores, (x,)),
            (inner_used_twice, (x[:64],)), (kl_with_temperature, (x, y))]

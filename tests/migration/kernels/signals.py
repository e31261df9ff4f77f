# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation on signals: filters, frames, recurrences in chunks, and transforms by products."""

import functools

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import ds, par_dim

CHANNELS = 128


def channel_tiles(channels):
    return [(t, min(CHANNELS, channels - t * CHANNELS)) for t in range((channels + CHANNELS - 1) // CHANNELS)]


@nki.jit
def fir_filter(x, taps, bias=None):
    """x [C, T], taps [C, K]: y[c, t] = sum over k of taps[c, k] * x[c, t - k], with zeros before the signal."""
    C, T = x.shape
    _, K = taps.shape
    y = nl.ndarray((C, T), dtype=x.dtype, buffer=nl.shared_hbm)
    for t, count in channel_tiles(C):
        i_p = nl.arange(CHANNELS)[:, None]
        padded = nl.zeros((CHANNELS, T + K - 1), dtype=x.dtype, buffer=nl.sbuf)
        i_f = nl.arange(T)[None, :]
        padded[i_p, K - 1 + i_f] = nl.load(x[t * CHANNELS + i_p, i_f], mask=(i_p < count))
        h = nl.load(taps[t * CHANNELS + i_p, nl.arange(K)[None, :]], mask=(i_p < count))
        acc = nl.zeros((CHANNELS, T), dtype=nl.float32, buffer=nl.sbuf)
        for k in range(K):
            acc[i_p, i_f] = nisa.scalar_tensor_tensor(data=padded[i_p, K - 1 - k + i_f], op0=np.multiply,
                                                      operand0=h[:, k:k + 1], op1=np.add, operand1=acc[i_p, i_f],
                                                      mask=(i_p < count))
        if bias is not None:
            acc[...] = nisa.tensor_scalar(acc, np.add, nl.load(bias[t * CHANNELS + i_p, 0], mask=(i_p < count)),
                                          mask=(i_p < count))
        nl.store(y[t * CHANNELS + i_p, i_f], value=acc, mask=(i_p < count))
    return y


@nki.jit
def energy_of_frames(signal, frame=16, hop=8):
    """signal [B, T] to [B, N]: the sum of squares of overlapping frames, as one pattern of three dimensions."""
    B, T = signal.shape
    N = (T - frame) // hop + 1
    out = nl.ndarray((B, N), dtype=nl.float32, buffer=nl.shared_hbm)
    row = nl.program_id(0) * 32
    i_b, i_n, i_f = nl.mgrid[0:32, 0:N, 0:frame]
    tile = nl.load(signal[row + nl.arange(32)[:, None], nl.arange(T)[None, :]], mask=row + nl.arange(32)[:, None] < B)
    squared = nl.square(tile, mask=row + nl.arange(32)[:, None] < B)
    energy = nl.sum(squared[i_b, hop * i_n + i_f], axis=[2], mask=row + i_b < B, dtype=nl.float32)
    j_b, j_n = nl.mgrid[0:32, 0:N]
    nl.store(out[row + j_b, j_n], value=energy[j_b, j_n], mask=row + j_b < B)
    return out


@nki.jit
def recurrence_in_chunks(decay, drive, chunk=64, state=None):
    """h[t] = decay[t] * h[t - 1] + drive[t] along the columns of [C, T]; one chunk continues the state of another."""
    C, T = drive.shape
    assert T % chunk == 0, "chunks cover the signal"
    out = nl.ndarray((C, T), dtype=nl.float32, buffer=nl.shared_hbm)
    last = nl.ndarray((C, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    h = nl.zeros((par_dim(C), 1), dtype=nl.float32, buffer=nl.sbuf)
    if state is not None:
        h[...] = nl.load(state)
    for c in nl.sequential_range(T // chunk):
        a = nl.load(decay[:, ds(c * chunk, chunk)])
        b = nl.load(drive[:, ds(c * chunk, chunk)])
        scanned = nisa.tensor_tensor_scan(a, b, initial=h, op0=np.multiply, op1=np.add)
        h[...] = nisa.tensor_copy(scanned[:, chunk - 1:chunk], engine=nisa.vector_engine)
        nl.store(out[:, ds(c * chunk, chunk)], value=scanned)
    nl.store(last, h)
    return out, last


@functools.lru_cache
def dft_matrix(n):
    """Cosines and sines of the first n // 2 + 1 frequencies."""
    k = np.arange(n // 2 + 1)[None, :] * np.arange(n)[:, None] * (2 * np.pi / n)
    return np.cos(k).astype(np.float32), np.sin(k).astype(np.float32)


@nki.jit
def power_spectrum(frames, cosines, sines, floor=1e-6):
    """frames [N, L] times two matrices [L, F]: log of the squared magnitudes; L is accumulated in blocks of 128."""
    N, L = frames.shape
    _, F = cosines.shape
    out = nl.ndarray((N, F), dtype=nl.float32, buffer=nl.shared_hbm)
    blocks = L // 128
    waves = nl.ndarray((2, blocks, par_dim(128), F), dtype=cosines.dtype, buffer=nl.sbuf)
    for b in nl.affine_range(blocks):
        waves[0, b] = nl.load(cosines[ds(b * 128, 128), :])
        waves[1, b] = nl.load(sines[ds(b * 128, 128), :])
    for t in nl.affine_range((N + 127) // 128):
        i_p, i_f = nl.mgrid[0:128, 0:F]
        transposed = nl.ndarray((blocks, par_dim(128), 128), dtype=frames.dtype, buffer=nl.sbuf)
        for b in nl.affine_range(blocks):
            part = nl.load(frames[t * 128 + nl.arange(128)[:, None], b * 128 + nl.arange(128)[None, :]],
                           mask=t * 128 + nl.arange(128)[:, None] < N)
            transposed[b] = nisa.nc_transpose(part, engine=nisa.tensor_engine)
        power = nl.zeros((par_dim(128), F), dtype=nl.float32, buffer=nl.sbuf)
        for component in nl.static_range(2):
            acc = nl.zeros((par_dim(128), F), dtype=nl.float32, buffer=nl.psum)
            for b in nl.affine_range(blocks):
                acc += nl.matmul(transposed[b], waves[component, b], transpose_x=True)
            power += nisa.activation(np.square, acc)
        level = nisa.activation(op=nl.log, data=nl.maximum(power, floor), scale=1.0)
        nl.store(out[t * 128 + i_p, i_f], value=level[i_p, i_f], mask=t * 128 + i_p < N)
    return out


@nki.jit
def highest_peaks(x, rounds=2):
    """x [R, T]: the 8 * rounds largest values of a row in order, and the positions of the first eight."""
    R, T = x.shape
    values = nl.ndarray((R, 8 * rounds), dtype=x.dtype, buffer=nl.shared_hbm)
    places = nl.ndarray((R, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
    work = nl.load(x)
    for k in nl.static_range(rounds):
        eight = nisa.max8(src=work)
        if k == 0:
            nl.store(places, value=nisa.nc_find_index8(data=work, vals=eight))
        nl.store(values[:, ds(8 * k, 8)], value=eight)
        work = nisa.nc_match_replace8(data=work, vals=eight, imm=-3.0e38)
    return values, places


@nki.jit
def banded_product(x, band):
    """x [C, T] with each of T / 32 diagonal blocks [32, 32] of band [T, 32]: a grid over blocks on both cores."""
    C, T = x.shape
    out = nl.ndarray((C, T), dtype=x.dtype, buffer=nl.shared_hbm)
    block = nl.program_id(0)
    columns = x[0:C, block * 32:(block + 1) * 32]
    xT = nl.load_transpose2d(columns)
    w = nl.load(band[ds(block * 32, 32), :])
    y = nl.copy(nisa.nc_matmul(stationary=xT, moving=w), dtype=out.dtype)
    nl.store(out[0:C, block * 32:(block + 1) * 32], value=y)
    return out


def cases():
    r = np.random.default_rng(23)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    decay = r.random((40, 256)).astype(np.float32)
    return [(fir_filter, (f(150, 60), f(150, 4), f(150, 1))),
            (fir_filter, (f(30, 41), f(30, 5))),
            (energy_of_frames[3], (f(80, 100),)),
            (recurrence_in_chunks, (decay, f(40, 256))),
            (recurrence_in_chunks, (decay, f(40, 256), 128, f(40, 1))),
            (power_spectrum, (f(150, 256), *dft_matrix(256))),
            (highest_peaks, (f(50, 70),)),
            (banded_product[nl.nc(2) * 2], (f(24, 128), f(128, 32)))]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elements on chip that nothing has written and that reach an output: reported by every executor, in both generations."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.dialects.nisa.require_written import UnwrittenTile
from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.targets.interpreter.unwritten_hbm import UnwrittenRead

X = np.random.default_rng(0).random((128, 8), np.float32)
LINES = Path(__file__).read_text().splitlines()
TEXT = "element {} of t, allocated at line {}, is read before it is written"
HERE = ": zeros where the kernel is compiled, anything on a device"


def line_of(function, mark):
    first = function.__code__.co_firstlineno
    return next(n for n in range(first, first + 30) if LINES[n - 1].endswith(f"# {mark}"))


def reported(function, on, *arguments, decorate=nki.jit):
    """(text, line) of what is reported of a run; the current generation names tensors by numbers."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        decorate(function).on(on)(*arguments)
    return [(re.sub(r" of t\d+,", " of t,", str(w.message)), w.lineno) for w in shown if w.category is UnwrittenRead and w.filename == __file__]


# -- both generations --------------------------------------------------------------------------------------------------
def in_part(nl):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)                # made
        t[:, 0:3] = nl.load(x[:, 0:3])
        u = nl.exp(t)                                                   # read
        nl.store(out, nl.multiply(u, 2.0))
        return out
    return kernel, [0, 3]


def never(nl):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)                # made
        nl.store(out, t)                                                # read
        return out
    return kernel, [0, 0]


def summed(nl):
    def kernel(x):
        out = nl.ndarray((128, 1), x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)                # made
        for i in nl.affine_range(7):
            t[:, nl.ds(i, 1)] = nl.load(x[:, nl.ds(i, 1)])
        s = nl.sum(t, axis=1, keepdims=True)                            # read
        nl.store(out, s)
        return out
    return kernel, [0, 7]


def made_in_a_loop(nl):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(8):
            t = nl.ndarray((128, 2), x.dtype, buffer=nl.sbuf)           # made
            t[:, 0:1] = nl.load(x[:, nl.ds(i, 1)])
            s = nl.add(t[:, 0:1], t[:, 1:2])                            # read
            nl.store(out[:, nl.ds(i, 1)], s)
        return out
    return kernel, [0, 1]


def some_partitions(nl):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)                # made
        t[0:64, :] = nl.load(x[0:64, :])
        nl.store(out[0:65, :], t[0:65, :])                              # read
        nl.store(out[65:128, :], nl.load(x[65:128, :]))
        return out
    return kernel, [64, 0]


def in_a_branch(nl):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)                # made
        for i in nl.sequential_range(4):
            if i < 1:
                t[:, 0:5] = nl.load(x[:, 0:5])
            else:
                nl.store(out, nl.exp(t))                                # read
        return out
    return kernel, [0, 5]


@pytest.mark.parametrize("make", [in_part, never, summed, made_in_a_loop, some_partitions, in_a_branch])
def test_what_reaches_an_output_is_reported(on, names, make):
    kernel, element = make(names.nl)
    expected = TEXT.format(element, line_of(kernel, "made")) + HERE
    assert set(reported(kernel, on, X, decorate=names.nki.jit)) == {(expected, line_of(kernel, "read"))}


@pytest.mark.parametrize("make", [in_part, summed])
def test_it_is_an_error_in_strict_mode(on, names, make, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_STRICT", "1")
    kernel, element = make(names.nl)
    with pytest.raises(UnwrittenTile) as raised:
        names.nki.jit(kernel).on(on)(X)
    assert re.sub(r" of t\d+,", " of t,", raised.value.headline) == TEXT.format(element, line_of(kernel, "made"))
    assert raised.value.at.line == line_of(kernel, "read")


def written_in_pieces(nl):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t, u = (nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf) for _ in range(2))
        for i in nl.affine_range(4):
            t[:, nl.ds(i * 2, 2)] = nl.load(x[:, nl.ds(i * 2, 2)])
        u[:, 0:5] = nl.exp(t[:, 0:5])
        nl.store(out[:, 0:5], u[:, 0:5])
        u[:, 5:8] = nl.exp(t[:, 5:8])
        nl.store(out, nl.add(u, t))
        return out
    return kernel


def not_stored(nl):
    def kernel(x):
        out = nl.ndarray((100, 1), x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        t[0:100, :] = nl.load(x[0:100, :])
        s = nl.sum(nl.exp(t), axis=1, keepdims=True)
        nl.store(out, s[0:100, :])
        return out
    return kernel


@pytest.mark.parametrize("make", [written_in_pieces, not_stored])
def test_nothing_is_reported_of_what_is_written_or_not_stored(on, names, make):
    assert reported(make(names.nl), on, X, decorate=names.nki.jit) == []


# -- the beta generation: masks, grids, sums ---------------------------------------------------------------------------
def masked(rows, stored):
    def kernel(x):
        out = beta_nl.ndarray((stored, 8), x.dtype, buffer=beta_nl.shared_hbm)
        p, f = beta_nl.mgrid[0:128, 0:8]
        t = beta_nl.load(x[p, f], mask=p < rows)                        # made
        e = beta_nl.exp(t)                                              # read
        s = beta_nl.sum(e, axis=1)
        beta_nl.store(out[p, f], e * s, mask=p < stored)
        return out
    return kernel


@pytest.mark.parametrize("rows, stored", [(100, 100), (100, 99), (99, 100)])
def test_masks(on, rows, stored):
    kernel = masked(rows, stored)
    expected = (TEXT.format([99, 0], line_of(kernel, "made")) + HERE, line_of(kernel, "read"))
    assert set(reported(kernel, on, X, decorate=beta_nki.jit)) == ({expected} if stored > rows else set())


def added_to(x):
    out = beta_nl.ndarray(x.shape, x.dtype, buffer=beta_nl.shared_hbm)
    t = beta_nl.ndarray(x.shape, x.dtype, buffer=beta_nl.sbuf)          # made
    for _ in beta_nl.sequential_range(3):
        t += beta_nl.load(x)                                            # read
    beta_nl.store(out, t)
    return out


def test_a_sum_on_what_nothing_has_written(on):
    expected = TEXT.format([0, 0], line_of(added_to, "made")) + HERE
    assert reported(added_to, on, X, decorate=beta_nki.jit) == [(expected, line_of(added_to, "read"))]


def products(x):
    out = beta_nl.ndarray((8, 8), x.dtype, buffer=beta_nl.shared_hbm)
    t = beta_nl.zeros((8, 8), beta_nl.float32, buffer=beta_nl.psum)
    for i in beta_nl.affine_range(2):
        part = beta_nl.load(x[i * 64:i * 64 + 64, :])
        t += beta_nl.matmul(part, part, transpose_x=True)
    beta_nl.store(out, beta_nl.copy(t))
    return out


def last_program(x):
    out = beta_nl.ndarray((200, 8), x.dtype, buffer=beta_nl.shared_hbm)
    n, (p, f) = beta_nl.program_id(0), beta_nl.mgrid[0:128, 0:8]
    t = beta_nl.load(x[p, f], mask=n * 128 + p < 200)
    beta_nl.store(out[n * 128 + p, f], beta_nl.exp(t), mask=n * 128 + p < 200)
    return out


def chosen(x):
    out = beta_nl.ndarray(x.shape, x.dtype, buffer=beta_nl.shared_hbm)
    p, f = beta_nl.mgrid[0:128, 0:8]
    t = beta_nl.load(x[p, f], mask=f < 5)
    column = beta_nl.load(x)
    beta_nl.store(out, beta_nl.where(column > 0.5, column, t))
    return out


@pytest.mark.parametrize("function, grid", [(products, ()), (last_program, (2,)), (chosen, ())])
def test_nothing_is_reported_of_products_programs_and_choices(on, function, grid):
    decorate = (lambda f: beta_nki.jit(f)[grid]) if grid else beta_nki.jit
    assert reported(function, on, X, decorate=decorate) == []


def in_the_last_program(x):
    out = beta_nl.ndarray((256, 8), x.dtype, buffer=beta_nl.shared_hbm)
    n, (p, f) = beta_nl.program_id(0), beta_nl.mgrid[0:128, 0:8]
    t = beta_nl.load(x[p, f], mask=p + 8 * n < 128)                     # made
    e = beta_nl.exp(t)                                                  # read
    beta_nl.store(out[n * 128 + p, f], e)
    return out


def test_a_read_of_the_last_program_alone_is_reported(on):
    """Program 0 writes 128 rows of the tile, program 1 writes 120."""
    expected = TEXT.format([120, 0], line_of(in_the_last_program, "made")) + HERE
    got = reported(in_the_last_program, on, X, decorate=lambda f: beta_nki.jit(f)[(2,)])
    assert got == [(expected, line_of(in_the_last_program, "read"))]


# -- the current generation --------------------------------------------------------------------------------------------
def test_the_simulator_reports_and_shows_nan():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)                # made
        nisa.tensor_copy(dst=t[:, 0:3], src=nl.load(x)[:, 0:3])
        nisa.dma_copy(dst=out, src=t)                                   # read
        return out
    results = []

    class Simulated:
        def __init__(self, kernel):
            self.on = lambda _: lambda x: results.append(nki.simulate(kernel)(x))
    expected = TEXT.format([0, 3], line_of(kernel, "made")) + HERE
    assert reported(kernel, "", X, decorate=Simulated) == [(expected, line_of(kernel, "read"))]
    assert np.isnan(results[0][:, 3:]).all() and np.array_equal(results[0][:, :3], X[:, :3])


@pytest.mark.parametrize("on", ["interpreter", "jit", "isa"])
def test_a_copy_of_an_unwritten_tile_to_elements_of_another_size__runs(on):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(t, nl.load(x))
        unwritten = nl.ndarray((x.shape[0], 4 * x.shape[1]), nl.int8, buffer=nl.sbuf)
        nisa.tensor_copy(t.view(nl.int8), unwritten)
        nisa.dma_copy(out, t)
        return out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnwrittenRead)
        np.testing.assert_array_equal(nki.jit(kernel).on(on)(X), np.zeros_like(X))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that call kernels, wrappers around wrappers, and grids."""

import functools

import numpy as np
import pytest

from nki_mlir.language.beta import language as beta
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

X = (np.random.default_rng(0).permutation(64 * 16) % 101).astype(np.float32).reshape(64, 16)


# -- kernels in kernels ------------------------------------------------------------------------------------------------
def test_a_decorated_helper_is_part_of_the_kernel(on, names):
    nl, nki = names.nl, names.nki

    @nki.jit
    def doubled(tile):
        return nl.multiply(tile, 2.0)

    @nki.jit
    def halves(x):
        return [doubled(nl.load(x[0:32, :])), doubled(nl.load(x[32:64, :]))]

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        first, second = halves(x)
        nl.store(out[0:32, :], first)
        nl.store(out[32:64, :], nki.jit(lambda t: nl.add(t, t))(second))
        return out
    expected = X * 2
    expected[32:] *= 2
    np.testing.assert_array_equal(kernel.on(on)(X), expected)


def test_options_of_a_helper_do_not_count(on, names):
    nl, nki = names.nl, names.nki

    @nki.jit(mode="trace")
    def loaded(x):
        return nl.load(x)

    @functools.partial(nki.jit, platform_target="trn1")
    def stored(out, tile):
        nl.store(out, tile)
        return out

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        return stored(out, loaded(x))
    np.testing.assert_array_equal(kernel.on(on)(X), X)


def test_a_kernel_by_itself_and_inside_of_another(on, names):
    nl, nki = names.nl, names.nki

    @nki.jit
    def tile_of(x):
        return nl.multiply(nl.load(x), 3.0)

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile_of(x))
        return out
    np.testing.assert_array_equal(tile_of.on(on)(X), X * 3)
    np.testing.assert_array_equal(kernel.on(on)(X), X * 3)


# -- wrappers ----------------------------------------------------------------------------------------------------------
def beta_rows(x):
    out = beta.ndarray(x.shape, x.dtype, buffer=beta.shared_hbm)
    rows = beta.ds(beta.program_id(0) * 32, 32)
    beta.store(out[rows, :], beta.load(x[rows, :]) * 2)
    return out


BETA = {
    "simulate of a launch": lambda: beta_nki.simulate_kernel(beta_nki.jit(beta_rows)[2], X),
    "simulate of baremetal": lambda: beta_nki.simulate_kernel(beta_nki.baremetal(beta_nki.jit(beta_rows))[2], X),
    "simulate of a function": lambda: beta_nki.simulate_kernel(beta_nki.jit(beta_rows)[(2,)], X),
    "jit twice": lambda: beta_nki.jit(beta_nki.jit(beta_rows))[2](X),
    "jit of trace": lambda: beta_nki.jit(beta_nki.trace(beta_rows))[2](X),
    "baremetal of jit": lambda: beta_nki.baremetal(beta_nki.jit(beta_rows))[2](X),
    "baremetal of a launch": lambda: beta_nki.baremetal(beta_nki.jit(beta_rows)[2])(X),
    "benchmark of a launch": lambda: beta_nki.benchmark(warmup=1, iters=1)(beta_nki.jit(beta_rows)[2])(X),
    "jit with a mode of jit": lambda: beta_nki.jit(mode="simulation")(beta_nki.jit(beta_rows)[2])(X),
    "a partial": lambda: beta_nki.jit(functools.partial(beta_rows))[2](X),
    "current jit": lambda: nki.jit(beta_nki.jit(beta_rows)).func is beta_rows and X * 2,
}


@pytest.mark.parametrize("name", BETA)
def test_wrappers_of_the_beta_generation(name):
    np.testing.assert_array_equal(BETA[name](), X * 2)


def rows(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    part = nl.ds(nl.program_id(0) * 32, 32)
    nl.store(out[part, :], nl.multiply(nl.load(x[part, :]), 2.0))
    return out


CURRENT = {
    "simulate of a launch": lambda: nki.simulate(nki.jit(rows)[2])(X),
    "launch of simulate": lambda: nki.simulate(nki.jit(rows))[2](X),
    "simulate of a function": lambda: nki.simulate(rows)[2](X),
    "cpu_simulate": lambda: nki.cpu_simulate(rows)[2](X),
    "simulate twice": lambda: nki.simulate(nki.simulate(rows))[2](X),
    "jit of simulate": lambda: nki.jit(nki.simulate(rows))[2](X),
    "jit twice": lambda: nki.jit(nki.jit(rows))[2](X),
    "jit of a launch": lambda: nki.jit(nki.jit(rows)[2])(X),
    "a schedule": lambda: nki.jit(rows).with_schedule([])[2](X),
    "a partial": lambda: nki.jit(functools.partial(rows))[2](X),
}


@pytest.mark.parametrize("name", CURRENT)
def test_wrappers_of_the_current_generation(name):
    np.testing.assert_array_equal(CURRENT[name](), X * 2)


# -- grids -------------------------------------------------------------------------------------------------------------
TWO = 2
GRIDS = {"int": TWO, "tuple": (TWO,), "list": [TWO], "numpy": np.int64(TWO), "nc": beta.nc(TWO),
         "dimension": beta.spmd_dim(beta.nc(TWO), 1), "product": beta.nc(TWO) * 1}


@pytest.mark.parametrize("grid", GRIDS)
def test_one_axis(on, names, grid):
    kernel = names.nki.jit(rows if names.nl is nl else beta_rows)[GRIDS[grid]]
    np.testing.assert_array_equal(kernel.on(on)(X), X * 2)


def test_two_axes(on, names):
    nl = names.nl

    def kernel(x, scale):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        assert nl.program_ndim() == 2 and nl.num_programs(0) == 2 and nl.num_programs(1) == 2
        assert nl.num_programs([0, 1]) == 4
        i, j = nl.program_id(0), nl.program_id(1)
        part = nl.ds((i * 2 + j) * 16, 16)
        nl.store(out[part, :], nl.multiply(nl.load(x[part, :]), scale))
        return out
    launched = names.nki.jit(kernel)
    np.testing.assert_array_equal(launched[2, 2].on(on)(X, 2.0), X * 2)
    np.testing.assert_array_equal(launched[beta.spmd_dim(beta.nc(2), 1), 2].on(on)(X, 3.0), X * 3)


def test_two_axes_of_other_sizes(on, names):
    nl = names.nl

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        part = nl.ds((nl.program_id(axis=0) * 4 + nl.program_id(axis=1)) * 8, 8)
        nl.store(out[part, :], nl.multiply(nl.load(x[part, :]), 2.0))
        return out
    np.testing.assert_array_equal(names.nki.jit(kernel)[2, 4].on(on)(X), X * 2)


def test_no_grid_is_one_program_of_no_axes(on, names):
    nl = names.nl

    def kernel(x):
        ndim = nl.program_ndim()
        assert ndim == 0
        size = nl.num_programs(0) if ndim != 0 else 1
        number = nl.program_id(0) if ndim != 0 else 0
        return nl.multiply(nl.load(x), size + number)
    np.testing.assert_array_equal(names.nki.jit(kernel).on(on)(X), X)


def test_outside_of_a_kernel(names):
    assert names.nl.program_ndim() == 0


@pytest.mark.parametrize("cores", [(0, 1), [0, 1], tuple(range(2))])
@pytest.mark.parametrize("memory", ["sbuf", "shared_hbm", "private_hbm"])
def test_barriers(on, cores, memory, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")

    @nki.jit
    def kernel(x):
        out, middle = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm) for _ in range(2))
        p = nl.program_id(0)
        tile = nl.load(x[nl.ds(p * 32, 32), :])
        nisa.dma_copy(middle[nl.ds(p * 32, 32), :], tile)
        data = middle if memory == "shared_hbm" else tile
        if memory == "private_hbm":
            data = nl.ndarray((32, 16), x.dtype, buffer=nl.private_hbm)
            nisa.dma_copy(data, tile)
        nisa.core_barrier(data, cores)
        other = nl.load(middle[nl.ds((1 - p) * 32, 32), :])
        nisa.dma_copy(out[nl.ds(p * 32, 32), :], other)
        return out
    np.testing.assert_array_equal(kernel[2].on(on)(X), np.concatenate([X[32:], X[:32]]))


@pytest.mark.parametrize("cores", [0, (0,), [0]])
def test_a_barrier_of_one_core_is_none(on, cores):
    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        nisa.core_barrier(tile, cores)
        nisa.core_barrier(data=tile, cores=cores)
        return tile
    np.testing.assert_array_equal(kernel.on(on)(X), X)

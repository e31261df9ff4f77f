# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options of ``nki.jit`` in every release, and the decorators of the beta generation under ``import nki``."""

import numpy as np
import pytest

from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.beta import nki as beta
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.launching import IgnoredOption

from .running import numbers

X = numbers(16, 8)
DEAD = {"debug_kernel": True, "show_compiler_tb": True, "experimental_flags": "x", "additional_compile_opt": "-O1",
        "enable_out_of_bound_check": False}


def version(x):
    """The generation of the target, in a tile."""
    out, tile = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm), nl.ndarray((1, 1), nl.int32)
    nisa.memset(tile, nisa.get_nc_version().value)
    nisa.dma_copy(out, tile)
    return out


def doubled(x):
    out, tile = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.load(x)
    nisa.dma_copy(out, nl.multiply(tile, 2.0))
    return out


@pytest.mark.parametrize("target, generation", [("trn1", 2), ("trn2", 3), ("trn3", 4)])
@pytest.mark.parametrize("make", [
    lambda f, **o: nki.jit(f, **o), lambda f, **o: nki.jit(**o)(f), lambda f, **o: nki.jit(mode="trace", **o)(f),
    lambda f, **o: nki.jit(func=f, **o, **DEAD), lambda f, **o: nki.jit(nki.jit(f), **o)],
    ids=["of a function", "called", "with a mode", "with options", "of a kernel"])
def test_platform_target_is_the_target_where_the_environment_names_none(on, make, target, generation, monkeypatch):
    kernel = make(version, platform_target=target)
    assert kernel.on(on)(X).item() == 4                                     # the environment's is trn3
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE")
    assert kernel.on(on)(X).item() == generation


def test_platform_target_of_the_beta_generation(on, monkeypatch):
    @beta.jit(platform_target="trn1")
    def kernel(x):
        from nki_mlir.language.beta import isa
        out = beta_nl.ndarray((1, 1), np.int32, buffer=beta_nl.shared_hbm)
        beta_nl.store(out, isa.memset((1, 1), isa.get_nc_version().value, np.int32))
        return out
    assert kernel.on(on)(X).item() == 4
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE")
    assert kernel.on(on)(X).item() == 2


def wide_product(a, b):
    out = nl.ndarray((4, 1024), a.dtype, buffer=nl.shared_hbm)
    product = nl.ndarray((4, 1024), a.dtype, buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=nl.load(a), moving=nl.load(b))
    nisa.dma_copy(out, nl.copy(product))
    return out


def test_the_default_target_is_that_of_every_executor_and_generation(on, monkeypatch):
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE")
    assert nki.jit(version).on(on)(X).item() == nki.simulate(version)(X).item() == 3
    assert nisa.get_nc_version().value == 3

    @beta.jit
    def of_beta(x):
        from nki_mlir.language.beta import isa
        out = beta_nl.ndarray((1, 1), np.int32, buffer=beta_nl.shared_hbm)
        beta_nl.store(out, isa.memset((1, 1), isa.get_nc_version().value, np.int32))
        return out
    assert of_beta.on(on)(X).item() == 3


def test_a_product_that_the_default_target_does_not_take_is_refused_by_its_name(monkeypatch):
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE")
    a, b = np.ones((8, 4), np.float32), np.ones((8, 1024), np.float32)
    for launch in (nki.simulate, *(lambda f, on=on: nki.jit(f).on(on) for on in ("interpreter", "jit", "isa"))):
        with pytest.raises(AssertionError) as raised:
            launch(wide_product)(a, b)
        assert raised.value.headline == "nc_matmul moving has 1024 columns, more than 512 on trn2"
        assert raised.value.advice == ("", "multiply 512 columns at a time, or name a target that takes more: "
                                           "NEURON_PLATFORM_TARGET_OVERRIDE=trn3")


@pytest.mark.parametrize("options", [{}, {"mode": "auto"}, {"mode": "simulation"}, {"mode": "torchxla"}, {"mode": "trace"},
                                     {"mode": "anything"}, {"kernel_return": True}, DEAD])
def test_options_that_change_no_value(options):
    np.testing.assert_array_equal(nki.jit(**options)(doubled)(X), X * 2)
    np.testing.assert_array_equal(nki.jit(doubled, **options)(X), X * 2)


def test_simulation_as_a_mode_reads_what_was_never_written_as_nan():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, nl.ndarray(x.shape, x.dtype))
        return out
    assert np.isnan(nki.jit(mode="simulation")(kernel)(X)).all()


def test_kernel_return_says_whether_written_parameters_are_the_outputs(on):
    def kernel(x, out):
        nisa.dma_copy(out, nl.multiply(nl.load(x), 2.0))
    output = np.zeros_like(X)
    nki.jit(kernel, kernel_return=False).on(on)(X, output)
    np.testing.assert_array_equal(output, X * 2)

    @beta.jit(kernel_return=False)
    def of_beta(x, out):
        beta_nl.store(out, beta_nl.load(x) * 2)
    output = np.zeros_like(X)
    of_beta.on(on)(X, output)
    np.testing.assert_array_equal(output, X * 2)


def test_decorators_of_the_beta_generation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    measured = nki.benchmark(warmup=2, iters=5, save_neff_name="file.neff", save_trace_name="trace.ntff")(doubled)
    np.testing.assert_array_equal(measured(X), X * 2)
    assert measured.benchmark_result.nc_latency.get_latency_percentile(99) > 0
    assert (tmp_path / "file.neff").is_file() and (tmp_path / "trace.ntff").is_file()
    for kernel in (nki.baremetal(doubled), nki.baremetal(save_neff_name="other.neff")(doubled), nki.trace(doubled),
                   nki.profile(working_directory=str(tmp_path), profile_nth=2)(doubled), nki.jit(doubled, mode="baremetal"),
                   nki.benchmark(nki.jit(doubled)), nki.simulate(nki.benchmark(doubled))):
        np.testing.assert_array_equal(kernel(X), X * 2)
    np.testing.assert_array_equal(nki.simulate_kernel(nki.jit(doubled), X), X * 2)
    np.testing.assert_array_equal(nki.benchmark(doubled)[1](X), X * 2)


def test_repr__of_kernels_that_are_simulated_or_measured():
    kernel = nki.jit(doubled)
    assert repr(nki.simulate(kernel[2])) == f"<simulation of {kernel[2]!r}>"
    assert repr(nki.benchmark(kernel)) == repr(kernel) == f"<kernel doubled of {__file__.rpartition('/')[2]}:" \
        f"{doubled.__code__.co_firstlineno}>"


def test_suggestions_name_no_option_of_older_releases_to_pass():
    with pytest.warns(IgnoredOption, match=r"no option 'target', and ignores it; set NEURON_PLATFORM_TARGET_OVERRIDE to "
                                           r"trn1, trn2 or trn3: platform_target= is an option of older releases$"):
        nki.jit(doubled, target="trn3")

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments go to parameters by name, in whatever order they are given; so do results in place."""

import itertools

import numpy as np
import pytest

from nki_mlir.language.beta import language as beta
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki


@nki.jit
def differ(a, b, scale=1):
    out, left, right = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm), nl.load(a), nl.load(b)
    nisa.tensor_tensor(left, left, right, nl.subtract)
    nisa.tensor_scalar(left, left, nl.multiply, float(scale))
    nisa.dma_copy(out, left)
    return out


@beta_nki.jit
def differ_beta(a, b, scale=1):
    out = beta.ndarray(a.shape, a.dtype, buffer=beta.shared_hbm)
    beta.store(out, (beta.load(a) - beta.load(b)) * scale)
    return out


@nki.jit
def update(pair, target, rest):
    left, right = nl.load(pair[0]), nl.load(rest["x"])
    nisa.tensor_tensor(left, left, right, nl.subtract)
    nisa.dma_copy(target, left)


@beta_nki.jit
def update_beta(pair, target, rest):
    beta.store(target, beta.load(pair[0]) - beta.load(rest["x"]))


def array_of(module, value):
    array = np.full((4, 4), value, np.float32)
    return array if module is np else getattr(module, "tensor" if module.__name__ == "torch" else "asarray")(array)


@pytest.fixture(params=["numpy", "torch", "jax.numpy"])
def module(request):
    return pytest.importorskip(request.param)


def first(array):
    return float(np.asarray(array)[0, 0])


@pytest.mark.parametrize("kernel", [differ, differ_beta])
def test_every_order_of_keywords(on, module, kernel):
    arrays = {"a": array_of(module, 10), "b": array_of(module, 3), "scale": 2}
    for names in itertools.permutations(arrays):
        assert first(kernel.on(on)(**{n: arrays[n] for n in names})) == 14
    assert first(kernel.on(on)(arrays["a"], scale=2, b=arrays["b"])) == 14
    assert first(kernel.on(on)(b=arrays["b"], a=arrays["a"])) == 7


@pytest.mark.parametrize("kernel", [update, update_beta])
def test_results_in_place_go_to_the_arrays_of_their_names(on, kernel):
    names = ("pair", "target", "rest")
    for order in itertools.permutations(names):
        for module in (np, pytest.importorskip("torch")):
            pair, target, rest = [array_of(module, 10)], array_of(module, 0), {"x": array_of(module, 3)}
            arguments = {"pair": pair, "target": target, "rest": rest}
            result = kernel.on(on)(**{n: arguments[n] for n in order})
            assert (first(target), first(pair[0]), first(rest["x"])) == (7, 10, 3)
            assert result is None or first(result) == 7


def test_simulation(module):
    a, b = array_of(module, 10), array_of(module, 3)
    assert first(nki.simulate(differ)(b=b, a=a)) == first(nki.simulate(differ)(scale=1, b=b, a=a)) == 7
    assert first(nki.cpu_simulate(differ)(a, b=b)) == 7


def returning(pair, target, rest):
    update(pair, target, rest)
    return target


def test_a_parameter_that_simulation_returns_has_what_was_written(module):
    target = array_of(module, 0)
    result = nki.simulate(returning)(rest={"x": array_of(module, 3)}, target=target, pair=(array_of(module, 10),))
    assert first(result) == 7
    if module.__name__ != "jax.numpy":          # whose arrays never change
        assert result is target


def test_a_read_only_array_is_no_place_for_results():
    target = array_of(np, 0)
    target.flags.writeable = False
    result = nki.simulate(returning)((array_of(np, 10),), rest={"x": array_of(np, 3)}, target=target)
    assert (first(result), first(target)) == (7, 0)

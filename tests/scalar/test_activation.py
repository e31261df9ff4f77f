# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Activation functions: the IR and NumPy against float64 formulas, within the bounds each function states."""

import math
import warnings

import numpy as np
import pytest

from nki_mlir.scalar.activation import ACTIVATIONS, ActivationFunction
from nki_mlir.scalar.dtypes import FLOAT32

from .conftest import VECTOR, Loops
from .exact import EXACT
from .samples import EDGES, NUMPY_ULP, assert_same, random_bits, ulp_error

NAN, INF = np.nan, np.inf

@pytest.fixture(scope="module")
def loops() -> Loops:
    loops = Loops()
    for function in ACTIVATIONS.values():
        for lanes in (1, VECTOR):
            loops.add(f"{function}_{lanes}", [FLOAT32], FLOAT32, function.expand, lanes)
    return loops.compile()


@pytest.fixture(scope="module")
def values(rng: np.random.Generator) -> np.ndarray:
    random = [rng.uniform(-110, 110, 10000), rng.uniform(-20, 20, 20000), rng.normal(size=20000),
              1 + 0.1 * rng.normal(size=2000), rng.uniform(-1e6, 1e6, 2000)]
    return np.concatenate([EDGES, random_bits(FLOAT32, 20000), *random]).astype(np.float32)


def test_every_function_is_tested() -> None:
    assert set(EXACT) == set(ACTIVATIONS)
    assert [f.name for f in ACTIVATIONS.values()] == list(ACTIVATIONS)


@pytest.mark.parametrize("function", ACTIVATIONS.values(), ids=str)
def test_expansion__lies_within_its_bound(loops: Loops, values: np.ndarray, function: ActivationFunction) -> None:
    with np.errstate(all="ignore"):
        exact = EXACT[function.name](values.astype(np.float64))
    for lanes in (1, VECTOR):
        got = loops(f"{function}_{lanes}", values)
        assert ulp_error(got, exact, function.absolute) <= function.ulp


@pytest.mark.parametrize("function", ACTIVATIONS.values(), ids=str)
def test_numpy__lies_within_its_bound(values: np.ndarray, function: ActivationFunction) -> None:
    with np.errstate(all="ignore"):
        exact = EXACT[function.name](values.astype(np.float64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = function.numpy(values)
    assert got.dtype == np.float32
    assert ulp_error(got, exact, function.absolute) <= max(NUMPY_ULP, function.ulp)


@pytest.mark.parametrize("name", ["sqrt", "rsqrt", "reciprocal", "square", "abs", "negative", "relu", "sign", "floor",
                                  "ceil", "trunc", "copy"])
def test_exactly_rounded_functions__agree_bit_for_bit(loops: Loops, values: np.ndarray, name: str) -> None:
    for lanes in (1, VECTOR):
        assert_same(loops(f"{name}_{lanes}", values), ACTIVATIONS[name].numpy(values), values)


LIMITS = {
    # at -inf, at +inf, at -0
    "exp": (0, INF, 1), "log": (NAN, INF, -INF), "tanh": (-1, 1, -0.0), "sigmoid": (0, 1, 0.5), "erf": (-1, 1, -0.0),
    "silu": (-0.0, INF, -0.0), "silu_dx": (0, 1, 0.5), "softplus": (0, INF, math.log(2)), "mish": (-0.0, INF, -0.0),
    "gelu": (-0.0, INF, -0.0), "gelu_dx": (0, 1, 0.5), "gelu_apprx_tanh": (-0.0, INF, -0.0),
    "gelu_apprx_sigmoid": (-0.0, INF, -0.0), "gelu_apprx_sigmoid_dx": (0, 1, 0.5),
    "erf_dx": (0, 0, 2 / math.sqrt(math.pi)), "sin": (NAN, NAN, -0.0), "sin_reduced": (NAN, NAN, -0.0), "cos": (NAN, NAN, 1), "tan": (NAN, NAN, -0.0),
    "arctan": (-math.pi / 2, math.pi / 2, -0.0), "rsqrt": (NAN, 0, -INF), "reciprocal": (-0.0, 0, -INF),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(loops: Loops, name: str) -> None:
    arguments = np.float32([-INF, INF, -0.0, NAN])
    wanted = np.float32([*LIMITS[name], NAN])
    compiled = [loops(f"{name}_{lanes}", arguments) for lanes in (1, VECTOR)]
    for got in (ACTIVATIONS[name].numpy(arguments), *compiled):
        np.testing.assert_allclose(got, wanted, rtol=2e-7)
        assert np.signbit(got[2]) == np.signbit(wanted[2])


def test_sine__of_huge_arguments(loops: Loops) -> None:
    huge = np.float32([1e15, 2.0**47, 2.0**48, -1e20, 3e38])
    for name in ("sin", "cos", "tan"):
        exact = EXACT[name](huge.astype(np.float64))
        for lanes in (1, VECTOR):
            assert ulp_error(loops(f"{name}_{lanes}", huge), exact) <= ACTIVATIONS[name].ulp


def test_tails__keep_their_accuracy_where_the_factor_is_denormal(loops: Loops) -> None:
    x = np.linspace(-95, -87, 1000, dtype=np.float32)
    exact = EXACT["silu"](x.astype(np.float64))
    normal = np.abs(exact) > np.finfo(np.float32).smallest_normal
    relative = np.abs(loops(f"silu_{VECTOR}", x) / exact - 1)[normal]
    assert normal.any() and relative.max() < 4e-7


def test_in_range__follows_the_hardware_tables() -> None:
    assert ACTIVATIONS["sin"].in_range(np.float32([-3.2, 3.1, 3.2])).tolist() == [False, True, False]
    assert ACTIVATIONS["reciprocal"].in_range(np.float32([-2.0**-43, -1, 2.0**43])).tolist() == [False, True, False]
    assert ACTIVATIONS["log"].in_range(np.float32([0, 1, 2.0**65])).tolist() == [False, True, False]
    assert ACTIVATIONS["exp"].in_range(np.float32([-INF, 1e30])).all()


def test_names_of_the_assembly() -> None:
    assert ACTIVATIONS["identity"].asm == "copy"
    assert ACTIVATIONS["gelu_apprx_sigmoid_dx"].asm == "gelu_apprx_sigmoid_dx"
    composed = {f.name for f in ACTIVATIONS.values() if not f.native}
    assert composed == {"floor", "ceil", "trunc", "negative", "sin_reduced", "cos", "tan"}


def test_functions_without_a_range__are_good_everywhere():
    bounded = {name for name, function in ACTIVATIONS.items() if function.is_bounded}
    assert {"sin", "sqrt"} <= bounded and not {"relu", "identity", "square"} & bounded
    assert bounded == {name for name, f in ACTIVATIONS.items() if not f.in_range(np.array([-np.inf, np.inf])).all()}

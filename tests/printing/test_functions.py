# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of one operand: their printed text computes the same bits, by operators that the documents have."""

import warnings

import numpy as np
import pytest

from nki_mlir.diagnostics import DeviceRuleWarning
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from .reading import printed, reread

FUNCTIONS = ("abs", "negative", "sign", "square", "relu", "rsqrt", "reciprocal", "sqrt", "exp", "log", "tanh", "floor",
             "ceil", "trunc", "logical_not", "gelu", "silu", "softplus", "mish", "erf", "sin", "cos", "tan", "sigmoid")


def of_each(name):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, getattr(nl, name)(nl.load(x)))
        return out
    return nki.jit(kernel)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_one_operand(name, dtype):
    start = 1 if name in ("log", "sqrt", "rsqrt", "reciprocal") else -6
    x = np.arange(start, start + 12, dtype=np.float32).reshape(3, 4) * (0.75 if dtype is np.float32 else 1)
    x = x.astype(dtype)
    x[0, 0] = (1 << 30) + 1 if name == "negative" and dtype is np.int32 else x[0, 0]
    kernel = of_each(name)
    text = printed(kernel, [x])
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeviceRuleWarning)
        for executor in ("interpreter", "isa"):
            np.testing.assert_array_equal(reread(text).on(executor)(x), kernel.on(executor)(x))


def test_the_exact_reciprocal_stays_exact():
    assert "nisa.reciprocal(dst=" in printed(of_each("reciprocal"), [np.ones((3, 4), np.float32)])


@pytest.mark.parametrize("name", ["divide", "mod", "fmod"])
@pytest.mark.parametrize("number", [None, 3.0])
def test_functions_without_an_instruction_stay_functions(name, number):
    def kernel(x, y):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, getattr(nl, name)(nl.load(x), nl.load(y) if number is None else number))
        return out
    x, y = (np.random.default_rng(seed).standard_normal((3, 8)).astype(np.float32) for seed in range(2))
    text = printed(nki.jit(kernel), [x, y])
    assert f"nl.{name}(" in text and f"=nl.{name}" not in text
    advice = "# nki-translate --reciprocals prints quotients as products, whose last bit may differ.\n" if (
        name == "divide") else ""
    assert f"# No device has nl.{name}: the simulator alone runs this kernel.\n{advice}@nki.jit" in text
    for executor in ("interpreter", "isa"):
        np.testing.assert_array_equal(reread(text).on(executor)(x, y), nki.jit(kernel).on(executor)(x, y))

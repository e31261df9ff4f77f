# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A number beyond the range of the tile that it fills is a warning at its line, in both generations."""

import warnings

import numpy as np
import pytest

from nki_mlir.language.beta import isa as beta_isa
from nki_mlir.language.beta import language as beta_language
from nki_mlir.language.beta import nki as beta
from nki_mlir.language.creation import ValueRangeWarning
from nki_mlir.language.current import isa, nki
from nki_mlir.language.current import language as nl

X = np.zeros((4, 4), np.float32)


def beta_memset(value, dtype):
    def kernel(x):
        out = beta_language.ndarray(x.shape, x.dtype, buffer=beta_language.shared_hbm)
        beta_language.store(out, beta_isa.memset((4, 4), value, dtype))      # here
        return out
    return beta.jit(kernel)


def beta_full(value, dtype):
    def kernel(x):
        out = beta_language.ndarray(x.shape, x.dtype, buffer=beta_language.shared_hbm)
        beta_language.store(out, beta_language.full((4, 4), value, dtype))      # here
        return out
    return beta.jit(kernel)


def current_memset(value, dtype):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t, u = nl.ndarray(x.shape, dtype, buffer=nl.sbuf), nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        isa.memset(t, value)      # here
        isa.tensor_copy(u, t)
        isa.dma_copy(out, u)
        return out
    return nki.jit(kernel)


def current_full(value, dtype):
    def kernel(x):
        out, u = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        t = nl.full(x.shape, value, dtype)      # here
        isa.tensor_copy(u, t)
        isa.dma_copy(out, u)
        return out
    return nki.jit(kernel)


KERNELS = beta_memset, beta_full, current_memset, current_full


def run(kernel):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = kernel(X)
    return result, [w for w in caught if w.category is ValueRangeWarning]


@pytest.mark.parametrize(("value", "dtype", "least", "greatest", "becomes"), [
    (300, "uint8", "0", "255", 255), (-1, "uint32", "0", "4294967295", 0), (-129, "int8", "-128", "127", -128),
    (1e6, "float16", "-65504", "65504", np.inf), (-1000, "float8_e4m3", "-240", "240", -np.inf)])
@pytest.mark.parametrize("create", KERNELS, ids=lambda create: create.__name__)
def test_value_beyond_the_range_is_a_warning_at_its_line(create, value, dtype, least, greatest, becomes):
    result, (warning,) = run(create(value, dtype))
    assert (result == becomes).all()
    assert str(warning.message) == (
        f"a tile of {dtype} is filled with {value:.10g}, but its values range from {least} to {greatest}: the elements "
        f"become {becomes}; fill it with a number of that range, or choose a wider dtype")
    code = create.__code__
    with open(__file__) as text:
        lines = [n for n, line in enumerate(text, 1) if line.endswith("# here\n") and n > code.co_firstlineno]
    assert (warning.filename, warning.lineno) == (__file__, lines[0])


@pytest.mark.parametrize(("value", "dtype", "becomes"), [
    (255, "uint8", 255), (-128, "int8", -128), (4294967295, "uint32", np.float32(2) ** 32), (-np.inf, "float16", -np.inf),
    (65504, "float16", 65504), (65510.0, "float16", 65504), (3.4028235e38, "float32", np.finfo(np.float32).max)])
def test_value_that_rounds_to_one_of_the_range_is_no_warning(value, dtype, becomes):
    result, caught = run(current_memset(value, dtype))
    assert (result == becomes).all() and not caught

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops of more iterations than Python can run are errors at their line; native loops that do nothing take no time."""

import numpy as np
import pytest

from nki_mlir.capture.errors import LoopBound
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.input_limits import FEW_ITERATIONS, LimitText, TooManyIterations, check_iterations
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki as beta
from nki_mlir.language.current import isa, nki
from nki_mlir.language.current import language as current

X = np.full((4, 4), 3, np.float32)
TEXT = "the loop has {:,} iterations, which {} runs one by one; the limit is {:,}"


@beta.jit
def rolled(x, bounds):
    out, t = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.load(x)
    for _ in nl.sequential_range(*bounds):
        t[...] = nl.multiply(t, -1.0)
    nl.store(out, t)
    return out


@beta.jit
def unrolled(x, bounds):
    out, t = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.load(x)
    for _ in nl.static_range(*bounds):
        t = nl.multiply(t, -1.0)
    nl.store(out, t)
    return out


@beta.jit
def idle(x, bounds):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for k in nl.affine_range(*bounds):
        for _ in nl.affine_range(5):
            k + 1
    nl.store(out, nl.load(x))
    return out


@nki.jit
def of_current(x, bounds):
    out, t = current.ndarray(x.shape, x.dtype, buffer=current.shared_hbm), current.ndarray(x.shape, x.dtype)
    isa.dma_copy(t, x)
    for _ in current.affine_range(*bounds):
        isa.tensor_scalar(t, t, op0=current.multiply, operand0=-1.0)
    isa.dma_copy(out, t)
    return out


def refusal(kernel, on, *bounds):
    """Return the first line of the error, after the location."""
    with pytest.raises(NkiMlirError) as error:
        kernel.on(on)(X, bounds)
    lines = str(error.value).splitlines()
    assert lines[0].startswith(f"{__file__}:") and lines[1].split("|")[1].startswith("     for _ in ")
    assert lines[-1] == ("  fix: correct the bounds, write a loop that ends by break as a while, or set "
                         "NKI_MLIR_ITERATIONS to a larger number")
    return lines[0].partition(" error: ")[2].partition(" [")[0]


@pytest.mark.parametrize("bounds, count", [((10 ** 18,), 10 ** 18), ((5, 10 ** 10, 3), 3333333332), ((0, -10 ** 10, -7), 1428571429)])
def test_eager_execution_and_the_interpreter_refuse_them(bounds, count):
    for kernel, limit in ((rolled, 10 ** 9), (unrolled, 10 ** 8), (of_current, 10 ** 9)):
        assert refusal(kernel, "eager", *bounds) == TEXT.format(count, "Python", limit)
    if bounds[-1] > 0:
        assert refusal(rolled, "interpreter", *bounds) == TEXT.format(count, "the interpreter", 10 ** 9)
    assert refusal(unrolled, "jit", *bounds) == TEXT.format(count, "Python", 10 ** 8)
    assert refusal(of_current, "isa", *bounds) == TEXT.format(count, "Python", 10 ** 9)


@pytest.mark.parametrize("on", ["interpreter", "jit", "isa"])
def test_a_loop_that_does_nothing_takes_no_time(on):
    assert (idle.on(on)(X, (10 ** 18,)) == 3).all()


@pytest.mark.parametrize("on", ["eager", "interpreter", "jit"])
def test_the_variable_sets_the_limit(on, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_ITERATIONS", "2001")
    assert (rolled.on(on)(X, (2001,)) == -3).all()
    if on != "jit":                         # native code has no limit
        who = "Python" if on == "eager" else "the interpreter"
        assert refusal(rolled, on, 2002) == TEXT.format(2002, who, 2001)
    monkeypatch.setenv("NKI_MLIR_ITERATIONS", "few")
    with pytest.raises(LimitText, match="NKI_MLIR_ITERATIONS is few, which must be a positive number of iterations"):
        unrolled.on(on)(X, (5000,))


@pytest.mark.parametrize("span", [range(5), range(0), range(9, 2, -3), range(5, 2), range(FEW_ITERATIONS)])
def test_short_loops_need_no_limit(span, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_ITERATIONS", "1")
    check_iterations(span, "Python", lambda: None)
    with pytest.raises(TooManyIterations, match="has 1,001 iterations"):
        check_iterations(range(3, FEW_ITERATIONS + 4), "Python", lambda: None)


@pytest.mark.parametrize("bounds", [(10 ** 20,), (-(10 ** 20), 10 ** 20, 10 ** 19)])
def test_bounds_beyond_64_bits(bounds):
    with pytest.raises(LoopBound, match="a bound of the loop is a number of 67 bits; loops of the device count in 64 bits"):
        rolled.on("jit")(X, bounds)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Simulated calls that run as native code: what they give, and what stays in the simulator."""

import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import native_simulation, nki, simulator

X = np.arange(32, dtype=np.float32).reshape(4, 8)


def kernel_of(*lines, returns="out"):
    """Return a new kernel, since the language counts the calls of each function."""
    text = ("def kernel(x, n=1):\n    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
            "    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)\n    nisa.dma_copy(dst=tile, src=x)\n"
            + "".join(f"    {line}\n" for line in lines) + f"    nisa.dma_copy(dst=out, src=tile)\n    return {returns}\n")
    names = {"nl": nl, "nisa": nisa, "np": np, "notes": []}
    exec(text, names)
    return names["kernel"]


@pytest.fixture
def simulations(monkeypatch):
    """How many calls were simulated operation by operation."""
    count, inner = [], simulator.simulate_bound
    monkeypatch.setattr(simulator, "simulate_bound", lambda *a: count.append(1) or inner(*a))
    return count


TWICE = "nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0 * n)"


@pytest.fixture(autouse=True)
def third_call(monkeypatch):
    monkeypatch.setattr(native_simulation, "WORTH", 2)


def test_third_call__is_native(simulations):
    kernel = nki.jit(kernel_of(TWICE))
    for k in range(6):
        assert np.array_equal(nki.simulate(kernel)(X + k), (X + k) * 2)
    assert len(simulations) == 2


def test_calls__are_compiled_where_it_is_worth_it(simulations, monkeypatch):
    monkeypatch.setattr(native_simulation, "WORTH", 5)
    kernel = nki.jit(kernel_of(TWICE))
    for k in range(8):
        nki.simulate(kernel)(X)
    assert len(simulations) == 5


def test_other_shapes_and_constants__are_simulated_first(simulations):
    kernel = nki.jit(kernel_of(TWICE))
    for x, n in ((X, 1), (X, 2), (X[:2].copy(), 1), (X, 1), (X, 1), (X, 2), (X, 2)):
        assert np.array_equal(nki.simulate(kernel)(x, n), x * 2 * n)
    assert len(simulations) == 5


def test_simulator_of_the_environment(simulations, monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    kernel = nki.jit(kernel_of(TWICE))
    assert all(np.array_equal(kernel(X), X * 2) for _ in range(4)) and len(simulations) == 2
    monkeypatch.setenv(simulator.VARIABLE, "0")
    assert np.array_equal(kernel(X), X * 2) and len(simulations) == 3


def test_updates_are_made_once(simulations):
    kernel = nki.jit(kernel_of(TWICE, "nisa.dma_copy(dst=x, src=tile)", returns="None"))
    x = X + 1
    for k in range(4):
        assert nki.simulate(kernel)(x) is None and np.array_equal(x, (X + 1) * 2 ** (k + 1))


@pytest.mark.parametrize("line", [
    "print('here')", "nl.device_print('tile', tile)", "notes.append(1)",
    "nisa.activation(dst=tile, op=nl.sin, data=tile)", "global count; count = 1",
])
def test_what_says_something__stays(line, simulations, capsys):
    kernel = nki.jit(kernel_of(TWICE, line))
    messages = []
    for _ in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                nki.simulate(kernel)(X)
            except Exception as error:
                messages.append(str(error))
        messages.append(capsys.readouterr().out)
    assert len(simulations) == 4 and (not line.startswith("print") or messages == ["here\n"] * 4)
    assert not line.startswith("notes") or kernel.func.__globals__["notes"] == [1] * 4


def test_reads_of_unwritten_memory__are_nan_each_time(simulations):
    kernel = nki.jit(kernel_of("spare = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)",
                               "nisa.tensor_tensor(dst=tile, data1=tile, data2=spare, op=nl.add)"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            assert np.isnan(nki.simulate(kernel)(X)).all()
    assert len(simulations) == 4


def test_replaced_functions__are_called_each_time(simulations, monkeypatch):
    """Also where they are replaced once calls are native; under the vendor's name as programs do it."""
    kernel = nki.jit(kernel_of(TWICE))
    for _ in range(3):
        nki.simulate(kernel)(X)
    assert len(simulations) == 2
    calls, original = [], nisa.dma_copy
    vendor = type(sys)("nki.isa")
    vars(vendor).update(vars(nisa))
    monkeypatch.setitem(sys.modules, "nki.isa", vendor)
    monkeypatch.setitem(kernel.func.__globals__, "nisa", vendor)
    vendor.dma_copy = lambda *a, **k: calls.append(1) or original(*a, **k)
    for _ in range(3):
        nki.simulate(kernel)(X)
    assert len(simulations) == 5 and len(calls) == 6


def test_a_tracer__sees_each_operation(simulations):
    kernel = nki.jit(kernel_of(TWICE))
    observed = []
    for _ in range(4):
        sys.settrace(lambda frame, event, argument: observed.append(frame.f_code.co_name))
        try:
            nki.simulate(kernel)(X)
        finally:
            sys.settrace(None)
    assert len(simulations) == 4 and observed.count("kernel") == 4


def test_a_tool_of_sys_monitoring__sees_each_operation(simulations, monkeypatch):
    """Debuggers register with sys.monitoring from Python 3.12 on, and leave the trace function unset."""
    kernel = nki.jit(kernel_of(TWICE))
    tools = ["debugpy", None, None, None, None, None]
    monkeypatch.setattr(sys, "monitoring", SimpleNamespace(get_tool=tools.__getitem__), raising=False)
    for _ in range(10):
        nki.simulate(kernel)(X)
    assert len(simulations) == 10
    tools[0] = None
    for _ in range(10):
        nki.simulate(kernel)(X)
    assert len(simulations) == 12


def test_results_agree_only_where_they_are_the_same():
    agree, ones = native_simulation.agree, np.ones((4, 4), np.float32)
    assert agree(ones, ones + np.float32(1e-6)) and not agree(ones, ones * np.float32(1.001))
    nans = np.where(np.eye(4, dtype=bool), np.float32(np.nan), ones)
    assert agree(nans, nans) and not agree(nans, ones) and not agree(ones, nans)
    assert agree((ones, ones), (ones, ones)) and not agree((ones,), (ones, ones)) and not agree(ones, ones.astype(np.float64))
    assert not agree(np.int32([1, 2]), np.int32([1, 3]))


def with_an_empty_cell():
    def function():
        return later
    if X is None:
        later = 1.0
    return function


def test_function_whose_variable_has_no_value_yet__does_not_change():
    assert native_simulation.is_unchanged(with_an_empty_cell(), set())

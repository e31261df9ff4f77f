# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Accumulation registers that an instruction reads before another one has set them, in both generations."""

import warnings

import numpy as np
import pytest

import nki_mlir
from nki_mlir.dialects.nisa.require_written import UnsetRegisters
from nki_mlir.language.beta import isa as beta_isa
from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.targets.interpreter.unwritten_hbm import UnwrittenRead

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
TOTAL = np.exp(X).sum(1, keepdims=True)


def current(*commands):
    """Return a kernel that applies the Scalar engine with these commands to its parameter, one after the other."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray((4, 1), x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        total = nl.ndarray((4, 1), nl.float32, buffer=nl.sbuf)
        for command in commands:
            result = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
            nisa.activation(dst=result, op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=total,
                            reduce_cmd=getattr(nisa.reduce_cmd, command))
        nisa.dma_copy(dst=out, src=total)
        return out
    return kernel


def beta(*commands):
    """Return the same kernel of the first generation."""
    @beta_nki.jit
    def kernel(x):
        out = beta_nl.ndarray((4, 1), x.dtype, buffer=beta_nl.shared_hbm)
        tile = beta_nl.load(x)
        total = beta_nl.ndarray((4, 1), beta_nl.float32, buffer=beta_nl.sbuf)
        for command in commands:
            beta_isa.activation(op=beta_nl.exp, data=tile, reduce_op=beta_nl.add, reduce_res=total,
                                reduce_cmd=getattr(beta_isa.reduce_cmd, command))
        beta_nl.store(out, total)
        return out
    return kernel


@pytest.mark.parametrize("executor", ["jit", "eager", "interpreter", "isa"])
@pytest.mark.parametrize("command, value", [("idle", 0 * TOTAL), ("reduce", TOTAL)])
@pytest.mark.parametrize("generation", [current, beta])
def test_registers_that_nothing_has_set__are_reported(generation, command, value, executor):
    with pytest.warns(UnwrittenRead, match=f"reduce_cmd {command} reads the accumulation registers of the scalar"):
        result = generation(command).on(executor)(X)
    np.testing.assert_allclose(np.asarray(result), value, rtol=1e-6)


@pytest.mark.parametrize("commands, value", [(["reset_reduce"], TOTAL), (["reset", "reduce"], TOTAL),
                                             (["reset_reduce", "reduce", "idle"], 2 * TOTAL)])
@pytest.mark.parametrize("generation", [current, beta])
def test_registers_that_an_instruction_has_set__are_not(generation, commands, value):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnwrittenRead)
        for executor in ("jit", "eager"):
            np.testing.assert_allclose(np.asarray(generation(*commands).on(executor)(X)), value, rtol=1e-6)


def test_a_total_of_activation_reduce__sets_the_registers():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((4, 1), x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        first, total = (nl.ndarray((4, 1), nl.float32, buffer=nl.sbuf) for _ in range(2))
        nisa.activation_reduce(dst=tile, op=nl.copy, data=tile, reduce_op=nl.add, reduce_res=first)
        nisa.activation(dst=tile, op=nl.copy, data=tile, reduce_res=total)
        nisa.dma_copy(dst=out, src=total)
        return out
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnwrittenRead)
        np.testing.assert_allclose(np.asarray(kernel(X)), X.sum(1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("command", ["idle", "reduce"])
def test_the_vector_engine_has_registers_too(command):
    @beta_nki.jit(platform_target="trn2")
    def kernel(x):
        out = beta_nl.ndarray((4, 1), x.dtype, buffer=beta_nl.shared_hbm)
        tile, largest = beta_nl.load(x), beta_nl.ndarray((4, 1), beta_nl.float32, buffer=beta_nl.sbuf)
        chosen = beta_nl.ndarray(x.shape, beta_nl.float32, buffer=beta_nl.sbuf)
        beta_isa.select_reduce(dst=chosen, predicate=beta_nl.greater(tile, 0, dtype=beta_nl.uint8), on_true=tile,
                               on_false=-2.0, reduce_res=largest, reduce_op=np.max,
                               reduce_cmd=getattr(beta_isa.reduce_cmd, command))
        beta_nl.store(out, largest)
        return out
    with pytest.warns(UnwrittenRead, match="registers of the vector engine"):
        result = kernel(X)
    np.testing.assert_array_equal(np.asarray(result), np.maximum(np.where(X > 0, X, -2).max(1, keepdims=True), 0)
                                  if command == "reduce" else 0 * TOTAL)


def test_the_check__reports_an_error_with_its_fix():
    finding, = nki_mlir.check(current("idle"), X).of("unwritten-read")
    assert (finding.severity, finding.code) == ("error", "NKI-REGISTERS-UNSET")
    assert "reset_reduce" in finding.fix
    assert finding.location.line == current("idle").func.__code__.co_firstlineno + 8


def test_a_strict_run__raises_the_error(monkeypatch):
    monkeypatch.setenv("NKI_MLIR_STRICT", "1")
    with pytest.raises(UnsetRegisters, match="sets them"):
        beta("idle")(X)

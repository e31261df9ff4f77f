# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernel as written is a candidate of the default mode: when it is, and that its program is the one emitted."""

from pathlib import Path

import numpy as np
import pytest

from nki_mlir.cli.source import load_kernel
from nki_mlir.passes.pass_manager import PassObserver
from nki_mlir.scalar.dtypes import BFLOAT16
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen import emission
from nki_mlir.targets.neuron.codegen.emission import Emission, Observation, emit_code
from nki_mlir.targets.neuron.format.assembly import print_program
from nki_mlir.targets.neuron.simulator import simulate
from nki_mlir.targets.neuron.timing import time_programs
from tests.targets.neuron.random_code import RandomCode

KERNELS = Path(__file__).parents[4] / "bench" / "calibration"
OFF = Emission(kernel_as_written=False)


@pytest.fixture(scope="module")
def code():
    """A product whose tensor engine is fast sooner as the kernel orders its transposes."""
    kernel = load_kernel(str(KERNELS / "matmul.py:transposing"), "trn2")
    factors = [np.zeros((1024, 1024), BFLOAT16.numpy)] * 2
    captured = kernel.lower(*factors, block_m=8, block_n=2).specialization.captured
    lowered, = neuron.lowered(captured).values()
    return lowered.code()


def time_of(code, options: Emission) -> float:
    return time_programs([emit_code(code, options)]).total_ns


def test_kernel_as_written__is_a_candidate(code) -> None:
    written = time_of(code, Emission.as_written())
    assert time_of(code, Emission()) == written < time_of(code, OFF)


def test_steps_of_an_observer__lead_to_the_same_program(code) -> None:
    steps = []

    class Steps(PassObserver):
        def before(self, name, module) -> None:
            steps.append(name)
    observed = emit_code(code, Emission(observation=Observation(Steps())))
    assert print_program(observed) == print_program(emit_code(code, Emission()))
    assert "schedule-instructions" in steps and "fuse-instructions" not in steps


@pytest.mark.parametrize("options", [Emission(unroll_limit=100_000), Emission(transposes=False), OFF],
                         ids=["limit", "transposes", "off"])
def test_kernel_as_written__is_no_candidate_if_options_exclude_it(monkeypatch, code, options: Emission) -> None:
    monkeypatch.setattr(emission, "fastest", lambda *arguments, fastest=emission.fastest: compiled.append(
        arguments[2]) or fastest(*arguments))
    compiled: list[Emission] = []
    emit_code(code, options)
    assert compiled and not any(used.vendor for used in compiled)


def test_long_code__is_not_compiled_as_written(monkeypatch, code) -> None:
    monkeypatch.setattr(emission, "LONGEST_WRITTEN", {1: 200})
    assert time_of(code, Emission()) == time_of(code, OFF)


@pytest.mark.parametrize("seed", range(6))
def test_values__are_those_of_program_order(monkeypatch, seed: int) -> None:
    """Also if the kernel as written is the fastest, whatever its time is."""
    monkeypatch.setattr(emission, "NEAR", {1: 0.0})
    of_seed = RandomCode(seed)
    original, chosen = emission.searched_as_written, []

    def as_written(code, options, best):
        chosen.append(original(code, options, best._replace(ns=float("inf"))))
        return chosen[-1]
    monkeypatch.setattr(emission, "searched_as_written", as_written)
    program = emit_code(of_seed.code, Emission())
    assert chosen[0] is not None and chosen[0].options.vendor
    for scheduler in (None, *range(4)):
        result = np.zeros(of_seed.output.shape, np.float32)
        simulate(program, [a.copy() for a in of_seed.arrays], [result], scheduler)
        np.testing.assert_array_equal(result, of_seed.expected())

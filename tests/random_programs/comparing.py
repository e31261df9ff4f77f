# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run a random program on all executors, and on the evaluator of ``tests/oracle``, which shares no code with them.

It compares the results bit for bit, or within the stated bounds.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import numpy as np

from nki_mlir.dialects.nki.movement import print_sink
from nki_mlir.language.current.simulator import simulate_ranks
from nki_mlir.targets.neuron import simulator
from nki_mlir.targets.neuron.codegen import emission
from nki_mlir.targets.neuron.codegen.emission import Emission

from ..oracle import Outcome
from .writer import Output, Program

EXECUTORS = ("eager", "interpreter", "jit", "isa")
BOTH_EMISSIONS = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"


@contextmanager
def executing(on: str):
    """The executor that runs the kernel. Instruction streams may run in another order, or be the ones that are printed
    and timed: ``isa in order 3``, ``optimized isa``."""
    name, _, order = on.partition(" in order ")
    optimized, executor = name.startswith("optimized "), name.removeprefix("optimized ")

    def at_random(cores: Sequence[simulator.Core], step_limit: int) -> None:
        simulator.at_random(cores, simulator.Adversary(int(order)), step_limit)

    with (patch.object(simulator, "in_turn", at_random) if order else nullcontext(),
          patch.object(emission, "emit_for_values", lambda emit: emit(Emission())) if optimized else nullcontext()):
        yield executor


def arrays_of_ranks(program: Program) -> list[tuple[np.ndarray, ...]]:
    return [tuple(np.roll(a, 7 * rank, axis=0) for a in program.arrays.values()) for rank in range(program.ranks)]


def flat(of_ranks: list) -> list[np.ndarray]:
    return [array for got in of_ranks for array in (got if isinstance(got, (tuple, list)) else [got])]


def results(kernel, program: Program, on: str) -> tuple[list[np.ndarray], list]:
    """Return the results of each rank, and the printed text."""
    printed: list = []
    token = print_sink.set(lambda prefix, value: printed.append((prefix, value)))
    launched = kernel[program.grid if len(program.grid) > 1 else program.grid[0]] if program.grid else kernel
    arguments = arrays_of_ranks(program)
    try:
        with executing(on) as executor:
            returned = simulate_ranks(launched, arguments, executor=executor) if program.ranks > 1 else \
                [launched.on(executor)(*arguments[0])]
    finally:
        print_sink.reset(token)
    return flat(returned), printed


def differences(got: np.ndarray, expected: np.ndarray, output: Output) -> str:
    """Return the differences as text, or ""."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{output.name} is {got.dtype}{got.shape}, not {expected.dtype}{expected.shape}"
    if output.rtol or output.atol:
        a, b = (np.asarray(v, np.float64) for v in (got, expected))
        same = np.isclose(a, b, rtol=output.rtol, atol=output.atol, equal_nan=True)
    else:
        same = bits(got) == bits(expected)
        if got.dtype.kind in "fV":
            same |= np.isnan(got.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    if same.all():
        return ""
    places = np.argwhere(~same)
    shown = [f"{tuple(map(int, at))}: {got[tuple(at)]!r}, not {expected[tuple(at)]!r}" for at in places[:4]]
    return f"{output.name} differs in {len(places)} of {same.size} elements (rtol {output.rtol}, atol {output.atol}), " \
           f"first {'; '.join(shown)}"


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}") if array.dtype.kind != "b" else array


def check_oracle(outcomes: list[Outcome], got: list[np.ndarray], program: Program) -> None:
    """Check that the oracle gives the same values, unless they depend on random numbers, and has no findings."""
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    assert not findings, findings
    expected = flat([outcome.results for outcome in outcomes])
    random = [flag for outcome in outcomes for flag in outcome.incomparable]
    assert len(got) == len(expected) == len(random)
    for array, wanted, output, chosen in zip(got, expected, program.outputs * program.ranks, random):
        difference = "" if chosen else differences(array, wanted, output)
        assert not difference, f"{EXECUTORS[0]} is not what the oracle says: {difference}"


def check_agreement(kernel_of: Callable, program: Program, oracle: Callable[[Program], list[Outcome]] | None = None,
                    both_emissions: bool = BOTH_EMISSIONS) -> None:
    """All executors agree with the oracle. Streams are those for values or those that are printed and timed, as
    ``schedule_streams`` chooses for a test; ``both_emissions`` runs the latter as well.
    """
    kernel = kernel_of(program)
    expected, printed = results(kernel, program, EXECUTORS[0])
    if oracle is not None:
        check_oracle(oracle(program), expected, program)
    order = f"in order {len(program.text)}"
    runs = [(kernel, on) for on in (*EXECUTORS[1:], f"isa {order}")]
    if both_emissions:                  # a kernel keeps the streams that it has run
        runs += [(kernel_of(program), f"optimized isa {order}")]
    for of, on in runs:
        got, also = results(of, program, on)
        outputs = program.outputs * program.ranks
        assert len(got) == len(expected) == len(outputs)
        for array, wanted, output in zip(got, expected, outputs):
            difference = differences(array, wanted, output)
            assert not difference, f"{on}: {difference}"
        assert len(printed) == len(also), f"{on} prints {len(also)} times, not {len(printed)}"

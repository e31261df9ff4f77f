# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of real kernels, broken in each way of ``stream_mutants``: the checker refuses them, and names the instruction
and its source line.

`make fuzz` tries 5,000 of them, other ones each time; the ordinary run the same few. What a mutation may leave as it was
(a wait that another one implies) is proved, and has the values of the unbroken program in every adversarial order. What
still reads bytes that were written, others than before, is another program in good order: it has one result in all.
"""

import importlib
import os
import random
import re
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from nki_mlir.diagnostics import KernelError, NkiMlirError
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.nisa.movement import MemsetOp
from nki_mlir.language.current import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.checker import check_streams
from nki_mlir.targets.neuron.checker.trace import EndlessLoop
from nki_mlir.targets.neuron.checker.violations import CountBelowZero, UnorderedClear, UnorderedCount
from nki_mlir.targets.neuron.codegen.emission import Emission
from nki_mlir.targets.neuron.deadlock import Deadlock
from nki_mlir.targets.neuron.simulated_core import SemaphoreRange
from nki_mlir.targets.neuron.simulator import simulate, simulate_cores
from nki_mlir.targets.neuron.validate import check_program

from . import access_mutants, test_cores
from .stream_mutants import MUTATIONS

pytestmark = pytest.mark.usefixtures("example_modules")
FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
SEED = int(os.environ.get("NKI_MLIR_FUZZ_SEED", "0")) if FUZZ else 0
NAMES = ("softmax", "matmul", "tensor_add", "selective_scan", "transpose2d", "normalization") if FUZZ else (
    "softmax", "matmul")
EACH = 5 if FUZZ else 1         # mutants of each kind of a program
OF_ACCESSES = {name for name, change in MUTATIONS.items() if change.__module__ == access_mutants.__name__}
# Of these, some change nothing: another wait implies the one that is gone, a sum that is reached anyway.
EQUIVALENT = {"removed_wait", "lower_wait", "wait_for_another_semaphore", "signal_counts_twice", "swapped_with_the_next",
              "final_wait", "shorter_clear", "removed_clear", "wait_one_higher", "wait_of_the_next",
              "transfer_counts_another_number", "wait_twice", "wait_of_the_one_before", "exchanged_semaphores_of_queues"}
# Of these, some read what a memset or another load has written.
OTHER_VALUES = {"operand_half_a_tile_further", "operand_one_tile_back", "removed_load", "removed_instruction",
                "exchanged_transfers", "transfer_one_partition_further", "transfer_of_the_next_row", "dtype_of_equal_size",
                "accumulation_that_starts_anew", "half_a_result", "transfer_of_another_dtype", "transposed_access",
                "reversed_access", "one_bank_further", "exchanged_results", "wider_step"}
# In loops of the device also these: nothing comes after the last iteration that a signal would hold up, and where a load
# fills a part of a buffer, a memset has written all of it.
EQUIVALENT_IN_LOOPS = {"removed_signal", "another_decrement", "bound_of_a_loop", "step_of_a_register",
                       "exchanged_signals", "target_of_a_branch", "comparison_of_a_branch"}
OTHER_VALUES_IN_LOOPS = {"another_register", "factor_of_a_register", "first_value_of_a_register"}
OTHER_VALUES_BEHIND_MEMSET = {"result_half_a_tile_further", "result_one_element_further"}
# Loops that run until a register overflows, which the checker does not follow, and which nothing else runs.
LONG_LOOPS = {"comparison_of_a_branch", "step_of_a_register"}
# At the ends of streams and around loops of the device engines wait for each other, which is of no source line.
OF_NO_LINE = CountBelowZero, Deadlock, EndlessLoop, SemaphoreRange, UnorderedClear, UnorderedCount
INSTRUCTION = re.compile(r"\b(pe|act|dve|pool|sp)( waits at)? [0-9]{4}\b")
SOURCE_LINE = re.compile(r"\.py:[0-9]+")


def programs(name: str, emission: Emission) -> list[tuple[Program, list[np.ndarray]]]:
    """The streams of an example's kernels with inputs."""
    emitted = []
    for kernel, arguments, *_ in importlib.import_module(name).cases():
        spec = kernel.specialize(kernel.bind(arguments, {}, is_array, describe_array))
        program, = neuron.streams(spec.captured, spec.grid, emission, spec.cores)
        emitted.append((program, [np.ascontiguousarray(a) for a in arguments if is_array(a)]))
    return emitted


def results(program: Program, inputs: list[np.ndarray], seed: int | None) -> list[np.ndarray]:
    """What it computes; an error of values that are others (an index out of bounds) stands for a result."""
    outputs = [np.zeros(v.shape, v.dtype.numpy) for v in program.of_kind("output")]
    try:
        simulate(program, [a.copy() for a in inputs], outputs, seed, step_limit=1_000_000)
    except KernelError as error:
        return [np.array([error.code])]
    return outputs


def refusal(program: Program) -> NkiMlirError | str | None:
    """The first error, or why the checker does not follow a program to its end; None for what is proved."""
    try:
        check_program(program)
    except NkiMlirError as error:
        return error
    report = check_streams([program])
    if report.verdict == "not analyzed":
        return report.not_analyzed[0]
    return report.violations[0] if report.violations else None


@pytest.mark.share(3)
@pytest.mark.fuzz
@pytest.mark.parametrize("emission", [Emission(), Emission(unroll_limit=1)], ids=["unrolled", "loops"])
@pytest.mark.parametrize("name", NAMES)
def test_mutants_of_a_kernel__are_refused_or_ordered(name, emission):
    loops = emission.unroll_limit == 1
    equivalent = EQUIVALENT | EQUIVALENT_IN_LOOPS if loops else EQUIVALENT
    tried: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for number, (program, inputs) in enumerate(programs(name, emission)):
        assert check_streams([program]).verdict == "proved"
        right = results(program, inputs, None)
        fills = loops and any(isinstance(i.op, MemsetOp) for stream in program.streams.values() for i in stream)
        other_values = OTHER_VALUES | (OTHER_VALUES_IN_LOOPS if loops else set()) | (
            OTHER_VALUES_BEHIND_MEMSET if fills else set())
        for kind, mutate in MUTATIONS.items():
            if kind in OF_ACCESSES and number and not FUZZ:
                continue
            for mutant in islice(mutate(program, random.Random(SEED)), EACH):
                tried[kind] += 1
                error = refusal(mutant)
                if isinstance(error, str):
                    assert kind in LONG_LOOPS and "they execute more than 100,000 instructions" in error, f"{kind}: {error}"
                elif error is not None:
                    assert INSTRUCTION.search(str(error)), f"{kind}: {error}"
                    assert SOURCE_LINE.search(str(error)) or isinstance(error, OF_NO_LINE), f"{kind}: {error}"
                if error is not None:
                    continue
                left[kind] += 1
                assert kind in equivalent | other_values, f"{kind} is let pass"
                expected = right if kind in equivalent else results(mutant, inputs, None)
                for seed in (None, *range(6)):
                    for one, other in zip(expected, results(mutant, inputs, seed), strict=True):
                        np.testing.assert_array_equal(one, other, f"{kind}: order {seed} gives other values")
    print(f"{sum(tried.values())} mutants of {len(tried)} kinds; of those proved: {dict(left)}")


def results_of_cores(cores: list[Program], inputs: list[np.ndarray], seed: int | None) -> list[np.ndarray]:
    outputs = [np.zeros(v.shape, v.dtype.numpy) for v in cores[0].of_kind("output")]
    simulate_cores(cores, [a.copy() for a in inputs], outputs, seed, step_limit=100_000)
    return outputs


@pytest.mark.fuzz
@pytest.mark.parametrize("limit", [50_000, 4], ids=["unrolled", "loops"])
@pytest.mark.parametrize(("kernel", "x"), [
    (test_cores.swapped(True), test_cores.X), (nki.jit(test_cores.exchanging)[2], test_cores.X),
    (test_cores.reduced[4], np.arange(192, dtype=np.float32).reshape(4, 8, 6) % 7)], ids=["barriers", "exchanges", "folds"])
def test_mutants_of_one_of_several_cores__are_refused_or_ordered(kernel, x, limit, monkeypatch):
    """A change of one core's program can break what another one reads, or hold it up."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    _, cores = test_cores.programs_of(kernel, x, unroll_limit=limit)
    assert check_streams(cores).verdict == "proved"
    right = results_of_cores(cores, [x], None)
    other_values = OTHER_VALUES | OTHER_VALUES_IN_LOOPS
    tried, proved = 0, Counter[str]()
    for kind, mutate in MUTATIONS.items():
        for changed in range(len(cores)) if FUZZ else [SEED % 2]:
            for mutant in islice(mutate(cores[changed], random.Random(SEED)), EACH):
                tried += 1
                try:
                    check_program(mutant)
                except NkiMlirError:
                    continue
                mutants = [*cores[:changed], mutant, *cores[changed + 1:]]
                report = check_streams(mutants)
                assert report.verdict != "not analyzed", kind
                if report.violations:
                    error = report.violations[0]
                    assert isinstance(error, OF_NO_LINE) or SOURCE_LINE.search(str(error)), f"{kind}: {error}"
                    continue
                proved[kind] += 1
                assert kind in EQUIVALENT | EQUIVALENT_IN_LOOPS | other_values, f"{kind} is let pass"
                expected = right if kind not in other_values else results_of_cores(mutants, [x], None)
                for seed in (None, *range(6)):
                    for one, other in zip(expected, results_of_cores(mutants, [x], seed), strict=True):
                        np.testing.assert_array_equal(one, other, f"{kind}: order {seed} gives other values")
    print(f"{tried} mutants; of those proved: {dict(proved)}")
    assert tried > 20


def test_there_are_enough_kinds():
    assert len(OF_ACCESSES) >= 19 and len(MUTATIONS) >= 65


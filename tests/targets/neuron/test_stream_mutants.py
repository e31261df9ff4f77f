# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of real kernels, broken in each way of ``stream_mutants``: the checker refuses those that nothing excuses.

`make fuzz` tries 1,000 of them, other ones each time; the ordinary run the same few. What a mutation may leave as it was
(a wait that another one implies, an operand within its own buffer) is run in adversarial orders: what was proved to be
ordered gives one result in all of them.
"""

import importlib
import os
import random
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.compat import install
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.isa.program import Program
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.checker import check_streams
from nki_mlir.targets.neuron.codegen.emission import Emission
from nki_mlir.targets.neuron.simulator import simulate
from nki_mlir.targets.neuron.validate import check_program

from .stream_mutants import MUTATIONS

EXAMPLES = Path(__file__).parents[3] / "examples"
FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
SEED = int(os.environ.get("NKI_MLIR_FUZZ_SEED", "0")) if FUZZ else 0
NAMES = ("softmax", "matmul", "tensor_add", "selective_scan", "transpose2d", "normalisation") if FUZZ else (
    "softmax", "matmul")
EACH = 5 if FUZZ else 1         # mutants of each kind of a program
# What another wait may imply, what moves within a buffer (of which a memset may have written all), or computes something
# else in good order.
EXCUSED = {"result_half_a_tile_further", "result_one_element_further",
           "removed_wait", "lower_wait", "wait_for_another_semaphore", "signal_counts_twice", "swapped_with_the_next",
           "final_wait", "operand_half_a_tile_further", "operand_one_tile_back", "removed_load", "removed_instruction",
           "shorter_clear"}


def programs(name: str) -> list[tuple[Program, list[np.ndarray]]]:
    """The streams of an example's kernels with inputs."""
    install()
    sys.path.insert(0, str(EXAMPLES))
    try:
        module = importlib.import_module(name)
    finally:
        sys.path.remove(str(EXAMPLES))
    made = []
    for kernel, arguments, *_ in module.cases():
        spec = kernel.specialize(kernel.bind(arguments, {}, is_array, describe_array))
        program, = neuron.streams(spec.captured, spec.grid, Emission(), spec.cores)
        made.append((program, [np.ascontiguousarray(a) for a in arguments if is_array(a)]))
    return made


def results(program: Program, inputs: list[np.ndarray], seed: int | None) -> list[np.ndarray]:
    outputs = [np.zeros(v.shape, v.dtype.numpy) for v in program.of_kind("output")]
    simulate(program, [a.copy() for a in inputs], outputs, seed, step_limit=1_000_000)
    return outputs


def refused(program: Program) -> bool:
    try:
        check_program(program)
    except NkiMlirError:
        return True
    return check_streams([program]).verdict == "violated"


@pytest.mark.fuzz
@pytest.mark.parametrize("name", NAMES)
def test_mutants_of_a_kernel__are_refused_or_ordered(name):
    tried: Counter[str] = Counter()
    for program, inputs in programs(name):
        assert check_streams([program]).verdict == "proved"
        for kind, mutate in MUTATIONS.items():
            for mutant in islice(mutate(program, random.Random(SEED)), EACH):
                tried[kind] += 1
                if refused(mutant):
                    continue
                assert kind in EXCUSED, kind
                first = results(mutant, inputs, None)
                for seed in range(4):
                    for one, other in zip(first, results(mutant, inputs, seed), strict=True):
                        np.testing.assert_array_equal(one, other, f"{kind}: its orders give different values")
    print(f"{sum(tried.values())} mutants of {len(tried)} kinds")


def test_there_are_enough_kinds():
    assert len(MUTATIONS) >= 30


# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results that kernels of linked programs store in parts: memory that no part writes is 0, whatever was there before."""

from functools import partial

import numpy as np
import pytest

from nki_mlir.frameworks.stablehlo import LinkedProgram, linked_streams
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.targets.neuron.codegen import candidate_code
from nki_mlir.targets.neuron.codegen.emission import Emission
from nki_mlir.targets.neuron.codegen.forward_stores import forward_stores
from nki_mlir.targets.neuron.simulator import simulate

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.jax

X = np.random.default_rng(0).standard_normal((128, 8), np.float32)
ALL, UPPER, LOWER = slice(128), slice(64), slice(64, 128)
# The parts, and whether the program joins their tiles to the one that the graph reads.
PARTS = {
    "columns": ([(ALL, slice(3, 8)), (ALL, slice(3))], True),
    "blocks": ([(UPPER, slice(6)), (LOWER, slice(6, 8)), (LOWER, slice(6)), (UPPER, slice(6, 8))], False),
    "odd and even columns": ([(ALL, slice(1, 8, 2)), (ALL, slice(0, 8, 2))], False),
    "overlapping columns": ([(ALL, slice(5)), (ALL, slice(3, 8))], False),
    "all but an element": ([(UPPER, slice(8)), (LOWER, slice(4)), (slice(64, 127), slice(4, 8)), (slice(127, 128), slice(4, 7))],
                           False),
    "more elements than the result, and a hole": ([(ALL, slice(6)), (UPPER, slice(2, 8)), (LOWER, slice(2, 7))], False),
    "odd columns, twice": ([(ALL, slice(1, 8, 2)), (ALL, slice(1, 8, 2)), (ALL, slice(0, 7, 4))], False),
}


def storing(parts):
    """Return a kernel that doubles these parts of its argument, each in a separate tile."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for rows, columns in parts:
            nl.store(out[rows, columns], nl.multiply(nl.load(x[rows, columns]), 2.0))
        return out
    return kernel


@pytest.mark.parametrize(("parts", "joins"), PARTS.values(), ids=PARTS)
def test_results_in_parts(parts, joins, monkeypatch):
    kernel, expected = storing(parts), np.zeros_like(X)
    for rows, columns in parts:
        expected[rows, columns] = 4 * X[rows, columns]
    np.testing.assert_array_equal(kernel.on("interpreter")(2 * X), expected)
    text = jax.jit(lambda x: (result := kernel(2 * x), result + 1)).trace(X).lower(
        lowering_platforms=("neuron",)).as_text()
    linked = LinkedProgram(text)
    assert linked.is_one_program
    runs, streams = [lambda results: linked.run([X], results)], []
    for join in True, False:
        monkeypatch.setattr(candidate_code, "forward_stores", partial(forward_stores, join=join))
        program, = linked_streams(text, Emission())
        streams.append(program.streams)
        runs.append(lambda results, program=program: simulate(program, [X], results))
    assert (sum(map(len, streams[0].values())) < sum(map(len, streams[1].values()))) == joins
    for run in runs:
        results = [np.full_like(X, 9) for _ in range(2)]        # whatever the memory had before
        run(results)
        np.testing.assert_array_equal(results[0], expected)
        np.testing.assert_array_equal(results[1], expected + 1)

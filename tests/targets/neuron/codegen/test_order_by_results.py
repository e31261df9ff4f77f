# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Orders in which one result is complete before the next: values, dependences, fewer live tiles."""

from itertools import pairwise

import numpy as np
import pytest

from nki_mlir.dialects.access import SBUF
from nki_mlir.targets.neuron.checker import check_streams
from nki_mlir.targets.neuron.codegen.dependences import RunDependences
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.liveness import Liveness, peak
from nki_mlir.targets.neuron.codegen.order_by_results import order_by_results
from nki_mlir.targets.neuron.simulator import simulate
from tests.targets.neuron.code_builder import Builder

ROWS, COLUMNS = 8, 2048


def steps():
    """Doubles of rows, then their squares, then sums of these with the rows: each step for all rows at once."""
    b = Builder()
    x, y = b.hbm("x", (128 * ROWS, COLUMNS), "input"), b.hbm("y", (128 * ROWS, COLUMNS), "output")
    tiles = [[b.on_chip(f"{name}{k}", (128, COLUMNS)) for k in range(ROWS)] for name in "abc"]
    for k, tile in enumerate(tiles[0]):
        b.copy((tile, 0, 128, 0, COLUMNS), (x, 128 * k, 128, 0, COLUMNS))
    for sources, results in pairwise(tiles):
        for source, result in zip(sources, results):
            b.add((result, 0, 128, 0, COLUMNS), (source, 0, 128, 0, COLUMNS), (source, 0, 128, 0, COLUMNS))
    for k, tile in enumerate(tiles[-1]):
        b.copy((y, 128 * k, 128, 0, COLUMNS), (tile, 0, 128, 0, COLUMNS))
    return b.code, x, y


def test_each_result_is_complete_before_the_next_begins():
    code, x, y = steps()
    live = [life for life in Liveness(code).of.values() if life.buffer.space == SBUF]
    written = list(code.body.nodes)
    before = RunDependences().of([step.op for step in written]).lists
    assert peak(live)[0] >= ROWS * 4 * COLUMNS and order_by_results(code)
    assert peak([life for life in Liveness(code).of.values() if life.buffer.space == SBUF])[0] == 2 * 4 * COLUMNS
    position = {step: at for at, step in enumerate(code.body.nodes)}
    assert len(position) == len(written)
    assert all(position[written[other]] < position[step] for step, earlier in zip(written, before) for other in earlier)
    assert not order_by_results(code)


@pytest.mark.parametrize("options", [Emission(), Emission(by_results=False)], ids=["default", "off"])
def test_values__stay(options):
    code, x, y = steps()
    values = np.random.default_rng(0).standard_normal((128 * ROWS, COLUMNS)).astype(np.float32)
    result = np.zeros(y.shape, np.float32)
    program = emit_code(code, options)
    assert check_streams([program]).violations == []
    simulate(program, [values.copy()], [result], 1)
    np.testing.assert_array_equal(result, 4 * values)

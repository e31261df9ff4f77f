# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order that emission chooses where several are timed."""

import random

import numpy as np
import pytest

from nki_mlir.targets.neuron.codegen import emission
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.simulator import simulate
from nki_mlir.targets.neuron.timing import time_programs
from tests.targets.neuron.random_code import RandomCode


def time_of(seed: int, options: Emission) -> float:
    return time_programs([emit_code(RandomCode(seed).code, options)]).total_ns


@pytest.mark.parametrize("seed", range(6))
def test_searched_order__is_not_slower_than_any_it_was_chosen_from(seed: int) -> None:
    found = time_of(seed, Emission(search=True))
    assert found <= time_of(seed, Emission(reorder=False)) + 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_searched_order__computes_the_same(seed: int) -> None:
    code = RandomCode(seed)
    program = emit_code(code.code, Emission(search=True))
    for run in (None, *range(4)):
        made = np.zeros(code.output.shape, np.float32)
        simulate(program, [a.copy() for a in code.arrays], [made], run)
        np.testing.assert_array_equal(made, code.expected())


def test_as_written__writes_out_more_than_by_default() -> None:
    assert Emission.as_written().unroll_limit > Emission().unroll_limit and Emission.as_written().search


def test_searched_order__is_the_same_each_time() -> None:
    seed = random.Random(1).randint(0, 100)
    assert time_of(seed, Emission(search=True)) == time_of(seed, Emission(search=True))


@pytest.mark.parametrize("limits", [(0, 50_000), (0, 0)], ids=["large", "huge"])
def test_searched_order_of_much_code__computes_the_same(limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more code fewer orders are timed, of very much the first that fits is taken."""
    monkeypatch.setattr(emission, "LARGE", limits[0])
    monkeypatch.setattr(emission, "HUGE", limits[1])
    code = RandomCode(5)
    program = emit_code(code.code, Emission(search=True))
    made = np.zeros(code.output.shape, np.float32)
    simulate(program, [a.copy() for a in code.arrays], [made], 1)
    np.testing.assert_array_equal(made, code.expected())

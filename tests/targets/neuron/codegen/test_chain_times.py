# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machine code adds the times of chains to the same numbers as Python does, and spreads steps over the same engines."""

import pytest

from nki_mlir.targets.neuron.codegen import chain_times, spread_steps
from tests.targets.neuron.crowded_code import graphs_of, program


@pytest.mark.parametrize("seed", range(3))
def test_machine_code_adds_the_same_times(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for is_code in (False, True):
        for compiled in (chain_times.TIMES, chain_times.RESTS, spread_steps.CODE):
            if is_code and not compiled.functions:
                compiled.load(compiles=True)
            monkeypatch.setattr(compiled, "is_ready", lambda work, is_code=is_code: is_code)
        results.append([(graph.in_program_order, graph.path_lengths.tolist(), graph.least_rests(2, True).tolist(),
                         [choices[0].engine for choices in graph.shared(3, False)])
                        for graph in graphs_of(program(seed, 20, "trn2", loop_at=14), False)])
    assert results[0] == results[1]
    assert all(in_order >= max(least) and len(rests) == len(least) for in_order, rests, least, _ in results[0])

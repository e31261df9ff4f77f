# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the candidates of a search share, or leave out: the result is as if each computed all of it alone."""

import math
from dataclasses import replace
from typing import Any

import pytest

from nki_mlir.machine import machine_named
from nki_mlir.targets.neuron.codegen import candidate_code, candidate_programs
from nki_mlir.targets.neuron.codegen.candidate_code import SharedCode, expanded, with_instructions
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.program_order import prepared_alone
from nki_mlir.targets.neuron.codegen.records import Block, Code, steps_in
from nki_mlir.targets.neuron.codegen.schedule_instructions import Arrangement, Schedules
from nki_mlir.targets.neuron.codegen.scheduling_order import Order
from nki_mlir.targets.neuron.codegen.search_options import Candidate
from nki_mlir.targets.neuron.codegen.unroll_loops import BODY
from tests.targets.neuron.codegen.test_merge_instructions import Mixture
from tests.targets.neuron.codegen.test_merge_loads import Mixture as Loads
from tests.targets.neuron.random_code import RandomCode

PLAIN = Candidate(BODY, BODY, loads=True)


def forms_of(code: Code) -> list[object]:
    return [(step.op.outline(), step.location) for step in steps_in(code.body)]


@pytest.mark.parametrize("seed", range(6))
def test_shared_code__equals_code_of_one_candidate(seed: int) -> None:
    shared = SharedCode(Mixture(seed).b.code)
    for candidate in (PLAIN._replace(merge=True, transposes=50), PLAIN, PLAIN._replace(merge=True),
                      PLAIN._replace(merge_loads=True), PLAIN._replace(merge=True, results=50)):
        alone = with_instructions(expanded(Mixture(seed).b.code, candidate), candidate)
        together = shared.instructions(candidate)
        assert forms_of(together.code) == forms_of(alone.code)
        assert (len(together.dropped), together.changes) == (len(alone.dropped), alone.changes)


@pytest.mark.parametrize("candidate", [PLAIN, PLAIN._replace(merge=True), PLAIN._replace(merge=True, transposes=100)],
                         ids=["plain", "merged", "transposed"])
def test_copies__do_not_see_what_passes_change_in_others(candidate: Candidate) -> None:
    shared = SharedCode(Mixture(1).b.code)
    first = shared.instructions(candidate)
    before = forms_of(first.code)
    for step in steps_in(first.code.body):
        step.op = None                          # type: ignore[assignment]
    first.code.body.nodes.clear()
    first.code.body.buffers.clear()
    first.code.notes.append("changed")
    again = shared.instructions(candidate)
    assert forms_of(again.code) == before and again.code.body.buffers and "changed" not in again.code.notes


@pytest.mark.parametrize("seed", range(6))
def test_loads_merge__says_whether_the_candidate_has_fewer_loads(seed: int) -> None:
    code = Loads(seed).b.code
    shared = SharedCode(code)
    counts = [len(forms_of(shared.instructions(candidate).code))
              for candidate in (PLAIN, PLAIN._replace(merge_loads=True))]
    assert shared.loads_merge(PLAIN) == shared.loads_merge(PLAIN) == (counts[1] < counts[0])
    assert not SharedCode(replace(code, body=Block())).loads_merge(PLAIN)


def test_candidates_with_the_same_loads__share_their_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, derived = SharedCode(Mixture(1).b.code), list[Candidate]()

    def note(code: Code, candidate: Candidate, **others: Any) -> Any:
        derived.append(candidate)
        return with_instructions(code, candidate, **others)
    monkeypatch.setattr(candidate_code, "with_instructions", note)
    for variant in (PLAIN, PLAIN._replace(overwrite=True), PLAIN._replace(results=50, by_results=True)):
        shared.instructions(variant)
    shared.loads_merge(PLAIN)
    shared.instructions(PLAIN._replace(loads=False))
    assert derived == [PLAIN, PLAIN._replace(loads=False)]


@pytest.mark.parametrize("missed", [1.0, 1.02, 1.05])
@pytest.mark.parametrize("brief", [False, True])
def test_orders_that_are_longer_by_their_estimates__are_not_timed(monkeypatch: pytest.MonkeyPatch, missed: float,
                                                                  brief: bool) -> None:
    """If the first order takes ``missed`` times its estimate, all others nearly do, unless it is much longer."""
    monkeypatch.setattr(candidate_programs, "BRIEF", 1000 if brief else 0)
    shorter = 0
    for seed in range(8):
        prepared = prepared_alone(RandomCode(seed, 60, loops=False).code, PLAIN,
                                  EngineChoice(machine_named("trn2")))
        best, estimates = math.inf, list[float]()
        for arrangement, _ in prepared.programs(1, lambda: best):
            if arrangement.ns < math.inf:
                best = min(best, arrangement.ns * missed)
                prepared.record(arrangement, arrangement.ns * missed)
                estimates.append(arrangement.ns)
        likely = [estimate for estimate in estimates if estimate <= estimates[0] * candidate_programs.ALIKE]
        if not brief and missed <= candidate_programs.GOOD:
            assert estimates == likely
        shorter += len(likely) < len(estimates)
    assert bool(shorter) == (brief or missed > candidate_programs.GOOD)


@pytest.mark.parametrize("known", [0.9, 0.98, 1.0])
def test_orders_that_would_not_be_timed__are_not_computed_to_their_end(monkeypatch: pytest.MonkeyPatch, known: float
                                                                       ) -> None:
    """The same programs are timed as if they were: their estimates are too long, whatever the others are."""
    within, ended = Schedules.arrangement_within, list[bool]()
    monkeypatch.setattr(candidate_programs, "HOPELESS", 4.0)        # random code is far from its bound

    def timed(code: Code, limited: bool) -> list[tuple[object, ...]]:
        def arrangement(self: Schedules, order: Order, most: float) -> Arrangement | None:
            result = within(self, order, most if limited else math.inf)
            ended.append(result is not None)
            return result
        monkeypatch.setattr(Schedules, "arrangement_within", arrangement)
        prepared = prepared_alone(code, PLAIN, EngineChoice(code.machine))
        ns = next(prepared.arrangements(1, math.inf, math.inf, prepared.search(1))).ns * known
        return [arrangement[:2] for arrangement, _ in prepared.programs(1, lambda: ns)]
    for seed in range(8):
        first, second = (timed(RandomCode(seed, 60, loops=False).code, limited) for limited in (True, False))
        assert first == second
    assert not all(ended)

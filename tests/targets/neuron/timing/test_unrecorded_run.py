# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The machine without a record ends when the timed machine does, as machine code and as Python."""

from math import inf

import pytest

from nki_mlir.machine import machine_named
from nki_mlir.targets.neuron.codegen import program_order
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.timing import unrecorded_run
from nki_mlir.targets.neuron.timing.machine import EventLimit, TimedMachine
from nki_mlir.targets.neuron.timing.streams import streams_of
from nki_mlir.targets.neuron.timing.unrecorded_run import UnrecordedRun, end_of_run, unrecorded_end
from tests.targets.neuron.random_code import RandomCode
from tests.targets.neuron.timing.streams import copy, load, program

LIMIT = 100_000


@pytest.fixture(autouse=True)
def code(monkeypatch):
    if not unrecorded_run.CODE.functions:
        unrecorded_run.CODE.load(compiles=True)
    monkeypatch.setattr(unrecorded_run.CODE, "is_ready", lambda work: True)


class KnownCounts(RandomCode):
    """Code whose loops end at known numbers: the machine without a record loads none."""

    def counted_at_run_time(self, steps, depth):
        self.steps(steps, depth + 1)


def recorded_end(emitted, limit=LIMIT):
    run = TimedMachine([emitted], limit=limit)
    run.run()
    return run.end


def python_end(emitted, limit=LIMIT):
    machine = machine_named(emitted.target)
    return end_of_run(UnrecordedRun(emitted, machine, streams_of(emitted, machine, 0, 1), limit), False)


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("options", [Emission(), Emission.in_program_order(), Emission.of_loops()],
                         ids=["fastest", "order", "loops"])
@pytest.mark.parametrize("seed", range(6))
def test_random_code__ends_when_the_timed_machine_does(seed, options, target):
    emitted = emit_code(KnownCounts(seed, 60).code, options)
    emitted.target = target                             # on trn1 engines share ports
    assert unrecorded_end(emitted, LIMIT) == python_end(emitted) == recorded_end(emitted) > 0


def test_more_signals_than_there_is_room_for__wait_for_more():
    """Nothing waits for what the transfers signal."""
    emitted = program({"sp": [load(rows=1 + k % 128, queue=k % 2) for k in range(300)]})
    assert unrecorded_end(emitted, LIMIT) == python_end(emitted) == recorded_end(emitted)


def looping(times):
    return program({"dve": ["MOVE dst=r0 value=0", copy(0x1000, 0x0), "ALU op=add dst=r0 lhs=r0 rhs=1",
                            f"COMPARE_BRANCH op=lt lhs=r0 rhs={times} target=0001"]})


def test_loop_that_takes_too_long__ends_never():
    assert unrecorded_end(looping(40), 90) == python_end(looping(40), 90) == inf
    assert unrecorded_end(looping(40), 130) == recorded_end(looping(40))
    with pytest.raises(EventLimit, match="the program has not ended after 90 instructions"):
        recorded_end(looping(40), 90)


@pytest.mark.parametrize("op", ["add", "subtract", "mult", "min", "max", "floordiv", "mod", "and", "or", "eq", "ne", "lt",
                                "le", "gt", "ge"])
def test_registers__compute_as_those_of_the_timed_machine(op):
    """The loop has as many iterations as the result has."""
    operands = [(lhs, rhs) for lhs in (-7, -6, 0, 3, 6, 2**31 - 1) for rhs in (-3, 1, 3, 2**30)
                if rhs > 0 or op not in ("floordiv", "mod")]
    emitted = [program({"dve": [
        f"MOVE dst=r0 value={lhs}", f"MOVE dst=r1 value={rhs}", f"ALU op={op} dst=r2 lhs=r0 rhs=r1",
        "ALU op=mod dst=r2 lhs=r2 rhs=17", copy(0x1000, 0x0), "ALU op=subtract dst=r2 lhs=r2 rhs=1",
        "COMPARE_BRANCH op=ge lhs=r2 rhs=0 target=0004"]}) for lhs, rhs in operands]
    ends = [unrecorded_end(one, LIMIT) for one in emitted]
    assert ends == [python_end(one) for one in emitted] == [recorded_end(one) for one in emitted]
    assert len(set(ends)) > 1


@pytest.mark.parametrize("line", ["ALU op=mod dst=r0 lhs=7 rhs=-2", "ALU op=floordiv dst=r0 lhs=7 rhs=0",
                                  "S[1] (Scalar)>=9 EVENT_SEMAPHORE", "TENSOR_LOAD dst=r0 src=int32@0x0[1][1]*1"])
def test_programs_that_it_does_not_execute__are_those_of_the_timed_machine(line):
    assert unrecorded_end(program({"dve": [line]}), LIMIT) is None


def test_search__asks_the_timed_machine_where_the_code_is_not_compiled(monkeypatch):
    emitted = looping(3)
    monkeypatch.setattr(unrecorded_run.CODE, "is_ready", lambda work: False)
    assert unrecorded_end(emitted, LIMIT) is None and program_order.end_of(emitted) == recorded_end(emitted)

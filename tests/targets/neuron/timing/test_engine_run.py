# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The timed machine records the same as a plain one, as machine code and as Python, with a record and without."""

import pytest

from nki_mlir.dialects.isa.program import Program
from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.codegen import program_order
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.deadlock import Deadlock
from nki_mlir.targets.neuron.timing import engine_run, machine
from nki_mlir.targets.neuron.timing.machine import EventLimit, TimedMachine
from nki_mlir.targets.neuron.timing.record import Record
from tests.targets.neuron.random_code import RandomCode
from tests.targets.neuron.timing.plain_machine import PlainMachine
from tests.targets.neuron.timing.streams import copy, load, program

COLUMNS = "agent", "position", "start", "end", "complete", "why", "cause"


@pytest.fixture(autouse=True)
def code():
    if not engine_run.CODE.functions:
        engine_run.CODE.load(compiles=True)


def ways(monkeypatch: pytest.MonkeyPatch, *arguments, **options) -> list[TimedMachine]:
    """Return the runs of programs as machine code and as Python."""
    runs = []
    for is_code in (True, False):
        monkeypatch.setattr(engine_run.CODE, "is_ready", lambda work, is_code=is_code: is_code)
        runs.append(TimedMachine(*arguments, **options))
        runs[-1].run()
    return runs


def contents(record: Record) -> list[object]:
    movements = [(event, *movement[:-1], list(map(tuple, movement.signals)))
                 for event, movement in record.movements.items()]
    return [*[getattr(record, name) for name in COLUMNS], movements, record.later_events]


def compare(monkeypatch: pytest.MonkeyPatch, programs: list[Program], loaded=None, ramps: bool = True) -> None:
    """Compare the runs of programs with a plain one's."""
    plain = PlainMachine(programs, loaded, ramps=ramps)
    plain.run()
    ends = {plain.end} | {run.end for run in ways(monkeypatch, programs, loaded, ramps=ramps, records=False)}
    for run in ways(monkeypatch, programs, loaded, ramps=ramps):
        assert contents(run.record) == contents(plain.record)
        assert [(c.dma_ns, c.hbm_bytes) for c in run.cores] == [(c.dma.busy, c.hbm_bytes) for c in plain.cores]
        assert [(state.limited, state.lost_ns) for state in run.ramp_states().values()] == [
            (agent.ramp.limited, agent.ramp.lost_ns) for agent in plain.agents if agent.ramp is not None]
        ends.add(run.end)
    assert len(ends) == 1


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("options", [Emission(), Emission.in_program_order(), Emission.of_loops()],
                         ids=["fastest", "order", "loops"])
@pytest.mark.parametrize("seed", range(6))
def test_random_code__is_timed_as_by_a_plain_machine(monkeypatch, seed, options, target):
    """Loops end at numbers from memory, which nobody knows."""
    emitted = emit_code(RandomCode(seed, 60).code, options)
    emitted.target = target                             # on trn1 engines share ports
    compare(monkeypatch, [emitted], ramps=seed % 2 == 0)


@pytest.mark.parametrize("seed", range(3))
def test_cores__share_the_memory(monkeypatch, seed):
    compare(monkeypatch, [emit_code(RandomCode(seed + k, 60).code, Emission()) for k in range(2)])


def exchanging(core: int, *between: str) -> Program:
    """The program of a core that exchanges data twice in each iteration, with other work between."""
    exchange = (f"DMA_SENDRECV queue=0 send_to={1 - core} receive_from={1 - core} dst=fp32@0x20[1][512] "
                "src=fp32@0x1020[1][512] channels=128 pipe=0 S[4] (qSyncIO0)+=16@complete")
    return program({"sp": ["MOVE dst=r0 value=0", *between, exchange, exchange, "ALU op=add dst=r0 lhs=r0 rhs=1",
                           "COMPARE_BRANCH op=lt lhs=r0 rhs=3 target=0001"]})


def test_cores__meet_in_transfers(monkeypatch):
    compare(monkeypatch, [exchanging(0), exchanging(1, load(rows=16, dst=0x2000), load(rows=128, dst=0x3000))])


def test_cores__meet_in_barriers(monkeypatch):
    barrier = "CORE_BARRIER cores=(0,1) data=fp32@y[1,8192][8192,4096]"
    iota = "IOTA dst=int32@0x8000[1][512] expression=0+1*d1 channels=128"
    compare(monkeypatch, [program({"pool": [barrier, iota, barrier]}), program({"pool": [iota, barrier, iota, barrier]})])


def test_numbers_that_the_caller_knows__are_loaded_in_order(monkeypatch):
    loop = ["TENSOR_LOAD dst=r0 src=int32@0x0[1][1]*1", copy(0x1000, 0x0), "ALU op=subtract dst=r0 lhs=r0 rhs=1",
            "COMPARE_BRANCH op=gt lhs=r0 rhs=0 target=0001", "COMPARE_BRANCH op=eq lhs=r0 rhs=0 target=0000"]
    compare(monkeypatch, [program({"dve": loop})], {(0, Engine.VECTOR): [3, 1, 5]})
    compare(monkeypatch, [program({"dve": loop})], {(0, Engine.VECTOR): []})


def test_more_events_than_there_is_room_for__wait_for_more(monkeypatch):
    """Nothing waits for what the transfers signal; notes of events are recorded every few."""
    monkeypatch.setattr(machine, "NOTED", 7)
    compare(monkeypatch, [program({"sp": [load(rows=1 + k % 128, queue=k % 2) for k in range(300)]})])


def looping(times):
    return program({"dve": ["MOVE dst=r0 value=0", copy(0x1000, 0x0), "ALU op=add dst=r0 lhs=r0 rhs=1",
                            f"COMPARE_BRANCH op=lt lhs=r0 rhs={times} target=0001"]})


def test_loop_that_takes_too_long__is_an_error(monkeypatch):
    assert len({run.end for run in ways(monkeypatch, [looping(40)], limit=130)}) == 1
    for is_code in (True, False):
        monkeypatch.setattr(engine_run.CODE, "is_ready", lambda work, is_code=is_code: is_code)
        with pytest.raises(EventLimit, match="the program has not ended after 90 instructions"):
            TimedMachine([looping(40)], limit=90).run()
    monkeypatch.setattr(program_order, "EXECUTED", 90)
    assert program_order.end_of(looping(40)) == float("inf")


@pytest.mark.parametrize("op", ["add", "subtract", "mult", "min", "max", "floordiv", "mod", "and", "or", "eq", "ne", "lt",
                                "le", "gt", "ge"])
def test_registers__compute_as_those_of_a_plain_machine(monkeypatch, op):
    """The loop has as many iterations as the result has."""
    for lhs, rhs in [(lhs, rhs) for lhs in (-7, -6, 0, 3, 6, 2**31 - 1) for rhs in (-3, 1, 3, 2**30)]:
        compare(monkeypatch, [program({"dve": [
            f"MOVE dst=r0 value={lhs}", f"MOVE dst=r1 value={rhs}", f"ALU op={op} dst=r2 lhs=r0 rhs=r1",
            "ALU op=mod dst=r2 lhs=r2 rhs=17", copy(0x1000, 0x0), "ALU op=subtract dst=r2 lhs=r2 rhs=1",
            "COMPARE_BRANCH op=ge lhs=r2 rhs=0 target=0004"]})])


@pytest.mark.parametrize("is_code", [True, False])
@pytest.mark.parametrize("line,error,message", [
    ("ALU op=floordiv dst=r0 lhs=7 rhs=0", None, "floordiv"),
    ("S[1] (Scalar)>=9 EVENT_SEMAPHORE", Deadlock, "9")])
def test_programs_that_cannot_end__are_errors(monkeypatch, line, error, message, is_code):
    monkeypatch.setattr(engine_run.CODE, "is_ready", lambda work: is_code)
    with pytest.raises(error or Exception, match=message):
        TimedMachine([program({"dve": ["MOVE dst=r0 value=1", line]})]).run()

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a run says: engines' times and the critical path add up to the whole, which an independent longest path gives."""

import itertools
import random

import pytest

from nki_mlir.dialects.isa.instruction import EventSemaphore
from nki_mlir.dialects.isa.program import Semaphore
from nki_mlir.dialects.op import Op
from nki_mlir.machine import machine_named
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.timing import time_programs
from nki_mlir.targets.neuron.timing.machine import TimedMachine
from nki_mlir.targets.neuron.timing.record import critical_path
from nki_mlir.targets.neuron.timing.result import VERSION
from tests.targets.neuron.random_code import RandomCode
from tests.targets.neuron.timing.streams import activation, copy, load, program, ran

TRN2 = machine_named("trn2")


def random_streams(seed: int, count: int = 200) -> dict[str, list[str]]:
    """Copies on two engines that wait for each other at random, as an order of all of them allows."""
    rng = random.Random(seed)
    streams: dict[str, list[str]] = {"dve": [], "act": []}
    counts = {"dve": 0, "act": 0}
    signal = {"dve": "S[0] (Vector)", "act": "S[1] (Scalar)"}
    for _ in range(count):
        engine = rng.choice(("dve", "act"))
        other = "act" if engine == "dve" else "dve"
        waits = f"{signal[other]}>={rng.randint(1, counts[other])}" if counts[other] and rng.random() < 0.6 else ""
        n = rng.choice((1, 100, 700))
        streams[engine].append(copy(0x1000 * rng.randint(0, 9), 0x1000 * rng.randint(0, 9), n, waits=waits,
                                    signals=f"{signal[engine]}++@complete"))
        counts[engine] += 1
    return streams


def longest_path(streams: dict[str, list[str]]) -> float:
    """The end by another way: each instruction's start from all that it comes after, again until none moves."""
    parsed = program(streams)
    engines = [e for e, s in parsed.streams.items() if s]
    nodes = [(e, at) for e in engines for at in range(len(parsed.streams[e]))]
    cost = {}
    for e, at in nodes:
        op = parsed.streams[e][at].op
        assert isinstance(op, Op)
        cost[e, at] = TRN2.cost(e, op.work())
    start = dict.fromkeys(nodes, 0.0)

    def end(node):
        return start[node] + cost[node].busy

    def seen(node):
        e, at = node
        return max(end((e, k)) + cost[e, k].result for k in range(at + 1))

    def first_and_size(node, role):
        tile = {f.name: t for f, t in parsed.streams[node[0]][node[1]].op.operands()}[role]
        return tile.access.free.const * 4, tile.free_elements * 4

    def reads(node, producer):
        (first, size), (other, length) = first_and_size(node, "src"), first_and_size(producer, "dst")
        return first < other + length and other < first + size
    moved = True
    while moved:
        moved = False
        for e, at in nodes:
            earliest = end((e, at - 1)) if at else 0.0
            for k in range(max(0, at - 4), at):
                if reads((e, at), (e, k)):
                    earliest = max(earliest, end((e, k)) + cost[e, k].result_in_engine)
            for wait in parsed.streams[e][at].waits:
                producer = next(p for p in engines if parsed.streams[p][0].update.semaphore == wait.semaphore)
                earliest = max(earliest, seen((producer, wait.value - 1)))
            if earliest > start[e, at]:
                start[e, at], moved = earliest, True
    return max(seen((e, len(parsed.streams[e]) - 1)) for e in engines)


@pytest.mark.parametrize("seed", range(8))
def test_the_end_is_that_of_the_longest_path(seed):
    streams = random_streams(seed)
    assert ran(streams).end == pytest.approx(longest_path(streams))


def checked(timing):
    """Busy and stalled times, and the pieces of the path, add up."""
    for core in timing.cores:
        for engine, busy in core.busy_ns.items():
            assert busy + sum(core.stall_ns[engine].values()) == pytest.approx(timing.total_ns)
    assert sum(share["ns"] for share in timing.path) == pytest.approx(timing.total_ns, rel=1e-12)
    return timing


@pytest.mark.parametrize("seed", range(8))
def test_times_of_random_code_add_up(seed):
    code = RandomCode(seed).code
    emitted = emit_code(code, Emission(unroll_limit=random.Random(seed).choice((1, 50_000))))
    timing = checked(time_programs([emitted]))
    assert timing.total_ns > timing.launch_ns
    assert timing.hbm_bytes > 0


@pytest.mark.parametrize("seed", range(8))
def test_pieces_of_the_path_follow_each_other(seed):
    machine = TimedMachine([emit_code(RandomCode(seed).code, Emission())])
    machine.run()
    pieces = critical_path(machine.record)
    assert pieces[0].begin == 0.0 and pieces[-1].end == machine.end
    assert all(one.end == other.begin for one, other in itertools.pairwise(pieces))


def test_time_is_the_same_each_time():
    emitted = emit_code(RandomCode(3).code, Emission())
    assert time_programs([emitted]) == time_programs([emitted])


def test_stalls_have_their_cause():
    timing = checked(time_programs([program({
        "sp": [load()],
        "dve": [copy(0x3000, 0x0, waits="S[4] (qSyncIO0)>=16", signals="S[0] (Vector)++@complete"),
                copy(0x5000, 0x3000)],
        "act": [activation(0x8000, 0x3000, waits="S[0] (Vector)>=1")]})]))
    figures = timing.figures()
    cost = TRN2.costs
    stalls = figures["stall_ns"]
    assert stalls["vector"]["dma"] > cost.dma.trigger_ns + cost.dma.notify_ns
    assert stalls["vector"]["own result"] == pytest.approx(98)
    assert stalls["scalar"]["vector"] > 0 and stalls["sync"]["end"] > 0
    assert figures["busy_ns"]["sync"] == cost.dma.issue_ns


@pytest.mark.parametrize(("name", "cause"), [("Barrier", "barrier"), ("GoScalar", "barrier"), ("VectorForScalar", "vector"),
                                             ("Gather", "vector")])
def test_a_signal_by_itself__is_a_barrier_or_tells_what_its_engine_has_done(name, cause):
    signaling = program({"dve": [copy(0x3000, 0x0), "EVENT_SEMAPHORE S[3] (GpSimd)++@complete"],
                          "act": [activation(0x8000, 0x3000, waits="S[3] (GpSimd)>=1")]})
    signaling.semaphores[3] = Semaphore(name)
    stalls = time_programs([signaling]).figures()["stall_ns"]["scalar"]
    assert stalls[cause] > 0 and not {"barrier", "vector"} - {cause} & stalls.keys()


def test_loads_of_functions__are_stalls_of_their_own():
    timing = checked(time_programs([program({"act": [
        "ACT_TABLE_LOAD table=exp", activation(0x8000, 0x3000), "ACT_TABLE_LOAD table=tanh",
        activation(0x8000, 0x3000)]})]))
    assert timing.figures()["stall_ns"]["scalar"]["table load"] == 2 * TRN2.costs.control.table_load_ns
    assert [share["ns"] for share in timing.path if share["instruction"] == "ACT_TABLE_LOAD"] == [
        pytest.approx(2 * TRN2.costs.control.table_load_ns)]


def test_the_json_form():
    figures = time_programs([program({"sp": [load()], "dve": [EventSemaphore.mnemonic, copy(0x3000, 0x0)]})]).figures()
    assert figures["version"] == VERSION == 1
    assert list(figures) == ["version", "kernel", "target", "mode", "total_ns", "interval_ns", "confidence", "launch_ns", "busy_ns", "stall_ns",
                             "dma_ns", "hbm_bytes", "instructions", "instructions_per_engine", "critical_path", "laws", "cores", "notes"]
    assert figures["instructions"] == 3 and figures["instructions_per_engine"]["vector"] == 2
    assert figures["kernel"] == "k" and figures["target"] == "trn2" and figures["mode"] == "optimized"
    assert {"ns", "engine", "instruction", "what", "location"} == set(figures["critical_path"][0])

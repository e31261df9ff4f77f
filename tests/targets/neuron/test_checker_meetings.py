# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Meetings of several cores as the checker follows them: each gathers one event of each core."""

from dataclasses import replace

import numpy as np
import pytest

from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.nisa.meeting import Meeting
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta.typing import scalar
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current_nki
from nki_mlir.targets.neuron import streams
from nki_mlir.targets.neuron.checker import LONGER_RUNS, check_streams
from nki_mlir.targets.neuron.checker.trace import Choices, CoreMeeting, StreamTrace
from nki_mlir.targets.neuron.checker.violations import UnorderedMeetings
from nki_mlir.targets.neuron.codegen.emission import Emission
from nki_mlir.targets.neuron.deadlock import Deadlock
from nki_mlir.targets.neuron.format.assembly import parse_program, print_program
from nki_mlir.targets.neuron.simulator import simulate_cores
from nki_mlir.targets.neuron.validate import check_program

from .test_cores import X, programs_of, swapped


@pytest.mark.parametrize("limit", [50_000, 4], ids=["written out", "register loop"])
def test_each_meeting_gathers_one_event_of_each_core(limit, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    _, programs = programs_of(swapped(True), X, unroll_limit=limit)
    trace = StreamTrace(programs, Choices(), 10_000)
    meetings = [step.events for step in trace.steps if isinstance(step, CoreMeeting)]
    assert len(meetings) % 4 == 0 and len(meetings) >= 4            # two barriers in each of two iterations
    for events in meetings:
        assert sorted(event.core for event in events) == [0, 1]
    for core in (0, 1):
        indices = [event.index for events in meetings for event in events if event.core == core]
        assert indices == sorted(set(indices))                      # each event meets once, in the order of its lane
    report = check_streams(programs)
    assert not report.violations and not report.not_analyzed


def meeting_in_a_loop(count_of):
    """Programs of a grid that meet in each iteration of a loop of which data decide the number. The first one has
    further tiles, so the loop's number has another address there."""
    @nki.jit
    def kernel(x, n):
        out = nl.ndarray((2, 4, 8), nl.float32, buffer=nl.shared_hbm)
        g = nl.program_id(0)
        if g == 0:
            kept = nl.add(nl.load(x[0:4]), 1.0)
            nl.store(out[g], kept)
        left = nl.load(n[g:g + 1])
        going = scalar(True)
        while going:
            total = nl.all_reduce(nl.load(x[0:4]), op=np.add, program_axes=0)
            nl.store(out[g], total)
            left[...] = nl.subtract(left, 1)
            going = scalar(left)
        return out
    x, n = np.ones((4, 8), np.float32), np.array(count_of, np.int32)[:, None]
    return kernel, x, n


def test_cores_whose_data_decide_alike__do_not_deadlock():
    kernel, x, n = meeting_in_a_loop((2, 2))
    of = kernel[2].lower(x, n).specialization
    programs = streams(of.captured, of.grid, Emission(reorder=False), of.cores)
    report = check_streams(programs)
    assert len(programs) == 2 and report.violations == []
    assert report.not_analyzed == [LONGER_RUNS,
                                   "cores wait for each other in branches that values in the tensors of each core decide"]
    np.testing.assert_array_equal(kernel[2].on("isa")(x, n), np.full((2, 4, 8), 2, np.float32))


def test_core_that_misses_a_meeting__deadlocks_for_certain():
    first, second = programs_of(swapped(True), X)[1]
    engine, at = next((engine, k) for engine, stream in second.streams.items() for k, i in enumerate(stream)
                      if isinstance(i.op, Meeting))
    stream = [i for k, i in enumerate(second.streams[engine]) if k != at]
    report = check_streams([first, replace(second, streams={**second.streams, engine: stream})])
    assert [type(error) for error in report.violations] == [Deadlock]


def barriers_of_two_engines(x):
    out = current_nl.ndarray((2, 2, 8), x.dtype, buffer=current_nl.shared_hbm)
    first = current_nl.ndarray((2, 8), x.dtype, buffer=current_nl.shared_hbm, name="first")
    second = current_nl.ndarray((2, 8), x.dtype, buffer=current_nl.shared_hbm, name="second")
    i = current_nl.program_id(0)
    current_nl.store(first[i:i + 1], current_nl.multiply(current_nl.load(x[i:i + 1]), 2.0))
    nisa.core_barrier(first, (0, 1), engine=nisa.engine.scalar)
    current_nl.store(second[i:i + 1], current_nl.load(first[1 - i:2 - i]))
    nisa.core_barrier(second, (0, 1), engine=nisa.engine.gpsimd)
    current_nl.store(out[0, i:i + 1], current_nl.load(first[1 - i:2 - i]))
    current_nl.store(out[1, i:i + 1], current_nl.load(second[1 - i:2 - i]))
    return out


def test_barriers_of_two_engines_that_nothing_orders__are_refused(monkeypatch):
    """Barriers of equal cores match by their order. If one core reaches the second barrier first, the other core takes
    it for the first one."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    _, (first, second) = programs_of(current_nki.jit(barriers_of_two_engines)[2], X)
    assert check_streams([first, second]).verdict == "proved"
    (before, at), _ = ((engine, k) for engine, stream in first.streams.items() for k, one in enumerate(stream)
                               if isinstance(one.op, Meeting))
    streams_of_first = {engine: list(stream) for engine, stream in first.streams.items()}
    awaited = first.streams[before][at].update.semaphore
    for engine, stream in streams_of_first.items():
        streams_of_first[engine] = [replace(one, waits=tuple(w for w in one.waits if w.semaphore != awaited))
                                    for one in stream]
    report = check_streams([replace(first, streams=streams_of_first), second])
    headlines = [error.headline for error in report.violations if isinstance(error, UnorderedMeetings)]
    fix, = [error.advice[1] for error in report.violations if isinstance(error, UnorderedMeetings)]
    assert "wait" in fix and "{" not in fix, fix
    assert len(headlines) == 1 and "CORE_BARRIER" in headlines[0], [str(error) for error in report.violations]
    assert headlines[0].endswith("synchronize with the same cores, and nothing orders them")


def replaced(program, old, new, times=1):
    """The program with a part of its text replaced."""
    text = print_program(program)
    assert text.count(old) == times, text
    return check_program(parse_program(text.replace(old, new)))


def test_barrier_at_the_end_that_no_other_core_reaches__is_a_deadlock():
    """Nothing waits for the last barrier of a core, but the core does not end."""
    first, second = programs_of(swapped(True), X)[1]
    engine, at = [(engine, k) for engine, stream in first.streams.items() for k, i in enumerate(stream)
                  if isinstance(i.op, Meeting)][-1]
    stream = [*first.streams[engine], replace(first.streams[engine][at], waits=(), update=None)]
    report = check_streams([replace(first, streams={**first.streams, engine: stream}), second])
    assert [type(error) for error in report.violations] == [Deadlock]
    assert f"core 0: {engine.asm} waits at {len(stream) - 1:04d} CORE_BARRIER" in str(report.violations[0])
    assert "for other cores" in str(report.violations[0])


def test_exchange_that_the_other_core_does_not_make__is_a_deadlock():
    programs = [exchange_before_a_load(core, False, 32) for core in (0, 1)]
    for core in (0, 1):
        lonely = replaced(programs[core], f"DMA_SENDRECV queue=0 send_to={1 - core} receive_from={1 - core}", "DMA queue=0")
        report = check_streams([lonely, programs[1]] if core == 0 else [programs[0], lonely])
        assert [type(error) for error in report.violations] == [Deadlock]
        assert f"core {1 - core}: sp waits at 0001 DMA_SENDRECV for other cores" in str(report.violations[0])


def test_cores_that_pass_unlike_operands_or_send_elsewhere__are_refused():
    programs = [exchange_before_a_load(core, False, 32) for core in (0, 1)]
    narrow = replaced(programs[1], "dst=fp32@0x20[1][8] src=fp32@0x0[1][8]", "dst=fp32@0x20[1][4] src=fp32@0x0[1][4]")
    error, = check_streams([programs[0], narrow]).violations
    assert str(error).startswith("error: nisa.sendrecv: program 0 passes float32[1, 8], but program 1 passes float32[1, 4]")
    elsewhere = replaced(programs[1], "send_to=0 receive_from=0", "send_to=1 receive_from=0")
    error, = check_streams([programs[0], elsewhere]).violations
    assert str(error).startswith("error: core 0 receives from core 1, which sends to core 1")
    with pytest.raises(type(error), match="core 0 receives from core 1, which sends to core 1"):
        simulate_cores([programs[0], elsewhere], [X], [np.zeros((2, 8), np.float32)])


def test_barrier_of_other_cores__holds_up_none():
    """A core that a barrier does not name passes it, and does not arrive in the place of another one."""
    programs = [exchange_before_a_load(core, False, 32) for core in (0, 1)]
    passing = replaced(programs[1], "CORE_BARRIER cores=(0,1)", "CORE_BARRIER cores=(0,2)")
    report = check_streams([programs[0], passing])
    assert [type(error) for error in report.violations] == [Deadlock]           # core 0 waits, core 1 does not
    assert "core 1" not in str(report.violations[0])
    alone = replaced(programs[0], "CORE_BARRIER cores=(0,1)", "CORE_BARRIER cores=(0)")
    report = check_streams([alone, passing])
    assert report.verdict == "proved"
    simulate_cores([alone, passing], [X], [np.zeros((2, 8), np.float32)])
    barrier, last = "CORE_BARRIER cores=(0,2) data=fp32@out[1,8][8,2]", "S[2] (qSyncIO1)>=32 EVENT_SEMAPHORE"
    counting = replaced(passing, barrier, f"{barrier} S[0] (GpSimd)++@complete")
    waiting = replaced(counting, last, f"S[0] (GpSimd)>=1 {last}")
    assert check_streams([alone, waiting]).verdict == "proved"
    simulate_cores([alone, waiting], [X], [np.zeros((2, 8), np.float32)])


HEAD = """\
.nki_isa 1
.kernel f
.target trn2
.sbuf 96 of 212984
.psum 0 of 16384
.input x fp32[2,8] 0
.output out fp32[2,8] 0
.semaphore 0 GpSimd
.semaphore 1 qSyncIO0
.semaphore 2 qSyncIO1
.queue 0 qSyncIO0 sp 1
.queue 1 qSyncIO1 sp 2
"""


def exchange_before_a_load(core: int, sends_after_barrier: bool, awaited: int) -> Program:
    """A core sends its row, then loads it again in the same queue, and stores the other core's. Its barrier waits for
    ``awaited`` of the two transfers, or it sends after the barrier."""
    other, row = 1 - core, hex(32 * core)
    barrier = "CORE_BARRIER cores=(0,1) data=fp32@out[1,8][8,2]"
    pool = [f"{barrier} S[0] (GpSimd)++@complete" if sends_after_barrier else f"S[1] (qSyncIO0)>={awaited} {barrier}"]
    sp = [f"DMA queue=1 dst=fp32@0x0[1][8] src=fp32@x+{row}[1,0][8,1] channels=1 S[2] (qSyncIO1)+=16@complete",
          *(["S[0] (GpSimd)>=1 EVENT_SEMAPHORE"] if sends_after_barrier else []),
          f"S[2] (qSyncIO1)>=16 DMA_SENDRECV queue=0 send_to={other} receive_from={other} dst=fp32@0x20[1][8] "
          "src=fp32@0x0[1][8] channels=1 S[1] (qSyncIO0)+=16@complete",
          f"DMA queue=0 dst=fp32@0x40[1][8] src=fp32@x+{row}[1,0][8,1] channels=1 S[1] (qSyncIO0)+=16@complete",
          f"S[1] (qSyncIO0)>=32 DMA queue=1 dst=fp32@out+{row}[1,0][8,1] src=fp32@0x20[1][8] channels=1 "
          "S[2] (qSyncIO1)+=16@complete",
          "S[2] (qSyncIO1)>=32 EVENT_SEMAPHORE"]
    lines = [f"{engine} {k:04d}: {text}" for engine, of in (("pool", pool), ("sp", sp)) for k, text in enumerate(of)]
    return check_program(parse_program("\n".join([*HEAD.splitlines(), ".stream pool", lines[0], ".stream sp", *lines[1:]])))


def test_transfer_behind_an_exchange__completes_after_it():
    """DMA engines report in the order of a queue, so the load of core 0 does not complete before its exchange, which
    core 1 makes after the barrier."""
    report = check_streams([exchange_before_a_load(0, False, 16), exchange_before_a_load(1, True, 0)])
    assert [type(error) for error in report.violations] == [Deadlock]


def test_transfer_behind_an_exchange__is_ordered_after_both():
    programs = [exchange_before_a_load(core, False, 32) for core in (0, 1)]
    assert check_streams(programs).verdict == "proved"
    trace = StreamTrace(programs, Choices(), 100)
    exchange = next(step for step in trace.steps if isinstance(step, CoreMeeting))
    assert [e.instruction.op.mnemonic for e in exchange.completed if e.core == 0] == ["DMA_SENDRECV", "DMA"]
    for seed in (None, *range(8)):
        out = np.zeros((2, 8), np.float32)
        simulate_cores(programs, [X], [out], seed)
        np.testing.assert_array_equal(out, X[::-1])


def test_choices__count_the_iterations_of_each_core():
    choices = Choices()
    sides = [[choices.is_taken((core, turn), core, "loop") for core in (0, 1)] for turn in range(3)]
    assert sides == [[False, False], [False, False], [True, True]]
    assert not choices.differ(2) and choices.differ(3)              # the third core has taken no side
    assert choices.is_taken((0, 3), 0, "loop") and choices.differ(2)


def test_choices__decide_equal_numbers_equally():
    choices = Choices([True])
    assert choices.is_taken("number", 0, "loop") and choices.is_taken("number", 1, "loop")
    assert not choices.differ(2) and len(choices.sites) == 1

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Semaphores: what waits for what, how registers and loops come out, and the errors."""

import pytest

from nki_mlir.dialects.isa.instruction import (
    ActTableLoad,
    CompareBranch,
    EventSemaphore,
    Move,
    RangeClear,
    RegisterAlu,
    Wait,
)
from nki_mlir.dialects.isa.program import instruction_counts
from nki_mlir.dialects.op import NisaOp
from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.codegen.allocate_on_chip import allocate
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.records import compute
from nki_mlir.targets.neuron.codegen.segment_waits import QUEUES
from nki_mlir.targets.neuron.codegen.synchronize_engines import NoAddress, TooManySemaphores, synchronized
from nki_mlir.targets.neuron.format.assembly import instruction_text
from tests.targets.neuron.code_builder import Builder
from tests.targets.neuron.random_code import RandomCode

W = 0, 128, 0, 64


def program_of(b):
    allocate(b.code)
    return synchronized(b.code)


def lines(program, engine):
    return [instruction_text(i, program) for i in program.streams[engine]]


def test_consumer__waits_for_the_queue_and_the_store_for_the_engine():
    b = Builder()
    x, y = b.hbm("x", (128, 64), "input"), b.hbm("y", (128, 64), "output")
    t = b.on_chip("t", (128, 64))
    b.copy((t, *W), (x, *W))
    b.activation((t, *W), (t, *W), "exp")
    b.copy((y, *W), (t, *W))
    program = program_of(b)
    assert lines(program, Engine.SCALAR) == [
        "ACT_TABLE_LOAD table=exp",
        "S[2] (qSyncIO0)>=16 ACTIVATE fn=exp dst=fp32@0x0[1][64] src=fp32@0x0[1][64] channels=128 "
        "S[0] (Scalar)++@complete"]
    assert lines(program, Engine.SYNC) == [
        "DMA queue=0 dst=fp32@0x0[1][64] src=fp32@x[1,64][64,128] channels=128 descriptors=128*256 "
        "S[2] (qSyncIO0)+=16@complete",
        "S[0] (Scalar)>=1 DMA queue=1 dst=fp32@y[1,64][64,128] src=fp32@0x0[1][64] channels=128 descriptors=128*256 "
        "S[3] (qSyncIO1)+=16@complete",
        "S[3] (qSyncIO1)>=16 EVENT_SEMAPHORE"]
    assert instruction_counts(program) == {"tensor": 0, "scalar": 2, "vector": 0, "gpsimd": 0, "sync": 3}


def test_same_engine__needs_no_semaphore():
    b = Builder()
    t = b.on_chip("t", (128, 64))
    for k in range(3):
        b.memset((t, *W), k)
        b.add((t, *W), (t, *W), (t, *W))
    stream = program_of(b).streams[Engine.VECTOR]
    assert len(stream) == 6 and not any(i.waits or i.update for i in stream)


def test_transfer_after_its_own_queue__waits_for_it():
    """A queue moves data in any order: a load of what was stored before needs the semaphore."""
    b = Builder()
    s, t = b.hbm("s", (128, 64)), b.on_chip("t", (128, 64))
    b.memset((t, *W), 1)
    b.copy((s, *W), (t, *W))
    b.copy((t, *W), (s, *W))
    program = program_of(b)
    assert [i.waits for i in program.streams[Engine.SYNC][:2]] == [(Wait(0, 1),), (Wait(3, 16),)]


def test_second_wait__stands_before_the_instruction():
    b = Builder()
    t, u, v = (b.on_chip(n, (128, 64)) for n in "tuv")
    b.memset((t, *W), 1)
    b.activation((u, *W), (u, *W), "relu")
    b.add((v, *W), (t, *W), (u, *W), engine="gpsimd")
    stream = program_of(b).streams[Engine.GPSIMD]
    assert [type(i.op) for i in stream[:1]] == [EventSemaphore] and [len(i.waits) for i in stream] == [1, 1]


def test_disjoint_parts__do_not_wait_for_each_other():
    b = Builder()
    t = b.on_chip("t", (128, 64))
    b.memset((t, 0, 128, 0, 32), 1)
    b.activation((t, 0, 128, 32, 16), (t, 0, 128, 48, 16), "relu")
    program = program_of(b)
    assert not any(i.waits for s in program.streams.values() for i in s)


def looped(count=3, start=0, step=1):
    b = Builder()
    x, y = b.hbm("x", (512, 64), "input"), b.hbm("y", (512, 64), "output")
    with b.loop(count, start, step) as i:
        t = b.on_chip("t", (128, 64))
        b.copy((t, *W), (x, (0, {i: 64}), 128, 0, 64))
        b.activation((t, *W), (t, *W), "relu")
        b.copy((y, (0, {i: 64}), 128, 0, 64), (t, *W))
    return b


def test_loop__registers_count_and_engines_meet_in_each_iteration():
    program = program_of(looped(3, 1, 2))
    for engine in (Engine.SCALAR, Engine.SYNC):
        ops = [i.op for i in program.streams[engine]]
        assert ops[0] == Move(ops[0].dst, 1)
        assert isinstance(ops[-2], RegisterAlu) and ops[-2].rhs == 2
        assert isinstance(ops[-1], CompareBranch) and (ops[-1].op, ops[-1].rhs, ops[-1].target) == ("le", 5, 1)
    clears = [i.op for i in program.streams[Engine.SCALAR] if isinstance(i.op, RangeClear)]
    assert clears == [RangeClear(0, 4)]
    assert [s.name for s in program.semaphores] == ["Scalar", "Sync", "qSyncIO0", "qSyncIO1", "Barrier", "GoSync"]
    assert "src=fp32@x+16384*r0[1,64][64,128]" in " ".join(lines(program, Engine.SYNC))


def loads_of(program):
    """Functions that are loaded and computed, in order; where a loop's body begins and ends."""
    events = []
    for instruction in program.streams[Engine.SCALAR]:
        op = instruction.op
        if isinstance(op, ActTableLoad):
            events.append(f"load {op.table}")
        elif isinstance(op, Move | CompareBranch):
            events.append("loop" if isinstance(op, Move) else "end")
        elif isinstance(op, NisaOp):
            events.append(op.fn)
    return events


def test_functions__are_loaded_before_the_first_and_where_others_follow():
    b = Builder()
    t = b.on_chip("t", (128, 64))
    for fn in ("copy", "exp", "relu", "exp", "tanh", "square", "exp"):
        b.activation((t, *W), (t, *W), fn)
    assert loads_of(program_of(b)) == ["copy", "load exp", "exp", "relu", "exp", "load tanh", "tanh", "square",
                                       "load exp", "exp"]


def test_functions_of_a_loop__are_loaded_before_it_where_it_has_one():
    b = Builder()
    t = b.on_chip("t", (128, 64))
    with b.loop(3):
        b.activation((t, *W), (t, *W), "exp")
        b.activation((t, *W), (t, *W), "exp")
    with b.loop(2):
        b.activation((t, *W), (t, *W), "exp")
        b.activation((t, *W), (t, *W), "tanh")
    b.activation((t, *W), (t, *W), "tanh")
    assert loads_of(program_of(b)) == ["load exp", "loop", "exp", "exp", "end", "loop", "load exp", "exp", "load tanh",
                                       "tanh", "end", "load tanh", "tanh"]


def test_functions_behind_a_branch__are_loaded_unless_both_sides_leave_them():
    for second, expected in (("exp", ["load exp", "loop", "exp", "exp", "exp"]),
                             ("tanh", ["loop", "load exp", "exp", "load tanh", "tanh", "load exp", "exp"])):
        b = Builder()
        t = b.on_chip("t", (128, 64))
        with b.loop(2) as i:
            with b.when(compute("lt", i, 1)) as branch:
                b.activation((t, *W), (t, *W), "exp")
            with b.otherwise(branch):
                b.activation((t, *W), (t, *W), second)
            b.activation((t, *W), (t, *W), "exp")
        assert [one for one in loads_of(program_of(b)) if one != "end"] == expected


def test_computed_value__is_made_by_the_alu_once_in_straight_line_code():
    b = Builder()
    t = b.on_chip("t", (128, 64))
    with b.loop(4) as i:
        half = compute("floordiv", i, 2)
        for _ in range(2):
            b.memset((t, 0, 128, (0, {half: 8, i: 2}), 4), 1)
    text = lines(program_of(b), Engine.VECTOR)
    assert sum("op=floordiv" in line for line in text) == 1
    assert sum("dst=fp32@0x0+8*r0+32*r1[1][4]" in line for line in text) == 2


def test_many_computed_values__take_turns_in_the_registers():
    b = Builder()
    t = b.on_chip("t", (128, 512))
    with b.loop(2) as i:
        for k in range(80):
            b.memset((t, 0, 128, (0, {compute("mod", i, k + 2): 1}), 4), k)
    program = program_of(b)
    numbers = {i.op.dst.number for i in program.streams[Engine.VECTOR] if isinstance(i.op, RegisterAlu)}
    assert max(numbers) == 31
    assert sum(isinstance(i.op, NisaOp) for i in program.streams[Engine.VECTOR]) == 80


def test_error__no_address():
    b = Builder()
    t = b.on_chip("t", (128, 64))
    b.memset((t, *W), 1)
    with pytest.raises(NoAddress, match="the buffer t has no address"):
        synchronized(b.code)


def test_error__too_many_semaphores():
    b = looped()
    allocate(b.code)
    import dataclasses
    b.code.machine = dataclasses.replace(b.code.machine, semaphores=5)
    with pytest.raises(TooManySemaphores, match="needs 6 semaphores, but trn2 has 5"):
        synchronized(b.code)


def test_names__of_variables_are_words_and_differ():
    b = Builder()
    x = b.hbm("a b", (128, 64), "input")
    y = b.hbm("a-b", (128, 64), "output")
    z = b.hbm("3", (128, 64))
    b.copy((z, *W), (x, *W))
    b.copy((y, *W), (z, *W))
    assert [(v.name, v.kind) for v in program_of(b).variables] == [
        ("a_b", "input"), ("a_b_2", "output"), ("_3", "internal")]


# -- queues ------------------------------------------------------------------------------------------------------------
def loads(count):
    """``count`` loads that nothing orders, and one use of all of them."""
    b = Builder()
    x = b.hbm("x", (128, 64 * count), "input")
    t = b.on_chip("t", (128, 64 * count))
    for k in range(count):
        b.copy((t, 0, 128, 64 * k, 64), (x, 0, 128, 64 * k, 64))
    b.activation((t, 0, 128, 0, 64 * count), (t, 0, 128, 0, 64 * count), "exp")
    return b


def test_transfers_under_way_at_once__are_in_queues_of_their_own():
    program = program_of(loads(3))
    assert [i.queue for i in program.streams[Engine.SYNC] if i.queue is not None] == [0, 1, 2]
    assert [w for i in program.streams[Engine.SCALAR] for w in i.waits] == [Wait(2 + k, 16) for k in range(3)]


def test_more_transfers_than_queues__wait_for_the_queue_that_was_used_longest_ago():
    stream = program_of(loads(QUEUES + 2)).streams[Engine.SYNC]
    assert [i.queue for i in stream[:QUEUES + 2]] == [*range(QUEUES), 0, 1]
    assert [i.waits for i in stream[:QUEUES + 2]] == [()] * QUEUES + [(Wait(2, 16),), (Wait(3, 16),)]


def test_a_queue_whose_transfers_are_known_to_be_complete__is_used_again():
    b = Builder()
    x, y = b.hbm("x", (128, 64), "input"), b.hbm("y", (128, 64), "output")
    t = b.on_chip("t", (128, 64))
    for _ in range(3):
        b.copy((t, *W), (x, *W))
        b.activation((t, *W), (t, *W), "exp")
        b.copy((y, *W), (t, *W))
    program = program_of(b)
    assert [q.name for q in program.queues] == ["qSyncIO0", "qSyncIO1"]
    assert {i.queue for i in program.streams[Engine.SYNC]} == {0, 1, None}


@pytest.mark.parametrize("seed", range(10))
def test_a_queue__has_one_transfer_under_way(seed):
    """Whatever is waited for on a queue is all that was put into it, when its next transfer is triggered."""
    program = emit_code(RandomCode(seed, steps=60, loops=False).code, Emission(unroll_limit=50_000))
    told = vector_clocks(program)
    for engine, stream in program.streams.items():
        put: dict[int, int] = {}
        for index, instruction in enumerate(stream):
            if instruction.queue is not None:
                semaphore = program.queues[instruction.queue].semaphore
                assert told[engine, index].get(semaphore, 0) == put.get(semaphore, 0)
                put[semaphore] = put.get(semaphore, 0) + 16


def vector_clocks(program):
    """What each engine knows of all semaphores when an instruction starts: from its waits, and what their causes knew."""
    streams = {e: s for e, s in program.streams.items() if s}
    counts = {e: {} for e in streams}
    told, at = {}, dict.fromkeys(streams, 0)
    causes = {}                                         # (semaphore, its value) -> what is known where it is reached
    shown = {}
    moved = True
    while moved:
        moved = False
        for engine, stream in streams.items():
            while at[engine] < len(stream):
                instruction = stream[at[engine]]
                if any((w.semaphore, w.value) not in causes for w in instruction.waits):
                    break
                for wait in instruction.waits:
                    for other, value in {**causes[wait.semaphore, wait.value], wait.semaphore: wait.value}.items():
                        counts[engine][other] = max(counts[engine].get(other, 0), value)
                told[engine, at[engine]] = dict(counts[engine])
                if instruction.update is not None:
                    semaphore = instruction.update.semaphore
                    first = shown.get(semaphore, 0)
                    shown[semaphore] = first + instruction.update.amount
                    for value in range(first + 1, shown[semaphore] + 1):
                        causes[semaphore, value] = dict(counts[engine])
                at[engine] += 1
                moved = True
    return told

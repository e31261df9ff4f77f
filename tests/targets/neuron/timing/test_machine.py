# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rules of the timed machine, one by one."""

import itertools

import numpy as np
import pytest

from nki_mlir.diagnostics import Location
from nki_mlir.dialects.isa.instruction import RegisterDivision
from nki_mlir.machine import Engine, Work, machine_named
from nki_mlir.targets.neuron.deadlock import Deadlock
from nki_mlir.targets.neuron.simulator import simulate
from nki_mlir.targets.neuron.timing import machine as timed_machine
from nki_mlir.targets.neuron.timing.machine import EventLimit, TimedMachine
from tests.targets.neuron.timing.streams import activation, copy, ends, load, program, ran, starts

COPY = Work("tensor_copy", 512)
TRN1, TRN2 = machine_named("trn1"), machine_named("trn2")


def near(value):
    return pytest.approx(value)


# -- one engine --------------------------------------------------------------------------------------------------------
def test_instructions_of_an_engine_follow_each_other():
    busy, result, _ = TRN2.cost(Engine.VECTOR, COPY)
    machine = ran({"dve": [copy(0x1000, 0x0), copy(0x3000, 0x0), copy(0x5000, 0x0)]})
    assert starts(machine, "dve") == near([0, busy, 2 * busy])
    assert machine.end == near(3 * busy + result)


def test_an_instruction_that_reads_a_result_of_its_own_engine_waits_for_it():
    busy, result, latency = TRN2.cost(Engine.VECTOR, COPY)
    machine = ran({"dve": [copy(0x1000, 0x0), copy(0x3000, 0x1000), copy(0x5000, 0x0)]})
    assert starts(machine, "dve") == near([0, busy + latency, 2 * busy + latency])
    assert machine.end == near(3 * busy + latency + result)


def test_the_result_may_lie_between_other_instructions():
    busy, _, latency = TRN2.cost(Engine.VECTOR, Work("tensor_copy", 64))
    machine = ran({"dve": [copy(0x1000, 0x0, 64), copy(0x3000, 0x0, 64), copy(0x5000, 0x1000, 64)]})
    assert starts(machine, "dve") == near([0, busy, max(2 * busy, busy + latency)])
    far = [copy(0x3000, 0x0, 64)] * 5
    machine = ran({"dve": [copy(0x1000, 0x0, 64), *far, copy(0x5000, 0x1000, 64)]})
    assert starts(machine, "dve")[-1] == near(6 * busy)


def test_other_bytes_and_other_partitions_are_no_result_of_it():
    busy, _, _ = TRN2.cost(Engine.VECTOR, COPY)
    beside = "COPY dst=fp32@0x9000[1][512] src=fp32@0x801000[1][512] channels=32"      # partitions 32 to 63
    narrow = "COPY dst=fp32@0x1000[1][512] src=fp32@0x0[1][512] channels=32"
    assert starts(ran({"dve": [narrow, beside]}), "dve") == near([0, busy])
    assert starts(ran({"dve": [copy(0x1000, 0x0), copy(0x5000, 0x1800)]}), "dve") == near([0, busy])


def test_results_of_an_engine_come_in_order():
    """A copy behind an exponential is seen no earlier than that."""
    exp, cp = TRN2.cost(Engine.SCALAR, Work("activation", 512)), TRN2.cost(Engine.SCALAR, Work("tensor_copy", 64))
    machine = ran({"act": [activation(0x1000, 0x0), copy(0x3000, 0x0, 64, signals="S[1] (Scalar)++@complete")],
                   "dve": [copy(0x5000, 0x3000, waits="S[1] (Scalar)>=1")]})
    assert exp.result > cp.busy + cp.result
    assert starts(machine, "dve") == near([exp.busy + exp.result])


def test_a_product_has_a_load_of_weights_in_front_of_each_pass():
    def product(dtype):
        return (f"MATMUL dst=fp32@0x2000000[1][512] stationary={dtype}@0x0[1][128] moving={dtype}@0x1000[1][512] "
                "channels=128")
    assert ends(ran({"pe": [product("bfloat16")] * 2}, "trn1"), "pe") == near([596 / 2.8, 2 * 596 / 2.8])
    assert ends(ran({"pe": [product("fp32")]}, "trn1"), "pe") == near([4 * 596 / 2.8])
    assert ends(ran({"pe": [product("bfloat16")]}, "trn2"), "pe") == near([2 * 516 / 2.4])       # after a pause


# -- semaphores --------------------------------------------------------------------------------------------------------
def test_a_wait_ends_when_the_result_is_seen():
    busy, result, _ = TRN2.cost(Engine.VECTOR, COPY)
    machine = ran({"dve": [copy(0x1000, 0x0, signals="S[0] (Vector)++@complete"), copy(0x3000, 0x0)],
                   "act": [activation(0x5000, 0x1000, waits="S[0] (Vector)>=1")]})
    assert starts(machine, "act") == near([busy + result])
    assert starts(machine, "dve") == near([0, busy])


def test_a_wait_for_two_ends_with_the_later_one():
    busy, result, _ = TRN2.cost(Engine.VECTOR, COPY)
    signal = "S[0] (Vector)++@complete"
    machine = ran({"dve": [copy(0x1000, 0x0, signals=signal), copy(0x3000, 0x0, signals=signal)],
                   "act": [activation(0x5000, 0x1000, waits="S[0] (Vector)>=2")]})
    assert starts(machine, "act") == near([2 * busy + result])


def test_a_semaphore_counts_down_and_is_cleared():
    control = TRN2.costs.control
    machine = ran({
        "dve": ["EVENT_SEMAPHORE S[0] (Vector)++@complete", "S[1] (Scalar)>=1 EVENT_SEMAPHORE",
                "EVENT_SEMAPHORE_RANGE_CLEAR first=0 last=1", "EVENT_SEMAPHORE S[0] (Vector)++@complete"],
        "act": ["S[0] (Vector)>=1 EVENT_SEMAPHORE S[0] (Vector)--@complete", "EVENT_SEMAPHORE S[1] (Scalar)++@complete",
                "S[0] (Vector)>=1 EVENT_SEMAPHORE"]})
    event, signal = control.event_ns, control.signal_ns
    first = event + signal                          # the scalar engine goes on
    second = first + 2 * event + signal             # the vector engine does
    third = second + 3 * event + signal             # what is counted up behind the clear
    assert starts(machine, "act") == near([first, first + event, third])


# -- ports -------------------------------------------------------------------------------------------------------------
PSUM_COPIES = {"dve": [copy(0x0, 0x2000000)] * 2, "act": [activation(0x8000, 0x2000800)] * 2}


def test_on_trn1_the_vector_and_the_scalar_engine_take_turns_on_psum():
    machine = ran(PSUM_COPIES, "trn1")
    taken = sorted(zip(starts(machine, "dve") + starts(machine, "act"), ends(machine, "dve") + ends(machine, "act")))
    assert all(end <= start + 1e-6 for (_, end), (start, _) in itertools.pairwise(taken))


def test_on_trn2_they_do_not():
    machine = ran(PSUM_COPIES, "trn2")
    assert starts(machine, "dve")[0] == starts(machine, "act")[0] == 0


def test_on_trn1_the_vector_and_the_gpsimd_engine_take_turns_on_sbuf():
    iota = "IOTA dst=int32@0x8000[1][512] expression=0+1*d1 channels=128"
    machine = ran({"dve": [copy(0x0, 0x1000)], "pool": [iota]}, "trn1")
    assert starts(machine, "pool") == near(ends(machine, "dve"))
    assert starts(ran({"dve": [copy(0x0, 0x1000)], "pool": [iota]}, "trn2"), "pool") == [0]


# -- transfers ---------------------------------------------------------------------------------------------------------
def test_a_transfer_takes_its_issue_its_way_and_its_bytes():
    dma = TRN2.costs.dma
    machine = ran({"sp": [load()], "dve": [copy(0x3000, 0x0, waits="S[4] (qSyncIO0)>=16")]})
    moved = 8 * dma.descriptor(2048)                # of one DMA engine: 8 partitions
    assert ends(machine, "sp") == near([dma.issue_ns])
    assert starts(machine, "dve") == near([dma.trigger_ns + moved + dma.notify_ns])
    assert machine.cores[0].hbm_bytes == 128 * 2048
    assert machine.cores[0].dma_ns == near(moved)


def test_an_engine_triggers_a_transfer_in_less_time_where_the_compiler_wrote_its_descriptors() -> None:
    """Eight short loads: each trigger takes the engine 136 ns, not 600; the way of a load stays as long."""
    loads = [load(columns=16)] * 8
    generated, described = program({"sp": loads}), program({"sp": loads})
    described.static_descriptors = True
    runs = [TimedMachine([one]) for one in (generated, described)]
    for run in runs:
        run.run()
    assert starts(runs[0], "sp") == near([600.0 * k for k in range(8)])
    assert starts(runs[1], "sp") == near([136.0 * k for k in range(8)])
    assert runs[0].end - runs[1].end == near(7 * (600 - 136))


def test_short_descriptors_cost_more():
    wide, narrow = (ran({"sp": [load(columns=n)]}, "trn1").cores[0].dma_ns for n in (1024, 64))
    assert wide == near(8 * 4096 / TRN1.costs.dma.bytes_per_ns)
    assert narrow == near(8 * 256 / TRN1.costs.dma.short_bytes_per_ns)


def test_transfers_share_the_dma_engines():
    dma = TRN2.costs.dma
    machine = ran({"sp": [load(columns=8192), load(columns=8192, dst=0x8000)]})
    first, second = (machine.record.movements[k] for k in range(2))
    assert second.first == near(first.first + dma.issue_ns)
    assert second.begin == near(first.end) and second.preceding == 0


def test_few_rows_are_the_work_of_few_engines():
    """89 rows are on 12 engines, of which the last has one row; the others are free for what comes next."""
    machine = ran({"sp": [load(rows=89)]})
    each = TRN2.costs.dma.descriptor(2048)
    assert machine.cores[0].dma_ns == near((11 * 8 + 1) * each / 16)
    machine = ran({"sp": [load(rows=40, columns=8192)] * 2})                # the same 5 engines
    assert machine.record.movements[1].preceding == 0


def test_half_of_the_partitions_are_the_work_of_half_of_the_engines():
    """Engine k moves partitions 8k to 8k + 7: two transfers of 64 partitions take turns, of other halves they do not."""
    machine = ran({"sp": [load(rows=64)]})
    each = TRN2.costs.dma.descriptor(2048)
    (movement,) = machine.record.movements.values()
    assert movement.end - movement.begin == near(8 * each)
    assert machine.cores[0].dma_ns == near(8 * each / 2)
    machine = ran({"sp": [load(rows=64, columns=8192), load(rows=64, columns=8192)]})
    assert machine.record.movements[1].preceding == 0
    upper = load(rows=64, columns=8192).replace("dst=fp32@0x0[1]", "dst=fp32@0x1000000[1]")
    machine = ran({"sp": [load(rows=64, columns=8192), upper]})
    assert machine.record.movements[1].preceding == -1


def test_one_engine_triggers_its_transfers_one_after_the_other_two_do_so_at_once():
    one = ran({"sp": [load(columns=1)] * 4})
    two = ran({"sp": [load(columns=1)] * 2, "act": [load(columns=1, queue=2)] * 2})
    assert ends(one, "sp")[-1] == near(4 * TRN2.costs.dma.issue_ns)
    assert ends(two, "sp")[-1] == ends(two, "act")[-1] == near(2 * TRN2.costs.dma.issue_ns)


def test_the_dma_engines_add_one_each():
    """A semaphore may reach 16 before either of two transfers is complete: each adds 1 for each engine that is done."""
    streams = {"sp": [load(rows=8, columns=8192), load(rows=8, columns=8192, at=0x40000)],
               "dve": [copy(0x3000, 0x0, waits="S[4] (qSyncIO0)>=16")]}
    machine = ran(streams)
    assert starts(machine, "dve")[0] < machine.record.movements[0].end
    streams["dve"] = [copy(0x3000, 0x0, waits="S[4] (qSyncIO0)>=32")]
    machine = ran(streams)
    assert starts(machine, "dve")[0] == near(machine.record.movements[1].end + TRN2.costs.dma.notify_ns)


# -- registers ---------------------------------------------------------------------------------------------------------
LOOP = ["MOVE dst=r0 value=0", copy(0x1000, 0x0), "ALU op=add dst=r0 lhs=r0 rhs=1",
        "COMPARE_BRANCH op=lt lhs=r0 rhs=5 target=0001"]


def test_a_loop_runs_as_often_as_it_does_and_a_branch_that_is_taken_is_fetched_anew():
    control = TRN2.costs.control
    busy = TRN2.cost(Engine.VECTOR, COPY).busy
    machine = ran({"dve": LOOP})
    assert len(machine.record) == 1 + 5 * 3
    assert ends(machine, "dve")[-1] == near(11 * control.register_ns + 5 * busy + 4 * control.refill_ns)


LOADED = ["TENSOR_LOAD dst=r0 src=int32@0x0[1][1]*1", "COMPARE_BRANCH op=eq lhs=r0 rhs=0 target=0004", copy(0x1000, 0x0),
          "COMPARE_BRANCH op=eq lhs=0 rhs=0 target=0000", copy(0x3000, 0x0)]


def test_a_loop_whose_end_data_decide_is_taken_to_run_once():
    assert len(ran({"dve": LOADED}).record) == 4 + 2 + 1


def test_with_the_numbers_that_are_loaded_it_runs_as_often_as_it_does():
    machine = ran({"dve": LOADED}, loaded={(0, Engine.VECTOR): [3, 2, 1, 0]})
    assert len(machine.record) == 3 * 4 + 2 + 1


# -- several cores -----------------------------------------------------------------------------------------------------
def test_cores_wait_for_each_other_at_a_barrier():
    barrier = "CORE_BARRIER cores=(0,1) data=fp32@y[1,8192][8192,4096]"
    busy = TRN2.cost(Engine.GPSIMD, Work("iota", 512)).busy
    iota = "IOTA dst=int32@0x8000[1][512] expression=0+1*d1 channels=128"
    machine = TimedMachine([program({"pool": [barrier]}), program({"pool": [iota, barrier]})])
    machine.run()
    assert starts(machine, "pool") == near([0, busy, busy])
    assert machine.end == near(busy + TRN2.costs.control.core_signal_ns + TRN2.costs.control.signal_ns)


def test_a_collective_takes_its_hops_and_its_bytes():
    reduce = ('CC_ALL_REDUCE dst=fp32@y[1,8192][8192,4096] src=fp32@x[1,8192][8192,4096] op=add groups="[[0, 1, 2]]" '
              "queue=1 S[5] (qSyncIO1)+=16@complete")
    movement = ran({"sp": [reduce]}).record.movements[0]
    expected = 4 * TRN2.costs.control.hop_ns + 4096 * 8192 * 4 / TRN2.costs.dma.hbm_bytes_per_ns
    assert movement.end - movement.begin == near(expected)


# -- standstill --------------------------------------------------------------------------------------------------------
CROSSED = {"act": [activation(0x1000, 0x0, waits="S[0] (Vector)>=1", signals="S[1] (Scalar)++@complete")],
           "dve": ["EVENT_SEMAPHORE", copy(0x3000, 0x0, waits="S[1] (Scalar)>=1", signals="S[0] (Vector)++@complete"),
                   ],
           "pe": ["S[1] (Scalar)>=9 EVENT_SEMAPHORE"]}
TEXT = ("no engine can continue: act waits at 0000 ACTIVATE for S[0] (Vector)>=1, which is 0, which dve would count up "
        "after that; dve waits at 0001 COPY for S[1] (Scalar)>=1, which is 0, which act would count up after that")


def test_a_deadlock_is_the_cycle_of_waits():
    with pytest.raises(Deadlock) as timed:
        ran(CROSSED)
    assert timed.value.headline == TEXT


def test_the_simulator_says_the_same():
    array = np.zeros((4096, 8192), np.float32)
    with pytest.raises(Deadlock) as run:
        simulate(program(CROSSED), [array], [array.copy()])
    assert run.value.headline == TEXT


def test_a_wait_for_nobody_is_named_by_itself():
    with pytest.raises(Deadlock) as raised:
        ran({"pe": ["S[1] (Scalar)>=9 EVENT_SEMAPHORE"]})
    assert raised.value.headline == ("no engine can continue: pe waits at 0000 EVENT_SEMAPHORE for S[1] (Scalar)>=9, "
                                     "which is 0")


def test_a_stream_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr(timed_machine, "EVENT_LIMIT", 1000)
    with pytest.raises(EventLimit) as raised:
        ran({"dve": ["COMPARE_BRANCH op=eq lhs=0 rhs=0 target=0000"]})
    assert str(raised.value) == ("error: the program has not ended after 1000 instructions [NKI-EVENT-LIMIT]\n"
                                 "  fix: check the conditions of its branches")


@pytest.mark.parametrize("op", ["floordiv", "mod"])
def test_registers_divided_by_0__are_an_error_at_their_line(op):
    with pytest.raises(RegisterDivision, match=rf"{op} of 7 by 0 in a register") as caught:
        ran({"dve": ["MOVE dst=r0 value=7", f"ALU op={op} dst=r2 lhs=r0 rhs=0  // k.py:12"]})
    assert caught.value.at == Location("k.py", 12, 0)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The checker of streams: what the emission makes is proved, what is broken is refused with the instructions."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import Access, Linear
from nki_mlir.dialects.isa.module import load_isa, program_text, read_program
from nki_mlir.dialects.isa.program import PARTITION_STRIDE, DeviceLiveRange, Program
from nki_mlir.machine import Engine
from nki_mlir.scalar.dtypes import UINT8
from nki_mlir.targets.neuron.checker import check_streams, happens_before
from nki_mlir.targets.neuron.checker.footprint import ByteFootprint, runs_of
from nki_mlir.targets.neuron.checker.happens_before import HappensBefore
from nki_mlir.targets.neuron.checker.memory import AccessOutsideLiveBuffers, MemoryCheck, Operands
from nki_mlir.targets.neuron.checker.trace import Choices, Event, StreamTrace
from nki_mlir.targets.neuron.checker.violations import Descriptions
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.format.assembly import parse_program, print_program
from nki_mlir.targets.neuron.format.container import decode_program, encode_program
from nki_mlir.targets.neuron.simulator import simulate

from .ordering import waits_of, without_wait
from .random_code import RandomCode
from .test_random_code import OPTIONS

# out = exp(x) summed with the product of w and exp(x), by all engines; addresses are used again.
TEXT = """\
.nki_isa 1
.kernel f
.target trn2
.sbuf 1536 of 212984
.psum 512 of 16384
.input x fp32[128,128] 0
.input w fp32[128,128] 1
.output out fp32[128,128] 0
.semaphore 0 Tensor
.semaphore 1 Scalar
.semaphore 2 Vector
.semaphore 3 qGpSimdIO0
.semaphore 4 qSyncIO0
.semaphore 5 qSyncIO1
.queue 0 qGpSimdIO0 pool 3
.queue 1 qSyncIO0 sp 4
.queue 2 qSyncIO1 sp 5
.stream pe
pe 0000: S[1] (Scalar)>=1 EVENT_SEMAPHORE
pe 0001: S[3] (qGpSimdIO0)>=16 MATMUL dst=fp32@0x2000000[1][128] stationary=fp32@0x200[1][128] \
moving=fp32@0x400[1][128] channels=128 S[0] (Tensor)++@complete  // k.py:7
.stream act
act 0000: ACT_TABLE_LOAD table=exp  // k.py:6
act 0001: S[4] (qSyncIO0)>=16 ACTIVATE fn=exp dst=fp32@0x400[1][128] src=fp32@0x0[1][128] channels=128 \
S[1] (Scalar)++@complete  // k.py:6
.stream dve
dve 0000: S[0] (Tensor)>=1 COPY dst=fp32@0x200[1][128] src=fp32@0x2000000[1][128] channels=128  // k.py:8
dve 0001: TENSOR_TENSOR op=add dst=fp32@0x400[1][128] lhs=fp32@0x200[1][128] rhs=fp32@0x0[1][128] channels=128 \
S[2] (Vector)++@complete  // k.py:8
.stream pool
pool 0000: DMA queue=0 dst=fp32@0x200[1][128] src=fp32@w[1,128][128,128] channels=128 \
S[3] (qGpSimdIO0)+=16@complete  // k.py:7
pool 0001: S[3] (qGpSimdIO0)>=16 EVENT_SEMAPHORE
.stream sp
sp 0000: DMA queue=1 dst=fp32@0x0[1][128] src=fp32@x[1,128][128,128] channels=128 S[4] (qSyncIO0)+=16@complete  // k.py:5
sp 0001: S[2] (Vector)>=1 DMA queue=2 dst=fp32@out[1,128][128,128] src=fp32@0x400[1][128] channels=128 \
S[5] (qSyncIO1)+=16@complete  // k.py:9
sp 0002: S[5] (qSyncIO1)>=16 EVENT_SEMAPHORE
"""


END = "sp 0002: S[5] (qSyncIO1)>=16 EVENT_SEMAPHORE\n"


def findings(text: str) -> list[str]:
    """The errors of a program."""
    return [str(error) for error in check_streams([parse_program(text)]).violations]


def broken(old: str, new: str) -> list[str]:
    """The errors of the text with one thing changed."""
    assert TEXT.count(old) == 1, old
    return findings(TEXT.replace(old, new))


def test_sound_streams__are_proved():
    report = check_streams([parse_program(TEXT)])
    assert (report.verdict, report.violations, report.not_analyzed) == ("proved", [], [])


# -- each error once ---------------------------------------------------------------------------------------------------
WHY = "engines and queues run side by side; only semaphores order them"


def test_a_removed_wait__names_both_instructions_the_bytes_and_the_wait():
    assert broken("S[4] (qSyncIO0)>=16 ACTIVATE", "ACTIVATE")[0] == (
        "k.py:6:1: error: act 0001 ACTIVATE (k.py:6) reads byte 0 of partition 0 of sbuf, which sp 0000 DMA (k.py:5) may "
        f"write later; nothing orders them [NKI-STREAM-ORDER]\n  why: {WHY}\n"
        "  fix: let act 0001 wait for S[4] (qSyncIO0)>=16")


def test_where_nothing_signals__the_fix_says_so():
    text = TEXT.replace("S[0] (Tensor)>=1 COPY", "COPY")
    assert (
        "k.py:8:1: error: dve 0000 COPY (k.py:8) reads byte 0 of partition 0 of psum, which pe 0001 MATMUL (k.py:7) writes; "
        f"nothing orders them [NKI-STREAM-ORDER]\n  why: {WHY}\n  fix: let dve 0000 wait for S[0] (Tensor)>=1"
        ) in findings(text)
    silent = findings(text.replace(" S[0] (Tensor)++@complete", ""))
    assert any("let pe 0001 count a semaphore up, and dve 0000 wait for it" in error for error in silent)


def test_unwritten_bytes__are_an_error_where_they_are_read():
    assert broken("dst=fp32@0x0[1][128] src=fp32@x[1,128][128,128]", "dst=fp32@0x0[1][64] src=fp32@x[1,128][64,128]") == [
        "k.py:6:1: error: act 0001 ACTIVATE (k.py:6) reads byte 256 of partition 0 of sbuf, which nothing has written "
        "[NKI-STREAM-UNWRITTEN]\n"
        "  why: on-chip memory has old values, from this kernel or from another\n"
        "  fix: write all of it first, or read what has been written",
        "k.py:8:1: error: dve 0001 TENSOR_TENSOR (k.py:8) reads byte 256 of partition 0 of sbuf, which nothing has written "
        "[NKI-STREAM-UNWRITTEN]\n"
        "  why: on-chip memory has old values, from this kernel or from another\n"
        "  fix: write all of it first, or read what has been written"]


LIVE = """\
.live t sbuf 0x0 128*512 act:1-1 dve:1-1 sp:0-0
.live w sbuf 0x200 128*512 pe:1-1 pool:0-0
.live e sbuf 0x400 128*512 pe:1-1 act:1-1
.live p psum 0x2000000 128*512 pe:1-1 dve:0-0
.live c sbuf 0x200 128*512 dve:0-1
.live s sbuf 0x400 128*512 dve:1-1 sp:1-1
"""


def test_what_lies_in_no_buffer__is_an_error():
    assert findings(TEXT + LIVE) == []
    assert findings((TEXT + LIVE).replace("dst=fp32@0x400[1][128] src=fp32@0x0", "dst=fp32@0x300[1][128] src=fp32@0x0"))[-1] == (
        "k.py:6:1: error: act 0001 ACTIVATE (k.py:6) touches bytes 768 to 1279 of partitions 0 to 127 of sbuf, which are not "
        "in one live buffer [NKI-STREAM-LIVE]\n  why: live there are t (bytes 0 to 511), e (bytes 1024 to 1535)\n"
        "  fix: correct the address, or the .live lines")


@pytest.mark.parametrize(("source", "low", "high"), [
    ("x+512*r0[1,128][128,128]", 128, 16511), ("x+4*r0[1,-128][128,128]", 1 - 127 * 128, 128),
    ("x+4*r0[1,1099511627776][128,128]", 1, 127 * (1 << 40) + 128)])
def test_a_register_takes_a_transfer_out_of_its_tensor__is_an_error(source, low, high):
    assert findings(TEXT.replace("sp 0000: ", "sp 0000: MOVE dst=r0 value=1\nsp 0001: ").replace(
        "sp 0002: S[5]", "sp 0003: S[5]").replace("sp 0001: S[2]", "sp 0002: S[2]").replace(
        "src=fp32@x[1,128][128,128]", f"src=fp32@{source}"))[0].startswith(
        "k.py:5:1: error: sp 0001 DMA (k.py:5): Out-of-bound access for tensor `x` on dimension 0 (flat): "
        f"index range [{low}, {high}] exceed dimension size of 16384")


def test_a_buffer_begins_unwritten__where_another_one_was():
    text = (TEXT + LIVE).replace("dve 0000: S[0] (Tensor)>=1 COPY dst=fp32@0x200[1][128] src=fp32@0x2000000[1][128] "
                                 "channels=128", "dve 0000: S[0] (Tensor)>=1 EVENT_SEMAPHORE")
    assert "dve 0001 TENSOR_TENSOR (k.py:8) reads byte 512 of partition 0 of sbuf, which nothing has written" in findings(text)[0]


def test_live_ranges__are_in_each_form():
    program = parse_program(TEXT + LIVE)
    assert print_program(decode_program(encode_program(program))) == print_program(program)
    assert print_program(program).endswith(LIVE)
    context = ir.Context()
    load_isa(context)
    with context, ir.Location.unknown():
        assert read_program(ir.Module.parse(program_text(program))).live == program.live
    for line in ("sbuf 0x2000000 128*512 sp:0-0", "sbuf 0x400 128*512 sp:0-0 sp:1-1"):
        with pytest.raises(NkiMlirError, match=r"a.nkiasm:[0-9]+:7: error: a live range is NAME MEMORY ADDRESS"):
            parse_program(f"{TEXT}.live t {line}\n", "a.nkiasm")


def test_a_transfer_that_nobody_awaits__is_an_error():
    assert broken("sp 0002: S[5] (qSyncIO1)>=16 EVENT_SEMAPHORE\n", "") == [
        "k.py:9:1: error: no engine waits for sp 0001 DMA (k.py:9) before the program ends [NKI-STREAM-END]\n"
        "  why: the program completes with its engines, even if a transfer is still running\n"
        "  fix: let sp at its end wait for S[5] (qSyncIO1)>=16"]


def test_a_mark_that_is_too_low__is_an_error():
    assert broken(".sbuf 1536", ".sbuf 1024") == [
        "k.py:6:1: error: act 0001 ACTIVATE (k.py:6) touches byte 1535 of a partition of sbuf, but the program "
        "declares 1024 bytes [NKI-STREAM-MARK]\n"
        "  why: a program that runs at the same time may use the memory beyond the mark\n"
        "  fix: let .sbuf be at least 1536"]


def test_a_missing_table__is_an_error():
    assert broken("ACT_TABLE_LOAD table=exp  // k.py:6", "EVENT_SEMAPHORE") == [
        "k.py:6:1: error: act 0001 ACTIVATE (k.py:6) needs the functions of exp; none are loaded [NKI-STREAM-TABLE]\n"
        "  why: the scalar engine computes the functions of the set that was loaded last\n"
        "  fix: put an ACT_TABLE_LOAD table=exp before it"]


@pytest.mark.parametrize("old, new, number", [
    ("sp 0002: S[5] (qSyncIO1)>=16 EVENT_SEMAPHORE", "sp 0002: S[5] (qSyncIO1)>=16 {}", 2),
    ("pool 0001: S[3] (qGpSimdIO0)>=16 EVENT_SEMAPHORE", "pool 0001: S[3] (qGpSimdIO0)>=16 {}", 1)])
@pytest.mark.parametrize("instruction", [
    "MOVE dst=r1 value=r7", "ALU op=add dst=r1 lhs=r7 rhs=1", "ALU op=add dst=r1 lhs=1 rhs=r7",
    "COMPARE_BRANCH op=ge lhs=r7 rhs=1 target=0000"])
def test_a_register_that_its_engine_has_not_set__is_an_error(instruction, old, new, number):
    error, = broken(old, new.format(f"{instruction}  // k.py:4"))
    engine = old.split()[0]
    assert error == (
        f"k.py:4:1: error: {engine} {number:04d} {instruction.split()[0]} reads r7, which no instruction of this engine "
        "has set [NKI-STREAM-REGISTER]\n"
        "  why: a register has what an earlier program left in it\n"
        "  fix: set it with a MOVE first, or read another one")


def test_an_address_of_a_register_that_its_engine_has_not_set__is_an_error():
    error, = broken("src=fp32@x[1,128]", "src=fp32@x+4*r3[1,128]")
    assert "sp 0000 DMA reads r3, which no instruction of this engine has set" in error


@pytest.mark.parametrize("rest", [
    "sp 0004: COMPARE_BRANCH op=le lhs=r1 rhs=9 target=0004  // k.py:4\n",
    "sp 0004: EVENT_SEMAPHORE\nsp 0005: COMPARE_BRANCH op=le lhs=r1 rhs=9 target=0003  // k.py:4\n"])
def test_a_loop_that_changes_no_register__is_an_error(rest):
    at = 3 + rest.count("\n")
    target = rest.split("target=")[1][:4]
    assert broken(END, f"{END}sp 0003: MOVE dst=r1 value=0\n{rest}") == [
        f"k.py:4:1: error: sp {at:04d} COMPARE_BRANCH branches to {target} again, with no register changed since the last "
        "time [NKI-STREAM-ENDLESS]\n"
        "  why: the engine repeats these instructions for ever\n"
        "  fix: let an instruction of the loop change a register that the branch compares"]


def test_loops_in_each_other__end():
    """The inner one starts with the same number in each turn of the outer one."""
    assert not broken(END, f"""{END}sp 0003: MOVE dst=r1 value=0
sp 0004: MOVE dst=r2 value=0
sp 0005: ALU op=add dst=r2 lhs=r2 rhs=1
sp 0006: COMPARE_BRANCH op=lt lhs=r2 rhs=3 target=0005
sp 0007: ALU op=add dst=r1 lhs=r1 rhs=1
sp 0008: COMPARE_BRANCH op=lt lhs=r1 rhs=3 target=0004
""")


@pytest.mark.parametrize("turns", [1, 2])
def test_a_transfer_leaves_its_tensor_in_a_later_turn_of_a_loop__is_an_error(turns):
    """It moves by 128 elements a turn, from the first element on."""
    loop = (f"{END}sp 0003: MOVE dst=r1 value=0\n"
            "sp 0004: DMA queue=2 dst=fp32@out+512*r1[1,128][128,128] src=fp32@0x400[1][128] channels=128 "
            "S[5] (qSyncIO1)+=16@complete  // k.py:10\n"
            "sp 0005: ALU op=add dst=r1 lhs=r1 rhs=1\n"
            f"sp 0006: COMPARE_BRANCH op=lt lhs=r1 rhs={turns} target=0004\n")
    assert any("Out-of-bound access for tensor `out`" in error and error.startswith("k.py:10:1")
               for error in broken(END, loop)) is (turns > 1)


def test_a_rule_of_the_device__is_said_of_the_instruction():
    text = TEXT.replace("dst=fp32@0x400[1][128] src=fp32@0x0[1][128] channels=128 S[1]",
                        f"dst=fp32@{16 * PARTITION_STRIDE + 0x400:#x}[1][128] src=fp32@{16 * PARTITION_STRIDE:#x}[1][128] "
                        "channels=44 S[1]")
    assert findings(text)[-1] == (
        "k.py:6:1: error: act 0001 ACTIVATE (k.py:6): operand 'dst' of 'activation' begins at partition 16 and has 44 "
        "partitions [NKI-START-PARTITION] [NKI-STREAM-RULE]\n"
        "  why: the scalar engine begins 44 partitions only at 0 or 64\n"
        "  fix: start the tile at such a partition, or move its rows with nisa.dma_copy first")


def test_a_clear_that_nothing_orders__is_an_error():
    line = "sp 0002: S[5] (qSyncIO1)>=16 EVENT_SEMAPHORE\n"
    assert broken(line, line + "sp 0003: EVENT_SEMAPHORE_RANGE_CLEAR first=3 last=3\n") == [
        "error: sp 0003 EVENT_SEMAPHORE_RANGE_CLEAR clears S[3] (qGpSimdIO0), which pool 0001 EVENT_SEMAPHORE uses, and "
        "nothing orders them [NKI-STREAM-CLEAR]\n"
        "  why: an update that a clear overtakes is lost, and a wait for it never ends\n"
        "  fix: let all engines that use the semaphore wait for each other before the clear and after it"]


def test_a_count_down_that_nothing_orders__is_an_error():
    """pool may wait for ever: sp counts down what it waits for."""
    last = "sp 0002: S[5] (qSyncIO1)>=16 EVENT_SEMAPHORE\n"
    text = TEXT.replace(".queue 0", ".semaphore 6 Go\n.queue 0").replace(
        "act 0000: ACT_TABLE_LOAD table=exp", "act 0000: ACT_TABLE_LOAD table=exp S[6] (Go)++@complete").replace(
        "pool 0001: S[3] (qGpSimdIO0)>=16 EVENT_SEMAPHORE\n",
        "pool 0001: S[3] (qGpSimdIO0)>=16 EVENT_SEMAPHORE\npool 0002: S[6] (Go)>=1 EVENT_SEMAPHORE\n")
    assert findings(text) == []
    assert findings(text.replace(last, f"{last}sp 0003: S[6] (Go)>=1 EVENT_SEMAPHORE S[6] (Go)--@complete\n")) == [
        "error: sp 0003 EVENT_SEMAPHORE counts down S[6] (Go), for which pool 0002 EVENT_SEMAPHORE waits, and nothing orders "
        "them [NKI-STREAM-COUNT]\n"
        "  why: if the semaphore is counted down first, the wait may never end\n"
        "  fix: let pool 0002 EVENT_SEMAPHORE wait for a semaphore that no other engine counts down, or order them by another "
        "one"]


@pytest.mark.parametrize("waits, amount, least", [
    ("", 16, -16), ("S[5] (qSyncIO1)>=8 ", 16, -8), ("S[5] (qSyncIO1)>=16 ", 16, 0), ("S[5] (qSyncIO1)>=16 ", 4, 12)])
def test_a_count_down_of_what_may_not_have_been_counted_up__is_an_error(waits, amount, least):
    """In the order that the checker follows, the transfer is complete."""
    end = f"{waits}EVENT_SEMAPHORE S[5] (qSyncIO1)-={amount}@complete  // k.py:4"
    errors = [error for error in broken(f"{END}", f"sp 0002: {end}\n") if "BELOW" in error]
    assert errors == ([] if least >= 0 else [
        f"k.py:4:1: error: sp 0002 EVENT_SEMAPHORE (k.py:4) counts down S[5] (qSyncIO1) by 16, but it may be "
        f"lower and would become {least} [NKI-STREAM-BELOW]\n"
        "  why: a semaphore counts from 0 up; what counts this one up may still be running\n"
        "  fix: let sp 0002 EVENT_SEMAPHORE (k.py:4) wait for S[5] (qSyncIO1)>=16"])


def test_a_count_below_zero__names_the_instruction():
    assert broken("dve 0001: TENSOR_TENSOR", "dve 0001: EVENT_SEMAPHORE S[2] (Vector)--@complete\ndve 0002: TENSOR_TENSOR") == [
        "error: semaphore 2 (Vector) would become -1 at dve 0001 EVENT_SEMAPHORE [NKI-SEMAPHORE-RANGE]\n"
        "  why: a semaphore counts from 0 to 65535"]


def test_cores_that_are_elsewhere__are_said_to_be_not_analyzed():
    text = (".nki_isa 1\n.kernel f\n.target trn2\n.output held fp32[4] 0\n.stream sp\n"
            "sp 0000: CORE_BARRIER cores=(0,1) data=fp32@held[1][4]\n")
    report = check_streams([parse_program(text)])
    assert report.not_analyzed == ["CORE_BARRIER waits for cores whose streams are not among those that were given"]


def header(*lines: str) -> str:
    return "\n".join([".nki_isa 1", ".kernel f", ".target trn2", ".sbuf 4 of 212984", *lines])


def test_branches_on_data__are_followed_for_a_limited_number_of_instructions():
    steps = [step for k in range(40) for step in ("TENSOR_LOAD dst=r1 src=int32@0x0[1][1]*1",
                                                  f"COMPARE_BRANCH op=eq lhs=r1 rhs={k} target={2 * k + 3}")]
    program = parse_program(header(".stream dve", "dve 0000: MEMSET value=3 dst=int32@0x0[1][1] channels=1",
                                   *(f"dve {k:04d}: {step}" for k, step in enumerate(steps, 1))))
    for most, ways in ((100_000, 32), (300, 4)):
        assert check_streams([program], most).not_analyzed == [
            f"values in tensors decide branches in more ways than the {ways} that are checked"]
    assert check_streams([program], 80).not_analyzed[0] == "they execute more than 80 instructions, the most that are checked"


def test_waits_for_what_all_engines_count__are_tried_a_limited_number_of_times(monkeypatch):
    text = header(".semaphore 0 A", *(f".stream {engine}\n" + "\n".join(
        f"{engine} {2 * k:04d}: EVENT_SEMAPHORE S[0] (A)++@complete\n{engine} {2 * k + 1:04d}: S[0] (A)>={4 * k} EVENT_SEMAPHORE"
        for k in range(20)) for engine in ("act", "dve", "pool", "sp")))
    assert check_streams([parse_program(text)]).verdict == "proved"
    monkeypatch.setattr(happens_before, "TRIED", 100)
    assert check_streams([parse_program(text)]).not_analyzed == [
        "they wait too often for semaphores that several engines and queues count up"]


def test_clears_of_semaphores_that_nothing_uses__begin_no_epochs():
    clears = [f"act {k:04d}: EVENT_SEMAPHORE_RANGE_CLEAR first=0 last=1" for k in range(9)]
    programs = [parse_program(header(".semaphore 0 A", ".semaphore 1 B", ".stream act", *clears[:4],
                                     "act 0004: EVENT_SEMAPHORE S[1] (B)++@complete", *clears[5:]))]
    relation = HappensBefore(StreamTrace(programs, Choices(), 100))
    assert [(number, epoch.began and epoch.began.pc, epoch.ended and epoch.ended.pc)
            for _, number, epoch in relation.epochs] == [(0, 8, None), (1, 3, 5), (1, 8, None)]


def test_a_queue_without_a_stream__is_no_error():
    program = parse_program(header(".semaphore 0 A", ".queue 0 q act 0"))
    assert check_streams([program]).verdict == "proved"


def test_bytes__are_said_by_the_tensor_that_they_lie_in():
    programs = [parse_program(TEXT)]
    words = Descriptions(programs, HappensBefore(StreamTrace(programs, Choices(), 10_000)))
    assert [words.where(memory, 3, 8) for memory in (("input", 0), ("input", 1), ("output", 0), ("sbuf", 0))] == [
        "byte 8 of x", "byte 8 of w", "byte 8 of out", "byte 8 of partition 3 of sbuf"]


@pytest.mark.parametrize("count", range(7))
def test_an_access_outside_of_buffers__names_four_of_them(count):
    programs = [parse_program(TEXT)]
    trace = StreamTrace(programs, Choices(), 10_000)
    access = Event(programs[0].streams[Engine.SCALAR][0], 0, Engine.SCALAR, 0, 0, 1)
    live = [DeviceLiveRange(f"t{k}", "sbuf", 0, 4, 8 * k, 8, ()) for k in range(count)]
    footprint = ByteFootprint(("sbuf", 0), Access(UINT8, Linear(1), Linear(64), ((1, 2), (1, 8))), ())
    listing = ", ".join(f"t{k} (bytes {8 * k} to {8 * k + 7})" for k in range(min(count, 4)))
    more = f" and {count - 4} more" if count > 4 else ""
    error = Descriptions(programs, HappensBefore(trace)).outside(AccessOutsideLiveBuffers(access, footprint), live)
    assert error.advice[0] == (f"live there are {listing}{more}" if count else "none is live there")
    assert "touches bytes 64 to 71 of partitions 1 to 2 of sbuf" in error.headline


def test_a_deadlock__shows_its_cycle():
    assert broken("S[4] (qSyncIO0)>=16 ACTIVATE", "S[0] (Tensor)>=1 ACTIVATE")[0].startswith(
        "error: no engine can continue: pe waits at 0000 EVENT_SEMAPHORE for S[1] (Scalar)>=1, which is 0, which act would "
        "count up after that; act waits at 0001 ACTIVATE (k.py:6) for S[0] (Tensor)>=1, which is 0, which pe would count up "
        "after that [NKI-DEADLOCK]")


# -- real programs -----------------------------------------------------------------------------------------------------
@pytest.mark.share(4)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_what_the_emission_makes__is_sound(seed, options):
    assert check_streams([emit_code(RandomCode(seed, 30).code, options)]).violations == []


def lines_to_check(steps: int) -> float:
    """Lines that the checker executes for each instruction of a program whose tiles overlap in part."""
    program = emit_code(RandomCode(3, steps, loops=False).code, Emission(reorder=False))
    executed = 0

    def line(frame, event, argument):
        nonlocal executed
        executed += event == "line"
        return line
    sys.settrace(lambda frame, event, argument: line if "/checker/" in frame.f_code.co_filename else None)
    try:
        check_streams([program])
    finally:
        sys.settrace(None)
    return executed / sum(map(len, program.streams.values()))


def test_the_work_for_an_instruction__does_not_grow_with_the_program():
    assert lines_to_check(600) < 1.5 * lines_to_check(200)


def conflicts_byte_by_byte(program: Program) -> set[tuple[int, int]]:
    """Pairs of instructions whose accesses on chip nothing orders. Of each byte the last write is kept, and the last read
    of each lane since then."""
    trace = StreamTrace([program], Choices(), 10_000)
    relation, operands, conflicts = HappensBefore(trace), Operands([program]), set()
    touches = [(event, touch) for event in trace.steps if isinstance(event, Event) for touch in operands.touches(event)
               if touch.footprint.memory[0] != "input"]
    rows = sorted({row for _, t in touches for row in (t.footprint.first, t.footprint.last + 1)})
    writes: dict[tuple[object, ...], Event] = {}
    reads: dict[tuple[object, ...], dict[int, Event]] = {}
    for event, (footprint, _, written, *_) in touches:
        if footprint.memory[0] not in ("sbuf", "psum"):
            continue
        lane = event.queue_lane if event.queue_lane >= 0 else event.lane
        runs = runs_of(footprint.dims, footprint.size)
        offsets = [k for start in runs.starts.tolist() for k in range(start, start + runs.length, footprint.size)]
        for row in rows[rows.index(footprint.first):rows.index(footprint.last + 1)]:
            for offset in offsets:
                byte = footprint.memory, row, footprint.start + offset
                for before in (*([writes[byte]] if byte in writes else []),
                               *(reads.get(byte, {}).values() if written else ())):
                    if before is not event and not relation.ordered(before, event):
                        conflicts.add((id(before.instruction), id(event.instruction)))
                if written:
                    writes[byte], reads[byte] = event, {}
                else:
                    reads.setdefault(byte, {})[lane] = event
    return conflicts


@pytest.mark.parametrize("seed", range(4))
def test_conflicts__are_those_of_each_byte(seed):
    program = emit_code(RandomCode(seed, 60, loops=False).code, Emission())
    violated = 0
    for wait in waits_of(program)[seed % 3::16]:
        mutant = without_wait(program, *wait)
        trace = StreamTrace([mutant], Choices(), 10_000)
        HappensBefore(trace)
        conflicts = {(id(c.first.instruction), id(c.then.instruction)) for c in MemoryCheck(trace, 10_000).conflicts
                     if c.memory[0] in ("sbuf", "psum")}
        assert conflicts == conflicts_byte_by_byte(mutant)
        violated += bool(conflicts)
    assert violated


@pytest.mark.share(3)
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_without_any_one_wait__an_order_is_missing(seed, loops):
    drawn = RandomCode(seed, 25, loops=loops)
    program = emit_code(drawn.code, Emission())
    for wait in waits_of(program):
        mutant = without_wait(program, *wait)
        report = check_streams([mutant])
        if report.verdict != "violated":
            assert loops                        # another engine may have waited for the same
            assert_values(mutant, drawn)


def assert_values(program: Program, drawn: RandomCode) -> None:
    expected = drawn.expected()
    for seed in (None, *range(8)):
        output = np.zeros_like(expected)
        simulate(program, [a.copy() for a in drawn.arrays], [output], seed)
        np.testing.assert_array_equal(output, expected)


def test_a_queue_with_two_transfers_under_way__needs_the_sum_of_both():
    """Each DMA engine reports for itself: 16 of 32 do not say that the first transfer is complete."""
    program = emit_code(RandomCode(0, 25, loops=False).code, Emission())
    engine, number = next((e, k) for e, s in program.streams.items() for k, i in enumerate(s) if i.queue is not None)
    stream = list(program.streams[engine])
    twice = replace(stream[number], waits=())
    stream.insert(number + 1, twice)
    report = check_streams([replace(program, streams={**program.streams, engine: stream})])
    assert "NKI-STREAM-ORDER" in str(report.violations[0])

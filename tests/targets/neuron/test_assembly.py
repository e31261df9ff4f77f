# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text form: how instructions read, and errors with file, line and column."""

import re

import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.targets.neuron import SEPARATOR, assemble, disassemble, programs_of_assembly
from nki_mlir.targets.neuron.format.assembly import TooManyCores, TooManyLines, parse_program
from nki_mlir.targets.neuron.format.assembly_operation import AssemblyError

HEADER = """\
.nki_isa 1
.kernel k
.target trn2
.sbuf 4096 of 212984
.psum 2048 of 16384
.input x fp32[128,64] 0
.output y fp32[128,64] 0
.constant c fp32[2] 0
.data 0000803f00000040
.semaphore 0 Vector
.semaphore 1 qSyncIO0
.queue 0 qSyncIO0 sp 1
"""

PROGRAM = HEADER + """\
.stream dve
dve 0000: MOVE dst=r1 value=0
dve 0001: S[1] (qSyncIO0)>=16 TENSOR_TENSOR op=add dst=fp32@0x400[1][64] lhs=fp32@0x0[1][64] rhs=fp32@0x0[1][64] channels=128 S[0] (Vector)++@complete  // kernel.py:7
dve 0002: TENSOR_SCALAR op0=multiply imm0=0.5 reverse0=1 dst=bfloat16@0x800+2*r1[1][64]*64 src=fp32@0x400[-1][64]*64b channels=64
dve 0003: ALU op=add dst=r1 lhs=r1 rhs=1
dve 0004: COMPARE_BRANCH op=lt lhs=r1 rhs=4 target=0002
.stream sp
sp 0000: DMA queue=0 dst=fp32@0x0[1][64] src=fp32@x[1,64][64,128] channels=128 descriptors=128*256 S[1] (qSyncIO0)+=16@complete
"""


def canonical(text):
    return disassemble(assemble(text, "a.nkiasm"))


def test_text__comes_back_from_the_binary():
    text = canonical(PROGRAM)
    assert text == PROGRAM.replace("[1][64]*64 src", "[1][64] src").replace("reverse0=1 dst", "reverse0=1 dst")
    assert canonical(text) == text


@pytest.mark.parametrize("memory, used, limit", [("sbuf", 4096, 212984), ("psum", 2048, 16384)])
def test_program__may_use_all_of_a_memory_but_no_more(memory, used, limit):
    text = PROGRAM.replace(f".{memory} {used} of", f".{memory} {limit} of")
    assert f".{memory} {limit} of {limit}" in canonical(text)
    with pytest.raises(NkiMlirError, match=f"the program uses {1 << 20} bytes of {memory.upper()} per partition, trn2 has "):
        canonical(text.replace(f".{memory} {limit} of", f".{memory} {1 << 20} of"))


def test_defaults_comments_and_blank_lines__may_be_left_out():
    short = PROGRAM.replace("reverse0=1 ", "").replace(".stream dve", "\n// the vector engine\n.stream dve")
    assert "reverse0" not in canonical(short)


def test_descriptors__may_be_left_out_but_not_be_wrong():
    assert canonical(PROGRAM.replace(" descriptors=128*256", "")) == canonical(PROGRAM)


@pytest.mark.parametrize("old,new,line,anchor,what", [
    (".nki_isa 1", ".nki_isa 2", 1, "2", "the text is of another version; this reads version 1"),
    (".nki_isa 1\n", "", 20, "", "the text has no .nki_isa line"),
    (".target trn2", ".target trn9", 3, "trn9", "there is no target named 'trn9'"),
    (".sbuf 4096 of", f".sbuf {chr(0x663) * 5_000} of", 4, chr(0x663), "an integer has at most 40 digits, this has 5000"),
    (".sbuf 4096 of 212984", ".sbuf 4096 of 1", 4, "of 1", "this target has 212984 bytes per partition"),
    (".kernel k", ".kernels k", 2, "", "there is no directive .kernels"),
    (".kernel k", ".kernel k also", 2, "also", "unexpected 'also'"),
    (".output y", ".output x", 7, "x", "variable x is declared twice"),
    ("fp32[128,64] 0\n.output", "fp33[128,64] 0\n.output", 6, "fp33", "there is no element type fp33"),
    (".data 0000803f00000040", ".data 0000803f", 2, "", "variable c has 4 bytes of data, its shape takes 8"),
    (".data 0000803f00000040", ".data 00008", 9, "0", "expected two digits for each byte, found 5 digits"),
    (".input x fp32[128,64] 0", ".input x fp32[" + "1," * 32 + "1] 0", 2, "", "variable x has 33 dimensions, more than 32"),
    (".input x fp32[128,64] 0", f".input x fp32[{'9' * 39},0] 0", 2, "", f"variable x has the shape [{'9' * 39}, 0]: a tensor has at most 137,438,953,472 bytes"),
    ("S[1] (qSyncIO0)>=16", " ".join(["S[1] (qSyncIO0)>=16"] * 4), 15, "S[1] (qSyncIO0)>=16 TENSOR",
     "an instruction has at most 3 waits"),
    ("rhs=fp32@0x0[1][64]", f"rhs=fp32@0x0[{'1,' * 31}1][{'1,' * 31}1]", 15, "fp32@0x0[1,", "expected at most 31 steps"),
    ("+2*r1[", "+2*r1" * 65 + "[", 16, "bfloat16", "expected at most 64 registers"),
    (".semaphore 1", ".semaphore 2", 11, "2 q", "the numbers count from 0: the next one is 1"),
    ("qSyncIO0 sp 1", "qSyncIO0 ssp 1", 12, "ssp", "there is no engine ssp; there are pe, act, dve, pool, sp"),
    ("qSyncIO0 sp 1", "qSyncIO0 sp 7", 2, "", "there is no semaphore 7"),
    ("dve 0001:", "dve 0003:", 15, "0003", "the index of this instruction is 0001"),
    ("dve 0001:", "act 0001:", 15, "", "expected 'dve', found 'act'"),
    ("S[1] (qSyncIO0)>=16", "S[0] (qSyncIO0)>=16", 15, "S[0] (q", "semaphore 0 is Vector, not qSyncIO0"),
    ("S[1] (qSyncIO0)>=16", "S[9] (qSyncIO0)>=16", 15, "S[9]", "there is no semaphore 9"),
    ("S[1] (qSyncIO0)>=16", "S[1] (qSyncIO0)>16", 15, ">16", "expected >= and a value, found '>16'"),
    ("S[1] (qSyncIO0)>=16", "S[1] (qSyncIO0)>=70000", 15, "", "70000 is not a value of a semaphore"),
    ("TENSOR_TENSOR", "TENSOR_TENSORS", 15, "TENSOR", "there is no instruction TENSOR_TENSORS"),
    ("op=add dst=fp32", "op=adds dst=fp32", 15, "", "attribute 'op' of 'tensor_tensor' is 'adds', which must be"),
    ("op=add dst=fp32", "dst=fp32", 15, "TENSOR", "TENSOR_TENSOR needs op="),
    (" rhs=fp32@0x0[1][64]", "", 15, "TENSOR", "TENSOR_TENSOR needs rhs="),
    ("rhs=fp32@0x0[1][64]", "rhs=fp32@0x0[1][32]", 15, "", "'tensor_tensor' needs operands of the same shape"),
    ("rhs=fp32@0x0[1][64]", "rhs=fp32@0x0[1][64,2]", 15, "fp32@0x0[1][64,2]",
     "expected a step for each count, and positive counts, found 'fp32@0x0[1][64,2]'"),
    ("rhs=fp32@0x0[1][64]", "rhs=fp32@0x2[1][64]", 15, "fp32@0x2", "expected offsets that are multiples of the 4"),
    ("rhs=fp32@0x0[1][64]", "rhs=fp32@z[1][64]", 15, "fp32@z", "there is no variable z"),
    ("rhs=fp32@0x0[1][64]", "rhs=fp32@y[1][64]", 15, "", "Expected operand 'rhs' of 'tensor_tensor'"),
    ("rhs=fp32@0x0[1][64]", "rhs=fp32@0x3fff0[1][64]", 15, "", "Out-of-bound access"),
    ("rhs=fp32@0x0[1][64]", "rhs=fp32@0x0[1][64] also=9", 15, "9 channels", "TENSOR_TENSOR has no field also, found"),
    ("rhs=fp32@0x0[1][64]", "rhs=fp32@0x0[1][64] op=sub", 15, "op=sub", "op occurs twice"),
    ("rhs=fp32@0x0[1][64]", "rhs=float@0x0[1][64]", 15, "float", "there is no element type float"),
    ("rhs=fp32@0x0[1][64]", "rhs=fp32@0x0[9223372036854775807][64]", 15, "",
     "rhs has a step or an extent of more than 1,099,511,627,776"),
    ("rhs=fp32@0x0[1][64] channels=128", "rhs=fp32@0x0[1][64]", 15, "fp32@0x400",
     "expected channels= in the instruction, or *partitions at the tile"),
    ("++@complete", "++@read", 15, "++@read", "expected an update such as ++@complete, found '++@read'"),
    ("imm0=0.5", "imm0=half", 16, "half", "expected a float, found 'half'"),
    ("reverse0=1", "reverse0=2", 16, "2 dst", "expected 0 or 1, found '2'"),
    ("+2*r1[", "+2*r40[", 16, "bfloat16", "there are registers r0 to r31"),
    ("+2*r1[", "+2*s1[", 16, "bfloat16", "expected terms such as +0x40, +2p or +64*r1"),
    ("MOVE dst=r1", "MOVE dst=1", 14, "1 value", "expected a register, found '1'"),
    ("ALU op=add", "ALU op=root", 17, "", "ALU has no op 'root'"),
    ("target=0002", "target=0012", 18, "", "the branch goes to 12, the stream has 5 instructions"),
    ("target=0002", "", 18, "COMPARE", "COMPARE_BRANCH needs target="),
    ("queue=0 ", "", 20, "", "DMA names no queue of the program"),
    ("queue=0 ", "queue=3 ", 20, "", "DMA names no queue of the program"),
    ("descriptors=128*256", "descriptors=64*512", 20, "64*512", "expected descriptors=128*256, found '64*512'"),
    (" S[1] (qSyncIO0)+=16@complete", "", 20, "", "a transfer of qSyncIO0 must count up semaphore 1"),
    (".stream sp", ".stream dve", 19, "dve", "the stream of dve occurs twice"),
    ("sp 0000: DMA queue=0", "sp 0000: MOVE queue=0 dst=r1 value=0 //", 20, "//", "unexpected '//"),
    ("dve 0000: MOVE", "dve 0000: MOVE queue=0", 14, "", "MOVE is not a transfer: it takes no queue"),
    (".stream sp\nsp", ".stream act\nact", 20, "", "queue qSyncIO0 belongs to another engine"),
])
def test_error__says_where_and_what(old, new, line, anchor, what):
    assert old in PROGRAM
    text = PROGRAM.replace(old, new, 1)
    column = text.split("\n")[line - 1].index(anchor) + 1
    with pytest.raises(AssemblyError) as caught:
        parse_program(text, "a.nkiasm")
    assert str(caught.value).startswith(f"a.nkiasm:{line}:{column}: error: {what}")
    assert re.search(r"\[NKI-ASSEMBLY\]\n(  why: .*\n)?  fix: \S", str(caught.value))


@pytest.mark.parametrize("old, new, fix", [
    ("TENSOR_TENSOR", "TENSOR_TENSORS", "write TENSOR_TENSOR"),
    ("op=add dst=fp32", "opp=add dst=fp32", "write op= and its value after TENSOR_TENSOR"),
    ("rhs=fp32@0x0[1][64]", "rhs=fp32@0x0[1][64] chanels=9", "write channels, or remove it"),
    ("rhs=fp32@0x0[1][64]", "rhs=f32@0x0[1][64]", "write fp32"),
    ("qSyncIO0 sp 1", "qSyncIO0 qqqqqqqqqq 1", "write one of pe, act, dve, pool, sp"),
    (".kernel k", ".kernell k", "write kernel"),
    (".nki_isa 1\n", "", "begin the text with .nki_isa 1"),
    (".sbuf 4096 of 212984", ".sbuf 4096 of 1", "write 4096 of 212984"),
    ("dve 0001:", "dve 0003:", "write dve 0001: the instructions of a stream count from 0"),
    ("S[1] (qSyncIO0)>=16", "S[0] (qSyncIO0)>=16", "write S[0] (Vector), or the number of qSyncIO0"),
    ("imm0=0.5", "imm0=half", "write a number such as 1.0"),
    (".output y", ".output 7", "write a name"),
    ("++@complete", "++3@complete", "write ++@complete or --@complete for one, and +=16@complete or -=16@complete for"),
    ("op=add dst=fp32", "op=adds dst=fp32", "give "),
    ("ALU op=add", "ALU op=root", "use one of add, sub"),
])
def test_error__says_how_to_mend_the_text(old, new, fix):
    with pytest.raises(AssemblyError) as caught:
        parse_program(PROGRAM.replace(old, new, 1), "a.nkiasm")
    assert f"\n  fix: {fix}" in str(caught.value)


def test_error__unknown_name_among_many_shows_the_first():
    with pytest.raises(AssemblyError, match=r"fix: write one of (\w+, ){12}\.\.\.$"):
        parse_program(PROGRAM.replace("TENSOR_TENSOR", "Q" * 60_000, 1), "a.nkiasm")


def test_lines__are_limited_in_number_and_length(monkeypatch):
    monkeypatch.setenv("NKI_MLIR_INPUT_TEXT", str(128 * 20))
    assert parse_program(PROGRAM).kernel == "k"
    with pytest.raises(TooManyLines) as caught:
        parse_program(PROGRAM + "\n", "a.nkiasm")
    assert str(caught.value) == (
        "a.nkiasm:1:1: error: the text has 21 lines, more than the limit of 20 [NKI-INPUT-LINES]\n"
        "  why: each line takes several microseconds to read, and its instruction several to check\n"
        "  fix: set NKI_MLIR_INPUT_TEXT to 2,688, which is 128 bytes for each line")
    with pytest.raises(AssemblyError, match="a:1:1: error: a line has at most 65,536 characters, this has 70,000"):
        parse_program("." * 70_000, "a")
    assert parse_program(HEADER.replace("fp32[2]", "uint8[70000]").replace(".data 0000803f00000040", ".data " + "00" * 70_000))


@pytest.mark.parametrize("entries, message", [
    ([f".input x{k} fp32[1] {k}" for k in range(65_536)], "65,536 variables are more than 65,535"),
    ([".note n"] * 65_536, "65,536 notes are more than 65,535"),
    ([".semaphore 0 A", *(f".queue {k} q sp 0" for k in range(257))], "257 queues are more than 256")])
def test_entries_that_no_binary_can_number(entries, message):
    with pytest.raises(AssemblyError, match=f"a:2:1: error: {message}"):
        parse_program("\n".join([".nki_isa 1", ".kernel k", ".target trn2", *entries]), "a")


def test_cores__are_limited_and_name_their_lines():
    one = ".nki_isa 1\n.kernel k\n.target trn2\n"
    assert len(programs_of_assembly(SEPARATOR.join([one] * 256))) == 256
    with pytest.raises(TooManyCores, match="a:1:1: error: the text has programs for 257 cores, more than the limit of 256"):
        programs_of_assembly(SEPARATOR.join([one] * 257), "a")
    with pytest.raises(AssemblyError, match=r"a:11:1: error: there is no directive \.other"):
        programs_of_assembly(SEPARATOR.join([one, one, one.replace(".target", ".other")]), "a")


def test_error__instruction_before_the_first_stream():
    with pytest.raises(AssemblyError, match=r"a:2:1: error: an instruction precedes the first .stream"):
        parse_program(".nki_isa 1\ndve 0000: MOVE dst=r1 value=0\n", "a")


def test_address__outside_of_the_memory_at_first_is_written_in_terms():
    text = PROGRAM.replace("dst=bfloat16@0x800+2*r1", "dst=bfloat16@0x0-2p-0x40+2*r1+32*r2p")
    assert "dst=bfloat16@0x0-2p-0x40+32*r2p+2*r1[1][64]" in canonical(text)


def test_psum_address__starts_at_its_base():
    text = PROGRAM.replace("lhs=fp32@0x0[1][64]", "lhs=fp32@0x2000800[1][64]")
    op = parse_program(text).streams[next(e for e in parse_program(text).streams if e.asm == "dve")][1].op
    assert (op.lhs.space, op.lhs.access.partition.const, op.lhs.access.free.const) == ("psum", 0, 512)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Malformed programs: each rule with its values and fix, which neither text nor binary breaks by itself."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from nki_mlir.diagnostics import Location
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.program import Program, Queue, Semaphore
from nki_mlir.dialects.op import changed
from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.format.assembly import parse_program
from nki_mlir.targets.neuron.format.assembly_operation import AssemblyError
from nki_mlir.targets.neuron.validate import BadProgram, check_program

from .test_assembly import PROGRAM

Change = Callable[[Program], object]


def instruction(engine: Engine, pc: int, **fields: object) -> Change:
    def apply(program: Program) -> None:
        stream = program.streams[engine]
        stream[pc] = replace(stream[pc], **fields)
    return apply


def operation(pc: int, **fields: object) -> Change:
    def apply(program: Program) -> None:
        stream = program.streams[Engine.VECTOR]
        stream[pc] = replace(stream[pc], op=replace(stream[pc].op, **fields))
    return apply


def added(program: Program, op: isa.Control) -> None:
    program.streams[Engine.VECTOR].append(isa.Instruction(op))


VECTOR, SYNC = Engine.VECTOR, Engine.SYNC
MALFORMED: dict[str, tuple[Change, str, str]] = {
    "a name": (lambda p: setattr(p, "kernel", "my kernel"), "'my kernel' is not a name",
               "write a letter or _, then letters, digits, _ and ."),
    "variables": (lambda p: p.variables.append(replace(p.variables[0], index=1)), "2 variables are named x",
                  "give each variable its own name"),
    "a note": (lambda p: p.notes.append("two\nlines"), "the note 'two\\nlines' cannot be printed",
               "write one line of printable characters, without spaces at its ends"),
    "an empty note": (lambda p: p.notes.append(""), "the note '' cannot be printed",
                      "write one line of printable characters, without spaces at its ends"),
    "a number": (lambda p: p.variables.append(replace(p.variables[0], name="z", index=2)),
                 "the input variable z has the number 2, not 1", "number the input variables 0, 1, ... in their order"),
    "data": (lambda p: p.variables[0].data.extend(b"abc"), "variable x has 3 bytes of data, its shape takes 32768",
             "remove the data: only constants have some"),
    "constants": (lambda p: p.variables[2].data.extend(b"abc"), "variable c has 11 bytes of data, its shape takes 8",
                  "give 8 bytes"),
    "semaphores": (lambda p: p.semaphores.extend(Semaphore("S") for _ in range(255)),
                   "257 semaphores are used, trn2 has 256", "let several instructions count up one semaphore"),
    "a queue": (lambda p: p.queues.append(Queue("q", SYNC, 2)), "there is no semaphore 2",
                "use 0 to 1, or declare more"),
    "no semaphores": (lambda p: p.semaphores.clear(), "there is no semaphore 1", "declare semaphores"),
    "bytes": (lambda p: setattr(p, "sbuf_bytes", -1),
              "the program uses -1 bytes of SBUF per partition, trn2 has 229376", "use at most 229376 bytes, and give the "
              "end of the last tile as the size"),
    "a file": (instruction(VECTOR, 0, location=Location("a\nb.py", 1, 0)),
               "dve 0000: the name of its source file 'a\\nb.py' cannot be printed", "give a name of printable characters"),
    "waits": (instruction(VECTOR, 0, waits=(isa.Wait(0, 1),) * 4), "dve 0000: an instruction has 4 waits, more than 3",
              "let an EVENT_SEMAPHORE before it wait for some of the semaphores"),
    "a wait": (instruction(VECTOR, 1, waits=(isa.Wait(0, -1),)), "dve 0001: -1 is not a value of a semaphore",
               f"wait for 0 to {isa.SEMAPHORE_MAX}"),
    "a wait for none": (instruction(VECTOR, 1, waits=(isa.Wait(-1, 1),)), "dve 0001: there is no semaphore -1",
                        "use 0 to 1, or declare more"),
    "no change": (instruction(VECTOR, 1, update=isa.Update(0, 0)), "dve 0001: 0 cannot be added to a semaphore",
                  f"count up or down by 1 to {isa.SEMAPHORE_MAX}"),
    "an update": (instruction(VECTOR, 1, update=isa.Update(0, -isa.SEMAPHORE_MAX - 1)),
                  f"dve 0001: {-isa.SEMAPHORE_MAX - 1} cannot be added to a semaphore",
                  f"count up or down by 1 to {isa.SEMAPHORE_MAX}"),
    "a queue of a computation": (instruction(VECTOR, 1, queue=0), "dve 0001: TENSOR_TENSOR is not a transfer: it takes "
                                 "no queue", "remove its queue"),
    "a queue of a control": (instruction(VECTOR, 0, queue=0), "dve 0000: MOVE is not a transfer: it takes no queue",
                             "remove its queue"),
    "a transfer": (instruction(SYNC, 0, queue=1), "sp 0000: DMA names no queue of the program, which has 1",
                   "give the number of a queue of sp, or declare one"),
    "a negative queue": (instruction(SYNC, 0, queue=-1), "sp 0000: DMA names no queue of the program, which has 1",
                         "give the number of a queue of sp, or declare one"),
    "another engine": (lambda p: p.queues.__setitem__(0, Queue("q", Engine.SCALAR, 1)),
                       "sp 0000: queue q belongs to another engine, act",
                       "issue the transfer from act, or use a queue of sp"),
    "a completion": (instruction(SYNC, 0, update=isa.Update(0, 16)),
                     "sp 0000: a transfer of qSyncIO0 must count up semaphore 1",
                     "end the instruction with an update of semaphore 1"),
    "an engine": (lambda p: p.streams[Engine.TENSOR].append(replace(p.streams[VECTOR][1], waits=())),
                  "pe 0000: TENSOR_TENSOR does not run on pe", "issue it in the stream of "),
    "a register": (operation(0, dst=isa.Register(32)), "dve 0000: there is no register r32", "use r0 to r31"),
    "a choice": (operation(3, op="root"), "dve 0003: ALU has no op 'root'", "use one of add, "),
    "a number of 33 bits": (operation(0, value=1 << 31), "dve 0000: 2147483648 does not fit 32 bits",
                            "use -2147483648 to 2147483647"),
    "a branch": (operation(4, target=isa.Label(6)), "dve 0004: the branch goes to 6, the stream has 5 instructions",
                 "branch to 0 to 5, where 5 is the end"),
    "a negative branch": (operation(4, target=isa.Label(-1)), "dve 0004: the branch goes to -1",
                          "branch to 0 to 5, where 5 is the end"),
    "a range": (lambda p: added(p, isa.RangeClear(1, 0)), "dve 0005: the range of semaphores 1 to 0 is empty",
                "give the first and the last number in this order"),
    "the end of a range": (lambda p: added(p, isa.RangeClear(0, 2)), "dve 0005: there is no semaphore 2",
                           "use 0 to 1, or declare more"),
    "the start of a range": (lambda p: added(p, isa.RangeClear(-1, 1)), "dve 0005: there is no semaphore -1",
                             "use 0 to 1, or declare more"),
}
AT_THE_LIMIT: dict[str, Change] = {
    "three waits": instruction(VECTOR, 0, waits=(isa.Wait(0, 1),) * 3),
    "values": instruction(VECTOR, 1, waits=(isa.Wait(0, 0), isa.Wait(1, isa.SEMAPHORE_MAX))),
    "updates": instruction(VECTOR, 1, update=isa.Update(0, -isa.SEMAPHORE_MAX)),
    "semaphores": lambda p: p.semaphores.extend(Semaphore("S") for _ in range(254)),
    "a register": operation(0, dst=isa.Register(31)),
    "the greatest number": operation(0, value=(1 << 31) - 1),
    "the least number": operation(0, value=-1 << 31),
    "a branch to the end": operation(4, target=isa.Label(5)),
    "a branch to the start": operation(4, target=isa.Label(0)),
    "a range of one": lambda p: added(p, isa.RangeClear(1, 1)),
    "a note": lambda p: p.notes.append("a note"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_error__says_rule_values_and_fix(case: str) -> None:
    change, what, fix = MALFORMED[case]
    program = parse_program(PROGRAM)
    change(program)
    with pytest.raises(BadProgram) as caught:
        check_program(program)
    assert f"error: {what}" in str(caught.value)
    assert f"\n  fix: {fix}" in str(caught.value)


@pytest.mark.parametrize("case", AT_THE_LIMIT)
def test_programs_at_a_limit_are_well_formed(case: str) -> None:
    program = parse_program(PROGRAM)
    AT_THE_LIMIT[case](program)
    assert check_program(program) is program


def test_error__of_an_operation_keeps_its_reason_and_fix() -> None:
    """The rules of the operation's class, at the line of the instruction."""
    program = parse_program(PROGRAM)
    instruction(VECTOR, 1, op=changed(program.streams[VECTOR][1].op, None, op="adds"))(program)
    with pytest.raises(BadProgram, match=r"kernel.py:7:1: error: dve 0001: attribute 'op' of 'tensor_tensor' is 'adds'"
                                         r"[^\n]*\[NKI-PROGRAM\](.|\n)*\n  fix: give "):
        check_program(program)


@pytest.mark.parametrize("tile, is_integer_on_chip", [
    ("int32@0x0[1][1]*1", True), ("uint8@0x40003[1][1]*1", True), ("int32@0x2000000[1][1]*1", True),
    ("fp32@0x0[1][1]*1", False), ("int32@0x0[1][2]*1", False), ("int32@0x0[1][1]*2", False), ("int32@n[1][1]", False)])
def test_loads_of_registers__read_one_integer_on_chip(tile: str, is_integer_on_chip: bool) -> None:
    text = PROGRAM.replace(".semaphore 0", ".input n int32[1] 1\n.semaphore 0")
    text += f".stream act\nact 0000: TENSOR_LOAD dst=r1 src={tile}\n"
    if is_integer_on_chip:
        assert check_program(parse_program(text)).streams[Engine.SCALAR]
        return
    with pytest.raises(AssemblyError, match=r"TENSOR_LOAD reads one integer on chip, got .*\n.*\n?  fix: give a tile of one "
                                            r"element of an integer dtype in SBUF or PSUM"):
        parse_program(text)

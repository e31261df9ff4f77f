# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check that programs are well formed, whether they come from the emitter, from text or from a binary."""

import re
from collections import Counter
from collections.abc import Iterator

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import Linear, Tile
from nki_mlir.dialects.attributes import LARGEST_STEP
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.program import KINDS, Program
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.operation_kind import OperationKind
from nki_mlir.dialects.verification import in_buffer, verify
from nki_mlir.machine import ENGINES, Engine, machine_named

NAME = re.compile(r"[A-Za-z_][\w.]*")
SURROGATE = re.compile("[\ud800-\udfff]")
HBM_LIMIT = 1 << 37          # most bytes of a variable; more than any device has
RANK = 32                    # most dimensions of a variable or tile: all releases of NumPy have as many
LAST_REGISTER = f"use r0 to r{isa.REGISTERS - 1}"
WAITS = 3                    # most waits of an instruction
QUEUES = 1 << 8              # most queues: the binary numbers them with 8 bits
ENTRIES = 1 << 16            # variables or notes: the binary numbers them with 16 bits


class BadProgram(NkiMlirError):
    code = "NKI-PROGRAM"
    message = "{what}"
    fix = "{fix}"


def require(holds: bool, complaint: str, fix: str) -> None:
    if not holds:
        raise BadProgram(what=complaint, fix=fix)


def restated(error: NkiMlirError, headline: str) -> BadProgram:
    """Return the error of a malformed program with the reason and the fix of another error."""
    why, fix = error.advice
    return BadProgram(what=headline, why=why, fix=fix)


class Validator:
    """The check of a program. It verifies each distinct form of an operation once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.machine = machine_named(program.target)
        self.seen: set[object] = set()
        self.kinds: set[OperationKind] = set()
        self.files: set[str] = set()            # names of source files that can be printed
        self.within: set[Tile] = set()
        self.updates: set[isa.Update] = set()

    def header(self) -> None:
        """Check names, variables, semaphores and queues."""
        program, machine = self.program, self.machine
        for entries, kind in ((program.variables, "variables"), (program.notes, "notes")):
            require(len(entries) < ENTRIES, f"{len(entries):,} {kind} are more than {ENTRIES - 1:,}",
                    "use fewer: the binary numbers them with 16 bits")
        names = [v.name for v in program.variables]
        for name in (program.kernel, *names, *(s.name for s in program.semaphores), *(q.name for q in program.queues)):
            require(NAME.fullmatch(name) is not None, f"'{name}' is not a name",
                    "write a letter or _, then letters, digits, _ and .")
        for name, count in Counter(names).items():
            require(count == 1, f"{count} variables are named {name}", "give each variable its own name")
        for note in program.notes:
            require(note.isprintable() and note.strip() == note != "", f"the note {note!r} cannot be printed",
                    "write one line of printable characters, without spaces at its ends")
        for kind in KINDS:
            for number, v in enumerate(program.of_kind(kind)):
                require(v.index == number, f"the {kind} variable {v.name} has the number {v.index}, not {number}",
                        f"number the {kind} variables 0, 1, ... in their order")
        for v in program.variables:
            require(len(v.shape) <= RANK, f"variable {v.name} has {len(v.shape):,} dimensions, more than {RANK}",
                    "join some of them")
            require(all(0 <= n <= HBM_LIMIT for n in v.shape) and v.nbytes <= HBM_LIMIT,
                    f"variable {v.name} has the shape {list(v.shape)}: a tensor has at most {HBM_LIMIT:,} bytes",
                    "divide the tensor into several variables")
            require(len(v.data) == (v.nbytes if v.kind == "constant" else 0),
                    f"variable {v.name} has {len(v.data)} bytes of data, its shape takes {v.nbytes}",
                    f"give {v.nbytes} bytes" if v.kind == "constant" else "remove the data: only constants have some")
        require(len(program.semaphores) <= machine.semaphores,
                f"{len(program.semaphores)} semaphores are used, {machine.name} has {machine.semaphores}",
                "let several instructions count up one semaphore")
        require(len(program.queues) <= QUEUES, f"{len(program.queues):,} queues are more than {QUEUES}",
                "issue several transfers on one queue")
        for queue in program.queues:
            self.semaphore(queue.semaphore)
        for memory, used, limit in (("SBUF", program.sbuf_bytes, machine.sbuf_physical_bytes_per_partition),
                                    ("PSUM", program.psum_bytes, machine.psum_bytes_per_partition)):
            require(0 <= used <= limit, f"the program uses {used} bytes of {memory} per partition, "
                                        f"{machine.name} has {limit}",
                    f"use at most {limit} bytes, and give the end of the last tile as the size")

    def semaphore(self, number: int) -> None:
        count = len(self.program.semaphores)
        if not 0 <= number < count:
            raise BadProgram(what=f"there is no semaphore {number}",
                             fix=f"use 0 to {count - 1}, or declare more" if count else "declare semaphores")

    def stream(self, engine: Engine) -> Iterator[tuple[int, BadProgram]]:
        """Yield (index, error) of each malformed instruction."""
        stream = self.program.streams[engine]
        for pc, instruction in enumerate(stream):
            try:
                self.instruction(instruction, engine, len(stream))
            except BadProgram as error:
                yield pc, error
            except NkiMlirError as error:
                yield pc, restated(error, error.headline)
            except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError):
                # A class's rules may rely on properties that a malformed instruction lacks, for example a tile's rank.
                mnemonic = instruction.op.mnemonic
                yield pc, BadProgram(what=f"the operands of {mnemonic} do not fit it",
                                     fix=f"give operands of the ranks and memories that {mnemonic} takes")

    def instruction(self, instruction: isa.Instruction, engine: Engine, length: int) -> None:
        at = instruction.location
        if at is not None and at.file not in self.files:
            require(at.file.isprintable(), f"the name of its source file {at.file!r} cannot be printed",
                    "give a name of printable characters")
            self.files.add(at.file)
        require(len(instruction.waits) <= WAITS,
                f"an instruction has {len(instruction.waits)} waits, more than {WAITS}",
                "let an EVENT_SEMAPHORE before it wait for some of the semaphores")
        for wait in instruction.waits:
            self.semaphore(wait.semaphore)
            if not 0 <= wait.value <= isa.SEMAPHORE_MAX:
                raise BadProgram(what=f"{wait.value} is not a value of a semaphore",
                                 fix=f"wait for 0 to {isa.SEMAPHORE_MAX}")
        if (update := instruction.update) is not None and update not in self.updates:
            self.updates.add(update)
            self.semaphore(update.semaphore)
            require(0 < abs(update.amount) <= isa.SEMAPHORE_MAX, f"{update.amount} cannot be added to a semaphore",
                    f"count up or down by 1 to {isa.SEMAPHORE_MAX}")
        op = instruction.op
        if isinstance(op, isa.Control):
            require(instruction.queue is None, f"{op.mnemonic} is not a transfer: it takes no queue",
                    "remove its queue")
            self.control(op, length)
        else:
            self.queue(instruction, op, engine)
            self.operation(op, engine)

    def control(self, op: isa.Control, length: int) -> None:
        for name, value in op.values().items():
            if isinstance(value, isa.Register):
                require(0 <= value.number < isa.REGISTERS, f"there is no register {value}", LAST_REGISTER)
            elif isinstance(value, str):
                require(value in op.choices[name], f"{op.mnemonic} has no {name} '{value}'",
                        f"use one of {', '.join(op.choices[name])}")
            elif isinstance(value, Tile):
                self.scalar(op, value)
            elif isinstance(value, int):
                require(-1 << 31 <= value < 1 << 31, f"{value} does not fit 32 bits",
                        f"use {-1 << 31} to {(1 << 31) - 1}")
        if isinstance(op, isa.CompareBranch):
            require(0 <= op.target <= length, f"the branch goes to {op.target}, the stream has {length} instructions",
                    f"branch to 0 to {length}, where {length} is the end")
        if isinstance(op, isa.RangeClear):
            require(op.first <= op.last, f"the range of semaphores {op.first} to {op.last} is empty",
                    "give the first and the last number in this order")
            self.semaphore(op.first)
            self.semaphore(op.last)

    def scalar(self, op: isa.Control, tile: Tile) -> None:
        """Require that a tile is a single integer on chip."""
        require(tile.on_chip and tile.dtype.is_integer and tile.partitions == tile.free_elements == 1,
                f"{op.mnemonic} reads one integer on chip, got {tile.describe()}",
                "give a tile of one element of an integer dtype in SBUF or PSUM")
        in_buffer(tile, constant_interval, "src")

    def queue(self, instruction: isa.Instruction, op: Op, engine: Engine) -> None:
        if not op.queued:
            require(instruction.queue is None, f"{op.mnemonic} is not a transfer: it takes no queue",
                    "remove its queue")
            return
        require(instruction.queue is not None and 0 <= instruction.queue < len(self.program.queues),
                f"{op.mnemonic} names no queue of the program, which has {len(self.program.queues)}",
                f"give the number of a queue of {engine.asm}, or declare one")
        queue = self.program.queues[instruction.queue]          # type: ignore[index]
        require(queue.engine is engine, f"queue {queue.name} belongs to another engine, {queue.engine.asm}",
                f"issue the transfer from {queue.engine.asm}, or use a queue of {engine.asm}")
        require(instruction.update is not None and instruction.update.semaphore == queue.semaphore,
                f"a transfer of {queue.name} must count up semaphore {queue.semaphore}",
                f"end the instruction with an update of semaphore {queue.semaphore}")

    def operation(self, op: Op, engine: Engine) -> None:
        if engine not in (op.engines or ENGINES):
            raise BadProgram(what=f"{op.mnemonic} does not run on {engine.asm}", fix="issue it in the stream of "
                             + " or ".join(e.asm for e in op.engines or ENGINES))
        kind = op.kind()
        if kind not in self.kinds:
            for name, form in op.attributes.items():
                require(form is not str or not SURROGATE.search(getattr(op, name)), f"{name} is not text",
                        "leave out halves of surrogate pairs")
            self.kinds.add(kind)
        for symbol in op.symbols:
            require(0 <= symbol.number < isa.REGISTERS, f"there is no register {symbol}", LAST_REGISTER)
        key = op.form()
        if key not in self.seen:
            self.seen.add(key)
            for field, tile in op.operands():
                rank = len(tile.access.dims)
                require(rank <= RANK, f"{field.name} has {rank} dimensions, more than {RANK}",
                        "join dimensions whose elements follow each other, or use several instructions")
            verify(op)
        for field, tile in op.operands():
            if tile not in self.within:
                self.within.add(tile)
                require(all(abs(step) <= LARGEST_STEP and count <= LARGEST_STEP for step, count in tile.access.dims),
                        f"{field.name} has a step or an extent of more than {LARGEST_STEP:,}",
                        "use smaller steps and extents, which stay in the memory")
                if not tile.access.symbols_used():
                    in_buffer(tile, constant_interval, field.name)


def constant_interval(form: Linear) -> tuple[int, int]:
    return form.const, form.const


def check_program(program: Program) -> Program:
    """Return the program if it is well formed; otherwise raise ``BadProgram``."""
    validator = Validator(program)
    validator.header()
    for engine in program.streams:
        for pc, error in validator.stream(engine):
            broken = restated(error, f"{engine.asm} {pc:04d}: {error.headline}")
            broken.located(program.streams[engine][pc].location)
            raise broken
    return program

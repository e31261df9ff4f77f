# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Print programs as assembly text and parse it; docs/isa.md describes the text.

Errors are ``FILE:LINE:COL: error: ...``.
"""

import re
from collections.abc import Iterator, Sequence

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.isa.instruction import BY_ASM, Control, Instruction, Update, Wait, by_mnemonic
from nki_mlir.dialects.isa.program import KINDS, DeviceLiveRange, Program, Queue, Semaphore, Variable
from nki_mlir.input_limits import TEXT_BYTES
from nki_mlir.machine import DEFAULT_TARGET, Engine, machine_named
from nki_mlir.machine.description import Machine
from nki_mlir.targets.neuron.format import assembly_operation
from nki_mlir.targets.neuron.validate import WAITS, Validator

VERSION = 1
DIGITS = 40                     # most digits of an integer: an address has at most 20
LONG_INTEGER = re.compile(rf"\d{{{DIGITS + 1},}}")
DATA_LINE = 64                  # bytes of a constant in each line
LINE_BYTES = 128                # bytes of the limit on a text for each of its lines, about those of a printed line
CORES = 256                     # most programs of a text
REQUIRED = {"nki_isa": f".nki_isa {VERSION}", "kernel": ".kernel NAME", "target": f".target {DEFAULT_TARGET}"}
WIDTH = 1 << 16                 # most characters of a line that is not data: it has one instruction


def print_program(program: Program) -> str:
    """Return the assembly text of a program."""
    return "\n".join([*header(program), *streams(program), *(f".live {live}" for live in program.live)]) + "\n"


# -- header ------------------------------------------------------------------------------------------------------------
def header(program: Program) -> Iterator[str]:
    """Yield the lines before the streams: sizes, notes, variables with their data, semaphores, queues."""
    machine = machine_named(program.target)
    yield f".nki_isa {VERSION}"
    yield f".kernel {program.kernel}"
    yield f".target {program.target}"
    yield f".sbuf {program.sbuf_bytes} of {machine.sbuf_bytes_per_partition}"
    yield f".psum {program.psum_bytes} of {machine.psum_bytes_per_partition}"
    yield from (f".note {note}" for note in program.notes)
    for variable in program.variables:
        extents = ",".join(map(str, variable.shape))
        yield f".{variable.kind} {variable.name} {variable.dtype.asm}[{extents}] {variable.index}"
        for at in range(0, len(variable.data), DATA_LINE):
            yield f".data {variable.data[at:at + DATA_LINE].hex()}"
    for number, semaphore in enumerate(program.semaphores):
        yield f".semaphore {number} {semaphore.name}"
    for number, queue in enumerate(program.queues):
        yield f".queue {number} {queue.name} {queue.engine.asm} {queue.semaphore}"


# -- streams -----------------------------------------------------------------------------------------------------------
def streams(program: Program) -> Iterator[str]:
    for engine, stream in program.streams.items():
        if stream:
            yield f".stream {engine.asm}"
        for pc, instruction in enumerate(stream):
            yield f"{engine.asm} {pc:04d}: {instruction_text(instruction, program)}"


def instruction_text(instruction: Instruction, program: Program) -> str:
    """Return an instruction's text: waits, operation, update, source line."""
    def semaphore(number: int) -> str:
        return f"S[{number}] ({program.semaphores[number].name})"

    parts = [f"{semaphore(w.semaphore)}>={w.value}" for w in instruction.waits]
    parts.append(assembly_operation.operation_text(instruction.op, instruction.queue))
    if (update := instruction.update) is not None:
        parts.append(f"{semaphore(update.semaphore)}{amount_text(update.amount)}@complete")
    if (at := instruction.location) is not None:
        parts.append(f" // {at.file}:{at.line}")
    return " ".join(parts)


def amount_text(amount: int) -> str:
    if abs(amount) == 1:
        return "++" if amount == 1 else "--"
    return f"+={amount}" if amount > 0 else f"-={-amount}"


# -- reading -----------------------------------------------------------------------------------------------------------
class TooManyLines(NkiMlirError):
    code = "NKI-INPUT-LINES"
    message = "the text has {lines:,} lines, more than the limit of {limit:,}"
    why = "each line takes several microseconds to read, and its instruction several to check"
    fix = "set {variable} to {bytes:,}, which is {each} bytes for each line"


class TooManyCores(NkiMlirError):
    code = "NKI-INPUT-CORES"
    message = "the text has programs for {cores:,} cores, more than the limit of {limit}"
    why = "each core has memories, semaphores and registers, and the cores are checked together"
    fix = "write the programs of fewer cores"


def parse_program(text: str, file: str = "<assembly>") -> Program:
    """Parse the program of a text. Raise ``AssemblyError``."""
    check_lines(text, file)
    return _Parser(text, file, 1).program


def parse_programs(text: str, separator: str, file: str) -> list[Program]:
    """Parse the programs between the separators of a text, one for each core."""
    check_lines(text, file)
    if (cores := text.count(separator) + 1) > CORES:
        raise TooManyCores(cores=cores, limit=CORES).located(Location(file, 1, 0))
    programs, first = [], 1
    for part in text.split(separator):
        programs.append(_Parser(part, file, first).program)
        first += part.count("\n") + 1
    return programs


def check_lines(text: str, file: str) -> None:
    """Raise ``TooManyLines`` if a text has more lines than the limit on its bytes allows."""
    if (lines := text.count("\n")) > (limit := TEXT_BYTES.value() // LINE_BYTES):
        raise TooManyLines(lines=lines, limit=limit, variable=TEXT_BYTES.variable, bytes=lines * LINE_BYTES,
                           each=LINE_BYTES).located(Location(file, 1, 0))


class _Parser:
    def __init__(self, text: str, file: str, first: int) -> None:
        self.program = Program("", DEFAULT_TARGET)
        self.variables: dict[str, Variable] = {}
        self.engine: Engine | None = None
        self.lines: dict[tuple[Engine, int], assembly_operation.Line] = {}
        self.declared: dict[str, assembly_operation.Line] = {}
        line = assembly_operation.Line("", file, first)
        for number, content in enumerate(text.split("\n"), first):
            line = assembly_operation.Line(content.rstrip("\r"), file, number)
            if len(content) > WIDTH and not content.startswith(".data "):
                raise line.fail(f"a line has at most {WIDTH:,} characters, this has {len(content):,}",
                                "shorten it: only .data may be longer")
            if not line.skip().ended and not line.accept("//"):
                self.check_integers(line)
                self.line(line)
        for required in REQUIRED:
            if required not in self.declared:
                raise line.fail(f"the text has no .{required} line", f"begin the text with {REQUIRED[required]}", 0)
        self.finish()

    def check_integers(self, line: assembly_operation.Line) -> None:
        """Raise an error for a very long number: Python's conversion would raise one without a line."""
        if (number := LONG_INTEGER.search(line.text)) is not None and not line.text.lstrip().startswith(".data"):
            raise line.fail(f"an integer has at most {DIGITS} digits, this has {len(number[0])}",
                            "write a number of at most 64 bits", number.start())

    def line(self, line: assembly_operation.Line) -> None:
        directive = line.accept(r"\.(\w+)")
        if directive is None:
            return self.instruction(line)
        name = directive[1]
        handler = self.variable if name in KINDS else getattr(self, f"directive_{name}", None)
        if handler is None:
            names = [part for _, directive, part in (n.partition("directive_") for n in dir(self)) if directive]
            raise line.fail(f"there is no directive .{name}", assembly_operation.similar(name, [*KINDS, *names]))
        if name in ("nki_isa", "kernel", "target", "sbuf", "psum"):
            if name in self.declared:
                raise line.fail(f".{name} occurs twice", "remove one of the lines")
            self.declared[name] = line
        handler(line)
        return line.end()

    # -- header --------------------------------------------------------------------------------------------------------
    def directive_nki_isa(self, line: assembly_operation.Line) -> None:
        if int(line.expect(r"\d+", "a version")[0]) != VERSION:
            raise line.fail(f"the text is of another version; this reads version {VERSION}",
                            f"print the text again with this release, and write .nki_isa {VERSION}")

    def directive_kernel(self, line: assembly_operation.Line) -> None:
        self.program.kernel = line.expect(assembly_operation.NAME, "a name")[0]

    def directive_target(self, line: assembly_operation.Line) -> None:
        self.program.target = line.expect(r"\w+", "a target")[0]
        try:
            self.machine = machine_named(self.program.target)
        except NkiMlirError as error:
            why, fix = error.advice
            raise line.fail(error.headline, fix, why=why) from None

    def _capacity(self, line: assembly_operation.Line, limit: int) -> int:
        nbytes = int(line.expect(r"\d+", "a number of bytes")[0])
        if int(line.expect(r"of (\d+)", f"'of {limit}'")[1]) != limit:
            raise line.fail(f"this target has {limit} bytes per partition", f"write {nbytes} of {limit}")
        return nbytes

    def _machine(self, line: assembly_operation.Line) -> Machine:
        if "target" not in self.declared:
            raise line.fail("the .target must come first", "write the .target line before this one")
        return self.machine

    def directive_sbuf(self, line: assembly_operation.Line) -> None:
        self.program.sbuf_bytes = self._capacity(line, self._machine(line).sbuf_bytes_per_partition)

    def directive_psum(self, line: assembly_operation.Line) -> None:
        self.program.psum_bytes = self._capacity(line, self._machine(line).psum_bytes_per_partition)

    def variable(self, line: assembly_operation.Line) -> None:
        kind = line.text[line.start + 1:line.at]
        name = line.expect(assembly_operation.NAME, "a name")[0]
        if name in self.variables:
            raise line.fail(f"variable {name} is declared twice", "rename one of the variables")
        dtype = assembly_operation.element_type(line, line.expect(r"(\w+)\[", "a type such as fp32[128,512]")[1])
        extents = line.expect(r"([\d,]*)\]", "extents")[1]
        try:
            shape = tuple(int(n) for n in extents.split(",")) if extents else ()
        except ValueError:
            raise line.fail(f"'{extents}' are not extents", "write them as in [128,512]") from None
        index = int(line.expect(r"\d+", "a number")[0])
        self.variables[name] = Variable(name, kind, index, shape, dtype)
        self.program.variables.append(self.variables[name])

    def directive_data(self, line: assembly_operation.Line) -> None:
        if not self.program.variables:
            raise line.fail("data follow a .constant", "declare the .constant before its data")
        digits = line.expect(r"[0-9a-f]+", "hexadecimal bytes")[0]
        if len(digits) % 2:
            raise line.fail(f"expected two digits for each byte, found {len(digits):,} digits",
                            "add or remove a digit")
        self.program.variables[-1].data.extend(bytes.fromhex(digits))

    def _numbered(self, line: assembly_operation.Line, entries: Sequence[object]) -> None:
        if int(line.expect(r"\d+", "a number")[0]) != len(entries):
            raise line.fail(f"the numbers count from 0: the next one is {len(entries)}", f"write {len(entries)}")

    def directive_note(self, line: assembly_operation.Line) -> None:
        self.program.notes.append(line.expect(r".+", "a text")[0])

    def directive_live(self, line: assembly_operation.Line) -> None:
        live = DeviceLiveRange.read(line.expect(r".+", "a live range")[0])
        if live is None:
            raise line.fail("a live range is NAME MEMORY ADDRESS PARTITIONS*BYTES ENGINE:FIRST-LAST ...",
                            "write for example .live t sbuf 0x0 128*4 dve:2-5, or remove the line")
        self.program.live.append(live)

    def directive_semaphore(self, line: assembly_operation.Line) -> None:
        self._numbered(line, self.program.semaphores)
        self.program.semaphores.append(Semaphore(line.expect(r"\w+", "a name")[0]))

    def directive_queue(self, line: assembly_operation.Line) -> None:
        self._numbered(line, self.program.queues)
        name, engine = line.expect(r"\w+", "a name")[0], self.engine_named(line)
        self.program.queues.append(Queue(name, engine, int(line.expect(r"\d+", "a semaphore")[0])))

    def engine_named(self, line: assembly_operation.Line) -> Engine:
        name = line.expect(r"\w+", "an engine")[0]
        if name not in BY_ASM:
            raise line.fail(f"there is no engine {name}; there are {', '.join(BY_ASM)}",
                            assembly_operation.similar(name, BY_ASM))
        return BY_ASM[name]

    def directive_stream(self, line: assembly_operation.Line) -> None:
        self.engine = self.engine_named(line)
        if self.program.streams[self.engine]:
            raise line.fail(f"the stream of {self.engine.asm} occurs twice", "write its instructions below one .stream")

    # -- instructions --------------------------------------------------------------------------------------------------
    def instruction(self, line: assembly_operation.Line) -> None:
        if self.engine is None:
            raise line.fail("an instruction precedes the first .stream",
                            "write .stream and the engine, for example .stream dve, before the instructions", line.at)
        self._machine(line)
        engine, stream = self.engine, self.program.streams[self.engine]
        line.expect(rf"{engine.asm}\b", f"'{engine.asm}'")
        if int(line.expect(r"(\d+):", "an index such as 0012:")[1]) != len(stream):
            raise line.fail(f"the index of this instruction is {len(stream):04d}",
                            f"write {engine.asm} {len(stream):04d}: the instructions of a stream count from 0")
        waits: list[Wait] = []
        while (number := self.semaphore(line)) is not None:
            if len(waits) == WAITS:
                raise line.fail(f"an instruction has at most {WAITS} waits",
                                "let an EVENT_SEMAPHORE before it wait for some of the semaphores")
            waits.append(Wait(number, int(line.expect(r">=(\d+)", ">= and a value")[1])))
        mnemonic = line.expect(r"[A-Z]\w*", "a mnemonic")[0]
        line.named = line.start
        cls = by_mnemonic().get(mnemonic)
        if cls is None:
            raise line.fail(f"there is no instruction {mnemonic}", assembly_operation.similar(mnemonic, by_mnemonic()))
        fields = self.fields(line)
        update = None
        if (number := self.semaphore(line)) is not None:
            update = Update(number, self.amount(line))
        location = self.location(line)
        line.end()
        self.lines[engine, len(stream)] = line
        queue = fields.pop("queue").number() if "queue" in fields else None
        reader = assembly_operation.OperationReader(line, fields, self.machine, self.variables)
        op = reader.control(cls) if issubclass(cls, Control) else reader.operation(cls, engine)
        stream.append(Instruction(op, tuple(waits), update, queue, location))

    def semaphore(self, line: assembly_operation.Line) -> int | None:
        match = line.accept(r"S\[(\d+)\] \((\w+)\)")
        if match is None:
            return None
        number, semaphores = int(match[1]), self.program.semaphores
        if number >= len(semaphores):
            raise line.fail(f"there is no semaphore {number}",
                            f"declare it before the streams: .semaphore {number} {match[2]}")
        if semaphores[number].name != match[2]:
            raise line.fail(f"semaphore {number} is {semaphores[number].name}, not {match[2]}",
                            f"write S[{number}] ({semaphores[number].name}), or the number of {match[2]}")
        return number

    def amount(self, line: assembly_operation.Line) -> int:
        match = line.expect(r"(\+\+|--|\+=|-=)(\d*)@complete", "an update such as ++@complete")
        if (match[1] in ("++", "--")) == bool(match[2]):
            raise line.fail(f"'{match[0]}' is not an update", "write ++@complete or --@complete for one, and "
                            "+=16@complete or -=16@complete for another amount")
        size = int(match[2] or 1)
        return size if match[1][0] == "+" else -size

    def location(self, line: assembly_operation.Line) -> Location | None:
        match = line.accept(r"// (.*):(\d+)$")
        return Location(match[1], int(match[2]), 0) if match else None

    def fields(self, line: assembly_operation.Line) -> dict[str, assembly_operation.Text]:
        fields_by_name: dict[str, assembly_operation.Text] = {}
        while (match := line.accept(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')) is not None:
            if match[1] in fields_by_name:
                raise line.fail(f"{match[1]} occurs twice", f"write {match[1]}= once")
            fields_by_name[match[1]] = assembly_operation.Text(match[2], line, match.start(2))
        return fields_by_name

    # -- the end -------------------------------------------------------------------------------------------------------
    def finish(self) -> None:
        program, header = self.program, self.declared["kernel"]
        validator = Validator(program)
        try:
            validator.header()
        except NkiMlirError as error:
            why, fix = error.advice
            raise header.fail(error.headline, fix, 0, why) from None
        for engine in program.streams:
            for pc, error_found in validator.stream(engine):
                why, fix = error_found.advice
                raise self.lines[engine, pc].fail(error_found.headline, fix, 0, why)

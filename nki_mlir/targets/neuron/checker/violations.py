# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Describe the findings of the checker of streams, as errors at the kernel line of an instruction."""

from collections.abc import Hashable, Sequence

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.isa.program import DeviceLiveRange, Program
from nki_mlir.targets.neuron.checker.conflicts import Conflict
from nki_mlir.targets.neuron.checker.happens_before import HappensBefore
from nki_mlir.targets.neuron.checker.memory import AccessOutsideLiveBuffers, UnwrittenByte
from nki_mlir.targets.neuron.checker.trace import Event


class StreamViolation(NkiMlirError):
    """A rule of the device that instruction streams break."""


class UnorderedAccesses(StreamViolation):
    code = "NKI-STREAM-ORDER"
    message = "{then} {does} {where}, which {first} {did}; nothing orders them"
    why = "engines and queues run side by side; only semaphores order them"
    fix = "{wait}"
    conflict: Conflict
    tensor: str                 # the tensor, for memory in HBM; "" on chip


class UnwrittenBytes(StreamViolation):
    code = "NKI-STREAM-UNWRITTEN"
    message = "{event} reads {where}, which nothing has written"
    why = "on-chip memory has old values, from this kernel or from another"
    fix = "write all of it first, or read what has been written"


class OutsideOfBuffers(StreamViolation):
    code = "NKI-STREAM-LIVE"
    message = ("{event} touches bytes {low} to {high} of partitions {first} to {last} of {memory}, which are not in "
               "one live buffer")
    why = "{buffers}"
    fix = "correct the address, or the .live lines"


class Unawaited(StreamViolation):
    code = "NKI-STREAM-END"
    message = "no engine waits for {event} before the program ends"
    why = "the program completes with its engines, even if a transfer is still running"
    fix = "{wait}"


class UnorderedClear(StreamViolation):
    code = "NKI-STREAM-CLEAR"
    message = "{clear} clears S[{number}] ({name}), which {event} uses, and nothing orders them"
    why = "an update that a clear overtakes is lost, and a wait for it never ends"
    fix = "let all engines that use the semaphore wait for each other before the clear and after it"


class UnorderedCount(StreamViolation):
    code = "NKI-STREAM-COUNT"
    message = "{down} counts down S[{number}] ({name}), for which {event} waits, and nothing orders them"
    why = "if the semaphore is counted down first, the wait may never end"
    fix = "let {event} wait for a semaphore that no other engine counts down, or order them by another one"


class CountBelowZero(StreamViolation):
    code = "NKI-STREAM-BELOW"
    message = "{down} counts down S[{number}] ({name}) by {amount}, but it may be lower and would become {least}"
    why = "a semaphore counts from 0 up; what counts this one up may still be running"
    fix = "let {down} wait for S[{number}] ({name})>={amount}"


class UnorderedMeetings(StreamViolation):
    code = "NKI-STREAM-MEETING"
    message = "{later} and {event} synchronize with the same cores, and nothing orders them"
    why = "a core pairs its instructions with those of another core in order, and may pair the wrong ones"
    fix = "{wait}"


class WrongMark(StreamViolation):
    code = "NKI-STREAM-MARK"
    message = "{event} touches byte {byte} of a partition of {memory}, but the program declares {mark} bytes"
    why = "a program that runs at the same time may use the memory beyond the mark"
    fix = "let .{memory} be at least {needed}"


class MissingTable(StreamViolation):
    code = "NKI-STREAM-TABLE"
    message = "{event} needs the functions of {needed}; {there}"
    why = "the scalar engine computes the functions of the set that was loaded last"
    fix = "put an ACT_TABLE_LOAD table={needed} before it"


class BrokenByInstruction(StreamViolation):
    code = "NKI-STREAM-RULE"
    message = "{event}: {rule}"
    why = "{reason}"
    fix = "{advice}"


def in_source_order(conflict: Conflict) -> Conflict:
    """Return the conflict with the access first that comes first in the kernel, since the order of the trace is
    arbitrary."""
    first_location, second_location = conflict.first.instruction.location, conflict.then.instruction.location
    if first_location is None or second_location is None or first_location.file != second_location.file or (
            first_location.line <= second_location.line):
        return conflict
    return conflict._replace(first=conflict.then, then=conflict.first, writes=conflict.writes[::-1])


class Descriptions:
    """Describes the events, memories and waits of some programs."""

    def __init__(self, programs: Sequence[Program], relation: HappensBefore) -> None:
        self.programs, self.relation = programs, relation

    def event(self, event: Event) -> str:
        """Describe an event: engine, number in the stream, mnemonic, source line."""
        at = event.instruction.location
        line = f" ({at.file}:{at.line})" if at is not None else ""
        core = f"core {event.core} " if len(self.programs) > 1 else ""
        return f"{core}{event.engine.asm} {event.pc:04d} {event.instruction.op.mnemonic}{line}"

    def where(self, memory: tuple[Hashable, ...], partition: int, byte: int) -> str:
        if tensor := self.tensor(memory):
            return f"byte {byte} of {tensor}"
        return f"byte {byte} of partition {partition} of {memory[0]}"

    def tensor(self, memory: tuple[Hashable, ...]) -> str:
        """Return the name of a tensor in HBM; "" for memory on chip."""
        if memory[0] in ("sbuf", "psum"):
            return ""
        if len(memory) == 3:
            return str(memory[2])
        return next((v.name for v in self.programs[0].variables if (v.kind, v.index) == memory), "a variable")

    def wait(self, event: Event, waiter: str) -> str:
        """Describe the wait that would order two events."""
        signal = self.relation.signal_of(event)
        if signal is None:
            return (f"let {event.engine.asm} {event.pc:04d} count a semaphore up, and {waiter} wait for it")
        number, value = signal
        name = self.programs[event.core].semaphores[number].name
        return f"let {waiter} wait for S[{number}] ({name})>={value}"

    # -- errors --------------------------------------------------------------------------------------------------------
    def unordered(self, conflict: Conflict) -> UnorderedAccesses:
        conflict = in_source_order(conflict)
        does, did = ("writes" if w else "reads" for w in reversed(conflict.writes))
        if conflict.first.queue_lane >= 0 and did == "reads":
            did = "may still read"
        elif conflict.first.queue_lane >= 0:
            did = "may write later"
        error = UnorderedAccesses(
            then=self.event(conflict.then), does=does, first=self.event(conflict.first), did=did,
            where=self.where(conflict.memory, conflict.partition, conflict.byte),
            wait=self.wait(conflict.first, f"{conflict.then.engine.asm} {conflict.then.pc:04d}"))
        error.located(conflict.then.instruction.location)
        error.conflict, error.tensor = conflict, self.tensor(conflict.memory)
        return error

    def unwritten(self, read: UnwrittenByte) -> UnwrittenBytes:
        error = UnwrittenBytes(event=self.event(read.event),
                               where=self.where(read.memory, read.partition, read.byte))
        error.located(read.event.instruction.location)
        return error

    def outside(self, access: AccessOutsideLiveBuffers, live: Sequence[DeviceLiveRange]) -> OutsideOfBuffers:
        footprint, event = access.footprint, access.event
        names = [f"{buffer.name} (bytes {buffer.byte} to {buffer.byte + buffer.size - 1})" for buffer in live]
        listing = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        error = OutsideOfBuffers(
            event=self.event(event), low=footprint.low, high=footprint.high - 1, first=footprint.first,
            last=footprint.last, memory=footprint.memory[0],
            buffers=f"live there are {listing}" if names else "none is live there")
        error.located(event.instruction.location)
        return error

    def unawaited(self, event: Event) -> Unawaited:
        error = Unawaited(event=self.event(event), wait=self.wait(event, f"{event.engine.asm} at its end"))
        error.located(event.instruction.location)
        return error

    def clear(self, core: int, number: int, clear: Event, event: Event) -> UnorderedClear:
        error = UnorderedClear(clear=self.event(clear), event=self.event(event), number=number,
                               name=self.programs[core].semaphores[number].name)
        error.located(event.instruction.location)
        return error

    def count(self, core: int, number: int, down: Event, event: Event) -> UnorderedCount:
        error = UnorderedCount(down=self.event(down), event=self.event(event), number=number,
                               name=self.programs[core].semaphores[number].name)
        error.located(event.instruction.location or down.instruction.location)
        return error

    def below(self, core: int, number: int, down: Event, least: int) -> CountBelowZero:
        update = down.instruction.update
        error = CountBelowZero(down=self.event(down), number=number, name=self.programs[core].semaphores[number].name,
                               amount=-update.amount if update is not None else 0, least=least)
        error.located(down.instruction.location)
        return error

    def meetings(self, event: Event, later: Event) -> UnorderedMeetings:
        error = UnorderedMeetings(event=self.event(event), later=self.event(later),
                                  wait=self.wait(event, f"{later.engine.asm} {later.pc:04d}"))
        error.located(later.instruction.location)
        return error

    def mark(self, memory: str, end: int, mark: int, event: Event) -> WrongMark:
        error = WrongMark(event=self.event(event), byte=end - 1, memory=memory, mark=mark, needed=end)
        error.located(event.instruction.location)
        return error

    def rule(self, broken: NkiMlirError, event: Event) -> BrokenByInstruction:
        reason, advice = broken.advice
        error = BrokenByInstruction(event=self.event(event), rule=f"{broken.headline} [{broken.code}]", reason=reason,
                                    advice=advice)
        error.located(event.instruction.location)
        return error

    def table(self, event: Event, needed: str, loaded: str) -> MissingTable:
        error = MissingTable(event=self.event(event), needed=needed,
                             there=f"those of {loaded} are loaded" if loaded else "none are loaded")
        error.located(event.instruction.location)
        return error

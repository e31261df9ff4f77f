# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program of the machine while it is put together: instructions with linear arguments, then words.

Slots of the frame are symbols of ``Linear`` forms; the address of a buffer is the slot of its memory plus its offset,
which is known only when all buffers are.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu import host
from nki_mlir.targets.cpu.routines import Routine, name_of


@dataclass(eq=False)
class ScratchBuffer:
    """One allocation: its size, the block it was made in, and from where to where (in program order) it is used."""

    size: int
    depth: int
    first: int
    last: int = -1
    offset: int = -1


@dataclass
class BlockUses:
    """An open block of the program: buffers of enclosing blocks that are used in it stay until it ends."""

    outer: list[ScratchBuffer] = field(default_factory=list)


class ScratchMemory:
    """Collects the buffers of one block of memory while the program is read, then places them."""

    def __init__(self) -> None:
        self.buffers: list[ScratchBuffer] = []

    def allocate(self, size: int, depth: int, place: int) -> ScratchBuffer:
        self.buffers.append(ScratchBuffer(size, depth, place, place))
        return self.buffers[-1]

    def assign_offsets(self) -> int:
        """Give every buffer the lowest offset that is free while it lives; returns the size of the whole."""
        total = 0
        live: list[ScratchBuffer] = []                     # by offset
        for buffer in sorted(self.buffers, key=lambda b: b.first):
            live = [b for b in live if b.last >= buffer.first]
            offset = 0
            for other in live:
                if other.offset - offset >= room(buffer):
                    break
                offset = other.offset + room(other)
            buffer.offset = offset
            live.append(buffer)
            live.sort(key=lambda b: b.offset)
            total = max(total, offset + room(buffer))
        return total


def room(buffer: ScratchBuffer) -> int:
    """Bytes a buffer takes. One line more than a page's multiple: equal offsets in pages make loads wait for stores."""
    size = -(-buffer.size // host.LINE) * host.LINE
    return size + host.LINE if size >= host.PAGE else max(size, host.LINE)


class LiveBuffers:
    """The open blocks while a program is read in order: uses extend the lives of buffers."""

    def __init__(self) -> None:
        self.regions: list[BlockUses] = []

    @property
    def depth(self) -> int:
        return len(self.regions)

    def open(self) -> None:
        self.regions.append(BlockUses())

    def close(self, place: int) -> None:
        """The innermost block ends: what it used from outside has been used until here."""
        for buffer in self.regions.pop().outer:
            self.use(buffer, place)

    def use(self, buffer: ScratchBuffer, place: int) -> None:
        buffer.last = max(buffer.last, place)
        if self.depth > buffer.depth:
            self.regions[-1].outer.append(buffer)


SELF, MEMORY, CODE, FIRST_ID = 0, 1, 2, 3           # slots of a frame
MOST_ARGUMENTS = 64                                 # room in the machine's `run`
BUFFERS = 1 << 32                                   # symbols from here on are buffers, by number
CONSTANTS = -1                                      # symbols from here down are arrays, by number


@dataclass(eq=False)
class ProgramLabel:
    """A place in the program; ``word`` is known when the words are laid out."""

    word: int = -1


@dataclass(frozen=True)
class Extent:
    """A number that is known when everything is placed: the frame's slots, or the size of a memory."""

    memory: int | None = None


@dataclass(frozen=True)
class CodeAddress:
    """Where a routine's code is."""

    routine: Routine


@dataclass(frozen=True)
class ConstantAddress:
    """Where the array of a number is, plus a form of slots."""

    number: int
    rest: Linear


Argument = Linear | ProgramLabel | Extent | CodeAddress | ConstantAddress


@dataclass
class RoutineCall:
    """``function`` is a routine, or the name of one of the machine's functions."""

    function: Routine | str
    arguments: tuple[Argument, ...]


@dataclass
class Assembly:
    """Instructions and labels in order; slots and buffers as they are needed."""

    slots: int
    constants: list[np.ndarray]                         # of all programs of the kernel
    items: list[RoutineCall | ProgramLabel | None] = field(default_factory=list)       # None: the end of a program
    buffers: list[tuple[ScratchBuffer, int]] = field(default_factory=list)             # with the slot of its memory
    storages: dict[int, ScratchMemory] = field(default_factory=dict)                  # by the slot of the memory
    sizes: dict[int, int] = field(default_factory=dict)                         # of the memories, when they are placed

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def emit(self, function: Routine | str, *arguments: Argument) -> None:
        if len(arguments) > MOST_ARGUMENTS:
            raise Unsupported(feature=f"an operation with {len(arguments)} operands on the CPU", instead="split it")
        self.items.append(RoutineCall(function, arguments))

    def label(self) -> ProgramLabel:
        """A new label, to be placed with ``mark``."""
        return ProgramLabel()

    def mark(self, label: ProgramLabel) -> None:
        self.items.append(label)

    def computed(self, function: str, *operands: Linear) -> Linear:
        """A value in a slot of its own."""
        slot = self.slot()
        self.emit(function, slot_address(slot), *operands)
        return slot_value(slot)

    @contextmanager
    def repeated(self, count: int) -> Iterator[Linear]:
        """A loop, with the value of its variable."""
        if count == 1:
            yield Linear()
            return
        variable, again = self.computed("nki_set", Linear()), self.label()
        self.mark(again)
        yield variable
        self.emit("nki_next", slot_address(variable.symbols[0][0]), Linear(1), Linear(count), again)

    def allocate(self, size: int, memory: int, depth: int) -> tuple[Linear, ScratchBuffer]:
        """A buffer in the memory whose address is in the slot ``memory``: its address and the buffer."""
        buffer = self.storages.setdefault(memory, ScratchMemory()).allocate(size, depth, len(self.items))
        self.buffers.append((buffer, memory))
        return slot_value(BUFFERS + len(self.buffers) - 1), buffer

    def constant(self, array: np.ndarray) -> Linear:
        """The address of an array."""
        self.constants.append(array)
        return slot_value(CONSTANTS - len(self.constants) + 1)

    @property
    def instructions(self) -> list[RoutineCall]:
        return [i for i in self.items if isinstance(i, RoutineCall)]

    @property
    def routines(self) -> list[Routine]:
        """The distinct ones, in order."""
        found: dict[Routine, None] = {}
        for i in self.instructions:
            if not isinstance(i.function, str):
                found[i.function] = None
            found |= dict.fromkeys(a.routine for a in i.arguments if isinstance(a, CodeAddress))
        return list(found)

    @property
    def frame_bytes(self) -> int:
        """The frame's size: a multiple of a cache line, since memory follows it."""
        return -(-8 * self.slots // host.LINE) * host.LINE

    def move(self, frm: int, to: int) -> None:
        """The buffers of one memory go into another."""
        if frm in self.storages:
            self.storages.setdefault(to, ScratchMemory()).buffers += self.storages.pop(frm).buffers
            self.buffers = [(buffer, to if memory == frm else memory) for buffer, memory in self.buffers]

    def assign_offsets(self) -> int:
        """Give every buffer its offset; the size of a program's memory."""
        self.sizes = {memory: storage.assign_offsets() for memory, storage in self.storages.items()}
        return self.sizes.get(MEMORY, 0)

    def words(self) -> tuple[list[int], list[tuple[int, Routine | str | int]]]:
        """The program in words, after ``assign_offsets``, and to which ones of them addresses are to be added: those of
        routines, of named functions and of constants."""
        items = [i if not isinstance(i, RoutineCall) else RoutineCall(i.function, tuple(map(self._placed, i.arguments)))
                 for i in self.items]
        word = 0
        for item in items:
            if isinstance(item, ProgramLabel):
                item.word = word
            else:
                word += 1 if item is None else 2 + sum(_width(a) for a in item.arguments)
        words: list[int] = []
        relocations: list[tuple[int, Routine | str | int]] = []
        for item in items:
            if item is None:
                words.append(0)
            elif isinstance(item, RoutineCall):
                relocations.append((len(words), item.function))
                words += [0, len(item.arguments)]
                for argument in item.arguments:
                    if isinstance(argument, CodeAddress | ConstantAddress):
                        target = argument.routine if isinstance(argument, CodeAddress) else argument.number
                        relocations.append((len(words), target))
                    words += _words(argument)
        return [*words, 0], relocations

    def _placed(self, argument: Argument) -> Argument:
        """The argument with buffers as offsets in their memory, constants apart."""
        if isinstance(argument, Extent):
            return Linear(self.frame_bytes // 8 if argument.memory is None else self.sizes.get(argument.memory, 0))
        if not isinstance(argument, Linear) or not argument.symbols:
            return argument
        if (first := argument.symbols[0][0]) <= CONSTANTS:
            return ConstantAddress(CONSTANTS - first, Linear(argument.const, argument.symbols[1:]))
        if argument.symbols[-1][0] < BUFFERS:
            return argument
        (number, _), rest = argument.symbols[-1], argument.symbols[:-1]
        buffer, memory = self.buffers[number - BUFFERS]
        return Linear(argument.const + buffer.offset, rest).plus(slot_value(memory))

    def text(self, names: dict[int, str]) -> list[str]:
        """The program for people, after ``assign_offsets``: a line an instruction. ``names`` are those of slots."""
        lines = []
        labels = {item: f"L{k}" for k, item in enumerate(i for i in self.items if isinstance(i, ProgramLabel))}
        for item in self.items:
            match item:
                case ProgramLabel():
                    lines.append(f"{labels[item]}:")
                case None:
                    lines.append("  end")
                case RoutineCall(function, arguments):
                    values = [self._argument_text(a, labels, names) for a in arguments]
                    lines.append(f"  {_function_text(function)}({', '.join(values)})")
        return lines

    def _argument_text(self, argument: Argument, labels: dict[ProgramLabel, str], names: dict[int, str]) -> str:
        match argument:
            case ProgramLabel():
                return labels[argument]
            case CodeAddress(routine):
                return name_of(routine)
        placed = self._placed(argument)
        if isinstance(placed, ConstantAddress):
            return f"constant{placed.number} + {_form_text(placed.rest, names)}"
        return _form_text(placed, names)


def slot_value(slot: int) -> Linear:
    return Linear(0, ((slot, 1),))


def slot_address(slot: int) -> Linear:
    return Linear(8 * slot, ((SELF, 1),))


def _width(argument: Argument) -> int:
    form = argument.rest if isinstance(argument, ConstantAddress) else argument
    return 2 + 2 * len(form.symbols) if isinstance(form, Linear) else 2


def _words(argument: Argument) -> list[int]:
    match argument:
        case ProgramLabel():
            return [argument.word, 0]
        case Linear(const, symbols) | ConstantAddress(_, Linear(const, symbols)):
            return [const, len(symbols), *(n for term in symbols for n in term)]
    return [0, 0]


def _function_text(function: Routine | str) -> str:
    return function if isinstance(function, str) else name_of(function)


def _form_text(form: Any, names: dict[int, str]) -> str:
    if len(form.symbols) == 1 and form.symbols[0] == (SELF, 1):
        return f"&{names.get(form.const // 8, f'%{form.const // 8}')}"
    terms = [names.get(s, f"%{s}") if c == 1 else f"{c} * {names.get(s, f'%{s}')}" for s, c in form.symbols]
    if form.const or not terms:
        terms.append(str(form.const))
    return " + ".join(terms)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Assembles the program of a function: its instructions and labels in order, the offsets of its buffers, then words.

The module decides only the offsets of buffers: two buffers that are never live at the same time may share memory.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.routines import Routine, name_of
from nki_mlir.targets.runtime import host

Item = cpu.RoutineCall | cpu.ProgramLabel | None            # None: the end of a program


@dataclass(frozen=True)
class ConstantAddress:
    """The address of constant array ``number``, plus a linear form of slots."""

    number: int
    offset: Linear


@dataclass
class LiveRange:
    """The first and last instruction, in program order, that use a buffer; ``depth`` counts the open blocks where it
    is allocated."""

    size: int
    depth: int
    first: int
    last: int = -1
    offset: int = 0

    @property
    def is_used(self) -> bool:
        return self.last >= 0


def assign_offsets(ranges: Sequence[LiveRange]) -> int:
    """Assign each buffer the lowest offset that is free during its live range, and return the total size."""
    total = 0
    live: list[tuple[int, int, int]] = []           # offset, end and last use of the buffers in use, by offset
    for buffer in sorted(ranges, key=lambda r: r.first):
        live = [neighbor for neighbor in live if neighbor[2] >= buffer.first]
        offset, needed = 0, occupied_bytes(buffer.size)
        for start, end, _ in live:
            if start - offset >= needed:
                break
            offset = end
        buffer.offset = offset
        insort(live, (offset, offset + needed, buffer.last))
        total = max(total, offset + needed)
    return total


def occupied_bytes(size: int) -> int:
    """Return the bytes that a buffer occupies: a line more than a multiple of a page, since loads wait for stores at
    an equal offset in another page."""
    size = -(-size // host.LINE) * host.LINE
    return size + host.LINE if size >= host.PAGE else max(size, host.LINE)


class LiveRanges:
    """Follows the live ranges of buffers, and the open blocks, while a program is written in order."""

    def __init__(self) -> None:
        self.ranges: dict[cpu.ScratchBuffer, LiveRange] = {}
        # For each open block, the buffers of enclosing blocks that it uses.
        self.outer: list[list[cpu.ScratchBuffer]] = []

    def begin(self, buffer: cpu.ScratchBuffer, position: int) -> None:
        self.ranges[buffer] = LiveRange(buffer.size, len(self.outer), position)

    def open(self) -> None:
        self.outer.append([])

    def close(self, position: int) -> None:
        """Close the innermost block. Buffers from outside that it uses stay live until here, since it may run again."""
        for buffer in self.outer.pop():
            self.use(buffer, position)

    def use(self, buffer: cpu.ScratchBuffer, position: int) -> None:
        live = self.ranges[buffer]
        live.last = max(live.last, position)
        if len(self.outer) > live.depth:
            self.outer[-1].append(buffer)


class NativeProgram:
    """The program of a function."""

    def __init__(self, function: NativeFunction) -> None:
        self.function = function
        self.items: list[Item] = []
        self.lives = LiveRanges()
        self.block(function.body)
        self.items.append(None)
        self.sizes: dict[int, int] = {}                     # bytes of each memory, by its slot
        for memory in dict.fromkeys(buffer.memory for buffer in self.lives.ranges):
            self.sizes[memory] = assign_offsets([live for buffer, live in self.lives.ranges.items()
                                                 if buffer.memory == memory and live.is_used])
        self.memory = self.sizes.get(cpu.MEMORY, 0)             # bytes that a run needs after the frame

    # -- instructions --------------------------------------------------------------------------------------------------
    def block(self, block: cpu.NativeBlock) -> None:
        for node in block.nodes:
            self.node(node)

    def inside(self, block: cpu.NativeBlock) -> None:
        """Write a nested block. Buffers from outside that it uses are live until one instruction after its end."""
        self.lives.open()
        self.block(block)
        self.lives.close(len(self.items))

    def emit(self, function: Routine | str, *arguments: cpu.Argument) -> None:
        self.items.append(cpu.RoutineCall(function, arguments))

    def node(self, node: cpu.Node) -> None:
        match node:
            case cpu.RoutineCall():
                for number in node.buffers:
                    self.lives.use(self.function.buffers[number], len(self.items))
                self.items.append(node)
            case cpu.Allocate(buffer):
                self.lives.begin(buffer, len(self.items))
                if buffer.zeroed:
                    self.emit("nki_zero", buffer.base, Linear(buffer.size))
            case cpu.NativeLoop() if node.on_pool:
                self.pool_loop(node)
            case cpu.NativeLoop():
                self.loop(node)
            case cpu.NativeBranch():
                self.branch(node)
            case cpu.NativeWhile():
                again, end = cpu.ProgramLabel(), cpu.ProgramLabel()
                self.lives.open()
                self.items.append(again)
                self.block(node.test)
                self.emit("nki_unless", node.condition, end)
                self.block(node.body)
                self.emit("nki_unless", Linear(), again)
                self.lives.close(len(self.items))
                self.items.append(end)

    def loop(self, node: cpu.NativeLoop) -> None:
        body_start, end = cpu.ProgramLabel(), cpu.ProgramLabel()
        self.emit("nki_set", cpu.slot_address(node.slot), node.low)
        if not node.span:
            self.emit("nki_cmpi_slt", cpu.slot_address(node.guard), node.low, node.high)
            self.emit("nki_unless", cpu.slot_value(node.guard), end)
        self.items.append(body_start)
        self.inside(node.body)
        self.emit("nki_next", cpu.slot_address(node.slot), node.step, node.high, body_start)
        if not node.span:
            self.items.append(end)

    def pool_loop(self, node: cpu.NativeLoop) -> None:
        start, end, span = cpu.ProgramLabel(), cpu.ProgramLabel(), node.span
        assert span is not None
        self.emit("nki_parallel", cpu.slot_value(cpu.SELF), cpu.slot_value(cpu.CODE), start, Linear(node.slot),
                  Linear(span.start), Linear(span.step), Linear(len(span)), cpu.Extent(), cpu.Extent(node.memory), end)
        self.items.append(start)
        self.inside(node.body)
        self.items += [None, end]

    def branch(self, node: cpu.NativeBranch) -> None:
        otherwise, end = cpu.ProgramLabel(), cpu.ProgramLabel()
        self.emit("nki_unless", node.condition, otherwise)
        self.inside(node.then)
        if node.otherwise is None:
            self.items.append(otherwise)
            return
        self.emit("nki_unless", Linear(), end)
        self.items.append(otherwise)
        self.inside(node.otherwise)
        self.items.append(end)

    # -- routines ------------------------------------------------------------------------------------------------------
    @property
    def instructions(self) -> list[cpu.RoutineCall]:
        return [i for i in self.items if isinstance(i, cpu.RoutineCall)]

    @property
    def routines(self) -> list[Routine]:
        """List the distinct routines in the order of their first call."""
        routines: dict[Routine, None] = {}
        for i in self.instructions:
            if not isinstance(i.function, str):
                routines[i.function] = None
            routines |= dict.fromkeys(a.routine for a in i.arguments if isinstance(a, cpu.CodeAddress))
        return list(routines)

    @property
    def uses_pool(self) -> bool:
        return any(i.function in ("nki_parallel", "nki_spread") for i in self.instructions)

    @property
    def frame_bytes(self) -> int:
        """Return the frame's size: a multiple of a cache line, since memory follows it."""
        return -(-8 * self.function.slots // host.LINE) * host.LINE

    # -- words ---------------------------------------------------------------------------------------------------------
    def words(self) -> tuple[list[int], list[tuple[int, Routine | str | int]]]:
        """Encode the program. Return its words, and the positions of the words to which addresses (of routines,
        functions and constants) are added."""
        items = [(i.function, [self.resolved(a) for a in i.arguments]) if isinstance(i, cpu.RoutineCall) else i
                 for i in self.items]
        word = 0
        for item in items:
            if isinstance(item, cpu.ProgramLabel):
                item.word = word
            else:
                word += 1 if item is None else 2 + sum(_width(a) for a in item[1])
        words: list[int] = []
        relocations: list[tuple[int, Routine | str | int]] = []
        for item in items:
            if item is None:
                words.append(0)
            elif isinstance(item, tuple):
                function, arguments = item
                relocations.append((len(words), function))
                words += [0, len(arguments)]
                for argument in arguments:
                    if isinstance(argument, cpu.CodeAddress | ConstantAddress):
                        target = argument.routine if isinstance(argument, cpu.CodeAddress) else argument.number
                        relocations.append((len(words), target))
                    words += _words(argument)
        return [*words, 0], relocations

    def resolved(self, argument: cpu.Argument) -> "cpu.Argument | ConstantAddress":
        """Replace the buffers of an argument by offsets in their memory, and separate constants."""
        if isinstance(argument, cpu.Extent):
            return Linear(self.frame_bytes // 8 if argument.memory is None else self.sizes.get(argument.memory, 0))
        if not isinstance(argument, Linear) or not argument.symbols:
            return argument
        if (base := argument.symbols[0][0]) <= cpu.CONSTANTS:
            return ConstantAddress(cpu.CONSTANTS - base, Linear(argument.const, argument.symbols[1:]))
        if argument.symbols[-1][0] < cpu.BUFFERS:
            return argument
        (number, _), terms = argument.symbols[-1], argument.symbols[:-1]
        buffer = self.function.buffers[number - cpu.BUFFERS]
        return Linear(argument.const + self.lives.ranges[buffer].offset, terms).plus(cpu.slot_value(buffer.memory))

    # -- text ----------------------------------------------------------------------------------------------------------
    def text(self, names: dict[int, str]) -> list[str]:
        """Print the program, one instruction on each line. ``names`` are the names of slots."""
        lines = []
        labels = {item: f"L{k}" for k, item in enumerate(i for i in self.items if isinstance(i, cpu.ProgramLabel))}
        for item in self.items:
            match item:
                case cpu.ProgramLabel():
                    lines.append(f"{labels[item]}:")
                case None:
                    lines.append("  end")
                case cpu.RoutineCall():
                    values = [self._argument_text(a, labels, names) for a in item.arguments]
                    lines.append(f"  {_function_text(item.function)}({', '.join(values)})")
        return lines

    def _argument_text(self, argument: cpu.Argument, labels: dict[cpu.ProgramLabel, str], names: dict[int, str]) -> str:
        match argument:
            case cpu.ProgramLabel():
                return labels[argument]
            case cpu.CodeAddress(routine):
                return name_of(routine)
        resolved = self.resolved(argument)
        if isinstance(resolved, ConstantAddress):
            return f"constant{resolved.number} + {form_text(resolved.offset, names)}"
        return form_text(resolved, names) if isinstance(resolved, Linear) else str(resolved)


def _width(argument: "cpu.Argument | ConstantAddress") -> int:
    form = argument.offset if isinstance(argument, ConstantAddress) else argument
    return 2 + 2 * len(form.symbols) if isinstance(form, Linear) else 2


def _words(argument: "cpu.Argument | ConstantAddress") -> list[int]:
    match argument:
        case cpu.ProgramLabel():
            return [argument.word, 0]
        case Linear(const, symbols) | ConstantAddress(_, Linear(const, symbols)):
            return [const, len(symbols), *(n for term in symbols for n in term)]
    return [0, 0]


def _function_text(function: Routine | str) -> str:
    return function if isinstance(function, str) else name_of(function)


def form_text(form: Linear, names: dict[int, str]) -> str:
    """Print a linear form of slots: ``&%7`` is a slot's address."""
    def name(symbol: int) -> str:
        if symbol >= cpu.BUFFERS:
            return f"buffer{symbol - cpu.BUFFERS}"
        return names.get(symbol, f"%{symbol}" if symbol > cpu.CONSTANTS else f"constant{cpu.CONSTANTS - symbol}")
    if form.symbols == ((cpu.SELF, 1),):
        return f"&{name(form.const // 8)}"
    symbols = sorted(form.symbols, key=lambda term: term[0] < cpu.BUFFERS)          # buffers come first
    terms = [name(s) if c == 1 else f"{c} * {name(s)}" for s, c in symbols]
    if form.const or not terms:
        terms.append(str(form.const))
    return " + ".join(terms)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collects the text of a kernel: lines, their indentation, names of tensors, allocations where they are first used."""

import builtins
import keyword
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from math import prod
from typing import Any

from nki_mlir.analysis.dead_code import reads_unwritten
from nki_mlir.bindings import Operation, Value, ir
from nki_mlir.diagnostics import Location, printable
from nki_mlir.dialects.access import SBUF, Tile, full_tile
from nki_mlir.dialects.nisa.dynamic_access import ColumnsAddressed
from nki_mlir.dialects.nisa.random import RandOp
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.language.signatures.older_releases import NEWEST
from nki_mlir.machine import Machine
from nki_mlir.printing.beta import beta_line, defined_tile, psum_fill
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.index_text import IndexValues
from nki_mlir.printing.orders import InstructionOrders
from nki_mlir.printing.placement import KeptPlacement
from nki_mlir.printing.releases import for_release, has_method
from nki_mlir.printing.tile_text import dtype_text, shape_text, tile_text
from nki_mlir.scalar.dtypes import INT32, DType

AUTOMATIC = re.compile(r"^t\d+$")              # names that a capture gives to tensors without one
INDENTATION = "    "
RESERVED = {*keyword.kwlist, *dir(builtins), "nki", "nl", "nisa"}
REGIONS = {"sbuf": "nl.sbuf", "psum": "nl.psum", "hbm": "nl.private_hbm"}


@dataclass(eq=False)
class NamedTensor:
    """A tensor of the text: its name, and the expression that allocates it."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    region: str
    expression: str = ""                  # the expression of one that is not an allocation
    address: tuple[int, int] | None = None
    requested_name: str = ""              # the name, unless another tensor has it

    @property
    def definition(self) -> str:
        arguments = f"{shape_text(self.shape)}, dtype={dtype_text(self.dtype)}, buffer={self.region}"
        if self.address is not None:
            arguments += f", address={self.address}"
        return self.expression or f"nl.ndarray({arguments})"


@dataclass
class KernelText:
    """The lines so far, and the facts about names.

    ``waiting`` are allocations of the open blocks that nothing has used yet: they are written before the first
    use, so that a function's result can define them. ``zeroed`` are buffers in which operations read elements that a
    mask left out; these are zeros.
    """

    comments: bool
    machine: Machine
    release: str = NEWEST
    beta: bool = False                      # the lines are of the beta generation
    named: dict[str, NamedTensor] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    source_names: set[str] = field(default_factory=set)     # of tensors of the source, also of later lines
    tensors: dict[Value | NamedTensor, NamedTensor] = field(default_factory=dict)
    defined: set[NamedTensor] = field(default_factory=set)
    waiting: dict[Value | NamedTensor, NamedTensor] = field(default_factory=dict)
    zeroed: set[Value | NamedTensor] = field(default_factory=set)
    unread: set[Value] = field(default_factory=set)         # tiles on chip that nothing reads
    registers: set[Value] = field(default_factory=set)      # buffers that are registers of an engine
    indices: IndexValues = field(default_factory=IndexValues)
    generators: dict[Value, str] = field(default_factory=dict)      # states of random numbers, and their engines
    unseeded: set[Value] = field(default_factory=set)       # such states that decide no value
    cleared: dict[Value, int] = field(default_factory=dict)         # rows of the tiles to which such a state is copied
    last_writes: dict[Value, int] = field(default_factory=dict)     # the number of the last line that writes a buffer
    spread: dict[tuple[object, ...], Tile] = field(default_factory=dict)    # rows -> their copy
    opened: tuple[int, ...] = ()                    # numbers of the enclosing blocks
    homes: dict[str, tuple[int, ...]] = field(default_factory=dict)         # the blocks that names are defined in
    blocks: int = 0
    heads: list[int] = field(default_factory=list)          # first lines of the enclosing blocks
    for_loops: set[int] = field(default_factory=set)        # numbers of blocks that are bodies of ``for``
    copied: dict[Value, ColumnsAddressed | RandOp] = field(default_factory=dict)    # by tile that only a copy reads
    loads: dict[Value, str] = field(default_factory=dict)   # the value with which a register begins the next sum
    begins: dict[Value, Value] = field(default_factory=dict)     # register -> the tile of that value
    started: dict[str, tuple[int, Value]] = field(default_factory=dict)     # registers' last users, by name
    filled: dict[Value, tuple[int, ...]] = field(default_factory=dict)      # buffers of registers, and the loops around
    repeats: tuple[int, ...] = ()                   # numbers of the enclosing loops
    program: int = 0                                # number of the program, if programs follow each other
    depth: int = 1
    placement: KeptPlacement | None = None      # parts that the text cannot express
    on_core: bool = False                           # programs are the cores of a launch, which may meet
    in_order: bool = False                          # the lines are in a region in which no instruction moves
    program_id: str = ""                            # the variable with the number of the core
    orders: InstructionOrders | None = None         # those of the body whose lines come next
    unordered: int = 0                              # number of instructions whose order the text lacks
    numbered: int = 0                               # number of tensors that the source does not name
    line: tuple[str, int] | None = None             # the line of the source that the last comment names

    # -- lines ---------------------------------------------------------------------------------------------------------
    def write(self, text: str) -> None:
        ordered = text if self.orders is None else self.orders.ordered(text)
        line = beta_line(ordered, self.named) if self.beta else for_release(ordered, self.release)
        if self.beta:
            if (fill := psum_fill(line, self.named)) is not None and self._drop_allocation(fill[0]):
                line = fill[1]
            elif (definition := defined_tile(line, self.named)) is not None:
                name, shape = definition
                value = line.split(" = ", 1)[1]
                if not _uses(value, name) and self._drop_allocation(name):
                    line = f"{name} = {value}"
                    self.named[name].shape = shape
                elif self.homes.get(name) == self.opened:           # the expression that replaces the tile from here on
                    tensor = self.named[name]
                    tensor.name, tensor.shape = tensor.requested_name, shape
                    line = f"{self.define(tensor)} = {value}"
        self.lines.append(INDENTATION * self.depth + line)

    def drop_fill(self, name: str) -> bool:
        """Delete the line that fills a tile of one element with a number other than 0, and return True, if no other
        line uses the tile."""
        for at in range(len(self.lines) - 1, -1, -1):
            line = self.lines[at]
            if _uses(line, name):
                value = re.search(r"= nisa\.memset\(\(1, 1\), (-?\d+)", line)
                if value is None or value[1] == "0" or not line.lstrip().startswith(f"{name} ="):
                    return False
                del self.lines[at]
                self.names.discard(name)
                return True
        return False

    def _drop_allocation(self, name: str) -> bool:
        """Delete the line of an allocation in this block that nothing has used yet, and return whether there was one:
        the result of a function defines the tile."""
        start = INDENTATION * self.depth
        for at in range(len(self.lines) - 1, -1, -1):
            line = self.lines[at]
            if line.startswith(f"{start}{name} = nl.ndarray("):
                del self.lines[at]
                self.last_writes = {value: number - (number > at) for value, number in self.last_writes.items()}
                return True
            if not line.startswith(start) or _uses(line, name):
                return False
        return False

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write a head, and below it the lines that the caller writes: ``pass`` if there are none."""
        first = len(self.lines)
        if head == "else:":                 # nothing may separate it from the lines of the ``if``
            first = max(k for k, line in enumerate(self.lines) if line.startswith(INDENTATION * self.depth + "if "))
        self.heads.append(first)
        self.flush()
        if head != "else:":
            self.enter()
        self.write(head)
        self.depth += 1
        self.blocks += 1
        self.opened, around = (*self.opened, self.blocks), self.repeats
        if not head.startswith(("if ", "else")):
            self.repeats = (*around, self.blocks)
        if head.startswith("for "):
            self.for_loops.add(self.blocks)
        before = len(self.lines)
        yield
        self.heads.pop()
        self.waiting.clear()            # nothing uses these allocations
        if all(line.lstrip().startswith("#") for line in self.lines[before:]):
            self.write("pass")
        self.depth -= 1
        self.opened, self.repeats = self.opened[:-1], around

    @contextmanager
    def ordered(self) -> Iterator[None]:
        """Write a region in which no instruction moves, and in it the lines that the caller writes. Names that it
        defines belong to the enclosing block."""
        self.write("with nl.no_reorder():")
        self.depth, self.in_order, before = self.depth + 1, True, len(self.lines)
        yield
        if len(self.lines) == before:
            self.lines.pop()
        self.depth, self.in_order = self.depth - 1, False

    def comment(self, op: Operation) -> None:
        """Write the line of the source as a comment, unless it is the same line as before."""
        at = location_of(op)
        if self.comments and at is not None and (at.file, at.line) != self.line:
            self.line = at.file, at.line
            self.write(f"# {source_text(at)}")

    def saved(self) -> "KernelText":
        """Return a copy of the state for ``restore``. Later statements change the lists, sets and tables of this
        object, not those of the copy."""
        tables: dict[str, Any] = {
            name: copy(value) for name, value in vars(self).items() if isinstance(value, list | set | dict)}
        return replace(self, **tables, indices=replace(self.indices, texts={**self.indices.texts}))

    def restore(self, saved: "KernelText") -> None:
        """Return to a saved state."""
        vars(self).update(vars(saved.saved()))

    # -- names ---------------------------------------------------------------------------------------------------------
    def unique(self, name_hint: str, otherwise: str) -> str:
        """Reserve and return a name that nothing else has, nor will have as one of a list's tiles: these are numbered
        from 0, as ``parts_0``."""
        name = re.sub(r"\W+", "_", name_hint).strip("_") or otherwise
        name = f"{otherwise}_{name}" if name[0].isdigit() else name
        count, chosen, tiles_of_list = 1, name, self.source_names if f"{name}_0" in self.source_names else set[str]()
        while chosen in self.names or chosen in RESERVED or (count > 1 and chosen in tiles_of_list):
            count += 1
            chosen = f"{name}_{count}"
        self.names.add(chosen)
        return chosen

    def renumber(self) -> None:
        """Number the tensors without a name in the order of the text: some are defined before earlier lines."""
        automatic = {t.name for t in self.named.values() if AUTOMATIC.fullmatch(t.requested_name)}
        free = (name for n in count() if (name := f"t{n}") not in self.names - automatic)
        numbers: dict[str, str] = {}

        def renamed(match: re.Match[str]) -> str:
            name = match[0]
            if name in automatic and name not in numbers:
                numbers[name] = next(free)
            return numbers.get(name, name)
        if all(AUTOMATIC.fullmatch(name) for name in automatic):
            self.lines = [re.sub(r"'[^']*'|\bt\d+\b", renamed, line) for line in self.lines]

    def define(self, tensor: NamedTensor) -> str:
        """Choose the name that a tensor has from here on and return it. Captures number tensors without a name; the
        text numbers them in its own order."""
        tensor.requested_name = tensor.name
        if AUTOMATIC.fullmatch(tensor.name):
            tensor.name, self.numbered = f"t{self.numbered}", self.numbered + 1
        tensor.name = self.unique(tensor.name, "tile")
        self.named[tensor.name] = tensor
        self.homes[tensor.name] = self.opened
        self.defined.add(tensor)
        return tensor.name

    # -- tensors -------------------------------------------------------------------------------------------------------
    def allocate(self, value: Value | NamedTensor, tensor: NamedTensor) -> None:
        self.tensors[value] = self.waiting[value] = tensor

    def emit_allocations(self, *values: Value | NamedTensor) -> None:
        """Write the allocations of these values that are still waiting."""
        for value in values:
            if (tensor := self.waiting.pop(value, None)) is not None:
                self.write(f"{self.define(tensor)} = {tensor.definition}")
                if value in self.zeroed:
                    self.write(f"nisa.memset(dst={tensor.name}, value={0 if tensor.dtype.is_integer else 0.0})")

    def flush(self) -> None:
        """Write all waiting allocations, before a block that may use them."""
        self.emit_allocations(*list(self.waiting))

    def temporary(self, shape: Sequence[int], dtype: DType, space: str, expression: str = "",
                  before: Value | NamedTensor | None = None, name: str = "staged", with_address: bool = False) -> Tile:
        """Return a tile of all elements of a new tensor. The first use writes its allocation; an ``expression`` defines
        the tensor at once.

        Some rows of the buffer ``before`` go through the tile. If nothing has used that buffer yet, and something
        reads other rows, these are filled with zeros. A tile in SBUF that no pass of the compiler can remove has an
        address if the text keeps the placement (``with_address``).
        """
        if before in self.waiting:
            in_sbuf = self.waiting[before].region == REGIONS["sbuf"]
            if isinstance(before, NamedTensor) or not in_sbuf or reads_unwritten(before):
                self.zeroed.add(before)
            self.emit_allocations(before)
        tensor = NamedTensor(name, tuple(shape), dtype, REGIONS[space], expression)
        if self.placement is not None and with_address:
            tensor.address = self.placement.free_address(self.machine, prod(shape[1:]) * dtype.itemsize)
        self.allocate(tensor, tensor)
        if expression:
            self.emit_allocations(tensor)
        return full_tile(tensor, tensor.shape, dtype, space)

    @property
    def vector_engine(self) -> str:
        """The last argument of an instruction that the text adds: an engine if the text keeps the placement, so that no
        later compilation chooses one."""
        return ", engine=nisa.engine.vector" if self.placement is not None else ""

    # -- registers -----------------------------------------------------------------------------------------------------
    def fill(self, register: Value, load: str = "") -> None:
        """Note that registers begin with the value of the expression ``load``, or with 0 if it is empty, as all
        registers of a kernel do."""
        self.filled[register] = self.repeats
        self.loads.pop(register, None)
        if load:
            self.loads[register] = load

    def is_used(self, register: Value, loops: tuple[int, ...]) -> bool:
        """Return whether registers, filled inside these ``loops``, may need a line that fills them: in a loop they have
        values of the last iteration, else those of an expression or of an earlier use."""
        return bool(loops) or register in self.loads or name_of_register(register) in self.started

    def enter(self) -> None:
        """Note the uses of registers that the lines before a block fill and the block may use."""
        for register, loops in list(self.filled.items()):
            if register in self.generators or not self.is_used(register, loops):
                self.use_register(register, anew=False)

    def use_register(self, register: Value, anew: bool) -> bool:
        """Note that an instruction uses registers, ``anew`` if it does not read them. Return whether an accumulation
        has to begin with a value. A generator is seeded in front where it begins again: it has the seed 0."""
        if register in self.unseeded:
            return False
        name, user = name_of_register(register), (self.program, register)
        loops = self.filled.pop(register, None)
        begins = loops is not None and not anew and self.is_used(register, loops)
        if loops is None and not anew and self.started.get(name, user) != user:
            raise Unprintable(what="registers that several programs use in turn",
                              fix="seed the generator, or begin the sum, after each reduction over programs")
        if begins and (engine := self.generators.get(register)) is not None:
            if engine != "vector":
                raise Unprintable(what=f"a generator of the {engine} engine that begins again",
                                  fix="set its state in each program")
            seed = self.tensors[self.temporary((1, 1), INT32, SBUF, name="seed", with_address=True).handle]
            self.emit_allocations(seed)
            self.write(f"nisa.memset(dst={seed.name}, value=0{self.vector_engine})")
            self.write(f"nl.random_seed({seed.name})")
        elif begins and loops != self.repeats:
            raise Unprintable(what="a sum of a loop that continues a value of the registers from before the loop",
                              fix="begin the sum with reduce_cmd=nisa.reduce_cmd.reset_reduce")
        self.started[name] = user
        return begins

    def repeated_row(self, tile: Tile, expression: str) -> Tile:
        """Return a new tile whose partitions all hold one row. If nothing writes that row again, it is repeated once,
        before the loops and branches around."""
        def repeated() -> Tile:
            source = self.tensors[tile.handle].name
            name = "rows" if last_write is None or AUTOMATIC.fullmatch(source) else f"{source}_rows"
            return self.temporary(tile.shape, tile.dtype, "sbuf", expression, name=name)
        last_write = self.last_writes.get(tile.handle)
        if last_write is None or tile.access.symbols_used():
            return repeated()
        return self._once(tile, [k for k, line in enumerate(self.heads) if line >= last_write], None, repeated)

    def staged_before_loops(self, tile: Tile, dtype: DType, write: Callable[[], Tile]) -> Tile:
        """Return the tile to which ``write`` copies the elements of another one. If nothing writes these again, they
        are copied once, before the loops around, as ``linalg-to-nisa`` does it."""
        last_write = self.last_writes.get(tile.handle)
        if last_write is None or tile.access.symbols_used() or self.orders is not None or self.placement is not None:
            return write()
        loops = list(takewhile(lambda k: self.heads[k] >= last_write and self.opened[k] in self.for_loops,
                               reversed(range(len(self.heads)))))
        return self._once(tile, loops[::-1], (dtype, self.opened[loops[-1]]), write) if loops else write()

    def _once(self, tile: Tile, blocks: Sequence[int], use: object, write: Callable[[], Tile]) -> Tile:
        """Return a tile that depends on another one and its ``use``. Write its lines the first time, before the
        innermost ``blocks``, which are positions in ``heads``."""
        key = (self.tensors[tile.handle], tile.access, tile.shape, use)
        if key in self.spread:
            return self.spread[key]
        if not blocks:
            self.spread[key] = write()
            return self.spread[key]
        at, depth, opened, heads, lines = self.heads[blocks[0]], self.depth, self.opened, self.heads, self.lines
        self.depth = (len(lines[at]) - len(lines[at].lstrip())) // len(INDENTATION)
        self.opened, self.heads = opened[:blocks[0]], heads[:blocks[0]]
        self.lines, below = lines[:at], lines[at:]
        self.spread[key] = write()
        added = len(self.lines) - at
        self.heads = [*self.heads, *(line + added for line in heads[blocks[0]:])]
        self.lines += below
        self.depth, self.opened = depth, opened
        return self.spread[key]

    def tile(self, op: Op, tile: Tile, exact: bool = False, paired: bool | None = None) -> str:
        """Return the text of an operand, ``exact`` with its dims. Without them, it is ``paired`` with others, whatever
        the dims, unless said otherwise."""
        self.emit_allocations(tile.handle)
        if tile.handle not in self.tensors:
            raise Unprintable(what="a tile of the registers of an engine",
                              fix="begin the sum with reduce_cmd=nisa.reduce_cmd.reset_reduce")
        tensor = self.tensors[tile.handle]
        return tile_text(tile, tensor.name, tensor.shape, lambda form: self.indices.form(form, op.symbols),
                         op.ranges, exact, not exact if paired is None else paired, integers=not self.beta,
                         broadcasts=self.beta or has_method("broadcast", self.release))

    def defines(self, tile: Tile) -> NamedTensor | None:
        """Return the tensor that a tile covers if nothing has used it yet, so that the result of a function can define
        it."""
        tensor = self.waiting.get(tile.handle)
        if tensor is None or tensor.region != "nl.sbuf":
            return None
        if tile.shape != tensor.shape or tile.dtype is not tile.base_dtype:
            return None
        self._forget_address(tensor)
        return tensor

    def replace_allocation(self, tile: Tile, expression: str) -> bool:
        """Delete the allocation of a complete tile that nothing has used yet, so that the expression, the result of a
        function, can define it. Return whether it can."""
        tensor = self.tensors[tile.handle]
        is_complete = tensor.region == "nl.sbuf" and tile.shape == tensor.shape and tile.dtype is tile.base_dtype
        if self.beta or not is_complete or _uses(expression, tensor.name) or not self._drop_allocation(tensor.name):
            return False
        self._forget_address(tensor)
        return True

    def _forget_address(self, tensor: NamedTensor) -> None:
        """Note that a function chooses the address of a tensor."""
        if tensor.address is not None and self.placement is not None:
            self.placement.addresses += 1
        tensor.address = None


def _uses(text: str, name: str) -> bool:
    """Return whether a line or an expression has the variable ``name``: no attribute or parameter of that name."""
    return re.search(rf"(?<!\.)\b{name}\b(?!=)", text) is not None


def name_of_register(register: Value) -> str:
    """Return the name of the registers that a buffer stands for: programs and iterations have their own buffers. A
    buffer without a name, which a pass adds for an instruction whose rows it moves, stands for its engine's registers.
    """
    allocation = register.owner
    assert not isinstance(allocation, ir.Block)
    if "nki.name" in allocation.attributes:
        return str(allocation.attributes["nki.name"].value)
    users = {str(use.owner.attributes["engine"].value) for use in register.uses}
    if len(users) > 1:                          # the pass also copies the buffer
        raise Unprintable(what="a sum in the registers of an engine on rows where no engine can start",
                          fix="start the sum's rows at a multiple of 32 partitions")
    return f"{users.pop()}_accumulators"


def source_text(at: Location) -> str:
    """Return the file name and line of a location, such as ``kernel.py:12``, on one line: modules name any files."""
    return " ".join(printable(f"{at.file.rsplit('/', 1)[-1]}:{at.line}").split())

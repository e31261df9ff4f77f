# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles that are loaded only to be read: what reads them reads the kernel's array instead.

before:  copy(x + 4096 * i, tile); maximum(tile, sums); exp(tile, sums, y)
after:   maximum(x + 4096 * i, sums); exp(x + 4096 * i, sums, y)

That is so where all that is written of a tile is one copy of an input, which nothing writes up to the tile's last use.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu import host
from nki_mlir.targets.cpu.contraction import contraction_of
from nki_mlir.targets.cpu.lanes import MOST_SHUFFLED
from nki_mlir.targets.cpu.loop_products import PlacedNest, through, writes_once
from nki_mlir.targets.cpu.loops import AddressedNest, addressed, can_stream, does_stream, with_memory
from nki_mlir.targets.cpu.program import BUFFERS, Argument, Assembly, ProgramLabel, RoutineCall, ScratchBuffer
from nki_mlir.targets.cpu.row_chunks import RowChunks, TileComputation
from nki_mlir.targets.cpu.schedule import schedule
from nki_mlir.targets.cpu.values import MemrefView
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.recognize import is_copy

LEAST = 1 << 12         # elements of a tile: with fewer, routines that tiles of all arrays share are worth more
CONTROL = ("nki_set", "nki_next", "nki_unless", "nki_zero", "nki_check", "nki_parallel")

Items = list[RoutineCall | ProgramLabel | None]
Readers = dict[int, TileComputation]            # computations by the number of the item


class ReadInPlace:
    """Rewrites the program ``code``, whose computations ``chunks`` knows. ``only_read``: inputs that nothing writes."""

    def __init__(self, code: Assembly, chunks: RowChunks, only_read: Callable[[], set[str]]) -> None:
        self.code, self.chunks, self.only_read = code, chunks, only_read
        self.items: Items = list(code.items)
        self.copies = [k for k in range(len(self.items)) if self.is_copied_input(k)]
        self.regions = _regions(self.items) if self.copies else []
        self.users: dict[ScratchBuffer, list[int]] = {}
        for number, item in enumerate(self.items) if self.copies else ():
            for argument in item.arguments if isinstance(item, RoutineCall) else ():
                for slot, _ in argument.symbols if isinstance(argument, Linear) else ():
                    if slot >= BUFFERS:
                        self.users.setdefault(code.buffers[slot - BUFFERS][0], []).append(number)

    @cached_property
    def updated(self) -> set[str]:
        return self.chunks.inputs - self.only_read()

    def rewrite(self) -> None:
        changed: Readers = {}
        left_out = set[int]()                   # copies
        for number in self.copies:
            readers = self.readers(number, changed)
            last = self.last_use(number, readers)
            overwritten = self.written_by(number + 1, last) if last is not None else None
            if overwritten is not None and self.source(number) not in overwritten:
                changed |= readers
                left_out.add(number)
        if left_out:
            self.write(changed, left_out)

    # -- which tiles ---------------------------------------------------------------------------------------------------
    def computation(self, number: int) -> TileComputation | None:
        return self.chunks.computations.get(id(self.items[number]))

    def is_copied_input(self, number: int) -> bool:
        """Whether an item makes a tile of an input, all of it, that is worth it."""
        copy = self.computation(number)
        if copy is None or copy.nest.elements < LEAST or not (is_copy(copy.nest) and writes_once(copy.nest)):
            return False
        tile = copy.views[1].root
        return copy.views[0].root in self.chunks.inputs and isinstance(tile, ScratchBuffer) and (
            copy.nest.elements * copy.nest.outputs[0].dtype.itemsize == tile.size)

    def source(self, number: int) -> object:
        return self.chunks.computations[id(self.items[number])].views[0].root

    def readers(self, number: int, known: Mapping[int, TileComputation]) -> Readers:
        """What reads the tile that an item makes, on the source; nothing where one of them cannot."""
        copy = self.chunks.computations[id(self.items[number])]
        first, *others = dict.fromkeys(self.users[copy.views[1].root])            # type: ignore[index]
        if first != number:
            return {}
        found = {k: self.reader(known.get(k) or self.computation(k), copy) for k in others}
        done = {k: reader for k, reader in found.items() if reader is not None}
        return done if len(done) == len(found) and (len(done) == 1 or _has_long_rows(copy.nest)) else {}

    def reader(self, user: TileComputation | None, copy: TileComputation) -> TileComputation | None:
        """A computation that reads the tile as one that reads the source."""
        if user is None or contraction_of(user.nest) is not None:
            return None
        nest, views, tile = user.nest, list(user.views), copy.views[1].root
        if any(view.root is tile for view in views[len(nest.inputs):]):
            return None
        changed = [k for k, view in enumerate(views) if view.root is tile]
        for k in changed:
            found = _at_source(copy, nest, k, views[k])
            if found is None:
                return None
            nest, views[k] = found
        starts = [view.address if k in changed else start for k, (view, start) in enumerate(zip(views, user.starts))]
        nest = nest.simplified
        vector = schedule(nest).vector
        if vector is not None and any(abs(nest.inputs[k].strides[vector]) > MOST_SHUFFLED for k in changed):
            return None
        return TileComputation(nest, views, starts)

    def last_use(self, number: int, readers: Readers) -> int | None:
        """Up to where the source has to stay as it is: to the end of loops around the tile's readers.

        None where nothing reads it, or what reads it is outside of a loop or branch that the tile is made in.
        """
        last = max(readers, default=None)
        for first, end in self.regions:
            inside = [first <= k <= end for k in readers]
            if first <= number <= end:
                if not all(inside):
                    return None
            elif any(inside):
                last = end if last is None else max(last, end)
        return last

    def written_by(self, first: int, last: int) -> set[str] | None:
        """The inputs that the items from one to another write; None where that is not known."""
        found: set[str] = set()
        for number in range(first, last + 1) if self.updated else ():
            item, computation = self.items[number], self.computation(number)
            if computation is not None:
                found |= {view.root for view in computation.views[len(computation.nest.inputs):]
                          if isinstance(view.root, str) and view.root in self.chunks.inputs}
            elif isinstance(item, RoutineCall) and item.function not in CONTROL:
                return None
        return found

    # -- the program ---------------------------------------------------------------------------------------------------
    def write(self, changed: Readers, left_out: set[int]) -> None:
        """The program without copies. Buffers are in use where their instructions are."""
        places = [0] * (len(self.items) + 1)
        self.code.items[:] = []
        for k in range(len(self.items)):
            places[k] = len(self.code.items)
            if k not in left_out:
                self.put(k, changed.get(k))
        places[-1] = len(self.code.items)
        for storage in self.code.storages.values():
            for buffer in storage.buffers:
                buffer.first, buffer.last = places[buffer.first], places[buffer.last]
        for k in left_out:
            self.chunks.computations[id(self.items[k])].views[1].root.size = 0           # type: ignore[union-attr]

    def put(self, number: int, computation: TileComputation | None) -> None:
        """An item, or a computation in its place."""
        item = self.items[number]
        if computation is not None:
            assert isinstance(item, RoutineCall)
            streams = does_stream(item.function) and can_stream(computation.nest)
            item = RoutineCall(addressed(computation.nest, streams),
                               (*computation.starts, *item.arguments[len(computation.starts):]))
            self.chunks.know(item, computation)
        self.code.items.append(item)


def _regions(items: Items) -> list[tuple[int, int]]:
    """Loops and branches: what lies between a jump and where it leads, and what runs on the pool."""
    places = {id(item): k for k, item in enumerate(items) if isinstance(item, ProgramLabel)}
    found = []
    for k, item in enumerate(items):
        for argument in item.arguments if isinstance(item, RoutineCall) else ():
            if isinstance(argument, ProgramLabel):
                found.append((min(k, places[id(argument)]), max(k, places[id(argument)])))
    return found


def _has_long_rows(copy: Nest) -> bool:
    """Whether the source is one piece, or pieces of a page or more: short ones, far apart, leave the caches."""
    source, long = copy.inputs[0], host.PAGE // copy.inputs[0].dtype.itemsize
    return source.strides[-1:] == (1,) and (len(copy.extents) == 1 or copy.extents[-1] >= long)


def _at_source(copy: TileComputation, user: Nest, operand: int, view: MemrefView) -> tuple[Nest, MemrefView] | None:
    """An operand that is in the copy as it is in the source: the user's nest with its strides there, and its view."""
    target, source = copy.views[1], copy.views[0]
    own, there = copy.nest.outputs[0].strides, copy.nest.inputs[0].strides
    if user.inputs[operand].dtype is not copy.nest.inputs[0].dtype:
        return None
    if own == there:                    # all of it lies alike
        return user, replace(source, offset=source.offset.plus(view.offset).plus(target.offset, -1))
    placed = PlacedNest(copy.nest, (source.root, target.root), (source.offset, target.offset), False)
    if not user.forms:
        user = _divided(user, user.inputs[operand].strides, own[0])
    found = through(placed, 1, user.inputs[operand], view.offset, user.extents)
    if found is None:
        return None
    inputs = [found[0] if k == operand else o for k, o in enumerate(user.inputs)]
    return replace(user, inputs=tuple(inputs)), replace(source, offset=found[1])


def _divided(nest: Nest, strides: tuple[int, ...], row: int) -> Nest:
    """The nest with each axis that goes over several rows, by these strides, as one over rows and one within a row."""
    for axis, (step, extent) in enumerate(zip(strides, nest.extents)):
        if 0 < step < row and row % step == 0 and extent > row // step and extent % (row // step) == 0:
            return _divided(nest.divided(axis, row // step), (*strides[:axis], row, *strides[axis:]), row)
    return nest


def find_fields(code: Assembly) -> None:
    """Say of each nest of the program which of its inputs lie beside each other."""
    for call in code.instructions:
        if isinstance(call.function, Nest | AddressedNest):
            known = with_memory(call.function)
            if beside := _beside(known.nest, call.arguments):
                call.function = replace(known, use=replace(known.use, beside=beside))


def _beside(nest: Nest, arguments: tuple[Argument, ...]) -> tuple[tuple[int, int, int], ...]:
    """The inputs of groups of several: their numbers, the number of the first one in memory, how far behind it."""
    steps = {k: max(map(abs, o.strides), default=0) for k, o in enumerate(nest.inputs)}
    if sum(step > 1 for step in steps.values()) < 2 or nest.mask:
        return ()
    vector = schedule(nest).vector
    if vector is None:
        return ()
    groups: dict[object, list[tuple[int, int]]] = {}
    for k, operand in enumerate(nest.inputs):
        step, start = operand.strides[vector], arguments[k]
        if 1 < step <= MOST_SHUFFLED and step & (step - 1) == 0 and isinstance(start, Linear):
            record = step * operand.dtype.itemsize
            groups.setdefault((operand, start.symbols, start.const // record), []).append((start.const % record, k))
    return tuple([(k, members[0][1], (place - members[0][0]) // nest.inputs[k].dtype.itemsize)
                  for members in map(sorted, groups.values()) if len(members) > 1 for place, k in members])

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on large tiles one after the other, some rows at a time: what one makes is in the cache for the next.

before:  exp(x, t); add(t, sums); multiply(t, sums, y)
after:   for 16 chunks of 8 rows each: exp(x', t'); add(t', sums'); multiply(t', sums', y')

That is so where a chunk of each operation needs nothing but what the same chunk of the earlier ones wrote. Chunks are
compared by the bytes they touch: of memory that is written, those of one chunk lie apart from those of any other. A
buffer that nothing else uses is that of the first chunk for all of them, which stays in the cache.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu import host
from nki_mlir.targets.cpu.chunk_loop import Chunk, ChunkLoop
from nki_mlir.targets.cpu.contraction import contraction_of
from nki_mlir.targets.cpu.loops import addressed, can_stream, does_stream
from nki_mlir.targets.cpu.program import Assembly, ProgramLabel, RoutineCall, ScratchBuffer
from nki_mlir.targets.cpu.schedule import parts_of, reach_of, schedule
from nki_mlir.targets.cpu.values import MemrefView
from nki_mlir.waist.nest import Nest

LARGE = 1 << 20                     # bytes that a run touches; smaller ones are in the cache as they are
CHUNK = 1 << 18                     # bytes that a chunk should touch at most
LEAST = 1 << 10                     # elements of a call on average; with fewer the calls cost more than they save
MOST_CHUNKS = 64
MOST_NESTS = 32                     # of a loop: all pairs of their operands are compared


@dataclass(eq=False)
class TileComputation:
    """A call of a nest, with the views of its operands and where they start."""

    nest: Nest
    views: Sequence[MemrefView]
    starts: Sequence[Linear]


@dataclass(frozen=True)
class ChunkAccess:
    """What an operand touches: the first chunk's bytes from ``start + low`` on, the next ones ``step`` further each."""

    root: object
    start: Linear
    step: int
    low: int
    high: int
    writes: bool


class RowChunks:
    """The computations of a program, by the calls that run them."""

    def __init__(self, inputs: Sequence[str]) -> None:
        self.inputs = set(inputs)
        self.computations: dict[int, TileComputation] = {}      # by ``id`` of the call
        self.calls: list[RoutineCall] = []          # all of them: the ``id`` of one that is gone would be another's
        self.is_worth_it = False
        self.zeroed = set[ScratchBuffer]()
        self.pool: tuple[int, int] | None = None                # of the loop around: its variable's slot and its step
        self.read = set[object]()                               # in an iteration of it, up to here

    def computed(self, call: RoutineCall, nest: Nest, views: Sequence[MemrefView], starts: Sequence[Linear]) -> None:
        self.know(call, TileComputation(nest, views, starts))
        self.is_worth_it |= nest.elements * nest.outputs[0].dtype.itemsize >= CHUNK

    def know(self, call: RoutineCall, computation: TileComputation) -> None:
        self.calls.append(call)
        self.computations[id(call)] = computation

    def split(self, code: Assembly, fresh: dict[int, ScratchBuffer], zeroed: set[ScratchBuffer]) -> None:
        """Put loops over chunks around runs of computations.

        ``fresh``: by ``id`` of a label the buffer that is zeroed there, if it is among ``zeroed``.
        """
        self.zeroed = zeroed
        if not self.is_worth_it:
            return
        items, start = list(code.items), 0
        code.items[:] = []
        while start < len(items):
            end = start
            while end < len(items) and (id(items[end]) in self.computations or id(items[end]) in fresh):
                end += 1
            if end > start:
                Run(self, code, fresh, items[start:end], start).write()     # type: ignore[arg-type]
                computations = filter(None, map(self.computations.get, map(id, items[start:end])))
                self.read |= {view.root for c in computations for view in c.views[:len(c.nest.inputs)]}
            else:
                self.between(items[start])
                code.items.append(items[start])
            start = max(end, start + 1)

    def between(self, item: RoutineCall | ProgramLabel | None) -> None:
        """An item of the program between runs, which may begin or end a loop on the pool."""
        if item is None or (isinstance(item, RoutineCall) and item.function == "nki_parallel"):
            self.pool, self.read = None, set()
            if item is not None:
                _, _, _, slot, _, step, *_ = item.arguments
                self.pool = slot.const, step.const                  # type: ignore[union-attr]

    def accesses(self, computation: TileComputation, part: "Chunk") -> list[ChunkAccess]:
        found = []
        for k, (view, start) in enumerate(zip(computation.views, computation.starts)):
            found.append(ChunkAccess(view.root, start, part.steps[k], *reach_of(part.nest, k),
                                     k >= len(computation.nest.inputs)))
        return found


def chunk_of(nest: Nest, count: int) -> Chunk | None:
    """None where the nest has no such parts, or is a product, which is faster as a whole."""
    found = parts_of(nest, count, count)
    if found is None or contraction_of(nest) is not None:
        return None
    return Chunk(found[0], tuple([o.strides[0] * found[2] * o.dtype.itemsize for o in nest.operands]))


class Run:
    """Consecutive items of a program: calls of nests, and labels of fresh buffers."""

    def __init__(self, chunks: RowChunks, code: Assembly, fresh: dict[int, ScratchBuffer],
                 items: Sequence[RoutineCall | ProgramLabel], start: int) -> None:
        self.chunks, self.code, self.fresh, self.items, self.start = chunks, code, fresh, items, start
        self.count = self.chunks_wanted()

    def chunks_wanted(self) -> int:
        """As many as it takes that a chunk fits the cache, of such numbers one that cuts most nests; 0: none."""
        nests = [c.nest for c in map(self.computation, self.items) if c is not None]
        sizes: dict[object, int] = {}
        for computation in filter(None, map(self.computation, self.items)):
            for k, view in enumerate(computation.views):
                sizes[view.root] = max(sizes.get(view.root, 0), bytes_of(computation.nest, k))
        if len(nests) < 2 or sum(sizes.values()) < LARGE:
            return 0
        least = min(max(-(-sum(sizes.values()) // CHUNK), 2), MOST_CHUNKS)
        if sum(nest.elements for nest in nests) < LEAST * least * len(nests):
            return 0
        first = [nest.extents[0] for nest in nests if nest.extents]
        # Rows that are lanes have to fill a vector: else the nest takes twice as long, or longer.
        most = min([nest.extents[0] // schedule(nest).lanes for nest in nests if len(nest.extents) > 1
                    and nest.elements >= LEAST * least and schedule(nest).vector == 0], default=MOST_CHUNKS)
        return max(range(min(least, max(most, 2)), most + 1),
                   key=lambda n: sum(extent % n == 0 for extent in first), default=0)

    def computation(self, item: object) -> TileComputation | None:
        return self.chunks.computations.get(id(item))

    def write(self) -> None:
        """The items as they are, or loops around groups of them."""
        first = 0
        while first < len(self.items):
            last, parts, front = self.group(first)
            if len(parts) > 1:
                self.loop(first, last, parts, front)
            else:
                last = first + 1
                self.code.items.append(self.items[first])
            first = last

    def group(self, first: int) -> tuple[int, dict[int, Chunk], list[int]]:
        """Up to where the items from one on run chunk by chunk, the chunks of their nests by their numbers, and those
        that run before all chunks: small ones of which later ones need the whole."""
        parts: dict[int, Chunk] = {}
        touched: dict[int, list[ChunkAccess]] = {}
        front: list[int] = []
        if not self.count or self.computation(self.items[first]) is None:
            return first, parts, front
        for k in range(first, len(self.items)):
            computation = self.computation(self.items[k])
            if computation is None:
                continue
            part = chunk_of(computation.nest, self.count)
            if part is None or len(parts) == MOST_NESTS:
                return k, parts, front
            own = self.chunks.accesses(computation, part)
            needed = [j for j, others in touched.items() if not self.lie_apart(own, others)]
            if not self.lie_apart(own, own) or not all(self.can_be_first(j, touched) for j in needed):
                return k, parts, front
            for j in needed:
                front.append(j)
                del parts[j], touched[j]
            parts[k], touched[k] = part, own
        return len(self.items), parts, front

    def lie_apart(self, some: Sequence[ChunkAccess], others: Sequence[ChunkAccess]) -> bool:
        return all(lie_apart(a, b, self.count) for a in some for b in others)

    def can_be_first(self, number: int, touched: Mapping[int, list[ChunkAccess]]) -> bool:
        """Whether a call is small, and touches nothing that the chunks of those in front of it do."""
        computation = self.chunks.computations[id(self.items[number])]
        whole = Chunk(computation.nest, (0,) * len(computation.nest.operands))
        own = self.chunks.accesses(computation, whole)
        return computation.nest.elements < LEAST * self.count and all(
            self.lie_apart(own, others) for k, others in touched.items() if k < number)

    def loop(self, first: int, last: int, parts: Mapping[int, Chunk], front: Sequence[int]) -> None:
        """Chunks of the items, one after the other. Buffers of all of them are in use as long as it runs."""
        items = self.items[first:last]
        begin, end = self.start + first, self.start + last
        kept = self.buffers_of_chunks(first, last, parts, front)
        for item in items:
            computation = self.computation(item)
            used = [self.fresh[id(item)]] if computation is None else [
                view.root for view in computation.views if isinstance(view.root, ScratchBuffer)]
            for buffer in used:
                buffer.first, buffer.last = min(buffer.first, begin), max(buffer.last, end)
        self.code.items += [item for item in items if isinstance(item, ProgramLabel)]
        self.code.items += [self.items[k] for k in sorted(front)]
        calls = {k: call for k in parts if isinstance(call := self.items[k], RoutineCall)}
        ahead = self.asked_ahead(parts)
        routines = [addressed(part.nest, does_stream(calls[k].function) and can_stream(part.nest),
                              tuple(ahead.get(k, {}).items())) for k, part in parts.items()]
        views = [self.chunks.computations[id(call)].views for call in calls.values()]
        ChunkLoop(self.code, self.count, [*calls.values()], [*parts.values()], views, routines, kept).write()

    def asked_ahead(self, parts: Mapping[int, Chunk]) -> dict[int, dict[int, int]]:
        """By numbers of calls and operands: how many bytes ahead is what this thread reads next of a kernel's array.

        That is the next chunk, or where the iteration has read them before, those of a later one. While a chunk is
        computed, the memory would have nothing to do: the heaviest nest that reads an array asks.
        """
        heaviest: dict[tuple[object, int], tuple[int, int, int]] = {}
        for number, part in parts.items():
            computation = self.chunks.computations[id(self.items[number])]
            for k, view in enumerate(computation.views[:len(part.nest.inputs)]):
                step = part.steps[k]
                if view.root in self.chunks.inputs and step:
                    weight = len(part.nest.steps), number, k
                    key = view.root, step
                    heaviest[key] = max(heaviest.get(key, weight), weight, key=lambda w: w[0])
        found: dict[int, dict[int, int]] = {}
        for (root, step), (_, number, k) in heaviest.items():
            start = self.chunks.computations[id(self.items[number])].starts[k]
            later = self.later(start) if root in self.chunks.read else 0
            found.setdefault(number, {})[k] = later or step
        return found

    def later(self, start: Linear) -> int:
        """How many bytes further on an operand starts in the iteration that this thread is likely to run next."""
        slot, step = self.chunks.pool or (0, 0)
        return dict(start.symbols).get(slot, 0) * step * host.threads()

    def buffers_of_chunks(self, first: int, last: int, parts: Mapping[int, Chunk], front: Sequence[int]) -> set[object]:
        """The buffers whose content is of no use beyond a chunk: nothing outside of these items knows them."""
        made = first
        while made and self.computation(self.items[made - 1]) is None:
            made -= 1                   # labels of buffers stand in front of the first operation on them
        steps: dict[ScratchBuffer, set[int]] = {}
        sizes: dict[ScratchBuffer, int] = {}
        whole = {view.root for k in front for view in self.chunks.computations[id(self.items[k])].views}
        for number, part in parts.items():
            views = self.chunks.computations[id(self.items[number])].views
            for k, (view, step) in enumerate(zip(views, part.steps)):
                if isinstance(view.root, ScratchBuffer) and view.root not in self.chunks.zeroed | whole:
                    end = view.offset.const + reach_of(part.nest, k)[1] + 1
                    steps.setdefault(view.root, set()).add(step)
                    sizes[view.root] = max(sizes.get(view.root, 0), view.size if view.offset.symbols else end)
        kept = {buffer for buffer, own in steps.items() if len(own) == 1 and self.start + made <= buffer.first
                and buffer.last < self.start + last}
        for buffer in kept:
            buffer.size = sizes[buffer]
        return {*kept}


def bytes_of(nest: Nest, operand: int) -> int:
    """What a nest touches of an operand: a small part of a large tile is small."""
    memory = nest.operands[operand]
    return memory.dtype.itemsize * prod(extent for extent, stride in zip(nest.extents, memory.strides) if stride)


def lie_apart(a: ChunkAccess, b: ChunkAccess, count: int) -> bool:
    """Whether no chunk of one operand touches what another chunk of the other does, if one of them writes."""
    if a.root != b.root or not (a.writes or b.writes):
        return True
    apart = a.start.plus(b.start, -1)
    if apart.symbols:
        return False
    low, high = apart.const + a.low, apart.const + a.high
    if a.step == b.step and max(high, b.high) - min(low, b.low) < abs(a.step):
        return True
    first, last = _all_chunks(low, high, a.step, count)
    other_first, other_last = _all_chunks(b.low, b.high, b.step, count)
    return last < other_first or other_last < first


def _all_chunks(low: int, high: int, step: int, count: int) -> tuple[int, int]:
    further = step * (count - 1)
    return low + min(0, further), high + max(0, further)

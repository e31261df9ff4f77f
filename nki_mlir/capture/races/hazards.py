# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Judges what iterations of parallel loops, and programs of a grid, do to the same memory.

Each pair of touches of which one writes is proved apart, a race (with an element at which they meet), or not decided,
because data choose the elements, or because it takes too long: that is checked when the kernel runs.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nki_mlir.capture.errors import UnexpectedOutputDependencies
from nki_mlir.capture.index import Symbol
from nki_mlir.capture.iterations import LoopRun, outward
from nki_mlir.capture.races.overlaps import Apart, element, meeting, roots_of
from nki_mlir.capture.races.owners import MOST_ELEMENTS, Owners, TooManyPoints, patterns_of
from nki_mlir.capture.races.touches import Touch, Touches, written_at
from nki_mlir.capture.races.verdicts import IterationsMeet, ProgramsMeet, ProgramsRepeat, Verdict
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.integer_systems import SearchTooLong
from nki_mlir.dialects.op import Op
from nki_mlir.waist.overlap import owners_apart

if TYPE_CHECKING:
    from nki_mlir.capture.scope import Scope

MOST_PAIRS = 1 << 17                    # of touches of one tensor that are compared
FEW_PAIRS = 1 << 16                     # take less time than going through the elements


class Clash(NamedTuple):
    """Two touches that meet in an element, and the numbers of the iterations or programs they belong to."""

    one: Touch
    other: Touch
    element: tuple[int, ...]
    first: Any
    second: Any

    def texts(self, buffer: Buffer) -> dict[str, Location | list[int] | str]:
        """Values of the templates of ``races``."""
        return {"tensor": buffer.name, "element": [*self.element], "done": done(self.one), "also": done(self.other),
                "place": self.other.at}


def done(touch: Touch) -> str:
    return ("added to" if touch.accumulates else "written") if touch.writes else "read"


# -- loops -------------------------------------------------------------------------------------------------------------
def judge_loops(touches: Touches, programs: Iterable[Symbol], verdict: Verdict) -> None:
    """What iterations of the parallel loops of a program do to each other's memory."""
    for loop, touched in touches.loops.items():
        for buffer, listed in touched.items():
            if any(t.writes for t in listed):
                pair = iterations_that_meet(loop, buffer, listed, set(programs), verdict)
                if pair is not None:
                    verdict.found(IterationsMeet(loop=loop.name, first=pair.first, second=pair.second,
                                                 **pair.texts(buffer)), pair.one.at)


def iterations_that_meet(loop: LoopRun, buffer: Buffer, listed: Sequence[Touch], programs: set[Symbol],
                         verdict: Verdict) -> Clash | None:
    shared = frozenset(programs | symbols_around(listed[0], loop))
    if loop.symbol is not None:
        symbol = loop.symbol
        apart = Apart(symbol, (symbol.last - symbol.first) // symbol.step + 1, shared)
        return first_pair(listed, apart, lambda a, b: True, verdict)
    if any(root in shared for touch in listed for root in deciding(touch)):
        def differ(a: Touch, b: Touch) -> bool:
            return a.number_in(loop) != b.number_in(loop)
        pair = first_pair(listed, Apart(None, 2, shared), differ, verdict)
        return None if pair is None else pair._replace(first=pair.one.number_in(loop),
                                                         second=pair.other.number_in(loop))
    return first_element(buffer, [(t, t.number_in(loop)) for t in listed], verdict)


def symbols_around(touch: Touch, loop: LoopRun) -> set[Symbol]:
    """The loop variables outside of a loop that the touch is in."""
    loops = [turn.loop for turn in outward(touch.turn)]
    return {around.symbol for around in loops[loops.index(loop) + 1:] if around.symbol is not None}


def deciding(touch: Touch) -> set[Symbol]:
    """The loop variables and program ids that decide where, and whether, it happens."""
    indices = [touch.view.partition, touch.view.free, *(e for c in touch.conditions for e, _ in c.terms)]
    return {*roots_of(indices), *(root for symbol in touch.symbols for root in symbol.roots())}


# -- programs ----------------------------------------------------------------------------------------------------------
@dataclass
class ProgramTouches:
    """What a captured (or executed) program does to the memory of all: by parameter or output.

    ``point`` is its text; ``axes`` are the grid's axes along which it stands for several programs: their extents and
    symbols, None for one that nothing of it depends on. Programs of equal ``identity`` do the same.
    """

    point: str
    identity: Hashable
    touches: dict[Hashable, tuple[Buffer, list[Touch]]]
    axes: dict[int, tuple[int, Symbol | None]]


class GridCapture(Protocol):
    """The builder of a captured program, as far as it knows the grid."""

    grid: tuple[int, ...]
    point: dict[int, int]
    programs: dict[int, Symbol]
    touches: Touches


def ignored_axes(builder: GridCapture) -> list[int]:
    """The axes of the grid that nothing of a captured program depends on."""
    return [axis for axis, extent in enumerate(builder.grid) if extent > 1 and axis not in builder.point
            and (axis not in builder.programs or not list(builder.programs[axis].value.uses))]


def program_of(builder: GridCapture) -> ProgramTouches:
    """What a captured program does to the memory of all."""
    ignored = ignored_axes(builder)
    axes = {axis: (extent, None if axis in ignored else builder.programs[axis])
            for axis, extent in enumerate(builder.grid) if extent > 1 and axis not in builder.point}
    return ProgramTouches(point_text(builder.point, len(builder.grid)), None, shared_touches(builder.touches), axes)


def point_text(point: dict[int, int], dimensions: int) -> str:
    """How messages call a program, by those of its ids that are fixed."""
    if dimensions == 1 and point:
        return f"program {point[0]}"
    return "the program with " + " and ".join(f"program_id({axis}) {number}" for axis, number in point.items())


def shared_touches(touches: Touches) -> dict[Hashable, tuple[Buffer, list[Touch]]]:
    """Those of the memory of all programs, which is identified by the order of its allocation."""
    counts: dict[str, int] = {}
    shared: dict[Hashable, tuple[Buffer, list[Touch]]] = {}
    for buffer in touches.shared:
        counts[buffer.role] = counts.get(buffer.role, 0) + 1
        if buffer in touches.programs:
            shared[buffer.role, counts[buffer.role]] = buffer, touches.programs[buffer]
    return shared


def judge_programs(programs: Sequence[ProgramTouches], dimensions: int, verdict: Verdict) -> None:
    """What the programs of a grid do to each other's memory."""
    kinds: dict[Hashable, list[ProgramTouches]] = {}
    for program in programs:
        kinds.setdefault(program.identity, []).append(program)
    for same in kinds.values():
        for axis, (extent, symbol) in same[0].axes.items():
            judge_axis(same[0], axis, extent, symbol, dimensions, verdict)
        if len(same) > 1:
            judge_repeated(same[0], len(same), "the program id", [same[0].point, same[1].point], verdict)
    if len(kinds) > 1:
        judge_different([same[0] for same in kinds.values()], verdict)


def judge_axis(program: ProgramTouches, axis: int, extent: int, symbol: Symbol | None, dimensions: int, verdict: Verdict
               ) -> None:
    """Programs that differ in one id, all of which the capture stands for."""
    along = f" along axis {axis}" if dimensions > 1 else ""
    if symbol is None:
        names = [f"program {n}{along}" for n in range(2)]
        judge_repeated(program, extent, f"program_id({axis})", names, verdict)
        return
    for buffer, listed in program.touches.values():
        if any(t.writes for t in listed):
            pair = first_pair(listed, Apart(symbol, extent), unordered, verdict)
            if pair is not None:
                names = [f"program {n}{along}" for n in (pair.first, pair.second)]
                programs_meet(pair, buffer, names, verdict)


def judge_repeated(program: ProgramTouches, count: int, what: str, names: Sequence[str], verdict: Verdict) -> None:
    """Programs that do the same: a race only where one reads what another may have changed already."""
    for buffer, listed in program.touches.values():
        writes = [t for t in listed if t.writes]
        if not writes:
            continue
        inputs = exposed(listed)
        pairs = {id(t) for t in writes}, {id(t) for t in inputs}

        def compared(a: Touch, b: Touch, pairs: tuple[set[int], ...] = pairs) -> bool:
            return id(a) in pairs[0] and id(b) in pairs[1] and unordered(a, b)
        pair = first_pair([*writes, *inputs], Apart(None, 2), compared, verdict) if inputs else None
        if pair is not None:
            programs_meet(pair, buffer, names, verdict)
            continue
        repeated = next((t for t in writes if not t.accumulates), None)
        if repeated is not None:
            repeats(count, buffer, what, repeated, verdict)


def exposed(listed: Sequence[Touch]) -> list[Touch]:
    """The reads of what the program has not itself written before."""
    overwritten: set[Hashable] = set()
    reads = []
    for touch in listed:
        written = written_at(touch.view)
        if touch.writes:
            overwritten.add(written)
        elif written not in overwritten and not touch.accumulates:
            reads.append(touch)
    return reads


def judge_different(programs: Sequence[ProgramTouches], verdict: Verdict) -> None:
    """Programs that were captured, or ran, one by one."""
    keys = dict.fromkeys(key for program in programs for key in program.touches)
    for key in keys:
        listed = [(t, number) for number, p in enumerate(programs) if key in p.touches for t in p.touches[key][1]]
        buffer = next(p.touches[key][0] for p in programs if key in p.touches)
        if not any(t.writes for t, _ in listed):
            continue
        sharing = [p.touches[key][1] for p in programs if key in p.touches]
        if len(sharing) > 1 and all_write_the_same(sharing):
            repeats(len(sharing), buffer, "the program id", sharing[0][0], verdict)
            continue
        for epoch in sorted({t.epoch for t, _ in listed}):
            pair = first_element(buffer, [(t, n) for t, n in listed if t.epoch == epoch and not meets(t)], verdict)
            if pair is not None:
                names = programs[pair.first].point, programs[pair.second].point
                programs_meet(pair, buffer, names, verdict)
                break
        inside = [t for t, _ in listed if meets(t)]
        if inside:
            verdict.undecided.append((inside[0], inside[0]))


def all_write_the_same(listed: Sequence[Sequence[Touch]]) -> bool:
    """Whether programs make the same writes to a tensor, in the same order, and read nothing that these change."""
    sequences = []
    for touches in listed:
        writes = [t for t in touches if t.writes]
        if any(t.accumulates or t.value is None for t in writes) or exposed(touches):
            return False
        sequences.append([(t.value, written_at(t.view), t.epoch) for t in writes])
    once = all(len(set(w)) == len(w) for w in sequences) or all(t.writes for touches in listed for t in touches)
    return once and all(w == sequences[0] for w in sequences)


def repeats(count: int, buffer: Buffer, what: str, touch: Touch, verdict: Verdict) -> None:
    """Report that programs write the same; of all tensors that they do it to, the first is enough."""
    if not any(isinstance(e, ProgramsRepeat) for e in verdict.races):
        verdict.found(ProgramsRepeat(count=count, tensor=buffer.name, what=what), touch.at)


def programs_meet(found: Clash, buffer: Buffer, names: Sequence[str], verdict: Verdict) -> None:
    verdict.found(ProgramsMeet(first=names[0], second=names[1], **found.texts(buffer)), found.one.at)


def unordered(a: Touch, b: Touch) -> bool:
    """Whether nothing that the programs do together lies between the two."""
    return a.epoch == b.epoch or meets(a) or meets(b)


def meets(touch: Touch) -> bool:
    """Whether it is in a rolled loop in which programs meet, so that its number of meetings is not known."""
    return any(turn.loop.meets for turn in outward(touch.turn))


# -- pairs and elements ------------------------------------------------------------------------------------------------
def first_pair(listed: Sequence[Touch], apart: Apart, compared: Callable[[Touch, Touch], bool], verdict: Verdict,
               numbers: dict[int, object] | None = None) -> Clash | None:
    """The first two touches that meet, by comparing each that writes with all.

    ``numbers`` are those of who makes them, by their identity, where they are not all of the same.
    """
    touches = distinct(listed, numbers or {})
    writers = sum(t.writes for t in touches)
    if writers * len(touches) > MOST_PAIRS:
        verdict.undecided.append((touches[0], touches[-1]))
        return None
    known: set[Hashable] = set()                # differences of plain patterns that are apart
    forms = [form_of(t) for t in touches]
    for i, a in enumerate(touches):
        for j, b in enumerate(touches) if a.writes else ():
            if (b.writes and j < i) or (a.accumulates and b.accumulates) or not compared(a, b):
                continue
            key = None
            if forms[i] is not None and forms[j] is not None:
                key = (forms[i], forms[j], a.view.partition.const - b.view.partition.const,
                       a.view.free.const - b.view.free.const)
                if key in known:
                    continue
            try:
                met = meeting(a, b, apart)
            except SearchTooLong:
                verdict.undecided.append((a, b))
                continue
            if met is None:
                known.add(key)
            elif not (a.exact and b.exact) or meets(a) or meets(b):
                verdict.undecided.append((a, b))
            else:
                return Clash(a, b, met.element, met.first, met.second)
    return None


def distinct(listed: Sequence[Touch], numbers: dict[int, object]) -> list[Touch]:
    """Touches of which no two are the same in all that decides whether they meet others."""
    first_of: dict[Hashable, Touch] = {}
    for touch in listed:
        key: Hashable = touch
        if form_of(touch) is not None:
            key = (written_at(touch.view), touch.writes, touch.accumulates, touch.exact, touch.epoch, touch.turn,
                   numbers.get(id(touch)))
        first_of.setdefault(key, touch)
    return list(first_of.values())


def form_of(touch: Touch) -> Hashable:
    """Equal for touches that differ in their start only; None where conditions, or data, make each its own."""
    if touch.restriction is not None or touch.conditions or touch.elements is not None:
        return None
    view = touch.view
    return (view.dims, view.dtype.itemsize, tuple(view.partition.symbols.items()), tuple(view.free.symbols.items()))


def first_element(buffer: Buffer, listed: Sequence[tuple[Touch, object]], verdict: Verdict) -> Clash | None:
    """The first element that two different ones touch: few plain patterns are compared, else each one's elements."""
    if all(t.accumulates for t, _ in listed) or (
            (patterns := patterns_of(buffer, listed)) is not None and owners_apart(patterns)):
        return None
    exact = [(t, n) for t, n in listed if t.exact]
    writers = sum(t.writes for t, _ in listed)
    if all(form_of(t) is not None for t, _ in listed) and writers * len(listed) <= FEW_PAIRS:
        numbers = {id(t): n for t, n in listed}

        def differ(a: Touch, b: Touch) -> bool:
            return numbers[id(a)] != numbers[id(b)]
        pair = first_pair([t for t, _ in listed], Apart(None, 2), differ, verdict, numbers)
        return None if pair is None else pair._replace(first=numbers[id(pair.one)], second=numbers[id(pair.other)])
    try:
        pair = by_elements(buffer, exact)
        vague = next((t for t, _ in listed if not t.exact), None)
        if pair is None and vague is not None and by_elements(buffer, listed) is not None:
            verdict.undecided.append((vague, vague))
        return pair
    except TooManyPoints:
        verdict.undecided.append((listed[0][0], listed[-1][0]))
        return None


def by_elements(buffer: Buffer, listed: Sequence[tuple[Touch, object]]) -> Clash | None:
    numbers = {number: k for k, number in enumerate(dict.fromkeys(n for _, n in listed))}
    owners = Owners(buffer, [(touch, numbers[n]) for touch, n in listed])
    if owners.size > MOST_ELEMENTS:
        raise TooManyPoints
    for place, (touch, number) in enumerate(listed):
        clash = owners.touch(place)
        if clash is not None:
            at, (earlier, by) = clash[0], listed[clash[1]]
            return Clash(earlier, touch, element(buffer, *owners.element(at)), by, number)
    return None


# -- writes whose index lacks a variable -------------------------------------------------------------------------------
# The variable of a parallel loop or a program id: the documents call it an error. What one iteration or program writes
# must lie elsewhere than what another does, unless it is accumulated, or a condition picks the iteration that writes.
class CaptureDependences:
    """Those of one capture, until it is clear that its loops stay rolled: a place in a Python variable is no index."""

    def __init__(self) -> None:
        self.of_loops: UnexpectedOutputDependencies | None = None
        self.of_programs: list[UnexpectedOutputDependencies] = []

    def check(self, op: Op, views: Sequence[View], symbols: Sequence[Symbol], scopes: "Sequence[Scope]",
              programs: Sequence[tuple[int, Symbol | None]]) -> None:
        if self.of_loops is None and (error := dependence(op, views, symbols, scopes, programs)) is not None:
            error.here()
            if error.programs:
                self.of_programs.append(error)
            else:
                self.of_loops = error

    def violation(self, ignored: Iterable[int]) -> UnexpectedOutputDependencies | None:
        """Return the hazard, if there is one. Programs whose ids the kernel ignores write equal values."""
        if self.of_loops is not None:
            return self.of_loops
        return next((e for e in self.of_programs if not set(e.programs) <= set(ignored)), None)


def dependence(op: Op, views: Sequence[View], symbols: Sequence[Symbol], scopes: "Sequence[Scope]",
               programs: Sequence[tuple[int, Symbol | None]]) -> UnexpectedOutputDependencies | None:
    """The error of an operation that writes what other iterations write, too.

    ``programs`` are the grid's axes that were not fixed, with their symbols where the kernel read the program id.
    """
    for (field, _), view in zip(op.operands(), views):
        if not field.writes or (field.reads and field.name in {name for name, _ in op.sources()}):
            continue
        buffer = view.buffer
        inner = scopes[scopes.index(buffer.scope) + 1:]
        shared = programs if buffer.role in ("input", "output") else ()
        if not shared and not any([scope.parallel for scope in inner]):
            continue
        used = origins(s for i in (view.partition, view.free) for s in i.symbols)
        used |= origins(symbols[p] for c in (*op.mask, *op.limits) for p, _ in c.form.symbols)
        used |= origins(s for scope in inner for fact in scope.condition for s in fact.symbols)
        missing = [s.symbol.name for s in reversed(inner)
                   if s.symbol is not None and s.parallel and s.symbol not in used]
        axes = tuple(axis for axis, symbol in shared if symbol is None or symbol not in used)
        if missing or axes:
            names = [*missing, *(f"program_id({axis})" for axis in axes)]
            error = UnexpectedOutputDependencies(missing=", ".join(names), name=buffer.name)
            error.programs = () if missing else axes
            return error
    return None


def origins(symbols: Iterable[Symbol]) -> set[Symbol]:
    """The symbols with those that they are derived from."""
    roots: set[Symbol] = set()
    for symbol in symbols:
        roots.add(symbol)
        if symbol.parents:
            roots |= origins(symbol.parents)
    return roots

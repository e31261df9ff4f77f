# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Judges accesses to the same memory by iterations of parallel loops, and by programs of a grid.

A pair of touches, one of which writes, gets one of three verdicts. The touches are disjoint, or they race on an element
that both touch, or the pair is undecided, because data select the elements or the proof takes too long. Undecided pairs
are checked when the kernel runs.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nki_mlir.capture.errors import UnexpectedOutputDependencies
from nki_mlir.capture.index import Symbol
from nki_mlir.capture.iterations import LoopRun, enclosing_iterations
from nki_mlir.capture.races.overlaps import DistinctPoints, common_element, element, roots_of
from nki_mlir.capture.races.touches import Touch, Touches, written_at
from nki_mlir.capture.races.verdicts import IterationsMeet, ProgramsMeet, ProgramsRepeat, Verdict
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.integer_systems import SearchTooLong
from nki_mlir.dialects.op import REGISTERS, Op
from nki_mlir.waist.overlap import owners_apart

if TYPE_CHECKING:
    from nki_mlir.capture.scope import Scope


MOST_PAIRS = 1 << 17                    # the most pairs of touches of one tensor that are compared
FEW_PAIRS = 1 << 16                     # up to here comparing the pairs is faster than marking all elements


class TouchConflict(NamedTuple):
    """Two touches of the same element, and the numbers of the iterations or programs that they belong to."""

    one: Touch
    other: Touch
    element: tuple[int, ...]
    first: Any
    second: Any

    def texts(self, buffer: Buffer) -> dict[str, Location | list[int] | str]:
        """Return the values for the message templates of ``verdicts``."""
        return {"tensor": buffer.name, "element": [*self.element], "done": verb_of(self.one),
                "also": verb_of(self.other), "location": self.other.at}


def verb_of(touch: Touch) -> str:
    return ("added to" if touch.accumulates else "written") if touch.writes else "read"


# -- loops -------------------------------------------------------------------------------------------------------------
def judge_loops(touches: Touches, programs: Iterable[Symbol], verdict: Verdict) -> None:
    """Record in ``verdict`` the races between iterations of the parallel loops of a program."""
    for loop, touched in touches.loops.items():
        for buffer, listed in touched.items():
            if any(t.writes for t in listed):
                pair = iterations_that_meet(loop, buffer, listed, set(programs), verdict)
                if pair is not None:
                    verdict.add_race(IterationsMeet(loop=loop.name, first=pair.first, second=pair.second,
                                                 **pair.texts(buffer)), pair.one.at)


def iterations_that_meet(loop: LoopRun, buffer: Buffer, listed: Sequence[Touch], programs: set[Symbol],
                         verdict: Verdict) -> TouchConflict | None:
    shared = frozenset(programs | symbols_around(listed[0], loop))
    if loop.symbol is not None:
        symbol = loop.symbol
        points = DistinctPoints(symbol, (symbol.last - symbol.first) // symbol.step + 1, shared)
        return first_pair(listed, points, lambda a, b: True, verdict)
    if any(root in shared for touch in listed for root in deciding(touch)):
        def differ(a: Touch, b: Touch) -> bool:
            return a.number_in(loop) != b.number_in(loop)
        pair = first_pair(listed, DistinctPoints(None, 2, shared), differ, verdict)
        return None if pair is None else pair._replace(first=pair.one.number_in(loop),
                                                         second=pair.other.number_in(loop))
    return first_element(buffer, [(t, t.number_in(loop)) for t in listed], verdict)


def symbols_around(touch: Touch, loop: LoopRun) -> set[Symbol]:
    """Return the variables of the rolled loops outside of ``loop`` that the touch is in."""
    loops = [iteration.loop for iteration in enclosing_iterations(touch.iteration)]
    return {outer_loop.symbol for outer_loop in loops[loops.index(loop) + 1:] if outer_loop.symbol is not None}


def deciding(touch: Touch) -> set[Symbol]:
    """Return the loop variables and program ids that decide which elements are touched, and whether any are."""
    indices = [touch.view.partition, touch.view.free, *(e for c in touch.conditions for e, _ in c.terms)]
    return {*roots_of(indices), *(root for symbol in touch.symbols for root in symbol.roots())}


# -- programs ----------------------------------------------------------------------------------------------------------
@dataclass
class ProgramTouches:
    """The accesses of a captured (or executed) program to memory that all programs share, by parameter or output.

    ``point`` names the program in messages. ``axes`` are the grid's axes along which the record stands for several
    programs, with extents and symbols (None if the program does not depend on that id). Programs of equal
    ``identity`` do the same.
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

    def reads(self, symbol: Symbol) -> bool:
        """Return whether an operation reads a symbol."""


def ignored_axes(builder: GridCapture) -> list[int]:
    """Return the axes of the grid that a captured program stands for and whose ids it does not use."""
    return [axis for axis, extent in enumerate(builder.grid) if extent > 1 and axis not in builder.point
            and (axis not in builder.programs or not builder.reads(builder.programs[axis]))]


def program_of(builder: GridCapture) -> ProgramTouches:
    """Return the accesses of a captured program to shared memory."""
    ignored = ignored_axes(builder)
    axes = {axis: (extent, None if axis in ignored else builder.programs[axis])
            for axis, extent in enumerate(builder.grid) if extent > 1 and axis not in builder.point}
    return ProgramTouches(point_text(builder.point, len(builder.grid)), None, shared_touches(builder.touches), axes)


def point_text(point: dict[int, int], dimensions: int) -> str:
    """Return the text that names a program in messages by its fixed ids."""
    if dimensions == 1 and point:
        return f"program {point[0]}"
    return "the program with " + " and ".join(f"program_id({axis}) {number}" for axis, number in point.items())


def shared_touches(touches: Touches) -> dict[Hashable, tuple[Buffer, list[Touch]]]:
    """Return the touches of memory that all programs share, by the number of the input or the shared tensor."""
    inputs = [buffer for buffer in touches.shared if buffer.shared is None]
    numbers = {buffer: ("input", number) for number, buffer in enumerate(inputs)}
    return {numbers.get(buffer, ("shared", buffer.shared)): (buffer, touches.programs[buffer])
            for buffer in touches.shared if buffer in touches.programs}


def judge_programs(programs: Sequence[ProgramTouches], dimensions: int, verdict: Verdict) -> None:
    """Record in ``verdict`` the races between the programs of a grid."""
    kinds: dict[Hashable, list[ProgramTouches]] = {}
    for program in programs:
        kinds.setdefault(program.identity, []).append(program)
    for members in kinds.values():
        for axis, (extent, symbol) in members[0].axes.items():
            judge_axis(members[0], axis, extent, symbol, dimensions, verdict)
        if len(members) > 1:
            judge_repeated(members[0], len(members), "the program id", [members[0].point, members[1].point], verdict)
    if len(kinds) > 1:
        judge_different([members[0] for members in kinds.values()], verdict)


def judge_axis(program: ProgramTouches, axis: int, extent: int, symbol: Symbol | None, dimensions: int, verdict: Verdict
               ) -> None:
    """Judge programs that differ only in their id on ``axis``; the capture stands for all of them."""
    along = f" along axis {axis}" if dimensions > 1 else ""
    if symbol is None:
        names = [f"program {n}{along}" for n in range(2)]
        judge_repeated(program, extent, f"program_id({axis})", names, verdict)
        return
    for buffer, listed in program.touches.values():
        if any(t.writes for t in listed):
            pair = first_pair(listed, DistinctPoints(symbol, extent), unordered, verdict)
            if pair is not None:
                names = [f"program {n}{along}" for n in (pair.first, pair.second)]
                programs_meet(pair, buffer, names, verdict)


def judge_repeated(program: ProgramTouches, count: int, subject: str, names: Sequence[str], verdict: Verdict) -> None:
    """Judge programs that do the same: there is a race only if one reads what another may have changed already. Writes
    alone are reported as repeated work."""
    for buffer, listed in program.touches.values():
        writes = [t for t in listed if t.writes]
        if not writes:
            continue
        inputs = exposed(listed)
        pairs = {id(t) for t in writes}, {id(t) for t in inputs}

        def compared(a: Touch, b: Touch, pairs: tuple[set[int], ...] = pairs) -> bool:
            return id(a) in pairs[0] and id(b) in pairs[1] and unordered(a, b)
        pair = first_pair([*writes, *inputs], DistinctPoints(None, 2), compared, verdict) if inputs else None
        if pair is not None:
            programs_meet(pair, buffer, names, verdict)
            continue
        repeated = next((t for t in writes if not t.accumulates), None)
        if repeated is not None:
            repeats(count, buffer, subject, repeated, verdict)


def exposed(listed: Sequence[Touch]) -> list[Touch]:
    """Return the reads of elements that the program has not itself written before."""
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
    """Judge programs that were captured, or ran, one by one."""
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
            pair = first_element(buffer, [(t, n) for t, n in listed if t.epoch == epoch and not has_unknown_epoch(t)],
                                 verdict)
            if pair is not None:
                names = programs[pair.first].point, programs[pair.second].point
                programs_meet(pair, buffer, names, verdict)
                break
        inside = [t for t, _ in listed if has_unknown_epoch(t)]
        if inside:
            verdict.undecided.append((inside[0], inside[0]))


def all_write_the_same(listed: Sequence[Sequence[Touch]]) -> bool:
    """Return whether programs make the same writes to a tensor, in the same order, and read nothing that
    these change."""
    sequences = []
    for touches in listed:
        writes = [t for t in touches if t.writes]
        if any(t.accumulates or t.value is None for t in writes) or exposed(touches):
            return False
        sequences.append([(t.value, written_at(t.view), t.epoch) for t in writes])
    writes_once = all(len(set(w)) == len(w) for w in sequences) or all(t.writes for touches in listed for t in touches)
    return writes_once and all(w == sequences[0] for w in sequences)


def repeats(count: int, buffer: Buffer, subject: str, touch: Touch, verdict: Verdict) -> None:
    """Report that programs write the same values, for the first such tensor only."""
    if not any(isinstance(e, ProgramsRepeat) for e in verdict.races):
        verdict.add_race(ProgramsRepeat(count=count, tensor=buffer.name, what=subject), touch.at)


def programs_meet(clash: TouchConflict, buffer: Buffer, names: Sequence[str], verdict: Verdict) -> None:
    verdict.add_race(ProgramsMeet(first=names[0], second=names[1], **clash.texts(buffer)), clash.one.at)


def unordered(a: Touch, b: Touch) -> bool:
    """Return whether no barrier or collective of the programs lies between the two touches."""
    return a.epoch == b.epoch or has_unknown_epoch(a) or has_unknown_epoch(b)


def has_unknown_epoch(touch: Touch) -> bool:
    """Return whether the touch is in a rolled loop with a barrier or collective inside, so that its epoch is not
    known."""
    return any(iteration.loop.has_barrier for iteration in enclosing_iterations(touch.iteration))


# -- pairs and elements ------------------------------------------------------------------------------------------------
def first_pair(listed: Sequence[Touch], points: DistinctPoints, compared: Callable[[Touch, Touch], bool],
               verdict: Verdict, numbers: dict[int, object] | None = None) -> TouchConflict | None:
    """Return the first two touches that share an element, by comparing each touch that writes with all others.

    ``numbers`` map the ``id`` of a touch to its iteration or program, where the touches belong to several. Pairs
    that are not decided are added to ``verdict``.
    """
    touches = distinct(listed, numbers or {})
    writers = sum(t.writes for t in touches)
    if writers * len(touches) > MOST_PAIRS:
        verdict.undecided.append((touches[0], touches[-1]))
        return None
    disjoint: set[Hashable] = set()                # pairs of plain patterns that share no element, by their difference
    forms = [form_of(t) for t in touches]
    for number, touch in enumerate(touches):
        for other_number, other in enumerate(touches) if touch.writes else ():
            if (other.writes and other_number < number) or (touch.accumulates and other.accumulates) or (
                    not compared(touch, other)):
                continue
            key = None
            if forms[number] is not None and forms[other_number] is not None:
                key = (forms[number], forms[other_number], touch.view.partition.const - other.view.partition.const,
                       touch.view.free.const - other.view.free.const)
                if key in disjoint:
                    continue
            try:
                common = common_element(touch, other, points)
            except SearchTooLong:
                verdict.undecided.append((touch, other))
                continue
            if common is None:
                disjoint.add(key)
            elif not (touch.exact and other.exact) or has_unknown_epoch(touch) or has_unknown_epoch(other):
                verdict.undecided.append((touch, other))
            else:
                return TouchConflict(touch, other, common.element, common.first, common.second)
    return None


def distinct(listed: Sequence[Touch], numbers: dict[int, object]) -> list[Touch]:
    """Return the touches without repetitions: touches that agree in all that decides which others they race with."""
    first_of: dict[Hashable, Touch] = {}
    for touch in listed:
        key: Hashable = touch
        if form_of(touch) is not None:
            key = (written_at(touch.view), touch.writes, touch.accumulates, touch.exact, touch.epoch, touch.iteration,
                   numbers.get(id(touch)))
        first_of.setdefault(key, touch)
    return list(first_of.values())


def form_of(touch: Touch) -> Hashable:
    """Return a key that is equal for touches that differ only in their start; None where conditions or data select
    elements."""
    if touch.restriction is not None or touch.conditions or touch.elements is not None:
        return None
    view = touch.view
    return (view.dims, view.dtype.itemsize, tuple(view.partition.symbols.items()), tuple(view.free.symbols.items()))


def first_element(buffer: Buffer, listed: Sequence[tuple[Touch, object]], verdict: Verdict) -> TouchConflict | None:
    """Return the first element that two iterations or programs touch: by comparing pairs of few plain patterns, else
    by going through all elements."""
    from nki_mlir.capture.races.owners import TooManyPoints, patterns_of  # start-up: few kernels need it
    if all(t.accumulates for t, _ in listed) or (
            (patterns := patterns_of(buffer, listed)) is not None and owners_apart(patterns)):
        return None
    exact = [(t, n) for t, n in listed if t.exact]
    writers = sum(t.writes for t, _ in listed)
    if all(form_of(t) is not None for t, _ in listed) and writers * len(listed) <= FEW_PAIRS:
        numbers = {id(t): n for t, n in listed}

        def differ(a: Touch, b: Touch) -> bool:
            return numbers[id(a)] != numbers[id(b)]
        pair = first_pair([t for t, _ in listed], DistinctPoints(None, 2), differ, verdict, numbers)
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


def by_elements(buffer: Buffer, listed: Sequence[tuple[Touch, object]]) -> TouchConflict | None:
    from nki_mlir.capture.races.owners import MOST_ELEMENTS, Owners, TooManyPoints  # start-up: few kernels need it
    numbers = {number: k for k, number in enumerate(dict.fromkeys(n for _, n in listed))}
    owners = Owners(buffer, [(touch, numbers[n]) for touch, n in listed])
    if owners.size > MOST_ELEMENTS:
        raise TooManyPoints
    for index, (touch, number) in enumerate(listed):
        clash = owners.touch(index)
        if clash is not None:
            at, (earlier, by) = clash[0], listed[clash[1]]
            return TouchConflict(earlier, touch, element(buffer, *owners.element(at)), by, number)
    return None


# -- writes whose index lacks a variable -------------------------------------------------------------------------------
# The documents make it an error if an index lacks the variable of a parallel loop or a program id: iterations and
# programs must write disjoint elements, unless they accumulate, or a condition selects the iteration that writes.
class CaptureDependences:
    """The writes of one capture whose indices lack the variable of a parallel loop, or a program id.

    They are errors only if the loops stay rolled: an index in a Python variable has no symbol before it is captured
    with numbers.
    """

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
        """Return the first error, or None. Programs that differ only in ``ignored`` axes write equal values, which is
        no error."""
        if self.of_loops is not None:
            return self.of_loops
        return next((e for e in self.of_programs if not set(e.programs) <= set(ignored)), None)


def dependence(op: Op, views: Sequence[View], symbols: Sequence[Symbol], scopes: "Sequence[Scope]",
               programs: Sequence[tuple[int, Symbol | None]]) -> UnexpectedOutputDependencies | None:
    """Return the error of an operation that writes elements that other iterations write, too; None if there are none.

    ``programs`` are the grid's axes that were not fixed, with their symbols where the kernel read the program id.
    """
    for (field, _), view in zip(op.operands(), views):
        if not field.writes or field.name in REGISTERS or (
                field.reads and field.name in {name for name, _ in op.sources()}):
            continue
        buffer = view.buffer
        inner = scopes[scopes.index(buffer.scope) + 1:]
        shared = programs if buffer.role in ("input", "output") else ()
        if not shared and not any([scope.parallel for scope in inner]):
            continue
        used_origins = origins(s for i in (view.partition, view.free) for s in i.symbols)
        used_origins |= origins(symbols[p] for c in (*op.mask, *op.limits) for p, _ in c.form.symbols)
        used_origins |= origins(s for scope in inner for fact in scope.condition for s in fact.symbols)
        missing = [s.symbol.name for s in reversed(inner)
                   if s.symbol is not None and s.parallel and s.symbol not in used_origins]
        axes = tuple(axis for axis, symbol in shared if symbol is None or symbol not in used_origins)
        if missing or axes:
            names = [*missing, *(f"program_id({axis})" for axis in axes)]
            error = UnexpectedOutputDependencies(missing=", ".join(names), name=buffer.name)
            error.programs = () if missing else axes
            return error
    return None


def origins(symbols: Iterable[Symbol]) -> set[Symbol]:
    """Return the symbols and those that they are derived from."""
    roots: set[Symbol] = set()
    for symbol in symbols:
        roots.add(symbol)
        if symbol.parents:
            roots |= origins(symbol.parents)
    return roots

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Subscripts of every form: affine index vectors with any coefficients, meshes, slices with steps, views of views."""

from dataclasses import dataclass, field
from math import prod

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, INT32, UINT8

from ..beta import BetaWriter, kind, rule
from ..writer import Facts, Tile

SHAPES = ((192, 192), (8, 24, 192), (4, 6, 8, 192), (192, 4, 6, 8), (3, 4, 2, 8, 192))
FREE = ((24,), (4, 6), (2, 3, 4), (2, 2, 3, 4))


@dataclass
class Subscript:
    """One expression a dimension, over axes whose sizes it draws."""

    sizes: list[int]
    terms: list[list[tuple[int, int]]] = field(default_factory=list)       # of a dimension: (axis, coefficient)
    texts: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return ", ".join(self.texts)


def drawn(w: BetaWriter, extents: tuple[int, ...], axes: int, *, on_chip: bool, apart: bool = False) -> Subscript:
    """Index vectors over ``axes`` axes that stay within the extents; ``apart``: no two elements are one.

    Axis 0 is the partition's: on chip it counts dimension 0 by one, from where engines begin.
    """
    subscript = Subscript([0] * axes)
    room = [n - 1 for n in extents]
    subscript.terms = [[] for _ in extents]
    first = 0 if on_chip or w.maybe() else w.between(0, len(extents) - 1)
    step = 1 if on_chip else w.pick(1, 1, 2, 3)
    subscript.sizes[0] = w.between(1, min(w.P, room[first] // step + 1, 128))
    subscript.terms[first].append((0, step))
    room[first] -= step * (subscript.sizes[0] - 1)
    if on_chip:
        room[0] = 0
    for axis in range(1, axes):
        dims = [d for d in range(len(extents)) if room[d] > 0 and not (on_chip and d == 0)
                and not (apart and subscript.terms[d])]
        if not dims or (not apart and w.maybe(9)):
            subscript.sizes[axis] = 1 if apart else w.between(1, 3)
            subscript.terms[w.between(int(on_chip), len(extents) - 1)].append((axis, 0))  # repeats what it reads
            continue
        d, coefficient = w.pick(*dims), w.pick(1, 1, 1, 2, 3, -1, -2)
        subscript.sizes[axis] = w.between(1, min(8, room[d] // abs(coefficient) + 1))
        subscript.terms[d].append((axis, coefficient))
        room[d] -= abs(coefficient) * (subscript.sizes[axis] - 1)
        also = [e for e in range(len(extents)) if e != d and room[e] >= subscript.sizes[axis] - 1 and not (on_chip and e == 0)]
        if also and not apart and w.maybe(4):               # a diagonal
            e = w.pick(*also)
            subscript.terms[e].append((axis, 1))
            room[e] -= subscript.sizes[axis] - 1
            w.note("subscript.axis in two dimensions")
    vectors = vectors_of(w, subscript.sizes)
    for d, (extent, terms) in enumerate(zip(extents, subscript.terms)):
        low = -sum(c * (subscript.sizes[a] - 1) for a, c in terms if c < 0)
        start = low + (w.between(0, room[d]) if room[d] and not (on_chip and d == 0) else 0)
        text = " ".join(f"{'-' if c < 0 else '+'} {vectors[a]}{f' * {abs(c)}' if abs(c) != 1 else ''}" for a, c in terms)
        names = [loop for loop in w.loops if loop.symbolic and loop.count > 1]
        left = room[d] - (start - low)
        if names and left > 0 and not (on_chip and d == 0) and w.maybe(3):
            loop = w.pick(*names)
            most = left // (loop.count - 1)
            if most:
                text = f"{text} + {loop.name} * {w.between(1, min(3, most))}"
                w.note("subscript.loop variable")
        subscript.texts.append(f"{start} {text}".strip())
        w.note(*(f"subscript.coefficient {max(min(c, 2), -1)}" for _, c in terms))
    return subscript


def vectors_of(w: BetaWriter, sizes: list[int]) -> list[str]:
    """The index vector of each axis, as ``nl.arange`` or from a mesh."""
    if w.maybe(3):
        name = w.name("mesh")
        w.note("subscript.mgrid")
        w.emit(f"{name} = nl.mgrid[{', '.join(f'0:{n}' for n in sizes)}]")
        if len(sizes) <= 4 and w.maybe():
            return [f"{name}.{letter}" for letter in "pxyz"[:len(sizes)]]
        names = [w.name("i") for _ in sizes]
        w.emit(f"{', '.join(names)} = {name}")
        return names
    w.note("subscript.arange")
    return [f"nl.arange({n})[{', '.join(':' if k == a else 'None' for k in range(len(sizes)))}]"
            for a, n in enumerate(sizes)]


def tensor(w: BetaWriter) -> tuple[str, tuple[int, ...], object, object]:
    """An input with up to five dimensions."""
    dtype = w.pick(FLOAT32, FLOAT32, BFLOAT16, INT32, UINT8)
    name, facts = w.array(dtype, w.pick("small", "fraction"))
    shape = w.pick(*SHAPES)
    w.note(f"subscript.rank {len(shape)}")
    return (name if len(shape) == 2 else f"{name}.reshape({shape})"), shape, dtype, facts


def mask_over(w: BetaWriter, shape: tuple[int, ...]) -> str:
    return w.mask(shape, boxes=w.maybe())


@rule(3)
def loaded_by_vectors(w: BetaWriter):
    """``nl.load`` of any affine pattern of an input."""
    source, shape, dtype, facts = tensor(w)
    s = drawn(w, shape, w.between(2, 5), on_chip=False)
    at = w.name("at")
    w.emit(f"{at} = {source}")
    w.note("nl.load of vectors")
    w.let(f"nl.load({at}[{s}])", tuple(s.sizes), dtype, facts)


@rule(3)
def pattern_on_chip(w: BetaWriter):
    """A tile of up to five dimensions read through a pattern, or a view of a view of it."""
    dtype = w.pick(FLOAT32, FLOAT32, BFLOAT16, INT32, UINT8)
    name, facts = w.array(dtype, "small")
    shape = (w.P, *w.pick(*FREE))
    tile = w.name()
    w.emit(f"{tile} = nl.load({name}[{w.between(0, 40)} + nl.arange({w.P})[:, None], {w.between(0, 90)} + "
           f"nl.arange({prod(shape[1:])})[None, :]]).reshape({shape})")
    w.note("pattern on chip")
    for _ in range(w.between(0, 2)):
        tile, shape = viewed(w, tile, shape)
    s = drawn(w, shape, w.between(2, 5), on_chip=True)
    w.let(f"nl.copy({tile}[{s}]{mask_over(w, tuple(s.sizes))})", tuple(s.sizes), dtype, facts)


def viewed(w: BetaWriter, tile: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """A subscript of slices, integers and steps; a dimension of one element stays."""
    items, left, view = [], [], w.name("v")
    for d, n in enumerate(shape):
        form = w.pick("all", "part", "step", "ds", "one") if d else w.pick("all", "all", "part")
        if form == "all" or n == 1 or (form == "one" and len(shape) - sum(i.isdigit() for i in items) <= 2):
            items.append(":")
            left.append(n)
            continue
        if d == 0:                                          # from the first partition, or where engines begin
            start, stop = 0, w.between(1, n)
            items.append(f"{start}:{stop}")
            left.append(stop)
            continue
        a = w.between(0, n - 1)
        b = w.between(a + 1, n)
        if form == "one":
            items.append(str(a))
        elif form == "ds":
            items.append(f"nl.ds({a}, {b - a})")
            left.append(b - a)
        else:
            step = w.between(2, 3) if form == "step" else 1
            items.append(f"{a}:{b}" + (f":{step}" if step > 1 else ""))
            left.append(-(-(b - a) // step))
        w.note(f"subscript.{form}")
    if w.maybe(3):
        w.elide(items)
    if len(left) < 2:
        left.append(1)
    w.note("view of a view")
    w.emit(f"{view} = {tile}[{', '.join(items)}]")
    return view, tuple(left)


@rule(2)
def operand_masks(w: BetaWriter):
    """A condition as a subscript masks one operand, and goes with it into its views; what it leaves out is 0 in a fresh tile."""
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16, INT32), lambda t: t.facts.bound < 1e4 and t.space == "sbuf", "small")
    if not a.facts.bound < 1e4:
        return False
    p, f = f"nl.arange({w.P})[:, None]", f"nl.arange({w.F})[None, :]"
    condition = w.pick(f"{f} < {w.between(1, w.F)}", f"{p} >= {w.between(0, w.P - 1)}", f"{p} + {f} <= {w.between(1, w.P + w.F)}",
                       f"({f} >= {w.between(0, w.F - 1)}) & ({p} < {w.between(1, w.P)})")
    at = w.name("at")
    w.emit(f"{at} = {a.text}")
    view, shape = f"{at}[{p}, {f}][{condition}]", (w.P, w.F)
    w.note("operand mask")
    if w.maybe():
        n = w.between(1, w.F)
        start = w.between(0, w.F - n)
        view, shape = f"{view}[:, {start}:{start + n}]", (w.P, n)
        w.note("view of a masked operand")
    w.let(f"nl.copy({view})", shape, a.dtype, a.facts.join(Facts(0, 1)))


@rule(3)
def written_by_vectors(w: BetaWriter):
    """Write through a pattern of a tile; the other elements keep their values."""
    dtype = w.pick(FLOAT32, BFLOAT16, INT32)
    shape = (w.P, *w.pick(*FREE))
    base = w.name()
    s = drawn(w, shape, w.between(2, len(shape)), on_chip=True, apart=True)
    a = w.operand(tuple(s.sizes), (dtype,), kind="small")
    w.emit(f"{base} = nl.full({shape}, 3, {kind(dtype)})")
    w.note("pattern written")
    form = w.pick("{at} = {value}", "{at} = nl.maximum({at}, {value})", "{at} = nl.copy({value}{mask})")
    w.emit(form.format(at=f"{base}[{s}]", value=a.text, mask=mask_over(w, tuple(s.sizes))))
    w.keep(Tile(base, shape, dtype, a.facts.join(Facts(3, 1))))


@rule(2)
def stored_by_vectors(w: BetaWriter):
    """``nl.store`` to any affine pattern of an output that is 0 elsewhere."""
    if w.loops or w.conditional or w.grid:
        return False
    dtype = w.pick(FLOAT32, BFLOAT16, INT32)
    shape = w.pick((48, 40), (6, 20, 24), (20, 3, 4, 5))
    s = drawn(w, shape, w.between(2, len(shape)), on_chip=False, apart=True)
    a = w.operand(tuple(s.sizes), (dtype,), kind="small")
    out = w.output(shape, dtype)
    flat = f"{out}.reshape(({shape[0]}, {prod(shape[1:])}))"
    w.emit(f"nl.store({flat}, nl.zeros(({shape[0]}, {prod(shape[1:])}), {kind(dtype)}))")
    w.note("nl.store of vectors")
    w.emit(f"nl.store({out}[{s}], {a.text}{mask_over(w, tuple(s.sizes))})")
    return None


@rule(2)
def stored_in_two_parts(w: BetaWriter):
    """Write with two masked stores, one of them backwards, each without its first elements; together they write all."""
    loops = [loop for loop in w.loops if loop.symbolic]
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16, INT32))
    axes = [axis for axis, n in enumerate(a.shape) if n > 1]
    if not axes or w.conditional or any(loop.count == 0 for loop in loops):
        return False
    axis = w.pick(*axes)
    n, vectors = a.shape[axis], vectors_of(w, list(a.shape))
    k, along = w.between(1, n - 1), vectors[axis]
    backwards = [f"{n - 1} - {v}" if v is along else v for v in vectors]
    out = w.output((*(loop.count for loop in loops), *a.shape), a.dtype)
    w.note("nl.store in two parts")
    for places, first in ((vectors, k), (backwards, n - k)):
        subscript = ", ".join([*(loop.name for loop in loops), *places])
        w.emit(f"nl.store({out}[{subscript}], {a.text}, mask={along} >= {first})")
    return None

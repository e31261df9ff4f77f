# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views of every form: chains of view methods and subscripts, access patterns with any strides, as source and destination."""

from dataclasses import dataclass
from math import prod

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, INT32, UINT8

from ..beta import kind
from ..current import CurrentWriter, rule
from ..writer import Facts, Tile

FREE = ((24,), (4, 6), (2, 3, 4), (2, 2, 3, 4))


@dataclass(frozen=True)
class Shape:
    """Sizes and steps of a view in elements; dimension 0 is the partition's."""

    sizes: tuple[int, ...]
    steps: tuple[int, ...]

    @staticmethod
    def of(sizes: tuple[int, ...]) -> "Shape":
        return Shape(sizes, tuple(prod(sizes[k + 1:]) for k in range(len(sizes))))

    def with_dim(self, d: int, sizes: tuple[int, ...], steps: tuple[int, ...]) -> "Shape":
        return Shape((*self.sizes[:d], *sizes, *self.sizes[d + 1:]), (*self.steps[:d], *steps, *self.steps[d + 1:]))

    @property
    def rank(self) -> int:
        return len(self.sizes)


def step_of_chain(w: CurrentWriter, v: Shape, writes: bool) -> tuple[str, Shape] | None:
    """Return the text of one more view of a view on chip and its pattern; None where the method does not apply."""
    d = w.between(1, v.rank - 1)
    form = w.pick("slice", "subscript", "subscript", "subscript", "select", "permute", "split", "flatten", "expand",
                  "squeeze", "broadcast", "rearrange")
    step = viewed(w, form, v, d, writes)
    if step is not None:
        w.note(f"view.{form}")
    return step


def viewed(w: CurrentWriter, form: str, v: Shape, d: int, writes: bool) -> tuple[str, Shape] | None:
    """Return the pattern along dimension ``d``."""
    n, t = v.sizes[d], v.steps[d]
    match form:
        case "slice" if n > 1:
            a = w.between(0, n - 2)
            b, step = w.between(a + 1, n), w.pick(1, 1, 2, 3)
            return f".slice({d}, {a}, {b}, {step})", v.with_dim(d, (-(-(b - a) // step),), (t * step,))
        case "subscript":
            return subscript(w, v)
        case "select" if v.rank > 2:
            return f".select({d}, {w.between(0, n - 1)})", v.with_dim(d, (), ())
        case "permute" if v.rank > 2:
            order = [*range(1, v.rank)]
            for k in range(len(order) - 1, 0, -1):
                j = w.between(0, k)
                order[k], order[j] = order[j], order[k]
            order = [0, *order]
            return f".permute({tuple(order)})", Shape(tuple(v.sizes[k] for k in order), tuple(v.steps[k] for k in order))
        case "split" if v.rank < 5:
            inner = w.pick(*(k for k in range(1, n + 1) if n % k == 0))
            unknown = (-1, inner) if w.maybe(3) else (n // inner, inner)
            return f".reshape_dim({d}, {unknown})", v.with_dim(d, (n // inner, inner), (t * inner, t))
        case "flatten" if v.rank > 2 and d < v.rank - 1 and t == v.sizes[d + 1] * v.steps[d + 1]:
            merged = v.with_dim(d + 1, (), ()).with_dim(d, (n * v.sizes[d + 1],), (v.steps[d + 1],))
            return f".flatten_dims({d}, {d + 1})", merged
        case "expand" if v.rank < 5:
            return f".expand_dim({d})", v.with_dim(d, (1, n), (n * t, t))
        case "squeeze" if n == 1 and v.rank > 2:
            return f".squeeze_dim({d})", v.with_dim(d, (), ())
        case "broadcast" if n == 1 and not writes:
            k = w.between(2, 3)
            return f".broadcast({d}, {k})", v.with_dim(d, (k,), (0,))
        case "rearrange" if v.rank == 3:
            return ".rearrange(('p', 'a', 'b'), ('p', 'b', 'a'))", Shape(
                (v.sizes[0], v.sizes[2], v.sizes[1]), (v.steps[0], v.steps[2], v.steps[1]))
    return None


def subscript(w: CurrentWriter, v: Shape) -> tuple[str, Shape]:
    """Integers, slices with steps, ``nl.ds``, an ellipsis, fewer items than dimensions."""
    items, shape = [":"], Shape(v.sizes[:1], v.steps[:1])
    for n, t in zip(v.sizes[1:], v.steps[1:]):
        a = w.between(0, n - 1)
        b = w.between(a + 1, n)
        form = w.pick("all", "part", "step", "ds", "one", "negative")
        w.note(f"subscript.{form}")
        if form in ("one", "negative") and v.rank - items.count(":") > 1:
            items.append(str(a if form == "one" else a - n))
            continue
        step = w.between(2, 3) if form == "step" else 1
        items.append({"all": ":", "part": f"{a}:{b}", "step": f"{a}:{b}:{step}", "ds": f"nl.ds({a}, {b - a})"}.get(form, ":"))
        size = n if items[-1] == ":" else -(-(b - a) // step)
        shape = Shape((*shape.sizes, size), (*shape.steps, t * step))
    if items[-1] == ":" and w.maybe(6):
        while len(items) > 1 and items[-1] == ":":
            items.pop()
    elif w.maybe():
        w.elide(items)
    if shape.rank == 1:
        shape = Shape((*shape.sizes, 1), (*shape.steps, 1))
    return f"[{', '.join(items)}]", shape


def chained(w: CurrentWriter, base: str, sizes: tuple[int, ...], writes: bool = False) -> tuple[str, Shape]:
    """Up to four views on each other."""
    text, view = base, Shape.of(sizes)
    for _ in range(w.between(1, 4)):
        step = step_of_chain(w, view, writes)
        if step is not None and prod(step[1].sizes[1:]) <= 96:
            text, view = text + step[0], step[1]
    return text, view


def source(w: CurrentWriter) -> tuple[str, tuple[int, ...], object, Facts]:
    """Return a tile that is not a view, with up to five dimensions."""
    dtype = w.pick(FLOAT32, FLOAT32, BFLOAT16, INT32, UINT8)
    name, facts = w.array(dtype, "small")
    sizes = (w.P, *w.pick(*FREE))
    columns = prod(sizes[1:])
    tile = w.name()
    w.emit(f"{tile} = nl.ndarray({sizes}, {kind(dtype)})")
    w.emit(f"nisa.dma_copy({tile}, {name}[nl.ds({w.between(0, 60)}, {w.P}), {w.between(0, 90)}:][:, 0:{columns}]"
           f".reshape_dim(1, {sizes[1:]}))" if len(sizes) > 2 else
           f"nisa.dma_copy({tile}, {name}[nl.ds({w.between(0, 60)}, {w.P}), nl.ds({w.between(0, 90)}, {columns})])")
    return tile, sizes, dtype, facts


@rule(3)
def chain_read(w: CurrentWriter):
    tile, sizes, dtype, facts = source(w)
    text, view = chained(w, tile, sizes)
    w.into(f"nisa.tensor_copy(DST, {text})", view.sizes, dtype, facts)


@rule(2)
def chain_written(w: CurrentWriter):
    """Write through a chain of views that selects each element once."""
    dtype = w.pick(FLOAT32, BFLOAT16, INT32)
    sizes = (w.P, *w.pick(*FREE))
    base = w.full(3, sizes, dtype)
    text, view = chained(w, base, sizes, writes=True)
    a = w.operand(view.sizes, (dtype,), kind="small")
    w.note("chain written")
    w.emit(f"nisa.tensor_copy({text}, {a.text})")
    w.keep(Tile(base, sizes, dtype, a.facts.join(Facts(3, 1))))


@rule(3)
def pattern_on_chip(w: CurrentWriter):
    """``ap`` with any steps, of a tile or of a view of it, whose start it keeps or moves."""
    tile, sizes, dtype, facts = source(w)
    row = prod(sizes[1:])
    P, start, base = w.P, 0, tile
    if w.maybe(3) and len(sizes) > 2 and sizes[1] > 1:
        start = w.between(0, sizes[1] - 1)
        base = f"{tile}[:, {start}:]"
        start *= prod(sizes[2:])
        w.note("ap of a view")
    rows = w.between(1, P)
    pattern, room = [[row, rows]], row - 1 - start
    for _ in range(w.between(1, 4)):
        step = w.pick(0, 1, 1, 2, 3, 6)
        n = w.between(1, 3) if step == 0 else w.between(1, min(8, room // step + 1))
        pattern.append([step, n])
        room -= step * (n - 1)
    shift = w.between(0, room)
    offset = w.pick("", f", offset={shift}") if shift == 0 or start else f", offset={shift}"
    w.note(f"ap of rank {len(pattern)}", *(f"ap.step {min(s, 2)}" for s, _ in pattern[1:]))
    w.into(f"nisa.tensor_copy(DST, {base}.ap({pattern}{offset}))", tuple(n for _, n in pattern), dtype, facts)


@rule()
def element_of_the_run_time(w: CurrentWriter):
    """Select an element of a free dimension by a register."""
    tile, sizes, dtype, facts = source(w)
    d = w.between(1, len(sizes) - 1)
    at = w.register(w.between(0, sizes[d] - 1))
    left = tuple(n for k, n in enumerate(sizes) if k != d)
    w.note("view.select at run time")
    w.into(f"nisa.tensor_copy(DST, {tile}.select({d}, {at}))", left if len(left) > 1 else (*left, 1), dtype, facts)


@rule()
def bytes_of_a_part(w: CurrentWriter):
    """Read a part that does not begin at the first column as another dtype."""
    tile, sizes, dtype, _ = source(w)
    if dtype is UINT8 or sizes[-1] < 2:
        return False
    start = w.between(1, sizes[-1] - 1)
    part = f"{tile}[{', '.join([':'] * (len(sizes) - 1))}, {start}:]"
    w.note("view of bytes of a part")
    return w.into(f"nisa.tensor_copy(DST, {part}.view(nl.uint8))",
                  (*sizes[:-1], (sizes[-1] - start) * dtype.itemsize), UINT8, Facts(255, 1))


@rule(2)
def pattern_in_hbm(w: CurrentWriter):
    """Use any steps in HBM, with or without a scalar offset along a dimension."""
    dtype = w.pick(FLOAT32, BFLOAT16, INT32, UINT8)
    name, facts = w.array(dtype, "small")
    shape = w.pick((192, 192), (8, 24, 192), (4, 6, 8, 192), (3, 4, 2, 8, 192))
    base = name if len(shape) == 2 else f"{name}.reshape({shape})"
    room, pattern = prod(shape) - 1, []
    scalar = ""
    if w.maybe():
        dim = w.between(0, len(shape) - 1)
        at = w.between(0, shape[dim] - 1)
        room -= at * prod(shape[dim + 1:])
        scalar = f", scalar_offset={w.register(at)}, indirect_dim={dim}"
        w.note(f"ap.indirect_dim {dim}")
    for k in range(w.between(2, 5)):
        step = w.pick(0, 1, 2, 5, 24, 192, 192 * 3)
        most = 3 if step == 0 else min(w.P if k == 0 else 6, room // step + 1)
        n = w.between(1, most)
        pattern.append([step, n])
        room -= step * (n - 1)
    w.note("ap in HBM")
    w.into(f"nisa.dma_copy(DST, {base}.ap({pattern}, offset={w.between(0, room)}{scalar}))",
           tuple(n for _, n in pattern), dtype, facts)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads structured operations into nests: the one place where ``linalg.generic`` and ``linalg.fill`` are taken apart.

What only depends on types and attributes is looked at once, operations of equal structure are read once.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Attribute, Operation, Type, Value, ir, operations_of
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Linear, Mask
from nki_mlir.dialects.attributes import MalformedAttribute, memoized, read_linear, read_mask
from nki_mlir.dialects.buffer_types import memref_parts
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.scalar.dtypes import BY_MLIR, DType
from nki_mlir.waist.nest import Nest, Operand, Step

DYNAMIC = ir.ShapedType.get_dynamic_stride_or_offset()
SYMBOLS, STEPS = 1 << 20, 1 << 30           # provisional numbers of values; old values of outputs are below 0

Subscripts = Sequence[Linear]               # of one operand: a form of the axes for each of its dims


@dataclass(frozen=True)
class Structured:
    """An operation as a nest over its own axes, and the SSA values it works on."""

    nest: Nest
    values: tuple[Value, ...]             # of the inputs, then of the outputs: memrefs, or numbers that no axis moves
    subscripts: tuple[Subscripts, ...]  # of each
    starts: tuple[int, ...]             # elements from where a memref starts to where the nest does
    symbols: tuple[Value, ...]            # index values
    limits: Mask


class MemrefLayout(NamedTuple):
    dtype: DType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@memoized
def layout_of(kind: Type) -> MemrefLayout:
    """A memref type, whose sizes and strides must be static."""
    sizes, dtype, _ = memref_parts(kind)
    strides, offset = ir.MemRefType(kind).get_strides_and_offset()
    if DYNAMIC in strides:
        raise Unsupported(feature=f"the strides of {kind}", instead="give the view static strides")
    return MemrefLayout(dtype, sizes, tuple(strides), offset)


@memoized
def scalar_dtype(kind: Type) -> DType | None:
    """A scalar type; None for an index."""
    text = str(kind)
    if text != "index" and text not in BY_MLIR:
        raise Unsupported(feature=f"a scalar of type {text}", instead="use an element type of the language")
    return BY_MLIR.get(text)


@memoized
def subscripts_of(maps: ir.ArrayAttr) -> list[list[Linear]]:
    """What each operand of a structured operation is subscripted by."""
    return [[_linear(e, "the subscript", "use linear subscripts") for e in m.value.results] for m in maps]


@memoized
def iterators_of(kinds: Attribute) -> tuple[int, frozenset[int]]:
    """How many axes there are, and which are reduced. Read as text: an element's class would cost an import."""
    names = [part for part in str(kinds).split(",") if "<" in part]
    return len(names), frozenset(k for k, name in enumerate(names) if "reduction" in name)


mask_of = memoized(read_mask)


def loops_of(op: Operation) -> tuple[Sequence[Subscripts], int, frozenset[int]]:
    """What each operand is subscripted by, how many axes there are, and which are reduced."""
    if op.name != "linalg.fill":
        return subscripts_of(op.attributes["indexing_maps"]), *iterators_of(op.attributes["iterator_types"])
    rank = len(layout_of(op.operands[1].type).sizes)
    return [[], _identity(range(rank))], rank, frozenset()


def _linear(e: ir.AffineExpr, what: str, instead: str) -> Linear:
    try:
        return read_linear(e)
    except MalformedAttribute:
        raise Unsupported(feature=f"{what} {e}", instead=instead) from None


def step_of(op: Operation, operands: tuple[int, ...]) -> Step:
    """A scalar operation as a step on the values of these numbers."""
    dtype = scalar_dtype(op.results[0].type)
    match op.name:
        case "scalar.convert" | "scalar.wrap" | "scalar.bitcast":
            return Step(op.name.removeprefix("scalar."), dtype, operands)
        case "scalar.alu" | "scalar.activation" | "scalar.math":
            return Step(op.name.removeprefix("scalar."), dtype, operands, op.attributes["fn"].value)
        case "arith.constant":
            number = op.attributes["value"].value
            if dtype is None:
                return Step("form", None, (), "", Linear(number))
            return Step("constant", dtype, (), "", repr(number) if isinstance(number, float) else int(number))
        case "linalg.index":
            return Step("index", None, (), "", op.attributes["dim"].value)
        case "affine.apply":
            mapping = op.attributes["map"].value
            form = _linear(mapping.results[0], "the index", "use a linear map")
            places = [(d, c) for d, c in form.axes] + [(mapping.n_dims + s, c) for s, c in form.symbols]
            return Step("form", None, operands, "", Linear(form.const, (), tuple(sorted(places))))
        case "arith.addi" | "arith.subi" if dtype is None:
            return Step("form", None, operands, "", Linear(0, (), ((0, 1), (1, 1 if op.name == "arith.addi" else -1))))
        case "arith.index_cast" if dtype is not None and isinstance(op.operands[0].type, ir.IndexType):
            return Step("cast", dtype, operands)
    raise Unsupported(feature=f"'{op.name}' in a scalar expression",
                      instead="use operations of the scalar dialect").located(location_of(op))


class Reader:
    """Reads operations."""

    def __init__(self) -> None:
        self.known: dict[Hashable, Structured] = {}         # by ``structure_key``

    def read(self, op: Operation, inner: Sequence[Operation] | None = None) -> Structured:
        """The operation's computation; ``op`` is a ``linalg.generic`` or a ``linalg.fill``.

        ``inner`` are the operations of its body, where they are known.
        """
        if op.name == "linalg.fill":
            return self._fill(op)
        operands = list(op.operands)
        key = structure_key(op, operands, operations_of(op, lambda name: True)[1:] if inner is None else inner)
        if key is None:
            return self._generic(op, operands)
        known = self.known.get(key)
        if known is None:
            known = self.known[key] = self._generic(op, operands)
        return Structured(known.nest, tuple(operands), known.subscripts, known.starts, (), known.limits)

    def copy(self, op: Operation) -> Structured:
        """A ``memref.copy``."""
        source, target = op.operands
        extents = layout_of(target.type).sizes
        return _structured(extents, frozenset(), _BodyReader(1, (), [0]), [source], [target], [
            _identity(extents)] * 2)

    def _fill(self, op: Operation) -> Structured:
        value, target = op.operands
        extents = layout_of(target.type).sizes
        body = _BodyReader(0, ())
        body.yielded = [body.value(value)]
        return _structured(extents, frozenset(), body, [], [target], [_identity(extents)])

    def _generic(self, op: Operation, operands: list[Value]) -> Structured:
        attributes = op.attributes
        subscripts, rank, reduced = loops_of(op)
        count, _ = attributes["operandSegmentSizes"]
        inputs = [k for k in range(count) if isinstance(operands[k].type, ir.MemRefType)]
        symbols = [k for k in range(count) if isinstance(operands[k].type, ir.IndexType)]
        memory = (*inputs, *range(count, len(operands)))
        extents = extents_of(op, [(subscripts[k], layout_of(operands[k].type).sizes) for k in memory], rank)
        arguments = list(op.regions[0].blocks[0].arguments)
        body = _BodyReader(len(inputs), [operands[k] for k in symbols])
        body.values.update((arguments[k], number) for number, k in enumerate(inputs))
        body.values.update((arguments[k], SYMBOLS + number) for number, k in enumerate(symbols))
        for k in range(count):
            if arguments[k] not in body.values:             # a number, whose expression becomes part of the body
                body.values[arguments[k]] = body.value(operands[k])
        body.read(op, arguments[count:])
        mask, limits = (mask_of(attributes[name]) if name in attributes else () for name in ("nki.mask", "nki.limits"))
        return _structured(extents, reduced, body, [operands[k] for k in inputs], operands[count:],
                           [subscripts[k] for k in memory], mask, limits)


def _identity(extents: Sequence[int]) -> Subscripts:
    return [Linear(0, (), ((axis, 1),)) for axis in range(len(extents))]


def _structured(extents: tuple[int, ...], reduced: frozenset[int], body: "_BodyReader", inputs: Sequence[Value],
                outputs: Sequence[Value], subscripts: Sequence[Subscripts], mask: Mask = (), limits: Mask = ()
                ) -> Structured:
    values = (*inputs, *body.numbers, *outputs)
    forms = (*subscripts[:len(inputs)], *[() for _ in body.numbers], *subscripts[len(inputs):])
    operands, starts = zip(*[_operand(v, own, len(extents)) for v, own in zip(values, forms)])
    first = len(values) - len(outputs)
    steps, results = body.finish(len(outputs))
    nest = Nest(extents, reduced, operands[:first], len(body.symbols), operands[first:], steps, results, mask)
    return Structured(nest, values, forms, starts, tuple(body.symbols), limits)


def _operand(value: Value, subscripts: Subscripts, rank: int) -> tuple[Operand, int]:
    """The operand's strides per axis, and how many elements it starts behind its memref."""
    strides, start = [0] * rank, 0
    if not isinstance(value.type, ir.MemRefType):
        dtype = scalar_dtype(value.type)
        assert dtype is not None
        return Operand(dtype, tuple(strides)), 0
    layout = layout_of(value.type)
    for subscript, step in zip(subscripts, layout.strides):
        start += subscript.const * step
        for axis, factor in subscript.axes:
            strides[axis] += factor * step
    return Operand(layout.dtype, tuple(strides)), start


def extents_of(op: Operation, operands: Sequence[tuple[Subscripts, Sequence[int]]], rank: int) -> tuple[int, ...]:
    """The loops' extents, from subscripts and sizes: from the dims that are subscripted by one axis alone."""
    extents: dict[int, int] = {}
    for subscripts, sizes in operands:
        for subscript, size in zip(subscripts, sizes):
            if subscript.const == 0 and len(subscript.axes) == 1 and subscript.axes[0][1] == 1:
                extents.setdefault(subscript.axes[0][0], size)
    if len(extents) != rank:
        raise Unsupported(feature="a loop of linalg.generic whose extent no operand gives",
                          instead="subscript some operand by each loop").located(location_of(op))
    return tuple([extents[axis] for axis in range(rank)])


class _BodyReader:
    """The scalar operations of one body. Values have provisional numbers, so that inputs and symbols can be added."""

    def __init__(self, inputs: int, symbols: Sequence[Value], yielded: Sequence[int] = ()) -> None:
        self.inputs, self.symbols, self.yielded = inputs, list(symbols), list(yielded)
        self.numbers: list[Value] = []        # inputs that are computed in no way that a body can have
        self.values: dict[Value, int] = {}
        self.steps: list[Step] = []

    def read(self, op: Operation, outputs: Sequence[Value]) -> None:
        self.values.update((argument, -1 - k) for k, argument in enumerate(outputs))
        for one in operations_of(op, lambda name: True)[1:]:
            if one.name == "linalg.yield":
                self.yielded = [self.value(v) for v in one.operands]
            else:
                self.values[one.results[0]] = self.add(self.step(one))

    def value(self, value: Value) -> int:
        """A value's number. Constants from outside are computed in the body, too; integers become symbols."""
        known = self.values.get(value)
        if known is not None:
            return known
        op, dtype = defining(value), scalar_dtype(value.type)
        if op is not None and op.name.startswith(("arith.constant", "scalar.")):
            self.values[value] = self.add(self.step(op))
        elif dtype is not None and dtype.is_float:
            self.numbers.append(value)
            self.values[value] = self.inputs + len(self.numbers) - 1
        else:
            self.symbols.append(value)
            symbol = SYMBOLS + len(self.symbols) - 1
            self.values[value] = symbol if dtype is None else self.add(Step("cast", dtype, (symbol,)))
        return self.values[value]

    def step(self, op: Operation) -> Step:
        return step_of(op, tuple([self.value(v) for v in op.operands]))

    def add(self, step: Step) -> int:
        """A step; the number of its value."""
        self.steps.append(step)
        return STEPS + len(self.steps) - 1

    def finish(self, outputs: int) -> tuple[tuple[Step, ...], tuple[int, ...]]:
        """Steps and results with final numbers."""
        symbols = self.inputs + len(self.numbers)
        first = symbols + len(self.symbols)

        def final(number: int) -> int:
            if number < 0:
                return first - 1 - number
            if number >= STEPS:
                return first + outputs + number - STEPS
            return symbols + number - SYMBOLS if number >= SYMBOLS else number
        steps = tuple([Step(s.kind, s.dtype, tuple([final(v) for v in s.operands]), s.name, s.number)
                       for s in self.steps])
        return steps, tuple([final(v) for v in self.yielded])


def structure_key(op: Operation, operands: Sequence[Value], inner: Sequence[Operation]) -> Hashable | None:
    """Equal for operations that compute the same on other views: of equal attributes, operand types and bodies.

    None where numbers count among the operands, or the body uses what is outside of it: what those are is not part of a
    type.
    """
    types = [value.type for value in operands]
    if not all([isinstance(kind, ir.MemRefType) for kind in types]):
        return None
    place: dict[Value, int] = {argument: k for k, argument in enumerate(op.regions[0].blocks[0].arguments)}
    body: list[object] = []

    for one in inner:
        body.append((one.name, *one.attributes.items(), *[place.get(value) for value in one.operands]))
        for result in one.results:
            place[result] = len(place)
            body.append(result.type)
    if any([None in step for step in body if type(step) is tuple]):
        return None
    return (*types, *op.attributes.items(), *body)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads ``linalg.generic`` and ``linalg.fill`` of the waist into nests."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Linear, Mask
from nki_mlir.dialects.attributes import MalformedAttribute, read_linear, read_mask
from nki_mlir.dialects.places import place_of
from nki_mlir.scalar.dtypes import BY_MLIR, DType
from nki_mlir.targets.cpu.nests import Nest, Operand, Step, simplified
from nki_mlir.targets.cpu.upstream import NAMES, read_upstream
from nki_mlir.waist.structure_key import structure_key

DYNAMIC = ir.ShapedType.get_dynamic_stride_or_offset()


@dataclass(frozen=True)
class Structured:
    """An operation as a nest and the SSA values it works on: views, then the symbols, in the nest's order."""

    nest: Nest
    views: tuple[tuple[Any, int], ...]  # of the inputs, then of the outputs, each with an offset in bytes
    symbols: tuple[Any, ...]
    limits: Mask                        # over the operation's own axes
    mask: Mask                          # as above, before the nest was simplified
    extents: tuple[int, ...]


class Reader:
    """Reads operations. What only depends on types and attributes is looked at once."""

    def __init__(self) -> None:
        self.layouts: dict[Any, tuple[DType, tuple[int, ...], tuple[int, ...]]] = {}
        self.maps: dict[Any, tuple[tuple[Linear, ...], ...]] = {}
        self.kinds: dict[Any, tuple[int, frozenset[int]]] = {}
        self.masks: dict[Any, Mask] = {}
        self.simple: dict[Nest, Nest] = {}
        self.known: dict[Hashable, Structured] = {}         # by ``structure_key``

    def read(self, op: Any) -> Structured:
        """The operation's computation; ``op`` is a ``linalg.generic`` or a ``linalg.fill``."""
        if op.name == "linalg.fill":
            return self._fill(op)
        operands = list(op.operands)
        key = structure_key(op, operands)
        if key is None:
            return self._generic(op)
        if key not in self.known:
            self.known[key] = self._generic(op)
        known = self.known[key]
        return replace(known, views=tuple([(view, start) for view, (_, start) in zip(operands, known.views)]))

    # -- views ---------------------------------------------------------------------------------------------------------
    def layout(self, kind: Any) -> tuple[DType, tuple[int, ...], tuple[int, ...]]:
        """Element type, extents and strides of a memref type."""
        if kind not in self.layouts:
            memref = ir.MemRefType(kind)
            strides, _ = memref.get_strides_and_offset()
            dtype = _dtype(memref.element_type)
            if dtype is None or not memref.has_static_shape or DYNAMIC in strides:
                raise Unsupported(feature=f"{kind} on the CPU", instead="use static shapes and strides")
            self.layouts[kind] = dtype, tuple(memref.shape), tuple(strides)
        return self.layouts[kind]

    def _operand(self, value: Any, subscripts: Sequence[Linear], rank: int) -> tuple[Operand, int]:
        """The operand's strides per axis, and the bytes from the view's start to the first element it names."""
        dtype, _, steps = self.layout(value.type)
        strides, start = [0] * rank, 0
        for subscript, step in zip(subscripts, steps):
            start += subscript.const * step
            for axis, factor in subscript.axes:
                strides[axis] += factor * step
        return Operand(dtype, tuple(strides)), start * dtype.itemsize

    # -- operations ----------------------------------------------------------------------------------------------------
    def _fill(self, op: Any) -> Structured:
        value, target = op.operands
        dtype, extents, strides = self.layout(target.type)
        body = _Body(0, (), self)
        body.yielded = [body.value(value)]
        steps, results = body.finish(1)
        nest = Nest(extents, frozenset(), (), 0, (Operand(dtype, strides),), steps, results)
        return Structured(self._simplified(nest), ((target, 0),), (), (), (), extents)

    def _generic(self, op: Any) -> Structured:
        attributes = op.attributes
        operands = list(op.operands)
        subscripts = self._subscripts(attributes["indexing_maps"])
        rank, reduced = self._iterators(attributes["iterator_types"])
        count, _ = attributes["operandSegmentSizes"]
        inputs = [k for k in range(count) if _is_view(operands[k])]
        symbols = [k for k in range(count) if k not in inputs and str(operands[k].type) == "index"]
        outputs = list(range(count, len(operands)))
        extents = self._extents(op, rank, [(subscripts[k], operands[k]) for k in (*inputs, *outputs)])
        block = op.regions[0].blocks[0]
        arguments = list(block.arguments)
        body = _Body(len(inputs), [operands[k] for k in symbols], self)
        for number, k in enumerate((*inputs, *symbols)):
            body.values[arguments[k]] = number
        for k in range(count):
            if arguments[k] not in body.values:             # a scalar, whose expression becomes part of the body
                body.values[arguments[k]] = body.value(operands[k])
        body.read(op, [arguments[k] for k in outputs])
        mask, limits = (self._mask(attributes[name]) if name in attributes else ()
                        for name in ("nki.mask", "nki.limits"))
        steps, results = body.finish(len(outputs))
        made = [self._operand(operands[k], subscripts[k], rank) for k in (*inputs, *outputs)]
        views = tuple((operands[k], start) for k, (_, start) in zip((*inputs, *outputs), made))
        shaped = [operand for operand, _ in made]
        nest = Nest(extents, reduced, tuple(shaped[:len(inputs)]), len(body.symbols), tuple(shaped[len(inputs):]),
                    steps, results, mask)
        return Structured(self._simplified(nest), views, tuple(body.symbols), limits, mask, extents)

    def copy(self, op: Any) -> Structured:
        """A ``memref.copy``."""
        source, target = op.operands
        (dtype, extents, steps), (_, _, strides) = self.layout(source.type), self.layout(target.type)
        nest = Nest(extents, frozenset(), (Operand(dtype, steps),), 0, (Operand(dtype, strides),), (), (0,))
        return Structured(self._simplified(nest), ((source, 0), (target, 0)), (), (), (), extents)

    def _simplified(self, nest: Nest) -> Nest:
        if nest not in self.simple:
            self.simple[nest] = simplified(nest)
        return self.simple[nest]

    def _subscripts(self, maps: Any) -> tuple[tuple[Linear, ...], ...]:
        if maps not in self.maps:
            try:
                self.maps[maps] = tuple(tuple(read_linear(e) for e in m.value.results) for m in maps)
            except MalformedAttribute as error:
                raise Unsupported(feature=f"a map in which {error}", instead="use linear subscripts") from None
        return self.maps[maps]

    def _extents(self, op: Any, rank: int, operands: Sequence[tuple[Sequence[Linear], Any]]) -> tuple[int, ...]:
        """The loops' extents, from the dims that are subscripted by one axis alone."""
        extents: dict[int, int] = {}
        for subscripts, value in operands:
            for subscript, extent in zip(subscripts, self.layout(value.type)[1]):
                if subscript.const == 0 and len(subscript.axes) == 1 and subscript.axes[0][1] == 1:
                    extents.setdefault(subscript.axes[0][0], extent)
        if len(extents) != rank:
            raise Unsupported(feature="a loop of linalg.generic whose extent no operand gives",
                              instead="subscript some operand by each loop").located(place_of(op))
        return tuple(extents[axis] for axis in range(rank))

    def _iterators(self, kinds: Any) -> tuple[int, frozenset[int]]:
        """How many axes there are, and which are reduced. Read as text: an element's class would cost an import."""
        if kinds not in self.kinds:
            names = [part for part in str(kinds).split(",") if "<" in part]
            self.kinds[kinds] = len(names), frozenset(k for k, name in enumerate(names) if "reduction" in name)
        return self.kinds[kinds]

    def _mask(self, attribute: Any) -> Mask:
        if attribute not in self.masks:
            self.masks[attribute] = read_mask(attribute)
        return self.masks[attribute]


class _Body:
    """The scalar operations of one body. Values are numbered provisionally: old values of outputs are below -1."""

    def __init__(self, inputs: int, symbols: Sequence[Any], reader: Reader) -> None:
        self.inputs, self.symbols, self.reader = inputs, list(symbols), reader
        self.values: dict[Any, int] = {}
        self.steps: list[Step] = []
        self.yielded: list[int] = []
        self.base = 1 << 20                 # provisional numbers of steps, so that symbols can still be added

    def read(self, op: Any, outputs: Sequence[Any]) -> None:
        for k, argument in enumerate(outputs):
            self.values[argument] = -1 - k
        inner: list[Any] = []

        def visit(one: Any) -> Any:
            inner.append(one)
            return ir.WalkResult.ADVANCE
        op.walk(visit, ir.WalkOrder.PRE_ORDER)
        for one in inner[1:]:
            if one.name == "linalg.yield":
                self.yielded = [self.value(v) for v in one.operands]
            else:
                self.add(one.results[0], self.step(one))

    def add(self, result: Any, step: Step) -> int:
        self.values[result] = self.later(step)
        return self.values[result]

    def value(self, value: Any) -> int:
        """A value's number. One from outside of the body is computed in it too; an index becomes a symbol."""
        known = self.values.get(value)
        if known is not None:
            return known
        owner = value.owner
        if not isinstance(owner, ir.Block) and (owner.name == "arith.constant" or str(value.type) != "index"):
            return self.add(value, self.step(owner))
        self.symbols.append(value)
        self.values[value] = self.inputs + len(self.symbols) - 1
        return self.values[value]

    def step(self, op: Any) -> Step:
        operands = tuple(self.value(v) for v in op.operands)
        dtype = _dtype(op.results[0].type)
        match op.name:
            case "scalar.convert":
                return Step("convert", dtype, operands)
            case "scalar.alu" | "scalar.activation":
                return Step(op.name.removeprefix("scalar."), dtype, operands, op.attributes["fn"].value)
            case "arith.constant":
                number = op.attributes["value"].value
                if dtype is None:
                    return Step("form", None, (), "", Linear(number))
                if dtype.is_float and dtype.itemsize == 1:          # kept as its byte
                    number = np.array(number).astype(dtype.numpy).view(np.uint8)
                return Step("constant", dtype, (), "", repr(number) if isinstance(number, float) else int(number))
            case "linalg.index":
                return Step("index", None, (), "", op.attributes["dim"].value)
            case "affine.apply":
                mapping = op.attributes["map"].value
                form = read_linear(mapping.results[0])
                places = [(d, c) for d, c in form.axes] + [(mapping.n_dims + s, c) for s, c in form.symbols]
                return Step("form", None, operands, "", Linear(form.const, (), tuple(sorted(places))))
            case "arith.index_cast" if dtype is not None and self.dtype_of(op.operands[0]) is None:
                return Step("cast", dtype, operands)
            case name if name in NAMES:
                return read_upstream(op, list(operands), [self.dtype_of(v) for v in op.operands], dtype, self.later)
        raise Unsupported(feature=f"'{op.name}' in a linalg body on the CPU",
                          instead="use operations of the scalar, arith and math dialects").located(place_of(op))

    def later(self, step: Step) -> int:
        """A step without an SSA value of its own; its number."""
        self.steps.append(step)
        return self.base + len(self.steps) - 1

    @staticmethod
    def dtype_of(value: Any) -> DType | None:
        return _dtype(value.type)

    def finish(self, outputs: int) -> tuple[tuple[Step, ...], tuple[int, ...]]:
        """Steps and results with final numbers."""
        return tuple(self.moved(outputs)), tuple(self.final(v, outputs) for v in self.yielded)

    def moved(self, outputs: int) -> list[Step]:
        return [Step(s.kind, s.dtype, tuple(self.final(v, outputs) for v in s.operands), s.name, s.number)
                for s in self.steps]

    def final(self, number: int, outputs: int) -> int:
        first = self.inputs + len(self.symbols)
        if number < 0:
            return first - 1 - number
        return first + outputs + number - self.base if number >= self.base else number


def _is_view(value: Any) -> bool:
    return isinstance(value.type, ir.MemRefType)


def _dtype(kind: Any) -> DType | None:
    """The element type; None for an index."""
    text = str(kind)
    if text != "index" and text not in BY_MLIR:
        raise Unsupported(feature=f"the scalar type {text} on the CPU", instead="use an element type of the language")
    return BY_MLIR.get(text)

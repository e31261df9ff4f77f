# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the waist's operations: views of tiles, fills, temporaries and ``linalg.generic`` with its body; loops,
branches and index arithmetic.

Operations are created without the bindings' classes, and everything that can be shared (types, layouts, maps) is
created once: a conversion spends its time here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from nki_mlir.bindings import Attribute, Block, Operation, Region, Type, Value, ir
from nki_mlir.dialects import native
from nki_mlir.dialects.access import Linear, Mask, Tile, full_tile
from nki_mlir.dialects.attributes import AccessAttr, Attributes, expression
from nki_mlir.dialects.scalar_body import constant_value
from nki_mlir.dialects.view import view_type
from nki_mlir.scalar.dtypes import INT32, INT64, DType, Encoding
from nki_mlir.waist.function import COMPARISONS
from nki_mlir.waist.nest import Nest, Step
from nki_mlir.waist.reader import INDEX_FUNCTIONS

DYNAMIC = ir.ShapedType.get_dynamic_stride_or_offset()
ARITHMETIC = {function: name for name, function in INDEX_FUNCTIONS.items()}

Create = Callable[..., Operation]           # (name, operands, result types, attributes) -> operation


class ScalarBody:
    """Emits ``scalar.*`` operations through ``create``. Constants are of the dtype ``compute``."""

    def __init__(self, create: Create, make: Attributes, compute: DType,
                 symbols: Mapping[int, Value] | None = None) -> None:
        self.create, self.make, self.compute, self.symbols = create, make, compute, symbols or {}

    def _value(self, name: str, operands: Sequence[Value], kind: Type, attributes: dict[str, Attribute] | None = None
               ) -> Value:
        return self.create(name, operands, [kind], attributes).results[0]

    def constant(self, value: float) -> Value:
        """Emit ``value``, rounded to the compute dtype."""
        dtype, number = self.compute, constant_value(value, self.compute)
        if dtype.kind is not Encoding.UNSIGNED:
            kind = self.make.type(dtype)
            attribute = ir.FloatAttr.get(kind, number) if dtype.is_float else ir.IntegerAttr.get(kind, int(number))
            return self._value("arith.constant", [], kind, {"value": attribute})
        # arith has constants of signless integers only, which here are the signed ones.
        if number >= 1 << 63:
            return self.alu("invert", self.constant((1 << 64) - 1 - int(number)))
        wide = self.make.type(INT64)
        signless = self._value("arith.constant", [], wide, {"value": ir.IntegerAttr.get(wide, int(number))})
        return self.convert(signless, INT64, dtype)

    def alu(self, name: str, *values: Value) -> Value:
        return self._value("scalar.alu", values, values[-1].type, {"fn": self.make.value(name)})

    def activation(self, name: str, value: Value) -> Value:
        return self._value("scalar.activation", [value], value.type, {"fn": self.make.value(name)})

    def convert(self, value: Value, frm: DType, to: DType) -> Value:
        return value if frm is to else self._value("scalar.convert", [value], self.make.type(to))

    def position(self, form: Linear, integer: DType = INT32) -> Value:
        """Emit the value of a form at the current iteration, through an integer dtype, in the compute dtype."""
        axes = [axis for axis, _ in form.axes]
        positions = [position for position, _ in form.symbols]
        index = self.make.index
        operands = [self._value("linalg.index", [], index, {"dim": self.make.value(axis)}) for axis in axes]
        operands += [self.symbols[position] for position in positions]
        dims_form = Linear(form.const, tuple((k, c) for k, (_, c) in enumerate(form.symbols)),
                     tuple((k, c) for k, (_, c) in enumerate(form.axes)))
        mapping = ir.AffineMapAttr.get(ir.AffineMap.get(len(axes), len(positions), [expression(dims_form)]))
        value = self._value("affine.apply", operands, index, {"map": mapping})
        return self.convert(self._value("arith.index_cast", [value], self.make.type(integer)), integer, self.compute)

    def step(self, step: Step, operands: Sequence[Value]) -> Value:
        """Emit a step of a nest's body, whose dtype is the compute dtype."""
        match step.kind:
            case "constant":
                return self.constant(float(step.number) if step.dtype.is_float else step.number)
            case "position":
                return self.position(step.number, step.dtype)
        name = native.LOOKUP if step.kind == "lookup" else f"scalar.{step.kind}"
        attributes = {"fn": self.make.value(step.name)} if step.name else {}
        return self._value(name, operands, self.make.type(step.dtype), attributes)

    def steps(self, nest: Nest, values: Sequence[Value]) -> list[Value]:
        """Emit the steps of a nest on the values of its operands; return those that it yields."""
        values = [*values]
        for step in nest.steps:
            self.compute = step.dtype
            values.append(self.step(step, [values[k] for k in step.operands]))
        return [values[k] for k in nest.results]


Body = Callable[..., Sequence[Value]]     # (scalar builder, input values, output values) -> new output values

T = TypeVar("T")


class OperandView(NamedTuple):
    """A view of a tile, and the iteration axis of each of its dims."""

    value: Value
    dtype: DType
    axes: tuple[int, ...]


class IterationSpace(NamedTuple):
    """An iteration space: the reduced axes, the mask and limits that restrict it, and the symbols that these forms
    number."""

    rank: int
    reduced: frozenset[int] = frozenset()
    mask: Mask = ()
    limits: Mask = ()
    symbols: tuple[Value, ...] = ()

    def used(self, forms: Sequence[Linear]) -> list[int]:
        """Return the positions of the symbols that the restrictions and some forms need."""
        needed = [c.form for c in (*self.mask, *self.limits)] + list(forms)
        return sorted({position for form in needed for position, _ in form.symbols}) if needed else []


class Writer:
    """Writes before one operation at a time (``at``), with the location of that operation.

    Views for ``masked`` operations may reach beyond their buffers.
    """

    def __init__(self) -> None:
        self.make = Attributes()
        self.memo: dict[object, Any] = {}          # layouts, maps, segment sizes
        self.views: dict[object, Value] = {}         # views of the operation that is being converted

    def at(self, operation: Operation, masked: bool = False) -> None:
        self.location, self.insertion_point = operation.location, ir.InsertionPoint(operation)
        self.views, self.masked = {}, masked
        self.emitted: list[ir.Operation] = []            # in place of the operation, bodies not counted
        self.outside = self.insertion_point

    def create(self, name: str, operands: Sequence[Value], results: Sequence[ir.Type] = (),
               attributes: Mapping[str, Attribute] | None = None, regions: int = 0) -> ir.Operation:
        op = ir.Operation.create(name, results, operands, attributes, None, regions, self.location,
                                 self.insertion_point)
        if self.insertion_point is self.outside:
            self.emitted.append(op)
        return op

    def once(self, key: object, make: Callable[[], T]) -> T:
        if (value := self.memo.get(key)) is None:
            value = self.memo[key] = make()
        result: T = value
        return result

    def scalars(self, compute: DType, symbols: Mapping[int, Value] | None = None) -> ScalarBody:
        """Return a builder of scalar expressions at the insertion point."""
        return ScalarBody(self.create, self.make, compute, symbols)

    # -- memory --------------------------------------------------------------------------------------------------------
    def temporary(self, like: Tile, dtype: DType) -> Tile:
        """Allocate a buffer of the tile's shape, in the same memory."""
        return self.buffer(like.shape, dtype, like.space)

    def buffer(self, shape: tuple[int, ...], dtype: DType, space: str, extra: Mapping[str, Attribute] | None = None
               ) -> Tile:
        """Allocate a buffer, and return a tile of all of it."""
        kind = self.make.memref(shape, dtype, space)
        attributes = {"operandSegmentSizes": self._segments(0, 0), **(extra or {})}
        return full_tile(self.create("memref.alloc", [], [kind], attributes).results[0], shape, dtype, space)

    def constant_buffer(self, name: Attribute, kind: Type) -> Value:
        """Return the buffer of constants that the module has by a name."""
        return self.create("memref.get_global", [], [kind], {"name": name}).results[0]

    def reinterpreted(self, source: Value, kind: Type) -> Value:
        """Return a buffer with elements of another dtype."""
        return self.create("nki.reinterpret", [source], [kind]).results[0]

    def view(self, tile: Tile, axes: tuple[int, ...], symbols: Sequence[ir.Value], without: frozenset[int] = frozenset()
             ) -> OperandView:
        """Return the tile as a memref without the dims along the axes in ``without``, which have extent 1."""
        dims = tuple([d for d, axis in enumerate(axes) if axis not in without])
        key = tile.handle, tile.access, dims
        if key not in self.views:
            symbol_positions = sorted(tile.access.symbols_used())
            kind, attributes = self.once(("view", tile.access, tile.row, tile.space, dims, self.masked),
                                         lambda: self._view_parts(tile, symbol_positions, dims))
            self.views[key] = self.create("nki.view", [tile.handle, *(symbols[k] for k in symbol_positions)], [kind],
                                          attributes
                                          ).results[0]
        return OperandView(self.views[key], tile.dtype, tuple([axes[d] for d in dims]))

    def _view_parts(self, tile: Tile, symbol_positions: list[int],
                    dims: tuple[int, ...]) -> tuple[ir.Type, dict[str, ir.Attribute | AccessAttr]]:
        position_of = {position: k for k, position in enumerate(symbol_positions)}
        access = tile.access.over(lambda form: _renumbered(form, position_of))
        attributes = {"access": self.make.access(access, len(symbol_positions))}
        if len(dims) < len(tile.shape):
            attributes["dims"] = ir.DenseI64ArrayAttr.get(dims)
        if self.masked:
            attributes["masked"] = ir.UnitAttr.get()
        return view_type(tile, dims), attributes

    def _segments(self, *sizes: int) -> Attribute:
        return self.once(("segments", sizes), lambda: ir.DenseI32ArrayAttr.get(sizes))

    def window(self, source: Value, start: int | Value, sizes: Sequence[int], strides: Sequence[int]) -> Value:
        """Return the part of a contiguous buffer that begins at an element, with strides in elements."""
        kind = ir.MemRefType(source.type)
        static = start if isinstance(start, int) else DYNAMIC
        result = ir.MemRefType.get(sizes, kind.element_type, ir.StridedLayoutAttr.get(static, strides),
                                   kind.memory_space)
        if result == kind or (static == 0 and list(sizes) == list(kind.shape)
                              and list(strides) == kind.get_strides_and_offset()[0]):
            return source
        attributes = {"operandSegmentSizes": self._segments(1, int(static == DYNAMIC), 0, 0)} | {
            f"static_{name}": ir.DenseI64ArrayAttr.get(list(numbers))
            for name, numbers in (("offsets", [static]), ("sizes", sizes), ("strides", strides))}
        operands = [source] if isinstance(start, int) else [source, start]
        return self.create("memref.reinterpret_cast", operands, [result], attributes).results[0]

    def load(self, source: Value, subscripts: Sequence[Value]) -> Value:
        return self.create("memref.load", [source, *subscripts], [ir.MemRefType(source.type).element_type]).results[0]

    # -- index values --------------------------------------------------------------------------------------------------
    def number(self, value: int, kind: Type | None = None) -> Value:
        """Return a constant: an index, or an integer of another type."""
        kind = kind or self.make.index
        return self.create("arith.constant", [], [kind], {"value": ir.IntegerAttr.get(kind, value)}).results[0]

    def applied(self, expression: ir.AffineExpr, symbols: Sequence[Value]) -> Value:
        mapping = ir.AffineMapAttr.get(ir.AffineMap.get(0, len(symbols), [expression]))
        return self.create("affine.apply", symbols, [self.make.index], {"map": mapping}).results[0]

    def computed(self, function: str, first: Value, second: Value) -> Value:
        """Return the value of an ``IndexOperation`` of two values of one type."""
        if function not in COMPARISONS:
            return self.create(ARITHMETIC[function], [first, second], [first.type]).results[0]
        predicate = ir.IntegerAttr.get(self.make.i64, COMPARISONS.index(function))
        return self.create("arith.cmpi", [first, second], [self.make.i1], {"predicate": predicate}).results[0]

    def as_index(self, value: Value) -> Value:
        """Return an integer as an index. Truth values have no sign."""
        if value.type == self.make.index:
            return value
        name = "arith.index_castui" if value.type == self.make.i1 else "arith.index_cast"
        return self.create(name, [value], [self.make.index]).results[0]

    # -- control -------------------------------------------------------------------------------------------------------
    @contextmanager
    def inside(self, region: Region, *kinds: Type) -> Iterator[Block]:
        """Write into a new block of a region, whose arguments have some types."""
        block = region.blocks.append(*kinds, arg_locs=[self.location] * len(kinds))
        outside, self.insertion_point = self.insertion_point, ir.InsertionPoint(block)
        yield block
        self.insertion_point = outside

    @contextmanager
    def loop(self, low: Value, high: Value, step: Value, marks: Mapping[str, Attribute]) -> Iterator[Value]:
        """Write a loop, and yield its variable."""
        op = self.create("scf.for", [low, high, step], [], marks, 1)
        with self.inside(op.regions[0], self.make.index) as block:
            yield block.arguments[0]
            self.create("scf.yield", [])

    def branch(self, condition: Value, then: Callable[[], None], otherwise: Callable[[], None] | None) -> None:
        op = self.create("scf.if", [condition], [], None, 2)
        for region, write in zip(op.regions, (then, otherwise)):
            if write is not None:
                with self.inside(region):
                    write()
                    self.create("scf.yield", [])

    def while_loop(self, test: Callable[[], Value], body: Callable[[], None]) -> None:
        """Write a loop that ends when the condition that ``test`` writes is false."""
        op = self.create("scf.while", [], [], None, 2)
        with self.inside(op.regions[0]):
            self.create("scf.condition", [test()])
        with self.inside(op.regions[1]):
            body()
            self.create("scf.yield", [])

    # -- computations --------------------------------------------------------------------------------------------------
    def fill(self, target: OperandView, value: float, extra: Mapping[str, Attribute] | None = None) -> None:
        constant = self.scalars(target.dtype).constant(value)
        self._named("linalg.fill", constant, target.value, constant.type, extra)

    def copy(self, source: OperandView, target: OperandView, extra: Mapping[str, Attribute] | None = None) -> None:
        """Copy a tile to one of the same shape and dtype."""
        self._named("linalg.copy", source.value, target.value, self.make.type(target.dtype), extra)

    def _named(self, name: str, source: Value, target: Value, element: Type, extra: Mapping[str, Attribute] | None
               ) -> None:
        attributes = {"operandSegmentSizes": self._segments(1, 1), **(extra or {})}
        op = self.create(name, [source, target], [], attributes, 1)
        with self.inside(op.regions[0], element, element) as block:
            self.create("linalg.yield", [block.arguments[0]])

    def generic(self, nest: IterationSpace, inputs: Sequence[OperandView], outputs: Sequence[OperandView],
                compute: DType, body: Body, forms: Sequence[Linear] = (),
                extra: Mapping[str, Attribute] | None = None) -> None:
        """Write one ``linalg.generic``. Its last inputs are the symbols that the mask, the limits and ``forms`` need.
        """
        symbol_positions = nest.used(forms)
        symbols = [nest.symbols[position] for position in symbol_positions]
        position_of = {position: k for k, position in enumerate(symbol_positions)}
        axes = [o.axes for o in inputs] + [()] * len(symbols) + [o.axes for o in outputs]
        attributes = {"indexing_maps": self._maps(nest.rank, axes), "iterator_types": self._iterators(nest),
                      "operandSegmentSizes": self._segments(len(inputs) + len(symbols), len(outputs)), **(extra or {})}
        for name, mask in (("nki.mask", nest.mask), ("nki.limits", nest.limits)):
            if mask:
                renumbered = tuple([c._replace(form=_renumbered(c.form, position_of)) for c in mask])
                attributes[name] = self.make.mask(renumbered, nest.rank, len(symbols))
        op = self.create("linalg.generic", [*(o.value for o in inputs), *symbols, *(o.value for o in outputs)], [],
                         attributes, 1)
        kinds = [*(self.make.type(o.dtype) for o in inputs), *(self.make.index for _ in symbols),
                 *(self.make.type(o.dtype) for o in outputs)]
        first_symbol, first_output = len(inputs), len(inputs) + len(symbols)
        with self.inside(op.regions[0], *kinds) as block:
            arguments = list(block.arguments)
            scalars = self.scalars(compute, dict(zip(symbol_positions, arguments[first_symbol:first_output])))
            self.create("linalg.yield", body(scalars, arguments[:first_symbol], arguments[first_output:]))

    def _maps(self, rank: int, axes: list[tuple[int, ...]]) -> Attribute:
        def make() -> Attribute:
            dims = [ir.AffineExpr.get_dim(k) for k in range(rank)]
            maps = [ir.AffineMap.get(rank, 0, [dims[a] for a in operand_axes]) for operand_axes in axes]
            return ir.ArrayAttr.get([ir.AffineMapAttr.get(operand_axes) for operand_axes in maps])
        return self.once(("maps", rank, tuple(axes)), make)

    def _iterators(self, nest: IterationSpace) -> Attribute:
        def make() -> Attribute:
            kinds = ["reduction" if axis in nest.reduced else "parallel" for axis in range(nest.rank)]
            # Read the complete attribute: a single iterator type would make the bindings import their linalg package
            # (0.1 s).
            parsed: Attribute = ir.Attribute.parse(f"[{', '.join(f'#linalg.iterator_type<{kind}>' for kind in kinds)}]")
            return parsed
        return self.once(("iterators", nest.rank, nest.reduced), make)


def _renumbered(form: Linear, position_of: dict[int, int]) -> Linear:
    """Return the form over symbols at other positions."""
    return replace(form, symbols=tuple([(position_of[s], c) for s, c in form.symbols]))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the waist's operations: views of tiles, fills, temporaries and ``linalg.generic``.

Operations are created raw and everything that can be shared (types, layouts, maps) is made once: a conversion spends
its time here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nki_mlir.bindings import ir
from nki_mlir.dialects.access import Access, Constraint, Linear, Mask, Tile
from nki_mlir.dialects.attributes import Attributes, expression
from nki_mlir.scalar.dtypes import DType
from nki_mlir.waist.scalar_body import ScalarBody

Body = Callable[..., Sequence[Any]]     # (scalar builder, input values, output values) -> new output values


class OperandView(NamedTuple):
    """A view of a tile, and the iteration axis of each of its dims."""

    value: Any
    dtype: DType
    axes: tuple[int, ...]


@dataclass(frozen=True)
class IterationSpace:
    """An iteration space: the axes that are reduced, what restricts it, and the symbols that count in those forms."""

    rank: int
    reduced: frozenset[int] = frozenset()
    mask: Mask = ()
    limits: Mask = ()
    symbols: tuple = ()

    def used(self, forms: Sequence[Linear]) -> list[int]:
        """The positions of the symbols that the restrictions and some forms need."""
        needed = [c.form for c in (*self.mask, *self.limits)] + list(forms)
        return sorted({position for form in needed for position, _ in form.symbols}) if needed else []


class Writer:
    """Writes before one operation at a time (``at``); the location of that operation is the location of all."""

    def __init__(self) -> None:
        self.make = Attributes()
        self.memo: dict[Any, Any] = {}          # layouts, maps, segment sizes
        self.views: dict[Any, Any] = {}         # of the operation being converted

    def at(self, operation: Any) -> None:
        self.location, self.insertion_point = operation.location, ir.InsertionPoint(operation)
        self.views = {}
        self.emitted: list[Any] = []            # in place of the operation, bodies not counted
        self.outside = self.insertion_point

    def create(self, name: str, operands: Sequence[Any], results: Sequence[Any] = (), attributes: Any = None,
               regions: int = 0) -> Any:
        op = ir.Operation.create(name, results, operands, attributes, None, regions, self.location,
                                 self.insertion_point)
        if self.insertion_point is self.outside:
            self.emitted.append(op)
        return op

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        if (known := self.memo.get(key)) is None:
            known = self.memo[key] = make()
        return known

    def scalars(self, compute: DType, symbols: Mapping[int, Any] | None = None) -> ScalarBody:
        """Scalar expressions at the current place."""
        return ScalarBody(self.create, self.make, compute, symbols)

    # -- memory --------------------------------------------------------------------------------------------------------
    def temporary(self, like: Tile, dtype: DType) -> Tile:
        """A new buffer of the tile's shape, in the same memory."""
        shape = like.shape
        kind = self.make.memref(shape, dtype, like.space)
        buffer = self.create("memref.alloc", [], [kind], {"operandSegmentSizes": self._segments(0, 0)}).results[0]
        dims: list[tuple[int, int]] = []
        step = 1
        for extent in reversed(shape):
            dims.insert(0, (step, extent))
            step *= extent
        start = Linear() if like.on_chip else None
        if like.on_chip:
            dims[0] = (1, shape[0])
        return Tile(buffer, like.space, shape, dtype, Access(dtype, start, Linear(), tuple(dims)))

    def view(self, tile: Tile, axes: tuple[int, ...], symbols: Sequence[Any], without: frozenset[int] = frozenset()
             ) -> OperandView:
        """The tile as a strided memref; dims along the axes in ``without`` (of extent 1) are left out."""
        kept = tuple(axis for axis in axes if axis not in without) if without else axes
        key = tile.handle, tile.access, kept
        if key not in self.views:
            self.views[key] = self._view(tile, axes, kept, symbols)
        return OperandView(self.views[key], tile.dtype, kept)

    def _view(self, tile: Tile, axes: tuple[int, ...], kept: tuple[int, ...], symbols: Sequence[Any]) -> Any:
        base = tile.handle
        if tile.dtype is not tile.base_dtype:
            shape = (tile.base_shape[0], tile.row) if tile.on_chip else (tile.row,)
            base = self.create("nki.reinterpret", [base], [self.make.memref(shape, tile.dtype, tile.space)]).results[0]
        dims = tuple(d for d, axis in enumerate(axes) if axis in kept)
        offset, kind, attributes = self.once(("view", tile.access, tile.row, tile.space, dims),
                                             lambda: self._view_parts(tile, dims))
        starts = [self.apply(offset, symbols)] if is_computed(offset) else []
        return self.create("memref.reinterpret_cast", [base, *starts], [kind], attributes).results[0]

    def _view_parts(self, tile: Tile, dims: tuple[int, ...]) -> tuple[Linear, Any, Any]:
        access = tile.access
        strides = [step for step, _ in access.dims]
        offset = access.free
        if access.partition is not None:
            strides[0] *= tile.row
            offset = offset.plus(access.partition, tile.row)
        sizes, strides = [access.dims[d][1] for d in dims], [strides[d] for d in dims]
        start = ir.ShapedType.get_dynamic_stride_or_offset() if is_computed(offset) else offset.const
        layout = ir.StridedLayoutAttr.get(start, strides)
        kind = ir.MemRefType.get(sizes, self.make.type(tile.dtype), layout, self.make.value(tile.space))
        array = ir.DenseI64ArrayAttr.get
        return offset, kind, {"operandSegmentSizes": self._segments(1, int(is_computed(offset)), 0, 0),
                      "static_offsets": array([start]), "static_sizes": array(sizes), "static_strides": array(strides)}

    def apply(self, form: Linear, symbols: Sequence[Any]) -> Any:
        """The value of a form of symbols, as an index."""
        if form not in self.views:
            own = Linear(form.const, tuple((k, c) for k, (_, c) in enumerate(form.symbols)))
            mapping = self.once(own, lambda: ir.AffineMapAttr.get(
                ir.AffineMap.get(0, len(own.symbols), [expression(own)])))
            self.views[form] = self.create("affine.apply", [symbols[position] for position, _ in form.symbols],
                                           [self.make.index], {"map": mapping}).results[0]
        return self.views[form]

    def _segments(self, *sizes: int) -> Any:
        return self.once(("segments", sizes), lambda: ir.DenseI32ArrayAttr.get(sizes))

    # -- computations --------------------------------------------------------------------------------------------------
    def fill(self, target: OperandView, value: float) -> None:
        constant = self.scalars(target.dtype).constant(value)
        op = self.create("linalg.fill", [constant, target.value], [], {"operandSegmentSizes": self._segments(1, 1)}, 1)
        block = op.regions[0].blocks.append(constant.type, constant.type, arg_locs=[self.location] * 2)
        ir.Operation.create("linalg.yield", operands=[block.arguments[0]], loc=self.location,
                            ip=ir.InsertionPoint(block))

    def generic(self, nest: IterationSpace, inputs: Sequence[OperandView], outputs: Sequence[OperandView],
                compute: DType, body: Body, forms: Sequence[Linear] = (), extra: dict[str, Any] | None = None) -> None:
        """One ``linalg.generic``. Its last inputs are the symbols that the mask, the limits and ``forms`` need."""
        used = nest.used(forms)
        symbols = [nest.symbols[position] for position in used]
        place = {position: k for k, position in enumerate(used)}
        axes = [o.axes for o in inputs] + [()] * len(symbols) + [o.axes for o in outputs]
        attributes = {"indexing_maps": self._maps(nest.rank, axes), "iterator_types": self._iterators(nest),
                      "operandSegmentSizes": self._segments(len(inputs) + len(symbols), len(outputs)), **(extra or {})}
        for name, mask in (("nki.mask", nest.mask), ("nki.limits", nest.limits)):
            if mask:
                attributes[name] = self.make.mask(_renumbered(mask, place), nest.rank, len(symbols))
        op = self.create("linalg.generic", [*(o.value for o in inputs), *symbols, *(o.value for o in outputs)], [],
                         attributes, 1)
        kinds = [*(self.make.type(o.dtype) for o in inputs), *(self.make.index for _ in symbols),
                 *(self.make.type(o.dtype) for o in outputs)]
        block = op.regions[0].blocks.append(*kinds, arg_locs=[self.location] * len(kinds))
        arguments = list(block.arguments)
        first, last = len(inputs), len(inputs) + len(symbols)
        outside, self.insertion_point = self.insertion_point, ir.InsertionPoint(block)
        scalars = self.scalars(compute, dict(zip(used, arguments[first:last])))
        self.create("linalg.yield", body(scalars, arguments[:first], arguments[last:]))
        self.insertion_point = outside

    def _maps(self, rank: int, axes: list[tuple[int, ...]]) -> Any:
        def make() -> Any:
            dims = [ir.AffineExpr.get_dim(k) for k in range(rank)]
            maps = [ir.AffineMap.get(rank, 0, [dims[a] for a in one]) for one in axes]
            return ir.ArrayAttr.get([ir.AffineMapAttr.get(one) for one in maps])
        return self.once(("maps", rank, tuple(axes)), make)

    def _iterators(self, nest: IterationSpace) -> Any:
        def make() -> Any:
            kinds = ["reduction" if axis in nest.reduced else "parallel" for axis in range(nest.rank)]
            # Read as a whole: an iterator type by itself would make the bindings import their linalg package (0.1 s).
            return ir.Attribute.parse(f"[{', '.join(f'#linalg.iterator_type<{kind}>' for kind in kinds)}]")
        return self.once(("iterators", nest.rank, nest.reduced), make)


def _renumbered(mask: Mask, place: dict[int, int]) -> Mask:
    return tuple(Constraint(Linear(c.form.const, tuple((place[s], k) for s, k in c.form.symbols), c.form.axes), c.equal)
                 for c in mask)


def is_computed(offset: Linear) -> bool:
    """Whether a view's offset is a value. MLIR takes no negative constants, as of views that a mask cuts."""
    return bool(offset.symbols) or offset.const < 0

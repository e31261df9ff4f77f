# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites ``stablehlo.scatter`` as comparisons, and gathers of parts of rows as gathers of complete rows.

Engines compute these without loops over elements.

before:  %r = stablehlo.scatter(%x, %indices, %updates) { add }          (rows of %x that %indices name)
after:   %hits = %indices == iota                                        (for each update and each row)
         %parts = select(%hits, %updates, -0.0)
         %r = select(any of %hits, %x + (sum of %parts over the updates), %x)

An index outside of the result equals no position, so its update is skipped. Where updates replace elements, the last
update of an element counts, as in the loops of the CPU (``sort_and_scatter.py``): its number is the greatest one that
hits, and a gather reads it.

before:  %r = stablehlo.gather(%x, %indices)                             (an element of each row of %x : 8x16)
after:   %rows = 16 * iota + clamp(%indices)
         %r = stablehlo.gather(%x as 128 rows, %rows)
"""

from collections.abc import Sequence
from math import prod

from nki_mlir.bindings import Module, Operation, ir, load, operations_of
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.graph.upstream import define, exchange_for_call

COMBINED = ("add", "multiply", "minimum", "maximum", "and", "or")
MANY = 8                            # least numbers of updates, and of elements of each, that the tensor engine adds
REPLACE = "replace"                 # the update, whatever the old value is
INFINITY = {"f32": "0x7F800000", "bf16": "0x7F80", "f16": "0x7C00"}
NEGATIVE_INFINITY = {"f32": "0xFF800000", "bf16": "0xFF80", "f16": "0xFC00"}


def rewrite_indexed(module: Module) -> None:
    """Rewrite all scatters, and the gathers that do not read complete rows. Raise ``Unsupported`` for one that no
    comparison describes."""
    for number, op in enumerate(operations_of(module, lambda name: name in ("stablehlo.scatter", "stablehlo.gather"))):
        if op.name == "stablehlo.gather" and reads_rows(op):
            continue
        name = f"compared.{number}"
        indexed = ScatterFunction(op) if op.name == "stablehlo.scatter" else GatherFunction(op)
        define(module, indexed.function(name), op)
        exchange_for_call(op, name)


def reads_rows(op: Operation) -> bool:
    """Return whether a gather reads complete rows, one for each index: the DMA engines gather them."""
    numbers = load("_mlir_libs._stablehlo").GatherDimensionNumbers(op.attributes["dimension_numbers"])
    table, sizes = ir.RankedTensorType(op.operands[0].type), list(op.attributes["slice_sizes"])
    return (list(numbers.start_index_map) == list(numbers.collapsed_slice_dims) == [0]
            and not list(numbers.operand_batching_dims) and sizes[1:] == list(table.shape)[1:])


def combination(op: Operation) -> str:
    """Return how a scatter combines an old value and an update; empty if it is none of the operations of ``COMBINED``,
    the old value minus the update, and the update itself."""
    block = op.regions[0].blocks[0]
    first, *following = [inner.operation for inner in block.operations]
    old, update = block.arguments
    if not following:
        return REPLACE if first.operands[0] == update else ""
    name = first.name.removeprefix("stablehlo.")
    is_one = len(following) == 1 and following[0].operands[0] == first.results[0] and {*first.operands} == {old, update}
    in_order = name == "subtract" and first.operands[0] == old
    return name if is_one and (name in COMBINED or in_order) else ""


def tensor(shape: Sequence[int], element: str) -> str:
    return f"tensor<{'x'.join([*map(str, shape), element])}>"


class IndexedFunction:
    """The text of a function that compares the indices of an operation with the positions of the indexed tensor.

    ``shape`` is that of the indexed tensor. ``extents`` are those of its axes, then those of the axes of indices that
    go along none of them, then those of windows that are smaller than their axes (``loops``). ``windows`` are axes that
    have all elements for each index, ``indexed`` all others. ``spans`` has the loop of each smaller window, by its
    axis.
    """

    KIND = ""

    def __init__(self, op: Operation, scattered: Sequence[int], batch: dict[int, int], sizes: dict[int, int],
                 vector: int) -> None:
        """``scattered``: the axis that each number of an index counts; ``batch``: the axis of the target for each
        batch dim of the indices; ``sizes``: the extents of windows by axis; ``vector``: the dim of the indices along
        which the numbers of one index lie."""
        self.op, self.scattered, self.vector, self.sizes = op, scattered, vector, sizes
        self.lines: list[str] = []
        target, indices = (ir.RankedTensorType(v.type) for v in list(op.operands)[:2])
        if not all(ir.RankedTensorType(v.type).has_static_shape for v in op.operands):
            raise self.refused("of dynamic shape")
        self.shape, self.element = list(target.shape), str(target.element_type)
        self.kinds = [str(v.type) for v in op.operands]
        smaller = [d for d, size in sizes.items() if size != target.shape[d]]
        self.windows = [d for d in sizes if d not in smaller]
        self.index_shape, self.index_element = list(indices.shape), str(indices.element_type)
        dims = [d for d in range(indices.rank) if d != vector]
        unbatched = [d for d in dims if d not in batch]
        axes = batch | {d: target.rank + k for k, d in enumerate(unbatched)}
        self.spans = {d: target.rank + len(unbatched) + k for k, d in enumerate(smaller)}
        self.extents = [*self.shape, *(indices.shape[d] for d in unbatched), *(sizes[d] for d in smaller)]
        self.index_axes = [axes[d] for d in dims]
        self.all_axes, self.target_axes = list(range(len(self.extents))), list(range(len(self.shape)))
        self.at_zero = [d for d in self.target_axes if d not in (*scattered, *batch.values(), *sizes)]
        self.loops = self.all_axes[len(self.shape):]
        self.indexed = [a for a in self.all_axes if a not in self.windows]

    def refused(self, form: str) -> Unsupported:
        error = Unsupported(feature=f"a {self.KIND} {form}, as engine instructions",
                            instead="run this program with jax.jit, or on the CPU")
        error.located(location_of(self.op))
        return error

    # -- lines ---------------------------------------------------------------------------------------------------------
    def add(self, text: str) -> str:
        """Add an operation; return the name of its result."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = stablehlo.{text}")
        return name

    def over(self, axes: Sequence[int], element: str) -> str:
        """Return the type of a tensor over some axes."""
        return tensor([self.extents[a] for a in axes], element)

    def constant(self, value: str, axes: Sequence[int], element: str) -> str:
        return self.add(f"constant dense<{value}> : {self.over(axes, element)}")

    def along(self, value: str, kind: str, dims: Sequence[int], axes: Sequence[int], element: str) -> str:
        """Repeat a tensor whose dims go along axes ``dims`` along the other ones of ``axes``."""
        positions = ", ".join(str(list(axes).index(d)) for d in dims)
        return self.add(f"broadcast_in_dim {value}, dims = [{positions}] : ({kind}) -> {self.over(axes, element)}")

    def compare(self, direction: str, left: str, right: str, axes: Sequence[int], element: str) -> str:
        sign, kind = "UNSIGNED" if element.startswith("u") else "SIGNED", self.over(axes, element)
        return self.add(f"compare {direction}, {left}, {right}, {sign} : ({kind}, {kind}) -> {self.over(axes, 'i1')}")

    def select(self, condition: str, on_true: str, on_false: str, axes: Sequence[int], element: str) -> str:
        kind = self.over(axes, element)
        return self.add(f"select {condition}, {on_true}, {on_false} : {self.over(axes, 'i1')}, {kind}")

    def transposed(self, value: str, axes: Sequence[int], new_axes: Sequence[int], element: str) -> str:
        """Transpose a tensor of ``axes`` to the order of ``new_axes``."""
        order = [list(axes).index(a) for a in new_axes]
        kinds = [self.over(a, element) for a in (axes, new_axes)]
        return self.add(f"transpose {value}, dims = {order} : ({kinds[0]}) -> {kinds[1]}")

    def combined(self, value: str, fn: str, neutral: str, axes: Sequence[int], over: Sequence[int], element: str
                 ) -> str:
        """Combine the elements of a tensor of ``axes`` along the axes ``over``."""
        dims = [k for k, a in enumerate(axes) if a in over]
        if not dims:
            return value
        remaining = self.over([a for a in axes if a not in over], element)
        start = self.add(f"constant dense<{neutral}> : tensor<{element}>")
        return self.add(f"reduce({value} init: {start}) applies stablehlo.{fn} across dimensions = {dims} : "
                        f"({self.over(axes, element)}, tensor<{element}>) -> {remaining}")

    def chosen(self, hits: str, value: str, kind: str, dims: Sequence[int], otherwise: str) -> str:
        """Return a tensor's elements where they hit, over all axes."""
        is_selected = self.along(hits, self.over(self.indexed, "i1"), self.indexed, self.all_axes, "i1")
        values = self.along(value, kind, dims, self.all_axes, self.element)
        elsewhere = self.constant(otherwise, self.all_axes, self.element)
        return self.select(is_selected, values, elsewhere, self.all_axes, self.element)

    def rows_of(self, value: str, kind: str, dims: Sequence[int], axes: Sequence[int], row: str, at: Sequence[int]
                ) -> tuple[str, list[int]]:
        """Gather rows of a tensor, whose dims go along axes ``dims``: elements along the windows. ``axes`` number the
        rows; ``row`` has the number for each position of the axes ``at``. Return the rows with their axes."""
        windows = [a for a in self.windows if a in dims]
        ordered = [*axes, *windows]
        if list(dims) != ordered:
            value, kind = self.transposed(value, dims, ordered, self.element), self.over(ordered, self.element)
        sizes = [self.extents[a] for a in windows]
        table = tensor([prod(self.extents[a] for a in axes), *sizes], self.element)
        value = self.add(f"reshape {value} : ({kind}) -> {table}")
        offsets = list(range(len(at), len(at) + len(windows)))
        name = f"%v{len(self.lines)}"
        self.lines.append(
            f'{name} = "stablehlo.gather"({value}, {row}) <{{dimension_numbers = #stablehlo.gather<offset_dims = '
            f"{offsets}, collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = {len(at)}>, "
            f"indices_are_sorted = false, slice_sizes = array<i64: {', '.join(map(str, [1, *sizes]))}>}}> : "
            f"({table}, {self.over(at, self.index_element)}) -> {self.over([*at, *windows], self.element)}")
        return name, [*at, *windows]

    def numbered(self, axes: Sequence[int], at: Sequence[int], indices: dict[int, str]) -> str:
        """Return the number of a row, over the axes ``at``. ``axes`` number the rows, and ``indices`` have the
        positions along some of them; the others are among ``at``."""
        element, kind = self.index_element, self.over(at, self.index_element)
        number = self.constant("0", at, element)
        for k, axis in enumerate(axes):
            position = indices.get(axis) or self.iota(axis, at)
            step = self.constant(str(prod(self.extents[a] for a in axes[k + 1:])), at, element)
            counted = self.add(f"multiply {position}, {step} : {kind}")
            number = self.add(f"add {number}, {counted} : {kind}")
        return number

    # -- indices -------------------------------------------------------------------------------------------------------
    def indices(self) -> list[tuple[str, str]]:
        """Return the numbers of each index, with their types, as integers of at least 32 bits, which represent every
        extent."""
        value, kind, element = "%i", self.kinds[1], self.index_element
        if int(element.lstrip("ui")) < 32:
            self.index_element = element = "i32"
            kind = tensor(self.index_shape, element)
            value = self.add(f"convert {value} : ({self.kinds[1]}) -> {kind}")
        return [self.component(value, kind, element, number) for number in range(len(self.scattered))]

    def hits(self) -> str:
        """Return whether an index is that of a position, over the indexed axes. A window that does not fit into its
        axis hits none."""
        hits = self.constant("true", self.indexed, "i1")
        positions = {axis: self.along(index, kind, self.index_axes, self.indexed, self.index_element)
                  for axis, (index, kind) in zip(self.scattered, self.indices())}
        for axis, position in positions.items():
            if axis in self.sizes:
                last = self.shape[axis] - self.sizes[axis]
                hits = self.both(hits, "GE", position, self.constant("0", self.indexed, self.index_element))
                hits = self.both(hits, "LE", position, self.constant(str(last), self.indexed, self.index_element))
        for axis in [a for a in self.target_axes if a in self.spans or a in self.at_zero or a in positions]:
            if axis in self.windows:
                continue
            position = self.position(positions.get(axis), axis, self.indexed)
            hits = self.both(hits, "EQ", position, self.iota(axis, self.indexed))
        return hits

    def position(self, start: str | None, axis: int, axes: Sequence[int]) -> str:
        """Return the positions along an axis of the indexed tensor, over ``axes``: from ``start``, or from 0."""
        offset = self.iota(self.spans[axis], axes) if axis in self.spans else None
        if start is None or offset is None:
            return start or offset or self.constant("0", axes, self.index_element)
        return self.add(f"add {start}, {offset} : {self.over(axes, self.index_element)}")

    def iota(self, axis: int, axes: Sequence[int]) -> str:
        """Return the numbers of the positions along one of ``axes``."""
        return self.add(f"iota dim = {list(axes).index(axis)} : {self.over(axes, self.index_element)}")

    def both(self, hits: str, direction: str, left: str, right: str) -> str:
        """Return the conjunction of ``hits`` and a comparison over the indexed axes."""
        hit = self.compare(direction, left, right, self.indexed, self.index_element)
        return self.add(f"and {hits}, {hit} : {self.over(self.indexed, 'i1')}")

    def component(self, value: str, kind: str, element: str, number: int) -> tuple[str, str]:
        """Return one of the numbers of each index, with its type."""
        if self.vector == len(self.index_shape):
            return value, kind
        remaining = tensor([n for d, n in enumerate(self.index_shape) if d != self.vector], element)
        part = tensor([1 if d == self.vector else n for d, n in enumerate(self.index_shape)], element)
        bounds = ", ".join(f"{number}:{number + 1}" if d == self.vector else f"0:{n}"
                           for d, n in enumerate(self.index_shape))
        sliced = self.add(f"slice {value} [{bounds}] : ({kind}) -> {part}")
        return self.add(f"reshape {sliced} : ({part}) -> {remaining}"), remaining

    # -- elements ------------------------------------------------------------------------------------------------------
    @property
    def is_integer(self) -> bool:
        return "f" not in self.element

    def identity_element(self, fn: str) -> str:
        """Return the identity element of the combining function ``fn``."""
        element, is_signed = self.element, not self.element.startswith("u")
        if element == "i1":
            return "true" if fn in ("and", "minimum", "multiply") else "false"
        if fn in ("minimum", "maximum") and not self.is_integer:
            return (INFINITY if fn == "minimum" else NEGATIVE_INFINITY)[element]
        if not self.is_integer:
            return "1.0" if fn == "multiply" else "-0.0"
        bits = int(element.lstrip("ui"))
        least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
        return str({"add": 0, "or": 0, "multiply": 1, "minimum": most, "maximum": least,
                    "and": -1 if is_signed else most}[fn])

    def text(self, name: str, result: str, kind: str) -> str:
        arguments = ", ".join(f"%{letter}: {k}" for letter, k in zip("xiu", self.kinds))
        return "\n".join([f'func.func private @"{name}"({arguments}) -> {kind} {{', *self.lines,
                          f"return {result} : {kind}", "}"])


class ScatterFunction(IndexedFunction):
    KIND = "scatter"

    def __init__(self, op: Operation) -> None:
        self.op = op
        if len(op.operands) != 3:
            raise self.refused("of several tensors")
        numbers = load("_mlir_libs._stablehlo").ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
        batch = dict(zip(numbers.scatter_indices_batching_dims, numbers.input_batching_dims))
        updates, windows = ir.RankedTensorType(op.operands[2].type), list(numbers.update_window_dims)
        single = {*numbers.inserted_window_dims, *batch.values()}
        along = [d for d in range(ir.RankedTensorType(op.operands[0].type).rank) if d not in single]
        super().__init__(op, list(numbers.scattered_dims_to_operand_dims), batch,
                         {d: updates.shape[w] for d, w in zip(along, windows)}, numbers.index_vector_dim)
        outer = [d for d in range(updates.rank) if d not in windows]
        axes = dict(zip(windows, (self.spans.get(d, d) for d in along))) | dict(zip(outer, self.index_axes))
        self.update_axes, self.fn = [axes[d] for d in range(updates.rank)], combination(op)
        if not self.fn:
            raise self.refused("that combines values otherwise than by one sum, difference, product, extremum, and, or")
        self.updates = "%u"
        if self.fn == "subtract":
            self.fn, self.updates = "add", self.add(f"negate %u : {self.kinds[2]}")
        is_extremum = self.fn in ("minimum", "maximum")
        is_counted = self.element in ("i1", "i32", "ui32") or self.fn in ("and", "or")
        if self.fn == REPLACE or self.element in INFINITY:
            is_supported = True
        elif is_extremum:
            is_supported = not self.element.startswith(("u", "f"))
        else:                           # sums of floats are float32
            is_supported = is_counted if self.is_integer else self.element != "f64"
        if not is_supported:
            raise self.refused(f"with '{self.fn}' of {self.element}")

    def function(self, name: str) -> str:
        hits, rows = self.hits(), [a for a in self.indexed if a not in self.loops]
        if self.fn == REPLACE:
            new, has_one = self.last_update(hits, rows)
        elif self.is_product:
            new = self.summed(hits, rows)
        else:
            new = self.folded(hits)
        if self.fn != REPLACE:
            has_one = self.combined(hits, "or", "false", self.indexed, self.loops, "i1")
        is_updated = self.along(has_one, self.over(rows, "i1"), rows, self.target_axes, "i1")
        return self.text(name, self.select(is_updated, new, "%x", self.target_axes, self.element), self.kinds[0])

    def folded(self, hits: str) -> str:
        """Return the target combined with its updates. Sums and products of narrow floats are rounded once."""
        element, neutral = self.element, self.identity_element(self.fn)
        target, updates, (kind, _, update_kind) = "%x", self.updates, self.kinds
        if not self.is_integer and element != "f32" and self.fn in ("add", "multiply"):
            self.element, (target, kind), (updates, update_kind) = "f32", *map(self.widened, (target, updates), (0, 2))
        values = self.chosen(hits, updates, update_kind, self.update_axes, neutral)
        total = self.combined(values, self.fn, neutral, self.all_axes, self.loops, self.element)
        value, wide, self.element = self.add(f"{self.fn} {target}, {total} : {kind}"), self.element, element
        return value if wide == element else self.add(f"convert {value} : ({kind}) -> {self.kinds[0]}")

    def widened(self, value: str, number: int) -> tuple[str, str]:
        """Return an operand in float32, with its type."""
        kind = self.kinds[number]
        wide = f"{kind.rpartition('x')[0]}xf32>" if "x" in kind else "tensor<f32>"
        return self.add(f"convert {value} : ({kind}) -> {wide}"), wide

    @property
    def is_product(self) -> bool:
        """Return whether the tensor engine adds the updates: they are many and have many elements each, which a
        comparison of each update with each row would repeat."""
        sizes = [prod(self.extents[a] for a in axes) for axes in (self.loops, self.windows)]
        return self.fn == "add" and self.element in INFINITY and min(sizes) >= MANY and not (
            {*self.index_axes} & {*self.target_axes})

    def summed(self, hits: str, rows: Sequence[int]) -> str:
        """Return the target plus a product of the hits, as ones and zeros, with the updates. Infinities and NaN, whose
        products with zero are not zero, count apart: those of each sign, and NaN as both."""
        kind, wide = self.kinds[2], self.kinds[2].replace(f"{self.element}>", "i1>")
        hit_kinds = [self.over(self.indexed, element) for element in ("i1", self.element)]
        ones = self.add(f"convert {hits} : ({hit_kinds[0]}) -> {hit_kinds[1]}")
        zeros = self.over(self.update_axes, self.element)
        zero = self.constant("0.0", self.update_axes, self.element)
        updates, ends = self.updates, list[str]()
        finite = self.add(f"is_finite {updates} : ({kind}) -> {wide}")
        total = self.product(ones, self.add(f"select {finite}, {updates}, {zero} : {wide}, {zeros}"), rows)
        result = tensor(self.shape, "f32")
        value = "%x" if self.element == "f32" else self.add(f"convert %x : ({self.kinds[0]}) -> {result}")
        value = self.add(f"add {value}, {total} : {result}")
        for direction, end in (("LE", NEGATIVE_INFINITY["f32"]), ("GE", INFINITY["f32"])):
            limit = self.constant("0.0", self.update_axes, self.element)
            is_beyond = self.add(f"compare {direction}, {updates}, {limit}, FLOAT : ({kind}, {kind}) -> {wide}")
            is_nan = self.add(f"compare NE, {updates}, {updates}, FLOAT : ({kind}, {kind}) -> {wide}")
            either = self.add(f"or {is_beyond}, {is_nan} : {wide}")
            infinite = self.add(f"not {finite} : {wide}")
            counted = self.add(f"convert {self.add(f'and {either}, {infinite} : {wide}')} : ({wide}) -> {zeros}")
            count = self.product(ones, counted, rows)
            none = self.constant("0.0", self.target_axes, "f32")
            is_any = self.add(f"compare GT, {count}, {none}, FLOAT : ({result}, {result}) -> "
                              f"{tensor(self.shape, 'i1')}")
            ends.append(self.select(is_any, self.constant(end, self.target_axes, "f32"), none, self.target_axes, "f32"))
        for end in ends:
            value = self.add(f"add {value}, {end} : {result}")
        return value if self.element == "f32" else self.add(f"convert {value} : ({result}) -> {self.kinds[0]}")

    def product(self, ones: str, updates: str, rows: Sequence[int]) -> str:
        """Return the sums of the updates of each element, in float32."""
        left, right = ([list(axes).index(a) for a in self.loops] for axes in (self.indexed, self.update_axes))
        axes = [*rows, *(a for a in self.update_axes if a in self.windows)]
        total = self.add(f"dot_general {ones}, {updates}, contracting_dims = {left} x {right} : "
                         f"({self.over(self.indexed, self.element)}, {self.kinds[2]}) -> {self.over(axes, 'f32')}")
        return self.transposed(total, axes, self.target_axes, "f32")

    def last_update(self, hits: str, rows: Sequence[int]) -> tuple[str, str]:
        """Return the last update of each element, and whether there is one for the positions of ``rows``."""
        self.index_element = "i32"
        number, none = self.numbered(self.loops, self.indexed, {}), self.constant("-1", self.indexed, "i32")
        last = self.combined(self.select(hits, number, none, self.indexed, "i32"), "maximum", "-1", self.indexed,
                             self.loops, "i32")
        has_one = self.compare("GE", last, self.constant("0", rows, "i32"), rows, "i32")
        batch = [a for a in rows if a in self.index_axes]
        count = self.constant(str(prod(self.extents[a] for a in self.loops)), rows, "i32")
        kind = self.over(rows, "i32")
        first = self.add(f"multiply {self.numbered(batch, rows, {})}, {count} : {kind}")
        row = self.add(f"add {first}, {last} : {kind}")
        new, axes = self.rows_of("%u", self.kinds[2], self.update_axes, [*batch, *self.loops], row, rows)
        return self.transposed(new, axes, self.target_axes, self.element), has_one


class GatherFunction(IndexedFunction):
    KIND = "gather"

    def __init__(self, op: Operation) -> None:
        self.op = op
        numbers = load("_mlir_libs._stablehlo").GatherDimensionNumbers(op.attributes["dimension_numbers"])
        batch = dict(zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims))
        single = {*numbers.collapsed_slice_dims, *batch.values()}
        sizes = {d: n for d, n in enumerate(op.attributes["slice_sizes"]) if d not in single}
        super().__init__(op, list(numbers.start_index_map), batch, sizes, numbers.index_vector_dim)
        self.offsets = list(numbers.offset_dims)

    def function(self, name: str) -> str:
        at = [*self.index_axes, *self.spans.values()]
        starts = {axis: self.start(axis, *index, at) for axis, index in zip(self.scattered, self.indices())
                  if axis not in self.windows}
        positions = {axis: self.position(starts.get(axis), axis, at)
                     for axis in (*starts, *self.at_zero, *(a for a in self.spans if a not in starts))}
        axes = [a for a in self.target_axes if a in self.indexed]
        row = self.numbered(axes, at, positions)
        value, value_axes = self.rows_of("%x", self.kinds[0], self.target_axes, axes, row, at)
        result = ir.RankedTensorType(self.op.results[0].type)
        windows, outer = (self.spans.get(d, d) for d in self.sizes), iter(self.index_axes)
        new_axes = [next(windows) if d in self.offsets else next(outer) for d in range(result.rank)]
        return self.text(name, self.transposed(value, value_axes, new_axes, self.element), str(result))

    def start(self, axis: int, index: str, kind: str, at: Sequence[int]) -> str:
        """Return the first position of a window, over the axes ``at``: all of the window lies in its axis."""
        scalar, last = f"tensor<{self.index_element}>", self.shape[axis] - self.sizes.get(axis, 1)
        low, high = (self.add(f"constant dense<{n}> : {scalar}") for n in (0, last))
        clamped = self.add(f"clamp {low}, {index}, {high} : ({scalar}, {kind}, {scalar}) -> {kind}")
        return self.along(clamped, kind, self.index_axes, at, self.index_element) if self.spans else clamped

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cuts the loop nests of a graph into boxes that fit on chip and emits each with its copies.

Sums of products become matrix products of tiles that accumulate in PSUM.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, log2, prod

from nki_mlir.bindings import Operation, Value
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import HBM, ZERO, Access, Linear, Tile, dense, joined_dims
from nki_mlir.dialects.nisa.indirect import DmaGatherOp
from nki_mlir.graph.choices import TileChoices
from nki_mlir.graph.convolutions import keep_padded, write_convolution
from nki_mlir.graph.layouts import Layouts, cheapest, is_argument
from nki_mlir.graph.nests import Gather, numbers
from nki_mlir.graph.products import TiledProduct, cycles, packed_steps, tiled_product, write_product
from nki_mlir.graph.tile_cache import TileCache, elements_of
from nki_mlir.graph.tiles import Tiles
from nki_mlir.machine import Engine, Machine
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, INT32
from nki_mlir.waist import expression as trees
from nki_mlir.waist.nest import Boxes
from nki_mlir.waist.recognize import Fold, fold_of, sum_of_products
from nki_mlir.waist.tile_operand import TileNest, TileOperand, walked

KEPT = 75           # percent of SBUF for tiles that stay on chip between operations
STAYS = 6           # a result of at most 1 / STAYS of SBUF stays on chip
ROW = 256           # elements of a row that is long enough for a tile of rows
GAIN = 0.8          # another layout replaces the usual one if it takes at most this part of the time
NODES = 8           # expressions of more nodes, each of which may take a buffer, have smaller tiles


# -- any nest ----------------------------------------------------------------------------------------------------------
class Placement:
    """Emits nests on HBM operands as operations on tiles. ``kernel_rows``: by tensor, the lengths of the rows that
    kernels move."""

    def __init__(self, machine: Machine, choices: TileChoices, kernel_rows: Mapping[Value, set[int]]) -> None:
        self.machine, self.choices = machine, choices
        self.kernel_rows = kernel_rows if choices.kernel_rows else {}
        cache = TileCache(machine.sbuf_bytes_per_partition * KEPT // 100, choices)
        self.tiles = Tiles(cache, machine.partitions, choices)

    def write(self, op: Operation, nest: TileNest, symbols: tuple[Value, ...], start: float | int | None) -> None:
        """Emit a nest before an operation. ``start`` is the initial value of a fold; if None, the fold starts from its
        output."""
        self.tiles.cache.advance_to(op)
        self.tiles.at(op, symbols)
        if not nest.reduced:
            if not isinstance(nest.body, trees.Input):
                return self.elementwise(nest)
            self.move(nest)
            return keep_padded(self.tiles, self.machine, nest)
        nest = self.with_factors(added(nest))
        product = tiled_product(nest, self.choices)
        if product is not None and write_convolution(self.tiles, self.machine, product, start):
            return None
        if product is not None:
            return write_product(self.tiles, self.machine, self.with_packed_factor(product), start)
        return self.reduction(nest, start)

    def gather(self, op: Operation, gather: Gather) -> None:
        """Emit a gather before the operation that reads its result: first the row numbers, then the rows."""
        self.tiles.cache.advance_to(op)
        self.tiles.at(op, ())
        if gather.table.tile(()).access.symbols_used():
            raise Unsupported(feature="a gather of rows from a slice with a run-time start, as engine instructions",
                              instead="gather from the complete tensor, with indices that count from its first row")
        count = prod(gather.extents[a] for a in gather.axes)
        table = with_joined_columns(gather.table.tile(gather.sizes))
        rows = self.tiles.buffer((count,), INT32, HBM)
        steps = dict(zip(gather.axes, dense([gather.extents[a] for a in gather.axes])))
        output = walked(rows, (steps.get(a, 0) for a in range(len(gather.extents))))
        extents = tuple(n if a in gather.axes else 1 for a, n in enumerate(gather.extents))
        self.elementwise(TileNest.of(extents, (), gather.inputs, output, gather.row).without_unused)
        for start in range(0, count, self.machine.partitions):
            part = min(self.machine.partitions, count - start)
            index = self.tiles.buffer((part, 1), INT32)
            self.tiles.copy(index, rows_in(rows, start, part, (1,)))
            target = rows_in(Tile(gather.result.handle, HBM, gather.result.base_shape, gather.result.dtype, Access(
                gather.result.dtype, None, ZERO, ())), start, part, table.shape[1:])
            self.tiles.write(DmaGatherOp(dst=target, src=table, index=index))

    # -- boxes ---------------------------------------------------------------------------------------------------------
    def sizes(self, nest: TileNest, body: trees.Node) -> list[int]:
        """Return the sizes of boxes: all partitions, then the inner axes that fit. If the result can stay on chip, a
        box has at most one row for each partition, like the tiles of the operations that write and read it."""
        room = max(64, self.choices.elements * NODES // max(NODES, len(list(trees.below(body))) + len(nest.inputs)))
        room = 1 << round(log2(room))
        sizes = [self.machine.partitions]
        for extent in reversed(nest.extents[1:]):
            parts = -(-extent // room)
            is_cut_evenly = self.choices.even and len(sizes) > 1
            sizes.insert(1, -(-extent // parts) if is_cut_evenly else min(extent, room))
            room = 1 if self.stays(nest) and extent >= ROW else max(1, room // extent)
        return sizes

    def stays(self, nest: TileNest) -> bool:
        """Return whether the result is small enough to stay on chip."""
        elements = prod(n for a, n in enumerate(nest.extents) if a not in nest.reduced)
        room = self.machine.sbuf_bytes_per_partition // STAYS * self.machine.partitions
        return elements * nest.output.dtype.itemsize <= room

    def boxes(self, nest: TileNest, body: trees.Node) -> Boxes[TileOperand]:
        """Cut a nest into boxes."""
        return Boxes(nest, enumerate(self.sizes(nest, body)))

    def layout(self, nest: TileNest, body: trees.Node) -> list[TileNest]:
        """Return the nest with the axis along the partitions (axis 0) that makes it cheapest: two nests, of the full
        rows and of the rest, if no divisor of its extent fits."""
        first_nests = self.arranged(nest)
        if not self.choices.layouts:
            return first_nests
        layouts = Layouts(self.machine, self.tiles, self.kernel_rows)
        count = sum(isinstance(node, (trees.Alu, trees.Activation)) for node in trees.below(body))
        stays = self.stays(nest) and not is_argument(nest.output.handle)

        def candidate(nests: list[TileNest]) -> tuple[float, list[TileNest]]:
            return layouts.cost([self.boxes(n, body) for n in nests], count + 1, stays), nests
        forms = (nest, nest.arranged(None))
        others_by_extents = {other.extents: other for form in forms for axis, n in enumerate(form.extents)
                             if n > 1 and axis not in form.reduced for other in [form.arranged(axis)]}
        pieces = dict(self.pieces_on_chip(nest))
        alternatives = [[other] for other in (*others_by_extents.values(), *pieces)]
        if self.meets_kernel(nest):
            alternatives.append(self.arranged(nest, as_kernel=False))
        best = cheapest(map(candidate, [first_nests, *alternatives]), GAIN)
        if best[0] in pieces:
            self.tiles.cache.pieces[nest.output.handle] = pieces[best[0]]
        return best

    def arranged(self, nest: TileNest, as_kernel: bool = True) -> list[TileNest]:
        """Return the nest with an axis that is not reduced along the partitions (axis 0), chosen by its form alone: two
        nests if no divisor of its extent fits. ``as_kernel``: prefer the rows that a kernel moves."""
        merged = nest.arranged(None)
        axes = [a for a, n in enumerate(merged.extents) if a not in merged.reduced and n > 1]
        if not axes:
            return [merged]
        if len(axes) > 1 or merged.reduced:
            best = max(axes, key=lambda a: (min(merged.extents[a], self.machine.partitions)
                                            * (1 if merged.output.strides[a] == 1 else 2), -a))
            return [merged.arranged(best)]
        axis, extent = axes[0], merged.extents[axes[0]]
        if extent > self.machine.partitions and self.is_on_chip(columns_nest := merged.arranged(axis)):
            return [columns_nest]
        columns = nest.extents[-1]
        is_long = ROW <= columns and extent // columns >= self.machine.partitions
        if columns < extent and (is_long or (as_kernel and self.meets_kernel(nest))) and self.stays(nest):
            return [merged.divided(axis, columns).arranged(axis)]
        rows = largest_divisor(extent, self.machine.partitions)
        if rows >= min(extent, 16):
            return [merged.divided(axis, extent // rows).arranged(axis)]
        main = extent - extent % self.machine.partitions
        return [part for start, count in ((0, main), (main, extent - main)) if count
                for part in self.arranged(merged.window(axis, start, count), as_kernel)]

    def meets_kernel(self, nest: TileNest) -> bool:
        """Return whether a kernel moves the rows of an operand."""
        columns = nest.extents[-1] if nest.extents else 1
        return any(columns in self.kernel_rows.get(operand.handle, ()) for operand in (*nest.inputs, nest.output))

    def is_on_chip(self, nest: TileNest) -> bool:
        """Return whether a tile on chip has an operand of the first box of a nest whose rows have one element. A fold
        of rows leaves such a tile; boxes of other shapes would have to store it to HBM and load it again."""
        first = Boxes(nest, [(0, self.machine.partitions)])[0]
        moving = [operand for operand in first.inputs if operand.moves(0)]
        return any(self.tiles.has(operand, first.extents) for operand in moving)

    def pieces_on_chip(self, nest: TileNest) -> Iterator[tuple[TileNest, int]]:
        """Yield the nest with an axis divided so that each partition has several neighboring positions, and their
        number, for each such form in which a tile on chip has an operand. A convolution writes its result so."""
        widths = {self.tiles.cache.pieces.get(operand.handle, 0) for operand in nest.inputs} - {0}
        merged = nest.arranged(None)
        for axis, n in enumerate(merged.extents) if widths else ():
            for width in sorted(widths):
                if axis not in merged.reduced and n > width and n % width == 0:
                    pieces = merged.divided(axis, width).arranged(axis)
                    if self.is_on_chip(pieces):
                        yield pieces, width

    # -- elementwise ---------------------------------------------------------------------------------------------------
    def move(self, nest: TileNest) -> None:
        """Emit a copy of any size: from HBM to HBM, or of tiles on chip that have the elements."""
        if self.choices.moves and self.stays(nest) and not is_argument(nest.output.handle):
            boxes = self.laid_out(nest)
            if all(self.tiles.has(box.inputs[0], box.extents) for box in boxes):
                return self.move_tiles(boxes)
        nest = nest.arranged(None)
        self.tiles.cache.invalidate(elements_of(nest.output.tile(nest.extents), self.tiles.symbols))
        self.tiles.copy(nest.output.tile(nest.extents), nest.inputs[0].tile(nest.extents))

    def move_tiles(self, boxes: Sequence[TileNest]) -> None:
        """Emit a copy whose source is on chip: store the same tiles again, to the target. Repeat a tile along the axes
        that it lacks."""
        for box in boxes:
            axes = tuple(range(len(box.extents)))
            result, loaded_axes = self.tiles.load(box.inputs[0], box.extents)
            if loaded_axes != axes:
                source, result = result, self.tiles.buffer(box.extents, box.output.dtype)
                self.tiles.compute(box.extents, box.reduced, [(source, loaded_axes)], result, axes, box.body)
            self.tiles.store(box.output, result, axes)

    def laid_out(self, nest: TileNest) -> list[TileNest]:
        """Return the boxes of a nest that folds nothing, in the layout that costs least."""
        return [box for part in self.layout(nest, nest.body) for box in self.boxes(part, part.body)]

    def elementwise(self, nest: TileNest) -> None:
        if trees.reads_output(nest.body):
            number = len(nest.inputs)
            body = trees.rebuilt(nest.body, lambda node: trees.Input(node.dtype, number)
                                 if isinstance(node, trees.Output) else None)
            nest = replace(nest, inputs=(*nest.inputs, nest.output)).with_body(body)
        for part in self.laid_out(nest):
            inputs = [self.tiles.load(operand, part.extents) for operand in part.inputs]
            axes = tuple(range(len(part.extents)))
            result = self.tiles.buffer(part.extents, part.output.dtype)
            self.tiles.compute(part.extents, part.reduced, inputs, result, axes, part.body)
            self.tiles.store(part.output, result, axes)

    # -- folds ---------------------------------------------------------------------------------------------------------
    def reduction(self, nest: TileNest, start: float | int | None) -> None:
        folded(nest)
        merged = nest.arranged(None)
        if not merged.reduced:                      # each output has one element
            return self.elementwise(merged if start is None else merged.with_body(_with_old(merged.body, start)))
        parallel = [a for a, n in enumerate(merged.extents) if a not in merged.reduced and n > 1]
        axis = max(merged.reduced, key=lambda a: merged.extents[a])
        rows = largest_divisor(merged.extents[axis], self.machine.partitions)
        if parallel or rows == 1 or prod(merged.extents) <= self.machine.partitions:
            for arranged_nest in self.layout(nest, nest.expression(folded(nest).value)):
                self.fold(arranged_nest, start)
            return None
        return self.in_two_steps(merged, axis, rows, start)

    def in_two_steps(self, nest: TileNest, axis: int, rows: int, start: float | int | None) -> None:
        """Split a fold of all elements: fold each row to one value, then fold these values."""
        parts = nest.divided(axis, nest.extents[axis] // rows)
        fold = folded(parts)
        scratch = self.tiles.buffer((rows,), fold.dtype, HBM)
        steps = tuple(1 if a == axis else 0 for a in range(len(parts.extents)))
        output = walked(scratch, steps)
        element = trees.alu(fold.fn, trees.Output(fold.dtype), parts.expression(fold.value))
        rows_nest = replace(parts, reduced=parts.reduced - {axis}, outputs=(output,)).with_body(element)
        for arranged_nest in self.arranged(rows_nest):
            self.fold(arranged_nest, fold.identity)
        if (start is not None and fold.dtype is FLOAT32 and fold.dtype is nest.output.dtype and self.choices.totals
                and not is_argument(nest.output.handle)):
            return self.total_everywhere(scratch, fold, nest.output, start)
        old = trees.converted(trees.Output(nest.output.dtype), fold.dtype)
        body = trees.converted(trees.alu(fold.fn, old, trees.Input(fold.dtype, 0)), nest.output.dtype)
        total_nest = TileNest.of((rows,), {0}, (walked(scratch, (1,)),), replace(nest.output, strides=(0,)), body)
        self.fold(total_nest.arranged(None), start)

    def total_everywhere(self, parts: Tile, fold: Fold, output: TileOperand, start: float | int) -> None:
        """Fold the parts of a total in every partition, where later operations read it: repeat and transpose them."""
        lanes, count = self.machine.partitions, parts.shape[0]
        column = self.tiles.loaded(parts.patterned(dims=((1, count), (1, 1))), again=False)
        repeated, rows = (self.tiles.buffer(shape, fold.dtype) for shape in ((count, lanes), (lanes, count)))
        self.tiles.copy(repeated, column.patterned(dims=(column.access.dims[0], (0, lanes))))
        self.tiles.copy(rows, repeated, (1, 0))
        total = self.tiles.buffer((lanes,), fold.dtype)
        self.tiles.fill(total, start, (0,))
        step = trees.alu(fold.fn, trees.Output(fold.dtype), trees.Input(fold.dtype, 0))
        self.tiles.compute((lanes, count), frozenset({1}), [(rows, (0, 1))], total, (0,), step)
        element = output.tile((1,), (0,))
        self.tiles.copy(element, replace(total, access=total.access.box((0,), (1,))))
        self.tiles.cache.stored(elements_of(element.patterned(dims=((0, lanes),)), self.tiles.symbols), total)

    def fold(self, nest: TileNest, start: float | int | None) -> None:
        """Emit a fold whose partitions go along axis 0."""
        fold = folded(nest)
        sizes = self.sizes(nest, nest.expression(fold.value))
        parallel = tuple(a for a in range(len(nest.extents)) if a not in nest.reduced)
        outer = [n if a in nest.reduced else sizes[a] for a, n in enumerate(nest.extents)]
        for box in nest.boxes(enumerate(outer)):
            counts = [box.extents[a] for a in parallel]
            total = self.tiles.buffer(counts, fold.dtype)
            if start is None:
                self.tiles.copy(total, box.output.tile(counts, parallel))
            for k, part in enumerate(box.boxes(enumerate(sizes))):
                inputs = [self.tiles.load(operand, part.extents) for operand in part.inputs]
                if k == 0 and start is not None:
                    self.tiles.fill(total, start, parallel)
                if fold.dtype.is_integer and ALU[fold.fn].group != "bitwise":
                    self.halve(part, fold, inputs, total, parallel)
                else:
                    element = part.expression(fold.value)
                    step = trees.alu(fold.fn, trees.Output(fold.dtype), element)
                    self.tiles.compute(part.extents, part.reduced, inputs, total, parallel, step)
            result = total
            if box.output.dtype is not fold.dtype:
                result = self.tiles.buffer(counts, box.output.dtype)
                self.tiles.copy(result, total)
            self.tiles.store(box.output, result, parallel)

    def halve(self, nest: TileNest, fold: Fold, inputs: Sequence[tuple[Tile, tuple[int, ...]]], total: Tile,
              parallel: tuple[int, ...]) -> None:
        """Emit ``total = total (fn) elements`` for integers, which no engine folds, by combining the halves of the
        tile repeatedly."""
        axes, counts = tuple(range(len(nest.extents))), list(nest.extents)
        values = self.tiles.buffer(counts, fold.dtype)
        self.tiles.compute(nest.extents, frozenset(), inputs, values, axes, nest.expression(fold.value))
        pair = trees.alu(fold.fn, trees.Input(fold.dtype, 0), trees.Input(fold.dtype, 1))
        for axis in sorted(nest.reduced):
            while counts[axis] > 1:
                half = counts[axis] // 2
                sizes = [half if a == axis else n for a, n in enumerate(counts)]
                low, high = (replace(values, access=values.access.box(
                    [start if a == axis else 0 for a in axes], sizes)) for start in (0, counts[axis] - half))
                self.tiles.compute(sizes, frozenset(), [(low, axes), (high, axes)], low, axes, pair)
                counts[axis] -= half
        result = replace(values, access=values.access.box([0] * len(counts), counts))
        line = self.tiles.buffer([nest.extents[a] for a in parallel], fold.dtype)
        self.tiles.copy(line, result.patterned(dims=tuple(result.access.dims[a] for a in axes if a in parallel)))
        sizes = [nest.extents[a] for a in parallel]
        all_axes = tuple(range(len(parallel)))
        self.tiles.compute(sizes, frozenset(), [(total, all_axes), (line, all_axes)], total, all_axes, pair)

    # -- products ------------------------------------------------------------------------------------------------------
    def with_factors(self, nest: TileNest) -> TileNest:
        """Write the computed factors of a sum of products to buffers in HBM and read them from there, because each of
        their elements is in many products."""
        factors = computed_factors(nest)
        body, inputs = nest.body, list(nest.inputs)
        for factor in factors:
            axes = axes_of(nest, factor)
            buffer = self.tiles.buffer([nest.extents[a] for a in axes], factor.dtype, HBM)
            steps = dict(zip(axes, dense([nest.extents[a] for a in axes])))
            operand = walked(buffer, [steps.get(a, 0) for a in range(len(nest.extents))])
            extents = [n if a in axes else 1 for a, n in enumerate(nest.extents)]
            self.elementwise(TileNest.of(extents, (), nest.inputs, operand, factor).without_unused)
            loaded = trees.Input(factor.dtype, len(inputs))
            inputs.append(operand)
            loads: dict[trees.Node, trees.Node] = {factor: loaded}
            body = trees.rebuilt(body, loads.get)
        return replace(nest, inputs=tuple(inputs)).with_body(body).without_unused if factors else nest

    def with_packed_factor(self, product: TiledProduct) -> TiledProduct:
        """Copy a factor that is an argument, and thus in HBM, so that summed elements are adjacent, if this saves the
        tensor engine more time than the copy takes: fewer axes then remain, and tiles are larger."""
        nest, layouts = product.nest, Layouts(self.machine, self.tiles)
        for number in (product.left, product.right) if self.choices.packed else ():
            operand, steps = nest.inputs[number], packed_steps(product, number)
            if steps is None or not is_argument(operand.handle):
                continue
            strides = [steps.get(a, 0) for a in range(len(nest.extents))]

            def packed(factor: TileOperand, number: int = number) -> TiledProduct | None:
                inputs = tuple(factor if k == number else other for k, other in enumerate(nest.inputs))
                return tiled_product(replace(nest, inputs=inputs), self.choices)
            better = packed(replace(operand, strides=tuple(strides)))
            extents = [n if a in steps else 1 for a, n in enumerate(nest.extents)]
            saved = cycles(product, self.machine) - (cycles(better, self.machine) if better is not None else inf)
            if saved / self.machine.clocks[Engine.TENSOR] <= layouts.copy(operand.tile(extents)):
                continue
            target = walked(self.tiles.buffer([nest.extents[a] for a in steps], operand.dtype, HBM), strides)
            self.move(TileNest.of(extents, (), (operand,), target, trees.Input(operand.dtype, 0)))
            return packed(target) or product
        return product


def with_joined_columns(table: Tile) -> Tile:
    """Return a tile of an HBM buffer with as few dims after the first as its steps allow, at least one."""
    return table.patterned(dims=(table.access.dims[0], *(joined_dims(table.access.dims[1:]) or ((1, 1),))))


def rows_in(tile: Tile, start: int, count: int, shape: Sequence[int]) -> Tile:
    """Return ``count`` rows of this shape of a contiguous HBM buffer, from row ``start`` on."""
    width = prod(shape)
    free = tile.access.free.plus(Linear(start * width))
    return tile.patterned(free=free, dims=((width, count), *zip(dense(shape), shape)))


def added(nest: TileNest) -> TileNest:
    """Return a fold that subtracts each value as one that adds its negative, which engines fold."""
    fold = fold_of(nest)
    if fold is None or fold.fn != "subtract" or not fold.dtype.is_float:
        return nest
    negative = trees.alu("multiply", nest.expression(fold.value), numbers(-1, fold.dtype))
    before = trees.converted(trees.Output(nest.output.dtype), fold.dtype)
    return nest.with_body(trees.converted(trees.alu("add", before, negative), nest.output.dtype))


def folded(nest: TileNest) -> Fold:
    """Return the fold of a reduction; raises ``Unsupported`` if engines cannot compute it. A narrow result accumulates
    in the dtype of the arithmetic and rounds once."""
    fold = fold_of(nest)
    if fold is None or fold.identity is None or ALU[fold.fn].reduce is None:
        raise Unsupported(feature="a reduction whose body is not a sum, product, minimum, maximum or logical "
                                  "operation, as engine instructions", instead="run this program on the CPU")
    return fold


def computed_factors(nest: TileNest) -> list[trees.Node]:
    """Return the factors of a float32 sum of products that are not plain inputs, if the nest is a matrix product."""
    recognized = sum_of_products(nest)
    if recognized is None or recognized[0].dtype is not FLOAT32 or nest.output.dtype.is_integer:
        return []
    left, right = factors = [unconverted(nest.expression(value)) for value in recognized[1].operands]
    if left == right or any(node.dtype.is_integer or not trees.inputs_of(node) or trees.forms_of(node)
                            for node in factors):
        return []
    axes_left, axes_right = ({*axes_of(nest, node)} for node in factors)
    summed = {a for a in nest.reduced if nest.extents[a] > 1}
    matrices = summed and summed <= axes_left & axes_right and axes_left - axes_right and axes_right - axes_left
    return [node for node in factors if not isinstance(node, trees.Input)] if matrices else []


def unconverted(node: trees.Node) -> trees.Node:
    """Strip conversions from narrower floats, or from float32 itself, to float32: engines multiply and add in
    float32."""
    while isinstance(node, trees.Convert) and node.dtype is FLOAT32 and node.value.dtype.is_float:
        node = node.value
    return node


def axes_of(nest: TileNest, node: trees.Node) -> list[int]:
    """Return the axes along which an expression of the nest's body varies."""
    return [a for a, n in enumerate(nest.extents)
            if n > 1 and any(nest.inputs[k].moves(a) for k in trees.inputs_of(node))]


def largest_divisor(number: int, limit: int) -> int:
    return next(d for d in range(min(number, limit), 0, -1) if number % d == 0)


def _with_old(body: trees.Node, value: float | int) -> trees.Node:
    """Replace the old value of the output in a body by a number."""
    return trees.rebuilt(body, lambda node: numbers(value, node.dtype) if isinstance(node, trees.Output) else None)

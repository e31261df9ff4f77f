# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moves a mask that a subscript attaches to an operand to the operation, as if it were its argument ``mask``:

    b = nl.exp(t[f >= 4])               b = nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.sbuf)
                                        nisa.activation(dst=b[:, 4:16], op=nl.exp, data=t[:, 4:16])
"""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce

import libcst as cst

from nki_mlir.migration import terms
from nki_mlir.migration.expressions import LeftForAPerson
from nki_mlir.migration.facts import (
    Axis,
    Comparison,
    Fact,
    IndexFact,
    MaskBound,
    MaskFact,
    NumberFact,
    SelectedVector,
    TensorFact,
)
from nki_mlir.migration.indices import any_of
from nki_mlir.migration.named_views import NamedViews
from nki_mlir.migration.names import Names
from nki_mlir.migration.operation_text import OperationText
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.selected_vectors import SELECTED
from nki_mlir.migration.views import Item, Part, masked

COMPARISONS = {cst.LessThan: "less", cst.LessThanEqual: "less_equal", cst.GreaterThan: "greater",
               cst.GreaterThanEqual: "greater_equal", cst.Equal: "equal", cst.NotEqual: "not_equal"}
NOT_FIRST = "a mask as an index that does not select the first elements of axes"
A_PART = "a part of an operand that a mask restricts"


class OperandMasks(NamedViews):
    """Notes the masks of operands. ``operand_masks``: by node, the operand without its mask, and the mask."""

    def __init__(self, names: Names, report: MigrationReport) -> None:
        super().__init__(names, report)
        self.operand_masks: dict[int, tuple[cst.BaseExpression, MaskFact]] = {}

    def _view(self, owner: cst.BaseExpression, tensor: TensorFact, node: cst.Subscript) -> cst.BaseExpression:
        operand, outer = self.operand_masks.get(id(owner), (owner, None))
        fact = self.fact(operand)
        assert isinstance(fact, TensorFact)
        mask = self._mask_of(node)
        if mask is not None:
            return self._with_mask(operand, fact, mask if outer is None else self.conjunction(outer, mask))
        part = super()._view(operand, fact, node)
        if outer is None:
            return part
        part_fact = self.fact(part)
        assert isinstance(part_fact, TensorFact)
        return self._with_mask(part, part_fact, self._of_part(outer, self.items(node, fact), fact))

    def _mask_of(self, node: cst.Subscript) -> MaskFact | None:
        """Return the mask that is the only item of a subscript; None for other subscripts."""
        item = node.slice[0].slice
        if len(node.slice) != 1 or not isinstance(item, cst.Index) or isinstance(item.value, cst.Ellipsis):
            return None
        fact = self.fact(self.rewritten(item.value))
        return fact if isinstance(fact, MaskFact) else None

    def _with_mask(self, operand: cst.BaseExpression, tensor: TensorFact, mask: MaskFact) -> cst.BaseExpression:
        """Return a node for an operand under a mask. Where no operation takes the mask, the node is the part of the
        operand that the mask selects, if this part has the first elements of each axis."""
        is_first = mask.is_known and not (mask.selects_no_box or mask.conditions or any(b.low for b in mask.bounds))
        text, part = masked(self.text(operand), tensor, mask) if is_first else ("", tensor)

        def refuse(dst: str, target: TensorFact) -> list[str]:
            self.reject(NOT_FIRST)
        node = self.deferred(OperationText(part, text, None if text else refuse, "()", self.code(operand)))
        self.operand_masks[id(node)] = operand, mask
        return node

    def _of_part(self, mask: MaskFact, items: Iterable[Item], tensor: TensorFact) -> MaskFact:
        """Return a mask in the axes of a part of its operand, which has as many axes."""
        spans = [_span(item) for item in items]
        rank = tensor.rank
        if rank is None or not mask.is_known or mask.is_selected:
            self.reject(A_PART)
        spans += [("0", "", "1")] * (rank - len(spans))

        def in_axes_of_part(comparison: Comparison) -> Comparison:
            index = comparison.index
            if len(index.axes) != len(spans) or index.moved:
                self.reject(A_PART)
            base, axes = index.base, []
            for axis, (start, size, step) in zip(index.axes, spans):
                is_spread = axis.extent == "1" or axis.step == "0"
                axes.append(axis if is_spread else Axis(size or axis.extent, terms.multiply(axis.step, step)))
                base = base if is_spread else terms.add(base, terms.multiply(axis.step, start))
            return Comparison(IndexFact(terms.simplified(base), tuple(axes)), comparison.operator)

        def mask_of(comparison: Comparison) -> MaskFact:
            part = in_axes_of_part(comparison)
            return self.mask_of(part.operator, part.index)
        if mask.alternatives:
            return any_of([mask_of(c) for c in mask.alternatives])
        part = reduce(self.conjunction, map(mask_of, mask.comparisons), MaskFact(()))
        return replace(part, conditions=tuple(dict.fromkeys((*part.conditions, *mask.conditions))))

    def unmasked(self, nodes: Mapping[str, cst.BaseExpression]
                 ) -> tuple[dict[str, cst.BaseExpression], MaskFact | None]:
        """Return the operands of an operation without the masks that subscripts attach to them, and the mask of the
        operation that replaces them; None if it would not have the axes of all operands."""
        pairs = {name: self.operand_masks[id(node)] for name, node in nodes.items() if id(node) in self.operand_masks}
        without = {**nodes, **{name: operand for name, (operand, _) in pairs.items()}}
        ranks = {fact.rank for node in without.values() if isinstance(fact := self.fact(node), TensorFact)}
        ranks |= {len(c.index.axes) for _, mask in pairs.values() for c in (*mask.comparisons, *mask.alternatives)}
        if not pairs or len(ranks - {None}) > 1:
            return dict(nodes), None
        return without, reduce(self.conjunction, (mask for _, mask in pairs.values()))

    def keep_elements(self, node: cst.BaseExpression, axes: Iterable[int]) -> None:
        """Let a tile that a mask cuts keep all its elements along some axes, because an instruction reads it with a
        tile that has more."""
        view, fact = self.views.get(id(node)), self.fact(node)
        for axis in axes:
            is_all = view is not None and (axis >= len(view.items) or (
                isinstance(item := view.items[axis], Part) and item.text == ":"))
            name = view.text if view is not None and is_all else self.code(node)
            if isinstance(fact, TensorFact) and axis in self.uncut_sizes(fact.shape or (), self.masked.masks.get(name)):
                self.masked.exceeded.setdefault(name, set()).add(axis)

    def keep_written(self, node: cst.BaseExpression, tile: TensorFact, value: Fact) -> None:
        """Let a tile that a mask cuts keep the elements that an assignment writes without the mask: a number, or a tile
        that has more."""
        sizes = value.shape if isinstance(value, TensorFact) else ()
        if sizes is not None and tile.shape is not None and len(sizes) in (0, len(tile.shape)):
            self.keep_elements(node, [axis for axis, size in enumerate(tile.shape) if not sizes or (
                sizes[axis] not in ("1", "?", size) and sizes[axis] not in self.extents)])

    def shape_by_mask(self, nodes: Iterable[cst.BaseExpression], mask: MaskFact | None) -> None:
        """Note the shape of the only tile that an operation reads, if the text shows nothing but its mask's."""
        tiles = [node for node in nodes if isinstance(self.fact(node), TensorFact)]
        vectors = [c.index.axes for c in (*mask.comparisons, *mask.alternatives)] if mask is not None else []
        if len(tiles) != 1 or len({len(axes) for axes in vectors}) != 1:
            return
        node, fact = tiles[0], self.fact(tiles[0])
        result, text = self.result(node), self.code(node)
        is_name = result is None and text.isidentifier()
        extents = [next((axis.extent for axis in along if axis.extent != "1"), (
            f"{text}.shape[{k}]" if is_name else "?")) for k, along in enumerate(zip(*vectors))]
        assert isinstance(fact, TensorFact)
        if not fact.on_chip or fact.rank not in (None, len(extents)):
            return
        shape = tuple(e if size == "?" else size for size, e in zip(fact.shape or ["?"] * len(extents), extents))
        if result is not None:
            result.fact = replace(result.fact, shape=shape)
        self.facts[id(node)] = replace(fact, shape=shape)

    @staticmethod
    def rows_of(mask: MaskFact, rank: int) -> MaskFact:
        """Return the part of a mask that selects rows, for a tile of this many dimensions with the same rows."""
        bounds = tuple(replace(b, axis=-rank, rank=rank) for b in mask.bounds if b.axis == -b.rank)
        return MaskFact(bounds, (), tuple(c for c in mask.comparisons if c.varying == [-len(c.index.axes)]))

    @staticmethod
    def columns_of(mask: MaskFact) -> MaskFact:
        """Return the part of a mask that selects elements within rows, for a tile of one row for all rows."""
        return MaskFact(tuple(b for b in mask.bounds if b.axis != -b.rank), (),
                        tuple(c for c in mask.comparisons if c.varying != [-len(c.index.axes)]))

    @staticmethod
    def transposed_mask(mask: MaskFact, function: str) -> MaskFact | None:
        """Return the mask that selects the transposed elements of a tile of two dimensions; None for more."""
        all_comparisons = (*mask.comparisons, *mask.diagonals, *mask.alternatives)
        if any(bound.rank != 2 for bound in mask.bounds) or any(len(c.index.axes) != 2 for c in all_comparisons):
            if mask.selects_no_box or any(bound.low for bound in mask.bounds):
                raise LeftForAPerson(f"{function} under a mask of other dimensions than two")
            return None

        def swapped(comparisons: Iterable[Comparison]) -> tuple[Comparison, ...]:
            return tuple(replace(c, index=replace(c.index, axes=c.index.axes[::-1])) for c in comparisons)
        return MaskFact(tuple(replace(b, axis=-3 - b.axis) for b in mask.bounds), (), swapped(mask.comparisons),
                        swapped(mask.diagonals), alternatives=swapped(mask.alternatives))

    @staticmethod
    def executed(mask: MaskFact, condition: str, in_one: bool) -> tuple[MaskFact | None, str]:
        """Return the mask of an operation, and the condition of the host under which it is executed: ``condition``, the
        mask's, and that it selects elements, if it may select none. A mask that selects no box does so in a tile of 0
        and 1 where an operation writes all ``in_one``."""
        may_be_none = [bound for bound in mask.bounds if bound.extent]
        if may_be_none and in_one and mask.selects_no_box:
            mask, may_be_none = replace(mask, bounds=(), diagonals=mask.comparisons), []
        empty = ["False" if terms.number(b.high) is not None else f"{b.high} > 0" for b in may_be_none]
        parts = dict.fromkeys(filter(None, (condition, *mask.conditions, *empty)))
        return (None, "False") if "False" in parts else (mask, " and ".join(parts))

    def within_cut_tiles(self, mask: MaskFact, nodes: Iterable[cst.BaseExpression]) -> MaskFact:
        """Return a mask without the elements that masks have cut from operands: ``tile`` has the rows of the mask under
        which it is loaded, of which another mask may select fewer or more."""
        bounds, counts = list(mask.bounds), set(self.scope.counts.values())
        sizes = {(axis, size) for node in nodes for axis, size in self._sizes(node) if size in counts}
        for k, bound in enumerate(bounds):
            for axis, size in sorted(sizes):
                if axis == bound.axis and not bound.low and not self._is_within(bounds[k].high, size):
                    bounds[k] = self._bound_within(bounds[k], size)
        return replace(mask, bounds=tuple(bounds))

    def _sizes(self, node: cst.BaseExpression) -> list[tuple[int, str]]:
        """Return the axes of an operand, counted from the last, that begin at the first element of a dimension of its
        tile and go through all of them, with the size of the dimension."""
        view, fact = self.views.get(id(node)), self.fact(node)
        if view is None:
            shape = (fact.shape or ()) if isinstance(fact, TensorFact) and not fact.blocks else ()
            return [(k - len(shape), size) for k, size in enumerate(shape)]
        if view.tensor.blocks:
            return []
        return [(axis - len(item.axes), size) for item, size in zip(view.items, view.tensor.shape or ())
                if isinstance(item, IndexFact) and item.base == "0" for axis, varying in enumerate(item.axes)
                if varying.step == "1" and [a.step for a in item.axes if a.step != "0"] == ["1"]]

    def _bound_within(self, bound: MaskBound, size: str) -> MaskBound:
        """Return a bound that also leaves out the elements beyond the size of a tile that a mask has cut."""
        axis, high, extent = bound.axis + bound.rank, size, self.extents.get(size, "")
        if not self._is_within(size, bound.high):
            ends = [end for end in self._ends(bound.high) if end not in self._ends(size)]
            hint = "fewer_columns" if axis else "fewer_rows"
            high = self.count(reduce(terms.smallest, ends, size), axis, hint, extent)
        return self.bound(axis, bound.rank, "", high, extent)

    def _is_within(self, count: str, size: str) -> bool:
        """Return whether a count is at most a size because it is the minimum of the size and others."""
        ends = self._ends(count)
        return count == size or (ends != [count] and any(self._is_within(end, size) for end in ends))

    def _ends(self, count: str) -> list[str]:
        """Return the numbers whose minimum a count is."""
        texts = {name: text for text, name in self.scope.counts.items()}
        match ast.parse(texts.get(count, count), mode="eval").body:
            case ast.Call(func=ast.Name(id="min"), args=ends):
                return [ast.unparse(end) for end in ends]
        return [count]

    def one_of(self, *nodes: cst.BaseExpression) -> MaskFact:
        """Return the mask of the elements that one of two masks selects; a comparison of numbers is such a mask."""
        facts = [self.fact(node) for node in nodes]
        rank = max((len(c.index.axes) for fact in facts if isinstance(fact, MaskFact) for c in fact.comparisons),
                   default=2)
        masks = list[Fact]()
        for node, fact in zip(nodes, facts):
            if isinstance(node, cst.Comparison) and len(node.comparisons) == 1 and fact == NumberFact("bool"):
                (target,) = node.comparisons
                base = terms.subtract(self.text(node.left), self.text(target.comparator))
                index = IndexFact(terms.simplified(base), (Axis("1", "0"),) * rank)
                fact = MaskFact((), (), (Comparison(index, COMPARISONS[type(target.operator)]),))
            masks.append(fact)
        return any_of(masks)

    def mask_argument(self, fact: Fact) -> MaskFact | None:
        """Return an argument if it is a mask; None for other values."""
        if isinstance(fact, SelectedVector):
            raise LeftForAPerson(SELECTED)
        if not isinstance(fact, MaskFact):
            return None
        if not fact.is_known:
            raise LeftForAPerson("a mask that consists of other values than comparisons")
        return fact


def _span(item: Item) -> tuple[str, str, str]:
    """Return the first element of a slice, their number (empty for all) and the step between them."""
    if not isinstance(item, Part):
        raise LeftForAPerson(A_PART)
    if item.text == ":":
        return "0", "", "1"
    if item.text.endswith(")"):
        start = item.text.partition("ds(")[2].removesuffix(f", {item.size})") if item.size else ""
        step = "1"
    else:
        start, _, step = item.text.split(":") if item.text.count(":") == 2 else (*item.text.split(":"), "1")
        start = start or "0"
    size = item.size
    if step != "1" and None not in (numbers := [terms.number(n or "-1") for n in item.text.split(":")[:2]]):
        first, stop = (n or 0 for n in numbers)
        size = str(len(range(max(first, 0), stop, terms.number(step) or 1))) if stop > 0 else ""
    if not start or not size or "(" in start:
        raise LeftForAPerson(A_PART)
    return start, size, step

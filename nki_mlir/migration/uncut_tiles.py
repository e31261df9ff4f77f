# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lets tiles keep all elements although a mask selects a part of them, if the text reads their shape or other elements.

before:  t = nl.exp(x, mask=(i_f < n))      after:  t = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
         last = t[:, 511]                           nisa.activation(dst=t[:, 0:n], op=nl.exp, data=x[:, 0:n])
                                                    last = t[:, 511:512]
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import libcst as cst

from nki_mlir.migration import terms
from nki_mlir.migration.conditional_expressions import ConditionalExpressions
from nki_mlir.migration.facts import ComputedPart, IndexFact, MaskFact, TensorFact
from nki_mlir.migration.names import nodes_of
from nki_mlir.migration.operation_text import OperationText
from nki_mlir.migration.views import Integer, Item, Part, masked


class NeedsUncutTiles(Exception):
    """Ends an attempt to rewrite a function that reads elements of a tile which its mask has left out: in the next one
    the tile keeps them."""


class UncutTiles(ConditionalExpressions):
    """The part of the rewriter for these tiles. ``callers`` has the functions that are being rewritten."""

    callers: Sequence[str] = ()

    def _view(self, owner: cst.BaseExpression, tensor: TensorFact, node: cst.Subscript) -> cst.BaseExpression:
        expression = super()._view(owner, tensor, node)
        view = self.views.get(id(expression))
        if view is not None and isinstance(owner, cst.Name) and tensor.shape is not None and not tensor.blocks:
            name = self.masked.same.get(owner.value, owner.value)
            cut = self.uncut_sizes(tensor.shape, self.masked.masks.get(name))
            for k, (item, size) in enumerate(zip(view.items, tensor.shape)):
                if k in cut and not _is_within(item, size):
                    self.masked.exceeded.setdefault(name, set()).add(k)
        return expression

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        """Let a tile whose shape the text reads, or reshapes, keep the shape that it has without masks."""
        expression = super().leave_Attribute(original_node, updated_node)
        owner = self.owners.get(id(expression))
        if original_node.attr.value in ("shape", "reshape") and isinstance(owner, cst.Name):
            self._keep_sources(owner.value)
            tensor, result = self.fact(owner), self.result(owner)
            if result is not None and result.mask is not None and result.fact.shape is not None:
                self._write_part(result, self.uncut_sizes(result.fact.shape, result.mask))
                return expression
            if isinstance(tensor, TensorFact) and tensor.shape is not None and not tensor.blocks:
                cut = self.uncut_sizes(tensor.shape, self.masked.masks.get(owner.value))
                if cut:
                    self.masked.exceeded.setdefault(owner.value, set()).update(cut)
        return expression

    def _keep_sources(self, name: str) -> None:
        """Let the tiles from which a tile without a mask is computed keep the shapes that they have without masks."""
        for source in self.masked.cut_sources.get(name, ()):
            tensor = self.scope.facts.get(source)
            if isinstance(tensor, TensorFact) and tensor.shape is not None and not tensor.blocks:
                cut = self.uncut_sizes(tensor.shape, self.masked.masks.get(source))
                if cut:
                    self.masked.exceeded.setdefault(source, set()).update(cut)

    def note_sources(self, name: str, value: cst.BaseExpression) -> None:
        """Note the tiles under masks from which a tile is computed, also through other tiles."""
        names = {n.value for n in nodes_of(cst.Expr(value), cst.Name)}
        direct = {n for n in names if self.masked.masks.get(n) is not None}
        self.masked.cut_sources[name] = direct.union(*(self.masked.cut_sources.get(n, ()) for n in names)) - {name}

    # -- tiles that an operation computes in part ----------------------------------------------------------------------
    def selection(self, result: OperationText) -> TensorFact:
        """Return the fact of a result, with the elements that the operation computes if they are not a complete
        tile."""
        mask, source = result.mask, result.selected
        if mask is not None and source is not None and _starts(source) and not _starts(mask):
            if [b.axis for b in mask.bounds] != [b.axis for b in source.bounds]:        # a transpose
                return replace(result.fact, selection=ComputedPart())
            mask = source
        if not (mask != result.mask or result.condition or result.part or (mask is not None and mask.selects_no_box)):
            return result.fact
        names = terms.names(result.condition or "0").union(*(terms.names(text) for text in _texts(mask)))
        return replace(result.fact, selection=ComputedPart(mask, result.condition, self._assignments(names),
                                                        self.callers[-1] if self.callers else ""))

    def selected_part(self, value: cst.BaseExpression) -> tuple[cst.BaseExpression, MaskFact | None, str]:
        """Return the part of a tile that an operation has computed, its mask and its condition. A copy of the tile is
        under both: in the beta generation the operation writes the destination itself."""
        tensor = self.fact(value)
        if not isinstance(tensor, TensorFact) or (selection := tensor.selection) is None:
            return value, None, ""
        names = {name for name, _ in selection.versions}
        is_same = self._assignments(names) == selection.versions
        if not selection.function or selection.function not in self.callers[-1:] or not is_same:
            self.reject("a copy of a tile that an operation wrote in part, under a mask or a condition: assign the "
                        "operation to the destination itself")
        return self.new(*masked(self.text(value), tensor, selection.mask)), selection.mask, selection.condition

    def _assignments(self, names: Iterable[str]) -> tuple[tuple[str, int], ...]:
        return tuple((name, self.scope.versions.get(name, 0)) for name in sorted(names))

    def note_write(self, name: str, selection: ComputedPart | None = None) -> None:
        """Note that a statement writes more elements of a tile; unknown ones if it is a call of a function."""
        first = self.masked.same.get(name, name)
        for other in [name, first, *(second for second, tile in self.masked.same.items() if tile == first)]:
            fact = self.scope.facts.get(other)
            if isinstance(fact, TensorFact) and fact.selection is not None:
                self.scope.facts[other] = replace(fact, selection=selection)

    def uncut_sizes(self, shape: Sequence[str], mask: MaskFact | None) -> dict[int, str]:
        """Return the sizes without masks of the dimensions that a mask has cut."""
        sizes = {0 if k == -rank else len(shape) + k: comparison.index.axes[k].extent
                 for comparison in (mask.comparisons if mask else ()) for rank in [len(comparison.index.axes)]
                 for k in comparison.varying if rank == len(shape) or (1 < rank < len(shape) and k == -rank)}
        sizes |= {k: self.extents[size] for k, size in enumerate(shape) if self.extents.get(size)}
        return {k: size for k, size in sizes.items() if size != shape[k]}

    def uncut_part(self, name: str, result: OperationText) -> None:
        """Let the tile of a name keep all elements of dimensions that subscripts name in part, or of which its mask
        selects one: an operation would repeat it. The operation writes the part that its mask selects, as in the beta
        generation."""
        self.masked.masks[name] = result.mask
        if result.fact.shape is None:
            return
        sizes, uncut = result.fact.shape, self.masked.uncut.get(name, ())
        self._write_part(result, {k: size for k, size in self.uncut_sizes(sizes, result.mask).items()
                                  if k in uncut or sizes[k] == "1"})

    @staticmethod
    def _write_part(result: OperationText, extents: Mapping[int, str]) -> None:
        """Let the tile of a result have this many elements along some dimensions; the operation writes a part of it."""
        sizes = list(result.fact.shape or ())
        if not extents:
            return
        items = result.part_items or (":",) * len(sizes)
        result.part_items = tuple(f"0:{size}" if k in extents and item == ":" else item
                                  for k, (item, size) in enumerate(zip(items, sizes)))
        result.fact = result.fact.like(tuple(extents.get(k, size) for k, size in enumerate(sizes)))
        result.shape = f"({', '.join(extents.get(k, size) for k, size in enumerate(sizes))})"


def _is_within(item: Item, size: str) -> bool:
    """Return whether an index into a dimension that a mask has cut to ``size`` elements stays within these elements."""
    match item:
        case Integer(text):
            return text == "0"
        case Part(text, part):
            return text == ":" or part == size
        case IndexFact(base):
            steps = [axis.step for axis in item.axes if axis.step != "0"]
            is_longer = any((terms.number(axis.extent) or 0) > (terms.number(size) or math.inf) for axis in item.axes)
            return base == "0" and not item.moved and steps in ([], ["1"]) and not is_longer
    return True


def _texts(mask: MaskFact | None) -> list[str]:
    """Return the texts in a mask."""
    if mask is None:
        return []
    indices = [c.index for c in (*mask.comparisons, *mask.diagonals, *mask.alternatives)]
    return [*mask.conditions, *(text for b in mask.bounds for text in (b.low or "0", b.high or "0")), *(
        text for index in indices for text in (index.base, *(axis.step for axis in index.axes)))]


def _starts(mask: MaskFact) -> bool:
    """Return whether a mask leaves out first elements."""
    return any(bound.low for bound in mask.bounds)

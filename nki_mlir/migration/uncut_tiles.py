# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles that keep all elements, although a mask selects a part of them: the text reads their shape, or other elements.

before:  t = nl.exp(x, mask=(i_f < n))      after:  t = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
         last = t[:, 511]                           nisa.activation(dst=t[:, 0:n], op=nl.exp, data=x[:, 0:n])
                                                    last = t[:, 511:512]
"""

import math
from collections.abc import Mapping, Sequence

import libcst as cst

from nki_mlir.migration import terms
from nki_mlir.migration.facts import IndexFact, MaskFact, TensorFact
from nki_mlir.migration.indices import Indices
from nki_mlir.migration.names import nodes_of
from nki_mlir.migration.operation_text import OperationText
from nki_mlir.migration.views import Integer, Item, Part


class UncutTiles(Indices):
    """Adds these tiles."""

    def _view(self, owner: cst.BaseExpression, tensor: TensorFact, node: cst.Subscript) -> cst.BaseExpression:
        expression = super()._view(owner, tensor, node)
        view = self.views.get(id(expression))
        if view is not None and isinstance(owner, cst.Name) and tensor.shape is not None and not tensor.blocks:
            name = self.same_tiles.get(owner.value, owner.value)
            cut = self._uncut_sizes(tensor.shape, self.masks.get(name))
            for k, (item, size) in enumerate(zip(view.items, tensor.shape)):
                if k in cut and not _is_within(item, size):
                    self.exceeded.setdefault(name, set()).add(k)
        return expression

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        """Let a tile whose shape the text reads, or reshapes, keep the shape that it has without masks."""
        expression = super().leave_Attribute(original_node, updated_node)
        owner = self.owners.get(id(expression))
        if original_node.attr.value in ("shape", "reshape") and isinstance(owner, cst.Name):
            self._keep_sources(owner.value)
            tensor, result = self.fact(owner), self.result(owner)
            if result is not None and result.mask is not None and result.fact.shape is not None:
                self._write_part(result, self._uncut_sizes(result.fact.shape, result.mask))
                return expression
            if isinstance(tensor, TensorFact) and tensor.shape is not None and not tensor.blocks:
                cut = self._uncut_sizes(tensor.shape, self.masks.get(owner.value))
                if cut:
                    self.exceeded.setdefault(owner.value, set()).update(cut)
        return expression

    def _keep_sources(self, name: str) -> None:
        """Let the tiles from which a tile without a mask is computed keep the shapes that they have without masks."""
        for source in self.cut_sources.get(name, ()):
            tensor = self.scope.facts.get(source)
            if isinstance(tensor, TensorFact) and tensor.shape is not None and not tensor.blocks:
                cut = self._uncut_sizes(tensor.shape, self.masks.get(source))
                if cut:
                    self.exceeded.setdefault(source, set()).update(cut)

    def note_sources(self, name: str, value: cst.BaseExpression) -> None:
        """Note the tiles under masks from which a tile is computed, also through other tiles."""
        names = {n.value for n in nodes_of(cst.Expr(value), cst.Name)}
        direct = {n for n in names if self.masks.get(n) is not None}
        self.cut_sources[name] = direct.union(*(self.cut_sources.get(n, ()) for n in names)) - {name}

    def _uncut_sizes(self, shape: Sequence[str], mask: MaskFact | None) -> dict[int, str]:
        """Return the sizes without masks of the dimensions that a mask has cut."""
        sizes = {len(shape) + k: comparison.index.axes[k].extent for comparison in (mask.comparisons if mask else ())
                 for k in comparison.varying if len(comparison.index.axes) == len(shape)}
        sizes |= {k: self.extents[size] for k, size in enumerate(shape) if self.extents.get(size)}
        return {k: size for k, size in sizes.items() if size != shape[k]}

    def uncut_part(self, name: str, result: OperationText) -> None:
        """Let the tile of a name keep all elements of dimensions that subscripts name in part, or of which its mask
        selects one: an operation would repeat it. The operation writes the part that its mask selects, as in the beta
        generation."""
        self.masks[name] = result.mask
        if result.fact.shape is None:
            return
        sizes, uncut = result.fact.shape, self.uncut.get(name, ())
        self._write_part(result, {k: size for k, size in self._uncut_sizes(sizes, result.mask).items()
                                  if k in uncut or sizes[k] == "1"})

    @staticmethod
    def _write_part(result: OperationText, extents: Mapping[int, str]) -> None:
        """Let the tile of a result have so many elements along some dimensions; the operation writes a part of it."""
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

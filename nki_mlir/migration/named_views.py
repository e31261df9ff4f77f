# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Replaces names of views by the views' subscripts where a mask restricts them:

    block = a[i * 128 + i_p, i_f]                      tile = nl.load(a[nl.ds(i * 128, num_rows), 0:512])
    tile = nl.load(block, mask=i * 128 + i_p < rows)

A view of the current generation lies within its tensor; index vectors may leave it where a mask excludes them.
"""

from collections.abc import Iterable

import libcst as cst

from nki_mlir.migration import terms
from nki_mlir.migration.facts import IndexFact, MaskFact, TensorFact, join
from nki_mlir.migration.guarded_windows import GuardedWindows
from nki_mlir.migration.views import NamedView, SubscriptText


class NamedViews(GuardedWindows):
    """Notes the views that names have."""

    def name_view(self, name: str, value: cst.BaseExpression, text: str) -> None:
        """Note the view of HBM that a name is assigned, or of a tile that index vectors may leave; ``text`` is the
        view's text. The assignment goes if nothing reads the name any more."""
        self.masked.masks.pop(name, None)
        self.masked.same.pop(name, None)
        if isinstance(value, cst.Name):
            self.masked.same[name] = self.masked.same.get(value.value, value.value)
        view = self.views.get(id(value))
        if view is None or not any(isinstance(item, IndexFact) for item in view.items) or (
                view.tensor.on_chip and lies_within(view)):
            return
        is_defined = name in self.values
        self.scope.views[name] = NamedView(view, self._versions(terms.names(text)) if is_defined else None)
        if is_defined:
            self.vectors.add(name)

    def has_views(self, values: cst.Tuple) -> bool:
        """Return whether a tuple has a view by index vectors."""
        return any(isinstance(e.value, cst.Subscript) and isinstance(e.value.value, cst.Name) and isinstance(
            self.scope.facts.get(e.value.value.value), TensorFact) and any(
            isinstance(self.scope.facts.get(name), IndexFact) for name in terms.names(self.code(e.value)))
            for e in values.elements)

    def _versions(self, names: Iterable[str]) -> dict[str, int]:
        return {name: self.scope.versions.get(name, 0) for name in names}

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        """Note the view of a name whose text still has the same meaning."""
        node = super().leave_Name(original_node, updated_node)
        named = self.scope.views.get(original_node.value)
        if named is not None and named.versions is not None and isinstance(self.fact(node), TensorFact) and (
                self._versions(named.versions) == named.versions):
            self.views[id(node)] = named.view
        return node

    def viewed(self, node: cst.CSTNode, mask: MaskFact | None = None) -> tuple[str, TensorFact]:
        """Return the text and the fact of an operand under a mask. A view is left for a person if its name is
        assigned several times, or if its subscript's names changed: without the mask it may leave the tensor. The mask
        cuts both values of a conditional expression."""
        if isinstance(node, cst.IfExp) and mask is not None and all(
                isinstance(self.fact(value), TensorFact) for value in (node.body, node.orelse)):
            (chosen, first), (other, second) = self.viewed(node.body, mask), self.viewed(node.orelse, mask)
            if isinstance(fact := join(first, second), TensorFact):
                shape = first.shape or second.shape
                if fact.shape is None and shape and shape[0] in self.scope.counts.values():     # the mask's rows
                    fact = fact.like((shape[0], *("?" for _ in shape[1:])))
                return f"{chosen} if {self.code(node.test)} else {other}", fact
        if isinstance(node, cst.Name) and mask is not None and mask.bounds and id(node) not in self.views and (
                node.value in self.scope.views and isinstance(self.fact(node), TensorFact)):
            self.reject(f"the view {node.value}, whose elements a mask selects later: subscript the tensor where it is "
                        "read or written")
        return super().viewed(node, mask)


def lies_within(view: SubscriptText) -> bool:
    """Return whether every index vector of a view certainly stays within its dimension; True without a proof for
    tensors with block dimensions."""
    if view.tensor.blocks:
        return True
    for item, size in zip(view.items, view.tensor.shape or ()):
        if isinstance(item, IndexFact):
            last = item.base
            for axis in item.axes:
                last = terms.add(last, terms.multiply(axis.step, terms.subtract(axis.extent, "1")))
            remaining = [terms.number(terms.simplified(terms.subtract(terms.subtract(size, "1"), end)))
                    for end in (item.base, last)]
            if any(n is None or n < 0 for n in (terms.number(item.base), *remaining)):
                return False
    return True

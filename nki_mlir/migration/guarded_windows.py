# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites reductions of windows that a mask keeps within a tile, such as a maximum over windows at each position:

    nl.max(t[i_p, i_y + i_dy], axis=[2],    padded = nl.full((128, 20 + 3 - 1), -math.inf, dtype=t.dtype, ...)
           mask=(i_y + i_dy < 20))          nisa.tensor_copy(dst=padded[:, 0:20], src=t)
                                            nl.max(padded.ap([[22, 128], [1, 20], [1, 3]]), axis=2)

Windows that leave the tile read the identity of the reduction from the padding, since masked elements do not count.
"""

from collections.abc import Iterable
from dataclasses import replace

from nki_mlir.migration import terms
from nki_mlir.migration.diagonals import IDENTITIES, Diagonals
from nki_mlir.migration.facts import SBUF, IndexFact, MaskBound, MaskFact, TensorFact
from nki_mlir.migration.views import SubscriptText

MIRRORED = {"greater": "less", "greater_equal": "less_equal"}
NAMES = {-1: "padded_columns", -2: "padded_rows"}          # of the sizes of a padded tile, by axes from the last
REDUCTIONS = {"nl.sum": "add", "nl.prod": "multiply", "nl.max": "maximum", "nl.min": "minimum"}


class GuardedWindows(Diagonals):
    """The part of the rewriter for padded tiles, and for bounds of indices whose steps are names."""

    def bounded(self, mask: MaskFact, views: Iterable[SubscriptText]) -> MaskFact:
        """Replace comparisons of an index in a mask by bounds, which need a positive step. A step that is a name is
        positive if one of the subscripts has an index with this step, since slices step forward."""
        steps = [(k - len(item.axes), axis.step) for view in views for item in view.items if isinstance(item, IndexFact)
                 for k, axis in enumerate(item.axes)]
        for comparison in mask.diagonals:
            forwards, operator = comparison.index, comparison.operator
            if operator in MIRRORED:
                forwards, operator = self.combined("subtract", IndexFact("0", ()), forwards), MIRRORED[operator]
            if operator not in ("less", "less_equal") or len(comparison.varying) != 1 or forwards.moved:
                continue
            axis, = comparison.varying
            extent, positive = forwards.axes[axis].extent, forwards.axes[axis].step
            step = next((text for k, text in steps if k == axis and terms.is_same_number(text, positive)), None)
            if step is None or terms.number(step) is not None or extent == "1":
                continue
            last = terms.subtract("1" if operator == "less_equal" else "0", f"({forwards.base})")
            upper = terms.simplified(last)
            rank = len(forwards.axes)
            count = self.count(terms.smallest(extent, f"-(-({upper}) // {terms.factor(step)})"), axis + rank,
                               extent=extent)
            bound = MaskFact((MaskBound(axis, "", count, rank),), (), (comparison,))
            other_terms = replace(mask, comparisons=tuple(c for c in mask.comparisons if c != comparison),
                           diagonals=tuple(c for c in mask.diagonals if c != comparison))
            mask = self.conjunction(other_terms, bound)
        return mask

    def padded(self, view: SubscriptText, mask: MaskFact, operator: str) -> tuple[SubscriptText, MaskFact] | None:
        """Return the subscript on a padded tile, and the rest of the mask that the padding does not replace. Return
        None for other masks."""
        sizes, items = view.tensor.shape, view.items
        if operator not in IDENTITIES or view.tensor.memory != SBUF or view.tensor.blocks or sizes is None or (
                "?" in sizes or len(items) != len(sizes)):
            return None
        if mask.alternatives:
            return None
        wide, filled = list(sizes), [":"] * len(sizes)
        for comparison in mask.diagonals:
            guarded = [(k, item) for k, item in enumerate(items) if k and isinstance(item, IndexFact)
                       and item.axes == comparison.index.axes
                       and terms.difference(item.base, comparison.index.base) == sizes[k]]
            if comparison.operator != "less" or len(guarded) != 1:
                return None
            (k, item), = guarded
            if any((terms.number(axis.step) or 0) < 0 for axis in item.axes):
                return None
            wide[k] = self._size_of_windows(item, sizes[k])
            if not terms.SIMPLE.match(wide[k]) and "max(" in wide[k]:
                wide[k] = self.named(wide[k], NAMES.get(k - len(sizes), "padded_size"))
            filled[k] = f"0:{sizes[k]}"
        name, dtype = self.fresh_name("padded"), view.tensor.dtype or f"{view.text}.dtype"
        dtype = dtype.replace("nl.", f"{self.nl}.", 1) if dtype.startswith("nl.") else dtype
        self.prelude[-1] += [
            f"{name} = {self.nl}.full({self.tuple_text(tuple(wide))}, {IDENTITIES[operator]}, dtype={dtype}, "
            f"buffer={self.nl}.sbuf)",
            f"{self.nisa}.tensor_copy(dst={name}[{', '.join(filled)}], src={view.text})"]
        self.report.changed(self.line, "the tile is padded, because windows that the mask restricts leave it")
        tile = TensorFact(SBUF, tuple(wide), view.tensor.dtype, base=True)
        return SubscriptText(name, tile, items, view.counts), replace(mask, diagonals=())

    @staticmethod
    def _size_of_windows(index: IndexFact, size: str) -> str:
        """Return the number of elements up to the last one that the windows of an index may read, at least ``size``. A
        step that is a name is positive, because all windows begin within the tile."""
        are_numbers = all(terms.number(axis.step) is not None for axis in index.axes)
        count, constant = index.base, 1
        for axis in index.axes:
            if axis.step == "1" and not are_numbers:
                count, constant = terms.add(count, axis.extent), constant - 1
            else:
                count = terms.add(count, terms.multiply(terms.subtract(axis.extent, "1"), axis.step))
        count = terms.add(count, str(constant))
        count = terms.simplified(count) if are_numbers else count
        covers = index.base == "0" and any(axis.step == "1" and axis.extent == size for axis in index.axes)
        return count if covers else terms.largest(size, count)

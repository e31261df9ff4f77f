# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites arithmetic of index vectors, masks from comparisons of these vectors, and comprehensions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import libcst as cst

from nki_mlir.language.python_subset import COMPREHENSION, DICTIONARY, FORMAT, GENERATOR, PARSER
from nki_mlir.migration import terms
from nki_mlir.migration.expressions import Expressions, LeftForAPerson
from nki_mlir.migration.facts import (
    Axis,
    Comparison,
    Fact,
    IndexFact,
    Items,
    Many,
    MaskBound,
    MaskFact,
    NoneFact,
    NumberFact,
    SelectedVector,
    ShapeOf,
    TensorFact,
    TileObject,
    Unknown,
    join,
)
from nki_mlir.migration.names import Names, Substitution
from nki_mlir.migration.operation_text import OperationText
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.reversed_axes import forwards, reverses_rows
from nki_mlir.migration.selected_counts import expanded, may_be_none, smallest
from nki_mlir.migration.selected_vectors import SELECTED
from nki_mlir.migration.views import SubscriptText, extents_of, render

Comprehension = cst.ListComp | cst.DictComp | cst.GeneratorExp
FORMS = {cst.ListComp: (COMPREHENSION, "[", "]"), cst.DictComp: (DICTIONARY, "{", "}"),
         cst.GeneratorExp: (GENERATOR, "(", ")")}
SYMBOLS = {"less": "<", "less_equal": "<=", "equal": "==", "not_equal": "!="}
INVERSES = {"less": "greater_equal", "less_equal": "greater", "greater": "less_equal", "greater_equal": "less",
            "equal": "not_equal", "not_equal": "equal"}


@dataclass
class MaskedTiles:
    """The tiles under masks of a function, in one attempt to rewrite it, by the name of a tile.

    ``masks``: the mask under which a tile is computed; ``cut_sources``: the tiles cut by masks from which it is
    computed; ``same``: the first name of a tile by its second name; ``uncut``: the dims that masks do not cut;
    ``exceeded``: the dims that they must not cut in the next attempt.
    """

    uncut: dict[str, set[int]] = field(default_factory=dict)
    exceeded: dict[str, set[int]] = field(default_factory=dict)
    masks: dict[str, MaskFact | None] = field(default_factory=dict)
    cut_sources: dict[str, set[str]] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)


class Indices(Expressions):
    """The part of the rewriter for indices, masks and comprehensions."""

    def __init__(self, names: Names, report: MigrationReport) -> None:
        super().__init__(names, report)
        self.extents: dict[str, str] = {}                           # count -> extent of its axis
        self.list_names: dict[int, str] = {}                        # comprehension -> parameter of a call
        self.masked = MaskedTiles()                                 # tiles of the function that is being rewritten

    # -- index arithmetic and masks ------------------------------------------------------------------------------------
    def combined(self, operator: str, left: IndexFact, right: IndexFact) -> IndexFact:
        """Return left + right or left - right."""
        sign = "1" if operator == "add" else "-1"
        rank = max(len(left.axes), len(right.axes))
        pad = [[Axis("1", "0")] * (rank - len(i.axes)) + list(i.axes) for i in (left, right)]
        axes = []
        for a, b in zip(*pad):
            if (a.extent == "1") != (b.extent == "1"):          # the one repeats its only number
                a, b = (Axis(i.extent, "0") if i.extent == "1" else i for i in (a, b))
            step = terms.add(a.step, terms.multiply(sign, b.step)) if sign == "1" else terms.subtract(a.step, b.step)
            axes.append(Axis(b.extent if a.extent == "1" else a.extent, step))
        base = (terms.add if sign == "1" else terms.subtract)(left.base, right.base)
        if right.moved and (left.moved or sign != "1"):
            raise LeftForAPerson("an index minus a tile, or plus several tiles")
        return IndexFact(base, tuple(axes), left.moved or right.moved)

    def as_index(self, node: cst.BaseExpression) -> IndexFact:
        """Return a value as an index; a number of the host is an index without axes."""
        fact = self.fact(node)
        if isinstance(fact, SelectedVector):
            self.reject(SELECTED)
        return fact if isinstance(fact, IndexFact) else IndexFact(self.text(node), ())

    def compared(self, operator: str, left: cst.BaseExpression, right: cst.BaseExpression) -> MaskFact:
        """Return the mask of a comparison of indices."""
        return self.compared_indices(operator, self.as_index(left), self.as_index(right))

    def compared_indices(self, operator: str, first: IndexFact, second: IndexFact) -> MaskFact:
        """Return the mask of a comparison of two indices."""
        if first.moved or second.moved:
            raise LeftForAPerson("a mask by an index to which a tile is added")
        if operator in ("greater", "greater_equal"):
            first, second = second, first
            operator = {"greater": "less", "greater_equal": "less_equal"}[operator]
            swapped = True
        else:
            swapped = False
        space = self.combined("subtract", first, second)            # < 0, or <= 0
        varying = [k for k, a in enumerate(space.axes) if a.step != "0"]
        written = {"less": "greater", "less_equal": "greater_equal"}.get(operator, operator) if swapped else operator
        plain = Comparison(self.combined("subtract", second, first) if swapped else space, written)
        if not varying:                     # all elements or none
            return MaskFact((), (f"{first.base} {SYMBOLS[operator]} {second.base}",), (plain,))
        value = terms.number(space.axes[varying[0]].step) if len(varying) == 1 else None
        if value is None or operator not in ("less", "less_equal"):
            return MaskFact((), (), (plain,), (plain,))
        axis, rank = varying[0], len(space.axes)
        step, extent = space.axes[axis].step, space.axes[axis].extent
        if extent == "1":                   # all elements or none
            return MaskFact((), (f"{first.base} {'<' if operator == 'less' else '<='} {second.base}",), (plain,))
        upper = terms.subtract(second.base, first.base)
        if operator == "less_equal":
            upper = terms.add(upper, "1")
        if value > 0:
            most = upper if value == 1 else f"-(-({upper}) // {step})"
            count = self.count(terms.smallest(extent, most), axis, extent=extent)
            conditions = (f"{count} > 0",) if self._may_be_empty(most) else ()
            return MaskFact((self.bound(axis, rank, "", count, extent),), conditions, (plain,))
        least = terms.subtract("0", terms.subtract(upper, "1")) if value == -1 else f"-(({upper} - 1) // {-value})"
        start = self.count(terms.largest("0", terms.subtract(terms.add(first.base, "1" if operator == "less" else "0"),
                                                             second.base) if value == -1 else least), axis, "start")
        low = "" if start == "0" else start
        return MaskFact((self.bound(axis, rank, low, terms.subtract(extent, start), extent),), (), (plain,))

    def bound(self, axis: int, rank: int, low: str, count: str, extent: str) -> MaskBound:
        """Return the bound of an axis of ``extent`` elements."""
        text = expanded(count, {name: text for text, name in self.scope.counts.items()})
        is_empty = may_be_none(text, self.loop_starts, self.loop_stops, self.program_names)
        return MaskBound(axis - rank, low, count, rank, extent if is_empty else "")

    def _may_be_empty(self, bound: str) -> bool:
        """Return whether loops over tiles may have more iterations than there are tiles: a loop with one more if the
        tiles divide the dimension, or two loops, of which the inner one goes through blocks of tiles."""
        loops = terms.names(bound) & self.loop_starts.keys()
        return len(loops) > 1 or any(terms.is_one_more(self.loop_stops.get(name, "")) for name in loops)

    def count(self, text: str, axis: int, hint: str = "", extent: str = "") -> str:
        """Return a name for the number of elements that a mask selects from an axis of ``extent``; a statement before
        assigns it."""
        if terms.SIMPLE.match(text) or terms.number(text) is not None:
            return text
        if text in self.scope.counts:
            return self.scope.counts[text]
        kind = "rows" if axis == 0 else "columns"
        hint = hint or (f"num_{kind}" if f"num_{kind}" not in self.scope.used_names else f"tile_{kind}")
        name = self.fresh_name(hint)
        self.extents[name] = extent
        self.prelude[-1].append(f"{name} = {text}")
        self.scope.counts[text] = name
        self.vectors.add(name)
        self.scope.facts[name] = NumberFact("int")
        self.report.changed(self.line, f"the mask becomes the number of elements that it selects, {name}")
        return name

    def conjunction(self, left: MaskFact, right: MaskFact) -> MaskFact:
        """Return the mask that selects the elements that both masks select. Two upper bounds of one axis become one."""
        bounds = list(left.bounds)
        for bound in right.bounds:
            same_axis = next((b for b in bounds if b.axis == bound.axis), None)
            if same_axis is None:
                bounds.append(bound)
            elif same_axis != bound:
                axis = bound.rank + bound.axis
                low = same_axis.low or bound.low
                if same_axis.low and bound.low:
                    low = self.count(terms.largest(same_axis.low, bound.low), axis, "start")
                ends = _end(same_axis), _end(bound)
                extent = self.extents.get(same_axis.high, "") or self.extents.get(bound.high, "") or next((
                    c.index.axes[axis].extent for c in (*left.comparisons, *right.comparisons)
                    if len(c.index.axes) == bound.rank and c.varying == [bound.axis]), "")
                last = smallest(*ends, self.scope.counts)
                count = self.count(terms.subtract(last, low or "0"), axis, extent=extent)
                bounds[bounds.index(same_axis)] = self.bound(axis, bound.rank, low, count, extent)
        is_known = left.is_known and right.is_known and not left.alternatives and not right.alternatives
        return MaskFact(tuple(bounds), (*left.conditions, *right.conditions), (*left.comparisons, *right.comparisons),
                        (*left.diagonals, *right.diagonals), is_known, left.is_selected or right.is_selected)

    def inverse(self, mask: MaskFact) -> MaskFact:
        """Return the mask of the elements that a mask does not select."""
        if not mask.is_known or mask.is_selected or mask.conditions or mask.alternatives or not mask.comparisons:
            return MaskFact((), is_known=False)
        comparison, *more_comparisons = mask.comparisons
        if more_comparisons:
            return MaskFact((), is_known=False)
        return self.mask_of(INVERSES[comparison.operator], comparison.index)

    def mask_of(self, operator: str, index: IndexFact) -> MaskFact:
        """Return the mask of a comparison of an index with 0."""
        number = IndexFact(terms.simplified(terms.subtract("0", f"({index.base})")), ())
        return self.compared_indices(operator, replace(index, base="0"), number)

    def _with_view(self, view: SubscriptText, node: cst.Subscript) -> cst.BaseExpression:
        """Return a view. One of HBM that steps backwards has no text: loads and stores read its items, other operations
        leave it."""
        flipped = forwards(view, None)
        if flipped is None and not reverses_rows(view, None):
            return super()._with_view(view, node)
        fact = view.tensor.like(tuple(extents_of(view.items))) if flipped is None else render(flipped[0])[1]

        def refuse(dst: str, target: TensorFact) -> list[str]:
            self.reject("an index that steps backwards")
        expression = self.deferred(OperationText(fact, "", refuse, "()", self.code(node)))
        self.views[id(expression)] = view
        return expression

    # -- nests of loops ------------------------------------------------------------------------------------------------
    def visit_ListComp(self, node: cst.ListComp) -> bool:
        """Bind the variable before the element is rewritten."""
        return False

    def visit_DictComp(self, node: cst.DictComp) -> bool:
        """Bind the variable before the element is rewritten."""
        return False

    def visit_GeneratorExp(self, node: cst.GeneratorExp) -> bool:
        """Bind the variable before the element is rewritten."""
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        """Skip lambdas: functions of the host stay."""
        return False

    def leave_FormattedStringExpression(self, original_node: cst.FormattedStringExpression,
                                        updated_node: cst.FormattedStringExpression) -> cst.FormattedStringExpression:
        """Write the value alone: the vendor's parser has no formats."""
        if updated_node.format_spec is None:
            return updated_node
        self.report.changed(self.line, f"{FORMAT.construct} is left out: {PARSER} refuses it")
        return updated_node.with_changes(format_spec=None)

    def visit_BooleanOperation(self, node: cst.BooleanOperation) -> None:
        """Rewrite the second operand without statements in front, because Python may not evaluate it."""
        self.inline += 1

    def leave_BooleanOperation(self, original_node: cst.BooleanOperation, updated_node: cst.BooleanOperation
                               ) -> cst.BaseExpression:
        """Leave the operation unchanged: ``scale or 1.0`` is a number."""
        self.inline -= 1
        facts = self.fact(updated_node.left), self.fact(updated_node.right)
        if all(isinstance(fact, NumberFact | NoneFact) for fact in facts):
            return self.with_fact(updated_node.with_changes(), join(*facts))
        return updated_node

    def visit_Arg(self, node: cst.Arg) -> None:
        """Name the list that replaces a comprehension after the parameter that gets it."""
        if node.keyword is not None and isinstance(node.value, Comprehension):
            self.list_names[id(node.value)] = node.keyword.value
            self.nodes.append(node)

    def leave_ListComp(self, original_node: cst.ListComp, updated_node: cst.ListComp) -> cst.BaseExpression:
        """Rewrite a list comprehension as a loop before the statement."""
        return self._comprehension(original_node)

    def leave_DictComp(self, original_node: cst.DictComp, updated_node: cst.DictComp) -> cst.BaseExpression:
        """Rewrite a dictionary comprehension as a loop before the statement."""
        return self._comprehension(original_node)

    def leave_GeneratorExp(self, original_node: cst.GeneratorExp, updated_node: cst.GeneratorExp
                           ) -> cst.BaseExpression:
        """Rewrite a generator expression as a list comprehension: its user reads all elements at once."""
        return self._comprehension(original_node)

    def _comprehension(self, node: Comprehension) -> cst.BaseExpression:
        target, self.target = self.target, ""
        name = target or self.fresh_name(self.list_names.get(id(node), "parts"))
        before = dict(self.scope.facts)
        shadowed = {n for loop in loops_of(node) for n in terms.names(self.code(loop.target)) if n in before}
        if shadowed:                            # a loop, other than a comprehension, would change them
            renamed = node.visit(Substitution({n: cst.Name(self.fresh_name(n)) for n in sorted(shadowed)}))
            assert isinstance(renamed, Comprehension)
            node = renamed
        headers, conditions, names = [], list[str](), set[str]()
        for loop in loops_of(node):
            self.prelude.append([])
            iterated = self.rewritten(loop.iter)
            headers.append(f"for {self.code(loop.target)} in {self.text(iterated)}")
            self.bind_target(loop.target, self.element(self.fact(iterated)))
            conditions.append(" and ".join(self.text(self.rewritten(c.test)) for c in loop.ifs))
            names |= terms.names(self.code(loop.target))
            if (statements := self.prelude.pop()) and len(headers) > 1:
                self.reject("a comprehension whose inner loop takes instructions")
            self.prelude[-1] += statements
        self.prelude.append([])
        is_dictionary = isinstance(node, cst.DictComp)
        key = self.text(self.rewritten(node.key)) if isinstance(node, cst.DictComp) else ""
        element = self.rewritten(node.value if isinstance(node, cst.DictComp) else node.elt)
        fact = self.fact(element)
        if isinstance(fact, TensorFact):
            fact = outside(fact, names)
        text = self.text(element)
        statements = self.prelude.pop()
        self.scope.facts, self.target = before, target
        rule, opening, closing = next(form for kind, form in FORMS.items() if isinstance(node, kind))
        if self.inline and not statements:
            self.report_refused_python(rule)
            parts = [f"{head} if {condition}" if condition else head for head, condition in zip(headers, conditions)]
            item = f"{key}: {text}" if is_dictionary else text
            return self.new(f"{opening}{item} {' '.join(parts)}{closing}", Many(fact, is_dictionary))
        if self.inline:
            self.reject("a comprehension of kernel operations in a condition or a lambda")
        added = f"{name}[{key}] = {text}" if is_dictionary else f"{name}.append({text})"
        lines = [line for s in [*statements, added] for line in s.splitlines()]
        for head, condition in zip(reversed(headers), reversed(conditions)):
            for opening in [f"if {condition}:"] * bool(condition) + [f"{head}:"]:
                lines = [opening, *("    " + line for line in lines)]
        self.prelude[-1] += [f"{name} = {'{}' if is_dictionary else '[]'}", "\n".join(lines)]
        self.report.changed(self.line, "the comprehension becomes a loop, because kernels have no comprehensions")
        return self.new(name, Many(fact, is_dictionary))

    def element(self, fact: Fact) -> Fact:
        """Return the facts about an element that an iteration over a value yields."""
        if isinstance(fact, Many):
            return Fact() if fact.is_dictionary else fact.element
        if isinstance(fact, Items) and fact.items:
            first = fact.items[0]
            if all(type(f) is type(first) for f in fact.items) and isinstance(first, TensorFact):
                shapes = {f.shape for f in fact.items if isinstance(f, TensorFact)}
                memories = {f.memory for f in fact.items if isinstance(f, TensorFact)}
                if len(memories) == 1:
                    return TensorFact(first.memory, first.shape if len(shapes) == 1 else None)
            # of pairs: the facts about each part that hold in all of them
            if all(isinstance(f, Items) for f in fact.items):
                return reduce(join, fact.items)
            return first if all(f == first for f in fact.items) else Unknown()
        return Fact()

    def bind_target(self, target: cst.BaseExpression, fact: Fact) -> None:
        """Bind the names of an assignment's target to the parts of a value."""
        if isinstance(target, cst.Name):
            self.bind(target.value, self.without_loop_sizes(fact) if isinstance(fact, TensorFact) else fact)
        elif isinstance(target, cst.Attribute) and isinstance(target.value, cst.Name) and isinstance(
                self.scope.facts.get(target.value.value), TileObject):
            text = self.code(target)
            self.bind(text, self.received(text, fact))
        elif isinstance(target, (cst.Tuple, cst.List)):
            parts: Sequence[Fact]
            count = len(target.elements)
            star = next((k for k, e in enumerate(target.elements) if isinstance(e, cst.StarredElement)), None)
            if isinstance(fact, Items) and star is not None and len(fact.items) >= count - 1:
                end = len(fact.items) - (count - 1 - star)
                parts = *fact.items[:star], Items(fact.items[star:end]), *fact.items[end:]
                star = None
            elif isinstance(fact, Items) and len(fact.items) == count:
                parts = fact.items
            elif isinstance(fact, (Many, Items)):
                parts = [self.element(fact)] * count
            elif isinstance(fact, ShapeOf):
                parts = [NumberFact("int")] * count
            else:
                parts = [fact if isinstance(fact, Unknown) else Fact()] * count
            for k, (element, part) in enumerate(zip(target.elements, parts)):
                self.bind_target(element.value, Many(part) if k == star else part)


def any_of(facts: Sequence[Fact]) -> MaskFact:
    """Return the mask of the elements that one of two comparisons selects. The beta generation has no other ``|``."""
    alternatives: list[Comparison] = []
    for mask in facts:
        if not isinstance(mask, MaskFact) or mask.is_selected or len(mask.comparisons) != 1 or (
                mask.conditions and (mask.bounds or mask.diagonals)):       # more than a comparison of one element
            return MaskFact((), is_known=False)
        alternatives += mask.comparisons
    return MaskFact((), alternatives=tuple(alternatives))


def loops_of(node: Comprehension) -> Iterator[cst.CompFor]:
    """Return the loops of a comprehension, the outermost first."""
    loop: cst.CompFor | None = node.for_in
    while loop is not None:
        yield loop
        loop = loop.inner_for_in


def _end(bound: MaskBound) -> str:
    """Return the number of the element after the last that a bound selects."""
    return terms.simplified(terms.add(bound.low, bound.high)) if bound.low else bound.high


def outside(tensor: TensorFact, variables: set[str]) -> TensorFact:
    """Return the fact about a comprehension's element, without the variables of the comprehension."""
    def depends(text: str) -> bool:
        return text.strip() not in ("", "?") and not variables.isdisjoint(terms.names(text))
    shape = tensor.shape and tuple("?" if depends(extent) else extent for extent in tensor.shape)
    return replace(tensor, shape=shape, dtype="" if depends(tensor.dtype) else tensor.dtype)

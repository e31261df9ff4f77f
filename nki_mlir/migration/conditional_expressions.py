# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites conditional expressions of tiles, index vectors and masks.

    t = nl.load(x[p, f], mask=p < n) if d > 16 else zeros       if d > 16:
                                                                    num_rows = min(128, n)
                                                                    t = nl.load(x[0:num_rows, :])
                                                                else:
                                                                    t = zeros

Only one of the values is computed, so that a count of elements that one of them needs is unknown in the other one.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import libcst as cst

from nki_mlir.migration.facts import (
    BufferFact,
    ComputedPart,
    Dtype,
    Fact,
    IndexFact,
    Items,
    MaskFact,
    NumberFact,
    TensorFact,
    depends_on_index,
    join,
)
from nki_mlir.migration.indices import Indices
from nki_mlir.migration.operation_text import OperationText
from nki_mlir.migration.selected_counts import expanded
from nki_mlir.migration.selected_vectors import (
    SELECTED,
    NotSelectable,
    Selections,
    assigned_names,
    conditional,
    selected,
)


def with_equal_sizes(first: Fact, second: Fact, counts: Collection[str]) -> tuple[Fact, Fact]:
    """Return the facts about two tiles, of which a mask has cut one to a number among ``counts``, with the sizes of the
    uncut one. Operations that read the tile under this mask read the same part of both."""
    if not (isinstance(first, TensorFact) and isinstance(second, TensorFact)
            and first.shape and second.shape and len(first.shape) == len(second.shape)):
        return first, second
    pairs = [(y, y) if x in counts and y != "1" else (x, x) if y in counts and x != "1" else (x, y)
             for x, y in zip(first.shape, second.shape)]
    return (replace(first, shape=tuple(x for x, _ in pairs)), replace(second, shape=tuple(y for _, y in pairs)))


class ConditionalExpressions(Indices):
    """The part of the rewriter for conditional expressions."""

    def selection(self, result: OperationText) -> TensorFact:
        """Return the fact of a result, with the elements that the operation computes; a subclass knows them."""
        return result.fact

    def visit_IfExp(self, node: cst.IfExp) -> bool:
        """Rewrite the parts one by one: statements that a part needs in front are executed under the condition."""
        return False

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        """Rewrite a conditional expression, as an ``if`` before the statement if one value needs statements."""
        test, parts, facts = self.rewritten(original_node.test), [], []
        counts, cut = self.scope.counts, set[str]()
        for value in (original_node.body, original_node.orelse):
            self.scope.counts = dict(counts)            # the other part does not assign the counts of this one
            self.prelude.append([])
            part = self.rewritten(value)
            result = self.result(part)
            facts.append(self.fact(part) if result is None else self.selection(result))
            if result is not None and (result.condition or result.part or not result.expression):
                text = ""
            else:
                text = self.text(part) if isinstance(facts[-1], TensorFact) else self.code(part)
            parts.append((part, text, self.prelude.pop()))
            cut |= {*self.scope.counts.values()}
        self.scope.counts = counts
        first, second = facts
        fact = join(*with_equal_sizes(first, second, cut)) if (
            isinstance(first, TensorFact) and isinstance(second, TensorFact)) else (
            first if first == second or isinstance(first, TensorFact) else second)
        if isinstance(fact, TensorFact) and not (isinstance(first, TensorFact) and isinstance(second, TensorFact)):
            fact = replace(fact, selection=fact.selection and ComputedPart())
        if isinstance(first, Dtype | BufferFact) and first != second:
            fact = Fact()
        if isinstance(fact, BufferFact) and parts[0][1] == parts[1][1]:         # both have been at addresses
            return parts[0][0]
        if first != second and (depends_on_index(first) or depends_on_index(second)):
            if (chosen_value := self._for_default(original_node)) is not None:
                return self.rewritten(chosen_value)
            return self._selected_vector(original_node, test, parts)
        if first != second and isinstance(fact, IndexFact):
            chosen = f"({parts[0][1]} if {self.text(test)} else {parts[1][1]})"
            fact = IndexFact(chosen, ()) if all(text for _, text, _ in parts) else Fact()
        if not any(statements or not text for _, text, statements in parts):
            changed = original_node.with_changes(test=test, body=parts[0][0], orelse=parts[1][0])
            return self.with_fact(changed, fact)
        name = self.target or self.fresh_name("chosen")
        branches = []
        for part, text, statements in parts:
            self.prelude.append(statements)
            result = self.result(part)
            assigned = [f"{name} = {text}"] * (text != name) if text or result is None else [
                self.without_marks(written) for written in self.allocated(name, result)]
            branches.append("".join(f"    {line}\n" for statement in (*self.prelude.pop(), *assigned)
                                    for line in statement.split("\n")))
        self.prelude[-1].append(f"if {self.text(test)}:\n{branches[0]}else:\n{branches[1].rstrip()}")
        self.report.changed(self.line, "the conditional expression becomes an if: its values take several instructions")
        return self.new(name, fact)

    def _for_default(self, node: cst.IfExp) -> cst.BaseExpression | None:
        """Return the value that ``p is None`` selects for a parameter that no call passes, where nothing has assigned
        it; None if the node has another test."""
        match node.test:
            case cst.Comparison(left=cst.Name(value=name), comparisons=[cst.ComparisonTarget(
                    operator=cst.Is() | cst.IsNot() as operator, comparator=cst.Name(value="None"))]) if (
                        name in self.scope.absent and name not in self.scope.versions and self.scope.repeats < 2):
                return node.body if isinstance(operator, cst.Is) else node.orelse
        return None

    def _selected_vector(self, node: cst.IfExp, test: cst.BaseExpression,
                         parts: Sequence[tuple[cst.BaseExpression, str, list[str]]]) -> cst.BaseExpression:
        """Return a conditional expression whose value is one of two index vectors or masks. Statements in front assign
        the numbers in which these differ."""
        assigned = [assigned_names(statements) for _, _, statements in parts]
        facts = [self.fact(part) for part, _, _ in parts]
        if any(names is None for names in assigned) or self.inline:
            self.reject(SELECTED)
        if not any(isinstance(fact, MaskFact | Items) for fact in facts):
            facts = [self.as_index(part) for part, _, _ in parts]
        first, second = ({**names} for names in assigned if names is not None)
        selections, texts = Selections(self.fresh_name, first, second), {**first, **second}

        def select(hint: str, text_if_true: str, text_if_false: str) -> str:
            """Return the text of a number, which is the first one if both parts compute the same number."""
            if expanded(text_if_true, texts) == expanded(text_if_false, texts):
                return text_if_true
            return selections.select(hint, text_if_true, text_if_false)
        try:
            fact = selected(facts[0], facts[1], select)
        except NotSelectable:
            self.reject(SELECTED)
        names = dict.fromkeys([*selections.statements[0], *selections.statements[1]])
        self.prelude[-1] += [f"{n} = {text}" for values in (first, second) for n, text in values.items()
                             if n not in names]
        condition = self.text(test)
        for name in names:
            values = [side.get(name) or before[name] for side, before in zip(selections.statements, (first, second))]
            self.prelude[-1].append(f"{name} = {conditional(condition, *values)}")
        self.vectors |= {*names}
        self.scope.facts |= dict.fromkeys(names, NumberFact())
        self.scope.counts |= {text: n for values in (second, first) for n, text in values.items()
                              if n in self.extents and n not in names}
        return self.with_fact(node.with_changes(), fact)

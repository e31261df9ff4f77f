# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites imports in functions, and branches, after which a value has the fact that holds whichever branch ran."""

import ast
from collections.abc import Collection, Mapping
from functools import reduce

import libcst as cst

from nki_mlir.migration.conditional_expressions import with_equal_sizes
from nki_mlir.migration.facts import Fact, NumberFact, Unknown, join
from nki_mlir.migration.names import parsed
from nki_mlir.migration.run_time_loops import RunTimeLoops
from nki_mlir.migration.selected_vectors import Selections, selected_names, with_assignments


def join_facts(first: Mapping[str, Fact], second: Mapping[str, Fact], counts: Collection[str] = ()) -> dict[str, Fact]:
    """Return the facts after one of two branches. A name that only one of them binds has the fact of that branch."""
    return {**first, **second,
            **{n: join(*with_equal_sizes(first[n], second[n], counts)) for n in first if n in second}}


def pattern_names(pattern: cst.MatchPattern) -> set[str]:
    """Return the names that a pattern of ``match`` binds."""
    code = cst.Module([]).code_for_node(pattern)
    nodes = ast.walk(ast.parse(f"match x:\n case {code}:\n  pass"))
    names = [getattr(n, field, None) for n in nodes for field in ("name", "rest")]
    return {name for name in names if isinstance(name, str)}


class Branches(RunTimeLoops):
    """The part of the rewriter for ``if``, ``try`` and ``match``, and for imports of the beta generation."""

    selected_numbers: set[str] = set()          # names of numbers in which the index vectors of branches differ

    def statement(self, node: cst.BaseStatement) -> list[cst.BaseStatement]:
        """Return the statements that replace one statement."""
        match node:
            case cst.If():
                return self.asserted(node) or [self._if(node)]
            case cst.Try() | cst.TryStar():
                return [self._rewrite_try(node)]
            case cst.Match():
                return [self._match(node)]
        return super().statement(node)

    def small(self, node: cst.BaseSmallStatement) -> list[str] | None:
        """Return the statements that replace a small statement; none for an import that the module gets instead."""
        if isinstance(node, cst.Import) and self.names.are_packages(
                (item.evaluated_name, item.evaluated_alias) for item in node.names):
            self.report.changed(self.line, "the import becomes one of the module")
            return []
        return super().small(node)

    def _if(self, node: cst.If) -> cst.If:
        test = self.settled_node(self.rewritten(node.test))
        before, counts = dict(self.scope.facts), dict(self.scope.counts)
        outer, self.selected_numbers = self.selected_numbers, set()
        body = self.suite(node.body)
        cut = {*self.scope.counts.values()}
        assigned = (cut - {*counts.values()}) | self.selected_numbers
        facts_if_true, self.scope.facts, self.scope.counts = self.scope.facts, dict(before), dict(counts)
        self.selected_numbers = set()
        orelse = node.orelse
        orelse = self._if(orelse) if isinstance(orelse, cst.If) else self.last_part(orelse)
        cut_if_false = {*self.scope.counts.values()}
        assigned_if_false = (cut_if_false - {*counts.values()}) | self.selected_numbers
        selections = Selections(self.fresh_name, assigned, assigned_if_false)
        facts = selected_names(facts_if_true, self.scope.facts, selections.select)
        self.scope.facts = join_facts({**facts_if_true, **facts}, {**self.scope.facts, **facts}, cut | cut_if_false)
        self.scope.counts = counts
        statements = [[s for n, text in side.items() for s in parsed(f"{n} = {text}")]
                      for side in selections.statements]
        names = {*selections.statements[0], *selections.statements[1]}
        self.vectors |= names
        self.scope.facts |= dict.fromkeys(names, NumberFact())
        self.selected_numbers = outer | names
        return with_assignments(node.with_changes(test=test, body=body, orelse=orelse), *statements)

    def _branch(self, body: cst.BaseSuite, before: Mapping[str, Fact], results: list[dict[str, Fact]]) -> cst.BaseSuite:
        """Rewrite one of several bodies; append the facts after it to ``results``."""
        counts, self.scope.facts = dict(self.scope.counts), dict(before)
        suite = self.suite(body)
        results.append(self.scope.facts)
        self.scope.counts = counts
        return suite

    def _rewrite_try(self, node: cst.Try | cst.TryStar) -> cst.Try | cst.TryStar:
        before = dict(self.scope.facts)
        self.tries += 1
        body = self.suite(node.body)
        self.tries -= 1
        handled: list[dict[str, Fact]] = []
        orelse = self.last_part(node.orelse)
        after = self.scope.facts
        handlers = [h.with_changes(body=self._branch(h.body, join_facts(before, after), handled))
                    for h in node.handlers]
        self.scope.facts = reduce(join_facts, handled, after)
        return node.with_changes(body=body, handlers=handlers, orelse=orelse, finalbody=self.last_part(node.finalbody))

    def _match(self, node: cst.Match) -> cst.Match:
        """Rewrite the bodies of cases. A name that a pattern binds may have any value."""
        subject = self.settled_node(self.rewritten(node.subject))
        before, results, cases = dict(self.scope.facts), [dict(self.scope.facts)], []
        for case in node.cases:
            bound = pattern_names(case.pattern)
            cases.append(case.with_changes(body=self._branch(case.body, {**before, **dict.fromkeys(bound, Unknown())},
                                                             results)))
        self.scope.facts = reduce(join_facts, results)
        return node.with_changes(subject=subject, cases=cases)

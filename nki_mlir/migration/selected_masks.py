# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes branches for statements whose mask a condition selects, if the mask compares index vectors with each other.

before:  mask = (q + i_p >= k + i_f) if causal else None       after:  mask = q + i_p >= k + i_f
         scores[...] = nl.copy(product, mask=mask)                     if causal:
                                                                           scores[...] = nl.copy(product, mask=mask)
                                                                       else:
                                                                           scores[...] = nl.copy(product)

No number of elements expresses such a mask, unlike one of rows.
"""

from collections.abc import Callable, Sequence

import libcst as cst
import libcst.matchers as m

VECTORS = m.Attribute(attr=m.Name("arange") | m.Name("mgrid"))
ASSIGNED = m.SimpleStatementLine(body=[m.Assign(
    targets=[m.AssignTarget(target=m.Name())], value=m.IfExp(orelse=m.Name("None")))])

Replaced = Callable[[cst.CSTNode, cst.CSTNode], None]


def with_mask_branches(statements: Sequence[cst.BaseStatement], is_vector: Callable[[str], bool], replaced: Replaced
                       ) -> Sequence[cst.BaseStatement]:
    """Return the statements of a block with branches for those that read such a mask. The mask is only an argument of
    calls in the block. ``is_vector`` says whether a name from outside is an index vector."""
    for at, statement in enumerate(statements):
        if not m.matches(statement, ASSIGNED):
            continue
        assign = cst.ensure_type(cst.ensure_type(statement, cst.SimpleStatementLine).body[0], cst.Assign)
        value = cst.ensure_type(assign.value, cst.IfExp)
        name = cst.ensure_type(assign.targets[0].target, cst.Name).value
        inside = {n.value for earlier in statements[:at] if m.findall(earlier, VECTORS)
                  for target in m.findall(earlier, m.AssignTarget()) for n in names_in(target)}
        if not _compares_vectors(value.body, inside, is_vector):
            continue
        later, argument = statements[at + 1:], m.Arg(keyword=m.Name("mask"), value=m.Name(name))
        uses = sum(len(m.findall(s, argument)) for s in later if isinstance(s, cst.SimpleStatementLine))
        if not uses or uses != sum(len(names_in(s, name)) for s in later):
            continue
        plain = statement.deep_replace(value, value.body)
        assert isinstance(plain, cst.SimpleStatementLine)
        replaced(statement, plain)
        return [*statements[:at], plain, *_branches(later, argument, value.test, replaced)]
    return statements


def names_in(node: cst.CSTNode, name: str = "") -> list[cst.Name]:
    """Return the names in a node, or those of one text, but keywords of arguments."""
    keywords = {id(a.keyword) for a in m.findall(node, m.Arg(keyword=m.Name())) if isinstance(a, cst.Arg)}
    return [n for n in m.findall(node, m.Name(name) if name else m.Name())
            if isinstance(n, cst.Name) and id(n) not in keywords]


def _compares_vectors(mask: cst.BaseExpression, inside: set[str], is_vector: Callable[[str], bool]) -> bool:
    """Return whether a mask compares index vectors with each other: names ``inside`` the block, or from outside."""
    for comparison in m.findall(mask, m.Comparison(comparisons=[m.ComparisonTarget()])):
        assert isinstance(comparison, cst.Comparison)
        sides = comparison.left, comparison.comparisons[0].comparator
        if all(any(n.value in inside or is_vector(n.value) for n in names_in(side)) for side in sides):
            return True
    return False


def _branches(statements: Sequence[cst.BaseStatement], argument: m.Arg, test: cst.BaseExpression, replaced: Replaced
              ) -> list[cst.BaseStatement]:
    """Return statements with those that have the argument in a branch, and without it in the other one."""
    result: list[cst.BaseStatement] = []
    for statement in statements:
        if not m.findall(statement, argument):
            result.append(statement)
            continue
        assert isinstance(statement, cst.SimpleStatementLine)
        inner = statement.with_changes(leading_lines=[])
        other = inner.deep_clone().visit(_WithoutArgument(argument))
        assert isinstance(other, cst.SimpleStatementLine)
        branch = cst.If(test, cst.IndentedBlock([inner]), cst.Else(cst.IndentedBlock([other])),
                        leading_lines=statement.leading_lines)
        for new in (inner, other, branch):
            replaced(statement, new)
        result.append(branch)
    return result


class _WithoutArgument(cst.CSTTransformer):
    """Removes an argument from calls."""

    def __init__(self, argument: m.Arg) -> None:
        super().__init__()
        self.argument = argument

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        args = [a for a in updated_node.args if not m.matches(a, self.argument)]
        if len(args) == len(updated_node.args):
            return updated_node
        return updated_node.with_changes(args=[*args[:-1], *(a.with_changes(comma=cst.MaybeSentinel.DEFAULT)
                                                             for a in args[-1:])])

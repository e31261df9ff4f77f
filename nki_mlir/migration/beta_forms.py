# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds functions that import the current generation, but whose calls have the form of the beta generation.

    import nki.language as nl               the file's imports were changed, its kernels were not
    i_p = nl.arange(128)[:, None]
    tile = nl.load(x[i_p, i_f], mask=i_p < rows)
"""

import ast
import re
from collections.abc import Iterator
from functools import cache

import libcst as cst

from nki_mlir.language.signatures.older_releases import NEWEST, OF_CURRENT, signature_in
from nki_mlir.language.signatures.table import BETA, has_entry, releases_of_keyword, releases_with, signatures
from nki_mlir.migration.expressions import MODULE
from nki_mlir.migration.names import Names, nodes_of
from nki_mlir.migration.python_trees import python_tree, walked
from nki_mlir.migration.releases import CREATION, REPLACED, keyword_argument
from nki_mlir.migration.tile_classes import calls_language
from nki_mlir.migration.unbound_calls import has_beta_form, public_name, why_unbound

Definition = cst.FunctionDef | cst.ClassDef


def functions_in_beta_form(text: str) -> set[str]:
    """Return the functions and classes of a file that ``nki-migrate`` rewrites as those of the beta generation: those
    with a call or a name that only beta has, and those that they call or that call them, unless their calls have
    destinations."""
    names = Names(text)
    if names.is_beta or not names.imports_nki:
        return set()
    definitions = {node.name.value: node for node in _outermost(cst.parse_module(text))}
    beta = {name for name, node in definitions.items() if _has_beta_form(node, names)}
    reads = {node.name: {n.id for n in walked(node) if isinstance(n, ast.Name)} & definitions.keys()
             for node in walked(python_tree(text)) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    current = {name for name, node in definitions.items() if _has_current_form(node, names)}
    pending = [*beta]
    while pending:
        name = pending.pop()
        callers = {caller for caller, read in reads.items() if name in read} & definitions.keys()
        related = reads[name].union(callers) - current - beta
        beta |= related
        pending += related
    return beta


def as_beta(text: str) -> str:
    """Return a file whose imports name the beta generation, or an empty text if a function of it has a call of the
    current generation, so that it runs in neither."""
    names = Names(text)
    if any(_has_current_form(node, names) for node in _outermost(cst.parse_module(text))):
        return ""
    lines = text.splitlines(keepends=True)
    for node in walked(python_tree(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for at in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[at] = re.sub(r"\bimport nki(?=\s*(?:#|;|$))", "import neuronxcc.nki as nki", lines[at])
                lines[at] = re.sub(r"\b(import|from) nki\b(?=[. ])", r"\1 neuronxcc.nki", lines[at])
    return "".join(lines)


def _outermost(node: cst.CSTNode) -> Iterator[Definition]:
    """Yield the functions and classes that no other one is around."""
    for child in node.children:
        if isinstance(child, Definition):
            yield child
        else:
            yield from _outermost(child)


def _has_beta_form(node: Definition, names: Names) -> bool:
    """Return whether a function has a name that only the beta generation has, a mask, an instruction that returns its
    result, or an assignment to a part of a tile."""
    if any(_is_only_of_beta(names.meaning(n)) for kind in (cst.Attribute, cst.Name) for n in nodes_of(node, kind)):
        return True
    tensors = {assignment.targets[0].target.value for assignment in nodes_of(node, cst.Assign)
               if isinstance(assignment.targets[0].target, cst.Name) and isinstance(assignment.value, cst.Call)
               and names.meaning(assignment.value.func) in CREATION}
    targets = [n.target for n in nodes_of(node, cst.AssignTarget)] + [n.target for n in nodes_of(node, cst.AugAssign)]
    if calls_language(node.body, names) and any(_is_part(target, tensors) for target in targets):
        return True
    statements = _statements(node)
    calls = [(meaning, call) for call in nodes_of(node, cst.Call) if (meaning := names.meaning(call.func))]
    return any(_has_mask(call, meaning) or _has_second_axis(call, meaning) or (
        id(call) not in statements and _has_result(call, meaning, names)) for meaning, call in calls)


def _has_second_axis(call: cst.Call, meaning: str) -> bool:
    """Return whether a call returns the number of a program along an axis other than the first."""
    return meaning in ("nl.program_id", "nl.num_programs") and any(
        MODULE.code_for_node(a.value) in ("1", "2") for a in call.args)


def _has_result(call: cst.Call, meaning: str, names: Names) -> bool:
    """Return whether a call in an expression is an instruction that returns its result."""
    if not writes(meaning) or not signatures(public_name(meaning), BETA):
        return False
    return bool(why_unbound(meaning, call.args, names)) or isinstance(call.args[0].value, cst.Tuple)


def _has_current_form(node: Definition, names: Names) -> bool:
    """Return whether a statement of a function is an instruction without a result: beta's instructions return one."""
    return any(writes(names.meaning(call.func)) for call in _statements(node).values())


def with_named_arguments(call: cst.Call, names: Names) -> cst.Call:
    """Return a statement's call of an instruction that writes ``dst`` with its arguments by name. A call in the beta
    form, of which the statement ignores the result, stays."""
    meaning = names.meaning(call.func)
    signature = signature_in(public_name(meaning), NEWEST) if writes(meaning) else None
    positional = [a for a in call.args if a.keyword is None]
    if signature is None or any(a.star for a in call.args) or len(positional) > len(signature.positional) or (
            has_beta_form(meaning, call.args, names)):
        return call
    return call.with_changes(args=[a if a.keyword is not None else keyword_argument(signature.positional[k], a.value)
                                   for k, a in enumerate(call.args)])


def _statements(node: Definition) -> dict[int, cst.Call]:
    """Return the calls that are statements."""
    return {id(e.value): e.value for e in nodes_of(node, cst.Expr) if isinstance(e.value, cst.Call)}


def _is_part(target: cst.BaseExpression, tensors: set[str]) -> bool:
    """Return whether an assigned expression is a part of a tile: an element of a list or dictionary has no slice."""
    return isinstance(target, cst.Subscript) and (
        (isinstance(target.value, cst.Name) and target.value.value in tensors) or any(isinstance(
            e.slice, cst.Slice) or (isinstance(e.slice, cst.Index) and isinstance(e.slice.value, cst.Ellipsis))
            for e in target.slice))


def _is_only_of_beta(meaning: str) -> bool:
    releases = releases_with(public_name(meaning)) if has_entry(public_name(meaning)) else ()
    return meaning not in REPLACED and bool(releases) and not any(r in OF_CURRENT for r in releases)


def _has_mask(call: cst.Call, meaning: str) -> bool:
    """Return whether a call passes a mask to a function that has none in the current generation."""
    name = public_name(meaning)
    return has_entry(name) and any(
        a.keyword is not None and a.keyword.value == "mask" and MODULE.code_for_node(a.value) != "None"
        for a in call.args) and not any(r in OF_CURRENT for r in releases_of_keyword(name, "mask"))


@cache
def writes(meaning: str) -> bool:
    """Return whether an instruction writes ``dst`` in the current generation, and returns its result in beta."""
    name = public_name(meaning)
    signature = signature_in(name, NEWEST) if name.startswith("nki.isa.") else None
    return signature is not None and "dst" in signature.names and not any(
        "dst" in form.names for form in signatures(name, BETA))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes texts of the newest release in the form of an older one, with the names, parameters and methods that it has.

Calls without a form in the older release stay, with a line in the report.
"""

import ast
import re

import libcst as cst

from nki_mlir.language.signatures import older_releases, table
from nki_mlir.language.signatures.older_releases import MODULES, NEWEST, Lacking
from nki_mlir.migration.expressions import MODULE
from nki_mlir.migration.names import Names
from nki_mlir.migration.releases import NodeLines, keyword_argument, transformed
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.tree_transformer import TreeTransformer


def older(text: str, old: str, report: MigrationReport, release: str) -> str:
    """Return a text with calls as an older release documents them. ``old`` is the text before the migration, whose
    lines the report names."""
    names = Names(text)
    if release == NEWEST or not names.imports_nki:
        return text
    return transformed(text, lambda lines: _Older(names, release, lines, _Lines(text, old, report)))


class _Lines:
    """Reports lines of the new text at lines of the old one: the same line if the old text has it, else the function
    around."""

    def __init__(self, new: str, old: str, report: MigrationReport) -> None:
        self.new, self.report = new.splitlines(), report
        self.old = {line.strip(): number for number, line in reversed([*enumerate(old.splitlines(), 1)])}
        self.functions = {f.name: f.lineno for f in ast.walk(ast.parse(old)) if isinstance(f, ast.FunctionDef)}
        self.around = [(f.lineno, f.end_lineno or 0, self.functions[f.name]) for f in ast.walk(ast.parse(new))
                       if isinstance(f, ast.FunctionDef) and f.name in self.functions]

    def add_manual(self, line: int, text: str) -> None:
        inner = [start for first, last, start in self.around if first <= line <= last]
        self.report.add_manual(self.old.get(self.new[line - 1].strip()) or (inner[-1] if inner else 0), text)


class _Older(TreeTransformer):
    def __init__(self, names: Names, release: str, lines: NodeLines, report: _Lines) -> None:
        super().__init__()
        self.names, self.release, self.lines, self.report = names, release, lines, report

    def _public(self, node: cst.BaseExpression) -> str:
        """Return the public name of a node, such as ``nki.isa.dma_copy``, or an empty text."""
        package, _, name = self.names.meaning(node).partition(".")
        return f"{MODULES[package]}.{name}" if package in MODULES and name else ""

    def _add_manual(self, node: cst.CSTNode, lacking: Lacking) -> None:
        having = table.spans(lacking.having)
        self.report.add_manual(self.lines.of(node), f"{lacking.missing.rstrip(',')}" + (f" ({having} has)" if len(
            lacking.having) == 1 else f" ({having} have)" if having else ""))

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        """Report names that the release lacks."""
        name = self._public(original_node)
        try:
            if name.startswith("nki.language.tile_size."):
                return self._tile_size(updated_node, name)
            if table.has_entry(name):
                older_releases.check_name(name, self.release)
        except Lacking as lacking:
            self._add_manual(original_node, lacking)
        return updated_node

    def _tile_size(self, node: cst.Attribute, name: str) -> cst.BaseExpression:
        """Return a member of ``nl.tile_size`` by its name in the release."""
        owner, _, member = name.rpartition(".")
        members = {release: re.findall(r"\w+", text[text.index("{"):]) for release, text in table.states_of(owner)
                   if "{" in text}
        if member in members[self.release]:
            return node
        having = tuple(release for release, names in members.items() if member in names)
        raise Lacking(f"{name}, which release {self.release} does not have,", having)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Rename, drop and add parameters."""
        name = self._public(original_node.func)
        try:
            if not name:
                if isinstance(original_node.func, cst.Attribute):
                    older_releases.check_method(original_node.func.attr.value, self.release)
                return updated_node
            if table.has_entry(name):
                older_releases.check_name(name, self.release)
                older_releases.check_call(name, self.release)
            signature = older_releases.signature_in(name, self.release)
            if signature is None:
                return updated_node
            return self._fitted(name, signature, updated_node)
        except Lacking as lacking:
            self._add_manual(original_node, lacking)
            return updated_node

    def _fitted(self, name: str, signature: table.Signature, call: cst.Call) -> cst.Call:
        newest = older_releases.signature_in(name, NEWEST)
        if newest is None or any(a.star for a in call.args):
            return call
        arguments, by_name, passed = list[cst.Arg](), False, set[str]()
        for position, argument in enumerate(call.args):
            if argument.keyword is None:
                if position >= len(newest.positional):
                    return call
                parameter = newest.positional[position]
                same = {parameter, *table.other_names(name, parameter)}
                by_name = by_name or position >= len(signature.positional) or signature.positional[position] not in same
            else:
                parameter = argument.keyword.value
            new = older_releases.parameter_in(name, parameter, _as_signatures_write(argument.value), self.release)
            if new is None:
                by_name = True
                continue
            passed.add(new)
            if argument.keyword is None and not by_name:
                arguments.append(argument)
            elif argument.keyword is not None and argument.keyword.value == new:
                arguments.append(argument)
            else:
                arguments.append(keyword_argument(new, argument.value))
        for parameter, value in older_releases.required_in(name, passed, self.release).items():
            arguments.append(keyword_argument(parameter, cst.parse_expression(value)))
        if len(arguments) == len(call.args) and all(a is b for a, b in zip(arguments, call.args)):
            return call
        if arguments:
            arguments[-1] = arguments[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return call.with_changes(args=arguments)


def _as_signatures_write(value: cst.BaseExpression) -> str:
    """Return the text of a value as signatures have it: members of enumerations stand there without a module."""
    text = MODULE.code_for_node(value)
    short, _, name = text.partition(".")
    return name if short in MODULES else text


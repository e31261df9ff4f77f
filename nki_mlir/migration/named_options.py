# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes unpacked options, which the parser of the current generation refuses, as arguments by name.

before:  opts = dict(op1=np.add, operand1=1.0)      after:  def scaled(tile, factor, op1=None, operand1=None):
         y = scaled(x, 2.0, **opts)                             return nisa.tensor_scalar(tile, np.multiply, factor,
                                                                                          op1=op1, operand1=operand1)
         def scaled(tile, factor, **opts):
             return nisa.tensor_scalar(tile,                y = scaled(x, 2.0, op1=np.add, operand1=1.0)
                 np.multiply, factor, **opts)

The new text is of the beta generation: the rest of the migration rewrites it. A dictionary that something changes or
reads otherwise stays, as does a function with a call whose options are unknown.
"""

import ast
import re
from collections.abc import Callable, Mapping

from nki_mlir.language.signatures.table import BETA, signatures
from nki_mlir.migration.framework_calls import TextEdits
from nki_mlir.migration.names import PACKAGES, Names
from nki_mlir.migration.parameters import bound_names
from nki_mlir.migration.python_trees import parameters_of, tree_names
from nki_mlir.migration.report import MigrationReport

PATHS = {alias: path for path, alias in PACKAGES.items() if alias in ("nl", "nisa") and path.startswith("nki")}


def with_named_options(text: str, report: MigrationReport) -> tuple[str, Callable[[int], int]]:
    """Return the text with arguments by name where it unpacks known options, and the old line of each of its lines."""
    if not re.search(r"\*\*\w", text):
        return text, lambda line: line
    text, of_dictionaries = UnpackedOptions(text, report).with_dictionaries()
    text, of_functions = UnpackedOptions(text, report).with_parameters()
    return text, lambda line: of_dictionaries(of_functions(line))


class UnpackedOptions:
    """Replaces the options that one text unpacks (``**opts``) by arguments with their names."""

    def __init__(self, text: str, report: MigrationReport) -> None:
        self.names, self.report = Names(text), report
        self.tree, self.edits = ast.parse(text), TextEdits(text)

    # -- dictionaries --------------------------------------------------------------------------------------------------
    def with_dictionaries(self) -> tuple[str, Callable[[int], int]]:
        """Replace ``**opts`` of a variable that is a dictionary of the text."""
        for scope in ast.walk(self.tree):
            if isinstance(scope, ast.Module | ast.FunctionDef):
                for statement in scope.body:
                    match statement:
                        case ast.Assign(targets=[ast.Name(id=name)], value=value) if (
                                (items := _items(value)) is not None):
                            self._replace(scope, statement, name, items)
        return self.edits.result()

    def _replace(self, scope: ast.Module | ast.FunctionDef, statement: ast.Assign, name: str,
                 items: Mapping[str, ast.expr]) -> None:
        uses = [n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
        unpacked = [k for n in ast.walk(scope) if isinstance(n, ast.Call) for k in n.keywords
                    if k.arg is None and isinstance(k.value, ast.Name) and k.value.id == name]
        bound = bound_names(scope)
        hidden = {a.arg for n in ast.walk(scope) if isinstance(n, ast.arguments)
                  for a in parameters_of(n)}
        if bound[name] != 1 or name in hidden or not unpacked or len(unpacked) != len(uses) or any(
                isinstance(n, ast.Name) and (bound[n.id] > 1 or (isinstance(scope, ast.Module) and n.id in hidden))
                for value in items.values() for n in ast.walk(value)) or not all(map(_is_plain, items.values())):
            return
        for keyword in unpacked:
            self._unpack(keyword, [f"{key}={ast.unparse(value)}" for key, value in items.items()])
        edits = self.edits
        edits.replace(edits.line_start(statement), edits.end(statement) + 1, "")
        self.report.changed(statement.lineno, f"the options of {name} become arguments by name")

    def _unpack(self, keyword: ast.keyword, arguments: list[str]) -> None:
        """Replace ``**name``; without arguments, also the comma in front."""
        start, end = self.edits.start(keyword.value) - 2, self.edits.end(keyword.value)
        if not arguments:
            match = re.search(rb"[(,]\s*$", self.edits.bytes[:start])
            start = start if match is None or match[0].startswith(b"(") else match.start()
        self.edits.replace(start, end, ", ".join(arguments))

    # -- parameters ----------------------------------------------------------------------------------------------------
    def with_parameters(self) -> tuple[str, Callable[[int], int]]:
        """Replace ``**opts`` of functions whose calls all name their options."""
        for function in self.tree.body:
            if isinstance(function, ast.FunctionDef) and function.args.kwarg is not None:
                self._name_parameters(function, function.args.kwarg)
        return self.edits.result()

    def _name_parameters(self, function: ast.FunctionDef, options: ast.arg) -> None:
        uses = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == options.arg]
        calls = [n for n in ast.walk(function) if isinstance(n, ast.Call)]
        unpacked = [(call, k) for call in calls for k in call.keywords
                    if k.arg is None and isinstance(k.value, ast.Name) and k.value.id == options.arg]
        outside = [n for n in ast.walk(self.tree) if isinstance(n, ast.Name) and n.id == function.name]
        calling = [n for n in ast.walk(self.tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
                   and n.func.id == function.name]
        if len(unpacked) != len(uses) or len(outside) != len(calling) or not calling or any(
                k.arg is None for call in calling for k in call.keywords):
            return
        parameters = {a.arg for a in parameters_of(function.args)}
        keys = list(dict.fromkeys(k.arg for call in calling for k in call.keywords
                                  if k.arg is not None and k.arg not in parameters))
        defaults = {key: {self._default(call, key) for call, _ in unpacked} for key in keys}
        if any(len(values) != 1 or None in values for values in defaults.values()) or set(keys) & tree_names(function):
            return
        edits = self.edits
        start, end = edits.start(options) - 2, edits.end(options)
        new = ", ".join(f"{key}={default}" for key in keys for default in defaults[key])
        if not new:
            match = re.search(rb",\s*$", edits.bytes[:start])
            start = match.start() if match is not None else start
        edits.replace(start, end, new)
        for _, keyword in unpacked:
            self._unpack(keyword, [f"{key}={key}" for key in keys])
        self.report.changed(function.lineno, f"the options **{options.arg} become parameters: "
                                             f"{', '.join(keys) or 'no call has any'}")

    def _default(self, call: ast.Call, key: str) -> str | None:
        """Return the default of a parameter of the function of the language that a call runs."""
        meaning = self.names.meaning(call.func)
        package, _, name = meaning.partition(".")
        forms = signatures(f"{PATHS[package]}.{name}", BETA) if package in PATHS else ()
        return next((p.default or "None" for form in forms for p in form.parameters if p.name == key), None)


def _items(value: ast.expr) -> dict[str, ast.expr] | None:
    """Return the items of a dictionary whose keys are names."""
    match value:
        case ast.Dict(keys=keys, values=values):
            names = [k.value for k in keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
            return dict(zip(names, values)) if len(names) == len(keys) and all(map(str.isidentifier, names)) else None
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords) if all(k.arg for k in keywords):
            return {k.arg: k.value for k in keywords if k.arg is not None}
    return None


def _is_plain(value: ast.expr) -> bool:
    """Return whether a value may be written anywhere: a name, a number, or a tuple, a sum or a comparison of such."""
    return all(isinstance(n, ast.Name | ast.Attribute | ast.Constant | ast.Tuple | ast.List | ast.UnaryOp | ast.BinOp
                          | ast.Compare | ast.expr_context | ast.operator | ast.unaryop | ast.cmpop)
               for n in ast.walk(value))

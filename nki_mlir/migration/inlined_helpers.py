# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inlines functions that get or return index vectors, which the new text does not have.

before:  def rows_of(t, n):                             after:  for t in nl.affine_range(8):
             i_p = nl.arange(128)[:, None]                          i_p = nl.arange(128)[:, None]
             return t * 128 + i_p, t * 128 + i_p < n                rows, valid = t * 128 + i_p, t * 128 + i_p < n

         for t in nl.affine_range(8):
             rows, valid = rows_of(t, n)
"""

import ast
import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from nki_mlir.migration.names import Names, Substitution, children_of, dotted, shortened
from nki_mlir.migration.parameters import bound_names, tree_of
from nki_mlir.migration.python_trees import parameters_of, tree_names
from nki_mlir.migration.tree_transformer import TreeTransformer

PLAIN = cst.Name | cst.Integer | cst.Float | cst.SimpleString
COMPUTED = cst.Comparison | cst.BinaryOperation | cst.BaseNumber | cst.SimpleString | cst.Tuple | cst.List  # never None
LAZY = (cst.Lambda, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp, cst.IfExp, cst.BooleanOperation)
Note = Callable[[cst.CSTNode, cst.CSTNode], None]

NO_VECTORS = "no value of the new text is an index vector or a mask"


class NeedsInlining(Exception):
    """Ends the rewriting of a function that calls another one with index vectors, or one that reduces over programs;
    its text is the callee's name."""

    def __init__(self, name: str, line: int, reason: str = NO_VECTORS) -> None:
        super().__init__(name)
        self.line, self.reason = line, reason           # line of the call


def is_inlinable(function: cst.FunctionDef) -> bool:
    """Return whether the body of a function can replace a call: it defines nothing, and returns only at its end, if at
    all."""
    parameters = function.params
    if function.asynchronous is not None or not isinstance(function.body, cst.IndentedBlock) or isinstance(
            parameters.star_arg, cst.Param) or parameters.star_kwarg is not None:
        return False
    kinds = [type(n) for n in _nodes(function.body)]
    last = function.body.body[-1]
    returns = isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Return)
    return kinds.count(cst.Return) == returns and not {
        cst.FunctionDef, cst.ClassDef, cst.Yield, cst.Global, cst.Nonlocal, cst.Lambda, cst.Await}.intersection(kinds)


def readable_elsewhere(function: cst.FunctionDef, names: Names, constants: Mapping[str, str], other: Names,
                       functions: Mapping[str, str], alias: str) -> cst.FunctionDef | None:
    """Return a function under the name ``alias`` in the names of another file: the file's names of packages, of
    ``functions`` and of other imports from the same module, and numbers in place of ``constants``. Return None if the
    other file lacks a name."""
    tree = tree_of(function)
    local = {*bound_names(tree), *(a.arg for n in ast.walk(tree) if isinstance(n, ast.arguments)
                                   for a in parameters_of(n))}
    names_of = {path: name for name, path in {**other.imports, **other.paths}.items()}
    owner, module = alias.rpartition(".")[0], {**other.imports, **other.paths}.get(alias, "").rpartition(".")[0]
    is_starred = bool(other.starred) and not owner and not module          # all public names of its file come with it
    renamed: dict[str, cst.BaseExpression] = {}
    for name in sorted(tree_names(tree) - local):
        path = names.paths.get(name, "")
        text = constants.get(name) or functions.get(name) or names_of.get(path) or (
            other.alias(short) if (short := shortened(path)) in ("nl", "nisa") else
            name if name in dir(builtins) and name not in other.paths else "") or (
            "" if path else f"{owner}.{name}" if owner else name if is_starred and not name.startswith("_") else
            names_of.get(f"{module}.{name}", ""))
        if not text:
            return None
        renamed[name] = cst.parse_expression(text)
    body, parameters = function.body.visit(Substitution(renamed)), function.params.visit(Substitution(renamed))
    assert isinstance(body, cst.BaseSuite)
    return function.with_changes(body=body, params=parameters)


def with_inlined_calls(caller: cst.FunctionDef, name: str, callee: cst.FunctionDef, note: Note) -> cst.FunctionDef:
    """Return a function whose calls of another function are replaced by that function's body; ``note`` gets each old
    and new node."""
    function = caller.visit(_Inliner(caller, name, callee, note))
    assert isinstance(function, cst.FunctionDef)
    return function


def inner_function(function: cst.FunctionDef, name: str) -> cst.FunctionDef | None:
    """Return the function that a function defines under a name; None if it defines several."""
    finder = _InnerFunctions(name)
    function.body.visit(finder)
    return finder.functions[0] if len(finder.functions) == 1 else None


def without_inner_function(function: cst.FunctionDef, name: str) -> cst.FunctionDef:
    """Return a function without the inner function of a name."""
    changed = function.visit(_InnerFunctions(name))
    assert isinstance(changed, cst.FunctionDef)
    return changed


class _InnerFunctions(TreeTransformer):
    """Finds the definitions of a name within a function, and removes them."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.functions = name, list[cst.FunctionDef]()

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
                          ) -> cst.FunctionDef | cst.RemovalSentinel:
        """Note and remove a definition."""
        if original_node.name.value != self.name:
            return updated_node
        self.functions.append(original_node)
        return cst.RemoveFromParent()


@dataclass
class _Body:
    """The replacement of a call: statements, and the value of the call, if there is one, with the comments above it."""

    statements: list[cst.BaseStatement]
    value: cst.BaseExpression | None
    comments: list[cst.EmptyLine]


class _Inliner(TreeTransformer):
    def __init__(self, caller: cst.FunctionDef, name: str, callee: cst.FunctionDef, note: Note) -> None:
        super().__init__()
        self.name, self.callee, self.note = name, callee, note
        self.used = {n.value for n in _nodes(caller) if isinstance(n, cst.Name)}
        self.never_none = _never_none(caller)
        self.lazy = 0
        self.targets: list[str] = []    # the names that the statement assigns the call to
        self.pending: list[list[_Body]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Note the statements and the expressions that may not be evaluated around a call."""
        self.lazy += isinstance(node, LAZY)
        if isinstance(node, cst.SimpleStatementLine):
            self.pending.append([])
            match node.body:
                case [cst.Assign(targets=[cst.AssignTarget(target=target)],
                                 value=cst.Call(func=function, args=arguments))] if dotted(function) == self.name:
                    targets = _names(target)
                    read = {n.value for a in arguments for n in _nodes(a.value) if isinstance(n, cst.Name)}
                    self.targets = [] if read & {*targets} else targets
                case _:
                    self.targets = []
        return super().on_visit(node)

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
                 ) -> "cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]":
        """Note which new node stands for an old one."""
        self.lazy -= isinstance(original_node, LAZY)
        result = super().on_leave(original_node, updated_node)
        for node in result if isinstance(result, cst.FlattenSentinel) else [result]:
            if isinstance(node, cst.CSTNode) and node is not original_node:
                self.note(original_node, node)
        return result

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Replace a call by the value that the function returns."""
        if dotted(original_node.func) != self.name or self.lazy or not self.pending:
            return updated_node
        used = {*self.used}
        body = self._body(updated_node)
        if body is None or body.value is None:
            self.used = used            # the names stay free
            return updated_node
        self.pending[-1].append(body)
        value = body.value
        return value if value.lpar or isinstance(value, cst.Name | cst.Call | cst.Attribute | cst.Subscript
                                                 ) else value.with_changes(lpar=[cst.LeftParen()],
                                                                           rpar=[cst.RightParen()])

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
                                  ) -> "cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]":
        """Put the bodies of the functions that a statement calls before it."""
        bodies = self.pending.pop()
        comments = [*{line.comment and line.comment.value: line for body in bodies for line in body.comments}.values()]
        match updated_node.body:
            case [cst.Expr(value=cst.Call(func=function) as call)] if dotted(function) == self.name and (
                    body := self._body(call)) is not None and body.value is None:       # a call without a result
                statements = body.statements
            case [cst.Assign(targets=[cst.AssignTarget(target=target)], value=value)] if bodies and _names(target) and (
                    _names(target) == _names(value)):
                statements = []
            case [cst.Assign(targets=[cst.AssignTarget(target=cst.Tuple() | cst.List() as target)],
                             value=cst.Tuple() as value)] if bodies and len(target.elements) == len(value.elements):
                plain = value.with_changes(lpar=[], rpar=[])
                assigned = updated_node.body[0].with_changes(value=plain)
                statements = [*bodies[-1].statements, updated_node.with_changes(
                    body=[assigned], leading_lines=comments)]
                bodies.pop()
            case _ if bodies:
                statements = [updated_node.with_changes(leading_lines=comments)]
            case _:
                return updated_node
        statements = [*(s for body in bodies for s in body.statements), *statements]
        first = statements[0]
        lines = [*original_node.leading_lines, *(x for x in getattr(first, "leading_lines", ()) if x.comment)]
        return cst.FlattenSentinel([first.with_changes(leading_lines=lines), *statements[1:]])

    def _body(self, call: cst.Call) -> _Body | None:
        """Return the function's body for the arguments of a call."""
        values = self._arguments(call)
        assert isinstance(self.callee.body, cst.IndentedBlock)
        if values is None:
            return None
        plain = self.callee.with_changes(leading_lines=(), decorators=())
        bound = bound_names(ast.parse(cst.Module([]).code_for_node(plain)).body[0])
        names: dict[str, cst.BaseExpression] = {}
        statements: list[cst.BaseStatement] = []
        absent = {n for n, value in values.items() if is_none(value)}
        present = {n for n, value in values.items() if _is_computed(value) or (
            isinstance(value, cst.Name) and value.value in self.never_none)}
        for parameter, value in values.items():
            if parameter not in bound and (isinstance(value, PLAIN) or _is_view(value)):
                names[parameter] = value
                continue
            names[parameter] = name = cst.Name(self._fresh_name(parameter))
            statements.append(cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(name)], value)]))
        match self.callee.body.body[-1]:
            case cst.SimpleStatementLine(body=[*_, cst.Return(value=cst.BaseExpression() as returned)]):
                results = _names(returned)
                if len(results) == len(self.targets) and {*results} <= bound.keys() - names.keys():
                    names |= {local: cst.Name(target) for local, target in zip(results, self.targets)}
        for local in bound:
            if local not in names:
                names[local] = cst.Name(self._fresh_name(local))
        result: cst.BaseExpression | None = None
        comments: list[cst.EmptyLine] = []
        for k, statement in enumerate(_selected(self.callee.body.body, absent, present)):
            if k == 0 and _is_docstring(statement):
                continue
            changed = statement.visit(Substitution(names))
            assert isinstance(changed, cst.BaseStatement)
            match changed:
                case cst.SimpleStatementLine(leading_lines=lines, body=[*before, cst.Return(value=result)]):
                    statements += [changed.with_changes(body=before)] if before else []
                    comments = [] if before else [line for line in lines if line.comment]
                case _:
                    statements.append(changed)
        for statement in statements:
            self.note(call, statement)
        return _Body(statements, result, comments)

    def _arguments(self, call: cst.Call) -> Mapping[str, cst.BaseExpression] | None:
        """Return the value of each parameter, in the order of the call, or None if the call does not show it."""
        parameters = [*self.callee.params.posonly_params, *self.callee.params.params]
        names = [p.name.value for p in parameters]
        values: dict[str, cst.BaseExpression] = {}
        for k, argument in enumerate(call.args):
            if argument.star or (argument.keyword is None and k >= len(names)):
                return None
            values[argument.keyword.value if argument.keyword is not None else names[k]] = argument.value
        for parameter in (*parameters, *self.callee.params.kwonly_params):
            if parameter.name.value not in values:
                if parameter.default is None:
                    return None
                values[parameter.name.value] = parameter.default
        return values

    def _fresh_name(self, hint: str) -> str:
        name, count = hint, 1
        while name in self.used:
            count += 1
            name = f"{hint}_{count}"
        self.used.add(name)
        return name


def _is_computed(value: cst.BaseExpression) -> bool:
    """Return whether a value is certainly not None: a computed one, or an index vector."""
    while isinstance(value, cst.Subscript | cst.Call):
        if (dotted(value.func if isinstance(value, cst.Call) else value.value) or "").endswith((".arange", ".mgrid")):
            return True
        value = value.value if isinstance(value, cst.Subscript) else value.func
    return isinstance(value, COMPUTED)


def _never_none(function: cst.FunctionDef) -> frozenset[str]:
    """Return the names that a function assigns once, to values that are not None."""
    counts = bound_names(tree_of(function))
    names = [(target, node.value) for node in _nodes(function.body) if isinstance(node, cst.Assign)
             for target in _names(node.targets[0].target)]
    return frozenset(target for target, value in names if counts[target] == 1 and _is_computed(value))


def _selected(statements: Sequence[cst.BaseStatement], absent: set[str], present: set[str]) -> list[cst.BaseStatement]:
    """Return the statements of a function without the tests of parameters that are None, or that are not. What a
    statement that assigns a parameter again selects is known only if it tests the parameter first."""
    selected: list[cst.BaseStatement] = []
    for statement in statements:
        bound = {*bound_names(ast.parse(cst.Module([]).code_for_node(statement)))}
        match statement:
            case cst.SimpleStatementLine(body=[cst.Assign()]) | cst.If(orelse=None, body=cst.IndentedBlock(
                    body=[cst.SimpleStatementLine(body=[cst.Assign()])])):
                shown = absent, present
            case _:
                shown = absent - bound, present - bound
        changed = statement.visit(_WithoutNone(*shown))
        absent, present = absent - bound, present - bound
        match changed:
            case cst.FlattenSentinel():
                selected += [s for s in changed if isinstance(s, cst.BaseStatement)]
            case cst.SimpleStatementLine(body=[cst.Assign(
                    targets=[cst.AssignTarget(target=cst.Name(value=name))], value=cst.Name(value=other))]) if (
                        name == other):
                pass
            case cst.BaseStatement():
                selected.append(changed)
    return selected


class _WithoutNone(TreeTransformer):
    """Replaces conditional expressions and ``if`` on ``x is None`` by what they select, for the parameters that a call
    shows to be None, or not to be."""

    def __init__(self, absent: set[str], present: set[str]) -> None:
        super().__init__()
        self.absent, self.present = absent, present
        self.later: set[cst.CSTNode] = set()        # ``elif``, which stay

    def _value(self, test: cst.BaseExpression) -> bool | None:
        """Return the value of a test, or None if the call does not show it."""
        match test:
            case cst.Comparison(left=cst.Name(value=name), comparisons=[cst.ComparisonTarget(
                    operator=cst.Is() | cst.IsNot() as operator, comparator=other)]) if (
                        is_none(other) and name in self.absent | self.present):
                return (name in self.absent) == isinstance(operator, cst.Is)
        return None

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        """Return the value that the test selects."""
        value = self._value(updated_node.test)
        return updated_node if value is None else updated_node.body if value else updated_node.orelse

    def visit_If(self, node: cst.If) -> None:
        """Note a test that follows another one."""
        if isinstance(node.orelse, cst.If):
            self.later.add(node.orelse)

    def leave_BooleanOperation(self, original_node: cst.BooleanOperation,
                               updated_node: cst.BooleanOperation) -> cst.BaseExpression:
        """Return the right side of ``dtype or x.dtype`` if ``dtype`` is None."""
        match updated_node:
            case cst.BooleanOperation(left=cst.Name(value=name), operator=cst.Or(), right=other) if name in self.absent:
                return other
        return updated_node

    def leave_If(self, original_node: cst.If, updated_node: cst.If
                 ) -> "cst.If | cst.RemovalSentinel | cst.FlattenSentinel[cst.BaseStatement]":
        """Return the statements that the test selects."""
        value = None if original_node in self.later else self._value(updated_node.test)
        part = updated_node if value else updated_node.orelse
        if value is None or (isinstance(part, cst.If) and not value):
            return updated_node
        if part is None:
            return cst.RemoveFromParent()
        if not isinstance(part.body, cst.IndentedBlock):
            return updated_node
        first, *later = part.body.body
        lines = [*updated_node.leading_lines, *getattr(first, "leading_lines", ())]
        return cst.FlattenSentinel([first.with_changes(leading_lines=lines), *later])


def is_none(node: cst.BaseExpression) -> bool:
    """Return whether an expression is ``None``."""
    return isinstance(node, cst.Name) and node.value == "None"


def _nodes(tree: cst.CSTNode) -> list[cst.CSTNode]:
    nodes, pending = [], [tree]
    while pending:
        nodes.append(node := pending.pop())
        pending += children_of(node)
    return nodes


def _names(node: cst.BaseExpression) -> list[str]:
    """Return the different names of a tuple or a list of names, or one name; none for any other expression."""
    nodes = [e.value for e in node.elements] if isinstance(node, cst.Tuple | cst.List) else [node]
    names = dict.fromkeys(n.value for n in nodes if isinstance(n, cst.Name))
    return [*names] if len(names) == len(nodes) else []


def _is_view(value: cst.BaseExpression) -> bool:
    """Return whether a value is an attribute or a view, ``x.dtype`` or ``x[rows, 0:n]``, which computes nothing."""
    root = value
    while isinstance(root, cst.Attribute | cst.Subscript):
        root = root.value
    return isinstance(value, cst.Attribute | cst.Subscript) and isinstance(root, cst.Name) and not any(
        isinstance(n, cst.Call | cst.NamedExpr | cst.Await) for n in _nodes(value))


def _is_docstring(statement: cst.BaseStatement) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Expr) and isinstance(
        statement.body[0].value, cst.SimpleString | cst.ConcatenatedString)

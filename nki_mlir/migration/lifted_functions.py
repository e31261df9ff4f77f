# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moves inner functions and lambdas of kernels, which the vendor's parser refuses, to the top of the file.

before:  def kernel(x):                                 after:  def rows(x, i):
             def rows(i):                                           return nl.load(x[nl.ds(i * 128, 128), :])
                 return nl.load(x[nl.ds(i * 128, 128), :])
             ... rows(3)                                        def kernel(x):
                                                                    ... rows(x, 3)

The names that a function reads of the kernel become its first parameters. A function stays if a call may precede the
assignment of such a name, or if the kernel uses it as a value.
"""

import ast
import builtins
import symtable
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from nki_mlir.migration.python_trees import tree_names
from nki_mlir.migration.tree_transformer import TreeTransformer

Block = list[ast.stmt]
SCOPES = ast.FunctionDef | ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass
class _Inner:
    """A function within a kernel: the kernel's names that it reads, and the inner functions that it calls."""

    node: ast.FunctionDef
    name: str                   # at the top of the file
    captured: list[str]
    callees: set[str] = field(default_factory=set)


def with_lifted_functions(text: str, kernels: Collection[str]) -> tuple[str, set[tuple[str, str]]]:
    """Return a text in which inner functions of some functions, and lambdas with a name, are functions of the file, and
    which moved: (outer name, inner name)."""
    moved: set[tuple[str, str]] = set()
    text = cst.parse_module(text).visit(_Definitions(kernels)).code if "lambda" in text else text
    around = {name: {name} for name in kernels}         # the functions that a function was in, and itself
    while True:
        tree, table = ast.parse(text), symtable.symtable(text, "kernel", "exec")
        outer_functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in around]
        top_names = {symbol.get_name() for symbol in table.get_symbols()}
        for outer in outer_functions:
            if inner := _liftable(outer, _scope(table, outer), top_names):
                break
        else:
            return text, moved
        text = cst.parse_module(text).visit(_Lift(outer.name, inner)).code
        moved |= {(name, moved_name) for name in around[outer.name] for moved_name in inner}
        around |= {function.name: {*around[outer.name], name} for name, function in inner.items()}


def _scope(table: symtable.SymbolTable, node: ast.FunctionDef) -> symtable.Function:
    lines = node.lineno, *(decorator.lineno for decorator in node.decorator_list)
    scope = next(s for s in table.get_children() if s.get_name() == node.name and s.get_lineno() in lines)
    assert isinstance(scope, symtable.Function)
    return scope


def _liftable(outer: ast.FunctionDef, scope: symtable.Function, top_names: set[str]) -> dict[str, _Inner]:
    """Return the inner functions of a function that can move, by name."""
    nodes = [n for n in _statements(outer.body) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    if any(isinstance(n, ast.ClassDef) for n in nodes):
        return {}
    bindings = [*_parameters(outer), *(name for statement in outer.body for name in _bound(statement))]
    top_names, inner = {*top_names, *dir(builtins)}, dict[str, _Inner]()
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and bindings.count(node.name) == 1 and _is_plain(node, scope):
            name = node.name if node.name not in top_names else f"{outer.name}_{node.name}"
            if name not in top_names:
                top_names.add(name)
                inner[node.name] = _Inner(node, name, list(_scope(scope, node).get_frees()))
    for function in inner.values():
        function.callees = set(function.captured) & inner.keys()
        function.captured = [name for name in function.captured if name not in function.callees]
    _add_captured(inner)
    order = {name: k for k, name in reversed(list(enumerate(bindings)))}
    for function in inner.values():
        function.captured.sort(key=lambda name: order.get(name, len(order)))
    imported = {a.asname or a.name.split(".")[0] for n in ast.walk(outer) if isinstance(n, ast.Import | ast.ImportFrom)
                for a in n.names}
    while True:
        stuck = imported | ({n.name for n in nodes} - inner.keys())
        movable = {name: f for name, f in inner.items() if f.callees <= inner.keys() and stuck.isdisjoint(f.captured)
                   and _calls_are_plain(outer, name, f)}
        if len(movable) == len(inner):
            return inner
        inner = movable


def _add_captured(inner: dict[str, _Inner]) -> None:
    """Add to each function the names that the functions need that it calls."""
    changed = True
    while changed:
        changed = False
        for function in inner.values():
            for name in (n for callee in sorted(function.callees) for n in inner[callee].captured):
                if name not in function.captured:
                    function.captured.append(name)
                    changed = True


def _is_plain(node: ast.FunctionDef, scope: symtable.Function) -> bool:
    """Return whether a function has no decorator, assigns no name of the outer function, and its defaults read none."""
    defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
    reads = tree_names(*defaults)
    texts = [n for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
             and n.end_lineno != n.lineno and n.value != ast.get_docstring(node, clean=False)]
    return not (node.decorator_list or texts or reads & set(scope.get_locals()) or any(
        isinstance(n, ast.Nonlocal | ast.Global | ast.Yield | ast.YieldFrom) for n in ast.walk(node)))


def _calls_are_plain(outer: ast.FunctionDef, name: str, function: _Inner) -> bool:
    """Return whether all uses of a function are calls, where the names that it reads are assigned."""
    calls = [n for n in ast.walk(outer)
             if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name]
    called = {id(call.func) for call in calls}
    uses = [n for n in ast.walk(outer) if isinstance(n, ast.Name) and n.id == name]
    if (function.captured or function.name != name) and any(id(n) not in called for n in uses):
        return False
    for node in ast.walk(outer):            # inner scopes may bind the names anew
        if isinstance(node, SCOPES) and node is not outer and any(id(n) in called for n in ast.walk(node)):
            other = {n.arg if isinstance(n, ast.arg) else n.id for n in ast.walk(node) if isinstance(n, ast.arg) or (
                isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))}
            if not other.isdisjoint(function.captured):
                return False
    within = {id(n) for f in _statements(outer.body) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    return all(id(call) in within or set(function.captured) <= _assigned_before(outer.body, call, {*_parameters(outer)})
               for call in calls)


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)]


def _statements(block: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a block and of the blocks in them, except statements of functions and classes."""
    for statement in block:
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            for inner in _blocks(statement):
                yield from _statements(inner)


def _blocks(statement: ast.stmt) -> list[Block]:
    blocks = [getattr(statement, field, []) for field in ("body", "orelse", "finalbody")]
    return [*blocks, *(h.body for h in getattr(statement, "handlers", []))]


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds, once for each time."""
    for node in _statements([statement]):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
            continue
        for child in _expressions(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                yield child.id


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of a statement, except nodes of the statements in it and targets of comprehensions."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        yield node
        pending += [child for child in ast.iter_child_nodes(node)
                    if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.comprehension)]


def _assigned_before(block: Block, call: ast.Call, assigned: set[str]) -> set[str]:
    """Return the names that are assigned whenever a call within a block runs."""
    for statement in block:
        if any(node is call for node in ast.walk(statement)):
            for inner in _blocks(statement):
                if any(node is call for s in inner for node in ast.walk(s)):
                    targets = {n.id for n in _expressions(statement) if isinstance(n, ast.Name)
                               and isinstance(n.ctx, ast.Store)}
                    return _assigned_before(inner, call, assigned | targets)
            return assigned
        assigned = assigned | _assigned(statement)
    return assigned


def _assigned(statement: ast.stmt) -> set[str]:
    """Return the names that a statement assigns whatever its conditions are."""
    if isinstance(statement, ast.If):
        return set.intersection(*(set().union(*map(_assigned, b)) for b in (statement.body, statement.orelse)))
    if isinstance(statement, ast.With):
        return set().union(*map(_assigned, statement.body))
    if isinstance(statement, ast.For | ast.While | ast.Try | ast.FunctionDef | ast.ClassDef):
        return set()
    return set(_bound(statement))


class _Definitions(TreeTransformer):
    """Turns lambdas with a name, ``double = lambda a: a + a``, in some functions into definitions of functions."""

    def __init__(self, functions: Collection[str]) -> None:
        super().__init__()
        self.functions, self.depth = functions, 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        """Count the functions around a node, one of which has a name of the list."""
        self.depth += bool(self.depth or node.name.value in self.functions)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        """Leave a function."""
        self.depth -= bool(self.depth)
        return updated_node

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
                                  ) -> cst.BaseStatement:
        """Define a function."""
        return definition(updated_node) if self.depth else updated_node


def definition(node: cst.SimpleStatementLine) -> cst.SimpleStatementLine | cst.FunctionDef:
    """Return ``def double(a)`` for ``double = lambda a: a + a``, and other statements unchanged."""
    match node.body:
        case [cst.Assign(targets=[cst.AssignTarget(target=cst.Name() as name)],
                         value=cst.Lambda(params=parameters, body=value))]:
            result = node.with_changes(body=[cst.Return(value)], leading_lines=())
            return cst.FunctionDef(name, parameters, cst.IndentedBlock([result]), leading_lines=node.leading_lines)
    return node


class _Lift(TreeTransformer):
    """Moves the functions out of the function with a name, and passes the values that they read."""

    def __init__(self, outer: str, inner: dict[str, _Inner]) -> None:
        super().__init__()
        self.outer, self.inner = outer, inner
        self.functions: list[str] = []              # around a node
        self.lifted: list[cst.FunctionDef] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        """Note the function around the nodes in it."""
        self.functions.append(node.name.value)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
                          ) -> "cst.FunctionDef | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel":
        """Take a function out, or put those that were in it before it."""
        name = self.functions.pop()
        if self.functions == [self.outer] and name in self.inner:
            function = self.inner[name]
            captured = [cst.Param(cst.Name(n)) for n in function.captured]
            parameters = updated_node.params
            first = "posonly_params" if parameters.posonly_params else "params"
            parameters = parameters.with_changes(**{first: [*captured, *getattr(parameters, first)]})
            self.lifted.append(updated_node.with_changes(name=cst.Name(function.name), params=parameters))
            return cst.RemoveFromParent()
        if not self.functions and name == self.outer:
            lifted, self.lifted = self.lifted, []
            empty = [cst.EmptyLine(indent=False)] * 2
            above = [[*empty, *(line for line in f.leading_lines if line.comment)] for f in lifted]
            lines = [*empty, *(line for line in updated_node.leading_lines if line.comment)]
            return cst.FlattenSentinel([*(f.with_changes(leading_lines=a) for f, a in zip(lifted, above)),
                                        updated_node.with_changes(leading_lines=lines)])
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        """Pass the variables of the outer function that a moved function reads."""
        if self.functions[:1] == [self.outer] and isinstance(original_node.func, cst.Name) and (
                function := self.inner.get(original_node.func.value)):
            captured = [cst.Arg(cst.Name(n)) for n in function.captured]
            return updated_node.with_changes(func=cst.Name(function.name), args=[*captured, *updated_node.args])
        return updated_node

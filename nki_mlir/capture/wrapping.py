# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites the AST of kernels and helpers: loops, branches, conditions, annotated assignments and calls.

Bodies keep their positions: nothing is duplicated, line numbers hold. The rewritten code calls the module ``tracing``,
reached through a closure cell, so no global of the user's module is touched.

Python evaluates ``a and b`` to one of its operands, by the truth of the first. A condition that holds only for some
values of its symbols and axes has no truth, so the result combines both operands, as by ``&``, ``|`` and ``~``. The
operators become conditional expressions, in which all other operands keep Python's meaning.
"""

import ast
import copy
import dis
import inspect
import itertools
import linecache
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial, reduce
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeGuard

from nki_mlir.capture.locations import compiled
from nki_mlir.capture.source_text import FUTURES, Definition, definition
from nki_mlir.diagnostics import Location


# -- which names a loop body or a branch can carry Python state in -----------------------------------------------------
def loaded(nodes: Iterable[ast.AST]) -> Counter[str]:
    """Count the reads of each name anywhere inside; ``x += 1`` reads x."""
    names: Counter[str] = Counter()
    for node in (inner for n in nodes for inner in ast.walk(n)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names[node.id] += 1
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] += 1
    return names


def stored(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names bound anywhere inside."""
    return {name for n in nodes for inner in ast.walk(n) if (name := _bound_by(inner)) is not None}


def _bound_by(node: ast.AST) -> str | None:
    match node:
        case ast.Name(name, ast.Store() | ast.Del()):
            return name
        case (ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name)
              | ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name)
              | ast.MatchMapping(rest=name)):
            return name
        case ast.alias(name, asname):
            return asname or name.partition(".")[0]
    return None


def exposed_reads(body: Iterable[ast.stmt]) -> set[str]:
    """Return the names the statements may read before they bind them: the names that are live at the loop's head.

    Watching these and no others matters: a temporary that every iteration assigns first is not carried, and unrolling
    for its sake would cost rolled code in most kernels.
    """
    exposed: set[str] = set()
    bound: set[str] = set()
    for statement in body:
        exposed |= _reads_first(statement) - bound
        bound |= _surely_binds(statement)
    return exposed


def _reads_first(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.For(target, iterable, body, orelse):
            return set(loaded([iterable])) | (exposed_reads(body) - stored([target])) | exposed_reads(orelse)
        case ast.If(test, body, orelse) | ast.While(test, body, orelse):
            return set(loaded([test])) | exposed_reads(body) | exposed_reads(orelse)
        case ast.With(items, body):
            return set(loaded(items)) | exposed_reads(body)
        case _:
            return set(loaded([statement]))


def _surely_binds(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.Assign(targets):
            return stored(targets)
        case ast.AnnAssign(target, _, value) if value is not None:
            return stored([target])
        case ast.If(_, body, orelse):
            return set.intersection(*({n for s in part for n in _surely_binds(s)} for part in (body, orelse)))
        case ast.With(items, body):
            return stored(items) | {n for s in body for n in _surely_binds(s)}
        case ast.FunctionDef(name):
            return {name}
        case _:
            return set()        # a loop may run no iteration, a try may stop half way


JUMPS = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def can_exit(body: Iterable[ast.stmt], exits: tuple[type[ast.stmt], ...] = JUMPS) -> bool:
    """Return whether control can leave the statements other than at their end: by return, raise, or a jump of an outer
    loop."""
    def scan(nodes: Iterable[ast.AST], in_loop: bool) -> bool:
        for node in nodes:
            if isinstance(node, exits) and not (in_loop and isinstance(node, (ast.Break, ast.Continue))):
                return True
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                continue
            if scan(ast.iter_child_nodes(node), in_loop or isinstance(node, (ast.For, ast.While))):
                return True
        return False
    return scan(body, False)


# -- the constructs ----------------------------------------------------------------------------------------------------
RUNTIME = "__nki__"             # the name the wrapped code sees the runtime by
HELD = "__held{}"               # variables that hold left operands
COMPUTED = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare)      # expressions whose value may be a new tensor


class LogicWrapper(ast.NodeTransformer):
    """Routes ``and``, ``or``, ``not``, ``~`` and chained comparisons through the runtime."""

    def __init__(self) -> None:
        self.numbers, self.is_plain = itertools.count(), False

    def keep(self, node: ast.expr) -> ast.NamedExpr:
        return ast.copy_location(ast.NamedExpr(ast.Name(HELD.format(next(self.numbers)), ast.Store()), node), node)

    def visit_unchanged_operators(self, node: ast.AST | None) -> Any:
        """Visit a part that must not contain assignments: its operators stay Python's."""
        before, self.is_plain = self.is_plain, True
        visited = None if node is None else self.visit(node)
        self.is_plain = before
        return visited

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.iter = self.visit_unchanged_operators(node.iter)
        node.target = self.visit(node.target)
        node.ifs = [self.visit(test) for test in node.ifs]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Leave a class's attributes unchanged, and rewrite its methods like any function."""
        methods = [s for s in node.body if isinstance(s, ast.FunctionDef)]
        node.body = [self.visit(s) if s in methods else self.visit_unchanged_operators(s) for s in node.body]
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = self.visit_unchanged_operators(node.annotation)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if self.is_plain:
            return node
        combined, *operands = node.values
        for operand in operands:
            combined = ast.copy_location(self.joined(isinstance(node.op, ast.And), combined, operand), node)
        return combined

    def joined(self, is_and: bool, first: ast.expr, second: ast.expr) -> ast.expr:
        """Return ``both(held, second) if (held := operand(first)) else held``; for ``or`` with the test negated."""
        walrus = self.keep(ast.copy_location(_call("operand", first, ast.Constant(is_and)), first))
        again = ast.Name(walrus.target.id, ast.Load())
        test = walrus if is_and else ast.UnaryOp(ast.Not(), walrus)
        return ast.IfExp(test, _call("both" if is_and else "either", again, second), again)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Rewrite ``a < b < c`` as ``a < b and b < c``, with one evaluation of b."""
        if self.is_plain or len(node.ops) == 1:
            self.generic_visit(node)
            return node
        pairs: list[ast.expr] = []
        left = node.left
        for k, (op, right) in enumerate(zip(node.ops, node.comparators)):
            is_last = k == len(node.ops) - 1
            compared = right if is_last else self.keep(right)
            pairs.append(ast.copy_location(ast.Compare(left, [op], [compared]), node))
            left = right if is_last else ast.Name(compared.target.id, ast.Load())      # type: ignore[attr-defined]
        joined: ast.AST = self.visit(ast.copy_location(ast.BoolOp(ast.And(), pairs), node))
        return joined

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        method = {ast.Invert: "invert", ast.Not: "negation"}.get(type(node.op))
        return node if method is None else ast.copy_location(_call(method, node.operand), node)


class ConstructWrapper(LogicWrapper):
    """Routes loops, branches, assignments and calls through the runtime, with the names that each has to watch."""

    def __init__(self, function: ast.FunctionDef, is_kernel: bool) -> None:
        super().__init__()
        self.is_kernel, self.depth, self.count = is_kernel, 0, itertools.count()
        self.loads = loaded([function])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if self.depth and any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(node)):
            return node         # the body of a generator's loop runs elsewhere, unobserved: the loop unrolls
        self.depth += 1
        returns, node.returns = self.visit_unchanged_operators(node.returns), None
        self.generic_visit(node)
        node.returns = returns
        self.depth -= 1
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        watched = sorted(exposed_reads(node.body) - stored([node.target]))
        rolls_range = self.is_kernel and self.depth == 1
        target = node.target.id if isinstance(node.target, ast.Name) else ""
        facts = (tuple(watched), rolls_range, (node.lineno, node.col_offset), target)
        self.generic_visit(node)
        node.iter = _call("iterate", node.iter, *map(_constant, facts))
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        """Rewrite ``while name:``, which may be a device loop; other conditions, and bodies that jumps can leave, stay
        Python's."""
        watched = tuple(sorted(exposed_reads(node.body) - loaded([node.test]).keys()))
        jumps = can_exit(node.body)
        self.generic_visit(node)
        if not isinstance(node.test, ast.Name) or jumps:
            return node
        nothing = ast.arguments([], [], None, [], [], None, [])
        iterations = _call("repeat", ast.Lambda(nothing, node.test), _constant(watched))
        loop = ast.For(ast.Name("__iteration__", ast.Store()), iterations, node.body, node.orelse)
        return ast.copy_location(loop, node)

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        inside = node.body + node.orelse
        reads, writes = loaded(inside), stored(inside)
        escaping = {n for n in writes if self.loads[n] > reads[n]}      # also read somewhere outside the branches
        watched = tuple(sorted(escaping | (set(reads) - writes)))
        jumps = can_exit(inside)
        self.generic_visit(node)
        name = f"__branch{next(self.count)}"

        def part(method: str) -> ast.Call:
            return ast.Call(ast.Attribute(ast.Name(name, ast.Load()), method, ast.Load()), [], [])
        pieces: list[ast.stmt] = [
            ast.Assign([ast.Name(name, ast.Store())],
                       _call("branch", node.test, _constant(watched), _constant(jumps))),
            ast.If(part("then"), node.body, []),
            ast.If(part("otherwise"), node.orelse or [ast.Pass()], []),
            ast.Expr(part("end")),
        ]
        return [ast.copy_location(p, node.test) for p in pieces]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation, node.target = self.visit_unchanged_operators(node.annotation), self.visit(node.target)
        is_computed = isinstance(node.value, COMPUTED)
        node.value = node.value and self.visit(node.value)
        if node.value is None or not isinstance(node.target, ast.Name):
            return node
        if is_computed:
            node.value = _named(node.value, node.target.id)
        nothing = ast.arguments([], [], None, [], [], None, [])
        value = _call("annotated", node.value, ast.Lambda(nothing, node.annotation))
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if isinstance(value, COMPUTED):
                node.value = _named(value, name)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.List() | ast.Tuple() | ast.ListComp() as value):
                node.value = ast.copy_location(_call("named_elements", value, ast.Constant(name)), value)
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Call() as value):
                node.value = ast.copy_location(_call("assigned", value, ast.Constant(name)), value)
            case ast.Assign(targets=[ast.Subscript(value=container)], value=ast.Call() as value) if (
                    path := _path_of(container)):
                root = ast.Name(path[0].id, ast.Load())
                keys = ast.Tuple([copy.deepcopy(key) for key in path[1:]], ast.Load())
                node.value = ast.copy_location(_call("element", value, root, keys, ast.Constant(root.id)), value)
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values) as value_tuple) if (
                    len(targets) == len(values)):
                value_tuple.elts = [
                    _named(value, target.id) if isinstance(target, ast.Name) and isinstance(value, COMPUTED) else value
                    for target, value in zip(targets, values)]
            case ast.Assign(targets=[ast.Tuple(elts=targets)],
                            value=ast.Call() | ast.ListComp() | ast.GeneratorExp() as value):
                names = tuple([target.id for target in targets if isinstance(target, ast.Name)])
                if len(names) == len(targets):
                    node.value = ast.copy_location(_call("unpacked", value, _constant(names)), value)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Rewrite ``tensor.buffer``, which is a memory to the kernel."""
        self.generic_visit(node)
        if node.attr == "buffer" and isinstance(node.ctx, ast.Load):
            return ast.copy_location(_call("buffer_of", node.value), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, (ast.Name, ast.Attribute)):
            node.func = ast.copy_location(_call("callee", node.func), node.func)
        return node


def _named(value: ast.expr, name: str) -> ast.expr:
    """Return the expression whose value, a tensor without a name, gets the name of a variable."""
    return ast.copy_location(_call("named", value, ast.Constant(name)), value)


def _path_of(container: ast.expr) -> list[Any]:
    """Return the variable and the keys of ``variable[key][key]``, whose evaluation runs no code: numbers and variables.
    Return an empty list for other expressions."""
    match container:
        case ast.Name():
            return [container]
        case ast.Subscript(value=outer, slice=ast.Constant() | ast.Name() as key) if (path := _path_of(outer)):
            return [*path, key]
    return []


def _call(method: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name(RUNTIME, ast.Load()), method, ast.Load()), list(arguments), [])


def _constant(value: Any) -> ast.Constant:
    return ast.Constant(value)


# -- code and callables ------------------------------------------------------------------------------------------------
def _wrapped_code(code: CodeType, is_kernel: bool, scope: dict[str, object]) -> CodeType | None:
    """Return the wrapped code; None for generators and code without source, whose loops then unroll."""
    key = code.co_filename, code, is_kernel         # equal code of two files is equal as an object
    if key not in _codes:
        generates = bool(code.co_flags & inspect.CO_GENERATOR)
        source = None if generates else definition(code, scope)
        if source is None and not generates:
            warn_of_lost_checks(code, is_kernel)
        _codes[key] = None if source is None else _compiled(source, code, is_kernel)
    return _codes[key]


_codes: dict[tuple[str, CodeType, bool], CodeType | None] = {}


class NoSourceWarning(UserWarning):
    """Warns that a function runs without rewriting, because its source is not found."""


def warn_of_lost_checks(code: CodeType, is_kernel: bool) -> None:
    """Warn of the checks that do not run in a kernel, or in a helper with loops."""
    if code.co_name.startswith("<") or not (is_kernel or any(
            i.opname == "FOR_ITER" for i in dis.get_instructions(code))):
        return
    warnings.warn_explicit(
        f"the source of {code.co_name} cannot be read. Its loops are unrolled. Nothing checks whether iterations of "
        "affine_range depend on each other, whether a tensor is used after the loop that creates it, and whether a "
        "variable has the shape of its annotation. 'and', 'or', 'not' and chained comparisons of indices have Python's "
        "meaning, 'while' does not test values of the device, and the buffer of a tensor does not equal nl.sbuf. "
        "fix: define the function in a file, or put its text into linecache.cache",
        NoSourceWarning, code.co_filename, code.co_firstlineno)


def _compiled(source: Definition, code: CodeType, is_kernel: bool) -> CodeType:
    function, inside = source
    function.decorator_list = []
    wrapped = ConstructWrapper(function, is_kernel).visit(function)
    # A recursive call by a global name must find the global, not a name of the outer function.
    globals_first = [ast.Global([function.name])] if inside is None and function.name not in code.co_freevars else []
    # A class around a method lets Python mangle its names ``__x`` (which ignores underscores before the class's
    # name); an outer function makes the free names free again, so that the compiler emits cell accesses for them.
    if inside is not None:
        enclosing = ast.parse(f"class _____{inside}: pass").body[0]
        assert isinstance(enclosing, ast.ClassDef)
        enclosing.body = [wrapped]
        wrapped = enclosing
    outer = ast.parse("def outer(): pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.args.args = [ast.arg(name) for name in (*code.co_freevars, RUNTIME)]
    outer.body = [*globals_first, wrapped]
    module = ast.fix_missing_locations(ast.Module([outer], []))
    module_code = compiled(module, code.co_filename, code.co_flags & FUTURES)
    names = "outer", *([wrapped.name] if isinstance(wrapped, ast.ClassDef) else []), function.name
    return reduce(_nested, names, module_code)


def _nested(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)


def wrap(function: Callable[..., object], is_kernel: bool, runtime: ModuleType) -> Callable[..., object]:
    """Return the callable with its function's code wrapped. A method stays a method, a partial application a partial
    application."""
    match function:
        case FunctionType():
            return _wrap_function(function, is_kernel, runtime)
        case MethodType():
            return MethodType(wrap(function.__func__, is_kernel, runtime), function.__self__)
        case partial():
            return partial(wrap(function.func, is_kernel, runtime), *function.args, **function.keywords)
    method = getattr(type(function), "__call__", None)      # noqa: B004
    if not isinstance(function, type) and isinstance(method, FunctionType):
        return MethodType(wrap(method, is_kernel, runtime), function)
    return function


def underlying(function: Callable[..., object]) -> FunctionType | None:
    """Return the Python function that a callable calls in the end; None for built-in ones."""
    while True:
        match function:
            case FunctionType():
                return function
            case MethodType():
                function = function.__func__
            case partial():
                function = function.func
            case _:
                method = getattr(type(function), "__call__", None)      # noqa: B004
                return method if isinstance(method, FunctionType) else None


def is_python_function(value: object) -> TypeGuard[Callable[..., object]]:
    """Return whether a value is callable and calls a Python function; classes are not."""
    return callable(value) and not isinstance(value, type) and underlying(value) is not None


def name_of(function: Callable[..., object]) -> str:
    inner = underlying(function)
    return inner.__name__ if inner is not None else type(function).__name__


def definition_location(function: Callable[..., object]) -> Location | None:
    """Return the location of a function's ``def``, below the decorators; None for built-in ones."""
    inner = underlying(function)
    if inner is None:
        return None
    file, first_line = inner.__code__.co_filename, inner.__code__.co_firstlineno
    lines = linecache.getlines(file)[first_line - 1:first_line + 50]
    below = (k for k, line in enumerate(lines) if line.lstrip().startswith(f"def {inner.__name__}"))
    return Location(file, first_line + next(below, 0), 0)


def _wrap_function(function: FunctionType, is_kernel: bool, runtime: ModuleType) -> FunctionType:
    """Return the function with its code wrapped: same globals, defaults and closure cells."""
    if RUNTIME in function.__code__.co_freevars:
        return function
    code = _wrapped_code(function.__code__, is_kernel, function.__globals__)
    if code is None:
        return function
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    cells[RUNTIME] = CellType(runtime)
    closure = tuple(cells[name] for name in code.co_freevars)
    wrapped = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    wrapped.__kwdefaults__ = function.__kwdefaults__
    wrapped.__qualname__ = function.__qualname__
    return wrapped

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The AST of kernels and helpers, wrapped: ``for``, ``if``, conditions, annotated assignments, and callees.

Bodies stay in place: nothing is duplicated, line numbers hold. What the wrapped code calls is the module ``tracing``,
reached through a closure cell, so no global of the user's module is touched.
"""

import ast
import dis
import inspect
import itertools
import warnings
from collections.abc import Callable
from functools import partial, reduce
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from nki_mlir.frontend.liveness import exposed_reads, leaves, loaded, stored
from nki_mlir.frontend.logic import LogicWrapper
from nki_mlir.frontend.positions import compiled
from nki_mlir.frontend.source import FUTURES, Definition, definition

RUNTIME = "__nki__"             # the name the wrapped code sees the runtime by


class ConstructWrapper(LogicWrapper):
    """Routes the constructs through the runtime, with the names each has to watch."""

    def __init__(self, function: ast.FunctionDef, is_kernel: bool) -> None:
        super().__init__(_call)
        self.is_kernel, self.depth, self.count = is_kernel, 0, itertools.count()
        self.loads = loaded([function])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if self.depth and any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(node)):
            return node         # a generator's loop drives a body elsewhere, which nobody watches: it unrolls
        self.depth += 1
        returns, node.returns = self.plainly(node.returns), None
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
        """``while name:`` may be a loop of the device; other conditions, and bodies that are left half way, are not."""
        watched = tuple(sorted(exposed_reads(node.body) - loaded([node.test]).keys()))
        jumps = leaves(node.body)
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
        jumps = leaves(inside)
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
        node.annotation, node.target = self.plainly(node.annotation), self.visit(node.target)
        node.value = node.value and self.visit(node.value)
        if node.value is None or not isinstance(node.target, ast.Name):
            return node
        nothing = ast.arguments([], [], None, [], [], None, [])
        value = _call("annotated", node.value, ast.Lambda(nothing, node.annotation))
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call):
            node.value = ast.copy_location(_call("named", node.value, ast.Constant(node.targets[0].id)), node.value)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """``tensor.buffer`` is a memory to the kernel."""
        self.generic_visit(node)
        if node.attr == "buffer" and isinstance(node.ctx, ast.Load):
            return ast.copy_location(_call("buffer_of", node.value), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, (ast.Name, ast.Attribute)):
            node.func = ast.copy_location(_call("callee", node.func), node.func)
        return node


def _call(method: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name(RUNTIME, ast.Load()), method, ast.Load()), list(arguments), [])


def _constant(value: Any) -> ast.Constant:
    return ast.Constant(value)


def _wrapped_code(code: CodeType, is_kernel: bool, scope: dict[str, object]) -> CodeType | None:
    """The wrapped code; None for generators and where there is no text, whose loops then unroll."""
    key = code.co_filename, code, is_kernel         # equal code of two files is equal as an object
    if key not in _codes:
        generates = bool(code.co_flags & inspect.CO_GENERATOR)
        found = None if generates else definition(code, scope)
        if found is None and not generates:
            warn_of_lost_checks(code, is_kernel)
        _codes[key] = None if found is None else _compiled(found, code, is_kernel)
    return _codes[key]


_codes: dict[tuple[str, CodeType, bool], CodeType | None] = {}


class NoSourceWarning(UserWarning):
    """A function runs as it is, because its text is not found."""


def warn_of_lost_checks(code: CodeType, is_kernel: bool) -> None:
    """Say what is not checked: of kernels, and of helpers that have loops."""
    if code.co_name.startswith("<") or not (is_kernel or any(
            i.opname == "FOR_ITER" for i in dis.get_instructions(code))):
        return
    warnings.warn_explicit(
        f"{code.co_name} has no source that can be read. Its loops are unrolled: whether iterations of affine_range "
        "depend on each other, and whether a tensor is used after the loop that it is made in, is not checked. 'and', "
        "'or', 'not' and chained comparisons of indices are Python's. Shapes in annotations of variables are not "
        "checked, and the buffer of a tensor does not compare with nl.sbuf and its like. fix: define it in a file, or "
        "put its text into linecache.cache",
        NoSourceWarning, code.co_filename, code.co_firstlineno)


def _compiled(found: Definition, code: CodeType, is_kernel: bool) -> CodeType:
    function, inside = found
    function.decorator_list = []
    wrapped = ConstructWrapper(function, is_kernel).visit(function)
    # What calls itself by a global name finds that, not a name of the outer function.
    own = [ast.Global([function.name])] if inside is None and function.name not in code.co_freevars else []
    # A class around a method gives its names ``__x`` the form they have inside of it (to which underscores in front of
    # the class's name do not count); an outer function makes the free names free again, so that the compiler emits
    # cell accesses for them.
    if inside is not None:
        around = ast.parse(f"class _____{inside}: pass").body[0]
        assert isinstance(around, ast.ClassDef)
        around.body = [wrapped]
        wrapped = around
    outer = ast.parse("def outer(): pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.args.args = [ast.arg(name) for name in (*code.co_freevars, RUNTIME)]
    outer.body = [*own, wrapped]
    module = ast.fix_missing_locations(ast.Module([outer], []))
    whole = compiled(module, code.co_filename, code.co_flags & FUTURES)
    names = "outer", *([wrapped.name] if isinstance(wrapped, ast.ClassDef) else []), function.name
    return reduce(_nested, names, whole)


def _nested(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)


def wrap(function: Callable[..., object], is_kernel: bool, runtime: ModuleType) -> Callable[..., object]:
    """The callable with its function's code wrapped: methods and partial applications stay such."""
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
    """The Python function that a callable ends in; None for built-in ones."""
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


def name_of(function: Callable[..., object]) -> str:
    inner = underlying(function)
    return inner.__name__ if inner is not None else type(function).__name__


def _wrap_function(function: FunctionType, is_kernel: bool, runtime: ModuleType) -> FunctionType:
    """The function with its code wrapped: same globals, defaults and closure cells."""
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

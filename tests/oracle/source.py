# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kernel's source with what Python alone cannot do in it rewritten to calls of functions of this module.

- ``a and b``, ``a or b``, ``not a``, ``~a``, ``a <= b < c``: of masks conjunction, disjunction, complement.
- ``x[-1]``: counts from the end.
- ``name: annotation = value``: the annotation is checked.
"""

import ast
import inspect
import itertools
import linecache
import textwrap
from collections.abc import Callable
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from .program import SOURCES
from .subscripts import FromEnd

_numbers = itertools.count()


def conjunction(*parts: Callable[[], Any]) -> Any:
    """``and``: of masks by places, of anything else Python's."""
    value = parts[0]()
    for part in parts[1:]:
        if isinstance(value, np.ndarray):
            value = value & part()
        elif not value:
            return value
        else:
            value = part()
    return value


def disjunction(*parts: Callable[[], Any]) -> Any:
    value = parts[0]()
    for part in parts[1:]:
        if isinstance(value, np.ndarray):
            value = value | part()
        elif value:
            return value
        else:
            value = part()
    return value


def negation(value: Any) -> Any:
    """``not``."""
    return ~value if isinstance(value, np.ndarray) else not value


def complement(value: Any) -> Any:
    """``~``: of a condition that Python knows, too."""
    return not value if isinstance(value, (bool, np.bool_)) else ~value


def annotated(value: Any, annotation: Callable[[], Any]) -> Any:
    """``name: tensor[...] = value``: the shape is checked (beta 2.3)."""
    try:
        wanted = annotation()
    except Exception:
        wanted = None
    shape = getattr(wanted, "annotated_shape", None)
    if shape is not None and tuple(value.shape) != tuple(shape):
        raise ValueError(f"the annotation says {tuple(shape)}, the value is {tuple(value.shape)}")
    return value


def from_end(index: Any) -> Any:
    """``x[-1]``."""
    return FromEnd(index) if isinstance(index, int) else index


NAMES: dict[str, Any] = {f"__{f.__name__}__oracle": f
                         for f in (conjunction, disjunction, negation, complement, annotated, from_end)}


class Rewriter(ast.NodeTransformer):
    """See the module."""

    def call(self, function: Callable[..., Any], at: ast.AST, *arguments: ast.expr) -> ast.expr:
        call = ast.Call(ast.Name(f"__{function.__name__}__oracle", ast.Load()), list(arguments), [])
        return ast.fix_missing_locations(ast.copy_location(call, at))

    def later(self, expression: ast.expr) -> ast.expr:
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return ast.copy_location(ast.Lambda(nothing, expression), expression)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        function = conjunction if isinstance(node.op, ast.And) else disjunction
        return self.call(function, node, *map(self.later, node.values))

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        values = [node.left, *node.comparators]
        parts = [ast.copy_location(ast.Compare(a, [op], [b]), node) for a, op, b in zip(values, node.ops, values[1:])]
        return self.call(conjunction, node, *map(self.later, parts))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, (ast.Not, ast.Invert)):
            return self.call(negation if isinstance(node.op, ast.Not) else complement, node, node.operand)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        single = not isinstance(node.slice, ast.Tuple)
        items = [node.slice] if single else node.slice.elts                 # type: ignore[attr-defined]
        items = [self.call(from_end, i, i) if isinstance(i, ast.UnaryOp) and isinstance(i.op, ast.USub)
                 and isinstance(i.operand, ast.Constant) else i for i in items]
        node.slice = items[0] if single else ast.copy_location(ast.Tuple(items, ast.Load()), node.slice)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        self.generic_visit(node)
        if node.value is None or not isinstance(node.target, ast.Name):
            return node
        value = self.call(annotated, node.value, node.value, self.later(node.annotation))
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        fields = [n for n in node.body if isinstance(n, ast.AnnAssign)]
        node.body = [n if n in fields else self.visit(n) for n in node.body]
        return node


def compiled(text: str, first: int = 1) -> Any:
    """Code of a text, rewritten; its lines are those of the text."""
    file = f"<oracle {next(_numbers)}>"
    SOURCES.add(file)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    tree = Rewriter().visit(ast.parse(text))
    ast.increment_lineno(tree, first - 1)
    return compile(ast.fix_missing_locations(tree), file, "exec")


class Importer:
    """``import`` in a kernel's source: the language's modules are the oracle's."""

    def __init__(self, modules: dict[str, ModuleType | Any]) -> None:
        self.modules = modules

    def __call__(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if level == 0 and name in self.modules:
            return self.modules[name] if fromlist else self.modules.get(name.split(".")[0], self.modules[name])
        return __import__(name, globals, locals, fromlist, level)


def namespace(modules: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    import builtins
    replaced = {**vars(builtins), "__import__": Importer(modules)}
    return {"__builtins__": replaced, "__name__": "kernel_of_the_oracle", **NAMES, **names}


def from_text(text: str, modules: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """The names that a text defines."""
    namespace_of_text = namespace(modules, names)
    exec(compiled(text), namespace_of_text)
    return namespace_of_text


class Translator:
    """Functions as they would be, had their files imported the oracle's modules.

    ``replace`` gives the oracle's object for one of the surroundings, or None. Lambdas have no separate source: of
    them the code is kept, so that ``and``, ``or`` and ``not`` in them are Python's.
    """

    def __init__(self, modules: dict[str, Any], replace: Callable[[Any], Any]) -> None:
        self.modules, self.replace = modules, replace
        self.rebuilt: dict[Any, Any] = {}

    def function(self, function: FunctionType) -> Any:
        """The same source with the same surroundings, in which the language is replaced."""
        if id(function) in self.rebuilt:
            return self.rebuilt[id(function)][0]
        around = namespace(self.modules, {})
        rebuilt: Any = None
        self.rebuilt[id(function)] = (lambda *a, **k: rebuilt(*a, **k)), function
        for name, value in surroundings(function).items():
            around[name] = self.value(value)
        tree = definition(function)
        if tree is None:
            cells = tuple(CellType(self.value(c.cell_contents)) for c in function.__closure__ or ())
            SOURCES.add(function.__code__.co_filename)
            rebuilt = FunctionType(function.__code__, around, function.__name__, function.__defaults__, cells)
        else:
            exec(compiled(ast.unparse(ast.Module([tree], []))), around)
            rebuilt = around[tree.name]
        rebuilt.__defaults__ = None if function.__defaults__ is None else tuple(map(self.value, function.__defaults__))
        keywords = function.__kwdefaults__
        rebuilt.__kwdefaults__ = None if keywords is None else {k: self.value(v) for k, v in keywords.items()}
        rebuilt.__annotations__ = dict(function.__annotations__)
        self.rebuilt[id(function)] = rebuilt, function
        return rebuilt

    def value(self, value: Any) -> Any:
        """What a name of the surroundings becomes: a module or object of the language the oracle's."""
        replacement = self.replace(value)
        if replacement is not None:
            return replacement
        if type(value) in (tuple, list):
            return type(value)(map(self.value, value))
        if type(value) is dict:
            return {k: self.value(v) for k, v in value.items()}
        return self.function(value) if isinstance(value, FunctionType) else value


def surroundings(function: FunctionType) -> dict[str, Any]:
    """The names outside of a function that it uses, in functions within it, too."""
    names, codes = set(), [function.__code__]
    for code in codes:
        names.update(code.co_names)
        codes += [c for c in code.co_consts if isinstance(c, CodeType)]
    values = {n: function.__globals__[n] for n in names if n in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            values[name] = cell.cell_contents
        except ValueError:              # not assigned yet
            continue
    return values


def definition(function: FunctionType) -> ast.FunctionDef | None:
    """The function's ``def``, without decorators, defaults and annotations of parameters; None of a lambda."""
    try:
        tree = ast.parse(textwrap.dedent("".join(inspect.getsourcelines(function)[0]))).body[0]
    except (OSError, SyntaxError, TypeError):
        return None
    if not isinstance(tree, ast.FunctionDef) or tree.name != function.__name__:
        return None
    tree.decorator_list, tree.returns = [], None
    tree.args.defaults, tree.args.kw_defaults = [], [None] * len(tree.args.kwonlyargs)
    for argument in (*tree.args.args, *tree.args.posonlyargs, *tree.args.kwonlyargs):
        argument.annotation = None
    optional = len(function.__defaults__ or ())
    positional = [*tree.args.posonlyargs, *tree.args.args]
    tree.args.defaults = [ast.Constant(None) for _ in positional[len(positional) - optional:]] if optional else []
    tree.args.kw_defaults = [ast.Constant(None) if a.arg in (function.__kwdefaults__ or {}) else None
                             for a in tree.args.kwonlyargs]
    return tree

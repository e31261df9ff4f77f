# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Python that the vendor's parser of kernels refuses, in releases 0.2 to 0.6 of the current generation.

Capture accepts all of it. ``nki_mlir.check``, ``NKI_MLIR_STRICT`` and ``nki-migrate`` report it, by one table.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

PARSER = "the parser of nki 0.2 to 0.6"
LOOPS = ("fori_loop", "while_loop")                 # their bodies may be inner functions
DECORATORS = ("jit", "staticmethod", "dataclass")


@dataclass(frozen=True)
class PythonRule:
    """A construct that the parser refuses, and what to write instead."""

    construct: str
    instead: str

    def __str__(self) -> str:
        return f"{PARSER} refuses {self.construct}"


def _by_node(*kinds: type[ast.AST]) -> Callable[[ast.AST], bool]:
    return lambda node: isinstance(node, kinds)


def _last_name(node: ast.expr) -> str:
    """Return the last part of the dotted name of a function, or of the function that an expression calls."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _has_keys(node: ast.AST) -> bool:
    return isinstance(node, ast.Dict) and not all(
        isinstance(key, ast.Constant) and isinstance(key.value, str) for key in node.keys if key is not None)


def _compares_identity(node: ast.AST) -> bool:
    """Return whether a comparison has an ``is`` whose operand is not None."""
    if not isinstance(node, ast.Compare):
        return False
    operands = [node.left, *node.comparators]
    return any(isinstance(operator, ast.Is | ast.IsNot) and not any(
        isinstance(side, ast.Constant) and side.value is None for side in sides)
        for operator, sides in zip(node.ops, pairwise(operands)))


def _is_region(node: ast.AST) -> bool:
    """Return whether a ``with`` is other than ``with nl.no_reorder():``."""
    return isinstance(node, ast.With) and not all(
        isinstance(item.context_expr, ast.Call) and _last_name(item.context_expr) == "no_reorder"
        and not (item.context_expr.args or item.context_expr.keywords or item.optional_vars) for item in node.items)


def _unpacks_arguments(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and (any(isinstance(a, ast.Starred) for a in node.args)
                                           or any(k.arg is None for k in node.keywords))


def _unpacks_sequence(node: ast.AST) -> bool:
    return isinstance(node, ast.Tuple | ast.List) and any(isinstance(e, ast.Starred) for e in node.elts)


INNER_FUNCTION = PythonRule("an inner function", "move it out of the kernel")
LAMBDA = PythonRule("a lambda", "define a function of the module")
RAISE = PythonRule("'raise'", "write assert False, with the text")
COMPREHENSION = PythonRule("a comprehension", "append to a list in a loop")
GENERATOR = PythonRule("a generator expression", "append to a list in a loop")
DICTIONARY = PythonRule("a comprehension of a dictionary", "fill it in a loop")
WALRUS = PythonRule(":=", "assign before the statement")
FORMAT = PythonRule("a format in an f-string", "write the value alone")
DECORATOR = PythonRule("this decorator", "leave it out; nki.jit, staticmethod and dataclass are known")
VARIADIC = PythonRule("a parameter *args", "name each parameter")
KEYWORD_ONLY = PythonRule("parameters of a kernel after *", "remove the *")

RULES: dict[PythonRule, Callable[[ast.AST], bool]] = {
    INNER_FUNCTION: _by_node(ast.FunctionDef),
    LAMBDA: _by_node(ast.Lambda),
    RAISE: _by_node(ast.Raise),
    COMPREHENSION: _by_node(ast.ListComp),
    GENERATOR: _by_node(ast.GeneratorExp),
    FORMAT: lambda node: isinstance(node, ast.FormattedValue) and node.format_spec is not None,
    DICTIONARY: _by_node(ast.DictComp),
    PythonRule("a comprehension of a set", "fill a list in a loop"): _by_node(ast.SetComp),
    PythonRule("a set", "use a list or a tuple"): _by_node(ast.Set),
    PythonRule("a dictionary whose keys are not string literals", "write string literals, or use a list"): _has_keys,
    WALRUS: _by_node(ast.NamedExpr),
    PythonRule("'yield'", "return a list"): _by_node(ast.Yield, ast.YieldFrom),
    PythonRule("an unpacked argument", "write its elements"): _unpacks_arguments,
    PythonRule("an unpacked sequence", "write its elements"): _unpacks_sequence,
    PythonRule("@", "call nl.matmul"): lambda node: isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(
        node.op, ast.MatMult),
    PythonRule("'is' between values other than None", "write =="): _compares_identity,
    PythonRule("a class within a function", "define it in the module"): _by_node(ast.ClassDef),
    PythonRule("'del'", "leave the name as it is"): _by_node(ast.Delete),
    PythonRule("'async' and 'await'", "write a plain function"): _by_node(
        ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await),
    PythonRule("'match'", "write if and elif"): _by_node(ast.Match),
    PythonRule("'try'", "test the condition"): _by_node(ast.Try),
    PythonRule("an import within a function", "import at the top of the file"): _by_node(ast.Import, ast.ImportFrom),
    PythonRule("'global' and 'nonlocal'", "pass the value as an argument, and return it"): _by_node(
        ast.Global, ast.Nonlocal),
    PythonRule("'else' of a loop", "test a flag after the loop"): lambda node: isinstance(
        node, ast.For | ast.While) and bool(node.orelse),
    PythonRule("'with' of values other than nl.no_reorder()", "write the statements without it"): _is_region,
}


def refused(function: ast.FunctionDef, is_kernel: bool) -> Iterator[tuple[PythonRule, ast.expr | ast.stmt]]:
    """Yield the rules that a kernel, or a function that kernels call, breaks, and the node that breaks each, in the
    order of lines."""
    bodies = {id(value) for call in ast.walk(function) if isinstance(call, ast.Call) and _last_name(call) in LOOPS
              for value in (*call.args, *(k.value for k in call.keywords))}
    names = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and id(n) in bodies}
    broken: list[tuple[PythonRule, ast.expr | ast.stmt]] = []
    if function.args.vararg is not None:
        broken.append((VARIADIC, function))
    if is_kernel and function.args.kwonlyargs:
        broken.append((KEYWORD_ONLY, function))
    broken += [(DECORATOR, d) for d in function.decorator_list if _last_name(d) not in DECORATORS]
    for statement in function.body:
        for node in ast.walk(statement):
            if id(node) in bodies or (isinstance(node, ast.FunctionDef) and node.name in names):
                continue
            broken += [(rule, node) for rule, breaks in RULES.items()
                       if breaks(node) and isinstance(node, ast.expr | ast.stmt)]
    yield from sorted(broken, key=lambda entry: (entry[1].lineno, entry[1].col_offset))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which names a loop body or a branch can carry Python state in: small syntactic analyses for the guards of capture."""

import ast
from collections import Counter
from collections.abc import Iterable


def loaded(nodes: Iterable[ast.AST]) -> Counter[str]:
    """Names read anywhere inside, with how often; ``x += 1`` reads x."""
    names: Counter[str] = Counter()
    for node in (inner for n in nodes for inner in ast.walk(n)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names[node.id] += 1
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] += 1
    return names


def stored(nodes: Iterable[ast.AST]) -> set[str]:
    """Names bound anywhere inside."""
    walk = (inner for n in nodes for inner in ast.walk(n))
    return {n.id for n in walk if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def exposed_reads(body: Iterable[ast.stmt]) -> set[str]:
    """Names the statements may read before they bind them: the names that are live at the loop's head.

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


def leaves(body: Iterable[ast.stmt], by: tuple[type[ast.stmt], ...] = JUMPS) -> bool:
    """Whether control can leave the statements other than at their end: return, raise, or a jump of an outer loop."""
    def scan(nodes: Iterable[ast.AST], in_loop: bool) -> bool:
        for node in nodes:
            if isinstance(node, by) and not (in_loop and isinstance(node, (ast.Break, ast.Continue))):
                return True
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                continue
            if scan(ast.iter_child_nodes(node), in_loop or isinstance(node, (ast.For, ast.While))):
                return True
        return False
    return scan(body, False)

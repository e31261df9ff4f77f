# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Python's own trees of texts that are migrated, parsed and traversed once. Nothing changes these trees."""

import ast
import functools


@functools.lru_cache(64)
def python_tree(text: str) -> ast.Module:
    """Return the tree of a text."""
    return ast.parse(text)


@functools.lru_cache(256)
def walked(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return all nodes of a tree, in the order of ``ast.walk``."""
    return tuple(ast.walk(tree))


def tree_names(*trees: ast.AST, context: type = ast.expr_context) -> set[str]:
    """Return the names in trees: all, or only those that they read (``ast.Load``) or bind (``ast.Store``)."""
    return {n.id for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def parameters_of(arguments: ast.arguments) -> list[ast.arg]:
    """Return the parameters that have a name for callers: all but ``*args`` and ``**options``."""
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]

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

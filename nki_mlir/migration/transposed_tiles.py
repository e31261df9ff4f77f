# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives tiles that only transposes write and only copies read the dtype of the transposed tensor.

before:  t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)    after:  t = nl.ndarray(..., dtype=p.dtype, ...)
         t[...] = nisa.nc_transpose(p)                                           nisa.nc_transpose(dst=t, data=p)

A transpose of the current generation does not convert.
"""

import ast
from collections.abc import Callable

from nki_mlir.migration.parameters import root
from nki_mlir.migration.python_trees import walked

COPIES = ("nl.copy", "nisa.tensor_copy")


def transposed_tiles(function: ast.FunctionDef, meaning: Callable[[ast.expr], str]) -> dict[str, str]:
    """Return the names of the tiles of a function that only transposes write and only copies read, each with the name
    of the transposed tensor."""
    sources: dict[str, set[str]] = {}
    accepted: set[int] = set()          # ids of the nodes that use a tile whatever its dtype

    def of_call(node: ast.expr) -> str:
        return meaning(node.func) if isinstance(node, ast.Call) else ""

    def accept(node: ast.expr) -> None:
        while isinstance(node, ast.Subscript):
            node = node.value
        accepted.add(id(node))
    for node in walked(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
            target = node.targets[0]
            if of_call(node.value) == "nisa.nc_transpose":
                sources.setdefault(root(target), set()).add(_transposed(node.value, of_call))
                accept(target)
            is_copy = isinstance(node.value, ast.Call) and of_call(node.value) in COPIES and node.value.args
            accept(node.value.args[0] if isinstance(node.value, ast.Call) and is_copy else node.value)
        elif isinstance(node, ast.Call) and of_call(node) in COPIES and node.args and any(
                k.arg == "dtype" for k in node.keywords):
            accept(node.args[0])
    for node in walked(function):
        if isinstance(node, ast.Name) and node.id in sources and isinstance(node.ctx, ast.Load) and (
                id(node) not in accepted):
            del sources[node.id]
    return {name: next(iter(roots)) for name, roots in sources.items() if len(roots) == 1 and roots != {""}}


def _transposed(call: ast.expr, of_call: Callable[[ast.expr], str]) -> str:
    """Return the name of the tensor that a call transposes, directly or from a load; "" for others."""
    assert isinstance(call, ast.Call)
    data = next((k.value for k in call.keywords if k.arg == "data"), call.args[0] if call.args else None)
    if isinstance(data, ast.Call) and of_call(data) == "nl.load" and len(data.args) == 1 and not data.keywords:
        data, = data.args
    return root(data) if data is not None and not of_call(data).startswith(("nl.", "nisa.")) else ""

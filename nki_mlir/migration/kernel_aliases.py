# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds wrappers of kernels, and the other names that a file gives its kernels.

    k = nki.trace(kernel)           k[grid](...) launches the kernel
"""

import ast
from collections.abc import Set

import libcst as cst

from nki_mlir.migration.names import Names

WRAPPERS = frozenset({"nki.jit", "nki.trace", "nki.baremetal", "nki.benchmark", "nki.profile"})

def kernel_aliases(text: str, names: Names, functions: Set[str], wrappers: Set[str]) -> dict[str, str]:
    """Return the kernel of each variable that is assigned only that kernel, plain or in a wrapper. Names of parameters
    do not count."""
    tree = ast.parse(text)
    parameters = {argument.arg for node in ast.walk(tree) if isinstance(node, ast.arguments)
                  for argument in [*node.posonlyargs, *node.args, *node.kwonlyargs]}
    values: dict[str, list[str]] = {}           # of each name: the kernels that it is assigned, or ""
    plain: set[int] = set()
    for assignment in (n for n in ast.walk(tree) if isinstance(n, ast.Assign)):
        for target in assignment.targets:
            if isinstance(target, ast.Name):
                values.setdefault(target.id, []).append(_kernel(assignment.value, names, wrappers))
                plain.add(id(target))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in plain:
            values.setdefault(node.id, []).append("")       # a loop, an unpacked value
    return {name: kernels[0] for name, kernels in values.items() if set(kernels) <= functions and len(set(kernels)) == 1
            and name not in functions | parameters}


def _kernel(value: ast.expr, names: Names, wrappers: Set[str]) -> str:
    """Return the name of the kernel in a value, without a wrapper around it; "" for other values."""
    if isinstance(value, ast.Call) and value.args:
        function = value.func.func if isinstance(value.func, ast.Call) else value.func
        if names.meaning(cst.parse_expression(ast.unparse(function))) not in wrappers:
            return ""
        value = value.args[0]
    return value.id if isinstance(value, ast.Name) else ""


def wrapper_of(call: cst.Call, names: Names) -> str:
    """Return the wrapper that a call puts around a kernel, as ``nki.benchmark(k)`` and ``nki.benchmark(iters=5)(k)``
    do, else ""."""
    if not call.args or call.args[0].keyword is not None:
        return ""
    function = call.func
    if isinstance(function, cst.Call) and all(a.keyword is not None for a in function.args):
        function = function.func
    meaning = names.meaning(function)
    return meaning if meaning in WRAPPERS else ""

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds wrappers of kernels, and the other names that a file gives its kernels.

    k = nki.trace(kernel)           k[grid](...) launches the kernel
    for k in (first, second):       k[grid](...) launches both
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

import libcst as cst

from nki_mlir.migration.names import Names
from nki_mlir.migration.python_trees import parameters_of, python_tree, walked

UNCLEAR_LAUNCH = ("a launch of a variable that may be a kernel that gets its grid as an argument, or another one: "
                  "launch each kernel by its name")
WRAPPERS = frozenset({"nki.jit", "nki.trace", "nki.baremetal", "nki.benchmark", "nki.profile"})

def kernel_aliases(text: str, names: Names, functions: Set[str], wrappers: Set[str]) -> dict[str, str]:
    """Return the kernel of each variable that is assigned only that kernel, plain or in a wrapper. Names of parameters
    do not count."""
    tree = python_tree(text)
    parameters = {argument.arg for node in walked(tree) if isinstance(node, ast.arguments)
                  for argument in parameters_of(node)}
    values: dict[str, list[str]] = {}           # name -> kernels that it is assigned, "" for other values
    plain: set[int] = set()
    for assignment in (n for n in walked(tree) if isinstance(n, ast.Assign)):
        for target in assignment.targets:
            if isinstance(target, ast.Name):
                values.setdefault(target.id, []).append(_kernel(assignment.value, names, wrappers))
                plain.add(id(target))
    for node in walked(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in plain:
            values.setdefault(node.id, []).append("")       # a loop, an unpacked value
    return {name: kernels[0] for name, kernels in values.items() if set(kernels) <= functions and len(set(kernels)) == 1
            and name not in functions | parameters}


def kernel_groups(tree: ast.Module, names: Names, functions: Set[str], wrappers: Set[str]) -> "KernelGroups":
    """Return the kernels that variables of a file may be."""
    return KernelGroups(tree, functions, lambda value: _kernel(value, names, wrappers))


def _kernel(value: ast.expr, names: Names, wrappers: Set[str]) -> str:
    """Return the name of the kernel in a value, without a wrapper around it; "" for other values."""
    if isinstance(value, ast.Call) and value.args:
        function = value.func.func if isinstance(value.func, ast.Call) else value.func
        if names.meaning(function) not in wrappers:
            return ""
        value = value.args[0]
    return value.id if isinstance(value, ast.Name) else ""


class KernelGroups:
    """The kernels that a variable may be, if it is not always the same: a variable of a loop or of a comprehension, or
    a parameter of a function of the host."""

    def __init__(self, tree: ast.Module, kernels: Set[str], kernel_of: Callable[[ast.expr], str]) -> None:
        self.kernels, self.kernel_of = kernels, kernel_of
        self.values: dict[str, set[str]] = {}           # variable -> kernels; "" for other values
        self.assigned: dict[str, list[ast.expr]] = {}
        for node in walked(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.assigned.setdefault(node.targets[0].id, []).append(node.value)
        host = {f.name: f for f in walked(tree) if isinstance(f, ast.FunctionDef) and f.name not in kernels}
        for node in walked(tree):
            if isinstance(node, ast.For | ast.comprehension):
                self._bind(node.target, self._elements(node.iter))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in host:
                function = host[node.func.id]
                passed = dict(zip((a.arg for a in function.args.args), node.args))
                passed |= {k.arg: k.value for k in node.keywords if k.arg is not None}
                for name, value in passed.items():
                    self._bind(ast.Name(name), [value])
        for name in self.values.keys() & self.assigned.keys():
            self._bind(ast.Name(name), self.assigned[name])
        self.values = {name: values for name, values in self.values.items() if values & kernels and name not in kernels}

    def on_grids(self, gridded: Mapping[str, int]) -> dict[str, int]:
        """Return the rank of the grid of each variable whose kernels all take their grid as an argument."""
        ranks = {name: {gridded.get(kernel, 0) for kernel in values} for name, values in self.values.items()}
        return {name: max(kernel_ranks) for name, kernel_ranks in ranks.items() if len(kernel_ranks) == 1 and
                kernel_ranks != {0}}

    def unclear_launches(self, subscripts: Iterable[cst.Subscript], gridded: Mapping[str, int]
                         ) -> Iterator[cst.Subscript]:
        """Yield the launches through variables that may be kernels which have their grid as an argument, and also
        kernels or other values which do not."""
        mixed = {name for name, values in self.values.items() if len({gridded.get(k, 0) for k in values}) > 1}
        for node in subscripts:
            if isinstance(node.value, cst.Name) and node.value.value in mixed:
                yield node

    def _bind(self, target: ast.expr, values: Sequence[ast.expr | None]) -> None:
        if isinstance(target, ast.Name):
            found_kernels = {self.kernel_of(value) if value is not None else "" for value in values or [None]}
            self.values.setdefault(target.id, set()).update(k if k in self.kernels else "" for k in found_kernels)
        elif isinstance(target, ast.Tuple):
            for k, part in enumerate(target.elts):
                self._bind(part, [value.elts[k] if isinstance(value, ast.Tuple) and k < len(value.elts) else None
                                  for value in values])

    def _elements(self, value: ast.expr) -> Sequence[ast.expr | None]:
        """Return the elements that a loop takes one after the other; none if the text does not show them."""
        match value:
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                return elements
            case ast.Name(id=name) if len(self.assigned.get(name, ())) == 1:
                return self._elements(self.assigned[name][0])
            case ast.Call(func=ast.Attribute(value=mapping, attr="values" | "items" as method), args=[]):
                if isinstance(mapping, ast.Name) and len(self.assigned.get(mapping.id, ())) == 1:
                    mapping = self.assigned[mapping.id][0]
                if isinstance(mapping, ast.Dict):
                    return mapping.values if method == "values" else [
                        ast.Tuple([key or value, value]) for key, value in zip(mapping.keys, mapping.values)]
            case ast.Call(func=ast.Name(id="zip"), args=[_, *_] as columns):
                parts = [self._elements(column) for column in columns]
                return [ast.Tuple([p if p is not None else ast.Constant(None) for p in row]) for row in zip(*parts)]
            case ast.Call(func=ast.Name(id="enumerate"), args=[first, *_]):
                return [ast.Tuple([ast.Constant(0), e]) if e is not None else None for e in self._elements(first)]
        return []


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

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reports the Python in kernels that the vendor's parser refuses, and moves inner functions to the top of the file."""

import ast

import libcst as cst

from nki_mlir.language import python_subset
from nki_mlir.migration.grid_kernels import GridKernels
from nki_mlir.migration.lifted_functions import with_lifted_functions
from nki_mlir.migration.names import Names, nodes_of
from nki_mlir.migration.parameters import tree_of
from nki_mlir.migration.python_trees import tree_names
from nki_mlir.migration.report import MigrationReport

# Python that the vendor's parser refuses and the migration rewrites
REWRITTEN = (python_subset.COMPREHENSION, python_subset.DICTIONARY, python_subset.GENERATOR, python_subset.RAISE,
             python_subset.FORMAT, python_subset.DECORATOR, python_subset.KEYWORD_ONLY, python_subset.WALRUS)


class RefusedConstructs(GridKernels):
    """The part of the rewriter for Python that the vendor's parser does not read."""

    def __init__(self, names: Names, report: MigrationReport, functions: dict[str, cst.FunctionDef],
                 line_of: dict[int, int]) -> None:
        super().__init__(names, report, functions, line_of)
        self.rewrites: dict[str, cst.FunctionDef] = {}
        self.inner_functions: dict[tuple[str, str], tuple[int, python_subset.PythonRule]] = {}   # (outer, inner): line

    def report_refused(self, node: cst.FunctionDef, tree: ast.FunctionDef, is_kernel: bool) -> None:
        """Report the Python that stays in a function and that the vendor's parser refuses."""
        first = self.line_of.get(id(node), 0)
        lambdas = {id(n.value): n.targets[0].id for n in ast.walk(tree) if isinstance(n, ast.Assign)
                   and isinstance(n.value, ast.Lambda) and isinstance(n.targets[0], ast.Name)}
        for rule, construct in python_subset.refused(tree, is_kernel):
            line = first + construct.lineno - tree.lineno
            name = construct.name if isinstance(construct, ast.FunctionDef) else lambdas.get(id(construct))
            if name and rule in (python_subset.INNER_FUNCTION, python_subset.LAMBDA):
                self.inner_functions[tree.name, name] = line, rule
            elif rule not in REWRITTEN and not (isinstance(construct, ast.Import) and self.names.are_packages(
                    (item.name, item.asname) for item in construct.names)):
                self.line = line
                self.report_refused_python(rule)
        for name in sorted(tree_names(tree) & self.host_methods.classes.keys() - self.tile_classes.keys()):
            self._report_methods(self.host_methods.classes[name])

    def _report_methods(self, node: cst.ClassDef) -> None:
        """Report the Python of a class that a kernel names, whose methods stay."""
        for method in nodes_of(node, cst.FunctionDef):
            tree = tree_of(method)
            for rule, construct in python_subset.refused(tree, False):
                self.line = self.line_of.get(id(method), 0) + construct.lineno - tree.lineno
                self.report_refused_python(rule)

    def lifted(self, text: str) -> str:
        """Return the new text with inner functions as functions of the file, and report those that stay."""
        if not self.inner_functions:
            return text
        text, moved = with_lifted_functions(text, self.rewrites)
        for (outer, name), (line, rule) in self.inner_functions.items():
            self.line = line
            if (outer, name) in moved:
                self.report.changed(line, f"the inner function {name} becomes a function of the file, which gets what "
                                          "it reads as arguments")
            else:
                self.report_refused_python(rule)
        return text

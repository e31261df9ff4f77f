# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites the programs of a launch as loops over the grid, which the kernel gets as an argument.

    @nki.jit                                            @nki.jit
    def double(x):                                      def double(x, grid=(1,)):
        i = nl.program_id(0)                                for i in range(grid[0]):
        nl.store(out[i], nl.load(x[i]) * 2)                     nl.store(out[i], nl.multiply(nl.load(x[i]), 2))
"""

import ast
from collections import Counter

import libcst as cst

from nki_mlir.migration import program_loops, terms
from nki_mlir.migration.argument_facts import InnerFunction
from nki_mlir.migration.expressions import LeftForAPerson
from nki_mlir.migration.facts import NumberFact
from nki_mlir.migration.names import Names
from nki_mlir.migration.parameters import Parameters, bound_names, tree_of
from nki_mlir.migration.program_reductions import ProgramLoops, has_reductions
from nki_mlir.migration.python_trees import tree_names
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.tile_objects import TileObjects


class GridKernels(TileObjects):
    """Rewrites calls of ``nl.program_id`` and the like; ``functions`` has the functions of the file by name."""

    def __init__(self, names: Names, report: MigrationReport, functions: dict[str, cst.FunctionDef],
                 line_of: dict[int, int]) -> None:
        super().__init__(names, report)
        self.functions, self.line_of = functions, line_of
        self.trees = {name: tree_of(f) for name, f in functions.items()}
        self.parameters = Parameters(names, self.trees)
        self.local: dict[str, InnerFunction] = {}
        self.callers: list[str] = []                            # the functions that are being rewritten
        self.axes: set[int] = set()
        self.on_grid = False
        self.on_cores: set[str] = set()         # kernels whose programs are the cores of a launch
        self.reduction_line, self.reduced = 0, {}       # line of the last reduction over programs

    def program_axes(self, name: str) -> set[int]:
        """Return the axes of the grid that a function of the file reads itself."""
        return self.axes_of(self.trees[name])

    def axes_of(self, tree: ast.AST) -> set[int]:
        """Return the axes of the grid that a tree reads."""
        axes: set[int] = set()
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            meaning = self.parameters.meaning(node.func) if isinstance(node.func, (ast.Name, ast.Attribute)) else ""
            if meaning in ("nl.program_id", "nl.num_programs"):
                values = [*node.args, *(k.value for k in node.keywords)]
                axes.add(values[0].value if values and isinstance(values[0], ast.Constant) and isinstance(
                    values[0].value, int) else 0)
            elif meaning == "nl.program_ndim":
                axes.add(0)
        return axes

    def reduces(self, name: str) -> bool:
        """Return whether a function of the file reduces over programs, itself or in a function that it calls."""
        called, functions = [name], set[str]()
        while called:
            functions.add(called[-1])
            calls = [node.func for node in ast.walk(self.trees[called.pop()])
                     if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)]
            if any(self.parameters.meaning(function) == "nl.all_reduce" for function in calls):
                return True
            called += {f.id for f in calls if isinstance(f, ast.Name)} & self.trees.keys() - functions
        return False

    def program(self, name: str, arguments: str) -> cst.BaseExpression:
        """Replace the index of a program by the variable of a loop over the grid."""
        if not self.on_grid:
            return super().program(name, arguments)
        axis = arguments.partition("=")[2] or arguments or "0"
        if name == "program_ndim":
            return self.new("len(grid)", NumberFact("int"))
        if name == "program_id":
            if terms.number(axis) is None:
                self.reject("nl.program_id of an axis that is not a constant")
            return self.new(f"program_{axis}", NumberFact("int"))
        if not arguments and len(self.axes) > 1:
            return self.new(" * ".join(f"grid[{k}]" for k in sorted(self.axes)), NumberFact("int"))
        return self.new(f"grid[{axis}]", NumberFact("int"))

    def programs(self, node: cst.FunctionDef, tree: ast.FunctionDef, body: list[cst.BaseStatement]
                 ) -> tuple[list[cst.BaseStatement], cst.Parameters]:
        """Return the body within loops over the programs of its grid, after the statements that all programs share."""
        line = self.line_of.get(id(node), 0)
        rank = max(self.axes) + 1
        first_return = len(body)
        while first_return and program_loops.only_returns(body[first_return - 1]):
            first_return -= 1
        body, returns = body[:first_return], body[first_return:]
        inner: list[cst.BaseStatement] = []
        shared: list[cst.BaseStatement] = []
        hidden = {f"program_{k}" for k in range(rank)}
        counts = bound_names(tree)
        unread = set(counts) - tree_names(tree, context=ast.Load)
        for name in unread:                 # `_` of `_, _, d, s = x.shape`: what nothing reads may be bound anywhere
            del counts[name]
        for k, statement in enumerate(body):
            if (k == 0 and program_loops.is_docstring(statement)) or self._is_shared(statement, hidden, counts):
                shared.append(statement)
                continue
            inner.append(statement)
            hidden |= set(bound_names(ast.parse(program_loops.dedented(statement)))) - {"f"} - unread
        if any(program_loops.terms_of(statement) & hidden for statement in returns):
            self.report.add_manual(line,
                                   f"{node.name.value} returns tensors that its programs create: create them before "
                                   "the loops")
        if any(map(program_loops.returns_in, inner)):
            self.report.add_manual(line, f"{node.name.value} returns within its body, and its programs became a loop")
        variables = []
        for k in range(rank):
            variable, inner = program_loops.loop_variable(f"program_{k}", inner, counts)
            variables.append(variable)
        inner = self._loops(variables, inner)
        default = f"({', '.join(['1'] * rank)}{',' if rank == 1 else ''})"
        parameter = cst.Param(cst.Name("grid"), default=cst.parse_expression(default),
                              equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")))
        self.report.changed(line, f"the programs of the grid become loops of {node.name.value}, which gets the grid as "
                                  "an argument: a launch of the current generation has 1 or 2 cores")
        by_name = node.params.kwonly_params
        changed = {"kwonly_params": [*by_name, parameter]} if by_name else {"params": [*node.params.params, parameter]}
        return [*shared, *inner, *returns], node.params.with_changes(**changed)

    def _loops(self, variables: list[str], body: list[cst.BaseStatement]) -> list[cst.BaseStatement]:
        """Return loops over the programs around a body."""
        if has_reductions(body, self.reduced):
            try:
                loops = ProgramLoops(variables[0], self.nl, self.nisa, self.fresh_name,
                                     self.reduced).enclose_in_loops(body)
                self.report.changed(self.reduction_line, "nl.all_reduce becomes a loop that combines the tiles of all "
                                                         "programs, between two loops over the programs")
                return loops
            except LeftForAPerson as error:
                self.report.add_manual(self.reduction_line, str(error))
        for k in reversed(range(len(variables))):
            body = [cst.For(cst.Name(variables[k]), cst.parse_expression(f"range(grid[{k}])"), cst.IndentedBlock(body))]
        return body

    def reduces_programs(self, axes: str) -> bool:
        """Return whether the statement that is being rewritten may reduce over all programs: it is one of the kernel
        itself, whose grid has one axis."""
        self.reduction_line = self.line
        return self.on_grid and self.axes == {0} and len(self.callers) == 1 and len(self.prelude) == 2 and axes.strip(
            "[](), ") == "0"

    def _is_shared(self, statement: cst.BaseStatement, hidden: set[str], counts: Counter[str]) -> bool:
        return program_loops.is_shared(statement, hidden, counts, self.parameters.meaning,
                                       {*self.functions, *self.local})

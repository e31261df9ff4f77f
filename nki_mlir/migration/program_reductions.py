# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites reductions over the programs of a grid, which become loops: the loop ends before the reduction, which adds
the tiles of all programs, and a second loop continues them.

before:  part = nl.sum(tile, axis=1)                after:  for i in range(grid[0]):
         total = nl.all_reduce(part, op=np.add,                 part = nl.sum(tile, axis=1)
                               program_axes=[0])                part_of.append(part)
         nl.store(out[i], total)                            total = nl.copy(part_of[0])
                                                            for i in range(1, grid[0]):
                                                                nisa.tensor_tensor(dst=total, data1=total, ...)
                                                            for i in range(grid[0]):
                                                                nl.store(out[i], total)
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import libcst as cst

from nki_mlir.migration.added_functions import TOTAL
from nki_mlir.migration.calls import Arguments, Calls, Recipe
from nki_mlir.migration.creation_calls import LANGUAGE, dtype_argument, recipe
from nki_mlir.migration.elementwise import INTEGERS
from nki_mlir.migration.expressions import MODULE, LeftForAPerson
from nki_mlir.migration.facts import PSUM
from nki_mlir.migration.names import nodes_of, parsed
from nki_mlir.migration.operation_text import OperationText
from nki_mlir.migration.parameters import bound_names
from nki_mlir.migration.program_loops import dedented
from nki_mlir.migration.python_trees import walked

HOST = ("min", "max", "len", "range", "ds")       # functions whose calls may be repeated for each program


@recipe("all_reduce")
def all_reduce(calls: Calls, a: Arguments) -> OperationText:
    """Keep the call for ``with_reductions``, which needs the statements around it."""
    name = "x" if "x" in a.nodes else next(iter(a.nodes))
    text, source = a.tensor(name)
    if a.mask is not None or a.condition:
        raise LeftForAPerson("nl.all_reduce under a mask: fill the elements that it leaves out with the identity first")
    if not calls.reduces_programs(a.text("program_axes")):
        raise LeftForAPerson("nl.all_reduce in a loop, a branch or a helper, or along some of several axes: let a loop "
                             "over the programs end before it, combine the tiles of all, and begin another loop")
    if source.dtype in INTEGERS:
        raise LeftForAPerson("nl.all_reduce of integers, whose sums are exact")
    if source.memory == PSUM:           # the tiles of all programs are live at once, and PSUM has few banks
        text = f"{calls.nl}.copy({text})"
    fact = calls.on_chip(source.like(source.shape, a.dtype_meaning or source.dtype))
    expression = f"{calls.nl}.all_reduce({text}, op={a.token('op')}, program_axes=[0]{dtype_argument(a)})"
    calls.reduced[expression] = source.dtype

    def write_to(dst: str, target: object) -> list[str]:
        return [f"{calls.nisa}.tensor_copy(dst={dst}, src={expression})"]
    return OperationText(fact, expression, write_to, calls.shape_text(fact, text), a.dtype or f"{text}.dtype", "total")


REDUCTIONS: dict[str, Recipe] = {"nl.all_reduce": LANGUAGE["nl.all_reduce"]}


# -- loops between the reductions --------------------------------------------------------------------------------------
@dataclass
class _Part:
    """The statements between two reductions, and the reduction after them."""

    statements: list[cst.BaseStatement]
    reduction: cst.Call | None = None
    operand: str = ""
    result: str = ""
    heads: list[str] = field(default_factory=list)      # statements before them
    tails: list[str] = field(default_factory=list)

    @property
    def tree(self) -> ast.Module:
        """The statements as Python's tree."""
        return ast.parse("".join(dedented(statement) + "\n" for statement in self.statements))

    @property
    def bound(self) -> dict[str, None]:
        """The names that the statements bind, in their order."""
        return dict.fromkeys(n for n in bound_names(self.tree) if n != "f")

    @property
    def read(self) -> set[str]:
        """The names that the statements read."""
        return {n.id for n in walked(self.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}

    def writes(self, name: str) -> bool:
        """Return whether the statements write a tile, or bind its name again."""
        return name in self.bound or any(
            keyword.arg == "dst" and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(keyword.value))
            for call in walked(self.tree) if isinstance(call, ast.Call) for keyword in call.keywords)

    def definition(self, name: str) -> ast.expr | None:
        """Return the value that the only, unconditional assignment to a name assigns."""
        values = [s.value for f in self.tree.body if isinstance(f, ast.FunctionDef) for s in f.body
                  if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == name]
        return values[0] if len(values) == bound_names(self.tree)[name] == 1 else None

    def always_binds(self, name: str) -> bool:
        """Return whether some statement outside of branches and loops binds a name."""
        return any(isinstance(s, ast.Assign | ast.AnnAssign | ast.With | ast.For) and name in bound_names(s)
                   for f in self.tree.body if isinstance(f, ast.FunctionDef) for s in f.body)


def has_reductions(body: list[cst.BaseStatement], dtypes: Mapping[str, str]) -> bool:
    """Return whether statements have calls that ``all_reduce`` has kept, with the dtypes of their operands."""
    return any(text in MODULE.code_for_node(statement) for statement in body for text in dtypes)


@dataclass
class ProgramLoops:
    """Writes the loops over the programs of a grid.

    ``nl`` and ``nisa`` are the names of the packages, ``fresh_name`` returns a name that nothing has, and ``dtypes``
    has the dtype of the operand of each reduction whose text shows it.
    """

    variable: str
    nl: str
    nisa: str
    fresh_name: Callable[[str], str]
    dtypes: Mapping[str, str]
    lists: dict[str, str] = field(default_factory=dict)     # name of a value -> the list of all programs' values

    def enclose_in_loops(self, body: list[cst.BaseStatement]) -> list[cst.BaseStatement]:
        """Return loops around the statements between the reductions of a kernel's body, and the reductions. Raise
        ``LeftForAPerson`` if a value reaches a later loop that not every program has."""
        parts = self._parts(body)
        self._carry(parts)
        statements: list[cst.BaseStatement] = [s for name in self.lists.values() for s in parsed(f"{name} = []")]
        for part in parts:
            heads, tails = parsed("\n".join(part.heads)), parsed("\n".join(part.tails))
            block = cst.IndentedBlock([*heads, *part.statements, *tails])
            statements.append(cst.For(cst.Name(self.variable), cst.parse_expression("range(grid[0])"), block))
            if part.reduction is not None:
                statements += self._fold(part)
        return statements

    def _parts(self, body: list[cst.BaseStatement]) -> list[_Part]:
        """Return the parts of a body between its reductions, whose operands become variables."""
        parts = [_Part([])]
        for statement in body:
            remaining: cst.BaseStatement | None = statement
            while remaining is not None and (call := self._reduction_in(remaining)) is not None:
                operand = call.args[0].value
                if not isinstance(operand, cst.Name):
                    name = self.fresh_name("part_of")
                    self.lists[name] = name
                    parts[-1].statements += parsed(f"{name}.append({MODULE.code_for_node(operand)})")
                    operand = cst.Name(name)
                parts[-1].reduction, parts[-1].operand = call, operand.value
                match remaining:
                    case cst.SimpleStatementLine(body=[cst.Assign(
                            targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value)]) if value is call:
                        parts[-1].result, remaining = name, None
                    case _:
                        parts[-1].result = self.fresh_name("total")
                        after = remaining.deep_replace(call, cst.Name(parts[-1].result))
                        assert isinstance(after, cst.BaseStatement)
                        remaining = after
                parts.append(_Part([]))
            parts[-1].statements += [remaining] if remaining is not None else []
        return parts

    def _reduction_in(self, statement: cst.BaseStatement) -> cst.Call | None:
        """Return the first reduction over programs in a statement."""
        return next((node for node in nodes_of(statement, cst.Call)
                     if MODULE.code_for_node(node) in self.dtypes), None)

    def _carry(self, parts: list[_Part]) -> None:
        """Let each part begin with the values of earlier parts that it reads: computed again from the number of the
        program, or out of lists. A result that a part changes is copied first."""
        bound: dict[str, _Part] = {}
        results: dict[str, _Part] = {}
        for part in parts:
            for name in [n for n in results if part.writes(n)]:
                if results[name].result == name:
                    results[name].result = self.fresh_name(f"{name}_of_all")
                part.heads.append(f"{name} = {self.nl}.copy({results[name].result})")
            for name in [n for n in bound if n in part.read]:
                value = bound[name].definition(name)
                if value is not None and _is_arithmetic(value, {*bound, *results}):
                    part.heads.append(f"{name} = {ast.unparse(value)}")
                    continue
                self._keep(bound[name], name)
                part.heads.append(f"{name} = {self.lists[name]}[{self.variable}]")
            for name in part.bound:
                if name in self.lists:
                    raise LeftForAPerson(f"nl.all_reduce in a kernel that binds {name} again after it")
                bound[name] = part
            if part.reduction is not None:
                self._keep(bound.get(part.operand, part), part.operand)
                bound.pop(part.result, None)
                results[part.result] = part

    def _keep(self, part: _Part, name: str) -> None:
        """Append a variable of each program at the end of a part to a list, so that later parts can read the value of
        each."""
        if name in self.lists:
            return
        if not part.always_binds(name):
            raise LeftForAPerson(f"nl.all_reduce in a kernel that reads {name} after it, which not each program binds")
        self.lists[name] = self.fresh_name(f"{name}_of")
        part.tails.append(f"{self.lists[name]}.append({name})")

    def _fold(self, part: _Part) -> list[cst.BaseStatement]:
        """Return the statements that combine the tiles of all programs, in the order of the programs."""
        assert part.reduction is not None
        texts = {a.keyword.value: MODULE.code_for_node(a.value) for a in part.reduction.args if a.keyword is not None}
        first, tile = (f"{self.lists[part.operand]}[{index}]" for index in (0, self.variable))
        total, float32 = part.result, f"{self.nl}.float32"
        source = self.dtypes.get(MODULE.code_for_node(part.reduction), "")
        is_known = source.startswith("nl.")
        result = texts.get("dtype", source)
        if not is_known:
            start = f"{first}, dtype={TOTAL}({source or f'{first}.dtype'})"
        else:
            start = first if source == "nl.float32" else f"{first}, dtype={float32}"
        lines = [f"{total} = {self.nl}.copy({start})", f"for {self.variable} in range(1, grid[0]):",
                 f"    {self.nisa}.tensor_tensor(dst={total}, data1={total}, data2={tile}, op={texts['op']})"]
        if result != "nl.float32" or not is_known:
            lines.append(f"{total} = {self.nl}.copy({total}, dtype={result or f'{first}.dtype'})")
        return [*parsed("\n".join(lines))]


def _is_arithmetic(value: ast.expr, per_program: set[str]) -> bool:
    """Return whether an expression is arithmetic of the host, of other names than these."""
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and node.id in per_program:
            return False
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] not in HOST:
            return False
        if isinstance(node, ast.Subscript | ast.List | ast.Dict):
            return False
    return True

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes the number of the program to functions that read it, because the kernel's programs become loops.

before:  def rows_of(x):                                after:  def rows_of(x, row):
             return x[nl.program_id(0)]                             return x[row]

         @nki.jit                                               @nki.jit
         def kernel(x, y):                                      def kernel(x, y):
             row = nl.program_id(0)                                 row = nl.program_id(0)
             nl.store(y[row], rows_of(x))                           nl.store(y[row], rows_of(x, row=row))

The new text is of the beta generation: the rest of the migration rewrites it.
"""

import ast

import libcst as cst

from nki_mlir.migration.kernel_aliases import WRAPPERS, kernel_aliases
from nki_mlir.migration.launch_grids import launches
from nki_mlir.migration.names import Names, NodesByClass
from nki_mlir.migration.parameters import bound_names
from nki_mlir.migration.python_trees import python_tree, walked
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.tile_classes import calls_language
from nki_mlir.migration.tree_transformer import TreeTransformer

READS = {"nl.program_id": "program", "nl.num_programs": "num_programs", "nl.program_ndim": "program_ndim"}
EQUAL = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
Read = tuple[str, int | None]                   # the public name, and the axis if a call names one


def with_program_arguments(text: str, report: MigrationReport) -> str:
    """Return the text in which kernels pass what functions read of their program."""
    if not any(name.partition(".")[2] in text for name in READS):
        return text
    return ProgramArguments(text, report).rewritten()


class ProgramArguments:
    """The functions of one text, by name, with what each of them and those that it calls read of the program."""

    def __init__(self, text: str, report: MigrationReport) -> None:
        self.text, self.names, self.report = text, Names(text), report
        self.module = cst.parse_module(text)
        self.host = python_tree(text)
        self.functions = {n.name.value: n for n in self.module.body if isinstance(n, cst.FunctionDef)}
        self.trees = {n.name: n for n in self.host.body if isinstance(n, ast.FunctionDef)}
        self.calls = {name: NodesByClass(function).of(cst.Call) for name, function in self.functions.items()
                      if calls_language(function.body, self.names) or self._is_kernel(function)}
        aliases = kernel_aliases(text, self.names, self.functions.keys(), WRAPPERS)
        subscripts = NodesByClass(self.module).of(cst.Subscript)
        self.launched = launches(subscripts, self.names, self.functions.keys(), aliases)
        self.helpers = {name for name in self.calls if name not in self.launched and self._is_helper(name)}
        self.reads = {name: dict.fromkeys(read for call in calls if (read := self.read(call)) is not None)
                      for name, calls in self.calls.items()}
        for _ in self.calls:                    # add what called functions read
            for name, calls in self.calls.items():
                for call in calls:
                    if (callee := _name_of(call)) in self.helpers:
                        self.reads[name] |= self.reads[callee]
        order = list(READS)
        self.reads = {name: dict.fromkeys(sorted(reads, key=lambda read: (order.index(read[0]), read[1] or 0)))
                      for name, reads in self.reads.items()}

    def read(self, call: cst.Call) -> Read | None:
        """Return the number of the program that a call reads, or None for any other call."""
        meaning = self.names.meaning(call.func)
        if meaning not in READS:
            return None
        axis = int(call.args[0].value.value) if call.args and isinstance(call.args[0].value, cst.Integer) else None
        return meaning, 0 if meaning == "nl.program_id" and not call.args else axis

    def _is_kernel(self, function: cst.FunctionDef) -> bool:
        nodes = (d.decorator for d in function.decorators)
        return any(self.names.meaning(d.func if isinstance(d, cst.Call) else d) in WRAPPERS for d in nodes)

    def _is_helper(self, name: str) -> bool:
        """Return whether other functions of kernels call a function, nothing else reads its name, and it can get
        parameters."""
        calls = [call for caller, calls in self.calls.items() if caller != name for call in calls
                 if _name_of(call) == name]
        reads = [n for n in walked(self.host) if isinstance(n, ast.Name) and n.id == name]
        arguments = self.trees[name].args
        return bool(calls) and len(calls) == len(reads) and arguments.kwarg is None and arguments.vararg is None

    def on_cores(self, kernel: str) -> bool:
        """Return whether the programs of a kernel stay: they are the one or two cores of each launch."""
        grids = self.launched.get(kernel, [])
        return bool(grids) and all(grid in ("1", "2") for grid in grids) and all(
            axis in (0, None) for _, axis in self.reads[kernel])

    def rewritten(self) -> str:
        """Return the text with parameters of the functions whose kernels' programs become loops, and arguments of their
        calls."""
        changed: dict[str, dict[Read, str]] = {}        # the parameters of these functions
        pending = [name for name in self.calls if name not in self.helpers and not self.on_cores(name)]
        while pending:
            for call in self.calls[pending.pop()]:
                callee = _name_of(call)
                if callee in self.helpers and callee not in changed and self.reads[callee] and all(
                        name == "nl.program_ndim" or axis is not None for name, axis in self.reads[callee]):
                    changed[callee] = {read: self._parameter(callee, read) for read in self.reads[callee]}
                    pending.append(callee)
        for name, parameters in changed.items():
            self.report.changed(self.trees[name].lineno, f"{name} gets {', '.join(parameters.values())} from its "
                                "kernel, whose programs become loops")
        return self.module.visit(_Rewriter(self, changed)).code if changed else self.text

    def _parameter(self, function: str, read: Read) -> str:
        """Return the name of a parameter: the kernel's own name for what is read, if the function does not use it."""
        name, axis = read
        used = {n.id for n in walked(self.trees[function]) if isinstance(n, ast.Name)} | {
            n.arg for n in walked(self.trees[function]) if isinstance(n, ast.arg)}
        names = [self.variable(caller, read) for caller in self.kernels_of(function)]
        plain = READS[name] if axis is None else f"{READS[name]}_{axis}"
        return next((n for n in (*filter(None, names), plain) if n not in used), f"{plain}_")

    def kernels_of(self, function: str) -> list[str]:
        """Return the kernels that call a function, also through other functions, in the order of the text."""
        callers, pending = set[str](), [function]
        while pending:
            callee = pending.pop()
            new = {name for name, calls in self.calls.items() if callee in map(_name_of, calls)} - callers
            callers |= new
            pending += new
        return [name for name in self.calls if name in callers - self.helpers]

    def variable(self, function: str, read: Read) -> str:
        """Return the variable of a function that is always what it reads of its program, or ""."""
        bound = bound_names(self.trees[function])
        for statement in self.functions[function].body.body:
            match statement:
                case cst.SimpleStatementLine(body=[cst.Assign(
                        targets=[cst.AssignTarget(target=cst.Name(value=name))], value=cst.Call() as call)]) if (
                            bound[name] == 1 and self.read(call) == read):
                    return name
        return ""

    def text_of(self, read: Read) -> str:
        name, axis = read
        return f"{self.names.alias('nl')}.{name.partition('.')[2]}({'' if axis is None else axis})"


class _Rewriter(TreeTransformer):
    def __init__(self, program: ProgramArguments, changed: dict[str, dict[Read, str]]) -> None:
        super().__init__()
        self.program, self.changed = program, changed
        self.function = ""              # the one of the module that is being visited

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        """Note the function."""
        self.function = self.function if self.function else node.name.value

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        """Add the parameters."""
        if original_node is not self.program.functions.get(self.function):
            return updated_node
        parameters, self.function = self.changed.get(self.function, {}), ""
        before = updated_node.params
        kind = "kwonly_params" if before.kwonly_params else "params"
        default = cst.Integer("0") if any(p.default is not None for p in before.params) else None
        equal = EQUAL if default is not None else cst.MaybeSentinel.DEFAULT
        new = [cst.Param(cst.Name(name), default=default, equal=equal) for name in parameters.values()]
        changed = before.with_changes(**{kind: [*getattr(before, kind), *new]})
        return updated_node.with_changes(params=changed)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Replace what the function reads of its program by the parameter; add the arguments of calls."""
        parameters = self.changed.get(self.function, {})
        read = self.program.read(original_node)
        if read in parameters:
            return cst.Name(parameters[read])
        passed = self.changed.get(_name_of(original_node), {}) if self.function else {}
        values = [parameters.get(read) or self.program.variable(self.function, read) or self.program.text_of(read)
                  for read in passed]
        return updated_node.with_changes(args=[*updated_node.args, *(
            cst.Arg(cst.parse_expression(value), keyword=cst.Name(name), equal=EQUAL)
            for name, value in zip(passed.values(), values))])


def _name_of(call: cst.Call) -> str:
    return call.func.value if isinstance(call.func, cst.Name) else ""

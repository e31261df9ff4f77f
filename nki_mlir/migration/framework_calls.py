# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites ``nki_call`` of the first beta as a call of a kernel that creates and returns its results.

before:  def add(a, b, out):                        after:  @nki.jit
             nl.store(out, nl.load(a) + ...)                def add(a, b):
                                                                out = nl.ndarray(a.shape, dtype=a.dtype, ...)
         nki_call(add, x, y, grid=(4,),                         nl.store(out, nl.load(a) + ...)
                  out_shape=ShapeDtypeStruct(                   return out
                      x.shape, x.dtype))
                                                            add[4](x, y)

The new text is of the beta generation: the rest of the migration rewrites it. A kernel stays unchanged if a shape does
not follow from the arguments of the call, or if two calls expect different results.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from nki_mlir.migration.names import Names
from nki_mlir.migration.report import MigrationReport
from nki_mlir.scalar.dtypes import BY_NAME

NKI_CALL = "nki.nki_call"
Function = ast.FunctionDef | ast.Module


class NotSaid(Exception):
    """The text does not show the facts that the rewriting of a call needs."""


@dataclass
class FrameworkCall:
    """A call of a kernel: its arguments, and the shape and dtype of each result in terms of the kernel's parameters."""

    node: ast.Call
    inputs: list[ast.expr]
    constants: list[ast.keyword]
    grid: ast.expr | None
    results: list[tuple[str, str]]
    spare: list[ast.Assign]             # the assignments of shapes to names that nothing else uses


@dataclass
class TextEdits:
    """Replacements of parts of a text, by its byte positions."""

    text: str
    edits: list[tuple[int, int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bytes = self.text.encode()
        self.starts = [0]
        for line in self.bytes.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)

    def start(self, node: ast.expr | ast.stmt | ast.arg) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt | ast.arg) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.starts[node.end_lineno - 1] + node.end_col_offset

    def line_start(self, node: ast.stmt | ast.expr) -> int:
        return self.starts[node.lineno - 1]

    def replace(self, start: int, end: int, text: str) -> None:
        self.edits.append((start, end, text))

    def result(self) -> tuple[str, Callable[[int], int]]:
        """Return the new text, and a function from a line of it to the old line."""
        parts: list[bytes] = []
        lines = [1]                         # the old line of each new one
        at = 0

        def add(part: bytes, line: int, is_old: bool) -> None:
            parts.append(part)
            lines.extend(line + k * is_old for k in range(1, part.count(b"\n") + 1))
        for start, end, text in sorted(self.edits, key=lambda edit: edit[:2]):
            add(self.bytes[at:start], self.line_at(at), True)
            add(text.encode(), self.line_at(start), False)
            if start in self.starts:                # the next text begins a line
                lines[-1] = self.line_at(end)
            at = end
        add(self.bytes[at:], self.line_at(at), True)
        return b"".join(parts).decode(), lambda line: lines[min(line, len(lines)) - 1]

    def line_at(self, position: int) -> int:
        return self.bytes.count(b"\n", 0, position) + 1


class FrameworkCalls:
    """The calls in one text."""

    def __init__(self, text: str, report: MigrationReport) -> None:
        self.names, self.report = Names(text), report
        self.tree = ast.parse(text)
        self.edits = TextEdits(text)
        self.functions = {n.name: n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef)}
        self.nl = self.names.alias("nl")

    def rewritten(self) -> tuple[str, Callable[[int], int]]:
        """Return the text with the calls rewritten where possible, and the old line of each of its lines."""
        calls: dict[str, list[tuple[ast.Call, Function]]] = {}
        for node, function in _calls(self.tree, self.tree):
            if self.meaning(node.func) == NKI_CALL and node.args and (name := self.kernel_name(node)):
                calls.setdefault(name, []).append((node, function))
        rewritten_names = [name for name, sites in calls.items() if self.rewrite(name, sites)]
        if rewritten_names:
            self.import_nki(len(rewritten_names) == len(calls))
        return self.edits.result()

    def meaning(self, node: ast.expr) -> str:
        """Return ``nki.jit`` for every node that means it, else an empty text."""
        return self.names.meaning(node)

    def kernel_name(self, call: ast.Call) -> str:
        """Return the name of the function of this file that a call runs, also through ``functools.partial``; else
        return ""."""
        node = call.args[0]
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("partial") and len(node.args) == 1:
            node = node.args[0]
        return node.id if isinstance(node, ast.Name) and node.id in self.functions else ""

    # -- one kernel ----------------------------------------------------------------------------------------------------
    def rewrite(self, name: str, sites: list[tuple[ast.Call, Function]]) -> bool:
        """Edit a kernel and its calls; return False if they stay."""
        kernel = self.functions[name]
        uses = sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(self.tree))
        returns = any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(kernel))
        if uses != len(sites) or returns or kernel.args.vararg or kernel.body[0].lineno == kernel.lineno:
            return False
        try:
            calls = [self.read(node, function, kernel) for node, function in sites]
        except NotSaid:
            return False
        first = calls[0]
        outputs = _positional(kernel)[len(first.inputs):len(first.inputs) + len(first.results)]
        if len(outputs) < len(first.results) or any(
                (c.results, len(c.inputs)) != (first.results, len(first.inputs)) for c in calls):
            return False
        self.edit_kernel(kernel, outputs, first.results)
        for call in calls:
            self.edit_call(name, call)
        return True

    def read(self, node: ast.Call, function: Function, kernel: ast.FunctionDef) -> FrameworkCall:
        keywords = {k.arg: k.value for k in node.keywords}
        inputs, bound = node.args[1:], node.args[0]
        constants = bound.keywords if isinstance(bound, ast.Call) else []
        shapes = keywords.get("out_shape")
        parameters = [a.arg for a in _positional(kernel)]
        if shapes is None or None in keywords or any(isinstance(a, ast.Starred) for a in inputs) or (
                len(inputs) > len(parameters)):
            raise NotSaid
        values = _assigned(function)
        spare = []
        if isinstance(shapes, ast.Name) and shapes.id in values:
            spare = _only_for(shapes, shapes, function, values)
            shapes = values[shapes.id]
        is_sequence = isinstance(shapes, ast.Tuple | ast.List)
        shape_nodes = shapes.elts if isinstance(shapes, ast.Tuple | ast.List) else [shapes]
        if is_sequence and len(shape_nodes) < 2:                   # a sequence of one result is not a kernel's
            raise NotSaid
        for shape_node in {n.id: n for n in shape_nodes if isinstance(n, ast.Name)}.values():
            spare += _only_for(shape_node, shapes, function, values)
        local = ParameterNames(dict(zip(map(ast.dump, inputs), parameters)), values | _shapes(function), self.names)
        results = [self.result(values.get(shape_node.id, shape_node) if isinstance(shape_node, ast.Name)
                               else shape_node, local) for shape_node in shape_nodes]
        grid = keywords.get("grid")
        return FrameworkCall(node, inputs, constants, None if isinstance(grid, ast.Constant) and grid.value is None
                             else grid, results, spare)

    def result(self, shape: ast.expr, local: "ParameterNames") -> tuple[str, str]:
        """Return the texts of the shape and the dtype in a ``ShapeDtypeStruct``."""
        if not isinstance(shape, ast.Call) or not ast.unparse(shape.func).endswith("ShapeDtypeStruct"):
            raise NotSaid
        parts = dict(zip(("shape", "dtype"), shape.args)) | {k.arg: k.value for k in shape.keywords if k.arg}
        if not {"shape", "dtype"} <= parts.keys():
            raise NotSaid
        dtype = local.visit(parts["dtype"])
        text = ast.unparse(dtype)
        name = dtype.value if isinstance(dtype, ast.Constant) else text.rpartition(".")[2]
        if not text.endswith(".dtype"):
            if name not in BY_NAME:
                raise NotSaid
            text = f"{self.nl}.{name}"
        return ast.unparse(local.visit(parts["shape"])), text

    # -- the text ------------------------------------------------------------------------------------------------------
    def edit_kernel(self, kernel: ast.FunctionDef, outputs: list[ast.arg], results: list[tuple[str, str]]) -> None:
        """Create the results, return them, and take no parameters for them."""
        edits, parameters = self.edits, [*_positional(kernel), *kernel.args.kwonlyargs]
        first, last = parameters.index(outputs[0]), parameters.index(outputs[-1])
        if first:
            edits.replace(edits.end(parameters[first - 1]), edits.end(outputs[-1]), "")
        elif last + 1 == len(parameters):
            edits.replace(edits.start(outputs[0]), edits.end(outputs[-1]), "")
        else:
            after = parameters[last + 1]
            edits.replace(edits.start(outputs[0]), edits.start(after), "*, " if after in kernel.args.kwonlyargs else "")
        begin = kernel.body[1] if ast.get_docstring(kernel) is not None and len(kernel.body) > 1 else kernel.body[0]
        indent = " " * kernel.body[0].col_offset
        created = [f"{indent}{out.arg} = {self.nl}.ndarray({shape}, dtype={dtype}, buffer={self.nl}.shared_hbm)\n"
                   for out, (shape, dtype) in zip(outputs, results)]
        edits.replace(edits.line_start(begin), edits.line_start(begin), "".join(created))
        end = edits.end(kernel.body[-1])
        edits.replace(end, end, f"\n{indent}return {', '.join(out.arg for out in outputs)}")
        if not any(self.meaning(d) == "nki.jit" for d in kernel.decorator_list):
            at = self.edits.line_start(kernel)
            nki = self.names.alias("nki")
            edits.replace(at, at, f"{' ' * kernel.col_offset}@{nki}.jit\n")
        self.report.changed(kernel.lineno, f"{kernel.name} creates and returns {', '.join(o.arg for o in outputs)}")

    def edit_call(self, name: str, call: FrameworkCall) -> None:
        arguments = [ast.unparse(a) for a in call.inputs]
        arguments += [f"{k.arg}={ast.unparse(k.value)}" for k in call.constants]
        grid = ""
        if call.grid is not None:
            axes = call.grid.elts if isinstance(call.grid, ast.Tuple) else [call.grid]
            grid = f"[{', '.join(map(ast.unparse, axes))}]" if axes else ""
        edits = self.edits
        edits.replace(edits.start(call.node), edits.end(call.node), f"{name}{grid}({', '.join(arguments)})")
        for assignment in call.spare:
            edits.replace(edits.line_start(assignment), edits.end(assignment) + 1, "")
        self.report.changed(call.node.lineno, f"nki_call becomes a call of {name}")

    def import_nki(self, all_done: bool) -> None:
        """Import ``nki`` if the text does not. The import replaces the import of ``nki_call``, if no call needs that
        any more."""
        is_here = "nki" in map(self.names.meaning, map(cst.Name, self.names.paths))
        missing = "" if is_here else "import neuronxcc.nki as nki"
        statements = [n for n in ast.walk(self.tree) if isinstance(n, ast.Import | ast.ImportFrom)]
        packages = [n for n in statements if ast.unparse(n).split()[1].startswith("neuronxcc.nki")]
        if missing and packages and packages[0] in self.tree.body:
            at = self.edits.line_start(packages[0])
            self.edits.replace(at, at, missing + "\n")
            missing = ""
        for node in statements:
            if not isinstance(node, ast.ImportFrom) or node.module not in ("jax_neuronx", "jax_neuronx.core"):
                continue
            other_imports = [a for a in node.names if a.name != "nki_call"]
            if all_done and len(other_imports) < len(node.names):
                lines = [missing] if missing else []
                if other_imports:
                    lines.append(ast.unparse(ast.ImportFrom(node.module, other_imports, node.level)))
                end = self.edits.end(node)
                self.edits.replace(self.edits.start(node), end if lines else end + 1, "\n".join(lines))
                return
        if missing:
            at = self.edits.line_start(min(statements, key=lambda n: n.lineno))
            self.edits.replace(at, at, missing + "\n")


class ParameterNames(ast.NodeTransformer):
    """Replaces a caller's expressions by the names of the kernel's parameters. Raises ``NotSaid`` for other values."""

    def __init__(self, parameters: dict[str, str], values: dict[str, ast.expr], names: Names) -> None:
        self.parameters, self.values, self.names = parameters, values, names
        self.resolving: list[str] = []

    def visit(self, node: ast.AST) -> ast.expr:
        """Return the expression in which parameters replace the parts that are arguments of the call."""
        if isinstance(node, ast.expr) and (name := self.parameters.get(ast.dump(node))) is not None:
            return ast.Name(name, ast.Load())
        result: ast.expr = super().visit(node)
        return result

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        """Replace all sizes of a shape, which a statement has unpacked, by the shape."""
        shape = self.values.get(ast.unparse(node))
        return self.visit(shape) if shape is not None else ast.Tuple([self.visit(e) for e in node.elts], ast.Load())

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a variable by its value. Keep names of modules and of Python."""
        if node.id in self.values and node.id not in self.resolving:
            self.resolving.append(node.id)
            value = self.visit(self.values[node.id])
            self.resolving.pop()
            return value
        if node.id not in self.names.paths and node.id not in ("len", "int", "max", "min", "tuple"):
            raise NotSaid
        return node


def without_nki_calls(text: str, report: MigrationReport) -> tuple[str, Callable[[int], int]]:
    """Replace ``nki_call`` by calls of kernels; return the text and the old line of each of its lines."""
    if "nki_call" not in text:
        return text, lambda line: line
    return FrameworkCalls(text, report).rewritten()


def _positional(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args]


def _calls(node: ast.AST, function: Function) -> Iterator[tuple[ast.Call, Function]]:
    """Yield all calls, each with the function that contains it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, function
        yield from _calls(child, child if isinstance(child, ast.FunctionDef) else function)


def _assigned(function: Function) -> dict[str, ast.expr]:
    """Return the value of each variable with one assignment: an expression, or a part of a shape that the statement
    unpacks."""
    values: dict[str, ast.expr] = {}
    bound: list[str] = [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    for statement in ast.walk(function):
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            continue
        target = statement.targets[0]
        if isinstance(target, ast.Name):
            values[target.id] = statement.value
        elif isinstance(target, ast.Tuple) and ast.unparse(statement.value).endswith(".shape"):
            values |= {name.id: ast.Subscript(statement.value, ast.Constant(k), ast.Load())
                       for k, name in enumerate(target.elts) if isinstance(name, ast.Name)}
    return {name: value for name, value in values.items() if bound.count(name) == 1}


def _shapes(function: Function) -> dict[str, ast.expr]:
    """Return the shapes that statements unpack, by the text of their sizes as a tuple: ``(rows, cols)``."""
    values = _assigned(function)
    return {ast.unparse(s.targets[0]): s.value for s in ast.walk(function) if isinstance(s, ast.Assign)
            and isinstance(s.targets[0], ast.Tuple) and ast.unparse(s.value).endswith(".shape")
            and all(isinstance(e, ast.Name) and e.id in values for e in s.targets[0].elts)}


def _only_for(name: ast.Name, shapes: ast.expr, function: Function, values: dict[str, ast.expr]) -> list[ast.Assign]:
    """Return the assignment of a name that nothing but the expression ``shapes`` of the function reads."""
    if name.id not in values or _uses(function, name.id) != sum(
            isinstance(n, ast.Name) and n.id == name.id for n in ast.walk(shapes)):
        return []
    return [s for s in ast.walk(function) if isinstance(s, ast.Assign) and s.value is values[name.id]
            and isinstance(s.targets[0], ast.Name)]


def _uses(function: Function, name: str) -> int:
    return sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in ast.walk(function))

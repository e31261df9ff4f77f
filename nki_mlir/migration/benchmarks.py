# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adds a class to the new text that measures the kernels whose ``benchmark_result`` a file reads.

before:  @nki.benchmark(warmup=5, iters=20)         after:  @nki.jit
         def kernel(x):                                     def kernel(x):
             ...                                                ...


         kernel(x)                                          kernel_benchmark = Benchmark(kernel, warmup=5, iters=20)
         kernel.benchmark_result.nc_latency...
                                                            kernel_benchmark(x)
                                                            kernel_benchmark.benchmark_result.nc_latency...

The current generation has no ``nki.benchmark``. The class compiles the kernel into a file and lets the runtime measure
that file.
"""

import ast
import re
from collections.abc import Callable

import libcst as cst

from nki_mlir.migration.framework_calls import TextEdits
from nki_mlir.migration.names import Names
from nki_mlir.migration.python_trees import tree_names
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.spare_imports import first_import, insert_import

RESULT = "benchmark_result"
OPTIONS = ("warmup", "iters")
FILES = ("save_neff_name", "save_trace_name")
IMPORTS = """import inspect
import tempfile
from types import SimpleNamespace
from nki.framework.compiled import CompileKernel
from nki.runtime import SpikeModel, SpikeTensor
import numpy as np
"""
CLASSES = '''

class Latency:
    """The times of a kernel's runs on the device."""

    def __init__(self, milliseconds):
        self.milliseconds = milliseconds

    def get_latency_percentile(self, percentile):
        """Return a percentile in microseconds."""
        return float(np.percentile(self.milliseconds, percentile)) * 1000


class Benchmark:
    """A kernel whose calls measure it."""

    def __init__(self, kernel, warmup=10, iters=100):
        self.kernel, self.warmup, self.iters = kernel, warmup, iters
        self.options, self.results = {}, []

    @property
    def benchmark_result(self):
        """The times of the last call."""
        return self.results[-1]

    def __call__(self, *args, **kwargs):
        """Run the kernel, measure it, and return its results."""
        kernel, kwargs = self.kernel, {**self.options, **kwargs}
        with tempfile.TemporaryDirectory() as folder:
            results = CompileKernel(func=kernel.func, lnc=kernel.lnc, artifacts_dir=folder)(*args, **kwargs)
            model = SpikeModel.load_from_neff(f"{folder}/kernel.neff")
            values = inspect.signature(kernel.func).bind(*args, **kwargs).arguments
            inputs = {name: SpikeTensor.from_numpy(values[name]) for name in model.input_tensors_info}
            runs = model.benchmark(inputs, warmup_iter=self.warmup, benchmark_iter=self.iters)
        latency = Latency(runs.durations_ms)
        self.results.append(SimpleNamespace(nc_latency=latency, latency=latency))
        return results
'''
ON_GRID = '''
    def __getitem__(self, grid):
        """Return the kernel on a grid of programs, or on a number of cores."""
        is_argument = "grid" in inspect.signature(self.kernel.func).parameters
        launched = Benchmark(self.kernel if is_argument else self.kernel[grid], self.warmup, self.iters)
        launched.results = self.results
        if is_argument:
            launched.options = {"grid": grid if isinstance(grid, tuple) else (grid,)}
        return launched
'''


# The class of a file that reads the files which its measurements write.
WITH_FILES = {
    "warmup=10, iters=100)": "warmup=10, iters=100, save_neff_name=None, save_trace_name=None)",
    "        self.options, self.results = {}, []\n":
        "        self.options, self.results = {}, []\n"
        "        self.save_neff_name, self.save_trace_name = save_neff_name, save_trace_name\n",
    "iter=self.iters)\n": """iter=self.iters)
            if self.save_neff_name:
                shutil.copy(model.neff_path, self.save_neff_name)
            if self.save_trace_name:
                model(inputs, save_trace=True, ntff_name=self.save_trace_name)
""",
    "self.warmup, self.iters)\n": """self.warmup, self.iters)
        launched.save_neff_name, launched.save_trace_name = self.save_neff_name, self.save_trace_name
"""}


def reads_results(text: str) -> bool:
    """Return whether a file reads ``benchmark_result`` of a kernel, and does not define ``Benchmark`` or ``Latency``,
    the names of the classes that this module adds."""
    if RESULT not in text:
        return False
    tree = ast.parse(text)
    names = tree_names(tree) | {
        n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    if "Benchmark" in names or "Latency" in names or not any(
            isinstance(n, ast.Attribute) and n.attr == RESULT for n in ast.walk(tree)):
        return False
    meanings = Names(text)
    return any(_is_benchmark(n, meanings) for n in ast.walk(tree) if isinstance(n, ast.expr))


def with_measured_kernels(text: str, report: MigrationReport) -> tuple[str, Callable[[int], int]]:
    """Replace the decorator ``nki.benchmark`` by ``nki.jit``, define an object after the kernel that measures it, and
    let code that reads measurements use that object. Return the new text, and a function from its lines to old lines.
    """
    if not reads_results(text):
        return text, lambda line: line
    names, tree, edits = Names(text), ast.parse(text), TextEdits(text)
    kernels = {}
    for outer in (n for n in ast.walk(tree) if isinstance(n, ast.Module | ast.FunctionDef)):
        for function in (n for n in outer.body if isinstance(n, ast.FunctionDef)):
            decorator = next((d for d in function.decorator_list if _is_benchmark(
                d.func if isinstance(d, ast.Call) else d, names)), None)
            if decorator is None:
                continue
            measured = f"{function.name}_benchmark"
            edits.replace(edits.start(decorator), edits.end(decorator), f"{names.alias('nki')}.jit")
            end, wrapper, indent = edits.end(function), ast.unparse(decorator), " " * function.col_offset
            edits.replace(end, end, f"\n\n{indent}{measured} = {wrapper}({function.name})" if indent else (
                f"\n\n\n{measured} = {wrapper}({function.name})"))
            report.changed(function.lineno, f"{measured} measures the kernel, because kernels have no {RESULT}")
            if isinstance(outer, ast.Module):
                kernels[function.name] = measured
            for owner in _reads_of(function, outer) if isinstance(outer, ast.FunctionDef) else ():
                edits.replace(edits.start(owner), edits.end(owner), measured)
    for owner in _measured(tree):
        if owner.id in kernels:
            edits.replace(edits.start(owner), edits.end(owner), kernels[owner.id])
    return edits.result()


def _is_benchmark(node: ast.expr, names: Names) -> bool:
    return names.meaning(node) == "nki.benchmark"


def _reads_of(function: ast.FunctionDef, outer: ast.FunctionDef) -> list[ast.Name]:
    """Return the names in a function that read an inner one, but for those in the inner one itself."""
    return [n for statement in outer.body if statement is not function for n in ast.walk(statement)
            if isinstance(n, ast.Name) and n.id == function.name and isinstance(n.ctx, ast.Load)]


def _measured(tree: ast.Module) -> list[ast.Name]:
    """Return the names of kernels that are called, or whose measurements are read."""
    owners = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name() as name) | ast.Call(func=ast.Subscript(value=ast.Name() as name)) | (
                    ast.Attribute(value=ast.Name() as name, attr="benchmark_result")):
                owners.append(name)
    return owners


def benchmarks(text: str, names: Names) -> set[str]:
    """Return the variables that are assigned objects that measure a kernel."""
    variables = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=function)):
                wrapper = function.func if isinstance(function, ast.Call) else function
                variables |= {name} if _is_benchmark(wrapper, names) else set()
    return variables


def of_kernel(call: cst.Call, kernel: str, with_files: bool = False) -> cst.BaseExpression:
    """Return ``Benchmark(kernel)`` for a call of ``nki.benchmark``, with the files that it writes if other code reads
    such files; a factory of ``Benchmark`` without a kernel."""
    arguments = [*call.args, *(call.func.args if isinstance(call.func, cst.Call) else ())]
    options = [f"{a.keyword.value}={cst.Module([]).code_for_node(a.value)}" for a in arguments
               if a.keyword is not None and a.keyword.value in OPTIONS + FILES * with_files]
    if not kernel:
        return cst.parse_expression(f"functools.partial({', '.join(['Benchmark', *options])})")
    return cst.parse_expression(f"Benchmark({', '.join([kernel, *options])})")


def _subscripts_measurements(tree: ast.Module) -> bool:
    """Return whether the text may subscript an object that measures a kernel: a variable with such an object or with
    its factory, directly or through other variables."""
    variables = {"Benchmark"}
    assignments = [n for n in ast.walk(tree) if isinstance(n, ast.Assign)]
    while True:
        added = {t.id for n in assignments for t in n.targets if isinstance(t, ast.Name) and t.id not in variables
                 and variables & {name.id for name in ast.walk(n.value) if isinstance(name, ast.Name)}}
        if not added:
            break
        variables |= added
    return any(isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load) and variables & {
        name.id for name in ast.walk(n.value) if isinstance(name, ast.Name)} for n in ast.walk(tree))


def with_classes(text: str) -> str:
    """Return a text with the classes that measure kernels, after its imports."""
    if not re.search(r"\bBenchmark[(,)]", text):
        return text
    tree = ast.parse(text)
    imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    imported = {alias.asname or alias.name for n in imports for alias in n.names}
    classes = CLASSES + ON_GRID * _subscripts_measurements(tree)
    if re.search(rf"\b({'|'.join(FILES)})=", text):
        for line, with_files in WITH_FILES.items():
            classes = classes.replace(line, with_files)
    missing = [line for line in (*IMPORTS.splitlines(), *["import shutil"] * ("shutil." in classes)) if not {
        a.asname or a.name for n in ast.parse(line).body if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names
    } <= imported]
    body = list(cst.parse_module(text).body)
    for line in missing:
        insert_import(line, body, first_import(body))
    text = cst.parse_module(text).with_changes(body=body).code
    lines, at = text.splitlines(), max((n.end_lineno or 0 for n in ast.parse(text).body if isinstance(
        n, ast.Import | ast.ImportFrom)), default=0)
    return "\n".join([*lines[:at], *classes.splitlines(), *lines[at:]]) + "\n"

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Says in the report why the decorators of a kernel are replaced, and which files they no longer write."""

import ast

import libcst as cst

from nki_mlir.migration.benchmarks import reads_results
from nki_mlir.migration.kernel_aliases import WRAPPERS
from nki_mlir.migration.names import Names
from nki_mlir.migration.python_trees import python_tree, tree_names, walked
from nki_mlir.migration.report import MigrationReport

FILES = ("save_neff_name", "save_trace_name", "artifacts_dir", "working_directory")     # options that name files


def why_replaced(decorator: cst.Decorator, meaning: str, is_launched: bool) -> str:
    """Return why a kernel's decorator of that public name is replaced, or "" if it stays as it is."""
    if meaning in ("nki.benchmark", "nki.profile"):
        return f"{meaning} is removed: measure kernels with a profiler"
    if meaning.startswith("ncc."):
        return f"{meaning} is removed: the compiler of the current generation has no such directive"
    if not is_launched:
        return f"{meaning} is removed: functions that kernels call have no decorator" if meaning else ""
    if meaning == "nki.jit":
        has_options = isinstance(decorator.decorator, cst.Call) and decorator.decorator.args
        return "nki.jit has no options" if has_options else ""
    return f"{meaning} becomes nki.jit" if meaning else ""


def report_written_files(text: str, report: MigrationReport) -> bool:
    """Leave to a person each wrapper that writes a file or a folder which other code of the text names, too:
    ``nki.jit`` writes no file. Return whether a measurement of a file that reads measurements writes such files: the
    class that measures writes them."""
    tree, names = python_tree(text), Names(text)
    wrappers = [(meaning, node) for node in walked(tree) if isinstance(node, ast.Call)
                and (meaning := names.meaning(node.func)) in WRAPPERS]
    inside = {id(part) for _, wrapper in wrappers for part in ast.walk(wrapper)}
    variables = tree_names(tree, context=ast.Store) | {n.arg for n in walked(tree) if isinstance(n, ast.arg)}
    read = {key for node in walked(tree) if id(node) not in inside for key in _names_of_files(node, variables)}
    is_measuring, writes_files = reads_results(text), False
    for meaning, wrapper in wrappers:
        options = [f"{option.arg}={ast.unparse(option.value)}" for option in wrapper.keywords
                   if option.arg in FILES and read & _files_of(option.value, variables)]
        if options and is_measuring and meaning == "nki.benchmark" and not any("artifacts_dir" in o for o in options):
            writes_files = True
        elif options:
            report.add_manual(wrapper.lineno, (
                f"{meaning} writes {' and '.join(options)}, which other code reads, and nki.jit writes no file: "
                "compile the kernel with nki.framework.compiled.CompileKernel(func=kernel, artifacts_dir=folder), and "
                "profile folder/kernel.neff with neuron-explorer"))
    return writes_files


def _files_of(option: ast.expr, variables: set[str]) -> set[str]:
    """Return the strings and the variables of an option, without those in a formatted string."""
    formatted = {id(part) for node in ast.walk(option) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    return {key for node in ast.walk(option) if id(node) not in formatted for key in _names_of_files(node, variables)}


def _names_of_files(node: ast.AST, variables: set[str]) -> list[str]:
    """Return the text of a string, or the name of one of the variables if the node reads it."""
    match node:
        case ast.Constant(value=str() as text) if text:
            return [repr(text)]
        case ast.Name(id=name, ctx=ast.Load()) if name in variables:
            return [name]
    return []

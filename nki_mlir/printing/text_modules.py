# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Captures a printed text again, so that its comments can count what compiling this text adds.

The text runs, and a module that another person wrote may be its source. So it may have nothing but functions that call
the language and a few functions of NumPy and of Python.
"""

import ast
import builtins
import linecache
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_mlir.bindings import Module
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.current import collectives as nccl
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.lowered import Spec
from nki_mlir.language.signatures.older_releases import NEWEST
from nki_mlir.printing.kernel_text import NamedTensor
from nki_mlir.transforms.program_loops import CORES

FILE = "<printed kernel>"
PACKAGES = {"nki": nki, "nisa": nisa, "nl": nl, "nccl": nccl, "np": np}
NUMPY = {"array", "eye", "full", "zeros", *np.sctypeDict}           # functions that print constants
PYTHON = ("bool", "float", "int", "len", "max", "min", "range")


def modules_of_text(text: str, name: str, target: str, inputs: Sequence[NamedTensor], on_cores: bool,
                    release: str = NEWEST) -> list[Module]:
    """Capture the text of a kernel and return its modules. Return none if the text calls what no text may run, or if
    the newest release refuses a text for an older one. Any other error is a defect of the text, and is raised."""
    body = "\n".join("" if line.startswith("import ") else line for line in text.splitlines())
    namespace: dict[str, Any] = {**PACKAGES, "__builtins__": {name: getattr(builtins, name) for name in PYTHON}}
    linecache.cache[FILE] = (len(body), None, body.splitlines(keepends=True), FILE)
    try:
        if not calls_only_the_language(body):
            return []
        exec(compile(body, FILE, "exec"), namespace)
        read = namespace[name].with_changes(target=target)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lowered = (read[CORES] if on_cores else read).lower(*(Spec(t.shape, t.dtype) for t in inputs))
            return [*lowered.specialization.program_modules]
    except NkiMlirError:
        if release == NEWEST:
            raise
        return []
    finally:
        del linecache.cache[FILE]


def calls_only_the_language(text: str) -> bool:
    """Return whether a text has only functions, whose calls are of the language, of ``NUMPY`` and of ``PYTHON``, and
    strings only as docstrings, in prints and as numbers that are not finite, so that none names a file."""
    tree = ast.parse(text)
    nodes, shown = list(ast.walk(tree)), set[ast.AST]()
    bound = {n.arg for n in nodes if isinstance(n, ast.arg)} | {
        n.name for n in nodes if isinstance(n, ast.FunctionDef)} | {
        n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if bound & PACKAGES.keys():
        return False
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant() as docstring):
                shown.add(docstring)
            case ast.Call(func=ast.Attribute(attr="device_print"), args=[first, *_]):
                shown.add(first)
            case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value="inf" | "-inf" | "nan") as number]):
                shown.add(number)
            case ast.Name(id=name, ctx=ast.Load()) if name not in bound and name not in (*PACKAGES, *PYTHON):
                return False
            case ast.Attribute(attr=attr) if attr.startswith("_") or attr in PACKAGES:
                return False
            case ast.Attribute(value=ast.Name(id="np"), attr=attr) if attr not in NUMPY:
                return False
            case ast.Attribute(value=ast.Name(id="nki"), attr=attr) if attr != "jit":
                return False
            case ast.Import() | ast.ImportFrom() | ast.Global() | ast.Nonlocal() | ast.Lambda():
                return False
    return all(isinstance(statement, ast.FunctionDef) for statement in tree.body) and all(
        node in shown for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))

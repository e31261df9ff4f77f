# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of public functions with one wrong argument, made from their examples and signatures.

``python -m tests.language.argument_sweep [WORD]`` prints each call that neither works nor ends in an error of this
package that says file, line, rule and fix; a word restricts it to the names that contain it.
"""

import ast
import copy
import importlib.util
import inspect
import itertools
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from nki_mlir.diagnostics import InternalError, NkiMlirError
from nki_mlir.language.documentation.page import ISA, LANGUAGE, example
from nki_mlir.language.kernel import unwrap
from nki_mlir.language.signatures.table import BETA, CURRENT

from .example_kernels import HOMES, Example, example_of, home_of, public

# Values that a person may pass by mistake, as they are written in a kernel.
PLAIN = ("None", "True", "3", "-1", "0", "10 ** 18", "-2 ** 63", "1.5", "float('nan')", "float('inf')", "2j", "'text'",
         "''", "b'text'", "[]", "[1, 2]", "[[1, 2], [3, 4]]", "(1, 'a')", "{}", "{1: 2}", "set()", "object()", "int",
         "len", "lambda x: x", "np", "np.float32", "np.float32(2)", "np.float64(2)", "np.ones((128, 64))",
         "np.array('text')", "nl.float32", "nl.sbuf", "nl.psum", "nl.add", "nl.exp", "nisa.engine.vector", "slice(0, 4)",
         "...", "range(3)", "iter([1])", "nl")
# Tiles, each made in front of the call.
TILES = {
    "integers": "nl.zeros((128, 64), nl.int32, buffer=nl.sbuf)", "halves": "nl.zeros((128, 64), nl.bfloat16, buffer=nl.sbuf)",
    "bools": "nl.zeros((128, 64), nl.uint8, buffer=nl.sbuf)", "other_shape": "nl.zeros((64, 32), nl.float32, buffer=nl.sbuf)",
    "one_value": "nl.zeros((1, 1), nl.float32, buffer=nl.sbuf)", "cube": "nl.zeros((32, 4, 8), nl.float32, buffer=nl.sbuf)",
    "in_psum": "nl.zeros((128, 64), nl.float32, buffer=nl.psum)",
    "in_hbm": "nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.hbm)",
}
EXEMPT = {("body_fun", "len")}          # Python calls it, and it raises Python's error
EXECUTOR = "eager"


@dataclass(frozen=True)
class WrongCall:
    """A kernel whose call of a function has one argument replaced by a value."""

    parameter: str
    value: str
    body: str


def calls_of(node: ast.AST, alias: str, name: str) -> Iterator[ast.Call]:
    """Yield the calls ``alias.name(...)`` in a tree."""
    for part in ast.walk(node):
        if (isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == name
                and isinstance(part.func.value, ast.Name) and part.func.value.id == alias):
            yield part


def with_argument(call: ast.Call, names: list[str], parameter: str, value: str) -> bool:
    """Replace an argument of a call, or add it. Return whether that is possible."""
    new = ast.parse(value, mode="eval").body
    position = names.index(parameter)
    if position < len(call.args):
        call.args[position] = new
        return not any(isinstance(argument, ast.Starred) for argument in call.args)
    for keyword in call.keywords:
        if keyword.arg == parameter:
            keyword.value = new
            return True
    call.keywords.append(ast.keyword(parameter, new))
    return True


def names_of(function: Callable) -> list[str]:
    """Return the parameters of a function but ``name``, which only messages use, and those that take the rest."""
    return [p.name for p in inspect.signature(function).parameters.values()
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != "name"]


def wrong_calls(of: Example, alias: str) -> Iterator[WrongCall]:
    """Yield the calls of an example with each argument replaced by each value."""
    function = getattr(home_of(HOMES[alias], of.generation), of.name)
    names = names_of(function)
    tree = ast.parse("\n".join(of.body()))
    at = next((number for number, statement in enumerate(tree.body) if any(calls_of(statement, alias, of.name))), None)
    if at is None:
        return
    names = names or [str(number) for number in range(len(next(calls_of(tree.body[at], alias, of.name)).args))]
    for parameter, value in itertools.product(names, (*PLAIN, *TILES)):
        changed = copy.deepcopy(tree)
        if (parameter, value) in EXEMPT or not with_argument(next(calls_of(changed.body[at], alias, of.name)), names, parameter, value):
            continue
        if value in TILES:
            changed.body[at:at] = ast.parse(f"{value} = {TILES[value]}").body
        yield WrongCall(parameter, value, ast.unparse(changed))


def module_of(of: Example, calls: list[WrongCall], folder: Path) -> tuple[ModuleType, Path]:
    """Write the kernels of calls to a file, and import it."""
    lines = ["import numpy as np", f"from nki_mlir.language.{of.generation} import isa as nisa, language as nl, nki",
             "from nki_mlir.language.current import collectives as ncc"]
    for number, call in enumerate(calls):
        lines += ["", "", f"def kernel_{number}({', '.join(f'{t}_in' for t in of.inputs)}):"]
        lines += [f"    {line}" for line in call.body.splitlines()]
    file = folder / f"{of.generation}_{of.module.rpartition('.')[2]}_{of.name}.py"
    file.write_text("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, file


def fault_of(error: BaseException, file: Path) -> str:
    """Return what an error lacks, or "". Python itself may raise others at the kernel's line."""
    if not isinstance(error, NkiMlirError) or isinstance(error, InternalError):
        innermost = traceback.extract_tb(error.__traceback__)[-1].filename
        return "" if innermost == str(file) else f"{type(error).__name__}: {error}"
    if error.at is None or error.at.file != str(file):
        return f"no line: {error}"
    if not error.code or not error.advice[1]:
        return f"no {'fix' if error.code else 'rule'}: {error.headline}"
    return ""


@contextmanager
def quiet(target: str) -> Iterator[None]:
    with patch.dict(os.environ, {"NKI_MLIR_ITERATIONS": "2000", "NEURON_PLATFORM_TARGET_OVERRIDE": target}), \
            warnings.catch_warnings(), open(os.devnull, "w") as null, patch("sys.stdout", null):
        warnings.simplefilter("ignore")
        yield


def faults(of: Example, alias: str, folder: Path, every: int = 1, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Run the wrong calls of an example, one of ``every``. Return how many worked and how many were refused, and the
    faults."""
    calls = list(wrong_calls(of, alias))[first % every::every]
    module, file = module_of(of, calls, folder)
    counts, flaws = Counter[str](), []
    options: dict[str, Any] = {"platform_target": of.target} if of.generation == CURRENT else {}
    for number, call in enumerate(calls):
        with quiet(of.target):
            try:
                kernel = unwrap(module.nki.jit(getattr(module, f"kernel_{number}"), **options))
                launched = kernel[eval(of.grid, {"nl": module.nl})] if of.grid else kernel
                launched.run(tuple(a.copy() for a in of.arrays), {}, EXECUTOR)
                counts["works"] += 1
                continue
            except (Exception, SystemExit) as error:
                fault = fault_of(error, file)
        counts["refused"] += 1
        if fault:
            flaws.append(f"{of.generation} {alias}.{of.name}({call.parameter}={call.value}): {fault}")
    return counts, flaws


def cases() -> Iterator[tuple[str, str, str]]:
    """Yield (generation, alias, name) of the functions with arguments whose examples call them."""
    for generation in (BETA, CURRENT):
        for alias, module in (("nl", LANGUAGE), ("nisa", ISA)):
            for name, function in public(module, generation).items():
                takes_all = any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(function).parameters.values())
                if example(module, name, generation) and (takes_all or names_of(function)):
                    yield generation, alias, name


def main() -> None:
    total = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        for generation, alias, name in cases():
            if len(sys.argv) > 1 and sys.argv[1] not in name:
                continue
            of = example_of(HOMES[alias], name, generation)
            begin = time.process_time()
            counts, flaws = faults(of, alias, Path(folder))
            total += counts
            print(f"{generation} {alias}.{name}: {dict(counts)}, {len(flaws)} faults, {time.process_time() - begin:.1f} s", flush=True)
            for fault in flaws:
                print("   ", fault.splitlines()[0][:300] if fault else fault, flush=True)
    print(dict(total))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of this process with a change, and with probes that show which tests run it.

``replace_code`` gives the loaded functions another code; ``finder_of`` loads a module with a change, and
``show_children`` does so in the processes that a test starts. ``add_probes`` puts a store before each statement with a
change (``line_probes.py``).
"""

import ast
import builtins
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType

from .changed_modules import Finder
from .line_probes import BLOCKS, NAME, probe
from .seeding import PACKAGE, ROOT, Change, edited

CHILDREN = Path(__file__).parent / "child_processes"


def path_of(change: Change) -> str:
    return str(ROOT / PACKAGE / change.file)


def name_of(change: Change) -> str:
    return f"{PACKAGE}/{change.file}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def is_loaded(change: Change) -> bool:
    return name_of(change) in sys.modules


@cache
def source_of(file: str) -> str:
    """Return the text of a file as it is when the mutants are drawn, whatever is written to it later."""
    return (ROOT / PACKAGE / file).read_text()


def _text(change: Change) -> str:
    return edited(source_of(change.file), change)


def function_of(change: Change) -> tuple[str, int] | None:
    """Return the name and first line of the outermost function whose body contains a change, or None."""
    first, last = _lines(change)

    def search(body: list[ast.stmt]) -> tuple[str, int] | None:
        for node in body:
            if isinstance(node, ast.FunctionDef) and node.body[0].lineno <= first and last <= (node.end_lineno or 0):
                lines = [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
                return None if node.lineno == node.body[0].lineno else (node.name, min(lines))
            if isinstance(node, ast.ClassDef) and (function := search(node.body)):
                return function
        return None
    return search(ast.parse(source_of(change.file)).body)


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Yield the codes of a module's functions and methods."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            if not constant.co_flags & 0x2:                     # a class, whose locals are not in fast slots
                yield from _functions(constant)


def _code(change: Change) -> CodeType:
    """Compile the module with a change."""
    return compile(_text(change), path_of(change), "exec", dont_inherit=True)


def replace_code(change: Change, functions: list[FunctionType]) -> bool:
    """Replace the code of the changed function, and return whether that is possible."""
    return _replace(_code(change), function_of(change), functions)


def finder_of(change: Change) -> Finder:
    """Return the finder of the module with a change."""
    return Finder(name_of(change), path_of(change), _code(change))


def show_children(change: Change, text: Path) -> None:
    """Let the Python processes that this one starts load the module with a change, unless they get other variables.
    ``text``: the file to write its text to."""
    text.write_text(_text(change))
    os.environ["NKI_MLIR_MUTANT"] = os.pathsep.join([name_of(change), path_of(change), str(text)])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(CHILDREN), os.environ.get("PYTHONPATH")]))


def _replace(module: CodeType, key: tuple[str, int] | None, functions: list[FunctionType]) -> bool:
    """Replace the code of the functions with a name and first line by that of a compiled module."""
    codes = {(code.co_name, code.co_firstlineno): code for code in _functions(module)}
    changed = [f for f in functions if (f.__code__.co_name, f.__code__.co_firstlineno) == key]
    if key not in codes or any(len(f.__code__.co_freevars) != len(codes[key].co_freevars) for f in changed):
        return False
    for function in changed:
        function.__code__ = codes[key]
    return bool(changed)


# -- probes ------------------------------------------------------------------------------------------------------------
def add_probes(changes: list[Change], functions: dict[str, list[FunctionType]]) -> bytearray:
    """Give the functions with a change a probe before it, also those that are imported later, and return the
    probes, one for each change."""
    by_file = defaultdict[str, list[int]](list)
    for number, change in enumerate(changes):
        by_file[change.file].append(number)
    for file, numbers in by_file.items():
        tree = ast.parse(source_of(file))
        for number in numbers:
            block, statement = _statement(tree, changes[number])
            block.insert(block.index(statement), probe(number, statement))
        first = changes[numbers[0]]
        module = compile(tree, path_of(first), "exec", dont_inherit=True)
        if not is_loaded(first):                                # a test imports it
            sys.meta_path.insert(0, Finder(name_of(first), path_of(first), module))
        for key in {function_of(changes[number]) for number in numbers}:
            _replace(module, key, functions[path_of(first)])
    probes = bytearray(len(changes))
    setattr(builtins, NAME, probes)
    return probes


def _statement(tree: ast.Module, change: Change) -> tuple[list[ast.stmt], ast.stmt]:
    """Return the innermost statement that has the lines of a change, with its block."""
    first, last = _lines(change)
    around = [(block, node) for owner in ast.walk(tree) for name in BLOCKS
              if isinstance(block := getattr(owner, name, None), list) for node in block
              if node.lineno <= first and last <= (node.end_lineno or 0)]
    return max(around, key=lambda part: part[1].lineno)


def _lines(change: Change) -> tuple[int, int]:
    text = source_of(change.file)
    return text.count("\n", 0, change.start) + 1, text.count("\n", 0, change.end) + 1

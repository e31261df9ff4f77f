# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Python of a kernel, and of the functions that it calls, that the vendor's parser refuses."""

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from inspect import getattr_static
from itertools import chain
from types import FunctionType, ModuleType

from nki_mlir.capture.locations import is_users
from nki_mlir.capture.source_text import definition
from nki_mlir.capture.wrapping import underlying
from nki_mlir.diagnostics import Location, warn_once
from nki_mlir.environment import is_strict
from nki_mlir.language.arguments import attribute_names
from nki_mlir.language.current.errors import NkiWarning
from nki_mlir.language.python_subset import PythonRule, refused


class RefusedPython(NkiWarning):
    """Warns of Python that capture accepts, and the vendor's parser does not."""


def warn_of_refused(function: Callable[..., object]) -> None:
    """Warn of constructs that the parser refuses, if ``NKI_MLIR_STRICT`` is set."""
    if is_strict():
        for rule, at in refused_python(function):
            warn_once(f"{rule}; {rule.instead}", RefusedPython, at)


@lru_cache(maxsize=256)
def refused_python(function: Callable[..., object], classes: tuple[type, ...] = ()
                   ) -> tuple[tuple[PythonRule, Location], ...]:
    """Return the rules that a kernel's function, the functions that it names, and the methods of classes break, with
    the lines. ``classes`` are those of its arguments."""
    kernel = underlying(function)
    if kernel is None:
        return ()
    broken: list[tuple[PythonRule, Location]] = []
    visited, waiting = {kernel.__code__}, [kernel]
    while waiting:
        current = waiting.pop()
        source = definition(current.__code__, current.__globals__)
        if source is None:
            continue
        broken += [(rule, Location(current.__code__.co_filename, node.lineno, node.col_offset))
                   for rule, node in refused(source.function, current is kernel)]
        methods = chain.from_iterable(map(_methods, classes)) if current is kernel else ()
        for callee in chain(_named_functions(current, source.function), methods):
            if callee.__code__ not in visited and is_users(callee.__code__.co_filename, callee.__globals__):
                visited.add(callee.__code__)
                waiting.append(callee)
    return tuple(broken)


def _named_functions(function: FunctionType, tree: ast.FunctionDef) -> Iterator[FunctionType]:
    """Yield the functions, and the methods of the classes, to which names and attributes in a function refer."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    for node in chain.from_iterable(map(ast.walk, tree.body)):         # decorators and defaults run before the kernel
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        path: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            path.append(inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name):
            continue
        try:
            value = cells[inner.id].cell_contents if inner.id in cells else function.__globals__.get(inner.id)
        except ValueError:                  # a cell without contents
            continue
        for name in reversed(path):
            value = getattr_static(value, name, None) if isinstance(value, ModuleType | type) else None
        if isinstance(value, type):
            yield from _methods(value)
        elif (called := _function_of(value)) is not None:
            yield called


def _methods(kind: type) -> Iterator[FunctionType]:
    """Yield the methods and properties of a class and of its bases."""
    for base in kind.__mro__:
        if not base.__module__.startswith("nki_mlir"):
            yield from (f for f in map(_function_of, vars(base).values()) if f is not None)


def classes_within(values: Iterable[object], visited: set[int] | None = None) -> Iterator[type]:
    """Yield the classes of objects with attributes among a kernel's arguments, also within containers."""
    visited = set() if visited is None else visited
    for value in values:
        if id(value) in visited:
            continue
        visited.add(id(value))
        names = attribute_names(value)
        if names or hasattr(value, "_fields"):
            yield type(value)
        if isinstance(value, tuple | list):
            yield from classes_within(value, visited)
        elif isinstance(value, dict):
            yield from classes_within(value.values(), visited)
        else:
            yield from classes_within([getattr(value, n, None) for n in names], visited)


def _function_of(value: object) -> FunctionType | None:
    """Return the Python function behind a function, kernel, property, or static or class method; None for other values.
    """
    value = value.fget if isinstance(value, property) else value
    value = getattr_static(value, "func", value) if not isinstance(value, FunctionType) else value
    value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    return value if isinstance(value, FunctionType) else None

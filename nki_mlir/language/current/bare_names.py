# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``sbuf``, ``psum`` and ``hbm`` without an import: release 0.2 has them in every kernel.

While a kernel's Python runs, the names are globals of the modules whose functions use them and do not define them.
"""

import builtins
import dis
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

from nki_mlir.frontend.locations import is_users
from nki_mlir.frontend.state import is_bound
from nki_mlir.frontend.wrapping import underlying
from nki_mlir.language.current.regions import MemoryRegion, hbm, psum, sbuf

NAMES: dict[str, MemoryRegion] = {"sbuf": sbuf, "psum": psum, "hbm": hbm}

_lock = threading.Lock()
_uses: dict[tuple[int, str], int] = {}          # kernels that run with a name in the globals with that id


@contextmanager
def bare_names(function: object) -> Iterator[None]:
    """The names, for the kernel's function and those that it sees."""
    wanted = list(missing(function))
    with _lock:
        for scope, name in wanted:
            key = id(scope), name
            _uses[key] = _uses.get(key, 0) + 1
            scope.setdefault(name, NAMES[name])
    try:
        yield
    finally:
        with _lock:
            for scope, name in wanted:
                key = id(scope), name
                _uses[key] -= 1
                if not _uses[key]:
                    del _uses[key]
                    if scope.get(name) is NAMES[name]:
                        del scope[name]


def missing(function: Any) -> Iterator[tuple[dict[str, object], str]]:
    """(globals, name) of each of the names that a function, or one that it sees, uses and its module has not."""
    pending, seen = [underlying(function)], set()
    while pending:
        inner = pending.pop()
        if inner is None or inner.__code__ in seen:
            continue
        seen.add(inner.__code__)
        scope = inner.__globals__
        used, attributes = names_of(inner.__code__)
        for name in NAMES.keys() & used:
            if (name not in scope or (id(scope), name) in _uses) and not hasattr(builtins, name):
                yield scope, name
        found = [scope.get(name) for name in used]
        found += [cell.cell_contents for cell in inner.__closure__ or () if is_bound(cell)]
        for module in [m for m in found if type(m) is ModuleType]:
            found += [vars(module).get(name) for name in attributes]
        for value in found:
            helper = value if isinstance(value, FunctionType) else getattr(value, "func", None)
            if isinstance(helper, FunctionType) and is_users(helper.__code__.co_filename, helper.__globals__):
                pending.append(helper)


@cache
def names_of(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """(globals, attributes) that code and the functions inside it read."""
    used, attributes = set(), set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            used.add(instruction.argval)
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            attributes.add(instruction.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more = names_of(inner)
            used |= more[0]
            attributes |= more[1]
    return frozenset(used), frozenset(attributes)

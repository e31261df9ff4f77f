# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads the op classes: every module in the folders of the op families, so that no list is maintained by hand.

Plugins add their classes.
"""

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from nki_mlir import extensions
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU

FAMILIES = ("nki", "nisa")
PLUGIN_OPCODES = range(0xC0, 0xF0)              # no operation of the toolchain has one of these
SCALAR_TABLES: dict[str, Iterable[str]] = {"alu": ALU, "activation": ACTIVATIONS}   # by the function of a body
NAME = "[a-z_][a-z0-9_]*"          # of operations and their fields, as IRDL has them


class LateOperation(NkiMlirError):
    code = "NKI-PLUGIN-LATE"
    message = "a plugin defines operation {op} after the first kernel was captured"
    why = "a process builds the dialects once, from the op classes that are loaded then"
    fix = "name its module in the entry points nki_mlir.ops, or load the plugin before a kernel runs"


@cache
def load() -> None:
    """Import every family, which registers its classes in ``dialects.op.REGISTRY``, and the operations of plugins."""
    _load_families()
    for extension in extensions.of("ops").values():
        add(extension)


def _load_families() -> None:
    folder = Path(__file__).parent
    for family in FAMILIES:
        for file in sorted((folder / family).glob("*.py")):
            if file.stem != "__init__":
                importlib.import_module(f"{__package__}.{family}.{file.stem}")


def add(extension: extensions.Extension) -> None:
    """Add the classes of a plugin's module. Their names must be new, and no dialect registered yet."""
    _load_families()            # else those that the plugin's module imports would count as the plugin's
    before = dict(REGISTRY)
    extensions.load(extension)
    for name, cls in before.items():
        if REGISTRY[name] is not cls:
            raise extensions.SameName(what="operation", name=name, one=cls.__module__, other=extension.module)
    for name in REGISTRY.keys() - before.keys():
        fields = (*REGISTRY[name].attributes, *(tile.name for tile in REGISTRY[name].tiles))
        if wrong := [n for n in (REGISTRY[name].name, *fields) if not re.fullmatch(NAME, n)]:
            raise extensions.BrokenPlugin(what=f"operation '{name}'", origin=extension.origin, text=(
                f"'{wrong[0]}' is not a name in MLIR, which has small letters, digits and underscores"))
        if text := _fault(REGISTRY[name], before.values()):
            raise extensions.BrokenPlugin(what=f"operation '{name}'", origin=extension.origin, text=text)
        if is_late(name):
            raise LateOperation(op=name)


def _fault(cls: type[Op], registered: Iterable[type[Op]]) -> str:
    """Return the mistake in a plugin's class: its opcode, or a function that it computes with; "" without one."""
    if cls.opcode not in PLUGIN_OPCODES:
        return f"opcode {cls.opcode:#x} is not from {PLUGIN_OPCODES[0]:#x} to {PLUGIN_OPCODES[-1]:#x}"
    if owner := next((other for other in registered if other.opcode == cls.opcode), None):
        return f"opcode {cls.opcode:#x} is that of {owner.full_name()} in {owner.__module__}"
    for function, name in _scalar_functions(cls):
        table = SCALAR_TABLES[function]
        if name not in table:
            from difflib import get_close_matches  # start-up: only an error needs it
            nearest = get_close_matches(name, table, 1)
            return f"s.{function} has no '{name}'" + (f"; did you mean '{nearest[0]}'?" if nearest else "")
    return ""


def _scalar_functions(cls: type[Op]) -> Iterator[tuple[str, str]]:
    """Yield ("alu", "add") for each ``s.alu("add", ...)`` in the text of a class."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, SyntaxError):                  # without source, errors come when it is used
        return
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=function), args=[ast.Constant(value=str(name)), *_]
                          ) if function in SCALAR_TABLES:
                yield function, name


def is_late(name: str) -> bool:
    """Return whether the dialects were registered without an operation, which cannot be added afterwards."""
    operations = getattr(sys.modules.get(f"{__package__}.mlir_ops"), "OPERATIONS", None)
    return operations is not None and name not in operations

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the op classes are: every module in the folders of the op families, so that no list is kept by hand.

Plugins add theirs.
"""

import importlib
import re
import sys
from functools import cache
from pathlib import Path

from nki_mlir import extensions
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.op import REGISTRY

FAMILIES = ("nki", "nisa")
NAME = re.compile("[a-z_][a-z0-9_]*")          # of operations and their fields, as IRDL has them


class LateOperation(NkiMlirError):
    code = "NKI-PLUGIN-LATE"
    message = "operation {op} of a plugin comes after the first kernel was captured"
    why = "the dialects are made once in a process, of all op classes that there are by then"
    fix = "name its module in the entry points nki_mlir.ops, or load the plugin before a kernel runs"


@cache
def load() -> None:
    """Import every family, which registers its classes in ``dialects.op.REGISTRY``."""
    here = Path(__file__).parent
    for family in FAMILIES:
        for file in sorted((here / family).glob("*.py")):
            if file.stem != "__init__":
                importlib.import_module(f"{__package__}.{family}.{file.stem}")
    for one in extensions.of("ops").values():
        add(one)


def add(one: extensions.Extension) -> None:
    """The classes of a plugin's module. They have names of their own, and come before the dialects are made."""
    before = dict(REGISTRY)
    extensions.load(one)
    for name, cls in before.items():
        if REGISTRY[name] is not cls:
            raise extensions.SameName(what="operation", name=name, one=cls.__module__, other=one.module)
    for name in REGISTRY.keys() - before.keys():
        fields = (*REGISTRY[name].attributes, *(tile.name for tile in REGISTRY[name].tiles))
        if wrong := [n for n in (REGISTRY[name].name, *fields) if not NAME.fullmatch(n)]:
            raise extensions.BrokenPlugin(what=f"operation '{name}'", origin=one.origin, text=(
                f"'{wrong[0]}' is no name in MLIR, which has small letters, digits and underscores"))
        if is_late(name):
            raise LateOperation(op=name)


def is_late(name: str) -> bool:
    """Whether the dialects were made without an operation. While they are made, it is on its way into them."""
    operations = getattr(sys.modules.get(f"{__package__}.mlir_ops"), "OPERATIONS", None)
    return operations is not None and name not in operations

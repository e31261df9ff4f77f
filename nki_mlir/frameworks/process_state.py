# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Objects that exist once per process, even if our modules are imported again: frameworks hold their addresses.

XLA executables keep the address of the handler that they were compiled with, and refuse a second address for the same
target; operators of PyTorch can be defined once. So these objects survive a reload of the package.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

from nki_mlir.alone import ALONE

_HOLDER = "_nki_mlir_process_state"
Made = TypeVar("Made")


def once(name: str, make: Callable[[], Made]) -> Made:
    """Return the process's object of that name. The first call creates it with ``make``; it is never released."""
    holder = sys.modules.get(_HOLDER)
    if holder is None or name not in holder.__dict__:
        with ALONE:
            holder = sys.modules.setdefault(_HOLDER, ModuleType(_HOLDER))
            if name not in holder.__dict__:
                setattr(holder, name, make())
    value: Made = getattr(holder, name)
    return value

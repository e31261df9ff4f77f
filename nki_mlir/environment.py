# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Environment variables that every call of a kernel asks for, read each time.

``os.environ.get`` raises an exception and catches it where a variable is not set, which takes a microsecond.
"""

import os
from typing import Any


class EnvironmentVariable:
    """One of them, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.key = os.environ.encodekey(name)

    def raw(self) -> Any:
        """Its value as the environment keeps it, which tells whether it is what it was."""
        environ: Any = os.environ
        try:
            return environ._data.get(self.key)
        except AttributeError:                      # something else stands for it
            return os.environ.get(self.name)

    def text(self) -> str:
        """Its value; nothing where it is not set."""
        found = self.raw()
        return found if isinstance(found, str) else os.environ.decodevalue(found) if found else ""


EXECUTOR, TARGET = EnvironmentVariable("NKI_MLIR_EXECUTOR"), EnvironmentVariable("NEURON_PLATFORM_TARGET_OVERRIDE")


def raw_values(first: bytes | str, second: bytes | str, third: bytes | str) -> tuple[Any, Any, Any]:
    """The values of three variables as the environment keeps them, given their keys."""
    environ: Any = os.environ
    try:
        get = environ._data.get
    except AttributeError:
        return environ.get(os.fsdecode(first)), environ.get(os.fsdecode(second)), environ.get(os.fsdecode(third))
    return get(first), get(second), get(third)

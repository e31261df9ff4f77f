# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads environment variables fast, for those that every call of a kernel reads.

``os.environ.get`` raises an exception and catches it if a variable is not set, which takes a microsecond.
"""

import os
from typing import Any


class EnvironmentVariable:
    """An environment variable, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.key = os.environ.encodekey(name)

    def raw(self) -> Any:
        """Return the value as the environment stores it, to compare it with an earlier one."""
        environ: Any = os.environ
        try:
            return environ._data.get(self.key)
        except AttributeError:                      # another object replaces ``os.environ``
            return os.environ.get(self.name)

    def text(self) -> str:
        """Return the value as text; "" if it is not set."""
        raw = self.raw()
        return raw if isinstance(raw, str) else os.environ.decodevalue(raw) if raw else ""


EXECUTOR, TARGET = EnvironmentVariable("NKI_MLIR_EXECUTOR"), EnvironmentVariable("NEURON_PLATFORM_TARGET_OVERRIDE")
STRICT = EnvironmentVariable("NKI_MLIR_STRICT")


def is_strict() -> bool:
    """Return whether ``NKI_MLIR_STRICT`` is set, other than to 0 or off."""
    return STRICT.text().strip().lower() not in ("", "0", "off")


def raw_values(first: bytes | str, second: bytes | str, third: bytes | str) -> tuple[Any, Any, Any]:
    """Return the values of three variables as the environment stores them, given their keys."""
    environ: Any = os.environ
    try:
        get = environ._data.get
    except AttributeError:
        return environ.get(os.fsdecode(first)), environ.get(os.fsdecode(second)), environ.get(os.fsdecode(third))
    return get(first), get(second), get(third)

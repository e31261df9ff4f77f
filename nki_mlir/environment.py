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

    def text(self) -> str:
        """Its value; nothing where it is not set."""
        environ: Any = os.environ
        try:
            found = environ._data.get(self.key)
        except AttributeError:                      # something else stands for it
            return os.environ.get(self.name, "")
        return os.environ.decodevalue(found) if found else ""

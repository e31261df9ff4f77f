# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dialects defined in Python. What the bindings make of a class body, nothing here can say."""

from typing import Any

Dialect: Any
Operand: Any
Region: Any
Result: Any
Pure: Any

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dialects defined in Python. What the bindings make of a class body, nothing here can say."""

from typing import Any, Generic, TypeVar

from torch_mlir import ir

T = TypeVar("T")

Dialect: Any
Region: Any
Pure: Any

class Operand(ir.Value, Generic[T]): ...
class Result(ir.Value, Generic[T]): ...

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The dialect in which dialects are defined."""

from torch_mlir import ir

def load_dialects(module: ir.Module) -> None: ...

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The machines: one data file a target, and the lookup by name."""

from nki_mlir.machine.description import ENGINES, Engine, Machine, machine_named

__all__ = ["ENGINES", "Engine", "Machine", "machine_named"]

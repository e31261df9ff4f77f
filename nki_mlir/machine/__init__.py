# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The machines: one data file for each target, and the lookup by name."""

from nki_mlir.machine.cited import Cited
from nki_mlir.machine.costs import Cost, Costs, Ramp, Work
from nki_mlir.machine.description import DEFAULT_TARGET, Machine, machine_named
from nki_mlir.machine.engine import ENGINES, SHARING, Engine

__all__ = ["DEFAULT_TARGET", "ENGINES", "SHARING", "Cited", "Cost", "Costs", "Engine", "Machine", "Ramp",
           "Work", "machine_named"]

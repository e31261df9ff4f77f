# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The function of the operation: clamp(data, low, high=1.0), and clamp(dst, data, low, high=1.0) in ``nki``."""

from nki_mlir.plugin import instruction
from nki_mlir_example.ops import ExampleClampOp

clamp = instruction(ExampleClampOp, "data limited to the interval from low to high.", data="src")

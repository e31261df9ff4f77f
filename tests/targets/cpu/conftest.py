# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Let compiled kernels use two threads in these tests, whatever the number of cores, and a test have ``pairs``."""

import os

from .emulated_pairs import pairs

__all__ = ["pairs"]

os.environ.setdefault("NKI_MLIR_NUM_THREADS", "2")

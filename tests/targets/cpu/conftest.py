# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled kernels use two threads in these tests, however many cores there are."""

import os

os.environ.setdefault("NKI_MLIR_NUM_THREADS", "2")

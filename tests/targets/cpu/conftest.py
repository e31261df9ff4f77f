# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Let compiled kernels use two threads in these tests, whatever the number of cores."""

import os

os.environ.setdefault("NKI_MLIR_NUM_THREADS", "2")

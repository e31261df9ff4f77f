# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measure when a fresh process has its first and second checked result: ``python tools/first_result.py STARTED``.

``STARTED`` is ``time.time()`` just before the start of the process. No cache on disk is used.
"""

import sys
import time
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"
sys.path[:0] = [str(EXAMPLES.parent), str(EXAMPLES)]

import nki_mlir.compat  # noqa: E402

nki_mlir.compat.install()


def checked(module_name: str) -> float:
    """Run the example's kernel, compare it with its reference, and return the time of day."""
    import importlib

    import numpy as np
    (kernel, arguments, answer, tolerance), = importlib.import_module(module_name).cases()
    error = float(np.abs(kernel(*arguments) - answer).max())
    if error > tolerance:
        raise SystemExit(f"{module_name}: largest error {error}")
    return time.time()


first = checked("average_pool2d")
print(f"average pool: {first - float(sys.argv[1]):.2f} s from process start to a checked result")
print(f"generalized IoU as second kernel in the process: {checked('giou') - first:.2f} s")

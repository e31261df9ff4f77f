# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of integers do not depend on the order of their elements: they are exact, and rounded to float32 once.

Elements are float32 values, as in every operation; float64 holds sums of 2^21 integers of 32 bits exactly.
"""

import numpy as np

from nki_mlir.scalar.alu import ALU


def reduced(op: str, array: np.ndarray, axes: tuple[int, ...], of_integers: bool) -> np.ndarray:
    """The array reduced by an ALU operation; ``of_integers``: what is in it was computed from integers alone."""
    reduce = ALU[op].reduce
    assert reduce is not None
    if not of_integers or array.dtype != np.float32:
        return reduce(array, axes)
    with np.errstate(all="ignore"):
        match op:
            case "add" | "subtract":
                return reduce(array.astype(np.float64), axes).astype(np.float32)
            case "average":
                count = np.float32(np.prod([array.shape[axis] for axis in axes]))
                return array.sum(axis=axes, dtype=np.float64).astype(np.float32) / count
    return reduce(array, axes)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order in which float32 values are added: the fastest order, or with ``NKI_MLIR_SUMS=device`` the device's order.

The device's documents say: a reduction along the free dimension takes the elements of each lane in their order, in
float32; products of one instruction after the other are added in PSUM. The order of additions in the array itself is
not documented. We add in the order in which values flow through it, row by row, and round each product before adding
it.
"""

from collections.abc import Callable

import numpy as np

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.environment import EnvironmentVariable

SUMS = EnvironmentVariable("NKI_MLIR_SUMS")
ORDERED = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "average": np.add}


class UnknownOrder(NkiMlirError, ValueError):
    code = "NKI-SUMS"
    message = "NKI_MLIR_SUMS cannot be '{found}'"
    fix = "set it to device, for the device's order of additions, or leave it out"


def in_device_order() -> bool:
    """Return whether sums are added in the order of the device."""
    if not SUMS.raw():
        return False
    if SUMS.text() != "device":
        raise UnknownOrder(found=SUMS.text()).here()
    return True


@np.errstate(all="ignore")
def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return ``left.T @ right``: the sum over the first axis of both."""
    if not in_device_order():
        return np.asarray(left.T @ right)
    total = np.multiply.outer(left[0], right[0]) + 0
    for left_row, right_row in zip(left[1:], right[1:]):
        total += np.multiply.outer(left_row, right_row)
    return total


def ordered(name: str) -> bool:
    """Return whether a reduction by an ALU operator rounds, and must now follow the device's order."""
    return name in ORDERED and in_device_order()


@np.errstate(all="ignore")
def reduced_in_order(name: str, flat: np.ndarray) -> np.ndarray:
    """Combine the elements of the last axis from the first one on."""
    steps: Callable[..., np.ndarray] = ORDERED[name].accumulate
    totals: np.ndarray = steps(flat, axis=-1, dtype=flat.dtype)[..., -1]
    return totals / flat.dtype.type(flat.shape[-1]) if name == "average" else totals


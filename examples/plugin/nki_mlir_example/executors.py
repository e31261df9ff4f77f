# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An executor that runs a kernel as native code and on the interpreter, and compares the results."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nki_mlir.plugin import NkiMlirError, executor


class Differs(NkiMlirError):
    code = "EXAMPLE-DIFFERS"
    message = "native code and the interpreter differ by {error} in array {number}"


def checked(captured: Any, grid: tuple[int, ...]) -> Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]:
    """Return run(inputs, shared) for a captured kernel, which compares all arrays that the kernel writes."""
    native, interpreted = executor("jit")(captured, grid), executor("interpreter")(captured, grid)

    def run(inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray]) -> None:
        copies = [a.copy() for a in (*inputs, *shared)]
        interpreted(copies[:len(inputs)], copies[len(inputs):])
        native(inputs, shared)
        for number, (a, b) in enumerate(zip((*inputs, *shared), copies)):
            error = np.max(np.abs(a.astype(np.float64) - b.astype(np.float64)), initial=0.0)
            if error > 1e-4:
                raise Differs(error=error, number=number)
    return run

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""a * b * kernel(a, b) of 256 x 1024 as one linked program, beside XLA with the opaque call and XLA's own fusion."""

from typing import Any

import numpy as np
import tensor_add as example
from case import Case, case, random, tolerance


def with_kernel(a: Any, b: Any) -> Any:
    return a * b * example.tensor_add[2, 2](a, b)


@case("linked")
def linked(dtype: str = "float32") -> Case:
    import jax

    from nki_mlir.frameworks.stablehlo import LinkedProgram
    a, b = random(256, 1024, dtype=dtype), random(256, 1024, seed=1, dtype=dtype)
    opaque = jax.jit(with_kernel)
    program = LinkedProgram(opaque.lower(a, b).as_text())
    result = np.empty_like(a)

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Write into preallocated memory, as XLA does after the first call."""
        program.run([a, b], [result])
        return result

    def formula(xp: Any, a: Any, b: Any) -> Any:
        return a * b * (a + b)
    return Case((a, b), kernel, formula, lambda a, b: a * b * (a + b), "copy", 3 * a.nbytes,
                lambda: formula(np, a.astype("float64"), b.astype("float64")), tolerance(dtype),
                more={"opaque call": lambda: lambda: opaque(a, b).block_until_ready()})

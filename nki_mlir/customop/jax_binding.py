# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Custom operators on JAX arrays: eagerly, under ``jax.jit`` and ``jax.vmap``.

For ``jax.grad``, wrap a call in ``jax.custom_vjp``. Tensors are operands, numbers are constants of the program.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from nki_mlir.customop.operator import Operator
from nki_mlir.customop.settings import current_engine


def call(operator: Operator, arguments: Sequence[Any]) -> Any:
    """The result as a JAX array, or as a tracer where one is given."""
    places = [k for k, p in enumerate(operator.parameters) if p == "T"]
    engine = current_engine()                     # of this thread: XLA calls back from another one

    def run(*arrays: Any) -> np.ndarray:
        given = list(arguments)
        for place, array in zip(places, arrays):
            given[place] = np.asarray(array)
        return operator.on_numpy(given, engine)
    operands = [arguments[k] for k in places]
    if not any(isinstance(a, jax.core.Tracer) for a in operands):
        return jax.numpy.asarray(run(*operands))
    shape, dtype = operator.shape(*arguments)
    return jax.pure_callback(run, jax.ShapeDtypeStruct(shape, dtype), *operands, vmap_method="sequential")

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Custom operators on JAX arrays: eagerly, under ``jax.jit`` and ``jax.vmap``, as nodes of graphs.

Tensors are operands, numbers are constants of the program. For ``jax.grad``, wrap a call in ``jax.custom_vjp``.
"""

from collections.abc import Sequence

import jax
import numpy as np

from nki_mlir.customop.library import Operator
from nki_mlir.customop.settings import current_engine


def call(operator: Operator, arguments: Sequence[object]) -> object:
    """Call an operator and return the result as a JAX array, or as a tracer if an argument is one."""
    tensors = [a for a, p in zip(arguments, operator.parameters) if p == "T"]
    if not any(isinstance(a, jax.core.Tracer) for a in tensors):
        values = [np.asanyarray(a) if p == "T" else a for a, p in zip(arguments, operator.parameters)]
        return jax.numpy.asarray(operator.on_numpy(values, current_engine()))
    from nki_mlir.customop.graph_binding import callee  # start-up: loads MLIR
    from nki_mlir.frameworks.jax_primitive import bind
    return bind(callee(operator, arguments), tensors)[0]

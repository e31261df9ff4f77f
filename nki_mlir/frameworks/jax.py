# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels on JAX arrays and tracers: eagerly, under ``jax.jit``, ``jax.vmap`` and, with a rule, ``jax.grad``.

Arrays are operands; every other argument, by position or keyword, is a compile-time constant. A parameter that the
kernel updates gives a new array, because arrays are immutable; with ``donate_argnums`` its memory is reused. For
``jax.export`` pass ``disabled_checks=export_checks()``; a module that was exported runs where this module is imported.
"""

from functools import partial
from typing import Any

import jax
import numpy as np

from nki_mlir.frameworks.calls import SymbolicShape, callee_for
from nki_mlir.frameworks.framework_kernel import FrameworkKernel
from nki_mlir.frameworks.jax_partition import partitioned
from nki_mlir.frameworks.jax_primitive import KernelNotDifferentiable, bind, registered_handler
from nki_mlir.frameworks.registry import PlainResults
from nki_mlir.graph.custom_call import TARGETS
from nki_mlir.language.arguments import BadArgument
from nki_mlir.language.kernel import Kernel
from nki_mlir.language.results import assemble
from nki_mlir.scalar.dtypes import DType, dtype_of

registered_handler()                # executables from a cache or an export may come before the first kernel


def call(kernel: Kernel, arguments: tuple[object, ...], keywords: dict[str, object]) -> object:
    """The kernel's results as JAX arrays, in the structure in which it returns them."""
    bound = kernel.bind(arguments, keywords, is_tensor, partial(describe, kernel.__name__))
    # An output parameter keeps the elements that the kernel does not write: it is an operand unless it writes them all.
    callee = callee_for(kernel, bound, PlainResults(None))
    try:
        results = bind(callee, [bound.tensors[place] for place in callee.record.form.operands])
    except KernelNotDifferentiable as error:
        raise error.here() from None
    return assemble(callee.record.structure, [results[n] for n in callee.record.form.returned])


def is_tensor(value: object) -> bool:
    """Whether an argument is an operand."""
    return isinstance(value, (jax.Array, np.ndarray))


def describe(name: str, array: Any) -> tuple[tuple[int, ...], DType]:
    """Shape and dtype of an array or tracer that a kernel of this name gets; raises ``BadArgument`` for a dtype that
    kernels do not have."""
    if not all(isinstance(n, int) for n in array.shape):
        raise SymbolicShape(name=name, what=f"an array of shape {array.shape}",
                            instead="jax.jit compiles anew").here()
    try:
        return tuple(array.shape), dtype_of(array.dtype)
    except TypeError as error:
        raise BadArgument(what=f"an array of dtype {array.dtype} is passed to a kernel: {error}").here() from None


class JaxKernel(FrameworkKernel):
    """``FrameworkKernel`` for JAX: arrays, tracers, and ``jax.ShapeDtypeStruct``, of which only the shape is asked.

    Example:
        dumped = JaxKernel(double).dump_config(jax.ShapeDtypeStruct((4, 8), jnp.float32))
        assert [shape for _, shape in dumped.return_types] == [(4, 8)]
    """

    def is_framework_tensor(self, t: object) -> bool:
        return is_tensor(t) or isinstance(t, jax.ShapeDtypeStruct)


def export_checks() -> list[object]:
    """``disabled_checks`` of ``jax.export.export`` for functions that call kernels or custom operators.

    Arguments:
        none

    Result:
        A list of checks: one for each of their custom calls.

    Errors:
        None.

    Example:
        x = jnp.ones((4, 8), jnp.float32)
        exported = jax.export.export(jax.jit(nki.jit(double)), disabled_checks=export_checks())(x)
        assert np.array_equal(exported.call(x), np.full((4, 8), 2.0))
    """
    import jax.export  # an optional package
    return [jax.export.DisabledSafetyCheck.custom_call(target) for target in TARGETS]


__all__ = ["JaxKernel", "export_checks", "partitioned"]

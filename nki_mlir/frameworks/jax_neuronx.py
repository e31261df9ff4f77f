# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``jax_neuronx``: the JAX entry point of the first beta, for kernels whose last parameters are their outputs."""

from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.nisa.require_written import OutputNotWritten
from nki_mlir.frameworks.jax import describe, is_described
from nki_mlir.frameworks.jax_primitive import bind
from nki_mlir.frameworks.registry import PlainResults, callee_for
from nki_mlir.language.kernel import Kernel, unwrap
from nki_mlir.language.launch_grid import cores_of, flat_grid


class NoOutShape(NkiMlirError, TypeError):
    code = "NKI-OUT-SHAPE"
    message = "nki_call of {name} has no out_shape"
    fix = "pass out_shape=jax.ShapeDtypeStruct(shape, dtype), or a sequence of them"


@lru_cache(maxsize=512)
def _kernel_of(function: object) -> Kernel:
    return replace(unwrap(function), by_reference=True)


def nki_call(func: Any, *args: object, grid: object = None, out_shape: object = None,
             platform_target: str | None = None,
             **kwargs: object) -> Any:
    """Call a kernel that takes ``args`` and then one parameter for each output, which it writes.

    Arguments:
        func: the function or kernel; constants are bound with ``functools.partial(kernel, name=value)``
        args: JAX arrays or tracers
        grid: extents of the launch
        out_shape: a ``jax.ShapeDtypeStruct``, or a tree of them
        platform_target: trn1, trn2 or trn3, unless the environment names one
        kwargs: no effect

    Result:
        Arrays, in the structure of out_shape.

    Errors:
        A call without out_shape is an error.

    Example:
        def double(x, out):
            nl.store(out, nl.multiply(nl.load(x), 2.0))
        x = jnp.ones((4, 8), jnp.float32)
        assert np.array_equal(nki_call(double, x, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype)), 2 * x)
    """
    while isinstance(func, partial):
        func, args, kwargs = func.func, (*func.args, *args), {**func.keywords, **kwargs}
    kernel = _kernel_of(func)
    if out_shape is None:
        raise NoOutShape(name=kernel.__name__)
    if grid is not None:
        kernel = replace(kernel, grid=flat_grid(grid), cores=cores_of(grid), has_grid=True)
    if platform_target is not None:
        kernel = replace(kernel, target=platform_target)
    outputs, structure = jax.tree_util.tree_flatten(out_shape)
    outputs = [jax.ShapeDtypeStruct(o.shape, o.dtype) for o in outputs]     # distinct objects: matched by identity
    bound = kernel.bind((*args, *outputs), kwargs, is_described, partial(describe, kernel.__name__))
    output_indices = [next(k for k, t in enumerate(bound.tensors) if t is output) for output in outputs]
    callee = callee_for(kernel, bound, PlainResults(tuple(output_indices)))
    form = callee.record.form
    for index in output_indices:
        if ("input", index) not in form.results:
            name = bound.specs[index].name
            raise OutputNotWritten(what=f"the output {name} is never written").located(kernel.location)
    # An output that the kernel also reads is an operand; it starts as zeros, since the caller passes no contents.
    operands = [jax.numpy.zeros(t.shape, t.dtype) if isinstance(t, jax.ShapeDtypeStruct) else t
                for t in (bound.tensors[index] for index in form.operands)]
    results = bind(callee, operands)
    return jax.tree_util.tree_unflatten(
        structure, [results[form.results.index(("input", index))] for index in output_indices])


__all__ = ["nki_call"]

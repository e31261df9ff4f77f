# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The JAX primitive ``nki_call``: a captured kernel on arrays, with its lowerings, batching and differentiation rules.

On the CPU it lowers to a typed FFI custom call that runs the compiled kernel in the process; for any other platform to
the documented custom call of Neuron graphs, whose ``backend_config`` is the kernel itself.
"""

import atexit
import contextlib
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from math import prod
from typing import Any

import jax
import numpy as np
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frameworks.debug_output import write_when_lowered
from nki_mlir.frameworks.process_state import once
from nki_mlir.frameworks.rank_calls import CalleeOfRanks, of_ranks
from nki_mlir.frameworks.registry import Callee, run_on_arrays, storage
from nki_mlir.frameworks.xla_handler import Handler, UnsupportedFfi, handler
from nki_mlir.graph.custom_call import TARGETS


class KernelNotDifferentiable(NkiMlirError, NotImplementedError):
    code = "NKI-JAX-GRADIENT"
    message = "kernel {name} is differentiated, and a kernel has no derivative"
    fix = "wrap the call in a function with jax.custom_vjp and give it a forward and a backward rule"


Axes = tuple[tuple[str, int], ...]
nki_call = core.Primitive("nki_call")
nki_call.multiple_results = True


def bind(callee: Callee, operands: Sequence[object]) -> list[jax.Array]:
    """Emit the custom call of a kernel and return all of its results."""
    axes = axes_of_ranks() if callee.record.depends_on_rank else ()
    return nki_call.bind(*varying_alike(operands, [name for name, _ in axes]), callee=callee, func=callee.record.name,
                         grid=callee.record.grid, rank_axes=axes)


def axes_of_ranks() -> tuple[tuple[str, int], ...]:
    """Return the names and sizes of the mesh axes over which ``shard_map`` divides the program, outermost first; the
    position on them is the rank."""
    mesh = jax.sharding.get_abstract_mesh()
    return tuple((name, mesh.shape[name]) for name, kind in zip(mesh.axis_names, mesh.axis_types)
                 if kind == jax.sharding.AxisType.Manual)


def varying_alike(operands: Sequence[object], more: Sequence[str] = ()) -> Sequence[object]:
    """Make all operands vary over the same axes of the mesh under ``shard_map``: all axes over which one of them
    varies, and ``more``."""
    axes = [varying(jax.typeof(o)) if isinstance(o, jax.core.Tracer) else frozenset() for o in operands]
    all_axes = frozenset(more).union(*axes)
    lax: Any = jax.lax              # JAX 0.6 has ``pvary``
    vary = partial(lax.pcast, to="varying") if hasattr(lax, "pcast") else lax.pvary
    return [o if varies == all_axes else vary(o, tuple(sorted(all_axes - varies))) for o, varies in zip(operands, axes)]


def varying(kind: object) -> frozenset[str]:
    """Return the mesh axes over which an array inside of ``shard_map`` varies."""
    return kind.manual_axis_type.varying if hasattr(kind, "manual_axis_type") else getattr(kind, "vma", frozenset())


@nki_call.def_abstract_eval
def _abstract(*operands: Any, callee: Callee, **shown: object) -> list[jax.core.ShapedArray]:
    shapes = [jax.core.ShapedArray(r.shape, storage(r)) for r in callee.results]
    if not operands or not varying(operands[0]):
        return shapes
    inside = jax.sharding.NamedSharding(operands[0].sharding.mesh, jax.sharding.PartitionSpec())
    return [operands[0].update(shape=m.shape, dtype=m.dtype, weak_type=False, sharding=inside) for m in shapes]


@cache
def _jitted(callee: Callee) -> Callable[..., list[jax.Array]]:
    # One function for each callee: jax.jit traces and compiles again for every function object.
    return jax.jit(lambda *operands: bind(callee, operands))


@nki_call.def_impl
def _run(*operands: object, callee: Callee, **shown: object) -> list[jax.Array]:
    if not jax.config.jax_disable_jit:          # type: ignore[attr-defined]
        return _jitted(callee)(*operands)
    with jax.disable_jit(False):                # a kernel runs only as a compiled program
        return _jitted(callee)(*operands)


def _differentiate(primals: Sequence[object], tangents: object, *, callee: Callee, **shown: object) -> object:
    """Return results with zero tangents if none is floating point (indices, masks, counts); otherwise raise
    ``KernelNotDifferentiable``."""
    results = bind(callee, primals)
    if any(jax.numpy.issubdtype(r.dtype, jax.numpy.inexact) for r in results):
        raise KernelNotDifferentiable(name=callee.record.name)
    return results, [ad.Zero.from_primal_value(r) for r in results]      # type: ignore[attr-defined]


def _transpose(*arguments: object, callee: Callee, **shown: object) -> object:
    """Raise ``KernelNotDifferentiable``: reverse mode transposes a call only in a tangent that a ``custom_jvp`` rule
    computed."""
    raise KernelNotDifferentiable(name=callee.record.name)


def _batch(operands: Sequence[Any], axes: Sequence[Any], *, callee: Callee, **shown: object) -> object:
    """Call the kernel once for each part of the batch, since a kernel is compiled for its shapes.

    If the type of a batch says that devices have parts of it (explicit sharding), each device maps its part.
    """
    mapped = [axis is not None for axis in axes]
    stacked = [o if axis is None else jax.numpy.moveaxis(o, axis, 0) for o, axis in zip(operands, axes)]

    def one_after_the_other(*stacked: Any) -> list[jax.Array]:
        def call_part(slices: list[object]) -> list[jax.Array]:
            parts = iter(slices)
            return bind(callee, [next(parts) if is_mapped else o for o, is_mapped in zip(stacked, mapped)])
        return jax.lax.map(call_part, [o for o, is_mapped in zip(stacked, mapped) if is_mapped])
    divided = next((d for o, is_mapped in zip(stacked, mapped) if is_mapped and (d := explicit_division(o))), None)
    if divided is None:
        results = one_after_the_other(*stacked)
    else:
        specs = tuple(jax.sharding.PartitionSpec(*[divided] * is_mapped) for is_mapped in mapped)
        on_each_device = jax.shard_map(one_after_the_other, in_specs=specs,
                                       out_specs=jax.sharding.PartitionSpec(divided))
        results = on_each_device(*map(jax.sharding.reshard, stacked, specs))
    return results, [0] * len(results)


def explicit_division(batch: object) -> object:
    """Return the axes of the mesh that divide the first dimension, as the array's type says; None if none do."""
    sharding = getattr(jax.typeof(batch), "sharding", None)
    return sharding.spec[0] if sharding is not None and len(sharding.spec) else None


ad.primitive_jvps[nki_call] = _differentiate
ad.primitive_transposes[nki_call] = _transpose
batching.primitive_batchers[nki_call] = _batch


# -- lowering ----------------------------------------------------------------------------------------------------------
def _lower_neuron(context: Any, *operands: object, callee: Callee, **shown: object) -> Any:
    """Lower to the documented call: ``api_version`` 2 (status returning) with a string as ``backend_config``."""
    write_when_lowered(context.module_context.module)
    rule = jax.ffi.ffi_lowering(callee.record.target, api_version=2, backend_config=callee.record.config,
                                **_properties(callee))
    results = rule(context, *operands)
    call = mlir.ir.InsertionPoint.current.block.operations[-1]
    for layouts in ("operand_layouts", "result_layouts"):       # the documented call has no layouts
        del call.attributes[layouts]
    return results


def _lower_cpu(context: Any, *operands: object, callee: Callee, rank_axes: Axes, **shown: object) -> Any:
    if rank_axes:
        return mlir.lower_fun(partial(_run_all_ranks, callee, rank_axes), multiple_results=True)(context, *operands)
    registered = registered_handler()
    if registered is None:
        return mlir.lower_fun(lambda *arrays: _call_back(callee, arrays), multiple_results=True)(context, *operands)
    registered.publish(callee)
    write_when_lowered(context.module_context.module)
    rule = jax.ffi.ffi_lowering(callee.record.target, **_properties(callee))
    # The handler relies on the order: attributes arrive sorted by name.
    return rule(context, *operands, kernel_id=np.int64(callee.number), kernel_key=callee.record.key,
                kernel_on=callee.on, kernel_record=callee.record.config,
                **({"kernel_ranks": str(callee.ranks)} if isinstance(callee, CalleeOfRanks) else {}))


def _run_all_ranks(callee: Callee, axes: Axes, *operands: Any) -> list[Any]:
    """Run a kernel of ranks that meet: the first device gets the operands of all, runs the ranks, and sends each device
    its results. Every device raises the error of a rank."""
    names, lax = tuple(name for name, _ in axes), jax.lax
    ranks = prod(size for _, size in axes)
    together = of_ranks(callee, ranks)
    stacked = [lax.all_gather(o, names) for o in operands]
    rank = lax.axis_index(names)
    nothing = jax.numpy.broadcast_to(rank * 0, (ranks,))        # varies over the axes, as the results do

    def run(error: Any) -> list[jax.Array]:
        return nki_call.bind(*stacked, error, callee=together, func=callee.record.name, grid=callee.record.grid,
                             rank_axes=())

    def wait(error: Any) -> list[jax.Array]:
        return [jax.numpy.broadcast_to(error[0].astype(storage(r)), r.shape) for r in together.results]
    sent = lax.cond(rank == 0, run, wait, nothing)
    *results, error = [lax.all_to_all(r, names, 0, 0, tiled=True)[0] for r in sent]
    return lax.cond(error != 0, lambda: [r[0] for r in run(nothing + error)[:-1]], lambda: results)


def _properties(callee: Callee) -> dict[str, Any]:
    return {"operand_output_aliases": callee.record.form.aliases, "has_side_effect": callee.record.has_effects}


mlir.register_lowering(nki_call, _lower_cpu, platform="cpu")
mlir.register_lowering(nki_call, _lower_neuron)


def registered_handler() -> Handler | None:
    """Return the handler after registering it with XLA under the names of ``TARGETS``. Return None, with a warning,
    where XLA's interface has another version."""
    return once("xla_registration", _register)


def _register() -> Handler | None:
    try:
        new_handler = handler()
    except UnsupportedFfi as error:
        warnings.warn(f"{error}\n  meanwhile: kernels run through jax.pure_callback, which is slower", stacklevel=2)
        return None
    stages = {stage: jax.ffi.pycapsule(new_handler.address) for stage in ("instantiate", "execute")}
    for target in TARGETS:
        jax.ffi.register_ffi_target(target, stages, platform="cpu")
    atexit.register(_finish, new_handler)
    return new_handler


def _finish(running: Handler) -> None:
    """Wait for programs that are still running, then let no kernel start: no thread can enter Python while it exits."""
    interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt
    try:
        for array in jax.live_arrays() if running.callees and not interrupted else ():
            with contextlib.suppress(Exception):
                array.block_until_ready()
    except KeyboardInterrupt:
        interrupted = True
    running.close(interrupted)


def _call_back(callee: Callee, arrays: Sequence[object]) -> list[object]:
    """Run the kernel through ``jax.pure_callback``."""
    shapes = [jax.ShapeDtypeStruct(r.shape, storage(r)) for r in callee.results]
    return jax.pure_callback(lambda *values: run_on_arrays(callee, values), shapes, *arrays)

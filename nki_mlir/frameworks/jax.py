# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of kernels with JAX arrays, under ``jax.jit``, ``vmap``, ``shard_map`` and ``jax.export``.

Arrays are operands; every other argument, by position or keyword, is a compile-time constant. Arrays are immutable, so
the call returns a new array for each parameter that the kernel updates; ``donate_argnums`` lets it reuse the memory.
Pass ``disabled_checks=export_checks()`` to ``jax.export``, and import this module where an exported module runs.
``partitioned`` tells the partitioner of ``jax.jit`` how devices may divide the operands of a kernel.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from types import FunctionType
from typing import Any

import jax
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frameworks.framework_kernel import FrameworkKernel
from nki_mlir.frameworks.jax_primitive import KernelNotDifferentiable, bind, registered_handler
from nki_mlir.frameworks.registry import Callee, PlainResults, SymbolicShape, call_for, callee_for
from nki_mlir.graph.custom_call import TARGETS
from nki_mlir.language.arguments import BadArgument, ElementType, MaskedArgument
from nki_mlir.language.call_cache import constant, defaults_of
from nki_mlir.language.framework_tensors import refuse_mixed
from nki_mlir.language.kernel import Kernel, is_masked
from nki_mlir.language.results import assemble
from nki_mlir.scalar.dtypes import DType, dtype_of

JAX = "jax"                     # marks the callees of this framework among the prepared runs of a cached call


class DeletedArray(BadArgument):
    message = "parameter {name} is an array of JAX that has been deleted"
    why = "JAX deletes an array that is donated to a function, and one whose delete() is called"
    fix = "pass a copy of it to the other function, or do not donate it"


registered_handler()                # executables from a cache or an export may come before the first kernel


def call(kernel: Kernel, arguments: tuple[object, ...], keywords: dict[str, object]) -> object:
    """Call a kernel and return its results as JAX arrays, in the structure in which the kernel returns them."""
    key = None if keywords else key_of(kernel, arguments)
    repeated = None if key is None else kernel.specializations.find(key)
    settings = JAX, kernel.executor_settings()
    callee: Callee | None = None if repeated is None else repeated.runs.get(settings)
    if callee is not None:
        tensors: list[Any] = [value for value in arguments if issubclass(type(value), jax.Array)]
    else:
        refuse_mixed(JAX, kernel, arguments, keywords)
        bound = kernel.bind(arguments, keywords, is_tensor, partial(describe, kernel.__name__))
        tensors, cached = bound.tensors, call_for(kernel, bound)
        # An output parameter keeps the elements that the kernel does not write: it is an operand unless it writes all.
        callee = callee_for(kernel, bound, PlainResults(None), cached)
        if key is not None and cached.capture.repeats:
            cached.runs[settings] = callee
    try:
        results = bind(callee, [tensors[index] for index in callee.record.form.operands])
    except KernelNotDifferentiable as error:
        raise error.here() from None
    except (RuntimeError, ValueError):
        for index, array in enumerate(tensors):
            if not isinstance(array, (jax.core.Tracer, np.ndarray)) and array.is_deleted():
                bound = kernel.bind(arguments, keywords, is_tensor, partial(describe, kernel.__name__))
                raise DeletedArray(name=bound.specs[index].name).here() from None
        raise
    return assemble(callee.record.structure, [results[n] for n in callee.record.form.returned])


def key_of(kernel: Kernel, arguments: tuple[object, ...]) -> tuple[object, ...] | None:
    """Return the key in the call cache of a call whose positional arguments are JAX arrays and simple constants. Return
    None for any other call."""
    function = kernel.func
    if type(function) is not FunctionType:
        return None
    values = arguments
    if (missing := function.__code__.co_argcount - len(arguments)) or function.__code__.co_kwonlyargcount:
        values += defaults_of(function, missing)
    key = list(kernel.settings())
    for number, value in enumerate(values):
        if (part := constant(value)) is not None:
            key += part
        elif number < len(arguments) and issubclass(type(value), jax.Array):    # isinstance() accepts tracers, too
            array: Any = value
            key += array.shape, array.dtype
        else:
            return None
    return tuple(key)


def is_tensor(value: object) -> bool:
    """Return whether an argument is an array, and so an operand."""
    return isinstance(value, (jax.Array, np.ndarray))


def describe(name: str, array: Any) -> tuple[tuple[int, ...], DType]:
    """Return the shape and dtype of an array or tracer that is passed to kernel ``name``. Raise ``ElementType`` for a
    dtype that kernels do not have, and ``SymbolicShape`` for a size that is not a number."""
    if is_masked(array):
        raise MaskedArgument().here()
    if not all(isinstance(n, int) for n in array.shape):
        raise SymbolicShape(name=name, what=f"an array of shape {array.shape}",
                            instead="jax.jit recompiles").here()
    try:
        return tuple(array.shape), dtype_of(array.dtype)
    except TypeError as error:
        description = f"an array of dtype {array.dtype} is passed to a kernel"
        raise ElementType.of(description, array.dtype, error, "x.astype(jnp.float32)").here() from None


def is_described(value: object) -> bool:
    """Return whether an argument is an array or a ``jax.ShapeDtypeStruct``, which gives the shape and dtype of one."""
    return is_tensor(value) or isinstance(value, jax.ShapeDtypeStruct)


class JaxKernel(FrameworkKernel):
    """``FrameworkKernel`` for JAX: arrays, tracers and ``jax.ShapeDtypeStruct``. It reads no values.

    Example:
        dumped = JaxKernel(double).dump_config(jax.ShapeDtypeStruct((4, 8), jnp.float32))
        assert [shape for _, shape in dumped.return_types] == [(4, 8)]
    """

    def is_framework_tensor(self, t: object) -> bool:
        return is_described(t)


def export_checks() -> list[object]:
    """Return the ``disabled_checks`` with which ``jax.export.export`` accepts functions that call kernels or custom
    operators.

    Arguments:
        none

    Result:
        A list with a check for each custom-call target of kernels and custom operators.

    Errors:
        None.

    Example:
        x = jnp.ones((4, 8), jnp.float32)
        exported = jax.export.export(jax.jit(nki.jit(double)), disabled_checks=export_checks())(x)
        assert np.array_equal(exported.call(x), np.full((4, 8), 2.0))
    """
    import jax.export  # an optional package
    return [jax.export.DisabledSafetyCheck.custom_call(target) for target in TARGETS]


# -- operands partitioned among devices --------------------------------------------------------------------------------
class PartitionRule(NkiMlirError, ValueError):
    code = "NKI-JAX-PARTITION"
    message = "rule '{rule}': {what}"
    fix = "give the dimensions of each operand and result a name, as in 'rows columns, columns -> rows columns'"


class DivisionRule:
    """The ways in which devices may divide a function's arrays: the name of each dimension, and the names that devices
    may split."""

    def __init__(self, text: str, split: str) -> None:
        sides = text.split("->")
        if len(sides) != 2:
            raise PartitionRule(rule=text, what="it has no '->', or several").here()
        self.operands, self.results = ([part.split() for part in side.split(",")] for side in sides)
        self.text, self.split = text, tuple(split.split())
        all_names = {name for dims in (*self.operands, *self.results) for name in dims}
        for name in self.split:
            if name not in all_names:
                raise PartitionRule(rule=text, what=f"no dimension is called {name}").here()
        for name in all_names - set(self.split):
            if not name.isidentifier():
                raise PartitionRule(rule=text, what=f"{name!r} is not a name").here()
        self.fixed = tuple(sorted(all_names - set(self.split)))

    def check(self, operands: Sequence[Any], results: Sequence[Any]) -> None:
        """Raise ``PartitionRule`` if arrays have other numbers of dimensions than the rule."""
        for group, names, arrays in (("operands", self.operands, operands), ("results", self.results, results)):
            ranks = [len(a.shape) for a in arrays]
            if ranks != [len(dims) for dims in names]:
                raise PartitionRule(rule=self.text, what=f"{group} have {ranks} dimensions").here()

    def axes(self, operands: Sequence[Any]) -> dict[str, object]:
        """Return the mesh axes along which each named dimension is divided. The first operand that is divided there
        decides, and no mesh axis divides two dimensions."""
        divided: dict[str, object] = {}
        used_axes: set[str] = set()
        for dims, operand in zip(self.operands, operands):
            spec = tuple(operand.sharding.spec) if operand.sharding is not None else ()
            for name, axes in zip(dims, spec):
                mesh_axes = {axes} if isinstance(axes, str) else set(axes or ())
                if mesh_axes and name in self.split and name not in divided and not mesh_axes & used_axes:
                    divided[name] = axes
                    used_axes |= mesh_axes
        return divided


def partitioned(function: Callable[..., object], rule: str, split: str) -> Callable[..., Any]:
    """Return a function whose work ``jax.jit`` divides among devices, along the dimensions in which its operands are
    divided.

    Without it, every device gathers a kernel's operands and computes all of its results. JAX traces the function on
    the shapes of one device's parts, as under ``shard_map``: along the dimensions in ``split``, a part of the results
    may depend only on the same part of the operands.

    Arguments:
        function: takes arrays by position, calls kernels and returns arrays
        rule: the dimensions of operands and results by name: "rows columns, columns -> rows columns"
        split: the names of the dimensions along which devices may divide the work: "rows"

    Result:
        The function, for use under jax.jit.

    Errors:
        ``PartitionRule`` if the rule does not fit the arrays.

    Example:
        f = jax.jit(partitioned(nki.jit(double), "rows columns -> rows columns", split="rows"))
        assert np.array_equal(f(jnp.ones((4, 8), jnp.float32)), np.full((4, 8), 2.0))
    """
    division = DivisionRule(rule, split)
    differentiable = transformable(divided(function, division), getattr(function, "__name__", "of a function"))

    @wraps(function)
    def run(*operands: object) -> object:
        shapes = jax.eval_shape(function, *operands)
        is_single = not isinstance(shapes, (tuple, list))
        division.check(operands, [shapes] if is_single else shapes)
        try:
            results = differentiable(*operands)
        except KernelNotDifferentiable as error:
            raise error.here() from None
        return results[0] if is_single else type(shapes)(results)
    return run


def divided(function: Callable[..., object], division: DivisionRule) -> Callable[..., Any]:
    """Return a function of several results that tells XLA's partitioner how devices divide its operands and results."""
    def as_tuple(*operands: object) -> tuple[object, ...]:
        outputs = function(*operands)
        return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
    call = custom_partitioning(as_tuple)

    def shardings(mesh: Any, operands: Sequence[object]) -> list[tuple[object, ...]]:
        axes = division.axes(operands)
        of = lambda dims: jax.sharding.NamedSharding(
            mesh, jax.sharding.PartitionSpec(*(axes.get(name) for name in dims)))
        return [tuple(map(of, division.operands)), tuple(map(of, division.results))]

    def partition(mesh: object, operands: Sequence[object], results: object) -> tuple[object, ...]:
        operand_shardings, result_shardings = shardings(mesh, operands)
        return mesh, as_tuple, result_shardings, operand_shardings
    options: dict[str, object] = {"sharding_rule": division.text, "need_replication_factors": division.fixed}
    takes = inspect.signature(call.def_partition).parameters
    infer = lambda mesh, operands, results: shardings(mesh, operands)[1]
    call.def_partition(partition, infer_sharding_from_operands=infer,
                       **{name: value for name, value in options.items() if name in takes})
    return call


def transformable(call: Callable[..., object], name: str) -> Callable[..., Any]:
    """Give a function rules for ``jax.vmap``, which calls it once for each part, and ``jax.grad``, which is an error.
    """
    def batched(_: int, mapped: Sequence[bool], *operands: object) -> tuple[object, object]:
        def call_part(slices: list[object]) -> object:
            remaining = iter(slices)
            return call(*(next(remaining) if is_mapped else o for o, is_mapped in zip(operands, mapped)))
        results = jax.lax.map(call_part, [o for o, is_mapped in zip(operands, mapped) if is_mapped])
        return results, tuple(True for _ in results)

    def differentiate(primals: object, tangents: Any) -> Any:
        raise KernelNotDifferentiable(name=name)
    over_batches = custom_vmap(call)
    over_batches.def_vmap(batched)
    transformed = jax.custom_jvp(over_batches)
    transformed.defjvp(differentiate)
    return transformed


__all__ = ["JaxKernel", "export_checks", "partitioned"]

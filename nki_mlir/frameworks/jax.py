# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels on JAX arrays and tracers: eagerly, under ``jax.jit``, ``jax.vmap`` and, with a rule, ``jax.grad``.

Arrays are operands; every other argument, by position or keyword, is a compile-time constant. A parameter that the
kernel updates gives a new array, because arrays are immutable; with ``donate_argnums`` its memory is reused. For
``jax.export`` pass ``disabled_checks=export_checks()``; a module that was exported runs where this module is imported.
``partitioned`` has rules for the partitioner of ``jax.jit`` with sharded arrays.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import jax
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frameworks.framework_kernel import FrameworkKernel
from nki_mlir.frameworks.jax_primitive import KernelNotDifferentiable, bind, registered_handler
from nki_mlir.frameworks.registry import PlainResults, SymbolicShape, callee_for
from nki_mlir.graph.custom_call import TARGETS
from nki_mlir.language.arguments import ElementType
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
    """Shape and dtype of an array or tracer that a kernel of this name gets; raises ``ElementType`` for a dtype that
    kernels do not have."""
    if not all(isinstance(n, int) for n in array.shape):
        raise SymbolicShape(name=name, what=f"an array of shape {array.shape}",
                            instead="jax.jit compiles anew").here()
    try:
        return tuple(array.shape), dtype_of(array.dtype)
    except TypeError as error:
        what = f"an array of dtype {array.dtype} is passed to a kernel"
        raise ElementType.of(what, array.dtype, error, "x.astype(jnp.float32)").here() from None


def is_described(value: object) -> bool:
    """Whether an argument is an operand, or says the shape and dtype of one."""
    return is_tensor(value) or isinstance(value, jax.ShapeDtypeStruct)


class JaxKernel(FrameworkKernel):
    """``FrameworkKernel`` for JAX: arrays, tracers, and ``jax.ShapeDtypeStruct``, of which only the shape is asked.

    Example:
        dumped = JaxKernel(double).dump_config(jax.ShapeDtypeStruct((4, 8), jnp.float32))
        assert [shape for _, shape in dumped.return_types] == [(4, 8)]
    """

    def is_framework_tensor(self, t: object) -> bool:
        return is_described(t)


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


# -- operands divided among devices ------------------------------------------------------------------------------------
class PartitionRule(NkiMlirError, ValueError):
    code = "NKI-JAX-PARTITION"
    message = "rule '{rule}': {what}"
    fix = "give the dimensions of each operand and result a name, as in 'rows columns, columns -> rows columns'"


class DivisionRule:
    """A rule: the names of the dimensions of operands and results, and those along which devices may divide them."""

    def __init__(self, text: str, split: str) -> None:
        sides = text.split("->")
        if len(sides) != 2:
            raise PartitionRule(rule=text, what="it has no '->', or several").here()
        self.operands, self.results = ([part.split() for part in side.split(",")] for side in sides)
        self.text, self.split = text, tuple(split.split())
        every = {name for dims in (*self.operands, *self.results) for name in dims}
        for name in self.split:
            if name not in every:
                raise PartitionRule(rule=text, what=f"no dimension is called {name}").here()
        for name in every - set(self.split):
            if not name.isidentifier():
                raise PartitionRule(rule=text, what=f"{name!r} is no name").here()
        self.fixed = tuple(sorted(every - set(self.split)))

    def check(self, operands: Sequence[Any], results: Sequence[Any]) -> None:
        """Raises where arrays have other dimensions than the rule."""
        for what, names, arrays in (("operands", self.operands, operands), ("results", self.results, results)):
            ranks = [len(a.shape) for a in arrays]
            if ranks != [len(dims) for dims in names]:
                raise PartitionRule(rule=self.text, what=f"{what} have {ranks} dimensions").here()

    def axes(self, operands: Sequence[Any]) -> dict[str, object]:
        """The axes of the mesh that each dimension is divided by: those of the first operand that is divided there."""
        found: dict[str, object] = {}
        taken: set[str] = set()
        for dims, operand in zip(self.operands, operands):
            spec = tuple(operand.sharding.spec) if operand.sharding is not None else ()
            for name, axes in zip(dims, spec):
                one = {axes} if isinstance(axes, str) else set(axes or ())
                if one and name in self.split and name not in found and not one & taken:
                    found[name] = axes
                    taken |= one
        return found


def partitioned(function: Callable[..., object], rule: str, split: str) -> Callable[..., Any]:
    """A function of arrays that calls kernels, which ``jax.jit`` divides among devices as its operands are.

    Without it, a kernel's operands are gathered and its results are whole on each device. The function is traced for
    the part that a device has, as under ``shard_map``: along the dimensions in ``split`` it has to compute each
    part by itself.

    Arguments:
        function: takes and gives arrays, by position
        rule: the dimensions of operands and results by name: "rows columns, columns -> rows columns"
        split: the names of those along which devices may divide the work: "rows"; others are whole on each

    Result:
        The function, for use under jax.jit.

    Errors:
        A rule that does not fit the arrays is an error.

    Example:
        f = jax.jit(partitioned(nki.jit(double), "rows columns -> rows columns", split="rows"))
        assert np.array_equal(f(jnp.ones((4, 8), jnp.float32)), np.full((4, 8), 2.0))
    """
    known = DivisionRule(rule, split)

    def several(*operands: object) -> tuple[object, ...]:
        made = function(*operands)
        return tuple(made) if isinstance(made, (tuple, list)) else (made,)
    call = custom_partitioning(several)

    def shardings(mesh: Any, operands: Sequence[object]) -> list[tuple[object, ...]]:
        axes = known.axes(operands)
        of = lambda dims: jax.sharding.NamedSharding(
            mesh, jax.sharding.PartitionSpec(*(axes.get(name) for name in dims)))
        return [tuple(map(of, known.operands)), tuple(map(of, known.results))]

    def partition(mesh: object, operands: Sequence[object], results: object) -> tuple[object, ...]:
        given, made = shardings(mesh, operands)
        return mesh, several, made, given
    options: dict[str, object] = {"sharding_rule": rule, "need_replication_factors": known.fixed}
    takes = inspect.signature(call.def_partition).parameters
    infer = lambda mesh, operands, results: shardings(mesh, operands)[1]
    call.def_partition(partition, infer_sharding_from_operands=infer,
                       **{name: value for name, value in options.items() if name in takes})

    whole = transformable(call, getattr(function, "__name__", "of a function"))

    @wraps(function)
    def run(*operands: object) -> object:
        shapes = jax.eval_shape(function, *operands)
        alone = not isinstance(shapes, (tuple, list))
        known.check(operands, [shapes] if alone else shapes)
        try:
            results = whole(*operands)
        except KernelNotDifferentiable as error:
            raise error.here() from None
        return results[0] if alone else type(shapes)(results)
    return run


def transformable(call: Callable[..., object], name: str) -> Callable[..., Any]:
    """The function under ``jax.vmap``, one call after the other, and ``jax.grad``, which it has no rule for."""
    def batched(_: int, mapped: Sequence[bool], *operands: object) -> tuple[object, object]:
        def one(slices: list[object]) -> object:
            left = iter(slices)
            return call(*(next(left) if is_mapped else o for o, is_mapped in zip(operands, mapped)))
        results = jax.lax.map(one, [o for o, is_mapped in zip(operands, mapped) if is_mapped])
        return results, tuple(True for _ in results)

    def differentiate(primals: object, tangents: Any) -> Any:
        raise KernelNotDifferentiable(name=name)
    over_batches = custom_vmap(call)
    over_batches.def_vmap(batched)
    made = jax.custom_jvp(over_batches)
    made.defjvp(differentiate)
    return made


__all__ = ["JaxKernel", "export_checks", "partitioned"]

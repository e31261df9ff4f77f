# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The PyTorch operators that stand for every kernel: ``nki::call``, and ``nki::call_``, which writes to operands.

``nki::updated`` replaces ``nki::call_`` in functional programs: it returns the new values instead of writing them.
``nki::map`` is ``torch.vmap`` of a call: a loop of calls, because a kernel is compiled for its shapes. Mapped
tensors have the batch as their first axis. The loop advances addresses, so it copies nothing to split the batch or
to join results. Updates under ``vmap`` are written to each part of the batch.

The argument ``kernel`` is the callee's key or, in programs that leave the process, its config, which contains the
kernel. Memory is passed by address: only tensors that are not contiguous are copied. No operator has a derivative:
results are detached, like those of the device's operator.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from nki_mlir.capture.tracebacks import without_internal_frames
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frameworks.process_state import once
from nki_mlir.frameworks.registry import Callee, callee_from, callees
from nki_mlir.frameworks.torch_values import TORCH_DTYPE
from nki_mlir.graph.custom_call import KernelRecord
from nki_mlir.language.argument_memory import ArgumentMemory, RepeatedInTensor, StridedMemory
from nki_mlir.language.arguments import BadArgument
from nki_mlir.language.framework_tensors import (
    FORWARD,
    REVERSE,
    NoDerivative,
    has_tangent,
    records,
    refuse_freed,
)
from nki_mlir.language.kernel import default_executor
from nki_mlir.language.traced_errors import passed_on

TENSORS = {torch.Tensor, torch.nn.Parameter}            # no subclasses: they may override operations
PLAIN = torch._C._dispatch_keys(torch.empty(0)).raw_repr()         # keys of tensors whose values are those in memory


class NoTorchDtype(NkiMlirError, TypeError):
    code = "NKI-TORCH-DTYPE"
    message = "output {name} of kernel {kernel} has dtype {dtype}, which PyTorch does not have"
    fix = "create the output with another dtype, for example float8_e4m3fn or bfloat16"


class UnknownCallee(NkiMlirError, LookupError):
    code = "NKI-TORCH-KERNEL"
    message = "an operator nki::call names a kernel that this process does not know"
    fix = "trace the program again in this process, or export it with torch.export, which puts the kernel into it"


class UnseenDerivative(NoDerivative):
    message = ("torch.func differentiates kernel {name} in a program of torch.compile, which does not call the "
               "backward of a torch.autograd.Function")
    why = "PyTorch differentiates what the forward computes there, and a kernel has no derivative"
    fix = "differentiate with backward() or torch.autograd.grad there, or call torch.func.grad without torch.compile"


class OverlappingInGraph(NkiMlirError, RuntimeError):
    code = "NKI-TORCH-OVERLAP"
    message = "kernel {kernel} updates its parameter {name}, whose memory overlaps the memory of {other}"
    why = "in a program of torch.compile or torch.export each parameter has its own value"
    fix = "pass a copy of one of them, or call the kernel outside of the program"


class UnmappedUpdate(BadArgument, RuntimeError):
    message = ("torch.vmap maps a call of kernel {kernel}, which updates its parameter {name}, and that tensor is not "
               "mapped")
    why = "each part of the batch would update the same tensor"
    fix = "map a tensor with a part for each call: x.expand(n, *x.shape).clone()"


KEY = 64                        # characters of a callee's key; configs are longer
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}        # bytes of an element -> dtype
STORAGE = 1 << 32               # a nonzero stand-in for the address of a storage without values


@dataclass(frozen=True)
class BufferMapping:
    """The map from tensors of the operators to buffers of a callee.

    ``order`` has, for each slot of the entry's data, the name of a list (updated, tensors, results) and the index
    in it. ``nki::call_`` takes the results after the updated tensors, because torch can functionalize only
    operators that return nothing.
    """

    order: tuple[tuple[str, int], ...]
    results: tuple[tuple[tuple[int, ...], torch.dtype, bool], ...]      # shape, dtype, whether zero at first


@cache
def layout_of(callee: Callee) -> BufferMapping:
    """Return how the operators' tensors map to a callee's buffers. Raise ``NoTorchDtype`` for a result without a
    PyTorch dtype."""
    record, form = callee.record, callee.record.form
    aliased = list(form.aliases)
    plain = [k for k in range(len(form.operands)) if k not in aliased]
    new_results = [index for index in range(len(form.results)) if index not in form.aliases.values()]
    results = []
    for index in new_results:
        spec = record.results[index]
        if spec.dtype not in TORCH_DTYPE:
            raise NoTorchDtype(name=spec.name, kernel=record.name, dtype=spec.dtype)
        results.append((spec.shape, TORCH_DTYPE[spec.dtype], record.starts_from_zero(form.results[index])))
    order = []
    for slot in record.slots:
        source, index = form.source(slot)
        if source == "operand":
            order.append(("tensors", plain.index(index)))
        elif index in new_results:
            order.append(("results", new_results.index(index)))
        else:
            order.append(("updated", aliased.index(form.operands.index(slot[1]))))
    return BufferMapping(tuple(order), tuple(results))


@cache
def _callee_in(config: str) -> Callee:
    return callee_from(config, default_executor())


def callee_named(kernel: str) -> Callee:
    """Return the callee that an operator's ``kernel``, a key or a config, denotes. Raise ``UnknownCallee`` for an
    unknown key."""
    callee = callees().get(kernel)
    if callee is not None:
        return callee
    if len(kernel) == KEY:
        raise UnknownCallee()
    return _callee_in(kernel)


# -- implementations ---------------------------------------------------------------------------------------------------
def call_on_cpu(tensors: Sequence[torch.Tensor], kernel: str) -> list[torch.Tensor]:
    callee = callee_named(kernel)
    results = allocate_results(layout_of(callee).results, tensors[0])
    run(callee, [], tensors, results)
    return results


def update_on_cpu(written: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], kernel: str) -> None:
    """Run ``nki::call_``: ``written`` has the tensors that the kernel updates, then those for its outputs."""
    callee = callee_named(kernel)
    refuse_freed((*written, *tensors), f"kernel {callee.record.name}")
    if all([t.is_contiguous() for t in (*written, *tensors)]):
        enter(callee, written, [t.data_ptr() for t in (*written, *tensors)])
    else:
        arrays, updated = list(map(bits_of, (*written, *tensors))), range(len(written))
        memory = ArgumentMemory(arrays, names_of(callee.record), of_torch=updated)
        memory.check(updated)
        enter(callee, written, [a.ctypes.data for a in memory.arrays])
        memory.write_back(updated)
    torch.autograd.graph.increment_version([t for t in written if not t.is_inference()])


def enter(callee: Callee, written: Sequence[torch.Tensor], addresses: Sequence[int]) -> None:
    """Call the kernel's entry on the memory of ``nki::call_``'s tensors."""
    layout = layout_of(callee)
    first = {"updated": 0, "results": len(written) - len(layout.results), "tensors": len(written)}
    callee.entry([addresses[first[group] + n] for group, n in layout.order])


def bits_of(tensor: torch.Tensor) -> np.ndarray:
    """Return an array of integers that views the memory of a CPU tensor."""
    array: np.ndarray = tensor.detach().view(INTEGERS[tensor.element_size()]).numpy()
    return array


def names_of(record: KernelRecord) -> list[str]:
    """Return the parameter names of the tensors of ``nki::call_``, in its order."""
    form = record.form
    new_results = [n for n in range(len(form.results)) if n not in form.aliases.values()]
    return [*(record.operands[k].name for k in form.aliases), *(record.results[n].name for n in new_results),
            *(o.name for k, o in enumerate(record.operands) if k not in form.aliases)]


def run(callee: Callee, updated: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor],
        results: Sequence[torch.Tensor]) -> None:
    """Call the kernel's entry on the tensors' memory; ``updated`` and ``results`` are contiguous."""
    refuse_freed(tensors, f"kernel {callee.record.name}")
    groups = {"updated": updated, "tensors": [t.contiguous() for t in tensors], "results": results}
    callee.entry([groups[group][n].data_ptr() for group, n in layout_of(callee).order])


def allocate_results(results: Sequence[tuple[tuple[int, ...], torch.dtype, bool]], like: torch.Tensor
                     ) -> list[torch.Tensor]:
    """Allocate tensors for results on the device of ``like``, and under the modes and transformations that wrap it."""
    return [like.new_zeros(shape, dtype=dtype) if zero else like.new_empty(shape, dtype=dtype)
            for shape, dtype, zero in results]


def call_abstractly(tensors: Sequence[torch.Tensor], kernel: str) -> list[torch.Tensor]:
    return [tensors[0].new_empty(shape, dtype=dtype) for shape, dtype, _ in layout_of(callee_named(kernel)).results]


def update_abstractly(written: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], kernel: str) -> None:
    layout_of(callee_named(kernel))


def new_values(written: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], kernel: str) -> list[torch.Tensor]:
    """Run ``nki::updated``: return the updated values, then the new tensors, and write no operand."""
    callee = callee_named(kernel)
    refuse_freed(written, f"kernel {callee.record.name}")
    values = [t.clone(memory_format=torch.contiguous_format) for t in written]
    new_results = allocate_results(layout_of(callee).results, written[0])
    run(callee, values, tensors, new_results)
    return values + new_results


def new_values_abstractly(written: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor],
                          kernel: str) -> list[torch.Tensor]:
    return [torch.empty_like(t, memory_format=torch.contiguous_format) for t in written] + [
        written[0].new_empty(shape, dtype=dtype) for shape, dtype, _ in layout_of(callee_named(kernel)).results]


@passed_on
def update_functionally(written: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], kernel: str) -> None:
    """Lower ``nki::call_`` to ``nki::updated`` and copies into the written tensors, which functionalization tracks.
    Raise ``OverlappingInGraph`` if a written tensor overlaps another one, ``RepeatedInTensor`` if its elements do."""
    record = callee_named(kernel).record
    count, names = len(record.form.aliases), names_of(record)
    refuse_repeated(written, names)
    memory = [strided_memory(t) for t in (*written, *tensors)]
    for k, later in combinations(range(len(memory)), 2):
        if k < len(written) and memory[k][0] == memory[later][0] and memory[k][1].overlaps(memory[later][1]):
            raise OverlappingInGraph(kernel=record.name, name=names[k], other=names[later]).here()
    for tensor, new in zip(written, torch.ops.nki.updated(written[:count], tensors, kernel)):
        tensor.copy_(new)


def refuse_repeated(written: Sequence[torch.Tensor], names: Sequence[str]) -> None:
    """Raise ``RepeatedInTensor`` for a tensor to update of which elements share memory."""
    for tensor, name in zip(written, names):
        if strided_memory(tensor)[1].repeats:
            raise RepeatedInTensor(name=name, shape=tuple(tensor.shape), strides=tensor.stride()).here()


def strided_memory(tensor: torch.Tensor) -> tuple[int, StridedMemory]:
    """Return the identity of a tensor's storage and the memory of its elements in it; the tensor needs no values."""
    size = tensor.element_size()
    strides = tuple(int(n) * size for n in tensor.stride())
    return tensor.untyped_storage()._cdata, StridedMemory(
        STORAGE + int(tensor.storage_offset()) * size, tuple(map(int, tensor.shape)), strides, size)


def new_values_on_xla(written: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor],
                      kernel: str) -> list[torch.Tensor]:
    """Add the call to the graph of ``torch_xla``."""
    from nki_mlir.frameworks.torch_xla import custom_call  # start-up: with lazy tensors only
    return custom_call(callee_named(kernel).record, written, tensors)


# -- derivatives -------------------------------------------------------------------------------------------------------
@without_internal_frames
@passed_on
def without_tangents(name: str, run: Callable[..., object], *arguments: Any) -> object:
    """Run an operator on tensors that record history or have tangents. Raise ``NoDerivative`` where derivatives would
    lack the kernel's term: a program of ``torch.compile`` may hide from ``frameworks.torch`` which tensors require
    grad. An exported program contains its kernel as a config, and runs although its tensors record a history.

    The last argument is the kernel, the others are lists of tensors. A call on plain tensors goes straight to its
    implementation ``run``.
    """
    tensors = [t for part in arguments if isinstance(part, list) for t in part if isinstance(t, torch.Tensor)]
    if not watched() and all([type(t) in TENSORS and torch._C._dispatch_keys(t).raw_repr() == PLAIN for t in tensors]):
        return run(*arguments)
    kernel = arguments[-1]
    forward, by_function = has_tangent(tensors), differentiated_by_function(tensors)
    if forward or by_function or (len(kernel) == KEY and records(tensors)):
        record = callee_named(kernel).record
        if any([has_derivatives(r.dtype) for r in record.results]):
            if by_function and not forward and torch._guards.TracingContext.try_get() is not None:
                raise UnseenDerivative(name=record.name)
            raise NoDerivative(name=record.name, **(FORWARD if forward else REVERSE))
    with torch._C._AutoDispatchBelowAutograd():
        return getattr(torch.ops.nki, name).default(*arguments)


def differentiated_by_function(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether ``torch.func.grad`` or a similar function records what is computed from some of the tensors."""
    interpreter = torch._C._functorch.peek_interpreter_stack()
    return (interpreter is not None and interpreter.key() == torch._C._functorch.TransformType.Grad
            and torch.is_grad_enabled() and any([t.requires_grad for t in tensors]))


def innermost(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor inside all wrappers of ``torch.vmap``. It knows whether it requires a gradient; its wrappers do
    not."""
    while torch._C._functorch.is_batchedtensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def watched() -> bool:
    """Return whether a mode, a transformation, tracing or a profiler observes the operators that run."""
    return bool(torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()
                or torch._C._functorch.peek_interpreter_stack() is not None
                or torch._C._get_tracing_state() or torch._C._autograd._profiler_enabled()
                or forward_ad._current_level >= 0)


def has_derivatives(dtype: object) -> bool:
    """Return whether values of a dtype could have derivatives: floating point only."""
    return dtype in TORCH_DTYPE and TORCH_DTYPE[dtype].is_floating_point        # type: ignore[index]


# -- torch.vmap --------------------------------------------------------------------------------------------------------
def map_on_cpu(tensors: Sequence[torch.Tensor], mapped: Sequence[bool], size: int, kernel: str) -> list[torch.Tensor]:
    """Run the kernel on each of ``size`` parts of a batch. Tensors that are ``mapped`` have the batch as first axis."""
    callee = callee_named(kernel)
    refuse_freed(tensors, f"kernel {callee.record.name}")
    layout, contiguous = layout_of(callee), [t.contiguous() for t in tensors]
    results = [(torch.zeros if zero else torch.empty)((size, *shape), dtype=dtype, device="cpu")
               for shape, dtype, zero in layout.results]
    pointers = []                   # for each slot of the entry, its first address and the bytes to the next part
    for group, n in layout.order:
        memory, steps = (contiguous[n], mapped[n]) if group == "tensors" else (results[n], True)
        pointers.append((memory.data_ptr(), prod(memory.shape[1:]) * memory.element_size() if steps else 0))
    for k in range(size):
        callee.entry([first + k * step for first, step in pointers])
    return results


def map_abstractly(tensors: Sequence[torch.Tensor], mapped: Sequence[bool], size: int,
                   kernel: str) -> list[torch.Tensor]:
    """Return the result types of ``map_on_cpu`` as tensors without values."""
    return [tensors[0].new_empty((size, *shape), dtype=dtype)
            for shape, dtype, _ in layout_of(callee_named(kernel)).results]


def map_by_calls(tensors: Sequence[torch.Tensor], mapped: Sequence[bool], size: int,
                 kernel: str) -> list[torch.Tensor]:
    """Run ``nki::map`` as a call for each part, for graphs that do not have the operator."""
    runs = [torch.ops.nki.call([t[k] if is_mapped else t for t, is_mapped in zip(tensors, mapped)], kernel)
            for k in range(size)]
    return [torch.stack(parts) for parts in zip(*runs)]


def call_batched(info: Any, axes: Any, tensors: Sequence[torch.Tensor], kernel: str) -> object:
    """Batch a call (``vmap``): ``nki::map`` over the batch, which is the first axis of each result."""
    batch_first = [t if axis is None else t.movedim(axis, 0) for t, axis in zip(tensors, axes[0])]
    results = torch.ops.nki.map(batch_first, [axis is not None for axis in axes[0]], info.batch_size, kernel)
    return results, [0] * len(results)


def map_batched(info: Any, axes: Any, tensors: Sequence[torch.Tensor], mapped: Sequence[bool], size: int,
                kernel: str) -> object:
    """Batch a batched call (``vmap`` of ``vmap``): one loop runs over both batches."""
    operands = []
    for tensor, axis, is_mapped in zip(tensors, axes[0], mapped):
        if axis is None and not is_mapped:
            operands.append(tensor)
            continue
        with_batch = tensor.unsqueeze(0) if axis is None else tensor.movedim(axis, 0)
        with_batch = with_batch if is_mapped else with_batch.unsqueeze(1)
        operands.append(with_batch.expand(info.batch_size, size, *with_batch.shape[2:]).flatten(0, 1))
    mapped_axes = [axis is not None or is_mapped for axis, is_mapped in zip(axes[0], mapped)]
    results = torch.ops.nki.map(operands, mapped_axes, info.batch_size * size, kernel)
    return [m.unflatten(0, (info.batch_size, size)) for m in results], [0] * len(results)


@passed_on
def update_batched(info: Any, axes: Any, written: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor],
                   kernel: str) -> object:
    """Batch an update (``vmap``): a call for each part, on views of the written tensors. Raise ``UnmappedUpdate``, and
    ``RepeatedInTensor`` where parts share memory."""
    record = callee_named(kernel).record
    for axis, name in zip(axes[0], names_of(record)):
        if axis is None:
            raise UnmappedUpdate(kernel=record.name, name=name).here()
    refuse_repeated(written, names_of(record))
    for k in range(info.batch_size):
        def part(tensor: torch.Tensor, axis: int | None, k: int = k) -> torch.Tensor:
            return tensor if axis is None else tensor.select(axis, k)
        torch.ops.nki.call_(list(map(part, written, axes[0])), list(map(part, tensors, axes[1])), kernel)
    return None, None


# -- definitions -------------------------------------------------------------------------------------------------------
def _define() -> torch.library.Library:
    library = torch.library.Library("nki", "DEF")
    library.define("call(Tensor[] tensors, str kernel) -> Tensor[]")
    library.define("call_(Tensor(a!)[] written, Tensor[] tensors, str kernel) -> ()")
    library.define("updated(Tensor[] written, Tensor[] tensors, str kernel) -> Tensor[]")
    library.define("map(Tensor[] tensors, bool[] mapped, SymInt size, str kernel) -> Tensor[]")
    implementations: list[tuple[str, dict[str, Callable[..., object]], Callable[..., object]]] = [
        ("call", {"CPU": call_on_cpu, "XLA": partial(new_values_on_xla, [])}, call_abstractly),
        ("call_", {"CPU": update_on_cpu, "Functionalize": update_functionally}, update_abstractly),
        ("updated", {"CPU": new_values, "XLA": new_values_on_xla}, new_values_abstractly),
        ("map", {"CPU": map_on_cpu, "XLA": map_by_calls}, map_abstractly)]
    for name, keys, abstract in implementations:
        for key, real in keys.items():
            library.impl(name, real, key)
        library.impl(name, partial(without_tangents, name, keys["CPU"]), "Autograd")
        torch.library.register_fake(f"nki::{name}", abstract, lib=library)
    for name, rule in (("call", call_batched), ("call_", update_batched), ("map", map_batched)):
        torch.library.register_vmap(f"nki::{name}", rule, lib=library)
    return library


once("torch_library", _define)          # an operator can be defined once in a process

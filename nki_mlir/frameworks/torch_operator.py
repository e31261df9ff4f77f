# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The PyTorch operators that stand for every kernel: ``nki::call``, and ``nki::call_``, which writes given tensors.

``nki::updated`` is ``nki::call_`` in programs of values: it returns what that writes.
``kernel`` is the callee's key, or, in programs that leave the process, its config, which has the kernel in it. Memory
is passed by address: nothing is copied unless a tensor is not contiguous. Neither operator has a derivative: results
are detached, as those of the device's own operator are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frameworks.process_state import once
from nki_mlir.frameworks.registry import Callee, callee_from, callees
from nki_mlir.frameworks.torch_values import TORCH_DTYPE
from nki_mlir.frameworks.torch_xla import custom_call
from nki_mlir.language.kernel import default_executor


class NoTorchDtype(NkiMlirError, TypeError):
    code = "NKI-TORCH-DTYPE"
    message = "output {name} of kernel {kernel} has dtype {dtype}, which PyTorch does not have"
    fix = "make the output in another dtype, for example float8_e4m3fn or bfloat16"


class UnknownCallee(NkiMlirError, LookupError):
    code = "NKI-TORCH-KERNEL"
    message = "an operator nki::call names a kernel that this process does not know"
    fix = "trace the program again in this process, or export it with torch.export, which puts the kernel into it"


@dataclass(frozen=True)
class BufferMapping:
    """How tensors of the operators map to buffers of a callee.

    ``order`` has, for each slot of the entry's data, the list it is in (updated, tensors, results) and its place there.
    ``nki::call_`` gets the results after the tensors that are updated, because torch can make functions only of
    operators that return none.
    """

    order: tuple[tuple[str, int], ...]
    results: tuple[tuple[tuple[int, ...], torch.dtype, bool], ...]      # shape, dtype, whether zero at first


@cache
def layout_of(callee: Callee) -> BufferMapping:
    """The layout; raises ``NoTorchDtype``."""
    record, form = callee.record, callee.record.form
    aliased = list(form.aliases)
    plain = [k for k in range(len(form.operands)) if k not in aliased]
    made = [n for n in range(len(form.results)) if n not in form.aliases.values()]
    results = []
    for n in made:
        spec = record.results[n]
        if spec.dtype not in TORCH_DTYPE:
            raise NoTorchDtype(name=spec.name, kernel=record.name, dtype=spec.dtype)
        results.append((spec.shape, TORCH_DTYPE[spec.dtype], record.starts_from_zero(form.results[n])))
    order = []
    for slot in record.slots:
        source, n = form.source(slot)
        if source == "operand":
            order.append(("tensors", plain.index(n)))
        elif n in made:
            order.append(("results", made.index(n)))
        else:
            order.append(("updated", aliased.index(form.operands.index(slot[1]))))
    return BufferMapping(tuple(order), tuple(results))


@cache
def _callee_in(config: str) -> Callee:
    return callee_from(config, default_executor())


def callee_named(kernel: str) -> Callee:
    """The callee of an operator's ``kernel``."""
    found = callees().get(kernel)
    if found is not None:
        return found
    if len(kernel) == 64:           # a key; configs are longer
        raise UnknownCallee()
    return _callee_in(kernel)


# -- implementations ---------------------------------------------------------------------------------------------------
def call_on_cpu(tensors: Sequence[torch.Tensor], kernel: str) -> list[torch.Tensor]:
    callee = callee_named(kernel)
    results = made_for(layout_of(callee).results, tensors[0])
    run(callee, [], tensors, results)
    return results


def update_on_cpu(written: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], kernel: str) -> None:
    """A call that writes given tensors: those the kernel updates, then its outputs."""
    callee = callee_named(kernel)
    count = len(written) - len(layout_of(callee).results)
    own = [t.contiguous() for t in written]
    run(callee, own[:count], tensors, own[count:])
    for given, used in zip(written, own):
        if used is not given:
            given.copy_(used)
    torch.autograd.graph.increment_version([t for t in written if not t.is_inference()])


def run(callee: Callee, updated: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor],
        results: Sequence[torch.Tensor]) -> None:
    """Call the kernel on memory: what is written is contiguous."""
    used = {"updated": updated, "tensors": [t.contiguous() for t in tensors], "results": results}
    callee.entry([used[group][n].data_ptr() for group, n in layout_of(callee).order])


def made_for(results: Sequence[tuple[tuple[int, ...], torch.dtype, bool]], like: torch.Tensor) -> list[torch.Tensor]:
    """New tensors for results, where ``like`` is: on its device, and of its mode or transformation."""
    return [like.new_zeros(shape, dtype=dtype) if zero else like.new_empty(shape, dtype=dtype)
            for shape, dtype, zero in results]


def call_abstractly(tensors: Sequence[torch.Tensor], kernel: str) -> list[torch.Tensor]:
    return [tensors[0].new_empty(shape, dtype=dtype) for shape, dtype, _ in layout_of(callee_named(kernel)).results]


def update_abstractly(written: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], kernel: str) -> None:
    layout_of(callee_named(kernel))


def new_values(written: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], kernel: str) -> list[torch.Tensor]:
    """``nki::updated``."""
    callee = callee_named(kernel)
    values = [t.clone(memory_format=torch.contiguous_format) for t in written]
    made = made_for(layout_of(callee).results, written[0])
    run(callee, values, tensors, made)
    return values + made


def new_values_abstractly(written: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor],
                          kernel: str) -> list[torch.Tensor]:
    return [torch.empty_like(t, memory_format=torch.contiguous_format) for t in written] + [
        written[0].new_empty(shape, dtype=dtype) for shape, dtype, _ in layout_of(callee_named(kernel)).results]


def update_functionally(written: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], kernel: str) -> None:
    """``nki::call_`` in programs without updates: the new values are copied to what was given, which torch knows."""
    count = len(callee_named(kernel).record.form.aliases)
    for given, new in zip(written, torch.ops.nki.updated(written[:count], tensors, kernel)):
        given.copy_(new)


def call_on_xla(tensors: Sequence[torch.Tensor], kernel: str) -> list[torch.Tensor]:
    """On tensors of ``torch_xla``, which is installed if there are any."""
    return new_values_on_xla([], tensors, kernel)


def new_values_on_xla(written: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor],
                      kernel: str) -> list[torch.Tensor]:
    return custom_call(callee_named(kernel).record, written, tensors)


def _define() -> torch.library.Library:
    library = torch.library.Library("nki", "DEF")
    library.define("call(Tensor[] tensors, str kernel) -> Tensor[]")
    library.define("call_(Tensor(a!)[] written, Tensor[] tensors, str kernel) -> ()")
    library.define("updated(Tensor[] written, Tensor[] tensors, str kernel) -> Tensor[]")
    for name, keys, abstract in (
            ("call", {"CPU": call_on_cpu, "XLA": call_on_xla}, call_abstractly),
            ("call_", {"CPU": update_on_cpu, "Functionalize": update_functionally}, update_abstractly),
            ("updated", {"CPU": new_values, "XLA": new_values_on_xla}, new_values_abstractly)):
        for key, real in keys.items():
            library.impl(name, real, key)
        library.impl(name, torch.library.fallthrough_kernel, "Autograd")
        torch.library.register_fake(f"nki::{name}", abstract, lib=library)
    return library


once("torch_library", _define)          # an operator can be defined once in a process

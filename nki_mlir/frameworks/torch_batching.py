# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.vmap`` of kernels: the operator ``nki::map``, one loop of calls, because a kernel is compiled for its shapes.

Tensors that are mapped have the batch as their first axis. The loop runs over addresses, so nothing is copied to take
the batch apart or to put results together. Updates under ``vmap`` are written to each part of the batch.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from nki_mlir.frameworks.process_state import once
from nki_mlir.frameworks.torch_operator import callee_named, layout_of


def map_on_cpu(tensors: Sequence[torch.Tensor], mapped: Sequence[bool], size: int, kernel: str) -> list[torch.Tensor]:
    """The kernel on each of ``size`` parts; of the tensors those that are ``mapped`` have the batch as first axis."""
    callee = callee_named(kernel)
    layout, used = layout_of(callee), [t.contiguous() for t in tensors]
    results = [(torch.zeros if zero else torch.empty)((size, *shape), dtype=dtype, device="cpu")
               for shape, dtype, zero in layout.results]
    places = []                             # of each slot of the entry: its first address and the bytes to the next
    for group, n in layout.order:
        memory, steps = (used[n], mapped[n]) if group == "tensors" else (results[n], True)
        places.append((memory.data_ptr(), prod(memory.shape[1:]) * memory.element_size() if steps else 0))
    for k in range(size):
        callee.entry([first + k * step for first, step in places])
    return results


def map_abstractly(tensors: Sequence[torch.Tensor], mapped: Sequence[bool], size: int,
                   kernel: str) -> list[torch.Tensor]:
    """What ``map_on_cpu`` returns, without values."""
    return [tensors[0].new_empty((size, *shape), dtype=dtype)
            for shape, dtype, _ in layout_of(callee_named(kernel)).results]


def map_by_calls(tensors: Sequence[torch.Tensor], mapped: Sequence[bool], size: int,
                 kernel: str) -> list[torch.Tensor]:
    """The same as calls, one for each part, for graphs that have no such operator."""
    runs = [torch.ops.nki.call([t[k] if each else t for t, each in zip(tensors, mapped)], kernel) for k in range(size)]
    return [torch.stack(parts) for parts in zip(*runs)]


# -- rules of torch.vmap -----------------------------------------------------------------------------------------------
def call_batched(info: Any, axes: Any, tensors: Sequence[torch.Tensor], kernel: str) -> object:
    """``vmap`` of a call: ``map`` over the batch, which comes first in each result."""
    first = [t if axis is None else t.movedim(axis, 0) for t, axis in zip(tensors, axes[0])]
    made = torch.ops.nki.map(first, [axis is not None for axis in axes[0]], info.batch_size, kernel)
    return made, [0] * len(made)


def map_batched(info: Any, axes: Any, tensors: Sequence[torch.Tensor], mapped: Sequence[bool], size: int,
                kernel: str) -> object:
    """``vmap`` of ``vmap``: one loop over both batches."""
    given = []
    for tensor, axis, each in zip(tensors, axes[0], mapped):
        if axis is None and not each:
            given.append(tensor)
            continue
        whole = tensor.unsqueeze(0) if axis is None else tensor.movedim(axis, 0)
        whole = whole if each else whole.unsqueeze(1)
        given.append(whole.expand(info.batch_size, size, *whole.shape[2:]).flatten(0, 1))
    now = [axis is not None or each for axis, each in zip(axes[0], mapped)]
    made = torch.ops.nki.map(given, now, info.batch_size * size, kernel)
    return [m.unflatten(0, (info.batch_size, size)) for m in made], [0] * len(made)


def update_batched(info: Any, axes: Any, written: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor],
                   kernel: str) -> object:
    """``vmap`` of an update: a call for each part, on views of what is written."""
    if any(axis is None for axis in axes[0]):
        raise RuntimeError("vmap: a kernel updates a tensor that is not mapped, once for each part of the batch; "
                           "map the tensor as well, or expand and clone it for each part")
    for k in range(info.batch_size):
        def part(tensor: torch.Tensor, axis: int | None, k: int = k) -> torch.Tensor:
            return tensor if axis is None else tensor.select(axis, k)
        torch.ops.nki.call_(list(map(part, written, axes[0])), list(map(part, tensors, axes[1])), kernel)
    return None, None


def _define() -> torch.library.Library:
    library = torch.library.Library("nki", "FRAGMENT")
    library.define("map(Tensor[] tensors, bool[] mapped, SymInt size, str kernel) -> Tensor[]")
    library.impl("map", map_on_cpu, "CPU")
    library.impl("map", map_by_calls, "XLA")
    library.impl("map", torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake("nki::map", map_abstractly, lib=library)
    for name, rule in (("call", call_batched), ("call_", update_batched), ("map", map_batched)):
        torch.library.register_vmap(f"nki::{name}", rule, lib=library)
    return library


once("torch_batching", _define)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The processes of a program on the stand-in of ``torch_xla``, and the data that they exchange.

Processes form a group if the script initializes ``torch.distributed``, as scripts under ``torchrun`` do; the stand-in
of ``torch_xla.distributed.xla_backend`` defines the back end ``xla`` for it. Otherwise there is one process.
"""

from collections.abc import Callable, Sequence
from typing import Any

# The constants of ``torch_xla.core.xla_model``, and their names in ``torch.distributed.ReduceOp``.
REDUCTIONS = {"sum": "SUM", "mul": "PRODUCT", "and": "BAND", "or": "BOR", "min": "MIN", "max": "MAX"}

_groups: dict[tuple[tuple[int, ...], ...], list[object]] = {}       # groups of ranks that have been created


def number_of_processes() -> int:
    """Return how many processes the program has."""
    import torch.distributed as dist  # an optional package
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    import torch.distributed as dist  # an optional package
    return dist.get_rank() if number_of_processes() > 1 else 0


def group_of(groups: Sequence[Sequence[int]] | None) -> Any:
    """Return the group of this process among ``groups``, lists of ranks that every process gives; None is all."""
    import torch.distributed as dist  # an optional package
    if not groups:
        return dist.group.WORLD
    key = tuple(tuple(ranks) for ranks in groups)
    if key not in _groups:
        _groups[key] = [dist.new_group(list(ranks)) for ranks in key]     # a collective call: in every process
    return next(group for group, ranks in zip(_groups[key], key) if rank() in ranks)


def all_reduce(reduce_type: str, inputs: Any, scale: float = 1.0, groups: Sequence[Sequence[int]] | None = None,
               cctx: object = None, pin_layout: bool = True) -> Any:
    """Return a tensor reduced over the processes and multiplied by ``scale``. Update each tensor of a list in place
    and return None."""
    import torch  # optional packages
    import torch.distributed as dist
    alone = isinstance(inputs, torch.Tensor)
    tensors = [inputs.clone()] if alone else inputs
    for tensor in tensors:
        if number_of_processes() > 1:
            dist.all_reduce(tensor, getattr(dist.ReduceOp, REDUCTIONS[reduce_type]), group_of(groups))
        if scale != 1.0:
            tensor.mul_(scale)
    return tensors[0] if alone else None


def all_gather(value: Any, dim: int = 0, groups: Sequence[Sequence[int]] | None = None, output: Any = None,
               pin_layout: bool = True) -> Any:
    """Return the tensors of all processes, concatenated along ``dim`` in the order of ranks."""
    import torch  # optional packages
    import torch.distributed as dist
    parts = [value]
    if number_of_processes() > 1:
        group = group_of(groups)
        parts = [torch.empty_like(value) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, value.contiguous(), group)
    return torch.cat(parts, dim, out=output)


def reduce_gradients(optimizer: Any, groups: Sequence[Sequence[int]] | None = None, cctx: object = None,
                     pin_layout: bool = True) -> None:
    """Replace the gradients of an optimizer's parameters by their means over the processes."""
    if number_of_processes() > 1:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        count = len(groups[0]) if groups else number_of_processes()
        all_reduce("sum", gradients, 1 / count, groups)


def mesh_reduce(tag: str, data: object, reduce_fn: Callable[[list[Any]], Any]) -> Any:
    """Return ``reduce_fn`` of the list of all processes' data: Python objects, or tensors."""
    import torch.distributed as dist  # an optional package
    values: list[Any] = [data] * number_of_processes()
    if len(values) > 1:
        dist.all_gather_object(values, data)
    return reduce_fn(values)


def rendezvous(tag: str, payload: bytes = b"", replicas: object = ()) -> list[bytes]:
    """Wait for all processes, and return their payloads."""
    return list(mesh_reduce(tag, payload, list))


def broadcast_master_param(model: Any) -> None:
    """Give all processes the parameters and buffers of process 0."""
    import torch.distributed as dist  # an optional package
    if number_of_processes() > 1:
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor.data, 0)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The decomposition of PyTorch's bags of embeddings.

before:  out = embedding_bag(weight, indices, offsets)
after:   out = zeros.index_add(0, bag of each index, weight[indices])
"""

from collections.abc import Callable

import torch

aten = torch.ops.aten
MEAN, MAXIMUM = 1, 2                # values of ``mode``; 0 is the sum


def embedding_bag(weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, scale_grad_by_freq: bool = False,
                  mode: int = 0, sparse: bool = False, per_sample_weights: torch.Tensor | None = None,
                  include_last_offset: bool = False, padding_idx: int | None = None) -> object:
    """Return sums or means of bags. The other results, which only a gradient reads, have no elements."""
    if mode == MAXIMUM:
        return NotImplemented
    count = offsets.shape[0] - int(include_last_offset)
    bag = bag_of(indices, offsets[:count])
    rows = weight[indices]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    is_counted = torch.ones_like(bag, dtype=torch.bool)
    if include_last_offset:                     # indices after it are in no bag
        is_counted = torch.arange(indices.shape[0], dtype=torch.int32) < offsets[count].to(torch.int32)
    if padding_idx is not None:
        is_counted = is_counted & (indices != padding_idx % weight.shape[0])
    rows = torch.where(is_counted.unsqueeze(-1), rows, 0.0)
    result = torch.zeros((count, weight.shape[1]), dtype=weight.dtype).index_add(0, bag, rows)
    if mode == MEAN:
        sizes = torch.zeros(count, dtype=torch.int32).index_add(0, bag, is_counted.to(torch.int32))
        result = result / sizes.clamp(min=1).unsqueeze(-1).to(weight.dtype)
    return result, *(torch.empty(0, dtype=indices.dtype) for _ in range(3))


def bag_of(indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Return the number of each index's bag: of the last bag that begins at the index or before it."""
    position = torch.arange(indices.shape[0], dtype=torch.int32)
    return (offsets.to(torch.int32) <= position.unsqueeze(-1)).to(torch.int32).sum(-1, dtype=torch.int32) - 1


BAGS: dict[object, Callable[..., object]] = {aten.embedding_bag.padding_idx: embedding_bag}
__all__ = ["BAGS"]

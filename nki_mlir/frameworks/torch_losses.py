# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of losses for which PyTorch's decompositions compute other numbers than its operators."""

from collections.abc import Callable

import torch

aten = torch.ops.aten


def multilabel_margin(a: torch.Tensor, target: torch.Tensor, reduction: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean over classes of the margins, ``max(0, 1 - x[listed] + x[other])``, between the classes that each
    row of ``target`` lists and the others. A list ends at its first negative number: PyTorch's decomposition adds the
    margins of class 0 for each number after the end."""
    x, classes = (v.reshape(-1, v.shape[-1] if v.dim() else 1) for v in (a, target))
    size = x.shape[1]
    number = torch.arange(size, dtype=torch.int32)
    end = torch.where(classes < 0, number, size).amin(1, keepdim=True)
    is_listed = number < end
    chosen = torch.gather(x, 1, torch.where(is_listed, classes, 0))
    is_class = ((classes.unsqueeze(-1) == number) & is_listed.unsqueeze(-1)).any(1)
    margins = (1 - chosen.unsqueeze(-1) + x.unsqueeze(1)).clamp(min=0)
    counts = is_listed.unsqueeze(-1) & torch.logical_not(is_class).unsqueeze(1)
    loss = torch.where(counts, margins, 0).sum((1, 2)) / size
    if reduction:
        loss = loss.mean() if reduction == 1 else loss.sum()
    elif a.dim() < 2:
        loss = loss.reshape(())
    return loss, is_class.reshape(target.shape).to(a.dtype)


LOSSES: dict[object, Callable[..., object]] = {aten.multilabel_margin_loss_forward.default: multilabel_margin}
__all__ = ["LOSSES"]

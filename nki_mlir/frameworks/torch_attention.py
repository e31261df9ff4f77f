# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of PyTorch's attention on the CPU and of its gradient.

before:  out, logsumexp = flash_attention(q, k, v)
after:   out = softmax(q @ k.T * scale) @ v
         logsumexp = log(sum(exp(q @ k.T * scale)))             (only where the program reads it)
"""

from collections.abc import Callable
from math import inf, sqrt

import torch
from torch._decomp.decompositions import scaled_dot_product_flash_attention_for_cpu

aten = torch.ops.aten


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout: float = 0.0, is_causal: bool = False, *,
              attn_mask: torch.Tensor | None = None, scale: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the result and ``logsumexp``. PyTorch's decomposition returns the probabilities instead of
    ``logsumexp``."""
    out, _ = scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, is_causal, attn_mask=attn_mask, scale=scale)
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    scores = scores_of(q.to(wide), for_each_head(k, q).to(wide), is_causal, attn_mask, scale)
    logsumexp = torch.where(is_masked(scores), 0.0, torch.logsumexp(scores, -1, keepdim=True))
    return out, logsumexp.squeeze(-1)


def attention_backward(grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor,
                       logsumexp: torch.Tensor, dropout: float, is_causal: bool, *,
                       attn_mask: torch.Tensor | None = None, scale: float | None = None
                       ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the gradients of ``q``, ``k`` and ``v`` from recomputed probabilities, which are 0 in a row whose keys
    are all masked."""
    keys, values = for_each_head(k, q), for_each_head(v, q)
    scores = scores_of(q, keys, is_causal, attn_mask, scale)
    probabilities = torch.where(is_masked(scores), 0.0, torch.softmax(scores, -1))
    slope = grad @ values.transpose(-2, -1)
    slope = probabilities * (slope - (grad * out).sum(-1, keepdim=True)) * scale_of(q, scale)
    return (slope @ keys, over_heads(slope.transpose(-2, -1) @ q, k),
            over_heads(probabilities.transpose(-2, -1) @ grad, v))


def scores_of(q: torch.Tensor, keys: torch.Tensor, is_causal: bool, attn_mask: torch.Tensor | None, scale: float | None
              ) -> torch.Tensor:
    """Return the scores before the softmax, -inf where a mask hides a key."""
    scores = (q @ keys.transpose(-2, -1)) * scale_of(q, scale)
    if is_causal:
        rows, columns = (torch.arange(n, device=q.device) for n in scores.shape[-2:])
        scores = torch.where(columns <= rows.unsqueeze(-1), scores, -inf)
    return scores if attn_mask is None else scores + attn_mask


def scale_of(q: torch.Tensor, scale: float | None) -> float:
    return 1 / sqrt(q.shape[-1]) if scale is None else scale


def is_masked(scores: torch.Tensor) -> torch.Tensor:
    """Return for each row of scores whether a mask hides all keys."""
    return scores.amax(-1, keepdim=True) == -inf


def for_each_head(a: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Repeat the heads of keys or values, if several heads of the query share one."""
    return a if a.shape[1] == q.shape[1] else a.repeat_interleave(q.shape[1] // a.shape[1], 1)


def over_heads(grad: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """Add the gradients of the heads that share a head of keys or values."""
    return grad if grad.shape[1] == a.shape[1] else grad.reshape(
        grad.shape[0], a.shape[1], -1, *grad.shape[2:]).sum(2)


ATTENTION: dict[object, Callable[..., object]] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attention_backward,
}
__all__ = ["ATTENTION"]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention: a head whose rows of scores fit the chip, and flash attention of four heads in both directions."""

from typing import Any

import attention as example
import flash_attention as flash
import numpy as np
from case import Case, Goal, case, random, tolerance

LIMIT = ("Products take 89% of the time at 94% of the peak of multiply-adds, exp and the maximum 6%. PyTorch's fused "
         "kernel takes 1.26 to 1.38 times as long on one thread; if there were only products, at the peak, it would "
         "take 1.5 times as long.")


@case("attention_2048x128", Goal(faster=1.3, note=LIMIT), Goal(faster=1.3))
def attention(dtype: str = "float32") -> Case:
    s, d = 2048, 128
    scale = d ** -0.5

    def formula(xp: Any, q_t: Any, k_t: Any, v: Any) -> Any:
        scores = q_t.T @ k_t * scale
        powers = xp.exp(scores - scores.max(1, keepdims=True))
        return powers @ v / powers.sum(1, keepdims=True)

    def torch_formula(q_t: Any, k_t: Any, v: Any) -> Any:
        import torch
        # PyTorch's fused kernel takes four dimensions, and rows that are contiguous.
        q, k = (t.T.contiguous()[None, None] for t in (q_t, k_t))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v[None, None])[0, 0]
    arrays = tuple(random(*shape, seed=n, dtype=dtype) for n, shape in enumerate(((d, s), (d, s), (s, d))))
    return Case(arrays, lambda *a: example.attention_forward(*a, scale), formula, torch_formula, "fma", 4 * s * s * d,
                lambda: formula(np, *(a.astype("float64") for a in arrays)), tolerance(dtype))


HEADS, STEPS, WIDTH = 4, 2048, 64
SCALE = WIDTH ** -0.5


def in_wide(function: Any, *arrays: np.ndarray) -> Any:
    return function(*(a.astype("float64") for a in arrays), SCALE)


@case("flash_forward_4x2048x64", Goal(faster=1.3, note=LIMIT), Goal(faster=1.3, note=(
    "On one thread it takes the time of float32, without AMX or AVX512-BF16. Roundings of weights by products of words "
    "took 0.99 of the time.")))
def flash_forward(dtype: str = "float32") -> Case:
    def formula(xp: Any, q_t: Any, k_t: Any, v: Any) -> Any:
        scores = q_t.swapaxes(1, 2) @ k_t * SCALE
        highest = scores.max(2, keepdims=True)
        powers = xp.exp(scores - highest)
        total = powers.sum(2, keepdims=True)
        return powers @ v / total, highest + xp.log(total)

    def torch_formula(q_t: Any, k_t: Any, v: Any) -> Any:
        import torch
        q, k = (t.mT.contiguous()[None] for t in (q_t, k_t))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v[None])
    q, k, v = (random(HEADS, STEPS, WIDTH, seed=n, dtype=dtype) for n in range(3))
    return Case((flash.transposed(q), flash.transposed(k), v), lambda *a: flash.flash_forward[HEADS](*a, SCALE),
                formula, torch_formula, "fma", 4 * HEADS * STEPS ** 2 * WIDTH, lambda: in_wide(flash.forward, q, k, v),
                tolerance(dtype))


@case("flash_backward_4x2048x64", Goal(faster=1.3), Goal(faster=1.3))
def flash_backward(dtype: str = "float32") -> Case:
    def formula(xp: Any, q: Any, k: Any, v: Any, g: Any, out: Any, sums: Any) -> Any:
        weights = xp.exp(q @ k.swapaxes(1, 2) * SCALE - sums)
        scores = weights * (g @ v.swapaxes(1, 2) - (g * out).sum(2, keepdims=True)) * SCALE
        return scores @ k, scores.swapaxes(1, 2) @ q, weights.swapaxes(1, 2) @ g

    def torch_formula(q: Any, k: Any, v: Any, g: Any, out: Any, sums: Any) -> Any:
        weights = (q @ k.mT * SCALE - sums).exp().to(q.dtype)
        scores = weights * (g @ v.mT - (g * out).sum(2, keepdim=True)) * SCALE
        return scores @ k, scores.mT @ q, weights.mT @ g
    arrays = tuple(random(HEADS, STEPS, WIDTH, seed=n, dtype=dtype) for n in range(4))
    saved = tuple(a.astype(kind) for a, kind in zip(in_wide(flash.forward, *arrays[:3]), (dtype, "float32")))
    return Case((*arrays, *saved), lambda *a: flash.flash_backward[HEADS](*a, SCALE), formula, torch_formula, "fma",
                10 * HEADS * STEPS ** 2 * WIDTH, lambda: in_wide(flash.backward, *arrays),
                tolerance(dtype))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generalized intersection over union of pairs of boxes, whose fields alternate in memory."""

from typing import Any

import giou as example
import numpy as np
from case import Case, Goal, case, tolerance


def formula(xp: Any, a: Any, b: Any) -> Any:
    a, b = a.reshape(len(a), -1, 4), b.reshape(len(b), -1, 4)
    common = xp.clip(xp.minimum(a[..., 2:], b[..., 2:]) - xp.maximum(a[..., :2], b[..., :2]), 0, None).prod(-1)
    union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - common
    around = (xp.maximum(a[..., 2:], b[..., 2:]) - xp.minimum(a[..., :2], b[..., :2])).prod(-1)
    return common / xp.maximum(union, 1e-5) - (around - union) / xp.maximum(around, 1e-5)


def torch_formula(a: Any, b: Any) -> Any:
    """Compute the loss of torchvision, without its mean."""
    import torch
    a, b = a.reshape(len(a), -1, 4), b.reshape(len(b), -1, 4)
    areas = [(x[..., 2] - x[..., 0]) * (x[..., 3] - x[..., 1]) for x in (a, b)]
    size = (torch.min(a[..., 2:], b[..., 2:]) - torch.max(a[..., :2], b[..., :2])).clamp(min=0)
    common = size[..., 0] * size[..., 1]
    union = areas[0] + areas[1] - common
    size = (torch.max(a[..., 2:], b[..., 2:]) - torch.min(a[..., :2], b[..., :2])).clamp(min=0)
    around = (size[..., 0] * size[..., 1]).clamp(1e-5)
    return common / union.clamp(1e-5) - (around - union) / around


def pairs(rows: int, boxes: int, dtype: str = "float32") -> Case:
    first, second = (example.random_boxes(rows, boxes, seed).astype(dtype) for seed in (0, 1))
    out = np.empty((rows, boxes), dtype)

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        example.giou(a, b, out)
        return out
    return Case((first, second), kernel, formula, torch_formula, "copy", 9 * out.nbytes,
                lambda: example.reference(first, second), tolerance(dtype))


ROUNDED = (
    "Roundings are the limit: in the second cache of a host with AVX512-BF16, 16 pairs take 33 cycles, 15 without "
    "their 17 roundings; float32 takes 21, and more where the third cache is the limit. The host's instruction for "
    "two registers, by hand, took 34 instead of 32, and 42 with a test for denormals. A product with 65,535 that is "
    "subtracted from one with 65,536 took 28, but loses the sign of -0 and numbers above 2^111. On another host (Zen "
    "4 at 3.7 GHz), by hand: 61, without roundings 31, in float32 34; the host's instruction and words that a shift "
    "and a mask spread, 60 without a test for denormals, and 57 in four stages over 256 boxes.")


@case("giou_8732", Goal(faster=1.5, share=0.8, note=(
    "The call is the limit: a call with one box takes 4.5 of the 8.9 us.")), Goal(faster=1.3, share=0.7, note=ROUNDED))
def few(dtype: str = "float32") -> Case:
    return pairs(118, 74, dtype)


@case("giou_1024x256", Goal(faster=1.5, share=0.8, note=(
    "Other users of the machine disturb it: the arrays stay in the last cache, which is 1.4 to 1.7 times as fast as a "
    "copy in memory.")), Goal(faster=1.3, share=0.7, note=ROUNDED))
def many(dtype: str = "float32") -> Case:
    return pairs(1024, 256, dtype)

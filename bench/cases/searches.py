# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The 16 largest of 4096 elements in each of 128 rows, and their indices."""

from typing import Any

import numpy as np
from case import Case, case, random
from top_k import top16


def formula(xp: Any, x: Any) -> Any:
    if xp is np:
        indices = np.argpartition(x, -16, axis=1)[:, -16:]
        values = np.take_along_axis(x, indices, 1)
        order = np.argsort(-values, axis=1)
        return np.take_along_axis(values, order, 1), np.take_along_axis(indices, order, 1)
    import jax
    return jax.lax.top_k(x, 16)


def torch_formula(x: Any) -> Any:
    import torch
    return torch.topk(x, 16, dim=1)


@case("top16_4096")
def top(dtype: str = "float32") -> Case:
    x = random(128, 4096, dtype=dtype)

    def answer() -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(-x.astype(np.float32), axis=1, kind="stable")[:, :16]
        return np.take_along_axis(x, order, 1), order
    return Case((x,), top16, formula, torch_formula, "read", x.nbytes, answer)

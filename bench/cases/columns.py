# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Running sums along rows, losses of rows, and conversions of small arrays, of which a call takes the most time."""

from typing import Any

import cumulative_sum as scans
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
from case import Case, case, random, tolerance


@case("cumulative_sum_1024")
def cumulative_sum(dtype: str = "float32") -> Case:
    x = random(1024, 2048, dtype=dtype)
    return Case((x,), lambda x: scans.cumulative_sum(x, 512), lambda xp, x: xp.cumsum(x, 1), lambda x: x.cumsum(1),
                "copy", 2 * x.nbytes, lambda: np.cumsum(x.astype("float64"), 1), tolerance(dtype, 1e-3))


@nki.jit
def narrowed(x):
    """Round x [P, F] of at most 128 rows to bfloat16."""
    out = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(nl.load(x), dtype=nl.bfloat16))
    return out


@nki.jit
def widened(x):
    """Convert x [P, F] of at most 128 rows to float32."""
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(nl.load(x), dtype=nl.float32))
    return out


@case("cast_128x128")
def cast(dtype: str = "float32") -> Case:
    x = random(128, 128, dtype=dtype)
    other = np.dtype("bfloat16" if dtype == "float32" else "float32")

    def torch_formula(x: Any) -> Any:
        import torch
        return x.to(torch.bfloat16 if dtype == "float32" else torch.float32)
    return Case((x,), narrowed if dtype == "float32" else widened, lambda xp, x: x.astype(other), torch_formula, "copy",
                x.nbytes + x.size * other.itemsize, lambda: x.astype("float64"), tolerance("bfloat16"))

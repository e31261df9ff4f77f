# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products: with K tiles kept in blocks, as the tutorial ends, tile by tile, as it begins, and in graphs."""

from collections.abc import Callable
from functools import partial
from typing import Any

import matmul as example
import numpy as np
from case import Case, Goal, case, random


def product(n: int, dtype: str = "float32", kernel: Callable[..., Any] = example.matmul_blocked) -> Case:
    a, b = random(n, n, dtype=dtype), random(n, n, seed=1, dtype=dtype)
    # Each product of bfloat16 numbers is exact, the result is rounded to eight bits.
    tolerance = 1e-3 if dtype == "float32" else 2e-2
    return Case((a, b), kernel, lambda xp, a, b: xp.matmul(a.T, b), lambda a, b: a.T @ b, "fma", 2 * n ** 3,
                lambda: a.astype("float64").T @ b.astype("float64"), tolerance)


VARIES = (
    "Other users of the machine disturb it: within an hour the same code took 4.8 to 6.0 ms at 1024 (74 to 90% of the "
    "peak) and 303 to 368 ms at 4096 (77 to 91%). Products of panels in the cache reach 99%. Virtual machines move: "
    "while two processors have no common cache (bench/limits.py: a line goes to the other and back in 400, not 98, "
    "ns, and copies run at 109 instead of 59 GB/s), two threads that read a factor which both have packed take 5.1 to "
    "5.5 ms instead of 4.4 at 1024. If each packs its half of the rows, and all columns, they take 4.5 and 4.4.")
for n, goal in {512: Goal(), 1024: Goal(faster=1, share=0.8, note=VARIES),
                2048: Goal(faster=1, share=0.8, note=VARIES),
                4096: Goal(faster=1.2, share=0.8, note=VARIES)}.items():
    case(f"matmul_{n}", goal, Goal(faster=0.8, share=0.8))(partial(product, n))
case("matmul_1024_tiled", Goal(share=0.8, note=VARIES))(partial(product, 1024, kernel=example.matmul_tiled))


def in_graph(rows: int, depth: int, columns: int, dtype: str = "float32") -> Case:
    """Return a product that a graph computes beside its kernels."""
    from nki_mlir.frameworks.stablehlo import LinkedProgram
    a, b = random(rows, depth, dtype=dtype), random(depth, columns, seed=1, dtype=dtype)
    element = {"float32": "f32", "bfloat16": "bf16"}[dtype]
    result = np.empty((a.shape[0], b.shape[1]), a.dtype)
    a_type, b_type, out = (f"tensor<{m}x{n}x{element}>" for m, n in (a.shape, b.shape, result.shape))
    program = LinkedProgram(f"""func.func @main(%a: {a_type}, %b: {b_type}) -> {out} {{
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({a_type}, {b_type}) -> {out}
  return %0 : {out}
}}""")

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        program.run([a, b], [result])
        return result
    return Case((a, b), kernel, lambda xp, a, b: a @ b, lambda a, b: a @ b, "fma", 2 * rows * depth * columns,
                lambda: a.astype("float64") @ b.astype("float64"), 1e-3 if dtype == "float32" else 2e-2)


for sizes in ((1024, 1024, 1024), (1000, 777, 1301)):
    case(f"dot_{'x'.join(map(str, sizes))}", Goal(faster=1), Goal(faster=0.8))(partial(in_graph, *sizes))

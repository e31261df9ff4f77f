# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Data that only moves: a transpose, and rows of a table by their numbers."""

import embedding
import numpy as np
import transpose2d
from case import Case, Goal, case, random


@case("transpose_4096")
def transpose() -> Case:
    x = random(4096, 4096)
    return Case((x,), transpose2d.transpose, lambda xp, x: xp.ascontiguousarray(x.T) if xp is np else x.T.copy(),
                lambda x: x.T.contiguous(), "copy", 2 * x.nbytes, lambda: x.T)


@case("gather_100000x512", Goal(faster=1.5))
def gather() -> Case:
    table, numbers = random(100_000, 512), np.random.default_rng(1).integers(0, 100_000, (16384, 1)).astype(np.int32)
    return Case((table, numbers), embedding.gather, lambda xp, t, i: t[i[:, 0]], lambda t, i: t[i[:, 0]], "copy",
                2 * len(numbers) * 512 * 4, lambda: table[numbers[:, 0]])

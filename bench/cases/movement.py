# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Movement of data: a transpose, and a gather of rows of a table."""

import embedding
import numpy as np
import transpose2d
from case import Case, Goal, case, random


@case("transpose_4096", Goal(share=0.8, note=(
    "The order of addresses is the limit: each block of 16 x 16 reads and writes 16 lines on 16 pages. The same loops "
    "written by hand take 3449 us with rows prefetched and 4002 without; a copy takes 2787. Other loops by hand: "
    "blocks in the other order, 4110 us; pairs of lines written together, 4030; tiles transposed in a buffer, 3709 to "
    "5907 where these loops took 3613; tiles column by column, 3316 against 3613 in one run and 3683 against 3214 in "
    "another. One fence for all tiles of a thread instead of one for each made no difference here.")))
def transpose(dtype: str = "float32") -> Case:
    x = random(4096, 4096, dtype=dtype)
    return Case((x,), transpose2d.transpose, lambda xp, x: xp.ascontiguousarray(x.T) if xp is np else x.T.copy(),
                lambda x: x.T.contiguous(), "copy", 2 * x.nbytes, lambda: x.T)


@case("gather_100000x512", Goal(faster=1.5, share=0.8, note=(
    "Memory is the limit: rows are prefetched four ahead and stored past the caches, which takes 1184 to 1316 us; "
    "without that, the same runs took 3319 to 3330. Code by hand takes 775 us, and 650 on rows in sequence.")))
def gather(dtype: str = "float32") -> Case:
    numbers = np.random.default_rng(1).integers(0, 100_000, (16384, 1)).astype(np.int32)
    table = random(100_000, 512, dtype=dtype)
    return Case((table, numbers), embedding.gather, lambda xp, t, i: t[i[:, 0]], lambda t, i: t[i[:, 0]], "copy",
                2 * len(numbers) * 512 * table.itemsize, lambda: table[numbers[:, 0]])

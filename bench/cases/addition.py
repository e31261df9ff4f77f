# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of two matrices over a grid of programs: one fits into the cache, one does not."""

import tensor_add as example
from case import Case, Goal, case, random, tolerance


def addition(n: int, dtype: str) -> Case:
    a, b = random(n, n, dtype=dtype), random(n, n, seed=1, dtype=dtype)
    return Case((a, b), example.launch, lambda xp, a, b: a + b, lambda a, b: a + b, "copy", 3 * a.nbytes,
                lambda: a.astype("float64") + b.astype("float64"), tolerance(dtype))


@case("add_1024", Goal(faster=1, note=(
    "The time of a call is the limit: with one thread the routine takes as long as NumPy's, 95 to 98 us, as do loops "
    "by hand of 32 or 64 bytes, one or four vectors at a time, at any alignment and on small or huge pages: the "
    "third cache fills 32 bytes a cycle, which is 96 us for two inputs and the lines of the result. The call takes 4 "
    "us more than NumPy's for 64 x 512 elements, 10 to 12 where data have displaced its code and tables from the "
    "caches. Prefetches by hand took 3 to 25% longer; streaming stores 95 us, also where a loop over more results "
    "took 106, but readers then find nothing cached. On another host (Zen 4), with one thread: 159 us, 170 in "
    "registers of 64 bytes; loops by hand 155 and 167, on huge pages 131 and 134; NumPy 148. There a call takes 20 "
    "us instead of 9 where data have displaced its code.")))
def small(dtype: str = "float32") -> Case:
    return addition(1024, dtype)


@case("add_8192", Goal(faster=1, share=0.8, note=(
    "Memory is the limit: the case reads twice what it writes, and reads alone run at 39 to 43 GB/s where copies run "
    "at 48 to 51. It took 20.2 ms (79% of a copy's rate) in one run and 19.4 ms (87%) in the next. Code by hand took "
    "17.8 ms on whole rows, 23.7 to 24.6 on tiles of 512 columns, and 21.1 to 21.7 with the next row prefetched. "
    "Prefetches gained nothing here: 19.0 -> 19.1 ms and 20.8 -> 20.4 ms. On another host (Zen 4), one thread takes "
    "19.5 ms in registers of 32 bytes, 20.9 in those of 64.")))
def large(dtype: str = "float32") -> Case:
    return addition(8192, dtype)

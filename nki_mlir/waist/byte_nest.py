# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A pattern of steps and counts as a nest of bytes, and whether two of them share a byte.

A nest has its steps from large to small, each at least as long as what is inside it. Two nests are compared level by
level, exactly where their outer steps agree. Patterns that cannot be nested (steps that interleave) or compared cheaply
count as all multiples of a common divisor of the steps: this may report an overlap that does not exist, but never
misses one.
"""

from functools import cache
from math import gcd
from typing import NamedTuple

BLOCKS_COMPARED = 64            # blocks of one pattern that are compared with another pattern of a different step

Pairs = tuple[tuple[int, int], ...]


class ByteNest(NamedTuple):
    """A pattern from its first byte on: ``(step, count)`` pairs, large steps first, round runs of ``unit`` bytes."""

    pairs: Pairs
    unit: int
    extent: int                 # bytes from the first to the last
    shift: int                  # offset of the first byte from the pattern's start (negative steps)
    exact: bool                 # every byte of it is accessed


@cache
def nest_of(dims: Pairs, itemsize: int) -> ByteNest:
    """Return the nest of (step, count) pairs in elements."""
    shift = sum(min(0, step * (count - 1)) for step, count in dims) * itemsize
    pairs: list[tuple[int, int]] = []
    unit = extent = itemsize
    exact = True
    for step, count in sorted((abs(step) * itemsize, count) for step, count in dims if step and count > 1):
        reach = step * (count - 1)
        if not pairs and step <= unit:
            unit += reach                           # overlapping or adjacent runs are one run
        elif pairs and step == pairs[0][0] * pairs[0][1]:
            pairs[0] = pairs[0][0], pairs[0][1] * count
        elif step >= extent:
            pairs.insert(0, (step, count))
        else:                                       # steps that interleave: multiples of their common divisor
            common, exact = gcd(step, *(s for s, _ in pairs)), False
            if pairs and common > unit:
                pairs = [(common, (extent + reach - unit) // common + 1)]
            else:
                pairs, unit = [], extent + reach
        extent += reach
    return ByteNest(tuple(pairs), unit, extent, shift, exact)


def share_byte(a: Pairs, unit_a: int, extent_a: int, b: Pairs, unit_b: int, extent_b: int, delta: int) -> bool:
    """Return whether two accesses share a byte: ``a``, which begins at byte 0, and ``b``, which begins at ``delta``.
    Each has (step, count) pairs in bytes, the largest step first, the bytes of its innermost run (``unit``), and the
    bytes from its first to its last one (``extent``)."""
    if delta >= extent_a or delta + extent_b <= 0:
        return False
    if not a and not b:
        return True
    if not a or (b and b[0][0] > a[0][0]):
        return share_byte(b, unit_b, extent_b, a, unit_a, extent_a, -delta)
    step, count = a[0]
    inner_a = extent_a - step * (count - 1)
    if b and b[0][0] == step:
        inner_b = extent_b - step * (b[0][1] - 1)
        # Blocks i of a and j of b are delta + (j - i) * step apart: at most two differences bring them together.
        lowest = max(-(count - 1), (-inner_b - delta) // step + 1)
        highest = min(b[0][1] - 1, -((delta - inner_a) // step) - 1)
        return any(share_byte(a[1:], unit_a, inner_a, b[1:], unit_b, inner_b, delta + m * step)
                   for m in range(lowest, highest + 1))
    lowest = max(0, (delta - inner_a) // step + 1)
    highest = min(count - 1, (delta + extent_b - 1) // step)
    if highest - lowest >= BLOCKS_COMPARED:
        common = gcd(*(s for s, _ in (*a, *b)))
        remainder = delta % common                  # where each run of b begins between two multiples
        return remainder < unit_a or remainder + unit_b > common
    return any(share_byte(a[1:], unit_a, inner_a, b, unit_b, extent_b, delta - k * step)
               for k in range(lowest, highest + 1))

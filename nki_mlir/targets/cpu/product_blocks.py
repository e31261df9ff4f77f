# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chooses the blocks of a packed product by the sizes and speeds of the host's caches.

A panel of ``a`` stays in the first cache while panels of ``b`` stream by; a block of ``b`` is multiplied by all rows
before the next one is packed. The candidates differ in the columns of a block: with more columns ``a`` is read fewer
times, with fewer columns the block of ``b`` fits the second cache. The processor prefetches sums while it multiplies,
so they cost nothing if the third cache is fast enough. An epilogue finishes the sums of one block of rows at a time.

The depth of a block, after which sums are rounded to memory, follows only from the size of the first cache. So the
order of sums depends neither on measurements nor on threads.
"""

from collections.abc import Iterable
from typing import NamedTuple

from nki_mlir.targets.runtime.host import Caches

# moves of sums that take up to this share of the time of the multiply-adds cost nothing
HIDDEN = 0.5


class Rates(NamedTuple):
    """The speeds of one thread: bytes per second from the third cache and from memory, multiply-adds per second."""

    third: float
    memory: float
    multiply_adds: float


class CacheTraffic(NamedTuple):
    """The bytes that a product moves beyond each cache."""

    first: int
    second: int
    third: int

    def __str__(self) -> str:
        return ", ".join(f"{moved / 1e6:.1f} MB beyond L{level}" for level, moved in
                         enumerate((self.first, self.second, self.third), 1))


class ProductBlocks(NamedTuple):
    """A product of ``m`` rows, ``n`` columns and ``k`` summed words of four bytes, in blocks of ``rows``, ``columns``
    and ``depth``.

    A panel of ``a`` has ``panel`` rows.
    """

    m: int
    n: int
    k: int
    panel: int
    rows: int
    columns: int
    depth: int

    def streamed(self, caches: Caches) -> int:
        """Return the bytes of ``b`` that come from beyond the second cache."""
        fits = 4 * self.depth * self.columns <= caches.second * 3 // 4
        return 4 * self.n * self.k * (1 if fits else -(-self.m // self.panel))

    def sums(self, caches: Caches) -> int:
        """Return the bytes of sums that are read or written beyond the second cache. Code prefetches them."""
        fit = 4 * self.columns * (self.depth + self.m) <= caches.second
        return 4 * self.m * self.n * (1 if fit else 2 * (self.k // self.depth) - 1)

    @property
    def rows_read(self) -> int:
        """The bytes of ``a`` that come from beyond the second cache."""
        return 4 * self.m * self.k * -(-self.n // self.columns)

    def traffic(self, caches: Caches) -> CacheTraffic:
        b, out, blocks = 4 * self.n * self.k, 4 * self.m * self.n, self.k // self.depth
        a = 4 * self.m * self.k
        from_memory = b * -(-self.m // self.panel) + self.rows_read + out * (2 * blocks - 1)
        stays = 4 * (self.columns * (self.depth + self.m) + self.depth * self.m) <= caches.third * 3 // 4
        reads_of_a = 1 if a <= caches.third // 2 else -(-self.n // self.columns)
        third = b + a * reads_of_a + out * (1 if stays else 2 * blocks - 1)
        return CacheTraffic(from_memory, self.streamed(caches) + self.rows_read + self.sums(caches), third)

    def seconds(self, caches: Caches, rates: Rates) -> float:
        """Return the seconds that memory takes in addition to the multiply-adds, which hide some of the moves of
        sums."""
        multiplied = self.m * self.n * self.k / rates.multiply_adds
        sums = max(0.0, self.sums(caches) / rates.third - HIDDEN * multiplied)
        read = (self.streamed(caches) + self.rows_read) / rates.third
        return read + sums + self.traffic(caches).third / rates.memory

    def __str__(self) -> str:
        return (f"{self.m} x {self.n} x {self.k} in blocks of {self.rows} rows, {self.columns} columns, "
                f"depth {self.depth}")


def chosen(candidates: Iterable[ProductBlocks], caches: Caches, rates: Rates) -> ProductBlocks:
    """Return the candidate that costs least; of equal ones, the one with the largest blocks."""
    return min(candidates, key=lambda b: (b.seconds(caches, rates), -b.columns, -b.rows))

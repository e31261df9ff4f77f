# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ready steps of each engine by their ranks, as bits: a bit for each rank, and a bit for each word that has any."""

from nki_mlir.targets.runtime.compiled_class import new_array

BITS = 32                       # bits of a word
SHIFT, LOW = 5, 31              # a rank consists of the number of its word and of its bit in the word


class ReadySteps:
    """The ready steps of each engine, as a set of ranks in two levels of bits: ``rank_bits`` has one bit for each rank,
    in ``words`` words for each engine; ``any_bits`` has one bit for each of these words that is not 0, in ``groups``
    words. ``ready`` counts the ready steps."""

    words: int
    groups: int
    ready: list[int]
    rank_bits: list[int]
    any_bits: list[int]

    def __init__(self, engines: int, steps: int) -> None:
        self.words = -(-steps // BITS)
        self.groups = -(-self.words // BITS)
        self.ready = new_array(engines)
        self.rank_bits, self.any_bits = new_array(engines * self.words), new_array(engines * self.groups)

    def add_ready(self, engine: int, rank: int) -> None:
        word = rank >> SHIFT
        self.ready[engine] += 1
        self.rank_bits[engine * self.words + word] |= 1 << (rank & LOW)
        self.any_bits[engine * self.groups + (word >> SHIFT)] |= 1 << (word & LOW)

    def remove_rank(self, engine: int, rank: int) -> None:
        word = rank >> SHIFT
        self.ready[engine] -= 1
        at = engine * self.words + word
        self.rank_bits[at] ^= 1 << (rank & LOW)
        if self.rank_bits[at] == 0:
            self.any_bits[engine * self.groups + (word >> SHIFT)] ^= 1 << (word & LOW)

    def next_ready(self, engine: int, rank: int) -> int:
        """Return the least rank of a ready step that is at least ``rank``; -1 if there is none."""
        word = rank >> SHIFT
        if word >= self.words:
            return -1
        bits = self.rank_bits[engine * self.words + word] >> (rank & LOW)
        if bits != 0:
            return rank + (bits & -bits).bit_length() - 1
        word += 1
        group = word >> SHIFT
        if group >= self.groups:
            return -1
        bits = self.any_bits[engine * self.groups + group] >> (word & LOW)
        while bits == 0:
            group += 1
            if group >= self.groups:
                return -1
            word = group << SHIFT
            bits = self.any_bits[engine * self.groups + group]
        word += (bits & -bits).bit_length() - 1
        bits = self.rank_bits[engine * self.words + word]
        return (word << SHIFT) + (bits & -bits).bit_length() - 1

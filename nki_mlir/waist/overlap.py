# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether iterations of a loop keep apart in memory: bytes that accesses touch, and which of them meet.

Addresses are linear forms of symbols. One symbol is the loop's variable, some belong to its body, the others have one
value in all iterations.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from nki_mlir.dialects.access import Linear


@dataclass(frozen=True)
class ByteInterval:
    """Bytes an instruction touches: ``low`` to ``high`` around an address in the memory ``root``.

    Of these it touches ``size`` bytes at a time, at the steps and counts of ``dims``; all of them where there are none.
    """

    root: object
    address: Linear
    low: int
    high: int
    writes: bool
    dims: tuple[tuple[int, int], ...] = ()
    size: int = 0


@dataclass(frozen=True)
class Iterations:
    """The values ``span`` of a loop's ``variable``, and the symbols of its ``body``; some of these have ranges."""

    variable: int
    span: range
    body: range = range(0)
    ranges: Mapping[int, tuple[int, int]] | None = None

    def bounds(self, access: ByteInterval) -> tuple[int, Linear, int, int]:
        """Bytes that an access moves by as the variable grows by 1, what stays the same, its first and last byte."""
        symbols, ranges = dict(access.address.symbols), self.ranges or {}
        pace = symbols.pop(self.variable, 0)
        low, high = access.address.const + access.low, access.address.const + access.high
        for symbol in [s for s in symbols if s in self.body and s in ranges]:
            ends = [symbols[symbol] * end for end in ranges[symbol]]
            del symbols[symbol]
            low, high = low + min(ends), high + max(ends)
        return pace, Linear(0, tuple(symbols.items())), low, high

    def apart(self, a: ByteInterval, b: ByteInterval) -> bool:
        """Whether no iteration touches with ``a`` what another one touches with ``b``, if one of them writes."""
        if a.root != b.root or not (a.writes or b.writes):
            return True
        (pace, rest, low, high), (other_pace, other_rest, other_low, other_high) = self.bounds(a), self.bounds(b)
        if rest != other_rest or any(symbol in self.body for symbol, _ in rest.symbols):
            return False                    # it is not known how far they are from each other
        if pace == other_pace and max(high, other_high) - min(low, other_low) < abs(pace * self.span.step):
            return True
        first, last = self.all(low, high, pace)
        other_first, other_last = self.all(other_low, other_high, other_pace)
        return last < other_first or other_last < first

    def all(self, low: int, high: int, pace: int) -> tuple[int, int]:
        """The first and the last byte in any iteration."""
        ends = pace * self.span[0], pace * self.span[-1]
        return low + min(ends), high + max(ends)

    def keep_apart(self, accesses: Sequence[ByteInterval], private: Set[object] = frozenset()) -> bool:
        """Whether no iteration touches what another one writes; each has ``private`` memories for itself."""
        by_root: dict[object, list[ByteInterval]] = {}
        for access in accesses:
            if access.root not in private:
                by_root.setdefault(access.root, []).append(access)
        return all(all(self.apart(a, b) for k, a in enumerate(group) for b in group[k:]) or self.interleaved(group)
                   for group in by_root.values() if any(a.writes for a in group))

    def interleaved(self, group: Sequence[ByteInterval]) -> bool:
        """Whether all touch the same pattern, and steps of the iterations fit between those of the pattern.

        Like columns of a matrix: an iteration touches some bytes of each row, and the rows are further apart than all
        iterations reach.
        """
        first, ranges = group[0], self.ranges or {}
        if not first.size or any((a.address, a.dims, a.size) != (first.address, first.dims, first.size) for a in group):
            return False
        inner = {symbol: c for symbol, c in first.address.symbols if symbol in self.body}
        if not inner.keys() <= ranges.keys():
            return False
        pace = abs(dict(first.address.symbols).get(self.variable, 0) * self.span.step)
        dims = [(abs(step), count, False) for step, count in first.dims if step and count > 1]
        dims += [(abs(c), ranges[symbol][1] - ranges[symbol][0] + 1, False) for symbol, c in inner.items()]
        reach, passed = first.size, False               # bytes that the steps so far span
        for step, count, is_iteration in sorted([*dims, (pace, len(self.span), True)]):
            if (is_iteration or passed) and step < reach:
                return False
            passed |= is_iteration
            reach += step * (count - 1)
        return True

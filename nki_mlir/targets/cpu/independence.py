# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether the iterations of a loop may run at the same time: no iteration touches memory that another one writes.

A loop that the kernel's author calls parallel is only taken at its word where this can be shown: sums that iterations
build together in one buffer, for example, are not. The arrays of a kernel are taken to be different memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu.program import BUFFERS


@dataclass(frozen=True)
class ByteInterval:
    """Bytes an instruction touches: ``low`` to ``high`` around an address, a form of slots, in the memory ``root``.

    Of these it touches ``size`` bytes at a time, at the steps and counts of ``dims``; all of them where none are given.
    """

    root: object
    address: Linear
    low: int
    high: int
    writes: bool
    dims: tuple[tuple[int, int], ...] = ()
    size: int = 0


def independent(accesses: Sequence[ByteInterval], variable: int, span: range, ranges: dict[int, tuple[int, int]],
                private: set[Any]) -> bool:
    """Whether iterations that differ in the slot ``variable``, whose values are ``span``, keep apart.

    Slots above ``variable`` belong to the body: ``ranges`` has what is known of their values. ``private`` are the
    memories an iteration has for itself.
    """
    by_root: dict[object, list[ByteInterval]] = {}
    for access in accesses:
        if access.root not in private:
            by_root.setdefault(access.root, []).append(access)
    return all(_apart(group, variable, span.step, ranges) or _interleaved(group, variable, span, ranges)
               for group in by_root.values() if any(a.writes for a in group))


def _interleaved(group: list[ByteInterval], variable: int, span: range, ranges: dict[int, tuple[int, int]]) -> bool:
    """All accesses touch the same pattern, and steps of the iterations fit between those of the pattern.

    Like columns of a matrix: an iteration touches some bytes of each row, and the rows are further apart than all
    iterations reach.
    """
    first = group[0]
    if not first.size or any((a.address, a.dims, a.size) != (first.address, first.dims, first.size) for a in group):
        return False
    inner = {slot: c for slot, c in first.address.symbols if variable < slot < BUFFERS}
    if not inner.keys() <= ranges.keys():
        return False
    pace = abs(dict(first.address.symbols).get(variable, 0)) * span.step
    dims = [(abs(step), count, False) for step, count in first.dims if step and count > 1]
    dims += [(abs(c), ranges[slot][1] - ranges[slot][0] + 1, False) for slot, c in inner.items()]
    reach, passed = first.size, False               # bytes that the steps so far span
    for step, count, is_iteration in sorted([*dims, (pace, len(span), True)]):
        if (is_iteration or passed) and step < reach:
            return False
        passed |= is_iteration
        reach += step * (count - 1)
    return True


def _apart(group: list[ByteInterval], variable: int, step: int, ranges: dict[int, tuple[int, int]]) -> bool:
    """All accesses move by the same distance an iteration, which is more than they reach."""
    fixed, lows, highs = set(), [], []
    for access in group:
        symbols = dict(access.address.symbols)
        pace = symbols.pop(variable, 0)
        inner = {slot: c for slot, c in symbols.items() if slot > variable and slot in ranges}
        fixed.add((pace, tuple((slot, c) for slot, c in symbols.items() if slot not in inner)))
        ends = [sorted((c * ranges[slot][0], c * ranges[slot][1])) for slot, c in inner.items()]
        lows.append(access.address.const + access.low + sum(e[0] for e in ends))
        highs.append(access.address.const + access.high + sum(e[1] for e in ends))
    if len(fixed) != 1:
        return False
    (pace, others), = fixed
    if any(variable < slot < BUFFERS for slot, _ in others):
        return False                    # something in the body that varies in an unknown way
    return max(highs) - min(lows) < abs(pace) * step



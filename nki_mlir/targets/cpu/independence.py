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
    """Bytes an instruction touches: ``low`` to ``high`` around an address, a form of slots, in the memory ``root``."""

    root: Any
    address: Linear
    low: int
    high: int
    writes: bool


def independent(accesses: Sequence[ByteInterval], variable: int, step: int, ranges: dict[int, tuple[int, int]],
                private: set[Any]) -> bool:
    """Whether iterations that differ in the slot ``variable`` keep apart.

    Slots above ``variable`` belong to the body: ``ranges`` has what is known of their values. ``private`` are the
    memories an iteration has for itself.
    """
    by_root: dict[object, list[ByteInterval]] = {}
    for access in accesses:
        if access.root not in private:
            by_root.setdefault(access.root, []).append(access)
    return all(_apart(group, variable, step, ranges) for group in by_root.values() if any(a.writes for a in group))


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



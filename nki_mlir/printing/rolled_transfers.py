# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rolls lines of transfers whose numbers change in equal steps into a loop.

    nisa.dma_copy(dst=out[0:1, 0:1], src=tile[0:1, 0:1])        for k in range(8):
    nisa.dma_copy(dst=out[1:2, 0:2], src=tile[1:2, 0:2])   ->       nisa.dma_copy(dst=out[nl.ds(k, 1), 0 : k + 1], ...)
    ...

A store under a mask that does not select a box of elements is such a sequence: a transfer for each row.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from nki_mlir.printing.kernel_text import KernelText

LEAST = 3                       # fewest lines that a loop replaces
TRANSFER = "nisa.dma_copy("
NUMBER = re.compile(r"(?<=[\[(,:=])(\s*)(\d+)(?=\s*[\]),:])")
MOVING_SLICE = re.compile(r"(?:(\d+) - )?(k\w*(?: \* \d+)?)(?: \+ (\d+))?:(?:(\d+) - )?\2(?: \+ (\d+))?(?=[\],])")


class _Numbers(NamedTuple):
    """The text of a line between its numbers that are bounds or positions, and these numbers."""

    parts: tuple[str, ...]
    values: tuple[int, ...]


def roll_transfers(text: KernelText) -> None:
    """Replace lines of transfers by loops, in place."""
    lines, result = text.lines, list[str]()
    at = 0
    while at < len(lines):
        count = _repeated(lines[at:]) if lines[at].lstrip().startswith(TRANSFER) else 1
        if count < LEAST:
            result.append(lines[at])
            at += 1
            continue
        name = text.unique("k", "k")
        indent = lines[at][:len(lines[at]) - len(lines[at].lstrip())]
        result += [f"{indent}for {name} in range({count}):", f"    {_in_loop(lines[at:at + 2], name)}"]
        at += count
    text.lines = result


def _repeated(lines: Sequence[str]) -> int:
    """Return how many lines from the first on differ only in numbers that change in equal steps."""
    numbers = [_numbers_of(lines[0])]
    for line in lines[1:]:
        if line == lines[0]:
            break
        following = _numbers_of(line)
        if following.parts != numbers[0].parts or (len(numbers) > 1 and _steps(numbers[-1], following) != _steps(
                *numbers[:2])):
            break
        numbers.append(following)
    return len(numbers)


def _numbers_of(line: str) -> _Numbers:
    split = NUMBER.split(line)              # text, space, number, text, ...
    return _Numbers(tuple([*split[::3], *split[1::3]]), tuple(map(int, split[2::3])))


def _steps(line_numbers: _Numbers, next_numbers: _Numbers) -> list[int]:
    return [b - a for a, b in zip(line_numbers.values, next_numbers.values)]


def _in_loop(lines: Sequence[str], name: str) -> str:
    """Return the first line with numbers that move, in each iteration of a loop, as from the first to the second."""
    steps = iter(_steps(*map(_numbers_of, lines)))

    def in_iteration(match: "re.Match[str]") -> str:
        step, start = next(steps), match[2]
        if not step:
            return match[0]
        product = name if abs(step) == 1 else f"{name} * {abs(step)}"
        return match[1] + (f"{start} - {product}" if step < 0 else product if start == "0" else f"{product} + {start}")
    return MOVING_SLICE.sub(_of_size, NUMBER.sub(in_iteration, lines[0]))


def _of_size(bounds: "re.Match[str]") -> str:
    """Return a slice whose bounds move alike as ``nl.ds``."""
    backwards, _, forwards, *stop = bounds.groups()
    size = sum(int(number or 0) for number in stop) - int(backwards or forwards or 0)
    return f"nl.ds({bounds[0].split(':')[0]}, {size})"

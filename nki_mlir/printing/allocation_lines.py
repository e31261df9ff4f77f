# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moves the lines that allocate tensors to the statements that use them first.

before:  a = nl.ndarray(...)              after:  b = nl.ndarray(...)
         b = nl.ndarray(...)                      nisa.dma_copy(dst=b, src=x)
         nisa.dma_copy(dst=b, src=x)              a = nl.ndarray(...)
         nisa.tensor_copy(dst=a, src=b)           nisa.tensor_copy(dst=a, src=b)

A capture of the text and the original have their allocations in different orders; both texts are then the same. A
tensor that a loop or a branch uses first is allocated before that statement.
"""

import re
from itertools import count

ALLOCATION = re.compile(r"( *)(\w+) = nl\.ndarray\(")
WORD = re.compile(r"(?<![.\w])[A-Za-z_]\w*(?!\w*=[^=])")


def delay_allocations(lines: list[str]) -> list[str]:
    """Return the lines with each allocation in front of the statement of its block that uses the tensor first."""
    users = _users_of(lines)
    moved: dict[int, list[tuple[tuple[int, int], int]]] = {}        # line -> allocations that move in front of it
    for at, line in enumerate(lines):
        if (match := ALLOCATION.match(line)) is None:
            continue
        use = next((use for use in users.get(match[2], ()) if use[0] > at), None)
        if use is not None and (head := _statement_of(lines, at, use[0], len(match[1]))) is not None:
            moved.setdefault(head, []).append((use, at))
    delayed = {at for allocations in moved.values() for _, at in allocations}
    result: list[str] = []
    for at, line in enumerate(lines):
        result += [lines[allocation] for _, allocation in sorted(moved.get(at, ()))]
        if at not in delayed:
            result.append(line)
    return result


def _users_of(lines: list[str]) -> dict[str, list[tuple[int, int]]]:
    """Return the lines and columns in which each name occurs, in their order."""
    users: dict[str, list[tuple[int, int]]] = {}
    for at, line in enumerate(lines):
        if not line.lstrip().startswith("#"):
            for word in WORD.finditer(line):
                users.setdefault(word[0], []).append((at, word.start()))
    return users


def _statement_of(lines: list[str], at: int, use: int, depth: int) -> int | None:
    """Return the first line of the statement of a block, which has this indentation, that contains the line ``use``;
    None if the block ends before that line, or another line defines the name meanwhile."""
    if any(_depth(lines[k]) < depth for k in range(at + 1, use + 1)):
        return None
    for k in count(use, -1):
        if _depth(lines[k]) == depth and not lines[k].lstrip().startswith(("else:", "#")):
            return k
    return None


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the patterns of ``NkiTensor.rearrange``: the dimensions to split, their new order, and the dimensions to merge.

    (('a', 'b'), 'f') -> ('b', ('a', 'f'))  of shape (6, 4), sizes {'a': 2}
    splits: dimension 0 into (2, -1); order: 1, 0, 2; merges: dimensions 1 to 2
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nki_mlir.language.current.errors import require


class DimensionPattern(NamedTuple):
    """``splits`` has (dimension, extents), ``order`` all dimensions after these splits, ``merges`` (first, last)."""

    splits: Sequence[tuple[int, Sequence[int]]]
    order: Sequence[int]
    merges: Sequence[tuple[int, int]]


def dimension_pattern(src_pattern: Sequence[object], dst_pattern: Sequence[object], sizes: Mapping[str, int], rank: int
                      ) -> DimensionPattern:
    """Read the patterns for a tensor of ``rank`` dimensions; ``sizes`` has extents by name."""
    for label, pattern in (("src_pattern", src_pattern), ("dst_pattern", dst_pattern)):
        require(isinstance(pattern, (tuple, list)), f"rearrange {label}: expecting 'sequence', got {pattern!r}",
                fix="give lists of names, for example (('p', 'f'), ('f', 'p'))")
    require(isinstance(sizes, dict), f"rearrange fixed_sizes: expecting 'dict', got {sizes!r}",
            fix="write for example {'p': 128}")
    groups, merged_groups = _groups_of(src_pattern), _groups_of(dst_pattern)
    require(len(groups) == rank, f"a pattern of {len(groups)} dimensions for a tensor of {rank}",
            fix=f"name {rank} dimensions")
    names: list[str] = []
    splits: list[tuple[int, Sequence[int]]] = []
    for group in groups:
        require(sum(name not in sizes for name in group) <= 1, f"more than one unknown size in {group}",
                fix="leave one size out, and give the others in fixed_sizes")
        if len(group) > 1:
            splits.append((len(names), [sizes.get(name, -1) for name in group]))
        names += group
    order = [name for group in merged_groups for name in group]
    require(sorted(order) == sorted(names), f"{order} does not name the dimensions {names}",
            fix="name each dimension once on both sides")
    merges = [(k, k + len(group) - 1) for k, group in enumerate(merged_groups) if len(group) > 1]
    return DimensionPattern(splits, [names.index(name) for name in order], merges)


def _groups_of(pattern: Sequence[object]) -> list[Sequence[str]]:
    return [group if isinstance(group, (tuple, list)) else (group,) for group in pattern]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The options by which ``tile-and-place`` chooses layouts, tiles and loads. Its options have the same names."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TileChoices:
    """The options of the placement of nests on chip. ``elements``: most elements of a tile in a partition. The other
    fields switch one optimization each."""

    elements: int = 1024
    layouts: bool = True
    even: bool = True
    parts: bool = True
    compose: bool = True
    transpose: bool = True
    readers: bool = True
    exchange: bool = True
    columns: bool = True
    short_rows: bool = True
    short_runs: bool = True
    neighbors: bool = True
    windows: bool = True
    images: bool = True
    packed: bool = True
    totals: bool = True
    later_rows: bool = True
    vectors: bool = True
    moves: bool = True
    kernel_rows: bool = True

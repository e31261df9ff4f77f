# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pairs of tiles that are live at once are those that a comparison of all pairs finds, in the same order."""

import random

import pytest

from nki_mlir.capture.on_chip_memory import OnChipTile, TileFootprint, live_together
from nki_mlir.dialects.access import PSUM, SBUF


@pytest.mark.parametrize("seed", range(20))
def test_tiles_that_are_live_together(seed):
    draw = random.Random(seed)
    tiles = []
    for k in range(draw.choice((1, 2, 40))):
        tile = OnChipTile(TileFootprint(draw.choice((SBUF, PSUM)), 128, 4, 4, None), f"t{k}", 0, None)
        tile.first = draw.randint(1, 30)
        tile.last = tile.first + draw.choice((0, 1, 5, 30))
        tiles.append(tile)
    assert live_together(tiles) == [
        (k, n) for k, b in enumerate(tiles) for n, a in enumerate(tiles[:k])
        if a.kind.space == b.kind.space and a.first <= b.last and b.first <= a.last]

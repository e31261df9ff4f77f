# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Variants of work that an engine does at another rate, by what the tiles are: behind the name of a law.

Whether a machine has a law for a variant is its matter; where it has none, that of the work itself holds.
"""

from nki_mlir.dialects.access import PSUM, Tile


def of_dtype(*tiles: Tile) -> str:
    """``.bfloat16`` or ``.float16`` where all tiles are that, in SBUF."""
    first = tiles[0].dtype
    narrow = first.is_float and first.bits == 16
    alike = all(t.dtype is first and t.space != PSUM for t in tiles)
    return f".{first}" if narrow and alike else ""


def of_tiles(*tiles: Tile) -> str:
    """``.psum`` where a tile is in PSUM, else what the dtype makes of it."""
    return ".psum" if any(t.space == PSUM for t in tiles) else of_dtype(*tiles)

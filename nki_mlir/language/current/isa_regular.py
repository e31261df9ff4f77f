# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions that are no more than their operation (``language/regular.py``), which write ``dst``."""

from typing import Any

from nki_mlir.dialects.op import Op
from nki_mlir.language import regular
from nki_mlir.language.creation import emit
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.calls import CURRENT
from nki_mlir.language.current.instruction import alu, instruction

BY_HAND = ("scalar_tensor_tensor", "tensor_copy")       # which take what older releases had besides


def issue(cls: type[Op], entry: regular.Regular, given: dict[str, Any], attributes: dict[str, Any]) -> None:
    """Write ``dst``: tiles of one shape are paired with it, others are rows of any lengths."""
    name, reads = cls.name, any(tile.name == "dst" and tile.reads for tile in cls.tiles)
    with low.writing(given["dst"], name, reads=reads, flat=entry.rows > 0) as out:
        if entry.rows:
            views = {"dst": low.flat_view(out), **{
                tile: low.flat_tile(name, parameter, given[parameter]) for parameter, tile in entry.tiles.items()}}
        else:
            tiles = {parameter: given[parameter] for parameter in entry.tiles}
            views = dict(zip(("dst", *entry.tiles.values()), low.paired(name, dst=out, **tiles)))
        beside = views["dst"]
        for parameter, (tile, number) in entry.scalars.items():
            views[tile], attributes[number] = low.number_and_tile(name, parameter, given[parameter], beside)
        emit(cls, views, **attributes)


functions = {name: instruction(function) for name, function in regular.functions(
    CURRENT, alu, issue, BY_HAND, not_given="name").items()}

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


def writing(cls: type[Op], entry: regular.Regular) -> Any:
    """Write ``dst``: tiles of one shape are paired with it, others are rows of any lengths."""
    name, reads, rows = cls.name, any(tile.name == "dst" and tile.reads for tile in cls.tiles), entry.rows > 0
    tiles, fields = [*entry.tiles.items()], ("dst", *entry.tiles.values())
    scalars = [(p, tile, number) for p, (tile, number) in entry.scalars.items()]

    def write(given: dict[str, Any], attributes: dict[str, Any]) -> None:
        with low.writing(given["dst"], name, reads=reads, flat=rows) as out:
            if rows:
                views = {"dst": low.flat_view(out)}
                for parameter, tile in tiles:
                    views[tile] = low.flat_tile(name, parameter, given[parameter])
            else:
                views = dict(zip(fields, low.paired(name, dst=out, **{p: given[p] for p, _ in tiles})))
            for parameter, tile, number in scalars:
                views[tile], attributes[number] = low.number_and_tile(name, parameter, given[parameter], views["dst"])
            emit(cls, views, **attributes)
    return write


functions = {name: instruction(function) for name, function in regular.functions(
    CURRENT, alu, writing, BY_HAND, not_given="name").items()}

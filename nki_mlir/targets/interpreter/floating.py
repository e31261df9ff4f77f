# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that are equal but for where in their buffers tiles start, as one: compiled once, it gets the starts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nki_mlir.dialects.access import Linear, Tile
from nki_mlir.dialects.op import Op, TileField


def floating(op: Op) -> Op:
    """The operation with the starts of its tiles as symbols 0, 1, ... (see ``starts``) and its own behind them."""
    operands = op.operands()
    behind = 2 * len(operands)
    fields: dict[str, Any] = {name: shifted(value, behind) if isinstance(value, Linear) else value
                              for name, value in op.attribute_values().items()}
    fields |= {field.name: started(tile, 2 * k) for k, (field, tile) in enumerate(operands)}
    return type(op)(symbols=tuple(range(behind + len(op.symbols))), **fields)


def shifted(form: Linear, by: int) -> Linear:
    return replace(form, symbols=tuple((k + by, c) for k, c in form.symbols))


def started(tile: Tile, symbol: int) -> Tile:
    partition = None if tile.access.partition is None else Linear(0, ((symbol, 1),))
    return tile.patterned(partition=partition, free=Linear(0, ((symbol + 1, 1),)))


def starts(operands: Sequence[tuple[TileField, Tile]], values: Sequence[int] = ()) -> list[int]:
    """The values of a floating operation's symbols: partition and free offset of each tile, then those of its own."""
    found: list[int] = []
    for _, tile in operands:
        access = tile.access
        found.append(0 if access.partition is None else access.partition.at(values))
        found.append(access.free.at(values))
    return [*found, *values]

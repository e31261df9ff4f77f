# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tiles of instructions in memories or in variables of a program, and the instructions that use each buffer."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nki_mlir.dialects.access import HBM, Access, Linear, Tile
from nki_mlir.dialects.isa.instruction import Register
from nki_mlir.dialects.isa.program import DeviceLiveRange, Variable, hbm_tile, on_chip_tile
from nki_mlir.dialects.op import FRESH, Op
from nki_mlir.machine import Engine, Machine
from nki_mlir.targets.neuron.codegen.hbm_variables import plain
from nki_mlir.targets.neuron.codegen.records import DeviceBuffer

Span = list[int]                # the first and the last instruction of a stream that uses a buffer


class BufferTiles(NamedTuple):
    """A buffer at its address: ``tiles`` has its tiles by access pattern, ``spans`` by the number of an engine the
    instructions of that engine which use it. Buffers at the same address share ``tiles``."""

    tiles: dict[Access, Tile]
    spans: dict[int, Span]


class PhysicalTiles:
    """The tiles of a program's instructions; those of equal accesses to the same bytes are one object."""

    def __init__(self, machine: Machine, variables: Mapping[DeviceBuffer, Variable]) -> None:
        self.machine, self.variables = machine, variables
        self.in_memory: dict[object, dict[Access, Tile]] = {}   # tiles by HBM buffer or on-chip address
        self.buffers: dict[DeviceBuffer, BufferTiles] = {}
        self.no_extra: dict[str, Any] = {}      # shared, since no pass changes the attributes of an operation

    def instruction(self, op: Op, number: int, at: int, symbols: tuple[Register, ...], engine: str) -> Op:
        """Return the operation on physical tiles, with registers for its symbols. It becomes instruction ``at`` of the
        stream of engine ``number``, whose name is ``engine``."""
        copy = object.__new__(type(op))
        values = copy.__dict__ = op.__dict__.copy()
        for name in op.tile_names:
            if (tile := values[name]) is not None:
                values[name] = self.used(tile, number, at)
        values["symbols"], values["ranges"], values["engine"] = symbols, (), engine
        values["extra"] = {FRESH: True} if FRESH in op.extra else self.no_extra
        return copy

    def used(self, tile: Tile, number: int, at: int) -> Tile:
        """Return the physical tile, and record that instruction ``at`` of engine ``number`` uses it."""
        buffer, access = tile.handle, tile.access
        tiles, spans = self.buffers.get(buffer) or self.new_buffer(buffer)
        if number in spans:
            spans[number][1] = at
        else:
            spans[number] = [at, at]
        physical = tiles.get(access)
        if physical is None:
            physical = tiles[access] = self.physical(tile)
        return physical

    def new_buffer(self, buffer: DeviceBuffer) -> BufferTiles:
        key = buffer if buffer.space == HBM else (buffer.space, buffer.address)
        tiles = self.buffers[buffer] = BufferTiles(self.in_memory.setdefault(key, {}), {})
        return tiles

    def physical(self, tile: Tile) -> Tile:
        buffer, access = tile.handle, tile.access
        if tile.space == HBM:
            return hbm_tile(self.variables[buffer], access)
        assert buffer.address is not None and access.partition is not None
        (partition, byte), dims = buffer.address, access.dims
        step, count = dims[0]
        if count <= 1 and step not in (0, 1):
            dims = ((1, count), *dims[1:])
        first = access.partition if partition == 0 else access.partition.plus(Linear(partition))
        free = access.free
        start = Linear(free.const + byte // access.dtype.itemsize, free.symbols, free.axes)
        return on_chip_tile(tile.space, Access(access.dtype, first, start, dims), self.machine)

    def live_ranges(self, engines: Sequence[Engine]) -> list[DeviceLiveRange]:
        """Return the live ranges of the buffers on chip."""
        live: list[DeviceLiveRange] = []
        for buffer, (_, spans) in self.buffers.items():
            if buffer.address is not None:
                partition, byte = buffer.address
                live.append(DeviceLiveRange(
                    plain(buffer.name or "tile"), buffer.space, partition, buffer.partitions, byte,
                    buffer.bytes_per_partition, tuple([(engines[e], spans[e][0], spans[e][1]) for e in sorted(spans)])))
        return live

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Estimates the cost of the boxes of a nest with one of its axes along the partitions.

The DMA engines take their time for each contiguous run of bytes, the engines for each element of a partition and for
each instruction. Elements that tiles on chip have cost nothing, or a copy if they are in several tiles, or a transpose
if their rows go along the other axis.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from types import MappingProxyType

from nki_mlir.bindings import Value, ir
from nki_mlir.dialects.access import Tile
from nki_mlir.graph.tile_cache import elements_of
from nki_mlir.graph.tiles import Tiles, loaded_axes
from nki_mlir.machine import Engine, Machine
from nki_mlir.waist.nest import Boxes
from nki_mlir.waist.tile_operand import TileNest, TileOperand

TRANSPOSED_BYTES = (2, 4)       # sizes of elements that DMA engines transpose
SAMPLES = 24            # boxes whose costs are computed; their mean stands for the others
ISSUERS = 3             # engines that trigger transfers
INSTRUCTION_NS = 60.0   # time of an engine for each instruction, in addition to that for its elements
COPIED = 0.5            # the share of copies that ``coalesce-copies`` does not merge with the producer of their source
TRANSPOSE_COPIES = 3    # a transpose through the tensor engine and PSUM takes the time of this many copies


class Layouts:
    """The costs of nests, in ns, with the tiles that are on chip. ``kernel_rows``: by tensor that a kernel accesses,
    the lengths of the rows that it moves."""

    def __init__(self, machine: Machine, tiles: Tiles, kernel_rows: Mapping[Value, set[int]] = MappingProxyType({})
                 ) -> None:
        self.machine, self.tiles, self.kernel_rows = machine, tiles, kernel_rows
        self.passes_hbm = False         # whether a box loads what another operation stores, or a kernel its result

    def cost(self, parts: Sequence[Boxes[TileOperand]], operations: int, stays: bool) -> float:
        """Return the time that the DMA engines and one engine take for all boxes. ``stays``: nothing stores the
        result."""
        boxes = [(part, number) for part in parts for number in range(len(part))]
        sample = boxes[::-(-len(boxes) // SAMPLES)]
        self.passes_hbm = False
        costs = [self.box_cost(part[number], operations, stays) for part, number in sample]
        total = sum(costs) * len(boxes) / len(sample)
        dma = self.machine.costs.dma
        return total + (2 * float(dma.trigger_ns + dma.notify_ns) if self.passes_hbm else 0)

    def box_cost(self, box: TileNest, operations: int, stays: bool) -> float:
        axes = tuple(range(len(box.extents)))
        elements = prod(box.extents[1:])
        total = operations * self.instruction(elements)
        for operand in box.inputs:
            total += self.load_cost(operand, box.extents)
        kernel_loads = box.output.handle in self.kernel_rows and not self.meets_kernel(box.output, box.extents)
        self.passes_hbm |= kernel_loads
        if not stays or kernel_loads:
            parallel = tuple(a for a in axes if a not in box.reduced)
            total += self.transfer(box.output.tile([box.extents[a] for a in parallel], parallel), stores=True)
        return total

    def load_cost(self, operand: TileOperand, extents: Sequence[int]) -> float:
        """Return the cost of an on-chip tile with the elements of an operand: 0 if one has them already."""
        if self.meets_kernel(operand, extents):
            return 0.0
        axes = loaded_axes(operand, extents, 0)
        source = operand.tile([extents[a] for a in axes], axes)
        cache, symbols = self.tiles.cache, self.tiles.symbols
        elements = elements_of(source, symbols)
        if cache.find(elements) is not None:
            return 0.0
        parts = cache.cover(elements)
        if parts:
            return sum(self.instruction(tile.free_elements) for tile, _ in parts) * COPIED
        windows = self.tiles.rows_on_chip(source)
        if windows:
            return TRANSPOSE_COPIES * sum(self.instruction(source.shape[0]) for _ in windows)
        if cache.find_in_later_rows(elements) is not None:
            return self.instruction(prod(source.shape[1:]))
        if is_argument(elements.buffer):
            return self.transfer(source)
        self.passes_hbm = True
        return self.transfer(source) + self.transfer(source, stores=True)

    def meets_kernel(self, operand: TileOperand, extents: Sequence[int]) -> bool:
        """Return whether a kernel moves the rows of an operand's box, so that they are in a tile on chip."""
        return len(extents) == 2 and operand.strides == (extents[1], 1) and (
            extents[1] in self.kernel_rows.get(operand.handle, ()))

    def instruction(self, elements: int) -> float:
        """Return the ns of an instruction on this many elements of each partition."""
        return INSTRUCTION_NS + elements / self.machine.clocks[Engine.VECTOR]

    def transfer(self, tile: Tile, stores: bool = False) -> float:
        """Return the ns of the DMA engines for a tile in HBM, and of an engine that triggers the transfer."""
        dma = self.machine.costs.dma
        dims, run, rate = list(tile.access.dims), 1, 1.0
        if not stores and dims[0][0] == 1 and dims[-1][0] != 1 and dma.transpose_rate and (
                tile.dtype.itemsize in TRANSPOSED_BYTES):
            dims, rate = [*dims[1:], dims[0]], float(dma.transpose_rate)        # the DMA engines transpose
        for k in reversed(range(rate == 1.0, len(dims))):
            if dims[k][1] > 1 and dims[k][0] != run:
                break
            run *= dims.pop()[1]
        runs = prod(n for _, n in dims)
        served = min(self.machine.dma_engines, -(-tile.shape[0] * self.machine.dma_engines // self.machine.partitions))
        ns = runs * dma.descriptor(run * tile.dtype.itemsize, 0, stores) / served / rate
        return float(ns + dma.issue_ns / ISSUERS)

    def copy(self, tile: Tile) -> float:
        """Return the ns of a copy from HBM to HBM in the runs of a tile, until another transfer reads its result."""
        dma, run = self.machine.costs.dma, 1
        dims = sorted(tile.access.dims)
        while dims and dims[0][0] <= run:
            run *= dims.pop(0)[1]
        runs = prod(n for _, n in dims)
        return float(runs * dma.descriptor(run * tile.dtype.itemsize) / self.machine.dma_engines
                     + dma.issue_ns + dma.trigger_ns + dma.notify_ns)


def is_argument(buffer: Value) -> bool:
    """Return whether a buffer is an argument of the kernel, or a constant: nothing computes it."""
    return isinstance(buffer.owner, ir.Block) or buffer.owner.operation.name == "memref.get_global"


def cheapest(candidates: Iterable[tuple[float, list[TileNest]]], gain: float) -> list[TileNest]:
    """Return the nests of the first candidate, or of one whose cost is less than ``gain`` times that of the first."""
    (first, nests), *alternatives = candidates
    best, best_nests = min(alternatives, key=lambda candidate: candidate[0], default=(first, nests))
    return best_nests if best < gain * first else nests

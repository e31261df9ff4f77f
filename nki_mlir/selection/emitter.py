# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Emits engine instructions in a form that the hardware accepts.

``emit`` takes any instruction on any tiles. An instruction is cut if a pattern has too many dims or elements. Operands
that the engine cannot reach go through buffers that it can reach: a DMA moves partitions at will, an engine copies
between the memories.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product, takewhile
from math import prod
from typing import Any

from nki_mlir.analysis.effects import local_effects, memory_of, users_through_views
from nki_mlir.analysis.mask_boxes import Box, in_box, with_used_symbols
from nki_mlir.bindings import Block, Operation, Value, enclosing, ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import HBM, PSUM, SBUF, Linear, Mask, Ranges, Tile, full_tile, same_elements
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.mlir_ops import write_op
from nki_mlir.dialects.nisa.movement import DmaCopyOp, TensorCopyOp
from nki_mlir.dialects.op import NisaOp
from nki_mlir.dialects.operation_kind import KIND
from nki_mlir.dialects.target_findings import is_transfer
from nki_mlir.dialects.target_rules import is_spread, starts_legally
from nki_mlir.machine import Engine, Machine
from nki_mlir.scalar.dtypes import DType
from nki_mlir.scalar.predicates import EQ

TENSOR, VECTOR, SCALAR, GPSIMD = Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD


class Emitter:
    """Writes the instructions that replace an operation, before it (``at``). Forms of tiles number its symbols.
    ``row_quotients``: quotients by one number for each row are divided row by row where that takes less time."""

    def __init__(self, machine: Machine, row_quotients: bool = True) -> None:
        self.machine, self.make, self.row_quotients = machine, Attributes(), row_quotients
        self.segments, self.equal = ir.DenseI32ArrayAttr.get([0, 0]), ir.IntegerAttr.get(self.make.i64, EQ)
        self.hoisted: dict[object, Tile] = {}      # operands that were copied for a loop

    def at(self, operation: ir.Operation, symbols: tuple[ir.Value, ...], ranges: Ranges,
           extra: dict[str, ir.Attribute]) -> None:
        self.location, self.insertion_point = operation.location, ir.InsertionPoint(operation)
        self.symbols, self.ranges, self.extra = symbols, ranges, extra
        self.bound((), ())
        self.moved: dict[object, Tile] = {}        # operands that were copied to a memory that an engine reaches
        self.emitted: list[Operation] = []

    def create(self, name: str, operands: Sequence[ir.Value], results: Sequence[ir.Type],
               attributes: Mapping[str, object]) -> ir.Value:
        self.emitted.append(ir.Operation.create(name, operands=operands, results=results, attributes=attributes,
                                                loc=self.location, ip=self.insertion_point))
        return self.emitted[-1].results[0]

    def bound(self, extents: tuple[int, ...], limits: Mask) -> None:
        """Set the bounds that instructions over these extents must check at run time."""
        self.extents, self.limits = extents, limits

    # -- memory --------------------------------------------------------------------------------------------------------
    def buffer(self, shape: Sequence[int], dtype: DType, space: str = SBUF) -> Tile:
        """Allocate a buffer, and return a tile that covers it."""
        kind = self.make.memref(tuple(shape), dtype, space)
        value = self.create("memref.alloc", [], [kind], {"operandSegmentSizes": self.segments})
        return full_tile(value, shape, dtype, space)

    def buffer_like(self, tile: Tile, dtype: DType, space: str = SBUF) -> Tile:
        """Return a new buffer for the elements that a tile reads. It has elements that the tile repeats along the free
        dims only once in each partition."""
        dims = tile.access.dims
        counts = [dims[0][1], *(n if step else 1 for step, n in dims[1:])]
        return repeated(self.buffer(counts, dtype, space), tile.shape)

    # -- emission ------------------------------------------------------------------------------------------------------
    def emit(self, cls: type[NisaOp], engine: Engine | None = None, **fields: Any) -> None:
        """Emit one instruction, or several if the hardware needs them. Without an engine, the class's default runs
        it."""
        op = cls(symbols=self.symbols, ranges=self.ranges, extra=self.extra, **fields)
        named(op, engine or op.runs_on)
        if self.limits and op.iteration().extents == self.extents:
            op.limits = self.limits
        for piece in self.pieces(op):
            self.emit_with_copies(piece)

    def write(self, op: NisaOp) -> None:
        self.emitted.append(write_op(with_used_symbols(op), self.make, self.location, self.insertion_point))

    def copy(self, dst: Tile, src: Tile, engine: Engine | None = None) -> None:
        """Emit a copy between any two memories, converted to the dtype of ``dst``."""
        if same_elements(dst, src) and engine is None:
            return None
        if HBM in (dst.space, src.space):
            on_chip = dst if src.space == HBM else src
            if on_chip.space != PSUM:
                return self.emit(DmaCopyOp, dst=dst, src=src)
            middle = self.buffer_like(src, dst.dtype if on_chip is src else src.dtype)
            self.copy(without_repeats(middle), without_repeats(src))
            return self.copy(dst, middle)
        by_dma = dst.space == src.space == SBUF and engine is None
        if by_dma and not (self.reachable(dst) and self.reachable(src)):
            return self.emit(DmaCopyOp, dst=dst, src=src)
        return self.emit(TensorCopyOp, engine, dst=dst, src=src)

    @contextmanager
    def where(self, values: Mapping[int, int]) -> Iterator[None]:
        """In the ``with`` block, emit operations that run only if symbols have these values."""
        outside, moved = self.insertion_point, dict(self.moved)
        for symbol, value in values.items():
            number = self.create("arith.constant", [], [self.make.index],
                                 {"value": ir.IntegerAttr.get(self.make.index, value)})
            is_equal = self.create("arith.cmpi", [self.symbols[symbol], number], [self.make.i1],
                                   {"predicate": self.equal})
            choice = ir.Operation.create("scf.if", operands=[is_equal], regions=2, loc=self.location,
                                         ip=self.insertion_point)
            self.insertion_point = ir.InsertionPoint(choice.regions[0].blocks.append())
            end = ir.Operation.create("scf.yield", loc=self.location, ip=self.insertion_point)
            self.insertion_point = ir.InsertionPoint(end)
        yield
        self.insertion_point, self.moved = outside, moved

    # -- size ----------------------------------------------------------------------------------------------------------
    def pieces(self, op: NisaOp) -> Iterator[NisaOp]:
        """Yield the instruction in parts whose patterns have few enough dims and elements, or undivided if it is not a
        loop nest."""
        if not op.is_loop_nest:
            yield op
            return
        iteration = op.iteration()
        extents, reduced = iteration.extents, iteration.reduced
        free = [a for a in range(1, len(extents)) if extents[a] > 1]
        parallel = [a for a in free if a not in reduced]
        crowded = max(0, len(free) - self.machine.free_dims_max)
        sizes = [1 if a in parallel[:crowded] else n for a, n in enumerate(extents)]
        for axis in parallel[crowded:]:
            sizes[axis] = min(extents[axis], max(1, self.step_limit(op, axis, sizes)))
        if sizes == list(extents):
            yield op
            return
        if crowded > len(parallel):
            raise Unsupported(feature=f"'{op.full_name()}' over {len(free)} free dims ({len(parallel)} parallel)",
                              instead="copy the operand so that fewer steps describe it")
        for starts in product(*(range(0, n, size) for n, size in zip(extents, sizes))):
            counts = tuple(min(size, n - s) for size, n, s in zip(sizes, extents, starts))
            limits = tuple(c._replace(form=c.form.counted_from(starts)) for c in op.limits)
            yield in_box(op, Box(starts, counts, ()), limits)

    def step_limit(self, op: NisaOp, axis: int, sizes: Sequence[int]) -> int:
        """Return the number of steps along an axis that patterns allow, if the other axes have these sizes."""
        room, axes = sizes[axis], op.iteration().axes
        for field, tile in op.operands():
            dims = list(zip(axes[field.name], tile.shape))[1:]
            if tile.on_chip and any(a == axis and n > 1 for a, n in dims):
                limit = self.machine.psum_elements_max if tile.space == PSUM else self.machine.sbuf_elements_max
                room = min(room, limit // prod(min(n, sizes[a]) for a, n in dims if a != axis))
        return room

    # -- reach ---------------------------------------------------------------------------------------------------------
    def emit_with_copies(self, op: NisaOp) -> None:
        """Emit an instruction. Copy operands that its engine cannot access to a memory that it can."""
        engine = op.runs_on
        if is_transfer(op):
            return self.write(op)
        after = []
        psum_sources = 0
        for field, tile in op.operands():
            if not field.writes:
                allowed = engine not in (TENSOR, GPSIMD) and psum_sources == 0
                tile = self.source(tile, allowed)
                psum_sources += tile.space == PSUM
            elif not self.reaches_destination(engine, tile):
                target = self.buffer_like(tile, tile.dtype, PSUM if engine is TENSOR else SBUF)
                if op.reads(field.name):
                    self.copy(target, tile)
                after.append((tile, target))
                tile = target
            setattr(op, field.name, tile)
        named(op, engine)
        self.write(op)
        for tile, target in after:
            self.finish(tile, target)
        return None

    def reaches_destination(self, engine: Engine, tile: Tile) -> bool:
        memory = {TENSOR: (PSUM,), GPSIMD: (SBUF,)}.get(engine, (SBUF, PSUM))
        return tile.space in memory and self.reachable(tile)

    def reachable(self, tile: Tile) -> bool:
        """Return whether an engine reads or writes the tile where it is."""
        return not is_spread(tile) and starts_legally(self.machine, tile)

    def source(self, tile: Tile, psum: bool) -> Tile:
        """Return a tile with the same elements where an engine reaches them: in SBUF, unless ``psum``."""
        if self.reachable(tile) and (tile.space == SBUF or psum):
            return tile
        key = tile.handle, tile.access
        if key not in self.moved:
            loop = None if tile.access.symbols_used() else outermost_loop(tile.handle, self.insertion_point.block)
            if loop is None:
                self.moved[key] = self.within_reach(tile)
            else:                               # copied once, before the loop, which leaves the buffer unchanged
                if (loop, key) not in self.hoisted:
                    inside, self.insertion_point = self.insertion_point, ir.InsertionPoint(loop)
                    self.hoisted[loop, key] = self.within_reach(tile)
                    self.insertion_point = inside
                self.moved[key] = self.hoisted[loop, key]
        return repeated(self.moved[key], tile.shape)

    def within_reach(self, tile: Tile) -> Tile:
        """Return a copy in SBUF of a tile's elements, each element once in a partition."""
        inner = without_repeats(tile)
        if inner.space == PSUM:
            inner = self.evacuated(inner)
        if not self.reachable(inner):
            target = without_repeats(self.buffer_like(inner, inner.dtype))
            self.copy(target, inner)
            inner = target
        return inner

    def evacuated(self, tile: Tile) -> Tile:
        """Return a copy of a PSUM tile in SBUF, at the same partitions if an engine cannot begin at its first
        partition."""
        step, partitions = tile.access.dims[0]
        source = tile if step else tile.patterned(dims=((1, 1), *tile.access.dims[1:]))
        copied = source if self.reachable(source) else self.from_first_partition(source)
        target = self.buffer_like(copied, tile.dtype)
        self.copy(target, copied)
        if copied is source:            # its partitions follow one another in the copy
            return target.patterned(dims=((min(step, 1), partitions), *target.access.dims[1:]))
        return target.patterned(partition=tile.access.partition, dims=(tile.access.dims[0], *target.access.dims[1:]))

    def finish(self, tile: Tile, value: Tile) -> None:
        """Copy a result to its destination, which the engine could not write."""
        if tile.space != PSUM or self.reachable(tile):
            return self.copy(tile, value)
        # Only a DMA can begin at any partition, and it cannot write PSUM: change a copy of the content and write it
        # back.
        everything = self.from_first_partition(tile)
        changed = self.buffer_like(everything, tile.dtype)
        self.copy(changed, everything)
        view = changed.patterned(partition=tile.access.partition, dims=(tile.access.dims[0], *changed.access.dims[1:]))
        self.copy(view, value)
        return self.copy(everything, changed)

    def from_first_partition(self, tile: Tile) -> Tile:
        """Return the tile extended to all partitions from 0 to its last one."""
        start, (step, partitions) = tile.access.partition, tile.access.dims[0]
        assert start is not None
        count = start.interval(self.ranges)[1] + step * (partitions - 1) + 1
        return tile.patterned(partition=Linear(), dims=((1, count), *tile.access.dims[1:]))


def named(op: NisaOp, engine: Engine) -> None:
    """Assign the instruction to the engine, unless its class offers several engines: then ``schedule-instructions``
    chooses the engine, or the trigger of a transfer."""
    if op.runs_on is not engine or len(op.engines if op.queued else op.shared_engines) < 2:
        op.__dict__.pop(KIND, None)
        op.engine = engine.value


def without_repeats(tile: Tile) -> Tile:
    """Return the tile with one element along the free dims in which it repeats."""
    dims = tuple((step, n) if step else (1, 1) for step, n in tile.access.dims[1:])
    return tile.patterned(dims=(tile.access.dims[0], *dims))


def repeated(tile: Tile, shape: Sequence[int]) -> Tile:
    """Return the tile in a larger shape: free dims of extent 1 repeat."""
    dims = tuple((0, n) if count == 1 and n > 1 else (step, count)
                 for (step, count), n in zip(tile.access.dims[1:], shape[1:]))
    return tile.patterned(dims=(tile.access.dims[0], *dims))


# -- loops that leave a buffer unchanged -------------------------------------------------------------------------------
# Copies of a buffer for the bodies of loops that do not change it can be made once, before these loops.

def outermost_loop(buffer: Value, block: Block) -> Operation | None:
    """Return the outermost loop directly around a block that leaves a buffer unchanged, as do all loops inside of it;
    None if there is none."""
    inner, buffer = block.owner.operation, memory_of(buffer)
    if inner.name != "scf.for":
        return None
    makers = [(buffer.owner.owner if isinstance(buffer.owner, ir.Block) else buffer.owner).operation,
              *(op for op in users_through_views(buffer) if buffer in local_effects(op).writes)]
    changing = [ancestor for op in makers for ancestor in (op, *enclosing(op))]
    loops = takewhile(lambda op: op.name == "scf.for" and op not in changing, (inner, *enclosing(inner)))
    return [None, *loops][-1]

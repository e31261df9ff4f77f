# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes nests on tiles: buffers in SBUF and PSUM, copies between them and HBM, and expressions."""

from collections.abc import Sequence

from nki_mlir.bindings import Operation, Value
from nki_mlir.dialects.access import SBUF, Tile
from nki_mlir.dialects.mlir_ops import write_op
from nki_mlir.dialects.op import NisaOp
from nki_mlir.graph.bodies import with_exact_extremes
from nki_mlir.graph.tile_cache import TileCache, elements_of
from nki_mlir.scalar.dtypes import DType
from nki_mlir.waist.tile_nest import (
    Activation,
    Alu,
    Constant,
    Convert,
    Input,
    Node,
    Output,
    Position,
    TileNest,
    TileOperand,
    forms_of,
)
from nki_mlir.waist.writer import IterationSpace, OperandView, ScalarBody, Writer


class Tiles:
    """Writes before one operation at a time."""

    def __init__(self, cache: TileCache) -> None:
        self.writer, self.cache = Writer(), cache

    def at(self, operation: Operation, symbols: tuple[Value, ...]) -> None:
        self.writer.at(operation)
        self.symbols = symbols

    def buffer(self, shape: Sequence[int], dtype: DType, space: str = SBUF) -> Tile:
        """A new buffer, whole."""
        return self.writer.buffer(tuple(shape), dtype, space)

    def view(self, tile: Tile, axes: tuple[int, ...]) -> OperandView:
        return self.writer.view(tile, axes, self.symbols)

    def copy(self, dst: Tile, src: Tile, order: tuple[int, ...] = ()) -> None:
        """dst = src, converted; dim k of src goes along dim ``order[k]`` of dst."""
        axes = tuple(range(len(dst.shape)))
        self.writer.generic(IterationSpace(len(axes)), [self.view(src, order or axes)], [self.view(dst, axes)],
                            dst.dtype, lambda s, ins, outs: [s.convert(ins[0], src.dtype, dst.dtype)])

    def apply(self, dst: Tile, src: Tile, body: Node) -> None:
        """dst = body, of each element of src."""
        axes = tuple(range(len(dst.shape)))
        self.writer.generic(IterationSpace(len(axes)), [self.view(src, axes)], [self.view(dst, axes)], body.dtype,
                            lambda s, ins, outs: [expression(body, s, ins, outs, {})])

    def fill(self, dst: Tile, value: float, axes: tuple[int, ...]) -> None:
        """Start a fold, whose result goes along ``axes``: both have one view of it."""
        self.writer.fill(self.view(dst, axes), value)

    def load(self, operand: TileOperand, extents: Sequence[int], first: int = 0) -> tuple[Tile, tuple[int, ...]]:
        """The elements of an HBM operand in a new tile, along the axes that it moves along; ``first`` on partitions.

        An operand that stays the same over ``first`` is in every partition.
        """
        axes = (first, *(a for a, n in enumerate(extents) if a != first and operand.moves(a)))
        counts = [extents[a] for a in axes]
        source = operand.tile(counts, axes)
        elements = elements_of(source, self.symbols)
        tile = self.cache.find(elements)
        if tile is None:
            tile = self.buffer(counts, operand.dtype)
            self.copy(tile, source)
            self.cache.keep(elements, tile)
        return tile, axes

    def write(self, op: NisaOp) -> None:
        """An instruction as it is."""
        write_op(op, self.writer.make, self.writer.location, self.writer.insertion_point)

    def store(self, output: TileOperand, tile: Tile, axes: tuple[int, ...]) -> None:
        target = output.tile(tile.shape, axes)
        self.copy(target, tile)
        self.cache.stored(elements_of(target, self.symbols), tile)

    def compute(self, nest: TileNest, inputs: Sequence[tuple[Tile, tuple[int, ...]]], output: Tile,
                axes: tuple[int, ...], body: Node) -> None:
        """output = body, over the nest's axes. Fold with the output where the body reads it."""
        body = with_exact_extremes(body)
        loops = IterationSpace(len(nest.extents), nest.reduced, (), (), self.symbols)
        views = [self.view(tile, own) for tile, own in inputs]
        kept = tuple(a for a in axes if a not in nest.reduced)
        target = self.writer.view(output, axes, self.symbols, nest.reduced) if nest.reduced else self.view(output, kept)
        self.writer.generic(loops, views, [target], body.dtype,
                            lambda s, ins, outs: [expression(body, s, ins, outs, {})], forms_of(body))


def expression(node: Node, s: ScalarBody, ins: Sequence[Value], outs: Sequence[Value], known: dict[Node, Value]
               ) -> Value:
    """An expression as scalar operations; equal subtrees once."""
    if node not in known:
        match node:
            case Input(index=k):
                value = ins[k]
            case Output():
                value = outs[0]
            case Constant(dtype=dtype, value=number):
                value = ScalarBody(s.create, s.make, dtype, s.symbols).constant(number)
            case Position(form=form, dtype=dtype):
                value = ScalarBody(s.create, s.make, dtype, s.symbols).position(form)
            case Convert(dtype=dtype, value=inner):
                value = s.convert(expression(inner, s, ins, outs, known), inner.dtype, dtype)
            case Activation(fn=fn, value=inner):
                value = s.activation(fn, expression(inner, s, ins, outs, known))
            case Alu(fn=fn, args=args):
                value = s.alu(fn, *(expression(a, s, ins, outs, known) for a in args))
        known[node] = value
    return known[node]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Defines ``nki.view``, a tile as a memref that keeps the distinction of partition and free dims.

``%v = "nki.view"(%a, %i) {access = #nki.access<f32, ()[s0] -> (0, s0 * 64), [[1, 128], [1, 64]]>}
: (memref<128x512xf32, "sbuf">, index) -> memref<128x64xf32, strided<[512, 1], offset: ?>, "sbuf">``. The type follows
from the pattern.
"""

# mypy: disable-error-code="call-arg, misc, name-defined"
# (the bindings' classes are not typed)

from collections.abc import Sequence
from math import prod

from nki_mlir.bindings import Operand, Operation, Result, Type, Value, ext, ir
from nki_mlir.dialects.access import HBM, Access, Tile
from nki_mlir.dialects.attributes import AccessAttr, MalformedAttribute, Nki, read_access, reported, table_of
from nki_mlir.dialects.symbol_ranges import check_bounds, ranges_of
from nki_mlir.dialects.verification import in_buffer
from nki_mlir.scalar.dtypes import BY_MLIR, DType

DYNAMIC = ir.ShapedType.get_dynamic_stride_or_offset()


class ViewOp(Nki.Operation, name="view", traits=[ext.Pure]):
    """A tile as a memref; `dims` and `masked` are optional.

    `dims` are the dims of the pattern that the memref has, by default all; the others have one element. With
    `masked` the view may leave its buffer: a mask or limits of its users decide which elements are touched.
    """

    source: Operand
    symbols: Sequence[Operand]
    access: AccessAttr
    result_: Result

    def verify_invariants(self) -> bool:
        return reported(self, "nki.view", lambda: _verify(self.operation))


def _verify(op: Operation) -> None:
    if "access" not in op.attributes:
        return                          # the presence check, which runs after this one, reports it
    (tile, dims), kind = read_view(op), op.results[0].type
    if any(tile.shape[d] != 1 for d in range(len(tile.shape)) if d not in dims):
        raise MalformedAttribute(f"leaves out a dim of several elements: dims {list(dims)} of {list(tile.shape)}")
    with op.context, op.location:
        expected = view_type(tile, dims)
    if kind != expected:
        raise MalformedAttribute(f"has type {kind}, its pattern gives {expected}")
    if "masked" not in op.attributes:
        symbols = list(op.operands)[1:]
        check_bounds(op, symbols, ranges_of(op, symbols), lambda interval: in_buffer(tile, interval, "source"))


def view_type(tile: Tile, dims: Sequence[int]) -> ir.MemRefType:
    """Return the type of a view of a tile, as a memref with these dims of the tile."""
    offset, strides = tile.offset, tile.strides
    start = offset.const if not offset.symbols and offset.const >= 0 else DYNAMIC     # MLIR accepts no negative ones
    return ir.MemRefType.get([tile.shape[d] for d in dims], ir.Type.parse(tile.dtype.mlir),
                             ir.StridedLayoutAttr.get(start, [strides[d] for d in dims]), ir.StringAttr.get(tile.space))


def read_view(op: Operation) -> tuple[Tile, tuple[int, ...]]:
    """Return the tile of an ``nki.view`` and the dims that the memref has. The tile's symbols are the operands after
    the first."""
    source, *symbols = op.operands
    tile, chosen = _pattern(op, source, len(symbols))
    return tile.on(source), chosen


def _pattern(op: Operation, source: Value, symbols: int) -> tuple[Tile, tuple[int, ...]]:
    """Return, memoized, the result of ``read_view`` with a tile that has no buffer."""
    access, dims = (op.attributes[name] if name in op.attributes else None for name in ("access", "dims"))
    table = table_of(op.context)
    key = "nki.view", source.type, symbols, access, dims
    known_pattern = table.get(key)
    if known_pattern is None:
        assert access is not None
        tile = read_tile(source.type, read_access(access), symbols, "source")
        rank = len(tile.shape)
        if dims is not None and not isinstance(dims, ir.DenseI64ArrayAttr):
            raise MalformedAttribute(f"attribute 'dims' is {dims}, which must be an array<i64: ...>")
        chosen = tuple(range(rank) if dims is None else dims)
        if list(chosen) != sorted({d for d in chosen if 0 <= d < rank}):
            raise MalformedAttribute(f"dims {list(chosen)} must be dims of the pattern, 0 to {rank - 1}, in ascending "
                                     "order")
        known_pattern = table[key] = tile, chosen
    pattern: tuple[Tile, tuple[int, ...]] = known_pattern
    return pattern


def start_of(op: Operation) -> tuple[int, list[tuple[Value, int]]]:
    """Return the distance in elements from a buffer's start to a view, or from a source to its subview: a number, and
    values with factors."""
    source, *values = op.operands
    if op.name == "nki.view":
        offset = _pattern(op, source, len(values))[0].offset             # in elements of the tile's dtype
        return offset.const, [(values[k], c) for k, c in offset.symbols]
    steps = ir.MemRefType(source.type).get_strides_and_offset()[0] if op.name == "memref.subview" else [1]
    starts = list(zip(op.attributes["static_offsets"], steps))
    return (sum(start * step for start, step in starts if start != DYNAMIC),
            list(zip(values, [step for start, step in starts if start == DYNAMIC])))


def read_tile(of: Type, access: Access, symbols: int, label: str) -> Tile:
    """Return the tile of a pattern in a buffer of this type, without a handle; raise ``MalformedAttribute`` if they do
    not fit."""
    space, shape, dtype = _buffer_of(of, label)
    if (access.partition is None) != (space == "hbm"):
        raise MalformedAttribute(f"access of '{label}' needs {'(offset)' if space == 'hbm' else '(partition, offset)'} "
                                 f"starts in {space}")
    if space != "hbm" and not shape:
        raise MalformedAttribute(f"operand '{label}' has type {of}, which has no partitions")
    if any(position >= symbols for position in access.symbols_used()):
        raise MalformedAttribute(f"access of '{label}' uses more symbols than the operation has ({symbols})")
    return Tile(None, space, shape, dtype, access, label)


def _buffer_of(of: Type, label: str) -> tuple[str, tuple[int, ...], DType]:
    """Return the memory, the shape and the element type of a buffer; raise ``MalformedAttribute`` for other values."""
    table, key = table_of(of.context), ("buffer", of)
    buffer: tuple[str, tuple[int, ...], DType] | None = table.get(key)
    if buffer is not None:
        return buffer
    try:
        kind = ir.MemRefType(of)
    except ValueError:
        raise MalformedAttribute(f"operand '{label}' is a {of}, not a memref") from None
    if not kind.has_static_shape or kind.affine_map != ir.AffineMap.get_identity(kind.rank, kind.context):
        raise MalformedAttribute(f"operand '{label}' has type {kind}, which is not a complete buffer of static shape")
    space = kind.memory_space.value if isinstance(kind.memory_space, ir.StringAttr) else None
    if space not in ("hbm", "sbuf", "psum"):
        raise MalformedAttribute(f"operand '{label}' has type {kind}, "
                                 'whose memory space is not "hbm", "sbuf" or "psum"')
    element = str(kind.element_type)
    if element not in BY_MLIR:
        raise MalformedAttribute(f"operand '{label}' has element type {element}, which the language does not have")
    buffer = table[key] = space, tuple(kind.shape), BY_MLIR[element]
    return buffer


class ReinterpretOp(Nki.Operation, name="reinterpret", traits=[ext.Pure]):
    """The same memory as a memref of another element type, which no memref operation can express. On chip, partitions
    do not change.

    ``%b = "nki.reinterpret"(%a) : (memref<128x64xf32, "sbuf">) -> memref<128x128xbf16, "sbuf">``
    """

    source: Operand
    result_: Result

    def verify_invariants(self) -> bool:
        return reported(self, "nki.reinterpret", self.check)

    def check(self) -> None:
        before, after = (_row_bytes(value.type) for value in (self.operands[0], self.results[0]))
        if before != after:
            raise MalformedAttribute(f"changes (memory, partitions, bytes) {before} to {after}")


def _row_bytes(kind: Type) -> tuple[str, int, int]:
    """Return memory, partitions, and bytes of a partition of a complete buffer."""
    element, space = str(getattr(kind, "element_type", "")), getattr(kind, "memory_space", None)
    if element not in BY_MLIR or not isinstance(space, ir.StringAttr) or not kind.has_static_shape or (
            isinstance(kind.layout, ir.StridedLayoutAttr)):
        raise MalformedAttribute("takes contiguous memrefs of the language's element types")
    on_chip = space.value != HBM and len(kind.shape) > 0
    partitions = kind.shape[0] if on_chip else 1
    free = kind.shape[1:] if on_chip else kind.shape
    return space.value, partitions, prod(free) * BY_MLIR[element].itemsize

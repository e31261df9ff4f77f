# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds MLIR operations from the op classes: declares them in IRDL, writes an ``Op`` to IR and reads it back.

Every tile operation has its tiles first, then its symbols (loop variables, program ids) as operands, and the
attributes ``access`` (a pattern per tile), ``mask`` and the class's own. ``nki.limits`` is present only if bounds
are checked at run time; other discardable attributes are kept unchanged.
"""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from nki_mlir.alone import alone
from nki_mlir.bindings import Attribute, Block, Context, Operation, Value, ext, ir, irdl, operations_of
from nki_mlir.dialects import catalog, native
from nki_mlir.dialects.access import Linear, Tile
from nki_mlir.dialects.attributes import (
    Attributes,
    MalformedAttribute,
    Nki,
    elements,
    read_access,
    read_mask,
    read_value,
    reported,
    table_of,
)
from nki_mlir.dialects.instruction_order import check_marks
from nki_mlir.dialects.nisa.meeting import Meeting
from nki_mlir.dialects.op import REGISTRY, Op, TileField
from nki_mlir.dialects.scalar.ops import Scalar
from nki_mlir.dialects.symbol_ranges import check_bounds, loop_span, ranges_of, symbol_range
from nki_mlir.dialects.verification import verify, verify_bounds, verify_mask
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.dialects.view import ReinterpretOp, ViewOp, read_tile

catalog.load()                        # every op class registers itself on import


class Nisa(ext.Dialect, name="nisa"):
    """Engine instructions."""


OPERATIONS = frozenset(REGISTRY)        # those that the dialects have
STRUCTURAL = ("access", "mask", "nki.limits", "operandSegmentSizes")


def _verify(op: ir.OpView) -> bool:
    """Verify the structure and rules of one operation; findings are diagnostics at its location."""
    name = op.operation.name            # a field of the operation may be called name, too
    present = op.attributes
    if any([field not in present for field in ("access", "mask", *REGISTRY[name].attributes)]):
        return True                     # the presence check, which runs after this one, reports it
    return reported(op, name, lambda: _verify_rules(op.operation))


def _verify_rules(op: Operation) -> None:
    record, operands = recognize(op)
    if record.holds and not record.has_symbols(operands):
        return
    read = record.with_ranges(op, operands)
    if not record.holds:
        verify(read)
        verify_mask(read)
        _verify_forms(read)
    check_bounds(op, read.symbols, read.ranges, lambda interval: verify_bounds(read, interval))
    record.holds = True


def _verify_forms(op: Op) -> None:
    """Check that masks and affine attributes are over the operation's axes and symbols."""
    forms = [("mask", c.form) for c in op.mask] + [("nki.limits", c.form) for c in op.limits]
    forms += [(name, getattr(op, name)) for name, kind in op.attributes.items() if kind is Linear]
    if not forms:
        return
    axes = len(op.iteration().extents)
    for name, form in forms:
        if any(axis >= axes for axis, _ in form.axes):
            raise MalformedAttribute(f"attribute '{name}' uses an axis beyond the operation's {axes}")
        if any(position >= len(op.symbols) for position, _ in form.symbols):
            raise MalformedAttribute(f"attribute '{name}' uses a symbol beyond the operation's {len(op.symbols)}")


BASES = {str: "string", float: "float", bool: "integer", int: "integer", tuple: "array", Linear: "affine_map"}


def irdl_of(cls: type[Op]) -> str:
    """Return the ``irdl.operation`` of a tile operation as text.

    The bindings would create a class for each, which takes many times as long. Fields that shared a constraint
    would have to be equal, so each has a separate one.
    """
    operands = [(f.name, "optional " if f.optional else "") for f in cls.tiles] + [("symbols", "variadic ")]
    bases = {"access": "array", "mask": "integer_set"} | {name: BASES[kind] for name, kind in cls.attributes.items()}
    attributes = [f'"{name}" = %of_{k}' for k, name in enumerate(bases)]
    lines = [f"irdl.operation @{cls.name} {{",
             *(f"  %{k} = irdl.any" for k in range(len(operands))),
             f"  irdl.operands({', '.join(f'{name}: {count}%{k}' for k, (name, count) in enumerate(operands))})",
             *(f'  %of_{k} = irdl.base "#builtin.{base}"' for k, base in enumerate(bases.values())),
             f"  irdl.attributes {{{', '.join(attributes)}}}", "}"]
    return "\n    ".join(lines)


def declared(dialect: str) -> list[type[Op]]:
    """Return the tile operations of a dialect."""
    return [cls for cls in REGISTRY.values() if cls.dialect == dialect]


def irdl_of_dialect(dialect: str) -> str:
    """Return the ``irdl.dialect`` of its tile operations."""
    operations = "\n    ".join(map(irdl_of, declared(dialect)))
    return f"irdl.dialect @{dialect} {{\n    {operations}\n}}"


class Rules:
    """The trait by which the verifier checks a tile operation."""

    verify_invariants = staticmethod(_verify)


# To find an attribute's class, the bindings import a module named after its dialect, and try again for each attribute,
# because a failed import is not memoized (30 us). So these modules exist.
for _name in ("nki", "nisa", "scalar", "native"):
    sys.modules.setdefault(f"{ext.__package__}.{_name}", sys.modules[__name__])


UPSTREAM = """
func.func @f(%a: memref<1xf32>, %c: i1, %x: f32) {
  %i = arith.constant 0 : index
  %j = affine.apply affine_map<(d0) -> (d0)>(%i)
  scf.if %c {}
  linalg.fill ins(%x : f32) outs(%a : memref<1xf32>)
  %m = memref.alloc() : memref<1xf32>
  return
}"""


def load_dialects(context: Context) -> None:
    """Load this project's dialects and the upstream ones a module may contain, unless they are loaded already."""
    with context, ir.Location.unknown():
        for name, dialect in (("nki", Nki), ("nisa", Nisa), ("scalar", Scalar)):
            if not context.is_dialect_loaded(name):
                dialect.load()
                if tiles := declared(name):
                    irdl.load_dialects(ir.Module.parse(irdl_of_dialect(name)))
                    for cls in tiles:
                        ir.DynamicOpTrait.attach(cls.full_name(), Rules)
        if not context.is_dialect_loaded("native"):
            irdl.load_dialects(ir.Module.parse(native.IRDL))
            ir.NoTerminatorTrait.attach(native.TABLE)
        # The parser loads the dialects of the text; a request for a dialect by name imports its Python module (40 ms
        # for linalg).
        ir.Module.parse(UPSTREAM)


@alone
def new_context() -> Context:
    """Return a context with all dialects loaded."""
    context = ir.Context(load_on_create_dialects=["irdl"])          # needed to declare the dialects; else it loads all
    load_dialects(context)
    return context


@alone
@cache
def shared_context() -> Context:
    """Return the context of the process for modules that come from kernels."""
    return new_context()


# -- writing -----------------------------------------------------------------------------------------------------------
def op_attributes(op: Op, make: Attributes, present: Sequence[tuple[TileField, Tile]] = ()) -> dict[str, Attribute]:
    """Return the attribute dictionary of an operation; its operands may be passed. Optional tiles need
    segment sizes."""
    present = present or op.operands()
    count, axes = len(op.symbols), 0
    if op.mask or op.limits or op.has_linear_attributes:
        axes = len(op.iteration().extents)
    named = {"access": make.accesses([tile for _, tile in present], count), "mask": make.mask(op.mask, axes, count)}
    for name, kind in op.attributes.items():
        value = getattr(op, name)
        named[name] = make.linear(value, axes, count) if kind is Linear else make.value(kind(value))
    if op.has_optional_tiles:
        sizes = [int(getattr(op, f.name) is not None) for f in op.tiles]
        named["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([*sizes, count])
    if op.limits:
        named["nki.limits"] = make.mask(op.limits, axes, count)
    named |= op.extra
    return named


def write_op(op: Op, make: Attributes, location: ir.Location | None = None, ip: ir.InsertionPoint | None = None
             ) -> Operation:
    """Create the MLIR operation of ``op``, whose tile handles and symbols are SSA values."""
    operands = [t.handle for _, t in op.operands()] + list(op.symbols)
    return ir.Operation.create(op.full_name(), operands=operands, attributes=op_attributes(op, make), loc=location,
                               ip=ip)


# -- reading -----------------------------------------------------------------------------------------------------------
def is_tile_op(operation: Operation) -> bool:
    return operation.name in REGISTRY


def meetings_of(function: Operation) -> list[Operation]:
    """Return the operations at which a function's programs, or ranks, meet others."""
    return operations_of(function, lambda name: name in REGISTRY and issubclass(REGISTRY[name], Meeting))


class RecognizedOperation:
    """An operation as it was read, for all with equal attributes and types: an ``Op`` without handles."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.holds = False              # whether it obeys the rules, except bounds that depend on symbols

    def has_symbols(self, operands: Sequence[Value]) -> bool:
        return len(operands) > len(self.op.operands())

    def with_ranges(self, operation: Operation, operands: Sequence[Value]) -> Op:
        """Return the ``Op`` for uses that need no handles: the operation's own if symbols have ranges."""
        return read_op(operation) if self.has_symbols(operands) else self.op

    def on(self, operation: Operation, operands: Sequence[Value], tile_of: Callable[[Tile, Value], Tile]) -> Op:
        """Return the ``Op`` of an operation with these operands, and the ranges of its symbols."""
        op = self.op
        copy = object.__new__(type(op))
        values = copy.__dict__ = op.__dict__.copy()
        at = 0
        for field in op.tiles:
            if (tile := values[field.name]) is not None:
                values[field.name] = tile_of(tile, operands[at])
                at += 1
        values["extra"] = dict(op.extra)
        if at < len(operands):
            copy.symbols = symbols = tuple(operands[at:])
            copy.ranges = tuple([symbol_range(s, operation) for s in symbols])
        return copy


class OperationParts(NamedTuple):
    """The parts by which a reader recognizes an operation: its name, its operands' ``types``, and its
    ``attributes``."""

    types: tuple[object, ...]
    attributes: list[tuple[str, Attribute]]
    operands: list[Value]


def parts_of(operation: Operation) -> OperationParts:
    operands = list(operation.operands)
    try:
        attributes = operation.attributes.items()
    except TypeError:                   # the bindings do not give locations
        raise MalformedAttribute("has an attribute that is a location") from None
    return OperationParts((operation.name, *[value.type for value in operands]), attributes, operands)


def recognize(operation: Operation) -> tuple[RecognizedOperation, list[Value]]:
    """Return the memoized record of an operation, and its operands."""
    parts = parts_of(operation)
    return recognized(operation, parts), parts.operands


def recognized(operation: Operation, parts: OperationParts) -> RecognizedOperation:
    """Return the memoized record of an operation with these parts."""
    types, attributes, operands = parts
    key = (*types, *attributes)
    table = table_of(operation.context)
    record: RecognizedOperation | None = table.get(key)
    if record is None:
        record = table[key] = RecognizedOperation(_read(operation.name, dict(attributes), operands))
    return record


def read_op(operation: Operation) -> Op:
    """Return the ``Op`` of an MLIR operation of the dialects nki and nisa. Its attributes are fields, the handles of
    its tiles are SSA values, and its symbols have their ranges."""
    operation = operation.operation
    record, operands = recognize(operation)
    return record.on(operation, operands, Tile.on)


def _read(name: str, attributes: dict[str, Attribute], operands: Sequence[Value]) -> Op:
    """Return the ``Op`` that the attributes and the operands' types describe."""
    cls = REGISTRY[name]
    present = _present_tiles(cls, attributes, len(operands))
    symbols = len(operands) - len(present)
    patterns = attributes["access"]
    if not isinstance(patterns, ir.ArrayAttr) or len(patterns) != len(present):
        count = len(patterns) if isinstance(patterns, ir.ArrayAttr) else patterns
        raise MalformedAttribute(f"needs one access pattern per tile ({len(present)}), has {count}")
    fields: dict[str, Any] = {f.name: read_tile(value.type, read_access(pattern), symbols, f.name)
                              for f, value, pattern in zip(present, operands, elements(patterns))}
    for field, kind in cls.attributes.items():
        fields[field] = read_value(attributes[field], kind, field)
    extra = {name: a for name, a in attributes.items() if name not in STRUCTURAL and name not in cls.attributes}
    check_marks(extra)
    limits = read_mask(attributes["nki.limits"]) if "nki.limits" in attributes else ()
    return cls(mask=read_mask(attributes["mask"]), limits=limits, extra=extra, **fields)


def _present_tiles(cls: type[Op], attributes: dict[str, Attribute], operands: int) -> list[TileField]:
    """Return the tile fields that an operation has operands for."""
    present = list(cls.tiles)
    if any(f.optional for f in cls.tiles):
        sizes = attributes["operandSegmentSizes"] if "operandSegmentSizes" in attributes else None
        if not isinstance(sizes, ir.DenseI32ArrayAttr):
            raise MalformedAttribute("needs an attribute operandSegmentSizes = array<i32: ...>")
        counts = list(sizes)
        if len(counts) != len(cls.tiles) + 1 or sum(counts) != operands or not all(
                n in ((0, 1) if f.optional else (1,)) for f, n in zip(cls.tiles, counts)):
            names = ", ".join(f"{f.name}{' (0 or 1)' if f.optional else ''}" for f in cls.tiles)
            raise MalformedAttribute(f"operandSegmentSizes {counts} do not divide {operands} operands into {names} "
                                     "and symbols")
        present = [f for f, n in zip(cls.tiles, counts) if n]
    if operands < len(present):
        raise MalformedAttribute(f"needs {len(present)} tiles ({', '.join(f.name for f in present)}), has {operands}")
    return present


def walk(block: Block, visit: Callable[[Operation], None]) -> None:
    """Call ``visit`` on every operation below a block, parents first."""
    for operation in block.operations:
        visit(operation.operation)
        for region in operation.operation.regions:
            for inner in region.blocks:
                walk(inner, visit)


__all__ = ["OPERATIONS", "OperationParts", "OutOfBounds", "ReinterpretOp", "ViewOp", "is_tile_op", "load_dialects",
           "loop_span", "new_context", "op_attributes", "parts_of", "ranges_of", "read_op", "recognize", "recognized",
           "shared_context", "symbol_range", "walk", "write_op"]

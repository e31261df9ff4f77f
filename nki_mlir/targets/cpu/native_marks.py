# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the operations and marks of the ``native`` dialect (``dialects/native.py``) into calls.

A module may come from a file, so the reader checks each mark against its operation: a nest streams, starts from 0 or is
spread only if its form allows that, and addresses decide which fields are adjacent.
"""

from collections.abc import Sequence
from typing import Any

from nki_mlir.bindings import Operation, Value, ir, operations_of
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects import native
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.attributes import elements, read_value
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.targets.cpu.addressed_nest import AddressedNest, can_stream
from nki_mlir.targets.cpu.code_forms import CODE_FORMS, can_have, with_form
from nki_mlir.targets.cpu.contraction import (
    PAIR_LANES,
    TileProduct,
    contraction_of,
    multiplies_in_pairs,
    prefetched_positions,
    product_of_panels,
    tiles,
)
from nki_mlir.targets.cpu.fitted import FITTED_LENGTH, fit_of, fitted_region
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.lanes import FITTED, FITTED_TO_ZERO
from nki_mlir.targets.cpu.loops import MemoryUse
from nki_mlir.targets.cpu.native_nodes import CONSTANTS, Compute, NestCall, RoutineCall, Spread, SpreadSearch, TileCall
from nki_mlir.targets.cpu.packed_products import UNITS
from nki_mlir.targets.cpu.routines import Limits, Routine
from nki_mlir.targets.cpu.schedule import adjacent_fields, parts_of
from nki_mlir.targets.cpu.searches import Search, part_of_search
from nki_mlir.targets.cpu.tabulated import COUNT, LENGTH, table_region
from nki_mlir.targets.cpu.tile_registers import PANEL, SIDE, TileRegisterProduct
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand, Step
from nki_mlir.waist.nest_reader import add_steps, layout_of, mask_of, scalar_dtype
from nki_mlir.waist.overlap import ByteRegion

MOST_PARTS = 1 << 16


class MalformedMark(NkiMlirError):
    code = "NKI-NATIVE"
    message = "'{op}' does not have the form in which passes of the CPU write it: {problem}"
    fix = "print the module after the pass with --mlir-print-ir-after, and change only what nests compute"


def malformed(op: Operation, problem: str) -> NkiMlirError:
    return MalformedMark(op=op.name, problem=problem).located(location_of(op))


def marked_call(op: Operation, nest: Nest, regions: Sequence[ByteRegion], symbols: Sequence[Linear]) -> RoutineCall:
    """Return the call of a nest with the facts that its marks state."""
    marks = op.attributes
    arguments = (*[region.address for region in regions], *symbols)
    product_marks = [mark for mark in (native.FRESH, native.PAIRS, native.NEXT) if mark in marks]
    if product_marks:
        if contraction_of(nest) is None:
            raise malformed(op, f"{product_marks[0]} is on a nest that is not a product of float32")
        if native.PAIRS in marks and not multiplies_in_pairs(nest):
            raise malformed(op, f"{native.PAIRS} needs words of two bfloat16, {PAIR_LANES} columns, and a host that "
                                "multiplies pairs")
        if native.NEXT in marks and not prefetched_positions(nest):
            raise malformed(op, f"{native.NEXT} needs a factor in panels as wide as a register tile")
        distance = _number(op, native.NEXT) if native.NEXT in marks else 0
        product = TileProduct(nest, native.FRESH in marks, native.PAIRS in marks, ahead=distance)
        call = Compute(product, arguments, nest, regions)
        return _in_parts(op, call) if native.SPREAD in marks else call
    streams = tuple(_numbers(op, native.STREAMS)) if native.STREAMS in marks else ()
    if streams and (not all(0 <= k < len(nest.outputs) for k in streams) or not can_stream(nest, streams)):
        raise malformed(op, f"{native.STREAMS} is on a nest that does not store whole vectors")
    ahead = tuple(_pairs(op, native.AHEAD)) if native.AHEAD in marks else ()
    if not all(0 <= k < len(nest.inputs) for k, _ in ahead):
        raise malformed(op, f"{native.AHEAD} names an input that the nest does not have")
    fields = adjacent_fields(nest, arguments) if native.FIELDS in marks else ()
    use = MemoryUse(streams, ahead, fields)
    routine = AddressedNest(nest, use) if use != MemoryUse() else nest
    forms = [name for name, form in CODE_FORMS.items() if form.mark in marks]
    if native.SPREAD not in marks:
        routine = _with_forms(op, routine, forms)
    if native.FIXED in marks:
        return NestCall(routine, arguments, nest, regions)
    call = Compute(routine, arguments, nest, regions)
    if native.SPREAD not in marks:
        return call
    spread = _in_parts(op, call)
    spread.part = _with_forms(op, spread.part, forms)
    return spread


def _in_parts(op: Operation, call: Compute) -> Spread:
    """Return a computation as the equal parts that its mark states."""
    count = _number(op, native.SPREAD)
    parts = parts_of(call.nest, count, count) if 0 < count < MOST_PARTS else None
    if parts is None:
        raise malformed(op, f"the nest has no {count} equal parts")
    if isinstance(call.function, TileProduct) and not call.function.can_compute(parts[0]):
        raise malformed(op, f"one of {count} parts cannot have the marks of the product")
    return Spread.over(call, parts)


def spread_search(op: Operation, call: TileCall) -> SpreadSearch:
    """Return a search as the equal parts that its mark states."""
    count = _number(op, native.SPREAD)
    search = call.function
    assert isinstance(search, Search)
    part = part_of_search(search, count) if 0 < count < MOST_PARTS else None
    if part is None:
        raise malformed(op, f"the search has no {count} equal parts")
    return SpreadSearch.over(call, part, count)


def _with_forms(op: Operation, routine: Routine, forms: Sequence[str]) -> Nest | AddressedNest:
    assert isinstance(routine, Nest | AddressedNest)
    for name in forms:
        if not can_have(routine, name):
            mark, _, requirement = CODE_FORMS[name]
            raise malformed(op, f"{mark} is on a nest that does not {requirement}")
        routine = with_form(routine, name)
    return routine


def packed_product(op: Operation) -> tuple[Routine, Nest]:
    """Return the routine of a packed product, and the nest that touches the same memory."""
    panels, sizes, tile = (_numbers(op, name) for name in ("panels", "sizes", "tile"))
    depth, line, fresh = (_number(op, name) for name in ("depth", "line", "fresh"))
    unit = op.attributes["unit"].value
    if unit not in UNITS or len(panels) != 2 or len(sizes) != 2 or min(*panels, *sizes, depth, line) < 1:
        raise malformed(op, "it has two numbers of panels, their sizes, and a depth, all of at least 1")
    if unit == "amx":
        if not host.multiplies_tiles() or sizes != [PANEL, PANEL] or depth % SIDE:
            raise malformed(op, f"tile registers have panels of {PANEL} x {PANEL}, and a depth in steps of {SIDE}")
        nest = product_of_panels(panels, sizes, depth, line)
        return TileRegisterProduct(panels[0], panels[1], depth, line, bool(fresh)), nest
    register_tile = next((candidate for candidate in tiles() if [candidate.rows, candidate.vectors] == tile), None)
    if register_tile is None:
        raise malformed(op, f"its register tile of {' x '.join(map(str, tile))} vectors is none of this host's, "
                            + ", ".join(f"{t.rows} x {t.vectors}" for t in tiles()))
    if sizes[0] > register_tile.panel or sizes[1] > register_tile.width:
        raise malformed(op, f"a register tile of {tile[0]} x {tile[1]} vectors has panels of {register_tile.panel} x "
                            f"{register_tile.width} at most")
    if unit == "pairs" and not host.multiplies_pairs():
        raise malformed(op, "this host has no instruction that multiplies pairs of bfloat16")
    nest = product_of_panels(panels, sizes, depth, line)
    return TileProduct(nest, bool(fresh), unit == "pairs", register_tile), nest


def table_of_operation(code: NativeFunction, op: Operation) -> ByteRegion:
    """Compute a table, and its polynomials if it has any, as a constant of a function."""
    function, is_fitted = function_of_table(op)
    fit = fit_of(function) if is_fitted else None
    if fit is not None:
        return fitted_region(code, function, fit)
    if is_fitted:
        raise malformed(op, "no polynomials have the bits of the function")
    return table_region(code, function)


def function_of_table(op: Operation) -> tuple[Nest, bool]:
    """Return the function of a table as a nest over all arguments, and whether the table has polynomials."""
    arguments, numbers, steps = list(op.regions[0].blocks[0].arguments), dict[Value, int](), list[Step]()
    numbers |= {value: 0 for value in arguments}

    def add(step: Step) -> int:
        steps.append(step)
        return 1 + len(steps)
    for inner in operations_of(op, lambda name: True)[1:]:
        if len(inner.results) != 1 or not all(value in numbers for value in inner.operands):
            raise malformed(op, "its region has operations that are not steps of one function")
        numbers[inner.results[0]] = add_steps(inner, [numbers[value] for value in inner.operands], add)
    target, sizes, *_ = layout_of(op.results[0].type)
    source = scalar_dtype(arguments[0].type) if len(arguments) == 1 else None
    has_length = sizes in ((LENGTH,), (FITTED_LENGTH,))
    if source is None or not steps or steps[-1].dtype is not target or not has_length or not all(
            dtype.is_float and dtype.itemsize == 2 for dtype in (source, target)):
        raise malformed(op, f"a table has {LENGTH} floats of 16 bits, and its region computes one from a 16-bit float")
    function = Nest((COUNT,), frozenset(), (Operand(source, (1,)),), 0, (Operand(target, (1,)),), tuple(steps),
                    (1 + len(steps),))
    return function, sizes == (FITTED_LENGTH,)


def check_lookups(op: Operation, nest: Nest, regions: Sequence[ByteRegion], code: NativeFunction) -> None:
    """Raise an error where a lookup is not in a table of all arguments."""
    for step in nest.steps:
        if step.kind == "lookup":
            value, table = step.operands
            region = regions[table] if table < len(nest.inputs) else None
            if region is None or region.root != "constants" or region.offset != Linear() or (
                    region.size < LENGTH * step.dtype.itemsize or any(nest.inputs[table].strides)
                    or nest.dtype_of(value).itemsize != 2):
                raise malformed(op, "a lookup is not in a native.table by a float of 16 bits")
            if step.name.startswith(FITTED):
                function = code.tables.get(CONSTANTS - region.base.symbols[0][0])
                fit = fit_of(function) if function is not None and region.size > LENGTH * step.dtype.itemsize else None
                if fit is None or step.name.startswith(FITTED_TO_ZERO) is not fit.is_zero:
                    raise malformed(op, f"{step.name} is not in a native.table with such polynomials")


def failure_of(op: Operation) -> tuple[Any, ...]:
    """Return the rule of a check, and the values of its error."""
    rule, values = op.attributes["rule"].value, tuple([attribute.value for attribute in op.attributes["values"]])
    if (rule, [*map(type, values)]) not in (("mask", []), ("bounds", [str, int, int, bool])):
        raise malformed(op, f"there is no rule '{rule}' with {len(values)} such values")
    return rule, *values


def limits_of(op: Operation) -> Limits:
    """Return the check of an operation as a routine."""
    mask, limits = (mask_of(op.attributes[name]) for name in ("mask", "limits"))
    extents, symbols = tuple(_numbers(op, "extents")), len(op.operands)
    for constraint in (*mask, *limits):
        if any(axis >= len(extents) for axis, _ in constraint.form.axes) or any(
                position >= symbols for position, _ in constraint.form.symbols):
            raise malformed(op, "a form uses an axis or a symbol that the operation does not have")
    return Limits(extents, mask, limits, symbols)


def _numbers(op: Operation, name: str) -> list[int]:
    values = op.attributes[name]
    if not isinstance(values, ir.DenseI64ArrayAttr):
        raise malformed(op, f"attribute '{name}' is not an array<i64: ...>")
    return list(values)


def _number(op: Operation, name: str) -> int:
    value = op.attributes[name]
    if not isinstance(value, ir.IntegerAttr | ir.BoolAttr):
        raise malformed(op, f"attribute '{name}' is not an integer")
    return int(value.value)


def _pairs(op: Operation, name: str) -> list[tuple[int, int]]:
    try:
        pairs = [read_value(pair, tuple) for pair in elements(op.attributes[name])]
        return [(number, value) for number, value in pairs]
    except ValueError:
        raise malformed(op, f"attribute '{name}' is not an array of pairs of integers") from None

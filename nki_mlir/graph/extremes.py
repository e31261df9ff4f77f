# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites an arg-max or arg-min, a reduction of values and positions together, as two reductions.

before:  %m, %p = stablehlo.reduce(%x init: %start), (%i init: %first) { the greater value, its least position }
after:   %m = stablehlo.reduce(%x init: %start) applies maximum
         %p = stablehlo.reduce(select(%x == %m, %i, far)) applies minimum
         %p = minimum(%p, select(%start == %m, %first, far))    (left out where it changes nothing)

Bodies differ between frameworks, so the pass evaluates a body on values and positions in each order: it rewrites those
that select as described. A NaN is the extreme value.
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import inf

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Block, Module, Operation, Type, Value, ir, operations_of
from nki_mlir.graph.tensor_values import constant_splat
from nki_mlir.graph.upstream import define, exchange_for_call

Sampled = tuple[str, int]               # "value", "position" or "truth", and the number
COMPARED: dict[str, Callable[[int, int], bool]] = {
    "EQ": int.__eq__, "NE": int.__ne__, "GE": int.__ge__, "GT": int.__gt__, "LE": int.__le__, "LT": int.__lt__}
COMBINED: dict[str, Callable[[int, int], int]] = {
    "minimum": min, "maximum": max, "and": int.__and__, "or": int.__or__, "xor": int.__xor__}


def rewrite_extremes(module: Module) -> None:
    """Rewrite reductions to the greatest or least value and its position."""
    for number, op in enumerate(operations_of(module, lambda name: name == "stablehlo.reduce")):
        direction = extreme_of(op)
        if direction is not None:
            name = f"position.{number}"
            define(module, _function(op, name, direction), op)
            exchange_for_call(op, name)


def _function(op: Operation, name: str, direction: str) -> str:
    """Return the text of a function of a reduction's operands: values, positions, and the initial value of each."""
    x, i, start, first, m, p = (str(v.type) for v in (*op.operands, *op.results))
    rank, (axis,) = ir.RankedTensorType(op.operands[0].type).rank, list(op.attributes["dimensions"])
    element = ir.RankedTensorType(op.operands[0].type).element_type
    far = (1 << ir.RankedTensorType(op.operands[1].type).element_type.width - 1) - 1
    sign = "SIGNED" if not isinstance(element, ir.IntegerType) or element.is_signless else "UNSIGNED"
    kind = sign if isinstance(element, ir.IntegerType) else "FLOAT"
    bools, truths = (k.replace(f"{element}>", "i1>") for k in (x, m))
    fn = "maximum" if direction == "GT" else "minimum"
    with_start = "" if starts_before_all(op, axis, direction) else f"""
  %ms = stablehlo.broadcast_in_dim %start, dims = [] : ({start}) -> {m}
  %starts_equal = stablehlo.compare EQ, %m, %ms, {kind} : ({m}, {m}) -> {truths}
  %starts_nan = stablehlo.compare NE, %ms, %ms, {kind} : ({m}, {m}) -> {truths}
  %starts = stablehlo.or %starts_equal, %starts_nan : {truths}
  %ps = stablehlo.broadcast_in_dim %first, dims = [] : ({first}) -> {p}
  %none = stablehlo.constant dense<{far}> : {p}
  %position = stablehlo.select %starts, %ps, %none : {truths}, {p}
  %q = stablehlo.minimum %p, %position : {p}"""
    return f"""
func.func private @"{name}"(%x: {x}, %i: {i}, %start: {start}, %first: {first}) -> ({m}, {p}) {{
  %m = stablehlo.reduce(%x init: %start) applies stablehlo.{fn} across dimensions = [{axis}] : ({x}, {start}) -> {m}
  %b = stablehlo.broadcast_in_dim %m, dims = [{", ".join(str(d) for d in range(rank) if d != axis)}] : ({m}) -> {x}
  %same = stablehlo.compare EQ, %x, %b, {kind} : ({x}, {x}) -> {bools}
  %nan = stablehlo.compare NE, %x, %x, {kind} : ({x}, {x}) -> {bools}
  %here = stablehlo.or %same, %nan : {bools}
  %far = stablehlo.constant dense<{far}> : {i}
  %places = stablehlo.select %here, %i, %far : {bools}, {i}
  %last = stablehlo.constant dense<{far}> : {first}
  %p = stablehlo.reduce(%places init: %last) applies stablehlo.minimum across dimensions = [{axis}]
    : ({i}, {first}) -> {p}{with_start}
  return %m, {"%q" if with_start else "%p"} : {m}, {p}
}}"""


def extreme_of(op: Operation) -> str | None:
    """Return GT or LT if a reduction selects the greater or lesser of two values and the lower position of two equal
    ones, else None."""
    if len(op.results) != 2 or len(list(op.attributes["dimensions"])) != 1 or str(
            ir.RankedTensorType(op.operands[1].type).element_type) not in ("i32", "i64"):
        return None
    samples = [(a, b) for a in product(range(2), repeat=2) for b in product(range(2), repeat=2)]
    selected = [evaluated(op.regions[0].blocks[0], (*a, *b)) for a, b in samples]
    for direction, sign in (("GT", -1), ("LT", 1)):
        better = [min(pair, key=lambda sample: (sign * sample[0], sample[1])) for pair in samples]
        if selected == [[("value", value), ("position", position)] for value, position in better]:
            return direction
    return None


def evaluated(block: Block, numbers: Sequence[int]) -> list[Sampled] | None:
    """Return the results of a body for a value, its position, another value and its position; None if it does anything
    but compare and select them."""
    kinds = ("value", "position", "value", "position")
    values: dict[Value, Sampled] = dict(zip(block.arguments, zip(kinds, numbers)))
    for entry in block.operations:
        op = entry.operation
        name, operands = op.name.removeprefix("stablehlo."), [values.get(v) for v in op.operands]
        if None in operands:
            return None
        sampled: list[Sampled] = operands                                            # type: ignore[assignment]
        if name == "return":
            return sampled
        *condition, (kind, a), (other_kind, b) = sampled if len(sampled) > 1 else sampled * 2
        if kind != other_kind:
            return None
        match name:
            case "select":
                values[op.results[0]] = (kind, a if condition[0][1] else b)
            case "compare":
                if "compare_type" in op.attributes and "TOTALORDER" in str(op.attributes["compare_type"]):
                    return None
                text = str(op.attributes["comparison_direction"])
                values[op.results[0]] = "truth", int(COMPARED[next(d for d in COMPARED if d in text)](a, b))
            case "not" if kind == "truth":
                values[op.results[0]] = "truth", 1 - a
            case "minimum" | "maximum" if kind != "truth":
                values[op.results[0]] = kind, COMBINED[name](a, b)
            case "and" | "or" | "xor" if kind == "truth":
                values[op.results[0]] = kind, COMBINED[name](a, b)
            case _:
                return None
    return None


def starts_before_all(op: Operation, axis: int, direction: str) -> bool:
    """Return whether the initial value of a reduction to the position of an extreme changes no result: it is the
    identity of the reduction, with position 0, and the positions are an iota along the axis."""
    _, positions, start, first = op.operands
    counts = defining(positions)
    if counts is None or counts.name != "stablehlo.iota" or counts.attributes["iota_dimension"].value != axis:
        return False
    kind = ir.RankedTensorType(start.type).element_type
    return splat_of(first) == 0 and splat_of(start) == first_of_all(kind, direction)


def splat_of(value: Value) -> float | None:
    """Return the number of a constant of one number, that of an integer without sign; None for another value."""
    attribute = constant_splat(value)
    if attribute is None:
        return None
    number = attribute.get_splat_value()
    if isinstance(number, ir.FloatAttr):
        return float(number.value)
    bits: int = number.type.width
    return int(ir.IntegerAttr(number).value) & (1 << bits) - 1


def first_of_all(kind: Type, direction: str) -> float:
    """Return the least number of a type (``LT``: the greatest), that of an integer without sign."""
    if not isinstance(kind, ir.IntegerType):
        return -inf if direction == "GT" else inf
    least = 1 << kind.width - 1 if kind.is_signless and kind.width > 1 else 0
    return least if direction == "GT" else (least - 1) & (1 << kind.width) - 1

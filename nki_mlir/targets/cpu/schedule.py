# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedules a nest: the order of its loops, the axis in lanes, the values in registers; its cost and its parts."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu.lanes import MOST_SHUFFLED
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand
from nki_mlir.waist.recognize import Fold, fold_of, integer_sums, product_of

# Operators of which several partial results may be kept and combined at the end.
ASSOCIATIVE = frozenset({"add", "multiply", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor",
                         "logical_and", "logical_or"})
WITH_32_REGISTERS = 16              # lanes of a host with 32 vector registers
# operators whose result does not depend on the order, and whose steps take three instructions
ORDERLESS = frozenset({"maximum", "minimum"})
LIGHT = 8                           # most steps of a body that is cheap enough for code to repeat it
UNROLLED = 4                        # partial results of a fold: they hide the latency of its operator


class Schedule(NamedTuple):
    """``order`` are the axes from the outermost loop to the innermost, parallel ones before reduced ones.

    ``carried`` are the outputs kept in registers over the reduced loops. ``folds`` is not empty if the vector axis is
    reduced: each lane then has separate partial results.
    """

    order: tuple[int, ...]
    vector: int | None
    lanes: int
    carried: tuple[int, ...] = ()
    folds: tuple[Fold, ...] = ()
    unroll: int = 1


def schedule(nest: Nest) -> Schedule:
    """Choose the cheapest vector axis by the cost of its loads and stores, and the order of the loops."""
    parallel = [a for a in range(len(nest.extents)) if a not in nest.reduced]
    reduced = sorted(nest.reduced)
    carried = tuple(integer_sums(nest)) if nest.mask else tuple(
        k for k, o in enumerate(nest.outputs) if reduced and not any(o.strides[a] for a in reduced))
    folds = folds_of(nest, carried)
    candidates = [*parallel, *(reduced if folds is not None and not nest.mask else ())]
    if not candidates:
        return Schedule((*parallel, *reduced), None, 1, carried)
    vector = min(candidates, key=lambda a: _cost(nest, a, carried))
    lanes = lanes_for(nest, vector)
    if vector in nest.reduced:
        order = (*parallel, *(a for a in reduced if a != vector), vector)
        unroll = 2 * UNROLLED if all(f.fn in ORDERLESS for f in folds or ()) else UNROLLED
        deep = nest.extents[vector] >= 2 * unroll * lanes and weight_of(nest) <= LIGHT
        if deep and has_wide_registers(nest) and nest.extents[vector] % (unroll * lanes) == 0:
            at_once = _registers_at_once(nest)
            return Schedule(order, vector, at_once * lanes, carried, folds or (), unroll // at_once)
        return Schedule(order, vector, lanes, carried, folds or (), unroll if deep else 1)
    outer_axes = [a for a in parallel if a != vector]
    inside = _inner_axis(nest, vector) if not reduced else None
    if inside is None:
        if not reduced and _is_a_chain(nest, vector, lanes):
            fits = has_wide_registers(nest) and nest.extents[vector] % (UNROLLED * lanes) == 0
            lanes *= _registers_at_once(nest) if fits else 2
        return Schedule((*outer_axes, vector, *reduced), vector, lanes, carried)
    lanes = _lanes_of_transpose(nest, vector, inside, lanes)
    return Schedule((*(a for a in outer_axes if a != inside), vector, inside), vector, lanes, carried)


def weight_of(nest: Nest) -> int:
    """Count the steps of the body except conversions, so that a nest on 16-bit floats has the same schedule as on
    float32."""
    return sum(step.kind != "convert" for step in nest.steps)


def has_wide_registers(nest: Nest) -> bool:
    """Return whether a register has room for 32 elements of an operand: one instruction then loads, narrows or stores
    two registers of float32. Sums keep their order, since partial results still have 16 lanes."""
    return host.lanes() == WITH_32_REGISTERS and any(
        o.dtype.itemsize == 2 and o.dtype.is_float for o in nest.operands)


def _registers_at_once(nest: Nest) -> int:
    """Return the number of registers that each step computes if operands have 16 bits. It is four for functions: their
    steps wait for each other, and the processor looks ahead only a limited number of instructions."""
    return UNROLLED if any(step.kind == "activation" for step in nest.steps) else 2


def _is_a_chain(nest: Nest, vector: int, lanes: int) -> bool:
    """Return whether most steps of a body wait for the previous step, as in functions and in conversions to narrow
    floats, and there are enough registers to run two such chains at a time."""
    functions = any(step.kind in ("activation", "lookup") or (step.kind == "convert" and step.dtype.itemsize < 4)
                    for step in nest.steps)
    return functions and lanes == host.lanes() == WITH_32_REGISTERS and nest.extents[vector] >= 2 * lanes and all(
        o.dtype.is_float and (o.strides[vector] in (0, 1) or _is_narrow_field(o, vector)) for o in nest.inputs) and all(
        o.dtype.is_float and o.strides[vector] in (0, 1) for o in nest.outputs) and not nest.mask


def _is_narrow_field(operand: Operand, axis: int) -> bool:
    """Return whether elements of 16 bits lie in records so short that whole registers load them."""
    return operand.dtype.itemsize == 2 and 1 < operand.strides[axis] <= MOST_SHUFFLED


def _lanes_of_transpose(nest: Nest, vector: int, inside: int, lanes: int) -> int:
    """Return twice the lanes for a transpose of elements of 16 or 8 bits: otherwise blocks have rows of half a cache
    line, and access each line twice."""
    is_narrow = not nest.steps and all(o.dtype.itemsize <= 2 for o in nest.operands)
    fits = lanes == host.lanes() == WITH_32_REGISTERS and min(nest.extents[vector], nest.extents[inside]) >= 2 * lanes
    return 2 * lanes if is_narrow and fits else lanes


def transposed_operands(nest: Nest, plan: Schedule) -> tuple[int, ...]:
    """Return the operands that are contiguous along the innermost axis, with lanes far apart: code reads blocks of them
    as rows.

    Return none if the vector axis is innermost, the body has many steps, or an output is also read.
    """
    if plan.vector is None or plan.order[-1] == plan.vector or nest.mask or weight_of(nest) > 2 * LIGHT:
        return ()
    inner, first_output = plan.order[-1], len(nest.inputs)
    transposed = tuple([k for k, o in enumerate(nest.operands)
                        if o.strides[inner] == 1 and abs(o.strides[plan.vector]) > MOST_SHUFFLED])
    reads_output = any(k >= first_output and nest.uses(nest.first_output + k - first_output) for k in transposed)
    return () if reads_output else transposed


def lanes_for(nest: Nest, axis: int) -> int:
    """Return the lanes for an axis: those of a register, or the next power of two above the extent of a short axis."""
    most = host.lanes()
    if not nest.steps and all(abs(o.strides[axis]) <= 1 for o in nest.operands):
        most = most * 4 // max(o.dtype.itemsize for o in nest.operands)         # a copy: whole registers of bytes
    extent = nest.extents[axis]
    return min(most, 1 << (extent - 1).bit_length())


def folds_of(nest: Nest, carried: tuple[int, ...]) -> tuple[Fold, ...] | None:
    """Return the carried outputs as folds by associative operators; None if one is not."""
    folds = [fold_of(nest, output) for output in carried]
    return tuple([f for f in folds if f]) if all(
        f is not None and not f.converts and f.fn in ASSOCIATIVE for f in folds) else None


def _cost(nest: Nest, axis: int, carried: tuple[int, ...]) -> float:
    """Estimate the instructions for one element, if the vector axis is ``axis``."""
    lanes, extent = lanes_for(nest, axis), nest.extents[axis]
    total = 0.1 * len(nest.steps) + sum(_access_cost(o, axis, lanes) for o in nest.inputs)
    depth = 1
    for a in nest.reduced:
        depth *= nest.extents[a]
    for k, output in enumerate(nest.outputs):
        if k not in carried:
            total += 1.2 * _access_cost(output, axis, lanes)
        elif axis not in nest.reduced:
            total += 2 * _access_cost(output, axis, lanes) / depth
        else:
            total += 12 / extent * lanes                # partial results are combined at the end of each row
    return total * -(-extent // lanes) / extent


def _access_cost(operand: Operand, axis: int, lanes: int) -> float:
    step = operand.strides[axis]
    if step in (0, 1):
        return 0.25 + 0.75 * step
    return float(step) if 1 < step <= MOST_SHUFFLED else float(lanes)


def _inner_axis(nest: Nest, vector: int) -> int | None:
    """Return the axis along which a transpose's source is contiguous: as the loop inside of the vector loop it reuses
    cache lines."""
    for operand in nest.inputs:
        if abs(operand.strides[vector]) > MOST_SHUFFLED:
            for axis, step in enumerate(operand.strides):
                if step == 1 and axis != vector:
                    return axis
    return None


def cost_of(nest: Nest) -> float:
    """Estimate the nanoseconds of a nest, to decide whether it is worth a second thread."""
    return 20 + nest.elements * (0.02 if product_of(nest) is not None else 0.05 + 0.03 * len(nest.steps))


def parts_of(nest: Nest, least: int, most: int, axis: int = 0) -> tuple[Nest, int, int] | None:
    """Divide the nest into equal parts along an axis. Return one part, the number of parts, and the extent of a part.

    Return None if no number of parts from ``least`` to ``most`` divides the axis, or if a part would have to know its
    number.
    """
    if nest.mask or not nest.extents or axis in nest.reduced or any(axis in dict(form.axes) for form in nest.forms):
        return None
    for count in range(least, most + 1):
        if nest.extents[axis] % count == 0:
            extent = nest.extents[axis] // count
            extents = (*nest.extents[:axis], extent, *nest.extents[axis + 1:])
            return replace(nest, extents=extents).simplified, count, extent
    return None


@lru_cache(1 << 12)
def reach_of(nest: Nest, operand: int) -> tuple[int, int]:
    """Return the first and last byte of an operand, relative to the address of its first element."""
    tile = nest.operands[operand]
    ends = [step * (extent - 1) for step, extent in zip(tile.strides, nest.extents)]
    size = tile.dtype.itemsize
    return size * sum(min(0, e) for e in ends), size * (sum(max(0, e) for e in ends) + 1) - 1


def dims_of(nest: Nest, operand: int) -> tuple[tuple[int, int], ...]:
    """Return the steps in bytes and the counts of an operand."""
    tile = nest.operands[operand]
    return tuple([(step * tile.dtype.itemsize, extent) for step, extent in zip(tile.strides, nest.extents)])


def adjacent_fields(nest: Nest, starts: Sequence[object]) -> tuple[tuple[int, int, int], ...]:
    """Return the inputs that the same vectors load, as fields of records, each as (number, number of the first input of
    its group in memory, elements between their starts)."""
    steps = {k: max(map(abs, o.strides), default=0) for k, o in enumerate(nest.inputs)}
    if sum(step > 1 for step in steps.values()) < 2 or nest.mask:
        return ()
    vector = schedule(nest).vector
    if vector is None:
        return ()
    groups: dict[object, list[tuple[int, int]]] = {}
    for k, operand in enumerate(nest.inputs):
        step, start = operand.strides[vector], starts[k]
        if 1 < step <= MOST_SHUFFLED and step.bit_count() == 1 and isinstance(start, Linear):
            record = step * operand.dtype.itemsize
            groups.setdefault((operand, start.symbols, start.const // record), []).append((start.const % record, k))
    return tuple([(k, members[0][1], (offset - members[0][0]) // nest.inputs[k].dtype.itemsize)
                  for members in map(sorted, groups.values()) if len(members) > 1 for offset, k in members])

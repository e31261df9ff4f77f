# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the roundings to narrow floats in a body that change no value, and the NaNs whose lower half is 0."""

from collections.abc import Collection

import numpy as np

from nki_mlir.scalar.dtypes import BFLOAT16, BOOL, FLOAT8_E8M0FNU, FLOAT32, DType
from nki_mlir.targets.cpu.schedule import Schedule, schedule
from nki_mlir.waist.nest import Nest, Step

EXTREMA = frozenset({"maximum", "minimum", "relu"})
ARITHMETIC = EXTREMA | {"add", "subtract", "multiply", "divide", "average", "abs", "negative", "square", "reciprocal",
                        "rsqrt"}
LEAST_VECTORS = 4           # in a shorter loop, repairs of the results take no longer than the repair of an input


def before_rounding(nest: Nest, step: Step) -> int | None:
    """If a step converts a value to float32 that was rounded from float32 to another float, return the value before the
    rounding; else None. Code rounds such a value in float32, and need not pack the narrow one."""
    narrow = nest.step(step.operands[0]) if step.kind == "convert" and step.dtype is FLOAT32 else None
    if narrow is None or narrow.kind != "convert" or not narrow.dtype.is_float or narrow.dtype is FLOAT32:
        return None
    wide, = narrow.operands
    return wide if nest.dtype_of(wide) is FLOAT32 else None


def values_read(nest: Nest, step: Step) -> tuple[int, ...]:
    """Return the values that the code of a step reads."""
    wide = before_rounding(nest, step)
    return step.operands if wide is None else (wide,)


def last_roundings(nest: Nest, dtype: DType) -> dict[int, Step]:
    """Return the roundings of float32 to a dtype whose results are only stored, by value."""
    read = {value for step in nest.steps for value in values_read(nest, step)}
    steps = ((value, nest.step(value)) for value in dict.fromkeys(nest.results) if value not in read)
    return {value: step for value, step in steps if step is not None and step.kind == "convert"
            and step.dtype is dtype and nest.dtype_of(step.operands[0]) is FLOAT32}


def index_roundings(nest: Nest) -> list[Step]:
    """Return the roundings of float32 to bfloat16 that only lookups in tables read. A table has the same element, or
    NaN, for each NaN of a sign."""
    read_otherwise = {*nest.results}.union(*[step.operands for step in nest.steps if step.kind != "lookup"])
    indices = {step.operands[0] for step in nest.steps if step.kind == "lookup"} - read_otherwise
    return [step for value in sorted(indices) if (step := nest.step(value)) is not None and step.kind == "convert"
            and step.dtype is BFLOAT16 and nest.dtype_of(step.operands[0]) is FLOAT32]


def stored_roundings(nest: Nest, plan: Schedule) -> frozenset[Step]:
    """Return the roundings of float32 to bfloat16 whose results are only stored, side by side along the lanes."""
    along_lanes = {output for output, operand in enumerate(nest.outputs)
              if output not in plan.carried and plan.vector is not None and operand.strides[plan.vector] == 1}
    elsewhere = {value for output, value in enumerate(nest.results) if output not in along_lanes}
    last = last_roundings(nest, BFLOAT16).keys() - elsewhere
    read_again = {step for value, step in enumerate(nest.steps, nest.first_step) if value not in last}
    return frozenset([step for value in last if (step := nest.step(value)) is not None]) - read_again


def roundings(nest: Nest) -> dict[int, tuple[int, DType]]:
    """Return the values that are rounded to a narrower dtype and read as float32 again: for each, the value before the
    rounding, and the narrow dtype."""
    widened = {value: (wide, nest.dtype_of(step.operands[0])) for value, step in enumerate(nest.steps, nest.first_step)
               if (wide := before_rounding(nest, step)) is not None}
    return {value: (wide, dtype) for value, (wide, dtype) in widened.items() if dtype.itemsize < FLOAT32.itemsize}


def is_representable(nest: Nest, value: int, dtype: DType) -> bool:
    """Return whether a narrow float represents a value of float32: a value that was widened from it, an extremum of
    representable values, the magnitude or negative of such a value, or its product with a truth value."""
    step = nest.step(value)
    if step is None or dtype is FLOAT8_E8M0FNU:     # FLOAT8_E8M0 has neither 0 nor negative numbers
        return False
    if step.kind == "constant":
        number = np.float32(step.number)
        with np.errstate(over="ignore"):                    # a number beyond the dtype's range becomes infinity
            return bool(number.astype(dtype.numpy).astype(np.float32) == number)
    if step.kind == "convert":
        return nest.dtype_of(step.operands[0]) is dtype
    if step.kind != "alu" or step.name not in EXTREMA | {"abs", "negative", "multiply"}:
        return False
    keeps_values = step.name in EXTREMA | {"abs", "negative"}
    operands = [operand for operand in step.operands if keeps_values or not _is_truth_value(nest, operand)]
    return (keeps_values or len(operands) < 2) and all(is_representable(nest, operand, dtype) for operand in operands)


def has_short_nans(nest: Nest, value: int, shortened: Collection[int] = ()) -> bool:
    """Return whether each NaN of a float32 has zeros in its lower half. This holds for bfloat16, constants, inputs that
    are ``shortened``, and results of arithmetic and exp, which propagate an operand's NaN or create the host's default
    one.

    A rounding inside of a body leaves NaN unchanged, so its NaN is like that before it. """
    step = nest.step(value)
    if step is None:
        return value in shortened
    if step.kind == "convert":
        source, wide = nest.dtype_of(step.operands[0]), before_rounding(nest, step)
        return source.is_integer or (source is BFLOAT16 and (wide is None or has_short_nans(nest, wide, shortened)))
    return step.kind == "constant" or (_passes_on_nans(step) and all(
        has_short_nans(nest, operand, shortened) for operand in step.operands))


def keeping_nans(nest: Nest) -> frozenset[int]:
    """Return the values that code may round to bfloat16 without a repair of NaN, because the lower half of each of
    their NaN is 0."""
    wide_values = [wide for wide, dtype in roundings(nest).values() if dtype is BFLOAT16]
    wide_values += [step.operands[0] for step in last_roundings(nest, BFLOAT16).values()]
    wide_values += [step.operands[0] for step in index_roundings(nest)]
    shortened = shortened_inputs(nest) if wide_values else ()
    return frozenset([wide for wide in wide_values if has_short_nans(nest, wide, shortened)])


def shortened_inputs(nest: Nest) -> frozenset[int]:
    """Return the inputs whose NaN lose their lower half before the loop over vectors: numbers of float32 that are
    constant in the loop, serve several vectors, and that only arithmetic and exp read."""
    plan = schedule(nest)
    if plan.vector is None or nest.mask or nest.extents[plan.vector] < LEAST_VECTORS * plan.lanes:
        return frozenset()
    inner_axes = plan.order[plan.order.index(plan.vector):]
    bits_read = {*nest.results}.union(*[step.operands for step in nest.steps if not _passes_on_nans(step)])
    return frozenset([k for k, operand in enumerate(nest.inputs) if operand.dtype is FLOAT32 and k not in bits_read
                      and not any(operand.strides[axis] for axis in inner_axes)])


def _passes_on_nans(step: Step) -> bool:
    """Return whether each NaN of a result is an operand's, or the host's default one."""
    return (step.kind == "alu" and step.name in ARITHMETIC) or (step.kind == "activation" and step.name == "exp")


def _is_truth_value(nest: Nest, value: int) -> bool:
    """Return whether a float32 is 0 or 1, converted from a bool."""
    step = nest.step(value)
    return step is not None and step.kind == "convert" and nest.dtype_of(step.operands[0]) is BOOL

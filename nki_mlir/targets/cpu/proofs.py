# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Proves the bounds of accesses when a program is assembled; the program checks the others when it runs.

No operation touches memory outside of its buffers.

The module repeats the proofs of capture, because a module of MLIR may come from a file. A proof is an
interval over the values of loop variables, program ids and axes, with the conditions of enclosing branches and the
mask.
"""

from collections.abc import Sequence
from typing import NamedTuple

from nki_mlir.dialects.access import Constraint, Linear, Mask
from nki_mlir.dialects.enclosing_conditions import interval_given
from nki_mlir.targets.cpu.function import Ranges
from nki_mlir.targets.cpu.routines import Limits
from nki_mlir.targets.cpu.schedule import reach_of
from nki_mlir.targets.cpu.values import Values
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.overlap import ByteRegion

AXES = 1 << 48                      # symbols of a proof from this number on are axes


class RuntimeCheck(NamedTuple):
    """A check at run time: a form of slots that must be >= 0, or a routine over the active elements.

    ``upper`` says that it checks the last element, not the first.
    """

    view: ByteRegion
    itemsize: int
    value: Linear | None = None
    upper: bool = False
    routine: Limits | None = None
    arguments: tuple[Linear, ...] = ()


def open_checks(values: Values, nest: Nest, views: Sequence[ByteRegion], symbols: Sequence[Linear]
                ) -> list[RuntimeCheck]:
    """Return the checks that an operation needs because no proof covers them; usually none."""
    checks: list[RuntimeCheck] = []
    for k, view in enumerate(views):
        operand = nest.operands[k]
        size, item = view.size, operand.dtype.itemsize
        low, high = reach_of(nest, k)
        if not view.offset.symbols and view.offset.const + low >= 0 and view.offset.const + high < size:
            continue
        lower_bound, upper_bound = view.offset.plus(Linear(low)), Linear(size - 1 - high).plus(view.offset, -1)
        if all(interval_given(form, values.facts, values.ranges)[0] >= 0 for form in (lower_bound, upper_bound)):    # type: ignore[arg-type]
            continue
        if nest.mask:
            checks += _under_mask(values, nest, k, view, symbols)
        else:
            checks += [RuntimeCheck(view, item, lower_bound), RuntimeCheck(view, item, upper_bound, True)]
    return checks


def _under_mask(values: Values, nest: Nest, k: int, view: ByteRegion, symbols: Sequence[Linear]) -> list[RuntimeCheck]:
    """Return the checks of an operand of an operation with a mask."""
    operand = nest.operands[k]
    item = operand.dtype.itemsize
    ranges = Ranges(values.ranges)
    ranges |= {AXES + axis: (0, extent - 1) for axis, extent in enumerate(nest.extents)}
    position = view.offset.plus(Linear(0, tuple((AXES + a, s * item) for a, s in enumerate(operand.strides) if s)))
    upper_bound = Linear(view.size - item).plus(position, -1)
    facts = [*values.facts, *(f for c in nest.mask for f in _as_facts(c, symbols))]
    if all(interval_given(form, facts, ranges)[0] >= 0 for form in (position, upper_bound)):      # type: ignore[arg-type]
        return []
    axes = tuple((a, s) for a, s in enumerate(operand.strides) if s)
    shift = len(symbols)                      # the offset in elements is one more symbol of the routine
    limits: Mask = (Constraint(Linear(0, ((shift, 1),), axes)),
                    Constraint(Linear(view.size // item - 1, ((shift, -1),), tuple((a, -s) for a, s in axes))))
    routine = Limits(nest.extents, nest.mask, limits, shift + 1)
    return [RuntimeCheck(view, item, routine=routine, arguments=(*symbols, _in_elements(view.offset, item)))]


def _as_facts(constraint: Constraint, symbols: Sequence[Linear]) -> list[Linear]:
    """Rewrite a constraint over axes and an operation's symbols as forms of slots and axes that are >= 0."""
    form = Linear(constraint.form.const, tuple((AXES + a, c) for a, c in constraint.form.axes))
    for position, c in constraint.form.symbols:
        form = form.plus(symbols[position], c)
    return [form, Linear().plus(form, -1)] if constraint.equal else [form]


def _in_elements(form: Linear, itemsize: int) -> Linear:
    return Linear(form.const // itemsize, tuple((slot, c // itemsize) for slot, c in form.symbols))

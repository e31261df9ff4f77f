# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The forms of code that passes choose for a nest, and the requirements of each form.

``words`` loads pairs of bfloat16 as words, ``powers`` computes exp by sixteenths of powers, ``zeros`` looks for
denormals only where a result of rounding to bfloat16 is 0, ``compares`` folds extrema of 16-bit floats on their bits,
``nans`` repairs no NaN that roundings to bfloat16 keep anyway, ``rounds`` rounds the values of a body to bfloat16 by
the host's instruction before one test for denormals, ``dots`` rounds them by sums of products of words, ``extrema``
leaves out repairs of maxima and minima, ``delays`` rounds and stores results one iteration later, ``halves`` computes
in registers of 32 bytes.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from nki_mlir.dialects import native
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32
from nki_mlir.targets.cpu.addressed_nest import AddressedNest, with_memory
from nki_mlir.targets.cpu.contraction import contraction_of
from nki_mlir.targets.cpu.delayed_stores import delayed_outputs
from nki_mlir.targets.cpu.extrema import folded_extrema, unrepaired
from nki_mlir.targets.cpu.narrow_extrema import narrow_extrema
from nki_mlir.targets.cpu.roundings import keeping_nans, roundings
from nki_mlir.targets.cpu.schedule import WITH_32_REGISTERS, schedule
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest

IN_ANY_REGISTERS = frozenset({"add", "subtract", "multiply", "square"})


class CodeForm(NamedTuple):
    """``is_possible`` tells whether code of a nest can have the form; otherwise an error names the requirement that the
    nest does not meet."""

    mark: str
    is_possible: Callable[[Nest], bool]
    requirement: str


def can_load_words(nest: Nest) -> bool:
    """Return whether the elements of each operand in lanes are bfloat16 side by side, and no step depends on the number
    of a lane."""
    plan = schedule(nest)
    if plan.vector is None or plan.order[-1] != plan.vector or plan.lanes % (2 * WITH_32_REGISTERS) or nest.mask:
        return False
    in_lanes = [o for o in nest.operands if o.strides[plan.vector]]
    return host.lanes() == WITH_32_REGISTERS and any(step.kind == "convert" for step in nest.steps) and all(
        o.strides[plan.vector] == 1 and o.dtype is BFLOAT16 for o in in_lanes) and not any(
        step.kind == "position" for step in nest.steps)


def can_select_powers(nest: Nest) -> bool:
    return host.lanes() == WITH_32_REGISTERS and any(
        step.kind == "activation" and step.name == "exp" for step in nest.steps)


def can_test_zeros(nest: Nest) -> bool:
    return host.multiplies_pairs() and any(step.kind == "convert" and step.dtype is BFLOAT16 for step in nest.steps)


def can_compare_words(nest: Nest) -> bool:
    return bool(narrow_extrema(nest, schedule(nest)))


def can_round_untested(nest: Nest) -> bool:
    """Return whether a body reads a rounded value again as float32, and lanes fill pairs of registers."""
    plan = schedule(nest)
    rounds = any(dtype is BFLOAT16 for _, dtype in roundings(nest).values())
    return host.multiplies_pairs() and rounds and plan.lanes % (2 * WITH_32_REGISTERS) == 0 and (
        not nest.mask and plan.vector is not None)


def can_add_words(nest: Nest) -> bool:
    plan = schedule(nest)
    return host.adds_word_products() and plan.vector is not None and plan.lanes % WITH_32_REGISTERS == 0 and any(
        dtype is BFLOAT16 for _, dtype in roundings(nest).values())


def can_simplify_extrema(nest: Nest) -> bool:
    """Return whether an extremum has a repair that changes no result, or that a fold needs only at its end."""
    return any(unrepaired(nest)) or bool(folded_extrema(nest, schedule(nest).carried))


def can_delay_stores(nest: Nest) -> bool:
    return bool(delayed_outputs(nest, schedule(nest)))


def can_halve(nest: Nest) -> bool:
    """Return whether a nest stores vectors, and the code of its steps has no instruction of the host that needs
    registers of 64 bytes."""
    plan = schedule(nest)
    return host.lanes() == WITH_32_REGISTERS and plan.vector is not None and not (nest.mask or nest.reduced) and all(
        o.strides[plan.vector] in (0, 1) for o in nest.operands) and all(
        step.kind == "constant" or (step.kind == "alu" and step.name in IN_ANY_REGISTERS and step.dtype is FLOAT32)
        for step in nest.steps)


CODE_FORMS = {form.mark.removeprefix("native."): form for form in (
    CodeForm(native.WORDS, can_load_words, "load whole vectors of bfloat16"),
    CodeForm(native.POWERS, can_select_powers, "compute exp, or this host has no instruction that selects powers"),
    CodeForm(native.ZEROS, can_test_zeros, "round to bfloat16, or this host has no instruction for it"),
    CodeForm(native.COMPARES, can_compare_words, "fold whole registers of 16-bit floats to a maximum or minimum"),
    CodeForm(native.NANS, lambda nest: bool(keeping_nans(nest)), "round to bfloat16 what arithmetic on it computes"),
    CodeForm(native.ROUNDS, can_round_untested, "round pairs of registers to bfloat16 and read them as float32"),
    CodeForm(native.DOTS, can_add_words, "round vectors to bfloat16 and read them as float32"),
    CodeForm(native.EXTREMA, can_simplify_extrema, "compute extrema of float32 of which a repair shows in no result"),
    CodeForm(native.DELAYS, can_delay_stores, "round vectors to bfloat16 in its innermost loop"),
    CodeForm(native.HALVES, can_halve, "copy, add, subtract or multiply vectors of float32 side by side"))}


def can_have(routine: object, form: str) -> bool:
    """Return whether a routine is a nest whose code can have a form. ``contraction.py`` emits products, without
    forms."""
    if not isinstance(routine, Nest | AddressedNest):
        return False
    nest = with_memory(routine).nest
    return CODE_FORMS[form].is_possible(nest) and contraction_of(nest) is None


def with_form(routine: Nest | AddressedNest, form: str) -> AddressedNest:
    """Return the nest in a form that its code can have."""
    addressed = with_memory(routine)
    return replace(addressed, forms=tuple([name for name in CODE_FORMS if name in (*addressed.forms, form)]))


def with_instructions(nest: Nest) -> Nest | AddressedNest:
    """Return the nest with the forms that passes choose for its functions. Code that computes a table then has the bits
    of a kernel's code, and measured code takes the same time."""
    routine: Nest | AddressedNest = nest
    for form in ("powers", "zeros"):
        routine = with_form(routine, form) if can_have(routine, form) else routine
    return routine

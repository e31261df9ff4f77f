# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise functions of tiles."""

from math import inf

from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    UINT8,
    UINT16,
    UINT32,
    promote,
)

from ..beta import BetaWriter, kind, rule
from ..writer import FLOATS, INTEGERS, Facts, facts_of
from .operands import BINARY, BITS, OPERATORS, ULP, UNARY, number, result, usual


@rule(4)
def binary(w: BetaWriter):
    op = w.pick(*BINARY)
    a = w.operand(None, w.dtypes)
    w.note(f"nl.{op}", f"dtype.{a.dtype.name}")
    if w.maybe(3):
        text, facts = number(w)
        other = facts
        natural = promote(a.dtype, float(text) if "." in text else int(text))
        left, right = w.pick((a.text, text), (text, a.text))
        integers = a.dtype.is_integer and "." not in text
    else:
        shape = w.pick(a.shape, a.shape, (a.shape[0], *(1 for _ in a.shape[1:])), (1, *a.shape[1:]))
        b = w.operand(shape, w.dtypes)
        other, left, right, natural = b.facts, a.text, b.text, promote(a.dtype, b.dtype)
        integers = a.dtype.is_integer and b.dtype.is_integer
    if op == "divide" and integers:
        natural = FLOAT32
    natural = UINT8 if natural is BOOL else natural
    if ALU[op].group in ("comparison", "logical"):
        natural = BOOL
    if ALU[op].ulp:
        return w.inexact(f"nl.{op}({left}, {right}, dtype=nl.float32{w.mask(a.shape)})", a.shape, FLOAT32,
                         (2 * ALU[op].ulp + 2) * ULP)
    dtype, kwarg = result(w, natural, 3)
    computed = facts_of(op, a.facts, other)
    w.let(f"nl.{op}({left}, {right}{kwarg}{w.mask(a.shape)})", a.shape, dtype, computed.cast(dtype))


@rule()
def operator(w: BetaWriter):
    sign = w.pick(*OPERATORS)
    a = w.operand(None, w.dtypes)
    b = w.operand(a.shape, w.dtypes)
    natural = promote(a.dtype, b.dtype)
    dtype = BOOL if ALU[OPERATORS[sign]].group == "comparison" else UINT8 if natural is BOOL else natural
    w.let(f"{a.text} {sign} {b.text}", a.shape, dtype, facts_of(OPERATORS[sign], a.facts, b.facts).cast(dtype))


@rule()
def promoted(w: BetaWriter):
    """Operands of one kind and of two sizes; nobody asks for a dtype."""
    kinds = (INT8, INT16, INT32), (UINT8, UINT16, UINT32), (FLOAT8_E5M2, BFLOAT16, FLOAT32), (FLOAT16, FLOAT32)
    choices = list(w.pick(*kinds))
    one = choices.pop(w.between(0, len(choices) - 1))
    a, b = (w.operand((w.P, w.F), (dtype,), kind="small") for dtype in (one, w.pick(*choices)))
    dtype = promote(a.dtype, b.dtype)
    w.note("promoted")
    total = w.let(f"nl.add({a.text}, {b.text})", a.shape, dtype, facts_of("add", a.facts, b.facts).cast(dtype))
    w.emit(f"assert {total.text}.dtype == {kind(dtype)}")


@rule(2)
def bits(w: BetaWriter):
    op = w.pick(*BITS)
    a = w.operand(None, usual(d for d in INTEGERS if d is not BOOL))
    w.note(f"nl.{op}", f"dtype.{a.dtype.name}")
    if w.maybe():
        other = str(w.between(0, 6))
    elif ALU[op].group == "shift":
        other = w.fresh(a.shape, a.dtype, "amount").text
    else:
        other = w.operand(a.shape, (a.dtype,)).text
    w.let(f"nl.{op}({a.text}, {other}, dtype={kind(a.dtype)}{w.mask(a.shape)})", a.shape, a.dtype, Facts(2.0 ** 32, 1).cast(a.dtype))


@rule()
def invert(w: BetaWriter):
    a = w.operand(None, usual(d for d in INTEGERS if d is not BOOL))
    w.note("nl.invert")
    w.let(f"nl.invert({a.text}{w.mask(a.shape)})", a.shape, a.dtype, Facts(2.0 ** 32, 1).cast(a.dtype))


@rule(4)
def unary(w: BetaWriter):
    fn = w.pick(*UNARY)
    w.note(f"nl.{fn}")
    table = ACTIVATIONS.get(fn)
    if fn in ALU and ALU[fn].arity == 1 and not ALU[fn].ulp:
        table = None
    elif table is not None and table.ulp <= 0.5:
        table = None
    if table is None:
        a = w.operand(None, w.dtypes)
        dtype, kwarg = result(w, a.dtype, 2)
        facts = {"abs": a.facts, "negative": a.facts, "relu": a.facts, "sign": Facts(1, 1),
                 "square": Facts(a.facts.bound ** 2 if a.facts.bound < inf else inf, a.facts.unit ** 2),
                 "floor": Facts(a.facts.bound + 1, 1), "ceil": Facts(a.facts.bound + 1, 1),
                 "trunc": Facts(a.facts.bound, 1), "identity": a.facts}.get(fn, Facts())
        if a.facts.bound == inf:
            facts = Facts()
        w.note(f"dtype.{dtype.name}")
        return w.let(f"nl.{fn}({a.text}{kwarg}{w.mask(a.shape, often=w.maybe())})", a.shape, dtype, facts.cast(dtype))
    a = w.operand(None, w.dtypes, lambda t: t.facts.bound <= 40, "small")
    return w.inexact(f"nl.{fn}({a.text}, dtype=nl.float32{w.mask(a.shape, often=w.maybe())})", a.shape, FLOAT32,
                     (2 * table.ulp + 2) * ULP, 2 * table.absolute)


@rule()
def logical_not(w: BetaWriter):
    a = w.operand(None, w.dtypes)
    w.note("nl.logical_not")
    w.let(f"nl.logical_not({a.text}{w.mask(a.shape)})", a.shape, BOOL, Facts(1, 1))


@rule(2)
def copy(w: BetaWriter):
    a = w.operand(None, w.dtypes)
    dtype, kwarg = result(w, a.dtype)
    name, mask = w.pick("nl.copy", "nisa.tensor_copy"), w.mask(a.shape)
    w.note(name, f"dtype.{dtype.name}")
    facts = a.facts if dtype is a.dtype else a.facts.cast(dtype)
    w.let(f"{name}({a.text}{kwarg}{mask})", a.shape, dtype, facts)


@rule()
def load_converted(w: BetaWriter):
    source = w.pick(*usual((*FLOATS, *INTEGERS)))
    source = FLOAT32 if source.name == "tfloat32" else source
    dtype = w.pick(*usual((*FLOATS, *INTEGERS)))
    name, facts = w.array(source, w.pick("small", "fraction", "wild"))
    shape = (w.P, w.F)
    w.note("nl.load", f"dtype.{dtype.name}")
    if w.maybe():
        w.let(f"nl.load({name}[0:{w.P}, 3:{3 + w.F}], dtype={kind(dtype)}{w.mask(shape)})", shape, dtype,
              facts.cast(dtype))
    else:
        w.let(f"nl.load({name}[nl.arange({w.P})[:, None] + 2, nl.arange({w.F})[None, :] * 2 + 1], "
              f"dtype={kind(dtype)}{w.mask(shape)})", shape, dtype, facts.cast(dtype))


@rule()
def where(w: BetaWriter):
    a, b = w.operand(None, w.dtypes), None
    condition = w.operand(a.shape, w.dtypes)
    w.note("nl.where")
    if w.maybe(3):
        text, facts = number(w)
        natural = promote(a.dtype, float(text) if "." in text else int(text))
    else:
        b = w.operand(a.shape, w.dtypes)
        text, facts, natural = b.text, b.facts, promote(a.dtype, b.dtype)
    natural = UINT8 if natural is BOOL else natural
    dtype, kwarg = result(w, natural)
    w.let(f"nl.where({condition.text}, {a.text}, {text}{kwarg}{w.mask(a.shape)})", a.shape, dtype,
          a.facts.join(facts).cast(dtype))

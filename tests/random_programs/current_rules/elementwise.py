# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise functions of tiles, and patterns of numbers."""

from nki_mlir.language.current import language as nl
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32, UINT8, UINT16, UINT32

from ..beta import kind
from ..current import CurrentWriter, rule
from ..writer import WIDE, Facts, facts_of
from .operands import ANY_BITS, BITS, BITWISE, EXACT, PLAIN, ULP, UNARY, WORDS, column, number


@rule(3)
def tensor_tensor(w: CurrentWriter):
    a = w.operand(None, w.dtypes)
    b = w.operand(a.shape, w.dtypes)
    op, dtype = w.pick(*EXACT), w.pick(*PLAIN)
    w.note("nisa.tensor_tensor", f"alu.{op}", f"dtype.{dtype.name}")
    w.into(f"nisa.tensor_tensor(DST, {a.text}, {b.text}, nl.{op})", a.shape, dtype,
           facts_of(op, a.facts, b.facts).cast(dtype))


@rule()
def tensor_tensor_bits(w: CurrentWriter):
    a = w.operand(None, WORDS)
    op = w.pick(*BITS)
    b = w.fresh(a.shape, a.dtype, "amount") if ALU[op].group == "shift" else w.operand(a.shape, (a.dtype,))
    w.note("nisa.tensor_tensor", f"alu.{op}")
    w.into(f"nisa.tensor_tensor(DST, {a.text}, {b.text}, nl.{op})", a.shape, a.dtype, ANY_BITS.cast(a.dtype))


@rule(3)
def tensor_scalar(w: CurrentWriter):
    a = w.operand(None, w.dtypes)
    op0, op1, dtype = w.pick(*EXACT), w.pick(None, *EXACT), w.pick(*PLAIN)
    (text0, facts0), (text1, facts1) = column(w, a.shape[0]), column(w, a.shape[0])
    facts = facts_of(op0, a.facts, facts0)
    more = f", reverse0={w.maybe()}"
    if op1 is not None:
        facts = facts_of(op1, facts, facts1)
        more += f", op1=nl.{op1}, operand1={text1}, reverse1={w.maybe()}"
    w.note("nisa.tensor_scalar", f"alu.{op0}")
    w.into(f"nisa.tensor_scalar(DST, {a.text}, nl.{op0}, {text0}{more})", a.shape, dtype, facts.cast(dtype))


@rule()
def tensor_scalar_bits(w: CurrentWriter):
    a = w.operand(None, BITWISE)
    op0, op1 = w.pick(*BITS), w.pick(*BITS)
    w.note("nisa.tensor_scalar", f"alu.{op0}", f"alu.{op1}")
    w.into(f"nisa.tensor_scalar(DST, {a.text}, nl.{op0}, {w.between(0, 5)}, op1=nl.{op1}, operand1={w.between(0, 3)})",
           a.shape, a.dtype, ANY_BITS.cast(a.dtype))


@rule()
def scalar_tensor_tensor(w: CurrentWriter):
    a = w.operand(None, w.dtypes)
    b = w.operand(a.shape, w.dtypes)
    op0, op1, dtype = w.pick(*EXACT), w.pick(*EXACT), w.pick(*PLAIN)
    text0, facts0 = column(w, a.shape[0])
    w.note("nisa.scalar_tensor_tensor")
    w.into(f"nisa.scalar_tensor_tensor(DST, {a.text}, nl.{op0}, {text0}, nl.{op1}, {b.text}, reverse0={w.maybe()}, "
           f"reverse1={w.maybe()})", a.shape, dtype,
           facts_of(op1, facts_of(op0, a.facts, facts0), b.facts).cast(dtype))


@rule(2)
def functions(w: CurrentWriter):
    """The nl functions of two tiles."""
    a = w.operand(None, w.dtypes)
    op = w.pick(*(n for n in EXACT if callable(getattr(nl, n)) and n not in ("abs_max", "abs_min")))
    dtype = w.pick(*PLAIN)
    w.note(f"nl.{op}")
    if w.maybe():
        other, facts = number(w)
    else:
        b = w.operand(a.shape, w.dtypes)
        other, facts = b.text, b.facts
    w.let(f"nl.{op}({a.text}, {other}, dtype={kind(dtype)})", a.shape, dtype, facts_of(op, a.facts, facts).cast(dtype))


@rule(2)
def unary(w: CurrentWriter):
    fn = w.pick(*UNARY)
    w.note(f"nl.{fn}")
    table = ACTIVATIONS[fn]
    if table.ulp <= 0.5:
        a, dtype = w.operand(None, w.dtypes), w.pick(*PLAIN)
        return w.let(f"nl.{fn}({a.text}, dtype={kind(dtype)})", a.shape, dtype, Facts().cast(dtype))
    a = w.operand(None, WIDE, lambda t: t.facts.bound <= 40, "small")
    return w.inexact(f"nl.{fn}({a.text}, dtype=nl.float32)", a.shape, FLOAT32, (2 * table.ulp + 2) * ULP,
                     2 * table.absolute)


@rule(2)
def activation(w: CurrentWriter):
    fn = w.pick(*(n for n in UNARY if ACTIVATIONS[n].native))
    a = w.operand(None, WIDE, lambda t: t.facts.bound <= 16, "small")
    w.note("nisa.activation", f"activation.{fn}")
    bias = ""
    if w.maybe():
        bias = f", bias={w.operand((a.shape[0], 1), (FLOAT32, BFLOAT16, FLOAT16), lambda t: t.facts.bound < 16).text}"
    text = f"nisa.activation(DST, nl.{fn}, {a.text}{bias}{w.pick('', ', scale=0.5', ', scale=-2.0')})"
    table = ACTIVATIONS[fn]
    if table.ulp <= 0.5:
        return w.into(text, a.shape, FLOAT32, Facts())
    return w.rounded(text, a.shape, (2 * table.ulp + 2) * ULP, 2 * table.absolute)


@rule()
def activate2(w: CurrentWriter):
    a = w.operand(None, WIDE)
    fn = w.pick("copy", "relu", "abs", "prelu")
    op0, op1 = w.pick(("multiply", "add"), ("multiply", "subtract"), ("add", "bypass"), ("subtract", "bypass"))
    w.note("nisa.activate2")
    second = "None" if op1 == "bypass" else column(w, a.shape[0])[0]
    w.into(f"nisa.activate2(DST, nl.{fn}, {a.text}, {column(w, a.shape[0])[0]}, {second}, nl.{op0}, nl.{op1}, "
           f"relu_param={w.pick(0.0, 0.25)})", a.shape, FLOAT32, Facts())


@rule()
def exponential(w: CurrentWriter):
    a = w.operand((w.P, w.F), WIDE, lambda t: t.facts.bound <= 16, "small")
    w.note("nisa.exponential")
    w.rounded(f"nisa.exponential(DST, {a.text}, max_value={w.pick(0.0, 2.0)})", a.shape, 8 * ULP)


@rule()
def copies(w: CurrentWriter):
    a, dtype = w.operand(None, w.dtypes), w.pick(*PLAIN)
    w.note("nisa.tensor_copy", f"dtype.{dtype.name}")
    w.into(f"nisa.tensor_copy(DST, {a.text})", a.shape, dtype, a.facts.cast(dtype))


@rule()
def reciprocal(w: CurrentWriter):
    a = w.operand(None, w.dtypes)
    w.note("nisa.reciprocal")
    w.into(f"nisa.reciprocal(DST, {a.text})", a.shape, FLOAT32, Facts())


@rule()
def predicated(w: CurrentWriter):
    a = w.operand(None, tuple(d for d in PLAIN if d is not BOOL))
    flags = w.operand(a.shape, (UINT8, UINT16, UINT32))
    w.note("nisa.tensor_copy_predicated")
    w.into(f"nisa.tensor_copy_predicated(DST, {w.pick(a.text, a.text, '2')}, {flags.text}, reverse_pred={w.maybe()})",
           a.shape, a.dtype, a.facts.join(Facts(3, 1)), before=3)


@rule()
def memset(w: CurrentWriter):
    dtype, shape = w.pick(*w.dtypes), w.shape()
    w.note("nisa.memset")
    w.into(f"nisa.memset(DST, {w.pick(0, 1, 7)})", shape, dtype, Facts(7, 1).cast(dtype))


@rule()
def where(w: CurrentWriter):
    a = w.operand(None, w.dtypes)
    b, condition, dtype = w.operand(a.shape, w.dtypes), w.operand(a.shape, w.dtypes), w.pick(*PLAIN)
    w.note("nl.where")
    w.let(f"nl.where({condition.text}, {a.text}, {b.text}, dtype={kind(dtype)})", a.shape, dtype,
          a.facts.join(b.facts).cast(dtype))


def steps(w: CurrentWriter) -> str:
    if w.F % 2 == 0 and w.maybe():
        return f"[[{w.between(-3, 5)}, {w.F // 2}], [{w.between(-2, 3)}, 2]]"
    return f"[[{w.between(-3, 5)}, {w.F}]]"


def offset(w: CurrentWriter) -> str:
    """Return the offset of a pattern: a number, or a register."""
    return w.register(w.between(0, 4)) if w.maybe(3) else str(w.between(-9, 9))


@rule()
def iota(w: CurrentWriter):
    dtype = w.pick(*w.dtypes)
    w.note("nisa.iota", f"dtype.{dtype.name}")
    at = offset(w)
    w.into(f"nisa.iota(DST, {steps(w)}, offset={at}, channel_multiplier={w.between(-2, 5)})", (w.P, w.F), dtype,
           Facts(2000, 1).cast(dtype))


@rule()
def affine_select(w: CurrentWriter):
    a = w.operand((w.P, w.F), WIDE)
    w.note("nisa.affine_select")
    compare = w.pick("greater_equal", "greater", "equal", "not_equal", "less", "less_equal")
    at = offset(w)
    w.into(f"nisa.affine_select(DST, {steps(w)}, {w.between(-2, 2)}, {a.text}, -9.5, nl.{compare}, offset={at})",
           a.shape, a.dtype, a.facts.join(Facts(9.5, 0.5)).cast(a.dtype))

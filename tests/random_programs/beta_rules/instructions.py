# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise instructions."""

from nki_mlir.language.beta import language as nl
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32, INT32, UINT8, UINT16, UINT32, promote

from ..beta import BetaWriter, kind, rule
from ..writer import WIDE, Facts, Tile, facts_of
from .operands import BITS, EXACT, ULP, column, result, token


@rule(2)
def tensor_tensor(w: BetaWriter):
    a = w.operand(None, w.dtypes)
    b = w.operand(a.shape, w.dtypes)
    op = w.pick(*EXACT)
    w.note("nisa.tensor_tensor", f"alu.{op}")
    natural = promote(a.dtype, b.dtype)
    dtype, kwarg = result(w, UINT8 if natural is BOOL else natural)
    kwarg = kwarg or f", dtype={kind(dtype)}"
    w.let(f"nisa.tensor_tensor({a.text}, {b.text}, {token(op)}{kwarg}{w.mask(a.shape)})", a.shape, dtype,
          facts_of(op, a.facts, b.facts).cast(dtype))


@rule(2)
def tensor_scalar(w: BetaWriter):
    a = w.operand(None, w.dtypes)
    op0, op1 = w.pick(*EXACT), w.pick(None, *EXACT)
    w.note("nisa.tensor_scalar", f"alu.{op0}")
    (text0, facts0), (text1, facts1) = column(w, a.shape[0]), column(w, a.shape[0])
    facts = facts_of(op0, a.facts, facts0)
    more = f", reverse0={w.maybe()}"
    if op1 is not None:
        facts = facts_of(op1, facts, facts1)
        more += f", op1={token(op1)}, operand1={text1}, reverse1={w.maybe()}"
    dtype, kwarg = result(w, UINT8 if a.dtype is BOOL else a.dtype)
    kwarg = kwarg or f", dtype={kind(dtype)}"
    w.let(f"nisa.tensor_scalar({a.text}, {token(op0)}, {text0}{more}{kwarg}{w.mask(a.shape)})", a.shape, dtype,
          facts.cast(dtype))


@rule()
def tensor_scalar_bits(w: BetaWriter):
    a = w.operand(None, (INT32, UINT32, UINT16, UINT8))
    op0, op1 = w.pick(*BITS), w.pick(*BITS)
    w.note("nisa.tensor_scalar", f"alu.{op0}", f"alu.{op1}")
    w.let(f"nisa.tensor_scalar({a.text}, {token(op0)}, {w.between(0, 5)}, op1={token(op1)}, operand1={w.between(0, 3)}"
          f"{w.mask(a.shape)})", a.shape, a.dtype, Facts(2.0 ** 32, 1).cast(a.dtype))


@rule()
def scalar_tensor_tensor(w: BetaWriter):
    a = w.operand((w.P, w.F), w.dtypes)
    b = w.operand(a.shape, w.dtypes)
    op0, op1 = w.pick(*EXACT), w.pick(*EXACT)
    w.note("nisa.scalar_tensor_tensor")
    text0, facts0 = column(w, a.shape[0])
    facts = facts_of(op1, facts_of(op0, a.facts, facts0), b.facts)
    dtype, kwarg = result(w, FLOAT32)
    kwarg = kwarg or ", dtype=nl.float32"
    w.let(f"nisa.scalar_tensor_tensor(data={a.text}, op0={token(op0)}, operand0={text0}, op1={token(op1)}, "
          f"operand1={b.text}, reverse0={w.maybe()}, reverse1={w.maybe()}{kwarg}{w.mask(a.shape)})", a.shape, dtype,
          facts.cast(dtype))


@rule(2)
def activation(w: BetaWriter):
    fn = w.pick(*(n for n in ACTIVATIONS if hasattr(nl, n) and ACTIVATIONS[n].native))
    a = w.operand(None, WIDE, lambda t: t.facts.bound <= 16, "small")
    w.note("nisa.activation", f"activation.{fn}")
    more = ""
    if w.maybe():
        more += f", bias={w.operand((a.shape[0], 1), (FLOAT32, BFLOAT16, FLOAT16), lambda t: t.facts.bound < 16).text}"
    scale = w.pick("", ", scale=0.5", ", scale=-2.0")
    table = ACTIVATIONS[fn]
    text = f"nisa.activation(nl.{fn}, {a.text}{more}{scale}, dtype=nl.float32{w.mask(a.shape)})"
    if table.ulp <= 0.5:
        return w.let(text, a.shape, FLOAT32, Facts())
    # Where executors fuse scale and bias, a function may be asked at a neighboring place.
    return w.inexact(text, a.shape, FLOAT32, (2 * table.ulp + 2) * ULP, 2 * table.absolute)


@rule()
def reciprocal(w: BetaWriter):
    a = w.operand(None, w.dtypes)
    w.note("nisa.reciprocal")
    w.let(f"nisa.reciprocal({a.text}, dtype=nl.float32{w.mask(a.shape)})", a.shape, FLOAT32, Facts())


@rule()
def predicated(w: BetaWriter):
    a = w.operand(None, tuple(d for d in w.dtypes if d is not BOOL and d.name != "tfloat32"))
    flags = w.operand(a.shape, (UINT8, UINT16, UINT32))
    name = w.name()
    w.note("nisa.tensor_copy_predicated")
    source = w.pick(a.text, a.text, "2")
    w.emit(f"{name} = nl.full({a.shape}, 3, {kind(a.dtype)})")
    w.emit(f"nisa.tensor_copy_predicated(src={source}, dst={name}, predicate={flags.text}, "
           f"reverse_pred={w.maybe()}{w.mask(a.shape)})")
    w.keep(Tile(name, a.shape, a.dtype, a.facts.join(Facts(3, 1))))


@rule()
def affine_select(w: BetaWriter):
    a = w.operand((w.P, w.F), WIDE)
    p, f = f"nl.arange({w.P})[:, None]", f"nl.arange({w.F})[None, :]"
    names = [loop.name for loop in w.loops if loop.symbolic]
    extra = f" + {w.pick(*names)}" if names and w.maybe() else ""
    w.note("nisa.affine_select")
    condition = f"{p} * {w.between(-2, 2)} + {f} * {w.between(-1, 3)} {w.pick('<', '<=', '>', '>=', '==')} " \
                f"{w.between(-4, 20)}{extra}"
    dtype, kwarg = result(w, a.dtype)
    w.let(f"nisa.affine_select({condition}, {a.text}, -9.5{kwarg}{w.mask(a.shape)})", a.shape, dtype,
          a.facts.join(Facts(9.5, 0.5)).cast(dtype))


@rule()
def iota(w: BetaWriter):
    p, f = f"nl.arange({w.P})[:, None]", f"nl.arange({w.F})[None, :]"
    names = [loop.name for loop in w.loops if loop.symbolic]
    extra = f" + {w.pick(*names)} * 5" if names and w.maybe() else ""
    dtype = w.pick(*w.dtypes)
    w.note("nisa.iota", f"dtype.{dtype.name}")
    w.let(f"nisa.iota({p} * {w.between(-3, 5)} + {f} * {w.between(-2, 7)} + {w.between(-9, 9)}{extra}, {kind(dtype)}"
          f"{w.mask((w.P, w.F))})", (w.P, w.F), dtype, Facts(2000, 1).cast(dtype))


@rule()
def memset(w: BetaWriter):
    dtype, shape = w.pick(*w.dtypes), w.shape()
    value = w.pick(0, 1, 2.5, -3, 7)
    name = w.pick("nisa.memset({0}, {1}, {2}{3})", "nl.full({0}, {1}, {2})", "nl.zeros({0}, {2})", "nl.ones({0}, {2})")
    w.note(name.partition("(")[0])
    w.let(name.format(shape, value, kind(dtype), w.mask(shape)), shape, dtype, Facts(7, 0.5).cast(dtype))

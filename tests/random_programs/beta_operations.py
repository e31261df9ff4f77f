# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operations of the beta generation as rules: each draws operands that it takes and emits one call.

A rule gives False where there is nothing for it here.
"""

from math import inf, prod

from nki_mlir.language.beta import language as nl
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32, INT32, UINT8, UINT16, UINT32
from nki_mlir.scalar.promotion import promote

from .beta import BetaWriter, kind, rule
from .writer import FLOATS, INTEGERS, WIDE, Facts, Tile, facts_of

BINARY = tuple(n for n, op in ALU.items() if op.arity == 2 and hasattr(nl, n) and op.group not in ("bitwise", "shift"))
BITS = tuple(n for n, op in ALU.items() if op.arity == 2 and hasattr(nl, n) and op.group in ("bitwise", "shift"))
UNARY = tuple(n for n in (*ACTIVATIONS, *(n for n, op in ALU.items() if op.arity == 1)) if hasattr(nl, n)
              and n not in ("copy", "logical_not", "invert"))
FOLDS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "all": "logical_and"}
OPERATORS = {"+": "add", "-": "subtract", "*": "multiply", "<": "less", "<=": "less_equal", ">": "greater",
             ">=": "greater_equal"}
ULP = 2.0 ** -23
ENGINES = ("nisa.vector_engine", "nisa.gpsimd_engine", "nisa.unknown_engine")


def usual(dtypes):
    return tuple(d for d in dtypes if d.name != "float8_e4m3fn")


def number(w: BetaWriter) -> tuple[str, Facts]:
    value = w.pick(0, 1, 2, 3, -1, 0.5, -2.5, 4)
    return str(value), Facts(abs(value), 0.5)


def result(w: BetaWriter, natural):
    """The dtype asked for, with the keyword for it."""
    if w.maybe(4):
        chosen = w.pick(*usual((*FLOATS, *INTEGERS)))
        return chosen, f", dtype={kind(chosen)}"
    return natural, ""


# -- elementwise -------------------------------------------------------------------------------------------------------
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
    dtype, asked = result(w, natural)
    made = facts_of(op, a.facts, other)
    w.made(f"nl.{op}({left}, {right}{asked}{w.mask(a.shape)})", a.shape, dtype, made.cast(dtype))


@rule()
def operator(w: BetaWriter):
    sign = w.pick(*OPERATORS)
    a = w.operand(None, w.dtypes)
    b = w.operand(a.shape, w.dtypes)
    natural = promote(a.dtype, b.dtype)
    dtype = BOOL if ALU[OPERATORS[sign]].group == "comparison" else UINT8 if natural is BOOL else natural
    w.made(f"{a.text} {sign} {b.text}", a.shape, dtype, facts_of(OPERATORS[sign], a.facts, b.facts).cast(dtype))


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
    w.made(f"nl.{op}({a.text}, {other}, dtype={kind(a.dtype)}{w.mask(a.shape)})", a.shape, a.dtype, Facts(2.0 ** 32, 1).cast(a.dtype))


@rule()
def invert(w: BetaWriter):
    a = w.operand(None, usual(d for d in INTEGERS if d is not BOOL))
    w.note("nl.invert")
    w.made(f"nl.invert({a.text}{w.mask(a.shape)})", a.shape, a.dtype, Facts(2.0 ** 32, 1).cast(a.dtype))


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
        dtype, asked = result(w, a.dtype)
        facts = {"abs": a.facts, "negative": a.facts, "relu": a.facts, "sign": Facts(1, 1),
                 "square": Facts(a.facts.bound ** 2 if a.facts.bound < inf else inf, a.facts.unit ** 2),
                 "floor": Facts(a.facts.bound + 1, 1), "ceil": Facts(a.facts.bound + 1, 1),
                 "trunc": Facts(a.facts.bound, 1), "identity": a.facts}.get(fn, Facts())
        if a.facts.bound == inf:
            facts = Facts()
        w.note(f"dtype.{dtype.name}")
        return w.made(f"nl.{fn}({a.text}{asked}{w.mask(a.shape)})", a.shape, dtype, facts.cast(dtype))
    a = w.operand(None, w.dtypes, lambda t: t.facts.bound <= 40, "small")
    return w.inexact(f"nl.{fn}({a.text}, dtype=nl.float32{w.mask(a.shape)})", a.shape, FLOAT32,
                     (2 * table.ulp + 2) * ULP, 2 * table.absolute)


@rule()
def logical_not(w: BetaWriter):
    a = w.operand(None, w.dtypes)
    w.note("nl.logical_not")
    w.made(f"nl.logical_not({a.text}{w.mask(a.shape)})", a.shape, BOOL, Facts(1, 1))


@rule(2)
def copy(w: BetaWriter):
    a = w.operand(None, w.dtypes)
    dtype, asked = result(w, a.dtype)
    name, mask = w.pick("nl.copy", "nisa.tensor_copy"), w.mask(a.shape)
    w.note(name, f"dtype.{dtype.name}")
    facts = a.facts if dtype is a.dtype else a.facts.cast(dtype)
    w.made(f"{name}({a.text}{asked}{mask})", a.shape, dtype, facts)


@rule()
def load_converted(w: BetaWriter):
    source = w.pick(*usual((*FLOATS, *INTEGERS)))
    source = FLOAT32 if source.name == "tfloat32" else source
    dtype = w.pick(*usual((*FLOATS, *INTEGERS)))
    name, facts = w.array(source, w.pick("small", "fraction", "wild"))
    shape = (w.P, w.F)
    w.note("nl.load", f"dtype.{dtype.name}")
    if w.maybe():
        w.made(f"nl.load({name}[0:{w.P}, 3:{3 + w.F}], dtype={kind(dtype)}{w.mask(shape)})", shape, dtype,
               facts.cast(dtype))
    else:
        w.made(f"nl.load({name}[nl.arange({w.P})[:, None] + 2, nl.arange({w.F})[None, :] * 2 + 1], "
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
    dtype, asked = result(w, natural)
    w.made(f"nl.where({condition.text}, {a.text}, {text}{asked}{w.mask(a.shape)})", a.shape, dtype,
           a.facts.join(facts).cast(dtype))


# -- instructions ------------------------------------------------------------------------------------------------------
def token(op: str) -> str:
    return f"np.{op}" if w_has_numpy(op) else f"nl.{op}"


def w_has_numpy(op: str) -> bool:
    return op in ("add", "subtract", "multiply", "maximum", "minimum", "greater", "less", "equal", "logical_and",
                  "bitwise_and", "bitwise_or", "bitwise_xor")


EXACT = tuple(n for n in BINARY if not ALU[n].ulp)


@rule(2)
def tensor_tensor(w: BetaWriter):
    a = w.operand(None, w.dtypes)
    b = w.operand(a.shape, w.dtypes)
    op = w.pick(*EXACT)
    w.note("nisa.tensor_tensor", f"alu.{op}")
    natural = promote(a.dtype, b.dtype)
    dtype, asked = result(w, UINT8 if natural is BOOL else natural)
    asked = asked or f", dtype={kind(dtype)}"
    w.made(f"nisa.tensor_tensor({a.text}, {b.text}, {token(op)}{asked}{w.mask(a.shape)})", a.shape, dtype,
           facts_of(op, a.facts, b.facts).cast(dtype))


def column(w: BetaWriter, rows: int, dtypes=(FLOAT32,)) -> tuple[str, Facts]:
    """A scalar operand: a number, or a value of each partition."""
    if w.maybe():
        return number(w)
    tile = w.operand((rows, 1), dtypes)
    return tile.text, tile.facts


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
    dtype, asked = result(w, UINT8 if a.dtype is BOOL else a.dtype)
    asked = asked or f", dtype={kind(dtype)}"
    w.made(f"nisa.tensor_scalar({a.text}, {token(op0)}, {text0}{more}{asked}{w.mask(a.shape)})", a.shape, dtype,
           facts.cast(dtype))


@rule()
def tensor_scalar_bits(w: BetaWriter):
    a = w.operand(None, (INT32, UINT32, UINT16, UINT8))
    op0, op1 = w.pick(*BITS), w.pick(*BITS)
    w.note("nisa.tensor_scalar", f"alu.{op0}", f"alu.{op1}")
    w.made(f"nisa.tensor_scalar({a.text}, {token(op0)}, {w.between(0, 5)}, op1={token(op1)}, operand1={w.between(0, 3)}"
           f"{w.mask(a.shape)})", a.shape, a.dtype, Facts(2.0 ** 32, 1).cast(a.dtype))


@rule()
def scalar_tensor_tensor(w: BetaWriter):
    a = w.operand((w.P, w.F), w.dtypes)
    b = w.operand(a.shape, w.dtypes)
    op0, op1 = w.pick(*EXACT), w.pick(*EXACT)
    w.note("nisa.scalar_tensor_tensor")
    text0, facts0 = column(w, a.shape[0])
    facts = facts_of(op1, facts_of(op0, a.facts, facts0), b.facts)
    dtype, asked = result(w, FLOAT32)
    asked = asked or ", dtype=nl.float32"
    w.made(f"nisa.scalar_tensor_tensor(data={a.text}, op0={token(op0)}, operand0={text0}, op1={token(op1)}, "
           f"operand1={b.text}, reverse0={w.maybe()}, reverse1={w.maybe()}{asked}{w.mask(a.shape)})", a.shape, dtype,
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
        return w.made(text, a.shape, FLOAT32, Facts())
    # Where executors fuse scale and bias, a function may be asked at a neighbouring place.
    return w.inexact(text, a.shape, FLOAT32, (2 * table.ulp + 2) * ULP, 2 * table.absolute)


@rule()
def reciprocal(w: BetaWriter):
    a = w.operand(None, w.dtypes)
    w.note("nisa.reciprocal")
    w.made(f"nisa.reciprocal({a.text}, dtype=nl.float32{w.mask(a.shape)})", a.shape, FLOAT32, Facts())


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
    dtype, asked = result(w, a.dtype)
    w.made(f"nisa.affine_select({condition}, {a.text}, -9.5{asked}{w.mask(a.shape)})", a.shape, dtype,
           a.facts.join(Facts(9.5, 0.5)).cast(dtype))


@rule()
def iota(w: BetaWriter):
    p, f = f"nl.arange({w.P})[:, None]", f"nl.arange({w.F})[None, :]"
    names = [loop.name for loop in w.loops if loop.symbolic]
    extra = f" + {w.pick(*names)} * 5" if names and w.maybe() else ""
    dtype = w.pick(*w.dtypes)
    w.note("nisa.iota", f"dtype.{dtype.name}")
    w.made(f"nisa.iota({p} * {w.between(-3, 5)} + {f} * {w.between(-2, 7)} + {w.between(-9, 9)}{extra}, {kind(dtype)}"
           f"{w.mask((w.P, w.F))})", (w.P, w.F), dtype, Facts(2000, 1).cast(dtype))


@rule()
def memset(w: BetaWriter):
    dtype, shape = w.pick(*w.dtypes), w.shape()
    value = w.pick(0, 1, 2.5, -3, 7)
    name = w.pick("nisa.memset({0}, {1}, {2}{3})", "nl.full({0}, {1}, {2})", "nl.zeros({0}, {2})", "nl.ones({0}, {2})")
    w.note(name.partition("(")[0])
    w.made(name.format(shape, value, kind(dtype), w.mask(shape)), shape, dtype, Facts(7, 0.5).cast(dtype))


# -- reductions --------------------------------------------------------------------------------------------------------
def free_axes(w: BetaWriter, tile: Tile) -> tuple[int, ...]:
    """Some of the free axes, the last ones."""
    rank = len(tile.shape)
    return tuple(range(w.between(1, rank - 1), rank))


@rule(3)
def reduce(w: BetaWriter):
    name = w.pick(*FOLDS)
    w.note(f"nl.{name}")
    op = FOLDS[name]
    fits = {"sum": lambda t: t.facts.sums_exactly(t.free), "prod": lambda t: t.facts.bound <= 1 and t.facts.unit == 1}
    a = w.operand(None, w.dtypes, fits.get(name, lambda t: True), "one" if name == "prod" else "small")
    axes = free_axes(w, a)
    if name in ("sum", "prod") and not fits[name](a):
        return False
    return _reduction(w, a, axes, op, lambda more: f"nl.{name}({a.text}, axis={list(axes)}, keepdims=True{more})",
                      BOOL if name == "all" else a.dtype)


def _reduction(w, a, axes, op, call, natural):
    shape = tuple(1 if k in axes else n for k, n in enumerate(a.shape))
    count = prod(a.shape[k] for k in axes)
    facts = {"add": Facts(a.facts.bound * count, a.facts.unit), "multiply": Facts(a.facts.bound, a.facts.unit),
             "logical_and": Facts(1, 1)}.get(op, a.facts)
    dtype, asked = result(w, natural)
    text = call(f"{asked}{w.mask(a.shape, fold=True)}")
    if op == "add" and dtype.is_float:                  # the sign of a sum that is 0 is not fixed
        text = f"nl.add({text}, 0.0, dtype={kind(dtype)})"
    return w.made(text, shape, dtype, facts.cast(dtype))


REDUCERS = tuple(n for n, op in ALU.items() if op.reduce is not None and hasattr(nl, n))


@rule(2)
def tensor_reduce(w: BetaWriter):
    op = w.pick(*REDUCERS)
    w.note("nisa.tensor_reduce", f"reduce.{op}")
    if ALU[op].group == "bitwise":
        a = w.operand(None, (INT32, UINT32, UINT16, UINT8))
        axes = free_axes(w, a)
        shape = tuple(1 if k in axes else n for k, n in enumerate(a.shape))
        return w.made(f"nisa.tensor_reduce({token(op)}, {a.text}, axis={list(axes)}, keepdims=True{w.mask(a.shape, fold=True)})",
                      shape, a.dtype, Facts(2.0 ** 32, 1).cast(a.dtype))
    sums = op in ("add", "subtract")
    a = w.operand(None, w.dtypes, (lambda t: t.facts.sums_exactly(t.free)) if sums else (
        lambda t: t.facts.bound <= 1 and t.facts.unit == 1) if op == "multiply" else lambda t: True,
        "one" if op == "multiply" else "small")
    if (sums and not a.facts.sums_exactly(a.free)) or (op == "multiply" and not a.facts.bound <= 1):
        return False
    axes = free_axes(w, a)
    negate = ALU[op].group == "arithmetic" and w.maybe(3)
    facts_op = "add" if sums else "logical_and" if ALU[op].group == "logical" else op
    return _reduction(w, a, axes, facts_op, lambda more: f"nisa.tensor_reduce({token(op)}, {a.text}, axis={list(axes)}, "
                      f"negate={negate}, keepdims=True{more})", UINT8 if a.dtype is BOOL else a.dtype)


@rule()
def rounded_sum(w: BetaWriter):
    """Sums that round: of any finite values."""
    a = w.operand(None, WIDE, lambda t: t.facts.bound < 1e4, "fraction")
    axes = free_axes(w, a)
    shape = tuple(1 if k in axes else n for k, n in enumerate(a.shape))
    count = prod(a.shape[k] for k in axes)
    call = w.pick("nl.mean", "nl.var", "nl.sum", "nisa.tensor_reduce")
    bound = a.facts.bound
    if call == "nl.var":
        shape = tuple(n for k, n in enumerate(a.shape) if k not in axes)
        shape += (1,) * (2 - len(shape))
        bound = bound * bound * 4
        text = f"nl.var({a.text}, axis={list(axes)}, dtype=nl.float32{w.mask(a.shape, fold=True)})"
    elif call == "nisa.tensor_reduce":
        text = f"nisa.tensor_reduce(np.mean, {a.text}, axis={list(axes)}, keepdims=True, dtype=nl.float32{w.mask(a.shape, fold=True)})"
        w.note("reduce.average")
    else:
        text = f"{call}({a.text}, axis={list(axes)}, keepdims=True, dtype=nl.float32{w.mask(a.shape, fold=True)})"
    w.note(call)
    return w.inexact(text, shape, FLOAT32, count * ULP * 4, count * ULP * bound * 4)


@rule()
def normalised(w: BetaWriter):
    a = w.operand((w.P, w.F), WIDE, lambda t: t.facts.bound <= 64, "fraction")
    if w.maybe():
        w.note("nl.softmax")
        return w.inexact(f"nl.softmax({a.text}, axis=1, dtype=nl.float32{w.mask(a.shape, boxes=True)})", a.shape,
                         FLOAT32, 1e-5, 1e-6)
    w.note("nl.rms_norm")
    weight = w.operand((1, w.F), WIDE, lambda t: t.facts.bound <= 64, "small")
    return w.inexact(f"nl.rms_norm({a.text}, {weight.text}, axis=1, n={w.F}, dtype=nl.float32"
                     f"{w.mask(a.shape, boxes=True)})", a.shape, FLOAT32, 1e-5, 1e-5)


@rule()
def partition_reduce(w: BetaWriter):
    op = w.pick("add", "maximum", "bitwise_or", "bitwise_and")
    w.note("nisa.tensor_partition_reduce", f"partition.{op}")
    if op.startswith("bitwise"):
        a = w.operand((w.P, w.F), (INT32, UINT8, UINT16))
        facts = Facts(2.0 ** 32, 1).cast(a.dtype)
    else:
        a = w.operand(None, WIDE, lambda t: op == "maximum" or t.facts.sums_exactly(t.shape[0]), "small")
        if op == "add" and not a.facts.sums_exactly(a.shape[0]):
            return False
        facts = (Facts(a.facts.bound * a.shape[0], a.facts.unit) if op == "add" else a.facts).cast(a.dtype)
    return w.made(f"nisa.tensor_partition_reduce({token(op)}, {a.text}{w.mask(a.shape, fold=True)})", (1, *a.shape[1:]), a.dtype,
                  facts)


@rule()
def with_rows(w: BetaWriter):
    """Instructions that write a tile and a reduction of it."""
    a = w.operand(None, WIDE, lambda t: t.facts.sums_exactly(4 * t.free) and t.facts.bound <= 64, "small")
    if not a.facts.sums_exactly(4 * a.free) or not a.facts.unit or a.facts.bound > 64:
        return False
    rows = w.name("rows")
    w.emit(f"{rows} = nl.full(({a.shape[0]}, 1), 5, nl.float32)")
    mask = w.mask(a.shape, fold=True)
    if w.maybe():
        op, fold = w.pick("add", "maximum", "subtract"), w.pick("add", "maximum", "minimum")
        text = f"nisa.tensor_scalar_reduce(data={a.text}, op0={token(op)}, operand0=2.0, reduce_op={token(fold)}, " \
               f"reduce_res={rows}, dtype=nl.float32{mask})"
        w.note("nisa.tensor_scalar_reduce")
        facts = Facts(a.facts.bound + 2, a.facts.unit)
    else:
        text = f"nisa.activation_reduce(nl.{w.pick('copy', 'relu', 'abs')}, {a.text}, reduce_op=np.add, " \
               f"reduce_res={rows}, dtype=nl.float32{mask})"
        w.note("nisa.activation_reduce")
        facts = a.facts
    w.made(text, a.shape, FLOAT32, facts)
    w.keep(Tile(rows, (a.shape[0], 1), FLOAT32, Facts(facts.bound * a.free + 5, facts.unit)))
    return None


@rule()
def accumulators(w: BetaWriter):
    """Instructions that run the accumulation registers of an engine."""
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16), lambda t: t.facts.sums_exactly(4 * t.free), "small")
    if not a.facts.sums_exactly(4 * a.free):
        return False
    rows = w.name("rows")
    w.emit(f"{rows} = nl.zeros(({w.P}, 1), nl.float32)")
    match w.between(0, 2):
        case 0:
            w.note("nisa.activation accumulates")
            w.made(f"nisa.activation(nl.copy, {a.text}, reduce_op=np.add, reduce_res={rows}, "
                   f"reduce_cmd=nisa.reduce_cmd.reset_reduce)", a.shape, a.dtype, a.facts)
            facts = Facts(a.facts.bound * a.free, a.facts.unit)
        case 1:
            w.note("nisa.select_reduce")
            flags = w.operand(a.shape, (UINT8, UINT16))
            chosen = w.name()
            w.emit(f"{chosen} = nl.full({a.shape}, 1, {kind(a.dtype)})")
            w.emit(f"nisa.select_reduce(dst={chosen}, predicate={flags.text}, on_true={a.text}, on_false=-3.0, "
                   f"reduce_res={rows}, reduce_cmd=nisa.reduce_cmd.reset_reduce, reverse_pred={w.maybe()})")
            facts = a.facts.join(Facts(3, 1))
            w.keep(Tile(chosen, a.shape, a.dtype, facts))
        case _:
            w.note("nisa.range_select")
            low, high = (w.operand((w.P, 1), (FLOAT32,)).text for _ in range(2))
            w.made(f"nisa.range_select(on_true_tile={a.text}, comp_op0=np.greater_equal, comp_op1=np.less, bound0={low}, "
                   f"bound1={high}, reduce_res={rows}, reduce_cmd=nisa.reduce_cmd.reset_reduce, "
                   f"range_start={w.between(0, 3)})", a.shape, a.dtype, Facts())
            facts = Facts()
    w.keep(Tile(rows, (w.P, 1), FLOAT32, facts))
    return None


# -- products and transposes -------------------------------------------------------------------------------------------
MULTIPLIED = tuple(d for d in FLOATS if d.name not in ("float8_e4m3fn", "tfloat32"))


@rule(3)
def product(w: BetaWriter):
    K, M, N = w.pick(w.P, 32, 5), w.between(1, 24), w.pick(w.F, 1, 33)
    fits = (lambda t: t.facts.sums_exactly(K * 64) and t.facts.bound <= 16)
    dtype = w.pick(*MULTIPLIED)
    a = w.operand((K, M), (dtype,), fits, "small")
    b = w.operand((K, N), (dtype,), fits, "small")
    facts = Facts(K * a.facts.bound * b.facts.bound, a.facts.unit * b.facts.unit)
    if not (facts.unit and facts.bound * 8 / facts.unit < 2.0 ** 24):
        return False
    w.note("nisa.nc_matmul", f"matmul.{dtype.name}")
    text = w.pick(f"nisa.nc_matmul({a.text}, {b.text}", f"nl.matmul({a.text}, {b.text}, transpose_x=True")
    if w.maybe(3):
        mask = w.mask((K, 1), boxes=True, often=True) if w.maybe() else matmul_mask(w, K, M, N)
        return w.made(f"nl.copy({text}{mask}))", (M, N), FLOAT32, facts)
    total = w.name("acc")
    if w.maybe() and not w.loops:
        turns = w.between(1, 3)
        w.emit(f"{total} = nl.zeros(({M}, {N}), nl.float32, buffer=nl.psum)")
        w.emit(f"for k in nl.{w.pick('affine_range', 'sequential_range')}({turns}):")
        w.emit(f"    {total} += {text}{w.pick('', ', mask=k > 0', ', mask=k < 2')})")
        facts = Facts(facts.bound * turns, facts.unit)
        return w.made(f"nl.copy({total})", (M, N), FLOAT32, facts)
    return w.made(f"nl.copy({text}))", (M, N), FLOAT32, facts)


def matmul_mask(w: BetaWriter, K: int, M: int, N: int) -> str:
    """Over the three axes of a product."""
    return w.mask((K, M, N), often=True, fold=True)


@rule()
def rounded_product(w: BetaWriter):
    a = w.operand((w.P, w.between(1, 16)), (BFLOAT16, FLOAT16), lambda t: t.facts.bound <= 64, "fraction")
    b = w.operand((w.P, w.F), (BFLOAT16, FLOAT16), lambda t: t.facts.bound <= 64, "fraction")
    w.note("nisa.nc_matmul")
    K = a.shape[0]
    return w.inexact(f"nl.copy(nisa.nc_matmul({a.text}, {b.text}))", (a.shape[1], b.shape[1]), FLOAT32, K * ULP,
                     K * K * ULP * a.facts.bound * b.facts.bound)


@rule(2)
def transpose(w: BetaWriter):
    a = w.operand((w.P, w.F), tuple(d for d in w.dtypes if d.bits > 8))
    call = w.pick("nl.transpose", "nisa.nc_transpose", "nisa.dma_transpose")
    w.note(call)
    if call == "nisa.nc_transpose":
        if max(a.shape) > 32 and not a.dtype.is_float:
            return False
        return w.made(f"nl.copy({call}({a.text}))", a.shape[::-1], a.dtype, a.facts)
    if call == "nisa.dma_transpose":
        return w.made(f"{call}({a.text})", a.shape[::-1], a.dtype, a.facts)
    return w.made(f"{call}({a.text}{w.mask(a.shape, fold=True)})", a.shape[::-1], a.dtype, a.facts.join(Facts(0, 1)))


@rule()
def load_transposed(w: BetaWriter):
    name, facts = w.array(w.pick(FLOAT32, BFLOAT16), "small")
    w.note("nl.load_transpose2d")
    dtype = BFLOAT16 if "bfloat" in name else FLOAT32
    w.made(f"nl.load_transpose2d({name}[1:{1 + w.P}, 2:{2 + w.F}])", (w.F, w.P), dtype, facts)


# -- scans, searches, statistics ---------------------------------------------------------------------------------------
@rule()
def scan(w: BetaWriter):
    a = w.operand((w.P, w.F), WIDE)
    b = w.operand((w.P, w.F), WIDE)
    op0, op1 = w.pick(*EXACT), w.pick(*EXACT)
    start = w.pick("0", "0.5", w.operand((w.P, 1), (FLOAT32,)).text)
    w.note("nisa.tensor_tensor_scan")
    w.made(f"nisa.tensor_tensor_scan({a.text}, {b.text}, {start}, {token(op0)}, {token(op1)}, reverse0={w.maybe()}, "
           f"reverse1={w.maybe()}, dtype=nl.float32)", (w.P, w.F), FLOAT32, Facts())


@rule()
def search(w: BetaWriter):
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16, FLOAT16), lambda t: t.facts.bound < inf, "small")
    if w.F < 8 or not a.facts.bound < inf:
        return False
    top = w.made(f"nisa.max8(src={a.text})", (w.P, 8), a.dtype, a.facts)
    w.note("nisa.max8")
    match w.between(0, 2):
        case 0:
            w.note("nisa.nc_find_index8")
            w.made(f"nisa.nc_find_index8(data={a.text}, vals={top.text})", (w.P, 8), UINT32, Facts(w.F, 1))
        case 1:
            w.note("nisa.nc_match_replace8")
            w.made(f"nisa.nc_match_replace8(data={a.text}, vals={top.text}, imm=-4.0)", (w.P, w.F), a.dtype,
                   a.facts.join(Facts(4, 1)))
    return None


@rule()
def statistics(w: BetaWriter):
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16), lambda t: t.facts.bound <= 64, "fraction")
    w.note("nisa.bn_stats", "nisa.bn_aggr")
    name = w.name()
    w.emit(f"{name} = nisa.bn_stats({a.text}, dtype=nl.float32)")
    error = w.F * ULP * 16
    w.store(Tile(name, (w.P, 6), FLOAT32, Facts()), error, error * (a.facts.bound + 1) ** 2)
    w.inexact(f"nisa.bn_aggr({name})", (w.P, 2), FLOAT32, error, error * (a.facts.bound + 1) ** 2)


@rule()
def shuffle(w: BetaWriter):
    if w.P % 32:
        return False
    a = w.operand((w.P, w.F), w.dtypes)
    order = [w.pick(k, 0, 255, 31 - k) for k in range(32)] if w.maybe() else [(k + 1) % 32 for k in range(32)]
    name = w.name()
    w.note("nisa.nc_stream_shuffle")
    w.emit(f"{name} = nl.full({a.shape}, 1, {kind(a.dtype)})")
    w.emit(f"nisa.nc_stream_shuffle({a.text}, {name}, {order})")
    w.keep(Tile(name, a.shape, a.dtype, a.facts.join(Facts(1, 1))))
    return None


@rule()
def gathers(w: BetaWriter):
    a = w.operand((w.P, w.F), tuple(d for d in w.dtypes if d.name != "tfloat32"))
    w.note("nl.gather_flattened")
    index, _ = w.array(UINT32, "one")
    places = w.made(f"nl.minimum(nl.load({index}[0:{w.P}, 0:5]) * {w.between(1, 7)}, {w.F - 1}, dtype=nl.uint32)",
                    (w.P, 5), UINT32, Facts(w.F - 1, 1))
    w.made(f"nl.gather_flattened({a.text}, {places.text})", (w.P, 5), a.dtype, a.facts)


@rule()
def local_gather(w: BetaWriter):
    if w.P % 16 or w.F < 4:
        return False
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16, INT32))
    index, _ = w.array(UINT16, "one")
    places = w.made(f"nl.load({index}[0:{w.P}, 0:2])", (w.P, 2), UINT16, Facts(1, 1))
    w.note("nisa.local_gather")
    w.made(f"nisa.local_gather({a.text}, {places.text}, num_elem_per_idx=2)", (w.P, 2, 16, 2), a.dtype, a.facts)
    return None


# -- addresses of the run time -----------------------------------------------------------------------------------------
@rule(2)
def rows_by_index(w: BetaWriter):
    """Gather of rows, and scatter to an output."""
    index, _ = w.array(INT32, "one")
    dtype = w.pick(FLOAT32, BFLOAT16, INT32, UINT8)
    table, facts = w.array(dtype, "small")
    P = w.pick(w.P, 8)
    rows = w.made(f"nl.add(nl.load({index}[0:{P}, 3:4]) * {w.between(1, 50)}, {w.between(0, 40)}, dtype=nl.int32)",
                  (P, 1), INT32, Facts(90, 1))
    w.note("gather of rows")
    made = w.made(f"nl.load({table}[{rows.text}, nl.arange({w.F})[None, :]]{w.mask((P, w.F), boxes=True)})", (P, w.F),
                  dtype, facts.join(Facts(0, 1)))
    if w.maybe() and not w.loops and P <= 64:
        w.note("scatter of rows", "nl.atomic_rmw")
        out = w.output((96, w.F), FLOAT32)
        w.emit(f"nl.store({out}[0:96, ...], nl.zeros((96, {w.F}), nl.float32))")
        if w.maybe():
            unique = w.made(f"nisa.iota(nl.arange({P})[:, None] + {w.between(0, 9)}, nl.int32)", (P, 1), INT32, Facts(80, 1))
            w.emit(f"nl.store({out}[{unique.text}, nl.arange({w.F})[None, :]], {made.text})")
        else:
            w.emit(f"nl.atomic_rmw({out}[{rows.text}, nl.arange({w.F})[None, :]], nl.copy({made.text}, "
                   f"dtype=nl.float32), op=np.add)")


@rule()
def dynamic_offset(w: BetaWriter):
    if w.F < 4:
        return False
    a = w.operand((w.P, w.F), tuple(d for d in w.dtypes if d.name != "tfloat32"))
    index, _ = w.array(INT32, "one")
    at = w.made(f"nl.load({index}[{w.between(0, 30)}:{31}, 0:1])[0:1, 0:1]", (1, 1), INT32, Facts(1, 1))
    w.note("nisa.tensor_copy_dynamic_src")
    n = w.F // 2
    p, f = f"nl.arange({w.P})[:, None]", f"nl.arange({n})[None, :]"
    piece = w.made(f"nisa.tensor_copy_dynamic_src({a.text}[{p}, {at.text}[0, 0] + {f}])", (w.P, n), a.dtype, a.facts)
    if w.maybe():
        w.note("nisa.tensor_copy_dynamic_dst")
        name = w.name()
        w.emit(f"{name} = nl.full(({w.P}, {w.F}), 1, {kind(a.dtype)})")
        w.emit(f"nisa.tensor_copy_dynamic_dst(dst={name}[{p}, {at.text}[0, 0] + {f}], src={piece.text})")
        w.keep(Tile(name, (w.P, w.F), a.dtype, a.facts.join(Facts(1, 1))))
    return None


# -- transfers and views -----------------------------------------------------------------------------------------------
@rule()
def through_hbm(w: BetaWriter):
    """To a private tensor and back, with another shape or in parts."""
    a = w.operand((w.P, w.F), tuple(d for d in w.dtypes if d.name != "tfloat32"))
    name = w.name("hbm")
    w.note("private_hbm", "nisa.dma_copy")
    w.emit(f"{name} = nl.ndarray({a.shape}, {kind(a.dtype)}, buffer=nl.private_hbm)")
    w.emit(f"nl.store({name}, nl.zeros({a.shape}, {kind(a.dtype)}))")
    w.emit(w.pick(f"nl.store({name}, {a.text}{w.mask(a.shape)})",
                  f"nisa.dma_copy(dst={name}, src={a.text}{w.mask(a.shape)})"))
    w.made(f"nl.load({name})", a.shape, a.dtype, a.facts.join(Facts(0, 1)))


@rule()
def view(w: BetaWriter):
    """A view is a tile of its own from here on."""
    a = w.operand((w.P, w.F), w.dtypes)
    forms = [(f"{a.text}.broadcast_to(({w.P}, {w.F}))", a.shape), (f"{a.text}.expand_dims(1)", (w.P, 1, w.F))]
    if w.F % 2 == 0:
        forms += [(f"{a.text}.reshape(({w.P}, {w.F // 2}, 2))", (w.P, w.F // 2, 2)),
                  (f"{a.text}[:, 1::2]", (w.P, w.F // 2)),
                  (f"{a.text}[nl.arange({w.P})[:, None], nl.arange({w.F // 2})[None, :] * 2]", (w.P, w.F // 2)),
                  (f"{a.text}.reshape(({w.P}, {w.F // 2}, 2))[:, :, 0]", (w.P, w.F // 2))]
    text, shape = w.pick(*forms)
    w.note("view")
    w.made(f"nl.copy({text}{w.mask(shape)})", shape, a.dtype, a.facts)


@rule()
def sums_of_loops(w: BetaWriter):
    if w.loops:
        return False
    name, facts = w.array(FLOAT32, "small")
    total, count, op = w.name("total"), w.between(1, 4), w.pick("add", "maximum", "minimum")
    w.note("nl.loop_reduce")
    w.emit(f"{total} = nl.ndarray(({w.P}, {w.F}), nl.float32)")
    w.emit(f"for k in nl.affine_range({count}):")
    w.emit(f"    {total}[...] = nl.loop_reduce(nl.load({name}[0:{w.P}, nl.ds(k * 20, {w.F})]), op=np.{op}, "
           f"loop_indices=[k])")
    w.keep(Tile(total, (w.P, w.F), FLOAT32, Facts(facts.bound * count, 1)))
    return None


@rule()
def printed(w: BetaWriter):
    a = w.operand((w.P, w.F), w.dtypes)
    w.note("nl.device_print")
    w.emit(f"nl.device_print('value', {a.text}{w.mask(a.shape)})")


@rule()
def stored(w: BetaWriter):
    a = w.operand(None, w.dtypes)
    if not w.conditional:
        w.note("nl.store")
        w.store(a)


@rule()
def random_numbers(w: BetaWriter):
    w.note("nl.rand", "nl.dropout", "nl.random_seed")
    if w.loops:
        return False
    w.emit(f"nl.random_seed({w.between(1, 99)})")
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16))
    if w.maybe():
        w.made(f"nl.rand(({w.P}, {w.F}))", (w.P, w.F), FLOAT32, Facts(1, 0))
    else:
        w.made(f"nl.dropout({a.text}, rate=0.5)", a.shape, a.dtype, a.facts.join(Facts(0, 1)))
    return None


@rule()
def sequence_bounds(w: BetaWriter):
    index, _ = w.array(INT32, "one")
    w.note("nisa.sequence_bounds")
    ids = w.made(f"nl.load({index}[5:6, 0:{w.F}])", (1, w.F), INT32, Facts(1, 1))
    w.made(f"nisa.sequence_bounds(segment_ids={ids.text})", (1, 2, w.F), INT32, Facts(w.F, 1))



@rule()
def constants(w: BetaWriter):
    n = w.between(1, 32)
    a = w.operand((w.P, w.F), w.dtypes)
    text, shape, dtype = w.pick(
        (f"nl.load(nl.shared_identity_matrix({n}, dtype=nl.uint8))", (n, n), UINT8),
        (f"nl.load(nl.shared_constant(np.arange({3 * n}).reshape(3, {n}) % 7, dtype=nl.int32))", (3, n), INT32),
        (f"nl.zeros_like({a.text}, dtype=nl.float32)", a.shape, FLOAT32),
        (f"nl.copy(nl.expand_dims({a.text}, 1) * 0, dtype=nl.int32)", (w.P, 1, w.F), INT32),
        (f"nl.copy(nl.broadcast_to(nl.load(nl.shared_constant(np.full((1, {n}), 3), dtype=nl.int32)), shape=(4, {n})))",
         (4, n), INT32))
    w.note("constants")
    if w.loops:
        return False
    return w.made(text, shape, dtype, Facts(7, 1))


@rule()
def cumulative(w: BetaWriter):
    a = w.operand((w.P, w.F), WIDE)
    name, op0, op1 = w.name(), w.pick("add", "multiply", "subtract"), w.pick("add", "subtract", "multiply", "maximum")
    w.note("nisa.tensor_scalar_cumulative")
    w.emit(f"{name} = nl.zeros({a.shape}, nl.float32)")
    w.emit(f"nisa.tensor_scalar_cumulative(src={a.text}, dst={name}, op0={token(op0)}, op1={token(op1)}, imm0=2.0)")
    w.keep(Tile(name, a.shape, FLOAT32, Facts()))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operations of the current generation as rules: each draws operands that it takes and emits one call."""

from math import inf, prod

from nki_mlir.language.current import language as nl
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32, INT8, INT16, INT32, TFLOAT32, UINT8, UINT16, UINT32

from .beta import kind
from .current import CurrentWriter, rule
from .writer import FLOATS, INTEGERS, WIDE, Facts, Tile, facts_of

ULP = 2.0 ** -23
EXACT = tuple(n for n, op in ALU.items() if op.arity == 2 and hasattr(nl, n) and not op.ulp
              and op.group not in ("bitwise", "shift") and n != "average")
BITS = tuple(n for n, op in ALU.items() if op.arity == 2 and hasattr(nl, n) and op.group in ("bitwise", "shift"))
UNARY = tuple(n for n in ACTIVATIONS if hasattr(nl, n) and callable(getattr(nl, n)))
PLAIN = tuple(d for d in (*FLOATS, *INTEGERS) if d.name != "tfloat32")
WORDS = (INT32, UINT32, INT16, UINT16, INT8, UINT8)
BITWISE = (INT32, UINT32, UINT16, UINT8)
ANY_BITS = Facts(2.0 ** 32, 1)


def number(w: CurrentWriter) -> tuple[str, Facts]:
    value = w.pick(0, 1, 2, 3, -1, 0.5, -2.5, 4)
    return str(value), Facts(abs(value), 0.5)


def column(w: CurrentWriter, rows: int) -> tuple[str, Facts]:
    if w.maybe():
        return number(w)
    tile = w.operand((rows, 1), (FLOAT32,))
    return tile.text, tile.facts


def small(w: CurrentWriter, shape=None, dtypes=WIDE, count: int | None = None) -> Tile | None:
    """An operand whose sums are exact."""
    def fits(t: Tile) -> bool:
        return t.facts.bound <= 64 and t.facts.sums_exactly(4 * (count or prod(t.shape)))
    tile = w.operand(shape, dtypes, fits, "small")
    return tile if fits(tile) else None


# -- elementwise -------------------------------------------------------------------------------------------------------
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
    w.made(f"nl.{op}({a.text}, {other}, dtype={kind(dtype)})", a.shape, dtype, facts_of(op, a.facts, facts).cast(dtype))


@rule(2)
def unary(w: CurrentWriter):
    fn = w.pick(*UNARY)
    w.note(f"nl.{fn}")
    table = ACTIVATIONS[fn]
    if table.ulp <= 0.5:
        a, dtype = w.operand(None, w.dtypes), w.pick(*PLAIN)
        return w.made(f"nl.{fn}({a.text}, dtype={kind(dtype)})", a.shape, dtype, Facts().cast(dtype))
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
    w.made(f"nl.where({condition.text}, {a.text}, {b.text}, dtype={kind(dtype)})", a.shape, dtype,
           a.facts.join(b.facts).cast(dtype))


# -- patterns ----------------------------------------------------------------------------------------------------------
def steps(w: CurrentWriter) -> str:
    if w.F % 2 == 0 and w.maybe():
        return f"[[{w.between(-3, 5)}, {w.F // 2}], [{w.between(-2, 3)}, 2]]"
    return f"[[{w.between(-3, 5)}, {w.F}]]"


def offset(w: CurrentWriter) -> str:
    """Of a pattern: a number, or a register."""
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


# -- reductions --------------------------------------------------------------------------------------------------------
@rule(2)
def tensor_reduce(w: CurrentWriter):
    op = w.pick(*(n for n, e in ALU.items() if e.reduce is not None and hasattr(nl, n) and n != "average"))
    w.note("nisa.tensor_reduce", f"reduce.{op}")
    if ALU[op].group == "bitwise":
        a, facts = w.operand(None, BITWISE), None
    else:
        a = small(w) if op in ("add", "subtract") else w.operand(
            None, PLAIN, (lambda t: t.facts.bound <= 1 and t.facts.unit == 1) if op == "multiply" else lambda t: True,
            "one" if op == "multiply" else None)
        if a is None or (op == "multiply" and not (a.facts.bound <= 1 and a.facts.unit == 1)):
            return False
    rank = len(a.shape)
    axes = list(range(w.between(1, rank - 1), rank))
    shape = tuple(1 if k in axes else n for k, n in enumerate(a.shape))
    negate = ALU[op].group == "arithmetic" and w.maybe(3)
    facts = {"add": Facts(a.facts.bound * a.free, a.facts.unit), "subtract": Facts(a.facts.bound * a.free, a.facts.unit),
             "logical_and": Facts(1, 1), "logical_or": Facts(1, 1), "logical_xor": Facts(1, 1)}.get(op, a.facts)
    dtype = a.dtype if ALU[op].group == "bitwise" else w.pick(FLOAT32, FLOAT32, a.dtype)
    made = w.into(f"nisa.tensor_reduce(DST, nl.{op}, {a.text}, axis={axes}, negate={negate}, keepdims=True)", shape,
                  dtype, (ANY_BITS if ALU[op].group == "bitwise" else facts).cast(dtype))
    if op in ("add", "subtract") and dtype.is_float:        # the sign of a sum that is 0 is not fixed
        w.emit(f"nisa.tensor_scalar({made.text}, {made.text}, nl.add, 0.0)")
    return None


@rule()
def fold_functions(w: CurrentWriter):
    a = small(w)
    if a is None:
        return False
    name = w.pick("sum", "max", "min", "mean", "var")
    w.note(f"nl.{name}")
    axes = list(range(1, len(a.shape)))
    shape = (a.shape[0], *(1 for _ in a.shape[1:]))
    text = f"nl.{name}({a.text}, axis={axes}, dtype=nl.float32, keepdims=True)"
    if name in ("mean", "var"):
        error = a.free * ULP * 4
        return w.inexact(text, shape, FLOAT32, error, error * (a.facts.bound + 1) ** 2)
    if name == "sum":
        text = f"nl.add({text}, 0.0)"
    return w.made(text, shape, FLOAT32, Facts(a.facts.bound * a.free, a.facts.unit))


@rule()
def partition_reduce(w: CurrentWriter):
    op = w.pick("add", "maximum", "bitwise_or", "bitwise_and")
    w.note("nisa.tensor_partition_reduce", f"partition.{op}")
    if op.startswith("bitwise"):
        a = w.operand((w.P, w.F), BITWISE)
        facts = ANY_BITS.cast(a.dtype)
    elif op == "add":
        a = small(w, (w.P, w.F))
        if a is None:
            return False
        facts = Facts(a.facts.bound * w.P, a.facts.unit).cast(a.dtype)
    else:
        a = w.operand((w.P, w.F), WIDE)
        facts = a.facts
    made = w.into(f"nisa.tensor_partition_reduce(DST, nl.{op}, {a.text})", (1, w.F), a.dtype, facts)
    if op == "add":
        w.emit(f"nisa.tensor_scalar({made.text}, {made.text}, nl.add, 0.0)")
    return None


@rule(2)
def with_rows(w: CurrentWriter):
    """Instructions that write a tile and a reduction of it."""
    a = small(w, (w.P, w.F), tuple(d for d in WIDE if d is not TFLOAT32))           # select_reduce takes no tfloat32
    if a is None:
        return False
    rows = w.name("rows")
    w.emit(f"{rows} = nl.full(({w.P}, 1), 5, nl.float32)")
    choice = w.pick("tensor_scalar_reduce", "activation_reduce", "select_reduce", "range_select", "activation")
    w.note(f"nisa.{choice} with rows")
    facts = Facts(a.facts.bound + 2, a.facts.unit)
    match choice:
        case "tensor_scalar_reduce":
            w.into(f"nisa.tensor_scalar_reduce(DST, {a.text}, nl.add, 2.0, nl.{w.pick('add', 'maximum', 'minimum')}, "
                   f"{rows})", a.shape, FLOAT32, facts)
        case "activation_reduce":
            w.into(f"nisa.activation_reduce(DST, nl.{w.pick('copy', 'relu', 'abs')}, {a.text}, nl.add, {rows})",
                   a.shape, FLOAT32, facts)
        case "activation":
            w.into(f"nisa.activation(DST, nl.copy, {a.text}, reduce_op=nl.add, reduce_res={rows}, "
                   f"reduce_cmd=nisa.reduce_cmd.reset_reduce)", a.shape, FLOAT32, facts)
        case "select_reduce":
            flags = w.operand(a.shape, (UINT8, UINT16))
            w.into(f"nisa.select_reduce(DST, {flags.text}, {a.text}, -2.0, reduce_res={rows}, "
                   f"reduce_cmd=nisa.reduce_cmd.reset_reduce, reverse_pred={w.maybe()})", a.shape, FLOAT32, facts)
        case _:
            low, high = (w.operand((w.P, 1), (FLOAT32,)).text for _ in range(2))
            w.into(f"nisa.range_select(DST, {a.text}, nl.greater_equal, nl.less, {low}, {high}, reduce_res={rows}, "
                   f"range_start={w.between(0, 3)})", a.shape, FLOAT32, Facts())
            facts = Facts()
    w.emit(f"nisa.tensor_scalar({rows}, {rows}, nl.add, 0.0)")
    w.keep(Tile(rows, (w.P, 1), FLOAT32, Facts(facts.bound * a.free + 5, facts.unit)))
    return None


@rule()
def cumulative(w: CurrentWriter):
    a = w.operand((w.P, w.F), WIDE)
    w.note("nisa.tensor_scalar_cumulative")
    op0, op1 = w.pick("add", "multiply", "subtract"), w.pick("add", "subtract", "multiply", "maximum", "minimum")
    w.into(f"nisa.tensor_scalar_cumulative(DST, {a.text}, nl.{op0}, nl.{op1}, {w.pick(0.0, 1.0, 2.0)})", a.shape,
           FLOAT32, Facts())


@rule()
def scan(w: CurrentWriter):
    a, b = w.operand((w.P, w.F), WIDE), w.operand((w.P, w.F), WIDE)
    start = w.pick("0.0", "0.5", w.operand((w.P, 1), (FLOAT32,)).text)
    w.note("nisa.tensor_tensor_scan")
    w.into(f"nisa.tensor_tensor_scan(DST, {a.text}, {b.text}, {start}, nl.{w.pick(*EXACT)}, nl.{w.pick(*EXACT)}, "
           f"reverse0={w.maybe()}, reverse1={w.maybe()})", a.shape, FLOAT32, Facts())


# -- products and transposes -------------------------------------------------------------------------------------------
@rule(3)
def product(w: CurrentWriter):
    K, M, N = w.P, w.between(1, 24), w.pick(w.F, 1, 33)
    dtype = w.pick(FLOAT32, BFLOAT16, FLOAT16)
    a, b = small(w, (K, M), (dtype,), K * 8), small(w, (K, N), (dtype,), K * 8)
    if a is None or b is None:
        return False
    facts = Facts(2 * K * a.facts.bound * b.facts.bound, a.facts.unit * b.facts.unit)
    if facts.bound / facts.unit >= 2.0 ** 23:
        return False
    w.note("nisa.nc_matmul", f"matmul.{dtype.name}")
    total = w.name("acc")
    w.emit(f"{total} = nl.zeros(({M}, {N}), nl.float32, buffer=nl.psum)")
    w.emit(f"nisa.nc_matmul({total}, {a.text}, {b.text}{w.pick('', ', accumulate=False', ', accumulate=True')})")
    if w.maybe():
        w.emit(f"nisa.nc_matmul({total}, {a.text}, {b.text}, accumulate=True)")
    return w.into(f"nisa.tensor_scalar(DST, {total}, nl.add, 0.0)", (M, N), FLOAT32, facts)


@rule()
def transposes(w: CurrentWriter):
    a = w.operand((w.P, w.F), tuple(d for d in PLAIN if d.bits > 8))
    if w.maybe():
        w.note("nisa.dma_transpose")
        return w.into(f"nisa.dma_transpose(DST, {a.text})", a.shape[::-1], a.dtype, a.facts)
    w.note("nisa.nc_transpose")
    if max(a.shape) > 32:
        if not a.dtype.is_float:
            return False
        total = w.name("turned")
        w.emit(f"{total} = nl.ndarray({a.shape[::-1]}, {kind(a.dtype)}, buffer=nl.psum)")
        w.emit(f"nisa.nc_transpose({total}, {a.text})")
        return w.into(f"nisa.tensor_copy(DST, {total})", a.shape[::-1], a.dtype, a.facts)
    return w.into(f"nisa.nc_transpose(DST, {a.text})", a.shape[::-1], a.dtype, a.facts)


@rule()
def microscaling(w: CurrentWriter):
    if w.P not in (32, 64, 128) or w.loops:
        return False
    element = w.pick("float8_e4m3fn", "float8_e5m2")
    w.note("nisa.quantize_mx", "nisa.nc_matmul_mx")
    parts = []
    for columns in (4, 6):
        source, _ = w.array(BFLOAT16, "fraction")
        x, data, scale = w.name(), w.name(), w.name()
        w.emit(f"{x} = nl.load({source}[0:{w.P}, {w.between(0, 9)}:{9 + 4 * columns + 99}][:, 0:{4 * columns}])")
        w.emit(f"{data}, {scale} = nl.ndarray(({w.P}, {columns}), nl.uint32), nl.full(({w.P}, {columns}), 0, nl.uint8)")
        w.emit(f"nisa.quantize_mx({data}.view(nl.{element}_x4), {x}, {scale})")
        w.keep(Tile(data, (w.P, columns), UINT32, ANY_BITS))
        w.keep(Tile(scale, (w.P, columns), UINT8, Facts(255, 1)))
        parts += [data, scale]
    total, result = w.name("acc"), w.name()
    w.emit(f"{total} = nl.ndarray((4, 6), nl.float32, buffer=nl.psum)")
    w.emit(f"nisa.nc_matmul_mx({total}, {parts[0]}.view(nl.{element}_x4), {parts[2]}.view(nl.{element}_x4), {parts[1]}, "
           f"{parts[3]})")
    w.emit(f"{result} = nl.ndarray((4, 6), nl.float32)")
    w.emit(f"nisa.tensor_copy({result}, {total})")
    w.store(Tile(result, (4, 6), FLOAT32, Facts()), 1e-4, 1e-3)
    return None


# -- searches, statistics, lists ---------------------------------------------------------------------------------------
@rule()
def search(w: CurrentWriter):
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16, FLOAT16), lambda t: t.facts.bound < inf, "small")
    if w.F < 8 or not a.facts.bound < inf:
        return False
    w.note("nisa.max8")
    top = w.into(f"nisa.max8(DST, {a.text})", (w.P, 8), a.dtype, a.facts)
    if w.maybe():
        w.note("nisa.nc_find_index8")
        w.into(f"nisa.nc_find_index8(DST, {a.text}, {top.text})", (w.P, 8), UINT32, ANY_BITS)
    else:
        w.note("nisa.nc_match_replace8")
        places = w.into("nisa.memset(DST, 0)", (w.P, 8), UINT32, ANY_BITS)
        w.into(f"nisa.nc_match_replace8(DST, {a.text}, {top.text}, -4.0, dst_idx={places.text})", a.shape, a.dtype,
               a.facts.join(Facts(4, 1)))
    return None


@rule()
def statistics(w: CurrentWriter):
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16), lambda t: t.facts.bound <= 64, "fraction")
    w.note("nisa.bn_stats", "nisa.bn_aggr")
    name, error = w.name(), w.F * ULP * 16
    bound = error * (min(a.facts.bound, 64) + 1) ** 2
    if a.facts.bound > 64:
        return False
    w.emit(f"{name} = nl.ndarray(({w.P}, 6), nl.float32)")
    w.emit(f"nisa.bn_stats({name}, {a.text})")
    w.store(Tile(name, (w.P, 6), FLOAT32, Facts()), error, bound)
    return w.rounded(f"nisa.bn_aggr(DST, {name})", (w.P, 2), error, bound)


@rule()
def shuffle(w: CurrentWriter):
    if w.P % 32:
        return False
    a = w.operand((w.P, w.F), PLAIN)
    order = [w.pick(k, 0, 255, 31 - k) for k in range(32)]
    w.note("nisa.nc_stream_shuffle")
    return w.into(f"nisa.nc_stream_shuffle(DST, {a.text}, {order})", a.shape, a.dtype, a.facts, before=1)


@rule()
def gathers(w: CurrentWriter):
    a = w.operand((w.P, w.F), PLAIN)
    places = w.into(f"nisa.tensor_scalar(DST, {w.fresh((w.P, 5), UINT32, 'one').text}, nl.multiply, {w.between(0, w.F - 1)})",
                    (w.P, 5), UINT32, Facts(w.F, 1))
    w.note("nisa.nc_n_gather")
    w.into(f"nisa.nc_n_gather(DST, {a.text}, {places.text})", (w.P, 5), a.dtype, a.facts)


@rule()
def local_gather(w: CurrentWriter):
    if w.P % 16 or w.F < 4:
        return False
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16, INT32))
    places = w.fresh((w.P, 2), UINT16, "one")
    w.note("nisa.local_gather")
    return w.into(f"nisa.local_gather(DST, {a.text}, {places.text}, 2)", (w.P, 64), a.dtype, a.facts)


@rule()
def lists(w: CurrentWriter):
    if w.P % 32:
        return False
    ids = w.fresh((w.P, w.F), w.pick(FLOAT32, INT32), "one")
    w.note("nisa.nonzero_with_count")
    return w.into(f"nisa.nonzero_with_count(DST, {ids.text}, index_offset={w.between(0, 9)}, padding_val=-1)",
                  (w.P, w.F + 1), INT32, Facts(2000, 1), before=4)


@rule()
def topk(w: CurrentWriter):
    if w.P not in (16, 32, 64, 128):
        return False
    a = w.operand((w.P, w.F), (BFLOAT16,), lambda t: t.facts.bound < inf, "small")
    if not a.facts.bound < inf:
        return False
    w.note("nisa.topk")
    places = w.into("nisa.memset(DST, 0)", (w.P, w.F), UINT32, ANY_BITS)
    return w.into(f"nisa.topk(DST, {places.text}, {a.text}, {w.between(max(8, w.F), 16 * w.F)})", (w.P, w.F), BFLOAT16, a.facts,
                  before=0)


@rule()
def sequence_bounds(w: CurrentWriter):
    ids = w.fresh((1, w.F), FLOAT32, "one")
    w.note("nisa.sequence_bounds")
    w.into(f"nisa.sequence_bounds(DST, {ids.text})", (1, 2, w.F), FLOAT32, Facts(w.F, 1))


@rule()
def random_numbers(w: CurrentWriter):
    if w.loops:
        return False
    seed = w.into(f"nisa.memset(DST, {w.between(1, 99)})", (1, 1), INT32, Facts(99, 1))
    w.note("nisa.set_rng_seed", "nisa.rand2", "nisa.rng", "nisa.dropout")
    w.emit(f"nisa.set_rng_seed({seed.text})")
    match w.between(0, 2):
        case 0:
            return w.into("nisa.rand2(DST, 2.0, 4.0)", (w.P, w.F), FLOAT32, Facts(4, 0))
        case 1:
            return w.into("nisa.rng(DST)", (w.P, w.F), UINT32, ANY_BITS)
    a = w.operand((w.P, w.F), (FLOAT32, BFLOAT16))
    return w.into(f"nisa.dropout(DST, {a.text}, 0.5)", a.shape, a.dtype, a.facts.join(Facts(0, 1)))


# -- transfers, views, addresses of the run time -----------------------------------------------------------------------
@rule(2)
def views(w: CurrentWriter):
    a = w.operand((w.P, w.F), PLAIN)
    P, F = a.shape
    base = w.into(f"nisa.tensor_copy(DST, {a.text})", a.shape, a.dtype, a.facts).text      # its own storage
    forms = [(f"{base}.ap([[{F}, {P}], [1, {F}]])", (P, F)), (f"{base}.expand_dim(1).broadcast(1, 3)", (P, 3, F)),
             (f"{base}.ap([[{F}, {P}], [0, 3], [1, {F}]])", (P, 3, F))]
    if F % 2 == 0:
        forms += [(f"{base}.ap([[{F}, {P}], [2, {F // 2}]], offset=1)", (P, F // 2)), (f"{base}[:, ::2]", (P, F // 2)),
                  (f"{base}.reshape_dim(1, (2, {F // 2})).permute((0, 2, 1))", (P, F // 2, 2)),
                  (f"{base}.ap([[{F}, {P}], [1, 2], [2, {F // 2}]])", (P, 2, F // 2)),
                  (f"{base}.reshape_dim(1, ({F // 2}, 2)).select(2, 1)", (P, F // 2))]
    if F > 4:
        forms += [(f"{base}.ap([[{F}, {P}], [1, 3]], scalar_offset={w.register(w.between(0, F - 3))}, indirect_dim=1)",
                   (P, 3)), (f"{base}.slice(1, 1, {F - 1}, 2)", (P, (F - 1) // 2))]
    text, shape = w.pick(*forms)
    w.note("view", "ap")
    w.into(f"nisa.tensor_copy(DST, {text})", shape, a.dtype, a.facts)


@rule()
def reinterpreted(w: CurrentWriter):
    """The bytes of a tile as another type."""
    a = w.operand((w.P, w.F), (INT32, UINT32, FLOAT32, UINT16, INT16, UINT8))
    base = w.into(f"nisa.tensor_copy(DST, {a.text})", a.shape, a.dtype, a.facts).text
    to = w.pick(UINT8, UINT16, BFLOAT16, UINT32, INT32, INT8)
    if w.F * a.dtype.itemsize % to.itemsize:
        return False
    w.note("view of bytes")
    wide = w.F * a.dtype.itemsize // to.itemsize
    name = f"{base}.view({kind(to)})" if w.maybe() else \
        f"{base}.ap([[{wide}, {w.P}], [1, {wide}]], offset=0, dtype={kind(to)})"
    return w.into(f"nisa.tensor_copy(DST, {name})", (w.P, wide), to, Facts().cast(to) if to.is_float else ANY_BITS.cast(to))


@rule(2)
def dynamic_rows(w: CurrentWriter):
    """DMA from HBM with addresses of the run time."""
    dtype = w.pick(FLOAT32, BFLOAT16, INT32, UINT8)
    table, facts = w.array(dtype, "small")
    P = w.pick(w.P, 8)
    if w.maybe():
        w.note("dma_copy with scalar_offset")
        at = w.register(w.between(0, 60))
        return w.into(f"nisa.dma_copy(DST, {table}.ap([[192, {P}], [1, {w.F}]], scalar_offset={at}, indirect_dim=0))",
                      (P, w.F), dtype, facts)
    w.note("dma_copy with vector_offset")
    rows = w.into(f"nisa.iota(DST, [[0, 1]], offset={w.between(0, 9)}, channel_multiplier=1)", (P, 1), INT32, Facts(140, 1))
    view = w.pick(f"{table}.ap([[192, {P}], [1, {w.F}]], vector_offset={rows.text})",
                  f"{table}[:, 0:{w.F}].vector_select(0, {rows.text})")
    return w.into(f"nisa.dma_copy(DST, {view})", (P, w.F), dtype, facts)


@rule()
def through_hbm(w: CurrentWriter):
    a = w.operand((w.P, w.F), PLAIN)
    name = w.name("hbm")
    w.note("private_hbm", "nisa.dma_compute" if a.dtype is FLOAT32 else "nisa.dma_copy")
    w.emit(f"{name} = nl.ndarray({a.shape}, {kind(a.dtype)}, buffer=nl.private_hbm)")
    w.emit(f"nisa.dma_copy({name}, {a.text})")
    if a.dtype is FLOAT32 and w.maybe():
        w.emit(f"nisa.dma_compute({name}, [{name}, {a.text}], nl.add)")
        return w.into(f"nisa.dma_copy(DST, {name})", a.shape, a.dtype, Facts(2 * a.facts.bound, a.facts.unit))
    if w.maybe():
        return w.into(f"nisa.dma_copy(DST, {name}.reshape(({w.F}, {w.P})))", (w.F, w.P), a.dtype, a.facts)
    return w.into(f"nisa.dma_copy(DST, {name})", a.shape, a.dtype, a.facts)


@rule()
def registers(w: CurrentWriter):
    r, other = w.register(w.between(0, 5)), w.name("r")
    w.note("register_move", "register_store")
    w.emit(f"{other} = nisa.register_alloc({w.between(-4, 4)})")
    if w.maybe():
        w.emit(f"nisa.register_move({other}, {r})")
    w.into(f"nisa.register_store(DST, {other})", (1, 1), INT32, Facts(5, 1))


@rule()
def indirect_columns(w: CurrentWriter):
    if w.P % 16:
        return False
    a = w.operand((w.P, w.F), (FLOAT32, INT32, BFLOAT16))
    base = w.into(f"nisa.tensor_copy(DST, {a.text})", a.shape, a.dtype, a.facts)
    index = w.fresh((w.P, 1), UINT32, "one")
    if w.F < 2:
        return False
    w.note("view.indirect")
    return w.into(f"nisa.tensor_copy(DST, {base.text}.indirect({index.text}))", (w.P, 16), a.dtype, a.facts)


@rule()
def stored(w: CurrentWriter):
    w.note("store")
    w.store(w.operand(None, w.dtypes))


# -- functions made of several instructions ----------------------------------------------------------------------------
@rule()
def more_functions(w: CurrentWriter):
    a = w.operand((w.P, w.F), w.dtypes)
    name = w.pick("logical_not", "invert", "ones", "zeros_like", "transpose", "gather_flattened", "all", "prod", "power",
                  "softmax", "rms_norm", "expand_dims", "broadcast_to", "load_transpose2d", "matmul", "store")
    w.note(f"nl.{name}")
    P, F = a.shape
    match name:
        case "logical_not":
            return w.made(f"nl.logical_not({a.text}, dtype=nl.uint8)", a.shape, UINT8, Facts(1, 1))
        case "invert":
            b = w.operand(a.shape, BITWISE)
            return w.made(f"nl.invert({b.text})", b.shape, b.dtype, ANY_BITS.cast(b.dtype))
        case "ones":
            return w.made(f"nl.ones({a.shape}, {kind(a.dtype)})", a.shape, a.dtype, Facts(1, 1))
        case "zeros_like":
            return w.made(f"nl.zeros_like({a.text})", a.shape, a.dtype, Facts(1, 1))
        case "transpose":
            b = w.operand(a.shape, (FLOAT32, BFLOAT16))
            return w.made(f"nl.copy(nl.transpose({b.text}))", b.shape[::-1], b.dtype, b.facts)
        case "gather_flattened":
            index = w.fresh((P, F), UINT32, "one")
            if F < 2:
                return False
            return w.made(f"nl.gather_flattened({a.text}, {index.text})", (P, F), a.dtype, a.facts)
        case "all":
            return w.made(f"nl.all({a.text}, axis=1, dtype=nl.uint8)", (P, 1), UINT8, Facts(1, 1))
        case "prod":
            b = w.fresh(a.shape, FLOAT32, "one")
            return w.made(f"nl.prod({b.text}, axis=1, dtype=nl.float32, keepdims=True)", (P, 1), FLOAT32, Facts(1, 1))
        case "power":
            b = w.fresh(a.shape, FLOAT32, "amount")
            return w.inexact(f"nl.power({b.text}, {w.pick(2.0, 0.5, 1.5)}, dtype=nl.float32)", b.shape, FLOAT32, 10 * ULP)
        case "softmax":
            b = w.fresh(a.shape, FLOAT32, "fraction")
            return w.inexact(f"nl.softmax({b.text}, axis=-1, dtype=nl.float32)", b.shape, FLOAT32, 1e-5, 1e-6)
        case "rms_norm":
            b, weight = w.fresh(a.shape, FLOAT32, "fraction"), w.fresh((1, F), FLOAT32, "fraction")
            return w.inexact(f"nl.rms_norm({b.text}, {weight.text}, axis=1, n={F}, dtype=nl.float32)", b.shape, FLOAT32,
                             1e-5, 1e-5)
        case "expand_dims":
            return w.made(f"nl.copy(nl.expand_dims({a.text}, 1))", (P, 1, F), a.dtype, a.facts)
        case "broadcast_to":
            return w.made(f"nl.copy(nl.broadcast_to(nl.expand_dims({a.text}, 1), ({P}, 2, {F})))", (P, 2, F), a.dtype,
                          a.facts)
        case "load_transpose2d":
            name, facts = w.array(FLOAT32, "small")
            return w.made(f"nl.load_transpose2d({name}[1:{1 + P}, 2:{2 + F}])", (F, P), FLOAT32, facts)
        case "matmul":
            x, y = w.fresh((P, 8), BFLOAT16, "small"), w.fresh((P, F), BFLOAT16, "small")
            return w.made(f"nl.add(nl.copy(nl.matmul({x.text}, {y.text}, transpose_x=True)), 0.0)", (8, F), FLOAT32,
                          Facts(36 * P, 1))
    out = w.name("hbm")
    w.emit(f"{out} = nl.ndarray({a.shape}, {kind(a.dtype)}, buffer=nl.private_hbm)")
    w.emit(f"nl.store({out}, {a.text})")
    return w.made(f"nl.load({out})", a.shape, a.dtype, a.facts)

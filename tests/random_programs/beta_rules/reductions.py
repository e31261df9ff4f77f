# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folds along free axes and partitions, and instructions that also write one."""

from math import prod

from nki_mlir.language.beta import language as nl
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BFLOAT16, BOOL, FLOAT32, INT32, UINT8, UINT16, UINT32

from ..beta import BetaWriter, kind, rule
from ..writer import WIDE, Facts, Tile
from .operands import FOLDS, ULP, result, token


def free_axes(w: BetaWriter, tile: Tile) -> tuple[int, ...]:
    """Return some of the free axes: the last ones."""
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
    return _reduction(w, a, axes, op, lambda more: f"nl.{name}({a.text}, axis={list(axes)}, keepdims=True{more})"
                      if name != "all" else f"nl.all({a.text}, axis={list(axes)}{more}).reshape({folded(a, axes)})",
                      BOOL if name == "all" else a.dtype)


def folded(a: Tile, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if k in axes else n for k, n in enumerate(a.shape))


def _reduction(w, a, axes, op, call, natural):
    shape = tuple(1 if k in axes else n for k, n in enumerate(a.shape))
    count = prod(a.shape[k] for k in axes)
    facts = {"add": Facts(a.facts.bound * count, a.facts.unit), "multiply": Facts(a.facts.bound, a.facts.unit),
             "logical_and": Facts(1, 1)}.get(op, a.facts)
    dtype, kwarg = result(w, natural)
    text = call(f"{kwarg}{w.mask(a.shape, fold=True)}")
    if op == "add" and dtype.is_float:                  # the sign of a sum that is 0 is not fixed
        text = f"nl.add({text}, 0.0, dtype={kind(dtype)})"
    return w.let(text, shape, dtype, facts.cast(dtype))


REDUCERS = tuple(n for n, op in ALU.items() if op.reduce is not None and hasattr(nl, n))


@rule(2)
def tensor_reduce(w: BetaWriter):
    op = w.pick(*REDUCERS)
    w.note("nisa.tensor_reduce", f"reduce.{op}")
    if ALU[op].group == "bitwise":
        a = w.operand(None, (INT32, UINT32, UINT16, UINT8))
        axes = free_axes(w, a)
        shape = tuple(1 if k in axes else n for k, n in enumerate(a.shape))
        return w.let(f"nisa.tensor_reduce({token(op)}, {a.text}, axis={list(axes)}, keepdims=True{w.mask(a.shape, fold=True)})",
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
                      f"negate={negate}, keepdims=True{more})", a.dtype)


@rule()
def rounded_sum(w: BetaWriter):
    """Emit sums of any finite values, which round."""
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
def normalized(w: BetaWriter):
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
    return w.let(f"nisa.tensor_partition_reduce({token(op)}, {a.text}{w.mask(a.shape, fold=True)})", (1, *a.shape[1:]), a.dtype,
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
    w.let(text, a.shape, FLOAT32, facts)
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
            w.let(f"nisa.activation(nl.copy, {a.text}, reduce_op=np.add, reduce_res={rows}, "
                  f"reduce_cmd=nisa.reduce_cmd.reset_reduce)", a.shape, a.dtype, a.facts)
            facts = Facts(a.facts.bound * a.free, a.facts.unit)
        case 1:
            w.note("nisa.select_reduce")
            flags = w.operand(a.shape, (UINT8, UINT16))
            chosen = w.name()
            w.emit(f"{chosen} = nl.full({a.shape}, 1, {kind(a.dtype)})")
            w.emit(f"nisa.select_reduce(dst={chosen}, predicate={flags.text}, on_true={a.text}, on_false=-3.0, "
                   f"reduce_res={rows}, reduce_cmd=nisa.reduce_cmd.reset_reduce, reverse_pred={w.maybe()}{w.rows_mask(w.P)})")
            facts = a.facts.join(Facts(3, 1))
            w.keep(Tile(chosen, a.shape, a.dtype, facts))
        case _:
            w.note("nisa.range_select")
            low, high = (w.operand((w.P, 1), (FLOAT32,)).text for _ in range(2))
            w.let(f"nisa.range_select(on_true_tile={a.text}, comp_op0=np.greater_equal, comp_op1=np.less, bound0={low}, "
                  f"bound1={high}, reduce_res={rows}, reduce_cmd=nisa.reduce_cmd.reset_reduce, "
                  f"range_start={w.between(0, 3)}{w.rows_mask(w.P)})", a.shape, a.dtype, Facts())
            facts = Facts()
    w.keep(Tile(rows, (w.P, 1), FLOAT32, facts))
    return None

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folds along free axes and partitions, and instructions that also write one."""

from nki_mlir.language.current import language as nl
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, TFLOAT32, UINT8, UINT16

from ..current import CurrentWriter, rule
from ..writer import WIDE, Facts, Tile
from .operands import ANY_BITS, BITWISE, PLAIN, ULP, small


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
    reduced = w.into(f"nisa.tensor_reduce(DST, nl.{op}, {a.text}, axis={axes}, negate={negate}, keepdims=True)", shape,
                     dtype, (ANY_BITS if ALU[op].group == "bitwise" else facts).cast(dtype))
    if op in ("add", "subtract", "abs_max", "abs_min") and dtype.is_float:        # the sign of a sum that is 0 is not fixed
        w.emit(f"nisa.tensor_scalar({reduced.text}, {reduced.text}, nl.add, 0.0)")
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
    return w.let(text, shape, FLOAT32, Facts(a.facts.bound * a.free, a.facts.unit))


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
    reduced = w.into(f"nisa.tensor_partition_reduce(DST, nl.{op}, {a.text})", (1, w.F), a.dtype, facts)
    if op == "add":
        w.emit(f"nisa.tensor_scalar({reduced.text}, {reduced.text}, nl.add, 0.0)")
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

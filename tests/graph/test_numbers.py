# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Integers of graphs as index arithmetic: which are, and their values in each iteration against Python's."""

import itertools
import operator
import re
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.graph.numbers import PREDICATES, SIGNED, Number, _Counting, constant, fits

SPANS = st.tuples(st.integers(-3, 3), st.integers(0, 4)).map(lambda span: (span[0], span[0] + span[1]))


@pytest.mark.parametrize("predicate", SIGNED)
@given(spans=st.tuples(SPANS, SPANS))
def test_a_comparison_is_a_constant_where_all_values_compare_alike(predicate, spans):
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse("func.func @f(%a: index, %b: index) { return }")
        block = module.body.operations[0].regions[0].blocks[0]
        numbers = [constant(low) if low == high else Number(value, (low, high))
                   for (low, high), value in zip(spans, block.arguments)]
        with ir.InsertionPoint.at_block_begin(block):
            result = _Counting().compared(predicate, *numbers)
        outcomes = {SIGNED[predicate](a, b) for a, b in itertools.product(
            *(range(low, high + 1) for low, high in spans))}
        if result.value is None:
            assert outcomes == {bool(result.span[0])}
        else:
            assert result.span == (0, 1)
            assert [op.name for op in block.operations][-3:] == ["arith.cmpi", "arith.index_castui", "func.return"]
        if len(outcomes) == 1 and predicate not in ("eq", "ne"):
            assert result.value is None


N = range(-3, 5)                # the values of %n below
INDEX = {"arith.addi": operator.add, "arith.subi": operator.sub, "arith.muli": operator.mul, "arith.minsi": min,
         "arith.maxsi": max}
# The text of operations on %n and %m = 7 - (%n + 3) of i32, on %p = %n + 3 (0 to 7), and on %t, which is %n < 0; the type
# of their last result %r; its values in order if it is a number, else None
EVEN, P = "%c1 = arith.constant 1 : i32 %e = arith.remsi %p, %c2 : i32 %u = arith.cmpi eq, %e, %c1 : i32 ", range(8)
SCALARS = [
    ("%r = arith.addi %n, %c2 : i32", "i32", [n + 2 for n in N]),
    ("%r = arith.subi %c2, %n : i32", "i32", [2 - n for n in N]),
    ("%r = arith.muli %n, %m : i32", "i32", [n * (4 - n) for n in N]),
    ("%r = arith.minsi %n, %m : i32", "i32", [min(n, 4 - n) for n in N]),
    ("%r = arith.maxsi %n, %c2 : i32", "i32", [max(n, 2) for n in N]),
    ("%z = arith.constant 0 : i32 %r = arith.muli %n, %z : i32", "i32", [0] * 8),
    ("%r = arith.divsi %p, %c3 : i32", "i32", [p // 3 for p in P]),
    ("%r = arith.remsi %p, %c3 : i32", "i32", [p % 3 for p in P]),
    ("%c8 = arith.constant 8 : i32 %r = arith.remsi %p, %c8 : i32", "i32", [*P]),
    ("%c8 = arith.constant 8 : i32 %r = arith.divsi %p, %c8 : i32", "i32", [0] * 8),
    ("%r = arith.remsi %c3, %c2 : i32", "i32", [1] * 8),
    ("%r = arith.divsi %n, %c2 : i32", "i32", None),        # rounds to zero, floordiv does not
    ("%r = arith.remsi %n, %c2 : i32", "i32", None),
    ("%r = arith.divsi %p, %n : i32", "i32", None),
    ("%r = arith.divsi %p, %p : i32", "i32", None),
    ("%z = arith.constant 0 : i32 %r = arith.divsi %p, %z : i32", "i32", None),
    ("%z = arith.constant -2 : i32 %r = arith.divsi %p, %z : i32", "i32", None),
    ("%r = arith.shrsi %n, %c2 : i32", "i32", [n >> 2 for n in N]),
    ("%z = arith.constant 0 : i32 %r = arith.shrsi %n, %z : i32", "i32", [*N]),
    ("%z = arith.constant 32 : i32 %r = arith.shrsi %n, %z : i32", "i32", None),
    ("%z = arith.constant -1 : i32 %r = arith.shrsi %n, %z : i32", "i32", None),
    ("%r = arith.ori %c2, %c3 : i32", "i32", [3] * 8),
    ("%r = arith.ori %n, %c2 : i32", "i32", None),
    ("%r = arith.xori %n, %c2 : i32", "i32", None),
    ("%r = arith.andi %n, %c2 : i32", "i32", None),
    ("%r = arith.trunci %n : i32 to i8", "i8", [*N]),
    ("%k = arith.constant 43 : i32 %l = arith.muli %n, %k : i32 %r = arith.trunci %l : i32 to i8", "i8", None),
    ("%k = arith.constant 42 : i32 %l = arith.muli %n, %k : i32 %r = arith.trunci %l : i32 to i9", "i9", [42 * n for n in N]),
    ("%r = arith.trunci %n : i32 to i1", "i1", None),
    ("%k = arith.constant 1073741824 : i32 %r = arith.muli %n, %k : i32", "i32", None),       # overflows
    ("%r = arith.extsi %n : i32 to i64", "i64", [*N]),
    ("%k = arith.constant 2147483647 : i64 %l = arith.extsi %t : i1 to i64 %r = arith.addi %k, %l : i64", "i64", None),
    ("%l = arith.extui %p : i32 to i64 %k = arith.constant 2147483640 : i64 %r = arith.addi %k, %l : i64", "i64",
     [2147483640 + p for p in P]),
    ("%l = arith.extui %p : i32 to i64 %k = arith.constant 2147483641 : i64 %r = arith.addi %k, %l : i64", "i64", None),
    ("%l = arith.extsi %n : i32 to i64 %k = arith.constant -2147483645 : i64 %r = arith.addi %k, %l : i64", "i64",
     [-2147483645 + n for n in N]),
    ("%l = arith.extsi %n : i32 to i64 %k = arith.constant -2147483646 : i64 %r = arith.addi %k, %l : i64", "i64", None),
    ("%r = arith.extui %n : i32 to i64", "i64", None),      # of a negative number
    ("%r = arith.extui %p : i32 to i64", "i64", [*P]),
    ("%r = arith.extui %t : i1 to i32", "i32", [int(n < 0) for n in N]),
    ("%r = arith.extsi %t : i1 to i32", "i32", None),       # a truth is -1
    ("%k = arith.constant false %r = arith.extsi %k : i1 to i32", "i32", [0] * 8),
    ("%k = arith.constant true %r = arith.extui %k : i1 to i32", "i32", [1] * 8),
    ("%r = arith.index_cast %n : i32 to index", "index", [*N]),
    *[(f"%r = arith.cmpi {name}, %n, %c2 : i32", "i1", [int(compare(n, 2)) for n in N])
      for name, compare in SIGNED.items()],
    ("%r = arith.cmpi ult, %n, %c2 : i32", "i1", None),
    ("%u = arith.cmpi sgt, %n, %c2 : i32 %r = arith.cmpi eq, %t, %u : i1", "i1", [int(0 <= n <= 2) for n in N]),
    ("%u = arith.cmpi sgt, %n, %c2 : i32 %r = arith.cmpi slt, %t, %u : i1", "i1", None),
    (EVEN + "%r = arith.andi %t, %u : i1", "i1", [n < 0 and p % 2 for n, p in zip(N, P)]),
    (EVEN + "%r = arith.ori %t, %u : i1", "i1", [n < 0 or p % 2 for n, p in zip(N, P)]),
    (EVEN + "%r = arith.xori %t, %u : i1", "i1", [(n < 0) != p % 2 for n, p in zip(N, P)]),
    (EVEN + "%r = arith.addi %t, %u : i1", "i1", None),
    ("%r = arith.select %t, %n, %m : i32", "i32", [n if n < 0 else 4 - n for n in N]),
    ("%k = arith.constant true %r = arith.select %k, %n, %data : i32", "i32", [*N]),
    ("%k = arith.constant false %r = arith.select %k, %n, %m : i32", "i32", [4 - n for n in N]),
    ("%r = arith.select %t, %n, %data : i32", "i32", None),
    ("%r = arith.addi %n, %data : i32", "i32", None),
]


def value_at(value, i):
    """What an index value is in the iteration ``i``, as Python computes it."""
    if isinstance(value.owner, ir.Block):
        return i
    op = value.owner.operation
    operands = [value_at(v, i) for v in op.operands]
    match op.name:
        case "arith.constant":
            return ir.IntegerAttr(op.attributes["value"]).value
        case "arith.cmpi":
            return int(SIGNED[PREDICATES[op.attributes["predicate"].value]](*operands))
        case "affine.apply":
            body = re.fullmatch(r"affine_map<\(\)\[s0\] -> \((.*)\)>", str(op.attributes["map"]))[1]
            return eval(body.replace("floordiv", "//").replace("mod", "%"), {"s0": operands[0]})
        case "arith.index_castui" | "arith.index_cast" | "arith.extui":
            return operands[0]
    return INDEX[op.name](*operands)


LOOP = """func.func @f(%data: i32) {{
  %i0 = arith.constant 0 : index
  %i1 = arith.constant 1 : index
  %i8 = arith.constant 8 : index
  scf.for %i = %i0 to %i8 step %i1 {{
    %c2 = arith.constant 2 : i32
    %c3 = arith.constant 3 : i32
    %c4 = arith.constant 4 : i32
    %z0 = arith.constant 0 : i32
    %p = arith.index_cast %i : index to i32
    %n = arith.subi %p, %c3 : i32
    %m = arith.subi %c4, %n : i32
    %t = arith.cmpi slt, %n, %z0 : i32
    {text}
    "test.use"(%r) : ({kind}) -> ()
  }}
  return
}}"""


@contextmanager
def numbered(text, kind):
    """Yield what the last result of operations in a loop is as a number."""
    with shared_context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(LOOP.format(text=text, kind=kind))
        loop = module.body.operations[0].regions[0].blocks[0].operations[3]
        use, = [op for op in loop.regions[0].blocks[0] if op.operation.name == "test.use"]
        with ir.InsertionPoint(use):
            yield _Counting().scalar(use.operands[0], {})


@pytest.mark.parametrize("text, kind, values", SCALARS, ids=[text for text, *_ in SCALARS])
def test_a_scalar_is_a_number_with_its_values(text, kind, values):
    with numbered(text, kind) as number:
        if values is None:
            assert number is None
            return
        assert number is not None and number.span[0] <= min(values) and max(values) <= number.span[1]
        if number.value is None:
            assert {number.span[0]} == {number.span[1]} == {*values}
        else:
            assert [value_at(number.value, i) for i in range(8)] == [int(v) for v in values]


def test_spans_of_numbers_are_exact_for_sums_and_products():
    for text, span in (("%r = arith.addi %n, %c2 : i32", (-1, 6)), ("%r = arith.muli %n, %c2 : i32", (-6, 8)),
                       ("%r = arith.subi %c2, %n : i32", (-2, 5)), ("%r = arith.remsi %p, %c3 : i32", (0, 2)),
                       ("%r = arith.divsi %p, %c3 : i32", (0, 2)), ("%r = arith.select %t, %n, %m : i32", (-3, 7)),
                       ("%r = arith.select %t, %m, %n : i32", (-3, 7)), ("%r = arith.shrsi %n, %c2 : i32", (-1, 1))):
        with numbered(text, "i32") as number:
            assert number.span == span, text


@pytest.mark.parametrize("span, width, expected", [
    ((-128, 127), 8, True), ((-129, 0), 8, False), ((0, 128), 8, False), ((0, 1), 1, True), ((-1, 0), 1, False),
    ((0, (1 << 31) - 1), 64, True), ((0, 1 << 31), 64, False), ((-1 << 31, 0), 64, True), ((-(1 << 31) - 1, 0), 64, False)])
def test_numbers_fit_their_type_and_a_register(span, width, expected):
    with shared_context():
        assert fits(span, ir.IntegerType.get_signless(width)) is expected
        assert not fits(span, ir.F32Type.get())

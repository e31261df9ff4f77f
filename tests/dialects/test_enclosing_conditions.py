# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What enclosing conditions say about symbols, and bounds proved with them."""

from itertools import product
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from nki_mlir.bindings import ir
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.enclosing_conditions import Numbering, enclosing_facts, interval_given, linear_of
from nki_mlir.dialects.mlir_ops import symbol_range, walk
from nki_mlir.dialects.symbol_ranges import affine_range

from .samples import context

SMALL = st.integers(-3, 3)
FORMS = st.builds(lambda const, a, b: Linear(const, tuple((k, c) for k, c in enumerate((a, b)) if c)),
                  st.integers(-6, 6), SMALL, SMALL)
RANGES = ((0, 4), (-2, 3))


@pytest.mark.fuzz
@given(FORMS, st.lists(FORMS, max_size=3))
def test_interval_given__holds_wherever_the_facts_do(form: Linear, facts: list[Linear]) -> None:
    low, high = interval_given(form, facts, RANGES)
    plain = form.interval(RANGES)
    assert plain[0] <= low and high <= plain[1]
    for point in product(range(0, 5), range(-2, 4)):
        if all(fact.at(point) >= 0 for fact in facts):
            assert low <= form.at(point) <= high


def test_interval_given__cancels_a_shared_symbol() -> None:
    form, fact = Linear(0, ((0, 128), (1, 1))), Linear(299, ((0, -128), (1, -1)))       # i * 128 + j <= 299
    assert interval_given(form, [fact], ((0, 2), (0, 127))) == (0, 299)
    assert interval_given(form, [], ((0, 2), (0, 127))) == (0, 383)


PROGRAM = """
func.func @kernel(%id: index {{nki.program_id = 0}}, %n: index, %t: memref<4x8xf32, "sbuf">)
    attributes {{nki.grid = [3]}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c5 = arith.constant 5 : index
  scf.for %i = %c0 to %c5 step %c2 {{
    {body}
  }}
  return
}}"""
MARK = '"test.mark"({values}) : ({types}) -> ()'


KEPT: list[Any] = []                # values and operations do not keep their module alive


def marked(body: str, *values: str) -> tuple[Any, list[Any]]:
    """(the marked operation, its operands)."""
    text = MARK.format(values=", ".join(values), types=", ".join("index" for _ in values))
    with context() as c:
        c.allow_unregistered_dialects = True
        module = ir.Module.parse(PROGRAM.format(body=body.replace("MARK", text)))
    operations: list[Any] = []
    walk(module.body.operations[0].regions[0].blocks[0], operations.append)
    KEPT.append(module)
    mark = next(op for op in operations if op.name == "test.mark")
    return mark, list(mark.operands)


def facts_of(body: str) -> set[tuple[int, tuple]]:
    """Facts at the mark as (constant, symbol coefficients); %i is symbol 0, %id symbol 1."""
    op, (i, id_) = marked(body, "%i", "%id")
    return {(f.const, f.symbols) for f in enclosing_facts(op, Numbering([i, id_]))}


def test_facts__of_then_and_else() -> None:
    condition = "%v = arith.cmpi sge, %i, %id : index\n scf.if %v {"
    assert facts_of(f"{condition} MARK }}") == {(0, ((0, 1), (1, -1)))}
    assert facts_of(f"{condition} }} else {{ MARK }}") == {(-1, ((0, -1), (1, 1)))}        # i < id


def test_facts__of_an_equality_and_a_conjunction() -> None:
    body = """%a = arith.cmpi eq, %i, %c2 : index
              %b = arith.cmpi sge, %c5, %id : index
              %v = arith.andi %a, %b : i1
              scf.if %v {"""
    both = {(-2, ((0, 1),)), (2, ((0, -1),)), (5, ((1, -1),))}
    assert facts_of(f"{body} MARK }}") == both
    assert facts_of(f"{body} }} else {{ MARK }}") == set()           # not one of them is known to fail


def test_facts__add_up_over_nested_conditions() -> None:
    body = """%a = arith.cmpi sge, %i, %c1 : index
              scf.if %a {
                %m = arith.muli %id, %c2 : index
                %s = arith.subi %m, %i : index
                %p = arith.addi %s, %c5 : index
                %b = arith.cmpi sge, %p, %c0 : index
                scf.if %b { MARK }
              }"""
    assert facts_of(body) == {(-1, ((0, 1),)), (5, ((0, -1), (1, 2)))}


def test_facts__leave_out_what_is_not_understood() -> None:
    assert facts_of("%v = arith.cmpi slt, %i, %id : index\n scf.if %v { MARK }") == set()
    assert facts_of("%v = arith.constant true\n scf.if %v { MARK }") == set()
    product_ = "%q = arith.muli %i, %id : index\n %v = arith.cmpi sge, %q, %c1 : index\n scf.if %v { MARK }"
    assert facts_of(product_) == {(-1, ((2, 1),))}                   # a product of symbols is its own symbol


def test_linear_of__sums_differences_and_products() -> None:
    body = """%a = arith.muli %i, %c5 : index
              %b = arith.addi %a, %id : index
              %c = arith.subi %b, %c2 : index
              %d = arith.muli %c2, %c : index
              MARK"""
    _, (d, i, id_) = marked(body, "%d", "%i", "%id")
    assert linear_of(d, Numbering([i, id_])) == Linear(-4, ((0, 10), (1, 2)))


def test_linear_of__is_quick_on_shared_operands() -> None:
    doubled = "\n".join(f"%v{k + 1} = arith.addi %v{k}, %v{k} : index" for k in range(60))
    _, (last, i) = marked(f"%v0 = arith.addi %i, %c0 : index\n{doubled}\nMARK", "%v60", "%i")
    assert linear_of(last, Numbering([i])) == Linear(0, ((0, 2 ** 60),))


LOADED = '%b = memref.alloc() : memref<1x1xi8, "sbuf">\n%y = memref.load %b[%c0, %c0] : memref<1x1xi8, "sbuf">\n'
RANGED = [("%i", "", (0, 4)), ("%id", "", (0, 2)), ("%c5", "", (5, 5)),
          ("%x", "%x = affine.apply affine_map<(d0)[s0] -> (d0 * 3 + s0 - 1)>(%i)[%id]", (-1, 13)),
          ("%x", "%x = affine.apply affine_map<(d0) -> (d0 floordiv 3)>(%i)", (0, 1)),
          ("%x", "%x = affine.apply affine_map<(d0) -> (d0 mod 3)>(%i)", (0, 2)),
          ("%x", "%x = affine.apply affine_map<(d0) -> (d0 mod 7)>(%i)", (0, 4)),
          ("%x", "%x = affine.apply affine_map<(d0) -> ((d0 - 1) mod 7)>(%i)", (0, 6)),
          ("%x", "%x = affine.apply affine_map<(d0)[s0] -> (d0 floordiv 2 - s0 + (d0 mod 2) * 8)>(%i)[%id]", (-2, 10)),
          ("%x", "%x = affine.apply affine_map<(d0)[s0] -> (d0 * s0)>(%i)[%id]", (0, 8)),
          ("%x", "%x = arith.addi %i, %c1 : index", (1, 5)), ("%x", "%x = arith.muli %i, %i : index", (0, 16)),
          ("%x", "%y = arith.subi %i, %c1 : index\n%x = arith.maxsi %y, %c1 : index", (1, 3)),
          ("%x", "%y = arith.index_cast %i : index to i32\n%x = arith.index_castui %y : i32 to index", (0, 4)),
          ("%x", LOADED + "%x = arith.index_cast %y : i8 to index", (-128, 127)),
          ("%x", LOADED + "%z = arith.index_cast %y : i8 to index\n%x = arith.minsi %z, %c1 : index", (-128, 1)),
          ("%x", "%y = arith.cmpi slt, %i, %c1 : index\n%x = arith.index_castui %y : i1 to index", (0, 1))]


@pytest.mark.parametrize(("name", "body", "wanted"), RANGED)
def test_symbol_range(name: str, body: str, wanted: tuple[int, int]) -> None:
    _, (value,) = marked(f"{body}\nMARK", name)
    assert symbol_range(value) == wanted


@pytest.mark.parametrize("body", [
    "%x = arith.divsi %i, %c1 : index", "%x = affine.apply affine_map<(d0) -> (d0)>(%n)",
    "%y = arith.subi %i, %c5 : index\n%z = arith.index_cast %y : index to i32\n%x = arith.index_castui %z : i32 to index",
    "%y = arith.cmpi slt, %i, %c1 : index\n%x = arith.index_cast %y : i1 to index",
    "%y = arith.index_cast %i : index to i2\n%x = arith.index_cast %y : i2 to index",
    "%x = affine.apply affine_map<(d0) -> (d0 ceildiv 2)>(%i)"])
def test_symbol_range__refuses_what_has_none(body: str) -> None:
    _, (value,) = marked(f"{body}\nMARK", "%x")
    with pytest.raises(Exception, match="neither a loop variable with constant bounds nor a program id nor a loaded number"):
        symbol_range(value)


AFFINE = ["d0 * 2 - d1", "d0 mod 3", "(d0 + d1) floordiv 4", "(d0 * 5 - 3) mod 4", "(d0 mod 2) floordiv 2",
          "(d0 floordiv 2) mod 3"]


@given(st.sampled_from(AFFINE), st.integers(-3, 3), st.integers(0, 4), st.integers(-2, 2))
def test_affine_range__holds(text: str, low: int, span: int, other: int) -> None:
    with context():
        mapping = ir.AffineMapAttr(ir.Attribute.parse(f"affine_map<(d0, d1) -> ({text})>")).value
    bounds = affine_range(mapping, [(low, low + span), (other, other + 1)])
    assert bounds is not None
    plain = text.replace("floordiv", "//").replace("mod", "%")
    values = [eval(plain, {"d0": a, "d1": b}) for a in range(low, low + span + 1) for b in (other, other + 1)]
    assert bounds[0] <= min(values) and max(values) <= bounds[1]

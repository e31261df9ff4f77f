# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Spans of index values and truths of conditions, compared with their values at each point of a grid and a loop."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.analysis.index_values import constant_of, roots, span_of, truth_of
from nki_mlir.bindings import ir, operations_of
from nki_mlir.dialects.mlir_ops import shared_context

PROGRAMS, ITERATIONS = range(5), range(2, 11, 3)
HEAD = """func.func @f(%p: index {nki.program_id = 0 : i64}) attributes {nki.grid = [5]} {
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c11 = arith.constant 11 : index
  scf.for %i = %c2 to %c11 step %c3 {
"""
FORMS = st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-8, 8))          # of p, of i, a constant
PREDICATES = {"eq": int.__eq__, "ne": int.__ne__, "sge": int.__ge__, "slt": int.__lt__}


def parsed(lines: list[str]) -> tuple[ir.Module, dict[str, ir.Value]]:
    """The module, which the values need, and values by the names of their operations."""
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse(HEAD + "".join(f"    {line}\n" for line in lines) + "  }\n  return\n}\n")
    function = module.body.operations[0].operation
    values = {op.attributes["name"].value: op.results[0] for op in operations_of(function, lambda name: True)
              if "name" in op.attributes}
    loop, = operations_of(function, lambda name: name == "scf.for")
    values |= {"p": function.regions[0].blocks[0].arguments[0], "i": loop.regions[0].blocks[0].arguments[0]}
    return module, values


def form(name: str, coefficients: tuple[int, int, int]) -> str:
    p, i, constant = coefficients
    return (f'%{name} = "affine.apply"(%p, %i) {{name = "{name}", map = affine_map<(d0, d1) -> (d0 * {p} + d1 * {i} + '
            f'{constant})>}} : (index, index) -> index')


def at(coefficients: tuple[int, int, int], p: int, i: int) -> int:
    return coefficients[0] * p + coefficients[1] * i + coefficients[2]


@given(FORMS, st.sampled_from([PROGRAMS, range(1, 3), range(4, 5)]))
def test_spans_are_the_extremes(coefficients, programs):
    """``pinned`` narrows the values of the grid."""
    _, values = parsed([form("a", coefficients)])
    pinned = {values["p"]: (programs[0], programs[-1])} if programs != PROGRAMS else {}
    numbers = [at(coefficients, p, i) for p, i in product(programs, ITERATIONS)]
    assert span_of(values["a"], pinned) == (min(numbers), max(numbers))
    assert span_of(values["p"], pinned) == (programs[0], programs[-1])
    assert roots(values["a"]) == [values["p"], values["i"]]
    assert constant_of(values["a"]) is None


def comparison(name: str, predicate: str, left: str, right: str) -> str:
    return f'%{name} = arith.cmpi {predicate}, %{left}, %{right} {{name = "{name}"}} : index'


def truth(numbers) -> bool | None:
    """What a condition is at all points, None if it differs."""
    results = {*numbers}
    return results.pop() if len(results) == 1 else None


@given(FORMS, FORMS, st.sampled_from(["eq", "sge", "ne", "slt"]), st.sampled_from([PROGRAMS, range(1, 3), range(4, 5)]))
def test_a_comparison_is_decided_by_the_values(left, right, predicate, programs):
    _, values = parsed([form("a", left), form("b", right), comparison("c", predicate, "a", "b")])
    pinned = {values["p"]: (programs[0], programs[-1])} if programs != PROGRAMS else {}
    points = [(at(left, p, i), at(right, p, i)) for p, i in product(programs, ITERATIONS)]
    expected = truth(PREDICATES[predicate](a, b) for a, b in points)
    differences = [a - b for a, b in points]
    if predicate in ("ne", "slt"):              # capture writes neither
        expected = None
    elif predicate == "eq" and min(differences) <= 0 <= max(differences) and not expected:
        expected = None                         # the interval of differences contains 0
    assert truth_of(values["c"], pinned) == expected


@pytest.mark.parametrize("connective", ["andi", "ori"])
@pytest.mark.parametrize(("left", "right"), [*product((True, False, None), repeat=2)])
def test_connectives_know_what_one_side_decides(connective, left, right):
    least = {True: 0, False: 5, None: 2}        # of p >= least
    lines = [f"%k{n} = arith.constant {least[side]} : index" for n, side in enumerate((left, right))]
    lines += [comparison("x", "sge", "p", "k0"), comparison("y", "sge", "p", "k1"),
              f'%z = arith.{connective} %x, %y {{name = "z"}} : i1']
    _, values = parsed(lines)
    points = [(p >= least[left], p >= least[right]) for p in PROGRAMS]
    expected = truth(x and y if connective == "andi" else x or y for x, y in points)
    assert truth_of(values["z"]) == expected


def test_other_conditions_are_not_decided():
    _, values = parsed(['%t = arith.constant {name = "t"} true', "%k = arith.constant 0 : index",
                        comparison("x", "sge", "p", "k"), '%z = arith.xori %x, %t {name = "z"} : i1'])
    assert truth_of(values["t"]) is None and truth_of(values["z"]) is None and truth_of(values["x"]) is True


def test_constants_of_constants():
    _, values = parsed(["%k = arith.constant 7 : index", '%s = arith.addi %k, %c2 {name = "s"} : index',
                        '%a = "affine.apply"(%k, %c3) {name = "a", map = affine_map<(d0, d1) -> (d0 * 2 - d1)>} : '
                        "(index, index) -> index", '%m = arith.addi %k, %p {name = "m"} : index',
                        '%b = "affine.apply"(%k, %i) {name = "b", map = affine_map<(d0, d1) -> (d0 - d1)>} : '
                        "(index, index) -> index"])
    assert [constant_of(values[name]) for name in "sampib"] == [9, 11, None, None, None, None]
    assert roots(values["m"]) == [values["p"]] and roots(values["s"]) == []

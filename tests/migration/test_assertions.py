# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conditions of exceptions, negated for assertions: true where the condition is false."""

import itertools

import libcst as cst
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.migration.assertions import negated, raises_alone, text_of

VALUES = (0, 1, 2)
ATOMS = st.one_of(
    st.sampled_from(("a", "b", "c")),
    st.builds("{} {} {}".format, st.sampled_from("abc"), st.sampled_from(("<", "<=", ">", ">=", "==", "!=")),
              st.sampled_from(("1", "a", "b", "c"))),
    st.builds("{} {} (0, 2)".format, st.sampled_from("abc"), st.sampled_from(("in", "not in"))),
    st.builds("0 < {} <= {}".format, st.sampled_from("abc"), st.sampled_from("abc")),
    st.builds("{} is {}".format, st.sampled_from("abc"), st.sampled_from("abc")))
CONDITIONS = st.recursive(ATOMS, lambda inner: st.one_of(
    st.builds("not {}".format, ATOMS), st.builds("not ({})".format, inner), st.builds("({})".format, inner),
    st.builds("{} {} {}".format, inner, st.sampled_from(("and", "or")), inner),
    st.builds("({} if {} else {})".format, inner, ATOMS, inner)), max_leaves=5)


def code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


@given(CONDITIONS)
def test_negated_condition__is_true_where_the_condition_is_false(condition: str) -> None:
    opposite = code(negated(cst.parse_expression(condition)))
    for values in itertools.product(VALUES, repeat=3):
        names = dict(zip("abc", values))
        assert bool(eval(opposite, {}, names)) is not bool(eval(condition, {}, names)), opposite


@pytest.mark.parametrize(("condition", "opposite"), [
    ("a < 1", "a >= 1"), ("a >= 1", "a < 1"), ("a == b", "a != b"), ("a is not None", "a is None"),
    ("a not in (1, 2)", "a in (1, 2)"), ("a", "not a"), ("not a", "a"), ("not (a and b)", "(a and b)"),
    ("0 < a < 4", "not 0 < a < 4"), ("a < 1 or b < 2", "a >= 1 and b >= 2"), ("a < 1 and b < 2", "not (a < 1 and b < 2)"),
    ("a < 1 or b < 2 or c < 3", "a >= 1 and b >= 2 and c >= 3"), ("a < 1 or b", "not (a < 1 or b)"),
    ("a < 1 or (b < 2 and c < 3)", "not (a < 1 or (b < 2 and c < 3))"), ("a if b else c", "not (a if b else c)"),
])
def test_negated_condition__reads_well(condition: str, opposite: str) -> None:
    assert code(negated(cst.parse_expression(condition))) == opposite


@pytest.mark.parametrize(("text", "raised", "comments"), [
    ("if a:\n    raise ValueError('x')", "'x'", []), ("if a: raise ValueError('x')", "'x'", []),
    ("if a:\n    # why\n\n    raise ValueError", '"ValueError"', ["# why"]), ("if a: raise KeyError()", '"KeyError"', []),
    ("if a: raise ValueError(x, y)", None, []), ("if a: raise", None, []), ("if a: raise ValueError(*x)", None, []),
    ("if a: raise ValueError(text='x')", None, []), ("if a: raise ValueError('x') from b", None, []),
])
def test_raise__has_the_text_of_its_one_argument(text: str, raised: str | None, comments: list[str]) -> None:
    statement = cst.parse_statement(text)
    assert isinstance(statement, cst.If)
    alone = raises_alone(statement)
    assert alone is not None
    value = text_of(alone[0])
    assert (None if value is None else code(value)) == raised
    assert [line.comment.value for line in alone[1]] == comments


@pytest.mark.parametrize("text", ["if a:\n    b = 1\n    raise ValueError", "if a:\n    raise ValueError\nelse:\n    pass",
                                  "if a:\n    b = 1", "if a: b = 1; raise ValueError"])
def test_other_statements__do_not_raise_alone(text: str) -> None:
    statement = cst.parse_statement(text)
    assert isinstance(statement, cst.If) and raises_alone(statement) is None

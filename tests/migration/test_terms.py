# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arithmetic on texts: the new text has the value of the operation on the values of its operands."""

import ast
import itertools
import random

import pytest

from nki_mlir.migration import terms

TEXTS = ["0", "1", "-1", "2", "-3", "7", "a", "b", "x.n", "t[0]", "t[k]", "t[k + 1]", "-a", "-(a + b)", "a + b", "a - b",
         "a * b", "-a * b", "a // b", "a % b", "2 * a", "a + 1", "1 - a", "min(a, b)", "(a, b)[0]", "a << 1", "a | b", "a & b",
         "a if a > b else b", "a > b", "a and b", "-2 - a", "- a - b", "(a + b) * 2", "a - (b - 1)", "a ** 2", "True", "-t[0]", "~a", "+a", "not a"]


class Object:
    n = 5


VALUES = [{"a": a, "b": b, "k": k, "x": Object, "t": [3, -4, 9]} for a, b, k in
          [(2, 3, 0), (-5, 7, 1), (0, -1, 1), (1, 1, 0), (17, -6, 1)]]


def value(text, names):
    return eval(text, {}, dict(names))


def same_value(text, wanted):
    return all(value(text, names) == wanted(names) for names in VALUES)


@pytest.mark.parametrize("operation, meaning", [
    (terms.add, lambda a, b: a + b), (terms.subtract, lambda a, b: a - b), (terms.multiply, lambda a, b: a * b),
    (terms.smallest, min), (terms.largest, max)])
def test_operations_of_two_texts(operation, meaning):
    for left, right in itertools.product(TEXTS, TEXTS):
        text = operation(left, right)
        assert same_value(text, lambda names, l=left, r=right: meaning(value(l, names), value(r, names))), (left, right, text)


def test_texts_of_sums_and_products():
    for (operation, left, right), text in {
            (terms.add, "a", "0"): "a", (terms.add, "0", "a"): "a", (terms.add, "2", "-5"): "-3",
            (terms.add, "a", "-3"): "a - 3", (terms.add, "a", "-b"): "a - b", (terms.add, "a", "-b * 2"): "a - b * 2",
            (terms.add, "a", "-b - 1"): "a + -b - 1", (terms.add, "a", "b if c else d"): "a + (b if c else d)",
            (terms.add, "a < b", "c"): "(a < b) + c", (terms.add, "a | b", "c"): "(a | b) + c",
            (terms.add, "a // b", "c % d"): "a // b + c % d", (terms.add, "a / b", "c"): "a / b + c",
            (terms.add, "a and b", "c"): "(a and b) + c", (terms.add, "lambda: a", "c"): "(lambda: a) + c",
            (terms.subtract, "a", "0"): "a", (terms.subtract, "a + b", "a + b"): "0", (terms.subtract, "0", "a"): "-a",
            (terms.subtract, "0", "a + b"): "-(a + b)", (terms.subtract, "a", "b + c"): "a - (b + c)",
            (terms.subtract, "a", "b - c"): "a - (b - c)", (terms.subtract, "a", "b * c"): "a - b * c",
            (terms.subtract, "5", "7"): "-2", (terms.subtract, "a", "b << 1"): "a - (b << 1)",
            (terms.multiply, "0", "a"): "0", (terms.multiply, "a", "0"): "0", (terms.multiply, "1", "a + b"): "a + b",
            (terms.multiply, "a + b", "1"): "a + b", (terms.multiply, "-1", "a + b"): "-(a + b)",
            (terms.multiply, "a", "-1"): "-a", (terms.multiply, "a + 1", "b"): "(a + 1) * b",
            (terms.multiply, "a.n", "t[0]"): "a.n * t[0]", (terms.multiply, "f(a, b)", "t[a + 1]"): "f(a, b) * t[a + 1]",
            (terms.multiply, "(a, b)", "3"): "(a, b) * 3", (terms.multiply, "[a, b]", "3"): "[a, b] * 3",
            (terms.multiply, "-3", "4"): "-12",
            (terms.smallest, "n", "n + 2"): "n", (terms.smallest, "n", "n - 2"): "n - 2", (terms.smallest, "n", "n"): "n",
            (terms.smallest, "a", "b"): "min(a, b)", (terms.smallest, "?", "b"): "min(?, b)",
            (terms.largest, "n", "n + 2"): "n + 2", (terms.largest, "n", "n - 2"): "n", (terms.largest, "a", "b"): "max(a, b)",
            (terms.smallest, "2 * a", "a + a"): "2 * a", (terms.largest, "2 * a", "a + a"): "2 * a"}.items():
        assert operation(left, right) == text


@pytest.mark.parametrize("text, number", [("3", 3), (" -4 ", -4), ("True", None), ("2.0", None), ("a", None), ("'3'", None),
                                          ("(", None), ("0x10", 16), ("1 + 2", None), ("(1, 2)", None), ("", None)])
def test_numbers(text, number):
    assert terms.number(text) == number


def test_products_of_several():
    assert terms.product([]) == "1"
    assert terms.product(["2", "3", "a"]) == "6 * a"
    assert terms.product(["a", "b + 1", "1", "c"]) == "(a * (b + 1)) * c"
    assert terms.product(["a", "0", "c"]) == "0"


def test_names():
    assert terms.names("f(a.b, t[k]) + 2 * c") == {"f", "a", "t", "k", "c"}
    assert terms.names(" 3 ") == set()


def sums(rng, depth=3):
    """A random text of sums, differences and products."""
    if not depth or rng.random() < 0.2:
        return rng.choice(["a", "b", "k", "x.n", "t[k]", "a // b", "0", "1", "2", "-3", "f(a)"])
    left, right = sums(rng, depth - 1), sums(rng, depth - 1)
    return rng.choice([f"({left}) + ({right})", f"({left}) - ({right})", f"({left}) * ({right})", f"-({left})"])


def test_sums_are_collected():
    rng = random.Random(0)
    for _ in range(300):
        text = sums(rng)
        names = [n | {"f": lambda a: 3 * a + 1} for n in VALUES]
        simple = terms.simplified(text)
        assert all(value(simple, n) == value(text, n) for n in names), (text, simple)
        assert terms.simplified(simple) == simple
        other = sums(rng)
        distance = terms.difference(text, other)
        if distance is not None:
            assert all(value(distance, n) == value(text, n) - value(other, n) for n in names), (text, other, distance)
        assert terms.is_same_number(text, simple)
        if terms.is_same_number(text, other):
            assert all(value(text, n) == value(other, n) for n in names)
        else:
            assert distance != "0"


@pytest.mark.parametrize("text, simple", [
    ("a + b - a", "b"), ("3 + a * 2 + a - 1", "a * 3 + 2"), ("1 - a", "-a + 1"), ("b - a + 2", "b - a + 2"),
    ("2 - a + b", "b - a + 2"), ("(a + b) * (a - b)", "a * a - b * b"), ("a - a", "0"), ("5 - 5", "0"), ("-3", "-3"), ("a * -1", "-a"),
    ("True + a", "True + a"), ("a // 2 + a // 2", "(a // 2) * 2")])
def test_simplified(text, simple):
    assert terms.simplified(text) == simple


@pytest.mark.parametrize("upper, lower, distance", [
    ("a + 3", "a", "3"), ("a", "a + 3", "-3"), ("a", "a", "0"), ("2 * a", "a", "a"), ("a", "2 * a", "-a"), ("a * b", "0", "a * b"),
    ("3 * a * b", "a * b", "(a * b) * 2"), ("a", "b", None), ("a + 1", "0", None), ("a", "0", "a"), ("1", "0", "1"), ("0", "1", "-1")])
def test_differences(upper, lower, distance):
    assert terms.difference(upper, lower) == distance


def test_the_same():
    assert terms.is_same_number("a + b", "b + a") and terms.is_same_number("(a", "(a") and not terms.is_same_number("a", "b")
    assert not terms.is_same_number("?", "?") and not terms.is_same_number("a", "?") and not terms.is_same_number("(a", "a")


@pytest.mark.parametrize("text, says", [("rows // 128 + 1", True), ("rows // 128 - 1", False), ("rows // 128 + n", False),
                                        ("rows * 128 + 1", False), ("1 + rows // 128", False), ("rows + 1", False),
                                        ("f(rows // 128 + 1)", False), ("-(a // 2) + 1", False), ("a // 2", False),
                                        ("rows // 128 * 2 + 1", False), ("rows // 128 % 2 + 1", False)])
def test_one_more_than_a_quotient(text, says):
    assert terms.is_one_more(text) is says


@pytest.mark.parametrize("text, tensor", [("a[0:4, i]", "a"), ("x.n[0]", "x.n"), ("a", "a"), ("f(a)[0]", "f(a)[0]"),
                                          ("a + b", "(a + b)"), ("-a", "(-a)")])
def test_the_tensor_of_a_view(text, tensor):
    assert terms.tensor_of(text) == tensor
    ast.parse(tensor)


@pytest.mark.parametrize("text, dtype", [("t", "t.dtype"), ("t[:, 0:4]", "t.dtype"), ("x.t[0:4][:, 1]", "x.t.dtype"),
                                         ("tiles[0]", "tiles[0].dtype"), ("tiles[k, 1]", "tiles[k, 1].dtype"),
                                         ("tiles[k][:, 0]", "tiles[k][:, 0].dtype"), ("f(t)", "f(t).dtype")])
def test_dtypes_of_parts_are_those_of_tensors(text, dtype):
    assert terms.dtype_of(text) == dtype


@pytest.mark.parametrize("text, inner", [
    ("(a + b)", "a + b"), ("((a))", "a"), ("( a )", "a"), ("(a) * (b)", "(a) * (b)"), ("(a, b)", "(a, b)"),
    ("((a, b))", "((a, b))"), ("(a for a in b)", "(a for a in b)"), ("(a := b)", "(a := b)"), ("f(a)", "f(a)"),
    ("(a)[0:(b)]", "(a)[0:(b)]"), ("()", "()")])
def test_parentheses_around_all_of_a_text(text, inner):
    assert terms.without_parentheses(text) == inner


@pytest.mark.parametrize("text, numbers", [
    ("1:", (1, None, None)), (":-1", (None, -1, None)), ("::2", (None, None, 2)), ("0:4:2", (0, 4, 2)),
    ("n:", None), (":n", None), ("::n", None), ("::0", None), ("3", None)])
def test_bounds_of_a_slice(text, numbers):
    assert terms.bounds(text) == numbers

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions under one condition: the text with one ``if`` for them, and the calls that both texts make."""

import itertools
import random

import libcst as cst
import pytest

from nki_mlir.migration.shared_conditions import with_shared_conditions

CONDITIONS = {"i >= j", "i >= j and k"}
SHORTER = {("a = nl.ndarray(4)", "nisa.dma_copy(dst=a, src=x)"): "a = nl.load(x)"}


def shared(text, conditions=CONDITIONS, shorter=SHORTER):
    return cst.Module(with_shared_conditions(cst.parse_module(text).body, conditions, shorter)).code


IF = "if i >= j:\n    "
CASES = {
    "two instructions": (f"{IF}f(1)\n{IF}f(2)\n", f"{IF}f(1)\n    f(2)\n"),
    "three instructions": (f"{IF}f(1)\n{IF}f(2)\n{IF}f(3)\nf(4)\n", f"{IF}f(1)\n    f(2)\n    f(3)\nf(4)\n"),
    "one instruction": (f"f(0)\n{IF}f(1)\nf(2)\n", None),
    "another statement between": (f"{IF}f(1)\nf(0)\n{IF}f(2)\n", None),
    "another condition": (f"{IF}f(1)\nif i > j:\n    f(2)\n", None),
    "a condition of the user": ("if p:\n    f(1)\nif p:\n    f(2)\n", None),
    "one with another side": (f"{IF}f(1)\nelse:\n    f(3)\n{IF}f(2)\n", None),
    "a comment": (f"f(0)\n# first\n{IF}f(1)\n# second\n{IF}f(2)\n",
                  f"f(0)\n# first\n{IF}f(1)\n    # second\n    f(2)\n"),
    "a tile between": (f"{IF}f(1)\na = nl.ndarray(4)\n{IF}f(a)\n", f"{IF}f(1)\n    a = nl.ndarray(4)\n    f(a)\n"),
    "a tile before": (f"a = nl.ndarray(4)\n{IF}f(a)\n{IF}g(a)\n", f"{IF}a = nl.ndarray(4)\n    f(a)\n    g(a)\n"),
    "a tile that is read later": (f"a = nl.ndarray(4)\n{IF}f(a)\n{IF}g(a)\nf(a)\n",
                                  f"a = nl.ndarray(4)\n{IF}f(a)\n    g(a)\nf(a)\n"),
    "a number that is read later": (f"{IF}b = f(1)\n{IF}f(2)\nf(b)\n", None),
    "a tile of such a number": (f"{IF}b = f(1)\na = nl.ndarray(b)\n{IF}f(2)\nf(a)\n", None),
    "a condition that changes": (f"{IF}i = f(1)\n{IF}f(2)\n", None),
    "shorter": (f"a = nl.ndarray(4)\n{IF}nisa.dma_copy(dst=a, src=x)\n{IF}f(a)\n", f"{IF}a = nl.load(x)\n    f(a)\n"),
    "shorter, with comments": (f"g()\n# one\na = nl.ndarray(4)\n# two\n{IF}nisa.dma_copy(dst=a, src=x)\n{IF}f(a)\n",
                               f"g()\n# one\n# two\n{IF}a = nl.load(x)\n    f(a)\n"),
    "shorter, within": (f"{IF}f(1)\nif p:\n    a = nl.ndarray(4)\n    if i >= j:\n        nisa.dma_copy(dst=a, src=x)\n",
                        f"{IF}f(1)\n    if p:\n        a = nl.load(x)\n"),
    "a tile f that is read later": (f"f = nl.ndarray(4)\n{IF}g(f)\n{IF}h(f)\ng(f)\n",
                                    f"f = nl.ndarray(4)\n{IF}g(f)\n    h(f)\ng(f)\n"),
    "a number f that is read later": (f"{IF}f = g(1)\n{IF}g(2)\ng(f)\n", None),
    "an instruction of the other side": (f"{IF}f(1)\n{IF}f(2)\nelse:\n    f(3)\n", None),
    "two instructions in one": (f"{IF}f(1)\n{IF}f(2)\n    # three\n    f(3)\n", f"{IF}f(1)\n    f(2)\n    # three\n    f(3)\n"),
    "three sides": (f"{IF}f(1)\nif p:\n    if i >= j:\n        f(2)\nelif q:\n    if i >= j:\n        f(3)\n",
                    f"{IF}f(1)\n    if p:\n        f(2)\n    elif q:\n        f(3)\n"),
    "a third side that always runs": (
        f"{IF}f(1)\nif p:\n    if i >= j:\n        f(2)\nelif q:\n    f(3)\n", None),
    "a side whose condition is the same": (f"{IF}f(1)\nif p:\n    if i >= j:\n        f(2)\nelif i >= j:\n    f(3)\n", None),
    "a statement that always runs, within": (f"{IF}f(1)\nif p:\n    if i >= j:\n        f(2)\n    f(3)\n", None),
    "one of two terms": (f"{IF}f(1)\nif i >= j or k:\n    f(2)\n", None),
    "more terms": (f"{IF}f(1)\nif i >= j and k:\n    f(2)\n", f"{IF}f(1)\n    if k:\n        f(2)\n"),
    "two more terms": (f"{IF}f(1)\nif i >= j and p and q:\n    f(2)\n", f"{IF}f(1)\n    if p and q:\n        f(2)\n"),
    "terms in another order": (f"{IF}f(1)\nif p and i >= j:\n    f(2)\n", None),
    "within another if": ("if p:\n    if i >= j:\n        f(1)\nif p:\n    if i >= j:\n        f(2)\n",
                          f"{IF}if p:\n        f(1)\n    if p:\n        f(2)\n"),
    "within a loop": ("for n in r:\n    if i >= j:\n        f(1)\n    if i >= j:\n        f(2)\n",
                      "for n in r:\n    if i >= j:\n        f(1)\n        f(2)\n"),
    "both sides": (f"{IF}f(1)\nif p:\n    if i >= j:\n        f(2)\nelse:\n    if i >= j:\n        f(3)\n",
                   f"{IF}f(1)\n    if p:\n        f(2)\n    else:\n        f(3)\n"),
    "a side that always runs": (f"{IF}f(1)\nif p:\n    if i >= j:\n        f(2)\nelse:\n    f(3)\n", None),
    "the first row of two": (f"{IF}f(1)\n{IF}f(2)\nf(0)\n{IF}f(3)\n{IF}f(4)\n",
                             f"{IF}f(1)\n    f(2)\nf(0)\n{IF}f(3)\n    f(4)\n"),
    "as many as can be joined": (f"{IF}f(1)\n{IF}f(2)\n{IF}b = f(3)\nf(b)\n", f"{IF}f(1)\n    f(2)\n{IF}b = f(3)\nf(b)\n"),
}


@pytest.mark.parametrize("name", CASES)
def test_text(name):
    text, expected = CASES[name]
    assert shared(text) == (text if expected is None else expected)


def test_texts_without_conditions_stay():
    text = f"{IF}f(1)\n{IF}f(2)\n"
    assert shared(text, conditions=set()) == text


def drawn(rng, new, known=("x",), depth=2):
    """Random statements, with instructions under the condition, tiles with new names, branches and loops."""
    lines, known = [], [*known]
    for _ in range(rng.randint(1, 5)):
        kind, tile = rng.randint(0, 7), rng.choice(known)
        condition = rng.choice(["i >= j", "i >= j", "i >= j", "i >= j and k", "p", "i >= j and p"])
        if kind <= 3 or depth == 0:
            lines += [f"if {condition}:", f"    f({rng.randint(0, 9)}, {tile})"]
        elif kind == 4:
            known.append(next(new))
            lines += [f"{known[-1]} = nl.ndarray({rng.randint(0, 9)})"]
        elif kind == 5:
            lines += [f"f({tile})"]
        elif kind == 6:
            known.append(next(new))
            lines += [f"if {condition}:", f"    {known[-1]} = f({tile})"]
        else:
            inner = ["    " + line for line in drawn(rng, new, known, depth - 1)]
            lines += [rng.choice([f"if {condition}:", "for n in range(2):"]), *inner]
            if lines[-len(inner) - 1].startswith("if") and rng.random() < 0.5:
                lines += ["else:", *("    " + line for line in drawn(rng, new, known, depth - 1))]
    return lines


class Tiles:
    """Creates tiles, which are equal if they have the same shape."""

    @staticmethod
    def ndarray(shape):
        return ("tile", shape)


def calls(text, **values):
    """The calls of ``f`` that a text makes, with their arguments."""
    arguments_of_calls = []

    def f(*arguments):
        arguments_of_calls.append(arguments)
        return ("result", len(arguments_of_calls))
    exec(text, {"f": f, "nl": Tiles, "x": 0, **dict.fromkeys(map("t{}".format, range(99)), "unset"), **values})
    return arguments_of_calls


def test_both_texts_make_the_same_calls():
    rng, joined = random.Random(4), 0
    for _ in range(120):
        text = "\n".join(drawn(rng, map("t{}".format, itertools.count()))) + "\n"
        after = shared(text)
        joined += after != text
        for i, j, k, p in ((1, 0, True, True), (0, 1, True, True), (1, 0, False, True), (1, 1, True, False)):
            assert calls(after, i=i, j=j, k=k, p=p) == calls(text, i=i, j=j, k=k, p=p), f"{text}\n{after}"
    assert joined > 20

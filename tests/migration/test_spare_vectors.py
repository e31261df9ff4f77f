# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Index vectors go where nothing reads them any more, and stay where something does."""

from itertools import product

import libcst as cst
import pytest

from nki_mlir.migration.spare_vectors import without_spare


def pruned(text: str, *vectors: str) -> str:
    return cst.Module(without_spare(cst.parse_module(text).body, set(vectors))).code


def test_vectors_that_only_vectors_read_go() -> None:
    text = "x = 1\n# rows\np, f = a, b\nfor i in c:\n    # inside\n    mask = p < i\n    g(i)\n"
    assert pruned(text, "p", "f", "mask") == "x = 1\n# rows\nfor i in c:\n    # inside\n    g(i)\n"


def test_vectors_that_are_read_stay() -> None:
    text = "p, f = a, b\nq = c\nh(lambda: x[p])\n"
    assert pruned(text, "p", "f", "q") == "p, f = a, b\nh(lambda: x[p])\n"
    assert pruned(text) == text


def test_a_block_that_is_empty_then_passes() -> None:
    assert pruned("for i in a:\n    p = b\n", "p") == "for i in a:\n    pass\n"
    assert pruned("if check(a):\n    p = b\n", "p") == "if check(a):\n    pass\n"


def test_a_branch_that_is_empty_then_goes() -> None:
    assert pruned("x = 1\nif a:\n    p = b\n", "p") == "x = 1\n"
    assert pruned("if a:\n    p = b\nelse:\n    p = c\nx = 1\n", "p") == "x = 1\n"
    assert pruned("if a:\n    x = b\nelse:\n    p = c\n", "p") == "if a:\n    x = b\n"
    assert pruned("if a < 2:\n    p = b\nelse:\n    x = c\n", "p") == "if a >= 2:\n    x = c\n"
    assert pruned("if a:\n    p = b\n# otherwise\nelse:\n    x = c\n", "p") == (
        "if a:\n    pass\n# otherwise\nelse:\n    x = c\n")
    assert pruned("if a:\n    p = b\nelif c:\n    x = c\n", "p") == "if a:\n    pass\nelif c:\n    x = c\n"
    assert pruned("if a:\n    x = b\nelif c:\n    p = c\n", "p") == "if a:\n    x = b\n"


def ran(text: str, truths: tuple[bool, ...]) -> list[str]:
    """The calls that a text makes, if the conditions have these values."""
    calls: list[str] = []

    def check(number: int) -> bool:
        calls.append(f"check {number}")
        return truths[number]
    exec(text, {"check": check, "g": lambda name: calls.append(name), "a": truths, "b": 0})
    return calls


@pytest.mark.parametrize("bodies", list(product(("p = b", "g('{}')", "p = b; g('{}')", "p = b\n    g('{}')"), repeat=3)))
@pytest.mark.parametrize("condition", ["check({})", "a[{}]"])
def test_branches_run_what_they_ran(bodies: tuple[str, ...], condition: str) -> None:
    """And neither vectors nor branches that only pass are left, except where a condition calls a function."""
    first, second, last = (body.format(name) for body, name in zip(bodies, ("one", "two", "three")))
    for text in (f"if {condition.format(0)}:\n    {first}\nelse:\n    {last}\n",
                 f"if {condition.format(0)}:\n    {first}\nelif {condition.format(1)}:\n    {second}\nelse:\n    {last}\n"):
        new = pruned(text, "p")
        assert all(ran(new, truths) == ran(text, truths) for truths in product((False, True), repeat=2))
        assert "else:\n    pass" not in new


def test_comments_of_removed_statements_stay_in_order() -> None:
    assert pruned("x = 1\n# one\np = a\n# two\nf = b\n# three\ny = 2\n", "p", "f") == "x = 1\n# one\n# two\n# three\ny = 2\n"

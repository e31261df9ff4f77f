# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Index vectors go where nothing reads them any more, and stay where something does."""

import libcst as cst

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

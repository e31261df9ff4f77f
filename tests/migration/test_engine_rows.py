# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where rows of tiles begin: the numbers that the names of a function show."""

import ast

import pytest

from nki_mlir.migration.engine_rows import divisor, integer, values_of

TEXT = """
def kernel(x, rows):
    first, second = 32, rows * 16
    third = first * 4
    fourth = 5
    fourth = 6
    rows = 64
    (fifth, sixth), seventh = pair, 96
"""


def test_values__are_of_names_that_a_function_assigns_once() -> None:
    tree, = ast.parse(TEXT).body
    assert isinstance(tree, ast.FunctionDef)
    values = {name: ast.unparse(value) for name, value in values_of(tree).items()}
    assert values == {"first": "32", "second": "rows * 16", "third": "first * 4", "seventh": "96"}


@pytest.mark.parametrize(("text", "divides", "number"), [
    ("first", 32, 32), ("second", 16, None), ("third", 128, None), ("seventh", 96, 96), ("unknown", 1, None),
    ("first + seventh", 32, None), ("second - 24", 8, None), ("0", 0, 0), ("-first", 1, None),
    ("nl.tile_size.pmax", 128, 128), ("2 * nl.tile_size.pmax", 256, None), ("second * seventh", 16 * 96, None)])
def test_numbers_of_names(text: str, divides: int, number: int | None) -> None:
    tree, = ast.parse(TEXT).body
    assert isinstance(tree, ast.FunctionDef)
    node, values = ast.parse(text, mode="eval").body, values_of(tree)
    assert (divisor(node, values), integer(node, values)) == (divides, number)

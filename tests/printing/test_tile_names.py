# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The names of tiles that the source does not name follow from the operation that writes them."""

from types import SimpleNamespace

import pytest

from nki_mlir.printing.tile_names import INSTRUCTIONS, NOUNS, REDUCTIONS, name_of_result


def name(operation: str, source: str = "", *is_part: bool, **attributes: object) -> str:
    return name_of_result(SimpleNamespace(full_name=lambda: operation, **attributes), source, *is_part)


def test_copies_of_a_tensor__have_its_name() -> None:
    for operation in ("nisa.dma_copy", "nki.load"):
        assert (name(operation, "x"), name(operation, "x", True)) == ("x_tile", "x_tiles")
        assert name(operation) == "tile"


def test_instructions_and_reductions__have_their_nouns() -> None:
    assert {word: name(f"nisa.{word}", op="add") for word in INSTRUCTIONS} == INSTRUCTIONS
    assert name("nisa.affine_select") == "selected"
    for reduction in ("tensor_reduce", "activation_reduce"):
        assert {word: name(f"nisa.{reduction}", op=word) for word in REDUCTIONS} == REDUCTIONS
        assert name(f"nisa.{reduction}", op="other") == name(f"nisa.{reduction}") == "reduced"


@pytest.mark.parametrize("attribute", ["op", "fn", "op0", "op1"])
def test_computations__have_the_noun_of_their_last_operator(attribute: str) -> None:
    """Names without a noun are their own; those that Python does not take are tiles."""
    assert {word: name("nki.computed", **{attribute: word}) for word in NOUNS} == NOUNS
    assert name("nki.computed", **{attribute: "exp"}) == "exp"
    for other in ("bypass", "not a name", "", None, ("add",), 3):
        assert name("nki.computed", **{attribute: other}) == "tile"


def test_computations_of_two_steps__are_named_after_the_second() -> None:
    assert name("nisa.tensor_scalar", op0="add", op1="multiply") == "multiplied"
    assert name("nisa.tensor_scalar", op0="add", op1="bypass") == "added"
    assert name("nisa.tensor_scalar", op0="bypass", op1="bypass", op="add") == name("nisa.other") == "tile"

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which arguments of a call are moved to where an engine can start: those that it reads, not those that it writes."""

from types import SimpleNamespace

import pytest

from nki_mlir.migration.calls import DESTINATIONS, Arguments
from nki_mlir.migration.engine_rows import TRANSFERS
from nki_mlir.migration.expressions import LeftForAPerson
from nki_mlir.migration.facts import NumberFact, TensorFact


def calls(fact: object) -> SimpleNamespace:
    """Calls that know one fact of all expressions."""
    return SimpleNamespace(fact=lambda node: fact, viewed=lambda node, mask: (f"({node})", fact), views={},
                           text=lambda node: node, code=lambda node: node, operand=lambda text, fact: (f"moved({text})", fact))


@pytest.mark.parametrize("function", ("nisa.tensor_tensor", "nl.add", *sorted(TRANSFERS)))
@pytest.mark.parametrize("name", ("data", "src", "data1", *DESTINATIONS))
def test_operand__is_moved_if_an_engine_reads_it(function: str, name: str) -> None:
    tile = TensorFact("sbuf", ("16", "8"))
    arguments = Arguments(calls(tile), function, {name: "t[5:21]"})
    moves = name not in DESTINATIONS and function not in TRANSFERS
    assert arguments.tensor(name) == ("moved(t[5:21])" if moves else "t[5:21]", tile)


def test_arguments__that_are_no_tiles() -> None:
    assert Arguments(calls(None), "nl.exp", {"x": "f(t)"}).tensor("x") == ("f(t)", TensorFact("sbuf"))
    with pytest.raises(LeftForAPerson, match=r"nl\.exp without its argument x"):
        Arguments(calls(None), "nl.exp", {}).tensor("x")
    with pytest.raises(LeftForAPerson, match=r"nl\.exp of the number 2"):
        Arguments(calls(NumberFact("int")), "nl.exp", {"x": "2"}).tensor("x")

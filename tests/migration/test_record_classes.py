# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Facts of objects that consist of their fields: named tuples and data classes."""

import ast

import pytest

from nki_mlir.migration.facts import Fact, Items, NoneFact, NumberFact, RecordClass, TensorFact, Unknown
from nki_mlir.migration.record_classes import record, record_classes

TEXT = """
Pair = namedtuple("Pair", "left, right")
Three = collections.namedtuple("Three", ["a", "b", "c"])


class Sizes(NamedTuple):
    rows: int
    columns: int = 128
    scale: float = 0.5
    is_causal: bool = True
    bias: Tensor = None
    name: str = "rows"
    shape: tuple = (1, 2)


@dataclass(frozen=True)
class Options:
    tile: nt.tensor
    count: int = -1

    @classmethod
    def default(cls):
        return cls(None)


@dataclass
class Computed:
    tile: nt.tensor

    def __post_init__(self):
        self.rows = 0
"""


def test_classes_have_their_fields_and_the_facts_of_defaults():
    classes = record_classes(ast.parse(TEXT))
    assert [*classes] == ["Pair", "Three", "Sizes", "Options"]
    assert classes["Pair"] == RecordClass(("left", "right")) and classes["Three"].fields == ("a", "b", "c")
    assert dict(classes["Sizes"].defaults) == {
        "columns": NumberFact("int"), "scale": NumberFact("float"), "is_causal": NumberFact("int"), "bias": NoneFact(),
        "name": Fact(), "shape": Fact()}
    assert classes["Sizes"].declared[:4] == (NumberFact(), NumberFact(), NumberFact(), NumberFact())
    assert classes["Sizes"].declared[4] == Unknown()
    assert classes["Options"].factories == ("default",) and dict(classes["Options"].defaults) == {"count": Fact()}


TILE = TensorFact("sbuf", ("128", "n"), "nl.float32")


@pytest.mark.parametrize(("positional", "keywords", "expected"), [
    ([TILE], {}, (TILE, NumberFact("int"))), ([TILE, NoneFact()], {}, (TILE, NoneFact())),
    ([], {"tile": TILE, "count": Fact()}, (TILE, Fact()))])
def test_an_object_has_the_facts_of_its_arguments(positional, keywords, expected):
    kind = RecordClass(("tile", "count"), (("count", NumberFact("int")),))
    assert record(kind, positional, keywords) == Items(expected, ("tile", "count"))


@pytest.mark.parametrize(("positional", "keywords"), [([], {}), ([TILE] * 3, {}), ([TILE], {"other": TILE})])
def test_wrong_arguments_show_nothing(positional, keywords):
    kind = RecordClass(("tile", "count"), (("count", NumberFact("int")),))
    assert record(kind, positional, keywords) == Fact()

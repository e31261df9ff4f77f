# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is known of values, of one of two values, and of values after branches."""

import itertools
from dataclasses import replace

import libcst as cst
import pytest

from nki_mlir.migration.branches import join_facts, pattern_names, with_equal_sizes
from nki_mlir.migration.facts import (
    HBM,
    PSUM,
    SBUF,
    Axis,
    Comparison,
    ComputedPart,
    Fact,
    IndexFact,
    Items,
    Many,
    MaskBound,
    MaskFact,
    NoElement,
    NoneFact,
    NumberFact,
    SelectedVector,
    TensorFact,
    TileFunction,
    Unknown,
    as_many,
    contains_tiles,
    depends_on_index,
    element_at,
    function_fact,
    join,
    may_have_tiles,
    part_of,
    promoted,
)


@pytest.mark.parametrize(("dtype", "floating", "is_float"), [
    ("nl.float32", False, True), ("nl.bfloat16", False, True), ("nl.tfloat32", False, True), ("nl.float8_e4m3", False, True),
    ("nl.int32", False, False), ("nl.int32", True, False), ("nl.uint8", False, False), ("nl.bool_", True, False),
    ("", False, False), ("", True, True), ("x.dtype", False, False), ("x.dtype", True, True)])
def test_dtypes_of_floats(dtype: str, floating: bool, is_float: bool) -> None:
    assert TensorFact(SBUF, dtype=dtype, floating=floating).is_float is is_float


def test_tiles__are_in_the_memories_of_the_core() -> None:
    assert [TensorFact(memory).on_chip for memory in (SBUF, PSUM, HBM)] == [True, True, False]
    assert [TensorFact(SBUF, shape).rank for shape in (None, (), ("4", "8"))] == [None, 0, 2]


TILE = TensorFact(SBUF, ("128", "n"), "nl.float32", 1, part=True, filled=True, base=True, fresh=True, cut=(1,))
PLAIN = TensorFact(SBUF, ("128", "n"), "nl.float32", 1, filled=True)
TENSOR, LINE, MANY = TensorFact(HBM, ("4",)), IndexFact("i", (Axis("1", "0"), Axis("8", "2"))), Many(PLAIN)
POINT, NUMBER, CAUSAL = IndexFact("i", (Axis("1", "0"),)), NumberFact("int"), MaskFact((MaskBound(-1),))


@pytest.mark.parametrize("other, joined", [
    (PLAIN, replace(PLAIN, part=True)),
    (replace(PLAIN, memory=PSUM, filled=False), replace(PLAIN, part=True, filled=False)),
    (replace(PLAIN, shape=("128", "m")), replace(PLAIN, shape=("128", "?"), part=True)),
    (replace(PLAIN, shape=("128", "m"), blocks=0), replace(PLAIN, shape=None, blocks=0, part=True)),
    (replace(PLAIN, shape=("128",)), replace(PLAIN, shape=None, part=True)),
    (replace(PLAIN, shape=None), replace(PLAIN, shape=None, part=True)),
    (replace(PLAIN, dtype="nl.int32"), replace(PLAIN, dtype="", part=True)),
    (replace(PLAIN, blocks=2), replace(PLAIN, blocks=0, part=True)),
    (replace(PLAIN, selection=ComputedPart(condition="c")), replace(PLAIN, part=True, selection=ComputedPart())),
    (replace(PLAIN, memory=HBM), Unknown()), (NUMBER, Unknown()), (LINE, Unknown()), (NoneFact(), TILE)])
def test_one_of_two_tiles__has_what_both_have(other, joined):
    assert join(TILE, other) == join(other, TILE) == joined


@pytest.mark.parametrize("left, right, joined", [
    (PLAIN, PLAIN, PLAIN), (replace(PLAIN, memory=PSUM), replace(PLAIN, memory=PSUM, part=True),
                            replace(PLAIN, memory=PSUM, part=True)),
    (replace(PLAIN, blocks=0), replace(PLAIN, blocks=0, part=True), replace(PLAIN, blocks=0, part=True)),
    (TENSOR, replace(TENSOR, part=True), replace(TENSOR, part=True)), (NoneFact(), NoneFact(), NoneFact()),
    (NUMBER, NumberFact("float"), NumberFact()), (NUMBER, NUMBER, NUMBER), (NUMBER, Fact(), Fact()),
    (NUMBER, Unknown(), Unknown()), (NUMBER, LINE, SelectedVector()), (LINE, POINT, SelectedVector()),
    (POINT, NUMBER, Fact()), (CAUSAL, MaskFact((), ("c",)), SelectedVector()), (MaskFact(()), NUMBER, Fact()),
    (MANY, Many(NoElement()), MANY), (MANY, Many(NUMBER), Many(Unknown())), (Many(NUMBER, True), Many(NUMBER), Many(NUMBER, True)),
    (Items((PLAIN, NUMBER), ("a", "b")), Items((PLAIN, NumberFact("float")), ("a", "b")),
     Items((PLAIN, NumberFact()), ("a", "b"))),
    (Items((NUMBER,), ("a",)), Items((NUMBER,), ("b",)), Items((NUMBER,))),
    (Items((PLAIN,)), MANY, MANY), (Items((PLAIN, PLAIN)), Items((PLAIN,)), MANY), (Items(()), MANY, MANY),
    (Items((NUMBER,)), NUMBER, Fact()), (Items((PLAIN,)), NUMBER, Unknown()), (Items((PLAIN,)), LINE, Unknown()),
    (Many(NUMBER), NUMBER, Fact()), (NoElement(), NUMBER, Fact())])
def test_one_of_two_values(left, right, joined):
    assert join(left, right) == join(right, left) == joined


def test_tiles_and_vectors_in_lists():
    kinds = {"tile": PLAIN, "none": Unknown(), "number": NUMBER, "empty": NoElement(), "line": LINE, "point": POINT}
    for name, fact in kinds.items():
        for value in (fact, Items((NUMBER, fact)), Many(fact), Many(Items((fact, NUMBER)))):
            assert may_have_tiles(value) is (name in ("tile", "none")), value
            assert contains_tiles(value) is (name == "tile"), value
        assert depends_on_index(fact) is depends_on_index(Items((NUMBER, fact))) is (name == "line")
    assert depends_on_index(CAUSAL) and depends_on_index(SelectedVector()) and not depends_on_index(MaskFact((), ("c",)))
    for mask in (MaskFact((), is_known=False), MaskFact((), comparisons=(Comparison(LINE, "less"),)),
                 MaskFact((), alternatives=(Comparison(LINE, "less"),))):
        assert mask.depends_on_index
    assert Comparison(LINE, "less").varying == [-1] and LINE.is_vector and not POINT.is_vector
    assert [m.selects_no_box for m in (CAUSAL, MaskFact((), diagonals=(Comparison(LINE, "less"),)), MaskFact(
        (), alternatives=(Comparison(LINE, "less"),)))] == [False, True, True]


def test_elements_and_slices_of_lists():
    items = Items((NUMBER, PLAIN, POINT), ("a", "b", "c"))
    for position in range(-5, 5):
        within = -3 <= position < 3
        assert element_at(items, position) == (items.items[position] if within else None)
    assert element_at(items, None) is None and element_at(MANY, None) == element_at(MANY, 7) == PLAIN
    for bounds in itertools.product((None, 0, 1, -1), (None, 2, 3)):
        assert part_of(items, bounds) == Items(items.items[slice(*bounds)])
    assert part_of(MANY, (0, 1)) == MANY and part_of(items, None) == as_many(items) == Many(Unknown())
    assert as_many(Items(())) == Many(NoElement()) and as_many(Items((PLAIN, PLAIN))) == MANY


@pytest.mark.parametrize("dtypes, result", [
    (("nl.float32", "nl.bfloat16"), "nl.float32"), (("nl.bfloat16", "nl.bfloat16"), "nl.bfloat16"),
    (("x.dtype", "x.dtype"), "x.dtype"), (("x.dtype", "nl.float32"), "nl.float32"), (("x.dtype", "nl.int8"), ""),
    (("nl.int8", "nl.int32"), "nl.int32"), (("nl.int8", "nl.int8"), "nl.int8"), (("nl.unknown", "nl.int8"), ""),
    (("nl.bool_", "nl.bool_"), "nl.uint8"), (("nl.bool_", "nl.int8"), "nl.int16")])
def test_dtype_of_an_operation(dtypes, result):
    assert promoted(*dtypes) == promoted(*dtypes[::-1]) == result


def test_view_of_a_tile__is_no_tile_that_was_created():
    every = replace(TILE, parameter=True, floating=True, selection=ComputedPart())
    view = TensorFact(SBUF, ("4",), "nl.float32", part=True, filled=True, floating=True)
    assert every.like(("4",)) == view and every.like(None, "nl.int8") == replace(view, shape=None, dtype="nl.int8")


def test_functions_of_one_and_two_tiles():
    assert [function_fact(name) for name in ("nl.exp", "nl.copy", "nl.add", "nl.maximum", "nl.matmul")] == [
        TileFunction(), TileFunction(), TileFunction(2), TileFunction(2), Fact()]


def test_names_after_branches():
    first, second = {"a": NUMBER, "b": PLAIN, "c": PLAIN}, {"b": PLAIN, "c": NUMBER, "d": POINT}
    assert join_facts(first, second) == {"a": NUMBER, "b": PLAIN, "c": Unknown(), "d": POINT}
    cut = replace(PLAIN, shape=("128", "n2"))
    assert join_facts({"b": cut}, {"b": PLAIN}) == {"b": replace(PLAIN, shape=("128", "?"))}
    assert join_facts({"b": cut}, {"b": PLAIN}, {"n2"}) == join_facts({"b": PLAIN}, {"b": cut}, {"n2"}) == {"b": PLAIN}


def test_sizes_of_tiles_that_a_mask_has_cut():
    one, other = (replace(PLAIN, shape=shape) for shape in (("p", "1", "c"), ("c2", "c", "1")))
    assert [f.shape for f in with_equal_sizes(one, other, {"c", "c2"})] == [("p", "1", "c"), ("p", "c", "1")]
    for pair in ((one, NUMBER), (NUMBER, one), (one, replace(PLAIN, shape=("c", "c"))), (one, replace(one, shape=None))):
        assert with_equal_sizes(*pair, {"c", "c2"}) == pair


@pytest.mark.parametrize("pattern, names", [
    ("x", {"x"}), ("_", set()), ("[a, *b]", {"a", "b"}), ("{'k': v, **rest}", {"v", "rest"}), ("C(p, q=r) as s", {"p", "r", "s"}),
    ("1 | 2", set()), ("[_, *_]", set())])
def test_names_that_a_pattern_binds(pattern, names):
    node = cst.parse_module(f"match x:\n    case {pattern}:\n        pass\n").body[0].cases[0].pattern
    assert pattern_names(node) == names

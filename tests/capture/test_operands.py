# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operands as a builder gets them: masks that are none, empty operands, the form of an operation, indices of axes."""

from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.capture import operands
from nki_mlir.capture.errors import EmptySubscript, UnsupportedMask
from nki_mlir.capture.index import Mask
from nki_mlir.capture.operands import check_empty, form_of, lift_to, plain_mask
from nki_mlir.capture.tensor import View

FIELDS = [SimpleNamespace(name="a", writes=False), SimpleNamespace(name="b", writes=False),
          SimpleNamespace(name="dst", writes=True), SimpleNamespace(name="sum", writes=True)]


def views(**shapes):
    return {name: SimpleNamespace(shape=shape, buffer=SimpleNamespace(name=f"buffer of {name}"))
            for name, shape in shapes.items()}


@pytest.mark.parametrize("shapes", [
    {"a": (4, 0), "b": (4, 0), "dst": (4, 0), "sum": (0, 1)}, {"a": (4, 2), "b": (4, 2), "dst": (4, 0), "sum": (0,)}])
def test_operation_whose_results_are_empty__does_nothing(shapes):
    check_empty(FIELDS, views(**shapes))


@pytest.mark.parametrize("shapes, empty", [
    ({"a": (4, 2), "b": (4, 0), "dst": (4, 2), "sum": (4, 1)}, "b"),
    ({"a": (0, 2), "b": (4, 0), "dst": (4, 2), "sum": (4, 1)}, "a"),
    ({"a": (4, 2), "b": (4, 2), "dst": (4, 0), "sum": (4, 1)}, "dst"),
    ({"a": (4, 2), "b": (4, 2), "dst": (4, 2), "sum": (4, 0)}, "sum")])
def test_empty_operand_of_an_operation_with_results__is_an_error_that_names_the_first(shapes, empty):
    with pytest.raises(EmptySubscript) as error:
        check_empty(FIELDS, views(**shapes))
    assert (error.value.values["name"], error.value.values["shape"]) == (f"buffer of {empty}", shapes[empty])


def test_mask__is_none_where_it_is_true_everywhere_and_false_where_it_is_nowhere():
    mask = Mask(())
    assert plain_mask(mask) is mask and plain_mask(None) is None
    assert plain_mask(True) is None and plain_mask(np.bool_(True)) is None
    assert plain_mask(False) is False and plain_mask(np.bool_(False)) is False


@pytest.mark.parametrize("mask, what, fix", [
    (1, "the mask is of type int", "write the mask as affine comparisons joined by &"),
    ("x", "the mask is of type str", "write the mask as affine comparisons joined by &"),
    (object.__new__(View), "the mask is a tile, whose values only the device knows",
     "select values with nl.where(condition, x, y); a mask is affine comparisons of indices joined by &")])
def test_mask__of_another_type_is_an_error(mask, what, fix):
    with pytest.raises(UnsupportedMask) as error:
        plain_mask(mask)
    assert (error.value.headline, error.value.advice[1]) == (what, fix)


def test_form__differs_in_class_tiles_names_and_values_of_attributes():
    cls, other = (type("Operation", (), {"tiles": FIELDS[:3]}) for _ in range(2))
    tiles = [(FIELDS[0], SimpleNamespace(form="a tile")), (FIELDS[2], SimpleNamespace(form="another tile"))]

    def form(of=cls, operands=tiles, **attributes):
        return form_of(of, operands, attributes)
    assert form(k=1) == form(k=1) == form(operands=tiles[::-1], k=1)
    different = [form(k=1), form(other, k=1), form(operands=tiles[:1], k=1), form(k=2), form(j=1), form(), form(k=True),
                 form(k=1.0), form(k=0.0), form(k=-0.0)]
    assert all(different[i] != different[j] for i in range(len(different)) for j in range(i))
    assert form(k=float("nan")) == form(k=float("nan"))


def test_index_of_an_operand__moves_to_the_axes_of_the_operation():
    iteration = SimpleNamespace(axes={"a": (2, 0), "b": (1, 1)}, extents=(4, 5, 6))

    class Index(SimpleNamespace):
        def with_axes(self, axes, extents):
            return list(axes), extents
    assert lift_to(iteration, "a")(Index(axes=(3, 7))) == ([7, 0, 3], (4, 5, 6))
    assert lift_to(iteration, "b")(Index(axes=(3, 7))) == ([0, 10, 0], (4, 5, 6))


def broadcast(monkeypatch, broadcasts, **shapes):
    """The fields that have a view, the calls that broadcast a source, and the views afterwards."""
    calls = []
    monkeypatch.setattr(operands, "source_of", lambda *arguments: calls.append(arguments) or "broadcast")
    cls, before = SimpleNamespace(broadcasts=broadcasts, tiles=FIELDS), views(**shapes)
    after = dict(before)
    present = operands.broadcast_sources(cls, after)
    assert [(of, field, view, shape) for of, field, view, shape in calls] == [
        (cls, field, before[field], shapes["dst"]) for field, view in after.items() if view == "broadcast"]
    return [field.name for field in present], [name for name, view in after.items() if view == "broadcast"]


@pytest.mark.parametrize("shapes, present, changed", [
    ({"a": (4, 2), "b": (1, 2), "dst": (4, 2)}, ["a", "b", "dst"], ["b"]),
    ({"b": (4, 1), "dst": (4, 2), "sum": (4, 1)}, ["b", "dst", "sum"], ["b"]),       # results keep their shapes
    ({"a": (4, 2), "dst": (4, 2)}, ["a", "dst"], []),
    ({"a": (4, 2), "b": (1, 2), "sum": (4, 1)}, ["a", "b", "sum"], [])])             # without dst
def test_sources_of_an_elementwise_operation__are_broadcast_to_its_destination(monkeypatch, shapes, present, changed):
    assert broadcast(monkeypatch, True, **shapes) == (present, changed)


def test_sources_of_another_operation__keep_their_shapes(monkeypatch):
    assert broadcast(monkeypatch, False, a=(4, 2), b=(1, 2), dst=(4, 2)) == (["a", "b", "dst"], [])

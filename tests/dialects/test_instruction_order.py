# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The marks of operations that a kernel orders: their form, and what passes conclude from them."""

import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.attributes import MalformedAttribute
from nki_mlir.dialects.instruction_order import (
    check_marks,
    is_ordered,
    is_pinned,
    label_of,
    labels_before,
    marks_by_label,
    prefix_labels,
)
from nki_mlir.dialects.mlir_ops import read_op

from .samples import SAMPLES, context, module_text, tile_operations


@pytest.mark.parametrize("marks, pinned, ordered, label, before", [
    ("", False, False, None, ()), ('nki.note = "x"', False, False, None, ()),
    ("nki.no_reorder", True, False, None, ()), ('nki.label = "a"', True, True, "a", ()),
    ('nki.after = ["a", "b"]', True, True, None, ("a", "b")), ("nki.after = []", True, True, None, ()),
    ('nki.after = ["a"], nki.label = "c"', True, True, "c", ("a",))])
def test_marks_of_an_operation(marks: str, pinned: bool, ordered: bool, label: str | None, before: tuple[str, ...]) -> None:
    text = module_text(SAMPLES["nisa.tensor_copy"].make())
    text = text.replace("access = [", f"{marks}, access = [", 1) if marks else text
    with context():
        module = ir.Module.parse(text)
        op = read_op(*tile_operations(module))
        assert (is_pinned(op), is_ordered(op), label_of(op), labels_before(op)) == (pinned, ordered, label, before)


@pytest.mark.parametrize("marks, text", [
    ("nki.label = 5", "attribute 'nki.label' is 5 : i64, which must be a string"),
    ('nki.after = "a"', "attribute 'nki.after' is \"a\", which must be an array of strings"),
    ("nki.after = [1]", "attribute 'nki.after' is [1], which must be an array of strings")])
def test_marks_of_another_form__are_refused(marks: str, text: str) -> None:
    with context():
        extra = {named.name: named.attr for named in ir.DictAttr.parse(f"{{{marks}}}")}
        with pytest.raises(MalformedAttribute) as caught:
            check_marks(extra)
    assert str(caught.value) == text
    with pytest.raises(Exception, match="which must be a"):
        read_marked(marks)


def read_marked(marks: str) -> None:
    text = module_text(SAMPLES["nisa.tensor_copy"].make())
    with context():
        module = ir.Module.parse(text.replace("access = [", f"{marks}, access = [", 1))
        read_op(*tile_operations(module))


@pytest.mark.parametrize("marks, label, before", [
    ("nki.no_reorder", None, ()), ('nki.label = "a"', "one.a", ()), ('nki.after = ["a", "b"]', None, ("one.a", "one.b")),
    ('nki.after = ["a"], nki.label = "c"', "one.c", ("one.a",))])
def test_labels_get_a_prefix(marks: str, label: str | None, before: tuple[str, ...]) -> None:
    text = module_text(SAMPLES["nisa.tensor_copy"].make())
    with context():
        module = ir.Module.parse(text.replace("access = [", f"{marks}, access = [", 1))
        operation, = tile_operations(module)
        prefix_labels(operation, "one.")
        op = read_op(operation)
        assert (label_of(op), labels_before(op)) == (label, before)


def test_marks_of_edges_between_instructions() -> None:
    with context():
        marks = marks_by_label([("c", "b"), ("d", "a"), ("c", "a"), ("b", "a")])
        texts = {label: {name: str(mark) for name, mark in of_label.items()} for label, of_label in marks.items()}
        assert marks_by_label([]) == {}
    assert texts == {"a": {"nki.label": '"a"'}, "b": {"nki.label": '"b"', "nki.after": '["a"]'},
                     "c": {"nki.after": '["b", "a"]'}, "d": {"nki.after": '["a"]'}}

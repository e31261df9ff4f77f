# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Marks by which a kernel orders instructions beyond what their data demand.

``nki.no_reorder``: no instruction moves across the operation. ``nki.label = "5"``: the name by which other operations
refer to this one. ``nki.after = ["5", "7"]``: the operation starts when those with these labels are complete. Several
operations may share a label: all that one call emits.
"""

from collections.abc import Sequence

from nki_mlir.bindings import Attribute, Operation, ir
from nki_mlir.dialects.attributes import MalformedAttribute, elements, read_value
from nki_mlir.dialects.op import Op

NO_REORDER, LABEL, AFTER = "nki.no_reorder", "nki.label", "nki.after"
MARKS = frozenset((NO_REORDER, LABEL, AFTER))


def is_pinned(op: Op) -> bool:
    """Return whether the kernel orders the operation, so that no pass merges, drops or moves it."""
    return bool(op.extra) and not MARKS.isdisjoint(op.extra)


def is_ordered(op: Op) -> bool:
    """Return whether the operation starts after labeled ones, or has a label that others may start after."""
    return LABEL in op.extra or AFTER in op.extra


def check_marks(extra: dict[str, Attribute]) -> None:
    """Raise ``MalformedAttribute`` for a mark from a file that does not have its form."""
    if LABEL in extra:
        read_value(extra[LABEL], str, LABEL)
    labels = extra.get(AFTER)
    if labels is not None and not (isinstance(labels, ir.ArrayAttr)
                                   and all(isinstance(label, ir.StringAttr) for label in labels)):
        raise MalformedAttribute(f"attribute '{AFTER}' is {labels}, which must be an array of strings")


def label_of(op: Op) -> str | None:
    """Return the label of the operation."""
    return str(op.extra[LABEL].value) if LABEL in op.extra else None


def labels_before(op: Op) -> tuple[str, ...]:
    """Return the labels of the operations that must be complete before this one starts."""
    return tuple([label.value for label in elements(op.extra[AFTER])]) if AFTER in op.extra else ()


def marks_by_label(edges: Sequence[tuple[str, str]]) -> dict[str | None, dict[str, Attribute]]:
    """Return the marks of the operations with each label, from the edges (consumer, producer)."""
    producers: dict[str, list[Attribute]] = {}
    for consumer, producer in edges:
        producers.setdefault(consumer, []).append(ir.StringAttr.get(producer))
    marks: dict[str | None, dict[str, Attribute]] = {
        label: {LABEL: ir.StringAttr.get(label)} for label in sorted({producer for _, producer in edges})}
    for consumer, labels in producers.items():
        marks.setdefault(consumer, {})[AFTER] = ir.ArrayAttr.get(labels)
    return marks


def prefix_labels(operation: Operation, prefix: str) -> None:
    """Put a prefix in front of the labels in an operation's marks."""
    attributes = operation.attributes
    if LABEL in attributes:
        attributes[LABEL] = ir.StringAttr.get(prefix + attributes[LABEL].value, operation.context)
    if AFTER in attributes:
        attributes[AFTER] = ir.ArrayAttr.get([ir.StringAttr.get(prefix + label.value, operation.context)
                                              for label in elements(attributes[AFTER])], operation.context)

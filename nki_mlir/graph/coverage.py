# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How often the elements of a buffer are accessed through views in loops, counted one by one."""

import itertools
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.attributes import MalformedAttribute, read_linear
from nki_mlir.dialects.mlir_ops import loop_span
from nki_mlir.graph.views import start_in_buffer

MOST_ELEMENTS, MOST_ITERATIONS = 1 << 24, 1 << 14


def access_counts(buffer: Any, accesses: Sequence[tuple[Any, Any]]) -> np.ndarray | None:
    """The times that each element is accessed, for operations with the views they access; None where not known."""
    size = prod(ir.MemRefType(buffer.type).shape)
    if size > MOST_ELEMENTS:
        return None
    counts = np.zeros(size, np.uint8)
    for op, view in accesses:
        loops = enclosing_loops(op)
        offset = offset_of(view, [variable for variable, _ in loops or ()])
        if loops is None or offset is None or prod(len(span) for _, span in loops) > MOST_ITERATIONS:
            return None
        kind = ir.MemRefType(view.type)
        strides, _ = kind.get_strides_and_offset()
        reach = sum(s * (n - 1) for s, n in zip(strides, kind.shape))
        for point in itertools.product(*(span for _, span in loops)):
            start = offset.at(point)
            if start < 0 or start + reach >= size or any(s < 1 and n > 1 for s, n in zip(strides, kind.shape)):
                return None
            part = np.lib.stride_tricks.as_strided(counts[start:], tuple(kind.shape), tuple(strides))
            part += part < 255
    return counts


def enclosing_loops(op: Any) -> list[tuple[Any, range]] | None:
    """Variables and values of the static loops around an operation; None where anything else is around it."""
    found = []
    parent = op.parent.operation
    while parent.name != "func.func":
        span = loop_span(parent) if parent.name == "scf.for" else None
        if span is None:
            return None
        found.append((parent.regions[0].blocks[0].arguments[0], span))
        parent = parent.parent.operation
    return found


def offset_of(view: Any, variables: Sequence[Any]) -> Linear | None:
    """The start of a view as a form of loop variables, None where it depends on something else."""
    place = start_in_buffer(view)
    total = Linear(place.offset)
    for value, factor in place.terms:
        form = form_of(value, variables)
        if form is None:
            return None
        total = total.plus(form, factor)
    return total


def form_of(value: Any, variables: Sequence[Any]) -> Linear | None:
    """A value as an affine form of loop variables; None where it is none."""
    if value in variables:
        return Linear(0, ((list(variables).index(value), 1),))
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    if op.name == "arith.constant":
        return Linear(op.attributes["value"].value)
    if op.name != "affine.apply":
        return None
    mapping = op.attributes["map"].value
    forms = [form_of(v, variables) for v in op.operands]
    try:
        result = read_linear(mapping.results[0])
    except MalformedAttribute:
        return None
    total = Linear(result.const)
    for position, factor in [*result.axes, *((mapping.n_dims + s, c) for s, c in result.symbols)]:
        form = forms[position]
        if form is None:
            return None
        total = total.plus(form, factor)
    return total

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How often the elements of a buffer are accessed through views in loops, counted one by one."""

import itertools
from collections.abc import Sequence
from math import prod

import numpy as np

from nki_mlir.bindings import Value, ir
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.facts import Numbering, linear_of
from nki_mlir.dialects.mlir_ops import loop_span
from nki_mlir.graph.views import start_in_buffer

MOST_ELEMENTS, MOST_ITERATIONS = 1 << 24, 1 << 14


def access_counts(buffer: ir.Value, accesses: Sequence[tuple[ir.Operation, ir.Value]]) -> np.ndarray | None:
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


def enclosing_loops(op: ir.Operation) -> list[tuple[Value, range]] | None:
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


def offset_of(view: Value, variables: Sequence[Value]) -> Linear | None:
    """The start of a view as a form of loop variables, None where it depends on something else."""
    place, numbering = start_in_buffer(view), Numbering(variables)
    total = Linear(place.offset)
    for value, factor in place.terms:
        total = total.plus(linear_of(value, numbering), factor)
    return total if len(numbering.values) == len(variables) else None

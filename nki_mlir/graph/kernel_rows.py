# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the rows of HBM tensors that kernels of a graph move, so that operations on the same rows find them on chip."""

from nki_mlir.analysis.effects import memory_of
from nki_mlir.bindings import Operation, Value, ir, operations_of
from nki_mlir.dialects.access import HBM
from nki_mlir.graph.nests import in_hbm


def rows_of_kernels(function: Operation) -> dict[Value, set[int]]:
    """Map each buffer in HBM that a kernel accesses to the elements of the complete rows that it loads or stores."""
    rows: dict[Value, set[int]] = {}
    for op in operations_of(function, lambda name: name == "linalg.generic"):
        if in_hbm(op):
            continue                            # an operation of the graph
        for operand in op.operands:
            if isinstance(operand.type, ir.MemRefType) and is_in_hbm(kind := ir.MemRefType(operand.type)):
                strides, _ = kind.get_strides_and_offset()
                lengths = rows.setdefault(memory_of(operand), set())
                if len(kind.shape) == 2 and strides == [kind.shape[1], 1]:
                    lengths.add(kind.shape[1])
    return rows


def is_in_hbm(kind: ir.MemRefType) -> bool:
    return bool(kind.memory_space == ir.StringAttr.get(HBM, kind.context))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Divides a graph's copies between two tensors that step backwards into loads and stores of rows.

before:  nisa.dma_copy %out[0, 0:8 * 16 + 0:16] = %x[7, 0:8 * -16 + 0:16]
after:   nki.load %t = %x[112, 0:8 * -16 + 0:16]; nki.store %out[0, 0:8 * 16 + 0:16] = %t
"""

from collections.abc import Sequence
from math import prod

from nki_mlir.analysis.mask_boxes import with_used_symbols
from nki_mlir.bindings import Module, Operation, ir, operations_of
from nki_mlir.dialects.access import HBM, Linear, Tile, same_buffer
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import read_op, write_op
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.nki.movement import LoadOp, StoreOp
from nki_mlir.machine import Machine, machine_named
from nki_mlir.printing.new_tiles import new_tile
from nki_mlir.targets.neuron.codegen.forward_transfers import is_backwards


def stage_reversals(module: Module) -> None:
    """Divide the copies, in place. Those whose rows do not fit SBUF, and those within one tensor, stay."""
    machine = machine_named(the_kernel(module).target)
    for operation in operations_of(module, lambda name: name == DmaCopyOp.full_name()):
        op = read_op(operation)
        assert isinstance(op, DmaCopyOp)
        is_reversal = is_backwards(op.src) or is_backwards(op.dst)
        is_between = op.src.space == op.dst.space == HBM and not same_buffer(op.src, op.dst)
        if is_reversal and is_between and not (op.mask or op.limits):
            _stage(op, operation, machine)


def _stage(op: DmaCopyOp, operation: Operation, machine: Machine) -> None:
    source, target = ([dim for dim in tile.access.dims if dim[1] > 1] for tile in (op.src, op.dst))
    counts = [count for _, count in source]
    row_bytes = prod(counts[1:]) * op.src.dtype.itemsize
    if counts != [count for _, count in target] or row_bytes > machine.sbuf_bytes_per_partition // 4:
        return
    make, at = Attributes(), ir.InsertionPoint(operation)
    for first in range(0, counts[0], machine.partitions):
        shape = (min(machine.partitions, counts[0] - first), *(counts[1:] or [1]))
        staged = new_tile(make, operation, shape, op.src.dtype)
        rows_read, rows_written = (_rows(tile, dims, first, shape[0])
                                   for tile, dims in ((op.src, source), (op.dst, target)))
        for copy in (LoadOp(dst=staged, src=rows_read, symbols=op.symbols, ranges=op.ranges),
                     StoreOp(dst=rows_written, src=staged, symbols=op.symbols, ranges=op.ranges)):
            write_op(with_used_symbols(copy), make, operation.location, at)
    operation.erase()


def _rows(tile: Tile, dims: Sequence[tuple[int, int]], first: int, count: int) -> Tile:
    """Return the part of a tensor from an index of its first dim on."""
    (step, _), *inner = dims
    return tile.patterned(free=tile.access.free.plus(Linear(first * step)),
                          dims=((step, count), *(inner or [(1, 1)])))

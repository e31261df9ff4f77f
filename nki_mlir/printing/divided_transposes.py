# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Divides transposes of integers into blocks that the Vector engine transposes: the Tensor engine multiplies floats.

before:  "nki.transpose"(%t, %x) 36 x 128         after:  "nisa.nc_transpose"(%t, %x) 32 x 32, columns 0 of x
                                                          "nisa.nc_transpose"(%t, %x) 4 x 32, ...
"""

import itertools

from nki_mlir.bindings import Module, ir, operations_of
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import read_op, write_op
from nki_mlir.dialects.nisa.matmul import NcTransposeOp
from nki_mlir.dialects.nki.movement import TransposeOp
from nki_mlir.machine import machine_named
from nki_mlir.targets.neuron.codegen.forward_transfers import is_backwards


def divide_transposes(module: Module) -> None:
    """Divide the transposes of integers that are larger than a block of the Vector engine."""
    make, size = Attributes(), machine_named(the_kernel(module).target).transpose_vector_max
    for operation in operations_of(module, lambda name: name == TransposeOp.full_name()):
        op = read_op(operation)
        assert isinstance(op, TransposeOp)
        is_forward = not (is_backwards(op.dst) or is_backwards(op.src))
        is_plain = is_forward and op.dst.dtype is op.src.dtype and not (op.mask or op.limits)
        if op.src.dtype.is_float or max(op.src.shape) <= size or not is_plain:
            continue
        rows, columns = op.src.shape
        for row, column in itertools.product(range(0, rows, size), range(0, columns, size)):
            counts = min(size, rows - row), min(size, columns - column)
            source, target = _block(op.src, (row, column), counts), _block(op.dst, (column, row), counts[::-1])
            block = NcTransposeOp(dst=target, src=source, engine="vector", symbols=op.symbols, ranges=op.ranges)
            write_op(block, make, operation.location, ir.InsertionPoint(operation))
        operation.erase()


def _block(tile: Tile, starts: tuple[int, int], counts: tuple[int, int]) -> Tile:
    access = tile.access.box(starts, counts)
    return tile.patterned(partition=access.partition, free=access.free, dims=access.dims)

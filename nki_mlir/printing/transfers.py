# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints loads, stores and transposes by DMA as statements, and results of functions, which are new tiles."""


from nki_mlir.dialects.access import HBM, PSUM, SBUF, Linear, Tile, full_tile, same_pattern
from nki_mlir.dialects.nisa.indirect import DmaGatherOp, DmaScatterOp
from nki_mlir.dialects.nisa.movement import DmaComputeOp, DmaCopyOp, DmaTransposeOp
from nki_mlir.dialects.nisa.random import RandOp
from nki_mlir.dialects.nki.movement import (
    TRANSPOSES,
    Copying,
)
from nki_mlir.dialects.op import Op, changed
from nki_mlir.dialects.scalar_body import Elementwise
from nki_mlir.dialects.target_rules import starts_legally
from nki_mlir.machine import Engine
from nki_mlir.printing.addresses import write_run_time_copy
from nki_mlir.printing.kernel_text import KernelText, NamedTensor
from nki_mlir.printing.masked import call, put_rows, rows_for_transfer
from nki_mlir.printing.statements import write_instruction
from nki_mlir.printing.tile_names import name_of_result
from nki_mlir.printing.tile_text import dtype_text
from nki_mlir.scalar.dtypes import INT32
from nki_mlir.targets.neuron.codegen.forward_transfers import is_backwards, with_hbm_forwards


def write_function(text: KernelText, op: Elementwise | RandOp, call: str) -> None:
    """Write an assignment of a function's result, a new tile, to the name of ``dst`` if nothing has used ``dst`` yet,
    else to another name, from which a copy to ``dst`` follows."""
    tensor = text.defines(op.dst)
    if tensor is None and not text.beta and (tensor := text.defines(in_base_shape(op.dst))) is not None:
        tensor.shape = op.dst.shape
    if tensor is not None:
        name = text.define(tensor)
        del text.waiting[op.dst.handle]
    else:
        text.emit_allocations(op.dst.handle)            # before the result, which may then be written there at once
        if text.replace_allocation(op.dst, call):
            text.write(f"{text.tensors[op.dst.handle].name} = {call}")
            return
        name = text.define(NamedTensor(name_of_result(op, ""), op.dst.shape, op.dst.dtype, "nl.sbuf"))
    text.write(f"{name} = {call}")
    if tensor is None:
        text.write(f"nisa.tensor_copy(dst={text.tile(op, op.dst)}, src={name})")


def in_base_shape(tile: Tile) -> Tile:
    """Return all elements of a buffer in its shape if the tile has them in another shape, else the tile."""
    full = full_tile(tile.handle, tile.base_shape, tile.base_dtype, tile.space)
    return full if same_pattern(tile, full) else tile


def in_sbuf(text: KernelText, op: Op, tile: Tile) -> Tile:
    """Return the tile, or a copy of it in SBUF if it is in PSUM or steps backwards, where no transfer reads it."""
    if tile.space != PSUM and not is_backwards(tile):
        return tile
    text.emit_allocations(tile.handle)
    if not starts_legally(text.machine, tile):
        return rows_for_transfer(text, op, tile)
    staged = text.temporary(tile.shape, tile.dtype, SBUF)
    call(text, op, "tensor_copy", staged, tile)
    return staged


def _move_rows_backwards(text: KernelText, op: Copying) -> None:
    """Write a transfer whose rows in HBM are a table's rows, counted from the last."""
    outside = op.dst if op.dst.space == HBM else op.src
    rows = outside.shape[0]
    index = text.temporary((rows, 1), INT32, SBUF, name="index")
    text.write(f"nisa.iota(dst={text.tile(op, index)}, pattern=[[0, 1]], offset={rows - 1}, channel_multiplier=-1)")
    (step, count), *inner = outside.access.dims
    table = outside.patterned(free=outside.access.free.plus(Linear(step * (count - 1))), dims=((-step, count), *inner))
    if op.dst is outside:
        write_run_time_copy(text, DmaScatterOp(dst=table, src=op.src, index=index, symbols=op.symbols,
                                               ranges=op.ranges))
    else:
        write_run_time_copy(text, DmaGatherOp(dst=op.dst, src=table, index=index, symbols=op.symbols,
                                              ranges=op.ranges))


def _loads_transpose(text: KernelText, op: Copying) -> bool:
    """Write a load that the kernel states as a transpose. Return False if no call loads it into its destination."""
    dst, src = op.dst, op.src
    if TRANSPOSES not in op.extra or len(src.shape) != 2 or dst.space != SBUF or src.space != HBM or any(
            is_backwards(tile) for tile in (dst, src)):
        return False
    rows = text.tile(op, src.patterned(dims=src.access.dims[::-1]), exact=True)
    if text.defines(dst) is not None:
        dtype = f", dtype={dtype_text(dst.dtype)}" if dst.dtype is not src.dtype else ""
        write_function(text, op, f"nl.load_transpose2d({rows}{dtype})")
        return True
    if dst.dtype is not src.dtype or dst.dtype.itemsize != 2:
        return False
    text.write(f"nisa.dma_transpose(dst={text.tile(op, dst, exact=True)}, src={rows})")
    return True


def write_move(text: KernelText, op: Copying) -> None:
    """Write a transfer. It reaches PSUM, and patterns on chip that step backwards, through a tile in SBUF."""
    if _loads_transpose(text, op):
        return
    op, by_rows = with_hbm_forwards(op)
    if by_rows:
        _move_rows_backwards(text, op)
        return
    source = in_sbuf(text, op, op.src)
    if op.dst.space == PSUM or is_backwards(op.dst):
        text.emit_allocations(op.dst.handle)
        staged = text.temporary(op.dst.shape, op.dst.dtype, SBUF)
        call(text, op, "dma_copy", staged, source)
        if starts_legally(text.machine, op.dst):
            call(text, op, "tensor_copy", op.dst, staged)
        else:
            put_rows(text, op, op.dst, staged)
    else:
        call(text, op, "dma_copy", op.dst, source)


def write_dma_copy(text: KernelText, op: DmaCopyOp) -> None:
    """Write a copy, which is a transpose if the kernel states it as one.

    Without placement, a copy between HBM and a tile that steps backwards is written as a load or a store.
    """
    backwards = any(is_backwards(tile) for tile in (op.dst, op.src))
    if text.placement is None and backwards and (op.dst.space == HBM) != (op.src.space == HBM):
        write_move(text, op)
    elif op.engine != Engine.UNKNOWN.value or not _loads_transpose(text, op):
        write_instruction(text, op)


def write_dma_compute(text: KernelText, op: DmaComputeOp) -> None:
    """Write the sum of two tiles by DMA."""
    sources = ", ".join(text.tile(op, tile, exact=True) for tile in (op.lhs, op.rhs))
    text.write(f"nisa.dma_compute(dst={text.tile(op, op.dst, exact=True)}, srcs=[{sources}], reduce_op=nl.add)")


def write_dma_transpose(text: KernelText, op: DmaTransposeOp) -> None:
    """Write the transpose, which moves elements unchanged, and a separate copy that converts."""
    if op.dst.dtype is op.src.dtype:
        write_instruction(text, op)
        return
    transposed = text.temporary(op.dst.shape, op.src.dtype, SBUF, name="transposed")
    write_instruction(text, changed(op, lambda tile: tile, dst=transposed))
    call(text, op, "tensor_copy" if op.dst.on_chip else "dma_copy", op.dst, transposed)

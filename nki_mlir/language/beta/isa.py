# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.isa`` (``nisa``): one function per engine instruction, returning new tiles."""

import enum
from typing import Any

from nki_mlir.frontend.builder import current
from nki_mlir.language import instructions as core
from nki_mlir.language.tiles import fp32 as fp32
from nki_mlir.machine import machine_named


class engine(enum.Enum):
    """Engines of a core; ``unknown`` leaves the choice to the compiler."""

    unknown, tensor, scalar, gpsimd, vector, sync = 0, 1, 2, 3, 5, 6


unknown_engine, tensor_engine, scalar_engine = engine.unknown, engine.tensor, engine.scalar
gpsimd_engine, vector_engine, dma_engine = engine.gpsimd, engine.vector, engine.sync


class reduce_cmd(enum.Enum):
    """What an activation does with the accumulation registers."""

    idle, reset, reduce, reset_reduce = 0, 1, 2, 3


class dge_mode(enum.Enum):
    """Who writes the descriptors of a DMA."""

    none, swdge, hwdge, unknown = 0, 1, 2, 3


class oob_mode(enum.Enum):
    """What an indirect DMA does with an index out of bounds."""

    error, skip = 0, 1


class nc_version(enum.IntEnum):
    """Generations of the core."""

    gen2, gen3, gen4 = 2, 3, 4


def get_nc_version() -> nc_version:
    """The generation of the kernel's target."""
    builder = current.get()
    return nc_version(machine_named(builder.target if builder is not None else "trn2").generation)


def tensor_tensor(data1: Any, data2: Any, op: Any, *, dtype: Any = None, mask: Any = None, engine: Any = None,
                  **ignored: Any) -> Any:
    """data1 (op) data2, elementwise, on the Vector or GpSimd engine."""
    return core.tensor_tensor(data1, data2, op, dtype=dtype, mask=mask, engine=engine)


def tensor_scalar(data: Any, op0: Any, operand0: Any, reverse0: bool = False, op1: Any = None, operand1: Any = None,
                  reverse1: bool = False, *, dtype: Any = None, mask: Any = None, engine: Any = None,
                  **ignored: Any) -> Any:
    """(data op0 operand0) op1 operand1; operands are numbers or [P, 1] tiles."""
    return core.tensor_scalar(data, op0, operand0, reverse0, op1, operand1, reverse1, dtype=dtype, mask=mask,
                              engine=engine)


def tensor_scalar_reduce(*, data: Any, op0: Any, operand0: Any, reduce_op: Any, reduce_res: Any, reverse0: bool = False,
                         dtype: Any = None, mask: Any = None, **ignored: Any) -> Any:
    """data op0 operand0, with its reduction over the free axes written to reduce_res."""
    return core.tensor_scalar_reduce(data=data, op0=op0, operand0=operand0, reduce_op=reduce_op, reduce_res=reduce_res,
                                     reverse0=reverse0, dtype=dtype, mask=mask)


def scalar_tensor_tensor(*, data: Any, op0: Any, operand0: Any, op1: Any, operand1: Any, reverse0: bool = False,
                         reverse1: bool = False, dtype: Any = None, mask: Any = None, **ignored: Any) -> Any:
    """(data op0 operand0) op1 operand1; operand0 a number or [P, 1], operand1 a tile."""
    return core.scalar_tensor_tensor(data, op0, operand0, op1, operand1, reverse0, reverse1, dtype=dtype, mask=mask)


def tensor_reduce(op: Any, data: Any, axis: Any, *, mask: Any = None, dtype: Any = None, negate: bool = False,
                  keepdims: bool = False, **ignored: Any) -> Any:
    """data reduced over free axes."""
    return core.tensor_reduce(op, data, axis, mask=mask, dtype=dtype, negate=negate, keepdims=keepdims)


def tensor_partition_reduce(op: Any, data: Any, *, mask: Any = None, dtype: Any = None, **ignored: Any) -> Any:
    """data reduced over its partitions."""
    return core.tensor_partition_reduce(op, data, mask=mask, dtype=dtype)


def activation(op: Any, data: Any, *, bias: Any = None, scale: Any = 1.0, dtype: Any = None, mask: Any = None,
               **ignored: Any) -> Any:
    """op(data * scale + bias) on the Scalar engine."""
    return core.activation(op, data, bias=bias, scale=scale, dtype=dtype, mask=mask)


def activation_reduce(op: Any, data: Any, *, reduce_op: Any, reduce_res: Any, bias: Any = None, scale: Any = 1.0,
                      dtype: Any = None, mask: Any = None, **ignored: Any) -> Any:
    """The activation, with its sum over the free axes written to reduce_res."""
    return core.activation_reduce(op, data, reduce_op=reduce_op, reduce_res=reduce_res, bias=bias, scale=scale,
                                  dtype=dtype, mask=mask)


def reciprocal(data: Any, *, dtype: Any = None, mask: Any = None, **ignored: Any) -> Any:
    """1 / data."""
    return core.reciprocal(data, dtype=dtype, mask=mask)


def tensor_copy(src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None, **ignored: Any) -> Any:
    """A copy on chip."""
    return core.tensor_copy(src, mask=mask, dtype=dtype, engine=engine)


def tensor_copy_predicated(*, src: Any, dst: Any, predicate: Any, reverse_pred: bool = False, mask: Any = None,
                           dtype: Any = None, **ignored: Any) -> Any:
    """dst = src where the predicate is not 0."""
    return core.tensor_copy_predicated(src=src, dst=dst, predicate=predicate, reverse_pred=reverse_pred, mask=mask)


def affine_select(pred: Any, on_true_tile: Any, on_false_value: Any, *, mask: Any = None, dtype: Any = None,
                  **ignored: Any) -> Any:
    """on_true_tile where one affine comparison holds, else on_false_value."""
    return core.affine_select(pred, on_true_tile, on_false_value, mask=mask, dtype=dtype)


def memset(shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Any = None, **ignored: Any) -> Any:
    """A constant tile."""
    return core.memset(shape, value, dtype, mask=mask, engine=engine)


def iota(expr: Any, dtype: Any, *, mask: Any = None, **ignored: Any) -> Any:
    """The values of an affine index expression as a tile."""
    return core.iota(expr, dtype, mask=mask)


def nc_matmul(stationary: Any, moving: Any, *, is_stationary_onezero: bool = False, is_moving_onezero: bool = False,
              is_transpose: bool = False, tile_position: tuple = (), tile_size: tuple = (), mask: Any = None,
              **ignored: Any) -> Any:
    """stationary.T @ moving as a float32 tile in PSUM. The hints change no values."""
    return core.nc_matmul(stationary, moving, mask=mask)


def nc_transpose(data: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None, **ignored: Any) -> Any:
    """data with partition and free axis exchanged."""
    return core.nc_transpose(data, mask=mask, dtype=dtype, engine=engine)


def dma_copy(*, dst: Any, src: Any, mask: Any = None, dst_rmw_op: Any = None, oob_mode: Any = None,
             dge_mode: Any = None, **ignored: Any) -> None:
    """dst = src between HBM and SBUF, either way, converted on the way."""
    core.dma_copy(dst=dst, src=src, mask=mask)

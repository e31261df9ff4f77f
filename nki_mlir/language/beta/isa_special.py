# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions of the beta generation without a loop form: statistics, searches, shuffles, selections."""

from math import prod
from typing import Any

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.nisa import accumulating, movement, search, selection, shuffle
from nki_mlir.frontend.builder import active
from nki_mlir.frontend.locations import user_location
from nki_mlir.language import assignment, creation, indirect
from nki_mlir.language import operations as ops
from nki_mlir.language.beta import enums
from nki_mlir.language.beta.isa_compute import check_descriptors
from nki_mlir.language.creation import emit
from nki_mlir.language.instructions import (
    check_destination,
    command_name,
    engine_name,
    operand,
    registers,
    require_from_first,
)
from nki_mlir.scalar.dtypes import UINT32
from nki_mlir.scalar.tokens import alu_token


class TransposedAxes(KernelError):
    code = "NKI-TRANSPOSE-AXES"
    message = "dma_transpose with axes {axes}; of that many dimensions it takes {legal}"
    fix = "leave axes out, or permute the tensor's view"


def dma_transpose(src, *, axes, mask, dtype, dge_mode=enums.dge_mode.unknown) -> Any:
    """src with its axes permuted, through DMA; (1, 0), (2, 1, 0) or (3, 1, 2, 0) where axes are not given."""
    check_descriptors("dma_transpose", dge_mode)
    if isinstance(src, indirect.ADDRESSED):
        src = indirect.gather(src)
    defaults = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
    permutation = tuple(int(a) for a in axes) if axes is not None else defaults.get(src.ndim, ())
    if permutation != defaults.get(src.ndim, permutation):
        active("nisa.dma_transpose").report(TransposedAxes(axes=permutation, legal=defaults[src.ndim]),
                                            contested=False)
    if sorted(permutation) != list(range(src.ndim)):
        raise ops.ShapeMismatch(what=f"dma_transpose with axes {axes} of a tensor of shape {src.shape}").located(
            user_location())
    shape = tuple(src.shape[k] for k in permutation)
    return ops.compute(shuffle.DmaTransposeOp, shape, dtype or src.dtype, {"src": src}, mask,
                       explicit_dtype=dtype is not None, permutation=permutation)


def tensor_scalar_cumulative(dst, src, op0, op1, imm0, imm1=None, reduce_cmd=enums.reduce_cmd.reset_reduce, *,
                             mask=None) -> None:
    """dst[i] = op1(op0(src[i], imm0), dst[i-1]) along the free axis; ``load_reduce`` starts from ``imm1``."""
    command, held = command_name(reduce_cmd), registers("vector", src.shape[0])
    if command == "load_reduce":
        tile, number = operand(imm1)
        with assignment.accumulating():         # registers are each iteration's own
            if tile is None:
                emit(movement.MemsetOp, {"dst": held}, value=number)
            else:
                emit(movement.TensorCopyOp, {"dst": held, "src": tile})
        command = "reduce"
    tile, number = operand(imm0)
    emit(accumulating.TensorScalarCumulativeOp, {"dst": dst, "accumulator": held, "src": src, "operand0": tile}, mask,
         op0=alu_token(op0).name, op1=alu_token(op1).name, imm0=number, reduce_cmd=command)


def tensor_copy_dynamic_src(src, *, mask, dtype, engine) -> Any:
    """A copy from a free offset that a [1, 1] tile holds."""
    return indirect.copy_dynamic_src(src, mask=mask, dtype=dtype, engine=engine_name(engine))


def tensor_copy_dynamic_dst(*, dst, src, mask, dtype, engine) -> Any:
    """A copy to a free offset that a [1, 1] tile holds."""
    check_destination("tensor_copy_dynamic_dst", dst, dtype)
    return indirect.copy_dynamic_dst(dst, src, mask=mask, engine=engine_name(engine))

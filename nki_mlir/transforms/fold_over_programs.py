# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The steps of a reduction over programs, on one core: the same number of operations as the collective has.

    total = first
    total = total + second
    result = total + third
"""

from collections.abc import Callable, Iterator, Sequence

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.nisa.collectives import AllReduceOp
from nki_mlir.dialects.nki.elementwise import BinaryOp, alu_compute
from nki_mlir.dialects.nki.movement import CopyOp
from nki_mlir.dialects.op import Op
from nki_mlir.scalar.dtypes import FLOAT32, DType
from nki_mlir.transforms.exact_extremes import extreme_steps, has_exact_steps


class ProgramsApart(NkiMlirError):
    code = "NKI-APART"
    message = "one core cannot run the programs of this grid one after the other: they have {what}"
    why = "the core runs all programs up to a reduction before it continues any of them"
    fix = "{fix}"


Temporary = Callable[[Sequence[int], DType], Tile]


def fold_steps(op: AllReduceOp, sources: Sequence[Tile], result: Tile, temporary: Temporary) -> Iterator[Op]:
    """Yield the operations that fold the programs' tiles in their order.

    The result may have one more dim after its first, along which its elements repeat. Intermediate results have the
    dtype in which the reduction computes. Raise ``ProgramsApart`` if the steps would round.
    """
    first, *later = sources
    compute = op.compute
    assert compute is not None
    wide = compute is not FLOAT32                       # 32-bit integers, which most steps would round
    exact = wide and has_exact_steps(op.op, *sources)
    if wide and later and not exact and alu_compute(op.op, compute, *[tile.dtype for tile in sources]) is not compute:
        raise ProgramsApart(what=f"a reduction over programs by '{op.op}' of {op.src.dtype}, which is exact",
                            fix="reduce float32 or integers of 16 bits")

    def repeated(tile: Tile) -> Tile:
        if len(tile.shape) == len(result.shape):
            return tile
        rows, *free = tile.access.dims
        return tile.patterned(dims=(rows, (0, result.shape[1]), *free))
    if not later:
        yield CopyOp(dst=result, src=repeated(first))
        return
    at_once = result.handle not in [tile.handle for tile in sources] and (not wide or result.dtype is compute)
    in_place = at_once and result.dtype is compute and len(result.shape) == len(first.shape)
    total = result if in_place else temporary(first.shape, compute)
    if exact:
        yield CopyOp(dst=total, src=first)
        for source in later:
            yield from extreme_steps(op.op, total, source, temporary)
    elif at_once:
        yield CopyOp(dst=total, src=first)
        for source in later[:-1]:
            yield BinaryOp(dst=total, lhs=total, rhs=source, op=op.op)
        yield BinaryOp(dst=result, lhs=repeated(total), rhs=repeated(later[-1]), op=op.op)
        return
    else:
        for source in later:
            yield BinaryOp(dst=total, lhs=first, rhs=source, op=op.op)
            first = total
    if not in_place:
        yield CopyOp(dst=result, src=repeated(total))

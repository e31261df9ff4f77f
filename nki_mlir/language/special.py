# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random numbers and gathers: functions of the language in both generations that are no loop nest over tiles."""


from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.nisa import movement, random
from nki_mlir.frontend.builder import active
from nki_mlir.frontend.tensor import View
from nki_mlir.language import creation
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import Tensor, emit
from nki_mlir.language.instructions import operand
from nki_mlir.scalar.dtypes import INT32, UINT32


def gather_flattened(data: View, indices: object, *, mask: object = None, dtype: object = None) -> Tensor:
    """Per partition: data's free elements, flattened, at ``indices``."""
    source, places = creation.as_operand(data), creation.as_operand(indices)
    made = ops.compute(movement.GatherFlattenedOp, places.shape, data.dtype, {"src": source, "index": places}, mask,
                       asked=data.dtype)
    return made if dtype is None else ops.copy(made, dtype=dtype)


class BadProbability(KernelError, ValueError):
    code = "NKI-PROBABILITY"
    message = "the probability of dropout is {found}"
    fix = "give a number of 0 to 1"


def generator_state() -> Tensor:
    return creation.tensor_of(active().state("random_state", (1, 2), UINT32))


def random_seed(seed: View | float, *, mask: object = None) -> None:
    """Seed the generator with a number or a [1, 1] tile; the same seed gives the same numbers."""
    if not isinstance(seed, View):
        seed = creation.filled((1, 1), float(int(seed) & 0x7FFFFFFF), INT32)
    emit(random.RandomSeedOp, {"state": generator_state(), "seed": seed}, mask)


def rand(shape: object, dtype: object) -> Tensor:
    """A tile of uniform numbers in [0, 1)."""
    extents, _ = creation.plain_shape(shape)
    return ops.compute(random.RandOp, extents, dtype, {"state": generator_state()}, asked=dtype)


def dropout(data: View, prob: object, *, dtype: object = None, mask: object = None) -> Tensor:
    """data with elements set to zero with a probability, a number or a [P, 1] tile; nothing is rescaled."""
    source = creation.as_operand(data)
    tile, number = operand(prob)
    if not 0 <= number <= 1:
        raise BadProbability(found=prob).here()
    if tile is not None and tile.shape[0] != source.shape[0]:
        tile = tile.broadcast_to((source.shape[0], 1))
    return ops.compute(random.DropoutOp, source.shape, data.dtype,
                       {"state": generator_state(), "src": source, "prob": tile}, mask, asked=dtype, imm=number)

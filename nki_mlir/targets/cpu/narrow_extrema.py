# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Maximum and minimum of 16-bit floats along a row, computed on their bits.

A float whose magnitude bits are inverted where its sign is set sorts like a signed integer: a register compares twice
as many of them as of float32, and converts none. NaN lies beyond the infinities, on both sides: the fold computes the
greatest and the least integer; one is the result, the other shows whether there was a NaN.
"""

from dataclasses import dataclass

from nki_mlir.bindings import ir
from nki_mlir.scalar.conversion_expansion import expand_convert
from nki_mlir.scalar.dtypes import FLOAT32, DType
from nki_mlir.targets.cpu.lanes import FunctionEmitter, Value
from nki_mlir.targets.cpu.schedule import ORDERLESS, Schedule
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.recognize import Fold

MAGNITUDE = 0x7FFF
LEAST, GREATEST = -0x8000, 0x7FFF


@dataclass(frozen=True)
class NarrowExtremum:
    """A fold of an input that is a 16-bit float. Its partial result is two vectors: greatest and least integers."""

    fold: Fold
    operand: int
    dtype: DType

    def start(self, code: FunctionEmitter, lanes: int) -> list[Value]:
        kind = ir.VectorType.get([lanes], ir.IntegerType.get_signless(16))
        return [code.constant(kind, number) for number in (LEAST, GREATEST)]

    def collect(self, code: FunctionEmitter, partial: list[Value], elements: Value) -> list[Value]:
        """Fold a vector of elements into a partial result."""
        return self.combine(code, partial, [self.inverted(code, code.bitcast(elements, "i16"))] * 2)

    def combine(self, code: FunctionEmitter, a: list[Value], b: list[Value]) -> list[Value]:
        return [code.maxsi(a[0], b[0]), code.minsi(a[1], b[1])]

    def result(self, code: FunctionEmitter, partial: list[Value]) -> Value:
        """Return the extremum of each lane in float32; NaN where one of its elements was NaN."""
        greatest, least = (self.widened(code, words) for words in partial)
        chosen, alternative = (greatest, least) if self.fold.fn == "maximum" else (least, greatest)
        return code.select(code.is_nan(alternative), alternative, chosen)

    def widened(self, code: FunctionEmitter, words: Value) -> Value:
        bits = self.inverted(code, words)
        stored = bits if code.element(self.dtype) == words.type.element_type else code.bitcast(bits, "f16")
        return expand_convert(code, stored, self.dtype, FLOAT32)

    @staticmethod
    def inverted(code: FunctionEmitter, words: Value) -> Value:
        """Invert the magnitude bits of words whose sign is set, which turns floats into integers and back."""
        return code.xor(words, code.and_(code.shrsi(words, 15), MAGNITUDE))


def narrow_extrema(nest: Nest, plan: Schedule) -> dict[int, NarrowExtremum]:
    """Return by output the folds whose value is an unchanged input of 16 bits, read in full registers of these
    elements."""
    extrema = {}
    for fold in plan.folds:
        step = nest.step(fold.value)
        if fold.fn not in ORDERLESS or step is None or step.kind != "convert" or plan.lanes % (2 * host.lanes()):
            continue
        operand, = step.operands
        if operand < nest.first_output and nest.uses(operand) == nest.uses(fold.value) == 1:
            tile = nest.operands[operand]
            if tile.dtype.is_float and tile.dtype.itemsize == 2 and tile.strides[plan.vector] == 1:    # type: ignore[index]
                extrema[fold.output] = NarrowExtremum(fold, operand, tile.dtype)
    return extrema

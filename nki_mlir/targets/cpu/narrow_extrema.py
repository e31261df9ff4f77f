# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Maximum and minimum of 16-bit floats along a row, computed on their bits.

The bits of positive floats sort like signed integers; those of negative floats sort in reverse, below the positive
ones. A register compares twice as many 16-bit integers as float32 numbers, and converts none. The fold computes three
integers: the greatest signed one, and the least and the greatest unsigned one. NaN lies beyond the infinities, on both
sides, so it is the first or the last.
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

SIGN = 0x8000
LEAST, GREATEST = 0, 0xFFFF         # of words without sign


@dataclass(frozen=True)
class NarrowExtremum:
    """A fold of an input that is a 16-bit float. Its partial result is three registers, into which all registers of a
    vector are folded: the greatest signed integers, the least and the greatest unsigned ones."""

    fold: Fold
    operand: int
    dtype: DType

    slots = 3                       # vectors of a partial result

    def start(self, code: FunctionEmitter, lanes: int) -> list[Value]:
        kind = ir.VectorType.get([min(lanes, 2 * host.lanes())], ir.IntegerType.get_signless(16))
        return [code.constant(kind, number) for number in (SIGN, GREATEST, LEAST)]

    def collect(self, code: FunctionEmitter, partial: list[Value], elements: Value) -> list[Value]:
        """Fold a vector of elements into a partial result."""
        for words in code.pieces(code.bitcast(elements, "i16"), 2 * host.lanes()):
            partial = self.combine(code, partial, [words] * 3)
        return partial

    def combine(self, code: FunctionEmitter, a: list[Value], b: list[Value]) -> list[Value]:
        return [code.maxsi(a[0], b[0]), code.minui(a[1], b[1]), code.maxui(a[2], b[2])]

    def result(self, code: FunctionEmitter, partial: list[Value]) -> Value:
        """Return the extremum of each lane in float32; NaN where one of its elements was NaN."""
        signed, least, greatest = partial
        first, other = (signed, greatest) if self.fold.fn == "maximum" else (greatest, signed)
        # If all elements have a sign, the greatest is the least word; if none has one, that is the least element.
        predicate = "sge" if self.fold.fn == "maximum" else "slt"
        chosen = self.widened(code, code.select(code.cmp(predicate, first, 0), first, least))
        alternative = self.widened(code, other)
        return code.select(code.is_nan(alternative), alternative, chosen)

    def widened(self, code: FunctionEmitter, words: Value) -> Value:
        stored = words if code.element(self.dtype) == words.type.element_type else code.bitcast(words, "f16")
        return expand_convert(code, stored, self.dtype, FLOAT32)


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

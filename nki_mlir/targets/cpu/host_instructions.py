# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions of the host for floats that replace several general operations."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from nki_mlir.bindings import Type, ir, load
from nki_mlir.scalar.emit import ScalarEmitter, arith
from nki_mlir.targets.runtime import host

Value = Any
DENORMAL, NAN = 0x20, 0x81          # the instruction's classes of numbers: quiet and signaling NaN
MAGNITUDE = 0x7FFF                  # the bits of a 16-bit float without its sign
LESSER_MAGNITUDE = 2                # the instruction returns the number of lesser magnitude, with the sign of the first
# The instruction that repairs special values then returns the NaN of its other operand, as it is or quiet.
NAN_AS_BEFORE, QUIET_NAN = 0x11, 0x22
FIRST_OR_BOTH = 0xF8                # the instruction computes a | (b & c), bit by bit
NOT_AND_OR = 0xAE                   # the same, (b & ~a) | c
# Words whose halves are multiplied. One word has a last place of bfloat16 in its upper half and 0x4000 in its lower
# half, the other has -1 and 2. The sum of the products is half of a place, less 1 if the upper half is set.
BFLOAT16_ULP, QUARTER, TWICE_LESS = 0x10000, 0x4000, 0xFFFF0002


class HostInstructions(ScalarEmitter):
    """Emits instructions of the host on vectors of any number of registers."""

    def __init__(self) -> None:
        self.vector = load("dialects.vector")
        self.scf = load("dialects.scf")
        self.tests_zeros = False        # whether ``narrow_to_bfloat16`` looks for denormals only if a result is 0
        self.adds_words = False         # whether ``round_words`` adds products of words
        # Registers that were rounded without a test for denormals, with their results; None: each rounding has a test.
        self.untested: list[tuple[list[Value], Value]] | None = None

    # -- floats --------------------------------------------------------------------------------------------------------

    def in_registers(self, instruction: Callable[..., Value], *operands: Value) -> Value:
        """Emit an instruction on registers of 16 elements, for any number of lanes or a scalar."""
        if not isinstance(operands[0].type, ir.VectorType):
            wide = [self.spread(operand, 16) for operand in operands]
            return self.vector.ExtractOp(instruction(*wide), [], [0]).result
        lanes = operands[0].type.shape[0]
        if lanes >= 16:
            return self.joined([instruction(*parts) for parts in zip(*[self.pieces(o, 16) for o in operands])])
        wide = [self.vector.ShuffleOp(o, o, [k % lanes for k in range(16)]).result for o in operands]
        result = instruction(*wide)
        return self.vector.ShuffleOp(result, result, range(lanes)).result

    def masked(self, name: str, *operands: Value) -> Value:
        """Emit an instruction with a mask and a rounding mode, for all 16 elements and rounding to nearest."""
        all_lanes, as_usual = (arith.ConstantOp(ir.IntegerType.get_signless(bits), ir.IntegerAttr.get(
            ir.IntegerType.get_signless(bits), number)).result for bits, number in ((16, -1), (32, 4)))
        return self._intrinsic(name, *operands, all_lanes, as_usual)

    def times_power(self, a: Value, exponent: Value) -> Value:
        """Use one instruction where the host has it."""
        if host.lanes() < 16 or a.type != self.type_like(a, "f32"):
            return super().times_power(a, exponent)
        return self.in_registers(lambda x, power: self.masked("llvm.x86.avx512.mask.scalef.ps.512", x, power, x),
                                 a, exponent)

    def selected(self, index: Value, numbers: tuple[float, ...]) -> Value:
        kind = ir.VectorType.get([16], ir.F32Type.get())
        table = arith.ConstantOp(kind, ir.DenseElementsAttr.get(np.array(numbers, np.float32), type=kind)).result
        return self.in_registers(lambda k: self._intrinsic("llvm.x86.avx512.permvar.sf.512", table, k), index)

    def no_larger(self, a: Value, most: float) -> Value:
        limit = self.constant(ir.VectorType.get([16], ir.F32Type.get()), most)
        return self.in_registers(lambda x: self.masked(
            "llvm.x86.avx512.mask.range.ps.512", x, limit, self._i32(LESSER_MAGNITUDE), x), a)

    def pairs_added(self, a: Value, b: Value, total: Value) -> Value:
        """Add to each sum the products of two bfloat16; each word of ``a`` and ``b`` is two of them."""
        kind = ir.VectorType.get([32], ir.BF16Type.get())
        return self._intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", total, *[
            self.vector.BitCastOp(kind, value).result for value in (a, b)])

    def narrow_to_bfloat16(self, a: Value, steps: Callable[[Value], Value], is_integral: bool = False) -> Value:
        """Round to bfloat16 with the host's instruction, two registers at a time if there are two. The instruction
        takes denormals as 0: ``steps`` round vectors that have one, except their NaN, whose payload the instruction
        keeps. Integral numbers are not denormals.
        """
        lanes = a.type.shape[0] if isinstance(a.type, ir.VectorType) else 1
        if not host.multiplies_pairs() or lanes % 16:
            return steps(a)
        parts = self.pieces(a, 16)
        narrow = self._narrowed(parts)
        return narrow if is_integral else self.unless_denormal([(parts, narrow)], [narrow], lambda: [
            self.select(self.is_nan(a), narrow, steps(a))])[0]

    def round_to_bfloat16(self, a: Value, steps: Callable[[Value], Value]) -> Value:
        """Round to bfloat16 by the host's instruction, and return float32: each result with zeros in its lower half.
        The instruction flushes denormals, so ``untested`` records the operands for a later test. Without that list, or
        if 32 does not divide the lanes, round by ``steps``."""
        lanes = a.type.shape[0] if isinstance(a.type, ir.VectorType) else 1
        if self.untested is None or lanes % 32:
            return steps(a)
        parts = self.pieces(a, 16)
        narrow = self._narrowed(parts)
        self.untested.append((parts, narrow))
        below = self.constant(ir.VectorType.get([32], ir.IntegerType.get_signless(16)), 0)
        kind = ir.VectorType.get([16], ir.F32Type.get())
        return self.joined([self.vector.BitCastOp(kind, self.vector.ShuffleOp(words, below, [
            n for k in range(half, half + 16) for n in (32, k)]).result).result
            for words in self.pieces(narrow, 32) for half in (0, 16)])

    def round_words(self, a: Value, steps: Callable[[Value], Value]) -> Value:
        """With ``adds_words``, add half of the upper half's last place, less 1 where the upper half is even, and clear
        the lower half.

        One instruction computes the numbers to add, as the halves of a word, and one adds the products of these halves
        with 2 and -1.
        """
        lanes = a.type.shape[0] if isinstance(a.type, ir.VectorType) else 1
        if not self.adds_words or lanes % 16:
            return steps(a)
        rounded = []
        for part in self.pieces(a, 16):
            bits = self.bitcast(part, "i32")
            added = self._intrinsic("llvm.x86.avx512.pternlog.d.512", bits, self.const(bits, BFLOAT16_ULP),
                                    self.const(bits, QUARTER), self._i32(NOT_AND_OR))
            total = self._words_added(bits, added, self.const(bits, TWICE_LESS))
            rounded.append(self.bitcast(self.and_(total, 0xFFFF0000), "f32"))
        return self.joined(rounded)

    def _words_added(self, total: Value, a: Value, b: Value) -> Value:
        """Add to each 32-bit integer the products of the signed halves of two others."""
        kind = ir.VectorType.get([32], ir.IntegerType.get_signless(16))
        return self._intrinsic("llvm.x86.avx512.vpdpwssd.512", total, *[
            self.vector.BitCastOp(kind, value).result for value in (a, b)])

    def unless_denormal(self, rounded: Sequence[tuple[Sequence[Value], Value]], usual: Sequence[Value],
                        otherwise: Callable[[], Sequence[Value]]) -> list[Value]:
        """Emit the ``usual`` values, or ``otherwise`` if a register that was rounded has a denormal. With
        ``tests_zeros``, code looks for denormals only if a result is 0."""
        def without_denormals() -> Sequence[Value]:
            are_exact = self._none_of([self._is_in(part, DENORMAL) for parts, _ in rounded for part in parts])
            return self._if(are_exact, usual, otherwise)
        if not self.tests_zeros:
            return list(without_denormals())
        zeros = [self.cmp("eq", self.and_(words, MAGNITUDE), 0) for _, narrow in rounded
                 for words in self.pieces(narrow, 32)]
        return self._if(self._none_of(zeros), usual, without_denormals)

    def _if(self, condition: Value, usual: Sequence[Value], otherwise: Callable[[], Sequence[Value]]) -> list[Value]:
        """Emit the ``usual`` values if a condition holds, else those that ``otherwise`` emits in a branch. The usual
        case comes first in the layout of the code."""
        branch = self.scf.IfOp(condition, [value.type for value in usual], has_else=True)
        with ir.InsertionPoint(branch.then_block):
            self.scf.YieldOp(usual)
        with ir.InsertionPoint(branch.else_block):
            self.scf.YieldOp(otherwise())
        return list(branch.results)

    def _none_of(self, flags: Sequence[Value]) -> Value:
        """Emit whether no bit of some vectors of bits is set."""
        bits = flags[0]
        for other in flags[1:]:
            bits = self.or_(bits, other)
        kind = ir.IntegerType.get_signless(bits.type.shape[0])
        return self.cmp("eq", cast(Value, self._llvm("bitcast", [bits], kind)), 0)

    def _is_in(self, part: Value, classes: int) -> Value:
        """Emit whether each element of a register belongs to one of these classes of numbers."""
        bits = ir.VectorType.get([16], ir.IntegerType.get_signless(1))
        return self._intrinsic("llvm.x86.avx512.fpclass.ps.512", part, self._i32(classes), result=bits)

    def _narrowed(self, parts: Sequence[Value]) -> Value:
        """Round registers of float32 by the host's instruction; return the 16-bit elements."""
        half, full = (ir.VectorType.get([n], ir.BF16Type.get()) for n in (16, 32))
        narrow = [self._intrinsic("llvm.x86.avx512bf16.cvtne2ps2bf16.512", high, low, result=full)
                  for low, high in zip(parts[::2], parts[1::2])] if len(parts) > 1 else [
            self._intrinsic("llvm.x86.avx512bf16.cvtneps2bf16.512", parts[0], result=half)]
        words = ir.VectorType.get([16 * len(parts)], ir.IntegerType.get_signless(16))
        return self.vector.BitCastOp(words, self.joined(narrow)).result

    def unless_nan(self, a: Value, result: Value) -> Value:
        """Use one instruction where the host has it: a comparison and a selection take longer."""
        return self._repaired(a, result, NAN_AS_BEFORE) if self._has_registers(a) else super().unless_nan(a, result)

    def quiet_nans(self, a: Value, bits: Value) -> Value:
        """Use one instruction where the host has it."""
        if not self._has_registers(a):
            return super().quiet_nans(a, bits)
        return self.bitcast(self._repaired(a, self.bitcast(bits, "f32"), QUIET_NAN), "i32")

    def _repaired(self, a: Value, result: Value, repair: int) -> Value:
        """Emit a result, with the repair's value where ``a`` is NaN."""
        repairs = self.constant(ir.VectorType.get([16], ir.IntegerType.get_signless(32)), repair)
        return self.joined([
            self.masked("llvm.x86.avx512.mask.fixupimm.ps.512", new, old, repairs, self._i32(0))
            for new, old in zip(self.pieces(result, 16), self.pieces(a, 16))])

    def _has_registers(self, a: Value, count: int = 1) -> bool:
        """Return whether a vector of 32-bit elements fills registers of 16 elements, in a multiple of ``count``."""
        lanes = a.type.shape[0] if isinstance(a.type, ir.VectorType) else 1
        return host.lanes() == 16 and lanes % (16 * count) == 0

    def upper_halves(self, bits: Value) -> Value:
        """Select the halves of two registers by one instruction instead of a shift and a truncation of each."""
        if not self._has_registers(bits, 2):
            return super().upper_halves(bits)
        kind = ir.VectorType.get([32], ir.IntegerType.get_signless(16))
        halves = [self.vector.BitCastOp(kind, part).result for part in self.pieces(bits, 16)]
        return self.joined([self.vector.ShuffleOp(low, high, range(1, 64, 2)).result
                            for low, high in zip(halves[::2], halves[1::2])])

    def halves_beside(self, even: Value, odd: Value) -> Value:
        """Emit words with the upper halves of two registers of words: those of ``even`` are the lower halves.

        LLVM would select the halves by one instruction that takes the time of three.
        """
        lower, upper = self.shrui(even, 16), self.const(odd, 0xFFFF0000)
        return self._intrinsic("llvm.x86.avx512.pternlog.d.512", lower, odd, upper, self._i32(FIRST_OR_BOTH))

    # -- vectors -------------------------------------------------------------------------------------------------------
    def pieces(self, a: Value, most: int) -> list[Value]:
        """Split a vector into vectors of at most ``most`` lanes."""
        lanes = a.type.shape[0] if isinstance(a.type, ir.VectorType) else 1
        return [a] if lanes <= most else [
            self.vector.ShuffleOp(a, a, range(k, k + most)).result for k in range(0, lanes, most)]

    def joined(self, parts: Sequence[Value]) -> Value:
        """Concatenate vectors of equal length, whose number is a power of two."""
        while len(parts) > 1:
            parts = [self.vector.ShuffleOp(x, y, range(2 * x.type.shape[0])).result
                     for x, y in zip(parts[::2], parts[1::2])]
        return parts[0]

    def _i32(self, number: int) -> Value:
        kind = ir.IntegerType.get_signless(32)
        return arith.ConstantOp(kind, ir.IntegerAttr.get(kind, number)).result

    def _intrinsic(self, name: str, *operands: Value, result: Type | None = None) -> Value:
        """Emit an instruction of the host; without ``result`` it has the type of the first operand."""
        return self._llvm("call_intrinsic", operands, result or operands[0].type, intrin=ir.StringAttr.get(name),
                          operandSegmentSizes=ir.DenseI32ArrayAttr.get([len(operands), 0]),
                          op_bundle_sizes=ir.DenseI32ArrayAttr.get([]))

    def instruction(self, name: str, *operands: Value) -> None:
        """Emit an instruction of the host without a result."""
        self._llvm("call_intrinsic", operands, intrin=ir.StringAttr.get(name),
                   operandSegmentSizes=ir.DenseI32ArrayAttr.get([len(operands), 0]),
                   op_bundle_sizes=ir.DenseI32ArrayAttr.get([]))

    def spread(self, value: Value, lanes: int) -> Value:
        """Broadcast a scalar to all lanes; vectors stay unchanged."""
        if lanes == 1 or isinstance(value.type, ir.VectorType):
            return value
        return self.vector.BroadcastOp(ir.VectorType.get([lanes], value.type), value).result

    # -- operations ----------------------------------------------------------------------------------------------------
    def _llvm(self, name: str, operands: Sequence[Value], result: Type | None = None,
              **attributes: object) -> ir.Operation | ir.Value:
        op = ir.Operation.create(f"llvm.{name}", operands=list(operands), results=[] if result is None else [result],
                                 attributes=attributes)
        return op.results[0] if result is not None else op

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads, stores and plain integer code of generated functions: pointers, strides, masks, scalar or in lanes.

A value is a scalar if ``lanes`` is 1, else a vector of ``lanes`` elements. ``active`` is a vector of i1, or None when
all lanes count; other lanes are neither read nor written.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from nki_mlir.bindings import Attribute, Type, ir
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, UINT32, DType, storage_type
from nki_mlir.scalar.emit import arith
from nki_mlir.targets.cpu.host_instructions import DENORMAL, NAN, HostInstructions
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Operand

Value = Any
DYNAMIC = -(1 << 31)                # marks an index that is an operand
# names of lookups by polynomials; the latter are multiplied by the argument
FITTED, FITTED_TO_ZERO = "fitted_", "fitted_zero_"
SEGMENTS, TERMS = 32, 4             # polynomials of a function, and their coefficients
NUMBERED = 12582912.0               # added to a number, it rounds the number to an integer, which is in the lowest bits
COEFFICIENTS = 65568                # the 16-bit element of a table at which coefficients begin, at a line of the cache
PAIRED = 2                          # bytes of each half of a word that is a pair of 16-bit elements
# up to this step, whole vectors are loaded and elements selected; beyond it, elements are gathered
MOST_SHUFFLED = 4


class FunctionEmitter(HostInstructions):
    """Emits the code of one function: scalars and vectors, plus memory."""

    def __init__(self) -> None:
        self.pointer = ir.Type.parse("!llvm.ptr")
        self.i64_type = ir.IntegerType.get_signless(64)
        super().__init__()
        self.i64s: dict[int, Value] = {}
        self.entry: Any = None          # where constants go

    # -- types ---------------------------------------------------------------------------------------------------------
    def element(self, dtype: DType) -> Any:
        """Return the type of an element in memory and, before code converts it, in registers."""
        return ir.Type.parse(storage_type(dtype))

    def shaped(self, element: Type, lanes: int) -> Type:
        return element if lanes == 1 else ir.VectorType.get([lanes], element)

    # -- tables --------------------------------------------------------------------------------------------------------
    def looked_up(self, index: Value, table: Value, dtype: DType) -> Value:
        """Load the 16-bit elements of a table at the bits of 16-bit floats.

        A gather loads 32 bits a lane; the lower half is the element. So the table has one more element than the index
        can reach. For eight lanes LLVM splits a gather into loads from addresses that it computes in vectors, which
        takes longer than loads at indices in general registers.
        """
        words, half = ir.IntegerType.get_signless(32), ir.IntegerType.get_signless(16)
        if not isinstance(index.type, ir.VectorType):
            element = self.at(table, self.extui(self.bitcast(index, "i16"), "i64"), half)
            return self._load(element, self.element(dtype), dtype)
        if host.lanes() < 16 and index.type.shape[0] % 4 == 0:
            elements = self._loaded_one_by_one(self.bitcast(index, "i16"), table)
            return elements if self.element(dtype) == half else self.bitcast(elements, "f16")
        halves = []
        for part in self.pieces(self.extui(self.bitcast(index, "i16"), "i32"), host.lanes()):
            lanes, = part.type.shape
            kind = ir.VectorType.get([lanes], words)
            loaded = self._masked("gather", [self.at(table, part, half), self.first_lanes(lanes, lanes),
                                             self.constant(kind, 0)], kind, dtype)
            halves.append(self.vector.BitCastOp(ir.VectorType.get([2 * lanes], half), loaded).result)
        lanes = halves[0].type.shape[0]
        joined = [self.vector.ShuffleOp(a, b, range(0, 2 * lanes, 2)).result
                  for a, b in zip(halves[::2], halves[1::2])] if len(halves) > 1 else [
            self.vector.ShuffleOp(halves[0], halves[0], range(0, lanes, 2)).result]
        elements = self.joined(joined)
        return elements if self.element(dtype) == half else self.bitcast(elements, "f16")

    def _loaded_one_by_one(self, indices: Value, table: Value) -> Value:
        """Load a 16-bit element of a table for each lane. Shifts and masks separate four indices that are one i64."""
        (lanes,), half = indices.type.shape, indices.type.element_type
        fours = self.vector.BitCastOp(ir.VectorType.get([lanes // 4], self.i64_type), indices).result
        elements = self.constant(indices.type, 0)
        for first in range(0, lanes, 4):
            four = self.vector.ExtractOp(fours, [], [first // 4]).result
            for k in range(4):
                index = self.and_(self.shrui(four, 16 * k), 0xFFFF)
                element = self._load(self.at(table, index, half), half, BFLOAT16)
                elements = self.vector.InsertOp(element, elements, [], [first + k]).result
        return elements

    def polynomials(self, table: Value) -> list[Value]:
        """Load the coefficients of a table's polynomials, from the constant terms up, then the numbers that divide the
        arguments into segments."""
        number, lanes, count = ir.F32Type.get(), host.lanes(), TERMS * SEGMENTS
        first = self.at(table, COEFFICIENTS, ir.IntegerType.get_signless(16))
        rows = [self._load(self.at(first, k, number), ir.VectorType.get([lanes], number), FLOAT32)
                for k in range(0, count, lanes)]
        return rows + [self.spread(self._load(self.at(first, count + k, number), number, FLOAT32), lanes)
                       for k in range(2)]

    def fitted(self, index: Value, table: Value, polynomials: Sequence[Value], is_zero: bool) -> Value:
        """Compute a function of bfloat16 by polynomials. The table provides elements without a polynomial, and results
        that ``narrow_to_bfloat16`` does not round, one after the other."""
        lanes = index.type.shape[0] if isinstance(index.type, ir.VectorType) else 1
        if not host.multiplies_pairs() or lanes % 32 or host.lanes() != 16:
            return self.looked_up(index, table, BFLOAT16)
        *rows, of_1, numbered = polynomials
        first, results, special = int(np.float32(NUMBERED).view(np.int32)), [], []
        for part in self.pieces(index, 16):
            x = self.bitcast(self.shl(self.extui(part, "i32"), 16), "f32")
            segment = self.bitcast(self.fma(x, of_1, numbered), "i32")
            segment = self.minsi(self.maxsi(segment, first), first + SEGMENTS - 1)
            *terms, value = [self._intrinsic("llvm.x86.avx512.vpermi2var.ps.512", low, segment, high)
                             for low, high in zip(rows[::2], rows[1::2])]
            for term in reversed(terms):
                value = self.fma(value, x, term)
            results.append(self.mul(value, x) if is_zero else value)
            special.append(self._is_in(results[-1], DENORMAL | NAN))
        narrow = self._narrowed(results)
        bits = self.bits_of(self.joined(special))
        branch = self.scf.IfOp(self.cmp("eq", bits, 0), [narrow.type], has_else=True)
        with ir.InsertionPoint(branch.then_block):
            self.scf.YieldOp([narrow])
        with ir.InsertionPoint(branch.else_block):
            self.scf.YieldOp([self._with_looked_up(narrow, bits, index, table)])
        return branch.results[0]

    def _with_looked_up(self, elements: Value, bits: Value, index: Value, table: Value) -> Value:
        """Return the 16-bit elements, with a lookup in the table instead of each element whose bit is set."""
        half = index.type.element_type
        arguments, results = (self.stack_memory(2 * index.type.shape[0]) for _ in range(2))
        for value, memory in ((index, arguments), (elements, results)):
            self._llvm("store", [value, memory], alignment=self._alignment(BFLOAT16, 64))

        def look_up(lane: Value, _: list[Value]) -> list[Value]:
            number = self.extui(self._load(self.at(arguments, lane, half), half, BFLOAT16), "i64")
            element = self._load(self.at(table, number, half), half, BFLOAT16)
            self._llvm("store", [element, self.at(results, lane, half)], alignment=self._alignment(BFLOAT16, 64))
            return []
        self.each_bit(bits, [], look_up)
        return self._load(results, elements.type, BFLOAT16)

    # -- flags ---------------------------------------------------------------------------------------------------------
    def bits_of(self, flags: Value) -> Value:
        """Return a vector of flags as the bits of an integer."""
        return cast(Value, self._llvm("bitcast", [flags], ir.IntegerType.get_signless(flags.type.shape[0])))

    def lowest_bit(self, bits: Value) -> Value:
        """Return the number of the lowest bit that is set; at least one bit must be set."""
        return cast(Value, self._llvm("intr.cttz", [bits], self.i64_type, is_zero_poison=ir.BoolAttr.get(True)))

    def each_bit(self, bits: Value, carried: Sequence[Value],
                 visit: Callable[[Value, list[Value]], Sequence[Value]]) -> list[Value]:
        """Emit ``visit(number, carried values)`` for each bit that is set, from the lowest one up."""
        bits = bits if bits.type == self.i64_type else self.extui(bits, "i64")
        loop = self.scf.ForOp(self.i64(0), self._llvm("intr.ctpop", [bits], self.i64_type), self.i64(1),
                              [bits, *carried])
        with ir.InsertionPoint(loop.body):
            remaining, *values = loop.inner_iter_args
            after = visit(self.lowest_bit(remaining), values)
            self.scf.YieldOp([self.and_(remaining, self.sub(remaining, 1)), *after])
        return list(loop.results)[1:]

    # -- integers ------------------------------------------------------------------------------------------------------
    def i64(self, number: int) -> Value:
        """Return a constant, which is emitted once at the head of the function."""
        if number not in self.i64s:
            attribute = ir.IntegerAttr.get(self.i64_type, number)
            with self.entry:
                self.i64s[number] = arith.ConstantOp(self.i64_type, attribute).result
        return self.i64s[number]

    def times(self, value: Value, factor: int) -> Value:
        return value if factor == 1 else self.mul(value, self.i64(factor))

    def linear(self, const: int, terms: Sequence[tuple[Value, int]]) -> Value:
        """Emit ``const + sum(value * factor)`` of scalars."""
        total = None
        for value, factor in terms:
            term = self.times(value, factor)
            total = term if total is None else self.add(total, term)
        if total is None:
            return self.i64(const)
        return self.add(total, self.i64(const)) if const else total

    def counted(self, lanes: int, step: int = 1, bits: int = 64) -> Value:
        """Return the vector 0, step, 2 step, ..."""
        kind = ir.VectorType.get([lanes], ir.IntegerType.get_signless(bits))
        values = [ir.IntegerAttr.get(kind.element_type, k * step) for k in range(lanes)]
        return arith.ConstantOp(kind, ir.DenseElementsAttr.get(values, kind)).result

    def first_lanes(self, lanes: int, count: int) -> Value:
        """Return a mask of the first ``count`` lanes."""
        kind = ir.VectorType.get([lanes], ir.IntegerType.get_signless(1))
        bits = [ir.BoolAttr.get(k < count) for k in range(lanes)]
        return arith.ConstantOp(kind, ir.DenseElementsAttr.get(bits, kind)).result

    def transposed(self, rows: Sequence[Value]) -> list[Value]:
        """Return the columns of the matrix whose rows are n vectors of n elements; n is a power of two.

        Each round interleaves the first half of the vectors with the second. Elements of 16 bits that fill half a
        register are widened first: shuffles of 32 bits take fewer instructions, and later steps widen such elements
        anyway.
        """
        lanes, vectors = len(rows), list(rows)
        if lanes == host.lanes() and rows[0].type == ir.VectorType.get([lanes], ir.IntegerType.get_signless(16)):
            return [self.trunci(row, "i16") for row in self.transposed([self.extui(row, "i32") for row in rows])]
        low, high = ([i // 2 + (k * lanes // 2) + i % 2 * lanes for i in range(lanes)] for k in range(2))
        for _ in range(lanes.bit_length() - 1):
            pairs = list(zip(vectors[:lanes // 2], vectors[lanes // 2:]))
            vectors = [self.vector.ShuffleOp(a, b, half).result for a, b in pairs for half in (low, high)]
        return vectors

    # -- pointers ------------------------------------------------------------------------------------------------------
    def at(self, pointer: Value, index: Value | int, element: object) -> Value:
        """Return the address of an element. For a vector of indices return a vector of addresses, one for each lane."""
        if isinstance(index, int):
            if abs(index) < 1 << 31:
                return self._offset([pointer], index, self.pointer, element) if index else pointer
            index = self.i64(index)
        result = self.pointer
        if isinstance(index.type, ir.VectorType):
            result = ir.VectorType.get(index.type.shape, self.pointer)
        return self._offset([pointer, index], DYNAMIC, result, element)

    def _offset(self, operands: Sequence[Value], index: int, result: Type, element: Any) -> Value:
        return self._llvm("getelementptr", operands, result, elem_type=ir.TypeAttr.get(element),
                          rawConstantIndices=ir.DenseI32ArrayAttr.get([index]))

    def stack_memory(self, size: int) -> Value:
        """Allocate bytes on the stack, at a multiple of a cache line, and return their address."""
        with self.entry:
            count = arith.ConstantOp(self.i64_type, ir.IntegerAttr.get(self.i64_type, size)).result
            return self._llvm("alloca", [count], self.pointer, alignment=ir.IntegerAttr.get(self.i64_type, host.LINE),
                              elem_type=ir.TypeAttr.get(ir.IntegerType.get_signless(8)))

    def word(self, pointer: Value, index: int, kind: Type) -> Value:
        """Load the 64-bit word with an index."""
        return self._llvm("load", [self.at(pointer, index, self.i64_type)], kind)

    def moved(self, operands: Sequence[Operand], pointers: Sequence[Value], axis: int, position: Value | int
              ) -> list[Value]:
        """Return the addresses of operands at a position of an axis."""
        result = []
        for operand, pointer in zip(operands, pointers):
            step = operand.strides[axis]
            offset = position * step if isinstance(position, int) else self.times(position, step) if step else 0
            result.append(self.at(pointer, offset, self.element(operand.dtype)))
        return result

    def loop(self, span: range, carried: Sequence[Value],
             body: Callable[[Value, list[Value]], Sequence[Value] | None]) -> list[Value]:
        """Emit a loop: ``body(variable, carried values)`` returns the values of the next iteration. Return those of the
        last iteration."""
        op = self.scf.ForOp(*map(self.i64, (span.start, span.stop, span.step)), carried)
        with ir.InsertionPoint(op.body):
            self.scf.YieldOp(body(op.induction_variable, list(op.inner_iter_args)) or [])
        return list(op.results)

    # -- memory --------------------------------------------------------------------------------------------------------
    def fetch(self, pointer: Value, step: int, dtype: DType, lanes: int, active: Value | None) -> Value:
        """Load elements ``step`` apart from a pointer on. A step of 0 loads a scalar, which is the value of all
        lanes."""
        element = self.element(dtype)
        if lanes == 1 or step == 0:
            return self._load(pointer, element, dtype)
        kind = ir.VectorType.get([lanes], element)
        if step == 1 and active is None:
            return self._load(pointer, kind, dtype)
        if step == 1:
            return self._masked("load", [pointer, active, self.constant(kind, 0)], kind, dtype)
        if 1 < step <= MOST_SHUFFLED and active is None:
            return self._picked(pointer, step, dtype, lanes)
        active_lanes = active if active is not None else self.first_lanes(lanes, lanes)
        return self._masked("gather", [self._lane_addresses(pointer, step, element, lanes), active_lanes,
                                       self.constant(kind, 0)], kind, dtype)

    def put(self, value: Value, pointer: Value, step: int, dtype: DType, lanes: int, active: Value | None,
            streams: bool = False) -> None:
        """Write elements ``step`` apart from a pointer on; with ``streams``, streaming stores write whole vectors."""
        if streams and lanes > 1 and step == 1 and active is None:
            aligned = ir.IntegerAttr.get(self.i64_type, min(lanes * dtype.itemsize, host.LINE))
            self._llvm("store", [value, pointer], alignment=aligned, nontemporal=ir.UnitAttr.get())
        elif lanes == 1 or (step == 1 and active is None):
            self._llvm("store", [value, pointer], alignment=self._alignment(dtype, 64))
        elif step == 1:
            self._masked("store", [value, pointer, active], None, dtype)
        else:
            addresses = self._lane_addresses(pointer, step, self.element(dtype), lanes)
            active_lanes = active if active is not None else self.first_lanes(lanes, lanes)
            self._masked("scatter", [value, addresses, active_lanes], None, dtype)

    def prefetch(self, pointer: Value, ahead: int | Value | None = None, into_first: bool = False) -> None:
        """Prefetch a cache line for a store. With ``ahead``, prefetch the line that many bytes further on, for a load;
        ``into_first`` prefetches it into the first cache, for loads that come soon.
        """
        if ahead is not None:
            pointer = self.at(pointer, ahead, ir.IntegerType.get_signless(8))
        writes, level, data = (ir.IntegerAttr.get(ir.IntegerType.get_signless(32), n)
                               for n in (ahead is None, 3 if into_first or ahead is None else 2, 1))
        self._llvm("intr.prefetch", [pointer], rw=writes, hint=level, cache=data)

    def _load(self, pointer: Value, kind: Type, dtype: DType) -> Value:
        return self._llvm("load", [pointer], kind, alignment=self._alignment(dtype, 64))

    def _masked(self, name: str, operands: Sequence[Value], result: Type | None, dtype: DType) -> object:
        return self._llvm(f"intr.masked.{name}", operands, result, alignment=self._alignment(dtype, 32))

    def _alignment(self, dtype: DType, bits: int) -> Attribute:
        # State the element's alignment: otherwise LLVM would assume the vector's. Words may be pairs of an array.
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(bits), PAIRED if dtype is UINT32 else dtype.itemsize)

    def _lane_addresses(self, pointer: Value, step: int, element: Type, lanes: int) -> Value:
        # Use 32-bit offsets from one pointer where they suffice: a gather instruction has twice as many lanes as with
        # 64 bits.
        return self.at(pointer, self.counted(lanes, step, 32 if abs(step) * lanes < 1 << 31 else 64), element)

    def fields(self, pointer: Value, step: int, dtype: DType, lanes: int, count: int) -> list[Value]:
        """Load elements ``step`` apart from a pointer on, then the elements after each of them, and so on: at least
        ``count`` vectors. The step is a power of two. The code reads nothing after the last element of the last vector.
        """
        element, most = self.element(dtype), host.lanes()
        if dtype.itemsize != 2 or count % 2:
            return self._fields(pointer, step, element, dtype, lanes, count)
        if lanes > most:
            parts = [self.fields(self.at(pointer, k * step, element), step, dtype, most, count)
                     for k in range(0, lanes, most)]
            return [self.joined(field) for field in zip(*parts)]
        words = self._fields(pointer, step // 2, ir.IntegerType.get_signless(32), dtype, lanes, count // 2)
        halves = [self.trunci(half, "i16") for word in words for half in (word, self.shrui(word, 16))]
        return halves if element == halves[0].type.element_type else [self.bitcast(half, "f16") for half in halves]

    def _fields(self, pointer: Value, step: int, element: Type, dtype: DType, lanes: int, count: int) -> list[Value]:
        """Load the vectors of ``fields``, or two fields as one word, whose halves shifts then widen. ``dtype``
        determines the alignment of loads."""
        kind = ir.VectorType.get([lanes], element)
        loaded = [self._load(self.at(pointer, k * lanes, element), kind, dtype) for k in range(step - 1)]
        last_address, mask = self.at(pointer, (step - 1) * lanes, element), self.first_lanes(lanes, lanes - step
                                                                                             + count)
        loaded.append(self._load(last_address, kind, dtype) if count == step else
                      self._masked("load", [last_address, mask, self.constant(kind, 0)], kind, dtype))

        def deinterleaved(vectors: list[Value]) -> list[Value]:
            if len(vectors) == 1:
                return vectors
            pairs = list(zip(vectors[::2], vectors[1::2]))
            even, odd = (deinterleaved([self.vector.ShuffleOp(a, b, range(k, 2 * lanes, 2)).result for a, b in pairs])
                         for k in range(2))
            return [field for pair in zip(even, odd) for field in pair]
        return deinterleaved(loaded)

    def even_and_odd(self, pointer: Value, lanes: int) -> Value:
        """Load 16-bit elements. Of each 32 elements, the even ones come first: they are the lower halves of words.

        A shift or a mask widens a half of a word to bfloat16 in a float32. In memory order, code would have to spread
        the halves of a register first.
        """
        step = host.lanes()
        kind, element = (ir.VectorType.get([step], ir.IntegerType.get_signless(32)), ir.IntegerType.get_signless(16))
        words = [self._load(self.at(pointer, k, element), kind, BFLOAT16) for k in range(0, lanes, 2 * step)]
        return self.joined([self.trunci(half, "i16") for word in words for half in (word, self.shrui(word, 16))])

    def put_even_and_odd(self, value: Value, pointer: Value, lanes: int, streams: bool) -> None:
        """Store 16-bit elements that are in the order of ``even_and_odd``. They may be in the upper halves of i32."""
        step = host.lanes()
        if value.type.element_type == ir.IntegerType.get_signless(32):
            registers = self.pieces(value, step)
            for k, (even, odd) in enumerate(zip(registers[::2], registers[1::2])):
                address = self.at(pointer, 2 * step * k, ir.IntegerType.get_signless(16))
                self.put(self.halves_beside(even, odd), address, 1, BFLOAT16, 2 * step, None, streams)
            return
        order = [n for pair in zip(range(step), range(step, 2 * step)) for n in pair]
        for k, part in zip(range(0, lanes, 2 * step), self.pieces(value, 2 * step)):
            ordered = self.vector.ShuffleOp(part, part, order).result
            self.put(ordered, self.at(pointer, k, part.type.element_type), 1, BFLOAT16, 2 * step, None, streams)

    def in_order(self, registers: Sequence[Value]) -> list[Value]:
        """Return registers with the elements in memory order. Of each two given registers, the first has the even
        elements and the second the odd ones."""
        step = host.lanes()
        order = [n for pair in zip(range(step), range(step, 2 * step)) for n in pair]
        return [self.vector.ShuffleOp(even, odd, order[k:k + step]).result
                for even, odd in zip(registers[::2], registers[1::2]) for k in (0, step)]

    def _picked(self, pointer: Value, step: int, dtype: DType, lanes: int) -> Value:
        """Load whole vectors, and pick every ``step``-th element. The last vector ends with the last picked element."""
        element = self.element(dtype)
        kind = ir.VectorType.get([lanes], element)
        result = self._load(pointer, kind, dtype)
        for k in range(1, step):
            source = self.at(pointer, k * lanes, element)
            if k == step - 1:
                mask = self.first_lanes(lanes, lanes - step + 1)
                part = self._masked("load", [source, mask, self.constant(kind, 0)], kind, dtype)
            else:
                part = self._load(source, kind, dtype)
            # Lanes that are already picked come first. In the first round they still have to be picked from the first
            # vector.
            held_lanes = range(0, lanes, step) if k == 1 else range(-(-k * lanes // step))
            offset = -(k * lanes) % step                         # the first element of this vector to pick
            lanes_taken = [*held_lanes, *(lanes + j for j in range(offset, lanes, step))]
            result = self.vector.ShuffleOp(result, part, [*lanes_taken, *[0] * (lanes - len(lanes_taken))]).result
        return result

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Searches in the rows of a tile as code: the eight largest values, the indices of eight values, their replacement.

Code searches keys: integers in the order of the floats. NaN has the least key, and -0 comes before 0. Keys of 16-bit
floats have 16 bits, so that registers have twice as many of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from nki_mlir.bindings import Type, ir
from nki_mlir.dialects.access import Tile, joined_dims, same_elements
from nki_mlir.dialects.nisa.search import EIGHT, FindIndex8Op, MatchReplace8Op, Max8Op
from nki_mlir.dialects.op import Op
from nki_mlir.scalar.conversion_expansion import from_float32, to_float32
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32, INT64, DType
from nki_mlir.targets.cpu.lanes import FunctionEmitter, Value
from nki_mlir.targets.cpu.loops import Loops, MemoryUse
from nki_mlir.targets.cpu.schedule import schedule
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand, Step
from nki_mlir.waist.overlap import repeats_apart

INFINITE_BITS = {BFLOAT16: 0x7F80, FLOAT16: 0x7C00}         # the bits of infinity, of floats whose keys have 16 bits
LONG = 256                      # least elements of a row for which code compares four registers at a time
SORTING, PASSES = 100, 0.1      # nanoseconds of a row, and of each of its elements
Compared = Callable[[Value], Value]


class RowElements(NamedTuple):
    """The elements of a tile's rows, in memory order: ``dims`` has (step, count) of the free axes, in elements."""

    dtype: DType
    row_step: int
    dims: tuple[tuple[int, int], ...]

    @property
    def elements(self) -> int:
        total = 1
        for _, count in self.dims:
            total *= count
        return total


def rows_of_tile(dtype: DType, strides: Sequence[int], shape: Sequence[int]) -> RowElements:
    """Return the rows of a tile, with as few dims as its steps allow."""
    return RowElements(dtype, strides[0], joined_dims(zip(strides[1:], shape[1:])) or ((1, 1),))


class Keys:
    """Emits the keys of the elements of rows. Keys have ``bits`` bits, vectors of keys ``lanes`` lanes."""

    def __init__(self, code: FunctionEmitter, rows: RowElements) -> None:
        self.code, self.rows = code, rows
        self.bits = 16 if rows.dtype in INFINITE_BITS else 32
        registers = 4 if rows.elements >= LONG else 1
        self.register = host.lanes() * (32 // self.bits)
        self.lanes = min(registers * self.register, 64)
        # the key of NaN; a key that no number has
        self.least, self.greatest = -1 << (self.bits - 1), (1 << (self.bits - 1)) - 1
        self.none = self.least + 1                                                      # equals no element

    @property
    def type(self) -> Type:
        return ir.IntegerType.get_signless(self.bits)

    @property
    def dtype(self) -> DType:
        """The dtype with which keys are loaded and stored."""
        return BFLOAT16 if self.bits == 16 else INT32

    def of(self, value: Value, dtype: DType) -> Value:
        """Return the keys of elements."""
        code, name = self.code, f"i{self.bits}"
        if self.bits == 16:
            bits = code.bitcast(value, name)
            is_nan = code.cmp("ugt", code.and_(bits, 0x7FFF), INFINITE_BITS[dtype])
        else:
            number = to_float32(code, value, dtype)
            bits, is_nan = code.bitcast(number, name), code.is_nan(number)
        return code.select(is_nan, code.const(bits, self.least), self.flipped(bits))

    def flipped(self, bits: Value) -> Value:
        """Return the key for the bits of a number that is not NaN, or the bits for a key."""
        code = self.code
        return code.xor(bits, code.and_(code.shrsi(bits, self.bits - 1), self.greatest))

    def element(self, key: Value, dtype: DType) -> Value:
        """Return the number that a key stands for as an element of a dtype; the least key stands for NaN. The key is an
        i32."""
        code, source = self.code, self.rows.dtype
        if self.bits == 32:
            return from_float32(code, code.bitcast(self.flipped(key), "f32"), dtype)
        bits = self.flipped(code.trunci(key, "i16"))
        number = bits if source is BFLOAT16 else code.bitcast(bits, "f16")
        return number if source is dtype else from_float32(code, to_float32(code, number, source), dtype)

    def vectors(self, row: Value, carried: Sequence[Value],
                body: Callable[[Value, Value, list[Value]], Sequence[Value]]) -> list[Value]:
        """Emit ``body(keys, index of the first, carried values)`` for the vectors of a row.

        If the elements of the last axis do not fill a vector, its remaining lanes have the least key.
        """
        return self._walk(0, row, self.code.i64(0), carried, body)

    def _walk(self, depth: int, pointer: Value, index: Value, carried: Sequence[Value],
              body: Callable[[Value, Value, list[Value]], Sequence[Value]]) -> list[Value]:
        code, dtype, element = self.code, self.rows.dtype, self.code.element(self.rows.dtype)
        step, count = self.rows.dims[depth]
        if depth + 1 < len(self.rows.dims):
            inner = RowElements(dtype, 0, self.rows.dims[depth + 1:]).elements
            return code.loop(range(count), carried, lambda k, values: self._walk(
                depth + 1, code.at(pointer, code.times(k, step), element), code.add(index, code.times(k, inner)),
                values, body))
        last = count - count % self.lanes
        if last:
            carried = code.loop(range(0, last, self.lanes), carried, lambda k, values: body(
                self.of(code.spread(code.fetch(code.at(pointer, code.times(k, step), element), step, dtype, self.lanes,
                                               None), self.lanes), dtype), code.add(index, k), values))
        for first in range(last, count, self.register):
            active = code.first_lanes(self.register, min(count - first, self.register))
            part = code.fetch(code.at(pointer, first * step, element), step, dtype, self.register, active)
            keys = self.of(code.spread(part, self.register), dtype)
            keys = code.select(active, keys, code.const(keys, self.least))
            carried = body(self.padded(keys), code.add(index, code.i64(first)), list(carried))
        return list(carried)

    def padded(self, keys: Value) -> Value:
        """Extend a register of keys to a vector, with the least key in the other lanes."""
        code, lanes = self.code, keys.type.shape[0]
        if lanes == self.lanes:
            return keys
        return code.vector.ShuffleOp(keys, code.const(keys, self.least), [
            min(k, lanes) for k in range(self.lanes)]).result

    # -- vectors of keys -----------------------------------------------------------------------------------------------
    def if_any(self, keys: Value, may_have: Compared, carried: Sequence[Value],
               flags: Compared, visit: Callable[[Value, list[Value]], Sequence[Value]]) -> list[Value]:
        """Emit ``visit(lane, carried values)`` for the lanes whose ``flags`` are set. ``may_have`` returns fewer flags,
        of which one is set if any lane's flag may be."""
        code = self.code
        any_flags = code.bits_of(may_have(keys))
        branch = code.scf.IfOp(code.cmp("ne", any_flags, 0), [value.type for value in carried], has_else=True)
        with ir.InsertionPoint(branch.then_block):
            code.scf.YieldOp(code.each_bit(code.bits_of(flags(keys)), carried, visit))
        with ir.InsertionPoint(branch.else_block):
            code.scf.YieldOp(list(carried))
        return list(branch.results)

    def largest(self, keys: Value, lanes: int) -> Value:
        """Reduce a vector of keys to ``lanes`` keys by halves: lane k has the largest of the keys whose number is k
        modulo ``lanes``."""
        while keys.type.shape[0] > lanes:
            parts = self.code.pieces(keys, keys.type.shape[0] // 2)
            keys = self.code.maxsi(*parts)
        return keys


@dataclass(frozen=True)
class LargestEight:
    """Writes the eight largest values of each row, largest first.

    A first pass over a row stores keys and folds them to one maximum a lane. The eighth largest of these is at most the
    eighth largest of the row, so a second pass inserts only keys that reach it.
    """

    count: int                  # rows
    src: RowElements
    dst: RowElements

    @property
    def cost(self) -> float:
        """The nanoseconds that it takes, roughly."""
        return self.count * (SORTING + PASSES * self.src.elements)

    @property
    def tiles(self) -> tuple[RowElements, ...]:
        """The rows whose addresses are its arguments, in their order."""
        return self.dst, self.src

    @property
    def results(self) -> tuple[RowElements, ...]:
        return self.dst,

    @property
    def title(self) -> str:
        return f"largest_{self.count}x{self.src.elements}_{self.src.dtype}"

    def emit(self, code: FunctionEmitter, words: Value) -> Value:
        keys = Keys(code, self.src)
        _, dst, src = (code.word(words, k, code.pointer) for k in range(3))
        length = -(-self.src.elements // keys.lanes) * keys.lanes
        stored = code.stack_memory((length + keys.lanes) * keys.bits // 8)

        def row_body(row: Value, _: list[Value]) -> None:
            pointer = code.at(src, code.times(row, self.src.row_step), code.element(self.src.dtype))
            out = code.at(dst, code.times(row, self.dst.row_step), code.element(self.dst.dtype))
            best = self.best(keys, stored, length, self.bound(keys, pointer, stored))
            for k in range(EIGHT):
                number = keys.element(code.vector.ExtractOp(best, [], [k]).result, self.dst.dtype)
                code.put(number, code.at(out, k * self.dst.dims[-1][0], code.element(self.dst.dtype)), 1,
                         self.dst.dtype, 1, None)
        code.loop(range(self.count), [], row_body)
        return code.i64(0)

    def bound(self, keys: Keys, row: Value, stored: Value) -> Value:
        """Store the keys of a row, and return a key below the eighth largest one, but not below that of NaN."""
        code = keys.code

        def store(vector: Value, index: Value, carried: list[Value]) -> list[Value]:
            code.put(vector, code.at(stored, index, keys.type), 1, keys.dtype, keys.lanes, None)
            return [code.maxsi(carried[0], vector)]
        start = code.constant(ir.VectorType.get([keys.lanes], keys.type), keys.least)
        maxima, = keys.vectors(row, [start], store)
        maxima = keys.largest(maxima, min(2 * EIGHT, keys.lanes))
        wide = maxima if keys.bits == 32 else code.extsi(maxima, "i32")
        best = self.none(keys)
        for lane in range(wide.type.shape[0]):
            best = self.inserted(code, best, code.vector.ExtractOp(wide, [], [lane]).result)
        return code.sub(code.maxsi(code.vector.ExtractOp(best, [], [EIGHT - 1]).result, keys.least + 1), 1)

    def best(self, keys: Keys, stored: Value, length: int, bound: Value) -> Value:
        """Return the eight largest stored keys above a bound as i32, largest first."""
        code = keys.code

        def limit(value: Value, lanes: int) -> Value:
            return code.spread(value if keys.bits == 32 else code.trunci(value, "i16"), lanes)

        def collect(index: Value, carried: list[Value]) -> list[Value]:
            best, bound = carried
            vector = code.fetch(code.at(stored, index, keys.type), 1, keys.dtype, keys.lanes, None)

            def visit(lane: Value, values: list[Value]) -> list[Value]:
                key = code.fetch(code.at(stored, code.add(index, lane), keys.type), 1, keys.dtype, 1, None)
                better = self.inserted(code, values[0], key if keys.bits == 32 else code.extsi(key, "i32"))
                return [better, code.maxsi(values[1], code.vector.ExtractOp(better, [], [EIGHT - 1]).result)]
            return keys.if_any(vector, lambda v: code.cmp("sgt", keys.largest(v, keys.register), limit(
                bound, keys.register)), [best, bound], lambda v: code.cmp("sgt", v, limit(bound, keys.lanes)), visit)
        return code.loop(range(0, length, keys.lanes), [self.none(keys), bound], collect)[0]

    @staticmethod
    def none(keys: Keys) -> Value:
        return keys.code.constant(ir.VectorType.get([EIGHT], ir.IntegerType.get_signless(32)), keys.least)

    @staticmethod
    def inserted(code: FunctionEmitter, best: Value, key: Value) -> Value:
        """Insert a key into eight keys in descending order, and drop the least one."""
        above = code.vector.ShuffleOp(code.const(best, (1 << 31) - 1), best, [0, *range(EIGHT, 2 * EIGHT - 1)]).result
        return code.maxsi(best, code.minsi(above, code.spread(key, EIGHT)))


@dataclass(frozen=True)
class IndicesOfEight:
    """Writes the indices of eight values in each row, and replaces the elements there; -1 for a value that is absent.

    Each of several equal values gets the next occurrence. Code first compares elements with the least and the greatest
    value, and stops looking for values that it has found.
    """

    count: int                                  # rows
    data: RowElements
    values: RowElements
    indices: RowElements | None
    result: RowElements | None                  # a copy of the data in which elements are replaced
    number: float = 0.0                         # the value that replaces them
    in_place: bool = False                      # whether the result is the data's memory

    @property
    def cost(self) -> float:
        """The nanoseconds that it takes, roughly."""
        return self.count * (SORTING + PASSES * self.data.elements)

    @property
    def tiles(self) -> tuple[RowElements, ...]:
        """The rows whose addresses are its arguments, in their order."""
        return self.data, self.values, *self.results

    @property
    def results(self) -> tuple[RowElements, ...]:
        return tuple([tile for tile in (self.indices, self.result) if tile is not None])

    @property
    def title(self) -> str:
        name = "indices" if self.result is None else "replaced"
        return f"{name}_{self.count}x{self.data.elements}_{self.data.dtype}" + "_in_place" * self.in_place

    def emit(self, code: FunctionEmitter, words: Value) -> Value:
        keys = Keys(code, self.data)
        search = EqualKeys(keys, *(code.stack_memory(size) for size in (
            EIGHT * keys.bits // 8, EIGHT * 8, keys.lanes * keys.bits // 8)))
        pointers = [code.word(words, 1 + k, code.pointer) for k in range(len(self.tiles))]

        def row_body(row: Value, _: list[Value]) -> None:
            data, values, *written = [code.at(pointer, code.times(row, tile.row_step), code.element(tile.dtype))
                                      for pointer, tile in zip(pointers, self.tiles)]
            low, high, count = search.prepare(values, self.values)
            keys.vectors(data, [low, count], lambda vector, index, state: search.note_keys(vector, index, state, high))
            if self.indices is not None:
                out, element = written[0], code.element(self.indices.dtype)
                for k in range(EIGHT):
                    index = code.trunci(search.position(k), f"i{self.indices.dtype.bits}")
                    code.put(index, code.at(out, k * self.indices.dims[-1][0], element), 1, self.indices.dtype, 1, None)
            if self.result is not None:
                self.replace(code, search, data, written[-1])
        code.loop(range(self.count), [], row_body)
        return code.i64(0)

    def replace(self, code: FunctionEmitter, search: "EqualKeys", data: Value, result: Value) -> None:
        """Copy a row to the result, and replace the elements at the indices."""
        assert self.result is not None
        if (copy := self.copy) is not None:
            Loops(code, copy, schedule(copy), [], MemoryUse()).emit([data, result])
        dtype, step = self.result.dtype, self.result.dims[0][0]
        number = from_float32(code, code.constant(ir.F32Type.get(), self.number), dtype)
        for k in range(EIGHT):
            index = search.position(k)
            branch = code.scf.IfOp(code.cmp("sge", index, 0))
            with ir.InsertionPoint(branch.then_block):
                code.put(number, code.at(result, code.times(index, step), code.element(dtype)), 1, dtype, 1, None)
                code.scf.YieldOp([])

    @property
    def copy(self) -> Nest | None:
        """The copy of a row to the result, through float32; None if it is not needed."""
        assert self.result is not None
        source, target = self.data.dtype, self.result.dtype
        is_exact = source is target and (target.is_float or target.itemsize < 4)
        if is_exact and self.in_place:
            return None
        steps = [] if is_exact else [Step("convert", FLOAT32, (0,))] * (source is not FLOAT32)
        if not is_exact and target is not FLOAT32:
            steps.append(Step("convert", target, (1 + len(steps) if steps else 0,)))
        extents = tuple(count for _, count in self.data.dims)
        strides, step = list[int](), self.result.dims[0][0]
        for extent in reversed(extents):
            strides.insert(0, step)
            step *= extent
        return Nest(extents, frozenset(), (Operand(source, tuple(step for step, _ in self.data.dims)),), 0,
                    (Operand(target, tuple(strides)),), tuple(steps), (1 + len(steps) if steps else 0,)).simplified


class EqualKeys:
    """Emits the search for eight keys in a row. On the stack are ``open_keys``, which the search has not found yet, the
    ``indices`` of those that it has found, and the ``vector`` of the row in which it has just found one."""

    def __init__(self, keys: Keys, open_keys: Value, indices: Value, vector: Value) -> None:
        self.keys, self.code, self.open_keys, self.indices, self.vector = keys, keys.code, open_keys, indices, vector

    def prepare(self, row: Value, values: RowElements) -> tuple[Value, Value, Value]:
        """Store the keys of eight values. Return the least and the greatest key of those that are numbers, and their
        count."""
        code, keys = self.code, self.keys
        least_key, greatest_key = (code.constant(keys.type, n) for n in (keys.greatest, keys.least))
        count = code.i64(EIGHT)
        for k in range(EIGHT):
            pointer = code.at(row, k * values.dims[-1][0], code.element(values.dtype))
            key = self.key_of(code.fetch(pointer, 0, values.dtype, 1, None), values.dtype)
            code.put(key, code.at(self.open_keys, k, keys.type), 1, keys.dtype, 1, None)
            is_none = code.cmp("eq", key, keys.none)
            count = code.sub(count, code.extui(is_none, "i64"))
            least_key = code.minsi(least_key, code.select(is_none, least_key, key))
            greatest_key = code.maxsi(greatest_key, key)
            code.put(code.constant(code.i64_type, -1), code.at(self.indices, k, code.i64_type), 1, INT64, 1, None)
        return least_key, greatest_key, count

    def key_of(self, value: Value, dtype: DType) -> Value:
        """Return the key of a value: ``none`` for NaN and for numbers that the dtype of the data does not have."""
        code, keys, of_data = self.code, self.keys, self.keys.rows.dtype
        has = None
        if keys.bits == 16 and dtype is not of_data:
            number = to_float32(code, value, dtype)
            value = from_float32(code, number, of_data)
            has = code.cmp("oeq", to_float32(code, value, of_data), number)
        key = self.with_one_zero(keys.of(value, of_data if keys.bits == 16 else dtype))
        is_none = code.cmp("eq", key, keys.least)
        if has is not None:
            is_none = code.or_(is_none, code.not_(has))
        return code.select(is_none, code.const(key, keys.none), key)

    def with_one_zero(self, key: Value) -> Value:
        """Return a key, with the key of 0 instead of that of -0."""
        return self.code.select(self.code.cmp("eq", key, -1), self.code.const(key, 0), key)

    def position(self, k: int) -> Value:
        return self.code.fetch(self.code.at(self.indices, k, self.code.i64_type), 1, INT64, 1, None)

    def note_keys(self, vector: Value, index: Value, state: list[Value], high: Value) -> list[Value]:
        """Store the indices of open keys that a vector contains; ``index`` is that of its first element. ``state`` is
        the least key to look for and the number of open keys; return the new state."""
        code, keys = self.code, self.keys
        low, _ = state
        vector = self.with_one_zero(vector)

        def may_have(vector: Value) -> Value:
            flags = [code.and_(code.cmp("sge", part, code.spread(low, keys.register)), code.cmp(
                "sle", part, code.spread(high, keys.register))) for part in code.pieces(vector, keys.register)]
            while len(flags) > 1:
                flags = [code.or_(a, b) for a, b in zip(flags[::2], flags[1::2])]
            return flags[0]

        def equal(vector: Value) -> Value:
            code.put(vector, self.vector, 1, keys.dtype, keys.lanes, None)
            flags = None
            for k in range(EIGHT):
                key = code.fetch(code.at(self.open_keys, k, keys.type), 1, keys.dtype, 1, None)
                bits = code.cmp("eq", vector, code.spread(key, keys.lanes))
                flags = bits if flags is None else code.or_(flags, bits)
            return flags

        def note(lane: Value, state: list[Value]) -> list[Value]:
            key = code.fetch(code.at(self.vector, lane, keys.type), 1, keys.dtype, 1, None)
            open_keys = code.fetch(self.open_keys, 1, keys.dtype, EIGHT, None)
            bits = code.bits_of(code.cmp("eq", open_keys, code.spread(key, EIGHT)))
            is_open = code.cmp("ne", bits, 0)
            branch = code.scf.IfOp(is_open)
            with ir.InsertionPoint(branch.then_block):
                number = code.lowest_bit(code.extui(bits, "i64"))
                code.put(code.constant(keys.type, keys.none), code.at(self.open_keys, number, keys.type), 1, keys.dtype,
                         1, None)
                code.put(code.add(index, lane), code.at(self.indices, number, code.i64_type), 1, INT64, 1, None)
                code.scf.YieldOp([])
            count = code.sub(state[1], code.extui(is_open, "i64"))
            return [code.select(code.cmp("eq", count, 0), code.const(state[0], keys.greatest), state[0]), count]
        return keys.if_any(vector, may_have, state, equal, note)


Search = LargestEight | IndicesOfEight


def part_of_search(search: Search, count: int) -> Search | None:
    """Return one of ``count`` equal parts of a search, which searches some of its rows. Return None if it has no such
    parts, or if rows that it writes overlap."""
    if search.count % count or not all(repeats_apart(rows.row_step, rows.dims) for rows in search.results):
        return None
    return replace(search, count=search.count // count)


def search_of(op: Op) -> tuple[Search, Sequence[str]] | None:
    """Return the search of an operation, and the names of its operands in the order of the search; None for an
    operation with a mask, or of another class."""
    if op.mask or op.limits:
        return None

    def rows(tile: Tile) -> RowElements:
        return rows_of_tile(tile.dtype, tile.strides, tile.shape)
    match op:
        case Max8Op():
            return LargestEight(op.src.shape[0], rows(op.src), rows(op.dst)), ("dst", "src")
        case FindIndex8Op():
            return IndicesOfEight(op.data.shape[0], rows(op.data), rows(op.vals), rows(op.dst), None), (
                "data", "vals", "dst")
        case MatchReplace8Op():
            result, indices = rows(op.dst), None if op.dst_idx is None else rows(op.dst_idx)
            if len(result.dims) > 1 or (indices is not None and len(indices.dims) > 1):
                return None
            search = IndicesOfEight(op.data.shape[0], rows(op.data), rows(op.vals), indices, result, op.imm,
                                    same_elements(op.data, op.dst))
            return search, ("data", "vals", *("dst_idx",) * (indices is not None), "dst")
    return None

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of panels of bfloat16 on the tile registers of x86 (AMX): four registers hold 32 x 32 sums.

A register has 16 rows of 64 bytes. One instruction adds to each of 16 x 16 float32 the products of 32 bfloat16: of a
row of ``a``, and of 16 rows of ``b`` that have pairs of neighbors along the summed axis. The instruction treats
numbers and sums below 2^-126 as 0. It sums the products of even and of odd neighbors separately, and adds both sums to
the old one (Intel 64 and IA-32 Architectures Software Developer's Manual, TDPBF16PS).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nki_mlir.bindings import ir
from nki_mlir.scalar.dtypes import FLOAT32, UINT8
from nki_mlir.scalar.emit import arith
from nki_mlir.targets.cpu.lanes import FunctionEmitter, Value

SIDE = 16                       # rows of a register, and words in a row
ROW_BYTES = 64
PANEL = 2 * SIDE                # rows of a panel of a, columns of a panel of b
PALETTE = 1
FEATURES = '#llvm.target_features<["+amx-tile", "+amx-bf16"]>'
SUMS, ROWS, COLUMNS = (0, 1, 2, 3), (4, 5), (6, 7)          # registers of the sums, of rows of a, and of columns of b


@dataclass(frozen=True)
class TileRegisterProduct:
    """Panels of rows by panels of columns, ``depth`` words of two bfloat16 deep, to rows ``line`` float32 apart.

    A panel of ``a`` has 32 rows of 16 words for each 16 words of depth; a panel of ``b`` has 32 columns for each word.
    Sums start from the old values, or from 0 if the product is ``fresh``. Arguments: panels of ``a`` and ``b``, the
    result.
    """

    panels_of_rows: int
    panels_of_columns: int
    depth: int
    line: int
    fresh: bool

    @property
    def title(self) -> str:
        return f"add_{self.panels_of_rows}x{self.panels_of_columns}x{PANEL}x{PANEL}x{2 * self.depth}_bfloat16_tiles"

    def emit(self, code: FunctionEmitter, words: Value) -> None:
        TileRegisters(code, self).emit([code.word(words, k, code.pointer) for k in range(3)])


class TileRegisters:
    """Emits a product. It assigns registers itself: no register allocator knows these instructions."""

    def __init__(self, code: FunctionEmitter, product: TileRegisterProduct) -> None:
        self.code, self.product = code, product
        self.byte = ir.IntegerType.get_signless(8)
        self.line = product.line * FLOAT32.itemsize         # bytes between rows of the result

    def emit(self, pointers: Sequence[Value]) -> None:
        code, product = self.code, self.product
        self.configure()
        panel = PANEL * product.depth * FLOAT32.itemsize

        def rows(i: Value, _: list[Value]) -> None:
            a, out = self.offset_address(pointers[0], i, panel), self.offset_address(pointers[2], i, PANEL * self.line)
            code.loop(range(product.panels_of_columns), [], lambda j, _: self.tile(
                a, self.offset_address(pointers[1], j, panel), self.offset_address(out, j, 2 * ROW_BYTES)))
        code.loop(range(product.panels_of_rows), [], rows)
        self.instruction("tilerelease")

    def configure(self) -> None:
        """Load a configuration with 16 rows of 64 bytes for each register. It has the palette at byte 0, the bytes of
        rows from byte 16 on, and the numbers of rows from byte 48 on."""
        sizes = [PALETTE, *[0] * 15, *[ROW_BYTES, 0] * 8, *[0] * 16, *[SIDE] * 8, *[0] * 8]
        kind = ir.VectorType.get([len(sizes)], self.byte)
        value = arith.ConstantOp(kind, ir.DenseElementsAttr.get(
            [ir.IntegerAttr.get(self.byte, size) for size in sizes], kind)).result
        memory = self.code.stack_memory(len(sizes))
        self.code.put(value, memory, 1, UINT8, len(sizes), None)
        self.instruction("ldtilecfg", memory)

    def tile(self, a: Value, b: Value, out: Value) -> None:
        """Compute 32 x 32 sums through all words of depth."""
        line = self.code.i64(self.line)
        targets = [self.code.at(out, r * SIDE * self.line + c * ROW_BYTES, self.byte)
                   for r in range(2) for c in range(2)]
        for register, target in zip(SUMS, targets):
            if self.product.fresh:
                self.instruction("tilezero", register)
            else:
                self.instruction("tileloadd64", register, target, line)

        def positions(k: Value, _: list[Value]) -> None:
            rows, columns = (self.offset_address(panel, k, PANEL * ROW_BYTES) for panel in (a, b))
            for half in range(2):
                self.load(ROWS[half], rows, half * SIDE * ROW_BYTES, ROW_BYTES)
                self.load(COLUMNS[half], columns, half * ROW_BYTES, 2 * ROW_BYTES)
            for register in SUMS:
                self.instruction("tdpbf16ps", register, ROWS[register // 2], COLUMNS[register % 2])
        self.code.loop(range(self.product.depth // SIDE), [], positions)
        for register, target in zip(SUMS, targets):
            self.instruction("tilestored64", register, target, line)

    def load(self, register: int, panel: Value, offset: int, line: int) -> None:
        """Load a register with sixteen rows of a panel, ``line`` bytes apart, from an offset on."""
        self.instruction("tileloadd64", register, self.code.at(panel, offset, self.byte), self.code.i64(line))

    def offset_address(self, pointer: Value, times: Value, size: int) -> Value:
        """Return the address ``times * size`` bytes after a pointer."""
        return self.code.at(pointer, self.code.times(times, size), self.byte)

    def instruction(self, name: str, *operands: Value | int) -> None:
        """Emit an instruction of the host; numbers denote registers."""
        self.code.instruction(f"llvm.x86.{name}", *[
            self.code.constant(self.byte, operand) if isinstance(operand, int) else operand for operand in operands])

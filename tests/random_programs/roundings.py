# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write random nki modules whose values are rounded to 16 and 8 bits again and again, and inputs of special values.

There are NaN with each kind of payload, infinities, denormals, -0, values that round to infinity or to 0, and any bits.
Every operation is exact but for the rounding of its result, so that all executors agree; sums and products read whole
numbers of at most ``BOUND``, NaN among them. One function of any values is in ``z``.
"""

from functools import cache, cached_property

import numpy as np

from nki_mlir.scalar.dtypes import BY_MLIR, FLOAT32, DType, convert

from .modules import ALL_ELEMENTS, BINARY, EXACT, Buffer, ModuleWriter, Tile

NARROW = ("bf16", "bf16", "bf16", "f16", "f16", "f8E4M3FN", "f8E4M3", "f8E5M2")
COMPARISONS = ("less", "greater_equal", "not_equal")
NUMBERS = ("0.0", "-0.0", "1.0", "-1.0", "2.0", "0.5", "-3.0", "1.0e-3", "256.0", "65504.0", "3.0e38", "-1.0e38", "1.0e-38",
           "1.0e-41", "0x7FF0000000000000", "0xFFF0000000000000")
# Bits of float32: quiet and signaling NaN, some of which lie in the lower half alone; infinities; the largest numbers, and
# those next to the ties between them and infinity for bfloat16, float16 and the 8-bit floats; denormals, and ties with 0.
SPECIAL = (0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF800001, 0x7F80FFFF, 0x7FFF8000, 0xFFC08000,
           0x7F800000, 0xFF800000, 0x7F7FFFFF, 0xFF7F8000, 0x7F7F7FFF, 0x477FEFFF, 0x477FF000, 0xC77FE000, 0x43780000,
           0x43E80000, 0x43E80001, 0x47700000, 0xC76FFFFF, 0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF,
           0x00800000, 0x00007FFF, 0x00008000, 0x80008001, 0x00018000, 0x33000000, 0xB3000001, 0x387FE000, 0x3A800000)


class RoundingWriter(ModuleWriter):
    """A module of chains of roundings, folds, selections and conversions."""

    @property
    def dtypes(self) -> list[str]:
        return self.drawn_dtypes

    @dtypes.setter
    def dtypes(self, _: list[str]) -> None:
        self.drawn_dtypes = [*self.draw.sample(NARROW, 2), "f32", self.draw.choice(("f32", "bf16", "i32", "i16", "ui8", "i8"))]

    @cached_property
    def floats(self) -> tuple[str, ...]:
        return tuple(name for name in self.dtypes if BY_MLIR[name].is_float)

    def clamp(self, tile: Tile) -> None:
        """Leave all values as they are."""

    def number(self) -> str:
        return f"{self.draw.choice(NUMBERS)} : f64"

    def chain(self) -> None:
        """Write operations each of which reads the result of the one before."""
        shape = self.shape()
        last = self.on_chip(shape, repeat=True)
        for _ in range(self.draw.randint(2, 6)):
            last = self.step(shape, last)

    def store(self, output: Buffer | None = None) -> None:
        if output and self.draw.random() < 0.7:
            self.body(output)
        else:
            super().store(output)

    def body(self, output: Buffer | None = None) -> None:
        """Write a chain between a load and a store whose tiles nothing else uses: passes compute it in registers."""
        shape, draw = (self.rows, self.columns), self.draw
        source = draw.choice(self.inputs)
        last = self.alone(source.dtype if draw.random() < 0.8 else draw.choice(self.floats))
        self.write("nki.load", [last, self.tile(source, shape, straight=True)])
        dtype = draw.choice(("bf16", draw.choice(self.floats)))
        for _ in range(draw.randint(2, 5)):
            last = self.step(shape, last, self.alone(dtype if draw.random() < 0.8 else draw.choice(self.dtypes)))
        self.write("nki.store", [self.complete(output or draw.choice(self.outputs)), last])

    def alone(self, dtype: str) -> Tile:
        """A tile that nothing has written yet."""
        buffer = Buffer(self.name("t"), "sbuf", dtype, self.rows, self.columns)
        self.emit(f'%{buffer.name} = memref.alloc() {{nki.name = "{buffer.name}"}} : {buffer.type}')
        return self.complete(buffer)

    def step(self, shape: tuple[int, ...], last: Tile, result: Tile | None = None) -> Tile:
        """Write an operation on the last tile and others: to the result, or to a tile of any, under a mask."""
        draw = self.draw
        target = result or self.on_chip(shape, self.floats if draw.random() < 0.8 else ())
        other = last if result and draw.random() < 0.7 else self.on_chip(shape, repeat=True)
        mask = ALL_ELEMENTS if result else self.mask(shape, 8)
        names = (*BINARY, *COMPARISONS, *(BINARY[:3] * 3 if result else BINARY))
        ops = [f'"{draw.choice(names)}"' for _ in range(2)]
        reverse = [draw.choice(("true", "false")) for _ in range(2)]
        form = draw.randrange(8)
        if form == 0:
            self.write("nki.copy", [target, last], mask)
        elif form == 1:
            self.write("nki.unary", [target, last], mask, fn=f'"{draw.choice(EXACT)}"')
        elif form in (2, 3):
            self.write("nki.binary", [target, *draw.choice(((last, other), (other, last), (last, last)))], mask, op=ops[0])
        elif form in (4, 5):
            self.write("nki.binary_scalar", [target, last], mask, op=ops[0], scalar=self.number(), reverse=reverse[0])
        elif form == 6:
            self.write("nisa.tensor_scalar", [target, last, draw.choice((None, None if result else self.column(shape))), None], mask,
                       op0=ops[0], op1=ops[1], imm0=self.number(), imm1=self.number(), reverse0=reverse[0],
                       reverse1=reverse[1])
        else:
            condition = self.on_chip(shape, ("ui8",))
            self.write("nki.binary_scalar", [condition, other], op=f'"{draw.choice((*COMPARISONS, "equal"))}"',
                       scalar=self.number(), reverse=reverse[0])
            self.write("nki.select", [target, condition, *draw.choice(((last, other), (other, last)))], mask)
        return target

    def load(self) -> None:
        shape = self.shape()
        source = self.draw.choice((*self.inputs, *self.inputs, *self.outputs))
        self.write("nki.load", [self.on_chip(shape, spaces=("sbuf",)), self.tile(source, shape, True)], self.mask(shape))

    def whole_numbers(self, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> Tile:
        """Return a tile of NaN and small integers, whose sums are exact in any order."""
        tile = self.on_chip(shape, dtypes, ("sbuf",))
        self.write("nki.unary", [tile, self.on_chip(shape, repeat=True)], fn='"floor"')
        super().clamp(tile)
        return tile

    def fold(self) -> None:
        """Write an extremum of any values along axes, or a sum of integers."""
        shape, draw = self.shape(), self.draw
        op = draw.choice(("maximum", "minimum", "add"))
        source = self.whole_numbers(shape, self.floats) if op == "add" else self.on_chip(shape, repeat=True)
        axes = draw.choice([[k] for k in range(1, len(shape))] + [list(range(1, len(shape)))])
        target = self.on_chip([1 if k in axes else n for k, n in enumerate(shape)])
        form = draw.randrange(3)
        if form == 0:
            self.write("nisa.tensor_reduce", [target, source], self.mask(shape, 8), op=f'"{op}"', axes=f"{axes}",
                       negate=draw.choice(("true", "false")))
        elif form == 1 and op != "minimum":
            self.write("nisa.tensor_partition_reduce", [self.on_chip((1, *shape[1:])), source], op=f'"{op}"')
        else:
            self.write("nki.reduce", [target, source], self.mask(shape, 8), op=f'"{op}"', axes=f"{axes}")

    def product(self) -> None:
        """Write a product of integers and NaN, and round it."""
        draw = self.draw
        terms, rows = draw.choice((1, 2, self.rows, self.rows)), draw.choice((1, 8, self.rows))
        columns = draw.choice((1, 3, 8, min(512, self.columns)))
        total = self.complete(self.allocate("psum", "f32", rows, columns))
        if total.buffer.space != "psum":
            return
        self.write("nki.memset", [total], value="0.0 : f64")
        factor = (draw.choice(NARROW),)
        self.write("nki.matmul", [total, self.whole_numbers((terms, rows), factor), self.whole_numbers((terms, columns), factor)],
                   accumulate="true")
        self.write("nki.copy", [self.on_chip((rows, columns), spaces=("sbuf",)), total])

    def function(self, tile: Buffer) -> None:
        shape = (self.rows, self.columns)
        self.write("nki.unary", [self.complete(tile), self.on_chip(shape, repeat=True)],
                   fn=f'"{self.draw.choice(("exp", "tanh", "sqrt", "sigmoid", "log", "gelu"))}"')

    STATEMENTS = (load, load, store, chain, chain, body, body, body, ModuleWriter.affine, fold, fold, product,
                  ModuleWriter.transpose)


def special_arrays(writer: ModuleWriter, seed: int) -> list[np.ndarray]:
    """Arrays for the inputs: one special value alone, several among numbers, or any bits."""
    rng = np.random.default_rng(seed)
    values = []
    for x in writer.inputs:
        dtype, shape = BY_MLIR[x.dtype], (x.rows * x.programs, x.columns)
        special = rng.choice(np.array(SPECIAL, np.uint32), shape)
        one = np.full(shape, rng.choice(np.array(SPECIAL, np.uint32)))
        numbers = rng.normal(0, 4, shape).astype(np.float32).view(np.uint32)
        chosen = (special, one, numbers, np.where(rng.random(shape) < rng.choice((0.001, 0.03, 0.3)), special, numbers),
                  rng.integers(0, 1 << 32, shape, np.uint32))
        array = chosen[rng.choice(5, p=(0.3, 0.15, 0.05, 0.4, 0.1))].view(np.float32)
        if dtype is not FLOAT32:
            array = convert(array, dtype)
            if dtype.is_float:
                nan = np.isnan(array.astype(np.float32)) | (rng.random(shape) < rng.choice((0, 0, 0.02)))
                array = np.where(nan, rng.choice(nans(dtype), shape), array)
        values.append(array)
    return values


@cache
def nans(dtype: DType) -> np.ndarray:
    """Return every NaN of a float."""
    every = np.arange(1 << dtype.bits).astype(f"u{dtype.itemsize}").view(dtype.numpy)
    return every[np.isnan(every.astype(np.float32))]

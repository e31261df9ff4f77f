# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write random nki modules as text: access patterns, masks and sequences of operations that few kernels lead to.

Steps are negative, zero or interleave; tiles overlap their results; loops may run zero times. There are products that
add in PSUM, transposes, reductions over several axes, searches, selections with registers, scans, gathers and scatters.

All values are integers of at most ``BOUND`` in magnitude, or NaN and infinities: behind an operation whose results may
exceed the bound, others clamp them. Sums are thus exact in float32 in any order, and all executors agree bit for bit.
Functions that round write tiles of their own, which only the last output, ``z``, shows.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from nki_mlir.dialects import catalog
from nki_mlir.dialects.op import REGISTRY
from nki_mlir.scalar.dtypes import BY_MLIR, FLOAT32, convert

BOUND = 16
FUNCTIONS = ("exp", "tanh", "sqrt", "reciprocal", "sigmoid", "log", "rsqrt", "gelu")
EXACT = ("abs", "negative", "relu", "sign", "floor", "square")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "greater", "less_equal", "equal")
SUMS = ("add", "maximum", "minimum")
FLOATS = ("f32", "f32", "f32", "bf16", "bf16", "f16", "f8E4M3FN", "f8E4M3", "f8E5M2")
DTYPES = (*FLOATS, "i32", "i8", "ui8", "i16")
ALL_ELEMENTS = "affine_set<() : (0 == 0)>"


catalog.load()


def literal(value: object) -> str:
    """Return the text of an attribute."""
    if isinstance(value, float):
        return f"{value} : f64"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


@dataclass(frozen=True)
class Buffer:
    name: str
    space: str
    dtype: str
    rows: int
    columns: int
    programs: int = 1                   # each reads or writes other rows

    @property
    def type(self) -> str:
        return f'memref<{self.rows * self.programs}x{self.columns}x{self.dtype}, "{self.space}">'


@dataclass(frozen=True)
class Tile:
    buffer: Buffer
    access: str
    shape: tuple[int, ...]


class ModuleWriter:
    """A module with one kernel: inputs ``x0``, ``x1``, outputs ``y0``, ``y1``, ``z``.

    A grid has up to four programs. No two write the same rows of the outputs; of an input all programs read the same
    rows, or each reads others.
    """

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.rows = draw.choice((1, 2, 4, 8, 8, 16, 32, 127, 128))
        self.columns = draw.choice((1, 2, 3, 8, 8, 16, 32, 64, 130, 256) if self.rows < 127 else (8, 64, 130, 256, 512))
        self.dtypes = [draw.choice(FLOATS), draw.choice((*DTYPES, "f32"))]
        self.lines: list[str] = []
        self.programs = draw.choice((1, 1, 1, 2, 3, 4))
        self.loops: list[tuple[str, range]] = [("program", range(self.programs))] * (self.programs > 1)
        self.outermost = len(self.loops)
        self.names = 0
        self.psum = 0                   # bytes of a partition that allocations take
        self.inputs = [Buffer(f"x{k}", "hbm", draw.choice(self.dtypes), self.rows, self.columns,
                              draw.choice((1, self.programs))) for k in range(2)]
        self.outputs = [Buffer(f"y{k}", "hbm", draw.choice(self.dtypes), self.rows, self.columns, self.programs)
                        for k in range(2)]
        self.rounded = Buffer("z", "hbm", draw.choice(FLOATS), self.rows, self.columns, self.programs)
        self.tiles: list[Buffer] = []
        functions = self.allocate("sbuf", draw.choice(FLOATS), self.rows, self.columns)
        self.block(draw.randint(3, 9))
        for output in self.outputs:
            self.store(output)
        self.function(functions)
        self.write("nki.store", [self.complete(self.rounded), self.complete(functions)])

    @property
    def text(self) -> str:
        """The module, for the target that multiplies the most dtypes."""
        arguments = [*((x, "") for x in self.inputs),
                     *((y, f", nki.shared = {k} : i64") for k, y in enumerate((*self.outputs, self.rounded)))]
        signature = ", ".join(f'%{x.name}: {x.type} {{nki.name = "{x.name}"{shared}}}' for x, shared in arguments)
        grid = ""
        if self.programs > 1:
            signature += ", %program: index {nki.program_id = 0 : i64}"
            grid = f" attributes {{nki.grid = [{self.programs}]}}"
        return "\n".join(['module attributes {nki.target = "trn3"} {', f"  func.func @kernel({signature}){grid} {{",
                          *self.lines, "    return", "  }", "}", ""])

    @property
    def depth(self) -> int:
        """Return the number of loops around the next statement."""
        return len(self.loops) - self.outermost

    # -- text ----------------------------------------------------------------------------------------------------------
    def emit(self, line: str) -> None:
        self.lines.append("    " + "  " * self.depth + line)

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def write(self, name: str, operands: Sequence[Tile | None], mask: str = ALL_ELEMENTS, /, **attributes: str) -> None:
        """Emit an operation on a tile for each operand of its class, or None; an attribute that is left out has the
        class's default."""
        cls = REGISTRY[name]
        if cls.has_optional_tiles:
            counts = [*(int(operand is not None) for operand in operands), len(self.loops)]
            attributes["operandSegmentSizes"] = f"array<i32: {', '.join(map(str, counts))}>"
        tiles = [operand for operand in operands if operand is not None]
        defaults = {key: literal(getattr(cls, key)) for key in cls.attributes if hasattr(cls, key)}
        attributes = defaults | attributes | {"access": f"[{', '.join(tile.access for tile in tiles)}]", "mask": mask}
        values = [*(f"%{tile.buffer.name}" for tile in tiles), *(f"%{variable}" for variable, _ in self.loops)]
        types = [*(tile.buffer.type for tile in tiles), *("index" for _ in self.loops)]
        self.emit(f'"{name}"({", ".join(values)}) '
                  f'{{{", ".join(f"{key} = {value}" for key, value in sorted(attributes.items()))}}} '
                  f': ({", ".join(types)}) -> ()')

    # -- tiles ---------------------------------------------------------------------------------------------------------
    def allocate(self, space: str, dtype: str, rows: int, columns: int) -> Buffer:
        """Allocate a tile and write every element of it."""
        size = columns * BY_MLIR[dtype].itemsize
        if space == "psum":
            if size > 2_048 or self.psum + size > 12_000 or not BY_MLIR[dtype].is_float:
                space = "sbuf"
            else:
                self.psum += max(size, 2_048)
        buffer = Buffer(self.name("t"), space, dtype, rows, columns)
        self.emit(f'%{buffer.name} = memref.alloc() {{nki.name = "{buffer.name}"}} : {buffer.type}')
        source = self.draw.choice(self.inputs)
        if self.draw.random() < 0.6 and source.rows >= rows and source.columns >= columns and space == "sbuf":
            self.write("nki.load", [self.complete(buffer), self.tile(source, (rows, columns))])
        else:
            self.write("nki.memset", [self.complete(buffer)], value=f"{self.draw.choice((0.0, -0.0, 1.0, 7.0))} : f64")
        return buffer

    def on_chip(self, shape: Sequence[int], dtypes: Sequence[str] = (), spaces: Sequence[str] = ("sbuf", "sbuf", "psum"),
                repeat: bool = False) -> Tile:
        """A tile of a shape, mostly in a buffer that exists; ``repeat`` accepts steps of zero."""
        rows, columns = shape[0], prod(shape[1:])
        fitting = [b for b in self.tiles if b.rows >= rows and b.columns >= columns and b.space in spaces
                   and (not dtypes or b.dtype in dtypes)]
        if not fitting or self.draw.random() < 0.15:
            dtype = self.draw.choice(dtypes or self.dtypes)
            width = self.draw.choice((columns, columns, columns + 5))
            buffer = self.allocate(self.draw.choice(spaces), dtype, rows, width)
            self.tiles.append(buffer)
            if buffer.space not in spaces:
                return self.complete(buffer)
            fitting = [buffer]
        return self.tile(self.draw.choice(fitting), shape, repeat)

    def column(self, shape: Sequence[int]) -> Tile:
        """One element of each partition, as a tile of a shape."""
        buffer = self.on_chip((shape[0], 1)).buffer
        dims = ", ".join(f"[{step}, {extent}]" for step, extent in zip((1, *(0 for _ in shape[1:])), shape))
        symbols = ", ".join(f"s{k}" for k in range(len(self.loops)))
        start = f"affine_map<()[{symbols}] -> (0, {self.draw.randrange(buffer.columns)})>"
        return Tile(buffer, f"#nki.access<{buffer.dtype}, {start}, [{dims}]>", tuple(shape))

    def complete(self, buffer: Buffer) -> Tile:
        return self.tile(buffer, (buffer.rows, buffer.columns), straight=True)

    def tile(self, buffer: Buffer, shape: Sequence[int], repeat: bool = False, straight: bool = False) -> Tile:
        """A tile of a buffer through a random pattern."""
        free = shape[1:]
        tries = 0 if straight or self.draw.random() < 0.35 else 40
        start, factors, steps = next(filter(None, (self.pattern(buffer.columns, free, repeat) for _ in range(tries))),
                                     (0, [0 for _ in self.loops], [prod(free[k + 1:]) for k in range(len(free))]))
        row = 0 if straight or buffer.space != "hbm" else self.draw.randint(0, buffer.rows - shape[0])
        if buffer.space != "hbm" and not straight and buffer.rows >= shape[0] + 32 and self.draw.random() < 0.2:
            row = 32 if shape[0] <= 32 else 0
        symbols = ", ".join(f"s{k}" for k in range(len(self.loops)))
        first = " + ".join([str(start + (row * buffer.columns if buffer.space == "hbm" else 0)),
                            *(f"s{k} * {factor}" for k, factor in enumerate(factors) if factor),
                            *[f"s0 * {buffer.rows * buffer.columns}"] * (buffer.programs > 1)])
        dims = ", ".join(f"[{step}, {extent}]" for step, extent in zip(
            [buffer.columns if buffer.space == "hbm" else 1, *steps], shape))
        position = f"({first})" if buffer.space == "hbm" else f"({row}, {first})"
        access = f"#nki.access<{buffer.dtype}, affine_map<()[{symbols}] -> {position}>, [{dims}]>"
        return Tile(buffer, access, tuple(shape))

    def pattern(self, columns: int, free: Sequence[int], repeat: bool) -> tuple[int, list[int], list[int]] | None:
        """A start, a factor of each loop variable, and steps of free axes that stay within the columns."""
        steps, step = [0 for _ in free], 1
        axes = list(range(len(free)))
        if self.draw.random() < 0.3:
            self.draw.shuffle(axes)
        for axis in reversed(axes):
            apart = self.draw.choice((1, 1, 1, 1, 2, 3))
            steps[axis] = step * apart * self.draw.choice((1, 1, 1, 1, -1))
            if repeat and self.draw.random() < 0.15:
                steps[axis] = 0
            else:
                step *= apart * free[axis]
        factors = [self.draw.choice((0, 0, 1, -1, free[-1], 2 * free[-1])) for _ in self.loops]
        terms = [*((s * (n - 1), 0) for s, n in zip(steps, free)),
                 *((f * values[0], f * values[-1]) if values else (0, 0) for f, (_, values) in zip(factors, self.loops))]
        low, high = sum(map(min, terms)), sum(map(max, terms))
        if high - low >= columns:
            return None
        return self.draw.choice((-low, -low, self.draw.randint(-low, columns - 1 - high))), factors, steps

    def mask(self, shape: Sequence[int], one_in: int = 4) -> str:
        """Return a mask: mostly none, else one or two conditions on axes and loop variables."""
        if self.draw.randrange(one_in):
            return ALL_ELEMENTS
        axes, symbols = [f"d{k}" for k in range(len(shape))], [f"s{k}" for k in range(len(self.loops))]
        conditions = []
        for _ in range(self.draw.choice((1, 1, 2))):
            axis = self.draw.randrange(len(shape))
            sign = self.draw.choice(("", "-", "2 * "))
            term = f"{sign}{axes[axis]}"
            if self.draw.random() < 0.4:
                term += f" + {self.draw.choice((1, -1, 2))} * {self.draw.choice(axes + symbols)}"
            number = self.draw.choice((-1, 0, 1, shape[axis] // 2, shape[axis] - 1)) * (1 if sign == "-" else -1)
            conditions.append(f"{term} + {number} {self.draw.choice(('>= 0', '>= 0', '>= 0', '== 0'))}")
        return f"affine_set<({', '.join(axes)})[{', '.join(symbols)}] : ({', '.join(conditions)})>"

    def shape(self) -> tuple[int, ...]:
        columns = self.columns
        free = [self.draw.choice((1, 2, 3, 8, columns, columns, max(1, columns // 2)))]
        for one_in in (3, 10):
            if not self.draw.randrange(one_in):
                free.insert(0, self.draw.choice((1, 2, 3, 4)))
        rows = self.rows if self.draw.random() < 0.85 else self.draw.randint(1, self.rows)
        return (rows, *(free if prod(free) <= columns else [columns]))

    # -- statements ----------------------------------------------------------------------------------------------------
    def block(self, count: int) -> None:
        """Write statements; tiles that they allocate are out of scope after it."""
        before = list(self.tiles)
        for _ in range(count):
            if self.draw.random() < 0.15 and self.depth < 2:
                with self.loop():
                    self.block(self.draw.randint(1, 4))
            else:
                self.draw.choice(self.STATEMENTS)(self)
        if self.depth:
            self.tiles = before

    def loop(self, *counts: int) -> "_Loop":
        first, step = self.draw.choice((0, 0, 0, 1)), self.draw.choice((1, 1, 1, 2, 3))
        return _Loop(self, range(first, first + step * self.draw.choice(counts or (0, 1, 2, 2, 3, 4, 5)), step))

    def clamp(self, tile: Tile) -> None:
        """Bound the values that an operation wrote to a tile."""
        order = [("minimum", BOUND), ("maximum", -BOUND if BY_MLIR[tile.buffer.dtype].name[0] != "u" else 0)]
        self.draw.shuffle(order)
        for op, number in order:
            self.write("nki.binary_scalar", [tile, tile], op=f'"{op}"', reverse="false", scalar=f"{number}.0 : f64")

    def load(self) -> None:
        shape = self.shape()
        target = self.on_chip(shape, spaces=("sbuf",))
        self.write("nki.load", [target, self.tile(self.draw.choice((*self.inputs, *self.outputs)), shape, True)],
                   self.mask(shape))
        self.clamp(target)

    def store(self, output: Buffer | None = None) -> None:
        shape = (self.rows, self.columns) if output else self.shape()
        source = self.on_chip(shape, spaces=("sbuf",), repeat=True)
        target = self.complete(output) if output else self.tile(self.draw.choice(self.outputs), shape)
        self.write("nki.store", [target, source], self.mask(shape) if output is None else ALL_ELEMENTS)

    def elementwise(self) -> None:
        shape, draw = self.shape(), self.draw
        target, *sources = [self.on_chip(shape, repeat=k > 0) for k in range(4)]
        column = self.column(shape)
        imm = f"{draw.choice((0.0, -0.0, 1.0, 2.5, -3.0))} : f64"
        op, other = (f'"{draw.choice(BINARY)}"' for _ in range(2))
        form = draw.randrange(7)
        if form == 0:
            self.write("nki.copy", [target, sources[0]], self.mask(shape))
        elif form == 1:
            self.write("nki.unary", [target, sources[0]], self.mask(shape), fn=f'"{draw.choice(EXACT)}"')
        elif form in (2, 3):
            self.write("nki.binary", [target, *sources[:2]], self.mask(shape), op=op)
        elif form == 4:
            self.write("nki.binary_scalar", [target, sources[0]], self.mask(shape), op=op, scalar=imm,
                       reverse=draw.choice(("true", "false")))
        elif form == 5:
            self.write("nisa.tensor_scalar", [target, sources[0], column, None], self.mask(shape), op0=op, op1=other,
                       imm1=imm, reverse0=draw.choice(("true", "false")))
        else:
            self.write("nki.select", [target, self.on_chip(shape, ("ui8",)), *sources[:2]], self.mask(shape))
        self.clamp(target)

    def affine(self) -> None:
        shape = self.shape()
        target, source = self.on_chip(shape), self.on_chip(shape, repeat=True)
        axes = ", ".join(f"d{k}" for k in range(len(shape)))
        term = " + ".join(f"d{k} * {self.draw.choice((-2, -1, 0, 1))}" for k in range(len(shape)))
        self.write("nisa.affine_select", [target, source], self.mask(shape), value=f"{self.draw.choice((0.0, -3.0))} : f64",
                   predicate=f"affine_map<({axes}) -> ({term} + {self.draw.choice((0, 1, self.columns // 2))})>")

    def reduce(self) -> None:
        shape, draw = self.shape(), self.draw
        source = self.on_chip(shape, repeat=True)
        axes = draw.choice([[k] for k in range(1, len(shape))] + [list(range(1, len(shape)))])
        target = self.on_chip([1 if k in axes else n for k, n in enumerate(shape)])
        form = draw.randrange(4)
        op = f'"{draw.choice(SUMS)}"'
        if form == 0:
            self.write("nisa.tensor_reduce", [target, source], self.mask(shape, 8), op=op, axes=f"{axes}",
                       negate=draw.choice(("true", "false")))
        elif form == 1:
            target = self.on_chip((1, *shape[1:]))
            self.write("nisa.tensor_partition_reduce", [target, source], op=f'"{draw.choice(SUMS[:2])}"')
        elif form == 2:
            target = self.on_chip((shape[0], *(1 for _ in shape[1:])))
            values = self.on_chip(shape)
            self.write("nisa.tensor_scalar_reduce", [values, target, source, None], reduce_op=op, op0='"multiply"',
                       imm0="-2.0 : f64")
            self.clamp(values)
        else:
            self.write("nki.reduce", [target, source], self.mask(shape, 8), op=op, axes=f"{axes}")
        self.clamp(target)

    def product(self) -> None:
        """Write products that add in PSUM, in a loop or one by one, and copy their sum."""
        draw = self.draw
        terms, rows = draw.choice((1, 2, self.rows, self.rows)), draw.choice((1, 2, 8, 32, self.rows, self.rows))
        columns = draw.choice(((1,), (3,), (8,), (min(512, self.columns),), (2, max(1, self.columns // 2))))
        factor = draw.choice((("f32",), ("bf16",), ("f8E4M3FN",), ("f8E4M3",), ("f8E5M2",), FLOATS))
        total = self.complete(self.allocate("psum", "f32", rows, prod(columns)))
        if total.buffer.space != "psum":
            return
        flat, total = total, self.tile(total.buffer, (rows, *columns))
        self.write("nki.memset", [flat], value=f"{draw.choice((0.0, 0.0, -0.0, 3.0))} : f64")

        def multiply(accumulate: str) -> None:
            left = self.on_chip((terms, rows), factor, ("sbuf",))
            loads = draw.random() < 0.4
            right = self.on_chip((terms, *columns), factor, ("sbuf",), repeat=not loads)
            if loads and right.buffer.dtype in self.dtypes:
                fitting = [b for b in self.inputs if b.rows >= terms and b.columns >= prod(columns)]
                source = draw.choice(fitting or [None])
                if source is not None and source.dtype == right.buffer.dtype:
                    self.write("nki.load", [right, self.tile(source, right.shape)])
            self.write(draw.choice(("nki.matmul", "nisa.nc_matmul")), [total, left, right],
                       self.mask((terms, rows, *columns), 10), accumulate=accumulate)

        if draw.random() < 0.5 and self.depth < 2:
            before = list(self.tiles)
            with self.loop(1, 2, 3, 4):
                multiply(draw.choice(("true", "true", "true", "false")))
            self.tiles = before
        else:
            for k in range(draw.choice((1, 1, 2, 3))):
                multiply(draw.choice(("true", "false")) if k == 0 else "true")
        result = self.on_chip((rows, prod(columns)), spaces=("sbuf",))
        form = draw.randrange(3)
        if form == 0:
            self.write("nki.copy", [result, flat])
        elif form == 1:
            self.write("nki.binary", [result, flat, self.on_chip((rows, prod(columns)), spaces=("sbuf",))], op='"add"')
        else:
            self.write("nki.binary_scalar", [result, flat], op='"multiply"', reverse="false", scalar="0.5 : f64")
            self.write("nki.unary", [result, result], fn='"floor"')
        self.clamp(result)

    def transpose(self) -> None:
        rows = self.draw.choice((1, 2, 8, 32, self.rows))
        columns = self.draw.choice((1, 3, 8, 32, min(128, self.columns)))
        source = self.on_chip((rows, columns), spaces=("sbuf",))
        if self.draw.random() < 0.3:
            target = self.on_chip((columns, rows), (source.buffer.dtype,), ("psum",))
            if target.buffer.space == "psum":
                self.write("nisa.nc_transpose", [target, source], engine='"tensor"')
        else:
            self.write("nki.transpose", [self.on_chip((columns, rows), spaces=("sbuf",)), source])

    def search(self) -> None:
        shape, draw = (self.rows, max(8, self.columns)), self.draw
        floats = tuple(set(self.dtypes) & set(FLOATS)) or ("f32",)
        data, eight = self.on_chip(shape, floats, repeat=True), self.on_chip((self.rows, 8), floats)
        form = draw.randrange(3)
        if form == 0:
            self.write("nisa.max8", [eight, data])
        elif form == 1:
            found_at = self.on_chip((self.rows, 8), ("ui32",), ("sbuf",))
            self.write("nisa.nc_find_index8", [found_at, data, eight])
            self.write("nki.copy", [eight, found_at])
            self.clamp(eight)
        else:
            replaced, found_at = self.on_chip(shape), self.on_chip((self.rows, 8), ("ui32",), ("sbuf",))
            self.write("nisa.nc_match_replace8", [replaced, found_at, data, eight], imm="-9.0 : f64")
            self.clamp(replaced)

    def selection(self) -> None:
        """Write a selection that accumulates a maximum in registers, or a scan."""
        shape, draw = (self.rows, self.columns), self.draw
        target, source = self.on_chip(shape), self.on_chip(shape, FLOATS, repeat=True)
        column, *bounds = [self.on_chip((self.rows, 1), ("f32",), ("sbuf",)) for _ in range(3)]
        command = f'"{draw.choice(("idle", "reset", "reduce", "reset_reduce"))}"'
        other = self.on_chip(shape, FLOATS, ("sbuf",), repeat=True)
        form = draw.randrange(3)
        if form == 0:
            self.write("nisa.select_reduce", [target, column, None, self.on_chip(shape, ("ui8",)), source, None], imm="-1.0 : f64",
                       reduce_cmd=command, reverse_pred=draw.choice(("true", "false")))
        elif form == 1:
            self.write("nisa.range_select", [target, column, None, source, *bounds], fill="-5.0 : f64", reduce_cmd=command,
                       base=f"{draw.choice((0.0, 3.0))} : f64", comp0=f'"{draw.choice(("greater_equal", "greater"))}"',
                       comp1=f'"{draw.choice(("less", "less_equal", "equal"))}"')
        else:
            self.write("nisa.tensor_tensor_scan", [target, source, other, None],
                       op0=f'"{draw.choice(("add", "multiply", "maximum"))}"', op1=f'"{draw.choice(("add", "minimum"))}"',
                       imm="1.0 : f64")
        self.clamp(target)
        self.clamp(column)              # reset registers contain the lowest float32

    def gather(self) -> None:
        """Write a gather or scatter by numbers that the kernel computes."""
        draw = self.draw

        def index(shape: tuple[int, int], dtype: str, most: int) -> Tile:
            tile = self.complete(self.allocate("sbuf", dtype, *shape))
            self.write("nki.copy", [tile, self.on_chip(shape, repeat=True)])
            for op, number in (("maximum", 0), ("minimum", most - 1)):
                self.write("nki.binary_scalar", [tile, tile], op=f'"{op}"', reverse="false", scalar=f"{number}.0 : f64")
            return tile

        form = draw.randrange(3)
        if form == 0:
            source = self.on_chip((self.rows, self.columns), spaces=("sbuf",))
            count = draw.choice((1, 3, self.columns))
            target = self.on_chip((self.rows, count), (source.buffer.dtype,), ("sbuf",))
            self.write("nisa.gather_flattened", [target, source, index((self.rows, count), "ui32", self.columns)])
            return
        rows, shape = index((self.rows, 1), "i32", self.rows), (self.rows, self.columns)
        if form == 1:
            target = self.on_chip(shape, spaces=("sbuf",))
            self.write("nisa.dma_gather", [target, self.complete(draw.choice((*self.inputs, *self.outputs))), rows],
                       mode='"error"')
            self.clamp(target)
        else:
            self.write("nisa.dma_scatter", [self.complete(draw.choice(self.outputs)),
                                            self.on_chip(shape, spaces=("sbuf",)), rows], mode='"error"', rmw='"add"')

    def function(self, tile: Buffer) -> None:
        """Write functions that round, of exact values, to a tile that nothing else reads."""
        shape = (self.rows, self.columns)
        result = self.complete(tile)
        self.write("nki.unary", [result, self.on_chip(shape, repeat=True)], fn=f'"{self.draw.choice(FUNCTIONS)}"')
        if self.draw.random() < 0.5:
            self.write("nki.binary", [result, result, self.on_chip(shape)], self.mask(shape), op='"multiply"')
        if self.draw.random() < 0.3:
            self.write("nki.unary", [result, result], fn='"tanh"')

    STATEMENTS: tuple[Callable[["ModuleWriter"], None], ...] = (
        load, load, store, elementwise, elementwise, elementwise, elementwise, affine, reduce, reduce, product, product,
        transpose, search, selection, gather)


class _Loop:
    """A loop of a module, as a context."""

    def __init__(self, writer: ModuleWriter, values: range) -> None:
        self.writer, self.values = writer, values

    def __enter__(self) -> None:
        name = self.writer.name("i")
        for end, number in (("first", self.values.start), ("end", self.values.stop), ("step", self.values.step)):
            self.writer.emit(f"%{name}{end} = arith.constant {number} : index")
        self.writer.emit(f"scf.for %{name} = %{name}first to %{name}end step %{name}step {{")
        self.writer.loops.append((name, self.values))

    def __exit__(self, *_: object) -> None:
        self.writer.loops.pop()
        self.writer.emit("}")


def arrays(writer: ModuleWriter, seed: int) -> list[np.ndarray]:
    """Arrays for the inputs, some with NaN, infinities and -0 in them."""
    rng = np.random.default_rng(seed)
    special = rng.random() < 0.3
    values = []
    for x in writer.inputs:
        dtype = BY_MLIR[x.dtype]
        array = rng.integers(-8, 9, (x.rows * x.programs, x.columns)).astype(np.float32)
        if special and dtype.is_float:
            chance = rng.random(array.shape)
            for low, number in ((0.02, np.nan), (0.04, np.inf), (0.06, -np.inf), (0.2, -0.0)):
                array[(chance < low) & (chance >= low - 0.02)] = number
        values.append(convert(array, dtype) if dtype is not FLOAT32 else array)
    return values

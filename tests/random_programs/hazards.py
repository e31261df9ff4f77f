# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random kernels that read and overwrite parts of the same few tensors with all engines and DMA, evaluated with NumPy.

Each step is the text of an instruction and its effect on the arrays. Values are integers below 2 ** 24, so they are
exact.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

P, F = 64, 24
LARGE = 2.0 ** 10                       # a loop's steps at most double values, 12 times in all

Env = dict                              # loop variable -> its number
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Memory:
    name: str
    space: str                          # sbuf, psum, hbm
    dtype: str


@dataclass(frozen=True)
class Region:
    """Rows, and columns from ``column`` (more by ``times`` a turn of the loop) on."""

    memory: Memory
    row: int
    rows: int
    column: int
    columns: int
    step: int = 1
    loop: str = ""
    times: int = 0
    register: str = ""                  # holds the column, or the loop's variable is one
    form: str = "slice"

    @property
    def text(self) -> str:
        name = self.memory.name
        at = self.row * F + (0 if self.register else self.column)
        if self.form == "ap" or self.register:
            where = f", scalar_offset={self.register}, indirect_dim=1" if self.register else ""
            return f"{name}.ap([[{F}, {self.rows}], [{self.step}, {self.columns}]], offset={at}{where})"
        start = f"{self.column} + {self.times} * {self.loop}" if self.loop else f"{self.column}"
        stop = f"{start} + {(self.columns - 1) * self.step + 1}"
        return f"{name}[{self.row}:{self.row + self.rows}, {start}:{stop}{f':{self.step}' if self.step > 1 else ''}]"

    def of(self, arrays: Arrays, env: Env) -> np.ndarray:
        start = self.column + self.times * env.get(self.loop, 0)
        return arrays[self.memory.name][self.row:self.row + self.rows,
                                        start:start + (self.columns - 1) * self.step + 1:self.step]


@dataclass(frozen=True)
class Step:
    lines: list[str]
    run: Callable[[Arrays, Env], None]


class Hazards:
    """``draw(n)`` decides: a number below n."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        self.draw = draw
        self.count = 0
        self.loop: tuple[str, int, bool] = ("", 1, False)           # variable, turns, whether it is a register
        self.memories = [Memory(f"s{k}", "sbuf", self.pick("float32", "float32", "int32")) for k in range(self.pick(2, 3))]
        self.memories += [Memory("h", "hbm", "float32"), Memory("m", "hbm", self.pick("float32", "int32")),
                          Memory("p", "psum", "float32")]
        self.arrays: Arrays = {m.name: start(m) for m in self.memories}
        self.initial = self.arrays["m"].copy()
        self.head = [self.declaration(k, m) for k, m in enumerate(self.memories) if m.name != "m"]
        self.head += [f"nisa.memset({m.name}, {1 + k})" if m.space != "hbm" else f"nisa.dma_copy({m.name}, x)"
                      for k, m in enumerate(self.memories) if m.name != "m"]
        for k, m in enumerate(self.memories):
            if m.space != "hbm":
                self.arrays[m.name][...] = 1 + k
        self.lines: list[str] = []
        for _ in range(4 + draw(14)):
            self.add(self.device_or_plain_loop() if self.draw(5) == 4 else self.step())
        self.text = "\n".join(["def kernel(x, m):", *(f"    {line}" for line in [*self.head, *self.lines, *self.results()]), ""])

    def pick(self, *choices):
        return choices[self.draw(len(choices))]

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # -- the frame -----------------------------------------------------------------------------------------------------
    def declaration(self, k: int, m: Memory) -> str:
        placement = ""
        if m.space == "hbm":
            placement = ", buffer=nl.private_hbm"
        elif m.space == "psum":
            placement = ", buffer=nl.psum"
        elif self.draw(3) == 2:
            placement = f", address=({64 * (k % 2)}, {self.pick(0, 96, 4096) + 8192 * k})"
        return f"{m.name} = nl.ndarray(({P}, {F}), nl.{m.dtype}{placement})"

    def results(self) -> list[str]:
        outputs = [m for m in self.memories if m.name != "m"]
        lines = [f"out_{m.name} = nl.ndarray(({P}, {F}), nl.{m.dtype}, buffer=nl.shared_hbm)" for m in outputs]
        for m in outputs:
            source = m.name
            if m.space == "psum":
                source = "converted"
                lines += [f"converted = nl.ndarray(({P}, {F}), nl.{m.dtype})", f"nisa.tensor_copy(converted, {m.name})"]
            lines.append(f"nisa.dma_copy(out_{m.name}, {source})")
        return [*lines, f"return {', '.join(f'out_{m.name}' for m in outputs)}"]

    def expected(self) -> list[np.ndarray]:
        return [self.arrays[m.name] for m in self.memories if m.name != "m"]

    def add(self, step: Step) -> None:
        self.lines += step.lines
        step.run(self.arrays, {})
        first = self.memories[0]
        for m in self.memories:
            if np.abs(self.arrays[m.name]).max() > LARGE:
                on_chip = m if m.space != "hbm" else first
                self.lines.append(f"nisa.tensor_scalar({on_chip.name}, {on_chip.name}, nl.maximum, -9, op1=nl.minimum, operand1=9)")
                np.clip(self.arrays[on_chip.name], -9, 9, out=self.arrays[on_chip.name])
                if m.space == "hbm":
                    self.lines.append(f"nisa.dma_copy({m.name}, {first.name})")
                    self.arrays[m.name][...] = self.arrays[first.name]

    def device_or_plain_loop(self) -> Step:
        form, turns, i = self.pick("range", "nl.sequential_range", "nl.affine_range", "nl.dynamic_range",
                                   "nl.fori_loop"), 1 + self.draw(3), self.name("i")
        before = []
        bound = f"{turns}"
        if form in ("nl.dynamic_range", "nl.fori_loop"):
            bound = self.register(turns, before)
        self.loop = (i, turns, form in ("nl.dynamic_range", "nl.fori_loop"))
        steps = [self.step() for _ in range(1 + self.draw(4))]
        self.loop = ("", 1, False)
        head = f"def body_{i}({i}):" if form == "nl.fori_loop" else f"for {i} in {form}({bound}):"
        body = [f"    {line}" for step in steps for line in step.lines]
        after = [f"nl.fori_loop(0, {bound}, body_{i})"] if form == "nl.fori_loop" else []

        def run(arrays: Arrays, env: Env) -> None:
            for turn in range(turns):
                for step in steps:
                    step.run(arrays, {i: turn})
        return Step([*before, head, *body, *after], run)

    def register(self, value: int, lines: list[str]) -> str:
        r, t = self.name("r"), self.name("t")
        lines += [f"{t} = nl.full((1, 1), {value}, nl.int32)", f"{r} = nisa.register_alloc()", f"nisa.register_load({r}, {t})"]
        return r

    # -- regions -------------------------------------------------------------------------------------------------------
    def shape(self) -> tuple[int, int]:
        return self.pick(32, 32, 64, 7, 1), self.pick(F, 12, 6, 8, 1, 9)

    def region(self, shape: tuple[int, int], lines: list[str], *memories: Memory) -> Region:
        memory = self.pick(*memories)
        rows, columns = shape
        row = self.pick(*(r for r in (0, 32) if r + rows <= P))
        step = self.pick(*(s for s in (1, 1, 2, 3) if (columns - 1) * s < F))
        room = F - ((columns - 1) * step + 1)
        i, turns, in_register = self.loop
        form = self.pick("slice", "slice", "ap")
        if i and self.draw(2) and room >= turns - 1:
            times = self.draw(room // (turns - 1) + 1) if turns > 1 and not in_register else 1
            if in_register:
                return Region(memory, row, rows, 0, columns, step, i, 1, i)
            return Region(memory, row, rows, self.draw(room - times * (turns - 1) + 1), columns, step, i, times)
        column = self.draw(room + 1)
        if self.draw(5) == 4:
            return Region(memory, row, rows, column, columns, step, register=self.register(column, lines))
        return Region(memory, row, rows, column, columns, step, form=form)

    def of(self, *spaces: str) -> list[Memory]:
        return [m for m in self.memories if m.space in spaces]

    # -- steps ---------------------------------------------------------------------------------------------------------
    def step(self) -> Step:
        return self.pick(self.copied, self.moved, self.moved, self.combined, self.combined, self.changed, self.set,
                         self.activated, self.product, self.predicated)()

    def engine(self, *regions: Region) -> str:
        on_psum = any(r.memory.space == "psum" for r in regions)
        chosen = self.pick("unknown", "vector", *(() if on_psum else ("gpsimd", "gpsimd")))
        return f", engine=nisa.engine.{chosen}"

    def writing(self, dst: Region, value: Callable[[Arrays, Env], np.ndarray], lines: list[str]) -> Step:
        def run(arrays: Arrays, env: Env) -> None:
            dst.of(arrays, env)[...] = value(arrays, env)
        return Step(lines, run)

    def copied(self) -> Step:
        shape, lines = self.shape(), []
        dst, src = (self.region(shape, lines, *self.of("sbuf", "psum")) for _ in range(2))
        lines.append(f"nisa.tensor_copy({dst.text}, {src.text}{self.engine(dst, src)})")
        return self.writing(dst, lambda a, e: src.of(a, e).copy(), lines)

    def moved(self) -> Step:
        shape, lines = self.shape(), []
        dst, src = (self.region(shape, lines, *self.of("sbuf", "hbm")) for _ in range(2))
        lines.append(f"nisa.dma_copy({dst.text}, {src.text})")
        return self.writing(dst, lambda a, e: src.of(a, e).copy(), lines)

    def combined(self) -> Step:
        shape, lines = self.shape(), []
        dst = self.region(shape, lines, *self.of("sbuf", "psum"))
        a = dst if self.draw(3) == 2 else self.region(shape, lines, *self.of("sbuf"))
        b = self.region(shape, lines, *self.of("sbuf"))
        op = self.pick("maximum", "minimum", "subtract", "add")
        lines.append(f"nisa.tensor_tensor({dst.text}, {a.text}, {b.text}, nl.{op}{self.engine(dst, a, b)})")
        return self.writing(dst, lambda s, e: getattr(np, op)(a.of(s, e), b.of(s, e)), lines)

    def changed(self) -> Step:
        shape, lines = self.shape(), []
        dst = self.region(shape, lines, *self.of("sbuf", "psum"))
        src = dst if self.draw(2) else self.region(shape, lines, *self.of("sbuf", "psum"))
        factor, more = self.pick(-1, 2, -1), self.draw(5)
        lines.append(f"nisa.tensor_scalar({dst.text}, {src.text}, nl.multiply, {factor}, op1=nl.add, operand1={more}"
                     f"{self.engine(dst, src)})")
        return self.writing(dst, lambda s, e: src.of(s, e) * factor + more, lines)

    def set(self) -> Step:
        lines: list[str] = []
        dst, value = self.region(self.shape(), lines, *self.of("sbuf", "psum")), self.draw(9)
        lines.append(f"nisa.memset({dst.text}, {value}{self.engine(dst)})")
        return self.writing(dst, lambda s, e: value, lines)

    def activated(self) -> Step:
        shape, lines = self.shape(), []
        dst, src = (self.region(shape, lines, *self.of("sbuf", "psum")) for _ in range(2))
        fn = self.pick("copy", "relu", "abs")
        lines.append(f"nisa.activation({dst.text}, nl.{fn}, {src.text})")
        of = {"copy": np.copy, "relu": lambda v: np.maximum(v, 0), "abs": np.abs}[fn]
        return self.writing(dst, lambda s, e: of(src.of(s, e)), lines)

    def product(self) -> Step:
        """Of a row: columns of the one with a column of the other."""
        lines: list[str] = []
        floats = [m for m in self.of("sbuf") if m.dtype == "float32"]
        if not floats or self.loop[0]:
            return self.moved()
        rows, columns = self.pick(1, 7, 32), self.pick(F, 6, 8)
        a, b = self.region((1, rows), lines, *floats) if rows <= F else None, self.region((1, columns), lines, *floats)
        dst = self.region((rows, columns), lines, *self.of("psum"))
        if a is None or max(np.abs(r.of(self.arrays, {})).max() for r in (a, b)) > 1000:
            return self.moved()
        lines.append(f"nisa.nc_matmul({dst.text}, {a.text}, {b.text}, accumulate=False)")
        return self.writing(dst, lambda s, e: a.of(s, e).T @ b.of(s, e), lines)

    def predicated(self) -> Step:
        shape, lines = self.shape(), []
        dst, src = (self.region(shape, lines, *self.of("sbuf")) for _ in range(2))
        if dst.memory.dtype != src.memory.dtype:
            return self.moved()
        flags, reverse = self.name("flags"), bool(self.draw(2))
        lines += [f"{flags} = nl.ndarray({shape}, nl.uint8)",
                  f"nisa.iota({flags}, [[1, {shape[1]}]], offset=0, channel_multiplier=0)",
                  f"nisa.tensor_scalar({flags}, {flags}, nl.bitwise_and, 1)",
                  f"nisa.tensor_copy_predicated({dst.text}, {src.text}, {flags}, reverse_pred={reverse})"]
        chosen = (np.arange(shape[1]) % 2 == int(not reverse))[None, :]
        return self.writing(dst, lambda s, e: np.where(chosen, src.of(s, e), dst.of(s, e)), lines)


def start(memory: Memory) -> np.ndarray:
    """What is in HBM before the first step: of the inputs."""
    places = np.arange(P * F).reshape(P, F)
    return ((places * 7 + (3 if memory.name == "m" else 0)) % 19 - 9).astype(memory.dtype)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes random kernels of the current generation whose iterations share arrays and accumulators.

An iteration reads rows of an input, or rows that others write, forward or backward; computes tiles, perhaps with an
accumulator of all iterations; and writes rows. Values are integers of at most 40, so that sums are exact.
"""

import random

ROWS = 128
OPERATORS = ("nl.add", "nl.subtract", "nl.maximum", "nl.minimum")


class RowLoopWriter:
    """Writes the kernel ``text`` of a seed, for inputs x and y of ``shape``."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.width, self.count = self.random.choice((32, 64, 128, 128)), self.random.choice((4, 6, 9))
        self.shape = self.count * ROWS, self.width
        self.accumulators = [f"sum{k}" for k in range(self.random.randint(0, 2))]
        self.lines: list[str] = []
        self.tiles: list[str] = []
        self.write_kernel()
        self.text = "\n".join(["def kernel(x, y):", *[f"    {line}" for line in self.lines], "    return out", ""])

    def write_kernel(self) -> None:
        self.lines += [f"out = nl.ndarray({self.shape}, dtype=nl.float32, buffer=nl.shared_hbm)",
                       f"shared = nl.ndarray(({ROWS}, {self.width}), dtype=nl.float32, buffer=nl.hbm)",
                       f"ones = {self.allocation(self.width)}", "nisa.memset(dst=ones, value=1.0)",
                       "nisa.dma_copy(dst=shared, src=ones)", f"for i in range({self.count}):",
                       f"    nisa.dma_copy(dst=out[i * {ROWS}:(i + 1) * {ROWS}, :], src=ones)"]
        for name in self.accumulators:
            self.lines += [f"{name} = {self.allocation(self.width)}", f"nisa.memset(dst={name}, value=2.0)"]
        for _ in range(self.random.randint(1, 2)):
            begin, span = len(self.lines), self.random.choice(("range", "nl.sequential_range", "nl.affine_range"))
            self.write_iteration()
            self.lines[begin:] = [f"for i in {span}({self.count}):", *[f"    {line}" for line in self.lines[begin:]]]
        for name in self.accumulators:
            start = self.random.randrange(self.count) * ROWS
            self.lines.append(f"nisa.dma_copy(dst=out[{start}:{start + ROWS}, :], src={name})")

    def write_iteration(self) -> None:
        self.tiles = []
        source = self.random.choice(("x", "x", "y", "out", "shared"))
        last = self.count - 1
        number = self.random.choice((f"(i + {self.random.randrange(3)}) % {self.count}", f"{last} - i", f"i * 2 % {self.count}"))
        below = self.random.choice((0, 0, 0, 16, 64))
        start = "0" if source == "shared" else f"min(({number}) * {ROWS} + {below}, {last * ROWS})"
        self.lines.append(f"start = {start}")
        self.lines.append(f"nisa.dma_copy(dst={self.new_tile()}, src={source}[start:start + {ROWS}, :])")
        for _ in range(self.random.randint(2, 7)):
            self.random.choice((self.write_elementwise, self.write_elementwise, self.write_accumulation, self.write_sums,
                                self.write_transpose, self.write_part, self.write_shared))()
        if self.random.random() < 0.85:
            start = self.random.choice((f"i * {ROWS}", f"i * {ROWS}", f"({last} - i) * {ROWS}", f"min(i * {ROWS} + 16, {last * ROWS})"))
            self.lines += [f"start = {start}", f"nisa.dma_copy(dst=out[start:start + {ROWS}, :], src={self.operand()})"]

    # -- statements ----------------------------------------------------------------------------------------------------
    def write_elementwise(self) -> None:
        data = self.operand(), self.operand()
        self.write_bounded(self.new_tile(), f"nisa.tensor_tensor(dst={{}}, data1={data[0]}, data2={data[1]}, op={self.operator()})")

    def write_accumulation(self) -> None:
        if self.accumulators:
            self.write_bounded(self.random.choice(self.accumulators),
                               f"nisa.tensor_tensor(dst={{0}}, data1={{0}}, data2={self.operand()}, op={self.operator()})")

    def write_sums(self) -> None:
        """Combine a tile with the sums or maxima of rows."""
        data, others = self.operand(), self.operand()
        self.lines.append(f"column = {self.allocation(1)}")
        fold = self.random.choice(("nl.add", "nl.maximum"))
        self.write_bounded("column", f"nisa.tensor_reduce(dst={{}}, op={fold}, data={data}, axis=1)")
        self.write_bounded(self.new_tile(), f"nisa.tensor_scalar(dst={{}}, data={others}, op0={self.operator()}, operand0=column)")

    def write_transpose(self) -> None:
        if self.width == ROWS:
            data = self.operand()
            self.lines += [f"transposed = nl.ndarray(({ROWS}, {ROWS}), dtype=nl.float32, buffer=nl.psum)",
                           f"nisa.nc_transpose(dst=transposed, data={data})",
                           f"nisa.tensor_copy(dst={self.new_tile()}, src=transposed)"]

    def write_part(self) -> None:
        """Copy a tile, and part of another one over its rows or columns."""
        data, others, target = self.operand(), self.operand(), self.new_tile()
        self.lines.append(f"nisa.tensor_copy(dst={target}, src={data})")
        if self.random.random() < 0.5:
            height = self.random.choice((32, 64))
            self.lines.append(f"nisa.tensor_copy(dst={target}[0:{height}, :], src={others}[{ROWS - height}:{ROWS}, :])")
        else:
            half = self.width // 2
            self.lines.append(f"nisa.tensor_copy(dst={target}[:, 0:{half}], src={others}[:, {half}:])")

    def write_shared(self) -> None:
        self.lines.append(f"nisa.dma_copy(dst=shared, src={self.operand()})")

    def write_bounded(self, target: str, statement: str) -> None:
        self.lines += [statement.format(target), f"nisa.tensor_scalar(dst={target}, data={target}, op0=nl.minimum, "
                       "operand0=40.0, op1=nl.maximum, operand1=-40.0)"]

    # -- parts of statements -------------------------------------------------------------------------------------------
    def allocation(self, width: int) -> str:
        return f"nl.ndarray(({ROWS}, {width}), dtype=nl.float32, buffer=nl.sbuf)"

    def new_tile(self) -> str:
        self.tiles.append(f"tile{len(self.tiles)}")
        self.lines.append(f"{self.tiles[-1]} = {self.allocation(self.width)}")
        return self.tiles[-1]

    def operand(self) -> str:
        return self.random.choice((*self.tiles, *self.accumulators))

    def operator(self) -> str:
        return self.random.choice(OPERATORS)

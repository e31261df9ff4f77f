# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random nisa-level code: transfers, arithmetic, products on tiles that overlap in many ways, in loops and branches."""

import random

import numpy as np

from nki_mlir.dialects.nisa.movement import TensorCopyOp
from nki_mlir.scalar.dtypes import INT32
from nki_mlir.targets.neuron.codegen.records import Code, compute
from tests.targets.neuron.code_builder import Builder, run_in_order

ROWS, COLUMNS = 128, 64


class RandomCode:
    """``code`` with its inputs; ``expected`` are the outputs of running it in program order."""

    def __init__(self, seed: int, steps: int = 30, loops: bool = True) -> None:
        self.random = random.Random(seed)
        self.b = Builder()
        self.loops = loops
        self.inputs = [self.b.hbm(f"x{k}", (ROWS, 4 * COLUMNS), "input") for k in range(2)]
        self.output = self.b.hbm("y", (2 * ROWS, 4 * COLUMNS), "output")
        self.scratch = self.b.hbm("scratch", (ROWS, 4 * COLUMNS))
        self.tiles = [self.b.on_chip(f"t{k}", (ROWS, COLUMNS * self.random.choice((1, 1, 2)))) for k in range(4)]
        self.sums = [self.b.on_chip(f"p{k}", (ROWS, COLUMNS), "psum") for k in range(2)]
        self.variables: list = []
        self.b.copy((self.scratch, 0, ROWS, 0, COLUMNS), (self.inputs[0], 0, ROWS, 0, COLUMNS))
        for k in range(1, 4):
            self.b.copy((self.scratch, 0, ROWS, k * COLUMNS, COLUMNS), (self.inputs[1], 0, ROWS, 0, COLUMNS))
        for k, t in enumerate(self.tiles):
            self.b.memset((t, 0, ROWS, 0, t.shape[1]), k)
        for s in self.sums:
            self.b.memset((s, 0, ROWS, 0, COLUMNS), 0.5)
        self.steps(steps)
        for k, t in enumerate(self.tiles):
            self.b.copy((self.output, ROWS, ROWS, k * COLUMNS, COLUMNS), (t, 0, ROWS, 0, COLUMNS))
        self.arrays = [np.random.default_rng(seed + k).integers(-4, 5, x.shape).astype(np.float32)
                       for k, x in enumerate(self.inputs)]

    @property
    def code(self) -> Code:
        return self.b.code

    def expected(self) -> np.ndarray:
        arrays = dict(zip(self.inputs, self.arrays))
        result = np.zeros(self.output.shape, np.float32)
        run_in_order(self.code, {**{b: a.copy() for b, a in arrays.items()}, self.output: result})
        return result

    def steps(self, count: int, depth: int = 0) -> None:
        while count > 0:
            kind = self.random.random()
            if self.loops and depth < 2 and kind < 0.12:
                inner = self.random.randint(1, min(count, 6))
                with self.b.loop(self.random.randint(1, 3), self.random.randint(0, 1), self.random.randint(1, 2)) as i:
                    self.variables.append(i)
                    fresh = self.b.on_chip("f", (ROWS, COLUMNS))
                    self.b.memset((fresh, 0, ROWS, 0, COLUMNS), 1)
                    self.tiles.append(fresh)
                    self.steps(inner, depth + 1)
                    self.tiles.remove(fresh)
                    self.variables.pop()
                count -= inner
            elif self.loops and depth < 2 and kind < 0.18:
                inner = self.random.randint(1, min(count, 6))
                self.counted_at_run_time(inner, depth)
                count -= inner
            elif self.variables and depth < 3 and kind < 0.26:
                variable = self.random.choice(self.variables)
                side = compute("mod", compute("add", variable, self.random.randint(0, 2)), 2)
                with self.b.when(compute(self.random.choice(("eq", "ge")), side, self.random.randint(0, 1))) as branch:
                    self.steps(2, depth + 1)
                if self.random.random() < 0.5:
                    with self.b.otherwise(branch):
                        self.steps(1, depth + 1)
                count -= 3
            else:
                self.instruction()
                count -= 1

    def counted_at_run_time(self, steps: int, depth: int) -> None:
        """A loop that ends by a number in memory; what it is compared with is in memory, or is known."""
        counter, limit = (self.b.on_chip(name, (1, 1), dtype=INT32) for name in ("counter", "limit"))
        one, end = self.b.on_chip("one", (1, 1), dtype=INT32), self.random.randint(0, 3)
        for buffer, value in ((counter, 0), (limit, end), (one, 1)):
            self.b.memset((buffer, 0, 1, 0, 1), value)
        with self.b.while_loop("lt", counter, self.random.choice((limit, end))):
            early = self.random.random() < 0.5
            count = lambda: self.b.add(*[(buffer, 0, 1, 0, 1) for buffer in (counter, counter, one)],
                                       engine=self.random.choice(("vector", "gpsimd")))
            if early:
                count()                 # the engine that counts must not be ahead of those that still load
            self.steps(steps, depth + 1)
            if not early:
                count()

    def start(self, room: int):
        """A start that leaves ``room`` behind it unused: a number, or one that moves with a loop."""
        if self.variables and self.random.random() < 0.5:
            variable = self.random.choice(self.variables)
            by = self.random.choice((variable, compute("mod", variable, 3), compute("floordiv", variable, 2)))
            factor = self.random.choice((1, 2, 4))
            if room >= 6 * factor:
                return self.random.randint(0, room - 6 * factor), {by: factor}
        return self.random.randint(0, max(0, room))

    def part(self, buffer, width, rows=ROWS, strided=False):
        first = 0 if rows == ROWS else self.random.choice((0, 32, 64, 96))
        stride = self.random.choice((1, 2)) if strided and 2 * width <= buffer.shape[1] else 1
        return buffer, first, rows, self.start(buffer.shape[1] - stride * width), width, stride

    def instruction(self) -> None:
        r, b = self.random, self.b
        rows = r.choice((ROWS, ROWS, 32))
        width = r.choice((16, 32, COLUMNS))
        tile = lambda: self.part(r.choice(self.tiles), width, rows, strided=True)
        match r.randrange(8):
            case 0:
                b.copy(tile(), self.part(r.choice(self.inputs), width, rows))
            case 1:
                b.copy(self.part(self.output, width, rows), tile())
            case 2:
                b.copy(self.part(self.scratch, width, rows), tile())
            case 3:
                b.copy(tile(), self.part(self.scratch, width, rows))
            case 4 | 5:
                engine = r.choice(("vector", "gpsimd"))
                b.add(tile(), tile(), tile(), r.choice(("maximum", "minimum", "subtract")), engine)
            case 6:
                b.activation(tile(), tile(), "relu")
            case 7:
                s = r.choice(self.sums)
                if r.random() < 0.6:
                    left, right = r.choice(self.tiles), r.choice(self.tiles)
                    b.matmul((s, 0, COLUMNS, 0, COLUMNS), self.part(left, COLUMNS), self.part(right, COLUMNS),
                             r.random() < 0.3)
                else:
                    b.copy(self.part(r.choice(self.tiles), COLUMNS), (s, 0, ROWS, 0, COLUMNS), TensorCopyOp,
                           engine=r.choice(("vector", "scalar")))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random kernels: loops, conditions, Python state, tiles assigned and accumulated. All executors agree bit for bit."""

import numpy as np
from hypothesis import HealthCheck, given, note
from hypothesis import strategies as st

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl

from ..property_counts import tries
from .conftest import EXECUTORS
from .generated import kernel_from_text
from .running import numbers, run

TILES = ("a", "b", "c")         # float32, bfloat16, float32 in PSUM: all [4, 8]


class Writer:
    """Writes statements; ``draw`` decides."""

    def __init__(self, draw):
        self.draw, self.lines, self.depth, self.budget = draw, [], 1, draw(st.integers(3, 14))
        self.loops: list[str] = []
        self.locals: list[set[str]] = [set()]
        self.count = 0

    def pick(self, *choices):
        return self.draw(st.sampled_from(choices))

    def emit(self, line):
        self.lines.append("    " * self.depth + line)

    def number(self):
        """A Python integer: a constant, a loop variable, or state."""
        choices = [str(self.draw(st.integers(0, 3))), "state", "len(kept)", *self.loops, *(f"{v} % 2" for v in self.loops),
                   *(f"{v} // 2" for v in self.loops), *(f"(2 - {v})" for v in self.loops)]
        return self.pick(*choices)

    def tile(self):
        return self.pick(*TILES, *sorted(set().union(*self.locals)))

    def value(self):
        """An expression of a [4, 8] tile."""
        match self.pick("binary", "number", "function", "load", "part", "copy", "product", "kept"):
            case "binary":
                return f"nl.{self.pick('add', 'subtract', 'maximum')}({self.tile()}, {self.tile()})"
            case "number":
                return f"{self.tile()} {self.pick('+', '-')} {self.number()}"
            case "function":
                return f"nl.{self.pick('minimum', 'maximum')}({self.tile()}, {self.number()}, mask={self.mask()})"
            case "load":
                return f"nl.load(x[nl.ds({self.row()}, 4), 0:8], mask={self.mask()})"
            case "part":
                column = self.draw(st.integers(0, 7))
                return f"({self.tile()} * 0.5 + {self.tile()}[:, {column}])"
            case "copy":
                return f"nl.copy({self.tile()}, dtype=nl.{self.pick('float32', 'bfloat16')})"
            case "product":
                return "nisa.nc_matmul(left, right)"
            case "kept":
                return f"(kept[-1] if kept else {self.tile()})"

    def row(self):
        """A row of x: always in bounds."""
        return self.pick("0", "4", *(f"{v} * 3" for v in self.loops), *(f"{v} % 2 + 1" for v in self.loops))

    def mask(self):
        parts = [f"(p + f < {self.draw(st.integers(0, 11))})", f"(p >= {self.draw(st.integers(0, 3))})",
                 *(f"(f > {v} * 2)" for v in self.loops), *(f"({v} < 2)" for v in self.loops)]
        return self.pick("None", "None", "None", *parts, f"{self.pick(*parts)} & {self.pick(*parts)}")

    def condition(self):
        conditions = [f"{v} {self.pick('<', '>=', '==', '!=')} {self.draw(st.integers(0, 2))}" for v in self.loops]
        both = f"({self.pick(*conditions)}) & ({self.pick(*conditions)})" if conditions else "state > 1"
        return self.pick("state > 1", "len(kept) % 2 == 0", *conditions, both, *(f"{v} % 2" for v in self.loops))

    def block(self, statements=None):
        self.depth += 1
        self.locals.append(set())
        for _ in range(statements or self.draw(st.integers(1, 3))):
            self.statement()
        self.locals.pop()
        self.depth -= 1

    def statement(self):
        if self.budget <= 0:
            return self.emit("pass")
        self.budget -= 1
        nested = ("loop", "loop", "if") if self.depth < 4 else ()
        match self.pick("assign", "assign", "accumulate", "update", "part", "local", "keep", "state", "product", *nested):
            case "assign":
                self.emit(f"{self.pick(*TILES)}[...] = {self.value()}")
            case "accumulate":
                self.emit(f"{self.pick(*TILES)} {self.pick('+=', '-=')} {self.value()}")
            case "update":
                self.emit(f"{self.pick(*TILES)} {self.pick('+=', '-=')} {self.number()}")
            case "part":
                column = self.pick("0", "2", *self.loops)
                self.emit(f"{self.pick(*TILES)}[:, nl.ds({column}, 3)] = {self.tile()}[:, 4:7]")
            case "local":
                self.count += 1
                self.emit(f"t{self.count} = {self.value()}")
                self.locals[-1].add(f"t{self.count}")
            case "keep":
                self.emit(f"kept.append(nl.copy({self.tile()}))")
            case "state":
                self.emit(self.pick("state += 1", "state = 0", *(f"state = {v}" for v in self.loops)))
            case "product":
                self.emit(f"c {self.pick('+=', '[...] =')} nisa.nc_matmul(left, right)")
            case "loop":
                name = f"i{len(self.loops)}_{self.depth}"
                kind = self.pick("nl.sequential_range", "nl.sequential_range", "range", "nl.static_range")
                self.emit(f"for {name} in {kind}({self.draw(st.integers(0, 3))}):")
                self.loops.append(name)
                self.block()
                self.loops.pop()
            case "if":
                self.emit(f"if {self.condition()}:")
                self.block()
                if self.draw(st.booleans()):
                    self.emit("else:")
                    self.block()


HEAD = """
def kernel(x):
    out = nl.ndarray((nl.num_programs(), 3, 4, 8), nl.float32, buffer=nl.shared_hbm)
    pid = nl.program_id(0) if nl.program_ndim() else 0
    p, f = nl.arange(4)[:, None], nl.arange(8)[None, :]
    a, b = nl.zeros((4, 8), nl.float32), nl.full((4, 8), 1.5, nl.bfloat16)
    c = nl.ndarray((4, 8), nl.float32, buffer=nl.psum)
    left, right = nl.load(x[0:4, 0:4]), nl.load(x[4:8, 0:8])
    state, kept = 0, []
"""
TAIL = """
    for n, tile in enumerate((a, b, c)):
        nl.store(out[pid, n], tile)
    return out
"""


@st.composite
def programs(draw, grid=False):
    writer = Writer(draw)
    writer.loops += ["pid"] * grid
    while writer.budget > 0:
        writer.statement()
    return HEAD + "\n".join(writer.lines) + TAIL


def check_agreement(text, grid=None):
    note(text)
    x = numbers(12, 8) % 4
    kernel = kernel_from_text(text, {"nl": nl, "nisa": nisa})
    first, *others = EXECUTORS
    expected = run(first, kernel, x, grid=grid)
    for on in others:
        np.testing.assert_array_equal(run(on, kernel, x, grid=grid), expected, err_msg=on)


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@tries(30, suppress_health_check=SLOW)
@given(programs())
def test_executors_agree(text):
    check_agreement(text)


@tries(12, suppress_health_check=SLOW)
@given(programs(grid=True))
def test_executors_agree__on_a_grid(text):
    check_agreement(text, grid=3)

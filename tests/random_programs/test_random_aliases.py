# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random kernels on arrays that overlap or are not C-contiguous, and large ones.

`make fuzz` tries 2,000 of the first and 60 of the others, other ones each time; the ordinary run the same few.
"""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta.typing import mutable_tensor
from nki_mlir.language.kernel import is_array

from ..aliasing import AliasedKernel, offsets_of
from ..fuzz_time import ending_in_time
from ..language.generated import kernel_from_text
from .beta import BetaWriter
from .comparing import differences, flat
from .current import CurrentWriter
from .test_random_kernels import FUZZ, SEED, beta_kernel, current_kernel, programs

COUNT, PARTS = (2000, 40) if FUZZ else (20, 2)
LARGE = 60 if FUZZ else 3
TOLERANCE = 1e-3            # of functions and sums that the interpreter and native code compute in other orders


def each(writer, part, check):
    @seed((SEED << 8) + part)
    @settings(max_examples=COUNT // PARTS // 2, deadline=None, database=None, derandomize=False,
              suppress_health_check=list(HealthCheck))
    @given(programs(writer), st.integers(0, 1 << 30))
    @ending_in_time
    def run(program, number):
        note(program.text)
        if program.ranks == 1:
            check(program, np.random.default_rng(number))
    run()


def comparable(one, other):
    """Whether bits of both dtypes say how far results differ: the rounding of a float may be anything in another."""
    return one is other or not (one.is_float or other.is_float)


def launched(kernel, program):
    return kernel[program.grid if len(program.grid) > 1 else program.grid[0]] if program.grid else kernel


def overlapping(kernel, program, rng):
    """Two arrays of the kernel, of which one is written, lie at one address, or overlap."""
    bound = kernel.bind(tuple(program.arrays.values()), {}, is_array, kernel.describe)
    aliased = AliasedKernel(kernel.specialize(bound))
    if aliased.native.exchanges_data or not aliased.written or len(aliased.inputs) < 2:
        return
    arrays = {s.name: np.asarray(t) for s, t in zip(bound.specs, bound.tensors)}
    target = int(rng.choice(aliased.written))
    others = [k for k, one in enumerate(aliased.inputs) if k != target and comparable(one.dtype, aliased.inputs[target].dtype)]
    if not others:
        return
    other = int(rng.choice(others))
    for offset in offsets_of(aliased, tuple(sorted((target, other))), rng):
        difference = aliased.difference(tuple(sorted((target, other))), offset, arrays, TOLERANCE)
        assert not difference, f"arrays {target} and {other}, {offset} bytes apart: {difference}"


LAYOUTS = {
    "F": lambda a: np.asfortranarray(a), "backwards": lambda a: a[::-1].copy()[::-1],
    "columns": lambda a: np.repeat(a, 2, axis=-1)[..., ::2], "rows": lambda a: np.repeat(a, 3, axis=0)[1::3],
}


def strided(kernel, program, rng):
    """Arrays that are not C-contiguous give the results of those that are."""
    layouts = [LAYOUTS[str(rng.choice(list(LAYOUTS)))] for _ in program.arrays]
    for on in ("eager", "interpreter", "jit"):
        expected = flat([kernel.on(on)(*(a.copy() for a in program.arrays.values()))])
        got = flat([kernel.on(on)(*(layout(a.copy()) if a.ndim else a.copy()            # kernels write to some
                                    for layout, a in zip(layouts, program.arrays.values())))])
        for one, other, output in zip(got, expected, program.outputs, strict=True):
            assert not (difference := differences(np.asarray(one), np.asarray(other), output)), f"{on}: {difference}"


@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_beta_kernels(part):
    def check(program, rng):
        kernel = launched(beta_kernel(program), program)
        (overlapping if rng.random() < 0.7 else strided)(kernel, program, rng)
    each(BetaWriter, part, check)


@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_current_kernels(part):
    def check(program, rng):
        with patch.dict("os.environ", NEURON_PLATFORM_TARGET_OVERRIDE="trn3"):
            kernel = launched(current_kernel(program), program)
            (overlapping if rng.random() < 0.7 else strided)(kernel, program, rng)
    each(CurrentWriter, part, check)


# -- large kernels -----------------------------------------------------------------------------------------------------
UNARY = {"nl.abs(t)": np.abs, "nl.negative(t)": np.negative, "nl.maximum(t, 1.0)": lambda t: np.maximum(t, 1),
         "nl.minimum(t, 2.0)": lambda t: np.minimum(t, 2), "nl.add(t, 3.0)": lambda t: t + 3,
         "nl.subtract(t, nl.max(t, axis=1, keepdims=True))": lambda t: t - t.max(1, keepdims=True),
         "nl.add(t, nl.sum(nl.sign(t), axis=1, keepdims=True))": lambda t: t + np.sign(t).sum(1, keepdims=True)}
BINARY = {"nl.add(t, u)": np.add, "nl.maximum(t, u)": np.maximum, "nl.subtract(u, t)": lambda t, u: u - t}


class LargeRows:
    """Return a kernel on tiles of 128 rows of x and y, whose result is a new tensor or x; and its meaning in NumPy."""

    def __init__(self, rng):
        self.rows, self.columns = 128 * int(rng.integers(8, 65)), int(rng.integers(1024, 8193))
        if self.rows * self.columns > 1 << 24:
            self.columns = max(1024, (1 << 24) // self.rows)
        self.steps = [str(rng.choice([*UNARY, *BINARY])) for _ in range(rng.integers(1, 6))]
        self.loop = str(rng.choice(["affine_range", "sequential_range"]))
        self.target = str(rng.choice(["out", "x", "y"]))
        self.text = "\n    ".join([
            "def kernel(x: mutable_tensor, y: mutable_tensor):",
            "out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)" if self.target == "out" else
            f"out = {self.target}", f"for i in nl.{self.loop}({self.rows // 128}):",
            "    t, u = nl.load(x[nl.ds(i * 128, 128), :]), nl.load(y[nl.ds(i * 128, 128), :])",
            *(f"    t = {step}" for step in self.steps), "    nl.store(out[nl.ds(i * 128, 128), :], t)", "return out"])

    def values(self, x, y):
        """One tile after the other, in the caller's memory."""
        out = {"out": np.zeros_like(x), "x": x, "y": y}[self.target]
        for i in range(0, self.rows, 128):
            t, u = x[i:i + 128].copy(), y[i:i + 128].copy()
            for step in self.steps:
                t = UNARY[step](t) if step in UNARY else BINARY[step](t, u)
            out[i:i + 128] = t
        return out


@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(LARGE))
def test_large_rows(number):
    """Of 1,024 to 8,192 rows and columns; x and y lie apart, are one array, or overlap."""
    rng = np.random.default_rng([SEED, number])
    program = LargeRows(rng)
    size = program.rows * program.columns
    start = int(rng.choice([0, 0, program.columns, 1, 128 * program.columns, size // 2, size]))
    memory = rng.integers(-3, 4, size + start).astype(np.float32)
    expected = memory.copy()

    def views(memory):
        parts = memory[:size], memory[start:]
        return [p.reshape(program.rows, program.columns) for p in (parts if number % 2 else parts[::-1])]
    wanted = program.values(*views(expected)).copy()
    kernel = kernel_from_text(program.text, {"nl": nl, "nisa": nisa, "mutable_tensor": mutable_tensor})
    got = kernel.on("jit")(*views(memory))
    np.testing.assert_array_equal(got, wanted, program.text)
    np.testing.assert_array_equal(memory, expected, program.text)

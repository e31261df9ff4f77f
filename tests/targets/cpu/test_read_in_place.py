# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles that are read where the kernel's array has them: which are, and that values are those of tiles."""

import re

import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta.typing import mutable_tensor
from nki_mlir.targets.cpu.lowering import listing
from nki_mlir.targets.cpu.pipeline import PIPELINE
from tests.language.generated import kernel_from_text

from .compiled import set_options

RNG = np.random.default_rng(0)
EDGES = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40, -1e-40], np.float32)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    set_options(monkeypatch, "forward-copies", least=64)


def numbers(*shape):
    """Return small integers, every seventh replaced by an edge value such as NaN or -0."""
    x = RNG.integers(-4, 5, shape).astype(np.float32)
    x.flat[::7] = np.resize(EDGES, x.flat[::7].size)
    return x


def program(kernel, *arguments):
    return listing(kernel.lower(*arguments).module("nisa")).split("module {")[0]


def copies(kernel, *arguments):
    """Return the number of copies of the array in the program."""
    return len(re.findall(r"copy_\w+\(x\b", program(kernel, *arguments)))


def same_as_interpreter(kernel, *arguments):
    """Return the kernel's result, which must be the interpreter's."""
    result, expected = (kernel.on(where)(*arguments) for where in ("jit", "interpreter"))
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))
    return result


@nki.jit
def centered(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // 2
    for i in nl.affine_range(2):
        tile = nl.load(x[nl.ds(i * rows, rows), :])
        highest = nl.max(tile, axis=1, keepdims=True)
        nl.store(out[nl.ds(i * rows, rows), :], nl.maximum(nl.abs(tile) - highest, tile))
    return out


@pytest.mark.parametrize("shape", [(256, 64), (2, 1023), (254, 1025), (6, 4096)])
def test_a_tile_that_is_only_read__is_not_copied(shape):
    x = numbers(*shape)
    same_as_interpreter(centered, x)
    assert copies(centered, x) == 0


@nki.jit
def pooled(x):
    rows, height, width = x.shape
    out = nl.ndarray((rows, height // 2, width // 2), dtype=x.dtype, buffer=nl.shared_hbm)
    c, i, di, j, dj = nl.mgrid[0:rows, 0:height // 4, 0:2, 0:width // 2, 0:2]
    for k in nl.affine_range(2):
        tile = nl.load(x[:, nl.ds(k * (height // 2), height // 2), :])
        highest = nl.max(tile[c, i * 2 + di, j * 2 + dj], axis=[2, 4])
        nl.store(out[:, nl.ds(k * (height // 4), height // 4), :], highest)
    return out


@pytest.mark.parametrize("shape", [(128, 16, 64), (3, 8, 34), (1, 24, 66)])
def test_a_tile_whose_rows_lie_further_apart_in_the_array(shape):
    """The nest reads neighboring rows of the tile as one axis."""
    x, (rows, height, width) = numbers(*shape), shape
    result = same_as_interpreter(pooled, x)
    np.testing.assert_array_equal(result, x.reshape(rows, height // 2, 2, width // 2, 2).max((2, 4)))
    assert copies(pooled, x) == 0


@nki.jit
def in_pieces(x):
    """Compute maxima of a quarter of the columns, which a loop variable selects."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, width = nl.load(x), x.shape[1] // 4
    highest = nl.ndarray((x.shape[0], 4), dtype=x.dtype, buffer=nl.sbuf)
    for k in nl.affine_range(4):
        highest[:, nl.ds(k, 1)] = nl.max(tile[:, nl.ds(k * width, width)], axis=1, keepdims=True)
    nl.store(out, nl.maximum(tile, nl.max(highest, axis=1, keepdims=True)))
    return out


def test_parts_of_a_tile_that_loops_go_over():
    x = numbers(128, 2048)
    same_as_interpreter(in_pieces, x)
    assert copies(in_pieces, x) == 0


@nki.jit
def columns(x):
    """Read columns of a wider array twice."""
    out = nl.ndarray((x.shape[0], 64), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[:, 64:128])
    nl.store(out, nl.maximum(nl.abs(tile) - nl.max(tile, axis=1, keepdims=True), tile))
    return out


@nki.jit
def updated(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    highest = nl.max(tile, axis=1, keepdims=True)
    tile[:, 0:64] = nl.abs(tile[:, 0:64])
    nl.store(out, nl.maximum(tile, highest))
    return out


@nki.jit
def squared(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(out, nl.add(nl.matmul(tile, tile, transpose_x=True), tile))
    return out


@pytest.mark.parametrize("kernel, x", [
    (columns, numbers(128, 256)), (updated, numbers(128, 128)),
    (squared, RNG.integers(-4, 5, (128, 128)).astype(np.float32)),
])
def test_tiles_that_cannot_be_read_in_place__are_copied(kernel, x):
    """The pass leaves short pieces far apart, a tile that is written again, and factors of a product."""
    same_as_interpreter(kernel, x)
    assert copies(kernel, x) >= 1


# -- arrays that a kernel updates --------------------------------------------------------------------------------------
@nki.trace
def shifted(x, out):
    tile = nl.load(x)
    nl.store(out, nl.maximum(tile[:, 0:64], tile[:, 1:65]))


@nki.trace
def reversed_rows(x, out):
    """Compute the first rows of the result from the last ones of the tile, and the last ones from the first."""
    tile = nl.load(x)
    highest = nl.max(tile, axis=1, keepdims=True)
    nl.store(out[64:128, :], nl.maximum(nl.abs(tile[64:128, :]), highest[64:128, :]))
    nl.store(out[0:64, :], nl.maximum(nl.abs(tile[0:64, :]), highest[0:64, :]))


@nki.trace
def one_before_one_behind(x, out):
    """Write the output when the tile of a has no further reader, but that of b has."""
    a = nl.load(x[0:64, :])
    b = nl.load(x[64:128, :])
    highest = nl.maximum(nl.max(a, axis=1, keepdims=True), nl.max(nl.abs(a), axis=1, keepdims=True))
    nl.store(out[0:64, :], nl.minimum(b, highest))
    nl.store(out[64:128, :], nl.maximum(b, 1.0))


@nki.trace
def updated_between(x, out):
    tile = nl.load(x)
    nl.store(x, nl.multiply(tile, 2.0))
    nl.store(out, nl.maximum(tile, 0.0))


def after(kernel, where, x, out):
    kernel.on(where)(x, out)
    return x, out


@pytest.mark.parametrize("kernel, columns", [(shifted, 65), (reversed_rows, 1024), (updated_between, 1024),
                                             (one_before_one_behind, 1024)])
def test_arrays_that_lie_apart(kernel, columns):
    x = numbers(128, columns)
    out = np.empty((128, 64 if kernel is shifted else columns), np.float32)
    for result, expected in zip(*(after(kernel, where, x.copy(), out.copy()) for where in ("jit", "interpreter"))):
        np.testing.assert_array_equal(result, expected)


def test_tiles_of_which_one_is_not_needed_any_more():
    text = program(one_before_one_behind, numbers(128, 1024), np.empty((128, 1024), np.float32))
    assert re.findall(r"copy_\w+\(x( \+ \d+)?", text) == []
    memory = numbers(128, 1024)
    a, b = memory[:64].copy(), memory[64:].copy()
    highest = np.maximum(a.max(1, keepdims=True), abs(a).max(1, keepdims=True))
    one_before_one_behind.on("jit")(memory, memory)
    np.testing.assert_array_equal(memory, np.concatenate([np.minimum(b, highest), np.maximum(b, 1)]) + np.float32(0))


@pytest.mark.parametrize("offset", [0, 1, 63, 64, 65, 128 * 65 - 1, 128 * 65])
def test_arrays_that_overlap(offset):
    """The kernel reads the values that the array had before the kernel wrote to the other array, wherever that begins.
    """
    memory = numbers(128 * 65 + 128 * 65 + 64)

    def parts(memory):
        return memory[:128 * 65].reshape(128, 65), memory[offset:offset + 128 * 64].reshape(128, 64)
    expected = memory.copy()
    x, out = parts(expected)
    out[...] = np.maximum(x[:, :64].copy(), x[:, 1:].copy()) + np.float32(0)
    shifted.on("jit")(*parts(memory))
    np.testing.assert_array_equal(memory, expected)


def test_small_tiles__are_copied(monkeypatch):
    assert copies(in_pieces, numbers(4, 64)) == 0
    set_options(monkeypatch, "forward-copies", least=257)
    assert copies(in_pieces, numbers(4, 64)) == 1


def test_an_array_that_is_written_before_the_last_use__is_copied(monkeypatch):
    """One walk could read each element before it is written."""
    monkeypatch.delitem(PIPELINE, "join-nests")
    assert copies(updated_between, numbers(128, 1024), np.empty((128, 1024), np.float32)) == 1


@nki.jit
def updated_in_a_loop(x: mutable_tensor):
    out = nl.ndarray((4, 128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for i in nl.sequential_range(4):
        nl.store(out[i], nl.multiply(tile, 2.0))
        nl.store(x, nl.full((128, 64), 7.0, dtype=x.dtype))
    return out, x


@nki.jit
def used_behind_the_loop(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.sequential_range(4):
        tile[...] = nl.load(x[i])
    nl.store(out, nl.multiply(tile, 2.0))
    return out


@nki.jit
def used_behind_the_branch(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.sequential_range(4):
        if i < 2:
            tile[...] = nl.load(x[i])
        nl.store(out, nl.multiply(tile, 2.0))
    return out


@nki.jit
def used_in_a_loop_inside(x):
    out = nl.ndarray((2, 128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.sequential_range(4):
        tile = nl.load(x[i])
        for k in nl.sequential_range(2):
            nl.store(out[k], nl.multiply(tile, 2.0))
    return out


@pytest.mark.parametrize("kernel, shape, copied", [
    (updated_in_a_loop, (128, 64), 1), (used_behind_the_loop, (4, 128, 64), 1),
    (used_behind_the_branch, (4, 128, 64), 1), (used_in_a_loop_inside, (4, 128, 64), 0)])
def test_loops(kernel, shape, copied):
    assert copies(kernel, np.zeros(shape, np.float32)) == copied
    x = numbers(*shape)
    result, expected = (kernel.on(where)(x.copy()) for where in ("jit", "interpreter"))
    for one, other in zip(*(outputs if isinstance(outputs, tuple) else (outputs,) for outputs in (result, expected))):
        np.testing.assert_array_equal(one, other)


@nki.trace
def another_updated_in_a_loop(x, out):
    tile = nl.load(x)
    for i in nl.sequential_range(4):
        nl.store(out[i], nl.multiply(tile, 2.0))


def test_arrays_that_overlap__in_a_loop():
    memory = numbers(4 * 128 * 64)
    expected = memory.copy()
    expected.reshape(4, 128, 64)[...] = expected[:128 * 64].reshape(128, 64) * 2
    another_updated_in_a_loop.on("jit")(memory[:128 * 64].reshape(128, 64), memory.reshape(4, 128, 64))
    np.testing.assert_array_equal(memory, expected)


class RandomNest:
    """The text of a kernel whose loops load, use and update parts of x; the kernel also uses a tile behind its loop."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.lines, self.loaded, self.slots = [], [], 0
        self.block(1, [])
        self.use(1, [])
        tiles = [f"t{k} = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)" for k in range(len(self.loaded))]
        self.text = "\n    ".join([
            "def kernel(x: mutable_tensor):", "x[0, 0:1, 0:1] = nl.load(x[0, 0:1, 0:1])",
            f"out = nl.ndarray(({4 * self.slots}, 128, 64), dtype=x.dtype, buffer=nl.shared_hbm)", *tiles, *self.lines,
            "return out, x"])

    def block(self, depth, variables):
        for _ in range(self.rng.integers(3, 6)):
            kind = self.rng.choice(["load", "use", "use", "update", "loop"]) if self.loaded else "load"
            if kind == "loop" and depth < 4:
                self.line(depth, f"for i{depth} in nl.sequential_range({self.rng.integers(2, 5)}):")
                self.block(depth + 1, [*variables, f"i{depth}"])
            elif kind == "load":
                self.line(depth, f"t{len(self.loaded)}[...] = nl.load(x[{self.part(variables)}])")
                self.loaded.append(f"t{len(self.loaded)}")
            elif kind == "update":
                self.line(depth, f"nl.store(x[{self.part(variables)}], nl.add({self.rng.choice(self.loaded)}, 1.0))")
            else:
                self.use(depth, variables)

    def use(self, depth, variables):
        at = f"{4 * self.slots} + {variables[-1]}" if variables else f"{4 * self.slots}"
        self.line(depth, f"nl.store(out[{at}], nl.multiply({self.rng.choice(self.loaded)}, 2.0))")
        self.slots += 1

    def part(self, variables):
        """Return a quarter of x, a fixed one or that of a loop's iteration."""
        fixed = self.rng.integers(0, 4)
        return str(fixed) if not variables or self.rng.random() < 0.4 else self.rng.choice(variables)

    def line(self, depth, text):
        self.lines.append("    " * (depth - 1) + text)


@pytest.mark.share(3)
@pytest.mark.filterwarnings("ignore:.* never written")
@pytest.mark.parametrize("seed", range(60))
def test_random_loops_that_update_what_they_read(seed):
    nest = RandomNest(seed)
    kernel = kernel_from_text(nest.text, {"nl": nl, "mutable_tensor": mutable_tensor})
    x = numbers(4, 128, 64)
    for result, expected in zip(*(kernel.on(where)(x.copy()) for where in ("jit", "interpreter"))):
        np.testing.assert_array_equal(result, expected, nest.text)

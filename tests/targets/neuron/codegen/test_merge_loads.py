# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Merged loads: which, that values stay under every order, and that each condition is needed."""

import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nki_mlir.cli.source import load_kernel
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen import merge_loads as tested
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.merge_loads import merge_loads
from nki_mlir.targets.neuron.codegen.records import Code, steps_in
from nki_mlir.targets.neuron.simulator import simulate
from tests.targets.neuron.code_builder import Builder, run_in_order

ROOT = Path(__file__).parent.parent.parent.parent.parent
ROWS, WIDTH, TILES = 64, 32, 6


class Mixture:
    """Loads of tiles of x, of a tensor that stores change, and of both, into separate buffers or one, in rising or
    other orders or the same one again, some of them while the destination is in use, and sums of the tiles."""

    def __init__(self, seed: int, groups: int = 6) -> None:
        r = random.Random(seed)
        self.b = b = Builder()
        self.x = b.hbm("x", (ROWS, TILES * WIDTH), "input")
        self.y = b.hbm("y", (ROWS, groups * TILES * WIDTH), "output")
        changed = b.hbm("z", (ROWS, TILES * WIDTH))
        first = b.on_chip("first", (ROWS, TILES * WIDTH))
        b.copy((first, 0, ROWS, 0, TILES * WIDTH), (self.x, 0, ROWS, 0, TILES * WIDTH))
        b.copy((changed, 0, ROWS, 0, TILES * WIDTH), (first, 0, ROWS, 0, TILES * WIDTH))
        for g in range(groups):
            kind = r.choice(("rising", "rising", "falling", "apart", "again", "changed", "reused", "both"))
            wide = b.on_chip(f"w{g}", (ROWS, TILES * WIDTH)) if r.random() < 0.4 else None
            reused = b.on_chip(f"r{g}", (ROWS, WIDTH))
            total = b.on_chip(f"t{g}", (ROWS, WIDTH))
            b.memset((total, 0, ROWS, 0, WIDTH), 0.0)
            several = []
            for k in range(TILES):
                if kind == "reused":
                    tile = reused, 0, ROWS, 0, WIDTH
                elif wide is not None:
                    tile = wide, 0, ROWS, k * WIDTH, WIDTH
                else:
                    tile = b.on_chip(f"s{g}_{k}", (ROWS, WIDTH)), 0, ROWS, 0, WIDTH
                start = {"falling": TILES - 1 - k, "apart": 2 * k % TILES, "again": 1}.get(kind, k)
                source = changed if kind == "changed" or (kind == "both" and k % 2) else self.x
                b.copy(tile, (source, 0, ROWS, start * WIDTH, WIDTH))
                if kind == "changed":
                    b.copy((changed, 0, ROWS, (k + 1) % TILES * WIDTH, WIDTH), tile)
                if kind == "reused":
                    b.add((total, 0, ROWS, 0, WIDTH), (total, 0, ROWS, 0, WIDTH), tile)
                several.append(tile)
            for k, tile in enumerate(several):
                b.add((total, 0, ROWS, 0, WIDTH), (total, 0, ROWS, 0, WIDTH), tile, ("add", "subtract")[k % 2])
                b.copy((self.y, 0, ROWS, (g * TILES + k) * WIDTH, WIDTH), (total, 0, ROWS, 0, WIDTH))
        open_triggers(b.code)
        self.array = np.random.default_rng(seed).integers(-9, 9, self.x.shape).astype(np.float32)

    def result(self) -> np.ndarray:
        y = np.zeros(self.y.shape, np.float32)
        run_in_order(self.b.code, {self.x: self.array.copy(), self.y: y})
        return y


def open_triggers(code: Code) -> None:
    """Leave to the compiler which engines trigger transfers."""
    for step in steps_in(code.body):
        if isinstance(step.op, DmaCopyOp):
            step.op.engine = "unknown"


def stays(seed: int, run: Callable[[Code], int]) -> bool:
    mixture = Mixture(seed)
    expected = mixture.result()
    run(mixture.b.code)
    return np.array_equal(mixture.result(), expected)


def test_values__stay() -> None:
    merged = 0
    for seed in range(60):
        merged += merge_loads(Mixture(seed).b.code)
        assert stays(seed, merge_loads), seed
    assert merged > 100


@pytest.mark.parametrize("old, new", [
    ("len(starts) <= TOGETHER and ", ""), ("starts == sorted(set(starts))", "starts == sorted(starts)"),
    ("len(starts) <= TOGETHER and ", "len(starts) <= TOGETHER or ")])
def test_each_condition__is_needed(old: str, new: str) -> None:
    """Without one of them, or with either of them, more loads are merged."""
    source = Path(tested.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1
    faulty = ModuleType("faulty")
    exec(source.replace(old, new).replace('name="merge-loads"', 'name=""'), faulty.__dict__)

    def differs(seed: int) -> bool:
        return not stays(seed, faulty.merge_loads) or (
            faulty.merge_loads(Mixture(seed).b.code) != merge_loads(Mixture(seed).b.code))
    assert any(differs(seed) for seed in range(60))


@pytest.mark.parametrize("seed", range(4))
def test_streams__compute_the_same_in_any_order(seed: int) -> None:
    expected = Mixture(seed).result()
    mixture = Mixture(seed)
    assert merge_loads(mixture.b.code)
    program = emit_code(mixture.b.code, Emission())
    for scheduler in range(4):
        y = np.zeros_like(expected)
        simulate(program, [mixture.array.copy()], [y], scheduler)
        np.testing.assert_array_equal(y, expected)


def test_search__merges_loads_where_triggers_take_long() -> None:
    """A product whose tiles are all loaded one by one before its loops."""
    kernel = load_kernel(str(ROOT / "examples/matmul_walk.py:loaded_once"), "trn2")
    arguments = [np.zeros((1024, 2048), np.float16)] * 2
    specialization = kernel.lower(*arguments).specialization
    times = [neuron.timed(neuron.streams(specialization.captured, specialization.grid, options)).total_ns
             for options in (Emission(), Emission(merge_loads=False))]
    assert times[0] < times[1]

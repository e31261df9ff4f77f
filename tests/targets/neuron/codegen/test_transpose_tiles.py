# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The DMA engines transpose tiles on chip: which, that values stay, and that each condition is needed."""

import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.cli.source import load_kernel
from nki_mlir.dialects.nisa.matmul import NcTransposeOp
from nki_mlir.dialects.nisa.movement import DmaTransposeOp, TensorCopyOp
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen import transpose_tiles as tested
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.records import Code, blocks, steps_in
from nki_mlir.targets.neuron.codegen.transpose_tiles import those_that_stay, transpose_tiles
from nki_mlir.targets.neuron.simulator import simulate
from tests.targets.neuron.code_builder import Builder, run_in_order

ROOT = Path(__file__).parent.parent.parent.parent.parent
SIDE, PARTS = 64, 3


class Mixture:
    """Groups of transposes into PSUM with a copy to SBUF behind them. In some groups another instruction reads the tile
    in PSUM, or writes it or the source, the parts are exchanged, overlap or are in several buffers, or the copy reads a
    part or converts."""

    def __init__(self, seed: int, groups: int = 6) -> None:
        r = random.Random(seed)
        self.b = b = Builder()
        self.x = b.hbm("x", (SIDE, (PARTS + 1) * SIDE), "input")
        self.y = b.hbm("y", (SIDE, groups * 2 * PARTS * SIDE), "output")
        self.shared = []
        for g in range(groups):
            count = r.choice((1, 2, PARTS))
            width = count * SIDE
            kind = r.choice(("plain", "plain", "plain", "late", "read", "written", "source", "exchanged", "spread",
                             "buffers", "part", "copied", "converted", "looped"))
            dtype = BFLOAT16 if r.random() < 0.3 and kind != "converted" else FLOAT32
            source = b.on_chip(f"x{g}", (SIDE, (PARTS + 1) * SIDE), dtype=dtype)
            other = b.on_chip(f"o{g}", (SIDE, (PARTS + 1) * SIDE), dtype=dtype)
            raw = b.on_chip(f"r{g}", (SIDE, (PARTS + 1) * SIDE))
            every = 0, SIDE, 0, (PARTS + 1) * SIDE
            b.copy((raw, *every), (self.x, *every))
            b.tensor_copy((source, *every), (raw, *every))
            b.add((raw, *every), (raw, *every), (raw, *every))
            b.tensor_copy((other, *every), (raw, *every))
            bank = b.on_chip(f"p{g}", (SIDE, width), "psum", dtype)
            tile = b.on_chip(f"t{g}", (SIDE, width), dtype=FLOAT32 if kind != "converted" else BFLOAT16)
            if kind != "converted":
                tile = b.on_chip(f"t{g}", (SIDE, width), dtype=dtype)
            starts = [k * SIDE if kind != "spread" else k * (k + 1) // 2 * SIDE // 2 for k in range(count)]
            for k in range(count):
                if kind == "copied" and k:
                    b.tensor_copy((bank, 0, SIDE, k * SIDE, SIDE), (source, 0, SIDE, k * SIDE, SIDE))
                    continue
                reads = other if kind == "buffers" and k else source
                b.copy((bank, 0, SIDE, (count - 1 - k if kind == "exchanged" else k) * SIDE, SIDE),
                       (reads, 0, SIDE, starts[k], SIDE), NcTransposeOp, engine="tensor")
            if kind == "source":
                b.tensor_copy((source, *every), (other, *every))
            if kind == "written":
                b.tensor_copy((bank, 0, SIDE, 0, SIDE), (other, 0, SIDE, 0, SIDE))
            if kind == "looped":
                with b.loop(2):
                    b.tensor_copy((tile, 0, SIDE, 0, width), (bank, 0, SIDE, 0, width))
            elif kind == "part" and count > 1:
                b.memset((tile, 0, SIDE, 0, width), 3.0)
                b.tensor_copy((tile, 0, SIDE, 0, width - SIDE), (bank, 0, SIDE, SIDE, width - SIDE))
            else:
                b.tensor_copy((tile, 0, SIDE, 0, width), (bank, 0, SIDE, 0, width))
            results = [tile]
            if kind == "read":
                again = b.on_chip(f"a{g}", (SIDE, width), dtype=dtype)
                b.add((again, 0, SIDE, 0, width), (bank, 0, SIDE, 0, width), (tile, 0, SIDE, 0, width))
                results.append(again)
            for k, result in enumerate(results):
                stored = b.on_chip(f"s{g}_{k}", (SIDE, width))
                b.tensor_copy((stored, 0, SIDE, 0, width), (result, 0, SIDE, 0, width))
                b.copy((self.y, 0, SIDE, (2 * g + k) * PARTS * SIDE, width), (stored, 0, SIDE, 0, width))
            open_engines(b.code)
        self.array = np.random.default_rng(seed).standard_normal(self.x.shape).astype(np.float32)

    def result(self) -> np.ndarray:
        y = np.zeros(self.y.shape, np.float32)
        run_in_order(self.b.code, {self.x: self.array.copy(), self.y: y})
        return y


def open_engines(code: Code) -> None:
    """Leave the engines of copies and of transposes to the compiler."""
    for step in steps_in(code.body):
        if isinstance(step.op, (NcTransposeOp, TensorCopyOp)):
            step.op.engine = "unknown"


def stays(seed: int, run: Callable[[Code], int]) -> bool:
    """Return whether values stay, and whether exactly the buffers that are used are allocated."""
    mixture = Mixture(seed)
    expected, code = mixture.result(), mixture.b.code
    run(code)
    allocated = {buffer for block in blocks(code.body) for buffer in block.buffers}
    used = {tile.handle for step in steps_in(code.body) for _, tile in step.op.operands()}
    return used - {mixture.x, mixture.y} <= allocated and np.array_equal(mixture.result(), expected)


def test_values__stay() -> None:
    replaced = 0
    for seed in range(60):
        replaced += transpose_tiles(Mixture(seed).b.code)
        assert stays(seed, transpose_tiles), seed
    assert replaced > 100


@pytest.mark.parametrize("old, new", [
    ("not bank.free or list(bank.readers) != [copy]", "not bank.readers"),
    ("if any(first < position.get(step, -1) < k for step in source.writers):", "if not source:"),
    ("op.src.access.free.const != first.src.access.free.const + number * distance", "False"),
    ("any(op.src.handle is not first.src.handle for op in transposes)", "False"),
    ("part.access.free.const == number * rows", "number >= 0"),
    ("0 <= position.get(step, -1) < k or not is_transpose(step)", "0 <= position.get(step, -1) < k")])
def test_each_condition__is_needed(old: str, new: str) -> None:
    source = Path(tested.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1
    faulty = ModuleType("faulty")
    exec(source.replace(old, new).replace('name="transpose-tiles"', 'name=""'), faulty.__dict__)

    def fails(seed: int) -> bool:
        try:
            return not stays(seed, faulty.transpose_tiles)
        except (ArithmeticError, AttributeError, LookupError, ValueError):
            return True
    assert any(fails(seed) for seed in range(60))


@pytest.mark.parametrize("seed", range(4))
def test_streams__compute_the_same_in_any_order(seed: int) -> None:
    expected = Mixture(seed).result()
    mixture = Mixture(seed)
    assert transpose_tiles(mixture.b.code)
    program = emit_code(mixture.b.code, Emission())
    for scheduler in range(4):
        y = np.zeros_like(expected)
        simulate(program, [mixture.array.copy()], [y], scheduler)
        np.testing.assert_array_equal(y, expected)


def transposes(count: int, target: str = "trn2", engine: str = "unknown") -> Builder:
    """Transpose tiles one by one into PSUM, each of which a copy evicts."""
    b = Builder(target)
    x, y = b.hbm("x", (SIDE, count * SIDE), "input"), b.hbm("y", (SIDE, count * SIDE), "output")
    wide = b.on_chip("wide", (SIDE, count * SIDE))
    b.copy((wide, 0, SIDE, 0, count * SIDE), (x, 0, SIDE, 0, count * SIDE))
    for k in range(count):
        bank = b.on_chip(f"p{k}", (SIDE, SIDE), "psum"), 0, SIDE, 0, SIDE
        tile = b.on_chip(f"t{k}", (SIDE, SIDE)), 0, SIDE, 0, SIDE
        b.copy(bank, (wide, 0, SIDE, k * SIDE, SIDE), NcTransposeOp, engine="tensor")
        b.tensor_copy(tile, bank)
        b.copy((y, 0, SIDE, k * SIDE, SIDE), tile)
    if engine == "unknown":
        open_engines(b.code)
    return b


def by_dma(code: Code) -> list[bool]:
    """Return for each transpose whether the DMA engines execute it."""
    return [isinstance(step.op, DmaTransposeOp) for step in steps_in(code.body)
            if isinstance(step.op, (DmaTransposeOp, NcTransposeOp))]


def test_percent__says_how_many_are_replaced() -> None:
    b = transposes(20)
    assert transpose_tiles(b.code, percent=50) == 10
    assert by_dma(b.code) == [*[True] * 5, False, *[True] * 5, *[False], *[False] * 8]
    assert not any(buffer.space == "psum" for number, buffer in enumerate(b.code.body.buffers) if number < 5)


def test_those_that_stay__are_the_last_and_evenly_distributed() -> None:
    assert those_that_stay(4, 100) == set()
    assert those_that_stay(4, 0) == {0, 1, 2, 3}
    assert those_that_stay(100, 90) == {45, 91, *range(92, 100)}
    for count in range(1, 60):
        for percent in range(0, 101, 5):
            assert len(those_that_stay(count, percent)) == count - count * percent // 100


def test_engines_of_the_kernel__and_targets_without_such_transposes__keep_them() -> None:
    assert transpose_tiles(transposes(3, engine="tensor").code) == 0
    assert transpose_tiles(transposes(3, target="trn1").code) == 0
    assert transpose_tiles(transposes(3).code) == 3


@pytest.mark.parametrize("address", [None, (0, 0)])
def test_sources_at_addresses_of_the_kernel__and_results_without_transposes__stay(address: tuple[int, int] | None
                                                                                  ) -> None:
    """Another buffer of the kernel may have the address before the copy; and nothing writes the second tile."""
    b = Builder()
    y = b.hbm("y", (SIDE, SIDE), "output")
    source, tile = b.on_chip("x", (SIDE, SIDE), address=address), b.on_chip("t", (SIDE, SIDE))
    bank, unwritten = b.on_chip("p", (SIDE, SIDE), "psum"), b.on_chip("q", (SIDE, SIDE), "psum")
    every = 0, SIDE, 0, SIDE
    b.memset((source, *every), 1.0)
    b.copy((bank, *every), (source, *every), NcTransposeOp, engine="tensor")
    b.tensor_copy((tile, *every), (bank, *every))
    b.copy((y, *every), (tile, *every))
    b.tensor_copy((tile, *every), (unwritten, *every))
    open_engines(b.code)
    assert transpose_tiles(b.code) == (address is None)


def test_search__lets_the_dma_engines_transpose_where_others_are_busy() -> None:
    """Attention has the same bits with and without, and takes less time with transposes in the DMA engines."""
    kernel = load_kernel(str(ROOT / "bench/calibration/fused.py:attention"), "trn2")
    arguments = list(np.random.default_rng(0).standard_normal((3, 128, 1024)).astype(ml_dtypes.bfloat16))
    specialization = kernel.lower(*arguments).specialization
    results, times, numbers = [], [], []
    for options in (Emission(), Emission(transpose_tiles=False)):
        program, = neuron.streams(specialization.captured, specialization.grid, options)
        result = np.zeros((1024, 128), ml_dtypes.bfloat16)
        neuron.simulate([program], [x.copy() for x in arguments], [result])
        results.append(result.tobytes())
        times.append(neuron.timed([program]).total_ns)
        numbers.append(sum(isinstance(i.op, DmaTransposeOp) for stream in program.streams.values() for i in stream))
    assert results[0] == results[1]
    assert times[0] < times[1]
    assert numbers[0] > 0 == numbers[1]


def test_results_over_their_own_source__stay() -> None:
    """A transfer would read elements that it has overwritten."""
    b = Builder()
    source, bank = b.on_chip("x", (SIDE, SIDE)), b.on_chip("p", (SIDE, SIDE), "psum")
    every = 0, SIDE, 0, SIDE
    b.memset((source, *every), 1.0)
    b.copy((bank, *every), (source, *every), NcTransposeOp, engine="tensor")
    b.tensor_copy((source, *every), (bank, *every))
    open_engines(b.code)
    assert transpose_tiles(b.code) == 0

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups of transposes on the tensor engine: values under every order, which move, and that the engine is faster."""

import random
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.cli.source import load_kernel
from nki_mlir.dialects.nisa.matmul import NcMatmulOp, NcTransposeOp
from nki_mlir.dialects.nisa.movement import DmaTransposeOp
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.checker import check_streams
from nki_mlir.targets.neuron.codegen.dependences import RunDependences
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.group_transposes import group_transposes
from nki_mlir.targets.neuron.codegen.records import blocks, steps_in
from nki_mlir.targets.neuron.simulator import simulate
from tests.targets.neuron.code_builder import Builder, run_in_order

ROOT = Path(__file__).parent.parent.parent.parent.parent
SIDE = 64
ALL = 0, SIDE, 0, SIDE


class Mixture:
    """Tiles of x, each transposed by the tensor engine or as it is loaded, and a product. Some transpose the product
    before, some share their tiles and banks with those before, some are in a loop, and some write a part of a tile."""

    def __init__(self, seed: int, groups: int = 8) -> None:
        r = random.Random(seed)
        self.b = b = Builder()
        self.x = b.hbm("x", (SIDE, groups * SIDE), "input")
        self.y = b.hbm("y", (SIDE, groups * SIDE), "output")
        shared = [b.on_chip(f"{name}", (SIDE, SIDE), space) for name, space in zip("abcd", ("sbuf", "psum") * 2)]
        product = b.on_chip("first", (SIDE, SIDE))
        b.copy((product, *ALL), (self.x, *ALL))
        for g in range(groups):
            kind = r.choice(("plain", "plain", "loaded", "loaded", "part", "product", "shared", "looped"))
            rows, bank, tile, result = shared if kind == "shared" else [
                b.on_chip(f"{name}{g}", (SIDE, SIDE), space)
                for name, space in zip(("x", "p", "t", "r"), ("sbuf", "psum", "sbuf", "psum"))]
            if kind == "loaded":
                b.copy((tile, *ALL), (self.x, 0, SIDE, g * SIDE, SIDE), DmaTransposeOp, permutation=(1, 0))
            elif kind == "part":
                b.memset((tile, *ALL), 1.0)
                first, count = r.choice(((0, 32), (5, 32), (32, 32)))
                b.copy((tile, first, count, 0, SIDE), (self.x, 0, SIDE, g * SIDE, count), DmaTransposeOp,
                       permutation=(1, 0))
            elif kind == "looped":
                with b.loop(2):
                    b.copy((rows, *ALL), (self.x, 0, SIDE, g * SIDE, SIDE))
                    b.copy((bank, *ALL), (rows, *ALL), NcTransposeOp)
                    b.tensor_copy((tile, *ALL), (bank, *ALL))
            else:
                b.copy((rows, *ALL), (self.x, 0, SIDE, g * SIDE, SIDE))
                if kind == "product":
                    b.add((rows, *ALL), (rows, *ALL), (product, *ALL))
                b.copy((bank, *ALL), (rows, *ALL), NcTransposeOp)
                b.tensor_copy((tile, *ALL), (bank, *ALL))
            b.matmul((result, *ALL), (tile, *ALL), (tile, *ALL))
            product = b.on_chip(f"s{g}", (SIDE, SIDE))
            b.tensor_copy((product, *ALL), (result, *ALL))
            b.copy((self.y, 0, SIDE, g * SIDE, SIDE), (product, *ALL))
        self.array = np.random.default_rng(seed).integers(-2, 3, self.x.shape).astype(np.float32)

    def result(self) -> np.ndarray:
        y = np.zeros(self.y.shape, np.float32)
        run_in_order(self.b.code, {self.x: self.array.copy(), self.y: y})
        return y


@pytest.mark.parametrize("together", [1, 2, 3, 32])
def test_values__stay_in_program_order(together: int) -> None:
    changed = 0
    for seed in range(20):
        mixture = Mixture(seed)
        expected = mixture.result()
        changed += group_transposes(mixture.b.code, together)
        np.testing.assert_array_equal(mixture.result(), expected)
        allocated = {buffer for block in blocks(mixture.b.code.body) for buffer in block.buffers}
        used = {tile.handle for step in steps_in(mixture.b.code.body) for _, tile in step.op.operands()}
        assert used - {mixture.x, mixture.y} <= allocated
    assert changed > 100


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", [Emission(group_transposes=False), Emission(reorder=False)], ids=["search", "order"])
def test_values__stay_under_every_scheduler(seed: int, options: Emission) -> None:
    mixture = Mixture(seed)
    expected = mixture.result()
    assert group_transposes(mixture.b.code, 4)
    program = emit_code(mixture.b.code, options)
    assert check_streams([program]).violations == []
    for scheduler in (None, *range(4)):
        output = np.zeros_like(expected)
        simulate(program, [mixture.array.copy()], [output], scheduler)
        np.testing.assert_array_equal(output, expected)


def test_transposes__come_before_the_products_of_their_group() -> None:
    b = Builder()
    x = b.hbm("x", (SIDE, 6 * SIDE), "input")
    for k in range(6):
        rows, bank, tile, result = [b.on_chip(f"{name}{k}", (SIDE, SIDE), space)
                                    for name, space in zip("xptr", ("sbuf", "psum", "sbuf", "psum"))]
        b.copy((rows, *ALL), (x, 0, SIDE, k * SIDE, SIDE))
        b.copy((bank, *ALL), (rows, *ALL), NcTransposeOp)
        b.tensor_copy((tile, *ALL), (bank, *ALL))
        b.matmul((result, *ALL), (tile, *ALL), (tile, *ALL))
    before = [step.op for step in b.code.body.nodes]
    earlier = RunDependences().of(before).lists
    assert group_transposes(b.code, 4)
    after = [step.op for step in b.code.body.nodes]
    assert "".join({NcTransposeOp: "t", NcMatmulOp: "p"}.get(type(op), "") for op in after) == "ttttppppttpp"
    position = {op: at for at, op in enumerate(after)}
    assert all(position[before[other]] < position[op] for op, others in zip(before, earlier) for other in others)
    assert not group_transposes(b.code, 4)


@pytest.mark.parametrize("arguments", [{"ahead": 1}, {"ahead": 8}, {"ahead": 32, "loaded": True}],
                         ids=["one by one", "by eight", "loaded"])
def test_products_of_64_rows__reach_full_speed(arguments: dict[str, int]) -> None:
    """At half speed they take twice as long; ``ahead`` says how many tiles the kernel transposes before products."""
    kernel = load_kernel(str(ROOT / "bench/calibration/variants.py:batched"), "trn2")
    x, y = np.zeros((1, 4096, 64), np.float32), np.zeros((1, 64, 2048), np.float32)
    captured = kernel.lower(x, y, **arguments).specialization.captured
    alone, grouped, written = [neuron.timed(neuron.streams(captured, (), options)).total_ns for options in (
        Emission(group_transposes=False), Emission(), Emission.as_written())]
    assert grouped <= min(alone, written)
    assert grouped < 0.8 * alone

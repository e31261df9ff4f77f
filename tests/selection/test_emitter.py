# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions on tiles anywhere: the values of NumPy, and only what the engines reach, cut to the sizes they take."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.access import HBM, PSUM, SBUF, Linear, Tile, full_tile
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.dialects.nisa.elementwise import TensorTensorOp
from nki_mlir.dialects.op import NisaOp
from nki_mlir.machine import Engine, machine_named
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.selection.emitter import Emitter
from nki_mlir.targets.interpreter.module import compile_function

P, F = 128, 130
BUFFERS = ("a", "b", "r")
HBM_TYPE = f'memref<{P}x{F}xf32, "hbm">'
TEXT = (f'module attributes {{nki.target = "trn2"}} {{ func.func @k({", ".join(f"%{n}: {HBM_TYPE}" for n in BUFFERS[:2])}, '
        f'%r: {HBM_TYPE} {{nki.shared = 0 : i64}}) attributes {{nki.results = [2]}} {{ return }} }}')


def drawn_dims(random: np.random.Generator, counts: tuple[int, ...], repeats: bool) -> tuple[int, list[tuple[int, int]]]:
    """Return the first element and the steps of a tile in a row; some dims repeat if ``repeats``."""
    order, span, steps = random.permutation(len(counts)), 1, [0] * len(counts)
    for axis in order:
        if repeats and random.integers(4) == 0:
            continue
        steps[axis] = span
        span *= counts[axis]
    return int(random.integers(F - span + 1)), list(zip(steps, counts))


def drawn_tile(random: np.random.Generator, buffer: Tile, counts: tuple[int, ...], repeats: bool) -> Tile:
    partitions, *free = counts
    start, dims = drawn_dims(random, tuple(free), repeats)
    step = 2 if buffer.space != HBM and 2 * partitions <= P and random.integers(4) == 0 else 1
    if repeats and random.integers(5) == 0:
        step = 0
    first = int(random.choice([0, 32, 64, 5])) % (P - max(1, step) * (partitions - 1))
    if buffer.space == HBM:
        return buffer.patterned(free=Linear(first * F + start), dims=((step * F, partitions), *dims))
    return buffer.patterned(partition=Linear(first), free=Linear(start), dims=((step, partitions), *dims))


def elements(array: np.ndarray, tile: Tile) -> np.ndarray:
    """Return the numbers of a tile's elements in the array of its buffer."""
    access = tile.access
    at = np.full((), access.free.const + (access.partition.const * F if access.partition is not None else 0))
    for axis, (step, count) in enumerate(access.dims):
        at = at[..., None] + np.arange(count) * (step * F if axis == 0 and access.partition is not None else step)
    return at


@pytest.mark.parametrize("part", range(2))
def test_instructions_on_tiles_anywhere(part):
    small = replace(machine_named("trn2"), free_dims_max=2, psum_elements_max=12, sbuf_elements_max=30)
    for seed in range(part * 20, part * 20 + 20):
        random = np.random.default_rng(seed)
        machine = small if seed % 2 else machine_named("trn2")
        counts = (int(random.choice([1, 4, 32, 50])), *map(int, random.choice([1, 2, 3, 5], 3)))
        spaces = [str(random.choice([SBUF, PSUM])) for _ in BUFFERS]
        engine = Engine.VECTOR if seed % 3 else Engine.GPSIMD
        with shared_context(), ir.Location.unknown():
            module = ir.Module.parse(TEXT)
            block = module.body.operations[0].regions[0].blocks[0]
            emitter = Emitter(machine)
            emitter.at(block.operations[0].operation, (), (), {})
            outside = [full_tile(argument, (P, F), FLOAT32, HBM) for argument in block.arguments]
            inside = [emitter.buffer((P, F), FLOAT32, space) for space in spaces]
            for target, source in zip(inside, outside):
                emitter.copy(target, source)
            lhs, rhs, dst = (drawn_tile(random, tile, counts, k < 2) for k, tile in enumerate(inside))
            written: list[NisaOp] = []
            emitter.write = lambda op: (written.append(op), Emitter.write(emitter, op))[1]
            if seed % 5:
                emitter.emit(TensorTensorOp, engine, dst=dst, lhs=lhs, rhs=rhs, op="subtract")
            else:
                emitter.copy(dst, lhs)
            operations = list(written)
            emitter.copy(outside[2], inside[2])
        arrays = [random.standard_normal((P, F)).astype(np.float32) for _ in BUFFERS]
        expected = arrays[2].copy()
        values = [array.ravel()[elements(array, tile)] for array, tile in zip(arrays, (lhs, rhs))]
        expected.ravel()[elements(expected, dst)] = values[0] - values[1] if seed % 5 else values[0]
        result = arrays[2].copy()
        run_passes(module, [pass_named("verify-target")])
        compile_function(the_kernel(module))((), arrays[:2], [result])
        np.testing.assert_array_equal(result, expected, str(seed))
        computing = [op for op in operations if isinstance(op, TensorTensorOp)]
        for op in computing:
            for _, tile in op.operands():
                limit = machine.psum_elements_max if tile.space == PSUM else machine.sbuf_elements_max
                assert emitter.reachable(tile) and prod(tile.shape[1:]) <= limit
            assert sum(n > 1 for n in op.dst.shape[1:]) <= machine.free_dims_max
            assert op.runs_on is engine
        if machine is not small and seed % 5:
            assert len(computing) == 1
            if all(emitter.reachable(tile) and tile.space == SBUF for tile in (lhs, rhs, dst)):
                assert len(operations) == 1

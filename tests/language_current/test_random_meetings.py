# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random kernels of two cores that share memory and exchange tiles, on every executor against NumPy.

They have no races, so that instruction streams have the same values in every order.
"""

import random

import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.targets.neuron import lowered
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_cores
from nki_mlir.targets.neuron.simulator import simulate_cores

from .running import numbers, run

BUFFERS, ROWS, COLUMNS = 3, 8, 12
ENGINES = ("gpsimd", "vector", "scalar")


def plan_of(seed, length=14):
    """Steps; a buffer is read by the other core after a barrier behind its write, and written again after another."""
    rng = random.Random(seed)
    state = ["free"] * BUFFERS
    steps = []
    while len(steps) < length:
        k = rng.randrange(BUFFERS)
        match rng.choice(("shared", "shared", "exchange", "compute")), state[k]:
            case "exchange", _:
                steps.append(("exchange", rng.randrange(2), rng.random() < 0.5))
            case "compute", _:
                steps.append(("compute", rng.randint(1, 3)))
            case _, "free":
                steps.append(("write", k))
                state[k] = "written"
            case _, "written" | "read":
                steps.append(("barrier", k, rng.choice(ENGINES)))
                state[k] = "readable" if state[k] == "written" else "free"
            case _, _:
                steps.append(("read", k))
                state[k] = "read"
    return steps


def kernel_of(steps):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        buffers = [nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=f"buffer{k}") for k in range(BUFFERS)]
        i = nl.program_id(0)
        mine, others = slice(i * ROWS, i * ROWS + ROWS), slice((1 - i) * ROWS, (1 - i) * ROWS + ROWS)
        tile = nl.load(x[mine])
        for step in steps:
            match step:
                case "write", k:
                    nl.store(buffers[k][mine], tile)
                case "barrier", k, engine:
                    nisa.core_barrier(buffers[k], (0, 1), engine=getattr(nisa.engine, engine))
                case "read", k:
                    tile = nl.add(tile, nl.load(buffers[k][others]))
                case "exchange", pipe, by_gpsimd:
                    came = nl.ndarray(tile.shape, tile.dtype)
                    engine = nisa.dma_engine.gpsimd_dma if by_gpsimd else nisa.dma_engine.dma
                    nisa.sendrecv(tile, came, 1 - i, 1 - i, pipe, dma_engine=engine)
                    tile = nl.subtract(came, tile)
                case "compute", n:
                    tile = nl.add(tile, float(n + i))
        nl.store(out[mine], tile)
        return out
    return kernel


def expected_of(steps, x):
    tiles = [x[:ROWS].copy(), x[ROWS:].copy()]
    stored = {}
    for step in steps:
        match step:
            case "write", k:
                stored[k] = list(tiles)
            case "read", k:
                tiles = [tiles[i] + stored[k][1 - i] for i in range(2)]
            case "exchange", *_:
                tiles = [tiles[1] - tiles[0], tiles[0] - tiles[1]]
            case "compute", n:
                tiles = [tiles[i] + (n + i) for i in range(2)]
    return np.concatenate(tiles)


X = numbers(2 * ROWS, COLUMNS)


@pytest.mark.parametrize("seed", range(6))
def test_values(on, seed):
    steps = plan_of(seed)
    np.testing.assert_array_equal(run(on, kernel_of(steps), X, cores=2), expected_of(steps, X))


@pytest.mark.parametrize("seed", range(6))
def test_every_order_of_the_streams(seed):
    steps = plan_of(seed + 100)
    kernel = nki.jit(kernel_of(steps))[2]
    spec = kernel.specialize(kernel.bind((X,), {}, is_array, describe_array))
    modules = lowered(spec.captured)
    for reorder in (True, False):
        programs = emit_cores(modules, spec.grid, Emission(reorder=reorder))
        for order in range(12):
            shared = [np.zeros(s.shape, s.dtype.numpy) for s in spec.shared]
            simulate_cores(programs, [X], shared, order)
            np.testing.assert_array_equal(shared[spec.results[0].shared], expected_of(steps, X))

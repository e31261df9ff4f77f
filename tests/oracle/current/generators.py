# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random numbers (instructions, section 4.3): no bits are documented, so tests do not compare the values (open 25)."""

from typing import Any

import numpy as np

from ..program import current
from .enums import engine
from .operands import Instruction, floats, operand, put, rows
from .tensor import NkiTensor


def generator(name: str = "vector") -> np.random.Generator:
    return current().state.setdefault(f"generator of {name}", np.random.default_rng(current().number))


def chosen(dst: NkiTensor, values: np.ndarray, wrap: bool = False) -> Instruction:
    """Write values of a generator, and mark the tile so that tests do not compare what depends on it."""
    dst.random = True
    return put(dst, values, wrap=wrap)


def shape_of(dst: NkiTensor) -> tuple[int, int]:
    return dst.shape[0], dst.size // dst.shape[0]


def engine_of(chosen: Any, usual: str) -> str:
    return usual if chosen.name == "unknown" else chosen.name


def rng(dst: NkiTensor, engine: Any = engine.vector, name: str | None = None) -> Instruction:
    """4.3: random bits."""
    return chosen(dst, generator(engine_of(engine, "vector")).integers(0, 1 << 32, shape_of(dst)), wrap=True)


def rand2(dst: NkiTensor, min: Any, max: Any, name: str | None = None) -> Instruction:
    """4.3: uniform between two numbers."""
    low, high = operand(min), operand(max)
    return chosen(dst, (low + generator().random(shape_of(dst)) * (high - low)).astype(np.float32))


def dropout(dst: NkiTensor, data: NkiTensor, prob: Any, name: str | None = None) -> Instruction:
    """4.3: 0 with a probability; the other elements are not scaled."""
    values, probability = rows(data), operand(prob)
    dropped = generator().random(values.shape) < probability
    if not ((probability > 0) & (probability < 1)).any():
        return put(dst, np.where(dropped, np.zeros((), values.dtype), values))
    return chosen(dst, np.where(dropped, np.float32(0), floats(data)))


def set_rng_seed(src_seeds: NkiTensor, name: str | None = None) -> Instruction:
    """4.3: the same seed gives the same numbers."""
    current().state["generator of vector"] = np.random.default_rng(abs(int(rows(src_seeds)[0, 0])))
    return Instruction()


def rand_set_state(src_seeds: NkiTensor, engine: Any = engine.gpsimd, name: str | None = None) -> Instruction:
    """4.3: set a state, from rand_get_state or any other."""
    seeds = [int(n) & 0xFFFFFFFF for n in rows(src_seeds).reshape(-1)]
    current().state[f"generator of {engine_of(engine, 'gpsimd')}"] = np.random.default_rng(seeds)
    return Instruction()


def rand_get_state(dst: NkiTensor, engine: Any = engine.gpsimd, name: str | None = None) -> Instruction:
    """4.3: numbers from which the generator goes on."""
    chosen_engine = engine_of(engine, "gpsimd")
    seeds = generator(chosen_engine).integers(0, 1 << 32, shape_of(dst))
    current().state[f"generator of {chosen_engine}"] = np.random.default_rng(seeds.reshape(-1).tolist())
    return chosen(dst, seeds, wrap=True)

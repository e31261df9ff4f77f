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
    """Write random bits (4.3)."""
    return chosen(dst, generator(engine_of(engine, "vector")).integers(0, 1 << 32, shape_of(dst)), wrap=True)


def rand2(dst: NkiTensor, min: Any, max: Any, name: str | None = None) -> Instruction:
    """Write numbers that are uniform between two numbers (4.3)."""
    low, high = operand(min), operand(max)
    return chosen(dst, (low + generator().random(shape_of(dst)) * (high - low)).astype(np.float32))


def dropout(dst: NkiTensor, data: NkiTensor, prob: Any, name: str | None = None) -> Instruction:
    """Replace elements by 0 with a probability; the other elements are not scaled (4.3)."""
    values, probability = rows(data), operand(prob)
    dropped = generator().random(values.shape) < probability
    if not ((probability > 0) & (probability < 1)).any():
        return put(dst, np.where(dropped, np.zeros((), values.dtype), values))
    return chosen(dst, np.where(dropped, np.float32(0), floats(data)))


def set_rng_seed(src_seeds: NkiTensor, name: str | None = None) -> Instruction:
    """Seed the generator: the same seed gives the same numbers (4.3)."""
    current().state["generator of vector"] = np.random.default_rng(abs(int(rows(src_seeds)[0, 0])))
    return Instruction()


def rand_set_state(src_seeds: NkiTensor, engine: Any = engine.gpsimd, name: str | None = None) -> Instruction:
    """Set a state that rand_get_state returned, or any other (4.3)."""
    seeds = [int(n) & 0xFFFFFFFF for n in rows(src_seeds).reshape(-1)]
    current().state[f"generator of {engine_of(engine, 'gpsimd')}"] = np.random.default_rng(seeds)
    return Instruction()


def rand_get_state(dst: NkiTensor, engine: Any = engine.gpsimd, name: str | None = None) -> Instruction:
    """Write numbers from which the generator continues (4.3)."""
    chosen_engine = engine_of(engine, "gpsimd")
    seeds = generator(chosen_engine).integers(0, 1 << 32, shape_of(dst))
    current().state[f"generator of {chosen_engine}"] = np.random.default_rng(seeds.reshape(-1).tolist())
    return chosen(dst, seeds, wrap=True)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scatters of any dimension numbers, compiled, against their definition in NumPy."""

import random
from dataclasses import dataclass

import numpy as np
import pytest

from nki_mlir.frameworks.stablehlo import run_linked

COMBINED = {"add": np.add, "maximum": np.maximum, "subtract": np.subtract}


@dataclass
class Scatter:
    """Dimension numbers as StableHLO has them, shapes that fit, and indices of which some are outside."""

    operand: tuple[int, ...]
    indices: np.ndarray
    updates: tuple[int, ...]
    windows: list[int]
    inserted: list[int]
    batching: list[int]
    indices_batching: list[int]
    scattered: list[int]
    vector: int

    @classmethod
    def drawn(cls, rng: random.Random) -> "Scatter":
        rank = rng.randint(1, 3)
        operand = tuple(rng.randint(2, 4) for _ in range(rank))
        batching = sorted(rng.sample(range(rank), rng.choice([0, 0, 1]))) if rank > 1 else []
        others = [d for d in range(rank) if d not in batching]
        scattered = rng.sample(others, rng.randint(1, len(others)))
        inserted = sorted(d for d in others if rng.random() < 0.6)
        walked = [*(operand[d] for d in batching), *(rng.randint(1, 3) for _ in range(rng.randint(0, 1)))]
        vector = rng.randint(0, len(walked))
        shape = [*walked[:vector], len(scattered), *walked[vector:]]
        indices = np.array([rng.randint(-1, 4) for _ in range(int(np.prod(shape)))], np.int32).reshape(shape)
        window = [rng.randint(1, operand[d]) for d in others if d not in inserted]
        windows = sorted(rng.sample(range(len(walked) + len(window)), len(window)))
        sizes, outer = iter(window), iter(walked)
        updates = tuple(next(sizes if d in windows else outer) for d in range(len(walked) + len(window)))
        return cls(operand, indices, updates, windows, inserted, batching,
                   [d + (d >= vector) for d in range(len(batching))], scattered, vector)

    def result(self, target: np.ndarray, updates: np.ndarray, fn: str) -> np.ndarray:
        """The definition, element by element, in order."""
        target = target.copy()
        window_dims = [d for d in range(target.ndim) if d not in (*self.inserted, *self.batching)]
        for at in np.ndindex(*self.updates):
            outer = [n for d, n in enumerate(at) if d not in self.windows]
            index = [0] * target.ndim
            for k, d in enumerate(self.scattered):
                index[d] += int(self.indices[(*outer[:self.vector], k, *outer[self.vector:])])
            dims = [d for d in range(self.indices.ndim) if d != self.vector]
            for d, dim in zip(self.batching, self.indices_batching):
                index[d] += outer[dims.index(dim)]
            for d, window in zip(window_dims, self.windows):
                index[d] += at[window]
            if all(0 <= n < extent for n, extent in zip(index, target.shape)):
                target[tuple(index)] = COMBINED[fn](target[tuple(index)], updates[at])
        return target

    def text(self, fn: str) -> str:
        operand, updates = (f"tensor<{'x'.join([*map(str, s), 'f32'])}>" for s in (self.operand, self.updates))
        indices = f"tensor<{'x'.join(map(str, self.indices.shape))}xi32>"
        return f"""func.func @main(%x: {operand}, %i: {indices}, %u: {updates}) -> {operand} {{
  %r = "stablehlo.scatter"(%x, %i, %u) ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.{fn} %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }}) {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {self.windows},
      inserted_window_dims = {self.inserted}, input_batching_dims = {self.batching},
      scatter_indices_batching_dims = {self.indices_batching}, scatter_dims_to_operand_dims = {self.scattered},
      index_vector_dim = {self.vector}>}} : ({operand}, {indices}, {updates}) -> {operand}
  return %r : {operand}
}}"""


@pytest.mark.parametrize("seed", range(8))
def test_scatters_of_any_dimension_numbers(seed):
    rng, values = random.Random(seed), np.random.default_rng(seed)
    scatter, fn = Scatter.drawn(rng), rng.choice(sorted(COMBINED))
    target, updates = (values.integers(-9, 9, s).astype(np.float32) for s in (scatter.operand, scatter.updates))
    got, = run_linked(scatter.text(fn), [target, scatter.indices, updates])
    np.testing.assert_array_equal(got, scatter.result(target, updates, fn))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scatters and gathers of any dimension numbers, compiled and as streams, against their definition in NumPy."""

import random
from dataclasses import dataclass

import numpy as np
import pytest

from nki_mlir.frameworks.stablehlo import run_linked

from .lowered_graph import results_of

COMBINED = {"add": np.add, "maximum": np.maximum, "subtract": np.subtract, "": lambda old, new: new}


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
        is_implicit = len(scattered) == 1 and vector == len(walked) and rng.random() < 0.5
        shape = walked if is_implicit else [*walked[:vector], len(scattered), *walked[vector:]]
        indices = np.array([rng.randint(-1, 4) for _ in range(int(np.prod(shape)))], np.int32).reshape(shape)
        window = [rng.randint(1, operand[d]) for d in others if d not in inserted]
        windows = sorted(rng.sample(range(len(walked) + len(window)), len(window)))
        sizes, outer = iter(window), iter(walked)
        updates = tuple(next(sizes if d in windows else outer) for d in range(len(walked) + len(window)))
        return cls(operand, indices, updates, windows, inserted, batching,
                   [d + (d >= vector) for d in range(len(batching))], scattered, vector)

    def number(self, outer: list[int], k: int) -> int:
        """A number of the index at a position of the dims of indices that are not their vector."""
        is_implicit = self.vector == self.indices.ndim
        return int(self.indices[tuple(outer) if is_implicit else (*outer[:self.vector], k, *outer[self.vector:])])

    def result(self, target: np.ndarray, updates: np.ndarray, fn: str) -> np.ndarray:
        """The definition, element by element, in order; windows that do not fit into the target are skipped."""
        target = target.copy()
        window_dims = [d for d in range(target.ndim) if d not in (*self.inserted, *self.batching)]
        sizes = {d: self.updates[w] for d, w in zip(window_dims, self.windows)}
        for at in np.ndindex(*self.updates):
            outer = [n for d, n in enumerate(at) if d not in self.windows]
            start = [0] * target.ndim
            for k, d in enumerate(self.scattered):
                start[d] += self.number(outer, k)
            dims = [d for d in range(self.indices.ndim) if d != self.vector]
            for d, dim in zip(self.batching, self.indices_batching):
                start[d] += outer[dims.index(dim)]
            if all(0 <= n <= extent - sizes.get(d, 1) for d, (n, extent) in enumerate(zip(start, target.shape))):
                offsets = {d: at[w] for d, w in zip(window_dims, self.windows)}
                index = tuple(n + offsets.get(d, 0) for d, n in enumerate(start))
                target[index] = COMBINED[fn](target[index], updates[at])
        return target

    def gathered(self, table: np.ndarray) -> np.ndarray:
        """The definition of the gather with the same numbers: windows start where they fit."""
        result = np.zeros(self.updates, table.dtype)
        positions = np.arange(table.size).reshape(table.shape)
        for at in np.ndindex(*self.updates):
            outer = [n for d, n in enumerate(at) if d not in self.windows]
            window_dims = [d for d in range(table.ndim) if d not in (*self.inserted, *self.batching)]
            offsets = {d: at[w] for d, w in zip(window_dims, self.windows)}
            sizes = {d: self.updates[w] for d, w in zip(window_dims, self.windows)}
            dims = [d for d in range(self.indices.ndim) if d != self.vector]
            start = {d: outer[dims.index(dim)] for d, dim in zip(self.batching, self.indices_batching)}
            for k, d in enumerate(self.scattered):
                start[d] = min(max(self.number(outer, k), 0), table.shape[d] - sizes.get(d, 1))
            index = tuple(start.get(d, 0) + offsets.get(d, 0) for d in range(table.ndim))
            result[at] = table.flat[positions[index]]
        return result

    def gather_text(self) -> str:
        table, result = (f"tensor<{'x'.join([*map(str, s), 'f32'])}>" for s in (self.operand, self.updates))
        indices = f"tensor<{'x'.join([*map(str, self.indices.shape), 'i32'])}>"
        window_dims = [d for d in range(len(self.operand)) if d not in (*self.inserted, *self.batching)]
        sizes = {d: self.updates[w] for d, w in zip(window_dims, self.windows)}
        slices = ", ".join(str(sizes.get(d, 1)) for d in range(len(self.operand)))
        return f"""func.func @main(%x: {table}, %i: {indices}) -> {result} {{
  %r = "stablehlo.gather"(%x, %i) {{dimension_numbers = #stablehlo.gather<offset_dims = {self.windows},
      collapsed_slice_dims = {self.inserted}, operand_batching_dims = {self.batching},
      start_indices_batching_dims = {self.indices_batching}, start_index_map = {self.scattered},
      index_vector_dim = {self.vector}>, slice_sizes = array<i64: {slices}>}} : ({table}, {indices}) -> {result}
  return %r : {result}
}}"""

    def text(self, fn: str) -> str:
        operand, updates = (f"tensor<{'x'.join([*map(str, s), 'f32'])}>" for s in (self.operand, self.updates))
        indices = f"tensor<{'x'.join([*map(str, self.indices.shape), 'i32'])}>"
        return f"""func.func @main(%x: {operand}, %i: {indices}, %u: {updates}) -> {operand} {{
  %r = "stablehlo.scatter"(%x, %i, %u) ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    {f"%c = stablehlo.{fn} %a, %b : tensor<f32>" if fn else ""}
    stablehlo.return {"%c" if fn else "%b"} : tensor<f32>
  }}) {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {self.windows},
      inserted_window_dims = {self.inserted}, input_batching_dims = {self.batching},
      scatter_indices_batching_dims = {self.indices_batching}, scatter_dims_to_operand_dims = {self.scattered},
      index_vector_dim = {self.vector}>}} : ({operand}, {indices}, {updates}) -> {operand}
  return %r : {operand}
}}"""


@pytest.mark.parametrize("seed", range(12))
def test_scatters_of_any_dimension_numbers(seed):
    rng, values = random.Random(seed), np.random.default_rng(seed)
    scatter, fn = Scatter.drawn(rng), rng.choice(sorted(COMBINED))
    target, updates = (values.integers(-9, 9, s).astype(np.float32) for s in (scatter.operand, scatter.updates))
    arguments, expected = [target, scatter.indices, updates], scatter.result(target, updates, fn)
    np.testing.assert_array_equal(run_linked(scatter.text(fn), arguments)[0], expected)
    np.testing.assert_array_equal(results_of(scatter.text(fn), arguments, orders=(1,))[0], expected)


@pytest.mark.parametrize("seed", range(12))
def test_gathers_of_any_dimension_numbers(seed):
    gather, values = Scatter.drawn(random.Random(seed)), np.random.default_rng(seed)
    table = values.integers(-9, 9, gather.operand).astype(np.float32)
    arguments, expected = [table, gather.indices], gather.gathered(table)
    np.testing.assert_array_equal(run_linked(gather.gather_text(), arguments)[0], expected)
    np.testing.assert_array_equal(results_of(gather.gather_text(), arguments, orders=(1,))[0], expected)


@pytest.mark.parametrize("dtype, index", [("ui8", 200), ("ui16", 130), ("ui32", 255), ("ui32", 4000000000)])
def test_unsigned_indices(dtype, index):
    """A gather takes the last row for an index beyond all rows, a scatter skips it."""
    x = np.arange(512, dtype=np.float32).reshape(256, 2)
    indices = np.array([[3], [index]], dtype.replace("ui", "uint"))
    scattered, rows = x.copy(), np.minimum(indices[:, 0], 255)
    scattered[[row for row in indices[:, 0] if row < 256]] += 1
    text = f"""func.func @main(%x: tensor<256x2xf32>, %i: tensor<2x1x{dtype}>) -> (tensor<2x2xf32>, tensor<256x2xf32>) {{
  %rows = "stablehlo.gather"(%x, %i) {{dimension_numbers = #stablehlo.gather<offset_dims = [1],
      collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 2>}}
      : (tensor<256x2xf32>, tensor<2x1x{dtype}>) -> tensor<2x2xf32>
  %ones = stablehlo.constant dense<1.0> : tensor<2x2xf32>
  %r = "stablehlo.scatter"(%x, %i, %ones) ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }}) {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}
      : (tensor<256x2xf32>, tensor<2x1x{dtype}>, tensor<2x2xf32>) -> tensor<256x2xf32>
  return %rows, %r : tensor<2x2xf32>, tensor<256x2xf32>
}}"""
    for results in (run_linked(text, [x, indices]), results_of(text, [x, indices], orders=(1,))):
        np.testing.assert_array_equal(results[0], x[rows])
        np.testing.assert_array_equal(results[1], scattered)

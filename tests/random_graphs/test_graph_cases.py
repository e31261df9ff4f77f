# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The graphs of bench/cases/graphs.py: streams have the bits of the interpreter in every order, and values near JAX's.

`make fuzz` runs all at full size with other numbers and orders each time, the ordinary run two that are smaller.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from ..graph.lowered_graph import results_of  # noqa: E402
from .trials import FUZZ, SEED  # noqa: E402

FILE = Path(__file__).parent.parent.parent / "bench" / "cases" / "graphs.py"
spec = importlib.util.spec_from_file_location("cases_of_graphs", FILE)
graphs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(graphs)

SMALL = {
    "layer_small": graphs.Case(lambda *a: graphs.layer(*a, heads=2), [(72, 64), *graphs.weights(64)]),
    "decode_small": graphs.Case(graphs.decode, [(1, 64), *graphs.weights(64), *[(4, 40, 16)] * 2, ()],
                                (graphs.BF16,) * 9 + (graphs.I32,)),
}
CASES = graphs.CASES if FUZZ else SMALL
# bfloat16 results are compared with those of float32: each of a chain of intermediate results is rounded.
TOLERANCES = {2: 0.04, 4: 1e-4}

pytestmark = [pytest.mark.jax, pytest.mark.filterwarnings("ignore")]


def arrays(case):
    """Random arguments: weights whose products keep the size of values, and small integers."""
    draw = np.random.default_rng(SEED)
    dtypes = case.dtypes if isinstance(case.dtypes, tuple) else (case.dtypes,) * len(case.shapes)
    for number, (shape, dtype) in enumerate(zip(case.shapes, map(np.dtype, dtypes), strict=True)):
        if dtype.kind == "i":
            yield draw.integers(0, 32, shape).astype(dtype)
        else:
            scale = shape[-2] ** -0.5 if number and len(shape) == 2 else 1
            yield np.asarray(draw.standard_normal(shape) * scale).astype(dtype)


def in_float32(array):
    return array if array.dtype.kind == "i" else array.astype(np.float32)


@pytest.mark.fuzz
@pytest.mark.parametrize("name", CASES)
def test_streams__have_the_bits_of_the_interpreter_in_every_order(name):
    case = CASES[name]
    arguments = list(arrays(case))
    got = results_of(graphs.stablehlo(case), arguments, orders=(None, SEED + 1, SEED + 2))
    expected = jax.tree_util.tree_leaves(jax.jit(case.function)(*map(in_float32, arguments)))
    for one, other in zip(got, expected, strict=True):
        other = np.asarray(other, np.float32)
        error = np.abs(one.astype(np.float32) - other).max() / np.abs(other).max()
        assert one.shape == other.shape and error <= TOLERANCES[one.dtype.itemsize], error

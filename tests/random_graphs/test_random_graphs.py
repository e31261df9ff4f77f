# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random JAX functions with kernels: what JAX computes, the linked program of the CPU and its instruction streams agree.

`make fuzz` tries 600 of them, other ones each time; NKI_MLIR_FUZZ_SEED repeats a run. The ordinary run tries the same 4.
"""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from nki_mlir.diagnostics import Unsupported  # noqa: E402
from nki_mlir.frameworks.jax import export_checks  # noqa: E402
from nki_mlir.frameworks.stablehlo import LinkedProgram, simulate_linked  # noqa: E402

from . import kernels  # noqa: E402
from .rules import RULES  # noqa: E402
from .trials import FUZZ, try_graphs  # noqa: E402

GRAPHS, PARTS = (600, 30) if FUZZ else (2, 2)

pytestmark = [pytest.mark.jax, pytest.mark.filterwarnings("ignore")]


def function_of(graph):
    names = {"jax": jax, "jnp": jnp, "kernels": kernels}
    exec(graph.text, names)
    return names["function"]


def same(got, expected, graph, program):
    assert len(got) == len(expected)
    for k, (one, other, tolerance) in enumerate(zip(got, expected, graph.tolerances)):
        one, other = np.asarray(one), np.asarray(other)
        assert one.dtype == other.dtype and one.shape == other.shape, (program, k)
        np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=tolerance, atol=tolerance,
                                   err_msg=f"{program}, result {k}")


def check(graph):
    function, arrays = function_of(graph), graph.arrays()
    with jax.disable_jit():
        expected = function(*map(jnp.asarray, arrays))
    jitted = jax.jit(function)
    same(jitted(*arrays), expected, graph, "jax.jit")
    again = jax.export.deserialize(jax.export.export(jitted, disabled_checks=export_checks())(*arrays).serialize())
    same(again.call(*arrays), expected, graph, "jax.export")
    text = jitted.lower(*arrays).as_text()
    kept = [a for a, used in zip(arrays, kept_arguments(jitted, arrays)) if used]
    program = LinkedProgram(text)
    same(program(*kept), expected, graph, "linked")
    try:
        streams = simulate_linked(text, kept)
    except Unsupported:
        return
    same(streams, expected, graph, "instruction streams")


def kept_arguments(jitted, arrays):
    """Which arguments the module has: JAX leaves out those that nothing uses."""
    kept = jitted.lower(*arrays)._lowering.compile_args["kept_var_idx"]
    return [k in kept for k in range(len(arrays))]


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
def test_graphs_agree(part):
    try_graphs(GRAPHS // PARTS, part, check, RULES)

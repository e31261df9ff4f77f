# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions have the location of the operation of the graph that they compute, also those that replace it."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from nki_mlir.bindings import ir, operations_of  # noqa: E402
from nki_mlir.cli.source import read_module  # noqa: E402
from nki_mlir.dialects.source_locations import location_of  # noqa: E402
from nki_mlir.passes.pass_manager import run_passes  # noqa: E402
from nki_mlir.passes.pipelines import passes_to  # noqa: E402

pytestmark = pytest.mark.jax

X = np.zeros((8, 16), np.float32)
WINDOWS = (1, 2), (1, 2)
FUNCTIONS = {
    "scatter": lambda x: x.at[jnp.arange(3)].add(1.0), "gather": lambda x: x[jnp.arange(3), jnp.arange(3)],
    "greatest elements": lambda x: jax.lax.top_k(x, 3), "extreme": lambda x: x.argmax(1),
    "sort": lambda x: jnp.sort(x, 1),
    "selected windows": jax.grad(lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *WINDOWS, "VALID").sum()),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_operations_that_replace_others_have_their_location(function):
    module = read_module(jax.jit(function).lower(X).as_text(debug_info=True), "program.mlir")
    with module.context, ir.Location.unknown():
        run_passes(module, passes_to("nisa", module))
    instructions = operations_of(module, lambda name: name.startswith("nisa."))
    assert instructions
    assert {at and at.file for at in map(location_of, instructions)} == {__file__}

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A StableHLO graph at the waist, in the interpreter, and as instruction streams, under several orders."""

import os
from collections.abc import Mapping, Sequence
from unittest.mock import patch

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.graph.host_integers import narrowed
from nki_mlir.graph.upstream import graph_context
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.passes.pipelines import GRAPH_ON_ENGINES, NARROW, PIPELINES, TO_TILES
from nki_mlir.targets.interpreter.module import compile_function
from nki_mlir.targets.neuron.codegen import emission as emissions
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_module
from nki_mlir.targets.neuron.simulator import simulate

ORDERS = (None, 1, 2, 3)            # plain, and adversarial ones
BELOW = PIPELINES["nisa"][-2:]      # the passes from tiles to instructions


def results_of(text: str, arguments: Sequence[object], options: Mapping[str, str] = {},
               orders: Sequence[int | None] = ORDERS, emission: Emission | None = None) -> list[np.ndarray]:
    """Return the results of a graph's streams. Its tiles in the interpreter must have the same bits, and so must the
    streams in every order: what is free, the order of sums within an instruction, is the device's. ``options``: those
    of passes, by name. Without ``emission``, the streams are those of a call on the simulator."""
    with graph_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        first = pass_named("stablehlo-to-linalg", GRAPH_ON_ENGINES)
        run_passes(module, [pass_named(NARROW, options.get(NARROW, "")), first, *(pass_named(name, options.get(name, "")) for name in TO_TILES)])
        tiles = compile_function(the_kernel(module))
        run_passes(module, [pass_named(name) for name in BELOW])
        program = emit_module(module, emission) if emission is not None else emissions.emit_for_values(
            lambda options: emit_module(module, options))
    inputs = narrowed([np.asarray(a) for a in arguments], [v.dtype.numpy for v in program.of_kind("input")])
    shapes = [(v.shape, v.dtype.numpy) for v in program.of_kind("output")]
    expected = [np.zeros(shape, dtype) for shape, dtype in shapes]
    with patch.dict(os.environ, NKI_MLIR_SUMS="device"):
        tiles((), [a.copy() for a in inputs], expected)
    for order in orders:
        got = [np.zeros(shape, dtype) for shape, dtype in shapes]
        with patch.dict(os.environ, NKI_MLIR_SUMS="device"):
            simulate(program, [a.copy() for a in inputs], got, order)
        for number, (one, other) in enumerate(zip(got, expected, strict=True)):
            np.testing.assert_array_equal(bits(one), bits(other), f"result {number}, order {order}")
    return expected


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

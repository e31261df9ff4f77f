# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""StableHLO's own interpreter, which shares no code with the rewrites of graphs that tests compare with it."""

from collections.abc import Sequence

import numpy as np

from nki_mlir.bindings import Module, ir, load
from nki_mlir.graph.upstream import graph_context


def evaluated(module: Module, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results of a module's ``main``. Integers of one bit are bools; narrow floats are not supported."""
    attributes = [elements(np.asarray(argument)) for argument in arguments]
    return [np.array(result) for result in load("_mlir_libs._stablehlo").eval_module(module, attributes)]


def elements(array: np.ndarray) -> ir.DenseElementsAttr:
    return ir.DenseElementsAttr.get(array.copy(), signless=array.dtype.kind != "u")


def results_before_and_after(text, rewrite, arguments):
    """Return the results of a graph as it is, those after a rewrite, and the text of the rewritten module."""
    with graph_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        before = evaluated(module, arguments)
        rewrite(module)
        assert module.operation.verify()
        return before, evaluated(module, arguments), str(module)

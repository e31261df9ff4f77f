# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The passes from any level to a lower one, by name, and where a module enters them."""

from collections.abc import Sequence

from nki_mlir.bindings import Module, Operation, ir
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import Pass, pass_named

TO_LINALG = ("split-masked-loops", "nki-to-linalg")
TO_NISA = (*TO_LINALG, "linalg-to-nisa", "verify-target")
GRAPH = ("stablehlo-to-linalg", "tile-and-place")           # a graph, to the waist
GRAPH_ON_CPU = ("stablehlo-to-linalg", "fuse-graph", "fuse-tiles")      # operations of any size
PIPELINES: dict[str, Sequence[str]] = {"linalg": TO_LINALG, "nisa": TO_NISA}
ORDER = (Level.NKI, Level.WAIST, Level.NISA)


def level_of(module: Module) -> Level:
    """The lowest level whose contract the module meets, by what it contains."""
    names: set[str] = set()

    def visit(op: Operation) -> ir.WalkResult:
        names.add(op.name)
        return ir.WalkResult.ADVANCE
    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    for level in reversed(ORDER):
        if all(level.allows(name) for name in names):
            return level
    return Level.NKI


def is_graph(module: Module) -> bool:
    """Whether a module is a StableHLO graph: it has its operations, or functions of tensors."""
    found: list[str] = []

    def visit(op: Operation) -> ir.WalkResult:
        if op.name.startswith(("stablehlo.", "chlo.")) or (
                op.name == "func.func" and "tensor<" in str(op.attributes["function_type"])):
            found.append(op.name)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE
    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return bool(found)


def passes_to(goal: str, module: Module) -> list[Pass]:
    """The passes that bring the module from its level to ``goal`` (linalg or nisa)."""
    if is_graph(module):
        return [pass_named(name) for name in (*GRAPH, *PIPELINES[goal][len(TO_LINALG):])]
    start = ORDER.index(level_of(module))
    passes = [pass_named(name) for name in PIPELINES[goal]]
    return [p for p in passes if p.reads is None or ORDER.index(p.reads) >= start]

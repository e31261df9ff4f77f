# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The passes from any level to a lower one, by name, and where a module enters them."""

from collections.abc import Sequence, Set

from nki_mlir.bindings import Module, operations_of
from nki_mlir.dialects import native
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import Pass, pass_named

TO_LINALG = ("split-masked-loops", "nki-to-linalg")
TO_NISA = (*TO_LINALG, "linalg-to-nisa", "verify-target")
TO_TILES = "forward-moves", "split-rows", "tile-and-place"      # the operations of a graph, to the waist
NARROW = "narrow-integers"                     # before it: engines have no 64-bit integers
GRAPH_ON_ENGINES = "widen=0 compare=1"         # tile-and-place accumulates in float32 on chip; engines have no loops
GRAPH_ON_CPU = ("stablehlo-to-linalg", "fuse-graph", "fuse-tiles")      # operations of any size
TO_RECORDS = ("nisa-to-linalg", "arith-to-scalar")      # the waist, for the reader of the CPU
PIPELINES: dict[str, Sequence[str]] = {"linalg": TO_LINALG, "nisa": TO_NISA}
ORDER = (Level.NKI, Level.WAIST, Level.NISA)


def names_in(module: Module) -> set[str]:
    """Return the names of the operations of a module."""
    names: set[str] = set()
    operations_of(module, names.add)
    return names


def level_of(module: Module, names: Set[str] = frozenset()) -> Level:
    """Return the lowest level whose contract the module meets, by its operations, whose ``names`` may be passed."""
    names = names or names_in(module)
    for level in reversed(ORDER):
        if all(level.allows(name) for name in names):
            return level
    return Level.NKI


def is_graph(module: Module, names: Set[str] = frozenset()) -> bool:
    """Return whether a module is a StableHLO graph: it has operations of StableHLO, whose ``names`` may be passed, or
    functions of tensors."""
    if any(name.startswith(("stablehlo.", "chlo.")) for name in names or names_in(module)):
        return True
    return any(op.operation.name == "func.func" and "tensor<" in str(op.operation.attributes["function_type"])
               for op in module.body.operations)


def is_at_waist(module: Module) -> bool:
    """Return whether a module has structured operations, or passes of the CPU have written its functions."""
    operations = operations_of(module, lambda name: name.startswith(("linalg.", "func.func")))
    return any(op.name != "func.func" or native.FUNCTION in op.attributes for op in operations)


def passes_to_records(module: Module) -> list[Pass]:
    """Return the passes that bring a module to the form that the CPU's passes read."""
    above = GRAPH_ON_CPU if is_graph(module) else () if is_at_waist(module) else TO_LINALG
    return [pass_named(name) for name in (*above, *TO_RECORDS)]


def passes_to(goal: str, module: Module, names: Set[str] = frozenset()) -> list[Pass]:
    """Return the passes that bring the module from its level to ``goal`` (linalg or nisa). The ``names`` of its
    operations may be passed."""
    names = names or names_in(module)
    if is_graph(module, names):
        behind = (*TO_TILES, *PIPELINES[goal][len(TO_LINALG):])
        return [pass_named(NARROW), pass_named("stablehlo-to-linalg", GRAPH_ON_ENGINES), *map(pass_named, behind)]
    start = ORDER.index(level_of(module, names))
    passes = [pass_named(name) for name in PIPELINES[goal]]
    return [p for p in passes if p.reads is None or ORDER.index(p.reads) >= start]

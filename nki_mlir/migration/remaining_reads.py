# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds out whether the new text of a file still reads a function whose body has replaced calls."""

from collections.abc import Mapping

import libcst as cst

from nki_mlir.migration.names import nodes_of


def reads(name: str, tree: cst.Module, functions: Mapping[str, cst.FunctionDef],
          rewrites: Mapping[str, cst.FunctionDef], but: str = "") -> bool:
    """Return whether a file reads a name, such as ``helper`` or ``module.helper``: in the new text of a function other
    than ``but``, or in the rest of the file. ``functions`` are those that are rewritten. Imports do not count."""
    module, _, last = name.rpartition(".")
    left_out = {id(n) for node in [*functions.values(), *nodes_of(tree, cst.Import), *nodes_of(tree, cst.ImportFrom)]
                for n in nodes_of(node, cst.Name)}

    def names(node: cst.CSTNode) -> list[cst.Name]:
        attributes = set() if module else {id(n.attr) for n in nodes_of(node, cst.Attribute)}    # store in nl.store
        return [n for n in nodes_of(node, cst.Name) if n.value == last and id(n) not in attributes]

    return any(id(n) not in left_out for n in names(tree)) or any(
        names(function) for f, function in rewrites.items() if f != but)

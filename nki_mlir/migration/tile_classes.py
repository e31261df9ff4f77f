# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Classes of a file whose methods compute on tiles: they are left for a person.

What an attribute of their objects is, a tile or a number, no text says.
"""

import libcst as cst

from nki_mlir.migration.names import Names

HOST_FUNCTIONS = {"nl.static_cast", "nl.nc", "nl.spmd_dim", "nisa.get_nc_version"}


def calls_language(body: cst.CSTNode, names: Names) -> bool:
    """Whether the body of a function itself calls operations of a kernel."""
    pending: list[cst.CSTNode] = list(body.children)
    while pending:
        node = pending.pop()
        if isinstance(node, cst.FunctionDef):
            continue
        if isinstance(node, cst.Call):
            meaning = names.meaning(node.func)
            if meaning.startswith(("nl.", "nisa.")) and meaning not in HOST_FUNCTIONS:
                return True
        pending += node.children
    return False


def is_tile_class(node: cst.ClassDef, names: Names) -> bool:
    """Whether a method, which has its object as first parameter, calls operations of a kernel."""
    return any(isinstance(method, cst.FunctionDef) and method.params.params
               and method.params.params[0].name.value == "self" and calls_language(method.body, names)
               for method in node.body.body)


def why_left(name: str) -> str:
    """What the report says of a class."""
    return f"the class {name}, whose methods call nl or nisa: make them functions, whose parameters are its attributes"

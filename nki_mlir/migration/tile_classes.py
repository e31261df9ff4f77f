# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Classes of a file whose methods compute on tiles: they are left for a person.

No text states whether an attribute of their objects is a tile or a number.
"""

from collections.abc import Container

import libcst as cst

from nki_mlir.migration.names import Names

HOST_FUNCTIONS = {"nl.static_cast", "nl.nc", "nl.spmd_dim", "nisa.get_nc_version"}


def calls_language(body: cst.CSTNode, names: Names) -> bool:
    """Return whether the body of a function itself calls operations of a kernel."""
    pending: list[cst.CSTNode] = list(body.children)
    while pending:
        node = pending.pop()
        if isinstance(node, cst.FunctionDef):
            continue
        if isinstance(node, cst.Call):
            meaning = names.meaning(node.func)
            if meaning.startswith(("nl.", "nisa.")) and meaning not in HOST_FUNCTIONS:
                return True
        if isinstance(node, cst.Subscript) and names.meaning(node.value) == "nl.mgrid":
            return True
        pending += node.children
    return False


def is_tile_class(node: cst.ClassDef, names: Names, tile_classes: Container[str] = ()) -> bool:
    """Whether a method calls operations of a kernel, or one of a class in ``tile_classes`` that it extends. Kernels
    and static functions within a class have no object."""
    if any(isinstance(base.value, cst.Name) and base.value.value in tile_classes for base in node.bases):
        return True
    methods = [method for method in node.body.body if isinstance(method, cst.FunctionDef)]
    return any(_takes_object(method, names) and calls_language(method.body, names) for method in methods)


def _takes_object(method: cst.FunctionDef, names: Names) -> bool:
    for decorator in method.decorators:
        node = decorator.decorator
        if isinstance(node, cst.Name) and node.value == "staticmethod":
            return False
        if names.meaning(node.func if isinstance(node, cst.Call) else node).startswith("nki."):
            return False
    return bool(method.params.params)


def why_left(name: str) -> str:
    """Return the report's sentence about a class."""
    return f"the class {name}, whose methods call nl or nisa: make them functions, whose parameters are its attributes"

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the classes of a file whose methods compute on tiles, and which of them can be rewritten.

The others are left for a person: no text states whether an attribute of their objects is a tile or a number.
"""

import ast
from collections.abc import Container, Mapping

import libcst as cst

from nki_mlir.migration.names import Names, NodesByClass, children_of, nodes_of
from nki_mlir.migration.parameters import bound_names, tree_of

FIRST_METHOD = "__init__"
STATIC, PROPERTY = "staticmethod", "property"
DECORATORS = {STATIC, "classmethod", PROPERTY}
HOST_FUNCTIONS = {"nl.static_cast", "nl.nc", "nl.spmd_dim", "nisa.get_nc_version"}


def calls_language(body: cst.CSTNode, names: Names) -> bool:
    """Return whether the body of a function itself calls operations of a kernel."""
    pending: list[cst.CSTNode] = [*children_of(body)]
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
        pending += children_of(node)
    return False


def is_tile_class(node: cst.ClassDef, names: Names, tile_classes: Container[str] = ()) -> bool:
    """Return whether a method calls operations of a kernel, or one of a class in ``tile_classes`` that it extends.
    Kernels and static functions within a class have no object."""
    if any(isinstance(base.value, cst.Name) and base.value.value in tile_classes for base in node.bases):
        return True
    methods = [method for method in node.body.body if isinstance(method, cst.FunctionDef)]
    return any((_takes_object(method, names) and calls_language(method.body, names)) or (
        kind_of(method) and builds_vectors(method, names)) for method in methods)


def kind_of(method: cst.FunctionDef) -> str | None:
    """Return the decorator of a static method, a method of the class or a property, "" for a method without decorators,
    None for one with others."""
    if not method.decorators:
        return ""
    node = method.decorators[0].decorator
    is_kind = len(method.decorators) == 1 and isinstance(node, cst.Name) and node.value in DECORATORS
    return node.value if isinstance(node, cst.Name) and is_kind else None


def builds_vectors(method: cst.FunctionDef, names: Names) -> bool:
    """Return whether a method creates index vectors, and calls no other function of the language."""
    calls = [names.meaning(node.func) for node in nodes_of(method.body, cst.Call)]
    return calls_language(method.body, names) and all(
        meaning == "nl.arange" or not meaning.startswith(("nl.", "nisa.")) for meaning in calls)


def is_rewritten_method(method: cst.FunctionDef, names: Names) -> bool:
    """Return whether a method is rewritten as a function: one of an object, a property, and a static method that
    computes on tiles. The values of methods that build index vectors replace their calls."""
    kind = kind_of(method)
    if kind == PROPERTY:
        return not builds_vectors(method, names)
    if kind == STATIC:
        return calls_language(method.body, names) and not builds_vectors(method, names)
    return not method.decorators


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


def method_name(class_name: str, name: str) -> str:
    """Return the name by which a method is a function of the file."""
    return f"{class_name}.{name}"


def fields_of(node: cst.ClassDef) -> list[str]:
    """Return the fields of a class of data, in the order of its parameters."""
    return [small.target.value for line in node.body.body if isinstance(line, cst.SimpleStatementLine)
            for small in line.body if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name)]


def rewritable_classes(tree: cst.Module, nodes: NodesByClass, classes: Mapping[str, cst.ClassDef], names: Names
                       ) -> dict[str, cst.ClassDef]:
    """Return the classes at the top of a file whose methods can be rewritten as functions; no class extends them."""
    extended = {name.value for node in nodes.of(cst.ClassDef) for base in node.bases
                for name in nodes_of(base, cst.Name)}
    assigned = attributes_assigned(tree)
    at_top = {id(statement) for statement in tree.body}
    return {name: node for name, node in classes.items() if id(node) in at_top and name not in extended
            and is_rewritable(node, names, assigned)}


def is_rewritable(node: cst.ClassDef, names: Names, assigned_outside: Container[str]) -> bool:
    """Return whether the methods of a class can be rewritten as functions: it extends no other class, ``__init__``
    alone assigns its attributes, each once and in any case, and methods of the class call no operation."""
    is_data = any(_last_word(d.decorator) == "dataclass" for d in node.decorators)
    if node.keywords or len(node.decorators) > is_data or any(
            _last_word(base.value) not in ("object", "NKIObject") for base in node.bases):
        return False
    assigned: list[str] = []
    for method in node.body.body:
        if not isinstance(method, cst.FunctionDef):
            if not isinstance(method, cst.SimpleStatementLine):
                return False
            continue
        kind = kind_of(method)
        if not is_rewritten_method(method, names):
            if calls_language(method.body, names) and not (kind and builds_vectors(method, names)):
                return False
            continue
        if kind == STATIC:
            continue
        name = method.name.value
        if not method.params.params or (name.startswith("__") and name != FIRST_METHOD) or (
                is_data and name == FIRST_METHOD):
            return False
        receiver = method.params.params[0].name.value
        tree = tree_of(method)
        all_attributes = _assigned_attributes(tree, receiver, deep=True)
        if receiver in bound_names(tree) or all_attributes != _assigned_attributes(tree, receiver, deep=False) or (
                all_attributes and name != FIRST_METHOD):
            return False
        assigned += all_attributes
    fields = fields_of(node) if is_data else []
    return len({*assigned, *fields}) == len(assigned) + len(fields) and not any(
        a in assigned_outside for a in (*assigned, *fields))


def attributes_assigned(node: cst.CSTNode) -> set[str]:
    """Return the attributes that the functions of a file assign, but for those of their first parameter."""
    tree = ast.parse(cst.Module([]).code_for_node(node))
    stored: set[str] = set()
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        receiver = function.args.args[0].arg if function.args.args else ""
        stored |= {n.attr for n in ast.walk(function) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
                  and not (isinstance(n.value, ast.Name) and n.value.id == receiver)}
    return stored


def _assigned_attributes(function: ast.FunctionDef, receiver: str, deep: bool) -> list[str]:
    """Return the attributes of an object that a function assigns, or with ``deep`` also those in loops and branches."""
    statements = [n for n in ast.walk(function) if isinstance(n, ast.stmt)] if deep else function.body
    targets = [t for s in statements if isinstance(s, ast.Assign | ast.AnnAssign)
               for t in (s.targets if isinstance(s, ast.Assign) else [s.target])]
    items = [e for t in targets for e in (t.elts if isinstance(t, ast.Tuple | ast.List) else [t])]
    return sorted(e.attr for e in items if isinstance(e, ast.Attribute) and isinstance(e.value, ast.Name)
                  and e.value.id == receiver)


def _last_word(node: cst.BaseExpression) -> str:
    node = node.func if isinstance(node, cst.Call) else node
    return node.attr.value if isinstance(node, cst.Attribute) else node.value if isinstance(node, cst.Name) else ""

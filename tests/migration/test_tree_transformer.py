# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The base of transformers visits and leaves what libcst's does, and enters no node without children."""

import libcst as cst
import pytest

from nki_mlir.migration.tree_transformer import TreeTransformer, methods_of

TEXT = """import os  # of the host


@decorated
def f(a, b=1, *, c: int = 2):
    x, y = a + b, -c
    while not (x < y and a[0:2, 1]):
        x += len(f"{y!r:>{3}}")
        y = [k ** 2 for k in range(3) if k is not None] or {"z": a.b.c}
    return lambda z: (x, z) if y else ...
"""


class Recorder:
    """Records the nodes that it visits and leaves, and changes names, operators and numbers."""

    def __init__(self):
        super().__init__()
        self.events = []

    def visit_Name(self, node):
        self.events.append(("visit", node.value))

    def visit_BinaryOperation(self, node):
        self.events.append(("visit", type(node.operator).__name__))

    def visit_Lambda(self, node):
        return False

    def leave_Name(self, original_node, updated_node):
        self.events.append(("leave", original_node.value))
        return updated_node.with_changes(value=f"{updated_node.value}_new")

    def leave_Integer(self, original_node, updated_node):
        return updated_node.with_changes(value=str(int(updated_node.value) + 1))

    def leave_Add(self, original_node, updated_node):
        return cst.Subtract()

    def leave_Call(self, original_node, updated_node):
        self.events.append(("call", cst.Module([]).code_for_node(updated_node)))
        return updated_node

    def leave_Import(self, original_node, updated_node):
        return cst.FlattenSentinel([updated_node, cst.Import([cst.ImportAlias(cst.Name("sys"))])])

    def leave_Decorator(self, original_node, updated_node):
        return cst.RemoveFromParent()


class Ours(Recorder, TreeTransformer):
    pass


class Libcst(Recorder, cst.CSTTransformer):
    pass


def test_changes_are_those_of_libcst():
    ours, other = Ours(), Libcst()
    text = cst.parse_module(TEXT).visit(ours).code
    assert text == cst.parse_module(TEXT).visit(other).code and ours.events == other.events
    assert text.startswith("import os_new; import sys  # of the host\n\n\ndef f_new(a_new, b_new=2, *, c_new: int_new = 3):\n"
                           "    x_new, y_new = a_new - b_new, -c_new\n")
    assert "    return lambda z: (x, z) if y else ...\n" in text        # whose visit returns False
    assert ("call", "range_new(4)") in ours.events


def test_only_methods_that_a_class_defines_are_called():
    class Inner(TreeTransformer):
        def leave_Call(self, original_node, updated_node):
            return updated_node

    class Outer(Inner):
        def visit_If(self, node):
            return False
    assert methods_of(Outer, "visit_") == {cst.If: Outer.visit_If}
    assert methods_of(Outer, "leave_") == {cst.Call: Inner.leave_Call} and not methods_of(TreeTransformer, "visit_")


@pytest.mark.parametrize("kind", [cst.Name, cst.Integer, cst.Comment, cst.Add, cst.NotIn, cst.And, cst.AddAssign, cst.Minus])
def test_nodes_of_text_alone_are_not_entered(kind):
    node = kind("# x" if kind is cst.Comment else "1" if kind is cst.Integer else "x") if kind in (
        cst.Name, cst.Integer, cst.Comment) else kind()
    assert TreeTransformer().on_visit(node) is False and TreeTransformer().on_visit(cst.Tuple([])) is True

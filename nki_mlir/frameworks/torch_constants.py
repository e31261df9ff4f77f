# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folds parts of an exported PyTorch program that read no argument, if a stream could not compute them.

These are constants through float64, and positions from floats (the rows that an interpolation reads), for which a
stream's range analysis finds no bound. Tensors without elements are constants, too: upstream rejects slices that are
empty. Other constants, such as masks from positions, stay operations, which need no memory.
"""

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Graph, Node
from torch.utils._python_dispatch import _disable_current_modes

MOST = 1 << 16          # elements of a constant
TRIANGLES = (torch.ops.aten.tril_indices.default, torch.ops.aten.triu_indices.default)      # upstream uses float64


def fold_constants(program: torch.export.ExportedProgram) -> None:
    """Replace values of a program that a stream could not compute by constants, of up to ``MOST`` elements."""
    folds = Folds(program.graph, constant_tensors(program))
    for node in [*program.graph.nodes]:
        value = node.meta.get("val")
        if node in folds.difficult and node.op == "call_function" and isinstance(value, torch.Tensor) and (
                value.numel() <= MOST and any(user not in folds.fixed for user in node.users)):
            node.replace_all_uses_with(constant(program, node, folds.value(node)),
                                       delete_user_cb=lambda user: user not in folds.fixed)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()


def constant_tensors(program: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """Return the tensors that the program's text contains, by the names of their placeholders."""
    return {spec.arg.name: program.constants[spec.target] for spec in program.graph_signature.input_specs
            if spec.kind is InputKind.CONSTANT_TENSOR}


class Folds:
    """The nodes of a graph that read no argument (``fixed``), and those of them that a stream cannot compute
    (``difficult``)."""

    def __init__(self, graph: Graph, constants: Mapping[str, torch.Tensor]) -> None:
        self.values: dict[Node, Any] = {}
        self.fixed, self.difficult = set[Node](), set[Node]()
        for node in graph.nodes:
            if node.op == "placeholder" and node.name in constants:
                self.values[node] = constants[node.name]
                self.fixed.add(node)
            elif node.op == "call_function" and is_function(node.target) and is_empty(node):
                self.values[node] = torch.empty(node.meta["val"].shape, dtype=node.meta["val"].dtype)
                self.fixed.add(node)
                self.difficult.add(node)
            elif node.op == "call_function" and is_function(node.target) and self.fixed.issuperset(
                    node.all_input_nodes):
                self.fixed.add(node)
            else:
                continue
            if is_difficult(node) or not self.difficult.isdisjoint(node.all_input_nodes):
                self.difficult.add(node)

    def value(self, node: Node) -> Any:
        """Return the value of a fixed node, as PyTorch computes it."""
        pending = [node] if node not in self.values else []
        while pending:
            last = pending[-1]
            missing = [n for n in last.all_input_nodes if n not in self.values]
            pending.extend(missing)
            if not missing:
                assert callable(last.target)
                arguments, keywords = torch.fx.map_arg((last.args, last.kwargs), self.values.__getitem__)
                with _disable_current_modes(), torch.no_grad():
                    self.values.setdefault(last, last.target(*arguments, **keywords))
                pending.pop()
        return self.values[node]


def is_function(target: object) -> bool:
    """Return whether an operator computes its results only from its arguments."""
    return target is operator.getitem or (isinstance(target, torch._ops.OpOverload) and target.namespace in (
        "aten", "prims") and not target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags)


def is_empty(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.numel()


def is_difficult(node: Node) -> bool:
    """Return whether a node computes float64, or integers from floats."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return False
    operands = [n.meta.get("val") for n in node.all_input_nodes]
    return value.dtype == torch.float64 or node.target in TRIANGLES or (value.dtype == torch.int64 and any(
        isinstance(v, torch.Tensor) and v.is_floating_point() for v in operands))


def constant(program: torch.export.ExportedProgram, node: Node, value: torch.Tensor) -> Node:
    """Return a new placeholder of the program with a constant value."""
    name, graph = f"{node.name}_value", program.graph
    first = next(iter(graph.nodes))
    with graph.inserting_before(first):
        placeholder: Node = graph.placeholder(name)
    placeholder.meta["val"] = node.meta["val"]
    program.graph_signature.input_specs.insert(0, InputSpec(
        InputKind.CONSTANT_TENSOR, TensorArgument(placeholder.name), placeholder.name, None))
    program.constants[placeholder.name] = value
    for spec in program.graph_signature.output_specs:
        if spec.arg.name == node.name:
            spec.arg = TensorArgument(placeholder.name)
    return placeholder


__all__ = ["fold_constants"]

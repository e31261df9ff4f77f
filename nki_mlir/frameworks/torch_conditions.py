# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites ``torch.cond`` of exported programs as selections, since upstream lowers no operator that calls functions.

before:  %y = cond(%p, true_graph, false_graph, (%x,)), where the functions compute 2 x and x + 1
after:   %a = mul(%x, 2), %b = add(%x, 1), %y = where(%p, %a, %b)

PyTorch exports no functions that update their arguments, so computing both gives the numbers of the one that it
chooses. Kernels with effects (a print, a collective) are refused.
"""

import operator
from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from nki_mlir.diagnostics import InternalError, Location, NkiMlirError, Unsupported
from nki_mlir.frameworks.torch_decompositions import aten
from nki_mlir.frameworks.torch_operator import callee_named


def rewrite_conditions(program: torch.export.ExportedProgram, line_of: Callable[[Node], Location | None]
                       ) -> torch.export.ExportedProgram:
    """Rewrite each ``torch.cond`` of a program, also those in its functions. Return the program, or a copy that has no
    ``torch.cond``."""
    if not conditions(program.graph):
        return program
    program = deepcopy(program)
    while nodes := conditions(program.graph):
        for node in nodes:
            Selection(program, node, line_of).rewrite()
    program.graph_module.recompile()
    return program


def conditions(graph: Graph) -> list[Node]:
    """Return the calls of ``torch.cond``."""
    return graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)


class Selection:
    """Rewrites one call of ``torch.cond``. ``line_of`` returns the line of the program that calls a node."""

    def __init__(self, program: torch.export.ExportedProgram, node: Node, line_of: Callable[[Node], Location | None]
                 ) -> None:
        self.program, self.module, self.graph = program, program.graph_module, program.graph
        self.node, self.line_of = node, line_of

    def rewrite(self) -> None:
        """Compute both functions before the call, and select their results."""
        predicate, on_true, on_false, operands = self.args
        with self.graph.inserting_before(self.node):
            if isinstance(predicate, Node) and predicate.meta["val"].dim():
                predicate = self.emit(aten.view.default, predicate, [])
            pairs = [self.inlined(function, operands) for function in (on_true, on_false)]
            results = [self.selected(predicate, a, b) for a, b in zip(*pairs, strict=True)]
        for use in list(self.node.users):
            if use.target is not operator.getitem:
                raise self.refused("results that are used as a tuple")
            if results[use.args[1]] is not None:        # type: ignore[index]
                use.replace_all_uses_with(results[use.args[1]])     # type: ignore[index]
            self.graph.erase_node(use)
        self.graph.erase_node(self.node)
        for function in {on_true: None, on_false: None}:
            if not function.users:
                self.graph.erase_node(function)

    @property
    def args(self) -> tuple[Any, ...]:
        """The predicate, both functions and their operands, which a call may leave out."""
        return (*self.node.args, ())[:4]

    def inlined(self, function: Node, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Copy a function's nodes before the call, and return its results."""
        body = getattr(self.module, str(function.target))
        values: dict[Node, Any] = dict(zip(body.graph.find_nodes(op="placeholder"), operands, strict=True))
        for inner in body.graph.nodes:
            if inner.op == "output":
                return torch.fx.node.map_arg(inner.args[0], values.__getitem__)
            if inner.op == "get_attr":
                values[inner] = self.attribute(body, inner)
            elif inner.op != "placeholder":
                self.refuse_effects(inner)
                values[inner] = self.graph.node_copy(inner, values.__getitem__)
        raise InternalError("a graph ends with its output")

    def attribute(self, body: GraphModule, inner: Node) -> Node:
        """Emit a function or a constant of a function as one of the program."""
        name = f"{self.node.name}_{inner.target}"
        while hasattr(self.module, name):
            name += "_"
        value = getattr(body, str(inner.target))
        setattr(self.module, name, value)
        if isinstance(value, torch.Tensor):
            self.program.constants[name] = value
        result: Node = self.graph.create_node("get_attr", name)
        result.meta = copy(inner.meta)
        return result

    def refuse_effects(self, inner: Node) -> None:
        """Raise an error for a kernel with effects, called or, if it updates tensors, as an operator's argument."""
        kernel = inner.kwargs.get("kernel", inner.args[-1] if inner.args else None)
        is_kernel = any(str(target).startswith("nki.") for target in (inner.target, *inner.args[:1]))
        if is_kernel and isinstance(kernel, str) and callee_named(kernel).record.has_effects:
            raise self.refused("a kernel that prints or exchanges data with other ranks")

    def selected(self, predicate: Node | bool, a: Any, b: Any) -> Any:
        """Emit the selection of one result."""
        if not isinstance(predicate, Node):
            return a if predicate else b
        if a is b:
            return a
        if not isinstance(a, Node) or not isinstance(b, Node) or not all(
                isinstance(v.meta.get("val"), torch.Tensor) for v in (a, b)):
            raise self.refused("results that are not tensors")
        return self.emit(aten.where.self, predicate, a, b)

    def emit(self, target: Any, *args: Any) -> Node:
        result: Node = self.graph.call_function(target, args)
        result.meta = {"stack_trace": self.node.meta.get("stack_trace"), "val": target(
            *torch.fx.node.map_arg(args, lambda node: node.meta["val"]))}
        return result

    def refused(self, form: str) -> NkiMlirError:
        return Unsupported(feature=f"PyTorch's cond with {form}, as StableHLO",
                           instead="choose with torch.where, or outside of the program"
                           ).located(self.line_of(self.node))


__all__ = ["rewrite_conditions"]

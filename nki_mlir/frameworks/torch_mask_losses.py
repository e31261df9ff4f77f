# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes losses, norms and deviations of rows that a mask selects by operators of each row and by sums, before
``torch_masks`` rewrites these.

before:  %r = cross_entropy_loss(%x, %targets)                       (as many rows as a mask selects)
after:   %r, _ = nll_loss_forward(log_softmax(%x, 1), %targets)

PyTorch's own decompositions of these operators compare the number of rows, which is known only at run time.
"""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
Node = torch.fx.Node
NONE, MEAN = 0, 1                   # PyTorch's numbers of reductions


def elementwise_losses() -> Any:
    """Return PyTorch's decompositions of losses of two tensors, element by element."""
    return torch._decomp.get_decompositions([
        aten.mse_loss, aten.mse_loss_backward, aten.smooth_l1_loss, aten.smooth_l1_loss_backward, aten.huber_loss,
        aten.huber_loss_backward, aten.soft_margin_loss, aten.binary_cross_entropy, aten.binary_cross_entropy_backward,
        aten.binary_cross_entropy_with_logits])


def expand_losses(graph: torch.fx.Graph) -> None:
    """Rewrite the operators of a program that ``EXPANSIONS`` names, where a size depends on values."""
    for node in list(graph.nodes):
        if node.target not in EXPANSIONS:
            continue
        values = tree_leaves([node.meta.get("val"), *(arg.meta.get("val") for arg in node.all_input_nodes)])
        if any(isinstance(n, torch.SymInt) for value in values for n in getattr(value, "shape", ())):
            with graph.inserting_before(node):
                EXPANSIONS[node.target](LossWriter(graph, node))


class LossWriter:
    """Emits operators in place of a node, with its line."""

    def __init__(self, graph: torch.fx.Graph, node: Node) -> None:
        self.graph, self.node = graph, node
        self.arguments: dict[str, Any] = {
            slot.name: slot.default_value for slot in node.target._schema.arguments}          # type: ignore[union-attr]
        self.arguments |= dict(zip(self.arguments, node.args)) | node.kwargs

    def call(self, target: Any, *args: Any, **keywords: Any) -> Node:
        node = self.graph.call_function(target, args, keywords)
        node.meta |= {k: v for k, v in self.node.meta.items() if k in ("stack_trace", "nn_module_stack", "torch_fn")}
        return node

    def replace(self, value: Node) -> None:
        """Replace the node by a value."""
        value.meta["val"] = self.node.meta["val"]
        self.node.replace_all_uses_with(value)
        self.graph.erase_node(self.node)


def cross_entropy(writer: LossWriter) -> None:
    """Rewrite the cross entropy of rows of numbers with a class for each."""
    arguments, call = writer.arguments, writer.call
    x, target, weight = arguments["self"], arguments["target"], arguments["weight"]
    smoothing, form = arguments["label_smoothing"], (arguments["reduction"], arguments["ignore_index"])
    value = x.meta["val"]
    if value.dim() != 2 or target.meta["val"].is_floating_point():
        return
    logarithms = call(aten.log_softmax.int, x, 1)
    loss = call(operator.getitem, call(aten.nll_loss_forward.default, logarithms, target, weight, *form), 0)
    if smoothing:
        is_ignored = call(aten.eq.Scalar, target, form[1])
        weighted = logarithms if weight is None else call(aten.mul.Tensor, logarithms, weight)
        uniform_loss = call(aten.neg.default, call(aten.sum.dim_IntList, weighted, [1]))
        uniform_loss = call(aten.masked_fill.Scalar, uniform_loss, is_ignored, 0.0)
        if form[0] != NONE:
            uniform_loss = call(aten.sum.default, uniform_loss)
        if form[0] == MEAN:
            counts = call(aten.to.dtype, call(aten.logical_not.default, is_ignored), value.dtype)
            if weight is not None:
                classes = call(aten.masked_fill.Scalar, target, is_ignored, 0)
                counts = call(aten.mul.Tensor, counts, call(aten.index.Tensor, weight, [classes]))
            uniform_loss = call(aten.div.Tensor, uniform_loss, call(aten.sum.default, counts))
        loss = call(aten.add.Tensor, call(aten.mul.Tensor, loss, 1 - smoothing),
                    call(aten.mul.Tensor, uniform_loss, smoothing / value.shape[1]))
    writer.replace(loss)


def likelihood(writer: LossWriter) -> None:
    """Rewrite the negative logarithm of the likelihood of rows."""
    names = ("self", "target", "weight", "reduction", "ignore_index")
    if writer.arguments["self"].meta["val"].dim() == 2:
        writer.replace(writer.call(operator.getitem, writer.call(
            aten.nll_loss_forward.default, *(writer.arguments[name] for name in names)), 0))


def absolute_differences(writer: LossWriter) -> None:
    """Rewrite the sum or mean of absolute differences."""
    arguments, call = writer.arguments, writer.call
    differences = call(aten.abs.default, call(aten.sub.Tensor, arguments["self"], arguments["target"]))
    total = {NONE: None, MEAN: aten.mean.default}.get(arguments["reduction"], aten.sum.default)
    writer.replace(differences if total is None else call(total, differences))


def norm(writer: LossWriter) -> None:
    """Rewrite the sum of the absolute values, or the root of the sum of squares."""
    arguments, call = writer.arguments, writer.call
    x, order, dtype = arguments["self"], arguments["ord"], arguments["dtype"] or writer.node.meta["val"].dtype
    if order not in (1, 2) or not x.meta["val"].is_floating_point():
        return
    form = arguments["dim"] or [*range(x.meta["val"].dim())], arguments["keepdim"]
    sizes = call(aten.abs.default, wide_of(writer, x, dtype))
    if order == 2:
        result = call(aten.sqrt.default, call(aten.sum.dim_IntList, call(aten.mul.Tensor, sizes, sizes), *form))
    else:
        result = call(aten.sum.dim_IntList, sizes, *form)
    writer.replace(call(aten._to_copy.default, result, dtype=dtype))


def wide_of(writer: LossWriter, x: Node, dtype: torch.dtype) -> Node:
    """Convert a tensor to a dtype, or to float32 if that has 16 bits."""
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    return writer.call(aten._to_copy.default, x, dtype=wide)


def deviation(writer: LossWriter) -> None:
    """Rewrite variances and standard deviations. The number of elements is a sum of ones."""
    arguments, call, name = writer.arguments, writer.call, str(writer.node.target)
    x, correction = arguments["self"], arguments.get("correction", 1 if arguments.get("unbiased", True) else 0)
    value = x.meta["val"]
    if not value.is_floating_point():
        return
    dims, keepdim = arguments.get("dim") or [*range(value.dim())], arguments.get("keepdim", False)
    wide = wide_of(writer, x, value.dtype)
    differences = call(aten.sub.Tensor, wide, call(aten.mean.dim, wide, dims, True))
    squares = call(aten.sum.dim_IntList, call(aten.mul.Tensor, differences, differences), dims, keepdim)
    count = call(aten.sum.dim_IntList, call(aten.ones_like.default, wide), dims, keepdim)
    divisor = call(aten.clamp.default, call(aten.sub.Tensor, count, 1 if correction is None else correction), 0.0)
    result = call(aten.div.Tensor, squares, divisor)
    if name.startswith("aten.std"):
        result = call(aten.sqrt.default, result)
    writer.replace(call(aten._to_copy.default, result, dtype=value.dtype))


def same_shapes(writer: LossWriter) -> None:
    """Replace broadcasts of tensors of one shape by the tensors."""
    tensors = writer.arguments["tensors"]
    if len({str(list(tensor.meta["val"].shape)) for tensor in tensors}) == 1:
        for user in list(writer.node.users):
            user.replace_all_uses_with(tensors[user.args[1]])
            writer.graph.erase_node(user)
        writer.graph.erase_node(writer.node)


def selected(writer: LossWriter) -> None:
    """Rewrite ``masked_select`` as an index of tensors of one shape."""
    x, mask = writer.arguments["self"], writer.arguments["mask"]
    shape = [*torch.broadcast_shapes(x.meta["val"].shape, mask.meta["val"].shape)]
    operands = [writer.call(aten.expand.default, v, shape) for v in (x, mask)]
    writer.replace(writer.call(aten.index.Tensor, operands[0], [operands[1]]))


def positions(writer: LossWriter) -> None:
    """Rewrite positions along each axis, ``torch.where(mask)``, as columns of one tensor."""
    table = writer.call(aten.nonzero.default, writer.node.args[0])
    for user in list(writer.node.users):
        user.replace_all_uses_with(writer.call(aten.select.int, table, 1, user.args[1]))
        writer.graph.erase_node(user)
    writer.graph.erase_node(writer.node)


EXPANSIONS: dict[object, Callable[[LossWriter], None]] = {
    aten.cross_entropy_loss.default: cross_entropy, aten.nll_loss_nd.default: likelihood,
    aten.broadcast_tensors.default: same_shapes, aten.masked_select.default: selected,
    aten.linalg_vector_norm.default: norm, **dict.fromkeys((
        aten.std.correction, aten.std.default, aten.std.dim, aten.var.correction, aten.var.default, aten.var.dim),
        deviation),
    aten.nonzero_numpy.default: positions, aten.where.default: positions, aten.l1_loss.default: absolute_differences}
__all__ = ["elementwise_losses", "expand_losses"]

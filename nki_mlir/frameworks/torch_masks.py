# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites elements that a mask selects, ``x[mask]``, whose number depends on values, as all elements.

before:  %s = index(%x, [%mask])                        (as many elements as are selected)
         %t = mul(%s, 2)
         %r = index_put(%x, [%mask], %t)
after:   %t = mul(reshape(%x), 2)                       (all elements, along the first axis)
         %r = where(%mask, reshape(%t), %x)

Operators that compute each selected row alone compute all rows. Then ``index_put`` selects the rows of the mask, a sum
adds zeros for the other ones, and a mean divides by the number of the selected ones. An extremum replaces the other
rows by infinity. The number of the rows, ``x[mask].shape[0]``, is the sum of the mask where tensors are computed with
it. Tensors of as many rows, which gradients write, get all rows. A loss of classes ignores the targets of the other
rows. ``torch.where(mask)`` and ``nonzero`` are the positions that a mask selects of all positions, which may index
tensors, and tensors to which rows are added.
"""

import operator
import re
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    free_symbols,
    free_unbacked_symbols,
)

from nki_mlir.diagnostics import Location, NkiMlirError, Unsupported
from nki_mlir.frameworks.torch_mask_losses import elementwise_losses, expand_losses

aten = torch.ops.aten
Node = torch.fx.Node

# Operators that compute each row of their operands alone. A number is the index of the argument with the rows
# (``ROWS_OF``) or with the axes (``ALONG``).
ROWS = (aten.clone.default, aten._to_copy.default, aten.alias.default, aten.detach.default, aten.zeros_like.default,
        aten.ones_like.default, aten.full_like.default, aten.log_sigmoid.default)
NEW = (aten.new_zeros.default, aten.new_ones.default, aten.new_full.default, aten.new_empty.default)
NORMS = (aten.layer_norm.default, aten.rms_norm.default)
ROWS_OF: dict[object, int] = {aten.mm.default: 0, aten.matmul.default: 0, aten.linear.default: 0,
                              aten.addmm.default: 1, aten.embedding.default: 1}
POSITIONS = (aten.nonzero.default, aten.argwhere.default)
ALONG: dict[object, int] = dict.fromkeys((
    aten._softmax.default, aten._log_softmax.default, aten.softmax.int, aten.log_softmax.int, aten.unsqueeze.default,
    aten.select.int, aten.slice.Tensor, aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default,
    aten.argmax.default, aten.gather.default), 1) | dict.fromkeys((
        aten._log_softmax_backward_data.default, aten._softmax_backward_data.default), 2)
LOSSES = (aten.nll_loss_forward.default, aten.nll_loss_backward.default)
# Operators of a tensor and a number, and Python's operators of numbers, with the operators of tensors that compute the
# same where the number is computed from the number of selected rows.
OF_NUMBERS: dict[object, Any] = {
    form: op.Tensor for op in (aten.mul, aten.div, aten.add, aten.sub) for form in (op.Tensor, op.Scalar)}
NUMBERS: dict[object, Any] = {
    operator.mul: aten.mul.Tensor, operator.truediv: aten.div.Tensor, operator.add: aten.add.Tensor,
    operator.sub: aten.sub.Tensor, operator.floordiv: aten.floor_divide.default, operator.neg: aten.neg.default,
    operator.pow: aten.pow.Tensor_Tensor, torch.sym_max: aten.maximum.default, torch.sym_min: aten.minimum.default}
WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32,        # the dtype of these computations
        **dict.fromkeys((torch.uint8, torch.int8, torch.int16), torch.int32)}
FILLED = (aten.full.default, aten.scalar_tensor.default)        # tensors of one number
# Operators that create a tensor of given sizes, with the index of the argument that contains the sizes.
SIZED: dict[object, int] = {aten.expand.default: 1, aten.full.default: 0, aten.zeros.default: 0, aten.ones.default: 0,
                            **dict.fromkeys(NEW, 1)}
TRANSPOSED = (aten.permute.default, aten.transpose.int, aten.t.default)
PRODUCTS = (aten.mm.default, aten.matmul.default)
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
EXTREMA: dict[object, bool] = {aten.amax.default: False, aten.max.default: False,     # whether it is the least one
                               aten.amin.default: True, aten.min.default: True}
SUMS = (aten.sum.default, aten.mean.default, aten.sum.dim_IntList, aten.mean.dim)


def selects_by_mask(node: Node) -> bool:
    """Return whether a node is ``x[mask]`` with one mask, of the first axes."""
    args: Any = node.args
    if node.target is not aten.index.Tensor or len(args[1]) != 1:
        return False
    return bool(args[1][0].meta["val"].dtype == torch.bool)


def rewrite_masks(program: torch.export.ExportedProgram, line_of: Callable[[Node], Location | None]
                  ) -> torch.export.ExportedProgram:
    """Rewrite the selections of a program and return the program. Raise ``Unsupported`` at the line of an operator
    whose result still has a size that only running the program tells."""
    dynamic = [node for node in program.graph.nodes if size_of(node)]
    if not dynamic:
        return program
    if dynamic[0].op == "placeholder":
        raise Unsupported(feature=f"the argument '{dynamic[0].name}' with a symbolic size, "
                                  f"{list(dynamic[0].meta['val'].shape)}, as StableHLO",
                          instead="export the program for the sizes of its arguments, once for each")
    try:
        expand_losses(program.graph)
        program = program.run_decompositions(elementwise_losses())
    except GuardOnDataDependentSymNode as error:
        name = re.search(r"target=torch\.ops\.([\w.]+)", str(error))
        tensors = (node for node in dynamic if isinstance(node.meta["val"], torch.Tensor))
        raise refused(name[1] if name else "program", next(filter(None, map(line_of, tensors)), None)) from None
    Rewriting(program.graph, line_of).run()
    program.graph_module.recompile()
    return program


def is_matrix_transpose(node: Node) -> bool:
    """Return whether a node transposes a matrix."""
    args: Any = node.args
    rank = args[0].meta["val"].dim()
    axes = [1, 0] if node.target is aten.t.default else [axis % 2 for axis in (
        args[1] if node.target is aten.permute.default else args[1:3])]
    return rank == 2 and sorted(axes) == [0, 1] and (node.target is not aten.permute.default or axes == [1, 0])


def size_of(node: Node) -> str:
    """Return the symbol of a node's value or of one of its sizes that only running the program tells; "" if there is
    none."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return next((str(n) for n in value.shape if isinstance(n, torch.SymInt) and free_symbols(n)), "")
    is_number = isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) and free_unbacked_symbols(value)
    return str(value) if is_number else ""


class Rewriting:
    """The rewriting of one graph. ``masks`` maps each node with selected rows to the mask that selects them. ``sizes``
    maps each node that is a number of selected rows to the mask, and ``numbers`` has all nodes computed from such
    numbers."""

    def __init__(self, graph: torch.fx.Graph, line_of: Callable[[Node], Location | None]) -> None:
        self.graph, self.line_of = graph, line_of
        self.masks: dict[Node, Node] = {}
        self.sizes: dict[Node, Node] = {}
        self.numbers: set[Node] = set()
        self.columns: dict[Node, Node] = {}                     # nodes with selected columns, to the mask
        self.names: dict[Node, str] = {}                        # the operators that are not an index
        self.keys: dict[object, Node] = {}
        self.firsts: dict[Node, Node] = {}              # node -> first one that computes the same
        self.mode = next(node.meta["val"] for node in graph.nodes
                         if isinstance(node.meta.get("val"), torch.Tensor)).fake_mode

    def run(self) -> None:
        for node in list(self.graph.nodes):
            self.find_equal_node(node)
            if selects_by_mask(node):
                base, (mask,) = node.args
                shape = base.meta["val"].shape
                row_shape = shape[mask.meta["val"].dim():]
                with self.graph.inserting_before(node):
                    rows = self.call(node, aten.reshape.default, base,
                                     [prod(shape[:len(shape) - len(row_shape)]), *row_shape])
                node.replace_all_uses_with(rows)
                self.masks[rows] = self.combined(node)
            elif node.target in POSITIONS and node.args[0] not in self.masks:
                rows = self.positions(node)
                node.replace_all_uses_with(rows)
                self.names[rows] = str(node.target)
                mask = node.args[0]
                if mask.meta["val"].dtype != torch.bool:
                    with self.graph.inserting_before(rows):
                        mask = self.call(node, aten.ne.Scalar, mask, 0)
                self.masks[rows] = self.first_equal(mask)
            elif node.op != "output" and any(arg in self.numbers for arg in node.all_input_nodes):
                self.compute_number(node)
            elif any(arg in self.columns for arg in node.all_input_nodes):
                self.combine_rows(node)
            elif node.op != "output" and any(arg in self.masks for arg in node.all_input_nodes):
                self.rewrite(node)
        self.graph.eliminate_dead_code()
        self.refuse_results()
        left = next(filter(size_of, self.graph.nodes), None)
        if left is not None:
            raise self.refused(left)

    def combined(self, node: Node) -> Node:
        """Return the mask of the rows that ``x[mask]`` selects among those that an earlier mask has selected."""
        args: Any = node.args
        base, (mask,) = args
        outer = self.masks.get(base)
        if self.masks.get(mask) is not outer:
            raise self.refused(node)
        if outer is None:
            return self.first_equal(mask)
        with self.graph.inserting_before(node):
            return self.first_equal(self.call(node, aten.logical_and.default, self.rows_of(
                node, outer, mask.meta["val"].dim()), mask))

    def refuse_results(self) -> None:
        """Raise an error if the program returns selected rows."""
        for node in self.graph.output_node().all_input_nodes:
            if node in self.masks:
                raise refused(self.names.get(node, str(aten.index.Tensor)), self.line_of(node))

    def rewrite(self, node: Node) -> None:
        """Let a node compute all rows, or select those of the mask."""
        selected = [arg for arg in node.all_input_nodes if arg in self.masks]
        mask, target = self.masks[selected[0]], node.target
        args: Any = node.args
        if target is aten.sym_size.int:
            self.sizes[node] = mask
            return self.numbers.add(node)
        if target in NEW and not size_of(node):
            return None
        if target is aten._assert_tensor_metadata.default:
            return self.graph.erase_node(node)
        if target in TRANSPOSED and is_matrix_transpose(node):
            node.meta["val"] = self.value(target, args, node.kwargs)
            self.columns[node] = mask
            return None
        if any(self.masks[arg] is not mask for arg in selected):
            raise self.refused(node)
        with self.graph.inserting_before(node):
            if target is aten.index_put.default and args[2] in self.masks and len(args[1]) == 1 and (
                    self.first_equal(args[1][0]) is mask and args[0] not in self.masks):
                return self.select_rows(node, mask)
            if target in SUMS and 0 in self.axes(node):
                return self.total(node, mask)
            if target in EXTREMA and 0 in self.axes(node):
                return self.extremum(node, mask)
            if target in LOSSES:
                return self.loss(node, mask)
            if target in (aten.index_put.default, aten.index_add.default) and self.adds_rows(node, mask):
                return None
        if not (self.is_elementwise(node, selected) or target in ROWS or self.is_product(node, selected) or (
                target in ALONG and 0 not in self.axes(node) and selected == node.all_input_nodes)
                or self.reads_rows(node, selected)):
            raise self.refused(node)
        node.meta["val"] = self.value(node.target, args, node.kwargs)
        self.masks[node] = mask
        return None

    def is_elementwise(self, node: Node, selected: list[Node]) -> bool:
        """Return whether each row of the result depends only on elements of the same row."""
        rank = node.meta["val"].dim() if isinstance(node.meta.get("val"), torch.Tensor) else 0
        operands = [arg.meta["val"] for arg in node.all_input_nodes if arg not in selected]
        return torch.Tag.pointwise in getattr(node.target, "tags", ()) and all(
            arg.meta["val"].dim() == rank for arg in selected) and all(
            isinstance(v, torch.Tensor) and (v.dim() < rank or v.shape[0] == 1) for v in operands)

    def is_product(self, node: Node, selected: list[Node]) -> bool:
        """Return whether a node normalizes the rows, multiplies them by a matrix, or reads a table's row for each."""
        if node.target in NORMS:
            args: Any = node.args
            return selected == [args[0]] and len(args[1]) < args[0].meta["val"].dim()
        at = ROWS_OF.get(node.target)
        if at is None or selected != [node.args[at]]:
            return False
        return node.target is aten.embedding.default or (selected[0].meta["val"].dim() > 1 and all(
            arg.meta["val"].dim() <= 2 for arg in node.all_input_nodes if arg not in selected))

    def axes(self, node: Node) -> list[int]:
        """Return the axes along which a node computes: all, if it names none."""
        at, source = ALONG.get(node.target), node.all_input_nodes[0].meta["val"]
        named: Any = node.args[at] if at is not None and len(node.args) > at else None
        if named is None or named == []:
            return [*range(source.dim())]
        rank = source.dim() + (node.target is aten.unsqueeze.default)
        return [axis % rank for axis in ([named] if isinstance(named, int) else named)]

    def select_rows(self, node: Node, mask: Node) -> None:
        """Select the rows of the mask instead of writing them into a tensor."""
        target, _, rows, *accumulate = node.args
        value: Any = target.meta["val"]                                                      # type: ignore[union-attr]
        values = self.call(node, aten.reshape.default, self.call(node, aten.expand.default, rows, [
            prod(mask.meta["val"].shape), *value.shape[mask.meta["val"].dim():]]), [*value.shape])
        if accumulate and accumulate[0]:
            values = self.call(node, aten.add.Tensor, target, values)
        condition = self.call(node, aten.reshape.default, mask, [
            *mask.meta["val"].shape, *[1] * (value.dim() - mask.meta["val"].dim())])
        node.replace_all_uses_with(self.call(node, aten.where.self, condition, values, target))
        self.graph.erase_node(node)

    def total(self, node: Node, mask: Node) -> None:
        """Add zeros for the rows that the mask leaves out; divide the sum of a mean by the number of the others."""
        rows: Any = node.args[0]
        value, axes = rows.meta["val"], self.axes(node)
        is_mean = node.target in (aten.mean.default, aten.mean.dim)
        dtype = node.meta["val"].dtype
        zeros = self.call(node, aten.zeros_like.default, rows)
        addends = self.call(node, aten.where.self, self.rows_of(node, mask, value.dim()), rows, zeros)
        wide = torch.float32 if is_mean and dtype in (torch.float16, torch.bfloat16) else dtype
        addends = self.call(node, aten._to_copy.default, addends, dtype=wide)
        keepdim = len(node.args) > 2 and bool(node.args[2])
        result = self.call(node, aten.sum.dim_IntList, addends, axes, keepdim)
        if is_mean:
            ones = self.call(node, aten._to_copy.default, mask, dtype=wide)
            count = self.call(node, aten.mul.Tensor, self.call(node, aten.sum.default, ones), float(
                prod(value.shape[axis] for axis in axes if axis)))
            result = self.call(node, aten.div.Tensor, result, count)
        if result.meta["val"].dtype != dtype:
            result = self.call(node, aten._to_copy.default, result, dtype=dtype)
        node.replace_all_uses_with(result)
        self.graph.erase_node(node)

    def extremum(self, node: Node, mask: Node) -> None:
        """Replace the rows that the mask leaves out by the lowest number, or by the greatest one."""
        rows: Any = node.args[0]
        value, is_least = rows.meta["val"], EXTREMA[node.target]
        if value.is_floating_point():
            limit: float = float("inf") if is_least else float("-inf")
        else:
            bounds = torch.iinfo(torch.uint8 if value.dtype == torch.bool else value.dtype)
            limit = bounds.max if is_least else bounds.min
        infinities = self.call(node, aten.full_like.default, rows, limit)
        node.update_arg(0, self.call(node, aten.where.self, self.rows_of(node, mask, value.dim()), rows, infinities))

    def positions(self, node: Node) -> Node:
        """Return the positions of all elements of a mask, [elements, axes]."""
        shape = node.args[0].meta["val"].shape                                                # type: ignore[union-attr]
        with self.graph.inserting_before(node):
            number = self.call(node, aten.arange.default, prod(shape))
            columns = []
            for axis, size in enumerate(shape):
                quotient = self.call(node, aten.div.Tensor_mode, number, prod(shape[axis + 1:]), rounding_mode="floor")
                columns.append(self.call(node, aten.remainder.Scalar, quotient, size))
            return self.call(node, aten.stack.default, columns, 1)

    def loss(self, node: Node, mask: Node) -> None:
        """Let a loss of classes ignore the targets of rows that the mask leaves out."""
        at = 2 if node.target is aten.nll_loss_backward.default else 1
        rows, target, _, reduction, ignored = node.args[at - 1:at + 4]
        if target not in self.masks or rows.meta["val"].dim() != 2:                           # type: ignore[union-attr]
            raise self.refused(node)
        other = self.call(node, aten.full_like.default, target, ignored)
        node.update_arg(at, self.call(node, aten.where.self, self.rows_of(node, mask, 1), target, other))
        node.meta["val"] = self.value(node.target, node.args, node.kwargs)
        if at == 2:
            self.masks[node] = mask
        elif reduction == 0:                                             # a loss for each row
            values = [user for user in node.users if user.args[1] == 0]
            self.masks.update(dict.fromkeys(values, mask))
            for user in values:
                user.meta["val"] = node.meta["val"][0]

    def reads_rows(self, node: Node, selected: list[Node]) -> bool:
        """Return whether a node reads an element or row of a tensor at each of the selected positions."""
        indices: Any = node.args[1] if node.target is aten.index.Tensor else []
        return len(indices) > 0 and None not in indices and node.args[0] not in self.masks and all(
            index in selected and index.meta["val"].dim() == 1 for index in indices)

    def adds_rows(self, node: Node, mask: Node) -> bool:
        """Let a node that adds selected rows to a tensor add zeros for the other rows. Return whether it is one."""
        if node.target is aten.index_add.default:
            base, axis, index, rows = node.args[:4]
            indices: Any = [index] if axis == 0 else []
            at = 3
        else:
            base, indices, rows, *accumulate = node.args
            at = 2
            if not (accumulate and accumulate[0]):
                return False
        if base in self.masks or not indices or any(index not in self.masks or index.meta["val"].dim() != 1
                                                    for index in indices) or rows not in self.masks:
            return False
        zeros = self.call(node, aten.zeros_like.default, rows)
        rank = rows.meta["val"].dim()                                                         # type: ignore[union-attr]
        node.update_arg(at, self.call(node, aten.where.self, self.rows_of(node, mask, rank), rows, zeros))
        node.meta["val"] = self.value(node.target, node.args, node.kwargs)
        return True

    def rows_of(self, node: Node, mask: Node, rank: int) -> Node:
        """Return the mask along the first of ``rank`` axes."""
        return self.call(node, aten.reshape.default, mask, [prod(mask.meta["val"].shape), *[1] * (rank - 1)])

    def combine_rows(self, node: Node) -> None:
        """Compute the product of transposed rows and rows, ``x[mask].T @ y[mask]``, with zeros for the other rows."""
        args: Any = node.args
        if node.target not in PRODUCTS or args[0] not in self.columns or self.masks.get(args[1]) is not (
                mask := self.columns[args[0]]):
            raise self.refused(node)
        with self.graph.inserting_before(node):
            condition = self.rows_of(node, mask, args[1].meta["val"].dim())
            rows = self.call(node, aten.where.self, condition, args[1], self.call(
                node, aten.zeros_like.default, args[1]))
            condition = self.call(node, aten.reshape.default, mask, [1, prod(mask.meta["val"].shape)])
            columns = self.call(node, aten.where.self, condition, args[0], self.call(
                node, aten.zeros_like.default, args[0]))
        node.args = (columns, rows)
        node.meta["val"] = self.value(node.target, node.args, node.kwargs)

    def write_rows(self, node: Node) -> bool:
        """Let a node that writes a tensor of as many rows as a mask selects write all rows. Return whether it is one.
        """
        at, args = SIZED.get(node.target), list[Any](node.args)
        if at is None or not isinstance(args[at][0] if args[at] else None, Node):
            return False
        count, *other_sizes = args[at]
        mask = self.sizes.get(count)
        source = next((arg for arg in node.all_input_nodes if arg is not count), None)
        if mask is None or any(isinstance(n, Node) for n in other_sizes) or source in self.numbers:
            return False
        if source in self.masks and node.target not in NEW and (
                self.masks[source] is not mask or source.meta["val"].dim() != len(args[at])):
            return False
        args[at] = [prod(mask.meta["val"].shape), *other_sizes]
        node.args = tuple(args)
        node.meta["val"] = self.value(node.target, node.args, node.kwargs)
        self.masks[node], self.names[node] = mask, str(node.target)
        return True

    def compute_number(self, node: Node) -> None:
        """Use the number of selected rows, or a number computed from it, as a tensor; drop assertions about it."""
        target: Any = node.target
        args: Any = node.args
        dtype = getattr(node.meta.get("val"), "dtype", None)
        if target is aten._assert_scalar.default:
            return self.graph.erase_node(node)
        if target in NUMBERS or target in COMPARISONS or target is torch.sym_float:
            return self.numbers.add(node)
        if self.write_rows(node):
            return None
        if target in FILLED and args[-1] in self.numbers and (len(args) == 1 or args[0] == []):
            with self.graph.inserting_before(node):
                node.replace_all_uses_with(self.tensor_of(node, args[-1], dtype))
            return self.graph.erase_node(node)
        if target not in OF_NUMBERS or len(args) != 2 or node.kwargs or args[0] in self.numbers:
            raise self.refused(node)
        x, number = args
        wide: Any = WIDE.get(dtype, dtype)                                                   # type: ignore[arg-type]
        with self.graph.inserting_before(node):
            operand = self.call(node, aten._to_copy.default, x, dtype=wide)
            value = self.call(node, OF_NUMBERS[target], operand, self.tensor_of(node, number, wide))
            result = self.call(node, aten._to_copy.default, value, dtype=dtype)
        if x in self.masks:
            self.masks |= dict.fromkeys((operand, value, result), self.masks[x])
        node.replace_all_uses_with(result)
        return self.graph.erase_node(node)

    def tensor_of(self, node: Node, number: Any, dtype: Any) -> Node:
        """Return a number as a tensor without axes."""
        if number in self.sizes:
            ones = self.call(node, aten._to_copy.default, self.sizes[number], dtype=dtype)
            return self.call(node, aten.sum.default, ones, dtype=dtype)
        if isinstance(number, Node):
            if number.target is torch.sym_float:
                return self.tensor_of(node, next(iter(number.args)), dtype)
            if number.target not in NUMBERS:
                raise self.refused(number)
            return self.call(node, NUMBERS[number.target], *(self.tensor_of(node, n, dtype) for n in number.args))
        return self.call(node, aten.full.default, [], number, dtype=dtype)

    def call(self, old: Node, target: Any, *args: Any, **keywords: Any) -> Node:
        """Emit an operator at the insertion point, with the line of an old node."""
        node = self.graph.call_function(target, args, keywords)
        node.meta |= {k: v for k, v in old.meta.items() if k in ("stack_trace", "nn_module_stack", "torch_fn")}
        node.meta["val"] = self.value(target, args, keywords)
        self.find_equal_node(node)
        return node

    def value(self, target: Any, args: Any, keywords: Any) -> Any:
        with self.mode:
            return target(*torch.fx.map_arg(args, lambda n: n.meta["val"]),
                          **torch.fx.map_arg(keywords, lambda n: n.meta["val"]))

    def find_equal_node(self, node: Node) -> None:
        """Find the first node that computes the same as a node whose operands have been noted."""
        key: object = node
        if node.op == "call_function" and torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
            key = node.target, str(torch.fx.map_arg((node.args, node.kwargs), self.first_equal))
        self.firsts[node] = self.keys.setdefault(key, node)

    def first_equal(self, node: Node) -> Node:
        """Return the first node that computes the same, so that masks that a program computes twice are one."""
        return self.firsts.get(node, node)

    def refused(self, node: Node) -> NkiMlirError:
        target: Any = node.target
        name = str(target) if isinstance(target, torch._ops.OpOverload | str) else target.__name__
        return refused(name, self.line_of(node))


def refused(name: str, at: Location | None) -> NkiMlirError:
    return Unsupported(feature=f"PyTorch's {name} with sizes or numbers that depend on values, as StableHLO",
                       instead="compute all elements, and choose with torch.where(mask, ...)").located(at)


__all__ = ["rewrite_masks"]

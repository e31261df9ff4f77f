# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowers operators of PyTorch's dialect to StableHLO and CHLO that upstream lowers wrongly or rejects.

before:  %1 = torch.aten.fmod.Tensor %a, %b
after:   %1 = torch_c.from_builtin_tensor(stablehlo.remainder %2, %3)       (%2, %3 = torch_c.to_builtin_tensor %a, %b)
"""

import re
from collections.abc import Callable
from math import prod

import numpy as np

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.creation import terminator, value_of
from nki_mlir.graph.tensor_values import compared, of_element, splat
from nki_mlir.graph.upstream import error_function
from nki_mlir.scalar.dtypes import BY_MLIR

FUNCTIONS = {"torch.aten.erfc": "chlo.erfc", "torch.aten.erfinv": "chlo.erf_inv", "torch.aten.lgamma": "chlo.lgamma",
             "torch.aten.digamma": "chlo.digamma"}


def lower_operators(module: Module) -> None:
    """Lower the operators of this module's table, where it has a lowering for their dtypes."""
    for op in operations_of(module, lambda name: name == "torch.operator" or name in LOWERINGS):
        lowering = LOWERINGS.get(operator_of(op))
        if lowering is None:
            continue
        with ir.InsertionPoint(op), op.location:
            results = lowering(op)
            if results is None:
                continue
            for old, new in zip(op.results, results if isinstance(results, tuple) else (results,), strict=True):
                old.replace_all_uses_with(value_of("torch_c.from_builtin_tensor", old.type, new))
        op.erase()


def operator_of(op: Operation) -> str:
    """Return the name of an operator, which is an attribute for those that the dialect lacks."""
    return op.attributes["name"].value if op.name == "torch.operator" else op.name


def described(value: Value) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and dtype of a tensor of PyTorch's dialect: ``!torch.vtensor<[2,3],si32>``."""
    sizes, element = re.fullmatch(r"!torch\.vtensor<\[(.*)\],(\w+)>", str(value.type)).groups()      # type: ignore[union-attr]
    return tuple(map(int, filter(None, sizes.split(",")))), BY_MLIR[element.removeprefix("s")].numpy


def builtin(value: Value) -> Value:
    """Return a tensor of PyTorch's dialect as a builtin one, whose integers have no sign."""
    shape, _ = described(value)
    element = str(value.type).rpartition(",")[2][:-1].removeprefix("s")
    return value_of("torch_c.to_builtin_tensor", ir.RankedTensorType.get(shape, ir.Type.parse(element)), value)


def remainder(op: Operation) -> Value | None:
    """Lower ``fmod`` of floats to StableHLO's remainder, which is exact: upstream would subtract a multiple of a
    rounded quotient, which is wrong for large ones and for infinite divisors."""
    if described(op.operands[0])[1].kind in "iub":
        return None
    a, b = map(builtin, op.operands)
    return value_of("stablehlo.remainder", a.type, a, b)


def equal(op: Operation) -> Value | None:
    """Lower the comparison of two floats of one type: upstream takes each value for equal to itself, NaN too."""
    if described(op.operands[0])[1].kind in "iub" or op.operands[0].type != op.operands[1].type:
        return None
    a, b = map(builtin, op.operands)
    return compared(a, "EQ", b)


def running_product(op: Operation) -> Value | None:
    """Lower ``cumprod`` to windows that end at each element."""
    dim, value = integer(op.operands[1]), builtin(op.operands[0])
    kind = ir.RankedTensorType(value.type)
    result_type = str(op.results[0].type).rpartition(",")[2][:-1].removeprefix("s")
    element = ir.Type.parse(result_type)
    if element != kind.element_type:
        kind = ir.RankedTensorType.get(kind.shape, element)
        value = value_of("stablehlo.convert", kind, value)
    if dim is None or not kind.rank or 0 in kind.shape:
        return value
    windows = [1] * kind.rank
    windows[dim] = kind.shape[dim]
    padding = np.zeros((kind.rank, 2), np.int64)
    padding[dim, 0] = kind.shape[dim] - 1
    scalar, array = ir.RankedTensorType.get([], element), ir.DenseI64ArrayAttr.get
    attributes = {"window_dimensions": array(windows), "padding": ir.DenseElementsAttr.get(padding)}
    product = ir.Operation.create("stablehlo.reduce_window", results=[kind], operands=[value, splat(scalar, 1)],
                                  attributes=attributes, regions=1)
    block = product.regions[0].blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        ir.Operation.create("stablehlo.return", operands=[value_of("stablehlo.multiply", scalar, *block.arguments)])
    return product.results[0]


def max_pool_gradient(op: Operation) -> Value | None:
    """Lower the gradient of a max pool to a scatter to the element that the pool chooses in each window: the last NaN,
    else the first of the greatest elements."""
    size, stride, padding, dilation = map(integers, op.operands[2:6])
    grad, x = map(builtin, op.operands[:2])
    kind, scalar = ir.RankedTensorType(x.type), ir.RankedTensorType.get([], ir.RankedTensorType(x.type).element_type)
    if any(each != 1 for each in dilation):
        return None
    rank = 3 if "max_pool3d" in operator_of(op) else 2
    size, stride, padding = ([*each] * (rank // max(1, len(each))) for each in (size, stride, padding))
    steps, outer = stride or size, [1] * (kind.rank - rank)
    after = [max(0, (count - 1) * step + width - extent - before) for count, step, width, extent, before in zip(
        ir.RankedTensorType(grad.type).shape[-rank:], steps, size, kind.shape[-rank:], padding)]
    around = np.array([*[(0, 0)] * len(outer), *zip(padding, after)], np.int64)
    array = ir.DenseI64ArrayAttr.get
    scatter = ir.Operation.create(
        "stablehlo.select_and_scatter", results=[kind], operands=[x, grad, splat(scalar, 0)], regions=2, attributes={
            "window_dimensions": array([*outer, *size]), "window_strides": array([*outer, *steps]),
            "padding": ir.DenseElementsAttr.get(around)})
    for region, is_choice in zip(scatter.regions, (True, False)):
        block = region.blocks.append(scalar, scalar)
        a, b = block.arguments
        with ir.InsertionPoint(block):
            if is_choice:
                is_greater = compared(b, "GT", a)
                replaces = value_of("stablehlo.or", is_greater.type, is_greater, compared(b, "NE", b))
                result = value_of("stablehlo.not", is_greater.type, replaces)
            else:
                result = value_of("stablehlo.add", scalar, a, b)
            ir.Operation.create("stablehlo.return", operands=[result])
    return scatter.results[0]


def max_pool_3d(op: Operation) -> tuple[Value, Value] | None:
    """Lower a max pool in three dimensions whose positions are read; ``order_pools`` completes the comparison."""
    size, stride, padding, dilation = map(integers, op.operands[1:5])
    if not any(True for _ in op.results[1].uses):
        return None
    image, number = builtin(op.operands[0]), ir.IntegerType.get_signless(64)
    kind = ir.RankedTensorType(image.type)
    shape, outer = list(kind.shape), [1] * (kind.rank - 3)
    positions = value_of("stablehlo.iota", ir.RankedTensorType.get([prod(shape[-3:])], number),
                         iota_dimension=ir.IntegerAttr.get(number, 0))
    positions = value_of("stablehlo.reshape", ir.RankedTensorType.get(shape[-3:], number), positions)
    positions = value_of("stablehlo.broadcast_in_dim", ir.RankedTensorType.get(shape, number), positions,
                         broadcast_dimensions=ir.DenseI64ArrayAttr.get([*range(kind.rank - 3, kind.rank)]))
    scalars = [ir.RankedTensorType.get([], t) for t in (kind.element_type, number)]
    is_float = isinstance(kind.element_type, ir.FloatType)
    lowest = float("-inf") if is_float else -(1 << (kind.element_type.width - 1))
    array = ir.DenseI64ArrayAttr.get
    around = np.array([*[(0, 0)] * len(outer), *((pad, pad) for pad in padding)], np.int64)
    types = [ir.RankedTensorType.get(described(result)[0], t.element_type) for result, t in zip(op.results, scalars)]
    pool = ir.Operation.create(
        "stablehlo.reduce_window", results=types, operands=[image, positions, splat(scalars[0], lowest),
                                                            splat(scalars[1], 0)], regions=1, attributes={
            "window_dimensions": array([*outer, *size]), "window_strides": array([*outer, *stride]),
            "window_dilations": array([*outer, *dilation]), "padding": ir.DenseElementsAttr.get(around)})
    block = pool.regions[0].blocks.append(*scalars, *scalars)
    with ir.InsertionPoint(block):
        old, old_position, new, position = block.arguments
        chosen = compared(new, "GT", old, "FLOAT" if is_float else "SIGNED")
        ir.Operation.create("stablehlo.return", operands=[
            value_of("stablehlo.select", scalars[0], chosen, new, old),
            value_of("stablehlo.select", scalars[1], chosen, position, old_position)])
    return pool.results[0], pool.results[1]


def scatter_reduction(op: Operation) -> Value | None:
    """Lower the scatters that ``torch_scatters`` writes: one result for each line along the axis, by a product or an
    extremum."""
    a, index, updates = (builtin(op.operands[k]) for k in (0, 2, 3))
    dim, name = integer(op.operands[1]), defining(op.operands[4]).attributes["value"].value  # type: ignore[union-attr]
    combined = {"prod": "multiply", "amax": "maximum", "amin": "minimum"}.get(name)
    kind, lines = ir.RankedTensorType(a.type), ir.RankedTensorType(index.type)
    if dim is None or combined is None:
        return None
    batched = ", ".join(str(d) for d in range(kind.rank) if d != dim)
    batches = f"input_batching_dims = [{batched}], scatter_indices_batching_dims = [{batched}], " if batched else ""
    index = value_of("stablehlo.reshape", ir.RankedTensorType.get([*lines.shape, 1], lines.element_type), index)
    scalar = ir.RankedTensorType.get([], kind.element_type)
    numbers = ir.Attribute.parse(f"#stablehlo.scatter<inserted_window_dims = [{dim}], {batches}"
                                 f"scatter_dims_to_operand_dims = [{dim}], index_vector_dim = {kind.rank}>")
    scatter = ir.Operation.create("stablehlo.scatter", results=[kind], operands=[a, index, updates], regions=1,
                                  attributes={"scatter_dimension_numbers": numbers})
    block = scatter.regions[0].blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        ir.Operation.create("stablehlo.return", operands=[value_of(f"stablehlo.{combined}", scalar, *block.arguments)])
    return scatter.results[0]


def silu_gradient(op: Operation) -> Value:
    """Lower the gradient of ``silu``, for which PyTorch applies no decomposition."""
    grad, a = map(builtin, op.operands)
    ones, share = splat(a.type, 1), value_of("stablehlo.logistic", a.type, a)
    product = value_of("stablehlo.multiply", a.type, a, value_of("stablehlo.subtract", a.type, ones, share))
    slope = value_of("stablehlo.multiply", a.type, share, value_of("stablehlo.add", a.type, ones, product))
    return value_of("stablehlo.multiply", a.type, grad, slope)


def mish_gradient(op: Operation) -> Value:
    """Lower the gradient of ``x * tanh(softplus(x))``, for which PyTorch applies no decomposition, in float32 for
    narrow floats."""
    grad, a = map(builtin, op.operands)
    narrow, element = a.type, ir.RankedTensorType(a.type).element_type
    kind = of_element(narrow, ir.F32Type.get()) if element.width < 32 else narrow
    if kind != narrow:
        grad, a = (value_of("stablehlo.convert", kind, v) for v in (grad, a))

    def call(name: str, *operands: Value) -> Value:
        return value_of(f"stablehlo.{name}", kind, *operands)
    ones, logarithm = splat(kind, 1), call("log_plus_one", call("exponential", call("negate", call("abs", a))))
    share = call("tanh", call("add", call("maximum", a, splat(kind, 0)), logarithm))
    inner = call("multiply", call("multiply", a, call("logistic", a)), call("subtract", ones, call(
        "multiply", share, share)))
    result = call("multiply", grad, call("add", share, inner))
    return result if kind == narrow else value_of("stablehlo.convert", narrow, result)


def integers(value: Value) -> list[int]:
    """Return a constant list of integers of PyTorch's dialect."""
    elements = [] if isinstance(value.owner, ir.Block) else list(value.owner.operands)
    return [number for element in elements if (number := integer(element)) is not None]


def integer(value: Value) -> int | None:
    """Return a constant integer of PyTorch's dialect."""
    attributes = None if isinstance(value.owner, ir.Block) else value.owner.attributes
    return attributes["value"].value if attributes is not None and "value" in attributes else None


def function(op: Operation) -> Value:
    a = builtin(op.operands[0])
    return value_of(FUNCTIONS[operator_of(op)], a.type, a)


def erf(op: Operation) -> Value | None:
    """Lower ``erf`` of floats with the sign of a zero, which upstream loses."""
    return None if described(op.operands[0])[1].kind in "iub" else error_function(builtin(op.operands[0]))


def digamma(op: Operation) -> Value:
    """Lower ``digamma`` with its pole at 0, -1 / x, where upstream has NaN."""
    a = builtin(op.operands[0])
    pole = value_of("stablehlo.divide", a.type, splat(a.type, -1), a)
    return value_of("stablehlo.select", a.type, compared(a, "EQ", splat(a.type, 0)), pole, function(op))


# -- in StableHLO ------------------------------------------------------------------------------------------------------
def order_numbers(module: Module) -> None:
    """Let sorts of floats compare in PyTorch's order, in which NaN is the greatest number, and keep equal elements in
    order. Upstream compares with LT or GT, which do not order NaN.

    Sorts of which the program reads the first elements alone compare numbers directly in total order, which is what
    ``graph/greatest_elements.py`` searches by; elements that are equal may have any order there.
    """
    for op in operations_of(module, lambda name: name == "stablehlo.sort"):
        op.attributes["is_stable"] = ir.BoolAttr.get(True, op.context)
        compare = op.regions[0].blocks[0].operations[0].operation
        if "FLOAT" not in str(compare.attributes["compare_type"]):
            continue
        compare.attributes["compare_type"] = ir.Attribute.parse("#stablehlo<comparison_type TOTALORDER>", op.context)
        with ir.InsertionPoint(op), op.location:
            op.operands[0] = without_sign(op.operands[0], "NE", op.operands[0], float("nan"))
        if not all(use.owner.operation.name == "stablehlo.slice" for result in op.results for use in result.uses):
            with ir.InsertionPoint(compare), op.location:
                for k, value in enumerate(list(compare.operands)):
                    zero = splat(value.type, 0.0)
                    compare.operands[k] = without_sign(value, "EQ", zero, 0.0)


def order_pools(module: Module) -> None:
    """Let max pools with positions choose as PyTorch does: the last NaN of a window, else the first of the greatest
    elements, also where all are the lowest number. Upstream loses a NaN that a number follows, and takes element 0 for
    windows of -inf."""
    for op in operations_of(module, lambda name: name == "stablehlo.reduce_window"):
        if len(op.results) != 2:
            continue
        with ir.InsertionPoint(op), op.location:
            op.operands[3] = splat(op.operands[3].type, -1)
        block = op.regions[0].blocks[0]
        old, old_position, new, position = block.arguments
        order = str(block.operations[0].operation.attributes["compare_type"]).split()[-1].rstrip(">")
        end = terminator(block)
        with ir.InsertionPoint(end), op.location:
            is_greater, unwritten = compared(new, "GT", old, order), compared(
                old_position, "LT", splat(position.type, 0), "SIGNED")
            truth = is_greater.type
            chosen = value_of("stablehlo.or", truth, is_greater, unwritten)
            if order == "FLOAT":
                chosen = value_of("stablehlo.or", truth, chosen, compared(new, "NE", new, order))
            end.operands[0] = value_of("stablehlo.select", new.type, chosen, new, old)
            end.operands[1] = value_of("stablehlo.select", position.type, chosen, position, old_position)
        for inner in reversed([entry.operation for entry in block.operations]):
            if inner != end and not any(True for result in inner.results for _ in result.uses):
                inner.erase()


def without_sign(value: Value, direction: str, other: Value, number: float) -> Value:
    """Replace elements that compare with the other value in this way by ``number``, a zero or NaN without sign."""
    return value_of("stablehlo.select", value.type, compared(value, direction, other), splat(value.type, number),
                    value)


LOWERINGS: dict[str, Callable[[Operation], Value | tuple[Value, ...] | None]] = {
    "torch.aten.fmod.Tensor": remainder, "torch.aten.eq.Tensor": equal,
    "torch.aten.cumprod": running_product, "torch.aten.max_pool2d_with_indices_backward": max_pool_gradient,
    "torch.aten.max_pool3d_with_indices_backward": max_pool_gradient,
    "torch.aten.max_pool3d_with_indices": max_pool_3d, "torch.aten.scatter_reduce.two": scatter_reduction,
    "torch.aten.silu_backward": silu_gradient, "torch.aten.mish_backward": mish_gradient,
    **dict.fromkeys(FUNCTIONS, function), "torch.aten.erf": erf, "torch.aten.digamma": digamma}
__all__ = ["described", "lower_operators", "order_numbers", "order_pools"]

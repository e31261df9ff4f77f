# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites operations of a graph that upstream lowers to slow code, or not at all.

Upstream would turn a concatenation into a chain of branches at every element; here each operand is inserted into its
slice of the result, and so is a tensor that is padded with a value known at run time. The numbers of each index of a
gather go along the last dim of the indices: upstream's conversion crashes on other forms with batching dims. Unsigned
indices become signed ones. A condition that is one truth value for all elements becomes a tensor.
A ``stablehlo.while`` that counts between two constants becomes ``scf.for``, whose number of iterations is known; the
loop variable also computes carried integers that change by a constant in each iteration. Conversions of constants are
folded, and barriers of optimizations (``jax.checkpoint``) dropped, which compute nothing.
"""

from dataclasses import dataclass

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Module, Operation, Type, Value, ir, load, operations_of
from nki_mlir.dialects.creation import applied, constant, terminator, value_of
from nki_mlir.graph.tensor_values import compared, constant_splat, of_element, splat, transposed
from nki_mlir.graph.upstream import exchange


def rewrite_concatenations(module: Module | Operation) -> None:
    """Rewrite ``stablehlo.concatenate`` as ``tensor.insert_slice``."""
    for op in operations_of(module, lambda name: name == "stablehlo.concatenate"):
        kind = ir.RankedTensorType(op.results[0].type)
        if not kind.has_static_shape:
            continue
        axis, start = op.attributes["dimension"].value, 0
        array = ir.DenseI64ArrayAttr.get
        with op.context, ir.InsertionPoint(op), op.location:
            value = value_of("tensor.empty", kind)
            for operand in op.operands:
                shape = list(ir.RankedTensorType(operand.type).shape)
                offsets = [start if d == axis else 0 for d in range(len(shape))]
                value = value_of("tensor.insert_slice", kind, operand, value, static_offsets=array(offsets),
                                 static_sizes=array(shape), static_strides=array([1] * len(shape)),
                                 operandSegmentSizes=ir.DenseI32ArrayAttr.get([1, 1, 0, 0, 0]))
                start += shape[axis]
        exchange(op, [value])


def drop_barriers(module: Module) -> None:
    """Replace the results of ``stablehlo.optimization_barrier`` by its operands."""
    for op in operations_of(module, lambda name: name == "stablehlo.optimization_barrier"):
        exchange(op, list(op.operands))


def broadcast_predicates(module: Module) -> None:
    """Broadcast the condition of a ``stablehlo.select`` that is one truth value for all elements.

    Upstream reads such a condition once as a scalar. As a tensor it is an operand like the others: a constant one folds
    (``jnp.var`` compares its number of elements with 0), and no engine has to read a register.
    """
    for op in operations_of(module, lambda name: name == "stablehlo.select"):
        condition, result = op.operands[0], ir.RankedTensorType(op.results[0].type)
        if ir.RankedTensorType(condition.type).rank or not result.rank or not result.has_static_shape:
            continue
        with op.context, ir.InsertionPoint(op), op.location:
            kind = of_element(result, ir.IntegerType.get_signless(1))
            op.operands[0] = value_of("stablehlo.broadcast_in_dim", kind, condition,
                                      broadcast_dimensions=ir.DenseI64ArrayAttr.get([]))


EXACT = 1 << 53                     # integers up to here are numbers of float64


def fold_conversions(module: Module) -> None:
    """Replace conversions of constants of one number by constants: frameworks write numbers as float64 and int64, which
    engines do not compute."""
    for op in operations_of(module, lambda name: name == "stablehlo.convert"):
        constant_op, kind = defining(op.operands[0]), ir.RankedTensorType(op.results[0].type)
        while constant_op is not None and constant_op.name in ("stablehlo.reshape", "stablehlo.broadcast_in_dim"):
            constant_op = defining(constant_op.operands[0])
        attribute = constant_op.attributes["value"] if constant_op is not None and constant_op.name in (
            "stablehlo.constant", "arith.constant") else None
        if not isinstance(attribute, ir.DenseElementsAttr) or not attribute.is_splat or not kind.has_static_shape:
            continue
        number = _converted(attribute.get_splat_value(), kind.element_type)
        if number is not None:
            with op.context, ir.InsertionPoint(op), op.location:
                value = ir.DenseElementsAttr.get_splat(kind, number)
                exchange(op, [value_of("stablehlo.constant", kind, value=value)])


def _converted(number: ir.Attribute, kind: Type) -> ir.Attribute | None:
    """Return a number of another type; None if that may depend on how it is rounded or where it saturates."""
    if isinstance(number, ir.FloatAttr):
        if isinstance(kind, ir.F16Type | ir.BF16Type):
            rounded = ir.FloatAttr.get(kind, number.value)
            through_float32 = ir.FloatAttr.get(kind, ir.FloatAttr.get(ir.F32Type.get(kind.context), number.value).value)
            return rounded if rounded == through_float32 else None
        return ir.FloatAttr.get(kind, number.value) if isinstance(kind, ir.F32Type | ir.F64Type) else None
    source = number.type
    if not isinstance(source, ir.IntegerType) or not source.is_signless or source.width not in (8, 16, 32, 64):
        return None
    value = ir.IntegerAttr(number).value
    if isinstance(kind, ir.F32Type | ir.F64Type):
        return ir.FloatAttr.get(kind, float(value)) if abs(value) <= EXACT else None
    is_signed = isinstance(kind, ir.IntegerType) and kind.is_signless and kind.width in (8, 16, 32, 64)
    fits = is_signed and -(1 << kind.width - 1) <= value < 1 << kind.width - 1
    return ir.IntegerAttr.get(kind, value) if fits else None


def rewrite_powers(module: Module) -> None:
    """Rewrite powers of integers as products of squares: upstream emits a loop for each element."""
    for op in operations_of(module, lambda name: name == "stablehlo.power"):
        kind = ir.RankedTensorType(op.results[0].type)
        if not isinstance(kind.element_type, ir.IntegerType):
            continue
        exponent = constant_splat(op.operands[1])
        with op.context, ir.InsertionPoint(op), op.location:
            if exponent is not None and (
                    0 <= (number := ir.IntegerAttr(exponent.get_splat_value()).value) <= kind.element_type.width):
                exchange(op, [_power(op.operands[0], number)])
            else:
                exchange(op, [_power_of_tensors(*op.operands)])


def _power(base: Value, exponent: int) -> Value:
    result, kind = None, base.type
    while exponent:
        if exponent & 1:
            result = base if result is None else value_of("stablehlo.multiply", kind, result, base)
        exponent >>= 1
        if exponent:
            base = value_of("stablehlo.multiply", kind, base, base)
    return splat(kind, 1) if result is None else result


def _power_of_tensors(base: Value, exponent: Value) -> Value:
    """Emit a power with an exponent for each element. The powers of odd bases need all squares of the base. A negative
    exponent gives 0, except for the bases 1 and -1."""
    kind = ir.RankedTensorType(base.type)
    element = kind.element_type

    def is_number(a: Value, direction: str, number: int) -> Value:
        return compared(a, direction, splat(kind, number))
    result, square = splat(kind, 1), base
    for bit in range(element.width - (not element.is_unsigned)):
        is_set = is_number(value_of("stablehlo.and", kind, exponent, splat(kind, 1 << bit)), "NE", 0)
        product = value_of("stablehlo.multiply", kind, result, square)
        result = value_of("stablehlo.select", kind, is_set, product, result)
        square = value_of("stablehlo.multiply", kind, square, square)
    if element.is_unsigned:
        return result
    is_unit = value_of("stablehlo.or", of_element(kind, ir.IntegerType.get_signless(1)), is_number(base, "EQ", 1),
                       is_number(base, "EQ", -1))
    sign = value_of("stablehlo.select", kind, is_number(
        value_of("stablehlo.and", kind, exponent, splat(kind, 1)), "NE", 0), base, splat(kind, 1))
    inverse = value_of("stablehlo.select", kind, is_unit, sign, splat(kind, 0))
    return value_of("stablehlo.select", kind, is_number(exponent, "LT", 0), inverse, result)


def rewrite_pads(module: Module) -> None:
    """Rewrite ``stablehlo.pad`` with a value that is not a constant as ``tensor.insert_slice`` into a broadcast.

    A negative padding becomes a slice of the result.
    """
    array = ir.DenseI64ArrayAttr.get
    for op in operations_of(module, lambda name: name == "stablehlo.pad"):
        source, result = (ir.RankedTensorType(v.type) for v in (op.operands[0], op.results[0]))
        padding = defining(op.operands[1])
        if ((padding is not None and padding.name == "stablehlo.constant") or 0 in (*source.shape, *result.shape)
                or not source.has_static_shape):
            continue
        low, high = (list(op.attributes[f"edge_padding_{end}"]) for end in ("low", "high"))
        steps = [n + 1 for n in op.attributes["interior_padding"]]
        padded = [(n - 1) * step + 1 + max(a, 0) + max(b, 0) for n, step, a, b in zip(source.shape, steps, low, high)]
        with op.context, ir.InsertionPoint(op), op.location:
            kind = ir.RankedTensorType.get(padded, source.element_type)
            value = value_of("stablehlo.broadcast_in_dim", kind, op.operands[1], broadcast_dimensions=array([]))
            value = value_of("tensor.insert_slice", kind, op.operands[0], value,
                             static_offsets=array([max(n, 0) for n in low]), static_sizes=array(list(source.shape)),
                             static_strides=array(steps), operandSegmentSizes=ir.DenseI32ArrayAttr.get([1, 1, 0, 0, 0]))
            if padded != list(result.shape):
                value = value_of("stablehlo.slice", result, value,
                                 start_indices=array([max(-n, 0) for n in low]),
                                 limit_indices=array([n - max(-b, 0) for n, b in zip(padded, high)]),
                                 strides=array([1] * len(padded)))
        exchange(op, [value])


FARTHEST = (1 << 31) - 1           # an index beyond every tensor


def sign_indices(module: Module) -> None:
    """Convert unsigned indices of gathers and scatters to ``i32``; indices beyond it become its greatest number."""
    for op in operations_of(module, lambda name: name in ("stablehlo.gather", "stablehlo.scatter")):
        number = len(op.operands) // 2
        indices, kind = op.operands[number], ir.RankedTensorType(op.operands[number].type)
        element = kind.element_type
        if not element.is_unsigned:
            continue
        with op.context, ir.InsertionPoint(op), op.location:
            if element.width >= 32:
                farthest = ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(element, FARTHEST))
                limit = value_of("stablehlo.constant", kind, value=farthest)
                indices = value_of("stablehlo.minimum", kind, indices, limit)
            signed = of_element(kind, ir.IntegerType.get_signless(32))
            op.operands[number] = value_of("stablehlo.convert", signed, indices)


def rewrite_gathers(module: Module) -> None:
    """Transpose the indices of gathers so that the numbers of each index go along the last dim."""
    for op in operations_of(module, lambda name: name == "stablehlo.gather"):
        numbers = load("_mlir_libs._stablehlo").GatherDimensionNumbers(op.attributes["dimension_numbers"])
        indices, vector = ir.RankedTensorType(op.operands[1].type), numbers.index_vector_dim
        if vector >= indices.rank - 1:
            continue
        order = [*(d for d in range(indices.rank) if d != vector), vector]
        lists = {name: list(getattr(numbers, name)) for name in (
            "offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_index_map")}
        lists["start_indices_batching_dims"] = [order.index(d) for d in numbers.start_indices_batching_dims]
        with op.context, ir.InsertionPoint(op), op.location:
            op.operands[1] = transposed(op.operands[1], order)
            fields = ", ".join(f"{name} = {dims}" for name, dims in lists.items())
            op.attributes["dimension_numbers"] = ir.Attribute.parse(
                f"#stablehlo.gather<{fields}, index_vector_dim = {indices.rank - 1}>")


# -- loops that count --------------------------------------------------------------------------------------------------
def rewrite_counted_loops(module: Module) -> None:
    for op in reversed(operations_of(module, lambda name: name == "stablehlo.while")):
        counters = _counters(op)
        number = _iterations(op, counters)
        if number is not None:
            with op.context, ir.InsertionPoint(op), op.location:
                _as_for(op, number, counters)


@dataclass(frozen=True)
class Counter:
    """A carried integer that is ``first`` in the first iteration and grows by ``step`` in each iteration."""

    first: int
    step: int


WIDTHS = (1, 8, 16, 32, 64)         # widths of integers that the bindings give as numbers


def _number(value: Value) -> int | None:
    """Return the number of a scalar integer constant; None for any other value."""
    op = defining(value)
    if op is None or op.name != "stablehlo.constant" or ir.RankedTensorType(value.type).rank != 0:
        return None
    attribute = op.attributes["value"]
    kind = ir.RankedTensorType(value.type).element_type
    is_read = isinstance(attribute, ir.DenseIntElementsAttr) and isinstance(kind, ir.IntegerType)
    return int(attribute[0]) if is_read and kind.width in WIDTHS else None


def _counters(op: Operation) -> dict[int, Counter]:
    """Return the counters among the values that a loop carries, by their index."""
    body = op.regions[1].blocks[0]
    counters: dict[int, Counter] = {}
    for number, (before, after) in enumerate(zip(op.operands, terminator(body).operands)):
        start, stepped, argument = _number(before), defining(after), body.arguments[number]
        if start is None or stepped is None or stepped.name not in ("stablehlo.add", "stablehlo.subtract"):
            continue
        if not ir.RankedTensorType(before.type).element_type.is_signless:
            continue
        a, b = stepped.operands
        if stepped.name == "stablehlo.add" and a != argument:
            a, b = b, a
        step = _number(b)
        if a == argument and step is not None:
            counters[number] = Counter(start, step if stepped.name == "stablehlo.add" else -step)
    return counters


def _iterations(op: Operation, counters: dict[int, Counter]) -> int | None:
    """Return the number of iterations while a counter is below (at, above) a constant; None if it is unknown or 0."""
    condition = op.regions[0].blocks[0]
    compare = defining(terminator(condition).operands[0])
    if compare is None or compare.name != "stablehlo.compare":
        return None
    counted, limit = compare.operands
    bound = _number(limit)
    if not isinstance(counted.owner, ir.Block) or counted.owner != condition or bound is None:
        return None
    counter = counters.get(ir.BlockArgument(counted).arg_number)
    direction = str(compare.attributes["comparison_direction"])
    text = next(d for d in ("LT", "LE", "GT", "GE", "EQ", "NE") if d in direction)
    spans = {"LT": (1, bound), "LE": (1, bound + 1), "GT": (-1, bound), "GE": (-1, bound - 1)}
    if counter is None or text not in spans or counter.step * spans[text][0] <= 0:
        return None
    number = len(range(counter.first, spans[text][1], counter.step))
    return number if number and _holds(counter, number, ir.RankedTensorType(counted.type).element_type) else None


def _holds(counter: Counter, iterations: int, kind: ir.IntegerType) -> bool:
    """Return whether a counter stays within its type."""
    limit = 1 << kind.width - 1
    return -limit <= counter.first + iterations * counter.step < limit


def _as_for(op: Operation, iterations: int, counters: dict[int, Counter]) -> None:
    index = ir.IndexType.get()
    element = {k: ir.RankedTensorType(op.operands[k].type).element_type for k in counters}
    counters = {k: c for k, c in counters.items() if _holds(c, iterations, element[k])}
    bounds = [constant(n) for n in (0, iterations, 1)]
    carried = [k for k in range(len(op.operands)) if k not in counters]
    inits = [op.operands[k] for k in carried]
    loop = ir.Operation.create("scf.for", results=[v.type for v in inits], operands=[*bounds, *inits], regions=1)
    block, kinds = op.regions[1].blocks[0], [index, *(v.type for v in inits)]
    new = loop.regions[0].blocks.append(*kinds, arg_locs=[op.location] * len(kinds))
    with ir.InsertionPoint(new):
        counted = {k: _value(new.arguments[0], c, op.operands[k].type) for k, c in counters.items()}
        inner = [operation.operation for operation in block.operations]
        end = ir.Operation.create("scf.yield", operands=[inner[-1].operands[k] for k in carried])
    for operation in inner[:-1]:
        operation.move_before(end)
    for k, value in counted.items():
        block.arguments[k].replace_all_uses_with(value)
        op.results[k].replace_all_uses_with(_last(counters[k], iterations, op.operands[k].type))
    for k, argument, result in zip(carried, list(new.arguments)[1:], loop.results):
        block.arguments[k].replace_all_uses_with(argument)
        op.results[k].replace_all_uses_with(result)
    op.erase()


def _value(variable: Value, counter: Counter, kind: ir.Type) -> Value:
    """Emit the value of a counter in an iteration, as a tensor."""
    number = applied(ir.AffineExpr.get_symbol(0) * counter.step + counter.first, [variable])
    cast = value_of("arith.index_cast", ir.RankedTensorType(kind).element_type, number)
    return value_of("tensor.from_elements", kind, cast)


def _last(counter: Counter, iterations: int, kind: Type) -> Value:
    """Emit the value of a counter after the loop."""
    return splat(kind, counter.first + iterations * counter.step)

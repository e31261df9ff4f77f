# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``stablehlo.while`` that counts from one number to another as ``scf.for``, whose number of iterations is known.

Carried integers that each iteration adds a number to are counted by the loop's variable, too.
"""

from dataclasses import dataclass

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Module, Operation, Type, Value, ir, operations_of
from nki_mlir.dialects.creation import applied, constant, terminator, value_of


def rewrite_counted_loops(module: Module) -> None:
    for op in reversed(operations_of(module, lambda name: name == "stablehlo.while")):
        counters = _counters(op)
        number = _iterations(op, counters)
        if number is not None:
            with op.context, ir.InsertionPoint(op), op.location:
                _as_for(op, number, counters)


@dataclass(frozen=True)
class Counter:
    """A carried integer, ``first`` in the first iteration and ``step`` more in each that follows."""

    first: int
    step: int


def _number(value: Value) -> int | None:
    """The value of a scalar integer constant."""
    op = defining(value)
    if op is None or op.name != "stablehlo.constant" or ir.RankedTensorType(value.type).rank != 0:
        return None
    attribute = op.attributes["value"]
    return int(attribute[0]) if isinstance(attribute, ir.DenseIntElementsAttr) else None


def _counters(op: Operation) -> dict[int, Counter]:
    """The integers that a loop counts, by their places among what it carries."""
    body = op.regions[1].blocks[0]
    found: dict[int, Counter] = {}
    for place, (before, after) in enumerate(zip(op.operands, terminator(body).operands)):
        first, made, argument = _number(before), defining(after), body.arguments[place]
        if first is None or made is None or made.name not in ("stablehlo.add", "stablehlo.subtract"):
            continue
        if not ir.RankedTensorType(before.type).element_type.is_signless:
            continue
        a, b = made.operands
        if made.name == "stablehlo.add" and a != argument:
            a, b = b, a
        step = _number(b)
        if a == argument and step is not None:
            found[place] = Counter(first, step if made.name == "stablehlo.add" else -step)
    return found


def _iterations(op: Operation, counters: dict[int, Counter]) -> int | None:
    """How often the loop runs, at least once: while a counter is below (or at, or above) a constant."""
    condition = op.regions[0].blocks[0]
    compare = defining(terminator(condition).operands[0])
    if compare is None or compare.name != "stablehlo.compare":
        return None
    counted, limit = compare.operands
    last = _number(limit)
    if not isinstance(counted.owner, ir.Block) or counted.owner != condition or last is None:
        return None
    counter = counters.get(ir.BlockArgument(counted).arg_number)
    direction = str(compare.attributes["comparison_direction"])
    text = next(d for d in ("LT", "LE", "GT", "GE", "EQ", "NE") if d in direction)
    spans = {"LT": (1, last), "LE": (1, last + 1), "GT": (-1, last), "GE": (-1, last - 1)}
    if counter is None or text not in spans or counter.step * spans[text][0] <= 0:
        return None
    number = len(range(counter.first, spans[text][1], counter.step))
    return number if number and _holds(counter, number, ir.RankedTensorType(counted.type).element_type) else None


def _holds(counter: Counter, iterations: int, kind: ir.IntegerType) -> bool:
    """Whether a counter never leaves its type."""
    limit = 1 << kind.width - 1
    return -limit <= counter.first + iterations * counter.step < limit


def _as_for(op: Operation, iterations: int, counters: dict[int, Counter]) -> None:
    index = ir.IndexType.get()
    element = {k: ir.RankedTensorType(op.operands[k].type).element_type for k in counters}
    counters = {k: c for k, c in counters.items() if _holds(c, iterations, element[k])}
    bounds = [constant(n) for n in (0, iterations, 1)]
    others = [k for k in range(len(op.operands)) if k not in counters]
    inits = [op.operands[k] for k in others]
    made = ir.Operation.create("scf.for", results=[v.type for v in inits], operands=[*bounds, *inits], regions=1)
    block, kinds = op.regions[1].blocks[0], [index, *(v.type for v in inits)]
    new = made.regions[0].blocks.append(*kinds, arg_locs=[op.location] * len(kinds))
    with ir.InsertionPoint(new):
        held = {k: _value(new.arguments[0], c, op.operands[k].type) for k, c in counters.items()}
        inner = [one.operation for one in block.operations]
        end = ir.Operation.create("scf.yield", operands=[inner[-1].operands[k] for k in others])
    for one in inner[:-1]:
        one.move_before(end)
    for k, value in held.items():
        block.arguments[k].replace_all_uses_with(value)
        op.results[k].replace_all_uses_with(_last(counters[k], iterations, op.operands[k].type))
    for k, argument, result in zip(others, list(new.arguments)[1:], made.results):
        block.arguments[k].replace_all_uses_with(argument)
        op.results[k].replace_all_uses_with(result)
    op.erase()


def _value(variable: Value, counter: Counter, kind: ir.Type) -> Value:
    """A counter in an iteration, as a tensor."""
    number = applied(ir.AffineExpr.get_symbol(0) * counter.step + counter.first, [variable])
    cast = value_of("arith.index_cast", ir.RankedTensorType(kind).element_type, number)
    return value_of("tensor.from_elements", kind, cast)


def _last(counter: Counter, iterations: int, kind: Type) -> Value:
    """A counter behind the loop."""
    value = ir.IntegerAttr.get(ir.RankedTensorType(kind).element_type, counter.first + iterations * counter.step)
    return value_of("stablehlo.constant", kind, value=ir.DenseElementsAttr.get_splat(kind, value))

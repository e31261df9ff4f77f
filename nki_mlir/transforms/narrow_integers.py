# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""narrow-integers: compute 64-bit integers of a StableHLO graph in 32 bits, where their values prove that to be exact.

before:  func.func @main(%x: tensor<8x16xf32>, %i: tensor<4xi64>) -> tensor<4x16xf32>
           %0 = stablehlo.compare LT, %i, %zero : tensor<4xi64>
           %1 = stablehlo.add %i, %eight : tensor<4xi64>
           %2 = stablehlo.select %0, %1, %i : tensor<4xi64>
           %3 = stablehlo.gather %x, %2                                 (the rows that %2 names)
after:   func.func @main(%x: tensor<8x16xf32>, %i: tensor<4xi32>) -> tensor<4x16xf32>
           %0 = stablehlo.compare LT, %i, %zero : tensor<4xi32>
           ...

Engines have no 64-bit integers. Sums, products and bitwise operations in 32 bits give the low bits of those in 64 bits.
So only a value that another operation reads (a comparison, a division, a position, a result of the program) must fit
32 bits, which ranges prove (``graph/integer_ranges.py``): the sum above may leave them, the selection does not. The
pass refuses a program in which such a value may not fit, at the operation that leaves 32 bits. Arguments and results
get 32 bits, too: the caller converts them, and refuses arguments that do not fit (``graph/host_integers.py``). Integers
that a program only moves keep 64 bits, and so do those of custom calls.
"""

import numpy as np

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Module, Operation, Value, ir, operations_of
from nki_mlir.diagnostics import NkiMlirError, Unsupported
from nki_mlir.dialects.creation import terminator
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.graph import upstream
from nki_mlir.graph.integer_ranges import JOINED, MOVED, REGISTER, IntegerRanges, integer_type, is_wide, limits_of
from nki_mlir.graph.rewrites import fold_conversions, rewrite_powers
from nki_mlir.graph.tensor_values import splat
from nki_mlir.graph.wide_sums import combination
from nki_mlir.passes.pass_manager import Pass

SIMPLIFIED = "builtin.module(func.func(stablehlo-aggressive-simplification))"
EXTREMA = frozenset({"stablehlo.maximum", "stablehlo.minimum"})
MOVES = frozenset({"reshape", "transpose", "broadcast_in_dim", "slice", "reverse", "gather", "dynamic_slice",
                   "concatenate"})
# Operations whose results have the right low 32 bits if their operands have.
LOW_BITS = MOVED | JOINED | {
    "constant", "iota", "dynamic_iota", "add", "subtract", "multiply", "negate", "and", "or", "xor", "not",
    "shift_left", "select", "convert", "reduce", "reduce_window", "scatter", "while", "if", "case", "return",
    "optimization_barrier", "dot_general", "dot"}
# Operations that read the complete number.
READS = frozenset({"compare", "divide", "remainder", "minimum", "maximum", "clamp", "abs", "sign", "sort",
                   "shift_right_arithmetic", "shift_right_logical"})
INDEXED = {"gather": 1, "dynamic_slice": 1, "dynamic_update_slice": 2, "dynamic_iota": 0, "dynamic_reshape": 1,
           "dynamic_broadcast_in_dim": 1, "real_dynamic_slice": 1}       # the first operand that is not data


class NarrowIntegers(Pass, name="narrow-integers"):
    arguments: bool = True      # give 64-bit arguments and results 32 bits, else they keep 64, which engines refuse

    def run(self, module: Module) -> None:
        with module.context, ir.Location.unknown():
            if not wide_values(module):
                return
            upstream.load_graph_dialects(module.context)
            upstream.to_stablehlo(module)
            fold_conversions(module)
            rewrite_powers(module)
            upstream.run_pipeline(module, SIMPLIFIED)
            narrow_fillers(module, self.arguments)
            Narrowing(module, self.arguments).run()


def narrow_fillers(module: Module, arguments: bool) -> None:
    """Replace limits of clamps, and starts of folds by extrema, beyond 32 bits by the nearest numbers of 32 bits, where
    all numbers that they are compared with fit: ``max(x, -2^63)`` chooses as ``max(x, -2^31)`` does."""
    while uses := fillers(module, IntegerRanges(module, arguments)):
        for op, index, number in uses:
            with op.context, ir.InsertionPoint(op), op.location:
                op.operands[index] = splat(op.operands[index].type, number)


def fillers(module: Module, ranges: IntegerRanges) -> list[tuple[Operation, int, int]]:
    """Return the operations and numbers of operands that ``narrow_fillers`` replaces, with their new values."""
    uses = []
    numbers: tuple[int, ...]
    for op in operations_of(module, lambda name: name in ("stablehlo.clamp", "stablehlo.reduce")):
        if not all(map(is_wide, op.operands)):
            continue
        if op.name == "stablehlo.clamp":
            value, numbers = op.operands[1], (0, 2)
        elif len(op.results) == 1 and combination(op, EXTREMA) is not None and ranges.terms(op):
            value, numbers = op.operands[0], (1,)
        else:
            continue
        least, most = limits_of(integer_type(value), REGISTER)                      # type: ignore[arg-type]
        for index in numbers if ranges.fits(value) else ():
            span = ranges.range(op.operands[index])
            if span is not None and span[0] == span[1] and not least <= span[0] <= most:
                uses.append((op, index, int(min(max(span[0], least), most))))
    return uses


def wide_values(module: Module) -> list[Value]:
    """Return all 64-bit integers of a module, as tensors."""
    values: list[Value] = []
    for op in operations_of(module, lambda name: True):
        values += op.results
        values += [argument for region in op.regions for block in region.blocks for argument in block.arguments]
    return [value for value in values if is_wide(value)]


class Narrowing:
    """Narrows the 64-bit integers of a module whose one function has no calls."""

    def __init__(self, module: Module, arguments: bool) -> None:
        self.module, self.arguments = module, arguments
        self.operations = operations_of(module, lambda name: name not in ("builtin.module", "func.func"))
        self.groups = SameWidth(wide_values(module))
        self.ranges = IntegerRanges(module, arguments)

    def run(self) -> None:
        for op in self.operations:
            self.join(op)
        main = upstream.public_function(self.module)
        if not self.arguments:
            for value in (*main.regions[0].blocks[0].arguments, *returned(main)):
                self.keep(value)
        narrow = [value for value in self.groups.parents if self.groups.is_narrowed(value)]
        for op in self.operations:
            self.check(op)
        for op in self.operations:
            if op.name in ("stablehlo.constant", "arith.constant") and op.results[0] in narrow:
                narrow_constant(op)
        for value in narrow:
            kind = ir.RankedTensorType(value.type)
            value.set_type(ir.RankedTensorType.get(kind.shape, narrow_type(kind.element_type), kind.encoding))
        inputs, results = main.regions[0].blocks[0].arguments, returned(main)
        main.attributes["function_type"] = ir.TypeAttr.get(
            ir.FunctionType.get([v.type for v in inputs], [v.type for v in results]))

    # -- which values change together ----------------------------------------------------------------------------------
    def join(self, op: Operation) -> None:
        """Put the values of an operation that have one type into one group."""
        name = op.name.removeprefix("stablehlo.")
        values = [v for v in self.together(op) if is_wide(v)]
        for value in values[1:]:
            self.groups.join(values[0], value)
        if name == "custom_call" or (name not in LOW_BITS | READS and op.name not in (
                "func.return", "arith.constant")):
            for value in (*op.operands, *op.results):
                self.keep(value)
        elif op.name != "func.return":
            computed = [*op.operands][INDEXED.get(name, len(op.operands)):] if name in MOVES else [
                *op.operands, *op.results]
            self.groups.computed |= {self.groups.leader(v) for v in computed if is_wide(v)}

    @staticmethod
    def together(op: Operation) -> list[Value]:
        """Return the values of an operation that have the same type of elements."""
        name = op.name.removeprefix("stablehlo.")
        if name in ("convert", "custom_call") or op.name in ("func.return", "arith.constant"):
            return []
        operands = list(op.operands)
        if name == "scatter":
            count = len(op.results)
            operands = [*operands[:count], *operands[count + 1:]]
        operands = operands[:INDEXED.get(name, len(operands))]
        inner = [block for region in op.regions for block in region.blocks]
        ends = [v for block in inner for v in terminator(block).operands]
        return [*operands, *op.results, *(a for block in inner for a in block.arguments), *ends]

    def keep(self, value: Value) -> None:
        if is_wide(value):
            self.groups.unchanged.add(self.groups.leader(value))

    # -- which values must fit -----------------------------------------------------------------------------------------
    def check(self, op: Operation) -> None:
        """Raise ``Unsupported`` if an operation reads an integer that 32 bits may not hold."""
        name = op.name.removeprefix("stablehlo.")
        operands = list(op.operands)
        if name == "convert":
            self.check_conversion(op)
        elif name in READS or op.name == "func.return":
            self.must_fit(*operands)
            if name == "shift_right_logical" and self.narrowed(operands[0]):
                span = self.ranges.range(operands[0])
                if span is None or span[0] < 0:
                    raise self.refused(op)
        elif name == "shift_left":
            self.must_fit(operands[1])
        elif name == "scatter":
            self.must_fit(operands[len(op.results)])
        elif name in INDEXED:
            self.must_fit(*operands[INDEXED[name]:])
        if name == "divide" and self.narrowed(op.results[0]):
            self.must_fit(*op.results)

    def check_conversion(self, op: Operation) -> None:
        """Check the range of a conversion from or to floats: a conversion between integers keeps their low bits."""
        (operand,), (result,) = op.operands, op.results
        frm, to = integer_type(operand), integer_type(result)
        if frm is None and self.narrowed(result) and not self.ranges.fits(result):
            raise self.refused(op)
        if to is None or to.width == 1:
            self.must_fit(operand)

    def narrowed(self, value: Value) -> bool:
        return is_wide(value) and self.groups.is_narrowed(value)

    def must_fit(self, *values: Value) -> None:
        for value in values:
            if self.narrowed(value) and not self.ranges.fits(value):
                raise self.refused(self.origin(value))

    def origin(self, value: Value) -> Operation:
        """Return the first operation on the way to a value whose result may leave 32 bits."""
        op = defining(value)
        if op is None:                                              # carried by a loop, or folded
            return ir.BlockArgument(value).owner.owner.operation
        beyond = [v for v in op.operands if is_wide(v) and defining(v) is not None and not self.ranges.fits(v)]
        return self.origin(beyond[0]) if beyond else op

    def refused(self, op: Operation) -> NkiMlirError:
        wide = next((v for v in (*op.results, *op.operands) if is_wide(v)), None)
        span = self.ranges.range(wide) if wide is not None else None
        values = f" with values from {span[0]} to {span[1]}" if span is not None else ""
        return Unsupported(feature=f"'{op.name}' on 64-bit integers{values}, which may not fit 32 bits, as engine "
                                   "instructions",
                           instead="limit its operands, as by a clamp, or compute it in 32 bits or in float32"
                           ).located(location_of(op))


class SameWidth:
    """Sets of values whose integers have the same number of bits."""

    def __init__(self, values: list[Value]) -> None:
        self.parents: dict[Value, Value] = {value: value for value in values}
        self.computed: set[Value] = set()       # leaders of values that operations compute
        self.unchanged: set[Value] = set()           # leaders of values that keep their bits

    def leader(self, value: Value) -> Value:
        while self.parents[value] != value:
            value = self.parents[value]
        return value

    def join(self, a: Value, b: Value) -> None:
        a, b = self.leader(a), self.leader(b)
        if a != b:
            self.parents[b] = a
            for leaders in (self.computed, self.unchanged):
                if b in leaders:
                    leaders.add(a)

    def is_narrowed(self, value: Value) -> bool:
        leader = self.leader(value)
        return leader in self.computed and leader not in self.unchanged


def returned(function: Operation) -> list[Value]:
    return list(terminator(function.regions[0].blocks[0]).operands)


def narrow_type(kind: ir.IntegerType) -> ir.IntegerType:
    return ir.IntegerType.get_unsigned(REGISTER) if kind.is_unsigned else ir.IntegerType.get_signless(REGISTER)


def narrow_constant(op: Operation) -> None:
    """Give a constant the low 32 bits of its integers."""
    attribute = op.attributes["value"]
    kind = ir.RankedTensorType(attribute.type)
    element = narrow_type(kind.element_type)
    narrow = ir.RankedTensorType.get(kind.shape, element)
    dtype = np.uint32 if element.is_unsigned else np.int32
    if attribute.is_splat:
        number = np.uint64(ir.IntegerAttr(attribute.get_splat_value()).value & (1 << 64) - 1).astype(dtype)
        op.attributes["value"] = ir.DenseElementsAttr.get_splat(narrow, ir.IntegerAttr.get(element, int(number)))
    else:
        op.attributes["value"] = ir.DenseElementsAttr.get(np.array(attribute).astype(dtype), type=element,
                                                          shape=list(kind.shape))

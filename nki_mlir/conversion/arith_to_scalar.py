# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""arith-to-scalar: rewrite bodies of MLIR's structured operations with the functions of the scalar library.

before:  %s = arith.addf %a, %b : bf16         after:  %x = "scalar.convert"(%a), %y = "scalar.convert"(%b) : f32
         %c = arith.cmpf ult, %a, %b : f32             %s = "scalar.convert"("scalar.alu"(%x, %y) {fn = "add"}) : bf16
                                                       %c = "scalar.alu"({fn = "greater_equal"}), then "logical_not"

Floats narrower than 32 bits are computed in float32 and rounded after every operation. Integers keep their bits: an
operation on unsigned numbers is between two ``scalar.wrap``. A float becomes the nearest integer towards zero that the
type holds, NaN 0. Named operations become ``linalg.generic`` first. Arithmetic on ``index`` and constants stay.
"""

from collections.abc import Callable, Mapping, Sequence

from nki_mlir.bindings import Attribute, Module, Operation, Value, ir, load, walk
from nki_mlir.diagnostics import NkiMlirError, Unsupported
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.passes.pass_manager import Pass
from nki_mlir.scalar.dtypes import BOOL, BY_MLIR, BY_NAME, FLOAT32, DType, Encoding
from nki_mlir.scalar.predicates import COMPARISONS, FLOAT_PREDICATES
from nki_mlir.waist.writer import ScalarBody

ALU_OF = {"arith.addf": "add", "arith.subf": "subtract", "arith.mulf": "multiply", "arith.divf": "divide",
          "arith.remf": "fmod", "arith.negf": "negative", "arith.maximumf": "maximum", "arith.minimumf": "minimum",
          "math.absf": "abs", "math.powf": "power",
          "arith.addi": "add", "arith.subi": "subtract", "arith.muli": "multiply", "arith.andi": "bitwise_and",
          "arith.ori": "bitwise_or", "arith.xori": "bitwise_xor", "arith.maxsi": "maximum", "arith.minsi": "minimum",
          "arith.maxui": "maximum", "arith.minui": "minimum", "arith.remsi": "fmod", "arith.remui": "fmod",
          "arith.shli": "left_shift", "arith.shrui": "right_shift", "arith.shrsi": "arith_shift_right",
          "math.absi": "abs"}
OF_TRUTHS = {"arith.addi": "bitwise_xor", "arith.subi": "bitwise_xor", "arith.muli": "bitwise_and"}
ACTIVATION_OF = {"math.atan": "arctan", **{f"math.{name}": name for name in (
    "exp", "log", "sin", "cos", "tan", "tanh", "erf", "sqrt", "rsqrt", "floor", "ceil", "trunc")}}
MATH_OF = {"arith.divsi": "quotient", "arith.divui": "quotient", **{f"math.{name}": name for name in (
    "log1p", "expm1", "cbrt", "round", "roundeven", "atan2", "copysign")}}
WITHOUT_SIGN = ("arith.maxui", "arith.minui", "arith.divui", "arith.remui")
# Predicates. The unordered ones hold where the opposite ordered one does not.
FLOATS = {"oeq": "equal", "ogt": "greater", "oge": "greater_equal", "olt": "less", "ole": "less_equal",
          "une": "not_equal"}
UNORDERED = {"ugt": "ole", "uge": "olt", "ult": "oge", "ule": "ogt"}
PREDICATES = tuple(FLOAT_PREDICATES)
OF_THE_WAIST = ("arith.constant", "arith.index_cast", "arith.index_castui")
STRUCTURED = ("linalg.generic", "linalg.fill", "linalg.yield", "linalg.index")


class ArithToScalar(Pass, name="arith-to-scalar"):
    def run(self, module: Module) -> None:
        with module.context, ir.Location.unknown():
            operations = upstream_operations(module)
            if any(op.name.startswith("linalg.") for op in operations):
                load("passmanager").PassManager.parse("builtin.module(linalg-generalize-named-ops)").run(
                    module.operation)
                operations = upstream_operations(module)
            bodies: dict[object, _BodyRewriter] = {}
            for op in operations:
                bodies.setdefault(op.block, _BodyRewriter()).rewrite(op)


def upstream_operations(root: Operation | Module) -> list[Operation]:
    """Return the named structured operations, and the arithmetic on elements, that are not the waist's."""
    operations: list[Operation] = []

    def visit(op: Operation) -> object:
        if op.name.startswith(("arith.", "math.")):
            if op.name not in OF_THE_WAIST and is_of_elements(op):
                operations.append(op)
        elif op.name.startswith("linalg.") and op.name not in STRUCTURED:
            operations.append(op)
            return ir.WalkResult.SKIP
        return ir.WalkResult.ADVANCE
    walk(root, visit)
    return operations


def is_of_elements(op: Operation) -> bool:
    """Return whether an operation of ``arith`` or ``math`` computes elements, not index values."""
    kinds = [v.type for v in (*op.operands, *op.results)]
    if op.parent.name == "linalg.generic":
        return not any(isinstance(kind, ir.IndexType) for kind in kinds)
    return any(isinstance(kind, ir.FloatType) for kind in kinds)


def unsigned(dtype: DType) -> DType:
    """Return the integer type without a sign that has the same number of bits."""
    return BY_NAME[f"u{dtype}"] if dtype.kind is Encoding.SIGNED else dtype


class _BodyRewriter:
    """Rewrites the operations of one body, in their order."""

    def __init__(self) -> None:
        self.make = Attributes()
        self.scalars = ScalarBody(self.create, self.make, FLOAT32)
        self.alu = self.scalars.alu
        self.conversions: dict[tuple[str, Value, DType], Value] = {}      # values in another type

    def create(self, name: str, operands: Sequence[Value], results: Sequence[ir.Type],
               attributes: Mapping[str, Attribute] | None = None) -> Operation:
        return ir.Operation.create(name, operands=list(operands), results=list(results), attributes=attributes)

    def rewrite(self, op: Operation) -> None:
        with ir.InsertionPoint(op), op.location:
            value = self.scalar(op)
        op.results[0].replace_all_uses_with(value)
        op.erase()

    # -- values --------------------------------------------------------------------------------------------------------
    def convert(self, value: Value, to: DType) -> Value:
        return self.changed("scalar.convert", value, to)

    def wrap(self, value: Value, to: DType) -> Value:
        return self.changed("scalar.wrap", value, to)

    def changed(self, name: str, value: Value, to: DType) -> Value:
        kind = self.make.type(to)
        if value.type == kind:
            return value
        key = name, value, to
        if key not in self.conversions:
            self.conversions[key] = self.create(name, [value], [kind]).results[0]
        return self.conversions[key]

    # -- operations ----------------------------------------------------------------------------------------------------
    def scalar(self, op: Operation) -> Value:
        """Write the value of an operation."""
        kinds = [str(v.type) for v in (*op.operands, op.results[0])]
        if unknown := next((kind for kind in kinds if kind not in BY_MLIR), None):
            raise refused(op, f"'{op.name}' on {unknown}")
        *_, frm, to = (BY_MLIR[kind] for kind in kinds)
        values, name = list(op.operands), op.name
        match name:
            case "arith.select":
                compute = FLOAT32 if to.is_float else to
                return self.convert(self.alu("select", *(self.convert(v, compute) for v in values)), to)
            case "arith.cmpf" | "arith.cmpi":
                compare = self.floats if name == "arith.cmpf" else self.integers
                return self.convert(compare(op, frm, *values), BOOL)
            case "arith.bitcast":
                return self.create("scalar.bitcast", values, [op.results[0].type]).results[0]
            case "arith.extf" | "arith.truncf":
                return self.convert(values[0], to)
            case "arith.trunci":
                return self.wrap(values[0], to)
            case "arith.extui" | "arith.uitofp":
                return self.convert(self.wrap(values[0], unsigned(frm)), to)
            case "arith.extsi" | "arith.sitofp":                        # a truth value extends to all bits
                value = self.convert(values[0], to)
                return self.alu("negative", value) if frm is BOOL else value
            case "arith.fptosi" | "arith.fptoui":
                truncated = self.scalars.activation("trunc", self.convert(values[0], FLOAT32))
                return self.convert(truncated, to) if name == "arith.fptosi" else self.wrap(
                    self.convert(truncated, unsigned(to)), to)
        return self.function(op, frm, to, values)

    def function(self, op: Operation, frm: DType, to: DType, values: list[Value]) -> Value:
        """Write a function of the library, in a type in which it computes."""
        name = op.name
        compute, change = frm, self.wrap
        if frm.is_float:
            compute, change = FLOAT32, self.convert
        elif name in WITHOUT_SIGN:
            compute = unsigned(frm)
        values = [change(v, compute) for v in values]
        if name in ACTIVATION_OF:
            value = self.scalars.activation(ACTIVATION_OF[name], values[0])
        elif name in MATH_OF:
            value = self.create("scalar.math", values, [values[-1].type], {"fn": self.make.value(MATH_OF[name])}
                               ).results[0]
        elif name in ALU_OF:
            value = self.alu(OF_TRUTHS.get(name, ALU_OF[name]) if frm is BOOL else ALU_OF[name], *values)
        else:
            raise refused(op, f"'{name}'")
        return change(value, to)

    def floats(self, op: Operation, frm: DType, left: Value, right: Value) -> Value:
        """Write a comparison of floats, 1 or 0 in float32."""
        predicate = PREDICATES[op.attributes["predicate"].value]
        left, right = self.convert(left, FLOAT32), self.convert(right, FLOAT32)
        if predicate in FLOATS:
            return self.alu(FLOATS[predicate], left, right)
        if predicate in UNORDERED:
            return self.alu("logical_not", self.alu(FLOATS[UNORDERED[predicate]], left, right))
        operand_tests: dict[str, Callable[[Value], Value]] = {
            "ord": lambda x: self.alu("equal", x, x), "uno": lambda x: self.alu("not_equal", x, x)}
        if predicate in operand_tests:                           # neither, or either, is NaN
            parts = [operand_tests[predicate](x) for x in ([left] if left == right else [left, right])]
            either = "logical_and" if predicate == "ord" else "logical_or"
            return self.alu(either, *parts) if len(parts) > 1 else parts[0]
        if predicate in ("one", "ueq"):
            unequal = self.alu("logical_or", self.alu("less", left, right), self.alu("greater", left, right))
            return unequal if predicate == "one" else self.alu("logical_not", unequal)
        raise refused(op, f"predicate {predicate} of 'arith.cmpf'")

    def integers(self, op: Operation, frm: DType, a: Value, b: Value) -> Value:
        """Write a comparison of integers, 1 or 0 in their type."""
        predicate = op.attributes["predicate"].value
        if predicate > 5:
            predicate -= 4
            a, b = (self.wrap(v, unsigned(frm)) for v in (a, b))
        elif frm is BOOL and predicate > 1:             # with a sign, true is -1
            a, b = b, a
        return self.alu(COMPARISONS[predicate].alu, a, b)


def refused(op: Operation, feature: str) -> NkiMlirError:
    return Unsupported(feature=f"{feature} in the body of a linalg operation",
                       instead="use an operation that the scalar library has a function for").located(location_of(op))

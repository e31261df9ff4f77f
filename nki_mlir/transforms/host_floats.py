# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""host-floats: rewrite operations on floats of a graph on the CPU that upstream lowers imprecisely, or that LLVM lacks.

``exp(x) - 1`` and ``log(1 + x)``, as which upstream lowers ``math.expm1`` and ``math.log1p``, are wrong near 0.

before:  %y = math.expm1 %x : f32
after:   %u = math.exp %x, and (%u - 1) * (%x / log(%u)) where |%x| < 1

LLVM has no 8-bit floats. Once arithmetic on them is in float32, conversions are left: integers compute their bits.
"""

from nki_mlir.bindings import Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.creation import value_of
from nki_mlir.passes.pass_manager import Pass
from nki_mlir.scalar.conversion_expansion import from_float32, to_float32
from nki_mlir.scalar.dtypes import BY_MLIR
from nki_mlir.scalar.emit import ScalarEmitter, arith

NEAR_ZERO = ("math.expm1", "math.log1p")
CONVERSIONS = ("arith.extf", "arith.truncf")


class HostFloats(Pass, name="host-floats"):
    """Rewrites functions near zero, and conversions from and to 8-bit floats."""

    functions: bool = True      # rewrite expm1 and log1p
    conversions: bool = True    # let integers compute the bits of 8-bit floats

    def run(self, module: Module) -> None:
        with module.context:
            if self.functions:
                rewrite_functions(module)
            if self.conversions:
                rewrite_conversions(module)


def rewrite_functions(module: Module) -> None:
    """Rewrite the functions of ``NEAR_ZERO`` on scalars."""
    for op in operations_of(module, lambda name: name in NEAR_ZERO):
        with ir.InsertionPoint(op), op.location:
            x = op.operands[0]
            is_narrow = x.type.width < 32
            wide = arith.extf(ir.F32Type.get(), x) if is_narrow else x
            y = (expm1 if op.name == "math.expm1" else log1p)(ScalarEmitter(), wide)
            op.results[0].replace_all_uses_with(arith.truncf(x.type, y) if is_narrow else y)
        op.erase()


def expm1(e: ScalarEmitter, x: Value) -> Value:
    """Emit (u - 1) x / log(u) for u = exp(x) as it is rounded."""
    u = e.libm("exp", x)
    minus_one = e.sub(u, 1.0)
    near = e.mul(minus_one, e.div(x, e.libm("log", u)))
    result = e.select(e.cmp("olt", e.abs(x), 1.0), near, minus_one)
    return e.select(e.cmp("oeq", u, 1.0), x, result)


def log1p(e: ScalarEmitter, x: Value) -> Value:
    """Emit log(u) x / (u - 1) for u = 1 + x as it is rounded."""
    u = e.add(x, 1.0)
    log, back = e.libm("log", u), e.sub(u, 1.0)
    result = e.select(e.cmp("oeq", back, x), log, e.mul(log, e.div(x, back)))
    return e.select(e.cmp("oeq", u, 1.0), x, result)


def rewrite_conversions(module: Module) -> None:
    """Rewrite conversions from and to the 8-bit floats of kernels."""
    for op in operations_of(module, lambda name: name in CONVERSIONS):
        kinds = [kind for kind in (op.operands[0].type, op.results[0].type) if kind.width == 8]
        if kinds and all(str(kind) in BY_MLIR for kind in kinds):
            with ir.InsertionPoint(op), op.location:
                op.results[0].replace_all_uses_with(converted(op))
            op.erase()


def converted(op: Operation) -> Value:
    """Emit a conversion through float32, by integers where a type has 8 bits."""
    e, value, target = ScalarEmitter(), op.operands[0], op.results[0].type
    wide, byte = ir.F32Type.get(), ir.IntegerType.get_signless(8)
    if value.type.width == 8:
        value = to_float32(e, value_of("arith.bitcast", byte, value), BY_MLIR[str(value.type)])
    elif value.type.width != 32:
        value = value_of("arith.extf" if value.type.width < 32 else "arith.truncf", wide, value)
    if target.width == 8:
        return value_of("arith.bitcast", target, from_float32(e, value, BY_MLIR[str(target)]))
    if target == wide:
        return value
    return value_of("arith.truncf" if target.width < 32 else "arith.extf", target, value)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that a module from a file is data, not code, before anything is compiled.

The compiler would resolve a declaration without a body in the process and call it; pointers from integers and inline
assembly reach any memory. So a module may contain only the operations of the levels.
"""

from math import prod

from nki_mlir.analysis.index_values import constant_of
from nki_mlir.bindings import Attribute, Module, Operation, Type, ir, operations_of
from nki_mlir.diagnostics import NkiMlirError, Unsupported
from nki_mlir.dialects.attributes import LARGEST_STEP
from nki_mlir.dialects.source_locations import location_of

ALLOWED = ("builtin.module", "func.", "nki.", "nisa.", "isa.", "scalar.", "native.", "scf.", "arith.", "affine.",
           "memref.", "linalg.", "math.", "tensor.", "stablehlo.", "chlo.", "vhlo.", "bufferization.to_buffer",
           "bufferization.to_tensor")
INDEX_MAPS = ("affine.apply", "affine.min", "affine.max")
COLLECTIONS = ir.ArrayAttr, ir.DictAttr
ITERATIONS = (1 << 63) - 1              # that Python counts of a range
REFUSED = ("memref.extract_aligned_pointer_as_index", "func.constant", "func.call_indirect")


def dialects() -> list[str]:
    """Return the dialects whose operations a module from a file may contain."""
    return sorted({name.partition(".")[0] for name in ALLOWED})


class UnsafeInput(NkiMlirError):
    code = "NKI-UNSAFE-INPUT"
    message = "{what}"
    why = "a module from a file may compute, but not reach code or memory outside of itself"
    fix = "give a module at the nki, linalg, nisa or isa level whose functions all have bodies"


class LoopStep(NkiMlirError):
    code = "NKI-LOOP-STEP"
    message = "the step of this loop is {step}"
    why = "the index of a loop increases: with a step below 1 the loop never ends"
    fix = "give a constant step of at least 1"


class LoopIterations(NkiMlirError):
    code = "NKI-LOOP-ITERATIONS"
    message = "this loop has {count:,} iterations, more than the limit of {limit:,}"
    why = "the iterations of a loop are counted in 63 bits"
    fix = "give bounds that are closer to each other, or a larger step"


class TensorElements(NkiMlirError):
    code = "NKI-TENSOR-ELEMENTS"
    message = "a value of '{op}' has {count:,} elements, more than the limit of {limit:,}"
    why = "no memory holds it, and patterns of elements have no larger extents"
    fix = "use smaller tensors"


class IndexDivisor(NkiMlirError):
    code = "NKI-INDEX-DIVISOR"
    message = "'{division}' divides by {divisor}"
    why = "index arithmetic is defined for divisors that are constants of at least 1"
    fix = "divide by a constant of at least 1, or use arith.floordivsi, which gives 0 for a divisor of 0"


def check_safe(module: Module) -> None:
    """Raise ``UnsafeInput``, ``LoopStep``, ``LoopIterations``, ``TensorElements`` or ``IndexDivisor`` at the first
    refused operation, and ``Unsupported`` if it computes complex numbers."""
    safe: set[Attribute] = set()            # arrays and dictionaries without locations: most operations share them
    small: set[Type] = set()
    for op in operations_of(module, lambda name: True):
        _check_elements(op, small)
        if (problem := _problem(op, safe)) is not None:
            if any("complex<" in str(value.type) for value in (*op.operands, *op.results)):
                raise Unsupported(feature=f"'{op.name}' of complex numbers",
                                  instead="compute their real and imaginary parts").located(location_of(op))
            raise UnsafeInput(what=problem).located(location_of(op))
        if op.name == "scf.for" and ((step := constant_of(op.operands[2])) is None or step <= 0):
            raise LoopStep(step="known at run time only" if step is None else step).located(location_of(op))
        if op.name == "scf.for" and (count := _iterations(op)) > ITERATIONS:
            raise LoopIterations(count=count, limit=ITERATIONS).located(location_of(op))
        if op.name in INDEX_MAPS and (mapping := op.attributes["map"]) not in safe:
            for result in mapping.value.results:
                if (division := _other_division(result)) is not None:
                    raise IndexDivisor(division=division, divisor=division.rhs).located(location_of(op))
            safe.add(mapping)


def _check_elements(op: Operation, small: set[Type]) -> None:
    """Raise ``TensorElements`` if a result of an operation, or an argument of a function, is too large. ``small`` has
    types that are not."""
    values = op.regions[0].blocks[0].arguments if op.name == "func.func" and len(op.regions[0].blocks) else op.results
    for kind in [value.type for value in values]:
        if kind in small:
            continue
        if isinstance(kind, ir.ShapedType) and kind.has_static_shape and (count := prod(kind.shape)) > LARGEST_STEP:
            raise TensorElements(op=op.name, count=count, limit=LARGEST_STEP).located(location_of(op))
        small.add(kind)


def _problem(op: Operation, safe: set[Attribute]) -> str | None:
    name = op.name
    if not name.startswith(ALLOWED) or name in REFUSED:
        return f"'{name}' is refused in input"
    if _holds_location(op.attributes, safe):
        return f"'{name}' has a location as an attribute"
    if name == "func.func" and not len(op.regions[0].blocks):
        return f"function @{op.attributes['sym_name'].value} has no body"
    return None


def _iterations(loop: Operation) -> int:
    """Return the number of iterations of a loop with constant bounds, else 0."""
    low, high, step = (constant_of(loop.operands[k]) for k in range(3))
    return 0 if low is None or high is None or step is None else -((low - high) // step)


def _other_division(e: ir.AffineExpr) -> ir.AffineBinaryExpr | None:
    """Return a division in an affine expression whose divisor is not a constant of at least 1, else None."""
    if not isinstance(e, ir.AffineBinaryExpr):
        return None
    divides = isinstance(e, ir.AffineFloorDivExpr | ir.AffineCeilDivExpr | ir.AffineModExpr)
    if divides and not (isinstance(e.rhs, ir.AffineConstantExpr) and e.rhs.value > 0):
        return e
    return _other_division(e.lhs) or _other_division(e.rhs)


def _holds_location(holder: Attribute | ir.OpAttributeMap, safe: set[Attribute]) -> bool:
    """Return whether a location is among the attributes: the bindings end the process when they return its
    value."""
    try:
        match holder:
            case ir.ArrayAttr():
                inner = list(holder)
            case ir.DictAttr():
                inner = [holder[named.name] for named in holder]
            case _:
                inner = [value for _, value in holder.items()]
    except TypeError:
        return True
    for a in inner:
        if isinstance(a, COLLECTIONS) and a not in safe:
            if _holds_location(a, safe):
                return True
            safe.add(a)
    return False

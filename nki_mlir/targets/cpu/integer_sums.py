# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which folds of a nest are sums of integers: they are kept in float64, so that they do not depend on the order.

Addends are float32 values, of which float64 holds sums of 2^21 integers of 32 bits exactly. The sum is rounded once.
"""

from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.waist.nest import Nest


def integer_sums(nest: Nest) -> dict[int, int]:
    """Outputs that add up values made of integers alone, each with the number of the value."""
    found = {}
    for output, operand in enumerate(nest.outputs):
        old = nest.first_output + output
        step = nest.step(nest.results[output])
        if (not nest.reduced or any(operand.strides[a] for a in nest.reduced) or step is None or step.kind != "alu"
                or step.name != "add" or operand.dtype is not FLOAT32 or step.operands.count(old) != 1
                or nest.uses(old) != 1):
            continue
        value = next(v for v in step.operands if v != old)
        if of_integers(nest, value):
            found[output] = value
    return found


def of_integers(nest: Nest, value: int) -> bool:
    """Whether all that a value is computed from is integers and constants."""
    dtype = nest.dtype_of(value)
    if dtype is None or dtype.is_integer:
        return True
    step = nest.step(value)
    return step is not None and all(of_integers(nest, v) for v in step.operands)

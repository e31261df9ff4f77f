# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which folds of a nest are sums of integers: they are kept in float64, so that they do not depend on the order.

Addends are float32 values, of which float64 holds sums of 2^21 integers of 32 bits exactly. The sum is rounded once.
"""

from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.recognition import fold_of, of_integers


def integer_sums(nest: Nest) -> dict[int, int]:
    """Outputs that add up values made of integers alone, each with the number of the value."""
    found = {}
    for output, operand in enumerate(nest.outputs):
        fold = fold_of(nest, output) if nest.reduced and not any(operand.strides[a] for a in nest.reduced) else None
        if fold is not None and fold.fn == "add" and operand.dtype is FLOAT32 and of_integers(nest, fold.value):
            found[output] = fold.value
    return found

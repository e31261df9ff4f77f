# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which handles are of one buffer: Python has several objects for an SSA value, one for an array."""

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.targets.interpreter.unwritten_tiles import same


def test_handles_of_one_buffer():
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse("func.func @f(%a: index, %b: index) { return }")
        block = module.body.operations[0].regions[0].blocks[0]
        once, again, other = block.arguments[0], block.arguments[0], block.arguments[1]
        assert once is not again
        assert same(once, again) and same(once, once) and not same(once, other)
    array = np.zeros(4)
    assert same(array, array) and not same(array, array.copy()) and not same(array, array[:])
    assert not same(array, once) and not same(once, array)
